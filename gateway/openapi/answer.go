package openapi

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"tenantry/operation"
)

// sample is an example of a failure.
type sample struct {
	problem operation.Problem // without a message: it shows the schema alone
	when    string
	exact   bool // strings in the data are constants
}

// answer collects the answers of an operation with one status code.
type answer struct {
	name        string // of the component; empty: it is inline
	uncounted   bool   // request limits do not apply
	description []string
	headers     []string
	samples     []sample
	content     object // by media type; nil: JSON of the schemas

	schemas  []object // alternatives
	examples object
}

// describe adds a sentence to the description, unless it has it already.
func (a *answer) describe(sentence string) {
	sentence = strings.TrimSpace(sentence)
	if sentence == "" {
		return
	}
	first, size := utf8.DecodeRuneInString(sentence)
	sentence = string(unicode.ToUpper(first)) + sentence[size:]
	if !strings.HasSuffix(sentence, ".") {
		sentence += "."
	}
	if !slices.Contains(a.description, sentence) {
		a.description = append(slices.Clip(a.description), sentence)
	}
}

// addSchema adds an alternative, unless an equal one is there.
func (a *answer) addSchema(schema object) error {
	for _, known := range a.schemas {
		same, err := equal(known, schema)
		if same || err != nil {
			return err
		}
	}
	a.schemas = append(slices.Clip(a.schemas), schema)
	return nil
}

// equal reports whether both encode as the same JSON.
func equal(a, b any) (bool, error) {
	textA, err := encode(a)
	if err != nil {
		return false, err
	}
	textB, err := encode(b)
	return bytes.Equal(textA, textB), err
}

// addExample adds an example, unless an equal one is there.
func (a *answer) addExample(summary string, envelope operation.Envelope) error {
	example := object{{"value", envelope}}
	if summary != "" {
		example = object{{"summary", summary}, {"value", envelope}}
	}
	for _, m := range a.examples {
		known, _ := m.value.(object)
		same, err := equal(known.get("value"), envelope)
		if same || err != nil {
			return err
		}
	}
	base := operation.StatusOK
	if envelope.Status == operation.StatusFailed {
		if base = slug(envelope.Message); base == operation.StatusOK {
			base = operation.StatusFailed
		}
	}
	name := base
	for n := 2; a.examples.get(name) != nil; n++ {
		name = base + "_" + strconv.Itoa(n)
	}
	a.examples = append(slices.Clip(a.examples), member{name, example})
	return nil
}

// slug returns a name for the text, of at most 40 bytes, cut between words.
func slug(text string) string {
	const maxLength = 40
	name := strings.Trim(componentName(strings.ToLower(text)), "_.-")
	if len(name) > maxLength {
		if cut := strings.LastIndexByte(name[:maxLength+1], '_'); cut > 0 {
			name = name[:cut]
		} else {
			name = name[:maxLength]
		}
	}
	if name == "" {
		return "example"
	}
	return name
}

// response returns the Response Object.
func (a *answer) response() object {
	headers := object{}
	names := append([]string{requestIDHeader}, a.headers...)
	if !a.uncounted {
		names = append(names, limitHeader, remainingHeader, resetHeader)
	}
	for _, name := range names {
		headers = append(headers, member{name, object{{"$ref", "#/components/headers/" + name}}})
	}
	described := object{{"description", strings.Join(a.description, " ")}, {"headers", headers}}
	if len(a.schemas) == 0 {
		return described
	}
	media := object{{"schema", anyOf(a.schemas)}}
	if len(a.examples) > 0 {
		media = append(media, member{"examples", a.examples})
	}
	content := a.content
	if content == nil {
		content = object{{"application/json", media}}
	}
	return append(described, member{"content", content})
}

func anyOf(schemas []object) object {
	if len(schemas) == 1 {
		return schemas[0]
	}
	return object{{"anyOf", schemas}}
}

