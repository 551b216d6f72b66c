package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/tabular"
	"tenantry/tenants"
)

// TestContacts follows a contact from creation to purge, with values of defined and of encrypted fields.
func TestContacts(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := client{Org: g.Org(t, "acme", tenants.FeatureTeams)}.of(t, tenants.Contacts)
	for _, body := range []string{`{"key":"age","title":"Age","type":"Number"}`, `{"key":"ssn","title":"SSN","type":"Encrypted"}`, `{"key":"note","title":"Note","type":"Text"}`} {
		if got := o.do(t, http.MethodPost, "/api/contacts/fields", body, 200); got["message"] != "Contact Field created" {
			t.Errorf("a field: got %v, want message %q", got, "Contact Field created")
		}
	}
	if got := o.do(t, http.MethodPost, "/api/contacts", `{"email":"x","nobody":1,"fields":{"age":"old","ssn":3,"gone":1},"id":"665f1c2ab4d3e2f1a0b9c8d7","secrets":{}}`, 422); !strings.Contains(got["message"].(string), `"nobody" is not a field`) {
		t.Errorf("reserved fields: got %v, want the fault of nobody", got)
	}
	got := o.do(t, http.MethodPost, "/api/contacts", `{"email":"x","fields":{"age":"old","ssn":3,"gone":1}}`, 422)["message"].(string)
	for _, says := range []string{"email must be a plain address", "fields.age must be", "fields.ssn must be", "fields.gone is not a field"} {
		if !strings.Contains(got, says) {
			t.Errorf("%s: got not all problems, want %s", got, says)
		}
	}
	made := o.do(t, http.MethodPost, "/api/contacts", `{"email":"ada@example.com","first_name":"Ada","tags":["a"],"external_id":"1","fields":{"age":36,"ssn":"topmost secret","note":"n"}}`, 200)
	path := "/api/contacts/" + made["id"].(string)
	if fmt.Sprint(made["fields"]) != "map[age:36 note:n]" || made["secrets"] != nil {
		t.Errorf("created: got %v, want its fields and no secrets", made)
	}
	if got := o.do(t, http.MethodGet, path+"/reveal-secret?field=ssn", "", 200); got["field_value"] != "topmost secret" {
		t.Errorf("revealed: got %v, want field_value %q", got, "topmost secret")
	}
	o.do(t, http.MethodPost, "/api/contacts", `{"external_id":"1"}`, 409)
	o.do(t, http.MethodPut, path, `{"fields":{"age":37}}`, 200)
	if got := o.do(t, http.MethodGet, path, "", 200); fmt.Sprint(got["fields"]) != "map[age:37 note:n]" {
		t.Errorf("after a change without values: got %v, want age 37 and note n", got)
	}
	for _, c := range []struct{ method, what, body, want string }{
		{http.MethodPost, "/tags", `{"tags":["b","a","c"]}`, "[a b c]"},
		{http.MethodDelete, "/tags?tags=a&tags=z", "", "[b c]"},
		{http.MethodDelete, "/tags?tags=b", "", "[c]"},
	} {
		if got := o.do(t, c.method, path+c.what, c.body, 200); fmt.Sprint(got["tags"]) != c.want || fmt.Sprint(got["fields"]) != "map[age:37 note:n]" {
			t.Errorf(`%s %s%s: got %v, want fmt.Sprint(got["tags"]) = %v and fmt.Sprint(got["fields"]) = "map[age:37 note:n]"`,
				c.method, c.what, c.body, got, c.want)
		}
	}
	o.do(t, http.MethodPost, path+"/tags", `{"tags":[]}`, 422)
	if got := o.do(t, http.MethodGet, path+"/reveal-secret?field=ssn", "", 200); got["field_value"] != "topmost secret" {
		t.Errorf("the secret after changes: got %v, want field_value %q", got, "topmost secret")
	}
	for _, c := range []struct{ method, path, body, says string }{
		{http.MethodPut, "/ssn?force=true", `{"type":"Text"}`, "type cannot become or stop being Encrypted"},
		{http.MethodPut, "/note?force=true", `{"type":"Encrypted"}`, "type cannot become or stop being Encrypted"},
		{http.MethodPut, "/note", `{"type":"Number"}`, "force=true changes it"},
		{http.MethodPut, "/note", `{"type":"Numbr"}`, "did you mean Number"},
		{http.MethodPut, "/note", `{"key":"other"}`, "is not a field that can be set"},
		{http.MethodPost, "", `{"key":"email","title":"E","type":"Text"}`, "a field that every contact has"},
	} {
		if got := o.do(t, c.method, "/api/contacts/fields"+c.path, c.body, 422); !strings.Contains(got["message"].(string), c.says) {
			t.Errorf("%s %s %s: got %v, want containing %q", c.method, c.path, c.body, got, c.says)
		}
	}
	o.do(t, http.MethodPut, "/api/contacts/fields/note?force=true", `{"type":"Number"}`, 200)
	o.do(t, http.MethodPut, path, `{"fields":{"ssn":null,"note":7}}`, 200)
	o.do(t, http.MethodPut, "/api/contacts/fields/ssn", `{"type":"Text"}`, 200)
	o.do(t, http.MethodDelete, "/api/contacts/fields/age", "", 200)
	if got := o.do(t, http.MethodPut, path, `{"city":"Bonn"}`, 200); fmt.Sprint(got["fields"]) != "map[note:7]" {
		t.Errorf("after the field was deleted: got %v, want only note 7", got)
	}
	o.do(t, http.MethodPost, "/api/contacts/fields/age/restore", "", 200)
	o.do(t, http.MethodDelete, path, "", 200)
	o.do(t, http.MethodGet, path, "", 404)
	o.do(t, http.MethodPost, path+"/tags", `{"tags":["x"]}`, 404)
	o.do(t, http.MethodPost, path+"/restore", "", 200)
	if got := o.names(t, "/api/contacts?q=ada@&filters[age]=37&sort=email", "email"); got != "ada@example.com" {
		t.Errorf("found: got %s, want ada@example.com", got)
	}
	// The value of a deleted field can be removed, and purging the field removes all values.
	o.do(t, http.MethodDelete, "/api/contacts/fields/age", "", 200)
	o.do(t, http.MethodPut, path, `{"fields":{"never":null}}`, 422)
	o.do(t, http.MethodPut, path, `{"fields":{"age":null}}`, 200)
	o.do(t, http.MethodPost, "/api/contacts/fields/age/restore", "", 200)
	if got := o.do(t, http.MethodGet, path, "", 200); fmt.Sprint(got["fields"]) != "map[note:7]" {
		t.Errorf("after the value was removed: got %v, want only note 7", got)
	}
	o.do(t, http.MethodPut, "/api/contacts/fields/ssn", `{"type":"Encrypted"}`, 200)
	o.do(t, http.MethodPut, path, `{"fields":{"ssn":"topmost","age":3}}`, 200)
	for _, field := range []string{"ssn", "age"} {
		o.do(t, http.MethodDelete, "/api/contacts/fields/"+field+"?purge=true", "", 200)
		o.do(t, http.MethodPost, "/api/contacts/fields", `{"key":"`+field+`","title":"New","type":"Encrypted"}`, 200)
		o.do(t, http.MethodPut, "/api/contacts/fields/"+field, `{"type":"Text"}`, 200) // since nobody has a value
	}
	if got := o.do(t, http.MethodGet, path, "", 200); fmt.Sprint(got["fields"]) != "map[note:7]" {
		t.Errorf("after the fields were purged: got %v, want only note 7", got)
	}
	o.do(t, http.MethodDelete, path+"?purge=true", "", 200)
	o.do(t, http.MethodGet, path+"?deleted=true", "", 404)
	reader := client{o.Org, o.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions = string(tenants.ServerRead), []string{string(tenants.Contacts)}
	}).Token}
	for _, path := range []string{"/api/contacts", "/api/contacts/fields"} {
		if got := reader.do(t, http.MethodGet, path, "", 403); !strings.Contains(got["message"].(string), "correct permissions") {
			t.Errorf("%s with a reading key: got %v, want the denial", path, got)
		}
		if got := o.of(t, tenants.ManageFiles).do(t, http.MethodGet, path, "", 403); got["permission"] != "contacts" {
			t.Errorf("%s without the permission: got %v, want permission contacts", path, got)
		}
	}
}

