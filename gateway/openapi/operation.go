package openapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// add describes the operation under each of its paths.
func (b *builder) add(op *operation.Row) error {
	if op.Data == nil && op.Plain() {
		return errors.New("it has no Data")
	}
	responses, err := b.responses(op)
	if err != nil {
		return err
	}
	for i, path := range op.Paths() {
		id := op.ID(i)
		if b.ids[id] {
			return fmt.Errorf("the operation identifier %s is used twice", id)
		}
		b.ids[id] = true
		described := object{
			{"operationId", id}, {"tags", []string{op.Tag}}, {"summary", op.Summary}, {"description", description(op)},
		}
		params, err := parameters(op, path)
		if err != nil {
			return err
		}
		described = append(described, member{"parameters", params})
		if op.Body != nil {
			body, err := b.requestBody(op)
			if err != nil {
				return err
			}
			described = append(described, member{"requestBody", body})
		}
		if op.Upload != nil {
			file, err := upload(op)
			if err != nil {
				return err
			}
			described = append(described, member{"requestBody", file})
		}
		described = append(described, member{"responses", responses}, member{"security", security(op)})
		method := strings.ToLower(op.Method)
		if b.paths[path] == nil {
			b.paths[path] = map[string]object{}
		}
		if _, taken := b.paths[path][method]; taken {
			return fmt.Errorf("another operation has the path %s %s", op.Method, path)
		}
		b.paths[path][method] = described
	}
	return nil
}

// binary is the schema of bytes.
func binary() object { return object{{"type", "string"}, {"format", "binary"}} }

// upload describes the file that is the body, by media type. The files of a form are its field file.
func upload(op *operation.Row) (object, error) {
	content := object{}
	for i, kind := range op.Upload {
		if kind != operation.FormMedia {
			content = append(content, member{kind, object{{"schema", binary()}, {"example", op.UploadExamples[i]}}})
			continue
		}
		fields := object{{"file", object{{"type", "array"}, {"items", binary()}}}}
		for j := range op.Params {
			if p := &op.Params[j]; op.FormFields && p.In == operation.InQuery {
				schema, err := parameterSchema(p)
				if err != nil {
					return nil, err
				}
				fields = append(fields, member{p.Name, schema.with("description", p.Description)})
			}
		}
		content = append(content, member{kind, object{{"schema", object{{"type", "object"}, {"properties", fields}}}}})
	}
	return object{{"required", true}, {"content", content}}, nil
}

func security(op *operation.Row) []any {
	accepted := []any{}
	if op.Credentials&operation.Key != 0 {
		accepted = append(accepted, object{{keyScheme, []string{}}})
	}
	if op.Credentials&operation.Session != 0 {
		accepted = append(accepted, object{{sessionScheme, []string{}}})
	}
	return accepted
}

var pathParam = regexp.MustCompile(`\{([^{}/]+)\}`)

// parameters returns the parameters of the path, those of the query and headers, and the shared ones.
func parameters(op *operation.Row, path string) ([]any, error) {
	list := []any{}
	for _, m := range pathParam.FindAllStringSubmatch(path, -1) {
		at := slices.IndexFunc(op.Params, func(p operation.Param) bool {
			return p.In == operation.InPath && p.Name == m[1]
		})
		if at < 0 {
			return nil, fmt.Errorf("the path parameter %s is not declared", m[1])
		}
		described, err := parameter(&op.Params[at])
		if err != nil {
			return nil, err
		}
		list = append(list, described)
	}
	for i := range op.Params {
		p := &op.Params[i]
		switch p.In {
		case operation.InPath:
			continue
		case operation.InQuery, operation.InHeader:
		default:
			return nil, fmt.Errorf("the parameter %s is in neither the path, the query nor a header", p.Name)
		}
		described, err := parameter(p)
		if err != nil {
			return nil, err
		}
		list = append(list, described)
	}
	if op.Teams {
		list = append(list, object{{"$ref", "#/components/parameters/" + teamsParam}})
	}
	if op.Contract { // other operations ignore no input
		list = append(list, object{{"$ref", "#/components/parameters/" + preferParam}})
	}
	if op.Conditional() {
		list = append(list, object{{"$ref", "#/components/parameters/" + ifMatchParam}})
	}
	if op.Repeatable() {
		list = append(list, object{{"$ref", "#/components/parameters/" + idempotencyParam}})
	}
	if op.Content != nil {
		list = append(list, headerParameter("Range", object{{"type", "string"}},
			"The bytes to answer, such as bytes=0-1023 (RFC 9110). If-Range, If-Match, If-Modified-Since and If-Unmodified-Since count as well."))
	}
	if canHappen(op, http.StatusNotModified) {
		list = append(list, object{{"$ref", "#/components/parameters/" + ifNoneMatchParam}})
	}
	return list, nil
}

