package console

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"tenantry/crypto/passwords"
	"tenantry/operation"
	"tenantry/tenants"
)

//go:embed assets
var assets embed.FS

// renderer writes pages of the templates. Safe for concurrent use.
type renderer struct {
	templates *template.Template
	log       *slog.Logger
	baseURL   func(slug string) string
}

// newRenderer parses the templates. An error is a fault of the program.
func newRenderer(baseURL func(slug string) string, log *slog.Logger) (*renderer, error) {
	t, err := template.ParseFS(assets, "assets/*.html")
	if err != nil {
		return nil, fmt.Errorf("console pages: %w", err)
	}
	return &renderer{t, log, baseURL}, nil
}

// static calls serve with each file that pages load.
func static(serve func(name, contentType string, content []byte)) error {
	for name, contentType := range map[string]string{"console.css": "text/css; charset=utf-8", "report.css": "text/css; charset=utf-8", "console.js": "text/javascript; charset=utf-8"} {
		content, err := assets.ReadFile("assets/" + name)
		if err != nil {
			return fmt.Errorf("console assets: %w", err)
		}
		serve(name, contentType, content)
	}
	return nil
}

// pageTimeout bounds the making of a page.
const pageTimeout = 10 * time.Second

func (m *Module) routes() error {
	mux := m.mux
	err := static(func(name, contentType string, content []byte) {
		mux.Handle("GET /assets/"+name, m.Static(contentType, func() []byte { return content }))
	})
	if err != nil {
		return err
	}
	mux.HandleFunc("GET /{$}", m.signedIn(overviewPage))
	mux.HandleFunc("GET /find", m.signedIn(findPage))
	mux.HandleFunc("GET /docs", m.forAll(func(w http.ResponseWriter, _ *http.Request, c chrome) { m.common.referencePage(w, c) }))
	mux.HandleFunc("GET /docs/{operation}", m.forAll(func(w http.ResponseWriter, r *http.Request, c chrome) { m.common.operationPage(w, r, c) }))
	mux.HandleFunc("GET /docs/{operation}/try", m.signedIn(tryPage))
	mux.HandleFunc("POST /docs/{operation}/try", m.signedIn(tryPage))
	mux.HandleFunc("GET /sign-in", m.anyPage(m.signInPage))
	mux.HandleFunc("POST /sign-in", m.signInForm)
	mux.HandleFunc("POST /sign-out", m.signOutForm)
	mux.HandleFunc("GET /enter", m.linkPage(m.showEnter))
	mux.HandleFunc("POST /enter", m.linkForm("sessions.redeem", m.showEnter, "token"))
	mux.HandleFunc("GET /welcome", m.linkPage(m.showWelcome))
	mux.HandleFunc("POST /welcome", m.linkForm("passwords.create", m.showWelcome, "token", "password"))
	mux.HandleFunc("GET /do/{operation}", m.signedIn(doPage))
	mux.HandleFunc("POST /do/{operation}", m.signedIn(doIt))
	shown := sharedReports{m.Reports, m.common.pages, m.common.locales, m.Log}
	report := func(w http.ResponseWriter, r *http.Request, v Visitor, _ error) { shown.page(w, r, v) }
	shared, others := timed(m.visited(report)), timed(m.signedIn(sitePage))
	mux.HandleFunc("GET /shared/reports/{pid}", shared)
	mux.HandleFunc("GET /shared/reports/{pid}/{report_id}", shared)
	nowhere := m.visiting(func(v *visit) { v.missing() }, func(w http.ResponseWriter, _ *http.Request) { m.common.pages.missing(w) }, func(w http.ResponseWriter, _ *http.Request, _ error) { m.common.pages.missing(w) })
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if p, _ := m.common.site.find(r.URL.EscapedPath()); p == nil || r.Method != http.MethodGet && r.Method != http.MethodHead {
			nowhere(w, r) // nobody needs to be signed in to be told
			return
		}
		others(w, r)
	})
	return nil
}

func (p *renderer) missing(w http.ResponseWriter) {
	p.render(w, http.StatusNotFound, "message", messageView{frame: frame{Title: "There is no such page"}, Text: "Check the address, or ask whoever gave it to you.", Home: true})
}

// ServeHTTP serves the pages.
func (m *Module) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if cause := recover(); cause != nil {
			if cause == http.ErrAbortHandler { //nolint:errorlint // a sentinel by contract of net/http
				panic(cause)
			}
			m.Log.ErrorContext(r.Context(), "a page failed", "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
			m.common.pages.message(w, http.StatusInternalServerError, "", "Something went wrong", "Please try again.")
		}
	}()
	h := w.Header()
	h.Set("Content-Security-Policy", policy("'none'"))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("Cache-Control", "no-store")
	if clean := path.Clean(r.URL.Path); clean != r.URL.Path && clean+"/" != r.URL.Path {
		m.common.pages.missing(w) // the mux would redirect, and repeat the query with its token
		return
	}
	r.Header.Set(requestID, w.Header().Get(requestID)) // by which the log tells whose calls follow
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
	return m.common.site.rows[operation]
}

