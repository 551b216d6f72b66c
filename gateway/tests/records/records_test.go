package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

func newTrees(t *testing.T) fixture.KeyClient {
	t.Helper()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageCustomObjects))
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text"},"height":{"title":"Height","type":"Number"},"pin":{"title":"Pin","type":"Encrypted"}}}`)
	return c
}

func TestContract_Records(t *testing.T) {
	t.Parallel()
	c := newTrees(t)
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"bush","label":"Bush","label_plural":"Bushes"}`)
	const records = fixture.TreePath + "/records"
	made := c.Want(t, 200, http.MethodPost, records, `{"values":{"species":"oak","height":12,"pin":"very-secret"},"external_id":"T1"}`, `"message":"Record created"`, `"values":{"height":12,"species":"oak"}`, "!very-secret", "!pin")
	one := records + "/" + made.Field("id").(string)
	time.Sleep(2 * time.Millisecond) // the order below is by the time, in milliseconds
	c.Want(t, 200, http.MethodPost, records, `{"values":{"species":"elm","height":7}}`)
	c.Want(t, 422, http.MethodPost, records, `{"values":{"species":7,"height":"tall","leaves":1,"pin":2},"owner":1}`, `"owner"`)
	c.Want(t, 422, http.MethodPost, records, `{"values":{"species":7,"height":"tall","leaves":1,"pin":2}}`, `"values.species"`, `"values.height"`, `"values.leaves"`, `"values.pin"`)
	c.Want(t, 409, http.MethodPost, records, `{"values":{},"external_id":"T1"}`, "external_id is already in use")
	c.Want(t, 404, http.MethodGet, fixture.ObjectsPath+"/shrub/records", "", "Custom Object not found")
	c.Want(t, 404, http.MethodGet, strings.Replace(one, "tree", "bush", 1), "", "Record not found")
	c.Want(t, 200, http.MethodGet, records+"?filters[height][gt]=10", "", `"count":1`, "oak")
	c.Want(t, 422, http.MethodGet, records+"?filters[pin]=very-secret", "", "pin")
	c.Want(t, 200, http.MethodPut, one, `{"values":{"height":13}}`, `"values":{"height":13,"species":"oak"}`, `"message":"Record updated"`)
	c.Want(t, 200, http.MethodDelete, one, "", "Record deleted")
	c.Want(t, 200, http.MethodGet, records, "", `"count":1`, "!oak")
	c.Want(t, 200, http.MethodGet, records+"?deleted=true", "", `"count":1`, "oak")
	c.Want(t, 200, http.MethodPost, one+"/restore", "", "Record restored")
	c.Want(t, 200, http.MethodGet, records+"?sort=-created_at&after=&per_page=1", "", "elm", "!oak")
	next := c.Want(t, 200, http.MethodGet, records+"?sort=-created_at&after=&per_page=1", "").Field("next").(string)
	c.Want(t, 200, http.MethodGet, records+"?sort=-created_at&per_page=1&after="+next, "", "oak", `"next":""`)
	c.Want(t, 200, http.MethodDelete, one+"?purge=true", "")
	c.Want(t, 404, http.MethodGet, one+"?deleted=true", "")
	other := fixture.WithToken(c.Org, c.Key(t, tenants.ManageForms))
	other.Want(t, 403, http.MethodGet, records, "", "manage_custom_objects")
}

// TestContract_ChangesOfObjects checks that a breaking change is previewed, refused, and made with force.
func TestContract_ChangesOfObjects(t *testing.T) {
	t.Parallel()
	c := newTrees(t)
	const records = fixture.TreePath + "/records"
	c.Want(t, 200, http.MethodPost, records, `{"values":{"species":"oak","height":12}}`)
	c.Want(t, 200, http.MethodPost, records, `{"values":{"species":"17"}}`)
	const report, hidden = "0000000000000000000000a1", "0000000000000000000000a2"
	c.Import(t, fixture.TeamLines()...)
	c.Import(t, `{"kind":"custom_report","id":"`+report+`","title":"Trees","class":"Records","source":"tree","query":{"fields":["species"]}}`,
		`{"kind":"custom_report","id":"`+hidden+`","title":"Theirs","class":"Records","source":"tree","query":{"fields":["species"]},"teams":["`+fixture.TeamB+`"]}`)
	limited := fixture.WithToken(c.Org, c.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{"manage_custom_objects"}, []string{fixture.TeamA}
	}).Token)

	schema := func(fields string) string { return `{"schema":{` + fields + `}}` }
	const species, height, pin = `"species":{"title":"Species","type":"Text"}`, `"height":{"title":"Height","type":"Number"}`, `"pin":{"title":"Pin","type":"Encrypted"}`
	without := schema(height + "," + pin)
	c.Want(t, 200, http.MethodPut, fixture.TreePath+"?preview=true", without, "Custom Object preview", `"records":2`, `"fields":{"species":2}`, report, hidden, `"other_reports":0`)
	limited.Want(t, 403, http.MethodPut, fixture.TreePath+"?preview=true", without, fixture.NotTheirs, "!"+hidden)
	c.Want(t, 422, http.MethodPut, fixture.TreePath, without, "2 records would lack it", "2 custom reports", report, hidden)
	c.Want(t, 200, http.MethodGet, fixture.TreePath, "", `"species"`)
	c.Want(t, 422, http.MethodPut, fixture.TreePath, schema(`"species":{"title":"Species","type":"Number"},`+height+","+pin), "schema.species: 2 records")
	c.Want(t, 422, http.MethodPut, fixture.TreePath, schema(species+`,"height":{"title":"Height","type":"Number","required":true},`+pin), "schema.height: 1 records")
	c.Want(t, 200, http.MethodPut, fixture.TreePath, schema(species+`,"age":{"title":"Age","type":"Number"},`+height+","+pin), "Custom Object updated", `"age"`)
	c.Want(t, 422, http.MethodPut, fixture.TreePath, `{"name":"bush"}`, "is not a field that can be set here")
	c.Want(t, 422, http.MethodPut, fixture.TreePath, schema(`"x":{"title":"X","type":"Text","locked":true,"id":1}`), "schema.x.locked", "schema.x.id")
	c.Want(t, 422, http.MethodPut, fixture.TreePath+"?force=maybe", schema(species), "force must be true or false")

	// Values are never left in clear text or sealed for nobody, even with force.
	c.Want(t, 422, http.MethodPut, fixture.TreePath+"?force=true", schema(`"species":{"title":"Species","type":"Encrypted"},`+height+","+pin), "schema.species: 2 records", "cannot become or stop being Encrypted")
	c.Want(t, 200, http.MethodPut, fixture.TreePath+"?force=true", without)
	c.Want(t, 422, http.MethodPut, fixture.TreePath+"?force=true", schema(`"species":{"title":"Species","type":"Encrypted"},`+height+","+pin), "schema.species: 2 records")
	c.Want(t, 200, http.MethodPut, fixture.TreePath, schema(species+","+height), `"species"`) // nobody has a pin
	c.Want(t, 200, http.MethodPut, fixture.TreePath, schema(species+","+height+","+pin))
	id := c.Want(t, 200, http.MethodPost, records, `{"values":{"pin":"1234"}}`).Field("id").(string)
	for _, fields := range []string{species + "," + height, species + "," + height + `,"pin":{"title":"Pin","type":"Text"}`} {
		c.Want(t, 422, http.MethodPut, fixture.TreePath+"?force=true", schema(fields), "schema.pin: 1 records")
	}
	c.Want(t, 200, http.MethodPut, records+"/"+id, `{"values":{"pin":null}}`)
	c.Want(t, 200, http.MethodPut, fixture.TreePath, schema(species+","+height))

	// Records are deleted and restored with their object.
	c.Want(t, 422, http.MethodDelete, fixture.TreePath, "", "3 records", "2 custom reports")
	c.Want(t, 200, http.MethodDelete, fixture.TreePath+"?preview=true", "", `"records":3`)
	c.Want(t, 200, http.MethodDelete, fixture.TreePath+"?force=true", "")
	c.Want(t, 404, http.MethodGet, records, "", "Custom Object not found")
	c.Want(t, 404, http.MethodPut, fixture.TreePath, `{"label":"x"}`)
	c.Want(t, 200, http.MethodPost, fixture.TreePath+"/restore", "", "Custom Object restored")
	c.Want(t, 200, http.MethodGet, records, "", `"count":3`)
	c.Want(t, 422, http.MethodDelete, fixture.TreePath+"?purge=true", "", "3 records")
	c.Want(t, 200, http.MethodDelete, fixture.TreePath+"?purge=true&force=true", "")
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees"}`)
	c.Want(t, 200, http.MethodGet, records, "", `"count":0`)
}

