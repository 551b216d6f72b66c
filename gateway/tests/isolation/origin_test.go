package isolation

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// threeHosts are an active, a suspended and an unknown organization of one gateway. Its clock stands still, so cached
// hosts and keys stay cached.
type threeHosts struct {
	*fixture.World
	hosts []string
	redis *asked
	calls int
	read  int // how much of the log has been read
}

// asked records the queries to Redis about callers: their keys, sessions, limits and attempts.
type asked struct {
	mu  sync.Mutex
	all []string
}

func (a *asked) note(_ *server.Peer, command string, args ...string) bool {
	if strings.EqualFold(command, "EVAL") { // by whoever is the first to run a script
		return false
	}
	for _, arg := range args {
		for _, of := range []string{"key:", "session:", "limit:", "signin:"} {
			if strings.Contains(arg, of) && !strings.Contains(arg, "\n") {
				a.mu.Lock()
				a.all = append(a.all, strings.ToUpper(command)+" "+of)
				a.mu.Unlock()
				return false
			}
		}
	}
	return false
}

func (a *asked) take() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return strings.Join(all, ", ")
}

func newThreeHosts(t *testing.T) *threeHosts {
	t.Helper()
	redis := miniredis.RunT(t)
	h := &threeHosts{redis: &asked{}}
	var frozen atomic.Int64
	h.World = fixture.NewQuietWorld(t, func(c *config.Config, o *gateway.Options) {
		c.Redis.Addrs, c.TrustedProxies = []string{redis.Addr()}, []string{"127.0.0.1"}
		o.Now = func() time.Time {
			if at := frozen.Load(); at != 0 {
				return time.UnixMilli(at)
			}
			return time.Now()
		}
		gatewaytest.PatientRedis(c, o)
	})
	h.Org(t, "aaaa")
	h.Org(t, "bbbb")
	if _, err := control.Call[control.Organization](t.Context(), h.Commands, "org.suspend", control.Slug{Slug: "bbbb"}); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	redis.SetTime(now)
	frozen.Store(now.UnixMilli())
	h.hosts = []string{"aaaa.localhost", "bbbb.localhost", "cccc.localhost"}
	for _, host := range h.hosts {
		h.Page(t, http.MethodGet, host, "/sign-in")
	}
	redis.Server().SetPreHook(h.redis.note)
	return h
}

// told returns everything that an answer reveals: code, headers, body, and the look-ups for it.
func (h *threeHosts) told(t *testing.T, method, host, target string, changes []gatewaytest.Request) string {
	t.Helper()
	h.redis.take()
	h.calls++
	id := fmt.Sprintf("told-%d", h.calls)
	a := h.As(t, method, host, target, append(changes, gatewaytest.Header("X-Request-Id", id))...)
	a.Header.Del("Date")
	a.Header.Del("X-Request-Id")
	a.Header.Del("Ratelimit-Remaining") // an address has one count over all hosts, which each of these requests is of
	var text strings.Builder
	fmt.Fprintln(&text, a.Code)
	_ = a.Header.Write(&text)
	fmt.Fprintf(&text, "%.400s\nstore: %d, redis: %s", a.Body, h.storeCalls(t, target, a.Header.Get("Content-Type"), id), h.redis.take())
	return strings.ReplaceAll(text.String(), host, "<host>")
}

// storeCalls waits for the log line of the request and returns its number of store calls. For a page that is the last
// line, because the calls of operations have the page's name too.
func (h *threeHosts) storeCalls(t *testing.T, target, media, id string) (calls int) {
	t.Helper()
	page := !strings.HasPrefix(target, "/api/") && !strings.HasPrefix(target, "/auth/") && !strings.HasPrefix(target, operation.ContentPath) &&
		(!strings.HasPrefix(target, operation.FormPath) || strings.HasPrefix(media, "text/html"))
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		calls, whole := 0, false
		for line := range strings.Lines(h.Log.String()[h.read:]) {
			var said struct {
				Operation  string
				StoreCalls int    `json:"store_calls"`
				RequestID  string `json:"request_id"`
			}
			if strings.Contains(line, `"store_calls"`) && json.Unmarshal([]byte(line), &said) == nil && said.RequestID == id {
				calls += said.StoreCalls
				whole = whole || !page || said.Operation == "page"
			}
		}
		if whole {
			h.read = strings.LastIndexByte(h.Log.String(), '\n') + 1
			return calls
		}
	}
	t.Fatalf("got no log line of %s, want one", id)
	return 0
}