// TestBulk checks that every record has its own result, and that existing records are changed.
func TestBulk(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := client{Org: g.Org(t, "acme", tenants.FeatureTeams)}.of(t, tenants.Contacts)
	const north, south = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	o.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"team","id":"`+south+`","name":"South"}`,
		`{"kind":"contact_field","key":"age","title":"Age","type":"Number"}`, `{"kind":"contact_field","key":"ssn","title":"SSN","type":"Encrypted"}`,
		`{"kind":"contact","external_id":"there","email":"there@example.com","fields":{"age":1,"ssn":"one secret"}}`,
		`{"kind":"contact","external_id":"trash","email":"trash@example.com","deleted":true}`,
		`{"kind":"contact","external_id":"south","teams":["`+south+`"]}`)
	bulk := func(o client, records string) map[string]any {
		t.Helper()
		return o.do(t, http.MethodPost, "/api/contacts/bulk", `{"records":[`+records+`]}`, 200)
	}
	said := func(got map[string]any, i int) string {
		return fmt.Sprint(got["results"].([]any)[i].(map[string]any)["errors"])
	}
	got := bulk(o, `{"external_id":"new","email":"new@example.com","fields":{"age":5,"ssn":"another secret"}},{"external_id":"there","fields":{"age":2}},{"email":"no","fields":{"age":"x"}},`+
		`{"external_id":"new"},{"id":"665f1c2ab4d3e2f1a0b9c8d7","deleted":true},7,{"teams":["665f1c2ab4d3e2f1a0b9c8d7"]},{"external_id":"trash","city":"Bonn"},{"city":"Paris"}`)
	if fmt.Sprint(got["created"], got["updated"], got["failed"]) != "225" || len(got["results"].([]any)) != 9 {
		t.Fatalf("a bulk: got %v, want 2 created, 2 updated and 5 failed", got)
	}
	for i, says := range []string{2: "fields.age must be", 3: "the same as in an earlier record", 4: `"deleted" is not a field`, 5: "must be an object", 6: "teams names a team"} {
		if !strings.Contains(said(got, i), says) {
			t.Errorf("record %d: %s, want %s", i, said(got, i), says)
		}
	}
	if found := o.names(t, "/api/contacts?sort=external_id&filters[external_id][exists]=true", "external_id"); found != "new south there trash" {
		t.Errorf("stored: got %s, want found %q", found, "new south there trash")
	}
	first := got["results"].([]any)[0].(map[string]any)["id"].(string)
	if got := o.do(t, http.MethodGet, "/api/contacts/"+first+"/reveal-secret?field=ssn", "", 200); got["field_value"] != "another secret" {
		t.Errorf("revealed: got %v, want field_value %q", got, "another secret")
	}
	there := got["results"].([]any)[1].(map[string]any)["id"].(string)
	if got := o.do(t, http.MethodGet, "/api/contacts/"+there, "", 200); got["email"] != "there@example.com" || fmt.Sprint(got["fields"]) != "map[age:2]" {
		t.Errorf("merged: got %v, want the old email and age 2", got)
	}
	limited := client{o.Org, o.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.Contacts)}, []string{north}
	}).Token}
	got = bulk(limited, `{"external_id":"a"},{"external_id":"south"},{"external_id":"b","teams":["`+south+`"]},{"external_id":"c"}`)
	if fmt.Sprint(got["created"], got["updated"], got["failed"]) != "202" || !strings.Contains(said(got, 1), "already in use") || !strings.Contains(said(got, 2), "among those of the caller") {
		t.Errorf("of a caller of one team: got %v, want 2 failures", got)
	}
	for _, body := range []string{`{}`, `{"records":[]}`, `{"records":{}}`, `{"records":[` + strings.Repeat("{},", 1000) + `{}]}`} {
		o.do(t, http.MethodPost, "/api/contacts/bulk", body, 422)
	}
}

// TestBulkKeepsConcurrentChanges checks that a concurrent change between a bulk's read and its write is kept.
func TestBulkKeepsConcurrentChanges(t *testing.T) {
	t.Parallel()
	var between fixture.StoreHook
	acme := gatewaytest.Start(t, between.Option).Org(t, "acme")
	acme.Import(t, `{"kind":"contact","id":"`+fixture.DocID(1)+`","external_id":"a"}`, `{"kind":"contact","external_id":"b"}`)
	key := gatewaytest.WithKey(acme.Key(t, tenants.Contacts))
	on := func(c store.Call) {
		if c.Operation != "find" || c.Collection != "contacts" {
			return
		}
		between.On.Store(nil)
		if a := acme.Do(t, http.MethodPut, "/api/contacts/"+fixture.DocID(1), key, fixture.JSONText(`{"phone":"+49 228"}`)); a.Status != "ok" {
			t.Errorf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
		}
	}
	between.On.Store(&on)
	a := acme.Do(t, http.MethodPost, "/api/contacts/bulk", key, fixture.IdempotencyKey("one"), fixture.JSONText(`{"records":[{"external_id":"a","city":"Rome"},{"external_id":"b","city":"Rome"},{"external_id":"c"}]}`))
	if text := a.Text(); !strings.Contains(text, `"created":1,"updated":2,"failed":0`) {
		t.Errorf(`got %v, want containing "\"created\":1,\"updated\":2,\"failed\":0"`, text)
	}
	if export := exportOf(t, acme); strings.Count(export, "Rome") != 2 || strings.Count(export, "+49 228") != 1 {
		t.Error("got an export without the concurrent change, want it there")
	}
}

// TestImportsRestoreDeletedRecords checks that a line or row that does not say it is deleted restores the record.
func TestImportsRestoreDeletedRecords(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := client{Org: g.Org(t, "acme")}.of(t, tenants.Contacts)
	made := o.do(t, http.MethodPost, "/api/contacts", `{"external_id":"1815","city":"Bonn"}`, 200)
	path := "/api/contacts/" + made["id"].(string)
	for name, bring := range map[string]func(){
		"a bundle by the identifier":  func() { o.Import(t, `{"kind":"contact","id":"`+made["id"].(string)+`","city":"Ulm"}`) },
		"a bundle by the external_id": func() { o.Import(t, `{"kind":"contact","external_id":"1815"}`) },
		"rows of CSV": func() {
			file := gatewaytest.Source([]byte("external_id,city\n1815,Paris\n"))
			report, err := tabular.Import(t.Context(), g.App.Transfer(), o.Tenant(t), file, tabular.Options{As: "contacts", Format: tabular.CSV, Key: "external_id"})
			if err != nil || report.Updated != 1 {
				t.Errorf("rows of CSV: got %+v, %v, want no error and Updated 1", report, err)
			}
		},
	} {
		o.do(t, http.MethodDelete, path, "", 200)
		bring()
		if got := o.do(t, http.MethodGet, path, "", 200); got["external_id"] != "1815" {
			t.Errorf(`%s: got %v, want got["external_id"] = "1815"`, name, got)
		}
	}
}

// BenchmarkBulk stores a thousand contacts in one call.
func BenchmarkBulk(b *testing.B) {
	g := gatewaytest.Start(b)
	o := g.Org(b, "acme")
	o.Import(b, `{"kind":"contact_field","key":"age","title":"Age","type":"Number"}`)
	key := gatewaytest.WithKey(o.Key(b, tenants.Contacts))
	n := 0
	for _, kind := range []string{"create", "update"} {
		b.Run(kind, func(b *testing.B) {
			var spent time.Duration
			for b.Loop() {
				if kind == "create" {
					n++
				}
				var records []string
				for i := range 1000 {
					records = append(records, fmt.Sprintf(`{"external_id":"%d-%d","email":"a%d@example.com","first_name":"Ada","country":"DE","fields":{"age":%d}}`, n, i, i, i%90))
				}
				body := gatewaytest.Body("application/json", `{"records":[`+strings.Join(records, ",")+`]}`)
				start := time.Now()
				if a := o.Do(b, http.MethodPost, "/api/contacts/bulk", key, body); a.Code != 200 || !strings.Contains(a.Text()[:200], `"failed":0`) {
					b.Fatalf(`got %d %.300s, want 200 and containing "\"failed\":0"`, a.Code, a.Body)
				}
				spent += time.Since(start)
			}
			b.ReportMetric(float64(spent.Milliseconds())/float64(b.N), "ms/bulk")
		})
	}
}

// TestStandardFieldHidesDefinedOne: if contacts get a standard field with the key of a field that an organization
// defined before, its values stay, and the key means the standard field.
func TestStandardFieldHidesDefinedOne(t *testing.T) {
	t.Parallel()
	o := client{Org: gatewaytest.Start(t).Org(t, "acme")}
	o.Import(t, `{"kind":"contact_field","key":"city","title":"City","type":"Number","as_is":true}`,
		`{"kind":"contact","id":"00000000000000000000c001","city":"Bonn","fields":{"city":7}}`,
		`{"kind":"contact","id":"00000000000000000000c002","city":"Aachen","fields":{"city":8}}`,
		`{"kind":"custom_report","pid":"public-report-e1","title":"Cities","class":"Contacts","secure":false,`+
			`"query":{"fields":["city"],"sort":["city"]}}`)
	o = o.of(t, tenants.Contacts)
	for query, want := range map[string]string{
		"filters[city]=Bonn": "Bonn", "filters[city]=7": "", "sort=city": "Aachen Bonn",
	} {
		if got := o.names(t, "/api/contacts?"+query, "city"); got != want {
			t.Errorf("%s: got %q, want %q", query, got, want)
		}
	}
	shared := o.Page(t, "/api/reports/shared/public-report-e1?data=1").Text()
	if !strings.Contains(shared, `"rows":[["Aachen"],["Bonn"]]`) {
		t.Errorf("the report answers %s, want the standard field", shared)
	}
	made := o.do(t, http.MethodPut, "/api/contacts/00000000000000000000c001", `{"fields":{"city":9}}`, 200)
	if fmt.Sprint(made["fields"], made["city"]) != "map[city:9]Bonn" {
		t.Errorf("got %v, want the defined value under fields and the standard one beside it", made)
	}
	o.do(t, http.MethodPut, "/api/contacts/fields/city", `{"title":"Town"}`, 422)
	o.do(t, http.MethodDelete, "/api/contacts/fields/city?force=true", "", 200)
}