// asComponent makes the schema a component and returns a reference to it. Some generators ignore a choice, or its
// alternatives, without a name.
func (b *builder) asComponent(name string, schema object) (object, error) {
	if schema.get("$ref") != nil {
		return schema, nil
	}
	if known := b.schemas.components[name]; known != nil {
		if same, err := equal(known, schema); err != nil || !same {
			return nil, errors.Join(err, fmt.Errorf("an answer needs the component name %s, which another schema has", name))
		}
	}
	b.schemas.components[name] = schema
	return ref(name), nil
}

// nameAlternatives makes components of the alternatives of an answer, if it has several or is a component itself. Some
// generators make no types for inline schemas there.
func (b *builder) nameAlternatives(a *answer, base string) error {
	n := 0
	for i, schema := range a.schemas {
		if len(a.schemas) == 1 && a.name == "" || schema.get("$ref") != nil {
			continue
		}
		name := base + "Failure"
		if n++; n > 1 {
			name += strconv.Itoa(n)
		}
		var err error
		if a.schemas[i], err = b.asComponent(name, schema); err != nil {
			return err
		}
	}
	return nil
}

func envelope(status string, data any) object {
	return object{
		{"type", "object"},
		{"properties", object{
			{"status", object{{"type", "string"}, {"const", status}}},
			{"message", object{{"type", "string"}}},
			{"data", data},
		}},
		{"required", []string{"status", "message", "data"}},
		{"additionalProperties", false},
	}
}

func emptyList() object { return object{{"type", "array"}, {"items", object{}}, {"maxItems", 0}} }

// addSamples turns the samples of an answer into schemas and examples.
func (b *builder) addSamples(a *answer) error {
	for _, s := range a.samples {
		schema, err := b.failedEnvelope(s)
		if err != nil {
			return err
		}
		if err := a.addSchema(schema); err != nil {
			return err
		}
		a.describe(s.when)
		if s.problem.Message == "" {
			continue
		}
		if err := a.addExample(s.when, s.problem.Envelope()); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) failedEnvelope(s sample) (object, error) {
	if s.problem.Data == nil {
		return ref(failedSchema), nil
	}
	data, err := b.exampleSchema(reflect.ValueOf(s.problem.Data), s.exact)
	if err != nil {
		return nil, err
	}
	schema := envelope(operation.StatusFailed, data)
	for _, name := range []string{failedSchema, validationSchema} {
		same, err := equal(schema, b.schemas.components[name])
		if err != nil {
			return nil, err
		}
		if same {
			return ref(name), nil
		}
	}
	return schema, nil
}

// exampleSchema returns a schema for values like the example: for a map, an object with the same members; otherwise the
// schema of its type. With exact, strings are constants.
func (b *builder) exampleSchema(v reflect.Value, exact bool) (object, error) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return object{}, nil
	case v.Kind() == reflect.Slice && v.Len() == 0 && v.Type().Elem().Kind() == reflect.Interface:
		return emptyList(), nil
	case v.Kind() == reflect.String && exact:
		return object{{"type", "string"}, {"const", v.String()}}, nil
	case v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String,
		v.Type().Implements(reflect.TypeFor[SchemaGiver]()):
		return b.schemas.of(v.Type())
	}
	properties, required := map[string]object{}, []string{}
	for _, key := range v.MapKeys() {
		schema, err := b.exampleSchema(v.MapIndex(key), exact)
		if err != nil {
			return nil, err
		}
		properties[key.String()] = schema
		required = append(required, key.String())
	}
	slices.Sort(required)
	o := object{{"type", "object"}}
	if len(properties) > 0 {
		o = append(o, member{"properties", sorted(properties)}, member{"required", required})
	}
	o = append(o, member{"additionalProperties", false})
	return b.orValidationData(o)
}

// orValidationData returns the schema, or a reference to the component for data of validation errors if they are equal.
func (b *builder) orValidationData(schema object) (object, error) {
	name := b.schemas.names[reflect.TypeOf(validationData())]
	if same, err := equal(schema, b.schemas.components[name]); !same {
		return schema, err
	}
	return ref(name), nil
}
