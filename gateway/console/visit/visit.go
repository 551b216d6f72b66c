// Package visit handles one request for a page by a person who is signed in. A Visit calls operations on behalf of the
// person, never the same call twice, and answers with a complete page or with the reason why there is none. Pages are
// functions that take a Visit.
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

// RecordNames are the names of a resource's records by key. All reports whether every record is among them; the names
// of others are looked up one by one.
type RecordNames struct {
	Names map[string]string
	All   bool
}

// Visitor is the sender of a request for a page. Person is the person who is signed in. Without one, Err is
// tenants.ErrDenied, or the reason why the session could not be checked.
type Visitor struct {
	Tenant *tenants.Tenant
	Person *tenants.Principal
	Err    error
	// Resolve looks the organization up again, and returns an empty one if it no longer exists. Error:
	// store.ErrUnavailable.
	Resolve func(context.Context) (*tenants.Tenant, error)
	// Form reads the body of the request, a form of at most maxBytes. An *operation.Problem says that there is no room
	// for it.
	Form func(r *http.Request, maxBytes int64) ([]byte, error)
	// Pause gives other requests their turn while an uploaded file arrives.
	Pause func()
	// Run runs an operation that only reads and is not audited, in the process, on behalf of Person. Errors: the
	// *operation.Problem that would be answered.
	Run func(ctx context.Context, row *operation.Row, path map[string]string, query string) (operation.Result, error)
}

// ConfirmAfter is how long a page may take before the session and the rights of its reader are checked again.
const ConfirmAfter = 500 * time.Millisecond

// Console has the parts that all visits share.
type Console struct {
	Site       *site.Site
	Client     *ask.Client
	Layout     *layout.Renderer
	Locales    *locale.Set
	Sessions   *sessions.Service
	People     *identity.Service
	SignInRows map[string]*operation.Row // the rows for signing in and out, by name
	Cookie     string                    // the name of the session cookie
	// FileHost returns the address below which the bytes of an organization's files are.
	FileHost func(*tenants.Tenant) string
	Now      func() time.Time
	Log      *slog.Logger
}

// Visit is one request of a person who is signed in. It is used by one goroutine.
type Visit struct {
	*Console
	W       http.ResponseWriter
	R       *http.Request
	Tenant  *tenants.Tenant
	Person  *tenants.Principal
	Started time.Time
	Visitor Visitor
	// Names caches the names of records that others refer to, by resource.
	Names map[string]RecordNames
	// Unanswered is the reply to the first call that failed for lack of time or room. Show refuses a page that has one,
	// because it would be incomplete without saying so.
	Unanswered *ask.Reply

	answers map[string]ask.Reply // by the target of the call
}

// New returns a visit. from.Person must be signed in.
func New(c *Console, w http.ResponseWriter, r *http.Request, from Visitor) *Visit {
	return &Visit{
		Console: c, W: w, R: r, Tenant: from.Tenant, Person: from.Person,
		Started: time.Now(), Visitor: from, answers: map[string]ask.Reply{},
	}
}

// May reports whether the person may call the operation at all. Rights that depend on the record are checked by the
// call.
func (v *Visit) May(row *operation.Row) bool { return site.May(row, v.Person, v.Tenant) }

// ToSignIn redirects to the sign-in page, which leads back to the address of a GET. A POST is answered with a message
// instead, so that the browser keeps the form.
func (c *Console) ToSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		c.Layout.Render(w, http.StatusForbidden, "message", layout.MessageView{
			Frame: layout.Frame{Title: "You are not signed in"},
			Text: "Nothing was saved. Sign in in another window, then reload this page: " +
				"your browser then sends again what you typed.",
			SignIn: true,
		})
		return
	}
	target := "/sign-in"
	if r.Method == http.MethodGet && r.URL.Path != "/" && len(r.URL.RequestURI()) <= maxNextAddress {
		target += "?" + url.Values{"next": {r.URL.RequestURI()}}.Encode()
	}
	http.Redirect(w, r, target, http.StatusSeeOther)
}

// maxNextAddress bounds the address that the sign-in page leads back to, in bytes.
const maxNextAddress = 2000

