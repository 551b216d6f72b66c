package visit

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

// Show answers with a page, or with why it cannot be whole.
func (v *Visit) Show(code int, name string, view any) {
	if v.Unanswered != nil && v.Refused(*v.Unanswered, nil) {
		return
	}
	if time.Since(v.Began) < ConfirmAfter || v.stillAllowed() {
		v.Layout.Render(v.W, code, name, view)
	}
}

// stillAllowed reports whether the person may still be shown what a page that took long was made of; who may not is
// told so.
func (v *Visit) stillAllowed() bool {
	now, err := v.Visitor.Resolve(v.R.Context())
	var who *tenants.Principal
	if err == nil {
		if cookie, absent := v.R.Cookie(v.Cookie); absent != nil || now.Org.ID != v.Tenant.Org.ID {
			err = tenants.ErrDenied
		} else {
			who, err = v.Sessions.Lookup(v.R.Context(), now, cookie.Value)
		}
	}
	switch {
	case errors.Is(err, tenants.ErrDenied) && v.R.Method == http.MethodPost:
		v.Layout.Message(v.W, http.StatusForbidden, "", "You are not signed in any more", "Sign in again, and see whether what you sent is there.")
	case errors.Is(err, tenants.ErrDenied):
		v.ToSignIn(v.W, v.R)
	case err != nil:
		v.Log.WarnContext(v.R.Context(), "a session cannot be checked", "error", err)
		v.Layout.Unavailable(v.W, "")
	case !who.HoldsAll(v.Person) || !who.Scope(now, nil).Covers(v.Person.Scope(v.Tenant, nil)):
		v.Tenant, v.Person = now, who
		v.Problem(http.StatusForbidden, "Your rights were narrowed", "That happened while this page was made. Load it again.")
	default:
		return true
	}
	return false
}

// Chrome is what surrounds each page of a person who is signed in.
type Chrome struct {
	layout.Frame
	Navigation []site.Navigation
	Person     string
	Done       string         // what was just done
	Undo       *layout.Button // takes it back
	Trail      []site.Link
	Curl       string
}

// Chrome returns what surrounds a page of that title.
func (v *Visit) Chrome(title string) Chrome {
	c := Chrome{Frame: layout.Frame{Title: title, Organization: v.Tenant.Org.Name, Inside: true}, Navigation: v.Site.Navigation(v.Person, v.Tenant, v.R.URL.EscapedPath())}
	if user, err := v.People.FindUser(v.R.Context(), v.Tenant, v.Person.UserID); err == nil {
		c.Person = user.Name
	}
	query := v.R.URL.Query()
	if row := v.Site.Rows[query.Get("_done")]; row != nil && v.confirms(query) {
		c.Done = row.Message
		if id := query.Get("_undo"); id != "" {
			c.Undo = v.undo(row, id)
		}
	}
	return c
}

// doneFor is how long the address that follows a form says what was done.
const doneFor = time.Minute

// Mark returns what makes an address say that something was done: nobody else can write it, and it is soon void.
func (v *Visit) Mark(session, moment string, query url.Values) string {
	mac := hmac.New(sha256.New, []byte(session))
	_, _ = fmt.Fprintf(mac, "%s\n%s\n%s", moment, query.Get("_done"), query.Get("_undo")) // which never fails
	return moment + "-" + hex.EncodeToString(mac.Sum(nil)[:16])
}

// confirms reports whether the address followed a form of the person a moment ago.
func (v *Visit) confirms(query url.Values) bool {
	moment, _, _ := strings.Cut(query.Get("_told"), "-")
	at, err := strconv.ParseInt(moment, 10, 64)
	cookie, absent := v.R.Cookie(v.Cookie)
	if err != nil || absent != nil {
		return false
	}
	age := v.Now().Sub(time.Unix(at, 0))
	return age < doneFor && age > -doneFor && hmac.Equal([]byte(query.Get("_told")), []byte(v.Mark(cookie.Value, moment, query)))
}

// undo returns the button that restores what was deleted.
func (v *Visit) undo(removed *operation.Row, id string) *layout.Button {
	p, _ := v.Site.Find(strings.TrimPrefix(removed.Path, "/api"))
	if p == nil {
		return nil
	}
	row := p.Action(operation.RestoreAction)
	if !v.May(row) {
		return nil
	}
	path := v.parametersOf(row)
	path[p.Key()] = id
	return v.Button(row, path, "Undo")
}

// InWords returns a refusal with the permission that it names as forms call it.
func InWords(message, permission string) string {
	if before, is := strings.CutSuffix(message, permission); is && slices.Contains(tenants.AllPermissions(), tenants.Permission(permission)) {
		return before + site.Label(permission)
	}
	return message
}

// Refused shows why a call did not succeed, and reports whether it did not.
func (v *Visit) Refused(a ask.Reply, err error) bool {
	switch {
	case err != nil:
		v.Log.ErrorContext(v.R.Context(), "a page failed", "error", err)
		v.Problem(http.StatusInternalServerError, "Something went wrong", "Please try again.")
	case a.OK():
		return false
	case a.Code == http.StatusForbidden && a.Message == operation.DeniedMessage:
		v.ToSignIn(v.W, v.R)
	case a.Code == http.StatusForbidden:
		v.Problem(a.Code, "You may not see this", InWords(strings.TrimSuffix(a.Message, "."), a.Data.Get("permission").Text)+". An administrator of "+v.Tenant.Org.Name+" can give you the right.")
	case a.Code == http.StatusNotFound:
		v.Problem(a.Code, "There is no such page", site.Sentence(a.Message)+" It may have been deleted, or you are not allowed to see it.")
	case a.Code == http.StatusTooManyRequests:
		v.W.Header().Set("Retry-After", a.Header.Get("Retry-After"))
		v.Problem(a.Code, "Please wait a moment", "More was asked for than is allowed at once. "+v.later())
	case a.Code == http.StatusServiceUnavailable:
		v.W.Header().Set("Retry-After", "2")
		v.Problem(a.Code, "Not available at the moment", v.later())
	case a.Code >= http.StatusInternalServerError:
		v.Problem(a.Code, "Something went wrong", "Please try again. If it happens again, tell whoever runs Tenantry this number: "+a.Header.Get(ask.RequestIDHeader))
	default:
		v.Problem(a.Code, "This cannot be shown", a.Message)
	}
	return true
}

// later says how to try again.
func (v *Visit) later() string {
	if v.R.Method == http.MethodPost {
		return "Load this page again in a moment: the browser sends once more what you typed."
	}
	return "Please try again in a moment."
}

// Problem answers with a page that says why there is nothing else.
func (v *Visit) Problem(code int, title, text string) {
	c := v.Chrome(title)
	c.Done, c.Undo = "", nil
	v.Layout.Render(v.W, code, "problem", struct {
		Chrome
		Text string
	}{c, text})
}

// Missing answers 404.
func (v *Visit) Missing() {
	v.Problem(http.StatusNotFound, "There is no such page", "Check the address, or choose a page from the navigation.")
}
