package identity_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/internal/maintest"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/tenantstest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

func create(t *testing.T, w *tenantstest.World, tenant *tenants.Tenant, n identity.NewUser) *identity.User {
	t.Helper()
	u, err := w.People.CreateUser(t.Context(), tenant, n)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func rev(t *testing.T, w *tenantstest.World) int64 {
	t.Helper()
	return w.Fresh(t, "acme").Org.AccessRev
}

func TestNumbersOfUsers(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	a, b := w.Tenant(t, "acme"), w.Tenant(t, "b")
	if u := create(t, w, a, identity.NewUser{Name: "A", Email: "a@example.com"}); u.UID != 1 || !u.Active {
		t.Errorf("first user %+v", u)
	}
	if u := create(t, w, a, identity.NewUser{UID: 40, Name: "B", Email: "b@example.com"}); u.UID != 40 {
		t.Errorf("kept number %d", u.UID)
	}
	if u := create(t, w, a, identity.NewUser{Name: "C", Email: "c@example.com"}); u.UID != 41 {
		t.Errorf("number after an imported one: %d", u.UID)
	}
	if u := create(t, w, b, identity.NewUser{Name: "A", Email: "a@example.com"}); u.UID != 1 {
		t.Errorf("first user of another organization has number %d", u.UID)
	}
	var dup *store.DuplicateError
	if _, err := w.People.CreateUser(t.Context(), a, identity.NewUser{UID: 40, Name: "D", Email: "d@example.com"}); !errors.As(err, &dup) || !slices.Equal(dup.Fields, []string{"id"}) {
		t.Errorf("a number in use: %v", err)
	}
	if _, err := w.People.FindUser(t.Context(), b, 40); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a foreign user: %v", err)
	}
	found, total, err := w.People.Users(t.Context(), a, identity.Page{Limit: 2, Offset: 1})
	if err != nil || total != 3 || len(found) != 2 || found[0].UID != 40 {
		t.Errorf("listed %d of %d, %v", len(found), total, err)
	}
}

func TestNumbersOfUsersDoNotRunOut(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	var invalid *fault.Error
	if _, err := w.People.CreateUser(t.Context(), tenant, identity.NewUser{UID: identity.MaxUID + 1, Name: "A", Email: "a@example.com"}); !errors.As(err, &invalid) {
		t.Errorf("a number that is too large: %v", err)
	}
	create(t, w, tenant, identity.NewUser{UID: identity.MaxUID, Name: "B", Email: "b@example.com"})
	u := create(t, w, tenant, identity.NewUser{Name: "C", Email: "c@example.com"})
	if u.UID != identity.MaxUID+1 {
		t.Errorf("the number after the largest that can be given: %d", u.UID)
	}
	if _, err := w.People.UpdateUser(t.Context(), tenant, u.UID, func(u *identity.User) error { u.Name = "D"; return nil }); err != nil {
		t.Errorf("changing that user: %v", err)
	}
	if _, err := tenant.People().Counter(t.Context(), "users", 0, 1<<53-1); err != nil {
		t.Fatal(err)
	}
	if u, err := w.People.CreateUser(t.Context(), tenant, identity.NewUser{Name: "E", Email: "e@example.com"}); err == nil {
		t.Errorf("created user %d, want an error, because JSON decoders round that number", u.UID)
	}
}

