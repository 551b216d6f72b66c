package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// TestNamesAreTrimmed checks that names that people read are stored without invisible characters at their ends, in
// every interface.
func TestNamesAreTrimmed(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	org := g.Org(t, "acme", tenants.FeatureTeams)
	o := client{Org: org}.of(t, tenants.AllPermissions()...)
	const before, after = `\u2003 `, ` \u00a0\u200b`
	for _, c := range []struct{ path, body, field string }{
		{"/api/teams", `{"name":"%s"}`, "name"},
		{"/api/roles", `{"name":"sales","label":"%s"}`, "label"},
		{"/api/files/folders", `{"name":"%s"}`, "name"},
		{"/api/campaigns", `{"name":"%s"}`, "name"},
		{"/api/custom-reports", `{"class":"Contacts","title":"%s"}`, "title"},
		{"/api/contacts/fields", `{"key":"plan","type":"Text","title":"%s"}`, "title"},
		{"/api/custom/objects", `{"name":"tree","label":"%s","label_plural":"Trees"}`, "label"},
		{"/api/form/collections", `{"name":"visit","label":"%s","label_plural":"Visits"}`, "label"},
	} {
		t.Run(c.path, func(t *testing.T) {
			t.Parallel()
			made := o.do(t, http.MethodPost, c.path, fmt.Sprintf(c.body, before+"North Pole"+after), 200)
			if made[c.field] != "North Pole" {
				t.Errorf("created: got %q, want North Pole", made[c.field])
			}
			for _, empty := range []string{"", " ", `\u00a0`, `\u200b \ufeff`} {
				if c.path == "/api/roles" { // which is called by its name then
					continue
				}
				if got := o.do(t, http.MethodPost, c.path, fmt.Sprintf(c.body, empty), 422); !strings.Contains(got["message"].(string), c.field+" must not be empty") {
					t.Errorf("%q: got %v, want containing %q", empty, got, c.field+" must not be empty")
				}
			}
			key := made["id"]
			switch c.path {
			case "/api/roles", "/api/custom/objects":
				key = made["name"]
			case "/api/contacts/fields":
				key = made["key"]
			}
			if got := o.do(t, http.MethodPut, fmt.Sprint(c.path, "/", key), fmt.Sprintf(`{"%s":"%sSouth%s"}`, c.field, before, after), 200); got[c.field] != "South" {
				t.Errorf("changed: got %q, want South", got[c.field])
			}
		})
	}
	t.Run("a field of an object", func(t *testing.T) {
		t.Parallel()
		schema := `"schema":{"kind":{"title":" Kind\u00a0","type":"Text"}}`
		o.do(t, http.MethodPost, "/api/custom/objects", `{"name":"bush","label":"Bush","label_plural":"Bushes",`+schema+`}`, 200)
		o.do(t, http.MethodPost, "/api/custom/objects", `{"name":"herb","label":" Bush ","label_plural":"Herbs"}`, 409)
		for _, change := range []string{`{}`, `{` + schema + `}`} {
			if got := fmt.Sprint(o.do(t, http.MethodPut, "/api/custom/objects/bush", change, 200)["schema"]); !strings.Contains(got, "title:Kind ") {
				t.Errorf(`%s: got %q, want containing "title:Kind "`, change, got)
			}
		}
	})
}
