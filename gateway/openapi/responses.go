package openapi

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/gateway/api"
	"tenantry/tenants"
)

// The envelopes of failures that operations share, as components.
const (
	failedSchema     = "Failed"
	validationSchema = "FailedValidation"
)

// answer gathers what can come with one status code.
type answer struct {
	name        string // of the component; empty: described where it is used
	description []string
	headers     []string
	schemas     []object // alternatives
	examples    object
}

func (a *answer) addSchema(schema object) error {
	text, err := encode(schema)
	if err != nil {
		return err
	}
	for _, known := range a.schemas {
		if other, err := encode(known); err == nil && string(other) == string(text) {
			return nil
		}
	}
	a.schemas = append(slices.Clip(a.schemas), schema)
	return nil
}

func (a *answer) addExample(summary string, envelope api.Envelope) {
	name := api.StatusOK
	if envelope.Status == api.StatusFailed {
		if name = slug(envelope.Message); name == api.StatusOK {
			name = api.StatusFailed
		}
	}
	for unique, n := name, 2; ; n++ {
		if a.examples.get(unique) == nil {
			name = unique
			break
		}
		unique = name + "_" + strconv.Itoa(n)
	}
	example := object{{"value", envelope}}
	if summary != "" {
		example = object{{"summary", summary}, {"value", envelope}}
	}
	a.examples = a.examples.with(name, example)
}

func (a *answer) response() object {
	o := object{{"description", strings.Join(a.description, " ")}}
	if len(a.headers) > 0 {
		headers := object{}
		for _, name := range a.headers {
			headers = append(headers, member{name, object{{"$ref", "#/components/headers/" + name}}})
		}
		o = append(o, member{"headers", headers})
	}
	schema := a.schemas[0]
	if len(a.schemas) > 1 {
		schema = object{{"anyOf", a.schemas}}
	}
	media := object{{"schema", schema}}
	if len(a.examples) > 0 {
		media = append(media, member{"examples", a.examples})
	}
	return append(o, member{"content", object{{"application/json", media}}})
}

