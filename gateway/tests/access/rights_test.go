package access

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// TestDeactivationEndsSessions checks that a deactivated person is signed out, even if nothing used the session before
// the person was reactivated.
func TestDeactivationEndsSessions(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers)))
	acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	rights := func(u *control.NewUser) { u.Permissions = []string{"manage_users"} }
	for n, off := range map[string]func(id int64){
		"by its own call": func(id int64) {
			root.Want(t, http.MethodPost, fmt.Sprintf("/api/users/%d/deactivate", id), "", 200, "User deactivated")
		},
		"by a change": func(id int64) {
			root.Want(t, http.MethodPut, fmt.Sprintf("/api/users/%d", id), `{"active":false}`, 200, "User updated")
		},
		"by an import": func(id int64) {
			acme.Import(t, importedUser(id, "Bob", fmt.Sprintf("bob%d@example.com", len("by an import"))))
		},
	} {
		bob, cookie := acme.Person(t, fmt.Sprintf("bob%d@example.com", len(n)), rights)
		asBob := fixture.As(acme, gatewaytest.Cookie(cookie))
		asBob.Want(t, http.MethodGet, "/api/users", "", 200, "")
		off(bob.ID)
		root.Want(t, http.MethodPost, fmt.Sprintf("/api/users/%d/reactivate", bob.ID), "", 200, "User reactivated")
		fixture.WantDenied(t, n, acme.Do(t, http.MethodGet, "/api/users", asBob.As))
		fixture.As(acme, gatewaytest.Cookie(acme.SignIn(t, bob.Email))).Want(t, http.MethodGet, "/api/users", "", 200, "")
	}
}

// TestImportRevokesRightsAtOnce checks that an import revokes rights before it stores the rest, and also if it was
// interrupted in between and is repeated.
func TestImportRevokesRightsAtOnce(t *testing.T) {
	t.Parallel()
	var cut fixture.StoreHook
	g := gatewaytest.Start(t, gatewaytest.Embedded, cut.Option)
	acme := g.Org(t, "acme")
	acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	signedIn := func(email string) (int64, func() *gatewaytest.Answer) {
		u, cookie := acme.Person(t, email, func(u *control.NewUser) { u.Roles = []string{"admin"} })
		ask := func() *gatewaytest.Answer {
			return acme.Do(t, http.MethodGet, "/api/users", gatewaytest.Cookie(cookie))
		}
		if a := ask(); a.Code != 200 {
			t.Fatalf("got %d %s, want 200", a.Code, a.Body)
		}
		return u.ID, ask
	}
	bob, asBob := signedIn("bob@example.com")
	asked := false
	on := func(c store.Call) {
		if c.Operation == "write" && c.Collection == "contacts" {
			cut.On.Store(nil)
			asked = true
			fixture.WantDenied(t, "while the rest is stored", asBob())
		}
	}
	cut.On.Store(&on)
	acme.Import(t, importedUser(bob, "Bob", "bob@example.com"), `{"kind":"contact","first_name":"Ann"}`)
	if !asked {
		t.Error("got no request in between, want one")
	}

	eve, asEve := signedIn("eve@example.com")
	line := gatewaytest.Source([]byte(importedUser(eve, "Eve", "eve@example.com") + "\n"))
	var back func()
	on = func(c store.Call) {
		if c.Operation == "write" && c.Collection == "users" {
			cut.On.Store(nil)
			back = fixture.HideFiles(t, g, "control*") // as if it were killed here
		}
	}
	cut.On.Store(&on)
	tenant := acme.Tenant(t)
	if _, err := g.App.Transfer().Import(t.Context(), tenant, line, bundle.ImportOptions{}); err == nil {
		t.Error("got no error of the import, want that of the announcement")
	}
	back()
	fixture.AwaitWithin(t, "the same file again", time.Minute, func() bool {
		r, err := g.App.Transfer().Import(t.Context(), tenant, line, bundle.ImportOptions{})
		return err == nil && r.Unchanged == 1
	})
	fixture.WantDenied(t, "after the same file again", asEve())
}

