package people

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/crypto/passwords"
	"tenantry/internal/texts"
	"tenantry/operation/schematest"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// fixture is a bench on the real service for people, with two organizations.
type fixture struct {
	*schematest.Bench
	engine             driver.Engine
	editor, admin, raw int64
	foreign            int64 // a number that only the other organization has
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	tenantKinds := tenants.NewKinds()
	peopleKinds := identity.NewKinds()
	engine := enginetest.Open(t)
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"))
	if err != nil {
		t.Fatal(err)
	}
	st := store.New(store.Options{Engine: engine, Control: append(tenantKinds.Specs(), record.Specs(peopleKinds.Kept())...)})
	directory, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{Store: st, Kinds: tenantKinds, Keyring: ring})
	if err != nil {
		t.Fatal(err)
	}
	hasher, err := passwords.New(passwords.Options{})
	if err != nil {
		t.Fatal(err)
	}
	service := identity.NewService(identity.Options{Directory: directory, Kinds: peopleKinds, Passwords: hasher})
	organization := func(slug string) *tenants.Tenant {
		t.Helper()
		tenant, err := directory.Create(t.Context(), tenants.NewOrganization{Slug: slug, Name: slug})
		if err != nil {
			t.Fatal(err)
		}
		return tenant
	}
	user := func(tenant *tenants.Tenant, n identity.NewUser) int64 {
		t.Helper()
		n.Name, n.Email = "Name of "+n.Email, n.Email+"@example.com"
		u, err := service.CreateUser(t.Context(), tenant, n)
		if err != nil {
			t.Fatal(err)
		}
		return u.UID
	}
	ours, theirs := organization("ours"), organization("theirs")
	if _, err := service.CreateRole(t.Context(), ours, identity.Role{Name: "editor", Permissions: []tenants.Permission{tenants.ManageForms, tenants.Contacts}}); err != nil {
		t.Fatal(err)
	}
	f := &fixture{engine: engine}
	f.editor = user(ours, identity.NewUser{Email: "editor", Roles: []string{"editor"}, Permissions: []tenants.Permission{tenants.ViewUsers}})
	f.admin = user(ours, identity.NewUser{Email: "admin", Roles: []string{identity.AdminRole}})
	f.raw = user(ours, identity.NewUser{Email: "raw"})
	f.foreign = user(theirs, identity.NewUser{Email: "foreign", UID: 4711})
	rows := New(Deps{Kinds: peopleKinds, Stored: keys.NewKinds(), People: service}).Operations()
	for i := range rows {
		for _, fault := range rows[i].Validate() {
			t.Error(fault)
		}
	}
	f.Bench = &schematest.Bench{Rows: rows, Tenant: ours}
	return f
}

func (f *fixture) get(t *testing.T, id string, p *tenants.Principal) schematest.Answer {
	t.Helper()
	return f.Do(t, schematest.Request{Operation: "users.get", Path: map[string]string{"id": id}, Principal: p})
}

// TestBuiltInRole: the built-in role is as old as the organization, and can be read but not changed.
func TestBuiltInRole(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	since := `"created_at":"` + texts.Time(f.Tenant.Org.CreatedAt) + `","built_in":true}`
	for _, c := range []struct {
		action, body, contains string
		code                   int
	}{
		{"get", "", since, 200},
		{"list", "", since + `,{"name":"editor"`, 200},
		{"update", `{"label":"Boss"}`, "the role admin is built in", 422},
		{"delete", "", "the role admin is built in", 422},
		{"get", "", `"label":"Administrator"`, 200},
	} {
		a := f.Do(t, schematest.Request{
			Operation: "roles." + c.action, Path: map[string]string{"name": identity.AdminRole}, Body: c.body,
		})
		if a.Code != c.code || !strings.Contains(a.Data, c.contains) {
			t.Errorf("%s: %+v, want %d with %s", c.action, a, c.code, c.contains)
		}
	}
}

