package contract

import (
	"net/http"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestOrganizationOverHTTP checks that administrators can change what the operator leaves to them, and that nobody can
// raise a limit above the operator's, not even by an import.
func TestOrganizationOverHTTP(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	_, other := acme.Person(t, "bo@example.com", nil)
	admin, person := fixture.As(acme, gatewaytest.Cookie(cookie)), fixture.As(acme, gatewaytest.Cookie(other))
	key := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	const path, manage = "/api/organization", `"message":"Manage Organization","data":{"permission":"Manage Organization"}`
	allow := func(limit int64) {
		t.Helper()
		change := control.OrganizationChange{Slug: "acme", OrganizationFields: control.OrganizationFields{Limits: map[string]int64{"folder_children": limit}, Providers: []string{"store"}}}
		if _, err := control.Call[control.Organization](t.Context(), acme.Commands, "org.update", change); err != nil {
			t.Fatal(err)
		}
	}
	for _, as := range []fixture.Client{person, key} {
		as.Want(t, http.MethodGet, path, "", 403, manage)
		as.Want(t, http.MethodPut, path, `{"name":"Mine"}`, 403, manage)
	}
	admin.Want(t, http.MethodGet, path, "", 200, `"limits":{"file_size":1073741824,"folder_children":1000},"allowed_limits":{"file_size":1073741824,"folder_children":1000}`)
	first := admin.Want(t, http.MethodPut, path, `{"name":" Acme & Sons ","features":{"teams":true},"settings":{"sign_in_names_organization":true},"limits":{"folder_children":3}}`, 200,
		`"name":"Acme & Sons","features":{"teams":true},"settings":{"public_files":false,"require_public_encryption_key":false,"sign_in_names_organization":true},"limits":{"file_size":1073741824,"folder_children":3}`)
	admin.Want(t, http.MethodPut, path, `{"settings":{"require_public_encryption_key":true}}`, 200, `"settings":{"public_files":false,"require_public_encryption_key":true,"sign_in_names_organization":true}`)
	if a := acme.Do(t, http.MethodPut, path, admin.As, fixture.JSONText(`{"name":"Late"}`), gatewaytest.Header("If-Match", first.Header.Get("ETag"))); a.Code != http.StatusPreconditionFailed {
		t.Errorf("with an old tag: got %d %s, want 412", a.Code, a.Body)
	}

	admin.Want(t, http.MethodPut, path, `{"frame_origins":[" https://WWW.example.com:8443 ","https://www.example.com:8443","http://[::1]"]}`, 200, `"frame_origins":["https://www.example.com:8443","http://[::1]"]`)
	admin.Want(t, http.MethodPut, path, `{"name":"Acme & Sons"}`, 200, `"frame_origins":["https://www.example.com:8443","http://[::1]"]`)
	admin.Want(t, http.MethodPut, path, `{"frame_origins":[]}`, 200, `"frame_origins":[]`)

	for body, says := range map[string]string{
		`{"limits":{"folder_children":1001}}`:                 "the limit folder_children is from 1 to 1000, which the operator allows",
		`{"limits":{"folder_children":0}}`:                    "from 1 to 1000",
		`{"limits":{"dragons":1}}`:                            `unknown limit \"dragons\"`,
		`{"features":{"dragons":true},"settings":{"x":true}}`: `unknown feature \"dragons\"; there are: teams; unknown setting \"x\"`,
		`{"features":{"x":true},"limits":{"z":1}}`:            `unknown limit \"z\"; there are: folder_children, documents, bytes, file_size, file_bytes; unknown feature \"x\"`,
		`{"frame_origins":["https://*.example.com"]}`:         `is not an origin such as https://www.example.com`,
		`{"frame_origins":["https://a.example;script-src"]}`:  `is not an origin`,
		`{"frame_origins":["https://a.example/","'self'"]}`:   `is not an origin`,
		`{"name":""}`:     "name",
		`{"slug":"evil"}`: `"field":"slug"`,
		`{"request_limits":{},"providers":["x"],"backend":"my"}`: `"field":"backend"`,
	} {
		admin.Want(t, http.MethodPut, path, body, 422, says)
	}

	// A limit follows the operator's if that becomes lower, and if the organization's was never lowered or was raised
	// back to it.
	for _, step := range []struct {
		allowed int64
		body    string
		says    string
	}{
		{2, "", `"limits":{"file_size":1073741824,"folder_children":2},"allowed_limits":{"file_size":1073741824,"folder_children":2}`},
		{5000, "", `"limits":{"file_size":1073741824,"folder_children":3},"allowed_limits":{"file_size":1073741824,"folder_children":5000}`},
		{5000, `{"limits":{"folder_children":5000}}`, `"limits":{"file_size":1073741824,"folder_children":5000}`},
		{6000, "", `"limits":{"file_size":1073741824,"folder_children":6000}`},
	} {
		allow(step.allowed)
		if step.body != "" {
			admin.Want(t, http.MethodPut, path, step.body, 200, "")
		}
		admin.Want(t, http.MethodGet, path, "", 200, step.says)
	}
	for line, wrong := range map[string]bool{
		`{"kind":"organization","providers":["warehouse"]}`:                                           true,
		`{"kind":"organization","providers":[]}`:                                                      true,
		`{"kind":"organization","name":"Acme","providers":["store"]}`:                                 false,
		`{"kind":"organization","limits":{"folder_children":9000}}`:                                   true,
		`{"kind":"organization","request_limits":{"organization":{"rate":"off"}}}`:                    true,
		`{"kind":"organization","name":"Acme","limits":{"folder_children":6000},"request_limits":{}}`: false,
	} {
		a := acme.Do(t, http.MethodPost, "/api/import", admin.As, gatewaytest.Body("application/x-ndjson", line))
		id, _ := a.Field("id").(string)
		a = fixture.AwaitImport(t, acme, admin.As, id)
		if refused := a.Field("state") == "refused"; refused != wrong {
			t.Errorf("%s: got %s, want refused = %v", line, a.Body, wrong)
		}
	}
	admin.Want(t, http.MethodGet, path, "", 200, `"limits":{"file_size":1073741824,"folder_children":6000}`)
	admin.Want(t, http.MethodGet, path, "", 200, `"providers":["store"]`)
}
