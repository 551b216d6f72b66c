package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// asking asks an organization with one key.
type asking struct {
	*gatewaytest.Org
	key string
}

// do wants the code and each of the texts in the answer, and returns it. A text after "!" must not be there.
func (c asking) do(t *testing.T, code int, method, path, body string, wanted ...string) *gatewaytest.Answer {
	t.Helper()
	with := []gatewaytest.Request{gatewaytest.WithKey(c.key)}
	if body != "" {
		with = append(with, jsonText(body))
	}
	a := c.Do(t, method, path, with...)
	if a.Code != code {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.Code, a.Body, code)
	}
	for _, text := range wanted {
		unwanted, not := strings.CutPrefix(text, "!")
		if strings.Contains(a.Text(), unwanted) == not {
			t.Errorf("%s %s %s: %s, want %s", method, path, body, a.Body, text)
		}
	}
	return a
}

const (
	get, posted, change, del = http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete
	treePath                 = objectsPath + "/tree"
)

func newTrees(t *testing.T) asking {
	t.Helper()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	c := asking{acme, acme.Key(t, tenants.ManageCustomObjects)}
	c.do(t, 200, posted, objectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text"},"height":{"title":"Height","type":"Number"},"pin":{"title":"Pin","type":"Encrypted"}}}`)
	return c
}

func TestContract_Records(t *testing.T) {
	t.Parallel()
	c := newTrees(t)
	c.do(t, 200, posted, objectsPath, `{"name":"bush","label":"Bush","label_plural":"Bushes"}`)
	const records = treePath + "/records"
	made := c.do(t, 200, posted, records, `{"values":{"species":"oak","height":12,"pin":"very-secret"},"external_id":"T1"}`, `"message":"Record created"`, `"values":{"height":12,"species":"oak"}`, "!very-secret", "!pin")
	one := records + "/" + made.Field("id").(string)
	time.Sleep(2 * time.Millisecond) // the order below is by the time, in milliseconds
	c.do(t, 200, posted, records, `{"values":{"species":"elm","height":7}}`)
	c.do(t, 422, posted, records, `{"values":{"species":7,"height":"tall","leaves":1,"pin":2},"owner":1}`, `"owner"`)
	c.do(t, 422, posted, records, `{"values":{"species":7,"height":"tall","leaves":1,"pin":2}}`, `"values.species"`, `"values.height"`, `"values.leaves"`, `"values.pin"`)
	c.do(t, 409, posted, records, `{"values":{},"external_id":"T1"}`, "external_id is already in use")
	c.do(t, 404, get, objectsPath+"/shrub/records", "", "Custom Object not found")
	c.do(t, 404, get, strings.Replace(one, "tree", "bush", 1), "", "Record not found")
	c.do(t, 200, get, records+"?filters[height][gt]=10", "", `"count":1`, "oak")
	c.do(t, 422, get, records+"?filters[pin]=very-secret", "", "pin")
	c.do(t, 200, change, one, `{"values":{"height":13}}`, `"values":{"height":13,"species":"oak"}`, `"message":"Record updated"`)
	c.do(t, 200, del, one, "", "Record deleted")
	c.do(t, 200, get, records, "", `"count":1`, "!oak")
	c.do(t, 200, get, records+"?deleted=true", "", `"count":1`, "oak")
	c.do(t, 200, posted, one+"/restore", "", "Record restored")
	c.do(t, 200, get, records+"?sort=-created_at&after=&per_page=1", "", "elm", "!oak")
	next := c.do(t, 200, get, records+"?sort=-created_at&after=&per_page=1", "").Field("next").(string)
	c.do(t, 200, get, records+"?sort=-created_at&per_page=1&after="+next, "", "oak", `"next":""`)
	c.do(t, 200, del, one+"?purge=true", "")
	c.do(t, 404, get, one+"?deleted=true", "")
	other := asking{c.Org, c.Key(t, tenants.ManageForms)}
	other.do(t, 403, get, records, "", "manage_custom_objects")
}

// TestContract_ChangesOfObjects: what a change would break is told before, refused, and forced.
func TestContract_ChangesOfObjects(t *testing.T) {
	t.Parallel()
	c := newTrees(t)
	const records = treePath + "/records"
	c.do(t, 200, posted, records, `{"values":{"species":"oak","height":12}}`)
	c.do(t, 200, posted, records, `{"values":{"species":"17"}}`)
	const report, hidden = "0000000000000000000000a1", "0000000000000000000000a2"
	c.Import(t, bundleTeams()...)
	c.Import(t, `{"kind":"custom_report","id":"`+report+`","title":"Trees","class":"Records","source":"tree","query":{"fields":["species"]}}`,
		`{"kind":"custom_report","id":"`+hidden+`","title":"Theirs","class":"Records","source":"tree","query":{"fields":["species"]},"teams":["`+teamB+`"]}`)
	limited := asking{c.Org, c.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"manage_custom_objects"}, []string{teamA} }).Token}

	schema := func(fields string) string { return `{"schema":{` + fields + `}}` }
	const species, height, pin = `"species":{"title":"Species","type":"Text"}`, `"height":{"title":"Height","type":"Number"}`, `"pin":{"title":"Pin","type":"Encrypted"}`
	without := schema(height + "," + pin)
	c.do(t, 200, change, treePath+"?preview=true", without, "Custom Object preview", `"records":2`, `"fields":{"species":2}`, report, hidden, `"other_reports":0`)
	limited.do(t, 403, change, treePath+"?preview=true", without, notTheirs, "!"+hidden)
	c.do(t, 422, change, treePath, without, "2 records would lack it", "2 custom reports", report, hidden)
	c.do(t, 200, get, treePath, "", `"species"`)
	c.do(t, 422, change, treePath, schema(`"species":{"title":"Species","type":"Number"},`+height+","+pin), "schema.species: 2 records")
	c.do(t, 422, change, treePath, schema(species+`,"height":{"title":"Height","type":"Number","required":true},`+pin), "schema.height: 1 records")
	c.do(t, 200, change, treePath, schema(species+`,"age":{"title":"Age","type":"Number"},`+height+","+pin), "Custom Object updated", `"age"`)
	c.do(t, 422, change, treePath, `{"name":"bush"}`, "is no field that can be set here")
	c.do(t, 422, change, treePath, schema(`"x":{"title":"X","type":"Text","locked":true,"id":1}`), "schema.x.locked", "schema.x.id")
	c.do(t, 422, change, treePath+"?force=maybe", schema(species), "force must be true or false")

	// Values are never left in clear, nor sealed for ever, whatever is forced.
	c.do(t, 422, change, treePath+"?force=true", schema(`"species":{"title":"Species","type":"Encrypted"},`+height+","+pin), "schema.species: 2 records", "left in clear")
	c.do(t, 200, change, treePath+"?force=true", without)
	c.do(t, 422, change, treePath+"?force=true", schema(`"species":{"title":"Species","type":"Encrypted"},`+height+","+pin), "schema.species: 2 records")
	c.do(t, 200, change, treePath, schema(species+","+height), `"species"`) // nobody has a pin
	c.do(t, 200, change, treePath, schema(species+","+height+","+pin))
	id := c.do(t, 200, posted, records, `{"values":{"pin":"1234"}}`).Field("id").(string)
	for _, fields := range []string{species + "," + height, species + "," + height + `,"pin":{"title":"Pin","type":"Text"}`} {
		c.do(t, 422, change, treePath+"?force=true", schema(fields), "schema.pin: 1 records")
	}
	c.do(t, 200, change, records+"/"+id, `{"values":{"pin":null}}`)
	c.do(t, 200, change, treePath, schema(species+","+height))

	// Records go and come with their object.
	c.do(t, 422, del, treePath, "", "3 records", "2 custom reports")
	c.do(t, 200, del, treePath+"?preview=true", "", `"records":3`)
	c.do(t, 200, del, treePath+"?force=true", "")
	c.do(t, 404, get, records, "", "Custom Object not found")
	c.do(t, 404, change, treePath, `{"label":"x"}`)
	c.do(t, 200, posted, treePath+"/restore", "", "Custom Object restored")
	c.do(t, 200, get, records, "", `"count":3`)
	c.do(t, 422, del, treePath+"?purge=true", "", "3 records")
	c.do(t, 200, del, treePath+"?purge=true&force=true", "")
	c.do(t, 200, posted, objectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees"}`)
	c.do(t, 200, get, records, "", `"count":0`)
}

