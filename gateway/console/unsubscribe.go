package console

import (
	"net/http"

	"tenantry/gateway/console/layout"
)

// unsubscribeRow is the operation that ends alerts.
const unsubscribeRow = "mails.unsubscribe"

// unsubscribeView is the page on which recipients of alerts end them.
type unsubscribeView struct {
	layout.Frame
	Done           bool
	Token, Problem string
}

func (m *Module) showUnsubscribe(w http.ResponseWriter, code int, organization string, v unsubscribeView) {
	v.Frame = layout.Frame{Title: "No more of these mails", Organization: organization, HasProblems: v.Problem != ""}
	m.common.Layout.Render(w, code, "unsubscribe", v)
}

// unsubscribeForm ends alerts. Programs that read mail send the form without the token, which is in the address then
// (RFC 8058).
func (m *Module) unsubscribeForm(w http.ResponseWriter, r *http.Request) {
	if !m.readOpenForm(w, r) {
		return
	}
	if r.PostForm.Get("token") == "" {
		r.PostForm.Set("token", r.URL.Query().Get("token"))
	}
	a := m.submitOpenForm(w, r, unsubscribeRow, "token")
	if a == nil {
		return
	}
	m.hostIndependent(func(w http.ResponseWriter, r *http.Request, organization string) {
		view := unsubscribeView{Token: r.PostForm.Get("token"), Done: a.OK()}
		if !a.OK() {
			view.Problem = explanation(a)
		}
		m.showUnsubscribe(w, a.Code, organization, view)
	})(w, r)
}
