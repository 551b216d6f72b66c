package console

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
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

// referred are the names of records by their keys, as far as they were looked up.
type referred struct {
	names map[string]string
	all   bool
}

// Visitor is who asks for a page. Person is who is signed in; where that is nobody, Err is tenants.ErrDenied, or why it
// cannot be told.
type Visitor struct {
	Tenant *tenants.Tenant
	Person *tenants.Principal
	Err    error
	// Resolve returns the organization as it is now, nobody's where there is none any more. Error: store.ErrUnavailable.
	Resolve func(context.Context) (*tenants.Tenant, error)
	// Form reads the body of the request, a form of at most so many bytes. An *operation.Problem says that there is no room for it.
	Form func(r *http.Request, most int64) ([]byte, error)
	// Pause lets others work while a file arrives that is passed on.
	Pause func()
}

// confirmed is how long a page may take whose reader is not asked for once more.
const confirmed = 500 * time.Millisecond

// common is what the pages of all visits are made with.
type common struct {
	site     *site.Site
	client   *ask.Client
	pages    *layout.Renderer
	locales  *locale.Set
	sessions *sessions.Service
	people   *identity.Service
	own      map[string]*operation.Row // those of signing in and out, by name
	cookie   string                    // name of the session cookie
	now      func() time.Time
	log      *slog.Logger
}

// visit is one request of a person who is signed in.
type visit struct {
	*common
	w     http.ResponseWriter
	r     *http.Request
	t     *tenants.Tenant
	who   *tenants.Principal
	began time.Time
	// arriving is how what is sent is read.
	arriving Visitor
	// known are answers that one page asks for more than once.
	known map[string]ask.Reply
	// refs are what records are called that others refer to, by resource.
	refs map[string]referred
	// lacked is the first question that there was no time or room for: a page without its answer would say what is not so.
	lacked *ask.Reply
}

func newVisit(c *common, w http.ResponseWriter, r *http.Request, from Visitor) *visit {
	return &visit{common: c, w: w, r: r, t: from.Tenant, who: from.Person, began: time.Now(), arriving: from, known: map[string]ask.Reply{}}
}

// may reports whether the person can call the operation at all; what depends on the record is told by the call.
func (v *visit) may(row *operation.Row) bool { return site.May(row, v.who, v.t) }

// toSignIn leads to the sign-in page, and from there back to a page that only reads. What a form says is kept by the browser.
func (c *common) toSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		c.pages.Render(w, http.StatusForbidden, "message", layout.MessageView{Frame: layout.Frame{Title: "You are not signed in"}, Text: "Nothing was saved. Sign in in another window, then load this page again: the browser sends once more what you typed.", SignIn: true})
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

// local returns an address of these pages, "/" where the text is none: it must lead nowhere else.
func local(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxNext || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n\t") {
		return "/"
	}
	return text
}

// locale is how the reader writes numbers and times.
func (v *visit) locale() *locale.Locale { return v.locales.For(v.r.Header.Get("Accept-Language")) }

// whole writes a number as the reader does.
func (v *visit) whole(n int) string {
	return v.locale().Number(float64(n))
}

// read asks an operation that only reads for what stands around what the page shows. The same question is asked once for a page.
func (v *visit) read(row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	return v.answered(tenants.Incidentally(v.r.Context()), row, path, query)
}

// open asks what the page shows, for which the person needs the right.
func (v *visit) open(row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	return v.answered(v.r.Context(), row, path, query)
}

func (v *visit) answered(ctx context.Context, row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	q := ask.Call{Row: row, Path: path, Query: query}
	if a, ok := v.known[q.Target()]; ok {
		return a, nil
	}
	a, err := v.client.Ask(ctx, v.r, q)
	if err == nil {
		v.known[q.Target()] = a
	}
	if v.lacked == nil && (err != nil || a.Code == http.StatusTooManyRequests || a.Code >= http.StatusInternalServerError) {
		if v.lacked = &a; err != nil {
			v.lacked = &ask.Reply{Code: http.StatusServiceUnavailable}
		}
	}
	return a, err
}

// named asks the row of that name without parameters of the path, where there is one that the person may call.
func (v *visit) named(name, query string) (strictjson.Value, bool) {
	row := v.site.Rows[name]
	if !v.may(row) {
		return strictjson.Value{}, false
	}
	a, err := v.read(row, nil, query)
	return a.Data, err == nil && a.Ok()
}

// parametersOf returns the parameters of the page's path that the operation has too.
func (v *visit) parametersOf(row *operation.Row) map[string]string {
	_, here := v.site.Find(v.r.URL.EscapedPath())
	path := map[string]string{}
	for _, p := range row.Params {
		if value, ok := here[p.Name]; ok && p.In == operation.InPath {
			path[p.Name] = value
		}
	}
	return path
}

func (v *visit) button(row *operation.Row, path map[string]string, title string, more ...layout.Hidden) *layout.Button {
	b := &layout.Button{Title: title, Action: "/do/" + row.Name, Once: ask.NewOnceKey(), Hidden: more}
	for _, p := range row.Params {
		if value, ok := path[p.Name]; ok && p.In == operation.InPath {
			b.Hidden = append(b.Hidden, layout.Hidden{Name: "path." + p.Name, Value: value})
		}
	}
	return b
}
