package console

import (
	"net/http"

	"tenantry/gateway/console/layout"
)

// forgotView is the page on which people ask for a new password.
type forgotView struct {
	layout.Frame
	Mails, Asked   bool
	Email, Problem string
}

func (m *Module) showForgot(w http.ResponseWriter, code int, organization string, v forgotView) {
	v.Frame = layout.Frame{Title: "Forgotten password", Organization: organization, HasProblems: v.Problem != ""}
	v.Mails = m.Mails
	m.common.Layout.Render(w, code, "forgot", v)
}

// forgotForm asks for a new password. The page that follows is the same whether or not somebody has the address.
func (m *Module) forgotForm(w http.ResponseWriter, r *http.Request) {
	a := m.submitOpenForm(w, r, "passwords.forgot", "email")
	if a == nil {
		return
	}
	m.hostIndependent(func(w http.ResponseWriter, r *http.Request, organization string) {
		view := forgotView{Email: r.PostForm.Get("email"), Asked: a.OK()}
		if !a.OK() {
			view.Problem = explanation(a)
		}
		m.showForgot(w, a.Code, organization, view)
	})(w, r)
}
