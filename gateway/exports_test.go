package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// export gets all that an export writes.
func (c asking) export(t *testing.T, path, media, file string) string {
	t.Helper()
	a := c.Page(t, path, gatewaytest.WithKey(c.key))
	kind, name := a.Header.Get("Content-Type"), a.Header.Get("Content-Disposition")
	if a.Code != http.StatusOK || kind != media || name != "attachment; filename"+file {
		t.Fatalf("%s: %d %q %q %s", path, a.Code, kind, name, a.Body)
	}
	return a.Text()
}

// TestContract_ExportSubmissions: all of a form's submissions come as CSV or NDJSON, and nothing that is secret.
func TestContract_ExportSubmissions(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	form, other := docID(0xf1), docID(0xf2)
	acme.Import(
		t, `{"kind":"form_collection","id":"`+form+`","name":"visit","label":"Visit","label_plural":"Visits","schema":{`+
			`"note":{"title":"Note","type":"Text"},"n":{"title":"N","type":"Number"},"id":{"title":"Id","type":"Text"},"sure":{"title":"Sure","type":"Boolean"},`+
			`"kinds":{"title":"Kinds","type":"MultiSelect"},"-x":{"title":"X","type":"Text"},"pin":{"title":"Pin","type":"Encrypted"}}}`,
		`{"kind":"form_collection","id":"`+other+`","name":"other","label":"Other","label_plural":"Others"}`)
	c := asking{acme, acme.Key(t, tenants.ViewFormSubmissions, tenants.ManageForms, tenants.CreateFormSubmissions)}
	path := "/api/form/collections/" + form + "/submissions"
	c.do(t, 200, posted, path, `{"values":{"form_name":"a","note":"=1+1","n":-2.5,"id":"7","sure":true,"kinds":["@a","b"],"pin":"very-secret"}}`)
	c.do(t, 200, posted, path, `{"values":{"form_name":"b, \"c\"\nd","note":"-","n":12,"-x":"x"}}`)
	gone := c.do(t, 200, posted, path, `{"values":{"form_name":"gone"}}`).Field("id").(string)
	c.do(t, 200, del, path+"/"+gone, "")
	c.do(t, 200, posted, "/api/form/collections/"+other+"/submissions", `{"values":{"form_name":"elsewhere"}}`)

	const header = "id,form,'-x,form_name,values.id,kinds,n,note,sure,created_at,updated_at\n"
	csv := c.export(t, path+"/export?format=csv", "text/csv", "=submissions.csv")
	if !strings.HasPrefix(csv, header) || strings.Count(csv, form) != 2 || !strings.Contains(csv, ",,a,7,'@a; b,-2.5,'=1+1,true,20") || !strings.Contains(csv, ",x,\"b, \"\"c\"\"\nd\",,,12,'-,,20") {
		t.Errorf("%s", csv)
	}
	lines := c.export(t, path+"/export?format=ndjson", "application/x-ndjson", "=submissions.ndjson")
	if strings.Count(lines, "\n") != 2 || strings.Count(lines, `,"form":"`+form+`","values":{`) != 2 || !strings.Contains(lines, `"note":"=1+1"`) {
		t.Errorf("%s", lines)
	}
	for text, all := range map[string]string{"very-secret": csv + lines, "pin": csv + lines, "gone": csv + lines, "elsewhere": csv + lines} {
		if strings.Contains(all, text) {
			t.Errorf("%s in %s", text, all)
		}
	}
	if got := c.export(t, path+"/export?format=csv&filters[n][gt]=100", "text/csv", "=submissions.csv"); got != header {
		t.Errorf("%q", got)
	}
	if got := c.export(t, path+"/export?format=csv&deleted=true", "text/csv", "=submissions.csv"); !strings.Contains(got, gone) || strings.Count(got, "\n") != 2 {
		t.Errorf("%q", got)
	}
	c.do(t, 422, get, path+"/export?format=xml&filters[pin]=1", "", "format must be csv or ndjson")
	c.do(t, 422, get, path+"/export?filters[pin]=very-secret", "", "pin")
	c.do(t, 404, get, strings.Replace(path, form, docID(0xf3), 1)+"/export", "", "Form Collection not found")
	unable := asking{acme, acme.Key(t, tenants.ManageForms, tenants.CreateFormSubmissions)}
	unable.do(t, 403, get, path+"/export", "", "view_form_submissions")
}

