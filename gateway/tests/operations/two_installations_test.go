package operations

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// installation is one of two that share a Redis, with all its credentials.
type installation struct {
	*gatewaytest.Org
	g           *gatewaytest.Gateway
	full, hasty string // keys; the second has a limit
	browser     string
	cookie      *http.Cookie
	token       string // of a shared report
	invite      string
}

func install(t *testing.T, redisAddr string) *installation {
	t.Helper()
	now := time.Now() // no time passes: waits do not end
	g := gatewaytest.Start(t, fixture.WithRedis(redisAddr), gatewaytest.PatientRedis, func(_ *config.Config, o *gateway.Options) { o.Now = func() time.Time { return now } })
	o := &installation{g: g, Org: g.Org(t, "acme", tenants.FeatureTeams)}
	o.Import(t, fixture.ReportLines()...)
	o.full = o.Key(t, tenants.AllPermissions()...)
	o.hasty = o.KeyWith(t, func(k *control.NewKey) { k.Rate = "3/d" }).Token
	o.browser = o.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Origins = string(tenants.Browser), []string{"https://shop.example"}
		k.Permissions = []string{string(tenants.CreateFormSubmissions), string(tenants.ManageForms)}
	}).Token
	_, o.cookie = o.Person(t, "ada@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	o.token = fixture.Share(t, o.Org, o.full, fixture.ReportSecure, `{}`)
	invited, err := control.Call[control.User](t.Context(), g.Commands, "user.create", control.NewUser{Org: "acme", UserFields: control.UserFields{Name: "Bob", Email: "bob@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(invited.Link)
	if err != nil {
		t.Fatal(err)
	}
	o.invite = link.Fragment
	return o
}

// shows returns the answers of this installation to each credential of another.
func (o *installation) shows(t *testing.T, of *installation) map[string]*gatewaytest.Answer {
	t.Helper()
	const path = "/api/campaigns/count"
	return map[string]*gatewaytest.Answer{
		"server_full key": o.Get(t, of.full, path),
		"browser key":     o.Get(t, of.browser, "/api/form/collections/schema", gatewaytest.Header("Origin", "https://shop.example")),
		"session":         o.Do(t, http.MethodGet, "/api/compliance/schema", gatewaytest.Cookie(of.cookie)),
		"share token":     o.Get(t, "", fixture.SharedPath+fixture.SecurePID+"?token="+of.token),
	}
}

// TestTwoInstallationsOnOneRedis gives them equal numbers and slugs: no credential of one works on the other, however
// well cached, and each still works at home.
func TestTwoInstallationsOnOneRedis(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: mini.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	one, two := install(t, mini.Addr()), install(t, mini.Addr())
	if a, b := one.Tenant(t).Org, two.Tenant(t).Org; a.OrgID != b.OrgID || a.Slug != b.Slug || a.ID == b.ID {
		t.Fatalf("got %d %s and %d %s, want equal numbers and slugs of different installations",
			a.OrgID, a.Slug, b.OrgID, b.Slug)
	}
	for range 2 { // cold, then warm
		for _, at := range []*installation{one, two} {
			for what, a := range at.shows(t, at) {
				if a.Status != "ok" {
					t.Errorf("%s at home: got %d %s, want the status ok", what, a.Code, a.Body)
				}
			}
		}
		for at, of := range map[*installation]*installation{one: two, two: one} {
			for what, a := range at.shows(t, of) {
				fixture.WantDenied(t, what+" of the other installation", a)
			}
		}
	}
	// Somebody who can write to Redis cannot move entries from one to the other either.
	for _, kind := range []string{"session:", "key:"} {
		for at, of := range map[*installation]*installation{one: two, two: one} {
			from, to := of.Tenant(t).RedisPrefix(), at.Tenant(t).RedisPrefix()
			names, err := client.Keys(t.Context(), from+kind+"*").Result()
			if err != nil || len(names) == 0 {
				t.Fatalf("no %s in Redis: got %v, want no error and at least 1 name", kind, err)
			}
			for _, name := range names {
				if err := client.Copy(t.Context(), name, to+name[len(from):], 0, true).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for _, what := range []string{"server_full key", "session"} {
				fixture.WantDenied(t, what+" with its entry copied", at.shows(t, of)[what])
			}
		}
	}
	invitations(t, one, two)
	limitsApart(t, one, two)
	announcementsApart(t, client, one, two)
	for _, at := range []*installation{one, two} {
		for what, a := range at.shows(t, at) {
			if a.Status != "ok" {
				t.Errorf("%s at home, afterwards: got %d %s, want the status ok", what, a.Code, a.Body)
			}
		}
	}
}

// invitations checks that those of one open nothing at the other and stay valid.
func invitations(t *testing.T, one, two *installation) {
	t.Helper()
	choose := func(at, of *installation) *gatewaytest.Answer {
		return at.Do(t, http.MethodPost, "/auth/password", gatewaytest.JSON(map[string]string{"token": of.invite, "password": gatewaytest.Password}))
	}
	for at, of := range map[*installation]*installation{one: two, two: one} {
		if a := choose(at, of); a.Code != http.StatusForbidden || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("an invitation of the other installation: got %d %s, want 403 and no header Set-Cookie",
				a.Code, a.Body)
		}
	}
	for _, at := range []*installation{one, two} {
		if a := choose(at, at); a.Code != http.StatusOK {
			t.Errorf("an invitation at home: got %d %s, want 200", a.Code, a.Body)
		}
	}
}

// limitsApart checks that requests and wrong passwords at one are not counted at the other.
func limitsApart(t *testing.T, one, two *installation) {
	t.Helper()
	rate := "4/d"
	for _, at := range []*installation{one, two} {
		if _, err := control.Call[control.RequestLimits](t.Context(), at.g.Commands, "org.limits", control.LimitsChange{Org: "acme", Quota: &rate}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if a := at.Get(t, at.hasty, "/api/campaigns/count"); a.Code != http.StatusOK {
				t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
			}
		}
		if a := at.Get(t, at.hasty, "/api/campaigns/count"); a.Code != http.StatusTooManyRequests {
			t.Errorf("over the limit: got %d %s, want 429", a.Code, a.Body)
		}
		off := "off"
		if _, err := control.Call[control.RequestLimits](t.Context(), at.g.Commands, "org.limits", control.LimitsChange{Org: "acme", Quota: &off}); err != nil {
			t.Fatal(err)
		}
		for i, want := range []int{403, 403, 403, 403, 403, 429} {
			a := at.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": "eve@example.com", "password": "a wrong password"}))
			if a.Code != want {
				t.Errorf("wrong password %d: got %d %s, want %d", i, a.Code, a.Body, want)
			}
		}
	}
}

// announcementsApart checks that each has a channel of its own.
func announcementsApart(t *testing.T, client *redis.Client, one, two *installation) {
	t.Helper()
	a, b := one.g.App.Directory().RedisPrefix(), two.g.App.Directory().RedisPrefix()
	listeners, err := client.PubSubNumSub(t.Context(), a+"changed", b+"changed").Result()
	if err != nil || a == b || listeners[a+"changed"] != 1 || listeners[b+"changed"] != 1 {
		t.Errorf("listeners = %v, %v, want one for each installation", listeners, err)
	}
	heard := client.Subscribe(t.Context(), a+"changed", b+"changed")
	defer heard.Close()
	for range 2 {
		if _, err := heard.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Earlier changes may be announced only now, and several changes in one message. So the test checks which
	// installation uses which channel, instead of counting.
	const sender = 1 + 16 // the version, and the number a replica gave itself
	speaks := map[string]string{}
	for _, at := range []*installation{one, two} {
		for _, command := range []string{"org.suspend", "org.resume"} {
			if _, err := control.Call[control.Organization](t.Context(), at.g.Commands, command, control.Slug{Slug: "acme"}); err != nil {
				t.Fatal(err)
			}
		}
		own := at.g.App.Directory().RedisPrefix() + "changed"
		for again := true; again; {
			m, err := heard.ReceiveMessage(t.Context())
			if err != nil || len(m.Payload) < sender {
				t.Fatalf("announced: got %v, %v, want no error and at least %v Payload", m, err, sender)
			}
			from := m.Payload[:sender]
			if before, ok := speaks[from]; ok && before != m.Channel {
				t.Errorf("%x publishes on %s and on %s, want one channel", from, before, m.Channel)
			}
			speaks[from] = m.Channel
			again = m.Channel != own
		}
	}
	if len(speaks) != 2 {
		t.Errorf("who speaks where: got %x, want 2", speaks)
	}
}
