package contacts_test

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/record/recordtest"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/fault"
	"tenantry/modules/contacts"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// fixture is the module over a real store, keyring and directory.
type fixture struct {
	module *contacts.Module
	kinds  contacts.Kinds
	dir    *tenants.Directory
	tenant *tenants.Tenant
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx := testContext(t)
	engine := enginetest.Open(t)
	control := tenants.NewKinds()
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"))
	must(t, err)
	s := store.New(store.Options{Engine: engine, Control: control.Specs()})
	dir, err := tenants.NewDirectory(ctx, tenants.DirectoryOptions{Store: s, Kinds: control, Keyring: ring})
	must(t, err)
	f := &fixture{dir: dir, module: contacts.New(contacts.Deps{Keys: dir})}
	f.kinds = f.module.Kinds
	s.Keep(record.Specs(f.kinds.Kept())...)
	f.tenant = f.organization(t, "acme", nil)
	return f
}

func (f *fixture) organization(t *testing.T, slug string, settings map[string]bool) *tenants.Tenant {
	t.Helper()
	tenant, err := f.dir.Create(testContext(t), tenants.NewOrganization{
		Slug: slug, Name: slug, Features: map[string]bool{tenants.FeatureTeams: true}, Settings: settings,
	})
	must(t, err)
	for _, def := range []contacts.FieldDef{
		{Key: "ssn", Title: "SSN", Type: "Encrypted"}, {Key: "iban", Title: "IBAN", Type: "Encrypted"},
		{Key: "age", Title: "Age", Type: "Number"}, {Key: "birthday", Title: "Birthday", Type: "Date"},
		{Key: "seen", Title: "Seen", Type: "DateTime"}, {Key: "vip", Title: "VIP", Type: "Boolean"},
		{Key: "colors", Title: "Colors", Type: "MultiSelect"}, {Key: "shape", Title: "Shape", Type: "Geometry"},
	} {
		must(t, f.kinds.Fields.In(tenant.Workspace()).Insert(testContext(t), &def))
	}
	return tenant
}

// add stores a contact with its secrets in clear among its fields, as an import does.
func (f *fixture) add(t *testing.T, tenant *tenants.Tenant, c contacts.Contact) contacts.Contact {
	t.Helper()
	ctx := testContext(t)
	defs, err := f.module.Definitions(ctx, tenant.Workspace())
	must(t, err)
	if c.ID == "" {
		c.ID = tenant.Workspace().NewID()
	}
	var errs fault.List
	vault := secrets.Vault{Keys: f.dir, Tenant: tenant}
	at := secrets.Place{Collection: f.kinds.Contacts.Spec().Name, Record: c.ID}
	given := vault.Take(ctx, at, "fields", c.Fields, func(name string) bool { return defs[name].Type == schema.Encrypted }, &errs)
	fields := schema.Fields{}
	for key, def := range defs {
		fields[key] = schema.Field{Title: def.Title, Type: def.Type}
	}
	c.Fields, _ = fields.CheckValues(&errs, "fields", c.Fields)
	must(t, errs.Err())
	_, err = vault.Put(ctx, at, &c.Secrets, given)
	must(t, err)
	must(t, f.kinds.Contacts.In(tenant.Workspace()).Insert(ctx, &c))
	return c
}

func serverKey(teams ...string) *tenants.Principal {
	return &tenants.Principal{
		Kind: tenants.ServiceAccount, AccountID: "a", KeyID: "k", KeyKind: tenants.ServerFull,
		Permissions: []tenants.Permission{tenants.Contacts}, Teams: teams,
	}
}

// call runs the module's operation as the gateway does: row first, then handler.
func (f *fixture) call(t *testing.T, tenant *tenants.Tenant, p *tenants.Principal, id, query string) (*operation.Call, operation.Result, *operation.Problem) {
	t.Helper()
	op := f.module.Operations()[0]
	c := operation.NewCall(&op, func(name string) string {
		if name == "id" {
			return id
		}
		return ""
	})
	c.Tenant, c.Principal = tenant, p
	res, err := operation.Run(testContext(t), c, operation.Input{Query: query})
	if err != nil {
		return c, res, operation.ProblemOf(err)
	}
	return c, res, nil
}