// anonymousWays are the ways to call anonymously. Each call gets keys that were not looked up yet.
func anonymousWays(t *testing.T, key string, session *http.Cookie) map[string][]gatewaytest.Request {
	t.Helper()
	origin, cross := gatewaytest.Header("Origin", "https://x.example"), gatewaytest.Header("Sec-Fetch-Site", "cross-site")
	wrong := gatewaytest.WithKey(fixture.RandomKey(t, tenants.ServerFull))
	malformed := &http.Cookie{Name: session.Name, Value: "ses_none"}
	return map[string][]gatewaytest.Request{
		"no credential":             nil,
		"a foreign origin":          {origin},
		"another site":              {cross},
		"a wrong key":               {wrong},
		"a wrong key, a page":       {gatewaytest.WithKey(fixture.RandomKey(t, tenants.Browser)), origin},
		"another's key":             {gatewaytest.WithKey(key)},
		"a malformed key":           {gatewaytest.WithKey("tnt_none")},
		"two keys":                  {wrong, gatewaytest.WithKey(key)},
		"a wrong session":           {gatewaytest.Cookie(fixture.RandomCookie())},
		"another's session":         {gatewaytest.Cookie(session)},
		"a malformed session":       {gatewaytest.Cookie(malformed)},
		"a session, cross-site":     {gatewaytest.Cookie(session), origin, cross},
		"a key in the wrong header": {gatewaytest.Header("Authorization", "Bearer "+key)},
	}
}

// TestNothingRevealsWhichOrganizationsExist asks every row and page of three hosts as an anonymous caller: codes,
// headers, bodies and look-ups are equal, so that neither the answer nor its timing tells which organizations exist.
func TestNothingRevealsWhichOrganizationsExist(t *testing.T) {
	t.Parallel()
	h := newThreeHosts(t)
	session := fixture.RandomCookie()
	addresses := 0
	compare := func(what, method, target string, changes []gatewaytest.Request) {
		t.Helper()
		for way := range anonymousWays(t, h.A.FullKey, session) {
			differ := ""
			// An organization is read again now and then by some request, which differs once.
			for range 5 {
				more := anonymousWays(t, h.A.FullKey, session)[way]
				addresses++ // one for each: what slows addresses down knows no hosts
				from := gatewaytest.Header("X-Forwarded-For", fmt.Sprintf("10.%d.%d.%d", addresses/62500, addresses/250%250, addresses%250))
				var first string
				differ = ""
				for i, host := range h.hosts {
					told := h.told(t, method, host, target, slices.Concat(changes, more, []gatewaytest.Request{from}))
					if i == 0 {
						first = told
					} else if told != first {
						differ += fmt.Sprintf("\nan active organization\n%s\n%s\n%s", first, []string{"", "a suspended one", "an unknown one"}[i], told)
					}
				}
				if differ == "" {
					break
				}
			}
			if differ != "" {
				t.Errorf("%s with %s: want the same answer:%s", what, way, differ)
			}
		}
	}
	for _, op := range h.Rows() {
		for _, path := range op.Paths() {
			q := h.Build(&op, path, fixture.SampleFor(&op), func(at fixture.Slot) (string, bool) { return fixture.RandomLike(h.A.IDs[at.Ref]), true }, fixture.Every)
			compare(op.Method+" "+path, q.Method, q.Target, q.Changes)
		}
	}
	for _, page := range []string{
		"/", "/find?q=x", "/docs", "/docs/folders.get", "/docs/folders.get/try", "/docs/none", "/sign-in", "/enter", "/welcome", "/do/folders.create", "/contacts", "/contacts/x",
		"/shared/reports/x", "/shared/reports/x/y", "/shared/reports/x?data=1&params[a]=b", "/shared/reports/x?a;b", "/nothing", "/assets/console.css", "/api/openapi.json", "/api/nothing",
	} {
		compare("GET "+page, http.MethodGet, page, nil)
	}
	form := func(values url.Values) []gatewaytest.Request {
		return []gatewaytest.Request{gatewaytest.Body("application/x-www-form-urlencoded", values.Encode())}
	}
	const unknown = operation.FormPath + "there-is-no-such-form"
	compare("GET "+unknown, http.MethodGet, unknown, []gatewaytest.Request{gatewaytest.Header("Accept", "text/html")})
	compare("POST "+unknown, http.MethodPost, unknown, form(url.Values{"values.why": {"x"}}))
	compare("POST /sign-in", http.MethodPost, "/sign-in", form(url.Values{"email": {"ada@example.com"}, "password": {"wrong"}}))
	compare("POST /sign-out", http.MethodPost, "/sign-out", form(nil))
	compare("POST /enter", http.MethodPost, "/enter", form(url.Values{"token": {"inv_x"}}))
	compare("POST /welcome", http.MethodPost, "/welcome", form(url.Values{"token": {"inv_x"}, "password": {"correct horse battery"}}))
	compare("POST /do/folders.create", http.MethodPost, "/do/folders.create", form(url.Values{"name": {"x"}}))
	compare("POST /docs/folders.get/try", http.MethodPost, "/docs/folders.get/try", form(nil))
}

