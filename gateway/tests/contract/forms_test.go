package contract

import (
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const (
	missingForm = `{"status":"failed","message":"Form Collection not found","data":[]}`
	formName    = `"form_name":{"title":"Form Name","type":"Text","required":true,"locked":true}`
)

func put(t *testing.T, o *gatewaytest.Org, key, path, body string, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	return o.Do(t, http.MethodPut, path, append([]gatewaytest.Request{gatewaytest.WithKey(key), fixture.JSONText(body)}, more...)...)
}

// formWorld has form 1, a second form and a standalone form.
func formWorld(t *testing.T) (*gatewaytest.Org, string) {
	t.Helper()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t,
		`{"kind":"form_collection","id":"`+fixture.DocID(1)+`","name":"apply","label":"Application","label_plural":"Applications",`+
			`"schema":{"age":{"title":"Age","type":"Number"}},"email_alerts":{"enabled":true,"recipients":["a@example.com"],"subject":"New"},`+
			`"external_id":"x1","external_created_at":"2020-01-01T00:00:00.000Z","external_updated_at":"2020-01-02T00:00:00.000Z"}`,
		`{"kind":"form_collection","id":"`+fixture.DocID(2)+`","name":"visit","label":"Visit","label_plural":"Visits"}`,
		`{"kind":"form_collection","id":"`+fixture.DocID(3)+`","name":"alone","label":"Alone","label_plural":"Alones","standalone":true}`)
	return acme, acme.Key(t, tenants.ManageForms)
}

var formTimes = regexp.MustCompile(`"(created_at|updated_at)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"`)

func TestContract_UpdateForm(t *testing.T) {
	t.Parallel()
	acme, key := formWorld(t)
	org := strconv.FormatInt(acme.Tenant(t).Org.OrgID, 10)
	parts := map[string]string{
		"name": `"apply"`, "label": `"Application"`, "label_plural": `"Applications"`,
		"schema":       `{"age":{"title":"Age","type":"Number"},` + formName + `}`,
		"email_alerts": `{"enabled":true,"recipients":["a@example.com"],"subject":"New"}`,
	}
	check := func(t *testing.T, a *gatewaytest.Answer) {
		t.Helper()
		got := formTimes.ReplaceAllString(a.Text(), `"$1":"T"`)
		want := fixture.EnvelopeOK("Form Collection updated", `{"id":"`+fixture.DocID(1)+`","org_id":`+org+`,"user_id":0,"name":`+parts["name"]+`,"label":`+parts["label"]+
			`,"label_plural":`+parts["label_plural"]+`,"schema":`+parts["schema"]+`,"email_alerts":`+parts["email_alerts"]+
			`,"external_id":"x1","external_created_at":"2020-01-01T00:00:00.000Z","external_updated_at":"2020-01-02T00:00:00.000Z","created_at":"T","updated_at":"T"}`)
		if a.Code != http.StatusOK || got != want {
			t.Errorf("answered %d %s\nwant %s", a.Code, got, want)
		}
	}
	check(t, put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{}`))
	for _, change := range []struct{ field, sent, answered string }{
		{"name", `"enrol"`, `"enrol"`},
		{"label", `"Enrolment"`, `"Enrolment"`},
		{"label_plural", `"Enrolments"`, `"Enrolments"`},
		{"schema", `{"why":{"title":"Why","type":"LongText"}}`, `{` + formName + `,"why":{"title":"Why","type":"LongText"}}`},
		{"email_alerts", `{"enabled":false,"recipients":[],"subject":"Old"}`, `{"enabled":false,"recipients":[],"subject":"Old"}`},
		{"schema", `{}`, `{` + formName + `}`},
	} {
		parts[change.field] = change.answered
		check(t, put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{"`+change.field+`":`+change.sent+`}`))
		check(t, put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{}`)) // it was stored
	}
	// A form can keep its own names.
	check(t, put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{"name":"enrol","label":"Enrolment","label_plural":"Enrolments"}`))

	bare := put(t, acme, key, fixture.FormsPath+fixture.DocID(2), `{}`)
	fixture.WantMembers(t, bare.DataJSON(), "id", "org_id", "user_id", "name", "label", "label_plural", "schema", "email_alerts",
		"external_id", "external_created_at", "external_updated_at", "created_at", "updated_at")
	for _, name := range []string{"external_id", "external_created_at", "external_updated_at"} {
		fixture.WantMember(t, bare.DataJSON(), `""`, name)
	}
}

