package load

import (
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/rate"
	"tenantry/tenants"
)

const tooMany = `{"status":"failed","message":"Too many requests, please retry later","data":[]}`

// wantLimit checks an answer's limit headers. Reset and Retry-After may be up to a minute less than the limits say,
// because these refill over hours here.
func wantLimit(t *testing.T, a *gatewaytest.Answer, count, remaining int, reset, retry time.Duration) {
	t.Helper()
	h := a.Header
	near := func(name string, want time.Duration) bool {
		got, err := strconv.Atoi(h.Get(name))
		return err == nil && got <= int(want.Seconds()) && got > int((want-time.Minute).Seconds())
	}
	if h.Get("RateLimit-Limit") != strconv.Itoa(count) || h.Get("RateLimit-Remaining") != strconv.Itoa(remaining) || !near("RateLimit-Reset", reset) {
		t.Errorf("got %d with %v; want %d of %d left and a reset after %v", a.Code, h, remaining, count, reset)
	}
	switch {
	case retry == 0 && h.Get("Retry-After") != "":
		t.Errorf("got %d with Retry-After %s, want none", a.Code, h.Get("Retry-After"))
	case retry > 0 && (a.Code != http.StatusTooManyRequests || a.Text() != tooMany || !near("Retry-After", retry)):
		t.Errorf("got %d %s with Retry-After %q; want 429 and %v", a.Code, a.Text(), h.Get("Retry-After"), retry)
	}
}

func wantUncounted(t *testing.T, a *gatewaytest.Answer) {
	t.Helper()
	for _, name := range []string{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
		if a.Header.Get(name) != "" {
			t.Errorf("got %d %s: header %s = %s, want none because it is not counted",
				a.Code, a.Text(), name, a.Header.Get(name))
		}
	}
}

func TestLimits_OfAKey(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("1000/h", "off", "3/h", "off"))
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	key, second, others := acme.Key(t), acme.Key(t), other.Key(t)
	const path = "/api/campaigns/count"
	for left := 2; left >= 0; left-- {
		a := acme.Get(t, key, path)
		if a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Text(), http.StatusOK)
		}
		wantLimit(t, a, 3, left, time.Duration(3-left)*20*time.Minute, 0)
	}
	for range 2 {
		wantLimit(t, acme.Get(t, key, path), 3, 0, time.Hour, 20*time.Minute)
	}
	// The key is counted before its request is checked.
	wantLimit(t, acme.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(key), gatewaytest.Body("text/html", "<")), 3, 0, time.Hour, 20*time.Minute)
	wantLimit(t, acme.Get(t, key, "/api/compliance/schema"), 3, 0, time.Hour, 20*time.Minute)

	wantLimit(t, acme.Get(t, second, path), 3, 2, 20*time.Minute, 0)
	wantLimit(t, other.Get(t, others, path), 3, 2, 20*time.Minute, 0)
	// A refusal for a missing permission is counted like others.
	a := acme.Get(t, second, "/api/compliance/schema")
	if a.Code != http.StatusForbidden {
		t.Errorf("got %d %s, want %v", a.Code, a.Text(), http.StatusForbidden)
	}
	wantLimit(t, a, 3, 1, 40*time.Minute, 0)

	_, cookie := acme.Person(t, "ada@example.com", nil)
	for left := 2; left >= 0; left-- {
		wantLimit(t, acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(cookie)), 3, left, time.Duration(3-left)*20*time.Minute, 0)
	}
	wantLimit(t, acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(cookie)), 3, 0, time.Hour, 20*time.Minute)
	_, cookie = acme.Person(t, "bob@example.com", nil)
	wantLimit(t, acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(cookie)), 3, 2, 20*time.Minute, 0)
}

func TestLimits_OfAnOrganization(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("100/h", "5/d", "50/h", "off"))
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	first, second, others := acme.Key(t), acme.Key(t), other.Key(t)
	_, cookie := acme.Person(t, "ada@example.com", nil)
	const path = "/api/campaigns/count"
	acme.Get(t, first, path)
	acme.Get(t, first, path)
	acme.Get(t, second, path)
	acme.Get(t, second, path)
	const step = 24 * time.Hour / 5
	wantLimit(t, acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(cookie)), 5, 0, 5*step, 0)
	for range 3 {
		wantLimit(t, acme.Get(t, first, path), 5, 0, 5*step, step)
		wantLimit(t, acme.Get(t, second, path), 5, 0, 5*step, step)
		wantLimit(t, acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(cookie)), 5, 0, 5*step, step)
	}
	wantLimit(t, other.Get(t, others, path), 5, 4, step, 0)
}

