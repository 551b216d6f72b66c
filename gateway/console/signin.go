package console

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"tenantry/crypto/passwords"
	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
)

type signInView struct {
	layout.AddressView
	Email, Next, Problem string
}

func (m *Module) signInPage(w http.ResponseWriter, r *http.Request, organization string) {
	next := r.URL.Query().Get("next")
	if next != "" {
		next = visit.LocalAddress(next)
	}
	m.showSignIn(w, http.StatusOK, organization, signInView{Next: next})
}

func (m *Module) showSignIn(w http.ResponseWriter, code int, organization string, v signInView) {
	v.AddressView = m.common.Layout.AddressView("Sign in")
	v.HasProblems = v.Problem != ""
	if v.Organization = organization; organization != "" {
		v.Address = "" // the visitor is at the right address
	}
	m.common.Layout.Render(w, code, "sign-in", v)
}

// submitOpenForm reads the form of a visitor who need not be signed in, and calls an operation with the named values.
// It returns nil if it has answered the request itself.
func (m *Module) submitOpenForm(w http.ResponseWriter, r *http.Request, operation string, names ...string) *ask.Reply {
	row := m.common.SignInRows[operation]
	if row == nil || !m.readOpenForm(w, r) {
		return nil
	}
	body := map[string]any{}
	for _, name := range names {
		body[name] = r.PostForm.Get(name)
	}
	a, err := m.common.Client.Ask(r.Context(), r, ask.Call{Row: row, Body: body})
	if err != nil {
		m.Log.ErrorContext(r.Context(), "a form failed", "error", err)
		m.common.Layout.Unavailable(w, "")
		return nil
	}
	ask.ForwardHeaders(w, a.Header)
	return &a
}

// Bounds of a form of a visitor who is not signed in. They are small because the form is held in memory while it waits
// for its password to be checked.
const (
	maxOpenForm   = 16 << 10 // bytes
	maxOpenFields = 16
)

var errTooManyFields = errors.New("the form has too many fields")

// readOpenForm reads such a form into r.PostForm, once. If it cannot, it answers the request and returns false.
func (m *Module) readOpenForm(w http.ResponseWriter, r *http.Request) bool {
	if r.PostForm != nil {
		return true
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxOpenForm))
	fields := url.Values{}
	if err == nil && strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		if err = errTooManyFields; bytes.Count(body, []byte{'&'}) < maxOpenFields {
			fields, err = url.ParseQuery(string(body))
		}
	}
	if err != nil {
		m.common.Layout.Message(w, http.StatusBadRequest, "", "The form did not arrive", "Go back and try again.")
		return false
	}
	r.PostForm = fields
	return true
}

func (m *Module) signInForm(w http.ResponseWriter, r *http.Request) {
	a := m.submitOpenForm(w, r, "sessions.create", "email", "password")
	switch {
	case a == nil:
	case a.OK():
		next := visit.LocalAddress(r.PostForm.Get("next"))
		http.Redirect(w, r, next, http.StatusSeeOther) //nolint:gosec // LocalAddress returns only addresses of these pages
	default:
		m.hostIndependent(func(w http.ResponseWriter, r *http.Request, organization string) {
			view := signInView{Email: r.PostForm.Get("email"), Next: r.PostForm.Get("next"), Problem: explanation(a)}
			m.showSignIn(w, a.Code, organization, view)
		})(w, r)
	}
}

// signOutForm ends the session. Signing out of a session that has already ended succeeds.
func (m *Module) signOutForm(w http.ResponseWriter, r *http.Request) {
	a := m.submitOpenForm(w, r, "sessions.delete")
	switch {
	case a == nil:
	case a.OK(), a.Code == http.StatusForbidden && a.Message == operation.DeniedMessage:
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	default:
		m.common.Layout.Message(w, a.Code, "", "You are still signed in", explanation(a))
	}
}

// explanation returns the text of a refusal for a page, with the time to wait if there is one.
func explanation(a *ask.Reply) string {
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && a.Code == http.StatusTooManyRequests {
		return a.Message + ": try again in " + layout.Wait(seconds) + "."
	}
	return a.Message
}

// welcomeView is a page that a single-use link leads to.
type welcomeView struct {
	layout.Frame
	Shortest       int    // the least length of a password
	Check          string // the path of the operation that checks the link
	Ended          bool   // the link is invalid, so the page has no form
	Token, Problem string
}

func (m *Module) showWelcome(w http.ResponseWriter, code int, organization, token, problem string) {
	m.common.Layout.Render(w, code, "welcome", welcomeView{
		Frame:    layout.Frame{Title: "Choose a password", Organization: organization, HasProblems: problem != ""},
		Shortest: passwords.MinCharacters,
		Check:    m.common.SignInRows["passwords.check"].Path,
		Ended:    code == http.StatusForbidden,
		Token:    token,
		Problem:  problem,
	})
}

func (m *Module) showEnter(w http.ResponseWriter, code int, organization, token, problem string) {
	m.common.Layout.Render(w, code, "enter", welcomeView{
		Frame:   layout.Frame{Title: "Sign in by a link", Organization: organization, HasProblems: problem != ""},
		Ended:   code == http.StatusForbidden,
		Token:   token,
		Problem: problem,
	})
}

// renderLink renders a page that a single-use link leads to.
type renderLink func(w http.ResponseWriter, code int, organization, token, problem string)

func (m *Module) linkPage(show renderLink) http.HandlerFunc {
	return m.hostIndependent(func(w http.ResponseWriter, _ *http.Request, organization string) {
		show(w, http.StatusOK, organization, "", "")
	})
}

// linkForm carries out the form of such a page. It redirects to the overview on success and shows the page again
// otherwise.
func (m *Module) linkForm(operation string, show renderLink, names ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !m.readOpenForm(w, r) {
			return
		}
		if _, after, found := strings.Cut(r.PostForm.Get("token"), "#"); found { // the visitor pasted the whole link
			r.PostForm.Set("token", after)
		}
		a := m.submitOpenForm(w, r, operation, names...)
		switch {
		case a == nil:
		case a.OK():
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			m.hostIndependent(func(w http.ResponseWriter, r *http.Request, organization string) {
				show(w, a.Code, organization, r.PostForm.Get("token"), explanation(a))
			})(w, r)
		}
	}
}
