package console_test

import (
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// checkPage fails the test unless the page has the code, the texts, the security headers and valid markup.
func checkPage(t *testing.T, a *gatewaytest.Answer, code int, parts ...string) {
	t.Helper()
	if a.Code != code {
		t.Errorf("got %d, want %d: %.300s", a.Code, code, a.Body)
	}
	csp := a.Header.Get("Content-Security-Policy")
	for _, directive := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'"} {
		if !slices.Contains(strings.Split(csp, "; "), directive) {
			t.Errorf("Content-Security-Policy lacks %s: %s", directive, csp)
		}
	}
	if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	for name, want := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex, nofollow",
	} {
		if got := a.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if code == http.StatusSeeOther {
		return
	}
	if got := a.Header.Get("Content-Type"); got != "text/html; charset=utf-8" {
		t.Errorf("Content-Type: %s", got)
	}
	text := a.Text()
	bare := regexp.MustCompile(`"[^"]*"`).ReplaceAllString(text, `""`) // what a value says is no markup
	if regexp.MustCompile(`(?i)<script[^>]*>[^<]|<[a-z][^>]*\s(on[a-z]+|style)=`).MatchString(bare) || regexp.MustCompile(`(?i)(href|src|action)="\s*javascript:`).MatchString(text) {
		t.Errorf("the page has script or style of its own, which the policy blocks:\n%s", text)
	}
	for _, part := range parts {
		if !strings.Contains(html.UnescapeString(text), part) {
			t.Errorf("the page does not say %q:\n%s", part, text)
		}
	}
	checkMarkup(t, text)
}

// checkMarkup fails the test unless the page has a language, one first heading, unique ids, and a label for every
// visible input.
func checkMarkup(t *testing.T, text string) {
	t.Helper()
	if strings.Count(text, "<h1>")+strings.Count(text, "<h1 ") != 1 || strings.Count(text, "<main") != 1 || !strings.Contains(text, `<html lang="en">`) || !strings.Contains(text, "<title>") {
		t.Error("a page has a language, a title, one main part and one first heading")
	}
	ids := map[string]bool{}
	for _, id := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(text, -1) {
		if ids[id[1]] {
			t.Errorf("the id %s is not unique", id[1])
		}
		ids[id[1]] = true
	}
	within := regexp.MustCompile(`(?s)<label[^>]*>(.*?)</label>`).FindAllString(text, -1)
	for _, input := range regexp.MustCompile(`<(?:input|select|textarea)[^>]*>`).FindAllString(text, -1) {
		if strings.Contains(input, `type="hidden"`) || strings.Contains(input, ` aria-label="`) || slices.ContainsFunc(within, func(label string) bool { return strings.Contains(label, input) }) {
			continue
		}
		id := regexp.MustCompile(` id="([^"]+)"`).FindStringSubmatch(input)
		if id == nil || strings.Count(text, ` for="`+id[1]+`">`) != 1 {
			t.Errorf("no label for %s", input)
		}
	}
}

func start(t *testing.T, options ...gatewaytest.Option) (*gatewaytest.Gateway, *gatewaytest.Org) {
	t.Helper()
	g := gatewaytest.Start(t, append([]gatewaytest.Option{fixture.Followed}, options...)...)
	return g, g.Org(t, "acme", "teams")
}