func parameter(p *operation.Param) (object, error) {
	schema, err := parameterSchema(p)
	if err != nil {
		return nil, err
	}
	name, text := p.Name, p.Description
	var example any
	switch p.Shape {
	case operation.List:
		name += "[]"
		example = []string{p.Example}
	case operation.Tree:
		text = strings.TrimSpace(text + fmt.Sprintf(
			" Each member is sent under its own name, brackets included: %[1]s[name]=value, %[1]s[name][key]=value.", p.Name))
		name = cmp.Or(p.Document, name)
		if example, err = treeExample(p); err != nil {
			return nil, err
		}
	default:
		if p.Example != "" {
			if example, err = parseText(p.Shape, p.Example); err != nil {
				return nil, fmt.Errorf("the example of the parameter %s %w", p.Name, err)
			}
		}
	}
	o := object{{"name", name}, {"in", string(p.In)}, {"required", p.Required || p.In == operation.InPath}}
	if text != "" {
		o = append(o, member{"description", text})
	}
	switch p.Shape {
	case operation.List, operation.Tree: // not deepObject, which does not define how members nest
		o = append(o, member{"style", "form"}, member{"explode", true})
	}
	o = append(o, member{"schema", schema})
	if p.Example != "" {
		o = append(o, member{"example", example})
	}
	return o, nil
}

func parameterSchema(p *operation.Param) (object, error) {
	if p.Shape == operation.Tree {
		pattern := "^" + p.Name + `\[[A-Za-z0-9_-]+\](\[[A-Za-z0-9_-]*\]){0,4}$`
		if len(p.Names) > 0 && !p.Defined {
			pattern = "^" + p.Name + `(\[or\]\[[0-9]+\])?\[(` + strings.Join(p.Names, "|") + `)\](\[[a-z_]*\]){0,2}$`
		}
		return object{
			{"type", "object"}, {"propertyNames", object{{"pattern", pattern}}},
			{"additionalProperties", object{{"type", "string"}}},
		}, nil
	}
	shape := p.Shape
	if shape == operation.List {
		shape = operation.Text
	}
	schema, err := shapeSchema(shape)
	if err != nil {
		return nil, fmt.Errorf("the parameter %s: %w", p.Name, err)
	}
	if len(p.Enum) > 0 {
		values := make([]any, len(p.Enum))
		for i, text := range p.Enum {
			if values[i], err = parseText(shape, text); err != nil {
				return nil, fmt.Errorf("an enum value of the parameter %s %w", p.Name, err)
			}
		}
		schema = schema.with("enum", values)
	}
	schema = withBounds(schema, p.Bounds)
	if p.Secret {
		schema = schema.with("format", "password")
	}
	if p.Shape == operation.List {
		schema = object{{"type", "array"}, {"items", schema}}
	}
	if p.Default != "" {
		value, err := parseText(shape, p.Default)
		if err != nil {
			return nil, fmt.Errorf("the default of the parameter %s %w", p.Name, err)
		}
		if p.Shape == operation.List {
			value = []any{value}
		}
		schema = schema.with("default", value)
	}
	return schema, nil
}

// withBounds adds the bounds to a schema.
func withBounds(schema object, b operation.Bounds) object {
	for _, bound := range []struct {
		keyword string
		value   int64
	}{
		{"minimum", b.Least}, {"maximum", b.Most},
		{"minLength", int64(b.MinLength)}, {"maxLength", int64(b.MaxLength)},
	} {
		if bound.value != 0 {
			schema = schema.with(bound.keyword, bound.value)
		}
	}
	if b.Pattern != "" {
		schema = schema.with("pattern", b.Pattern)
	}
	return schema
}

