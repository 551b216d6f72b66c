// Package console serves the web pages of an organization: the pages for people who are signed in, signing in and out,
// choosing a password, and shared reports. The pages are made from the rows of operations, read and change data through
// operations only, and work without scripts.
//
// This package identifies the visitor and routes a path to the package that makes the page. A request passes through
// Module.ServeHTTP, visit.Visit, a page such as list.Page or record.Page, ask.Client and layout.Renderer.Render.
// Package site decides which pages exist. The packages of pages (list, record, submit, overview, reference, report)
// import form, builder and input, and those import show, visit, layout, ask and site.
package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"time"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/followers"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/list"
	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/overview"
	"tenantry/gateway/console/publicform"
	"tenantry/gateway/console/record"
	"tenantry/gateway/console/reference"
	"tenantry/gateway/console/report"
	"tenantry/gateway/console/signin"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/submit"
	"tenantry/gateway/console/visit"
	"tenantry/modules/forms"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
)

// Deps are the dependencies of the console.
type Deps struct {
	Sessions *sessions.Service
	People   *identity.Service
	Reports  *reports.Module
	Forms    *forms.Module
	// Visit finds the organization and the person of a request, and counts the request. If the host has no organization,
	// it returns an empty one with tenants.ErrUnknownTenant. An *operation.Problem says that a limit is exceeded.
	Visit func(r *http.Request) (visit.Visitor, error)
	// Resolve finds the organization alone, for small pages that are the same on every host.
	Resolve func(r *http.Request) (*tenants.Tenant, error)
	// Static makes a handler for content that does not change.
	Static  func(contentType string, content func() []byte) http.Handler
	BaseURL func(slug string) string
	// FileHost returns the address below which the bytes of an organization's files are.
	FileHost func(*tenants.Tenant) string
	// SignedIn, unless nil, is called after a person has signed in, with the name of the browser.
	SignedIn func(ctx context.Context, c *operation.Call, u *identity.User, browser string)
	// Forgotten mails a link for a new password to the address, if a person has it. Mails: the installation sends mail.
	Forgotten func(ctx context.Context, t *tenants.Tenant, address string) error
	Mails     bool
	Cookie    string // name of the session cookie
	Secure    bool   // served over TLS
	Now       func() time.Time
	Log       *slog.Logger
}

// Module is the console. Safe for concurrent use.
type Module struct {
	Deps
	common  visit.Console
	forms   *publicform.Pages
	account signin.Module
	mux     *http.ServeMux
}

// New returns the console. An error is a bug in the program.
func New(d Deps) (*Module, error) {
	p, err := layout.New(d.BaseURL, d.Log)
	if err != nil {
		return nil, err
	}
	m := &Module{
		Deps: d,
		mux:  http.NewServeMux(),
		account: signin.Module{
			Sessions: d.Sessions, People: d.People, Name: d.Cookie, Secure: d.Secure, SignedIn: d.SignedIn, Forgotten: d.Forgotten,
			Mails: d.Mails,
		},
		common: visit.Console{
			Client: &ask.Client{Cookie: d.Cookie, BaseURL: d.BaseURL}, Layout: p, Locales: locale.New(),
			Sessions: d.Sessions, People: d.People, SignInRows: map[string]*operation.Row{},
			Cookie: d.Cookie, FileHost: d.FileHost, Now: d.Now, Log: d.Log,
		},
	}
	m.forms = &publicform.Pages{Forms: d.Forms, Layout: p, Client: m.common.Client, Log: d.Log}
	return m, m.routes()
}

// Serve makes the pages from the rows. handler serves the operations that pages call. Serve must be called before the
// first request.
func (m *Module) Serve(rows []operation.Row, handler http.Handler) {
	m.common.Site, m.common.Client.API = site.New(rows), handler
	for i := range rows {
		if rows[i].Name == unsubscribeRow {
			m.common.SignInRows[unsubscribeRow] = &rows[i]
		}
	}
	m.forms.Serve(rows)
}

// Operations returns the rows for signing in and out, and for people's own sessions and passwords.
func (m *Module) Operations() []operation.Row {
	rows := m.account.Operations()
	for i := range rows {
		m.common.SignInRows[rows[i].Name] = &rows[i]
	}
	return rows
}

// Has reports whether the rows have a page at an escaped path.
func (m *Module) Has(escaped string) bool {
	page, _ := m.common.Site.Find(escaped)
	return page != nil
}

// pageTimeout bounds the time to make a page.
const pageTimeout = 10 * time.Second

