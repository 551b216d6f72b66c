package console

import (
	"errors"
	"net/http"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
	"tenantry/tenants"
)

// homeOfNobody answers a host that leads to no organization. Where it could be one's, what an
// organization answers to strangers, so that nobody learns which there are.
func (m *Module) homeOfNobody(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, tenants.ErrNoSlug) {
		m.common.ToSignIn(w, r)
		return
	}
	m.common.Layout.Render(w, http.StatusNotFound, "nowhere", m.common.Layout.Stranger("There is no organization here"))
}

// visited finds the organization and who asks. Where there is none, the page is told so, and has nobody's: what it
// answers then is what an organization answers to a stranger.
func (m *Module) visited(page func(w http.ResponseWriter, r *http.Request, v visit.Visitor, unknown error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v, err := m.Visit(r)
		var refused *operation.Problem
		switch {
		case err == nil, errors.Is(err, tenants.ErrUnknownTenant):
			page(w, r, v, err)
		case errors.As(err, &refused):
			m.common.Layout.TooMany(w, r, refused)
		default:
			m.Log.WarnContext(r.Context(), "a page is unavailable", "error", err)
			m.common.Layout.Unavailable(w, "")
		}
	}
}

// anyPage makes a page that is the same for every host, so that it does not tell which
// organizations there are. One that wants to be named is.
func (m *Module) anyPage(page func(w http.ResponseWriter, r *http.Request, organization string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t, err := m.Resolve(r)
		switch {
		case err == nil && t.Org.Setting(tenants.SettingSignInNamesOrganization):
			page(w, r, t.Org.Name)
		case err == nil, errors.Is(err, tenants.ErrUnknownTenant):
			page(w, r, "")
		default:
			m.Log.WarnContext(r.Context(), "a page is unavailable", "error", err)
			m.common.Layout.Unavailable(w, "")
		}
	}
}

// signedIn finds who is signed in, and sends others to sign in. Errors were answered.
func (m *Module) signedIn(serve func(*visit.Visit)) http.HandlerFunc {
	return m.visiting(serve, m.common.ToSignIn, m.homeOfNobody)
}

// forAll makes a page that stands among the others for who is signed in, and is the same on every host for everybody
// else.
func (m *Module) forAll(page func(http.ResponseWriter, *http.Request, visit.Chrome)) http.HandlerFunc {
	open := m.anyPage(func(w http.ResponseWriter, r *http.Request, organization string) {
		page(w, r, visit.Chrome{Frame: layout.Frame{Organization: organization}})
	})
	return m.visiting(func(v *visit.Visit) { page(v.W, v.R, v.Chrome("")) }, open, func(w http.ResponseWriter, r *http.Request, _ error) { open(w, r) })
}

// visiting finds who is signed in; strangers answers who is not, nobody where there is no organization.
func (m *Module) visiting(serve func(*visit.Visit), strangers http.HandlerFunc, nobody func(http.ResponseWriter, *http.Request, error)) http.HandlerFunc {
	return m.visited(func(w http.ResponseWriter, r *http.Request, v visit.Visitor, unknown error) {
		switch {
		case v.Err != nil && !errors.Is(v.Err, tenants.ErrDenied):
			m.Log.WarnContext(r.Context(), "a session cannot be checked", "error", v.Err)
			m.common.Layout.Unavailable(w, "")
		case unknown != nil:
			nobody(w, r, unknown)
		case v.Err != nil:
			strangers(w, r)
		default:
			serve(visit.New(&m.common, w, r, v))
		}
	})
}