// TestRestrictedKeysGrantNothingMore checks that a restricted key grants nobody more than they have, because their
// sessions and other keys need not be restricted.
func TestRestrictedKeysGrantNothingMore(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, gatewaytest.Embedded).Org(t, "acme", tenants.FeatureTeams)
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	red := root.Create(t, "/api/teams", `{"name":"Red"}`)
	other := root.Create(t, "/api/service-accounts", fmt.Sprintf(`{"name":"other","permissions":["contacts"],"teams":[%q]}`, red))
	off := root.Create(t, "/api/service-accounts", `{"name":"off","permissions":["contacts"],"active":false}`)
	root.Create(t, "/api/roles", `{"name":"editor","permissions":["contacts"]}`)
	bob, _ := acme.Person(t, "bob@example.com", func(u *control.NewUser) { u.Permissions = []string{"contacts"} })
	eve, _ := acme.Person(t, "eve@example.com", nil)
	root.Want(t, http.MethodPost, fmt.Sprintf("/api/users/%d/deactivate", eve.ID), "", 200, "")
	account := root.Create(t, "/api/service-accounts", `{"name":"crm","permissions":["manage_users","contacts"]}`)
	key := func(bound string) fixture.Client {
		return fixture.TokenClient(acme, root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q%s}`, account, bound), 200, "token"))
	}
	at := "/api/service-accounts/"
	for _, c := range []struct {
		method, path, body string
		wider              bool
	}{
		{http.MethodPut, at + other, `{"name":"another"}`, false},
		{http.MethodPut, at + other, `{"permissions":["contacts","manage_users"]}`, true},
		{http.MethodPut, at + other, `{"teams":[]}`, true},
		{http.MethodPut, at + off, `{"active":true}`, true},
		{http.MethodPut, "/api/roles/editor", `{"permissions":["contacts","manage_users"]}`, true},
		{http.MethodPut, "/api/roles/editor", `{"permissions":[]}`, false},
		{http.MethodPut, fmt.Sprintf("/api/users/%d", bob.ID), `{"permissions":["contacts","manage_users"]}`, true},
		{http.MethodPut, fmt.Sprintf("/api/users/%d", bob.ID), `{"permissions":[]}`, false},
		{http.MethodPost, fmt.Sprintf("/api/users/%d/reactivate", eve.ID), "", true},
	} {
		for _, bound := range []string{`,"expires_in":3600`, `,"allowed_ips":["127.0.0.0/8","::1"]`} {
			if c.wider {
				key(bound).Want(t, c.method, c.path, c.body, 403, "cannot give more rights")
			} else {
				key(bound).Want(t, c.method, c.path, c.body, 200, "")
			}
		}
		key("").Want(t, c.method, c.path, c.body, 200, "")
	}
}

// TestKeysAreLimitedToTheirCreatorsRights checks that a key without permissions or teams of its own is limited to those
// of its creator, or of the caller who rotated it, whatever its service account gets later.
func TestKeysAreLimitedToTheirCreatorsRights(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := fixture.As(acme, gatewaytest.Cookie(cookie))
	_, cookie = acme.Person(t, "bob@example.com", func(u *control.NewUser) { u.Permissions = []string{"contacts", "manage_keys"} })
	person := fixture.As(acme, gatewaytest.Cookie(cookie))
	red, blue := admin.Create(t, "/api/teams", `{"name":"Red"}`), admin.Create(t, "/api/teams", `{"name":"Blue"}`)
	const held = `"permissions":["contacts","manage_keys"]`
	key := func(by fixture.Client, account string) (string, fixture.Client) {
		a := by.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q}`, account), 200, "token")
		return fmt.Sprint(a.Field("id")), fixture.TokenClient(acme, a)
	}
	for name, widen := range map[string]func(id string){
		"crm": func(id string) {
			admin.Want(t, http.MethodPut, "/api/service-accounts/"+id, `{"permissions":["contacts","manage_keys","manage_forms"]}`, 200, "")
		},
		"erp": func(id string) {
			acme.Import(t, `{"kind":"service_account","id":"`+id+`","name":"erp","permissions":["contacts","manage_keys","manage_forms"]}`)
		},
	} {
		account := admin.Create(t, "/api/service-accounts", `{"name":"`+name+`",`+held+`}`)
		_, lesser := key(admin, admin.Create(t, "/api/service-accounts", `{"name":"lesser of `+name+`",`+held+`}`))
		_, full := key(admin, account)
		_, ofKey := key(lesser, account)
		_, ofPerson := key(person, account)
		rotated, _ := key(admin, account)
		byLesser := fixture.TokenClient(acme, lesser.Want(t, http.MethodPost, "/api/keys/"+rotated+"/rotate", `{}`, 200, held))
		widen(account)
		full.Want(t, http.MethodGet, "/api/form/collections", "", 200, "")
		for who, one := range map[string]fixture.Client{"a key's": ofKey, "a person's": ofPerson, "a rotated one": byLesser} {
			one.Want(t, http.MethodGet, "/api/contacts", "", 200, "")
			if a := acme.Do(t, http.MethodGet, "/api/form/collections", one.As); a.Code != http.StatusForbidden {
				t.Errorf("%s, %s: it gained manage_forms: got %d %s, want 403", name, who, a.Code, a.Body)
			}
		}
	}
	_, limited := key(admin, admin.Create(t, "/api/service-accounts", fmt.Sprintf(`{"name":"red",%s,"teams":[%q]}`, held, red)))
	account := admin.Create(t, "/api/service-accounts", fmt.Sprintf(`{"name":"sees",%s,"teams":[%q]}`, held, red))
	id, _ := key(limited, account)
	admin.Want(t, http.MethodPut, "/api/service-accounts/"+account, fmt.Sprintf(`{"teams":[%q,%q]}`, red, blue), 200, "")
	admin.Want(t, http.MethodGet, "/api/keys/"+id, "", 200, fmt.Sprintf(`"teams":[%q]`, red))
}