func TestParallelCreatesOfOneAddressMakeOne(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	var made, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		email := []string{"ann@example.com", "Ann@Example.COM"}[i%2]
		wg.Go(func() {
			_, err := w.People.CreateUser(t.Context(), tenant, identity.NewUser{Name: "Ann", Email: email})
			var dup *store.DuplicateError
			switch {
			case err == nil:
				made.Add(1)
			case errors.As(err, &dup) && slices.Equal(dup.Fields, []string{"email"}):
				refused.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made.Load() != 1 || refused.Load() != 31 {
		t.Errorf("%d made, %d refused", made.Load(), refused.Load())
	}
}

func TestEveryFaultOfAUserIsNamed(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	_, err := w.People.CreateUser(t.Context(), tenant, identity.NewUser{
		UID: -1, Name: "a\x00b", Email: "Ann <ann@example.com>", Roles: []string{"admin", "nobody"},
		Permissions: []tenants.Permission{"fly"}, Teams: []string{strings.Repeat("a", 24)},
	})
	var invalid *fault.Error
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	var got []string
	for _, f := range invalid.Faults {
		got = append(got, f.Field)
	}
	if want := []string{"id", "name", "email", "permissions", "roles", "teams"}; !slices.Equal(got, want) {
		t.Errorf("faults of %v, want %v", got, want)
	}
	for _, email := range []string{"", "ann", "ann@", "@example.com", "a@b@c", "ann@example.com\r\nBcc: x@y.z", "a b@example.com", strings.Repeat("a", 250) + "@example.com"} {
		if _, err := w.People.CreateUser(t.Context(), tenant, identity.NewUser{Name: "A", Email: email}); !errors.As(err, &invalid) {
			t.Errorf("address %q: %v", email, err)
		}
	}
}

func TestEffectivePermissionsAndPrincipal(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme", tenants.FeatureTeams)
	team, err := w.People.CreateTeam(t.Context(), tenant, identity.Team{Name: "Red"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: "editor", Label: "Editor", Permissions: []tenants.Permission{tenants.ManageForms}}); err != nil {
		t.Fatal(err)
	}
	u := create(t, w, tenant, identity.NewUser{
		Name: "Ann", Email: "ann@example.com", Roles: []string{"editor"}, Permissions: []tenants.Permission{tenants.ViewUsers}, Teams: []string{team.ID},
	})
	p, err := w.People.PrincipalOf(t.Context(), tenant, u)
	if err != nil {
		t.Fatal(err)
	}
	if want := []tenants.Permission{tenants.ManageForms, tenants.ViewUsers}; !slices.Equal(p.Permissions, want) || p.IsAdmin() || !slices.Equal(p.Teams, u.Teams) {
		t.Errorf("principal %+v", p)
	}
	u, err = w.People.UpdateUser(t.Context(), tenant, u.UID, func(u *identity.User) error {
		u.Roles = append(u.Roles, identity.AdminRole)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	p, err = w.People.PrincipalOf(t.Context(), tenant, u)
	if err != nil || !p.IsAdmin() || !slices.Equal(p.Permissions, tenants.AllPermissions()) || p.Teams != nil {
		t.Errorf("administrator %+v, %v", p, err)
	}
	u.Active = false
	if _, err := w.People.PrincipalOf(t.Context(), tenant, u); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("inactive: %v", err)
	}
}

// TestPermissionsOfManyUsersAreSeparate checks that users looked up together do not get permissions of each other's
// roles.
func TestPermissionsOfManyUsersAreSeparate(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	for name, permission := range map[string]tenants.Permission{"editor": tenants.ManageForms, "reader": tenants.ViewUsers} {
		if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: name, Permissions: []tenants.Permission{permission}}); err != nil {
			t.Fatal(err)
		}
	}
	users := []*identity.User{
		create(t, w, tenant, identity.NewUser{Name: "A", Email: "a@example.com", Roles: []string{"editor"}}),
		create(t, w, tenant, identity.NewUser{Name: "B", Email: "b@example.com", Roles: []string{"reader"}}),
		create(t, w, tenant, identity.NewUser{Name: "C", Email: "c@example.com", Permissions: []tenants.Permission{tenants.Contacts}}),
	}
	got, err := w.People.Permissions(t.Context(), tenant, users)
	if err != nil || len(got) != len(users) {
		t.Fatalf("got %v, %v, want no error and len(got) = %v", got, err, len(users))
	}
	for i, want := range []tenants.Permission{tenants.ManageForms, tenants.ViewUsers, tenants.Contacts} {
		if !slices.Equal(got[i], []tenants.Permission{want}) {
			t.Errorf("%s holds %v, want only %s", users[i].Name, got[i], want)
		}
	}
}

func TestAccessRevisionGrowsWithRightsOnly(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	u := create(t, w, tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com"})
	edit := func(change func(*identity.User)) func() error {
		return func() error {
			_, err := w.People.UpdateUser(t.Context(), tenant, u.UID, func(u *identity.User) error { change(u); return nil })
			return err
		}
	}
	role := func(label string, permissions ...tenants.Permission) func() error {
		return func() error {
			_, err := w.PutRole(t.Context(), tenant, identity.Role{Name: "editor", Label: label, Permissions: permissions})
			return err
		}
	}
	for _, step := range []struct {
		name  string
		do    func() error
		grows bool
	}{
		{"name", edit(func(u *identity.User) { u.Name = "Bea" }), false},
		{"nothing, as where a change is repeated", edit(func(*identity.User) {}), true},
		{"permission", edit(func(u *identity.User) { u.Permissions = []tenants.Permission{tenants.ViewUsers} }), true},
		{"the same permission", edit(func(u *identity.User) { u.Permissions = []tenants.Permission{tenants.ViewUsers} }), true},
		{"new role", role("Editor", tenants.ManageForms), false},
		{"same role", role("Editor", tenants.ManageForms), true},
		{"changed role", role("Editor", tenants.ManageFiles), true},
		{"activity", edit(func(u *identity.User) { u.Active = false }), true},
	} {
		before := rev(t, w)
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if grew := rev(t, w) > before; grew != step.grows {
			t.Errorf("%s: grew %v, want %v", step.name, grew, step.grows)
		}
	}
}

// TestRepeatedChangeIsAnnounced checks that repeating a change announces it if the store failed between the change and
// its announcement.
func TestRepeatedChangeIsAnnounced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*testing.T, *tenantstest.World, *tenants.Tenant, *identity.User, *identity.Account) error{
		"user": func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, u *identity.User, _ *identity.Account) error {
			_, err := w.People.UpdateUser(t.Context(), a, u.UID, func(u *identity.User) error { u.Roles = nil; return nil })
			return err
		},
		"deactivated user": func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, u *identity.User, _ *identity.Account) error {
			_, err := w.People.Deactivate(t.Context(), a, u.UID, nil)
			return err
		},
		"account": func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, _ *identity.User, account *identity.Account) error {
			_, err := w.People.UpdateAccount(t.Context(), a, account, func(a *identity.Account) error { a.Permissions = nil; return nil })
			return err
		},
		"deactivated account": func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, _ *identity.User, account *identity.Account) error {
			_, err := w.People.UpdateAccount(t.Context(), a, account, inactive)
			return err
		},
		"role": func(t *testing.T, w *tenantstest.World, a *tenants.Tenant, _ *identity.User, _ *identity.Account) error {
			_, err := w.PutRole(t.Context(), a, identity.Role{Name: "editor"})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tenantstest.New(t, tenantstest.Options{})
			tenant := w.Tenant(t, "acme")
			if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: "editor", Permissions: []tenants.Permission{tenants.ManageForms}}); err != nil {
				t.Fatal(err)
			}
			u := create(t, w, tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com", Roles: []string{"editor"}})
			account, err := w.People.CreateAccount(t.Context(), tenant, identity.Account{Name: "crm", Permissions: []tenants.Permission{tenants.Contacts}})
			if err != nil {
				t.Fatal(err)
			}
			before := rev(t, w)
			w.Engine.AfterRead(func(collection string) {
				if collection == "organizations" {
					w.Engine.SetDown(true)
				}
			})
			if err := change(t, w, tenant, u, account); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("the change whose announcement fails = %v, want ErrUnavailable", err)
			}
			w.Engine.AfterRead(nil)
			w.Engine.SetDown(false)
			if err := change(t, w, tenant, u, account); err != nil {
				t.Fatal(err)
			}
			if after := rev(t, w); after <= before {
				t.Errorf("access revision %d after the repetition, want above %d", after, before)
			}
		})
	}
}