func TestContract_UpdateFormFailures(t *testing.T) {
	t.Parallel()
	acme, key := formWorld(t)
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Permissions = "server_read", []string{"manage_forms"} }).Token
	standalone := `{"status":"failed","message":"Unable to update Form Collection","data":{"detail":"Standalone Custom Objects cannot be updated through the API"}}`
	row := func(name, id, key, body string, code int, want string) exactRow {
		with := []gatewaytest.Request{fixture.JSONText(body)}
		if key != "" {
			with = append(with, gatewaytest.WithKey(key))
		}
		return exactRow{name: name, method: http.MethodPut, path: fixture.FormsPath + id, with: with, code: code, body: want}
	}
	checkRows(t, acme, []exactRow{
		row("standalone", fixture.DocID(3), key, `{"label":"Other"}`, 200, standalone),
		row("standalone and empty", fixture.DocID(3), key, `{}`, 200, standalone),
		row("absent", fixture.AbsentID, key, `{"label":"Other"}`, 404, missingForm),
		row("malformed", "nothing", key, `{"label":"Other"}`, 404, missingForm),
		row("no permission", fixture.DocID(1), acme.Key(t, tenants.ViewFormSubmissions, tenants.CreateFormSubmissions), `{}`, 403, fixture.EnvelopeLacking("manage_forms")),
		row("a reading key", fixture.DocID(1), read, `{}`, 403, fixture.DeniedBody),
		row("no key", fixture.DocID(1), "", `{}`, 403, fixture.DeniedBody),
	})
	for _, row := range []struct {
		body   string
		code   int
		faults []string
	}{
		{`{"name":"visit"}`, 409, []string{"name duplicate"}},
		{`{"label":"Visit"}`, 409, []string{"label duplicate"}},
		{`{"label_plural":"Visits"}`, 409, []string{"label_plural duplicate"}},
		{`{"name":"visit","label":"Visit","label_plural":"Visits"}`, 409, []string{"name duplicate", "label duplicate", "label_plural duplicate"}},
		{`{"name":1,"label":true,"label_plural":[],"schema":[],"email_alerts":"x"}`, 422,
			[]string{"name type", "label type", "label_plural type", "schema type", "email_alerts type"}},
		{`{"name":"No","label":"","schema":{"f":{"title":"F","type":"text"}}}`, 422, []string{"name *", "label *", "schema.f.type *"}},
		{`{"schema":[{"title":"T","type":"Text"}]}`, 422, []string{"schema type"}},
	} {
		fixture.WantFaults(t, put(t, acme, key, fixture.FormsPath+fixture.DocID(1), row.body), row.code, row.faults...)
	}
	if a := put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{}`); a.Field("label") != "Application" || a.Field("name") != "apply" {
		t.Errorf("a refused update left its mark: got %s, want label Application and name apply", a.Text())
	}
}

func TestContract_FormNameIsLocked(t *testing.T) {
	t.Parallel()
	acme, key := formWorld(t)
	for _, schema := range []string{
		`{}`, `{"form_name":{"title":"Other","type":"Number"}}`, `{"form_name":{"title":"Form Name","type":"Text","required":false,"locked":false}}`,
		`{` + formName + `}`, `{"form_name":null}`,
	} {
		put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{"schema":`+schema+`}`) // refused or not, the field stays
		a := acme.Get(t, key, fixture.FormsPath+"schema?id="+fixture.DocID(1))
		fixture.WantMember(t, a.DataJSON(), strings.TrimPrefix(formName, `"form_name":`), "schema", "form_name")
	}
	// No other field becomes locked either.
	a := put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{"schema":{"own":{"title":"Own","type":"Text","locked":true}}}`)
	if strings.Contains(fixture.Member(t, a.DataJSON(), "schema", "own"), `"locked":true`) {
		t.Errorf("got a field that the caller locked: %s, want it unlocked", a.Text())
	}
}

func TestContract_UpdateFormIgnores(t *testing.T) {
	t.Parallel()
	acme, key := formWorld(t)
	before := put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{}`)
	for name, value := range map[string]string{
		"id": `"` + fixture.DocID(9) + `"`, "org_id": "99", "user_id": "99", "standalone": "true", "locked": "true", "created_at": `"2001-01-01T00:00:00.000Z"`,
		"external_id": `"x2"`, "Label": `"Other"`, "colour": `"red"`,
	} {
		body := `{"` + name + `":` + value + `}`
		fixture.WantFailure(t, put(t, acme, key, fixture.FormsPath+fixture.DocID(1), body, strict()), http.StatusBadRequest)
		a := put(t, acme, key, fixture.FormsPath+fixture.DocID(1), body)
		wantIgnored(t, a, name)
		if a.Code != http.StatusOK {
			t.Errorf("%s: got %d %s, want %v", name, a.Code, a.Text(), http.StatusOK)
		}
	}
	after := put(t, acme, key, fixture.FormsPath+fixture.DocID(1), `{}`)
	cut := func(a *gatewaytest.Answer) string { return a.Text()[:strings.Index(a.Text(), `"updated_at"`)] }
	if cut(before) != cut(after) {
		t.Errorf("got a change by ignored fields:\n%s\nwant\n%s", before.Text(), after.Text())
	}
}