func slug(text string) string {
	name := strings.Trim(notInName.ReplaceAllString(strings.ToLower(text), "_"), "_.")
	if len(name) > 40 {
		name = strings.Trim(name[:40], "_.")
	}
	if name == "" {
		return "example"
	}
	return name
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

func emptyList() object { return object{{"type", "array"}, {"maxItems", 0}} }

// sharedAnswers returns what every operation can answer beside its own rows of failures.
func (b *builder) sharedAnswers() map[int]*answer {
	plain, validation := ref(failedSchema), ref(validationSchema)
	answers := map[int]*answer{
		http.StatusBadRequest: {name: "BadRequest", description: []string{
			"The query string or body cannot be read, or the caller asked for strict handling and sent input that would be ignored."}},
		http.StatusForbidden: {name: "Denied", description: []string{"The credential is not accepted here. The answer is the same whatever the reason."}},
		http.StatusConflict: {name: "Conflict", description: []string{
			"A value that must be unique is taken, or the record was changed meanwhile."}, schemas: []object{plain, validation}},
		http.StatusRequestEntityTooLarge: {name: "ContentTooLarge", description: []string{"The body is larger than the operation takes."}},
		http.StatusUnsupportedMediaType:  {name: "UnsupportedMediaType", description: []string{"The body is not announced as application/json."}},
		http.StatusUnprocessableEntity: {name: "Invalid", description: []string{
			"Input can be read but not accepted. Every problem is listed."}, schemas: []object{validation}},
		http.StatusTooManyRequests:     {name: "TooManyRequests", description: []string{"Too many requests."}, headers: []string{retryAfterHeader}},
		http.StatusInternalServerError: {name: "InternalError", description: []string{"A fault of the service."}},
		http.StatusServiceUnavailable: {name: "Unavailable", description: []string{
			"The service, or something it needs, is down for the moment."}, headers: []string{retryAfterHeader}},
	}
	_, unreadable := api.ParseBody([]byte(`{"name": "A", "name": "B"}`))
	for _, err := range []error{
		unreadable, api.Denied(""), api.Duplicate("name"), store.ErrConflict,
		api.Invalid("name", "required", "%s is required", "name"), api.Internal(nil), api.Unavailable(nil),
	} {
		problem := api.ProblemOf(err)
		answers[problem.Code].addExample("", problem.Envelope())
	}
	for _, a := range answers {
		if a.schemas == nil {
			a.schemas = []object{plain}
		}
	}
	return answers
}

// sharedResponses returns the components for the answers that operations share, and makes
// the schemas of their envelopes.
func (b *builder) sharedResponses() (object, error) {
	list, err := b.schemas.of(reflect.TypeFor[[]api.FieldError]())
	if err != nil {
		return nil, err
	}
	b.schemas.components[failedSchema] = envelope(api.StatusFailed, emptyList())
	b.schemas.components[validationSchema] = envelope(api.StatusFailed, object{
		{"type", "object"},
		{"properties", object{{"errors", list}}},
		{"required", []string{"errors"}},
		{"additionalProperties", false},
	})
	components := map[string]object{}
	for _, a := range b.sharedAnswers() {
		components[a.name] = a.response()
	}
	return sorted(components), nil
}

// responses returns the answers of the operation by status code.
func (b *builder) responses(op *api.Operation) (object, error) {
	success, err := b.success(op)
	if err != nil {
		return nil, err
	}
	answers := map[int]*answer{}
	for code, a := range b.sharedAnswers() {
		if canHappen(op, code) {
			answers[code] = a
		}
	}
	if err := b.refusal(op, answers[http.StatusForbidden]); err != nil {
		return nil, err
	}
	failedOK := &answer{}
	for _, f := range op.Failures {
		into := answers[f.Code]
		switch {
		case f.Code == http.StatusOK:
			into = failedOK
		case f.Code < 400 || f.Code > 599:
			return nil, fmt.Errorf("a failure has the code %d", f.Code)
		case into == nil:
			into = &answer{schemas: []object{ref(failedSchema)}}
			answers[f.Code] = into
		}
		if err := b.failure(into, f); err != nil {
			return nil, err
		}
	}
	all := object{{"200", okResponse(op, success, failedOK)}}
	for _, code := range slices.Sorted(maps.Keys(answers)) {
		a := answers[code]
		response := object{{"$ref", "#/components/responses/" + a.name}}
		if a.name == "" {
			response = a.response()
		}
		all = append(all, member{strconv.Itoa(code), response})
	}
	return all, nil
}

// canHappen reports whether the pipeline in front of the handler, or a handler of that
// kind, can answer with the code.
func canHappen(op *api.Operation, code int) bool {
	switch code {
	case http.StatusConflict:
		return op.Method != http.MethodGet
	case http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType:
		return op.Body != nil
	case http.StatusUnprocessableEntity:
		return op.Body != nil || slices.ContainsFunc(op.Params, func(p api.Param) bool { return p.In == api.InQuery })
	}
	return true
}

// refusal adds what the row's rule answers to a caller who holds nothing.
func (b *builder) refusal(op *api.Operation, into *answer) error {
	var problem *api.Problem
	if !errors.As(op.Rule.Check(&tenants.Principal{}), &problem) || problem.Data == nil {
		return nil
	}
	return b.failure(into, api.Failure{
		Code: problem.Code, Message: problem.Message, Data: problem.Data, When: "The caller does not hold the permission.",
	})
}

// failure adds a row's own failure. The answer is then this operation's, no component.
func (b *builder) failure(into *answer, f api.Failure) error {
	into.name = ""
	schema := ref(failedSchema)
	if f.Data != nil {
		data, err := b.exampleSchema(reflect.ValueOf(f.Data))
		if err != nil {
			return fmt.Errorf("the data of the failure %q: %w", f.Message, err)
		}
		schema = envelope(api.StatusFailed, data)
	}
	if err := into.addSchema(schema); err != nil {
		return err
	}
	when := strings.TrimSpace(f.When)
	if when == "" {
		when = f.Message
	}
	if !strings.HasSuffix(when, ".") {
		when += "."
	}
	if !slices.Contains(into.description, when) {
		into.description = append(slices.Clip(into.description), when)
	}
	problem := api.Problem{Message: f.Message, Data: f.Data}
	into.addExample(f.When, problem.Envelope())
	return nil
}

// exampleSchema returns the schema of values like the example: of a map, one with the
// same members, and of anything else that of its type.
func (b *builder) exampleSchema(v reflect.Value) (object, error) {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case !v.IsValid():
		return object{}, nil
	case v.Kind() == reflect.Slice && v.Len() == 0 && v.Type().Elem().Kind() == reflect.Interface:
		return emptyList(), nil
	case v.Kind() != reflect.Map || v.Type().Key().Kind() != reflect.String || v.Type().Implements(reflect.TypeFor[SchemaGiver]()):
		return b.schemas.of(v.Type())
	}
	properties, required := map[string]object{}, []string{}
	for _, key := range v.MapKeys() {
		schema, err := b.exampleSchema(v.MapIndex(key))
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
	return append(o, member{"additionalProperties", false}), nil
}

func (b *builder) success(op *api.Operation) (object, error) {
	t := reflect.TypeOf(op.Data)
	if t.Kind() == reflect.Pointer {
		t = t.Elem() // a value to show the type; data is not null
	}
	data, err := b.schemas.of(t)
	if err != nil {
		return nil, fmt.Errorf("its data: %w", err)
	}
	return envelope(api.StatusOK, data), nil
}

// okResponse describes code 200: the success and, where there are any, the failures that
// answer with the same code.
func okResponse(op *api.Operation, success object, failed *answer) object {
	a := &answer{
		description: []string{"Success: " + op.Message + "."}, headers: []string{ignoredHeader}, schemas: []object{success},
	}
	if len(failed.schemas) > 0 {
		a.description = append(a.description, "Or a failure, with status \"failed\": "+strings.Join(failed.description, " "))
		// Status tells success from failure, so exactly one of the two sides holds.
		failure := failed.schemas[0]
		if len(failed.schemas) > 1 {
			failure = object{{"anyOf", failed.schemas}}
		}
		a.schemas = []object{{{"oneOf", []object{success, failure}}}}
	}
	if op.Example != nil {
		a.addExample("Success", api.Envelope{Status: api.StatusOK, Message: op.Message, Data: op.Example})
	}
	for _, m := range failed.examples {
		a.examples = append(a.examples, m)
	}
	return a.response()
}