// TestAnonymousPages opens pages without a session. Unknown hosts answer like an organization.
func TestAnonymousPages(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	checkPage(t, acme.Page(t, "/shared/reports/none"), 404, "There is no such report")
	home := acme.Page(t, "/")
	checkPage(t, home, 303)
	if got := home.Header.Get("Location"); got != "/sign-in" {
		t.Errorf("Location: %s", got)
	}
	for _, path := range []string{"/none", "/sign-in/", "/sign-in/x", "/SIGN-IN", "/shared/reports/", "/assets/", "/assets/pages.html", "/../etc/passwd", "//sign-in", "/./sign-in?token=x", "/shared//reports/x", "/welcome%00", "/.git/config"} {
		checkPage(t, acme.Page(t, path), 404, "There is no such page")
	}
	checkPage(t, g.Page(t, http.MethodPost, acme.Host, "/sign-in"), 422, "Sign in", "Validation failed")
	for _, method := range []string{http.MethodPut, http.MethodDelete} {
		checkPage(t, g.Page(t, method, acme.Host, "/sign-in"), 404, "There is no such page")
	}
	headers := func(a *gatewaytest.Answer) string { return strings.Join(slices.Sorted(maps.Keys(a.Header)), " ") }
	// A host without an organization answers like an organization that does not have the report.
	for path, code := range map[string]int{"/shared/reports/x": 404, "/shared/reports/x/y?token=z": 404, "/shared/reports/x?token[]=y": 400} {
		here := acme.Page(t, path)
		if here.Code != code {
			t.Errorf("%s: %d", path, here.Code)
		}
		for _, host := range []string{"nobody.localhost", "localhost", "127.0.0.1", "a.b.c", "xn--80ak6aa92e.localhost"} {
			if a := g.Page(t, http.MethodGet, host, path); a.Code != here.Code || a.Text() != here.Text() || headers(a) != headers(here) {
				t.Errorf("%s%s: got %d %s %s, want the answer of an organization", host, path, a.Code, headers(a), a.Body)
			}
		}
	}
}

// noTime stops the clock of the gateway.
func noTime(_ *config.Config, o *gateway.Options) {
	now := time.Now()
	o.Now = func() time.Time { return now }
}

// TestSignInDoesNotRevealOrganizations checks that the pages and answers of signing in are the same on every host,
// unless an organization chooses to be named.
func TestSignInDoesNotRevealOrganizations(t *testing.T) {
	t.Parallel()
	g, acme := start(t, noTime)
	gone := g.Org(t, "gone")
	acme.Person(t, "ada@example.com", nil)
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.suspend", control.Slug{Slug: "gone"}); err != nil {
		t.Fatal(err)
	}
	hosts := []string{acme.Host, gone.Host, "nobody.localhost", "localhost", "127.0.0.1", "xn--80ak6aa92e.localhost"}
	same := func(what string, ask func(host string) *gatewaytest.Answer) *gatewaytest.Answer {
		t.Helper()
		var first *gatewaytest.Answer
		for _, host := range hosts {
			a := ask(host)
			for _, h := range []string{"Date", "X-Request-Id"} {
				a.Header.Del(h)
			}
			if first == nil {
				first = a
			}
			if a.Code != first.Code || a.Text() != first.Text() || !maps.EqualFunc(a.Header, first.Header, slices.Equal) {
				t.Errorf("%s on %s: %d %v %s\non %s: %d %v %s", what, host, a.Code, a.Header, a.Body, hosts[0], first.Code, first.Header, first.Body)
			}
		}
		return first
	}
	for path, text := range map[string]string{"/sign-in": "E-mail address", "/welcome": "At least 12 characters"} {
		a := same(path, func(host string) *gatewaytest.Answer { return g.Page(t, http.MethodGet, host, path) })
		checkPage(t, a, 200, text)
		if strings.Contains(a.Text(), "acme") {
			t.Errorf("%s names the organization: %s", path, a.Body)
		}
	}
	post := func(path string, body any, changes ...gatewaytest.Request) func(string) *gatewaytest.Answer {
		return func(host string) *gatewaytest.Answer {
			return g.Do(t, http.MethodPost, host, path, append(changes, gatewaytest.JSON(body))...)
		}
	}
	credentials := func(email string) map[string]string {
		return map[string]string{"email": email, "password": "a wrong password"}
	}
	for what, code := range map[string]int{"wrong password": 403, "nothing": 422, "other site": 403, "invitation": 403} {
		var a *gatewaytest.Answer
		switch what {
		case "wrong password":
			a = same(what, post("/auth/sign-in", credentials("bob@example.com")))
		case "nothing":
			a = same(what, post("/auth/sign-in", map[string]string{}))
		case "other site":
			a = same(what, post("/auth/sign-in", credentials("bob@example.com"), gatewaytest.Header("Origin", "https://evil.example")))
		case "invitation":
			a = same(what, post("/auth/password", map[string]string{"token": "inv_" + strings.Repeat("a", 32), "password": gatewaytest.Password}))
		}
		if a.Code != code {
			t.Errorf("%s: %d %s", what, a.Code, a.Body)
		}
	}
	// Wrong passwords are throttled on every host in the same way.
	codes := map[string][]int{}
	for _, host := range hosts[:3] {
		for range 7 {
			codes[host] = append(codes[host], post("/auth/sign-in", credentials("ada@example.com"))(host).Code)
		}
		if !slices.Equal(codes[host], []int{403, 403, 403, 403, 403, 429, 429}) {
			t.Errorf("seven wrong passwords on %s: %v", host, codes[host])
		}
	}
	// The pages name an organization that has chosen so.
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", control.OrganizationChange{Slug: "acme", OrganizationFields: control.OrganizationFields{Settings: map[string]bool{"sign_in_names_organization": true}}}); err != nil {
		t.Fatal(err)
	}
	checkPage(t, acme.Page(t, "/sign-in"), 200, "Organization acme", "E-mail address", "Password")
	checkPage(t, acme.Page(t, "/welcome"), 200, "Organization acme", "At least 12 characters")
}