// TestRefusedCredentialsCostNoQuota checks that refused credentials and share tokens cost an organization none of its
// quota.
func TestRefusedCredentialsCostNoQuota(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("off", "240/d", "6/d", "off"), behindProxy)
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	acme.Import(t, fixture.ReportLines()...)
	key, browser := acme.Key(t, tenants.ManageReports), acme.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Origins = string(tenants.Browser), []string{"https://shop.example"}
	})
	const path = "/api/campaigns/count"
	for range 20 {
		wantUncounted(t, acme.Get(t, fixture.RandomKey(t, tenants.ServerFull), path))
		wantUncounted(t, acme.Get(t, other.Key(t), path))
		wantUncounted(t, acme.Get(t, "", path))
		wantUncounted(t, acme.Get(t, browser.Token, path)) // from no origin of its own
		wantUncounted(t, acme.Get(t, key, path, gatewaytest.Header("Origin", "https://evil.test")))
		wantUncounted(t, acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": "x@example.com", "password": "wrong"})))
	}
	token := fixture.Share(t, acme, key, fixture.ReportOpen, `{}`) // the first of 240
	const step = 24 * time.Hour / 12
	// Anonymous callers get half of the organization's limit, an address a tenth of that.
	for _, from := range []gatewaytest.Request{at("198.51.100.1"), at("198.51.100.2"), at("2001:db8::1")} {
		for left := 11; left >= 0; left-- {
			a := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?token=junk", from)
			if a.Status != "failed" {
				t.Fatalf(`got %d %s, want a.Status = "failed"`, a.Code, a.Text())
			}
			wantLimit(t, a, 12, left, time.Duration(12-left)*step, 0)
		}
		wantLimit(t, acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?token=junk", from), 12, 0, 12*step, step)
		wantLimit(t, acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?token="+token, from), 12, 0, 12*step, step) // nobody is known here
		if a := acme.Page(t, "/shared/reports/"+fixture.OpenPID+"?token="+token, from); a.Code != http.StatusTooManyRequests {
			t.Errorf("a page from that address: got %d, want 429", a.Code)
		}
	}
	wantLimit(t, acme.Get(t, "", fixture.SharedPath+fixture.OpenPID, at("2001:db8::ffff:2")), 12, 0, 12*step, step) // of the same /64
	// Invalid requests from three addresses do not affect other readers.
	for _, from := range []string{"198.51.100.3", "2001:db8:0:1::1"} {
		a := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?token="+token, at(from))
		if a.Code != http.StatusOK || a.Status != "ok" {
			t.Fatalf(`%s: got %d %s, want %v and a.Status = "ok"`, from, a.Code, a.Text(), http.StatusOK)
		}
		wantLimit(t, a, 12, 11, step, 0)
	}

	// 237 are left: the key's own five, then six of others.
	for range 5 {
		if a := acme.Get(t, key, path); a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Text(), http.StatusOK)
		}
	}
	wantLimit(t, acme.Get(t, key, path), 6, 0, 24*time.Hour, 4*time.Hour)
	for left := 231; left >= 228; left-- {
		unlimited := acme.KeyWith(t, func(k *control.NewKey) { k.Rate = "1000000/d" })
		wantLimit(t, acme.Get(t, unlimited.Token, path), 240, left, time.Duration(240-left)*6*time.Minute, 0)
	}
}

// at makes the proxy report that address for a request.
func at(address string) gatewaytest.Request { return gatewaytest.Header("X-Forwarded-For", address) }

// behindProxy makes the gateway trust the test's own requests about their address.
func behindProxy(cfg *config.Config, _ *gateway.Options) {
	cfg.TrustedProxies = []string{"127.0.0.0/8"}
}

// perAddress limits each address.
func perAddress(quota string) gatewaytest.Option {
	return func(cfg *config.Config, _ *gateway.Options) {
		if err := cfg.Limits.AddressQuota.UnmarshalText([]byte(quota)); err != nil {
			panic(err)
		}
	}
}

