package access

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// TestLastAdministratorIsKept checks that neither commands nor an import remove the last active
// administrator, and that of two removed concurrently one stays.
func TestLastAdministratorIsKept(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	make := func(email string) int64 {
		u, err := control.Call[control.User](t.Context(), acme.Commands, "user.create", control.NewUser{Org: acme.Slug, UserFields: control.UserFields{Name: email, Email: email, Roles: []string{"admin"}}})
		if err != nil {
			t.Fatal(err)
		}
		return u.ID
	}
	ref := func(id int64) control.UserRef {
		return control.UserRef{Org: acme.Slug, User: strconv.FormatInt(id, 10)}
	}
	none := []string{}
	demote := func(id int64) error {
		_, err := control.Call[control.User](t.Context(), acme.Commands, "user.update", control.UserChange{UserRef: ref(id), UserFields: control.UserFields{Roles: none}})
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "last active administrator") {
			t.Errorf(`%s: got %v, want an error and containing "last active administrator"`, what, err)
		}
	}
	ada := make("ada@example.com")
	_, err := control.Call[control.User](t.Context(), acme.Commands, "user.deactivate", ref(ada))
	refused("deactivating", err)
	refused("demoting", demote(ada))
	line := `{"kind":"user","id":` + strconv.FormatInt(ada, 10) + `,"name":"Ada","email":"ada@example.com","roles":[],"active":true}` + "\n"
	report, err := acme.App.Transfer().Import(t.Context(), acme.Tenant(t), gatewaytest.Source([]byte(line)), bundle.ImportOptions{})
	if refused := new(bundle.RefusedError); !errors.As(err, &refused) || report.Failed != 1 || !strings.Contains(fmt.Sprint(report.Problems), "last active administrator") {
		t.Errorf("importing: got %v %+v, want a refusal, Failed 1 and with %q",
			err, report, "last active administrator")
	}
	for range 5 {
		bob := make("bob" + acme.App.Store().NewID() + "@example.com")
		var both sync.WaitGroup
		errs := [2]error{}
		for i, id := range []int64{ada, bob} {
			both.Go(func() { errs[i] = demote(id) })
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) {
			t.Fatalf("two at once: got %v and %v, want exactly one error", errs[0], errs[1])
		}
		if errs[0] == nil { // the one who stayed is the next round's first
			ada = bob
		}
	}
}

// TestImportKeepsAnAdministrator checks that an import is judged by the result of all its lines, in any order.
func TestImportKeepsAnAdministrator(t *testing.T) {
	t.Parallel()
	user := func(id int, roles string, active bool) string {
		return fmt.Sprintf(`{"kind":"user","id":%d,"name":"P%[1]d","email":"p%[1]d@example.com","roles":[%s],"active":%t}`, id, roles, active)
	}
	admin, before := `"admin"`, []string{user(1, `"admin"`, true), user(2, `"admin"`, true), user(3, ``, true)}
	for _, test := range []struct {
		name    string
		bundle  []string
		refused []int // lines; none: the bundle is taken
	}{
		{name: "demoted, then another made", bundle: []string{user(1, ``, true), user(2, ``, true), user(3, admin, true)}},
		{name: "another made, then demoted", bundle: []string{user(3, admin, true), user(1, ``, true), user(2, admin, false)}},
		{name: "a new one is made", bundle: []string{user(1, ``, false), user(2, ``, true), user(4, admin, true)}},
		{name: "one stays who is not named", bundle: []string{user(2, ``, true)}},
		{name: "one stays who is named", bundle: []string{user(2, ``, true), user(1, admin, true)}},
		{name: "all demoted", bundle: []string{user(3, ``, true), user(1, ``, true), user(2, ``, true)}, refused: []int{2, 3}},
		{name: "all deactivated", bundle: []string{user(1, admin, false), user(2, admin, false)}, refused: []int{1, 2}},
		{name: "another made who is not active", bundle: []string{user(1, ``, true), user(3, admin, false), user(2, ``, true)}, refused: []int{1, 3}},
		{name: "a new one whose line is refused", bundle: []string{user(1, ``, true), user(2, ``, true), `{"kind":"user","id":4,"name":"P4","email":"nobody","roles":["admin"],"active":true}`}, refused: []int{1, 2, 3}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			acme := gatewaytest.Start(t).Org(t, "acme")
			acme.Import(t, before...)
			stored := fixture.Export(t, acme)
			for _, dry := range []bool{true, false} {
				r, err := acme.App.Transfer().Import(t.Context(), acme.Tenant(t), gatewaytest.Source([]byte(strings.Join(test.bundle, "\n"))), bundle.ImportOptions{DryRun: dry})
				var lines []int
				for _, p := range r.Problems {
					lines = append(lines, p.Line)
				}
				if refused := new(bundle.RefusedError); !slices.Equal(lines, test.refused) || errors.As(err, &refused) != (len(lines) > 0) || len(lines) == 0 && err != nil {
					t.Errorf("dry %t: lines %v are refused, want %v: %v %+v", dry, lines, test.refused, err, r.Problems)
				}
				if changed := fixture.Export(t, acme) != stored; changed != (!dry && test.refused == nil) {
					t.Errorf("dry %[1]t: changed = %[2]t, want %[3]t", dry, changed, !dry && test.refused == nil)
				}
			}
		})
	}
}