func TestContract_FormsAndSubmissions(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	c := asking{acme, acme.Key(t, tenants.ManageForms, tenants.ViewFormSubmissions)}
	const forms = "/api/form/collections"
	made := c.do(t, 200, posted, forms, `{"name":"visit","label":"Visit","label_plural":"Visits","schema":{"why":{"title":"Why","type":"LongText"},"code":{"title":"Code","type":"Encrypted"}},"email_alerts":{"enabled":true,"recipients":["a@example.com"]}}`,
		`"message":"Form Collection created"`, `"form_name":{"title":"Form Name","type":"Text","required":true,"locked":true}`, `"org_id":1`, `"recipients":["a@example.com"]`)
	form := forms + "/" + made.Field("id").(string)
	c.do(t, 422, posted, forms, `{"name":"V","label":" ","schema":{"form_name":{"title":"Mine","type":"Text"},"x":{"title":"X","type":"Text","locked":true}},"email_alerts":{"recipients":["nobody"]},"standalone":true,"user_id":7}`, `"standalone"`, `"user_id"`)
	c.do(t, 422, posted, forms, `{"name":"V","label":" ","email_alerts":{"recipients":["nobody"]}}`, `"name"`, `"label"`, `"label_plural"`, "email_alerts.recipients[0]")
	c.do(t, 422, posted, forms, `{"name":"v","label":"v","label_plural":"vs","schema":{"form_name":{"title":"Mine","type":"Text"},"x":{"title":"X","type":"Text","locked":true}}}`, "schema.form_name is locked", "schema.x.locked")
	c.do(t, 422, posted, forms, `{"name":"v","label":"v","label_plural":"vs","schema":null,"email_alerts":null}`, "schema must be an object", "email_alerts must be an object")
	c.do(t, 409, posted, forms, `{"name":"visit","label":"v","label_plural":"vs"}`)
	c.do(t, 200, get, forms+"?q=isi", "", `"count":1`, "Form Collections found")
	c.do(t, 200, get, form, "", "Form Collection found")

	c.do(t, 403, posted, form+"/submissions", `{"values":{"form_name":"x"}}`, "create_form_submissions")
	page := acme.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins = string(tenants.Browser), []string{"create_form_submissions"}, []string{pageOrigin}
	}).Token
	submit := func(origin, body string, code int) *gatewaytest.Answer {
		t.Helper()
		a := acme.Do(t, posted, form+"/submissions", gatewaytest.WithKey(page), gatewaytest.Header("Origin", origin), jsonText(body))
		if a.Code != code {
			t.Errorf("%s from %s: %d %s", body, origin, a.Code, a.Body)
		}
		return a
	}
	id := fmt.Sprint(submit(pageOrigin, `{"values":{"form_name":"Anna","why":"tea","code":"0815"}}`, 200).Field("id"))
	submit("https://evil.example.com", `{"values":{"form_name":"x"}}`, 403)
	if a := submit(pageOrigin, `{"values":{"why":1}}`, 422); !strings.Contains(a.Text(), "values.form_name is required") || !strings.Contains(a.Text(), "values.why") {
		t.Errorf("%s", a.Body)
	}
	if a := acme.Do(t, get, form+"/submissions", gatewaytest.WithKey(page), gatewaytest.Header("Origin", pageOrigin)); a.Code != 403 {
		t.Errorf("a page reads what others filled in: %d %s", a.Code, a.Body)
	}
	one := form + "/submissions/" + id
	c.do(t, 200, get, one, "", `"form_name":"Anna"`, "!0815", "!code")
	c.do(t, 200, get, form+"/submissions?filters[why][contains]=te", "", `"count":1`)
	c.do(t, 405, change, one, `{"values":{}}`)
	// What was stored in clear before its field became Encrypted is shown to nobody.
	c.do(t, 422, change, form, `{"schema":{"why":{"title":"Why","type":"Encrypted"}}}`, "schema.why.type")
	c.do(t, 200, del, one+"?purge=true", "")
	c.do(t, 200, change, form, `{"schema":{"why":{"title":"Why","type":"Encrypted"}}}`)
	acme.Import(t, `{"kind":"submission","id":"`+id+`","form":"`+strings.TrimPrefix(form, forms+"/")+`","as_is":true,"values":{"form_name":"Anna","why":"tea"}}`)
	c.do(t, 200, get, one, "", "Anna", "!tea")
	c.do(t, 200, get, form+"/submissions", "", "Anna", "!tea")
	c.do(t, 200, del, one, "", "Submission deleted")
	c.do(t, 200, posted, one+"/restore", "", "Submission restored")
	viewer := asking{acme, acme.Key(t, tenants.ViewFormSubmissions)}
	viewer.do(t, 200, get, form+"/submissions", "", `"count":1`)
	viewer.do(t, 403, del, one, "", "manage_forms")
	viewer.do(t, 403, change, form, `{"label":"Other"}`, "manage_forms")

	c.do(t, 200, del, form, "", "Form Collection deleted")
	c.do(t, 404, get, one, "", "Form Collection not found")
	submit(pageOrigin, `{"values":{"form_name":"x"}}`, 404)
	c.do(t, 200, posted, form+"/restore", "")
	c.do(t, 200, get, one, "")
	c.do(t, 200, del, form+"?purge=true", "")
	c.do(t, 404, get, form+"?deleted=true", "")
	acme.Import(t, `{"kind":"form_collection","id":"0000000000000000000000f2","name":"alone","label":"Alone","label_plural":"Alones","standalone":true,"schema":{}}`)
	c.do(t, 422, del, forms+"/0000000000000000000000f2", "", "Standalone")
}

