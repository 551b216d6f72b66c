package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// export returns a whole export.
func export(t *testing.T, c fixture.KeyClient, path, media, file string) string {
	t.Helper()
	a := c.Page(t, path, gatewaytest.WithKey(c.Token))
	kind, name := a.Header.Get("Content-Type"), a.Header.Get("Content-Disposition")
	if a.Code != http.StatusOK || kind != media || name != "attachment; filename"+file {
		t.Fatalf("%s: got %d %q %q %s, want %v and kind = %v and name = %v",
			path, a.Code, kind, name, a.Body, http.StatusOK, media, "attachment; filename"+file)
	}
	return a.Text()
}

// TestContract_ExportSubmissions checks that all submissions of a form are exported as CSV or NDJSON, without secrets.
func TestContract_ExportSubmissions(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	form, other := fixture.DocID(0xf1), fixture.DocID(0xf2)
	acme.Import(
		t, `{"kind":"form_collection","id":"`+form+`","name":"visit","label":"Visit","label_plural":"Visits","schema":{`+
			`"note":{"title":"Note","type":"Text"},"n":{"title":"N","type":"Number"},"id":{"title":"Id","type":"Text"},"sure":{"title":"Sure","type":"Boolean"},`+
			`"kinds":{"title":"Kinds","type":"MultiSelect"},"-x":{"title":"X","type":"Text"},"pin":{"title":"Pin","type":"Encrypted"}}}`,
		`{"kind":"form_collection","id":"`+other+`","name":"other","label":"Other","label_plural":"Others"}`)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ViewFormSubmissions, tenants.ManageForms, tenants.CreateFormSubmissions))
	path := "/api/form/collections/" + form + "/submissions"
	c.Want(t, 200, http.MethodPost, path, `{"values":{"form_name":"a","note":"=1+1","n":-2.5,"id":"7","sure":true,"kinds":["@a","b"],"pin":"very-secret"}}`)
	c.Want(t, 200, http.MethodPost, path, `{"values":{"form_name":"b, \"c\"\nd","note":"-","n":12,"-x":"x"}}`)
	gone := c.Want(t, 200, http.MethodPost, path, `{"values":{"form_name":"gone"}}`).Field("id").(string)
	c.Want(t, 200, http.MethodDelete, path+"/"+gone, "")
	c.Want(t, 200, http.MethodPost, "/api/form/collections/"+other+"/submissions", `{"values":{"form_name":"elsewhere"}}`)

	const header = "id,form,'-x,form_name,values.id,kinds,n,note,sure,created_at,updated_at\n"
	csv := export(t, c, path+"/export?format=csv", "text/csv; charset=utf-8", "=submissions.csv")
	if !strings.HasPrefix(csv, header) || strings.Count(csv, form) != 2 || !strings.Contains(csv, ",,a,7,'@a; b,-2.5,'=1+1,true,20") || !strings.Contains(csv, ",x,\"b, \"\"c\"\"\nd\",,,12,'-,,20") {
		t.Errorf(`got %s, want beginning with %q and strings.Count(csv, form) = 2 and containing ",,a,7,'@a; b,-2.5,'=1+1,true,20" and containing ",x,\"b, \"\"c\"\"\nd\",,,12,'-,,20"`,
			csv, header)
	}
	lines := export(t, c, path+"/export?format=ndjson", "application/x-ndjson", "=submissions.ndjson")
	if strings.Count(lines, "\n") != 2 || strings.Count(lines, `,"form":"`+form+`","values":{`) != 2 || !strings.Contains(lines, `"note":"=1+1"`) {
		t.Errorf(`got %s, want strings.Count(lines, "\n") = 2 and containing "\"note\":\"=1+1\""`, lines)
	}
	for text, all := range map[string]string{"very-secret": csv + lines, "pin": csv + lines, "gone": csv + lines, "elsewhere": csv + lines} {
		if strings.Contains(all, text) {
			t.Errorf("got %s in %s, want it nowhere", text, all)
		}
	}
	if got := export(t, c, path+"/export?format=csv&filters[n][gt]=100", "text/csv; charset=utf-8", "=submissions.csv"); got != header {
		t.Errorf("got %q, want %v", got, header)
	}
	if got := export(t, c, path+"/export?format=csv&deleted=true", "text/csv; charset=utf-8", "=submissions.csv"); !strings.Contains(got, gone) || strings.Count(got, "\n") != 2 {
		t.Errorf(`got %q, want containing %q and strings.Count(got, "\n") = 2`, got, gone)
	}
	if got := export(t, c, path+"/export?format=csv&columns=note,id,values.id,-x", "text/csv; charset=utf-8", "=submissions.csv"); !strings.HasPrefix(got, "note,id,values.id,'-x\n'") || !strings.Contains(got, "\n'-,") {
		t.Errorf(`got %q, want beginning with "note,id,values.id,'-x\n'" and containing "\n'-,"`, got)
	}
	c.Want(t, 422, http.MethodGet, path+"/export?format=ndjson&columns=note", "", "columns applies to CSV only")
	c.Want(t, 422, http.MethodGet, path+"/export?format=csv&columns=note,nothing", "", "unknown column", "nothing")
	c.Want(t, 422, http.MethodGet, path+"/export?format=csv&columns=note,pin", "", "unknown column", "pin")
	c.Want(t, 422, http.MethodGet, path+"/export?format=csv&columns=note,note", "", "given twice")
	c.Want(t, 422, http.MethodGet, path+"/export?format=xml&filters[pin]=1", "", "format must be csv or ndjson")
	c.Want(t, 422, http.MethodGet, path+"/export?filters[pin]=very-secret", "", "pin")
	c.Want(t, 404, http.MethodGet, strings.Replace(path, form, fixture.DocID(0xf3), 1)+"/export", "", "Form Collection not found")
	unable := fixture.WithToken(acme, acme.Key(t, tenants.ManageForms, tenants.CreateFormSubmissions))
	unable.Want(t, 403, http.MethodGet, path+"/export", "", "view_form_submissions")
}

