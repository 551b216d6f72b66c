package openapitest

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ValidateDocument fails the test for every fault of the document: members that OpenAPI
// 3.1 demands and are missing, operation identifiers used twice, path parameters that
// differ from the template, references to nothing, schemas that do not compile, and
// examples and defaults that their schema does not admit.
func (v *Validator) ValidateDocument(t testing.TB) {
	t.Helper()
	for _, fault := range v.CheckDocument() {
		t.Errorf("OpenAPI document: %v", fault)
	}
}

// CheckDocument returns the faults of the document, in the order of their places.
func (v *Validator) CheckDocument() []error {
	c := &checker{v: v}
	c.root()
	c.operations()
	c.walk(v.doc, "", keywords)
	return c.faults
}

// checker gathers faults.
type checker struct {
	v      *Validator
	faults []error
}

func (c *checker) fault(at, format string, args ...any) {
	c.faults = append(c.faults, fmt.Errorf("%s: %s", at, fmt.Sprintf(format, args...)))
}

func (c *checker) text(o map[string]any, at, name string) string {
	s, ok := o[name].(string)
	if !ok || s == "" {
		c.fault(at, "%s is missing", name)
	}
	return s
}

func child(o map[string]any, name string) map[string]any {
	found, _ := o[name].(map[string]any)
	return found
}

func (c *checker) root() {
	doc := c.v.doc
	if version := c.text(doc, "", "openapi"); !strings.HasPrefix(version, "3.1.") {
		c.fault("", "openapi is %q, not 3.1", version)
	}
	info := child(doc, "info")
	c.text(info, "/info", "title")
	c.text(info, "/info", "version")
	if child(doc, "paths") == nil {
		c.fault("", "paths is missing")
	}
	servers, _ := doc["servers"].([]any)
	for i, s := range servers {
		server, _ := s.(map[string]any)
		at := pointer("servers", strconv.Itoa(i))
		for _, name := range variables(c.text(server, at, "url")) {
			c.text(child(child(server, "variables"), name), at+pointer("variables", name), "default")
		}
	}
}

func variables(template string) []string {
	var names []string
	for _, m := range regexp.MustCompile(`\{([^{}]*)\}`).FindAllStringSubmatch(template, -1) {
		names = append(names, m[1])
	}
	return names
}

func (c *checker) operations() {
	schemes := child(child(c.v.doc, "components"), "securitySchemes")
	tags := map[string]bool{}
	list, _ := c.v.doc["tags"].([]any)
	for _, t := range list {
		tag, _ := t.(map[string]any)
		tags[c.text(tag, "/tags", "name")] = true
	}
	seen := map[string]string{}
	for _, r := range c.v.routes {
		found, _ := lookup(c.v.doc, r.pointer)
		op, _ := found.(map[string]any)
		if !slices.Contains([]string{"GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"}, r.method) {
			c.fault(r.pointer, "%s is no method", r.method)
		}
		if !strings.HasPrefix(r.template, "/") {
			c.fault(r.pointer, "the path does not start with a slash")
		}
		id := c.text(op, r.pointer, "operationId")
		if other, taken := seen[id]; taken {
			c.fault(r.pointer, "the operationId %s is that of %s too", id, other)
		}
		seen[id] = r.pointer
		named, _ := op["tags"].([]any)
		for _, tag := range named {
			if name, _ := tag.(string); !tags[name] {
				c.fault(r.pointer, "the tag %v is not declared", tag)
			}
		}
		requirements, _ := op["security"].([]any)
		for _, requirement := range requirements {
			names, _ := requirement.(map[string]any)
			for name := range names {
				if schemes[name] == nil {
					c.fault(r.pointer, "the security scheme %s is not declared", name)
				}
			}
		}
		c.parameters(r, op)
		c.responses(r, op)
	}
}

func (c *checker) parameters(r route, op map[string]any) {
	inTemplate := variables(r.template)
	list, _ := op["parameters"].([]any)
	seen := map[string]bool{}
	for i := range list {
		p, at, err := c.v.resolve(r.pointer + pointer("parameters", strconv.Itoa(i)))
		if err != nil {
			continue // the walk reports it
		}
		name, in := c.text(p, at, "name"), c.text(p, at, "in")
		if seen[in+" "+name] {
			c.fault(r.pointer, "the parameter %s in the %s is declared twice", name, in)
		}
		seen[in+" "+name] = true
		if p["schema"] == nil {
			c.fault(at, "schema is missing")
		}
		if in == "path" && (p["required"] != true || !slices.Contains(inTemplate, name)) {
			c.fault(at, "the path parameter %s is not required, or not in the path %s", name, r.template)
		}
	}
	for _, name := range inTemplate {
		if !seen["path "+name] {
			c.fault(r.pointer, "the path parameter %s is not declared", name)
		}
	}
}

