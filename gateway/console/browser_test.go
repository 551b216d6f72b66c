package console_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

// address returns the address of a path for a browser, which resolves *.localhost itself.
func address(t *testing.T, o *gatewaytest.Org, path string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(o.App.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + o.Host + ":" + port + path
}

// fits fails the test if the page is wider than the screen. It compares with the width of the document, because the
// window of a phone grows with the page.
func fits(p *tab) {
	p.t.Helper()
	if p.value("document.documentElement.scrollWidth <= document.documentElement.clientWidth") != "true" {
		p.t.Errorf("%s is wider than the screen", p.value("location.pathname"))
	}
}

func TestBrowserSignIn(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme := start(t)
	acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Name, n.Roles = "Ada Lovelace", []string{"admin"} })
	for _, screen := range screens() {
		p := b.tab(screen)
		p.visit(address(t, acme, "/sign-in"))
		fits(p)
		p.picture("sign-in-" + screen.name)
		// By keyboard alone, from where the page puts the focus.
		p.write("email", "ada@example.com")
		p.tabulator()
		p.write("password", "not the password")
		p.enter()
		p.wait("document.querySelector('.error')?.textContent === 'E-mail address or password is wrong'")
		p.wait("document.activeElement.id === 'password' && document.activeElement.getAttribute('aria-invalid') === 'true' && !document.querySelector('button').disabled")
		fits(p)
		p.picture("sign-in-wrong-" + screen.name)
		p.value("document.activeElement.select()")
		p.write("password", gatewaytest.Password)
		p.tabulator()
		p.wait("document.activeElement.tagName === 'BUTTON'")
		p.enter()
		p.wait("location.pathname === '/' && document.readyState === 'complete' && document.querySelector('h1')?.textContent === 'Overview'")
		fits(p)
		p.picture("home-" + screen.name)
		if cookies := p.value("document.cookie"); cookies != "" {
			t.Errorf("scripts read the cookie: %s", cookies)
		}
		p.value("document.querySelector('details.menu').open = true; document.querySelector('form[action=\"/sign-out\"] button').focus()")
		p.enter()
		p.wait("location.pathname === '/sign-in'")
		p.visit(address(t, acme, "/"))
		p.wait("location.pathname === '/sign-in'")
	}
	b.quiet("the server responded with a status of 403")
}

// TestBrowserSignOutOfAnEndedSession checks that signing out of an ended session leads to the sign-in page.
func TestBrowserSignOutOfAnEndedSession(t *testing.T) {
	t.Parallel()
	b := launch(t)
	g, acme := start(t)
	user, _ := acme.Person(t, "ada@example.com", nil)
	p := b.tab(screens()[0])
	p.visit(address(t, acme, "/sign-in"))
	p.write("email", "ada@example.com")
	p.tabulator()
	p.write("password", gatewaytest.Password)
	p.enter()
	p.wait("location.pathname === '/' && document.readyState === 'complete'")
	if _, err := control.Call[control.User](t.Context(), g.Commands, "user.deactivate", control.UserRef{Org: "acme", User: user.Email}); err != nil {
		t.Fatal(err)
	}
	p.value("document.querySelector('form[action=\"/sign-out\"] button').click()")
	p.wait("location.pathname === '/sign-in'")
}

