package bundle

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/modules/contacts"
	"tenantry/modules/forms"
	"tenantry/modules/objects"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// drift changes the definitions under what complete has stored: fields go, get another type
// or become required, and secrets come under fields that are not encrypted.
func drift(t *testing.T, w *world, ws *store.Workspace) {
	t.Helper()
	field := func(key string, change func(*contacts.FieldDef)) {
		c := w.contacts.Fields.In(ws)
		def, err := c.First(t.Context(), store.Query{Filter: store.Eq("key", key)})
		check(t, err)
		if change == nil {
			check(t, c.Delete(t.Context(), def))
			return
		}
		change(def)
		check(t, c.Replace(t.Context(), def))
	}
	field("plan", nil) // the campaign asks for it
	field("age", func(d *contacts.FieldDef) { d.Type = schema.Encrypted })
	field("ssn", func(d *contacts.FieldDef) { d.Type = "Shade" }) // takes values of any shape
	_, err := w.forms.Forms.In(ws).Update(t.Context(), "000000000000000000000091", func(f *forms.Form) error {
		f.Schema = schema.Fields{"why": {Title: "Why", Type: schema.Number}, "who": {Title: "Who", Type: schema.Text, Required: true}}
		return nil
	})
	check(t, err)
	_, err = w.objects.Definitions.In(ws).Update(t.Context(), "000000000000000000000061", func(d *objects.Definition) error {
		d.Schema = schema.Fields{"height": {Title: "Height", Type: schema.Text}} // the report lists species
		return nil
	})
	check(t, err)
}

// L: whatever becomes of definitions, an export imports, into the organization itself and
// into an empty one, and nothing is lost or told wrong on the way.
func TestExport_AlwaysImports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	drift(t, w, acme.Workspace())
	w.mustLoad(acme, `{"kind":"submission","id":"000000000000000000000082","form":"000000000000000000000091","values":{"form_name":"b","who":"me","why":5}}`)

	first := w.dump(acme, false)
	for kind, want := range map[string][]string{
		kindContact:     {`"as_is":true`, `"fields":{"age":36,"plan":"gold"}`, `"secrets":{"ssn":{"enc":`},
		"submission":    {`"as_is":true`, `"values":{"form_name":"a","who":null,"why":"because"}`, `"secrets":{"pin":{"enc":`},
		kindRecord:      {`"as_is":true`, `"values":{"height":12.50,"species":"Oak"}`, `"secrets":{"code":{"enc":`},
		"campaign":      {`"as_is":true`, `"plan":"gold"`},
		"custom_report": {`"as_is":true`},
	} {
		for _, part := range want {
			if !strings.Contains(strings.Join(ofKind(first, kind), ""), part) {
				t.Errorf("%s: no %s in %s", kind, part, ofKind(first, kind))
			}
		}
	}
	for _, line := range append(ofKind(first, kindFolder), ofKind(first, "form_collection")...) {
		if strings.Contains(line, "as_is") {
			t.Errorf("what fits is marked: %s", line)
		}
	}
	if n := strings.Count(strings.Join(ofKind(first, "submission"), ""), "as_is"); n != 1 {
		t.Errorf("%d submissions are marked", n)
	}
	r := w.mustLoad(acme, first)
	if r.Unchanged != r.Lines || len(r.Warnings) != 5 {
		t.Fatalf("into itself: %+v %v", r.Counts, r.Warnings)
	}

	revealed := w.dump(acme, true)
	apart := newWorld(t)
	elsewhere := apart.org("acme")
	r = apart.mustLoad(elsewhere, revealed)
	if diff := cmp.Diff(revealed, apart.dump(elsewhere, true)); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	var told strings.Builder
	for _, p := range r.Warnings {
		told.WriteString(p.String() + "\n")
	}
	for _, part := range []string{`(campaign): filter.plan: there is no field "plan"`, `(custom_report): query.fields: there is no field "species"`, "values.who is required"} {
		if !strings.Contains(told.String(), part) {
			t.Errorf("no warning of %s in\n%s", part, &told)
		}
	}
}

