package operations

import (
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"

	"tenantry/config"
	"tenantry/crypto/secret"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestReadinessNamesWhatIsDown checks that the process stays alive and becomes ready again by itself, and that keys are
// accepted meanwhile, because the store has them.
func TestReadinessNamesWhatIsDown(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	g := gatewaytest.Start(t, fixture.WithRedis(redis.Addr()))
	acme := g.Org(t, "acme")
	key := acme.Key(t)
	allGood := fixture.Readiness{Status: "ok", Checks: map[string]string{"files": "ok", "installation": "ok", "server": "ok", "store": "ok", "redis": "ok"}}
	if code, r := fixture.Ready(t, g); code != http.StatusOK || !cmp.Equal(r, allGood) {
		t.Errorf("got %d %+v, want %v and %v", code, r, http.StatusOK, allGood)
	}
	redis.Close()
	started := time.Now()
	code, r := fixture.Ready(t, g)
	if want := (fixture.Readiness{Status: "degraded", Checks: map[string]string{"files": "ok", "installation": "ok", "server": "ok", "store": "ok", "redis": "down"}}); code != http.StatusOK || !cmp.Equal(r, want) {
		t.Errorf("got %d %+v, want %v and %v", code, r, http.StatusOK, want)
	}
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("the check took %s, want at most 20 s", took)
	}
	if code, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/livez"); code != http.StatusOK || body != "{\"status\":\"ok\"}\n" {
		t.Errorf("livez: got %d %s, want 200 and body %q", code, body, "{\"status\":\"ok\"}\n")
	}
	if a := acme.Get(t, key, "/api/campaigns/count"); a.Code != http.StatusOK {
		t.Errorf("a key while Redis is away: got %d %s, want 200", a.Code, a.Body)
	}
	if err := redis.Restart(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if code, r = fixture.Ready(t, g); code == http.StatusOK && r.Status == "ok" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after Redis is back: got %d %+v, want ok", code, r)
		}
	}
}

// TestStartsWhileRedisIsDown tries an address without a listener, and a silent one.
func TestStartsWhileRedisIsDown(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() }) // the test's own
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, addr := range map[string]string{"closed": closed.Addr().String(), "silent": silent.Addr().String()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gatewaytest.Start(t, fixture.WithRedis(addr))
			acme := g.Org(t, "acme")
			key := acme.Key(t)
			started := time.Now()
			code, r := fixture.Ready(t, g)
			if took := time.Since(started); code != http.StatusOK || r.Status != "degraded" || r.Checks["redis"] != "down" || r.Checks["store"] != "ok" || took > 20*time.Second {
				t.Errorf("got %d %+v after %s, want 200, the status degraded, redis down, store ok and at most 20 s",
					code, r, took)
			}
			started = time.Now()
			a := acme.Get(t, key, "/api/campaigns/count")
			if took := time.Since(started); a.Code != http.StatusOK || took > 20*time.Second {
				t.Errorf("got %d %s after %s, want 200 and at most 20 s", a.Code, a.Body, took)
			}
			// Sessions are only in Redis: signing in is unavailable, which differs from a wrong password.
			a = acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": "a@example.com", "password": "correct horse battery"}))
			if a.Code != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" {
				t.Errorf("signing in: got %d %s, want 503 and a header Retry-After", a.Code, a.Body)
			}
		})
	}
}

// TestMetrics checks that requests are counted by operation, and that no label identifies an organization.
func TestMetrics(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme-secret-slug")
	key := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{string(tenants.Contacts)} })
	const id = "65f0000000000000000000aa"
	for range 3 {
		acme.Get(t, key.Token, "/api/files/folders/"+id)
	}
	acme.Get(t, "tnt_wrong", "/api/files/folders/"+id)
	acme.Get(t, key.Token, "/api/campaigns/count?filters[email]=ada@example.com")
	acme.Get(t, key.Token, "/api/nothing/"+id)
	acme.Do(t, http.MethodPatch, "/api/campaigns/count")
	code, header, body := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
	if code != http.StatusOK || !strings.HasPrefix(header.Get("Content-Type"), "text/plain") {
		t.Fatalf(`got %d %v, want %v and beginning with "text/plain"`, code, header, http.StatusOK)
	}
	lines := strings.Split(body, "\n")
	for _, want := range []string{
		`tenantry_requests_total{code="404",operation="folders.get",status="failed"} 3`,
		`tenantry_requests_total{code="403",operation="folders.get",status="failed"} 1`,
		`tenantry_requests_total{code="200",operation="campaigns.count",status="ok"} 1`,
		`tenantry_requests_total{code="404",operation="no_route",status="failed"} 1`,
		`tenantry_requests_total{code="405",operation="method_not_allowed",status="failed"} 1`,
		`tenantry_request_seconds_count{operation="folders.get"} 4`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no line %s", want)
		}
	}
	if t.Failed() {
		for _, line := range lines {
			if strings.HasPrefix(line, "tenantry_requests_total") {
				t.Log(line)
			}
		}
	}
	label := regexp.MustCompile(`[{,]([a-z_]+)="`)
	for _, line := range lines {
		for _, m := range label.FindAllStringSubmatch(line, -1) {
			if !slices.Contains([]string{"operation", "code", "status", "le", "version", "quantile", "cause", "limit", "backend", "event", "of"}, m[1]) {
				t.Errorf("label %s in %s, want a known one", m[1], line)
			}
		}
	}
	for _, secret := range []string{"acme", id, key.ID, key.Account, key.Token, "ada@", "127.0.0.1"} {
		if strings.Contains(body, secret) {
			t.Errorf("the metrics hold %s, want it nowhere", secret)
		}
	}
	for _, name := range []string{"go_goroutines ", "process_open_fds ", "tenantry_exposed_keys_total 0"} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("got no metric %s, want one", name)
		}
	}
}