// TestContract_ExportRecords: the records of one custom object come as CSV or NDJSON, and nothing that is secret.
func TestContract_ExportRecords(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	acme.Import(
		t, `{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text"},"height":{"title":"Height","type":"Number"},"pin":{"title":"Pin","type":"Encrypted"}}}`,
		`{"kind":"custom_object","name":"bush","label":"Bush","label_plural":"Bushes"}`)
	c := asking{acme, acme.Key(t, tenants.ManageCustomObjects)}
	const path = "/api/custom/objects/tree/records"
	c.do(t, 200, posted, path, `{"external_id":"T-1","values":{"species":"=elm","height":12.5,"pin":"very-secret"}}`)
	c.do(t, 200, posted, path, `{"external_id":"T-2","values":{"species":"oak","height":3}}`)
	gone := c.do(t, 200, posted, path, `{"external_id":"T-3"}`).Field("id").(string)
	c.do(t, 200, del, path+"/"+gone, "")
	c.do(t, 200, posted, "/api/custom/objects/bush/records", `{"external_id":"elsewhere"}`)

	csv := c.export(t, path+"/export?format=csv&sort=external_id", "text/csv", "=records.csv")
	lines := c.export(t, path+"/export?sort=-external_id", "application/x-ndjson", "=records.ndjson")
	if strings.Count(csv, "\n") != 3 || !strings.Contains(csv, ",T-1,") || !strings.Contains(csv, "12.5") || !strings.Contains(csv, "'=elm") || strings.Index(csv, "T-1") > strings.Index(csv, "T-2") {
		t.Errorf("%s", csv)
	}
	if strings.Count(lines, "\n") != 2 || !strings.Contains(lines, `"species":"=elm"`) || strings.Index(lines, "T-1") < strings.Index(lines, "T-2") {
		t.Errorf("%s", lines)
	}
	for _, text := range []string{"very-secret", "pin", "T-3", "elsewhere"} {
		if strings.Contains(csv+lines, text) {
			t.Errorf("%s in %s", text, csv+lines)
		}
	}
	if got := c.export(t, path+"/export?filters[height][lt]=10", "application/x-ndjson", "=records.ndjson"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "T-2") {
		t.Errorf("filtered: %s", got)
	}
	if got := c.export(t, path+"/export?deleted=true", "application/x-ndjson", "=records.ndjson"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "T-3") {
		t.Errorf("deleted: %s", got)
	}
	c.do(t, 404, http.MethodGet, "/api/custom/objects/none/records/export", "")
	asking{acme, acme.Key(t, tenants.Contacts)}.do(t, 403, http.MethodGet, path+"/export", "")
}

// TestExportsGoOutWhileTheyAreRead: more submissions than are read at once all arrive, each once.
func TestExportsGoOutWhileTheyAreRead(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	const many = 1234
	form := docID(0xf1)
	lines := []string{`{"kind":"form_collection","id":"` + form + `","name":"visit","label":"Visit","label_plural":"Visits","schema":{"note":{"title":"Note","type":"Text"}}}`}
	for i := range many {
		lines = append(lines, fmt.Sprintf(`{"kind":"submission","id":"%s","form":"%s","values":{"form_name":"f","note":"%s-%d-"}}`, docID(0xa000+i), form, strings.Repeat("x", 100), i))
	}
	acme.Import(t, lines...)
	c := asking{acme, acme.Key(t, tenants.ViewFormSubmissions)}
	all := c.export(t, "/api/form/collections/"+form+"/submissions/export?format=ndjson", "application/x-ndjson", "=submissions.ndjson")
	for i := range many {
		if n := strings.Count(all, fmt.Sprintf("x-%d-", i)); n != 1 {
			t.Fatalf("submission %d comes %d times", i, n)
		}
	}
	if n := strings.Count(all, "\n"); n != many {
		t.Errorf("%d lines", n)
	}
}