func shapeSchema(shape operation.Shape) (object, error) {
	switch shape {
	case operation.Text, operation.Integer, operation.Boolean:
		return object{{"type", string(shape)}}, nil
	case operation.Object: // explicit, because some generators allow no members otherwise
		return object{{"type", string(shape)}, {"additionalProperties", true}}, nil
	case operation.List:
		return object{{"type", "array"}, {"items", object{}}}, nil
	}
	return nil, fmt.Errorf("the shape %q is not allowed here", shape)
}

// parseText parses the text of a parameter as a JSON value. Its errors continue a sentence about the text.
func parseText(shape operation.Shape, text string) (any, error) {
	switch shape {
	case operation.Integer:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("is %q, not a whole number", text)
		}
		return n, nil
	case operation.Boolean:
		switch text {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
		return nil, fmt.Errorf("is %q, not a boolean", text)
	case operation.Object:
		if err := strictjson.Check([]byte(text)); err != nil {
			return nil, fmt.Errorf("is not JSON: %w", err)
		}
		return json.RawMessage(text), nil
	}
	return text, nil
}

// treeExample parses the example of a tree, which is a query string ("filters[country]=DE&filters[age][gt]=30").
func treeExample(p *operation.Param) (any, error) {
	if p.Example == "" {
		return nil, nil
	}
	query, err := operation.ParseQuery(p.Example)
	if err != nil {
		return nil, fmt.Errorf("the example of the parameter %s is not a query string: %w", p.Name, err)
	}
	tree := map[string]string{}
	for _, pair := range query.Tree(p.Name) {
		tree[pair.Name] = pair.Value
	}
	if len(tree) == 0 {
		return nil, fmt.Errorf("the example of the parameter %[1]s must look like %[1]s[name]=value", p.Name)
	}
	return tree, nil
}

// requestBody describes the body. Unknown fields are allowed if the operation ignores them.
func (b *builder) requestBody(op *operation.Row) (object, error) {
	properties, required, example, complete := object{}, []string{}, object{}, true
	for _, f := range op.Body {
		schema, err := shapeSchema(f.Shape)
		if err != nil {
			return nil, fmt.Errorf("the body field %s: %w", f.Name, err)
		}
		schema = withBounds(schema, f.Bounds)
		if f.Type != nil {
			if schema, err = b.schemas.of(reflect.TypeOf(f.Type)); err != nil {
				return nil, fmt.Errorf("the body field %s: %w", f.Name, err)
			}
		}
		if len(f.Enum) > 0 && f.Shape == operation.Text {
			schema = schema.with("enum", f.Enum)
		}
		if f.Nullable {
			schema = nullable(schema)
		}
		if f.Default != nil {
			schema = schema.with("default", f.Default)
		}
		if f.Description != "" {
			schema = schema.with("description", f.Description)
		}
		if f.Secret {
			schema = schema.with("writeOnly", true)
		}
		if f.Example != nil {
			schema = schema.with("examples", []any{f.Example})
			example = append(example, member{f.Name, f.Example})
		}
		properties = properties.with(f.Name, schema)
		if f.Required {
			required = append(required, f.Name)
			complete = complete && f.Example != nil
		}
	}
	if op.Teams && properties.get("teams") == nil {
		properties = properties.with("teams", nullable(teamList()).
			with("description", "Narrows the operation to these teams if the query has no teams[]."))
	}
	others := "Other fields are a 422."
	if op.Contract {
		others = "Other fields are ignored and named in the header " + ignoredHeader + "; with strict handling they are a 400."
	}
	schema := object{{"type", "object"}, {"description", others}, {"properties", properties}}
	if len(required) > 0 {
		schema = append(schema, member{"required", required})
	}
	media := object{{"schema", append(schema, member{"additionalProperties", op.Contract})}}
	if complete && len(example) > 0 {
		media = append(media, member{"example", example})
	}
	return object{
		{"required", !op.Bodiless}, // an empty body is not a JSON object
		{"content", object{{"application/json", media}}},
	}, nil
}