func body(t *testing.T, p *operation.Problem) string {
	t.Helper()
	if p == nil {
		t.Fatal("a success where a failure was expected")
	}
	raw, err := json.Marshal(p.Envelope())
	must(t, err)
	return string(raw)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const teamA, teamB = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"

func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, op := range f.module.Operations() {
		if faults := op.Validate(); len(faults) > 0 {
			t.Errorf("got %v, want len(faults) <= 0", faults)
		}
		if (op.Kinds != operation.ServerFull) == (op.Credentials&operation.Key != 0) || op.Contract && (op.Credentials != operation.Key || op.Audit != operation.AuditAlways || !op.Teams) {
			t.Errorf("%s: credentials, kinds, audit or teams are not as they must be", op.Name)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testContext(t)
	ann := f.add(t, f.tenant, contacts.Contact{FirstName: "Ann", LastName: "Lee", Email: "ann@example.com"})
	mail := f.add(t, f.tenant, contacts.Contact{Email: "x@example.com"})
	last := f.add(t, f.tenant, contacts.Contact{LastName: "Solo", Teams: []string{teamA}})
	bare := f.add(t, f.tenant, contacts.Contact{City: "Bonn"})
	ids := []string{ann.ID, mail.ID, ann.ID, last.ID, bare.ID, "nonsense", f.tenant.Workspace().NewID()}

	got, err := f.module.Names(ctx, f.tenant.Workspace(), ids)
	must(t, err)
	want := map[string]string{ann.ID: "Ann Lee", mail.ID: "x@example.com", last.ID: "Solo", bare.ID: ""}
	if len(got) != len(want) {
		t.Errorf("%v, want %v", got, want)
	}
	for id, name := range want {
		if have, ok := got[id]; !ok || have != name {
			t.Errorf("%s is %q, want %q", id, have, name)
		}
	}
	got, err = f.module.Names(ctx, f.tenant.Workspace().Scoped(store.Scope{Teams: []string{teamB}}), ids)
	must(t, err)
	if _, seen := got[last.ID]; seen || len(got) != 3 {
		t.Errorf("out of scope, but named: %v", got)
	}
	if got, err = f.module.Names(ctx, f.tenant.Workspace(), nil); err != nil || len(got) != 0 || got == nil {
		t.Errorf("no ids: %v, %v", got, err)
	}
	many := make([]string, store.MaxLimit+1)
	for i := range many {
		many[i] = f.tenant.Workspace().NewID()
	}
	if _, err := f.module.Names(ctx, f.tenant.Workspace(), many); err == nil {
		t.Error("more names than the limit were given")
	}
	if got, err = f.module.Names(ctx, f.tenant.Workspace(), append(many[:store.MaxLimit-1], ann.ID)); err != nil || got[ann.ID] != "Ann Lee" {
		t.Errorf("names up to the limit: %d, %v", len(got), err)
	}
}

func TestCatalog(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := testContext(t)
	// A definition cannot take the place of a standard field.
	must(t, f.kinds.Fields.In(f.tenant.Workspace()).Insert(ctx, &contacts.FieldDef{Key: "email", Title: "E", Type: "Encrypted"}))
	catalog, err := f.module.Catalog(ctx, f.tenant.Workspace())
	must(t, err)
	for name, want := range map[string]bool{
		"email": true, "first_name": true, "last_name": true, "phone": true, "country": true, "city": true, "status": true, "tags": true,
		"external_id": true, "created_at": true, "age": true, "birthday": true, "seen": true, "vip": true, "colors": true, "shape": true, "ssn": true,
		"id": true, "updated_at": true, "_id": false, "secrets": false, "fields": false, "teams": false, "Email": false, "": false, "SSN": false,
	} {
		field, ok := catalog.Field(name)
		if ok != want {
			t.Errorf("%q known: %v, want %v", name, ok, want)
		}
		if ok && name != "ssn" {
			// The store must agree that the field can be asked about.
			if _, err := f.module.Count(ctx, f.tenant.Workspace(), store.Where(field.Ref, store.OpExists, true)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if email, _ := catalog.Field("email"); email.Ref.Custom {
		t.Error("a definition hides the standard field email")
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	kinds := contacts.NewKinds()
	var known record.Known
	for key, typ := range map[string]string{"age": "Number", "seen": "DateTime", "note": "Text"} {
		known.Learn(kinds.Fields.Resource, &contacts.FieldDef{Key: key, Title: key, Type: typ}, "")
	}
	check := record.Checking{Known: &known}
	good, errs := recordtest.Read(t, kinds.Contacts, check, `{"email":"a@example.com","tags":["x"],"teams":["`+teamA+`"],"fields":{"age":7,"seen":"2024-05-17T12:00:00+02:00","note":""}}`)
	if len(errs) > 0 {
		t.Fatalf("got %v, want len(errs) <= 0", errs)
	}
	if _, blank := good.Fields["note"]; blank || good.Fields["seen"] != "2024-05-17T10:00:00.000Z" || good.Fields["age"] != json.Number("7") {
		t.Errorf("stored as %v", good.Fields)
	}
	_, errs = recordtest.Read(t, kinds.Contacts, check, `{"email":"Bob <b@example.com>","first_name":"`+strings.Repeat("x", 300)+`","city":"a\nb","tags":[""],"teams":["T"]}`)
	_, more := recordtest.Read(t, kinds.Contacts, check, `{"fields":{"age":"seven","who":"x","a.b\n":1}}`)
	errs = append(errs, more...)
	named := map[string]bool{}
	for _, e := range errs {
		named[e.Field] = true
	}
	for _, field := range []string{"email", "first_name", "city", "tags", "teams", "fields.age", "fields.who", `fields."a.b\n"`} {
		if !named[field] {
			t.Errorf("no problem with %s in %v", field, errs)
		}
	}
}

func TestValidateField(t *testing.T) {
	t.Parallel()
	kinds := contacts.NewKinds()
	for _, tc := range []struct {
		def   contacts.FieldDef
		field string
	}{
		{contacts.FieldDef{Key: "ssn", Title: "SSN", Type: "Encrypted"}, ""},
		{contacts.FieldDef{Key: "shape", Title: "Shape", Type: "Geometry2"}, ""},
		{contacts.FieldDef{Key: "a.b", Title: "x", Type: "Text"}, "key"},
		{contacts.FieldDef{Key: "email", Title: "x", Type: "Text"}, "key"},
		{contacts.FieldDef{Key: "or", Title: "x", Type: "Text"}, "key"},
		{contacts.FieldDef{Key: "x", Title: " ", Type: "Text"}, "title"},
		{contacts.FieldDef{Key: "x", Title: "x", Type: "text"}, "type"},
		{contacts.FieldDef{Key: "x", Title: "x", Type: "Te xt"}, "type"},
	} {
		text, err := json.Marshal(map[string]string{"key": tc.def.Key, "title": tc.def.Title, "type": tc.def.Type})
		must(t, err)
		_, errs := recordtest.Read(t, kinds.Fields, record.Checking{}, string(text))
		if (tc.field == "") != (len(errs) == 0) || (len(errs) > 0 && errs[0].Field != tc.field) {
			t.Errorf("%+v: %v, want a problem with %q", tc.def, errs, tc.field)
		}
	}
}

type brokenKeys struct{ err error }

func (b brokenKeys) DataKeys(context.Context, *tenants.Tenant, string) (*tenants.DataKeys, error) {
	return nil, b.err
}

func TestKeysUnavailable(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ann := f.add(t, f.tenant, contacts.Contact{Fields: map[string]any{"ssn": "AAA"}})
	f.module = contacts.New(contacts.Deps{Keys: brokenKeys{store.ErrUnavailable}})
	f.module.Kinds = f.kinds
	if _, _, p := f.call(t, f.tenant, serverKey(), ann.ID, "field=ssn"); p == nil || p.Code != 503 {
		t.Errorf("%v, want a 503", p)
	}
}
