package failures

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/mongo/mongotest"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/proxytest"
	"tenantry/operation"
	"tenantry/tenants"
)

const (
	// healLimit bounds the time from the end of an outage until everything works again. The gateway needs about two
	// seconds; the rest is for a busy machine.
	healLimit = 10 * time.Second

	// immediateLimit bounds the time of an answer that needs no attempt.
	immediateLimit = time.Second
)

// proxiedMongo puts a proxy in front of the MongoDB server of the tests, and returns it with the address through it.
// Without a server the test is skipped.
func proxiedMongo(t *testing.T) (*proxytest.Proxy, string) {
	t.Helper()
	u, err := url.Parse(mongotest.URI(t))
	if err != nil {
		t.Fatal("the address of the MongoDB server is malformed") // the error repeats it
	}
	p := proxytest.Start(t, u.Host)
	u.Host = p.Addr
	if u.Path == "" {
		u.Path = "/"
	}
	query := u.Query()
	query.Del("replicaSet")
	query.Set("directConnection", "true") // otherwise the members' own addresses lead past the proxy
	u.RawQuery = query.Encode()
	return p, u.String()
}

// onMongo makes a database at that address the only backend.
func onMongo(t *testing.T, uri string) gatewaytest.Option {
	database := mongotest.Database(t)
	return func(c *config.Config, _ *gateway.Options) {
		if err := gatewaytest.UseMongo(c, uri, database); err != nil {
			t.Error(err)
		}
	}
}

// timed is an answer with the time it took.
type timed struct {
	*gatewaytest.Answer
	took time.Duration
}

func timeCall(t testing.TB, p *fixture.Party, q fixture.Call, show gatewaytest.Request) timed {
	started := time.Now()
	a := p.Do(t, q.Method, q.Target, append(slices.Clone(q.Changes), show)...)
	return timed{a, time.Since(started)}
}

// rowCall is a call of one path of an operation.
type rowCall struct {
	op   operation.Row
	path string
	ask  fixture.Call
}

func (r rowCall) String() string { return r.op.Method + " " + r.path }

// rowCalls returns a call for every path of every wanted operation.
func rowCalls(w *fixture.World, p *fixture.Party, wanted func(*operation.Row) bool) []rowCall {
	var out []rowCall
	for _, op := range w.App.Operations() {
		if !wanted(&op) {
			continue
		}
		for _, path := range op.Paths() {
			q := w.Build(&op, path, fixture.SampleFor(&op), p.Own, func(name string) bool { return name != "public_key" })
			out = append(out, rowCall{op, path, q})
		}
	}
	return out
}

// contract limits wanted to the operations of the contract. All operations at once are more than a process admits, and
// their effects on each other's records are not about outages.
func contract(wanted func(*operation.Row) bool) func(*operation.Row) bool {
	return func(op *operation.Row) bool { return op.Contract && wanted(op) }
}

// readsOf reports whether a key of the kind server_read may call the operation, except for reveals, which are audited.
func readsOf(op *operation.Row) bool {
	return op.Credentials&operation.Key != 0 && op.Method == http.MethodGet && !op.Rule.IsAdminOnly()
}

func keyed(op *operation.Row) bool {
	return op.Credentials&operation.Key != 0 && !op.Rule.IsAdminOnly()
}

// goodAnswers returns the answers of the rows without an outage, by path.
func goodAnswers(t testing.TB, p *fixture.Party, rows []rowCall) map[string]string {
	t.Helper()
	good := map[string]string{}
	for _, r := range rows {
		a := timeCall(t, p, r.ask, gatewaytest.WithKey(p.FullKey))
		if a.Code >= 400 {
			t.Fatalf("%s before the outage: got %d %s, want a code below 400", r, a.Code, a.Body)
		}
		good[r.path] = fixture.Canonical(a.Answer, "", fixture.SampleFor(&r.op).Volatile)
	}
	return good
}

// callAll calls all rows concurrently and judges each answer.
func callAll(t *testing.T, p *fixture.Party, rows []rowCall, show gatewaytest.Request, judge func(rowCall, timed)) {
	t.Helper()
	for some := range slices.Chunk(rows, 16) { // more would wait for a processor for long
		var running sync.WaitGroup
		for _, r := range some {
			running.Go(func() { judge(r, timeCall(t, p, r.ask, show)) })
		}
		running.Wait()
	}
}

// answers fails the test unless the answer is the expected one or service unavailable, and in time. It reports whether
// it is the expected one.
func answers(t testing.TB, what string, got timed, want string, volatile []string, within time.Duration) bool {
	t.Helper()
	if got.took > within {
		t.Errorf("%s took %s, want at most %s", what, got.took, within)
	}
	if fixture.IsUnavailable(t, what, got.Answer) {
		return false
	}
	if g := fixture.Canonical(got.Answer, "", volatile); g != want {
		t.Errorf("%s:\n%s\nwant\n%s", what, g, want)
	}
	return true
}

// metricOf returns the value of a metric without labels, as it is written.
func metricOf(t *testing.T, g *gatewaytest.Gateway, name string) string {
	t.Helper()
	_, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("got no metric %s, want one", name)
	return ""
}

// wantAlive fails the test unless /livez answers 200.
func wantAlive(t *testing.T, g *gatewaytest.Gateway) {
	t.Helper()
	if code, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/livez"); code != http.StatusOK {
		t.Errorf("/livez: got %d %s, want 200", code, body)
	}
}

// fullKey issues another key with all permissions.
func fullKey(t testing.TB, p *fixture.Party) control.IssuedKey {
	t.Helper()
	return p.KeyWith(t, func(k *control.NewKey) { k.Permissions = fixture.PermissionNames(tenants.AllPermissions()) })
}

// wantQuietLog fails the test if an outage fills the log, or if the log contains a secret.
func wantQuietLog(t *testing.T, g *gatewaytest.Gateway, secrets ...string) {
	t.Helper()
	text := g.Log.String()
	for _, secret := range secrets {
		if strings.Contains(text, secret) {
			t.Errorf("the log holds %s, want it nowhere", secret)
		}
	}
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) {
			_, rest, _ := strings.Cut(line, `"msg":"`)
			message, _, _ := strings.Cut(rest, `"`)
			counts[message]++
		}
		if strings.Contains(line, `"msg":"internal error"`) {
			t.Errorf("got an internal error for an outage, want none: %.600s", line)
		}
	}
	for message, n := range counts {
		if n > 40 {
			t.Errorf("%d lines say %q, want at most 40", n, message)
		}
	}
}
