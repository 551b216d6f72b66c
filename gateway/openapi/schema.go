package openapi

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SchemaGiver is implemented by types that write their own JSON. OpenAPISchema returns a JSON Schema 2020-12 fragment,
// in which a reflect.Type stands for the schema of that type.
type SchemaGiver interface {
	OpenAPISchema() map[string]any
}

const schemaPrefix = "#/components/schemas/"

var (
	pathsInName = regexp.MustCompile(`[\w.~-]+/`)
	wordsInName = regexp.MustCompile(`[A-Za-z0-9]+`)
	notInName   = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

// schemas makes schemas of Go types. Named types become components, which makes recursive types possible.
type schemas struct {
	names      map[reflect.Type]string
	components map[string]any
}

func newSchemas() *schemas {
	return &schemas{names: map[reflect.Type]string{}, components: map[string]any{}}
}

// ref returns a reference to a component.
func ref(name string) object { return object{{"$ref", schemaPrefix + name}} }

// of returns the schema of values of t. Pointers are nullable.
func (s *schemas) of(t reflect.Type) (object, error) {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		o, err := s.of(t.Elem())
		return nullable(o), err
	}
	if schema, ok, err := s.specialSchema(t); ok || err != nil {
		return schema, err
	}
	if t.Name() == "" && modelOf(t) == "" || isScalar(t) || t.Kind() == reflect.Interface {
		return s.build(t)
	}
	return s.component(t, func() (any, error) { return s.build(t) })
}

// specialSchema returns the schema of a type that encoding/json does not write according to its kind. It reports
// whether t is such a type.
func (s *schemas) specialSchema(t reflect.Type) (object, bool, error) {
	switch t {
	case reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}, true, nil
	case reflect.TypeFor[json.RawMessage]():
		return object{}, true, nil
	case reflect.TypeFor[json.Number]():
		return object{{"type", "number"}}, true, nil
	}
	if t.Kind() == reflect.Interface {
		return object{}, true, nil
	}
	implements := func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) }
	switch {
	case implements(reflect.TypeFor[SchemaGiver]()):
		build := func() (any, error) { return s.ownSchema(t) }
		if t.Name() != "" {
			schema, err := s.component(t, build)
			return schema, true, err
		}
		fragment, err := s.ownSchema(t)
		return object{{"allOf", []any{fragment}}}, true, err
	case implements(reflect.TypeFor[json.Marshaler]()):
		return nil, true, fmt.Errorf("the type %s writes its own JSON: give it the method OpenAPISchema() map[string]any", t)
	case implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{{"type", "string"}}, true, nil
	}
	return nil, false, nil
}

// ownSchema returns the schema that a SchemaGiver has for itself.
func (s *schemas) ownSchema(t reflect.Type) (any, error) {
	giver, ok := reflect.New(t).Interface().(SchemaGiver)
	if !ok {
		return nil, fmt.Errorf("the type %s does not implement SchemaGiver", t)
	}
	return s.expand(giver.OpenAPISchema())
}

// expand replaces each reflect.Type in a fragment by the schema of that type.
func (s *schemas) expand(v any) (any, error) {
	var err error
	switch v := v.(type) {
	case reflect.Type:
		return s.of(v)
	case map[string]any:
		expanded := make(map[string]any, len(v))
		for name, value := range v {
			if expanded[name], err = s.expand(value); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		return sorted(expanded), nil
	case []any:
		expanded := make([]any, len(v))
		for i, value := range v {
			if expanded[i], err = s.expand(value); err != nil {
				return nil, err
			}
		}
		return expanded, nil
	case []map[string]any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = v[i]
		}
		return s.expand(all)
	}
	return v, nil
}

// component returns a reference to the component of t, which build makes if it is missing.
func (s *schemas) component(t reflect.Type, build func() (any, error)) (object, error) {
	if name, ok := s.names[t]; ok {
		return ref(name), nil
	}
	name := s.freeName(t)
	s.names[t] = name
	s.components[name] = object{} // reserves the name while build makes other components
	schema, err := build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	s.components[name] = schema
	return ref(name), nil
}

// modelOf returns the name in the model tag of a struct type, or "".
func modelOf(t reflect.Type) string {
	if t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Name == "_" {
		return t.Field(0).Tag.Get("model")
	}
	return ""
}

// prefix returns the prefix of component names for the types of a package. Generated clients use these names, so they
// must not change when a package moves: published has the prefixes that differ from the folder of the package.
func prefix(pkg string) string {
	published := map[string]string{
		"operation": "api", "people": "users", "organization": "organizations", "bundle": "transfer", "rate": "limits",
		"signin": "console",
	}
	return cmp.Or(published[path.Base(pkg)], path.Base(pkg))
}

