package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// TestValuesOfAnotherType checks that after a forced change of a field's type only new values are checked, and that the
// record names values that do not fit.
func TestValuesOfAnotherType(t *testing.T) {
	t.Parallel()
	o := client{Org: gatewaytest.Start(t).Org(t, "acme")}.of(t, tenants.Contacts, tenants.ManageCustomObjects)
	o.Import(t, `{"kind":"contact_field","key":"age","title":"Age","type":"Text"}`, `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}`,
		`{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"age":{"title":"Age","type":"Text"},"plan":{"title":"Plan","type":"Text"}}}`)
	for path, values := range map[string]string{"/api/contacts": "fields", "/api/custom/objects/tree/records": "values"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			one := func(values string, of ...string) string { return `{"` + values + `":{` + strings.Join(of, ",") + `}}` }
			made := o.do(t, http.MethodPost, path, `{"external_id":"a","`+values+`":{"age":"old","plan":"gold"}}`, 200)
			each := path + "/" + made["id"].(string)
			if made["unfit"] != nil {
				t.Errorf("made: got %v, want unfit nil", made)
			}
			if path == "/api/contacts" {
				o.do(t, http.MethodPut, "/api/contacts/fields/age?force=true", `{"type":"Number"}`, 200)
			} else {
				o.do(t, http.MethodPut, "/api/custom/objects/tree?force=true", `{"schema":{"age":{"title":"Age","type":"Number"},"plan":{"title":"Plan","type":"Text"},"pot":{"title":"Pot","type":"Text","required":true}}}`, 200)
			}
			unfit := func(got map[string]any, want string) {
				t.Helper()
				if said := fmt.Sprint(got["unfit"]); said != want {
					t.Errorf("unfit: %s, want %s, of %v", said, want, got)
				}
			}
			const wrong = "map[age:must be a number]"
			unfit(o.do(t, http.MethodGet, each, "", 200), wrong)
			unfit(o.do(t, http.MethodGet, path, "", 200)["results"].([]any)[0].(map[string]any), wrong)
			unfit(o.do(t, http.MethodPut, each, one(values, `"plan":"lead"`), 200), wrong)
			unfit(o.do(t, http.MethodPut, each, one(values, `"plan":"iron"`, `"age":"old"`), 200), wrong) // as it was answered
			if path == "/api/contacts" {
				unfit(o.do(t, http.MethodPost, each+"/tags", `{"tags":["press"]}`, 200), wrong)
			}
			if got := o.do(t, http.MethodPost, path+"/bulk", `{"records":[{"external_id":"a","`+values+`":{"plan":"zinc"}}]}`, 200); fmt.Sprint(got["updated"]) != "1" {
				t.Errorf("a bulk: got %v, want 1 updated", got)
			}
			o.do(t, http.MethodPut, each, one(values, `"age":"older"`), 422)
			if got := o.Do(t, http.MethodGet, path+"/export", gatewaytest.WithKey(o.key)).Text(); strings.Contains(got, "unfit") {
				t.Errorf("an export to be imported again: got %s, want no unfit", got)
			}
			unfit(o.do(t, http.MethodPut, each, one(values, `"age":5`), 200), "<nil>")
			if path != "/api/contacts" {
				o.do(t, http.MethodPost, path, `{"values":{"age":1}}`, 422) // a new one lacks what is required
				o.do(t, http.MethodPut, each, `{"values":{"pot":"clay"}}`, 200)
				o.do(t, http.MethodPut, each, `{"values":{"pot":null}}`, 422)
			}
		})
	}
}

// TestRedefinedFieldKeepsItsValues checks that stored values count when a removed field is defined again with another
// type.
func TestRedefinedFieldKeepsItsValues(t *testing.T) {
	t.Parallel()
	o := client{Org: gatewaytest.Start(t).Org(t, "acme")}.of(t, tenants.ManageCustomObjects)
	for i, c := range []struct{ first, value, again, fits string }{
		{"Number", `5`, "Date", "Number"}, {"Date", `"2024-05-17"`, "Number", "Text"}, {"Text", `"a@b"`, "Boolean", "LongText"},
		{"MultiSelect", `["a"]`, "Select", "MultiSelect"}, {"Money", `{"amount":1}`, "Text", "Price"}, {"Text", `"x"`, "Encrypted", "Text"},
	} {
		t.Run(c.first+" "+c.again, func(t *testing.T) {
			t.Parallel()
			path := fmt.Sprintf("/api/custom/objects/tree%d", i)
			of := func(typ string) string {
				return `{"schema":{"plan":{"title":"Plan","type":"Text"},"it":{"title":"It","type":"` + typ + `"}}}`
			}
			o.do(t, http.MethodPost, "/api/custom/objects", fmt.Sprintf(`{"name":"tree%d","label":"T%d","label_plural":"Ts%d",%s`, i, i, i, of(c.first)[1:]), 200)
			o.do(t, http.MethodPut, path, of(c.again), 200) // nothing is stored
			o.do(t, http.MethodPut, path, of(c.first), 200)
			rec := o.do(t, http.MethodPost, path+"/records", `{"values":{"it":`+c.value+`,"plan":"gold"}}`, 200)
			gone := o.do(t, http.MethodPost, path+"/records", `{"values":{"it":`+c.value+`}}`, 200)
			o.do(t, http.MethodDelete, path+"/records/"+gone["id"].(string), "", 200)
			o.do(t, http.MethodPut, path+"?force=true", `{"schema":{"plan":{"title":"Plan","type":"Text"}}}`, 200)
			got := o.do(t, http.MethodPut, path+"?preview=true", of(c.again), 200)["touches"].(map[string]any)
			if fmt.Sprint(got["records"]) != "2" || fmt.Sprint(got["fields"]) != "map[it:2]" {
				t.Errorf("a preview: got %v, want 2 records", got)
			}
			if got := o.do(t, http.MethodPut, path, of(c.again), 422); !strings.Contains(got["message"].(string), "schema.it: 2 records") {
				t.Errorf("without force: got %v, want the 2 records named", got)
			}
			if c.again == "Encrypted" { // which nothing forces
				o.do(t, http.MethodPut, path+"?force=true", of(c.again), 422)
				return
			}
			o.do(t, http.MethodPut, path+"?force=true", of(c.again), 200)
			if got := o.do(t, http.MethodPut, path+"/records/"+rec["id"].(string), `{"values":{"plan":"lead"}}`, 200); got["unfit"] == nil {
				t.Errorf("changed: got %v, want unfit set", got)
			}
			o.do(t, http.MethodPut, path+"?force=true", `{"schema":{"plan":{"title":"Plan","type":"Text"}}}`, 200)
			o.do(t, http.MethodPut, path, of(c.fits), 200)
		})
	}
}