// TestPagesShareTheLimitsOfOperations checks that pages are counted by the same limits, with the same headers, as
// operations.
func TestPagesShareTheLimitsOfOperations(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("off", "1000/d", "4/d", "off"), behindProxy, perAddress("3/d"))
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ReportLines()...)
	const page = "/shared/reports/" + fixture.OpenPID
	for i, path := range []string{page, page + "?", page} {
		if a := acme.Page(t, path, at("192.0.2.1")); a.Code != http.StatusOK || a.Header.Get("RateLimit-Remaining") != strconv.Itoa(2-i) {
			t.Fatalf(`%s: got %d %v, want %v and a.Header.Get("RateLimit-Remaining") = %v`,
				path, a.Code, a.Header, http.StatusOK, strconv.Itoa(2-i))
		}
	}
	a := acme.Page(t, page, at("192.0.2.1"))
	wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
	if a.Code != http.StatusTooManyRequests || err != nil || wait < 7*3600 || wait > 8*3600 ||
		!strings.HasPrefix(a.Header.Get("Content-Type"), "text/html") || !strings.Contains(a.Text(), "Please wait a moment") || !strings.Contains(a.Text(), "minutes") {
		t.Errorf("the fourth page: got %d %v %s, want 429 with a Retry-After of 7 to 8 h", a.Code, a.Header, a.Text())
	}
	wantLimit(t, acme.Get(t, "", fixture.SharedPath+fixture.OpenPID, at("192.0.2.1")), 3, 0, 24*time.Hour, 8*time.Hour)
	for _, path := range []string{"/assets/console.css", "/sign-in"} { // what the page needs, and what tells nobody anything
		if a := acme.Page(t, path, at("192.0.2.1")); a.Code != http.StatusOK || a.Header.Get("RateLimit-Limit") != "" {
			t.Errorf(`%s: got %d %v, want %v and a.Header.Get("RateLimit-Limit") = ""`, path, a.Code, a.Header, http.StatusOK)
		}
	}
	if a := acme.Page(t, page, at("192.0.2.2")); a.Code != http.StatusOK {
		t.Errorf("a page from another address: got %d, want 200", a.Code)
	}
	_, cookie := acme.Person(t, "ada@example.com", nil)
	for left := 3; left >= 0; left-- { // a person is known by the session, from any address
		wantLimit(t, acme.Page(t, page, at("192.0.2.1"), gatewaytest.Cookie(cookie)), 4, left, time.Duration(4-left)*6*time.Hour, 0)
	}
	if a := acme.Page(t, page, at("192.0.2.3"), gatewaytest.Cookie(cookie)); a.Code != http.StatusTooManyRequests {
		t.Errorf("a person's fifth page: got %d, want 429", a.Code)
	}
	wantLimit(t, acme.Do(t, http.MethodGet, "/api/campaigns/count", gatewaytest.Cookie(cookie)), 4, 0, 24*time.Hour, 6*time.Hour)
	_, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
	for _, want := range []string{`tenantry_limits_refused_total{limit="address quota",operation="page"} 1`, `tenantry_limits_refused_total{limit="caller rate",operation="page"} 1`, `tenantry_requests_total{code="429",operation="page",status="failed"} 2`} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("the metrics have no line %s", want)
		}
	}
	if !strings.Contains(g.Log.String(), "over the limit: address quota") {
		t.Error("got no limit in the log line of a refused page, want address quota")
	}
}

// TestAcceptedShareTokensAreCounted checks that an answered shared report counts for the organization.
func TestAcceptedShareTokensAreCounted(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("10/h", "off", "50/h", "off"), behindProxy)
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ReportLines()...)
	for left := 4; left >= 0; left-- {
		a := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID, at("192.0.2."+strconv.Itoa(left))) // each the one that its address has
		if a.Code != http.StatusOK || a.Status != "ok" {
			t.Fatalf(`got %d %s, want %v and a.Status = "ok"`, a.Code, a.Text(), http.StatusOK)
		}
	}
	// Together they have used up half of the organization's limit; keys and people have the other half. Anonymous
	// callers still see only the limit of their address.
	wantLimit(t, acme.Get(t, "", fixture.SharedPath+fixture.OpenPID, at("198.51.100.1")), 1, 0, time.Hour, time.Second)
	key := acme.Key(t)
	for left := 4; left >= 0; left-- {
		wantLimit(t, acme.Get(t, key, "/api/campaigns/count"), 10, left, time.Duration(10-left)*6*time.Minute, 0)
	}
}

