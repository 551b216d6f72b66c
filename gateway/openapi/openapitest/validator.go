// Package openapitest checks answers of a running service against its OpenAPI document, and the document itself. It is
// for tests.
package openapitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

const documentURL = "openapi.json"

// Validator checks answers against one document. Safe for concurrent use.
type Validator struct {
	text   []byte
	doc    map[string]any
	routes []route

	mu       sync.Mutex // guards compiler and compiled
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema

	resolved sync.Map // resolved objects by pointer, because most answers are of few operations
}

// object is an object of the document, and the JSON pointer to it.
type object struct {
	members map[string]any
	at      string
}

// route is one operation of the document.
type route struct {
	method   string // "GET"
	template string
	segments []string
	pointer  string // JSON pointer to the operation
}

// NewValidator returns a Validator for the document. It ends the test if the document is not valid JSON.
func NewValidator(t testing.TB, doc []byte) *Validator {
	t.Helper()
	v, err := newValidator(doc)
	if err != nil {
		t.Fatalf("reading the OpenAPI document: %v", err)
	}
	return v
}

func newValidator(text []byte) (*Validator, error) {
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	doc, ok := parsed.(map[string]any)
	if !ok {
		return nil, errors.New("it is not a JSON object")
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(documentURL, doc); err != nil {
		return nil, err
	}
	v := &Validator{text: text, doc: doc, compiler: compiler, compiled: map[string]*jsonschema.Schema{}}
	paths, _ := doc["paths"].(map[string]any)
	for template, item := range paths {
		methods, _ := item.(map[string]any)
		for method := range methods {
			v.routes = append(v.routes, route{
				method: strings.ToUpper(method), template: template, segments: strings.Split(template, "/"),
				pointer: pointer("paths", template, method),
			})
		}
	}
	// If two templates match a path, the one with literal text further to the left takes precedence.
	slices.SortFunc(v.routes, func(a, b route) int {
		if c := slices.Compare(literals(a.segments), literals(b.segments)); c != 0 {
			return c
		}
		return strings.Compare(a.pointer, b.pointer)
	})
	return v, nil
}

func literals(segments []string) []int {
	order := make([]int, len(segments))
	for i, s := range segments {
		if isVariable(s) {
			order[i] = 1
		}
	}
	return order
}

func isVariable(segment string) bool { return strings.HasPrefix(segment, "{") }

// ValidateResponse fails the test if the document does not describe the operation, the status or the shape of the
// answer. The path may have a query string. A request that matches no operation must be refused with a plain failed
// envelope. ValidateResponse returns the members of the body, or nil if it is not an object.
func (v *Validator) ValidateResponse(
	t testing.TB, method, requestPath string, status int, header http.Header, body []byte,
) map[string]any {
	t.Helper()
	value, err := v.checkResponse(method, requestPath, status, header, body)
	if err != nil {
		t.Errorf("%s %s answered %d: %v\nbody: %s", method, requestPath, status, err, clip(body))
	}
	members, _ := value.(map[string]any)
	return members
}

func clip(body []byte) []byte {
	if len(body) > 2000 {
		return append(slices.Clip(body[:2000]), "..."...)
	}
	return body
}

// CheckResponse returns an error that says how the answer differs from the document, or nil.
func (v *Validator) CheckResponse(method, requestPath string, status int, header http.Header, body []byte) error {
	_, err := v.checkResponse(method, requestPath, status, header, body)
	return err
}

// checkResponse also returns the decoded body if it is JSON.
func (v *Validator) checkResponse(
	method, requestPath string, status int, header http.Header, body []byte,
) (any, error) {
	bodiless := method == http.MethodHead || method == http.MethodOptions && status == http.StatusNoContent
	if bodiless {
		if len(body) > 0 {
			return nil, errors.New("the answer must have no body")
		}
		return nil, nil
	}
	found, ok := v.match(method, requestPath)
	if ok && status == http.StatusNotModified {
		response, at, err := v.resolve(found.pointer + pointer("responses", strconv.Itoa(status)))
		if err != nil || response["content"] != nil || len(body) > 0 {
			return nil, errors.New("the answer is not documented, or has a body")
		}
		return nil, v.checkHeaders(response, at, header)
	}
	if ok && status == http.StatusNoContent {
		response, at, err := v.resolve(found.pointer + pointer("responses", strconv.Itoa(status)))
		if err != nil || response["content"] != nil || len(body) > 0 {
			return nil, errors.New("the answer is not documented, or has a body")
		}
		return nil, v.checkHeaders(response, at, header)
	}
	whole := found.pointer + pointer("responses", strconv.Itoa(status))
	if ok && v.has(whole+pointer("content", "*/*")) { // bytes
		response, at, err := v.resolve(whole)
		if err != nil {
			return nil, err
		}
		return nil, v.checkHeaders(response, at, header)
	}
	media := found.pointer + pointer("responses", strconv.Itoa(status), "content", mediaType(header))
	if ok && mediaType(header) != "application/json" && v.has(media) {
		return nil, v.checkRows(media+pointer("x-row"), body)
	}
	value, err := readBody(header, body)
	if err != nil {
		return nil, err
	}
	if !ok {
		return value, v.checkUnmatched(status, header, value)
	}
	responsePointer := found.pointer + pointer("responses", strconv.Itoa(status))
	response, responsePointer, err := v.resolve(responsePointer)
	if err != nil {
		return value, fmt.Errorf("%s %s documents no answer %d", found.method, found.template, status)
	}
	if err := v.checkHeaders(response, responsePointer, header); err != nil {
		return value, err
	}
	return value, v.check(responsePointer+pointer("content", "application/json", "schema"), value)
}

func mediaType(header http.Header) string {
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type")) // malformed: empty
	return kind
}

func (v *Validator) has(at string) bool { _, ok := lookup(v.doc, at); return ok }

// checkRows checks each line of a streamed answer against the schema of rows, if there is one.
func (v *Validator) checkRows(schemaPointer string, body []byte) error {
	if !v.has(schemaPointer) {
		return nil
	}
	for line := range bytes.Lines(body) {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
		if err == nil {
			err = v.check(schemaPointer, value)
		}
		if err != nil {
			return fmt.Errorf("the row %q: %w", line, err)
		}
	}
	return nil
}

func readBody(header http.Header, body []byte) (any, error) {
	if kind, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, fmt.Errorf("the content type is %q, not application/json", header.Get("Content-Type"))
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the body is not JSON: %w", err)
	}
	return value, nil
}