func (c *checker) responses(r route, op map[string]any) {
	responses := child(op, "responses")
	if len(responses) == 0 {
		c.fault(r.pointer, "responses is missing")
	}
	for code := range responses {
		response, at, err := c.v.resolve(r.pointer + pointer("responses", code))
		if err != nil {
			continue // the walk reports it
		}
		c.text(response, at, "description")
		if n, err := strconv.Atoi(code); code != "default" && (err != nil || n < 100 || n > 599) {
			c.fault(at, "%s is no status code", code)
		}
	}
}

// mode is what the names of an object are.
type mode int

const (
	keywords mode = iota // of OpenAPI or JSON Schema
	names                // chosen by the author: of properties, components, paths
)

var namedMembers = map[string]bool{
	"properties": true, "patternProperties": true, "$defs": true, "dependentSchemas": true, "schemas": true,
	"responses": true, "parameters": true, "headers": true, "examples": true, "requestBodies": true, "content": true,
	"securitySchemes": true, "paths": true, "variables": true,
}

// walk visits everything but values (examples, defaults, enumerations).
func (c *checker) walk(node any, at string, m mode) {
	switch node := node.(type) {
	case []any:
		for i, value := range node {
			c.walk(value, at+pointer(strconv.Itoa(i)), keywords)
		}
	case map[string]any:
		if m == keywords {
			c.object(node, at)
		}
		for _, name := range slices.Sorted(maps.Keys(node)) {
			value, next := node[name], keywords
			if m == keywords {
				if slices.Contains([]string{"example", "value", "default", "const", "enum"}, name) {
					continue
				}
				if _, isList := value.([]any); isList && name == "examples" {
					continue
				}
				if namedMembers[name] {
					next = names
				}
			}
			c.walk(value, at+pointer(name), next)
		}
	}
}

// object checks one object whose names are keywords.
func (c *checker) object(o map[string]any, at string) {
	if reference, ok := o["$ref"].(string); ok {
		if _, found := lookup(c.v.doc, strings.TrimPrefix(reference, "#")); !found || !strings.HasPrefix(reference, "#/") {
			c.fault(at, "the reference %s leads nowhere", reference)
			return
		}
	}
	if schema, ok := o["schema"]; ok && schema != nil {
		c.holder(o, at)
	}
	if isSchema(at) {
		c.values(o, at, at)
	}
}

// isSchema reports whether a schema stands at the pointer: below schema or schemas/<name>.
func isSchema(at string) bool {
	return strings.Contains(at+"/", "/schema/") || strings.HasPrefix(at, "/components/schemas/")
}

// holder checks a parameter, header or media type: its schema and its examples.
func (c *checker) holder(o map[string]any, at string) {
	c.values(o, at, at+pointer("schema"))
	examples := child(o, "examples")
	for name := range examples {
		example, where, err := c.v.resolve(at + pointer("examples", name))
		if err != nil {
			continue // the walk reports it
		}
		value, ok := example["value"]
		if !ok {
			c.fault(where, "the example has no value")
			continue
		}
		c.admit(where, at+pointer("schema"), value)
	}
}

// values holds example, examples (as a list) and default of o against a schema.
func (c *checker) values(o map[string]any, at, schemaAt string) {
	if _, err := c.v.schema(schemaAt); err != nil {
		c.fault(at, "%v", err)
		return
	}
	for _, name := range []string{"example", "default"} {
		if value, ok := o[name]; ok {
			c.admit(at+pointer(name), schemaAt, value)
		}
	}
	list, _ := o["examples"].([]any)
	for i, value := range list {
		c.admit(at+pointer("examples", strconv.Itoa(i)), schemaAt, value)
	}
}

func (c *checker) admit(at, schemaAt string, value any) {
	if err := c.v.check(schemaAt, value); err != nil {
		c.fault(at, "the schema does not admit it: %v", err)
	}
}