// TestContract_RunReports: keepers see a report's rows page by page, those of one that is not stored, and a file of
// them; they make a copy of it. All of it stays within their teams.
func TestContract_RunReports(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, append(
		bundleTeams(),
		`{"kind":"contact_field","key":"pin","title":"Pin","type":"Encrypted"}`, `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}`,
		`{"kind":"contact","id":"`+docID(0xc1)+`","email":"a@example.com","country":"DE","fields":{"plan":"=gold"}}`,
		`{"kind":"contact","id":"`+docID(0xc2)+`","email":"b@example.com","country":"FR"}`,
		`{"kind":"contact","id":"`+docID(0xc3)+`","email":"c@example.com","country":"DE","teams":["`+teamA+`"]}`,
		`{"kind":"contact","id":"`+docID(0xc4)+`","email":"d@example.com","country":"DE","teams":["`+teamB+`"]}`,
	)...)
	c := asking{acme, acme.Key(t, tenants.ManageReports)}
	limited := asking{acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"manage_reports"}, []string{teamA} }).Token}
	unable := asking{acme, acme.Key(t, tenants.Contacts)}
	const reports = "/api/custom-reports"
	make := func(body string) string {
		return reports + "/" + c.do(t, 200, posted, reports, body).Field("id").(string)
	}
	list := make(`{"title":"Müller/Söhne","class":"Contacts","exportable":true,"query":{"fields":["email","plan"],"filter":{"country":{"input":"land"}},"sort":["-email"]},` +
		`"input":{"land":{"rule":"locked","value":"DE"}}}`)
	groups := make(`{"title":"By country","class":"Contacts","exportable":true,"query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["-count"]}}`)

	c.do(t, 200, get, list+"/run?per_page=2", "", `"message":"Custom Report run"`, `"columns":[{"name":"email"`, `"page":1,"pages":2,"count":3,"results":[["d@example.com",null],["c@example.com",null]],"truncated":false`)
	c.do(t, 200, get, list+"/run?per_page=2&page=2", "", `"page":2,"pages":2,"count":3,"results":[["a@example.com","=gold"]]`)
	c.do(t, 200, get, list+"/run?per_page=2&page=3", "", `"pages":2,"count":3,"results":[]`)
	c.do(t, 200, get, list+"/run?params[land]=FR", "", `"count":1,"results":[["b@example.com",null]]`)
	c.do(t, 200, get, list+"/run?params[land]=", "", `"count":4`)
	c.do(t, 422, get, list+"/run?params[town]=Bonn", "", "params[town] is no input")
	c.do(t, 422, get, list+"/run?page=0", "", `"page"`)
	limited.do(t, 200, get, list+"/run", "", `"count":2`, "c@example.com", "!d@example.com")
	c.do(t, 200, get, list+"/run?teams[]="+teamB, "", `"count":2`, "d@example.com", "!c@example.com")
	unable.do(t, 403, get, list+"/run", "", "manage_reports")
	c.do(t, 200, get, groups+"/run?per_page=1&page=2", "", `"pages":2,"count":2,"results":[["FR",1]]`)
	c.do(t, 404, get, reports+"/"+docID(0xdead)+"/run", "", "Custom Report not found")

	const contacts = `{"title":"x","class":"Contacts","query":`
	c.do(t, 200, posted, reports+"/preview", contacts+`{"fields":["email"],"limit":3,"filter":{"country":"DE"}}}`, `"count":3`, "!pid")
	c.do(t, 200, posted, reports+"/preview", contacts+`{"fields":["email"],"limit":2}}`, `"pages":1,"count":2,`, `"truncated":true`)
	c.do(t, 422, posted, reports+"/preview", contacts+`{"fields":["pin","shoe"]}}`, `\"pin\" is encrypted`, `\"shoe\"`)
	c.do(t, 422, posted, reports+"/preview", `{"title":"x","class":"Records","source":"nowhere"}`, "source names nothing")
	limited.do(t, 200, posted, reports+"/preview", contacts+`{"fields":["email"]}}`, "c@example.com", "!d@example.com")
	c.do(t, 200, get, reports+"?q=x", "", `"count":0`)

	const named = "*=utf-8''M%C3%BCller%2FS%C3%B6hne."
	if got, want := c.export(t, list+"/export?format=csv", "text/csv", named+"csv"), "email,plan\nd@example.com,\nc@example.com,\na@example.com,'=gold\n"; strings.ReplaceAll(got, `"`, "") != want {
		t.Errorf("%s", got)
	}
	if got, want := limited.export(t, list+"/export?format=ndjson&params[land]=", "application/x-ndjson", named+"ndjson"), `{"email":"c@example.com","plan":null}`+"\n"; !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 3 {
		t.Errorf("%s", got)
	}
	if got, want := c.export(t, groups+"/export?format=csv", "text/csv", `="By country.csv"`), "country,count\nDE,3\nFR,1\n"; got != want {
		t.Errorf("%s", got)
	}
	unable.do(t, 403, get, list+"/export", "", "manage_reports")
	c.do(t, 200, change, groups, `{"exportable":false}`)
	c.do(t, 422, get, groups+"/export", "", "not to be exportable")

	copied := c.do(t, 200, posted, list+"/duplicate", "", "Custom Report duplicated", `"title":"Copy of Müller/Söhne"`, `"exportable":true`, `"input":{"land":`)
	if id, pid := copied.Field("id"), copied.Field("pid"); reports+"/"+id.(string) == list || pid == c.do(t, 200, get, list, "").Field("pid") || pid == "" {
		t.Errorf("%v %v", id, pid)
	}
	c.do(t, 200, change, list, `{"title":"`+strings.Repeat("ü", 200)+`"}`)
	c.do(t, 200, posted, list+"/duplicate", "", "Copy of ü")
	limited.do(t, 422, posted, list+"/duplicate", "", `"teams"`)
	unable.do(t, 403, posted, list+"/duplicate", "", "manage_reports")
	c.do(t, 200, get, reports, "", `"count":4`)

	acme.Import(t, `{"kind":"contact_field","key":"shoe","title":"Shoe","type":"Text"}`, `{"kind":"custom_report","id":"`+docID(0xb1)+`","title":"Broken","class":"Contacts","exportable":true,"query":{"fields":["shoe"]}}`)
	owner := asking{acme, acme.Key(t, tenants.Contacts)}
	owner.do(t, 200, del, "/api/contacts/fields/shoe?force=true", "")
	for _, path := range []string{"/run", "/export"} {
		c.do(t, 422, get, reports+"/"+docID(0xb1)+path, "", `there is no field \"shoe\"`)
	}
}

