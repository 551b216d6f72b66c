package access

import (
	"net/http"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestCallerWithoutAddressIsOutsideEveryList checks that a caller has no address if a trusted proxy reports none: a
// key's list of internal networks stays closed, and the audit log names no address.
func TestCallerWithoutAddressIsOutsideEveryList(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.TrustedProxies = []string{"127.0.0.1"} })
	acme := g.Org(t, "acme")
	inner := acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.AllowIPs = fixture.PermissionNames(tenants.AllPermissions()), []string{"127.0.0.0/8", "198.51.100.0/24"}
	}).Token
	// An admitted caller is told that there is no such field.
	const reveal = "/api/contacts/0000000000000000000000c1/reveal-secret?field=x"
	for _, test := range []struct {
		header, value, remote string
		code                  int
	}{
		{"", "", "127.0.0.1", http.StatusUnprocessableEntity}, // the proxy's own call
		{"X-Forwarded-For", "198.51.100.7:51234", "198.51.100.7", http.StatusUnprocessableEntity},
		{"Forwarded", `for="198.51.100.7:51234"`, "198.51.100.7", http.StatusUnprocessableEntity},
		{"X-Forwarded-For", "203.0.113.9:51234", "203.0.113.9", http.StatusForbidden},
		{"X-Forwarded-For", "[2001:db8::1]:443", "2001:db8::1", http.StatusForbidden},
		{"X-Forwarded-For", "unknown", "", http.StatusForbidden},
		{"X-Forwarded-For", "", "", http.StatusForbidden},
		{"Forwarded", "for=unknown", "", http.StatusForbidden},
		{"Forwarded", "for=_hidden", "", http.StatusForbidden},
		{"Forwarded", "proto=https", "", http.StatusForbidden},
	} {
		var changes []gatewaytest.Request
		if test.header != "" {
			changes = append(changes, gatewaytest.Header(test.header, test.value))
		}
		a := acme.Get(t, inner, reveal, changes...)
		if a.Code != test.code {
			t.Errorf("%s: got %s: %d %s, want %v", test.header, test.value, a.Code, a.Body, test.code)
		}
		records := fixture.AuditRecords(t, acme, 1)
		if len(records) != 1 || records[0].Remote != test.remote {
			t.Errorf("%s: %s: the audit log says %+v, want the address %s", test.header, test.value, records, test.remote)
		}
	}
}