// TestChoosingAPasswordIsRateLimited checks that attempts count by address, together with sign-in, before the link is
// looked up.
func TestChoosingAPasswordIsRateLimited(t *testing.T) {
	t.Parallel()
	g, acme := start(t, noTime, func(c *config.Config, _ *gateway.Options) { c.TrustedProxies = []string{"127.0.0.1"} })
	choose := func(token, from string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/auth/password", gatewaytest.Header("X-Forwarded-For", from),
			gatewaytest.JSON(map[string]string{"token": token, "password": gatewaytest.Password}))
	}
	invited, err := control.Call[control.User](t.Context(), g.Commands, "user.create", control.NewUser{Org: "acme", UserFields: control.UserFields{Name: "Ada", Email: "ada@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(invited.Link)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if a := choose("inv_guess", "192.0.2.1"); a.Code != http.StatusForbidden {
			t.Fatalf("a guess: %d %s", a.Code, a.Body)
		}
	}
	if a := choose(link.Fragment, "192.0.2.1"); a.Code != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "9" {
		t.Errorf("a good link after 100 guesses: %d %v %s", a.Code, a.Header, a.Body)
	}
	if a := choose(link.Fragment, "192.0.2.2"); a.Code != http.StatusOK {
		t.Errorf("from elsewhere: %d %s", a.Code, a.Body)
	}
}

