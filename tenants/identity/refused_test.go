package identity_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/tenantstest"
)

// TestInactivePeopleGetNoLinkOrPassword checks that inactive users get no link, that their earlier links are void, and
// that no password is set for them.
func TestInactivePeopleGetNoLinkOrPassword(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	good := secret.New("a password that is long")
	u := create(t, w, tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com"})
	u, err := w.People.Invite(t.Context(), tenant, u.UID, nil)
	if err != nil {
		t.Fatal(err)
	}
	token := u.Invitation.Token.Reveal()
	if _, err := w.People.UpdateUser(t.Context(), tenant, u.UID, func(u *identity.User) error { u.Active = false; return nil }); err != nil {
		t.Fatal(err)
	}
	refusedFor := func(what string, err error) {
		t.Helper()
		if wrong, ok := errors.AsType[*fault.Error](err); !ok || wrong.Faults[0].Field != "id" || wrong.Faults[0].Code != fault.Forbidden {
			t.Errorf(`%s: got %v, want ok and wrong.Faults[0].Field = "id" and %v`, what, err, fault.Forbidden)
		}
	}
	_, err = w.People.Invite(t.Context(), tenant, u.UID, nil)
	refusedFor("an invitation", err)
	_, err = w.People.SignInLink(t.Context(), tenant, u.UID, w.Clock.Now().Add(time.Hour))
	refusedFor("a sign-in link", err)
	if _, err := w.People.Invited(t.Context(), tenant, token); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("Invited by the former link = %v, want ErrDenied", err)
	}
	if _, err := w.People.AcceptInvite(t.Context(), tenant, token, good); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("AcceptInvite of the former link = %v, want ErrDenied", err)
	}
	if _, err := w.People.ReplacePassword(t.Context(), tenant, u, good); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("ReplacePassword = %v, want ErrDenied", err)
	}
}

// TestNewInvitationEndsTheFormer checks that a new invitation voids the former one, even for a caller that has looked
// it up, and that taking the former back does not affect the new one.
func TestNewInvitationEndsTheFormer(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	u := create(t, w, tenant, identity.NewUser{Name: "Ann", Email: "ann@example.com"})
	first, err := w.People.Invite(t.Context(), tenant, u.UID, nil)
	if err != nil {
		t.Fatal(err)
	}
	var anew *identity.User
	var between atomic.Bool
	w.Engine.AfterRead(func(collection string) {
		if collection == "users" && between.CompareAndSwap(false, true) {
			if anew, err = w.People.Invite(t.Context(), tenant, u.UID, nil); err != nil {
				t.Errorf("inviting anew: %v", err)
			}
		}
	})
	good := secret.New("a password that is long")
	if _, err := w.People.AcceptInvite(t.Context(), tenant, first.Invitation.Token.Reveal(), good); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the link before: %v", err)
	}
	w.Engine.AfterRead(nil)
	if anew == nil {
		t.Fatal("the user was not invited in between")
	}
	if err := first.Invitation.TakeBack(t.Context()); !errors.Is(err, store.ErrConflict) {
		t.Errorf("taking the first back: %v", err)
	}
	if _, err := w.People.AcceptInvite(t.Context(), tenant, anew.Invitation.Token.Reveal(), good); err != nil {
		t.Errorf("the new link: %v", err)
	}
}

// TestNamesOfRolesAndTeams checks that names of no role or team, or of several, are refused, and that the built-in role
// cannot be deleted.
func TestNamesOfRolesAndTeams(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	for range 2 {
		if _, err := w.People.CreateTeam(t.Context(), tenant, identity.Team{Name: "Red"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"", "Blue"} {
		if _, err := w.People.Team(t.Context(), tenant, name); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("team %q: %v", name, err)
		}
		if _, err := w.People.Role(t.Context(), tenant, name); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("role %q: %v", name, err)
		}
	}
	if team, err := w.People.Team(t.Context(), tenant, "Red"); !errors.As(err, new(*fault.Error)) {
		t.Errorf("one of two teams of a name: %v, %v", team, err)
	}
	admin, err := w.People.Role(t.Context(), tenant, identity.AdminRole)
	if err != nil {
		t.Fatal(err)
	}
	if wrong, ok := errors.AsType[*fault.Error](w.People.DeleteRole(t.Context(), tenant, admin)); !ok || wrong.Faults[0].Code != fault.Forbidden {
		t.Errorf("deleting the role of administrators: %v", wrong)
	}
}