// TestContract_ExportRecords checks that the records of one custom object are exported as CSV or NDJSON, without
// secrets.
func TestContract_ExportRecords(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	acme.Import(
		t, `{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text"},"height":{"title":"Height","type":"Number"},"pin":{"title":"Pin","type":"Encrypted"}}}`,
		`{"kind":"custom_object","name":"bush","label":"Bush","label_plural":"Bushes"}`)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageCustomObjects))
	const path = "/api/custom/objects/tree/records"
	c.Want(t, 200, http.MethodPost, path, `{"external_id":"T-1","values":{"species":"=elm","height":12.5,"pin":"very-secret"}}`)
	c.Want(t, 200, http.MethodPost, path, `{"external_id":"T-2","values":{"species":"oak","height":3}}`)
	gone := c.Want(t, 200, http.MethodPost, path, `{"external_id":"T-3"}`).Field("id").(string)
	c.Want(t, 200, http.MethodDelete, path+"/"+gone, "")
	c.Want(t, 200, http.MethodPost, "/api/custom/objects/bush/records", `{"external_id":"elsewhere"}`)

	csv := export(t, c, path+"/export?format=csv&sort=external_id", "text/csv; charset=utf-8", "=records.csv")
	lines := export(t, c, path+"/export?sort=-external_id", "application/x-ndjson", "=records.ndjson")
	if strings.Count(csv, "\n") != 3 || !strings.Contains(csv, ",T-1,") || !strings.Contains(csv, "12.5") || !strings.Contains(csv, "'=elm") || strings.Index(csv, "T-1") > strings.Index(csv, "T-2") {
		t.Errorf(`got %s, want strings.Count(csv, "\n") = 3 and containing ",T-1," and containing "12.5" and containing "'=elm"`,
			csv)
	}
	if strings.Count(lines, "\n") != 2 || !strings.Contains(lines, `"species":"=elm"`) || strings.Index(lines, "T-1") < strings.Index(lines, "T-2") {
		t.Errorf(`got %s, want strings.Count(lines, "\n") = 2 and containing "\"species\":\"=elm\""`, lines)
	}
	for _, text := range []string{"very-secret", "pin", "T-3", "elsewhere"} {
		if strings.Contains(csv+lines, text) {
			t.Errorf("got %s in %s, want it nowhere", text, csv+lines)
		}
	}
	if got := export(t, c, path+"/export?filters[height][lt]=10", "application/x-ndjson", "=records.ndjson"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "T-2") {
		t.Errorf("filtered: got %s, want only T-2", got)
	}
	if got := export(t, c, path+"/export?deleted=true", "application/x-ndjson", "=records.ndjson"); strings.Count(got, "\n") != 1 || !strings.Contains(got, "T-3") {
		t.Errorf("deleted: got %s, want only T-3", got)
	}
	c.Want(t, 404, http.MethodGet, "/api/custom/objects/none/records/export", "")
	fixture.WithToken(acme, acme.Key(t, tenants.Contacts)).Want(t, 403, http.MethodGet, path+"/export", "")
}

