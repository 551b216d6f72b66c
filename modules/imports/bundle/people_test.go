package bundle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// TestOneRulebookForPeople gives the same records to the service behind the commands and, as lines, to an
// import. Both say the same of each: the fields and codes that are wanted, or that it is taken.
func TestOneRulebookForPeople(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	service := identity.NewService(identity.Options{Directory: w.deps.Directory, Kinds: w.deps.People})
	w.mustLoad(acme, `{"kind":"team","id":"0000000000000000000000a1","name":"North"}
{"kind":"role","name":"editor","permissions":["contacts"]}
{"kind":"user","id":7,"name":"Grace","email":"grace@example.com"}
{"kind":"service_account","id":"0000000000000000000000b1","name":"Sync"}
`)
	ids := func(n int, format string) []string {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprintf(format, i+1)
		}
		return all
	}
	user := func(set func(*identity.User)) *identity.User {
		u := &identity.User{Name: "Ada", Email: "-", Active: true}
		set(u)
		return u
	}
	email := func(address string) *identity.User { return user(func(u *identity.User) { u.Email = address }) }
	named := func(name string) []any {
		return []any{
			user(func(u *identity.User) { u.Name = name }), &identity.Team{Name: name}, &identity.Account{Name: name, Active: true},
			&identity.Role{Name: name, Label: "x"},
		}
	}
	permitted := func(p ...tenants.Permission) []any {
		return []any{
			user(func(u *identity.User) { u.Permissions = p }), &identity.Role{Name: "writer", Permissions: p},
			&identity.Account{Name: "a" + fmt.Sprint(len(p)), Permissions: p, Active: true},
		}
	}
	inTeams := func(teams ...string) []any {
		return []any{user(func(u *identity.User) { u.Teams = teams }), &identity.Account{Name: "b" + fmt.Sprint(len(teams)), Teams: teams, Active: true}}
	}
	withRoles := func(roles ...string) []any { return []any{user(func(u *identity.User) { u.Roles = roles })} }
	type rule struct {
		records []any
		want    string // fields and codes; of a role's name in front of "|", where that differs
	}
	rules := []rule{
		{named(""), "name:required"},
		{named(" \t"), "name:required|name:format"},
		{named(strings.Repeat("ä", 201)), "name:length"},
		{named("a\x1bb"), "name:format"},
		{named("a\u0085b"), "name:format"},
		{named(strings.Repeat("ä", 200)), "|name:length"},
		{[]any{&identity.Role{Name: "big boss"}, &identity.Role{Name: "1st"}, &identity.Role{Name: "Übung"}}, "name:format"},
		{[]any{&identity.Role{Name: "lead", Label: strings.Repeat("x", 201)}}, "label:length"},
		{[]any{&identity.Role{Name: "lead", Label: "a\nb"}}, "label:format"},
		{[]any{&identity.Role{Name: "lead", Label: " "}}, ""},
		{[]any{&identity.Role{Name: "admin", Label: "Chef"}, &identity.Role{Name: "admin", Permissions: []tenants.Permission{tenants.Contacts}}}, "name:forbidden"},
		{permitted("fly"), "permissions:unknown"},
		{permitted(tenants.Contacts, "fly"), "permissions:unknown"},
		{permitted(tenants.Permission(strings.Repeat("x", 65))), "permissions:length"},
		{permitted(tenants.Contacts, tenants.Contacts), "permissions:duplicate"},
		{permitted(tenants.ManageForms, tenants.Contacts), ""},
		{inTeams(ids(10_000, "%024x")...), "teams:length"},
		{inTeams("north"), "teams:format"},
		{inTeams(""), "teams:required"},
		{inTeams("0000000000000000000000A1"), "teams:format"},
		{inTeams("0000000000000000000000ff"), "teams:unknown"},
		{inTeams("0000000000000000000000a1", "0000000000000000000000a1"), "teams:duplicate"},
		{inTeams("0000000000000000000000a1"), ""},
		{withRoles(ids(201, "r%d")...), "roles:length"},
		{withRoles("boss"), "roles:unknown"},
		{withRoles("editor", "editor"), "roles:duplicate"},
		{withRoles(strings.Repeat("r", 65)), "roles:length"},
		{withRoles("admin", "editor"), ""},
		{[]any{&identity.Team{Meta: store.Meta{ID: "north"}, Name: "x"}}, "id:format"},
		{[]any{&identity.Team{Meta: store.Meta{ID: "0000000000000000000000a2"}, Name: " South "}}, ""},
		{[]any{user(func(u *identity.User) { u.UID = -1 }), user(func(u *identity.User) { u.UID = identity.MaxUID + 1 })}, "id:range"},
		{[]any{email("")}, "email:required"},
		{[]any{email(strings.Repeat("x", 300) + "@example.com")}, "email:length"},
		{[]any{user(func(u *identity.User) { u.UID, u.Email = 8, "GRACE@example.com" })}, "email:duplicate"},
		{[]any{email("ada@exämple.com"), email("ada@[192.0.2.1]"), email("O'Ada+tag@example.com")}, ""},
		{[]any{user(func(u *identity.User) { u.Name, u.Email, u.Permissions = " ", "ada", []tenants.Permission{"fly"} })}, "email:format name:required permissions:unknown"},
	}
	for _, address := range []string{
		"ada", "ada@", "@example.com", "Ada <ada@example.com>", "<ada@example.com>", "a@b@example.com", "a b@example.com", " ada@example.com", "ada@example.com ",
		"ada@example.com\r\nBcc: x@example.com", "ada@example.com, b@example.com", strings.Repeat("ä", 130) + "@example.com",
	} {
		rules = append(rules, rule{[]any{email(address)}, "email:format"})
	}
	n := 0
	for _, r := range rules {
		for _, rec := range r.records {
			want, forRole, differs := strings.Cut(r.want, "|")
			if _, is := rec.(*identity.Role); is && differs {
				want = forRole
			}
			if u, is := rec.(*identity.User); is {
				if n++; u.Email == "-" {
					u.Email = fmt.Sprintf("user%d@example.com", n)
				}
				if u.UID == 0 { // it may be one that is there, too
					was := *u
					u.UID = 7
					same(t, w, acme, want, u, func() error {
						_, err := service.UpdateUser(t.Context(), acme, 7, func(stored *identity.User) error {
							stored.Name, stored.Email, stored.Roles, stored.Permissions, stored.Teams = was.Name, was.Email, was.Roles, was.Permissions, was.Teams
							return nil
						})
						return err
					})
					w.mustLoad(acme, `{"kind":"user","id":7,"name":"Grace","email":"grace@example.com"}`)
					u.UID = 0
				}
			}
			same(t, w, acme, want, rec, func() (err error) {
				switch rec := rec.(type) {
				case *identity.User:
					_, err = service.CreateUser(t.Context(), acme, identity.NewUser{
						UID: rec.UID, Name: rec.Name, Email: rec.Email, Roles: rec.Roles, Permissions: rec.Permissions, Teams: rec.Teams,
					})
				case *identity.Role:
					_, err = service.CreateRole(t.Context(), acme, *rec)
				case *identity.Team:
					_, err = service.CreateTeam(t.Context(), acme, *rec)
				case *identity.Account:
					_, err = service.CreateAccount(t.Context(), acme, *rec)
				}
				return err
			})
		}
	}
}

