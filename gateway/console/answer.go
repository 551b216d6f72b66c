package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/operation"
	"tenantry/tenants"
)

// show answers with a page, or with why it cannot be whole.
func (v *visit) show(code int, name string, view any) {
	if v.lacked != nil && v.refused(*v.lacked, nil) {
		return
	}
	if time.Since(v.began) < confirmed || v.still() {
		v.pages.Render(v.w, code, name, view)
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
		v.pages.Message(v.w, http.StatusForbidden, "", "You are not signed in any more", "Sign in again, and see whether what you sent is there.")
	case errors.Is(err, tenants.ErrDenied):
		v.toSignIn(v.w, v.r)
	case err != nil:
		v.log.WarnContext(v.r.Context(), "a session cannot be checked", "error", err)
		v.pages.Unavailable(v.w, "")
	case !who.HoldsAll(v.who) || !who.Scope(now, nil).Covers(v.who.Scope(v.t, nil)):
		v.t, v.who = now, who
		v.problem(http.StatusForbidden, "Your rights were narrowed", "That happened while this page was made. Load it again.")
	default:
		return true
	}
	return false
}

// chrome is what surrounds each page of a person who is signed in.
type chrome struct {
	layout.Frame
	Navigation []site.Navigation
	Person     string
	Done       string         // what was just done
	Undo       *layout.Button // takes it back
	Trail      []site.Link
	Curl       string
}

func (v *visit) chrome(title string) chrome {
	c := chrome{Frame: layout.Frame{Title: title, Organization: v.t.Org.Name, Inside: true}, Navigation: v.site.Navigation(v.who, v.t, v.r.URL.EscapedPath())}
	if user, err := v.people.FindUser(v.r.Context(), v.t, v.who.UserID); err == nil {
		c.Person = user.Name
	}
	query := v.r.URL.Query()
	if row := v.site.Rows[query.Get("_done")]; row != nil && v.tells(query) {
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
func (v *visit) undo(removed *operation.Row, id string) *layout.Button {
	p, _ := v.site.Find(strings.TrimPrefix(removed.Path, "/api"))
	if p == nil {
		return nil
	}
	row := p.Action("restore")
	if !v.may(row) {
		return nil
	}
	path := v.parametersOf(row)
	path[p.Key()] = id
	return v.button(row, path, "Undo")
}

// inWords returns a refusal with the permission that it names as forms call it.
func inWords(message, permission string) string {
	if before, is := strings.CutSuffix(message, permission); is && slices.Contains(tenants.AllPermissions(), tenants.Permission(permission)) {
		return before + site.Label(permission)
	}
	return message
}

// refused shows why a call did not succeed, and reports whether it did not.
func (v *visit) refused(a ask.Reply, err error) bool {
	switch {
	case err != nil:
		v.log.ErrorContext(v.r.Context(), "a page failed", "error", err)
		v.problem(http.StatusInternalServerError, "Something went wrong", "Please try again.")
	case a.Ok():
		return false
	case a.Code == http.StatusForbidden && a.Message == operation.DeniedMessage:
		v.toSignIn(v.w, v.r)
	case a.Code == http.StatusForbidden:
		v.problem(a.Code, "You may not see this", inWords(strings.TrimSuffix(a.Message, "."), a.Data.Get("permission").Text)+". An administrator of "+v.t.Org.Name+" can give you the right.")
	case a.Code == http.StatusNotFound:
		v.problem(a.Code, "There is no such page", site.Sentence(a.Message)+" It may have been deleted, or you are not allowed to see it.")
	case a.Code == http.StatusTooManyRequests:
		v.w.Header().Set("Retry-After", a.Header.Get("Retry-After"))
		v.problem(a.Code, "Please wait a moment", "More was asked for than is allowed at once. "+v.later())
	case a.Code == http.StatusServiceUnavailable:
		v.w.Header().Set("Retry-After", "2")
		v.problem(a.Code, "Not available at the moment", v.later())
	case a.Code >= http.StatusInternalServerError:
		v.problem(a.Code, "Something went wrong", "Please try again. If it happens again, tell whoever runs Tenantry this number: "+a.Header.Get(ask.RequestIDHeader))
	default:
		v.problem(a.Code, "This cannot be shown", a.Message)
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
	v.pages.Render(v.w, code, "problem", struct {
		chrome
		Text string
	}{c, text})
}

func (v *visit) missing() {
	v.problem(http.StatusNotFound, "There is no such page", "Check the address, or choose a page from the navigation.")
}
