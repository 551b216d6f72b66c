package console_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/internal/proxytest"
	"tenantry/operation"
)

// broken is a module whose operations fail in the ways that an operation can.
type broken struct{}

func withBroken(_ *config.Config, o *gateway.Options) { o.Modules = append(o.Modules, broken{}) }

// Kept returns nothing.
func (broken) Kept() []record.Kept { return nil }

type nothing struct {
	Name string `json:"name" doc:"What is not there."`
}

// Operations returns the rows.
func (broken) Operations() (rows []operation.Row) {
	for what, fail := range map[string]func() error{
		"fails": func() error { return errors.New("no such table: secrets") },
		"away":  func() error { return store.ErrUnavailable },
		"busy": func() error {
			return &operation.Problem{Code: http.StatusTooManyRequests, Message: "Busy", RetryAfter: 3 * time.Second}
		},
		"panics": func() error { panic("a secret of the process") },
	} {
		rows = append(rows, operation.Typed(operation.Row{
			Name: "broken." + what, Method: http.MethodGet, Path: "/api/broken/" + what,
			Policy:   operation.Policy{Credentials: operation.Session, Rule: operation.AnyCaller()},
			Response: operation.Response{Message: "Got", Example: nothing{"nothing"}},
			Docs:     operation.Docs{Tag: "Broken", Summary: "Get what " + what, Description: "It does not."},
		}, func(context.Context, *operation.Call, struct{}) (nothing, error) { return nothing{}, fail() }))
	}
	return rows
}

// TestPagesOfFailures checks that the page of an operation that fails says so, does not show the error, and links to
// the overview.
func TestPagesOfFailures(t *testing.T) {
	t.Parallel()
	g, acme, cookie := rich(t, nil, withBroken)
	p := person{t, acme, cookie}
	checkPage(t, p.open("/users/999"), 404, "There is no such page", "Unable to locate user. It may have been deleted")
	for path, want := range map[string]struct {
		code              int
		title, says, wait string
	}{
		"/broken/fails":  {500, "Something went wrong", "give the people who run Tenantry this number: ", ""},
		"/broken/panics": {500, "Something went wrong", "give the people who run Tenantry this number: ", ""},
		"/broken/away":   {503, "Not available at the moment", "Please try again in a moment.", "2"},
		"/broken/busy":   {429, "Please wait a moment", "Please try again in a moment.", "3"},
	} {
		a := p.open(path)
		checkPage(t, a, want.code, want.title, want.says, `<a href="/">To the overview</a>`)
		if strings.Contains(a.Text(), "secret") || a.Header.Get("Retry-After") != want.wait {
			t.Errorf("%s: %v %s", path, a.Header, a.Text())
		}
		if number := a.Header.Get("X-Request-Id"); want.code == 500 && (number == "" || !strings.Contains(a.Text(), "number: "+number) || !strings.Contains(g.Log.String(), number)) {
			t.Errorf("%s: the number on the page is not in the log: %s", path, a.Text())
		}
	}
}

// TestThrottledPages checks that pages over a limit say when to try again, and that what was typed is not lost.
func TestThrottledPages(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil, noTime, gatewaytest.Limits("60/h", "off", "off", "off"))
	values := url.Values{"email": {"nobody@example.com"}, "password": {"wrong"}, "next": {"/contacts"}}
	p := person{t, acme, &http.Cookie{Name: "none", Value: "x"}}
	a := p.send("/sign-in", values)
	for range 10 {
		a = p.send("/sign-in", values)
	}
	checkPage(t, a, 429, "Sign in", "please wait: try again in 1 second.", `value="nobody@example.com"`, `name="next" value="/contacts"`)
	if a.Header.Get("Retry-After") != "1" {
		t.Errorf("%v", a.Header)
	}
	p.cookie = cookie
	for range 60 {
		acme.Do(t, http.MethodGet, "/api/me", gatewaytest.Cookie(cookie))
	}
	over := p.open("/contacts")
	checkPage(t, over, 429, "Please wait a moment", "The address is right: try again in "+over.Header.Get("Retry-After")+" seconds.")
	sent := p.send("/do/contacts.create", url.Values{"email": {"new@example.com"}})
	checkPage(t, sent, 429, "Nothing was saved. Reload this page in "+sent.Header.Get("Retry-After")+" seconds: your browser then sends again what you typed.")
	for _, a := range []*gatewaytest.Answer{over, sent} { // a Redis server has a clock of its own
		if wait, err := strconv.Atoi(a.Header.Get("Retry-After")); err != nil || wait < 2 || wait > 60 {
			t.Errorf("%v", a.Header)
		}
	}
}

// TestPagesWithoutRedis checks that pages are temporarily unavailable without Redis. They do not redirect to the
// sign-in page.
func TestPagesWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := proxytest.Start(t, miniredis.RunT(t).Addr())
	_, acme, cookie := rich(t, nil, gatewaytest.PatientRedis, func(c *config.Config, _ *gateway.Options) { c.Redis.Addrs = []string{redis.Addr} })
	redis.Break(t, proxytest.Refused())
	away := acme.Page(t, "/contacts", gatewaytest.Cookie(cookie))
	checkPage(t, away, 503, "Not available at the moment", "Please try again in a moment.")
	if away.Header.Get("Retry-After") != "2" {
		t.Errorf("%v", away.Header)
	}
	checkPage(t, acme.Page(t, "/sign-in"), 200, "Sign in")
}

// TestOverviewMemoryIsBounded bounds the memory for the overview of many reports. The store counts them; an overview that
// reads them takes four times as much.
func TestOverviewMemoryIsBounded(t *testing.T) { //nolint:paralleltest // allocations of other tests would count too
	const reports, most = 2000, 2 << 20
	_, acme := start(t)
	lines := make([]string, reports)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"kind":"custom_report","id":"67c%021d","pid":"report-%016d","title":"Contacts by country %d","class":"Contacts","secure":%t,"query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}]},"visual":"bar"}`, i, i, i, i%2 == 0)
	}
	acme.Import(t, lines...)
	_, cookie := acme.Person(t, "root@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	acme.Page(t, "/", gatewaytest.Cookie(cookie)) // fills the caches
	least := uint64(math.MaxUint64)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		a := acme.Page(t, "/", gatewaytest.Cookie(cookie))
		runtime.ReadMemStats(&after)
		checkPage(t, a, http.StatusOK, "988 more of the custom reports")
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least > most {
		t.Errorf("the overview of %d reports took %d bytes, want at most %d", reports, least, most)
	}
}