// policy is what a page may load, and whose pages may show it in a frame.
func policy(ancestors ...string) string {
	return "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors " + strings.Join(ancestors, " ")
}

// homeOfNobody answers a host that leads to no organization. Where it could be one's, what an
// organization answers to strangers, so that nobody learns which there are.
func (m *Module) homeOfNobody(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, tenants.ErrNoSlug) {
		m.common.toSignIn(w, r)
		return
	}
	m.common.pages.render(w, http.StatusNotFound, "nowhere", m.common.pages.stranger("There is no organization here"))
}

// stranger is the view of people who may be at the wrong address.
type stranger struct {
	frame
	Address string // how an organization's looks
}

func (p *renderer) stranger(title string) stranger {
	return stranger{frame{Title: title}, p.baseURL("<organization>")}
}

// visited finds the organization and who asks. Where there is none, the page is told so, and has nobody's: what it
// answers then is what an organization answers to a stranger.
func (m *Module) visited(page func(w http.ResponseWriter, r *http.Request, v Visitor, unknown error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := m.Visit(r)
		var refused *operation.Problem
		switch {
		case err == nil, errors.Is(err, tenants.ErrUnknownTenant):
			page(w, r, v, err)
		case errors.As(err, &refused):
			m.common.pages.refuse(w, r, refused)
		default:
			m.Log.WarnContext(r.Context(), "a page is unavailable", "error", err)
			m.common.pages.unavailable(w, "")
		}
	}
}

// anyPage makes a page that is the same for every host, so that it does not tell which
// organizations there are. One that wants to be named is.
func (m *Module) anyPage(page func(w http.ResponseWriter, r *http.Request, organization string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t, err := m.Resolve(r)
		switch {
		case err == nil && t.Org.Setting(tenants.SettingSignInNamesOrganization):
			page(w, r, t.Org.Name)
		case err == nil, errors.Is(err, tenants.ErrUnknownTenant):
			page(w, r, "")
		default:
			m.Log.WarnContext(r.Context(), "a page is unavailable", "error", err)
			m.common.pages.unavailable(w, "")
		}
	}
}

type frame struct {
	Title        string
	Organization string
	Inside       bool // a page of somebody who is signed in
	Faulty       bool // something that was sent is wrong
}

func (p *renderer) render(w http.ResponseWriter, code int, name string, data any) {
	var buf bytes.Buffer
	if err := p.templates.ExecuteTemplate(&buf, name, data); err != nil {
		p.log.Error("a page could not be made", "page", name, "error", err)
		http.Error(w, "Something went wrong. Please try again.", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = w.Write(buf.Bytes()) // a browser that has gone cannot be told
}

func (p *renderer) message(w http.ResponseWriter, code int, organization, title, text string) {
	p.render(w, code, "message", messageView{frame: frame{Title: title, Organization: organization}, Text: text})
}

type messageView struct {
	frame
	Text   string
	SignIn bool // leads to signing in, in another window
	Home   bool // leads to the overview
	// Instead leads to what can be shown.
	Instead linkView
}

func (p *renderer) unavailable(w http.ResponseWriter, organization string) {
	w.Header().Set("Retry-After", "2")
	p.message(w, http.StatusServiceUnavailable, organization, "Not available at the moment", "Please try again in a moment.")
}

// refuse asks a visitor who is over a limit to come back.
func (p *renderer) refuse(w http.ResponseWriter, r *http.Request, problem *operation.Problem) {
	seconds := int(math.Ceil(problem.RetryAfter.Seconds()))
	w.Header().Set("Retry-After", strconv.Itoa(seconds))
	text := "More is asked for than can be answered at once. Nothing is wrong with the address: try again in " + waitText(seconds) + "."
	if r.Method == http.MethodPost {
		text = "More is asked for than can be answered at once. Nothing was saved. Load this page again in " + waitText(seconds) + ": the browser sends once more what you typed."
	}
	p.message(w, problem.Code, "", "Please wait a moment", text)
}

// waitText writes 1 second, 2 seconds; from two minutes on in minutes.
func waitText(seconds int) string {
	switch {
	case seconds == 1:
		return "1 second"
	case seconds < 120:
		return strconv.Itoa(seconds) + " seconds"
	}
	return strconv.Itoa((seconds+59)/60) + " minutes"
}

type signInView struct {
	stranger
	Email, Next, Problem string
}

func (m *Module) signInPage(w http.ResponseWriter, r *http.Request, organization string) {
	next := r.URL.Query().Get("next")
	if next != "" {
		next = local(next)
	}
	m.showSignIn(w, http.StatusOK, organization, signInView{Next: next})
}

func (m *Module) showSignIn(w http.ResponseWriter, code int, organization string, v signInView) {
	v.stranger = m.common.pages.stranger("Sign in")
	v.Faulty = v.Problem != ""
	if v.Organization = organization; organization != "" {
		v.Address = "" // it is the right one
	}
	m.common.pages.render(w, code, "sign-in", v)
}

// formOf reads a form of somebody who is not signed in, and calls the operation with those of its values; nil: it was answered.
func (m *Module) formOf(w http.ResponseWriter, r *http.Request, operation string, names ...string) *reply {
	row := m.common.own[operation]
	if row == nil || !m.readForm(w, r) {
		return nil
	}
	body := map[string]any{}
	for _, name := range names {
		body[name] = r.PostForm.Get(name)
	}
	a, err := m.common.client.ask(r.Context(), r, request{row: row, body: body})
	if err != nil {
		m.Log.ErrorContext(r.Context(), "a form failed", "error", err)
		m.common.pages.unavailable(w, "")
		return nil
	}
	handOn(w, a.header)
	return &a
}

// Of a form of somebody who is not signed in no more is taken, since it is held for as long as others have their passwords checked.
const (
	mostOpenForm   = 16 << 10 // bytes
	mostOpenFields = 16
)

var errCrowded = errors.New("the form has too many fields")

// readForm reads such a form into r.PostForm, unless that was done, and says so where it cannot.
func (m *Module) readForm(w http.ResponseWriter, r *http.Request) bool {
	if r.PostForm != nil {
		return true
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostOpenForm))
	fields := url.Values{}
	if err == nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		if err = errCrowded; bytes.Count(body, []byte{'&'}) < mostOpenFields {
			fields, err = url.ParseQuery(string(body))
		}
	}
	if err != nil {
		m.common.pages.message(w, http.StatusBadRequest, "", "The form did not arrive", "Go back and try again.")
		return false
	}
	r.PostForm = fields
	return true
}