func TestInvitationWorksOnce(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	other := w.Tenant(t, "other")
	u := create(t, w, tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com"})
	invited, err := w.People.Invite(t.Context(), tenant, u.UID, nil)
	if err != nil || invited.Invitation.ExpiresAt.Sub(w.Clock.Now()) < 71*time.Hour {
		t.Fatal(invited, err)
	}
	token := invited.Invitation.Token
	good := secret.New("a password that is long")
	if stored, err := w.People.FindUser(t.Context(), tenant, u.UID); err != nil || strings.Contains(fmt.Sprint(*stored), token.Reveal()) {
		t.Errorf("the token is stored: %v", err)
	}
	if _, err := w.People.AcceptInvite(t.Context(), other, token.Reveal(), good); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("in another organization: %v", err)
	}
	var invalid *fault.Error
	if _, err := w.People.AcceptInvite(t.Context(), tenant, token.Reveal(), secret.New("short")); !errors.As(err, &invalid) {
		t.Errorf("a short password: %v", err)
	}
	var accepted, denied atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			_, err := w.People.AcceptInvite(t.Context(), tenant, token.Reveal(), good)
			switch {
			case err == nil:
				accepted.Add(1)
			case errors.Is(err, tenants.ErrDenied):
				denied.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if accepted.Load() != 1 || denied.Load() != 7 {
		t.Errorf("accepted %d times, denied %d times", accepted.Load(), denied.Load())
	}
	now, err := w.People.FindUser(t.Context(), tenant, u.UID)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := w.People.VerifyPassword(t.Context(), tenant, now, good); err != nil || !ok {
		t.Errorf("the password: %v, %v", ok, err)
	}

	late, err := w.People.Invite(t.Context(), tenant, u.UID, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(identity.InviteLifetime)
	if _, err := w.People.AcceptInvite(t.Context(), tenant, late.Invitation.Token.Reveal(), good); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("after 72 hours: %v", err)
	}
}

func TestAdminRoleIsBuiltIn(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	var invalid *fault.Error
	if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: identity.AdminRole, Label: identity.AdminLabel, Permissions: []tenants.Permission{tenants.Contacts}}); !errors.As(err, &invalid) {
		t.Errorf("less of an administrator: %v", err)
	}
	if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: identity.AdminRole, Label: identity.AdminLabel, Permissions: tenants.AllPermissions()}); err != nil {
		t.Errorf("the role as it is: %v", err)
	}
	if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: identity.AdminRole, Label: "Boss", Permissions: tenants.AllPermissions()}); !errors.As(err, &invalid) {
		t.Errorf("an administrator by another label: %v", err)
	}
	roles, err := w.People.Roles(t.Context(), tenant)
	if err != nil || len(roles) != 1 || roles[0].Label != identity.AdminLabel || len(roles[0].Permissions) != len(tenants.AllPermissions()) {
		t.Errorf("roles %+v, %v", roles, err)
	}
	if _, err := w.PutRole(t.Context(), tenant, identity.Role{Name: "Bad Name", Permissions: []tenants.Permission{"fly"}}); !errors.As(err, &invalid) || len(invalid.Faults) != 2 {
		t.Errorf("faults of a role: %v", err)
	}
}