// TestAnonymousCallersAreLimitedByAddress checks that an address has one limit over all hosts, which reveals nothing of
// an organization's own limits.
func TestAnonymousCallersAreLimitedByAddress(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("1000/h", "off", "off", "off"), behindProxy, perAddress("9/d"), func(c *config.Config, _ *gateway.Options) {
		c.Limits.Address = rate.Unlimited()
	})
	acme := g.Org(t, "acme")
	rate, quota := "200/h", "5000/d"
	if _, err := control.Call[control.RequestLimits](t.Context(), g.Commands, "org.limits", control.LimitsChange{Org: acme.Slug, Rate: &rate, Quota: &quota}); err != nil {
		t.Fatal(err)
	}
	paths := []string{"/api/openapi.json", "/docs", fixture.SharedPath + fixture.OpenPID}
	ask := func(i int, host, address string) (code int, told string) {
		a := (&gatewaytest.Org{Gateway: g, Host: host}).Page(t, paths[i%len(paths)], at(address))
		return a.Code, a.Header.Get("RateLimit-Limit") + " " + a.Header.Get("RateLimit-Remaining")
	}
	for i := range 12 {
		hereCode, here := ask(i, acme.Host, "192.0.2.1")
		code, there := ask(i, "n"+strconv.Itoa(i)+".localhost", "192.0.2.2")
		if want := "9 " + strconv.Itoa(max(8-i, 0)); here != want || there != want || hereCode != code || (code == http.StatusTooManyRequests) != (i >= 9) {
			t.Errorf("request %[1]d: an organization answers %[2]d (%[3]s), others %[4]d (%[5]s), want both %[6]d (%[7]s)",
				i, hereCode, here, code, there, code, want)
		}
	}
	if code, _ := ask(0, acme.Host, "192.0.2.2"); code != http.StatusTooManyRequests {
		t.Errorf("an address that has used up its own elsewhere: got %d, want 429", code)
	}
}

