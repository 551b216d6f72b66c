// Package visit is one request of a person who is signed in. A Visit asks operations on behalf of the person, each
// question once, and answers with a page: whole, or with the reason why it cannot be. The packages of pages are
// functions of a Visit.
package visit

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/locale"
	"tenantry/gateway/console/site"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
)

// RecordNames are the names of records by their keys, as far as they were looked up.
type RecordNames struct {
	Names map[string]string
	All   bool
}

// Visitor is who asks for a page. Person is who is signed in; where that is nobody, Err is tenants.ErrDenied, or why it
// cannot be told.
type Visitor struct {
	Tenant *tenants.Tenant
	Person *tenants.Principal
	Err    error
	// Resolve returns the organization as it is now, nobody's where there is none any more. Error:
	// store.ErrUnavailable.
	Resolve func(context.Context) (*tenants.Tenant, error)
	// Form reads the body of the request, a form of at most so many bytes. An *operation.Problem says that there is no
	// room for it.
	Form func(r *http.Request, most int64) ([]byte, error)
	// Pause lets others work while a file arrives that is passed on.
	Pause func()
	// Run runs an operation that only reads and is not audited, in the process, on behalf of Person. Errors: the
	// *operation.Problem that would be answered.
	Run func(ctx context.Context, row *operation.Row, path map[string]string, query string) (operation.Result, error)
}

// ConfirmAfter is how long a page may take whose reader is not asked for once more.
const ConfirmAfter = 500 * time.Millisecond

// Console is what the pages of all visits are made with.
type Console struct {
	Site     *site.Site
	Client   *ask.Client
	Layout   *layout.Renderer
	Locales  *locale.Set
	Sessions *sessions.Service
	People   *identity.Service
	Own      map[string]*operation.Row // those of signing in and out, by name
	Cookie   string                    // name of the session cookie
	Now      func() time.Time
	Log      *slog.Logger
}

// Visit is one request of a person who is signed in.
type Visit struct {
	*Console
	W      http.ResponseWriter
	R      *http.Request
	Tenant *tenants.Tenant
	Person *tenants.Principal
	Began  time.Time
	// Visitor reads what was sent, and looks the organization up again.
	Visitor Visitor
	// Names are the names of records that others refer to, by resource.
	Names map[string]RecordNames
	// Unanswered is the reply to the first question that there was no time or room for: a page without its answer would
	// say what is not so, so that Show refuses it.
	Unanswered *ask.Reply

	answers map[string]ask.Reply // by what was asked for
}

// New returns the visit of a person who is signed in.
func New(c *Console, w http.ResponseWriter, r *http.Request, from Visitor) *Visit {
	return &Visit{Console: c, W: w, R: r, Tenant: from.Tenant, Person: from.Person, Began: time.Now(), Visitor: from, answers: map[string]ask.Reply{}}
}

// May reports whether the person can call the operation at all; what depends on the record is told by the call.
func (v *Visit) May(row *operation.Row) bool { return site.May(row, v.Person, v.Tenant) }

// ToSignIn leads to the sign-in page, and from there back to a page that only reads. What a form says is kept by the
// browser.
func (c *Console) ToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		c.Layout.Render(w, http.StatusForbidden, "message", layout.MessageView{Frame: layout.Frame{Title: "You are not signed in"}, Text: "Nothing was saved. Sign in in another window, then load this page again: the browser sends once more what you typed.", SignIn: true})
		return
	}
	target := "/sign-in"
	if r.Method == http.MethodGet && r.URL.Path != "/" && len(r.URL.RequestURI()) <= maxNext {
		target += "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// maxNext bounds an address that is kept while somebody signs in.
const maxNext = 2000

// LocalAddress returns an address of these pages, "/" where the text is none: it must lead nowhere else.
func LocalAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxNext || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n\t") {
		return "/"
	}
	return text
}

// Locale is how the reader writes numbers and times.
func (v *Visit) Locale() *locale.Locale { return v.Locales.For(v.R.Header.Get("Accept-Language")) }