// TestCommandsAreNotPublic checks that no key and no session can run a command through the public listener.
func TestCommandsAreNotPublic(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	_, cookie := acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	for _, g := range new(control.Server).Groups() {
		for _, c := range g.Commands {
			for _, with := range []gatewaytest.Request{gatewaytest.WithKey(key), func(r *http.Request) { r.AddCookie(cookie) }} {
				if a := acme.Do(t, http.MethodPost, c.Row.Path, with, gatewaytest.JSON(map[string]string{"slug": acme.Slug})); a.Code != http.StatusNotFound {
					t.Errorf("%s: got %d %s, want %v", c.Row.Path, a.Code, a.Body, http.StatusNotFound)
				}
			}
		}
	}
}

// TestServiceAccountsRolesAndTeams creates, changes, shows and deletes them with commands, and checks the effect on
// keys and the audit records.
func TestServiceAccountsRolesAndTeams(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	c, ctx := acme.Commands, t.Context()
	ref := func(name string) control.Ref { return control.Ref{Org: acme.Slug, ID: name} }
	account, err := control.Call[control.Account](ctx, c, "account.create", control.NewAccount{
		New: control.New{Org: acme.Slug, Name: "crm"}, AccountFields: control.AccountFields{Permissions: []string{"manage_forms"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	issue := func(permissions ...string) (control.IssuedKey, error) {
		return control.Call[control.IssuedKey](ctx, c, "key.create", control.NewKey{Org: acme.Slug, Name: "k", Kind: "server_full", Account: "crm", Permissions: permissions})
	}
	if _, err := issue("contacts"); err == nil || !strings.Contains(err.Error(), "lacks contacts; it has manage_forms") {
		t.Errorf("a key beyond its account: got %v, want an error with %q", err, "lacks contacts; it has manage_forms")
	}
	made, err := issue("manage_forms")
	if err != nil {
		t.Fatal(err)
	}
	keys := func() control.Key {
		t.Helper()
		found, err := control.Call[[]control.Key](ctx, c, "key.list", control.Page{Org: acme.Slug})
		if err != nil || len(found) != 1 {
			t.Fatalf("got %v %+v, want no error and len(found) = 1", err, found)
		}
		return found[0]
	}
	if k := keys(); k.LastUsedAt != nil || len(k.Effective) != 1 || k.Effective[0] != "manage_forms" {
		t.Errorf("before its use: got %+v, want LastUsedAt nil, 1 Effective and Effective[0] manage_forms", k)
	}
	const path = "/api/form/collections/schema"
	if a := acme.Get(t, made.Token, path); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	if k := keys(); k.LastUsedAt == nil {
		t.Errorf("after its use: got %+v, want LastUsedAt set", k)
	}
	if _, err := control.Call[control.Account](ctx, c, "account.update", control.AccountChange{TeamChange: control.TeamChange{Ref: ref("crm")}, AccountFields: control.AccountFields{Permissions: []string{}}}); err != nil {
		t.Error(err)
	}
	if a := acme.Get(t, made.Token, path); a.Code != http.StatusForbidden || !strings.Contains(a.Text(), "Lacking") {
		t.Errorf("after its account lost the permission: got %d %s, want 403 with Lacking", a.Code, a.Body)
	}
	if gone, err := control.Call[control.Deleted](ctx, c, "account.delete", ref(account.ID)); err != nil || gone.Keys != 1 {
		t.Errorf("got %+v %v, want no error and gone.Keys = 1", gone, err)
	}
	if a, err := control.Call[control.Account](ctx, c, "account.show", ref(account.ID)); err == nil {
		t.Errorf("the deleted account is there: got %+v, want an error", a)
	}
	if k := keys(); k.State != "revoked" {
		t.Errorf("the key of a deleted account: got %+v, want State revoked", k)
	}
	if a := acme.Get(t, made.Token, path); a.Text() != fixture.DeniedBody {
		t.Errorf("the key of a deleted account: got %d %s, want the text %q", a.Code, a.Body, fixture.DeniedBody)
	}

	if _, err := control.Call[control.Role](ctx, c, "role.create", control.NewRole{New: control.New{Org: acme.Slug, Name: "editor"}, RoleFields: control.RoleFields{Permissions: []string{"manage_forms"}}}); err != nil {
		t.Fatal(err)
	}
	team, err := control.Call[control.Team](ctx, c, "team.create", control.New{Org: acme.Slug, Name: "North"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := control.Call[control.User](ctx, c, "user.create", control.NewUser{Org: acme.Slug, UserFields: control.UserFields{Name: "Ed", Email: "ed@example.com", Roles: []string{"editor"}, Teams: []string{team.ID}}})
	if err != nil {
		t.Fatal(err)
	}
	acme.Import(t, `{"kind":"contact","email":"a@example.com","teams":["`+team.ID+`"]}`)
	if _, err := control.Call[control.Account](ctx, c, "account.create", control.NewAccount{New: control.New{Org: acme.Slug, Name: "northern"}, AccountFields: control.AccountFields{Teams: []string{team.ID}}}); err != nil {
		t.Fatal(err)
	}
	for _, use := range []struct{ kind, name, want string }{
		{"role", "editor", "held by user 1"}, {"team", "North", "it limits user 1"}, {"team", "North", "it limits service accounts (1)"}, {"team", "North", "records belong to it (1"},
	} {
		if _, err := control.Call[control.Deleted](ctx, c, use.kind+".delete", ref(use.name)); err == nil || !strings.Contains(err.Error(), use.want) {
			t.Errorf("a %s in use, %s: %v", use.kind, use.want, err)
		}
	}
	none := []string{}
	if _, err := control.Call[control.User](ctx, c, "user.update", control.UserChange{UserRef: control.UserRef{Org: acme.Slug, User: strconv.FormatInt(u.ID, 10)}, UserFields: control.UserFields{Roles: none}}); err != nil {
		t.Error(err)
	}
	if _, err := control.Call[control.Deleted](ctx, c, "role.delete", ref("editor")); err != nil {
		t.Error(err)
	}
	seen := map[string]bool{}
	for _, r := range fixture.AuditLog(t, acme) {
		seen[r.Operation] = true
	}
	for _, want := range []string{"account.create", "account.update", "account.delete", "role.create", "role.delete", "team.create", "key.create"} {
		if !seen[want] {
			t.Errorf("the audit log has no %s", want)
		}
	}
}