func TestLimits_Commands(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("100/h", "off", "2/h", "off"))
	acme := g.Org(t, "acme")
	key := acme.KeyWith(t, func(*control.NewKey) {})
	own := acme.KeyWith(t, func(k *control.NewKey) { k.Rate, k.Quota = "4/h", "50/d" })
	const path = "/api/campaigns/count"
	text := func(s string) *string { return &s }
	limitOrg := func(c control.LimitsChange) control.RequestLimits {
		t.Helper()
		c.Org = acme.Slug
		held, err := control.Call[control.RequestLimits](t.Context(), g.Commands, "org.limits", c)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	limitKey := func(c control.KeyLimitsChange) control.RequestLimits {
		t.Helper()
		c.Org = acme.Slug
		held, err := control.Call[control.RequestLimits](t.Context(), g.Commands, "key.limits", c)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}

	wantLimit(t, acme.Get(t, key.Token, path), 2, 1, 30*time.Minute, 0)
	wantLimit(t, acme.Get(t, key.Token, path), 2, 0, time.Hour, 0)
	wantLimit(t, acme.Get(t, key.Token, path), 2, 0, time.Hour, 30*time.Minute)
	wantLimit(t, acme.Get(t, own.Token, path), 4, 3, 15*time.Minute, 0)

	// Earlier use still counts under the new limit, which applies to the next request.
	if held := limitOrg(control.LimitsChange{KeyRate: text("6/h")}); held.KeyRate != "6/h" || held.Rate != "100/h" || strings.Join(held.Own, " ") != "key_rate" {
		t.Errorf(`got %+v, want held.KeyRate = "6/h" and held.Rate = "100/h" and strings.Join(held.Own, " ") = "key_rate"`,
			held)
	}
	wantLimit(t, acme.Get(t, key.Token, path), 6, 3, 30*time.Minute, 0)
	wantLimit(t, acme.Get(t, own.Token, path), 4, 2, 30*time.Minute, 0)
	if held := limitKey(control.KeyLimitsChange{KeyRef: control.KeyRef{ID: key.ID}, Rate: text("3/h")}); held.Rate != "3/h" || held.Quota != "off" || strings.Join(held.Own, " ") != "rate" {
		t.Errorf(`got %+v, want held.Rate = "3/h" and held.Quota = "off" and strings.Join(held.Own, " ") = "rate"`, held)
	}
	wantLimit(t, acme.Get(t, key.Token, path), 3, 0, time.Hour, 20*time.Minute)
	limitKey(control.KeyLimitsChange{KeyRef: control.KeyRef{ID: key.ID}, Rate: text("off")})
	wantLimit(t, acme.Get(t, key.Token, path), 100, 94, 216*time.Second, 0) // the organization's is what is left
	if held := limitKey(control.KeyLimitsChange{KeyRef: control.KeyRef{ID: own.ID}, Reset: true}); held.Rate != "6/h" || held.Quota != "off" || len(held.Own) != 0 {
		t.Errorf(`got %+v, want held.Rate = "6/h" and held.Quota = "off" and len(held.Own) = 0`, held)
	}
	if held := limitKey(control.KeyLimitsChange{KeyRef: control.KeyRef{ID: own.ID}, Quota: text("9/d")}); held.Rate != "6/h" || held.Quota != "9/d" {
		t.Errorf(`got %+v, want held.Rate = "6/h" and held.Quota = "9/d"`, held)
	}
	limitOrg(control.LimitsChange{Rate: text("off"), Quota: text("1/d"), KeyRate: text("20/h")})
	if a := acme.Get(t, own.Token, path); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want %v", a.Code, a.Text(), http.StatusOK)
	}
	wantLimit(t, acme.Get(t, own.Token, path), 1, 0, 24*time.Hour, 24*time.Hour)
	reset := control.RequestLimits{Org: "acme", Rate: "100/h", Quota: "off", KeyRate: "2/h", KeyQuota: "9/d", VisitorRate: "100000000/s", VisitorQuota: "off", Own: []string{"key_quota"}}
	if held := limitOrg(control.LimitsChange{Reset: true, KeyQuota: text("9/d")}); !cmp.Equal(held, reset) {
		t.Errorf("got %+v, want %v", held, reset)
	}

	// A key keeps its limits when it is rotated.
	next, err := control.Call[control.IssuedKey](t.Context(), g.Commands, "key.rotate", control.KeyRef{Org: acme.Slug, ID: own.ID})
	if err != nil {
		t.Fatal(err)
	}
	if held := limitKey(control.KeyLimitsChange{KeyRef: control.KeyRef{ID: next.ID}}); held.Quota != "9/d" || strings.Join(held.Own, " ") != "quota" {
		t.Errorf("after a rotation: got %+v, want the own quota 9/d", held)
	}

	// Malformed limits change nothing, and all of them are reported.
	before := limitOrg(control.LimitsChange{})
	_, err = control.Call[control.RequestLimits](t.Context(), g.Commands, "org.limits", control.LimitsChange{Org: acme.Slug, Rate: text("fast"), Quota: text("0/s"), KeyRate: text("5/h"), KeyQuota: text("")})
	wantLimitFaults(t, err, "rate", "quota", "key_quota")
	if after := limitOrg(control.LimitsChange{}); strings.Join(after.Own, " ") != strings.Join(before.Own, " ") {
		t.Errorf("after a change with faults: got %+v, want no change", after)
	}
	_, err = control.Call[control.RequestLimits](t.Context(), g.Commands, "key.limits", control.KeyLimitsChange{KeyRef: control.KeyRef{Org: acme.Slug, ID: key.ID}, Rate: text("5/y")})
	wantLimitFaults(t, err, "rate")
	_, err = control.Call[control.RequestLimits](t.Context(), g.Commands, "key.limits", map[string]string{"org": acme.Slug, "id": key.ID, "key_rate": "5/h"}) // an organization's
	wantLimitFaults(t, err, "key_rate")
	_, err = control.Call[control.RequestLimits](t.Context(), g.Commands, "key.limits", control.KeyLimitsChange{
		KeyRef: control.KeyRef{Org: acme.Slug, ID: key.ID}, VisitorLimits: control.VisitorLimits{VisitorRate: text("1/s"), VisitorQuota: text("5/h")},
	}) // only a browser key has visitors
	wantLimitFaults(t, err, "visitor_rate", "visitor_quota")
	_, err = control.Call[control.IssuedKey](t.Context(), g.Commands, "key.create", control.NewKey{Org: acme.Slug, Name: "x", Kind: "server_full", Rate: "200000000/s"})
	wantLimitFaults(t, err, "rate")
	for _, id := range []string{fixture.DocID(1), "nonsense"} {
		if _, err := control.Call[control.RequestLimits](t.Context(), g.Commands, "key.limits", control.KeyLimitsChange{KeyRef: control.KeyRef{Org: acme.Slug, ID: id}, Rate: text("5/s")}); err == nil || !strings.Contains(err.Error(), "key list") {
			t.Errorf("a key that is not there: got %v, want an error with %q", err, "key list")
		}
	}
	records, err := control.Call[[]control.AuditRecord](t.Context(), g.Commands, "audit", control.Page{Org: acme.Slug})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, r := range records {
		seen[r.Operation]++
	}
	if seen["org.limits"] != 3 || seen["key.limits"] != 4 {
		t.Errorf("the audit log has %v, want 3 org.limits and 4 key.limits", seen)
	}
}