// What somebody wrote is held against the definitions as before, and an encrypted value
// moves nowhere because its line is marked.
func TestAsIs_FindsTypingErrorsAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	drift(t, w, acme.Workspace())
	out := w.dump(acme, false)
	contact := ofKind(out, kindContact)[0]
	for name, c := range map[string]struct{ line, field string }{
		"report without the mark":   {strings.Replace(ofKind(out, "custom_report")[1], `"as_is":true,`, "", 1), "query.fields"},
		"campaign without the mark": {strings.Replace(ofKind(out, "campaign")[0], `"as_is":true,`, "", 1), "filter.plan"},
		"contact without the mark":  {`{"kind":"contact","id":"0000000000000000000000b1","fields":{"plan":"gold"}}`, "fields.plan"},
		"secrets without the mark":  {`{"kind":"contact","id":"0000000000000000000000b1","secrets":{"ssn":"1"}}`, "secrets"},
		"a misspelt name":           {`{"kind":"contact","as_is":true,"id":"0000000000000000000000b1","emial":"x"}`, "emial"},
		"no id":                     {`{"kind":"contact","as_is":true,"email":"a@example.com"}`, "id"},
		"a name for operators":      {`{"kind":"contact","as_is":true,"id":"0000000000000000000000b7","fields":{"$where":1}}`, "values"},
		"a secret's name":           {`{"kind":"contact","as_is":true,"id":"0000000000000000000000b7","secrets":{"a.b":"1"}}`, "secrets"},
		"another record's secret":   {strings.Replace(strings.Replace(contact, "b1", "b7", 1), "c-1", "c-7", 1), "secrets.ssn"},
	} {
		r, err := w.load(acme, c.line, ImportOptions{})
		if err == nil || len(r.Problems) != 1 || r.Problems[0].Errors[0].Field != c.field {
			t.Errorf("%s: got %v %v, want an error and len(r.Problems) = 1 and r.Problems[0].Errors[0].Field = %v",
				name, err, r.Problems, c.field)
		}
	}
}

// A value that is given anew takes the place of what is stored under its name, also where
// the field became encrypted, or is no longer, in between.
func TestAsIs_NewValuesSupersede(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	drift(t, w, acme.Workspace())
	w.mustLoad(acme, `{"kind":"contact","external_id":"c-1","fields":{"age":"37","ssn":"plain"}}`)
	line := ofKind(w.dump(acme, true), kindContact)[0]
	if !strings.Contains(line, `"fields":{"plan":"gold","ssn":"plain"}`) || !strings.Contains(line, `"secrets":{"age":"37"}`) {
		t.Fatalf(`got %v, want containing "\"fields\":{\"plan\":\"gold\",\"ssn\":\"plain\"}" and containing "\"secrets\":{\"age\":\"37\"}"`,
			line)
	}
}

// A reference that leads nowhere travels too.
func TestAsIs_DanglingReferences(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	folders := w.files.Folders.In(acme.Workspace())
	folder, err := folders.Get(t.Context(), "0000000000000000000000c2")
	check(t, err)
	check(t, folders.Delete(t.Context(), folder))
	teams := w.deps.People.Teams.In(acme.People())
	team, err := teams.Get(t.Context(), "0000000000000000000000a1")
	check(t, err)
	check(t, teams.Delete(t.Context(), team))
	out := w.dump(acme, true)
	if !strings.Contains(ofKind(out, "file")[0], `"as_is":true`) {
		t.Fatalf(`got %v, want containing "\"as_is\":true"`, ofKind(out, "file"))
	}
	apart := newWorld(t)
	elsewhere := apart.org("acme")
	apart.mustLoad(elsewhere, out)
	if diff := cmp.Diff(out, apart.dump(elsewhere, true)); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
}

