package openapi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/gateway/openapi"
	"tenantry/gateway/openapi/openapitest"
	"tenantry/operation"
)

func info() openapi.Info {
	return openapi.Info{Title: "Example", Version: "1.2.3", ServerURL: "https://{organization}.example.com"}
}

func build(t *testing.T, ops []operation.Row) []byte {
	t.Helper()
	doc, err := openapi.Build(info(), ops)
	if err != nil {
		t.Fatal(err)
	}
	return doc.JSON()
}

// at returns the value at a path of member names.
func at(t *testing.T, doc []byte, names ...string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(doc, &value); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		o, ok := value.(map[string]any)
		if !ok || o[name] == nil {
			t.Fatalf("the document has nothing at %v", names[:i+1])
		}
		value = o[name]
	}
	return value
}

// TestGolden compares the document with testdata. UPDATE_GOLDEN=1 writes it anew.
func TestGolden(t *testing.T) {
	t.Parallel()
	var indented bytes.Buffer
	if err := json.Indent(&indented, build(t, rows()), "", "  "); err != nil {
		t.Fatal(err)
	}
	indented.WriteByte('\n')
	const path = "testdata/document.json"
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(path, indented.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), indented.String()); diff != "" {
		t.Errorf("the document changed (-want +got):\n%s", diff)
	}
}

func TestDocumentIsValidWithAllItsExamples(t *testing.T) {
	t.Parallel()
	openapitest.NewValidator(t, build(t, rows())).ValidateDocument(t)
}

// TestOrderOfRowsDoesNotMatter: the document does not depend on the order of the rows.
func TestOrderOfRowsDoesNotMatter(t *testing.T) {
	t.Parallel()
	first, backwards := rows(), rows()
	slices.Reverse(backwards)
	want := build(t, first)
	for range 5 {
		if got := build(t, backwards); !bytes.Equal(want, got) {
			t.Fatal("two documents of the same rows differ")
		}
	}
}

func TestAliasesHaveTheirOwnIdentifierAndParameters(t *testing.T) {
	t.Parallel()
	doc := build(t, rows())
	for path, want := range map[string]struct {
		id    string
		paths []string
	}{
		"/api/shared/{pid}":             {"sharedReport", []string{"pid"}},
		"/api/shared/{pid}/{report_id}": {"sharedReport2", []string{"pid", "report_id"}},
		"/api/s/{pid}":                  {"sharedReport3", []string{"pid"}},
	} {
		if got := at(t, doc, "paths", path, "get", "operationId"); got != want.id {
			t.Errorf("%s: operationId = %v, want %s", path, got, want.id)
		}
		var names []string
		list, _ := at(t, doc, "paths", path, "get", "parameters").([]any)
		for _, p := range list {
			if o, _ := p.(map[string]any); o["in"] == "path" {
				name, _ := o["name"].(string)
				names = append(names, name)
			}
		}
		if diff := cmp.Diff(want.paths, names); diff != "" {
			t.Errorf("%s: path parameters (-want +got):\n%s", path, diff)
		}
	}
}

func TestStatusCodesFollowFromTheRow(t *testing.T) {
	t.Parallel()
	doc := build(t, rows())
	for _, test := range []struct{ path, method, want string }{
		{"/api/folders/{id}", "get", "200 400 403 404 422 429 500 503"},
		{"/api/folders/{id}", "put", "200 400 403 409 413 415 422 429 500 503 507"},
		{"/api/files/{id}", "delete", "200 400 403 409 422 429 500 503"},
		{"/api/compliance/schema", "get", "200 400 403 422 429 500 503"},
	} {
		responses, _ := at(t, doc, "paths", test.path, test.method, "responses").(map[string]any)
		var codes []string
		for code := range responses {
			codes = append(codes, code)
		}
		slices.Sort(codes)
		if got := strings.Join(codes, " "); got != test.want {
			t.Errorf("%s %s answers %s, want %s", test.method, test.path, got, test.want)
		}
	}
}

func TestSecurityAndDescriptionsComeFromTheRow(t *testing.T) {
	t.Parallel()
	doc := build(t, rows())
	if got, _ := at(t, doc, "paths", "/api/s/{pid}", "get", "security").([]any); len(got) != 0 {
		t.Errorf("an open operation demands %v", got)
	}
	both := []any{map[string]any{"apiKey": []any{}}, map[string]any{"session": []any{}}}
	if diff := cmp.Diff(both, at(t, doc, "paths", "/api/folders/{id}", "get", "security")); diff != "" {
		t.Errorf("security (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		path, method string
		want         []string
	}{
		{"/api/objects", "post", []string{"one of `manage_custom_objects`, `manage_forms`", "Server-only, Full API", "browser session", "at most 64 KiB", "10 s"}},
		{"/api/compliance/schema", "get", []string{"administrators only"}},
		{"/api/files/{id}", "delete", []string{"`manage_files`", "Audit:"}},
		{"/api/s/{pid}", "get", []string{"Credentials: none", "30 s"}},
	} {
		text, _ := at(t, doc, "paths", test.path, test.method, "description").(string)
		for _, want := range test.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s %s: the description lacks %q:\n%s", test.method, test.path, want, text)
			}
		}
	}
}

func TestRowsThatCannotBeDescribedAreErrors(t *testing.T) {
	t.Parallel()
	type handmade struct{ selfWriting }
	for name, test := range map[string]struct {
		change func(*operation.Row)
		want   string
	}{
		"no data":             {func(o *operation.Row) { o.Data = nil }, "has no Data"},
		"undeclared variable": {func(o *operation.Row) { o.Path = "/api/files/{file}" }, "path parameter file"},
		"default of a type": {func(o *operation.Row) {
			o.Params = append(o.Params, operation.Param{Name: "n", In: operation.InQuery, Shape: operation.Integer, Default: "x"})
		}, "not a whole number"},
		"nowhere":       {func(o *operation.Row) { o.Params = append(o.Params, operation.Param{Name: "n", Shape: operation.Text}) }, "in neither the path"},
		"function":      {func(o *operation.Row) { o.Data = struct{ F func() }{} }, "no JSON form"},
		"writes itself": {func(o *operation.Row) { o.Data = handmade{} }, "OpenAPISchema"},
		"code":          {func(o *operation.Row) { o.Failures[0].Code = 204 }, "code 204"},
		"same path":     {func(o *operation.Row) { o.Path, o.Method = "/api/folders/{id}", "GET" }, "another operation has the path"},
		"same name":     {func(o *operation.Row) { o.Name = "folders.get" }, "used twice"},
		"enum of no choice": {func(o *operation.Row) {
			o.Data = struct {
				A map[string]int `enum:"a"`
			}{}
		}, "cannot have an enum"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ops := rows()
			test.change(&ops[1])
			if _, err := openapi.Build(info(), ops); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Build = %v, want an error with %q", err, test.want)
			}
		})
	}
}

type selfWriting struct{}

func (selfWriting) MarshalJSON() ([]byte, error) { return []byte(`1`), nil }

func TestServerAddress(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"": true, "https://acme.example.com": true, "http://{slug}.localhost:8080": true,
		"https://{a}.{b}.com": false, "https://{a.com": false, "https://{}.com": false,
	} {
		if _, err := openapi.Build(openapi.Info{Title: "A", Version: "1", ServerURL: url}, rows()); (err == nil) != ok {
			t.Errorf("%q: got %v, want (err == nil) = %v", url, err, ok)
		}
	}
}