func TestTeamsKeepTheirID(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	team, err := w.People.CreateTeam(t.Context(), tenant, identity.Team{Name: "Red"})
	if err != nil {
		t.Fatal(err)
	}
	id := team.ID
	for _, name := range []string{"Red", "Crimson"} {
		team, err = w.People.UpdateTeam(t.Context(), tenant, team, func(team *identity.Team) error {
			team.ID, team.Name = "65f000000000000000000001", name
			return nil
		})
		if err != nil || team.ID != id || team.Name != name {
			t.Fatalf("got %v, %v, want no error and team.ID = %v and team.Name = %v", team, err, id, name)
		}
	}
	teams, err := w.People.Teams(t.Context(), tenant)
	if err != nil || len(teams) != 1 || teams[0].Name != "Crimson" {
		t.Errorf("teams %+v, %v", teams, err)
	}
}

func inactive(a *identity.Account) error {
	a.Active = false
	return nil
}

// TestLastAdministratorCannotBeRemoved covers an administrator whose creation is undone after another one was
// deactivated, and one with two concurrent changes of which one fails.
func TestLastAdministratorCannotBeRemoved(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	admin := func(name string) *identity.User {
		return create(t, w, tenant, identity.NewUser{Name: name, Email: name + "@example.com", Roles: []string{identity.AdminRole}})
	}
	a, b := admin("a"), admin("b")
	if _, err := w.People.Deactivate(t.Context(), tenant, a.UID, nil); err != nil {
		t.Fatal(err)
	}
	var faults *fault.Error
	if err := b.Invitation.TakeBack(t.Context()); !errors.As(err, &faults) {
		t.Errorf("TakeBack of the last administrator = %v, want a fault", err)
	}
	c := admin("c")
	if err := c.Invitation.TakeBack(t.Context()); err != nil {
		t.Errorf("TakeBack of one of two administrators = %v, want no error", err)
	}

	d := admin("d")
	err := identity.KeepAdmin(t.Context(), w.Directory, w.Kinds.People, tenant, b.UID, time.Now(), func() error {
		hungUp := errors.New("hung up")
		if err := identity.KeepAdmin(t.Context(), w.Directory, w.Kinds.People, tenant, b.UID, time.Now(), func() error { return hungUp }); !errors.Is(err, hungUp) {
			t.Errorf("a concurrent change of the same administrator = %v, want %v", err, hungUp)
		}
		if _, err := w.People.Deactivate(t.Context(), tenant, d.UID, nil); !errors.As(err, &faults) {
			t.Errorf("Deactivate of the other administrator = %v, want a fault", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if left := w.Fresh(t, "acme").Org.Leaving; len(left) != 0 {
		t.Errorf("notes are left: %v, want none", left)
	}
}

// TestNewRoleCannotTakeAHeldName checks that a role cannot be created with the name of a lost role that a user still
// holds.
func TestNewRoleCannotTakeAHeldName(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	role, err := w.People.CreateRole(t.Context(), tenant, identity.Role{Name: "editor"})
	if err != nil {
		t.Fatal(err)
	}
	create(t, w, tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com", Roles: []string{"editor"}})
	if err := w.Kinds.People.Roles.In(tenant.People()).Delete(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	_, err = w.People.CreateRole(t.Context(), tenant, identity.Role{Name: "editor", Permissions: []tenants.Permission{tenants.ManageUsers}})
	if refused, ok := errors.AsType[*fault.Error](err); !ok || refused.Faults[0].Field != "name" {
		t.Errorf("CreateRole = %v, want a fault of name", err)
	}
}

// TestLinkUsedBetweenCheckAndWriteIsRefused checks that a single-use link is checked again within the write, because
// another caller may use it after the first check.
func TestLinkUsedBetweenCheckAndWriteIsRefused(t *testing.T) {
	t.Parallel()
	for name, use := range map[string]func(*testing.T, *tenantstest.World, *tenants.Tenant, string) error{
		"invitation": func(t *testing.T, w *tenantstest.World, tenant *tenants.Tenant, token string) error {
			_, err := w.People.AcceptInvite(t.Context(), tenant, token, secret.New("a password that is long"))
			return err
		},
		"sign-in link": func(t *testing.T, w *tenantstest.World, tenant *tenants.Tenant, token string) error {
			_, err := w.People.UseSignInLink(t.Context(), tenant, token)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := tenantstest.New(t, tenantstest.Options{})
			tenant := w.Tenant(t, "acme")
			u := create(t, w, tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com"})
			var token string
			if name == "invitation" {
				invited, err := w.People.Invite(t.Context(), tenant, u.UID, nil)
				if err != nil {
					t.Fatal(err)
				}
				token = invited.Invitation.Token.Reveal()
			} else {
				link, err := w.People.SignInLink(t.Context(), tenant, u.UID, w.Clock.Now().Add(time.Hour))
				if err != nil {
					t.Fatal(err)
				}
				token = link.Reveal()
			}
			var first atomic.Bool
			w.Engine.AfterRead(func(collection string) {
				if collection == "users" && first.CompareAndSwap(false, true) {
					if err := use(t, w, tenant, token); err != nil {
						t.Errorf("the caller in between: %v", err)
					}
				}
			})
			if err := use(t, w, tenant, token); !errors.Is(err, tenants.ErrDenied) {
				t.Errorf("the caller who looked before it was used: %v, want %v", err, tenants.ErrDenied)
			}
			if !first.Load() {
				t.Error("nobody came in between")
			}
		})
	}
}
