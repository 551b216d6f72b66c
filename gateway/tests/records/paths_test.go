package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// TestPathsTakeNamesAndIdentifiers checks that every row whose path names an object, a form or a field accepts the
// identifier and the name.
func TestPathsTakeNamesAndIdentifiers(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := client{Org: g.Org(t, "acme")}.of(t, tenants.AllPermissions()...)
	object := o.do(t, http.MethodPost, "/api/custom/objects", `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"kind":{"title":"Kind","type":"Text"}}}`, 200)["id"].(string)
	form := o.do(t, http.MethodPost, "/api/form/collections", `{"name":"visit","label":"Visit","label_plural":"Visits"}`, 200)["id"].(string)
	o.do(t, http.MethodPost, "/api/form/collections", `{"name":"other","label":"Other","label_plural":"Others"}`, 200)
	// A name that looks like another's identifier takes precedence where references use names.
	o.do(t, http.MethodPost, "/api/custom/objects", `{"name":"abcdefabcdefabcdefabcdef","label":"A","label_plural":"As"}`, 200)
	for _, by := range []struct{ object, form string }{{object, "visit"}, {"tree", form}} {
		trees, visits := "/api/custom/objects/"+by.object, "/api/form/collections/"+by.form
		for _, c := range []struct{ method, path, body, field, want string }{
			{http.MethodGet, trees, "", "name", "tree"},
			{http.MethodPut, trees, `{"label":"A tree"}`, "label", "A tree"},
			{http.MethodPut, trees + "?preview=true", `{"schema":{}}`, "name", "tree"},
			{http.MethodGet, "/api/custom/objects/schema?id=" + by.object, "", "schema", "Kind"},
			{http.MethodGet, "/api/custom/objects/schema?name=" + by.object, "", "schema", "Kind"},
			{http.MethodPost, trees + "/records", `{"external_id":"` + by.form + `","values":{"kind":"oak"}}`, "object", "tree"},
			{http.MethodGet, trees + "/records?filters[kind]=oak", "", "results", "oak"},
			{http.MethodPost, trees + "/records/bulk", `{"records":[{"external_id":"` + by.form + `","values":{"kind":"elm"}}]}`, "updated", "1"},
			{http.MethodDelete, trees + "?force=true", "", "name", "tree"},
			{http.MethodGet, trees + "?deleted=true", "", "name", "tree"},
			{http.MethodPost, trees + "/restore", "", "name", "tree"},
			{http.MethodGet, "/api/custom/objects/abcdefabcdefabcdefabcdef", "", "label", "A"},
			{http.MethodGet, visits, "", "id", form},
			{http.MethodPut, visits, `{"label":"A visit"}`, "id", form},
			{http.MethodGet, "/api/form/collections/schema?id=" + by.form, "", "schema", "Form Name"},
			{http.MethodGet, visits + "/challenge", "", "challenge", form + "."},
			{http.MethodPost, visits + "/submissions", `{"values":{"form_name":"x"}}`, "form", form},
			{http.MethodGet, visits + "/submissions", "", "results", form},
			{http.MethodDelete, visits, "", "id", form},
			{http.MethodPost, visits + "/restore", "", "id", form},
		} {
			if got := o.do(t, c.method, c.path, c.body, 200); !strings.Contains(fmt.Sprint(got[c.field]), c.want) {
				t.Errorf("%s %s: got %v, want containing %q", c.method, c.path, got, c.want)
			}
		}
		if got := o.Do(t, http.MethodGet, trees+"/records/export?format=csv", gatewaytest.WithKey(o.key)).Text(); !strings.Contains(got, "kind") || !strings.Contains(got, "elm") {
			t.Errorf("exported of %s: got %s, want kind and elm", by.object, got)
		}
	}
	for path, code := range map[string]int{"/api/custom/objects/" + form: 404, "/api/form/collections/tree": 404, "/api/custom/objects/" + form + "/records": 404, "/api/form/collections/nobody/submissions": 404} {
		o.do(t, http.MethodGet, path, "", code)
	}
	o.do(t, http.MethodPost, "/api/roles", `{"name":"sales"}`, 200)
	o.do(t, http.MethodPost, "/api/contacts/fields", `{"key":"plan","title":"Plan","type":"Text"}`, 200)
	for path, resource := range map[string]string{"/api/roles/": "role", "/api/contacts/fields/": "contact_field"} { // whose identifiers no answer tells, but the audit log does
		for _, r := range o.do(t, http.MethodGet, "/api/audit", "", 200)["results"].([]any) {
			id, _ := r.(map[string]any)["facts"].(map[string]any)[resource].(string)
			if id != "" {
				o.do(t, http.MethodGet, path+id, "", 200)
			}
		}
	}
}