// TestContract_RecordsAreFoundByWords in the text fields of their definition, no other, and not by what is encrypted.
func TestContract_RecordsAreFoundByWords(t *testing.T) {
	t.Parallel()
	c := newTrees(t)
	const records = treePath + "/records"
	c.do(t, 200, posted, records, `{"values":{"species":"red oak","height":12,"pin":"red-secret"},"external_id":"T1"}`)
	c.do(t, 200, posted, records, `{"values":{"species":"beech, Straße nach Σας","height":71},"external_id":"redwood"}`)
	for words, want := range map[string]int{
		"oak": 1, "red": 2, "red%20o": 2, "red%20oa": 1, "oak%20red": 1, "oak%20beech": 0, "12": 0, "secret": 0, "T1": 1, "t1": 1, "RED%20OAK": 1, "stra%E1%BA%9Ee": 1, "strasse": 0, "%CE%A3%CE%91%CE%A3": 1, "": 2, "%25": 0,
		strings.Repeat("red%20", 30) + "oak": 0, "red%20oak%20red%20oak%20red%20oak": 1,
	} {
		c.do(t, 200, get, records+"?q="+words, "", fmt.Sprintf(`"count":%d`, want))
	}
	c.do(t, 200, posted, objectsPath, `{"name":"bare","label":"Bare","label_plural":"Bares"}`)
	c.do(t, 200, posted, objectsPath+"/bare/records", `{"values":{}}`)
	c.do(t, 200, get, objectsPath+"/bare/records?q=x", "", `"count":0`)
	// Of very many fields those are looked into that every record has.
	fields := []string{`"zzz":{"title":"Z","type":"Text","required":true}`}
	for i := range 60 {
		fields = append(fields, fmt.Sprintf(`"f%02d":{"title":"F","type":"Text"}`, i))
	}
	c.do(t, 200, posted, objectsPath, `{"name":"wide","label":"Wide","label_plural":"Wides","schema":{`+strings.Join(fields, ",")+`}}`)
	c.do(t, 200, posted, objectsPath+"/wide/records", `{"values":{"zzz":"needle","f00":"thread","f59":"hay"}}`)
	for words, want := range map[string]int{"needle": 1, "thread": 1, "hay": 0} {
		c.do(t, 200, get, objectsPath+"/wide/records?q="+words, "", fmt.Sprintf(`"count":%d`, want))
	}
	admin := asking{c.Org, c.Key(t, tenants.ManageForms, tenants.ViewFormSubmissions, tenants.CreateFormSubmissions, tenants.ViewUsers)}
	form := admin.do(t, 200, posted, "/api/form/collections", `{"name":"visit","label":"Visit","label_plural":"Visits","schema":{"why":{"title":"Why","type":"LongText"}}}`).Field("id").(string)
	admin.do(t, 200, posted, "/api/form/collections/"+form+"/submissions", `{"values":{"form_name":"x","why":"to see\nthe oaks"}}`)
	admin.do(t, 200, get, "/api/form/collections/"+form+"/submissions?q=oaks", "", `"count":1`)
	admin.do(t, 200, get, "/api/form/collections/"+form+"/submissions?q=elms", "", `"count":0`)
	admin.do(t, 200, get, "/api/roles?q=nothing", "", `"count":0`)
}