// Whole writes a number as the reader does.
func (v *Visit) Whole(n int) string {
	return v.Locale().Number(float64(n))
}

// Read asks an operation that only reads for what stands around what the page shows. The same question is asked once
// for a page.
func (v *Visit) Read(row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	return v.answered(tenants.WithIncidental(v.R.Context()), row, path, query)
}

// Open asks what the page shows, for which the person needs the right.
func (v *Visit) Open(row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	return v.answered(v.R.Context(), row, path, query)
}

func (v *Visit) answered(ctx context.Context, row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	q := ask.Call{Row: row, Path: path, Query: query}
	if a, ok := v.answers[q.Target()]; ok {
		return a, nil
	}
	a, err := v.Client.Ask(ctx, v.R, q)
	if err == nil {
		v.answers[q.Target()] = a
	}
	if v.Unanswered == nil && (err != nil || a.Code == http.StatusTooManyRequests || a.Code >= http.StatusInternalServerError) {
		if v.Unanswered = &a; err != nil {
			v.Unanswered = &ask.Reply{Code: http.StatusServiceUnavailable}
		}
	}
	return a, err
}

// Run asks an operation that only reads, for what stands around what the page shows, and returns the result with its
// own type: it is not written as JSON. Not ok where the person may not call it, or it fails.
func (v *Visit) Run(row *operation.Row, query string) (result operation.Result, ok bool) {
	if !v.May(row) {
		return operation.Result{}, false
	}
	result, err := v.Visitor.Run(tenants.WithIncidental(v.R.Context()), row, nil, query)
	if err != nil {
		v.unanswered(operation.ProblemOf(err))
	}
	return result, err == nil
}

// unanswered notes the first question that there was no time or room for.
func (v *Visit) unanswered(p *operation.Problem) {
	if v.Unanswered != nil || p.Code != http.StatusTooManyRequests && p.Code < http.StatusInternalServerError {
		return
	}
	header := http.Header{ask.RequestIDHeader: v.R.Header[ask.RequestIDHeader]}
	header.Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	v.Unanswered = &ask.Reply{Code: p.Code, Header: header, Message: p.Message}
}

// Named asks the row of that name without parameters of the path, where there is one that the person may call. The same
// question is asked once for a page.
func (v *Visit) Named(name, query string) (strictjson.Value, bool) {
	row := v.Site.Rows[name]
	if row == nil {
		return strictjson.Value{}, false
	}
	q := ask.Call{Row: row, Query: query}
	if a, ok := v.answers[q.Target()]; ok {
		return a.Data, a.OK()
	}
	if row.Audit != operation.NoAudit {
		a, err := v.Read(row, nil, query)
		return a.Data, err == nil && a.OK()
	}
	result, ok := v.Run(row, query)
	if !ok {
		return strictjson.Value{}, false
	}
	data, err := ask.Tree(result.Data)
	if err == nil {
		v.answers[q.Target()] = ask.Reply{Code: http.StatusOK, Data: data}
	}
	return data, err == nil
}

// parametersOf returns the parameters of the page's path that the operation has too.
func (v *Visit) parametersOf(row *operation.Row) map[string]string {
	_, here := v.Site.Find(v.R.URL.EscapedPath())
	path := map[string]string{}
	for _, p := range row.Params {
		if value, ok := here[p.Name]; ok && p.In == operation.InPath {
			path[p.Name] = value
		}
	}
	return path
}

// Button returns a button that calls the operation for these parameters of its path.
func (v *Visit) Button(row *operation.Row, path map[string]string, title string, more ...layout.Hidden) *layout.Button {
	b := &layout.Button{Title: title, Action: "/do/" + row.Name, Once: ask.NewOnceKey(), Hidden: more}
	for _, p := range row.Params {
		if value, ok := path[p.Name]; ok && p.In == operation.InPath {
			b.Hidden = append(b.Hidden, layout.Hidden{Name: "path." + p.Name, Value: value})
		}
	}
	return b
}