// routes registers the pages with the mux.

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
	mux.HandleFunc("GET "+followers.Path, m.signedIn(followers.Page))
	mux.HandleFunc("GET /docs", m.openPage(func(w http.ResponseWriter, _ *http.Request, c visit.Chrome) {
		reference.ReferencePage(&m.common, w, c)
	}))
	mux.HandleFunc("GET /docs/{operation}", m.openPage(func(w http.ResponseWriter, r *http.Request, c visit.Chrome) {
		reference.OperationPage(&m.common, w, r, c)
	}))
	mux.HandleFunc("GET /docs/{operation}/try", m.signedIn(reference.TryPage))
	mux.HandleFunc("POST /docs/{operation}/try", m.signedIn(reference.TryPage))
	mux.HandleFunc("GET /sign-in", m.hostIndependent(m.signInPage))
	mux.HandleFunc("POST /sign-in", m.signInForm)
	mux.HandleFunc("POST /sign-out", m.signOutForm)
	mux.HandleFunc("GET /enter", m.linkPage(m.showEnter))
	mux.HandleFunc("POST /enter", m.linkForm("sessions.redeem", m.showEnter, "token"))
	mux.HandleFunc("GET /welcome", m.linkPage(m.showWelcome))
	mux.HandleFunc("POST /welcome", m.linkForm("passwords.create", m.showWelcome, "token", "password"))
	mux.HandleFunc("GET /forgot", m.hostIndependent(func(w http.ResponseWriter, _ *http.Request, organization string) {
		m.showForgot(w, http.StatusOK, organization, forgotView{})
	}))
	mux.HandleFunc("POST /forgot", m.forgotForm)
	mux.HandleFunc("GET /unsubscribe", m.hostIndependent(func(w http.ResponseWriter, r *http.Request, organization string) {
		m.showUnsubscribe(w, http.StatusOK, organization, unsubscribeView{Token: r.URL.Query().Get("token")})
	}))
	mux.HandleFunc("POST /unsubscribe", m.unsubscribeForm)
	mux.HandleFunc("GET /do/{operation}", m.signedIn(submit.FormPage))
	mux.HandleFunc("POST /do/{operation}", m.signedIn(submit.Submit))
	sharedPages := report.Pages{Reports: m.Reports, Pages: m.common.Layout, Locales: m.common.Locales, Log: m.Log}
	shared := input.WithDatetimes(m.withVisitor(
		func(w http.ResponseWriter, r *http.Request, v visit.Visitor, _ error) { sharedPages.Serve(w, r, v) }))
	mux.HandleFunc("GET /shared/reports/{pid}", shared)
	mux.HandleFunc("GET /shared/reports/{pid}/{report_id}", shared)
	form := m.withVisitor(
		func(w http.ResponseWriter, r *http.Request, v visit.Visitor, _ error) { m.forms.Page(w, r, v) })
	mux.HandleFunc("GET "+operation.FormPath+"{pid}", form)
	mux.HandleFunc("POST "+operation.FormPath+"{pid}", form)

	page := input.WithDatetimes(m.signedIn(sitePage))
	notFound := m.byVisitor(
		func(v *visit.Visit) { v.NotFound() },
		func(w http.ResponseWriter, _ *http.Request) { m.common.Layout.NotFound(w) },
		func(w http.ResponseWriter, _ *http.Request, _ error) { m.common.Layout.NotFound(w) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		p, _ := m.common.Site.Find(r.URL.EscapedPath())
		if p == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
			notFound(w, r) // without a detour to the sign-in page
			return
		}
		page(w, r)
	})
	return nil
}

// ServeHTTP serves the pages. It sets their security headers and deadline, and answers 500 if a page panics.
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
		m.common.Layout.NotFound(w) // the mux would redirect with the query, which may hold a token
		return
	}
	r.Header.Set(ask.RequestIDHeader, w.Header().Get(ask.RequestIDHeader)) // the log shows it for the calls of the page
	timeout := max(pageTimeout, m.forms.Timeout(r))
	if row := m.common.Site.FormOperation(r.URL.Path); row != nil {
		timeout = max(timeout, row.Deadline()) // a form has as much time as the operation that it calls
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	m.mux.ServeHTTP(w, r.WithContext(ctx))
}

// sitePage shows the page of the request's path.
func sitePage(v *visit.Visit) {
	p, path := v.Site.Find(v.R.URL.EscapedPath())
	switch {
	case p == nil:
		v.NotFound()
	case p.List:
		list.Page(v, p, path)
	default:
		record.Page(v, p, path)
	}
}