// TestUnknownHostExplainsAddresses checks that a host that could be an organization's redirects to the sign-in page,
// which explains addresses, as an organization does. Other hosts explain addresses at once.
func TestUnknownHostExplainsAddresses(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	suspended := g.Org(t, "suspended")
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.suspend", control.Slug{Slug: suspended.Slug}); err != nil {
		t.Fatal(err)
	}
	address := "<code>" + strings.Replace(g.URL(""), "127.0.0.1", "&lt;organization&gt;.localhost", 1) + "</code>"
	for _, host := range []string{"localhost", "127.0.0.1", "localhost:8080", "xn--80ak6aa92e.localhost"} {
		a := g.Page(t, http.MethodGet, host, "/")
		checkPage(t, a, 404, "Tenantry")
		if !strings.Contains(a.Text(), address) {
			t.Errorf("%s: no address: %s", host, a.Text())
		}
	}
	here := g.Page(t, http.MethodGet, acme.Host, "/")
	for _, host := range []string{acme.Host, suspended.Host, "nobody.localhost", "a.b.c"} {
		a := g.Page(t, http.MethodGet, host, "/")
		if a.Code != http.StatusSeeOther || a.Header.Get("Location") != "/sign-in" || a.Text() != here.Text() || (a.Header.Get("RateLimit-Limit") == "") != (here.Header.Get("RateLimit-Limit") == "") {
			t.Errorf("%s is told from an organization: %d %v %s", host, a.Code, a.Header, a.Text())
		}
		if page := g.Page(t, http.MethodGet, host, "/sign-in"); !strings.Contains(page.Text(), address) {
			t.Errorf("%s: no address: %s", host, page.Text())
		}
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	for path, kind := range map[string]string{"/assets/console.css": "text/css", "/assets/report.css": "text/css", "/assets/console.js": "text/javascript"} {
		a := acme.Page(t, path)
		if a.Code != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), kind) || a.Header.Get("X-Content-Type-Options") != "nosniff" || len(a.Body) == 0 {
			t.Errorf("%s: %d %v", path, a.Code, a.Header)
		}
		if got := a.Header.Get("Cache-Control"); got != "public, max-age=300" {
			t.Errorf("%s: Cache-Control %s", path, got)
		}
		for _, elsewhere := range []string{"http:", "https:", "//fonts", "@import"} {
			if strings.Contains(a.Text(), elsewhere) {
				t.Errorf("%s loads %s", path, elsewhere)
			}
		}
	}
}

func signIn(t *testing.T, o *gatewaytest.Org, email, password string, changes ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	changes = append([]gatewaytest.Request{gatewaytest.JSON(map[string]string{"email": email, "password": password})}, changes...)
	return o.Do(t, http.MethodPost, "/auth/sign-in", changes...)
}

func sessionOf(t *testing.T, a *gatewaytest.Answer) *http.Cookie {
	t.Helper()
	lines := a.Header.Values("Set-Cookie")
	if len(lines) != 1 {
		t.Fatalf("%d %s: cookies %q", a.Code, a.Body, lines)
	}
	cookie, err := http.ParseSetCookie(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	return cookie
}

// TestSessionCookieAttributes checks that the cookie is hidden from scripts and other sites, and bound to this host.
func TestSessionCookieAttributes(t *testing.T) {
	t.Parallel()
	for public, want := range map[string]struct {
		name   string
		secure bool
	}{"": {"tenantry_session", false}, "https://{slug}.example.com": {"__Host-tenantry_session", true}, "http://{slug}.localhost:8080": {"tenantry_session", false}} {
		t.Run(want.name+public, func(t *testing.T) {
			t.Parallel()
			_, acme := start(t, func(c *config.Config, _ *gateway.Options) { c.PublicURL = public })
			_, cookie := acme.Person(t, "ada@example.com", nil)
			if cookie.Name != want.name || cookie.Secure != want.secure || !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.Domain != "" || cookie.Path != "/" || cookie.Expires.IsZero() {
				t.Errorf("%+v", cookie)
			}
			if a := acme.Page(t, "/", gatewaytest.Cookie(cookie)); a.Code != 200 {
				t.Errorf("%d", a.Code)
			}
			end := sessionOf(t, acme.Do(t, http.MethodPost, "/auth/sign-out", gatewaytest.Cookie(cookie)))
			if end.Name != want.name || end.MaxAge >= 0 || end.Value != "" || end.Secure != want.secure || !end.HttpOnly || end.Path != "/" {
				t.Errorf("at sign-out: %+v", end)
			}
		})
	}
}

func TestHomeAndSignOut(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	other := g.Org(t, "other")
	_, cookie := acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Name, n.Roles = "Ada <b>Lovelace</b>", []string{"admin"} })
	home := acme.Page(t, "/", gatewaytest.Cookie(cookie))
	checkPage(t, home, 200, "Ada <b>Lovelace</b>", "Sign out")
	checkPage(t, acme.Page(t, "/me", gatewaytest.Cookie(cookie)), 200, "Ada <b>Lovelace</b>", "ada@example.com", "admin")
	if strings.Contains(home.Text(), "<b>") {
		t.Error("the name of a person became markup")
	}
	for name, a := range map[string]*gatewaytest.Answer{
		"session of another organization": other.Page(t, "/", gatewaytest.Cookie(cookie)),
		"made-up session":                 acme.Page(t, "/", gatewaytest.Cookie(&http.Cookie{Name: cookie.Name, Value: "ses_x"})),
	} {
		if a.Code != http.StatusSeeOther || a.Header.Get("Location") != "/sign-in" {
			t.Errorf("%s: %d", name, a.Code)
		}
	}
	if a := acme.Do(t, http.MethodPost, "/auth/sign-out", gatewaytest.Cookie(cookie)); a.Code != 200 || a.Message != "Signed out" {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if a := acme.Page(t, "/", gatewaytest.Cookie(cookie)); a.Code != http.StatusSeeOther {
		t.Errorf("after sign-out: %d", a.Code)
	}
	if a := acme.Do(t, http.MethodGet, "/api/compliance/schema", gatewaytest.Cookie(cookie)); a.Code != http.StatusForbidden {
		t.Errorf("after sign-out: %d", a.Code)
	}
}