func (m *Module) signInForm(w http.ResponseWriter, r *http.Request) {
	a := m.formOf(w, r, "sessions.create", "email", "password")
	switch {
	case a == nil:
	case a.ok():
		http.Redirect(w, r, local(r.PostForm.Get("next")), http.StatusSeeOther) //nolint:gosec // an address of these pages, see local
	default:
		m.anyPage(func(w http.ResponseWriter, r *http.Request, organization string) {
			m.showSignIn(w, a.code, organization, signInView{Email: r.PostForm.Get("email"), Next: r.PostForm.Get("next"), Problem: explanation(a)})
		})(w, r)
	}
}

// signOutForm ends the session. Whoever signs out of one that has ended already is signed out.
func (m *Module) signOutForm(w http.ResponseWriter, r *http.Request) {
	a := m.formOf(w, r, "sessions.delete")
	switch {
	case a == nil:
	case a.ok(), a.code == http.StatusForbidden && a.message == operation.DeniedMessage:
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	default:
		m.common.pages.message(w, a.code, "", "You are still signed in", explanation(a))
	}
}

// explanation returns what a page says of a refusal.
func explanation(a *reply) string {
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil && a.code == http.StatusTooManyRequests {
		return a.message + ": try again in " + waitText(seconds) + "."
	}
	return a.message
}

type welcomeView struct {
	frame
	Shortest       int
	Check          string // what tells whether the link is good
	Ended          bool   // it is not, so nothing can be sent
	Token, Problem string
}

func (m *Module) showWelcome(w http.ResponseWriter, code int, organization, token, problem string) {
	m.common.pages.render(w, code, "welcome", welcomeView{frame{Title: "Choose a password", Organization: organization, Faulty: problem != ""}, passwords.MinCharacters, m.common.own["passwords.check"].Path, code == http.StatusForbidden, token, problem})
}

func (m *Module) showEnter(w http.ResponseWriter, code int, organization, token, problem string) {
	m.common.pages.render(w, code, "enter", welcomeView{frame: frame{Title: "Sign in by a link", Organization: organization, Faulty: problem != ""}, Ended: code == http.StatusForbidden, Token: token, Problem: problem})
}

// showing shows a page that a single-use link leads to.
type showing func(w http.ResponseWriter, code int, organization, token, problem string)

func (m *Module) linkPage(show showing) http.HandlerFunc {
	return m.anyPage(func(w http.ResponseWriter, _ *http.Request, organization string) {
		show(w, http.StatusOK, organization, "", "")
	})
}

// linkForm carries the form of such a page out, and leads to the overview or shows it again.
func (m *Module) linkForm(operation string, show showing, names ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !m.readForm(w, r) {
			return
		}
		if _, after, found := strings.Cut(r.PostForm.Get("token"), "#"); found { // the whole link does, too
			r.PostForm.Set("token", after)
		}
		a := m.formOf(w, r, operation, names...)
		switch {
		case a == nil:
		case a.ok():
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			m.anyPage(func(w http.ResponseWriter, r *http.Request, organization string) {
				show(w, a.code, organization, r.PostForm.Get("token"), explanation(a))
			})(w, r)
		}
	}
}