// same gives one record to an import, which stores nothing, and to the service.
func same(t *testing.T, w *world, acme *tenants.Tenant, want string, rec any, serve func() error) {
	t.Helper()
	name, needed := "", []string{"name"}
	switch rec.(type) {
	case *identity.User:
		name, needed = "user", append(needed, "email")
	case *identity.Role:
		name = "role"
	case *identity.Team:
		name = "team"
	case *identity.Account:
		name = "service_account"
	}
	session, err := w.service.session(acme, nil, false)
	check(t, err)
	line := string(session.named[name].writeLine(nil, rec, false, nil))
	for _, field := range needed {
		if !strings.Contains(line, `"`+field+`":`) {
			line = strings.TrimSuffix(line, "}\n") + `,"` + field + `":""}` + "\n"
		}
	}
	r, err := w.load(acme, line, ImportOptions{DryRun: true})
	var refused *RefusedError
	var faults fault.List
	if errors.As(err, &refused) {
		faults = r.Problems[0].Errors
	} else {
		check(t, err)
	}
	if got := codes(faults); got != want {
		t.Errorf("import: %q, want %q: %.300s", got, want, line)
	}
	err, faults = serve(), nil
	var invalid *fault.Error
	var dup *store.DuplicateError
	switch {
	case errors.As(err, &invalid):
		faults = invalid.Faults
	case errors.As(err, &dup):
		for _, field := range dup.Fields {
			faults.Add(field, fault.Duplicate, "")
		}
	default:
		check(t, err)
	}
	if got := codes(faults); got != want {
		t.Errorf("service: %q, want %q: %.300s", got, want, line)
	}
}

func codes(faults fault.List) string {
	all := make([]string, len(faults))
	for i, f := range faults {
		all[i] = f.Field + ":" + f.Code
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}