func TestContract_FormSchema(t *testing.T) {
	t.Parallel()
	acme, key := formWorld(t)
	path := fixture.FormsPath + "schema"
	with := func(p ...tenants.Permission) []gatewaytest.Request {
		return []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t, p...))}
	}
	common := fixture.EnvelopeOK("Form Collection schema", `{"schema":{`+formName+`}}`)
	own := fixture.EnvelopeOK("Form Collection schema", `{"schema":{"age":{"title":"Age","type":"Number"},`+formName+`}}`)
	manage := []gatewaytest.Request{gatewaytest.WithKey(key)}
	checkRows(t, acme, []exactRow{
		{name: "manage_forms", path: path, with: manage, body: common},
		{name: "view_form_submissions", path: path, with: with(tenants.ViewFormSubmissions), body: common},
		{name: "create_form_submissions", path: path, with: with(tenants.CreateFormSubmissions), body: common},
		{name: "of a form", path: path + "?id=" + fixture.DocID(1), with: manage, body: own},
		{name: "of a form without fields", path: path + "?id=" + fixture.DocID(2), with: manage, body: common},
		{name: "absent", path: path + "?id=" + fixture.AbsentID, with: manage, code: 404, body: missingForm},
		{name: "malformed", path: path + "?id=x", with: manage, code: 404, body: missingForm},
		{name: "no permission", path: path, with: with(), code: 403, body: fixture.EnvelopeLacking("view_form_submissions")},
		{name: "another permission", path: path, with: with(tenants.Contacts, tenants.ManageCustomObjects), code: 403, body: fixture.EnvelopeLacking("view_form_submissions")},
		{name: "no key", path: path, code: 403, body: fixture.DeniedBody},
	})
	a := acme.Get(t, key, path)
	if names := fixture.MemberNames(t, fixture.Member(t, a.DataJSON(), "schema")); !slices.Contains(names, "form_name") {
		t.Errorf("the schema has %q, want form_name", names)
	}
}