func TestBrowserWelcome(t *testing.T) {
	t.Parallel()
	b := launch(t)
	g, acme := start(t)
	invited, err := control.Call[control.User](t.Context(), g.Commands, "user.create", control.NewUser{Org: "acme", UserFields: control.UserFields{Name: "Ada Lovelace", Email: "ada@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	p := b.tab(screens()[0])
	p.visit(address(t, acme, "/welcome"))
	p.wait("document.querySelector('.error')?.textContent.startsWith('The link is incomplete')")
	p.do("Page.navigate", map[string]any{"url": invited.Link}, nil) // the whole link, where the half of it was
	p.wait("document.querySelector('#token')?.value.length > 20 && document.querySelector('.error').textContent === ''")
	p = b.tab(screens()[1])
	p.visit(invited.Link)
	p.wait("location.hash === '' && !location.href.includes('#')")
	fits(p)
	p.picture("welcome-phone")
	p.write("password", "short")
	p.enter()
	p.wait("!document.querySelector('#password').validity.valid")
	p.value("document.activeElement.select()")
	p.write("password", gatewaytest.Password)
	p.enter()
	p.wait("location.pathname === '/' && document.querySelector('h1')?.textContent === 'Overview'")
	p.visit(invited.Link) // it says so before anything is typed
	p.wait("document.querySelector('.error')?.textContent.startsWith('The link was used already') && document.querySelector('#password').disabled && !document.querySelector('button').checkVisibility()")
	p.value("dispatchEvent(new Event('pageshow')); 1") // as when somebody comes back to it
	p.wait("document.querySelector('button').disabled && !document.querySelector('button').checkVisibility()")
	accessible(p)
	p.picture("welcome-used-phone")
	link, err := g.App.SignInLink(t.Context(), "acme", "ada@example.com", strings.TrimSuffix(address(t, acme, "/"), "/"), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	p.visit(link)
	p.wait("location.pathname === '/enter' && location.hash === '' && document.querySelector('[data-token]').hidden")
	fits(p)
	accessible(p)
	p.picture("enter-phone")
	p.click("form[action='/enter'] button")
	p.wait("location.pathname === '/' && document.querySelector('h1')?.textContent === 'Overview'")
	p.visit(link) // which works once
	p.click("form[action='/enter'] button")
	p.arrives("/enter", "used")
	p.wait("!document.querySelector('main button') && document.title.startsWith('Error: ')")
	p.picture("enter-used-phone")
	b.quiet("the server responded with a status of 403")
}

func TestBrowserReports(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme := start(t)
	fillReports(t, acme)
	for _, screen := range screens() {
		p := b.tab(screen)
		for name, id := range map[string]string{"table": tableID, "bar": barID, "number": numberID, "empty": emptyID, "wide": wideID} {
			p.visit(address(t, acme, reportPath(id)))
			p.wait("document.querySelector('h1')")
			fits(p)
			p.picture("report-" + name + "-" + screen.name)
		}
		p.visit(address(t, acme, reportPath(tableID)+"?params[age]=500"))
		p.picture("report-nothing-" + screen.name)
	}
	b.quiet()
}

// TestBrowserSecureReport checks that changed values keep the token, and that no request sends it as its referrer.
func TestBrowserSecureReport(t *testing.T) {
	t.Parallel()
	b := launch(t)
	g, acme := start(t)
	fillReports(t, acme)
	token, _ := share(t, acme, "FR")
	for _, screen := range screens() {
		p := b.tab(screen)
		p.visit(address(t, acme, reportPath(secureID)+"?token="+token))
		fits(p)
		p.picture("report-secure-" + screen.name)
		p.value("document.querySelector('input[type=number]').focus(); document.activeElement.select()")
		p.write(p.value("document.activeElement.id"), "60")
		p.value("window.before = true")
		p.enter()
		p.wait("!window.before && document.readyState === 'complete' && new URLSearchParams(location.search).get('params[age]') === '60' && document.querySelector('input[type=number]')?.value === '60'")
		if got := p.value("new URLSearchParams(location.search).get('token')"); got != token {
			t.Errorf("the form lost the token: %q", got)
		}
		if got := p.value("document.referrer"); got != "" {
			t.Errorf("document.referrer = %q, want none", got)
		}
		if p.value("[...document.querySelectorAll('tbody tr')].every(r => Number(r.cells[2].textContent) >= 60)") != "true" {
			t.Error("the value was not used")
		}
	}
	b.quiet()
	if strings.Contains(g.Log.String(), token) {
		t.Error("the log holds the token")
	}
}
