package access

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestInvitationEndsWhenThePersonGainsRights checks that an invitation ends when the person gets more rights or
// another address, because its creator holds a link to the person's account.
func TestInvitationEndsWhenThePersonGainsRights(t *testing.T) {
	t.Parallel()
	org := gatewaytest.Start(t).Org(t, "acme")
	_, admin := org.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	lesser := gatewaytest.WithKey(org.Key(t, tenants.ManageUsers, tenants.Contacts))
	call := func(as gatewaytest.Request, method, path, body string, code int) *gatewaytest.Answer {
		t.Helper()
		a := org.Do(t, method, path, as, gatewaytest.Body("application/json", body))
		if a.Code != code {
			t.Errorf("%s %s %s: %d %s, want %d", method, path, body, a.Code, a.Body, code)
		}
		return a
	}
	boss, nobody := gatewaytest.Cookie(admin), gatewaytest.Header("Accept", "application/json")
	for i, c := range []struct {
		change string
		code   int
	}{
		{`{"roles":["admin"]}`, 403},
		{`{"permissions":["contacts","manage_keys"]}`, 403},
		{`{"email":"right@example.com"}`, 403},
		{`{"name":"Other","permissions":["contacts"]}`, 200},
	} {
		made := call(lesser, http.MethodPost, "/api/users", fmt.Sprintf(`{"name":"U","email":"u%d@example.com","permissions":["contacts"]}`, i), 200)
		_, token, _ := strings.Cut(fmt.Sprint(made.Field("link")), "#")
		call(boss, http.MethodPut, fmt.Sprint("/api/users/", made.Field("id")), c.change, 200)
		call(nobody, http.MethodPost, "/auth/password", `{"token":"`+token+`","password":"correct horse battery staple"}`, c.code)
	}
}

// TestInvitationEndsWhenItsRoleGainsPermissions checks that a link ends when a role of the person gets permissions that
// its creator may lack.
func TestInvitationEndsWhenItsRoleGainsPermissions(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	redeem := ""
	for _, op := range g.App.Operations() {
		if op.Name == "sessions.redeem" {
			redeem = op.Path
		}
	}
	for name, c := range map[string]struct {
		change func(*testing.T, fixture.Client)
		code   int
	}{
		"more by a call": {func(t *testing.T, boss fixture.Client) {
			t.Helper()
			boss.Want(t, http.MethodPut, "/api/roles/helper", `{"permissions":["contacts","manage_keys"]}`, 200, "")
		}, 403},
		"more by an import": {func(t *testing.T, boss fixture.Client) {
			t.Helper()
			boss.Import(t, `{"kind":"role","name":"helper","permissions":["contacts","manage_keys"]}`)
		}, 403},
		"another label": {func(t *testing.T, boss fixture.Client) {
			t.Helper()
			boss.Want(t, http.MethodPut, "/api/roles/helper", `{"label":"Other"}`, 200, "")
		}, 200},
		"less": {func(t *testing.T, boss fixture.Client) {
			t.Helper()
			boss.Want(t, http.MethodPut, "/api/roles/helper", `{"permissions":[]}`, 200, "")
		}, 200},
	} {
		for _, held := range []string{`["contacts"]`, `[]`} {
			t.Run(name+" than "+held, func(t *testing.T) {
				t.Parallel()
				org := g.Org(t, fmt.Sprintf("o%x", sha256.Sum256([]byte(name+held)))[:30])
				_, admin := org.Person(t, "admin@example.com", fixture.WithRoles("admin"))
				boss := fixture.As(org, gatewaytest.Cookie(admin))
				lesser := fixture.As(org, gatewaytest.WithKey(org.Key(t, tenants.ManageUsers, tenants.Contacts)))
				lesser.Want(t, http.MethodPost, "/api/roles", `{"name":"helper","permissions":`+held+`}`, 200, "")
				made := lesser.Want(t, http.MethodPost, "/api/users", `{"name":"U","email":"u@example.com","roles":["helper"]}`, 200, "link")
				lesser.Want(t, http.MethodPost, "/api/users", `{"name":"V","email":"v@example.com","roles":["helper"]}`, 200, "link")
				link, err := org.App.SignInLink(t.Context(), org.Slug, "v@example.com", "", time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				c.change(t, boss)
				nobody := fixture.As(org, gatewaytest.Header("Accept", "application/json"))
				_, token, _ := strings.Cut(fmt.Sprint(made.Field("link")), "#")
				nobody.Want(t, http.MethodPost, "/auth/password", `{"token":"`+token+`","password":"correct horse battery staple"}`, c.code, "")
				_, token, _ = strings.Cut(link, "#")
				nobody.Want(t, http.MethodPost, redeem, `{"token":"`+token+`"}`, c.code, "")
			})
		}
	}
}