// freeName returns PackageType, or the same with the whole import path if that is taken.
func (s *schemas) freeName(t reflect.Type) string {
	if t.Name() == "" {
		model := pascalCase(modelOf(t))
		for n, name := 2, model; ; n++ {
			if _, taken := s.components[name]; !taken {
				return name
			}
			name = model + strconv.Itoa(n)
		}
	}
	typeName := pathsInName.ReplaceAllString(t.Name(), "") // type arguments contain import paths
	name := pascalCase(prefix(t.PkgPath()) + "." + typeName)
	if _, taken := s.components[name]; !taken {
		return name
	}
	long := pascalCase(t.PkgPath() + "." + typeName)
	name = long
	for n := 2; ; n++ {
		if _, taken := s.components[name]; !taken {
			return name
		}
		name = long + strconv.Itoa(n)
	}
}

// pascalCase returns the text as a name that code generators keep as it is.
func pascalCase(text string) string {
	name := ""
	for _, word := range wordsInName.FindAllString(text, -1) {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// componentName replaces characters that the name of a component cannot contain.
func componentName(text string) string {
	return notInName.ReplaceAllString(text, "_")
}

// build returns the schema of t according to its kind.
func (s *schemas) build(t reflect.Type) (object, error) {
	switch t.Kind() {
	case reflect.Bool:
		return object{{"type", "boolean"}}, nil
	case reflect.String:
		return object{{"type", "string"}}, nil
	case reflect.Float32, reflect.Float64:
		return object{{"type", "number"}}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return object{{"type", "integer"}}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		return object{{"type", "integer"}, {"minimum", 0}}, nil
	case reflect.Slice, reflect.Array:
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			return object{{"type", "string"}, {"contentEncoding", "base64"}}, nil
		}
		items, err := s.of(t.Elem())
		if err != nil {
			return nil, err
		}
		o := object{{"type", "array"}, {"items", items}}
		if t.Kind() == reflect.Array {
			o = o.with("minItems", t.Len()).with("maxItems", t.Len())
		}
		return o, nil
	case reflect.Map:
		if !isScalar(t.Key()) && !t.Key().Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
			return nil, fmt.Errorf("the keys of the type %s cannot be JSON names", t)
		}
		values, err := s.of(t.Elem())
		return object{{"type", "object"}, {"additionalProperties", values}}, err
	case reflect.Struct:
		return s.structure(t)
	}
	return nil, fmt.Errorf("the type %s has no JSON form", t)
}

func (s *schemas) structure(t reflect.Type) (object, error) {
	o := object{{"type", "object"}}
	for i := range t.NumField() {
		if f := t.Field(i); f.Name == "_" && f.Tag.Get("doc") != "" {
			o = o.with("description", f.Tag.Get("doc"))
		}
	}
	properties, required := object{}, []string{}
	for _, f := range jsonFields(t) {
		schema, err := s.property(f)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
		properties = append(properties, member{f.name, schema})
		if f.required {
			required = append(required, f.name)
		}
	}
	o = o.with("properties", properties)
	if len(required) > 0 {
		o = o.with("required", required)
	}
	return o.with("additionalProperties", false), nil
}

// property returns the schema of a struct field, with the keywords of its tags.
func (s *schemas) property(f field) (object, error) {
	t := deref(f.typ)
	schema, err := s.of(t)
	if err != nil {
		return nil, err
	}
	if f.quoted {
		schema = object{{"type", "string"}}
	}
	keywords := object{}
	if format := f.tag.Get("format"); format != "" {
		keywords = append(keywords, member{"format", format})
	}
	if list := f.tag.Get("enum"); list != "" {
		values, err := enumValues(t, list)
		if err != nil {
			return nil, err
		}
		keywords = append(keywords, member{"enum", values})
	}
	schema = withKeywords(schema, keywords, isList(t))
	if f.nullable {
		schema = nullable(schema)
	}
	if doc := f.tag.Get("doc"); doc != "" {
		schema = schema.with("description", doc)
	}
	return schema, nil
}

func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Array || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8
}

// withKeywords adds keywords to a schema; for a list, to the schema of its items.
func withKeywords(schema, keywords object, list bool) object {
	if len(keywords) == 0 {
		return schema
	}
	if list {
		items, _ := schema.get("items").(object)
		return schema.with("items", withKeywords(items, keywords, false))
	}
	for _, m := range keywords {
		schema = schema.with(m.name, m.value)
	}
	return schema
}

func enumValues(t reflect.Type, list string) ([]any, error) {
	if isList(t) {
		t = t.Elem()
	}
	var values []any
	for text := range strings.SplitSeq(list, ",") {
		text = strings.TrimSpace(text)
		switch t.Kind() {
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("the enum value %q is not a whole number", text)
			}
			values = append(values, n)
		case reflect.String:
			values = append(values, text)
		default:
			return nil, fmt.Errorf("the type %s cannot have an enum", t)
		}
	}
	return values, nil
}

// nullable returns a schema of the same values and null.
func nullable(o object) object {
	if len(o) == 0 {
		return o
	}
	name, ok := o.get("type").(string)
	if !ok {
		if _, several := o.get("type").([]string); several {
			return o
		}
		return object{{"anyOf", []any{o, object{{"type", "null"}}}}}
	}
	o = o.with("type", []string{name, "null"})
	if values, ok := o.get("enum").([]any); ok && !slices.Contains(values, nil) {
		o = o.with("enum", append(slices.Clone(values), nil))
	}
	return o
}