// The largest record that several imports can make travels, also where its line is longer than what it takes.
func TestExport_LongLines(t *testing.T) {
	if testing.Short() {
		t.Skip("its lines are as long as may be")
	}
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	text := strings.Repeat("\u2028", (record.MaxRecord/2-1<<10)/3) // a line has it as an escape
	for _, name := range []string{"a", "b"} {
		w.mustLoad(acme, `{"kind":"contact_field","key":"`+name+`","title":"T","type":"LongText"}
{"kind":"contact","external_id":"c","fields":{"`+name+`":"`+text+`"}}`)
	}
	if r, err := w.load(acme, `{"kind":"contact","external_id":"c","city":"`+strings.Repeat("x", 200)+`","fields":{"a":"`+text+strings.Repeat("x", 2<<10)+`"}}`, ImportOptions{DryRun: true}); err == nil {
		t.Errorf("more than a record may take: %+v", r)
	}
	out := w.dump(acme, false)
	apart := newWorld(t)
	elsewhere := apart.org("acme")
	apart.mustLoad(elsewhere, out)
	if len(out) < 2*record.MaxRecord-8<<10 || apart.dump(elsewhere, false) != out {
		t.Fatal("the record did not come back")
	}
}

// TestAsIs_GivesNoRights: a line that has the mark is held against what there is where rights follow from it; an export
// leaves out what gives nothing, so that it imports.
func TestAsIs_GivesNoRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme, other := w.org("acme"), w.org("other")
	const user, memoryUse = `{"kind":"user","as_is":true,"id":70,"name":"Eve","email":"eve@example.com",`, `{"kind":"service_account","as_is":true,"id":"0000000000000000000000b9","name":"Sync",`
	for line, field := range map[string]string{
		user + `"permissions":["manage_all"]}`:                                                                        "permissions",
		user + `"roles":["ghost"]}`:                                                                                   "roles",
		strings.Replace(user, ":70,", ":4294967296,", 1) + `"active":true}`:                                           "id",
		memoryUse + `"permissions":["manage_all"]}`:                                                                   "permissions",
		`{"kind":"role","as_is":true,"name":"x","permissions":["manage_all"]}`:                                        "permissions",
		`{"kind":"role","as_is":true,"name":"Not a name","permissions":[]}`:                                           "name",
		`{"kind":"role","as_is":true,"name":"admin","permissions":["contacts"]}`:                                      "name",
		`{"kind":"organization","as_is":true,"frame_origins":["*"]}`:                                                  "frame_origins",
		`{"kind":"custom_report","as_is":true,"id":"0000000000000000000000e9","title":"X","class":"Gone","query":{}}`: "class",
	} {
		if r, err := w.load(acme, line, ImportOptions{}); err == nil || len(r.Problems) != 1 || !strings.HasPrefix(r.Problems[0].Errors[0].Field, field) {
			t.Errorf("%s: got %v %v, want an error and len(r.Problems) = 1 and beginning with %q", line, err, r.Problems, field)
		}
	}
	w.mustLoad(acme, `{"kind":"role","name":"reader","permissions":["view_users"]}`)
	check(t, w.deps.People.Roles.In(acme.People()).Insert(t.Context(), &identity.Role{Name: "old", Label: "a\r\nb", Permissions: []tenants.Permission{"contacts", "manage_all"}}))
	check(t, w.deps.People.Users.In(acme.People()).Insert(t.Context(), &identity.User{
		UID: 70, Name: "Eve", Email: "eve@example.com", EmailKey: "eve@example.com", Roles: []string{"ghost", "reader"}, Teams: []string{"0000000000000000000000ff"},
	}))
	dump := w.dump(acme, false)
	w.mustLoad(other, dump)
	u, err := w.deps.People.Users.In(other.People()).First(t.Context(), store.Query{Filter: store.Eq("uid", int64(70))})
	check(t, err)
	old, err := w.deps.People.Roles.In(other.People()).First(t.Context(), store.Query{Filter: store.Eq("name", "old")})
	check(t, err)
	if len(u.Teams) != 1 || !slices.Equal(u.Roles, []string{"reader"}) || old.Label != "a\r\nb" || !slices.Equal(old.Permissions, []tenants.Permission{"contacts"}) {
		t.Errorf(`got %+v %+v, want len(u.Teams) = 1 and old.Label = "a\r\nb"`, u, old)
	}
	r, err := w.service.Export(t.Context(), acme, io.Discard, ExportOptions{})
	if err != nil || !strings.Contains(strings.Join(r.LeftOut, " "), "that do not exist were left out of people, roles and service accounts (2)") {
		t.Errorf("got %v %q, want no error and containing %q",
			err, r.LeftOut, "that do not exist were left out of people, roles and service accounts (2)")
	}
}
