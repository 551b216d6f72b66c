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

// Show answers with a page. If data of the page are missing, or the person has lost the right to see it, it answers
// with the reason instead.
func (v *Visit) Show(code int, name string, view any) {
	if v.Unanswered != nil && v.Refused(*v.Unanswered, nil) {
		return
	}
	if time.Since(v.Started) < ConfirmAfter || v.confirmAccess() {
		v.Layout.Render(v.W, code, name, view)
	}
}

// confirmAccess reports whether the person may still see a page that took long to make. If not, it answers the request.
func (v *Visit) confirmAccess() bool {
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
		v.Layout.Message(v.W, http.StatusForbidden, "", "You are no longer signed in",
			"Sign in again and check whether your changes were saved.")
	case errors.Is(err, tenants.ErrDenied):
		v.ToSignIn(v.W, v.R)
	case err != nil:
		v.Log.WarnContext(v.R.Context(), "a session cannot be checked", "error", err)
		v.Layout.Unavailable(v.W, "")
	case !who.HoldsAll(v.Person) || !who.Scope(now, nil).Covers(v.Person.Scope(v.Tenant, nil)):
		v.Tenant, v.Person = now, who
		v.Problem(http.StatusForbidden, "Your rights were reduced",
			"That happened while this page was loading. Reload it to see what you still may.")
	default:
		return true
	}
	return false
}

// Chrome is the part of a page around its content, for a person who is signed in.
type Chrome struct {
	layout.Frame
	Navigation []site.Navigation
	Person     string         // the name
	Done       string         // the notice of what a form has just done
	Undo       *layout.Button // undoes it
	Trail      []site.Link    // breadcrumbs
	Curl       string         // the command that makes the same call
}

// Chrome returns the chrome of a page with that title.
func (v *Visit) Chrome(title string) Chrome {
	c := Chrome{
		Frame:      layout.Frame{Title: title, Organization: v.Tenant.Org.Name, SignedIn: true},
		Navigation: v.Site.Navigation(v.Person, v.Tenant, v.R.URL.EscapedPath()),
	}
	if user, err := v.People.FindUser(v.R.Context(), v.Tenant, v.Person.UserID); err == nil {
		c.Person = user.Name
	}
	query := v.R.URL.Query()
	if row := v.Site.Rows[query.Get("_done")]; row != nil && v.verifyNotice(query) {
		c.Done = row.Message
		if id := query.Get("_undo"); id != "" {
			c.Undo = v.undo(row, id)
		}
	}
	return c
}

// noticeLifetime is how long an address shows the notice of a form.
const noticeLifetime = time.Minute

// SignNotice returns the signature of a notice, the query members _done and _undo of an address. It is bound to the
// session and to a moment in Unix seconds, so that a link from elsewhere cannot claim that something was done.
func (v *Visit) SignNotice(session, moment string, query url.Values) string {
	mac := hmac.New(sha256.New, []byte(session))
	_, _ = fmt.Fprintf(mac, "%s\n%s\n%s", moment, query.Get("_done"), query.Get("_undo")) // never fails
	return moment + "-" + hex.EncodeToString(mac.Sum(nil)[:16])
}

// verifyNotice reports whether the notice in the query was signed in this session within noticeLifetime.
func (v *Visit) verifyNotice(query url.Values) bool {
	signature := query.Get("_told")
	moment, _, _ := strings.Cut(signature, "-")
	at, err := strconv.ParseInt(moment, 10, 64)
	cookie, absent := v.R.Cookie(v.Cookie)
	if err != nil || absent != nil {
		return false
	}
	age := v.Now().Sub(time.Unix(at, 0))
	return age < noticeLifetime && age > -noticeLifetime &&
		hmac.Equal([]byte(signature), []byte(v.SignNotice(cookie.Value, moment, query)))
}

// undo returns the button that restores a deleted record, or nil if the person may not restore it.
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

// LabelPermission replaces the name of a permission at the end of a refusal with its title in forms.
func LabelPermission(message, permission string) string {
	before, found := strings.CutSuffix(message, permission)
	if found && slices.Contains(tenants.AllPermissions(), tenants.Permission(permission)) {
		return before + site.Label(permission)
	}
	return message
}

// Refused reports whether a call failed or was refused. If so, it answers with a page that says why.
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
		reason := LabelPermission(strings.TrimSuffix(a.Message, "."), a.Data.Get("permission").Text)
		v.Problem(a.Code, "You may not see this",
			reason+". An administrator of "+v.Tenant.Org.Name+" can give you this right.")
	case a.Code == http.StatusNotFound:
		v.Problem(a.Code, "There is no such page",
			site.Sentence(a.Message)+" It may have been deleted, or you are not allowed to see it.")
	case a.Code == http.StatusTooManyRequests:
		v.W.Header().Set("Retry-After", a.Header.Get("Retry-After"))
		v.Problem(a.Code, "Please wait a moment", "There were more requests than are allowed at once. "+v.retryAdvice())
	case a.Code == http.StatusServiceUnavailable:
		v.W.Header().Set("Retry-After", "2")
		v.Problem(a.Code, "Not available at the moment", v.retryAdvice())
	case a.Code >= http.StatusInternalServerError:
		v.Problem(a.Code, "Something went wrong",
			"Please try again. If it happens again, give the people who run Tenantry this number: "+
				a.Header.Get(ask.RequestIDHeader))
	default:
		v.Problem(a.Code, "This cannot be shown", a.Message)
	}
	return true
}

// retryAdvice returns the sentence that says how to try again.
func (v *Visit) retryAdvice() string {
	if v.R.Method == http.MethodPost {
		return "Reload this page in a moment: your browser then sends again what you typed."
	}
	return "Please try again in a moment."
}

// Problem answers with a page that shows only a problem.
func (v *Visit) Problem(code int, title, text string) {
	c := v.Chrome(title)
	c.Done, c.Undo = "", nil
	v.Layout.Render(v.W, code, "problem", struct {
		Chrome
		Text string
	}{c, text})
}

// NotFound answers 404.
func (v *Visit) NotFound() {
	v.Problem(http.StatusNotFound, "There is no such page", "Check the address, or choose a page from the navigation.")
}
