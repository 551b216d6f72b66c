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
	layout.Stranger
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
	v.Stranger = m.common.Layout.Stranger("Sign in")
	v.Faulty = v.Problem != ""
	if v.Organization = organization; organization != "" {
		v.Address = "" // it is the right one
	}
	m.common.Layout.Render(w, code, "sign-in", v)
}

// formOf reads a form of somebody who is not signed in, and calls the operation with those of its values; nil: it was
// answered.
func (m *Module) formOf(w http.ResponseWriter, r *http.Request, operation string, names ...string) *ask.Reply {
	row := m.common.Own[operation]
	if row == nil || !m.readForm(w, r) {
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
	ask.PassOn(w, a.Header)
	return &a
}

// Of a form of somebody who is not signed in no more is taken, since it is held for as long as others have their
// passwords checked.
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
		m.common.Layout.Message(w, http.StatusBadRequest, "", "The form did not arrive", "Go back and try again.")
		return false
	}
	r.PostForm = fields
	return true
}

func (m *Module) signInForm(w http.ResponseWriter, r *http.Request) {
	a := m.formOf(w, r, "sessions.create", "email", "password")
	switch {
	case a == nil:
	case a.OK():
		http.Redirect(w, r, visit.LocalAddress(r.PostForm.Get("next")), http.StatusSeeOther) //nolint:gosec // an address of these pages, see local
	default:
		m.anyPage(func(w http.ResponseWriter, r *http.Request, organization string) {
			m.showSignIn(w, a.Code, organization, signInView{Email: r.PostForm.Get("email"), Next: r.PostForm.Get("next"), Problem: explanation(a)})
		})(w, r)
	}
}

// signOutForm ends the session. Whoever signs out of one that has ended already is signed out.
func (m *Module) signOutForm(w http.ResponseWriter, r *http.Request) {
	a := m.formOf(w, r, "sessions.delete")
	switch {
	case a == nil:
	case a.OK(), a.Code == http.StatusForbidden && a.Message == operation.DeniedMessage:
		http.Redirect(w, r, "/sign-in", http.StatusSeeOther)
	default:
		m.common.Layout.Message(w, a.Code, "", "You are still signed in", explanation(a))
	}
}

// explanation returns what a page says of a refusal.
func explanation(a *ask.Reply) string {
	if seconds, err := strconv.Atoi(a.Header.Get("Retry-After")); err == nil && a.Code == http.StatusTooManyRequests {
		return a.Message + ": try again in " + layout.Wait(seconds) + "."
	}
	return a.Message
}

type welcomeView struct {
	layout.Frame
	Shortest       int
	Check          string // what tells whether the link is good
	Ended          bool   // it is not, so nothing can be sent
	Token, Problem string
}

func (m *Module) showWelcome(w http.ResponseWriter, code int, organization, token, problem string) {
	m.common.Layout.Render(w, code, "welcome", welcomeView{layout.Frame{Title: "Choose a password", Organization: organization, Faulty: problem != ""}, passwords.MinCharacters, m.common.Own["passwords.check"].Path, code == http.StatusForbidden, token, problem})
}

func (m *Module) showEnter(w http.ResponseWriter, code int, organization, token, problem string) {
	m.common.Layout.Render(w, code, "enter", welcomeView{Frame: layout.Frame{Title: "Sign in by a link", Organization: organization, Faulty: problem != ""}, Ended: code == http.StatusForbidden, Token: token, Problem: problem})
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
		case a.OK():
			http.Redirect(w, r, "/", http.StatusSeeOther)
		default:
			m.anyPage(func(w http.ResponseWriter, r *http.Request, organization string) {
				show(w, a.Code, organization, r.PostForm.Get("token"), explanation(a))
			})(w, r)
		}
	}
}