// TestWrongSignInsAnswerAlike checks that the answers do not reveal which addresses exist.
func TestWrongSignInsAnswerAlike(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	user, cookie := acme.Person(t, "ada@example.com", nil)
	const wrong = `{"status":"failed","message":"E-mail address or password is wrong","data":[]}`
	for _, email := range []string{"ada@example.com", "nobody@example.com", "ADA@EXAMPLE.COM", "x"} {
		a := signIn(t, acme, email, "not the password")
		if a.Code != http.StatusForbidden || a.Text() != wrong || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s %v", email, a.Code, a.Body, a.Header)
		}
	}
	if a := acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]any{"email": 5})); a.Code != 422 || !strings.Contains(a.Message, "password is required") {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	again := sessionOf(t, signIn(t, acme, "Ada@Example.com", gatewaytest.Password, gatewaytest.Cookie(cookie)))
	if again.Value == cookie.Value { // each sign-in has a session of its own
		t.Error("the session keeps its identifier at sign-in")
	}
	if a := acme.Page(t, "/", gatewaytest.Cookie(again)); a.Code != 200 {
		t.Errorf("%d", a.Code)
	}
	if _, err := control.Call[control.User](t.Context(), g.Commands, "user.deactivate", control.UserRef{Org: "acme", User: user.Email}); err != nil {
		t.Fatal(err)
	}
	if a := signIn(t, acme, "ada@example.com", gatewaytest.Password); a.Text() != wrong {
		t.Errorf("deactivated: %d %s", a.Code, a.Body)
	}
	if a := acme.Page(t, "/", gatewaytest.Cookie(again)); a.Code != http.StatusSeeOther {
		t.Errorf("session of a deactivated person: %d", a.Code)
	}
}