// TestRecordedReadsAreRefusedAcrossSites checks that a link on another site's page does nothing if its row leaves a
// record in the name of the person who follows it, or sends all records. Links of the console, and rows that only read,
// work.
func TestRecordedReadsAreRefusedAcrossSites(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	recorded := 0
	for _, op := range w.App.Operations() {
		if op.Method != http.MethodGet || op.Credentials&operation.Session == 0 {
			continue
		}
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, func(string) bool { return false })
		ask := func(changes ...gatewaytest.Request) *gatewaytest.Answer {
			return p.Do(t, q.Method, q.Target, append(changes, gatewaytest.Cookie(p.AdminCookie))...)
		}
		refused := func(a *gatewaytest.Answer) bool { return a.Message == "The request comes from another site" }
		links := op.Audit == operation.AuditAlways
		if links {
			recorded++
		}
		for _, header := range [][2]string{{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "https://x.example"}} {
			if a := ask(gatewaytest.Header(header[0], header[1])); refused(a) != links || links && a.Code != http.StatusForbidden {
				t.Errorf("%[1]s with %[2]s: %[3]s: got %[4]d %[5]s, want refused = %[6]t",
					op.Name, header[0], header[1], a.Code, a.Message, links)
			}
		}
		for _, site := range []string{"same-origin", "none"} {
			if a := ask(gatewaytest.Header("Sec-Fetch-Site", site)); refused(a) {
				t.Errorf("%s from its own site (%s): got %d %s, want it accepted", op.Name, site, a.Code, a.Message)
			}
		}
	}
	if recorded < 5 {
		t.Errorf("%d rows that read leave a record, want at least 5", recorded)
	}
	records := fixture.AuditRecords(t, p.Org, 1000)
	exports := 0
	for _, r := range records {
		if r.Operation == "exports.get" {
			exports++
		}
	}
	if exports != 2 { // from its own site, and typed in
		t.Errorf("got %d records of exports, want 2", exports)
	}
}

// TestReferenceIsRateLimited checks that /docs and the OpenAPI document are counted by address, like pages.
func TestReferenceIsRateLimited(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) {
		_ = c.Limits.Address.UnmarshalText([]byte("2/d"))
		c.TrustedProxies = []string{"127.0.0.1"}
	})
	g.Org(t, "acme")
	for n, path := range []string{"/docs", "/docs/folders.get", "/api/openapi.json", "/shared/reports/x"} {
		for m, host := range []string{"acme.localhost", "nobody.localhost"} {
			from := gatewaytest.Header("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", 10*n+m))
			var last *gatewaytest.Answer
			for range 3 {
				last = g.Page(t, http.MethodGet, host, path, from)
			}
			if last.Code != http.StatusTooManyRequests || last.Header.Get("Retry-After") == "" {
				t.Errorf("%s%s: got %d %v, want %v", host, path, last.Code, last.Header, http.StatusTooManyRequests)
			}
			if enveloped := strings.HasPrefix(last.Text(), `{"status":"failed","message":"Too many requests`); enveloped != strings.HasPrefix(path, "/api/") {
				t.Errorf("%s: got %s, want enveloped = %v", path, last.Text(), strings.HasPrefix(path, "/api/"))
			}
		}
	}
}