// TestRotationAddsNoRights checks that a key's own permissions count when it is rotated, even while its service
// account lacks them.
func TestRotationAddsNoRights(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := fixture.As(acme, gatewaytest.Cookie(cookie))
	red, blue := admin.Create(t, "/api/teams", `{"name":"Red"}`), admin.Create(t, "/api/teams", `{"name":"Blue"}`)
	for name, c := range map[string]struct{ wide, narrow, manager, says string }{
		"permissions": {`"permissions":["contacts","manage_forms"]`, `"permissions":["contacts"]`, "", "the caller lacks manage_forms"},
		"teams":       {fmt.Sprintf(`"permissions":["contacts"],"teams":[%q,%q]`, red, blue), fmt.Sprintf(`"teams":[%q]`, red), red, "teams must be named"},
	} {
		account := admin.Create(t, "/api/service-accounts", fmt.Sprintf(`{"name":%q,%s}`, name, c.wide))
		key := admin.Create(t, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q,%s}`, account, c.wide))
		limited := func(held *[]string) {
			if c.manager != "" {
				*held = []string{c.manager}
			}
		}
		_, cookie := acme.Person(t, name+"@example.com", func(u *control.NewUser) {
			u.Permissions = []string{"contacts", "manage_keys"}
			limited(&u.Teams)
		})
		managers := []fixture.Client{
			fixture.As(acme, gatewaytest.Cookie(cookie)),
			fixture.As(acme, gatewaytest.WithKey(acme.KeyWith(t, func(k *control.NewKey) {
				k.Permissions = []string{"contacts", "manage_keys"}
				limited(&k.Teams)
			}).Token)),
		}
		admin.Want(t, http.MethodPut, "/api/service-accounts/"+account, "{"+c.narrow+"}", 200, "")
		for _, manager := range managers {
			manager.Want(t, http.MethodPost, "/api/keys/"+key+"/rotate", `{}`, 422, c.says)
			manager.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q,%s}`, account, c.wide), 422, "")
		}
		admin.Want(t, http.MethodPost, "/api/keys/"+key+"/rotate", `{}`, 200, c.wide[strings.LastIndex(c.wide, `,"teams"`)+1:])
	}
}

// importedUser returns a line that removes all rights of a user.
func importedUser(id int64, name, email string) string {
	return fmt.Sprintf(`{"kind":"user","id":%d,"name":%q,"email":%q,"roles":[],"permissions":["manage_users"],"active":false}`, id, name, email)
}