// LocalAddress returns text if it is an address of these pages, and "/" otherwise. It prevents redirects to other
// sites.
func LocalAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxNextAddress || u.Scheme != "" || u.Host != "" || u.User != nil ||
		!strings.HasPrefix(u.Path, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n\t") {
		return "/"
	}
	return text
}

// Locale returns the locale of the reader.
func (v *Visit) Locale() *locale.Locale { return v.Locales.For(v.R.Header.Get("Accept-Language")) }

// FormatInt formats a number in the locale of the reader.
func (v *Visit) FormatInt(n int) string {
	return v.Locale().Number(float64(n))
}

// Read calls an operation that only reads, for data beside the main content of the page. The same call is made once for
// a page.
func (v *Visit) Read(row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	return v.askOnce(tenants.WithIncidental(v.R.Context()), row, path, query)
}

// Open calls an operation that only reads, for the main content of the page. The same call is made once for a page.
func (v *Visit) Open(row *operation.Row, path map[string]string, query string) (ask.Reply, error) {
	return v.askOnce(v.R.Context(), row, path, query)
}

// askOnce makes a call unless the page has its answer, and notes the first that fails for lack of time or room.
func (v *Visit) askOnce(
	ctx context.Context, row *operation.Row, path map[string]string, query string,
) (ask.Reply, error) {
	q := ask.Call{Row: row, Path: path, Query: query}
	if a, ok := v.answers[q.Target()]; ok {
		return a, nil
	}
	a, err := v.Client.Ask(ctx, v.R, q)
	if err == nil {
		v.answers[q.Target()] = a
	}
	failed := err != nil || a.Code == http.StatusTooManyRequests || a.Code >= http.StatusInternalServerError
	if v.Unanswered == nil && failed {
		if v.Unanswered = &a; err != nil {
			v.Unanswered = &ask.Reply{Code: http.StatusServiceUnavailable}
		}
	}
	return a, err
}

// Run runs an operation that only reads, for data beside the main content of the page, and returns its typed result,
// without a detour through JSON. ok is false if the person may not call the operation, or it fails.
func (v *Visit) Run(row *operation.Row, query string) (result operation.Result, ok bool) {
	if !v.May(row) {
		return operation.Result{}, false
	}
	result, err := v.Visitor.Run(tenants.WithIncidental(v.R.Context()), row, nil, query)
	if err != nil {
		v.noteUnanswered(operation.ProblemOf(err))
	}
	return result, err == nil
}

// Concerns asks a list for its first most records that somebody should check, with the rights that the list requires.
// ok is false if the person may not see the list, or the question fails.
func (v *Visit) Concerns(list *operation.Row, most int) (found operation.Concerns, ok bool) {
	asking := *list
	asking.Handler = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		found, err := list.Concerns(ctx, c, most)
		return operation.Result{Data: found}, err
	}
	result, ok := v.Run(&asking, "")
	found, _ = result.Data.(operation.Concerns)
	return found, ok
}

// noteUnanswered notes the first call that failed for lack of time or room.
func (v *Visit) noteUnanswered(p *operation.Problem) {
	if v.Unanswered != nil || p.Code != http.StatusTooManyRequests && p.Code < http.StatusInternalServerError {
		return
	}
	header := http.Header{ask.RequestIDHeader: v.R.Header[ask.RequestIDHeader]}
	header.Set("Retry-After", strconv.Itoa(int((p.RetryAfter+time.Second-1)/time.Second)))
	v.Unanswered = &ask.Reply{Code: p.Code, Header: header, Message: p.Message}
}

// ReadNamed reads the data of the named operation, which has no parameters in its path. ok is false if there is no such
// operation, the person may not call it, or it fails. The same call is made once for a page.
func (v *Visit) ReadNamed(name, query string) (strictjson.Value, bool) {
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

// parametersOf returns the parameters of the page's path that the operation takes too.
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

// Button returns a button that calls the operation with these parameters of its path.
func (v *Visit) Button(row *operation.Row, path map[string]string, title string, more ...layout.Hidden) *layout.Button {
	b := &layout.Button{Title: title, Action: "/do/" + row.Name, Once: ask.NewIdempotencyKey(), Hidden: more}
	for _, p := range row.Params {
		if value, ok := path[p.Name]; ok && p.In == operation.InPath {
			b.Hidden = append(b.Hidden, layout.Hidden{Name: "path." + p.Name, Value: value})
		}
	}
	return b
}