func TestContract_FormsAndSubmissions(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageForms, tenants.ViewFormSubmissions))
	const forms = "/api/form/collections"
	made := c.Want(t, 200, http.MethodPost, forms, `{"name":"visit","label":"Visit","label_plural":"Visits","schema":{"why":{"title":"Why","type":"LongText"},"code":{"title":"Code","type":"Encrypted"}},"email_alerts":{"enabled":true,"recipients":["a@example.com"]}}`,
		`"message":"Form Collection created"`, `"form_name":{"title":"Form Name","type":"Text","required":true,"locked":true}`, `"org_id":1`, `"recipients":["a@example.com"]`)
	form := forms + "/" + made.Field("id").(string)
	c.Want(t, 422, http.MethodPost, forms, `{"name":"V","label":" ","schema":{"form_name":{"title":"Mine","type":"Text"},"x":{"title":"X","type":"Text","locked":true}},"email_alerts":{"recipients":["nobody"]},"standalone":true,"user_id":7}`, `"standalone"`, `"user_id"`)
	c.Want(t, 422, http.MethodPost, forms, `{"name":"V","label":" ","email_alerts":{"recipients":["nobody"]}}`, `"name"`, `"label"`, `"label_plural"`, "email_alerts.recipients[0]")
	c.Want(t, 422, http.MethodPost, forms, `{"name":"v","label":"v","label_plural":"vs","schema":{"form_name":{"title":"Mine","type":"Text"},"x":{"title":"X","type":"Text","locked":true}}}`, "schema.form_name is locked", "schema.x.locked")
	c.Want(t, 422, http.MethodPost, forms, `{"name":"v","label":"v","label_plural":"vs","schema":null,"email_alerts":null}`, "schema must be an object", "email_alerts must be an object")
	c.Want(t, 409, http.MethodPost, forms, `{"name":"visit","label":"v","label_plural":"vs"}`)
	c.Want(t, 200, http.MethodGet, forms+"?q=isi", "", `"count":1`, "Form Collections found")
	c.Want(t, 200, http.MethodGet, form, "", "Form Collection found")

	c.Want(t, 403, http.MethodPost, form+"/submissions", `{"values":{"form_name":"x"}}`, "create_form_submissions")
	page := acme.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins = string(tenants.Browser), []string{"create_form_submissions"}, []string{fixture.PageOrigin}
	}).Token
	submit := func(origin, body string, code int) *gatewaytest.Answer {
		t.Helper()
		a := acme.Do(t, http.MethodPost, form+"/submissions", gatewaytest.WithKey(page), gatewaytest.Header("Origin", origin), fixture.JSONText(body))
		if a.Code != code {
			t.Errorf("%s from %s: got %d %s, want %d", body, origin, a.Code, a.Body, code)
		}
		return a
	}
	id := fmt.Sprint(submit(fixture.PageOrigin, `{"values":{"form_name":"Anna","why":"tea","code":"0815"}}`, 200).Field("id"))
	submit("https://evil.example.com", `{"values":{"form_name":"x"}}`, 403)
	if a := submit(fixture.PageOrigin, `{"values":{"why":1}}`, 422); !strings.Contains(a.Text(), "values.form_name is required") || !strings.Contains(a.Text(), "values.why") {
		t.Errorf(`got %s, want containing "values.form_name is required" and containing "values.why"`, a.Body)
	}
	if a := acme.Do(t, http.MethodGet, form+"/submissions", gatewaytest.WithKey(page), gatewaytest.Header("Origin", fixture.PageOrigin)); a.Code != 403 {
		t.Errorf("a page reads what others filled in: got %d %s, want 403", a.Code, a.Body)
	}
	one := form + "/submissions/" + id
	c.Want(t, 200, http.MethodGet, one, "", `"form_name":"Anna"`, "!0815", "!code")
	c.Want(t, 200, http.MethodGet, form+"/submissions?filters[why][contains]=te", "", `"count":1`)
	c.Want(t, 405, http.MethodPut, one, `{"values":{}}`)
	// A value stored in clear text before its field became Encrypted is hidden.
	c.Want(t, 422, http.MethodPut, form, `{"schema":{"why":{"title":"Why","type":"Encrypted"}}}`, "schema.why.type")
	c.Want(t, 200, http.MethodDelete, one+"?purge=true", "")
	c.Want(t, 200, http.MethodPut, form, `{"schema":{"why":{"title":"Why","type":"Encrypted"}}}`)
	acme.Import(t, `{"kind":"submission","id":"`+id+`","form":"`+strings.TrimPrefix(form, forms+"/")+`","as_is":true,"values":{"form_name":"Anna","why":"tea"}}`)
	c.Want(t, 200, http.MethodGet, one, "", "Anna", "!tea")
	c.Want(t, 200, http.MethodGet, form+"/submissions", "", "Anna", "!tea")
	c.Want(t, 200, http.MethodDelete, one, "", "Submission deleted")
	c.Want(t, 200, http.MethodPost, one+"/restore", "", "Submission restored")
	viewer := fixture.WithToken(acme, acme.Key(t, tenants.ViewFormSubmissions))
	viewer.Want(t, 200, http.MethodGet, form+"/submissions", "", `"count":1`)
	viewer.Want(t, 403, http.MethodDelete, one, "", "manage_forms")
	viewer.Want(t, 403, http.MethodPut, form, `{"label":"Other"}`, "manage_forms")

	c.Want(t, 200, http.MethodDelete, form, "", "Form Collection deleted")
	c.Want(t, 404, http.MethodGet, one, "", "Form Collection not found")
	submit(fixture.PageOrigin, `{"values":{"form_name":"x"}}`, 404)
	c.Want(t, 200, http.MethodPost, form+"/restore", "")
	c.Want(t, 200, http.MethodGet, one, "")
	c.Want(t, 200, http.MethodDelete, form+"?purge=true", "")
	c.Want(t, 404, http.MethodGet, form+"?deleted=true", "")
	acme.Import(t, `{"kind":"form_collection","id":"0000000000000000000000f2","name":"alone","label":"Alone","label_plural":"Alones","standalone":true,"schema":{}}`)
	c.Want(t, 422, http.MethodDelete, forms+"/0000000000000000000000f2", "", "Standalone")
}