// TestOtherSitesCannotSignIn checks that other sites can neither sign in nor act with a session.
func TestOtherSitesCannotSignIn(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	_, cookie := acme.Person(t, "ada@example.com", nil)
	own := "http://" + acme.Host
	credentials := gatewaytest.JSON(map[string]string{"email": "ada@example.com", "password": gatewaytest.Password})
	for path, sent := range map[string]gatewaytest.Request{"/auth/sign-in": credentials, "/auth/sign-out": func(*http.Request) {}} {
		for _, test := range []struct {
			name    string
			headers []gatewaytest.Request
			code    int
		}{
			{"other site", []gatewaytest.Request{gatewaytest.Header("Sec-Fetch-Site", "cross-site"), gatewaytest.Header("Origin", "https://evil.example")}, 403},
			{"sibling", []gatewaytest.Request{gatewaytest.Header("Sec-Fetch-Site", "same-site"), gatewaytest.Header("Origin", "http://other.localhost")}, 403},
			{"old browser", []gatewaytest.Request{gatewaytest.Header("Origin", "http://other.localhost")}, 403},
			{"same origin", []gatewaytest.Request{gatewaytest.Header("Sec-Fetch-Site", "same-origin"), gatewaytest.Header("Origin", own)}, 200},
		} {
			a := acme.Do(t, http.MethodPost, path, append(test.headers, sent, gatewaytest.Cookie(cookie))...)
			if a.Code != test.code || (a.Code == 403 && (a.Message != "The request comes from another site" || a.Header.Get("Set-Cookie") != "")) {
				t.Errorf("%s from %s: %d %s", path, test.name, a.Code, a.Body)
			}
		}
	}
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
		a := acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.Body(kind, `{"email":"ada@example.com","password":"`+gatewaytest.Password+`"}`))
		if a.Code != http.StatusUnsupportedMediaType || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("%q: %d %s", kind, a.Code, a.Body)
		}
	}
	for _, path := range []string{"/auth/sign-in", "/auth/sign-out", "/auth/password"} {
		if a := acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(cookie)); a.Code != http.StatusMethodNotAllowed || a.Header.Get("Allow") != http.MethodPost {
			t.Errorf("GET %s: %d", path, a.Code)
		}
	}
}

// TestWelcomeLinkIsSingleUse checks that a link works once, and in one organization only.
func TestWelcomeLinkIsSingleUse(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	other := g.Org(t, "other")
	invited, err := control.Call[control.User](t.Context(), g.Commands, "user.create", control.NewUser{Org: "acme", UserFields: control.UserFields{Name: "Ada", Email: "ada@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	link, err := url.Parse(invited.Link)
	if err != nil || link.Path != "/welcome" || link.Fragment == "" || link.RawQuery != "" || link.Hostname() != acme.Host {
		t.Fatalf("link %s", invited.Link)
	}
	const spent = `{"status":"failed","message":"The link was used already or has expired; ask for a new one","data":[]}`
	choose := func(o *gatewaytest.Org, token, password string) *gatewaytest.Answer {
		return o.Do(t, http.MethodPost, "/auth/password", gatewaytest.JSON(map[string]string{"token": token, "password": password}))
	}
	if a := choose(acme, link.Fragment, "short"); a.Code != 422 || !strings.Contains(a.Message, "at least 12 characters") {
		t.Errorf("short: %d %s", a.Code, a.Body)
	}
	for name, a := range map[string]*gatewaytest.Answer{
		"other organization": choose(other, link.Fragment, gatewaytest.Password), "made up": choose(acme, "inv_"+strings.Repeat("a", 32), gatewaytest.Password),
	} {
		if a.Code != 403 || a.Text() != spent || a.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
	cookie := sessionOf(t, choose(acme, link.Fragment, gatewaytest.Password))
	if a := acme.Page(t, "/", gatewaytest.Cookie(cookie)); a.Code != 200 {
		t.Errorf("%d", a.Code)
	}
	if a := choose(acme, link.Fragment, "another good password"); a.Code != 403 || a.Text() != spent {
		t.Errorf("again: %d %s", a.Code, a.Body)
	}
	if a := signIn(t, acme, "ada@example.com", gatewaytest.Password); a.Code != 200 {
		t.Errorf("%d %s", a.Code, a.Body)
	}
	if log := g.Log.String(); strings.Contains(log, link.Fragment) || strings.Contains(log, gatewaytest.Password) || strings.Contains(log, "ada@") {
		t.Error("the log holds the token, the password or the address")
	}
}