// TestImportOfAnExportOfRowsChangesNothing checks that importing an export of rows changes nothing, whatever the values
// and the names of defined fields.
func TestImportOfAnExportOfRowsChangesNothing(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	admin := gatewaytest.Cookie(cookie)
	form, team := fixture.DocID(0xf1), fixture.DocID(0xa1)
	const fields = `"t":{"title":"T","type":"Text"},"l":{"title":"L","type":"LongText"},"n":{"title":"N","type":"Number"},"b":{"title":"B","type":"Boolean"},"d":{"title":"D","type":"Date"},` +
		`"dt":{"title":"DT","type":"DateTime"},"e":{"title":"E","type":"Email"},"ph":{"title":"P","type":"Phone"},"u":{"title":"U","type":"Url"},"s":{"title":"S","type":"Select"},"m":{"title":"M","type":"MultiSelect"},` +
		`"Any":{"title":"Any","type":"Rating"},"-x":{"title":"X","type":"Text"}`
	const others = `,"id":{"title":"Id","type":"Text"},"created_at":{"title":"At","type":"Text"},"External-ID":{"title":"Ext","type":"Text"},"pin":{"title":"Pin","type":"Encrypted","required":true},"late":{"title":"Late","type":"Text","required":true}`
	lines := []string{
		`{"kind":"team","id":"` + team + `","name":"North"}`,
		`{"kind":"custom_object","name":"ru","label":"Ru","label_plural":"Rus","schema":{` + fields + others + `}}`,
		`{"kind":"form_collection","id":"` + form + `","name":"visit","label":"Visit","label_plural":"Visits","schema":{` + fields + others + `}}`,
	}
	for field := range strings.SplitSeq(strings.ReplaceAll(fields, "},", "}\x00"), "\x00") {
		key, def, _ := strings.Cut(field, ":")
		lines = append(lines, `{"kind":"contact_field","key":`+key+`,`+def[1:])
	}
	lines = append(lines, `{"kind":"contact_field","key":"pin","title":"Pin","type":"Encrypted"}`)
	rich := []string{
		`"t":"=1+1","l":"a\r\nb\n\tc\rd ","n":-2.5,"b":true,"d":"2024-02-29","dt":"2024-02-29T23:30:00.123Z","e":"a@b.example","ph":"+49 1234","u":"https://a.example/","s":" red ","m":["a; b","@c","|"],"Any":5,"-x":"-"`,
		`"t":"'=1+1","l":"'","n":1e300,"b":false,"s":"'quoted'","m":["[x]"],"Any":"5","-x":"''@"`,
		`"t":"'plain \"x\", y","l":"\r\n","n":123456789012,"m":["one"],"Any":{"a":[1,"x"]}`,
		`"t":" ä 🦀 \t","l":"'\t","n":0.1,"m":["=x","y"],"Any":["a","b"]`,
		`"t":"\u2028x","s":"-","n":0,"m":[" a ","b"],"Any":"true"`,
		`"t":"","Any":true,"m":[]`,
		`"t":"NULL","Any":null`,
	}
	for i, values := range rich {
		more := fmt.Sprintf(`,"id":"%d","created_at":"=x","pin":"secret","External-ID":"e%d","late":""`, i, i)
		lines = append(lines,
			fmt.Sprintf(`{"kind":"record","as_is":true,"id":"%s","object":"ru","values":{%s%s},"secrets":{"pin":"secret"}%s}`, fixture.DocID(0xb00+i), values, strings.ReplaceAll(more, `,"pin":"secret"`, ""), []string{"", `,"external_id":" T-1 "`}[i%2*min(1, max(0, 2-i))]),
			fmt.Sprintf(`{"kind":"submission","as_is":true,"id":"%s","form":"%s","values":{"form_name":"f",%s%s},"secrets":{"pin":"secret"}}`, fixture.DocID(0xc00+i), form, values, strings.ReplaceAll(more, `,"pin":"secret"`, "")),
			fmt.Sprintf(`{"kind":"contact","id":"%s","last_name":" =Ada ","phone":"+49 1","tags":["-a; b","c"],"teams":[%q],"fields":{%s,"pin":"secret"}}`, fixture.DocID(0xd00+i), team, strings.ReplaceAll(values, `,"Any":null`, "")),
			fmt.Sprintf(`{"kind":"contact","id":"%s","first_name":"'=","external_id":"x-%d"}`, fixture.DocID(0xe00+i), i))
	}
	acme.Import(t, lines...)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageCustomObjects, tenants.ViewFormSubmissions, tenants.Contacts))
	all := func() string { return acme.Do(t, http.MethodGet, "/api/export", admin).Text() }
	for as, path := range map[string]string{"records:ru": "/api/custom/objects/ru/records", "submissions:" + form: "/api/form/collections/" + form + "/submissions", "contacts": "/api/contacts"} {
		for _, format := range []struct{ name, media string }{{"csv", "text/csv"}, {"ndjson", "application/x-ndjson"}} {
			before := all()
			file := c.Page(t, path+"/export?format="+format.name, gatewaytest.WithKey(c.Token)).Text()
			for _, key := range []string{"", "&key=id"} {
				a := acme.Do(t, http.MethodPost, "/api/import?as="+as+key, admin, gatewaytest.Body(format.media, file))
				a = fixture.AwaitImport(t, acme, admin, a.Field("id").(string))
				if n := strings.Count(before, `{"kind":"`+strings.TrimSuffix(as[:strings.IndexByte(as+":", ':')], "s")+`",`); !strings.Contains(string(a.Body), fmt.Sprintf(`"created":0,"unchanged":%d,"updated":0,"failed":0`, n)) {
					t.Errorf("%s%s %s: got %s, want all unchanged\n%s", as, key, format.name, a.Body, file)
				}
			}
			if after := all(); after != before {
				t.Errorf("%s %s: got\n%s\nwant\n%s", as, format.name, after, before)
			}
		}
	}
	plain := export(t, c, "/api/custom/objects/ru/records/export?format=csv", "text/csv; charset=utf-8", "=records.csv")
	file := export(t, c, "/api/custom/objects/ru/records/export?format=csv&bom=true", "text/csv; charset=utf-8", "=records.csv")
	if file != "\ufeff"+plain {
		t.Errorf("with a byte order mark: got %.40q, want it before the same text", file)
	}
	for _, path := range []string{"bom=true", "format=ndjson&bom=true"} {
		if a := c.Page(t, "/api/custom/objects/ru/records/export?"+path, gatewaytest.WithKey(c.Token)); strings.HasPrefix(a.Text(), "\ufeff") {
			t.Errorf("%s: got %.40q, want no byte order mark", path, a.Text())
		}
	}
	if a := fixture.AwaitImport(t, acme, admin, acme.Do(t, http.MethodPost, "/api/import?as=records:ru", admin, gatewaytest.Body("text/csv; charset=utf-8", file)).Field("id").(string)); !strings.Contains(a.Text(), `"created":0`) || !strings.Contains(a.Text(), `"updated":0,"failed":0`) {
		t.Errorf("read in again: got %s, want it with %q with %q", a.Text(), `"created":0`, `"updated":0,"failed":0`)
	}
	a := acme.Do(t, http.MethodPost, "/api/import?as=records:other", admin, gatewaytest.Body("text/csv", file))
	if a = fixture.AwaitImport(t, acme, admin, a.Field("id").(string)); a.Field("state") != "refused" || !strings.Contains(string(a.Body), "another custom object") {
		t.Errorf("rows of one object as those of another: got %s, want a refusal", a.Body)
	}
	a = acme.Do(t, http.MethodPost, "/api/import?as=records:foreign", admin, gatewaytest.Body("text/csv", "id,object,created_at,updated_at,deleted,values,a\n7,x,2024-01-02,2024-01-02,no,y,z\n"))
	if a = fixture.AwaitImport(t, acme, admin, a.Field("id").(string)); a.Field("state") != "done" {
		t.Errorf(`got %s, want a.Field("state") = "done"`, a.Body)
	}
	for field := range acme.Do(t, http.MethodGet, "/api/custom/objects/foreign", gatewaytest.WithKey(c.Token)).Field("schema").(map[string]any) {
		if field != "a" && !strings.HasPrefix(field, "column_") {
			t.Errorf("got the field %s, want a or column_…", field)
		}
	}
}

