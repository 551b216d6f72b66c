package forms

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/enginetest"
	"tenantry/backends/record/schema"
	"tenantry/internal/texts"
	"tenantry/operation/schematest"
	"tenantry/tenants"
)

type fixture struct {
	*schematest.Bench
	kinds Kinds
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	m := New(new(tenants.Directory))
	return &fixture{schematest.Open(t, enginetest.Open(t), m), m.Kinds}
}

func (f *fixture) form(t *testing.T, rec Form) string {
	t.Helper()
	if err := f.kinds.Forms.In(f.Base()).Insert(t.Context(), &rec); err != nil {
		t.Fatal(err)
	}
	return rec.ID
}

func (f *fixture) stored(t *testing.T, id string) *Form {
	t.Helper()
	rec, err := f.kinds.Forms.In(f.Base()).Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return rec
}

func (f *fixture) update(t *testing.T, id, body string) schematest.Answer {
	t.Helper()
	return f.Do(t, schematest.Request{Operation: "forms.update", Path: map[string]string{"id": id}, Body: body})
}

const formName = `"form_name":{"title":"Form Name","type":"Text","required":true,"locked":true}`

func sample() Form {
	f := Form{
		UserID: 7, Name: "application", Label: "Application", LabelPlural: "Applications",
		Schema:      schema.Fields{"why": {Title: "Why", Type: schema.LongText}},
		EmailAlerts: map[string]any{"enabled": true}, ExternalID: "x1", ExternalCreatedAt: "2020-01-01", ExternalUpdatedAt: "2020-01-02",
	}
	f.CreatedAt = 1717509162005
	return f
}

func TestUpdateAnswersTheWholeForm(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	got := f.update(t, id, `{"label":"Job application"}`)
	updated := texts.Time(f.stored(t, id).UpdatedAt)
	want := `{"id":"` + id + `","org_id":1,"user_id":7,"name":"application","label":"Job application","label_plural":"Applications",` +
		`"schema":{` + formName + `,"why":{"title":"Why","type":"LongText"}},"email_alerts":{"enabled":true},` +
		`"external_id":"x1","external_created_at":"2020-01-01","external_updated_at":"2020-01-02",` +
		`"created_at":"2024-06-04T13:52:42.005Z","updated_at":"` + updated + `"}`
	if got.Code != 200 || got.Message != "Form Collection updated" || got.Data != want {
		t.Errorf("got  %+v\nwant %s", got, want)
	}

	bare := f.form(t, Form{Name: "bare", Label: "Bare", LabelPlural: "Bares"})
	got = f.update(t, bare, `{}`)
	for _, member := range []string{`"schema":{` + formName + `}`, `"email_alerts":{}`, `"external_id":""`, `"external_created_at":""`, `"external_updated_at":""`, `"user_id":0`} {
		if !strings.Contains(got.Data, member) {
			t.Errorf("%s is missing: %+v", member, got)
		}
	}
	var members map[string]any
	if err := json.Unmarshal([]byte(got.Data), &members); err != nil || len(members) != 13 {
		t.Errorf("%d members, %v", len(members), err)
	}
}

func TestUpdateTakesAnySubset(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	for _, tt := range []struct {
		body  string
		check func(*Form) bool
	}{
		{`{"name":"other"}`, func(c *Form) bool {
			return c.Name == "other" && c.Label == "Application" && len(c.Schema) == 1
		}},
		{`{"label_plural":"Many"}`, func(c *Form) bool { return c.LabelPlural == "Many" && c.Name == "other" }},
		{`{"schema":{"age":{"title":"Age","type":"Number"}}}`, func(c *Form) bool {
			return len(c.Schema) == 1 && c.Schema["age"].Type == "Number"
		}},
		{`{"email_alerts":{"n":9007199254740993}}`, func(c *Form) bool {
			return c.EmailAlerts["n"] == json.Number("9007199254740993") && c.EmailAlerts["enabled"] == nil && len(c.Schema) == 1
		}},
		{`{"schema":{}}`, func(c *Form) bool { return len(c.Schema) == 0 && c.EmailAlerts["n"] != nil }},
	} {
		if got := f.update(t, id, tt.body); got.Status != "ok" {
			t.Errorf(`%s: got %+v, want got.Status = "ok"`, tt.body, got)
		}
		if c := f.stored(t, id); !tt.check(c) {
			t.Errorf("%s: stored %+v", tt.body, c)
		}
	}
}

