package console

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/sessions"
)

// common is what the pages of all visits are made with.
type common struct {
	site     *site
	client   *client
	pages    *renderer
	locales  *readers
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
	known map[string]reply
	// refs are what records are called that others refer to, by resource.
	refs map[string]referred
	// lacked is the first question that there was no time or room for: a page without its answer would say what is not so.
	lacked *reply
}

func newVisit(c *common, w http.ResponseWriter, r *http.Request, from Visitor) *visit {
	return &visit{common: c, w: w, r: r, t: from.Tenant, who: from.Person, began: time.Now(), arriving: from, known: map[string]reply{}}
}

// may reports whether the person can call the operation at all; what depends on the record is told by the call.
func (v *visit) may(row *operation.Row) bool { return may(row, v.who, v.t) }

// signedIn finds who is signed in, and sends others to sign in. Errors were answered.
func (m *Module) signedIn(serve func(*visit)) http.HandlerFunc {
	return m.visiting(serve, m.common.toSignIn, m.homeOfNobody)
}

// forAll makes a page that stands among the others for who is signed in, and is the same on every host for everybody else.
func (m *Module) forAll(page func(http.ResponseWriter, *http.Request, chrome)) http.HandlerFunc {
	open := m.anyPage(func(w http.ResponseWriter, r *http.Request, organization string) {
		page(w, r, chrome{frame: frame{Organization: organization}})
	})
	return m.visiting(func(v *visit) { page(v.w, v.r, v.chrome("")) }, open, func(w http.ResponseWriter, r *http.Request, _ error) { open(w, r) })
}

// visiting finds who is signed in; strangers answers who is not, nobody where there is no organization.
func (m *Module) visiting(serve func(*visit), strangers http.HandlerFunc, nobody func(http.ResponseWriter, *http.Request, error)) http.HandlerFunc {
	return m.visited(func(w http.ResponseWriter, r *http.Request, v Visitor, unknown error) {
		switch {
		case v.Err != nil && !errors.Is(v.Err, tenants.ErrDenied):
			m.Log.WarnContext(r.Context(), "a session cannot be checked", "error", v.Err)
			m.common.pages.unavailable(w, "")
		case unknown != nil:
			nobody(w, r, unknown)
		case v.Err != nil:
			strangers(w, r)
		default:
			serve(newVisit(&m.common, w, r, v))
		}
	})
}