// TestExportsAreCompleteBeyondOneRead checks that more submissions than are read at once are all exported, each once.
func TestExportsAreCompleteBeyondOneRead(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	const many = 1234
	form := fixture.DocID(0xf1)
	lines := []string{`{"kind":"form_collection","id":"` + form + `","name":"visit","label":"Visit","label_plural":"Visits","schema":{"note":{"title":"Note","type":"Text"}}}`}
	for i := range many {
		lines = append(lines, fmt.Sprintf(`{"kind":"submission","id":"%s","form":"%s","values":{"form_name":"f","note":"%s-%d-"}}`, fixture.DocID(0xa000+i), form, strings.Repeat("x", 100), i))
	}
	acme.Import(t, lines...)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ViewFormSubmissions))
	all := export(t, c, "/api/form/collections/"+form+"/submissions/export?format=ndjson", "application/x-ndjson", "=submissions.ndjson")
	for i := range many {
		if n := strings.Count(all, fmt.Sprintf("x-%d-", i)); n != 1 {
			t.Fatalf("submission %d comes %d times, want 1", i, n)
		}
	}
	if n := strings.Count(all, "\n"); n != many {
		t.Errorf("got %d lines, want %v", n, many)
	}
}

// TestContract_RunReports checks that callers with manage_reports can page through a report, preview and export it, and
// copy it, within their teams.
func TestContract_RunReports(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, append(
		fixture.TeamLines(),
		`{"kind":"contact_field","key":"pin","title":"Pin","type":"Encrypted"}`, `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}`,
		`{"kind":"contact","id":"`+fixture.DocID(0xc1)+`","email":"a@example.com","country":"DE","fields":{"plan":"=gold"}}`,
		`{"kind":"contact","id":"`+fixture.DocID(0xc2)+`","email":"b@example.com","country":"FR"}`,
		`{"kind":"contact","id":"`+fixture.DocID(0xc3)+`","email":"c@example.com","country":"DE","teams":["`+fixture.TeamA+`"]}`,
		`{"kind":"contact","id":"`+fixture.DocID(0xc4)+`","email":"d@example.com","country":"DE","teams":["`+fixture.TeamB+`"]}`,
	)...)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageReports))
	limited := fixture.WithToken(acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"manage_reports"}, []string{fixture.TeamA} }).Token)
	unable := fixture.WithToken(acme, acme.Key(t, tenants.Contacts))
	const reports = "/api/custom-reports"
	make := func(body string) string {
		return reports + "/" + c.Want(t, 200, http.MethodPost, reports, body).Field("id").(string)
	}
	list := make(`{"title":"Müller/Söhne","class":"Contacts","exportable":true,"query":{"fields":["email","plan"],"filter":{"country":{"input":"land"}},"sort":["-email"]},` +
		`"input":{"land":{"rule":"locked","value":"DE"}}}`)
	groups := make(`{"title":"By country","class":"Contacts","exportable":true,"query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["-count"]}}`)

	c.Want(t, 200, http.MethodGet, list+"/run?per_page=2", "", `"message":"Custom Report run"`, `"columns":[{"name":"email"`, `"page":1,"pages":2,"count":3,"results":[["d@example.com",null],["c@example.com",null]],"truncated":false`)
	c.Want(t, 200, http.MethodGet, list+"/run?per_page=2&page=2", "", `"page":2,"pages":2,"count":3,"results":[["a@example.com","=gold"]]`)
	c.Want(t, 200, http.MethodGet, list+"/run?per_page=2&page=3", "", `"pages":2,"count":3,"results":[]`)
	c.Want(t, 200, http.MethodGet, list+"/run?per_page=2&page=2&whole=true", "", `"page":1,"pages":1,"count":3,"results":[["d@example.com",null],["c@example.com",null],["a@example.com","=gold"]],"truncated":false,"total":3`)
	c.Want(t, 200, http.MethodGet, groups+"/run?per_page=1&page=2&whole=true", "", `"pages":1,"count":2,"results":[["DE",3],["FR",1]],"truncated":false,"total":2`)
	c.Want(t, 422, http.MethodGet, list+"/run?whole=perhaps", "", `"whole"`)
	c.Want(t, 200, http.MethodGet, list+"/run?params[land]=FR", "", `"count":1,"results":[["b@example.com",null]]`)
	c.Want(t, 200, http.MethodGet, list+"/run?params[land]=", "", `"count":4`)
	c.Want(t, 422, http.MethodGet, list+"/run?params[town]=Bonn", "", "params[town] is not an input")
	c.Want(t, 422, http.MethodGet, list+"/run?page=0", "", `"page"`)
	limited.Want(t, 200, http.MethodGet, list+"/run", "", `"count":2`, "c@example.com", "!d@example.com")
	c.Want(t, 200, http.MethodGet, list+"/run?teams[]="+fixture.TeamB, "", `"count":2`, "d@example.com", "!c@example.com")
	unable.Want(t, 403, http.MethodGet, list+"/run", "", "manage_reports")
	c.Want(t, 200, http.MethodGet, groups+"/run?per_page=1&page=2", "", `"pages":2,"count":2,"results":[["FR",1]]`)
	c.Want(t, 404, http.MethodGet, reports+"/"+fixture.DocID(0xdead)+"/run", "", "Custom Report not found")

	const contacts = `{"title":"x","class":"Contacts","query":`
	c.Want(t, 200, http.MethodPost, reports+"/preview", contacts+`{"fields":["email"],"limit":3,"filter":{"country":"DE"}}}`, `"count":3`, "!pid")
	c.Want(t, 200, http.MethodPost, reports+"/preview", contacts+`{"fields":["email"],"limit":2}}`, `"pages":1,"count":2,`, `"truncated":true,"total":4`)
	c.Want(t, 200, http.MethodPost, reports+"/preview?whole=true", contacts+`{"fields":["email"],"limit":3}}`, `"pages":1,"count":3,`, `"truncated":true,"total":4`)
	c.Want(t, 422, http.MethodPost, reports+"/preview?whole=perhaps", contacts+`{"fields":["email"]}}`, `"whole"`)
	c.Want(t, 422, http.MethodPost, reports+"/preview", contacts+`{"fields":["pin","shoe"]}}`, `\"pin\" is encrypted`, `\"shoe\"`)
	c.Want(t, 422, http.MethodPost, reports+"/preview", `{"title":"x","class":"Records","source":"nowhere"}`, "source must name an existing source")
	limited.Want(t, 200, http.MethodPost, reports+"/preview", contacts+`{"fields":["email"]}}`, "c@example.com", "!d@example.com")
	c.Want(t, 200, http.MethodGet, reports+"?q=x", "", `"count":0`)

	const named = "*=utf-8''M%C3%BCller%2FS%C3%B6hne."
	if got, want := export(t, c, list+"/export?format=csv", "text/csv; charset=utf-8", named+"csv"), "email,plan\nd@example.com,\nc@example.com,\na@example.com,'=gold\n"; strings.ReplaceAll(got, `"`, "") != want {
		t.Errorf("got %s, want the rows of the file", got)
	}
	if got, want := export(t, limited, list+"/export?format=ndjson&params[land]=", "application/x-ndjson", named+"ndjson"), `{"email":"c@example.com","plan":null}`+"\n"; !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 3 {
		t.Errorf(`got %s, want beginning with %q and strings.Count(got, "\n") = 3`, got, want)
	}
	if got, want := export(t, c, groups+"/export?format=csv", "text/csv; charset=utf-8", `="By country.csv"`), "country,count\nDE,3\nFR,1\n"; got != want {
		t.Errorf("got %s, want %v", got, want)
	}
	unable.Want(t, 403, http.MethodGet, list+"/export", "", "manage_reports")
	c.Want(t, 200, http.MethodPut, groups, `{"exportable":false}`)
	c.Want(t, 422, http.MethodGet, groups+"/export", "", "not to be exportable")
	for pid, code := range map[string]int{"shared-and-to-be-exported": 200, "shared-and-not-exported": 422} {
		acme.Import(t, fmt.Sprintf(`{"kind":"custom_report","pid":%q,"title":"X","secure":false,"exportable":%t,"class":"Contacts","query":{}}`, pid, code == 200))
		if a := acme.Page(t, "/api/reports/shared/"+pid+"/export"); a.Code != code {
			t.Errorf("%s: got %d %s, want %v", pid, a.Code, a.Body, code)
		}
	}

	copied := c.Want(t, 200, http.MethodPost, list+"/duplicate", "", "Custom Report duplicated", `"title":"Copy of Müller/Söhne"`, `"exportable":true`, `"input":{"land":`)
	if id, pid := copied.Field("id"), copied.Field("pid"); reports+"/"+id.(string) == list || pid == c.Want(t, 200, http.MethodGet, list, "").Field("pid") || pid == "" {
		t.Errorf(`got %v %v, want pid other than ""`, id, pid)
	}
	c.Want(t, 200, http.MethodPut, list, `{"title":"`+strings.Repeat("ü", 200)+`"}`)
	c.Want(t, 200, http.MethodPost, list+"/duplicate", "", "Copy of ü")
	limited.Want(t, 422, http.MethodPost, list+"/duplicate", "", `"teams"`)
	unable.Want(t, 403, http.MethodPost, list+"/duplicate", "", "manage_reports")
	c.Want(t, 200, http.MethodGet, reports, "", `"count":6`)

	acme.Import(t, `{"kind":"contact_field","key":"shoe","title":"Shoe","type":"Text"}`, `{"kind":"custom_report","id":"`+fixture.DocID(0xb1)+`","title":"Broken","class":"Contacts","exportable":true,"query":{"fields":["shoe"]}}`)
	owner := fixture.WithToken(acme, acme.Key(t, tenants.Contacts))
	owner.Want(t, 200, http.MethodDelete, "/api/contacts/fields/shoe?force=true", "")
	for _, path := range []string{"/run", "/export"} {
		c.Want(t, 422, http.MethodGet, reports+"/"+fixture.DocID(0xb1)+path, "", `there is no field \"shoe\"`)
	}
}