// checkUnmatched checks the answer to a request that matches no operation.
func (v *Validator) checkUnmatched(status int, header http.Header, value any) error {
	switch status {
	case http.StatusMethodNotAllowed:
		if header.Get("Allow") == "" {
			return errors.New("the header Allow is missing")
		}
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusInternalServerError:
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if header.Get("Retry-After") == "" {
			return errors.New("the header Retry-After is missing")
		}
	default:
		return errors.New("the document has no such operation")
	}
	return v.check(pointer("components", "schemas", "Failed"), value)
}

// match returns the operation that a router would choose.
func (v *Validator) match(method, requestPath string) (route, bool) {
	path, _, _ := strings.Cut(requestPath, "?")
	segments := strings.Split(path, "/")
	for _, r := range v.routes {
		if r.method == method && slices.EqualFunc(r.segments, segments, func(template, given string) bool {
			return template == given || isVariable(template) && given != ""
		}) {
			return r, true
		}
	}
	return route{}, false
}

// checkHeaders checks that required headers are present and that documented ones match their schemas.
func (v *Validator) checkHeaders(response map[string]any, at string, header http.Header) error {
	declared, _ := response["headers"].(map[string]any)
	for name := range declared {
		described, where, err := v.resolve(at + pointer("headers", name))
		if err != nil {
			return err
		}
		text := header.Get(name)
		if text == "" {
			if described["required"] == true {
				return fmt.Errorf("the header %s is missing", name)
			}
			continue
		}
		var value any = text
		if schema, _ := described["schema"].(map[string]any); schema["type"] == "integer" {
			value = json.Number(text)
			if _, err := strconv.ParseInt(text, 10, 64); err != nil {
				return fmt.Errorf("the header %s is %q, not a whole number", name, text)
			}
		}
		if err := v.check(where+pointer("schema"), value); err != nil {
			return fmt.Errorf("the header %s: %w", name, err)
		}
	}
	return nil
}

// check validates a value against the schema at a JSON pointer into the document.
func (v *Validator) check(schemaPointer string, value any) error {
	schema, err := v.schema(schemaPointer)
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func (v *Validator) schema(schemaPointer string) (*jsonschema.Schema, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if schema, ok := v.compiled[schemaPointer]; ok {
		return schema, nil
	}
	schema, err := v.compiler.Compile(documentURL + "#" + (&url.URL{Fragment: schemaPointer}).EscapedFragment())
	if err != nil {
		return nil, fmt.Errorf("the schema at %s: %w", schemaPointer, err)
	}
	v.compiled[schemaPointer] = schema
	return schema, nil
}

// resolve returns the object at a JSON pointer, following references, and its own pointer.
func (v *Validator) resolve(at string) (map[string]any, string, error) {
	if known, ok := v.resolved.Load(at); ok {
		o := known.(object)
		return o.members, o.at, nil
	}
	asked := at
	for range 10 {
		value, ok := lookup(v.doc, at)
		if !ok {
			return nil, at, fmt.Errorf("there is nothing at %s", at)
		}
		found, ok := value.(map[string]any)
		if !ok {
			return nil, at, fmt.Errorf("there is no object at %s", at)
		}
		reference, ok := found["$ref"].(string)
		if !ok {
			v.resolved.Store(asked, object{found, at})
			return found, at, nil
		}
		if !strings.HasPrefix(reference, "#/") {
			return nil, at, fmt.Errorf("the reference %s points outside the document", reference)
		}
		at = reference[1:]
	}
	return nil, at, fmt.Errorf("references form a cycle at %s", at)
}

// pointer returns a JSON pointer of the names.
func pointer(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteString("/" + strings.ReplaceAll(strings.ReplaceAll(name, "~", "~0"), "/", "~1"))
	}
	return b.String()
}

// lookup returns the value at a JSON pointer.
func lookup(value any, at string) (any, bool) {
	if at == "" {
		return value, true
	}
	for name := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		switch container := value.(type) {
		case map[string]any:
			next, ok := container[name]
			if !ok {
				return nil, false
			}
			value = next
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(container) {
				return nil, false
			}
			value = container[i]
		default:
			return nil, false
		}
	}
	return value, true
}