// TestReportsAreExportedWhole: a list that says no limit goes out beyond the one that runs have, also where
// it is sorted, and one that says a limit up to that.
func TestReportsAreExportedWhole(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	const many = 10_000 // groups of one report
	var lines []string
	for i := range many {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","email":"c%04d@example.com"}`, i))
	}
	acme.Import(t, append(
		lines, `{"kind":"custom_report","id":"`+docID(0xb1)+`","title":"All","class":"Contacts","exportable":true,"query":{"fields":["email"],"sort":["-email"]}}`,
		`{"kind":"custom_report","id":"`+docID(0xb2)+`","title":"Some","class":"Contacts","exportable":true,"query":{"fields":["email"],"sort":["-email"],"limit":2001}}`,
		`{"kind":"custom_report","id":"`+docID(0xb3)+`","title":"Groups","class":"Contacts","exportable":true,"query":{"group_by":[{"field":"email"}],"measures":[{"op":"count"}]}}`)...)
	c := asking{acme, acme.Key(t, tenants.ManageReports)}
	for id, want := range map[int]int{0xb1: many, 0xb2: 2001} {
		got := strings.Split(c.Page(t, "/api/custom-reports/"+docID(id)+"/export?format=csv", gatewaytest.WithKey(c.key)).Text(), "\n")
		if len(got) != want+2 || got[0] != "email" || got[want+1] != "" {
			t.Fatalf("%x: %d lines", id, len(got))
		}
		for i, line := range got[1 : want+1] {
			if line != fmt.Sprintf("c%04d@example.com", many-1-i) {
				t.Fatalf("%x: line %d is %s", id, i, line)
			}
		}
	}
	c.do(t, 200, get, "/api/custom-reports/"+docID(0xb1)+"/run?per_page=1000&page=2", "", `"pages":1,"count":1000,`, `"truncated":true`)
	c.do(t, 422, get, "/api/custom-reports/"+docID(0xb3)+"/export", "", "the report has more than 10000 rows")
}
