package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// TestInvited_ALinkGivesNoMoreThanItWasMadeFor: who may invite somebody holds a link to that person's account. It ends when the person
// is given more, or turns out to have another address.
func TestInvited_ALinkGivesNoMoreThanItWasMadeFor(t *testing.T) {
	t.Parallel()
	org := gatewaytest.Start(t).Org(t, "acme")
	_, admin := org.Person(t, "admin@example.com", roles("admin"))
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
