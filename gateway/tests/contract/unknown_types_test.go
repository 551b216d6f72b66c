package contract

import (
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestUnknownTypesAreStoredWithAWarning checks that a type unknown to validation is stored unchanged with one warning,
// which also names what the contract's operations drop from a definition.
func TestUnknownTypesAreStoredWithAWarning(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	key := gatewaytest.WithKey(acme.Key(t, tenants.Contacts, tenants.ManageCustomObjects, tenants.ManageForms))
	const money, relation = `{"title":"Price","type":"Money"}`, `{"title":"Owner","type":"Relation","object":"person"}`
	const choice = `{"title":"State","type":"Select","options":["a","b"],"locked":true}`
	names := func(of string) string {
		return `"name":"` + of + `","label":"` + of + `","label_plural":"` + of + `s"`
	}
	warns, drops := "are taken as they are, and not checked, summed or compared as numbers", "not stored, since fields have no such members: "
	var form string
	for _, c := range []struct {
		method, path, body string
		wants              []string // nil: no warning
	}{
		{http.MethodPost, "/api/custom/objects", `{` + names("tree") + `,"schema":{"price":` + money + `,"owner":` + relation + `,"state":` + choice + `,"fields":{}}}`,
			[]string{"owner (Relation), price (Money) " + warns, drops + "schema.owner.object, schema.state.options"}},
		{http.MethodPost, "/api/custom/objects", `{` + names("bush") + `,"schema":{"state":` + choice + `}}`, []string{drops + "schema.state.options"}},
		{http.MethodPost, "/api/custom/objects", `{` + names("herb") + `,"schema":{"state":{"title":"S","type":"Select"}}}`, nil},
		{http.MethodPut, "/api/custom/objects/herb", `{"schema":{"price":` + money + `}}`, []string{"price (Money) " + warns}},
		{http.MethodPut, "/api/custom/objects/herb", `{"label":"Herbs","schema":{"price":` + money + `}}`, nil},
		{http.MethodPost, "/api/form/collections", `{` + names("visit") + `,"schema":{"price":` + money + `}}`, []string{"price (Money) " + warns}},
		{http.MethodPut, "/api/form/collections/{id}", `{"schema":{"price":` + money + `,"owner":` + relation + `}}`, []string{"values of owner (Relation) " + warns, drops + "schema.owner.object"}},
		{http.MethodPut, "/api/form/collections/{id}", `{"label":"Visits"}`, nil},
		{ // headers are ASCII
			http.MethodPut, "/api/form/collections/{id}", `{"schema":{"owner":{"title":"O","type":"Text","größe":1}}}`,
			[]string{drops + `schema.owner."gr\u00f6\u00dfe"`},
		},
		{http.MethodPost, "/api/contacts/fields", `{"key":"worth","title":"Worth","type":"Money"}`, []string{"worth (Money) " + warns}},
		{http.MethodPost, "/api/contacts/fields", `{"key":"age","title":"Age","type":"Number"}`, nil},
		{http.MethodPut, "/api/contacts/fields/age", `{"type":"Years"}`, []string{"age (Years) " + warns}},
		{http.MethodPut, "/api/contacts/fields/age", `{"title":"Years"}`, nil},
	} {
		a := acme.Do(t, c.method, strings.ReplaceAll(c.path, "{id}", form), key, fixture.JSONText(c.body))
		if a.Code != http.StatusOK {
			t.Fatalf("%s %s %s: got %d %s, want %v", c.method, c.path, c.body, a.Code, a.Text(), http.StatusOK)
		}
		if c.path == "/api/form/collections" {
			form = a.Field("id").(string)
		}
		said := a.Header.Get("X-Warning")
		for _, want := range c.wants {
			if !strings.Contains(said, want) {
				t.Errorf("%s %s %s: %q lacks %q", c.method, c.path, c.body, said, want)
			}
		}
		if c.wants == nil && said != "" {
			t.Errorf("%s %s %s: got %q, want no message", c.method, c.path, c.body, said)
		}
	}
	if got := acme.Do(t, http.MethodGet, "/api/custom/objects/tree", key).Text(); !strings.Contains(got, `"price":{"title":"Price","type":"Money"}`) || strings.Contains(got, "options") {
		t.Errorf(`got %v, want containing "\"price\":{\"title\":\"Price\",\"type\":\"Money\"}" and nothing containing "options"`,
			got)
	}
	for price, code := range map[string]int{`"12,50 €"`: 200, `{"amount":"12.50"}`: 200} { // as it is
		if a := acme.Do(t, http.MethodPost, "/api/custom/objects/tree/records", key, fixture.JSONText(`{"values":{"price":`+price+`}}`)); a.Code != code || !strings.Contains(a.Text(), `"price":`+price) {
			t.Errorf("%s: got %d %s, want %v and containing %q", price, a.Code, a.Text(), code, `"price":`+price)
		}
	}
}