// TestContract_FormKeepsSecretsSecret checks that a field with stored values never becomes Encrypted or plain, by any
// way.
func TestContract_FormKeepsSecretsSecret(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
	const forms = "/api/form/collections"
	schema := func(fields ...string) string { return `{"schema":{` + strings.Join(fields, ",") + `}}` }
	field := func(name, kind string) string { return `"` + name + `":{"title":"T","type":"` + kind + `"}` }
	form := forms + "/" + c.Want(t, 200, http.MethodPost, forms, `{"name":"f","label":"F","label_plural":"Fs",`+schema(field("plain", "Text"), field("sealed", "Encrypted"), field("empty", "Text"))[1:]).Field("id").(string)
	sent := c.Want(t, 200, http.MethodPost, form+"/submissions", `{"values":{"form_name":"x","plain":"PLAIN","sealed":"SEALED"}}`).Field("id").(string)
	c.Want(t, 200, http.MethodDelete, form+"/submissions/"+sent, "")
	c.Want(t, 422, http.MethodPut, form, schema(field("plain", "Encrypted"), field("sealed", "Text"), field("empty", "Encrypted")),
		`"field":"schema.plain.type"`, `"field":"schema.sealed.type"`, "!schema.empty")
	c.Want(t, 200, http.MethodPut, form, schema(field("plain", "LongText"), field("sealed", "Encrypted"), field("empty", "Encrypted")))
	c.Want(t, 422, http.MethodPut, form, schema(field("empty", "Encrypted")), `"field":"schema.sealed.type"`) // nobody could read them, whatever came there next
	c.Want(t, 200, http.MethodPut, form, schema(field("sealed", "Encrypted"), field("empty", "Encrypted")))   // plain values of fields that are dropped stay
	c.Want(t, 422, http.MethodPut, form, schema(field("plain", "Encrypted"), field("sealed", "Encrypted")), `"field":"schema.plain.type"`, "!schema.sealed")
	c.Want(t, 200, http.MethodDelete, form+"/submissions/"+sent+"?purge=true", "")
	c.Want(t, 200, http.MethodPut, form, schema(field("plain", "Encrypted"), field("sealed", "Text")))
}

// TestSubmittersMayReadForms checks that callers who send or read submissions can read the form, without its
// e-mail recipients, but cannot change or delete it.
func TestSubmittersMayReadForms(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	all := fixture.WithToken(acme, acme.Key(t, tenants.ManageForms))
	id := all.Want(t, 200, http.MethodPost, "/api/form/collections", `{"name":"visit","label":"Visit","label_plural":"Visits","schema":{"when":{"title":"When","type":"Date"}},"email_alerts":{"recipients":["boss@example.com"]}}`, "boss@example.com").Field("id").(string)
	one := "/api/form/collections/" + id
	all.Want(t, 200, http.MethodGet, one, "", "boss@example.com")
	for _, permission := range []tenants.Permission{tenants.ViewFormSubmissions, tenants.CreateFormSubmissions} {
		c := fixture.WithToken(acme, acme.Key(t, permission))
		c.Want(t, 200, http.MethodGet, "/api/form/collections", "", `"label":"Visit"`, `"email_alerts":{}`, "!boss@example.com")
		c.Want(t, 200, http.MethodGet, one, "", `"title":"When"`, `"email_alerts":{}`, "!boss@example.com")
		c.Want(t, 403, http.MethodPut, one, `{"label":"Other"}`)
		c.Want(t, 403, http.MethodDelete, one, "")
	}
	other := fixture.WithToken(acme, acme.Key(t, tenants.Contacts))
	other.Want(t, 403, http.MethodGet, one, "")
	_, cookie := acme.Person(t, "sales@example.com", func(n *control.NewUser) { n.Permissions = []string{string(tenants.ViewFormSubmissions)} })
	page := acme.Page(t, one[len("/api"):], gatewaytest.Cookie(cookie))
	if text := page.Text(); page.Code != 200 || !strings.Contains(text, `href="/form/collections"`) || !strings.Contains(text, `/form/collections/`+id+`/submissions"`) {
		t.Errorf("its page: got %d %s, want 200, with %q and with %q",
			page.Code, text, `href="/form/collections"`, `/form/collections/`+id+`/submissions"`)
	}
	if page := acme.Page(t, one[len("/api"):]+"/submissions", gatewaytest.Cookie(cookie)); page.Code != 200 {
		t.Errorf("what was filled in: got %d, want 200", page.Code)
	}
}