func TestFormNameStays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	for body, ignored := range map[string][]string{
		`{"schema":{}}`: nil,
		`{"schema":{"form_name":{"title":"Form Name","type":"Text","required":true,"locked":true}}}`: nil,
		`{"schema":{"form_name":{"title":"Form Name","type":"Text"}}}`:                               nil,
		`{"schema":{"form_name":{"title":"Mine","type":"Text","required":true}}}`:                    {"schema.form_name"},
		`{"schema":{"form_name":{"title":"Form Name","type":"Text","required":false}}}`:              {"schema.form_name"},
		`{"schema":{"form_name":{"title":"Form Name","type":"Text","locked":false}}}`:                {"schema.form_name"},
		`{"schema":{"form_name":null}}`:                                                              {"schema.form_name"},
	} {
		got := f.update(t, id, body)
		if got.Status != "ok" || !slices.Equal(got.Ignored, ignored) || !strings.Contains(got.Data, `"schema":{`+formName+`}`) {
			t.Errorf("%s: %+v, want ignored %q", body, got, ignored)
		}
		if c := f.stored(t, id); len(c.Schema) != 0 {
			t.Errorf("%s: stored %v", body, c.Schema)
		}
	}
}

func TestLockedFieldsStay(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rec := sample()
	rec.Schema["fixed"] = schema.Field{Title: "Fixed", Type: schema.Text, Locked: true}
	id := f.form(t, rec)
	for body, ignored := range map[string][]string{
		`{"schema":{}}`: nil,
		`{"schema":{"fixed":{"title":"Fixed","type":"Text"}}}`:   nil,
		`{"schema":{"fixed":{"title":"Fixed","type":"Number"}}}`: {"schema.fixed"},
	} {
		got := f.update(t, id, body)
		if got.Status != "ok" || !slices.Equal(got.Ignored, ignored) {
			t.Errorf(`%s: got %+v, want got.Status = "ok" and %v`, body, got, ignored)
		}
		if c := f.stored(t, id); len(c.Schema) != 1 || c.Schema["fixed"] != rec.Schema["fixed"] {
			t.Errorf("%s: stored %v", body, c.Schema)
		}
	}
	got := f.Do(t, schematest.Request{Operation: "forms.update", Path: map[string]string{"id": id}, Strict: true, Body: `{"label":"Changed","schema":{"fixed":{"title":"x","type":"Text"}}}`})
	if got.Code != 400 || f.stored(t, id).Label != "Application" {
		t.Errorf("strict: %+v", got)
	}
}

func TestFormUpdateChangesNothingElse(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	before := f.stored(t, id)
	got := f.update(t, id, `{"id":"bbbbbbbbbbbbbbbbbbbbbbbb","org_id":1,"user_id":1,"standalone":true,"created_at":"2001-01-01T00:00:00Z","updated_at":"x","external_id":"y","external_created_at":"z","locked":true,"fields":{"a":1},"Label":"x"}`)
	want := []string{"id", "org_id", "user_id", "standalone", "created_at", "updated_at", "external_id", "external_created_at", "locked", "fields", "Label"}
	if got.Status != "ok" || !slices.Equal(got.Ignored, want) {
		t.Errorf("got %+v", got)
	}
	after := f.stored(t, id)
	after.Rev, after.UpdatedAt = before.Rev, before.UpdatedAt
	if a, b := fmt.Sprintf("%+v", after), fmt.Sprintf("%+v", before); a != b {
		t.Errorf("stored %s\nbefore %s", a, b)
	}
}

func TestUpdateRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	fixed := f.form(t, Form{Name: "fixed", Label: "Fixed", LabelPlural: "Fixeds", Standalone: true})
	const refused = `{"detail":"Standalone Custom Objects cannot be updated through the API"}`
	for _, tt := range []struct {
		name, id, body, message string
		code                    int
		data                    string // "" for any
		fields                  []string
	}{
		{name: "missing", id: "aaaaaaaaaaaaaaaaaaaaaaaa", body: `{}`, code: 404, message: "Form Collection not found", data: "[]"},
		{name: "malformed", id: "../x", body: `{}`, code: 404, message: "Form Collection not found", data: "[]"},
		{name: "missing and invalid", id: "x", body: `{"name":1}`, code: 404, message: "Form Collection not found", data: "[]"},
		{name: "standalone", id: fixed, body: `{"label":"x"}`, code: 200, message: "Unable to update Form Collection", data: refused},
		{name: "standalone and invalid", id: fixed, body: `{"label":1}`, code: 200, message: "Unable to update Form Collection", data: refused},
		{name: "standalone cannot be lifted", id: fixed, body: `{"standalone":false}`, code: 200, message: "Unable to update Form Collection", data: refused},
		{name: "nulls", id: id, body: `{"name":null,"label":null,"label_plural":null,"schema":null,"email_alerts":null}`, code: 422, fields: []string{"name", "label", "label_plural", "schema", "email_alerts"}},
		{name: "blank", id: id, body: `{"name":"","label":" ","label_plural":""}`, code: 422, fields: []string{"name", "label", "label_plural"}},
		{name: "arrays", id: id, body: `{"schema":[],"email_alerts":[]}`, code: 422, fields: []string{"schema", "email_alerts"}},
		{name: "alerts", id: id, body: `{"email_alerts":{"enabled":"yes","subject":"a\r\nBcc: b","recipients":["a@b.c","a@b.c\r\nX: y",3]}}`, code: 422, fields: []string{"email_alerts.enabled", "email_alerts.subject", "email_alerts.recipients[1]", "email_alerts.recipients[2]"}},
		{name: "alert kinds", id: id, body: `{"email_alerts":{"subject":1,"recipients":"a@b.c"}}`, code: 422, fields: []string{"email_alerts.subject", "email_alerts.recipients"}},
		{name: "long subject", id: id, body: `{"email_alerts":{"subject":"` + strings.Repeat("ä", 201) + `"}}`, code: 422, fields: []string{"email_alerts.subject"}},
		{name: "deep alerts", id: id, body: `{"email_alerts":{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}}`, code: 422, fields: []string{"email_alerts"}},
		{name: "large alerts", id: id, body: `{"email_alerts":{"a":"` + strings.Repeat("a", 130<<10) + `"}}`, code: 422, fields: []string{"email_alerts"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := f.update(t, tt.id, tt.body)
			if got.Code != tt.code || got.Status != "failed" || (tt.message != "" && got.Message != tt.message) || (tt.data != "" && got.Data != tt.data) {
				t.Fatalf("got %+v", got)
			}
			for _, field := range tt.fields {
				if !strings.Contains(got.Data, `"field":"`+field+`"`) {
					t.Errorf("%s is not named: %s", field, got.Data)
				}
			}
			if n := strings.Count(got.Data, `"field"`); n != len(tt.fields) {
				t.Errorf("%d problems: %s", n, got.Data)
			}
		})
	}
}

func TestRecipientsAreCapped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	list := func(n int) string {
		addresses := make([]string, n)
		for i := range addresses {
			addresses[i] = fmt.Sprintf("a%d@example.com", i)
		}
		text, err := json.Marshal(map[string]any{"email_alerts": map[string]any{"recipients": addresses}})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := f.update(t, id, list(1000)); got.Code != 200 {
		t.Errorf("1000: %d %s", got.Code, got.Message)
	}
	if got := f.update(t, id, list(1001)); got.Code != 422 || !strings.Contains(got.Data, `"email_alerts.recipients"`) {
		t.Errorf("1001: %+v", got)
	}
}

func TestDuplicatesAreAllNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	f.form(t, Form{Name: "a", Label: "A", LabelPlural: "As"})
	f.form(t, Form{Name: "b", Label: "B", LabelPlural: "Bs"})
	for body, fields := range map[string][]string{
		`{"name":"a"}`:                                              {"name"},
		`{"name":"a","label":"B"}`:                                  {"name", "label"},
		`{"name":"b","label":"A","label_plural":"As"}`:              {"name", "label", "label_plural"},
		`{"name":"application","label_plural":"Bs","label":"Free"}`: {"label_plural"},
	} {
		got := f.update(t, id, body)
		if got.Code != 409 || strings.Count(got.Data, `"code":"duplicate"`) != len(fields) {
			t.Errorf("%s: got %+v, want 409", body, got)
		}
		for _, field := range fields {
			if !strings.Contains(got.Data, `"field":"`+field+`"`) {
				t.Errorf("%s: %s is not named: %+v", body, field, got)
			}
		}
	}
	again := f.Do(t, schematest.Request{Operation: "forms.create", Body: `{"name":"a","label":"B","label_plural":"As"}`})
	if again.Code != 409 || strings.Count(again.Data, `"code":"duplicate"`) != 3 {
		t.Errorf("a new one: %+v", again)
	}
	if got := f.update(t, id, `{"name":"application","label":"Application"}`); got.Status != "ok" {
		t.Errorf("its own name again: %+v", got)
	}
}

func TestConcurrentUpdatesLoseNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	bodies := []string{`{"name":"n"}`, `{"label":"L"}`, `{"label_plural":"P"}`, `{"schema":{"z":{"title":"Z","type":"Text"}}}`, `{"email_alerts":{"enabled":false}}`}
	answers := make(chan schematest.Answer, len(bodies))
	for _, body := range bodies {
		go func() { answers <- f.update(t, id, body) }()
	}
	for range bodies {
		if got := <-answers; got.Status != "ok" {
			t.Errorf("got %+v", got)
		}
	}
	c := f.stored(t, id)
	if c.Name != "n" || c.Label != "L" || c.LabelPlural != "P" || c.Schema["z"].Title != "Z" || c.EmailAlerts["enabled"] != false {
		t.Errorf("stored %+v", c)
	}
}

func TestCrowdOfWritersIsServed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.form(t, sample())
	const callers = 24
	answers := make(chan schematest.Answer, callers)
	for i := range callers {
		go func() { answers <- f.update(t, id, fmt.Sprintf(`{"label":"L%d"}`, i)) }()
	}
	for range callers {
		if got := <-answers; got.Status != "ok" {
			t.Errorf("got %+v", got)
		}
	}
	if c := f.stored(t, id); c.Rev != callers+1 {
		t.Errorf("revision %d after %d updates", c.Rev, callers)
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	rec := sample()
	rec.Schema["form_name"] = schema.Field{Title: "Fake", Type: schema.Number}
	id := f.form(t, rec)
	for query, want := range map[string]string{
		"":         `{"schema":{` + formName + `}}`,
		"id=" + id: `{"schema":{` + formName + `,"why":{"title":"Why","type":"LongText"}}}`,
	} {
		got := f.Do(t, schematest.Request{Operation: "forms.schema", Query: query})
		if got.Code != 200 || got.Message != "Form Collection schema" || got.Data != want {
			t.Errorf(`%s: got %+v, want 200 and got.Message = "Form Collection schema" and got.Data = %v`, query, got, want)
		}
	}
	for _, query := range []string{"id=", "id=x", "id=aaaaaaaaaaaaaaaaaaaaaaaa"} {
		if got := f.Do(t, schematest.Request{Operation: "forms.schema", Query: query}); got.Code != 404 || got.Message != "Form Collection not found" || got.Data != "[]" {
			t.Errorf(`%s: got %+v, want 404 and got.Message = "Form Collection not found" and got.Data = "[]"`, query, got)
		}
	}
}

func TestPermissions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, p := range []tenants.Permission{tenants.ViewFormSubmissions, tenants.ManageForms, tenants.CreateFormSubmissions} {
		if got := f.Do(t, schematest.Request{Operation: "forms.schema", Principal: schematest.Key(p)}); got.Code != 200 {
			t.Errorf("%s: got %+v, want 200", p, got)
		}
	}
	for operation, named := range map[string]string{"forms.schema": "view_form_submissions", "forms.update": "manage_forms"} {
		got := f.Do(t, schematest.Request{Operation: operation, Principal: schematest.Key(tenants.Contacts), Body: `{}`})
		if got.Code != 403 || got.Message != "Lacking necessary permission "+named || got.Data != `{"permission":"`+named+`"}` {
			t.Errorf("%s: got %+v, want 403 and got.Message = %v and got.Data = %v",
				operation, got, "Lacking necessary permission "+named, `{"permission":"`+named+`"}`)
		}
	}
}
