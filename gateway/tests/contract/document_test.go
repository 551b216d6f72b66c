package contract

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/openapi/openapitest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
)

// served returns the OpenAPI document. The document does not describe the operation that serves it.
func served(t *testing.T, g *gatewaytest.Gateway) []byte {
	t.Helper()
	answer, err := http.Get(g.URL("/api/openapi.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDocumentIsValidWithAllItsExamples(t *testing.T) {
	t.Parallel()
	openapitest.NewValidator(t, served(t, gatewaytest.Start(t))).ValidateDocument(t)
}

// TestExamplesOfRequestsAreAccepted checks that every operation with a body has an example in the document and accepts
// it. Records that it names may be missing or exist already, but its form is valid.
func TestExamplesOfRequestsAreAccepted(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithDemoFiles)
	var document struct {
		Paths map[string]map[string]struct {
			RequestBody struct {
				Content map[string]struct{ Example json.RawMessage }
			}
		}
	}
	if err := json.Unmarshal(served(t, w.Gateway), &document); err != nil {
		t.Fatal(err)
	}
	for _, op := range w.App.Operations() {
		kinds := op.Upload
		if op.Body != nil {
			kinds = []string{"application/json"}
		}
		for _, kind := range kinds {
			if kind == operation.FormMedia { // whose boundary is the caller's
				continue
			}
			example := document.Paths[op.Path][strings.ToLower(op.Method)].RequestBody.Content[kind].Example
			if len(example) == 0 {
				t.Errorf("%s has no example of %s, want at least 1", op.Name, kind)
				continue
			}
			as := gatewaytest.WithKey(w.A.FullKey)
			if op.Credentials&operation.Key == 0 || op.Rule.IsAdminOnly() {
				as = gatewaytest.Cookie(w.A.AdminCookie)
			}
			q, body := w.Build(&op, op.Path, fixture.SampleFor(&op), w.A.Own, fixture.Every), string(example)
			if op.Upload != nil {
				if err := json.Unmarshal(example, &body); err != nil {
					t.Fatal(err)
				}
				if op.Resource == "import" {
					q.Target = op.Path
				}
				if kind != op.Upload[0] {
					q.Target += "?as=contacts"
				}
			}
			a := w.A.Do(t, q.Method, q.Target, append(q.Changes, as, gatewaytest.Body(kind, body))...)
			if op.Upload != nil && op.Resource != "import" {
				if !fixture.Succeeded(&op, a) {
					t.Errorf("%s: got %d %s, want a success", op.Name, a.Code, a.Text())
				}
			} else if op.Upload != nil && a.Status == "ok" {
				if ended := fixture.AwaitImport(t, w.A.Org, as, fmt.Sprint(a.Field("id"))); ended.Field("state") != "done" {
					t.Errorf("%s does not take its example %s: got %s, want state done", op.Name, example, ended.Text())
				}
			} else if op.Upload != nil {
				t.Errorf("%s: got %d %s, want op.Upload = nil", op.Name, a.Code, a.Text())
			}
			var refused struct{ Errors []operation.FieldError }
			if a.Code == http.StatusUnprocessableEntity {
				if err := json.Unmarshal([]byte(a.DataJSON()), &refused); err != nil {
					t.Fatal(err)
				}
			}
			refused.Errors = slices.DeleteFunc(refused.Errors, func(f operation.FieldError) bool { // what depends on what this organization defines, holds and may
				return slices.Contains([]string{fault.Duplicate, fault.Unknown, fault.Forbidden}, f.Code) || strings.HasPrefix(f.Field, "values.") || strings.HasPrefix(f.Field, "limits.")
			})
			if a.Code == http.StatusBadRequest || a.Code == http.StatusUnsupportedMediaType || a.Code >= http.StatusInternalServerError || len(refused.Errors) > 0 {
				t.Errorf("%s does not take its example %s: got %d %s, want a code other than 400, a code other than 415, a code below 500 and no Errors",
					op.Name, example, a.Code, a.Text())
			}
		}
	}
}

// TestContract_BearerIsRefusedAndSaidInTheLog checks that a key in Authorization is refused like any other, and that
// the log explains it.
func TestContract_BearerIsRefusedAndSaidInTheLog(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	a := acme.Do(t, http.MethodGet, "/api/campaigns/count", gatewaytest.Header("Authorization", "Bearer "+key))
	if a.Code != http.StatusForbidden || a.Text() != fixture.DeniedBody {
		t.Errorf("got %d %s, want %v and a.Text() = %v", a.Code, a.Text(), http.StatusForbidden, fixture.DeniedBody)
	}
	log := acme.Log.String()
	if !strings.Contains(log, `"reason":"a key came in Authorization; keys count from x-service-token alone"`) || strings.Contains(log, key) {
		t.Errorf("the log says %s, want it with %q and without %q",
			log, `"reason":"a key came in Authorization; keys count from x-service-token alone"`, key)
	}
}

// TestDocumentsNameWhatBrowserKeysMayCall checks that docs/api.md and the OpenAPI document list the operations for
// browser keys as the rows do.
func TestDocumentsNameWhatBrowserKeysMayCall(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile("(?m)^\\| `browser` .*$").FindString(string(text))
	var document struct {
		Components struct {
			SecuritySchemes map[string]struct{ Description string }
		}
	}
	if err := json.Unmarshal(served(t, g), &document); err != nil {
		t.Fatal(err)
	}
	described := document.Components.SecuritySchemes["apiKey"].Description
	for _, op := range g.App.Operations() {
		browser := op.Kinds&operation.Browser != 0 && !op.Rule.IsAdminOnly()
		if strings.Contains(row, "`"+op.Method+" "+op.Path+"`") != browser {
			t.Errorf("docs/api.md and the row disagree on %[1]s %[2]s: got %[3]s, want named = %[4]t",
				op.Method, op.Path, row, browser)
		}
		if regexp.MustCompile(`\b`+op.ID(0)+`\b`).MatchString(described) != browser {
			t.Errorf("the OpenAPI document and the row disagree on %[1]s: got %[2]s, want named = %[3]t",
				op.ID(0), described, browser)
		}
	}
}

// TestDocumentListsFieldsOfContacts checks that docs/api.md lists the fields by which contacts can be filtered.
func TestDocumentListsFieldsOfContacts(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	pattern := regexp.MustCompile("(?s)\nFields of a contact are (.*?) and the organization's own")
	sentence := pattern.FindStringSubmatch(string(text))
	if sentence == nil {
		t.Fatal("docs/api.md does not list the fields of a contact")
	}
	var listed []string
	for _, name := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(sentence[1], -1) {
		listed = append(listed, name[1])
	}
	for _, op := range gatewaytest.Start(t).App.Operations() {
		if op.Name != "contacts.list" {
			continue
		}
		names := op.Params[slices.IndexFunc(op.Params, func(p operation.Param) bool { return p.Name == "filters" })].Names
		if slices.Sort(listed); !slices.Equal(listed, slices.Sorted(slices.Values(names))) {
			t.Errorf("docs/api.md lists %v, want %v", listed, names)
		}
		return
	}
	t.Error("there is no operation contacts.list")
}

// TestOperationIdentifiersAreUniqueCamelCase checks the identifiers from which generators make names.
func TestOperationIdentifiersAreUniqueCamelCase(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	var document struct {
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(served(t, g), &document); err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	take := func(name, of string) {
		if other := seen[strings.ToLower(name)]; other != "" && other != of {
			t.Errorf("%s is the name of %s and of %s, want one each", name, other, of)
		}
		seen[strings.ToLower(name)] = of
	}
	for _, op := range g.App.Operations() {
		for i := range op.Paths() {
			id := op.ID(i)
			if !regexp.MustCompile(`^[a-z]+([A-Z][a-z]+)+$`).MatchString(id) {
				t.Errorf("the identifier %s of %s, want a verb in camelCase", id, op.Name)
			}
			for _, suffix := range []string{"", "Params", "Body", "Data", "Response", "Response200", "OK"} {
				take(id+suffix, "operation "+id)
			}
		}
	}
	for name, schema := range document.Components.Schemas {
		if !regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`).MatchString(name) {
			t.Errorf("the component %s, want the name of a type", name)
		}
		take(name, "component "+name)
		m, _ := schema.(map[string]any)
		properties, _ := m["properties"].(map[string]any)
		for property := range properties {
			take(name+strings.ReplaceAll(property, "_", ""), "component "+name+"'s "+property)
		}
	}
}

// TestDocumentSuitsGenerators checks that unions and their members have names, and that objects say whether they have
// members. Otherwise generators make types without members, or types that do not compile.
func TestDocumentSuitsGenerators(t *testing.T) {
	t.Parallel()
	var document struct {
		Paths      map[string]any
		Components struct{ Responses, Schemas map[string]any }
	}
	if err := json.Unmarshal(served(t, gatewaytest.Start(t)), &document); err != nil {
		t.Fatal(err)
	}
	choices, objects := 0, 0
	var walk func(v any, at string, named bool)
	walk = func(v any, at string, named bool) {
		switch v := v.(type) {
		case []any:
			for _, value := range v {
				walk(value, at+"[]", false)
			}
		case map[string]any:
			for _, keyword := range []string{"anyOf", "oneOf"} {
				sides, _ := v[keyword].([]any)
				for _, side := range sides {
					choices++
					m, _ := side.(map[string]any)
					properties, _ := m["properties"].(map[string]any)
					if !named || properties["status"] != nil {
						t.Errorf("%s: got an unnamed union or member of one, want a name", at)
					}
				}
			}
			if v["type"] == "object" {
				if objects++; v["properties"] == nil && v["additionalProperties"] == nil {
					t.Errorf("%s: got neither properties nor additionalProperties, want one", at)
				}
			}
			for name, value := range v {
				if name != "examples" && name != "example" {
					walk(value, at+"/"+name, false)
				}
			}
		}
	}
	walk(document.Paths, "/paths", false)
	for name, response := range document.Components.Responses {
		m, _ := response.(map[string]any)
		content, _ := m["content"].(map[string]any)
		media, _ := content["application/json"].(map[string]any)
		walk(media["schema"], "/responses/"+name, true)
	}
	for name, schema := range document.Components.Schemas {
		walk(schema, "/schemas/"+name, true)
	}
	if choices < 20 || objects < 50 {
		t.Errorf("got %d sides of choices and %d objects, want at least 20 and at least 50", choices, objects)
	}
}