// toSignIn leads to the sign-in page, and from there back to a page that only reads. What a form says is kept by the browser.
func (c *common) toSignIn(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		c.pages.render(w, http.StatusForbidden, "message", messageView{frame: frame{Title: "You are not signed in"}, Text: "Nothing was saved. Sign in in another window, then load this page again: the browser sends once more what you typed.", SignIn: true})
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
func (v *visit) locale() *locale { return v.locales.of(v.r.Header.Get("Accept-Language")) }

// whole writes a number as the reader does.
func (v *visit) whole(n int) string {
	return v.locale().Number(float64(n))
}

// read asks an operation that only reads for what stands around what the page shows. The same question is asked once for a page.
func (v *visit) read(row *operation.Row, path map[string]string, query string) (reply, error) {
	return v.answered(tenants.Incidentally(v.r.Context()), row, path, query)
}

// open asks what the page shows, for which the person needs the right.
func (v *visit) open(row *operation.Row, path map[string]string, query string) (reply, error) {
	return v.answered(v.r.Context(), row, path, query)
}

func (v *visit) answered(ctx context.Context, row *operation.Row, path map[string]string, query string) (reply, error) {
	q := request{row: row, path: path, query: query}
	if a, ok := v.known[q.target()]; ok {
		return a, nil
	}
	a, err := v.client.ask(ctx, v.r, q)
	if err == nil {
		v.known[q.target()] = a
	}
	if v.lacked == nil && (err != nil || a.code == http.StatusTooManyRequests || a.code >= http.StatusInternalServerError) {
		if v.lacked = &a; err != nil {
			v.lacked = &reply{code: http.StatusServiceUnavailable}
		}
	}
	return a, err
}

// show answers with a page, or with why it cannot be whole.
func (v *visit) show(code int, name string, view any) {
	if v.lacked != nil && v.refused(*v.lacked, nil) {
		return
	}
	if time.Since(v.began) < confirmed || v.still() {
		v.pages.render(v.w, code, name, view)
	}
}

// still reports whether the person may still be shown what a page that took long was made of; who may not is told so.
func (v *visit) still() bool {
	now, err := v.arriving.Resolve(v.r.Context())
	var who *tenants.Principal
	if err == nil {
		if cookie, absent := v.r.Cookie(v.cookie); absent != nil || now.Org.ID != v.t.Org.ID {
			err = tenants.ErrDenied
		} else {
			who, err = v.sessions.Lookup(v.r.Context(), now, cookie.Value)
		}
	}
	switch {
	case errors.Is(err, tenants.ErrDenied) && v.r.Method == http.MethodPost:
		v.pages.message(v.w, http.StatusForbidden, "", "You are not signed in any more", "Sign in again, and see whether what you sent is there.")
	case errors.Is(err, tenants.ErrDenied):
		v.toSignIn(v.w, v.r)
	case err != nil:
		v.log.WarnContext(v.r.Context(), "a session cannot be checked", "error", err)
		v.pages.unavailable(v.w, "")
	case !who.HoldsAll(v.who) || !who.Scope(now, nil).Covers(v.who.Scope(v.t, nil)):
		v.t, v.who = now, who
		v.problem(http.StatusForbidden, "Your rights were narrowed", "That happened while this page was made. Load it again.")
	default:
		return true
	}
	return false
}

// named asks the row of that name without parameters of the path, where there is one that the person may call.
func (v *visit) named(name, query string) (strictjson.Value, bool) {
	row := v.site.rows[name]
	if !v.may(row) {
		return strictjson.Value{}, false
	}
	a, err := v.read(row, nil, query)
	return a.data, err == nil && a.ok()
}

// chrome is what surrounds each page of a person who is signed in.
type chrome struct {
	frame
	Navigation []navigation
	Person     string
	Done       string  // what was just done
	Undo       *button // takes it back
	Trail      []linkView
	Curl       string
}

func (v *visit) chrome(title string) chrome {
	c := chrome{frame: frame{Title: title, Organization: v.t.Org.Name, Inside: true}, Navigation: v.site.navigation(v.who, v.t, v.r.URL.EscapedPath())}
	if user, err := v.people.FindUser(v.r.Context(), v.t, v.who.UserID); err == nil {
		c.Person = user.Name
	}
	query := v.r.URL.Query()
	if row := v.site.rows[query.Get("_done")]; row != nil && v.tells(query) {
		c.Done = row.Message
		if id := query.Get("_undo"); id != "" {
			c.Undo = v.undo(row, id)
		}
	}
	return c
}

// toldFor is how long the address that follows a form says what was done.
const toldFor = time.Minute

// mark returns what makes an address say that something was done: nobody else can write it, and it is soon void.
func (v *visit) mark(session, moment string, query url.Values) string {
	mac := hmac.New(sha256.New, []byte(session))
	_, _ = fmt.Fprintf(mac, "%s\n%s\n%s", moment, query.Get("_done"), query.Get("_undo")) // which never fails
	return moment + "-" + hex.EncodeToString(mac.Sum(nil)[:16])
}

// tells reports whether the address followed a form of the person a moment ago.
func (v *visit) tells(query url.Values) bool {
	moment, _, _ := strings.Cut(query.Get("_told"), "-")
	at, err := strconv.ParseInt(moment, 10, 64)
	cookie, absent := v.r.Cookie(v.cookie)
	if err != nil || absent != nil {
		return false
	}
	age := v.now().Sub(time.Unix(at, 0))
	return age < toldFor && age > -toldFor && hmac.Equal([]byte(query.Get("_told")), []byte(v.mark(cookie.Value, moment, query)))
}

// undo returns the button that restores what was deleted.
func (v *visit) undo(removed *operation.Row, id string) *button {
	p, _ := v.site.find(strings.TrimPrefix(removed.Path, "/api"))
	if p == nil {
		return nil
	}
	row := p.action("restore")
	if !v.may(row) {
		return nil
	}
	path := v.parametersOf(row)
	path[p.key()] = id
	return v.button(row, path, "Undo")
}

// parametersOf returns the parameters of the page's path that the operation has too.
func (v *visit) parametersOf(row *operation.Row) map[string]string {
	_, here := v.site.find(v.r.URL.EscapedPath())
	path := map[string]string{}
	for _, p := range row.Params {
		if value, ok := here[p.Name]; ok && p.In == operation.InPath {
			path[p.Name] = value
		}
	}
	return path
}

// button is a form without fields.
type button struct {
	Title, Action string
	Hidden        []hidden
	Once          string
	Danger        bool
}

type hidden struct{ Name, Value string }

func (v *visit) button(row *operation.Row, path map[string]string, title string, more ...hidden) *button {
	b := &button{Title: title, Action: "/do/" + row.Name, Once: onceKey(), Hidden: more}
	for _, p := range row.Params {
		if value, ok := path[p.Name]; ok && p.In == operation.InPath {
			b.Hidden = append(b.Hidden, hidden{"path." + p.Name, value})
		}
	}
	return b
}

// inWords returns a refusal with the permission that it names as forms call it.
func inWords(message, permission string) string {
	if before, is := strings.CutSuffix(message, permission); is && slices.Contains(tenants.AllPermissions(), tenants.Permission(permission)) {
		return before + label(permission)
	}
	return message
}

// refused shows why a call did not succeed, and reports whether it did not.
func (v *visit) refused(a reply, err error) bool {
	switch {
	case err != nil:
		v.log.ErrorContext(v.r.Context(), "a page failed", "error", err)
		v.problem(http.StatusInternalServerError, "Something went wrong", "Please try again.")
	case a.ok():
		return false
	case a.code == http.StatusForbidden && a.message == operation.DeniedMessage:
		v.toSignIn(v.w, v.r)
	case a.code == http.StatusForbidden:
		v.problem(a.code, "You may not see this", inWords(strings.TrimSuffix(a.message, "."), a.data.Get("permission").Text)+". An administrator of "+v.t.Org.Name+" can give you the right.")
	case a.code == http.StatusNotFound:
		v.problem(a.code, "There is no such page", sentence(a.message)+" It may have been deleted, or you are not allowed to see it.")
	case a.code == http.StatusTooManyRequests:
		v.w.Header().Set("Retry-After", a.header.Get("Retry-After"))
		v.problem(a.code, "Please wait a moment", "More was asked for than is allowed at once. "+v.later())
	case a.code == http.StatusServiceUnavailable:
		v.w.Header().Set("Retry-After", "2")
		v.problem(a.code, "Not available at the moment", v.later())
	case a.code >= http.StatusInternalServerError:
		v.problem(a.code, "Something went wrong", "Please try again. If it happens again, tell whoever runs Tenantry this number: "+a.header.Get(requestID))
	default:
		v.problem(a.code, "This cannot be shown", a.message)
	}
	return true
}

// later says how to try again.
func (v *visit) later() string {
	if v.r.Method == http.MethodPost {
		return "Load this page again in a moment: the browser sends once more what you typed."
	}
	return "Please try again in a moment."
}

func (v *visit) problem(code int, title, text string) {
	c := v.chrome(title)
	c.Done, c.Undo = "", nil
	v.pages.render(v.w, code, "problem", struct {
		chrome
		Text string
	}{c, text})
}

func (v *visit) missing() {
	v.problem(http.StatusNotFound, "There is no such page", "Check the address, or choose a page from the navigation.")
}

// sitePage shows what the path leads to.
func sitePage(v *visit) {
	p, path := v.site.find(v.r.URL.EscapedPath())
	switch {
	case p == nil:
		v.missing()
	case p.list:
		v.listPage(p, path)
	default:
		v.recordPage(p, path)
	}
}