func TestUser(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := strconv.FormatInt(f.editor, 10)
	got := f.get(t, id, schematest.Key(tenants.ViewUsers))
	want := `{"id":` + id + `,"name":"Name of editor","email":"editor@example.com",` +
		`"permissions":{"label":"Permissions","value":["contacts","manage_forms","view_users"]},"roles":{"label":"Roles","value":["editor"]}}`
	if got.Code != 200 || got.Status != "ok" || got.Message != "User found" || got.Data != want {
		t.Errorf("got  %+v\nwant %s", got, want)
	}
	raw := f.get(t, strconv.FormatInt(f.raw, 10), schematest.Key(tenants.ManageUsers))
	if want := `"permissions":{"label":"Permissions","value":[]},"roles":{"label":"Roles","value":[]}}`; raw.Code != 200 || raw.Data[len(raw.Data)-len(want):] != want {
		t.Errorf("a user without rights: %+v", raw)
	}
}

func TestWhoMayReadWhom(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	editor, raw := strconv.FormatInt(f.editor, 10), strconv.FormatInt(f.raw, 10)
	person := func(uid int64, permissions ...tenants.Permission) *tenants.Principal {
		return &tenants.Principal{Kind: tenants.Person, UserID: uid, Permissions: permissions}
	}
	others := []tenants.Permission{tenants.Contacts, tenants.ManageFiles, tenants.ManageKeys, tenants.ViewAudit}
	sameNumber := schematest.Key(others...)
	sameNumber.UserID = f.raw // a service account is nobody's self
	for _, tt := range []struct {
		name, id string
		p        *tenants.Principal
		code     int
	}{
		{"self", raw, person(f.raw), 200},
		{"another", editor, person(f.raw), 403},
		{"another, other permissions", editor, person(f.raw, others...), 403},
		{"admin", raw, &tenants.Principal{Kind: tenants.Person, UserID: f.admin, Admin: true}, 200},
		{"view_users", raw, person(f.editor, tenants.ViewUsers), 200},
		{"manage_users", raw, person(f.editor, tenants.ManageUsers), 200},
		{"key with view_users", raw, schematest.Key(tenants.ViewUsers), 200},
		{"key without", raw, schematest.Key(others...), 403},
		{"key that claims a number", raw, sameNumber, 403},
		{"missing, may not", "424242", person(f.raw), 403},
		{"malformed, may not", "x", person(f.raw), 403},
		{"malformed, nobody's number", "x", person(0), 403},
		{"self, deleted", "424242", person(424242), 404},
		{"missing", "424242", schematest.Key(), 404},
		{"of another organization", strconv.FormatInt(f.foreign, 10), schematest.Key(), 404},
		{"zero", "0", schematest.Key(), 404},
		{"negative", "-1", schematest.Key(), 404},
		{"plus", "+" + raw, schematest.Key(), 404},
		{"leading zero", "0" + raw, schematest.Key(), 404},
		{"hexadecimal", "0x1", schematest.Key(), 404},
		{"overflow", "99999999999999999999", schematest.Key(), 404},
		{"empty", "", schematest.Key(), 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := f.get(t, tt.id, tt.p)
			if got.Code != tt.code {
				t.Fatalf("got %+v, want %d", got, tt.code)
			}
			message := map[int]string{200: "User found", 403: "Permission Denied", 404: "Unable to locate user."}[tt.code]
			if got.Message != message || (tt.code != 200 && got.Data != "[]") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestTeamsIsNoParameter(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.Do(t, schematest.Request{Operation: "users.get", Path: map[string]string{"id": strconv.FormatInt(f.raw, 10)}, Query: "teams[]=aaaaaaaaaaaaaaaaaaaaaaaa"})
	if got.Code != 200 || len(got.Ignored) != 1 || got.Ignored[0] != "teams[]" {
		t.Errorf("got %+v", got)
	}
}

func TestUnavailableIsNotMissing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.engine.Close(); err != nil {
		t.Fatal(err)
	}
	if got := f.get(t, "1", schematest.Key()); got.Code != 503 {
		t.Errorf("got %+v", got)
	}
}