// TestListenersServeOnlyTheirPaths checks that the paths of operators are not public, and public paths are not on their
// listener.
func TestListenersServeOnlyTheirPaths(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.Admin.Pprof = true })
	acme := g.Org(t, "acme")
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline", "/debug/vars"} {
		a := acme.Page(t, path)
		if a.Code != http.StatusNotFound || strings.Contains(a.Text(), "tenantry_") || strings.Contains(a.Text(), "goroutine") {
			t.Errorf("%s on the public listener: got %d %.200s, want 404, without tenantry_ and without goroutine",
				path, a.Code, a.Body)
		}
	}
	for _, path := range []string{"/", "/sign-in", "/api/openapi.json", "/api/users/1", "/auth/sign-in", "/assets/console.css"} {
		if code, _, body := fixture.CallAdmin(t, g, http.MethodGet, path); code != http.StatusNotFound {
			t.Errorf("%s on the operations listener: got %d %.200s, want 404", path, code, body)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/metrics", "/debug/pprof/"} {
		if code, _, _ := fixture.CallAdmin(t, g, http.MethodPost, path); code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: got %d, want 405", path, code)
		}
	}
	code, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/debug/pprof/")
	if code != http.StatusOK || !strings.Contains(body, "goroutine") || !strings.Contains(body, "heap") {
		t.Errorf("pprof: got %d %.200s, want 200, with goroutine and with heap", code, body)
	}
	if code, _, body = fixture.CallAdmin(t, g, http.MethodGet, "/debug/pprof/goroutine?debug=1"); code != http.StatusOK || !strings.Contains(body, "goroutine profile") {
		t.Errorf("goroutines: got %d %.200s, want 200 with %q", code, body, "goroutine profile")
	}
}

// askOps gets a path of the operations listener with a host name and a token.
func askOps(t *testing.T, g *gatewaytest.Gateway, path, host, token string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+g.App.AdminAddr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read to its end
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestOperationsListenerAnswersOnlyItsNames checks that a web page whose host name was pointed at this listener can
// read nothing.
func TestOperationsListenerAnswersOnlyItsNames(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.Admin.Hosts = []string{"gateway.internal"} })
	for host, want := range map[string]int{
		"localhost": http.StatusOK, "LOCALHOST:9090": http.StatusOK, "127.0.0.1:1": http.StatusOK, "127.8.8.8": http.StatusOK, "[::1]:9090": http.StatusOK,
		"gateway.internal": http.StatusOK, "Gateway.Internal:9090": http.StatusOK,
		"attacker.example": http.StatusForbidden, "attacker.example:9090": http.StatusForbidden, "localhost.attacker.example": http.StatusForbidden,
		"127.0.0.1.attacker.example": http.StatusForbidden, "acme.localhost": http.StatusForbidden, "10.0.0.1": http.StatusForbidden, "x.gateway.internal": http.StatusForbidden,
	} {
		for _, path := range []string{"/livez", "/readyz", "/metrics"} {
			code, body := askOps(t, g, path, host, "")
			if code != want || want != http.StatusOK && (strings.Contains(body, "go_") || strings.Contains(body, "status") || strings.Contains(body, host)) {
				t.Errorf("%[1]s of %[2]s: got %[3]d %.100[4]s, want %[5]d", path, host, code, body, want)
			}
		}
	}
	if code, _ := askOps(t, g, "/debug/pprof/", "localhost", ""); code != http.StatusNotFound {
		t.Errorf("profiles that nobody switched on: got %d, want 404", code)
	}
}

// TestOperationsListenerRequiresItsToken checks that without the token only liveness and the status of readiness are
// shown.
func TestOperationsListenerRequiresItsToken(t *testing.T) {
	t.Parallel()
	const token = "0123456789abcdef-operators"
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) {
		c.Admin.Token, c.Admin.Pprof, c.AdminListen = secret.New(token), true, "0.0.0.0:0"
	})
	for _, given := range []string{"", "Bearer", "Bearer ", "Bearer " + token + "x", "Bearer " + token[1:], "Basic " + token, token} {
		for _, path := range []string{"/metrics", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/heap"} {
			if code, body := askOps(t, g, path, "localhost", given); code != http.StatusUnauthorized || strings.Contains(body, token) {
				t.Errorf("%s with %q: got %d %.100s, want 401 and without %q", path, given, code, body, token)
			}
		}
		if code, body := askOps(t, g, "/livez", "localhost", given); code != http.StatusOK {
			t.Errorf("livez with %q: got %d %s, want 200", given, code, body)
		}
		if code, body := askOps(t, g, "/readyz", "localhost", given); code != http.StatusOK || body != "{\"status\":\"ok\"}\n" {
			t.Errorf("readyz with %q: got %d %s, want 200 and body %q", given, code, body, "{\"status\":\"ok\"}\n")
		}
	}
	for path, part := range map[string]string{"/metrics": "go_goroutines", "/debug/pprof/": "heap", "/readyz": `"store":"ok"`} {
		if code, body := askOps(t, g, path, "localhost", "bearer "+token); code != http.StatusOK || !strings.Contains(body, part) {
			t.Errorf("%s with the token: got %d %.100s, want 200 with %q", path, code, body, part)
		}
	}
	if strings.Contains(g.Log.String(), token) {
		t.Error("got the token in the log, want it nowhere")
	}
}
