// Package console is what people use in a browser: the pages of an organization for those who are signed in, signing in
// and out, choosing a password, shared reports. Its pages are made of the rows of operations and ask nothing but these;
// they work without scripts.
//
// This package serves: it finds who asks, and leads a path to the package that makes the page. A request goes
// Module.ServeHTTP → visit.Visit → list.Page, record.Page or another → ask.Client → layout.Renderer.Render. Which pages
// there are says package site. Imports go from the pages (list, record, submit, overview, reference, report) through
// form, builder and input to show, visit, layout, ask and site.
package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/list"
	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/overview"
	"tenantry/gateway/console/record"
	"tenantry/gateway/console/reference"
	"tenantry/gateway/console/report"
	"tenantry/gateway/console/signin"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/submit"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
)

// Deps are what the console works on.
type Deps struct {
	Sessions *sessions.Service
	People   *identity.Service
	Reports  *reports.Module
	// Visit leads to the organization of a request and to who asks, and counts it: nobody's organization, besides
	// tenants.ErrUnknownTenant, where the host leads to none. An *operation.Problem says that it is over a limit.
	Visit func(r *http.Request) (visit.Visitor, error)
	// Resolve leads to the organization alone, for a small page that is the same for every host.
	Resolve func(r *http.Request) (*tenants.Tenant, error)
	// Static makes a handler of content that stays the same.
	Static  func(contentType string, content func() []byte) http.Handler
	BaseURL func(slug string) string
	Cookie  string // name of the session cookie
	Secure  bool   // served over TLS
	Now     func() time.Time
	Log     *slog.Logger
}

// Module is the console. Safe for concurrent use.
type Module struct {
	Deps
	common  visit.Console
	account signin.Module
	mux     *http.ServeMux
}

// New returns the console. An error is a fault of the program.
func New(d Deps) (*Module, error) {
	p, err := layout.New(d.BaseURL, d.Log)
	if err != nil {
		return nil, err
	}
	m := &Module{Deps: d, mux: http.NewServeMux(), account: signin.Module{Sessions: d.Sessions, People: d.People, Name: d.Cookie, Secure: d.Secure}, common: visit.Console{
		Client: &ask.Client{Cookie: d.Cookie, BaseURL: d.BaseURL}, Layout: p, Locales: locale.New(), Sessions: d.Sessions, People: d.People,
		Own: map[string]*operation.Row{}, Cookie: d.Cookie, Now: d.Now, Log: d.Log,
	}}
	return m, m.routes()
}

// Serve makes the pages of the rows; handler serves them. It is called before the first request.
func (m *Module) Serve(rows []operation.Row, handler http.Handler) {
	m.common.Site, m.common.Client.API = site.New(rows), handler
}

// Operations returns the rows of signing in and out, and of people's own sessions and passwords.
func (m *Module) Operations() []operation.Row {
	rows := m.account.Operations()
	for i := range rows {
		m.common.Own[rows[i].Name] = &rows[i]
	}
	return rows
}

// pageTimeout bounds the making of a page.
const pageTimeout = 10 * time.Second

func (m *Module) routes() error {
	mux := m.mux
	err := layout.Assets(func(name, contentType string, content []byte) {
		mux.Handle("GET /assets/"+name, m.Static(contentType, func() []byte { return content }))
	})
	if err != nil {
		return err
	}
	mux.HandleFunc("GET /{$}", m.signedIn(overview.Page))
	mux.HandleFunc("GET /find", m.signedIn(list.Find))
	mux.HandleFunc("GET /docs", m.forAll(func(w http.ResponseWriter, _ *http.Request, c visit.Chrome) { reference.ReferencePage(&m.common, w, c) }))
	mux.HandleFunc("GET /docs/{operation}", m.forAll(func(w http.ResponseWriter, r *http.Request, c visit.Chrome) {
		reference.OperationPage(&m.common, w, r, c)
	}))
	mux.HandleFunc("GET /docs/{operation}/try", m.signedIn(reference.TryPage))
	mux.HandleFunc("POST /docs/{operation}/try", m.signedIn(reference.TryPage))
	mux.HandleFunc("GET /sign-in", m.anyPage(m.signInPage))
	mux.HandleFunc("POST /sign-in", m.signInForm)
	mux.HandleFunc("POST /sign-out", m.signOutForm)
	mux.HandleFunc("GET /enter", m.linkPage(m.showEnter))
	mux.HandleFunc("POST /enter", m.linkForm("sessions.redeem", m.showEnter, "token"))
	mux.HandleFunc("GET /welcome", m.linkPage(m.showWelcome))
	mux.HandleFunc("POST /welcome", m.linkForm("passwords.create", m.showWelcome, "token", "password"))
	mux.HandleFunc("GET /do/{operation}", m.signedIn(submit.FormPage))
	mux.HandleFunc("POST /do/{operation}", m.signedIn(submit.Submit))
	shown := report.Pages{Reports: m.Reports, Pages: m.common.Layout, Locales: m.common.Locales, Log: m.Log}
	report := func(w http.ResponseWriter, r *http.Request, v visit.Visitor, _ error) { shown.Serve(w, r, v) }
	shared, others := input.WithMoments(m.visited(report)), input.WithMoments(m.signedIn(sitePage))
	mux.HandleFunc("GET /shared/reports/{pid}", shared)
	mux.HandleFunc("GET /shared/reports/{pid}/{report_id}", shared)
	nowhere := m.visiting(func(v *visit.Visit) { v.Missing() }, func(w http.ResponseWriter, _ *http.Request) { m.common.Layout.Missing(w) }, func(w http.ResponseWriter, _ *http.Request, _ error) { m.common.Layout.Missing(w) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if p, _ := m.common.Site.Find(r.URL.EscapedPath()); p == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
			nowhere(w, r) // nobody needs to be signed in to be told
			return
		}
		others(w, r)
	})
	return nil
}

// ServeHTTP serves the pages.
func (m *Module) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel by contract of net/http
				panic(cause)
			}
			m.Log.ErrorContext(r.Context(), "a page failed", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			m.common.Layout.Message(w, http.StatusInternalServerError, "", "Something went wrong", "Please try again.")
		}
	}()
	h := w.Header()
	h.Set("Content-Security-Policy", layout.ContentSecurityPolicy("'none'"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cache-Control", "no-store")
	if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
		m.common.Layout.Missing(w) // the mux would redirect, and repeat the query with its token
		return
	}
	r.Header.Set(ask.RequestIDHeader, w.Header().Get(ask.RequestIDHeader)) // by which the log tells whose calls follow
	within := pageTimeout
	if row := m.formed(r.URL.Path); row != nil {
		within = max(within, row.Deadline()) // a call takes as long as a program's, and its file as long to arrive
	}
	ctx, cancel := context.WithTimeout(r.Context(), within)
	defer cancel()
	m.mux.ServeHTTP(w, r.WithContext(ctx))
}

// formed returns the operation that the form of a page calls, nil for none.
func (m *Module) formed(page string) *operation.Row {
	operation, is := strings.CutPrefix(page, "/do/")
	if tried, found := strings.CutPrefix(page, "/docs/"); found {
		operation, is = strings.CutSuffix(tried, "/try")
	}
	if !is {
		return nil
	}
	return m.common.Site.Rows[operation]
}

// sitePage shows what the path leads to.
func sitePage(v *visit.Visit) {
	p, path := v.Site.Find(v.R.URL.EscapedPath())
	switch {
	case p == nil:
		v.Missing()
	case p.List:
		list.Page(v, p, path)
	default:
		record.Page(v, p, path)
	}
}