// TestContract_RecordsAreFoundByWords checks that a search finds words in the defined text fields only, and not in
// encrypted ones.
func TestContract_RecordsAreFoundByWords(t *testing.T) {
	t.Parallel()
	c := newTrees(t)
	const records = fixture.TreePath + "/records"
	c.Want(t, 200, http.MethodPost, records, `{"values":{"species":"red oak","height":12,"pin":"red-secret"},"external_id":"T1"}`)
	c.Want(t, 200, http.MethodPost, records, `{"values":{"species":"beech, Straße nach Σας","height":71},"external_id":"redwood"}`)
	for words, want := range map[string]int{
		"oak": 1, "red": 2, "red%20o": 2, "red%20oa": 1, "oak%20red": 1, "oak%20beech": 0, "12": 0, "secret": 0, "T1": 1, "t1": 1, "RED%20OAK": 1, "stra%E1%BA%9Ee": 1, "strasse": 0, "%CE%A3%CE%91%CE%A3": 1, "": 2, "%25": 0,
		strings.Repeat("red%20", 30) + "oak": 0, "red%20oak%20red%20oak%20red%20oak": 1,
	} {
		c.Want(t, 200, http.MethodGet, records+"?q="+words, "", fmt.Sprintf(`"count":%d`, want))
	}
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"bare","label":"Bare","label_plural":"Bares"}`)
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath+"/bare/records", `{"values":{}}`)
	c.Want(t, 200, http.MethodGet, fixture.ObjectsPath+"/bare/records?q=x", "", `"count":0`)
	// If there are very many fields, those that every record has are searched.
	fields := []string{`"zzz":{"title":"Z","type":"Text","required":true}`}
	for i := range 60 {
		fields = append(fields, fmt.Sprintf(`"f%02d":{"title":"F","type":"Text"}`, i))
	}
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"wide","label":"Wide","label_plural":"Wides","schema":{`+strings.Join(fields, ",")+`}}`)
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath+"/wide/records", `{"values":{"zzz":"needle","f00":"thread","f59":"hay"}}`)
	for words, want := range map[string]int{"needle": 1, "thread": 1, "hay": 0} {
		c.Want(t, 200, http.MethodGet, fixture.ObjectsPath+"/wide/records?q="+words, "", fmt.Sprintf(`"count":%d`, want))
	}
	admin := fixture.WithToken(c.Org, c.Key(t, tenants.ManageForms, tenants.ViewFormSubmissions, tenants.CreateFormSubmissions, tenants.ViewUsers))
	form := admin.Want(t, 200, http.MethodPost, "/api/form/collections", `{"name":"visit","label":"Visit","label_plural":"Visits","schema":{"why":{"title":"Why","type":"LongText"}}}`).Field("id").(string)
	admin.Want(t, 200, http.MethodPost, "/api/form/collections/"+form+"/submissions", `{"values":{"form_name":"x","why":"to see\nthe oaks"}}`)
	admin.Want(t, 200, http.MethodGet, "/api/form/collections/"+form+"/submissions?q=oaks", "", `"count":1`)
	admin.Want(t, 200, http.MethodGet, "/api/form/collections/"+form+"/submissions?q=elms", "", `"count":0`)
	admin.Want(t, 200, http.MethodGet, "/api/roles?q=nothing", "", `"count":0`)
}
