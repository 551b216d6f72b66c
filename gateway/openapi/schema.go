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

// SchemaGiver is a type that says itself how it looks as JSON, as a JSON Schema 2020-12
// fragment; types that write their own JSON need it. Anywhere in the fragment a
// reflect.Type may stand for the schema of that type.
type SchemaGiver interface {
	OpenAPISchema() map[string]any
}

const schemaPrefix = "#/components/schemas/"

var (
	pathsInName = regexp.MustCompile(`[\w.~-]+/`)
	wordsInName = regexp.MustCompile(`[A-Za-z0-9]+`)
	notInName   = regexp.MustCompile(`[^A-Za-z0-9._-]+`)
)

// schemas makes schemas of Go types. Named types become components, so that recursive
// types end.
type schemas struct {
	names      map[reflect.Type]string
	components map[string]any
}

func newSchemas() *schemas {
	return &schemas{names: map[reflect.Type]string{}, components: map[string]any{}}
}

// ref returns a reference to a component.
func ref(name string) object { return object{{"$ref", schemaPrefix + name}} }

// of returns the schema of the values of t. Pointers are nullable.
func (s *schemas) of(t reflect.Type) (object, error) {
	if t.Kind() == reflect.Pointer && t.Name() == "" {
		o, err := s.of(t.Elem())
		return nullable(o), err
	}
	if schema, done, err := s.special(t); done || err != nil {
		return schema, err
	}
	if t.Name() == "" && modelOf(t) == "" || isScalar(t) || t.Kind() == reflect.Interface {
		return s.build(t)
	}
	return s.component(t, func() (any, error) { return s.build(t) })
}

// special returns the schema of a type that encoding/json does not write by its kind.
func (s *schemas) special(t reflect.Type) (object, bool, error) {
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
		given := func() (any, error) { return s.given(t) }
		if t.Name() != "" {
			schema, err := s.component(t, given)
			return schema, true, err
		}
		fragment, err := s.given(t)
		return object{{"allOf", []any{fragment}}}, true, err
	case implements(reflect.TypeFor[json.Marshaler]()):
		return nil, true, fmt.Errorf("the type %s writes its own JSON: give it the method OpenAPISchema() map[string]any", t)
	case implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{{"type", "string"}}, true, nil
	}
	return nil, false, nil
}

func (s *schemas) given(t reflect.Type) (any, error) {
	giver, ok := reflect.New(t).Interface().(SchemaGiver)
	if !ok {
		return nil, fmt.Errorf("the type %s does not give its schema", t)
	}
	return s.expand(giver.OpenAPISchema())
}

// expand replaces every reflect.Type in a fragment by the schema of that type.
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

// component returns a reference to the component of t, made by build where there is none.
func (s *schemas) component(t reflect.Type, build func() (any, error)) (object, error) {
	if name, ok := s.names[t]; ok {
		return ref(name), nil
	}
	name := s.freeName(t)
	s.names[t] = name
	s.components[name] = object{} // so that nothing met on the way takes the name
	schema, err := build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	s.components[name] = schema
	return ref(name), nil
}

// modelOf returns what a struct type without a name is called, "" where it says nothing of it.
func modelOf(t reflect.Type) string {
	if t.Kind() == reflect.Struct && t.NumField() > 0 && t.Field(0).Name == "_" {
		return t.Field(0).Tag.Get("model")
	}
	return ""
}

// prefix returns what names of types of a package begin with. Generated clients know them by it, so that it stays when
// a package moves: the map has those that are called otherwise than their folder.
func prefix(pkg string) string {
	published := map[string]string{"operation": "api", "people": "users", "organization": "organizations", "bundle": "transfer", "rate": "limits", "signin": "console"}
	return cmp.Or(published[path.Base(pkg)], path.Base(pkg))
}

// freeName returns PackageType, with the whole path of the package where that is taken.
func (s *schemas) freeName(t reflect.Type) string {
	if t.Name() == "" {
		model := pascal(modelOf(t))
		for n, name := 2, model; ; n++ {
			if _, taken := s.components[name]; !taken {
				return name
			}
			name = model + strconv.Itoa(n)
		}
	}
	typeName := pathsInName.ReplaceAllString(t.Name(), "") // type arguments bear paths
	name := pascal(prefix(t.PkgPath()) + "." + typeName)
	if _, taken := s.components[name]; !taken {
		return name
	}
	long := pascal(t.PkgPath() + "." + typeName)
	name = long
	for n := 2; ; n++ {
		if _, taken := s.components[name]; !taken {
			return name
		}
		name = long + strconv.Itoa(n)
	}
}

// pascal returns the text as a name that generators of code leave as it is.
func pascal(text string) string {
	name := ""
	for _, word := range wordsInName.FindAllString(text, -1) {
		name += strings.ToUpper(word[:1]) + word[1:]
	}
	return name
}

// nameText replaces what the name of a component cannot contain.
func nameText(text string) string {
	return notInName.ReplaceAllString(text, "_")
}

// build returns the schema of t by its kind.
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
			return nil, fmt.Errorf("the type %s has keys that are no JSON names", t)
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
		if f.always {
			required = append(required, f.name)
		}
	}
	o = o.with("properties", properties)
	if len(required) > 0 {
		o = o.with("required", required)
	}
	return o.with("additionalProperties", false), nil
}

// property returns the schema of a struct's field with what its tags add.
func (s *schemas) property(f field) (object, error) {
	t := pointed(f.typ)
	schema, err := s.of(t)
	if err != nil {
		return nil, err
	}
	if f.quoted {
		schema = object{{"type", "string"}}
	}
	limits := object{}
	if format := f.tag.Get("format"); format != "" {
		limits = append(limits, member{"format", format})
	}
	if list := f.tag.Get("enum"); list != "" {
		values, err := enumValues(t, list)
		if err != nil {
			return nil, err
		}
		limits = append(limits, member{"enum", values})
	}
	schema = limited(schema, limits, isList(t))
	if f.null {
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

// limited adds keywords to a schema, to that of the items where it is a list.
func limited(schema, limits object, list bool) object {
	if len(limits) == 0 {
		return schema
	}
	if list {
		items, _ := schema.get("items").(object)
		return schema.with("items", limited(items, limits, false))
	}
	for _, m := range limits {
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
				return nil, fmt.Errorf("the enum value %q is no whole number", text)
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

// nullable returns the schema of the same values and null.
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
