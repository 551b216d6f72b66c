package access

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// TestAnonymousCallersCannotFillTheAuditLog checks that refusals of anonymous callers are recorded up to a number, and
// those of one address up to a smaller number, while those of known callers always are.
func TestAnonymousCallersCannotFillTheAuditLog(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.TrustedProxies = []string{"127.0.0.1"} })
	acme := g.Org(t, "acme")
	const reveal = "/api/contacts/0000000000000000000000c1/reveal-secret?field=x"
	for n := range 200 {
		from := gatewaytest.Header("X-Forwarded-For", "192.0.2."+strconv.Itoa(n/40))
		if a := acme.Get(t, "", reveal, from); a.Code != http.StatusForbidden {
			t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusForbidden)
		}
	}
	key := acme.Key(t)
	if a := acme.Get(t, key, reveal); a.Code != http.StatusForbidden {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusForbidden)
	}
	records := fixture.AuditRecords(t, acme, 1000)
	strangers, known := 0, 0
	addresses := map[string]int{}
	for _, r := range records {
		switch {
		case r.Operation != "contacts.reveal":
		case r.Subject == "anonymous":
			strangers++
			addresses[r.Remote]++
		default:
			known++
		}
	}
	// If another minute begins, it admits as many again.
	if strangers < 60 || strangers > 120 || known != 1 {
		t.Errorf("got %d records of strangers, %d of a known caller, want at least 60, at most 120 and 1", strangers, known)
	}
	if len(addresses) < 3 || slices.Max(slices.Collect(maps.Values(addresses))) > 40 {
		t.Errorf("records by address = %v, want at least 3 addresses with at most 40 each", addresses)
	}
}

// TestSignInBehindAProxyThatRewritesTheHost checks that a browser's origin is compared with the host that a trusted
// proxy reports.
func TestSignInBehindAProxyThatRewritesTheHost(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.TrustedProxies = []string{"127.0.0.1"} })
	acme := g.Org(t, "acme")
	acme.Person(t, "ada@example.com", nil)
	signIn := func(origin string) int {
		return g.Do(t, http.MethodPost, "backend.internal", "/auth/sign-in",
			gatewaytest.JSON(map[string]string{"email": "ada@example.com", "password": gatewaytest.Password}),
			gatewaytest.Header("X-Forwarded-Host", "acme.example.com"), gatewaytest.Header("Origin", origin)).Code
	}
	if code := signIn("https://acme.example.com"); code != http.StatusOK {
		t.Errorf("from its own page: got %d, want 200", code)
	}
	for _, origin := range []string{"https://evil.example.com", "http://backend.internal"} {
		if code := signIn(origin); code != http.StatusForbidden {
			t.Errorf("from %s: got %d, want 403", origin, code)
		}
	}
}

// TestSharedPageNarrowsAsTheOperationDoes checks that teams[] works in the address of the page.
func TestSharedPageNarrowsAsTheOperationDoes(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	var lines []string
	for n, name := range []string{"north", "south"} {
		id := "00000000000000000000000" + strconv.Itoa(n+1)
		lines = append(lines, `{"kind":"team","id":"`+id+`","name":"`+name+`"}`, `{"kind":"contact","email":"`+name+`@example.com","teams":["`+id+`"]}`)
	}
	acme.Import(t, append(lines, `{"kind":"custom_report","pid":"report-of-all-teams-001","title":"All","secure":false,"class":"Contacts","query":{"fields":["email"]}}`)...)
	for address, want := range map[string]bool{"": true, "?teams[]=000000000000000000000001": false} {
		page := acme.Page(t, "/shared/reports/report-of-all-teams-001"+address)
		if text := page.Text(); !strings.Contains(text, "north@example.com") || strings.Contains(text, "south@example.com") != want {
			t.Errorf("%[1]q shows %[2]s, want north@example.com, and south@example.com: %[3]t", address, text, want)
		}
	}
}

// TestUnknownMethodsAreRefusedInTheEnvelope tries methods that the API does not have, and methods unknown to HTTP.
func TestUnknownMethodsAreRefusedInTheEnvelope(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	for _, method := range []string{"FOO", "PROPFIND", http.MethodPatch} {
		a := acme.Do(t, method, "/api/users/1")
		if a.Code != http.StatusMethodNotAllowed || a.Header.Get("Allow") != "GET, HEAD, PUT" || a.Status != "failed" {
			t.Errorf(`%s: got %d %q %s, want %v and a.Header.Get("Allow") = "GET, HEAD, PUT" and a.Status = "failed"`,
				method, a.Code, a.Header.Get("Allow"), a.Body, http.StatusMethodNotAllowed)
		}
	}
	if a := acme.Do(t, "FOO", "/api/nothing"); a.Code != http.StatusNotFound {
		t.Errorf("no such path: got %d, want 404", a.Code)
	}
}

// TestKeyHeaderDoesNotBypassTheOriginCheck checks that a page of another site cannot bypass the check of its origin by
// sending a key where only a session is accepted.
func TestKeyHeaderDoesNotBypassTheOriginCheck(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", nil)
	a := acme.Do(t, http.MethodPost, "/auth/sign-out", gatewaytest.Cookie(cookie), gatewaytest.WithKey("anything"),
		gatewaytest.Header("Origin", "https://evil.example.com"), gatewaytest.Header("Sec-Fetch-Site", "cross-site"))
	if a.Code != http.StatusForbidden {
		t.Errorf("got %d %s, want %v", a.Code, a.Body, http.StatusForbidden)
	}
	if home := acme.Page(t, "/", gatewaytest.Cookie(cookie)); home.Code != http.StatusOK {
		t.Errorf("the session ended: got %d, want 200", home.Code)
	}
}

// TestOpenOperationsRefuseOtherSitesWithAKey checks that an open operation is refused to a page of another site even if
// the request has a key, valid or not, because a page can add the header where its origin is allowed.
func TestOpenOperationsRefuseOtherSitesWithAKey(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	page := acme.KeyWith(t, func(n *control.NewKey) { n.Kind, n.Origins = string(tenants.Browser), []string{fixture.PageOrigin} }).Token
	rows := 0
	for _, op := range g.App.Operations() {
		if op.Credentials != operation.Open || op.Method == http.MethodGet || op.AnySite { // these have tests of their own
			continue
		}
		rows++
		for name, token := range map[string]string{"browser key": page, "no key at all": "anything"} {
			a := acme.Do(t, op.Method, op.Path, gatewaytest.WithKey(token), gatewaytest.JSON(map[string]any{}),
				gatewaytest.Header("Origin", fixture.PageOrigin), gatewaytest.Header("Sec-Fetch-Site", "cross-site"))
			if a.Code != http.StatusForbidden || a.Message != "The request comes from another site" {
				t.Errorf("%s with %s: %d %s, want the refusal of another site", op.Name, name, a.Code, a.Body)
			}
		}
	}
	if rows == 0 {
		t.Error("got no open operation that changes something, want at least one")
	}
}
