package contract

import (
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestContract_UpdateForm_NamesTheReportsItBreaks checks that a change of a form that breaks reports is carried out and
// reported: to the caller as far as the caller may see the reports, and in the audit log.
func TestContract_UpdateForm_NamesTheReportsItBreaks(t *testing.T) {
	t.Parallel()
	acme, key := formWorld(t)
	const north, south = "0000000000000000000000a1", "0000000000000000000000a2"
	report := func(id, title, more string) string {
		return `{"kind":"custom_report","id":"` + id + `","title":"` + title + `","class":"Submissions","source":"` + fixture.DocID(1) + `","secure":true,` + more + `}`
	}
	acme.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"team","id":"`+south+`","name":"South"}`,
		report(fixture.DocID(21), "ages", `"query":{"fields":["age"]}`),
		report(fixture.DocID(22), "of the south", `"query":{"measures":[{"op":"avg","field":"age"}]},"teams":["`+south+`"]`),
		report(fixture.DocID(23), "all columns", `"query":{}`), report(fixture.DocID(24), "names", `"query":{"fields":["form_name"]}`),
	)
	limited := acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.ManageForms)}, []string{north}
	}).Token
	for _, c := range []struct{ name, key, body, want, not string }{
		{"a title", key, `{"schema":{"age":{"title":"How old","type":"Number"}}}`, "", ""},
		{"another type that will do", key, `{"schema":{"age":{"title":"Age","type":"Number"},"more":{"title":"More","type":"Text"}}}`, "", ""},
		{"another type", key, `{"schema":{"age":{"title":"Age","type":"Text"}}}`, fixture.DocID(22), fixture.DocID(21)},
		{"back", key, `{"schema":{"age":{"title":"Age","type":"Number"}}}`, "", ""},
		{"dropped by a caller of the north", limited, `{"schema":{}}`, "", ""},
		{"dropped by a request of the north", key, `{"schema":{},"teams":["` + north + `"]}`, fixture.DocID(21), fixture.DocID(22)},
		{"dropped already", key, `{"schema":{}}`, "", ""},
	} {
		a := put(t, acme, c.key, fixture.FormsPath+fixture.DocID(1), c.body)
		warning := a.Header.Get("X-Warning")
		if c.key == limited && a.Code == http.StatusForbidden && a.Message == fixture.NotTheirs {
			continue
		}
		if c.key == limited || a.Code != http.StatusOK || a.Message != "Form Collection updated" {
			t.Errorf(`%s: got %d %s, want %v and a.Message = "Form Collection updated"`, c.name, a.Code, a.Text(), http.StatusOK)
		}
		if (c.want == "") != (warning == "") || !strings.Contains(warning, c.want) || c.not != "" && strings.Contains(warning, c.not) {
			t.Errorf("%[1]s: X-Warning = %[2]q, want %[3]q without %[4]q", c.name, warning, c.want, c.not)
		}
	}
	records, err := control.Call[[]control.AuditRecord](t.Context(), acme.Commands, "audit", control.Page{Org: acme.Slug, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, r := range records {
		if f := r.Facts["broken_reports"]; r.Operation == "forms.update" && f != "" {
			told = append(told, f)
		}
	}
	if len(told) != 2 || told[1] != fixture.DocID(22) || told[0] != fixture.DocID(21)+", "+fixture.DocID(22) {
		t.Errorf("the audit log has %q, want the records 21 and 22", told)
	}
}