// TestReportExportsExceedTheRunLimit checks that an export of a list without a limit exceeds the limit of runs, also
// when sorted, and that a report's own limit applies.
func TestReportExportsExceedTheRunLimit(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	const many = 10_000 // groups of one report
	var lines []string
	for i := range many {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","email":"c%04d@example.com"}`, i))
	}
	acme.Import(t, append(
		lines, `{"kind":"custom_report","id":"`+fixture.DocID(0xb1)+`","title":"All","class":"Contacts","exportable":true,"query":{"fields":["email"],"sort":["-email"]}}`,
		`{"kind":"custom_report","id":"`+fixture.DocID(0xb2)+`","title":"Some","class":"Contacts","exportable":true,"query":{"fields":["email"],"sort":["-email"],"limit":2001}}`,
		`{"kind":"custom_report","id":"`+fixture.DocID(0xb3)+`","title":"Groups","class":"Contacts","exportable":true,"query":{"group_by":[{"field":"email"}],"measures":[{"op":"count"}]}}`)...)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageReports))
	for id, want := range map[int]int{0xb1: many, 0xb2: 2001} {
		got := strings.Split(c.Page(t, "/api/custom-reports/"+fixture.DocID(id)+"/export?format=csv", gatewaytest.WithKey(c.Token)).Text(), "\n")
		if len(got) != want+2 || got[0] != "email" || got[want+1] != "" {
			t.Fatalf("%[1]x: got %[2]d lines, want %[3]d", id, len(got), want+2)
		}
		for i, line := range got[1 : want+1] {
			if line != fmt.Sprintf("c%04d@example.com", many-1-i) {
				t.Fatalf("%x: line %d is %s, want the contacts in order", id, i, line)
			}
		}
	}
	c.Want(t, 200, http.MethodGet, "/api/custom-reports/"+fixture.DocID(0xb1)+"/run?per_page=1000&page=2", "", `"pages":1,"count":1000,`, `"truncated":true`)
	c.Want(t, 422, http.MethodGet, "/api/custom-reports/"+fixture.DocID(0xb3)+"/export", "", "the report has more than 10000 rows")
}