func wantLimitFaults(t *testing.T, err error, fields ...string) {
	t.Helper()
	var got []string
	if refused, ok := err.(*control.Error); ok { //nolint:errorlint // the client returns exactly this
		for _, f := range refused.Faults {
			got = append(got, f.Field)
		}
	}
	if strings.Join(got, " ") != strings.Join(fields, " ") {
		t.Errorf("faults in %q, want %q: %v", got, fields, err)
	}
}

// TestRefusalsDoNotFloodTheAuditLog checks that refusals of an audited operation over the limit leave few records.
func TestRefusalsDoNotFloodTheAuditLog(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.Limits("off", "off", "1/d", "off"))
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.Contacts)
	var path string
	for _, op := range g.App.Operations() {
		if op.Name == "contacts.reveal" {
			path = strings.Replace(op.Path, "{id}", fixture.DocID(1), 1) + "?field=ssn"
		}
	}
	if path == "" {
		t.Fatal("got no operation contacts.reveal, want one")
	}
	const calls = 200
	for i := range calls {
		if a := acme.Get(t, key, path); i > 0 && (a.Code != http.StatusTooManyRequests || a.Text() != tooMany) {
			t.Fatalf("got %d %s, want 429", a.Code, a.Text())
		}
	}
	records, err := control.Call[[]control.AuditRecord](t.Context(), g.Commands, "audit", control.Page{Org: acme.Slug, Limit: calls})
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for _, r := range records {
		if r.Code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 || refused > 130 { // 60 a minute; the minute may change meanwhile
		t.Errorf("%d of %d refusals have a record, want at least 1 refused and at most 130", refused, calls-1)
	}
	_, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
	if want := `tenantry_limits_refused_total{limit="caller rate",operation="contacts.reveal"} ` + strconv.Itoa(calls-1); !strings.Contains(body, "\n"+want+"\n") {
		t.Errorf("the metrics have no line %s", want)
	}
	if !strings.Contains(body, "\ntenantry_limits_local_total 0\n") {
		t.Error("tenantry_limits_local_total is not 0, want 0 within one process")
	}
	if !strings.Contains(g.Log.String(), "over the limit: caller rate") {
		t.Error("got no limit in the log line, want caller rate")
	}
}

// TestLimitsHoldWhenRedisNeverAnswers checks that limits apply at once, and that a counter shows it.
func TestLimitsHoldWhenRedisNeverAnswers(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() }) // the test's own
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	g := gatewaytest.Start(t, fixture.WithRedis(silent.Addr().String()), gatewaytest.Limits("20/h", "off", "4/h", "off"), func(_ *config.Config, o *gateway.Options) { o.RedisTimeout = 0 })
	acme := g.Org(t, "acme")
	key := acme.Key(t)
	for left := 3; left >= 0; left-- {
		a := acme.Get(t, key, "/api/campaigns/count")
		if a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want %v", a.Code, a.Text(), http.StatusOK)
		}
		wantLimit(t, a, 4, left, time.Duration(4-left)*15*time.Minute, 0)
	}
	for range 6 {
		wantLimit(t, acme.Get(t, key, "/api/campaigns/count"), 4, 0, time.Hour, 15*time.Minute)
	}
	_, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
	if !strings.Contains(body, "\ntenantry_limits_local_total 10\n") {
		t.Error("tenantry_limits_local_total is not 10, want 10")
	}
	if n := strings.Count(g.Log.String(), "this replica applies the request limits by itself"); n != 1 {
		t.Errorf("one outage is told %d times, want 1", n)
	}
}
