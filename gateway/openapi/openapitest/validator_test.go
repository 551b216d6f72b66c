package openapitest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/openapi"
	"tenantry/gateway/openapi/openapitest"
	"tenantry/operation"
	"tenantry/tenants"
)

type item struct {
	ID   string  `json:"id"`
	Note *string `json:"note"`
	Made string  `json:"made,omitempty" format:"date-time"`
}

func document(t *testing.T) []byte {
	t.Helper()
	id := operation.Param{Name: "id", In: operation.InPath, Shape: operation.Text}
	doc, err := openapi.Build(openapi.Info{Title: "Items", Version: "1"}, []operation.Row{
		{
			Name: "items.get", Method: http.MethodGet, Path: "/api/items/{id}",
			Policy: operation.Policy{
				Credentials: operation.Key, Kinds: operation.ServerKeys, Rule: operation.Needs(tenants.ManageFiles),
			},
			Request: operation.Request{Params: []operation.Param{id}},
			Response: operation.Response{
				Data: item{}, Message: "Item found", Example: item{ID: "a"},
				Failures: []operation.Failure{{Code: 404, Message: "Item not found", When: "There is none."}, {Code: 200, Message: "Item gone", When: "It is gone."}},
			},
			Docs: operation.Docs{Tag: "items", Summary: "Get an item"},
		},
		{
			Name: "items.schema", Method: http.MethodGet, Path: "/api/items/schema",
			Policy:   operation.Policy{Credentials: operation.Key, Kinds: operation.ServerKeys, Rule: operation.AnyCaller()},
			Response: operation.Response{Data: map[string]int{}, Message: "Schema", Example: map[string]int{"a": 1}},
			Docs:     operation.Docs{Tag: "items", Summary: "Get the schema"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return doc.JSON()
}

func header(pairs ...string) http.Header {
	h := http.Header{"Content-Type": {"application/json; charset=utf-8"}, "X-Request-Id": {"r1"}}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

func TestAnswersAreCheckedAgainstTheDocument(t *testing.T) {
	t.Parallel()
	v := openapitest.NewValidator(t, document(t))
	const (
		ok     = `{"status":"ok","message":"Item found","data":{"id":"a","note":null}}`
		failed = `{"status":"failed","message":"No","data":[]}`
	)
	withData := func(status, data string) string {
		return fmt.Sprintf(`{"status":%q,"message":"m","data":%s}`, status, data)
	}
	for name, test := range map[string]struct {
		method, path string
		status       int
		header       http.Header
		body         string
		want         string // in the error; empty: none
	}{
		"success":              {"GET", "/api/items/1", 200, header(), ok, ""},
		"query string":         {"GET", "/api/items/1?a=b/c", 200, header(), ok, ""},
		"time":                 {"GET", "/api/items/1", 200, header(), withData("ok", `{"id":"a","note":"n","made":"2026-01-02T03:04:05.000Z"}`), ""},
		"failure with 200":     {"GET", "/api/items/1", 200, header(), failed, ""},
		"literal path first":   {"GET", "/api/items/schema", 200, header(), withData("ok", `{"a":1}`), ""},
		"missing record":       {"GET", "/api/items/1", 404, header(), failed, ""},
		"permission":           {"GET", "/api/items/1", 403, header(), withData("failed", `{"permission":"manage_files"}`), ""},
		"denied":               {"GET", "/api/items/1", 403, header(), failed, ""},
		"unavailable":          {"GET", "/api/items/1", 503, header("Retry-After", "2"), failed, ""},
		"no such route":        {"GET", "/api/none", 404, header(), failed, ""},
		"method":               {"POST", "/api/items/1", 405, header("Allow", "GET"), failed, ""},
		"head":                 {"HEAD", "/api/items/1", 200, header(), "", ""},
		"preflight":            {"OPTIONS", "/api/items/1", 204, http.Header{}, "", ""},
		"undocumented member":  {"GET", "/api/items/1", 200, header(), withData("ok", `{"id":"a","note":null,"extra":1}`), "extra"},
		"missing member":       {"GET", "/api/items/1", 200, header(), withData("ok", `{"id":"a"}`), "note"},
		"wrong type":           {"GET", "/api/items/1", 200, header(), withData("ok", `{"id":1,"note":null}`), "got number"},
		"no time":              {"GET", "/api/items/1", 200, header(), withData("ok", `{"id":"a","note":null,"made":"today"}`), "date-time"},
		"null map":             {"GET", "/api/items/schema", 200, header(), withData("ok", `null`), "got null"},
		"fourth key":           {"GET", "/api/items/1", 404, header(), `{"status":"failed","message":"","data":[],"x":1}`, "x"},
		"two keys":             {"GET", "/api/items/1", 404, header(), `{"status":"failed","message":""}`, "data"},
		"ok with an error":     {"GET", "/api/items/1", 404, header(), `{"status":"ok","message":"","data":[]}`, "failed"},
		"other permission":     {"GET", "/api/items/1", 403, header(), withData("failed", `{"permission":"contacts"}`), "permission"},
		"undocumented status":  {"GET", "/api/items/schema", 404, header(), failed, "documents no answer 404"},
		"undocumented failure": {"GET", "/api/items/schema", 200, header(), failed, "status"},
		"no Retry-After":       {"GET", "/api/items/1", 503, header(), failed, "Retry-After"},
		"Retry-After in words": {"GET", "/api/items/1", 503, header("Retry-After", "soon"), failed, "not a whole number"},
		"no request id":        {"GET", "/api/items/1", 404, http.Header{"Content-Type": {"application/json"}}, failed, "X-Request-Id"},
		"content type":         {"GET", "/api/items/1", 404, header("Content-Type", "text/html"), failed, "content type"},
		"no JSON":              {"GET", "/api/items/1", 404, header(), "<html>", "not JSON"},
		"unknown success":      {"POST", "/api/items/1", 200, header(), ok, "no such operation"},
		"empty segment":        {"GET", "/api/items/", 200, header(), ok, "no such operation"},
		"405 without Allow":    {"POST", "/api/items/1", 405, header(), failed, "Allow"},
		"404 with data":        {"GET", "/api/none", 404, header(), withData("failed", `{"a":1}`), "got object"},
		"head with a body":     {"HEAD", "/api/items/1", 200, header(), ok, "no body"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := v.CheckResponse(test.method, test.path, test.status, test.header, []byte(test.body))
			switch {
			case test.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error = %v, want one with %q", err, test.want)
			}
		})
	}
}

// recorder is a testing.TB that counts failures.
type recorder struct {
	testing.TB
	failures int
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failures++ }

func TestValidateFailsTheTest(t *testing.T) {
	t.Parallel()
	v := openapitest.NewValidator(t, document(t))
	r := &recorder{TB: t}
	v.ValidateDocument(r)
	v.ValidateResponse(r, "GET", "/api/none", 404, header(), []byte(`{"status":"failed","message":"No such route","data":[]}`))
	if r.failures != 0 {
		t.Errorf("failures of valid answers = %d, want 0", r.failures)
	}
	v.ValidateResponse(r, "GET", "/api/none", 200, header(), []byte(`{}`))
	if r.failures != 1 {
		t.Errorf("failures = %d, want 1", r.failures)
	}
}

func TestFaultsOfADocumentAreFound(t *testing.T) {
	t.Parallel()
	get := []string{"paths", "/api/items/{id}", "get"}
	for name, test := range map[string]struct {
		at    []string // members of objects
		value any      // nil: the member is removed
		want  string
	}{
		"version":          {[]string{"openapi"}, "3.0.3", "not 3.1"},
		"title":            {[]string{"info", "title"}, nil, "title must be"},
		"operationId":      {append(get, "operationId"), "schemaItem", "same operation id"},
		"no operationId":   {append(get, "operationId"), nil, "operationId is missing"},
		"tag":              {append(get, "tags"), []string{"other"}, "tag other is not declared"},
		"scheme":           {append(get, "security"), []any{map[string]any{"none": []any{}}}, `undefined security scheme "none"`},
		"parameter":        {append(get, "parameters"), []any{}, "missing: [id]"},
		"reference":        {append(get, "responses", "400", "$ref"), "#/components/responses/None", "failed to resolve"},
		"response":         {append(get, "responses", "404", "description"), nil, "description of the response is required"},
		"schema":           {[]string{"components", "schemas", "OpenapitestTestItem", "type"}, "text", "unsupported"},
		"default":          {[]string{"components", "schemas", "OpenapitestTestItem", "default"}, 1, "invalid default"},
		"response example": {append(get, "responses", "200", "content", "application/json", "examples", "ok", "value", "status"), "fine", "invalid example"},
		"header example":   {[]string{"components", "headers", "Retry-After", "example"}, "soon", "header Retry-After"},
		"server variable":  {[]string{"servers"}, []any{map[string]any{"url": "https://{x}.example.com"}}, "undeclared variables"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var doc map[string]any
			if err := json.Unmarshal(document(t), &doc); err != nil {
				t.Fatal(err)
			}
			holder := doc
			for _, member := range test.at[:len(test.at)-1] {
				holder, _ = holder[member].(map[string]any)
			}
			last := test.at[len(test.at)-1]
			if holder[last] = test.value; test.value == nil {
				delete(holder, last)
			}
			text, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, fault := range openapitest.NewValidator(t, text).CheckDocument() {
				all = append(all, fault.Error())
			}
			if !strings.Contains(strings.Join(all, "\n"), test.want) {
				t.Errorf("faults = %q, want one with %q", all, test.want)
			}
		})
	}
}
