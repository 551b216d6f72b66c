package console

import (
	"errors"
	"net/http"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
	"tenantry/tenants"
)

// unknownHost answers requests to a host that has no organization. If the host could be an organization's, the answer
// is the same as an organization's to visitors who are not signed in, so that it does not reveal which organizations
// exist.
func (m *Module) unknownHost(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, tenants.ErrNoSlug) {
		m.common.ToSignIn(w, r)
		return
	}
	m.common.Layout.Render(w, http.StatusNotFound, "nowhere", m.common.Layout.AddressView("There is no organization here"))
}

// withVisitor finds the organization and the person of a request. For an unknown host, page gets an empty organization
// and tenants.ErrUnknownTenant, and must answer as an organization answers visitors who are not signed in.
func (m *Module) withVisitor(
	page func(w http.ResponseWriter, r *http.Request, v visit.Visitor, unknown error),
) http.HandlerFunc {
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

// hostIndependent serves a page that is the same on every host, so that it does not reveal which organizations exist.
// page gets the name of the organization only if its settings allow that.
func (m *Module) hostIndependent(
	page func(w http.ResponseWriter, r *http.Request, organization string),
) http.HandlerFunc {
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

// signedIn serves people who are signed in, and redirects others to the sign-in page.
func (m *Module) signedIn(serve func(*visit.Visit)) http.HandlerFunc {
	return m.byVisitor(serve, m.common.ToSignIn, m.unknownHost)
}

// openPage serves a page to everybody. People who are signed in see it with their navigation; for others it is the same
// on every host.
func (m *Module) openPage(page func(http.ResponseWriter, *http.Request, visit.Chrome)) http.HandlerFunc {
	open := m.hostIndependent(func(w http.ResponseWriter, r *http.Request, organization string) {
		page(w, r, visit.Chrome{Frame: layout.Frame{Organization: organization}})
	})
	return m.byVisitor(
		func(v *visit.Visit) { page(v.W, v.R, v.Chrome("")) },
		open,
		func(w http.ResponseWriter, r *http.Request, _ error) { open(w, r) })
}

// byVisitor dispatches a request: serve handles people who are signed in, anonymous other visitors, and noTenant
// requests to unknown hosts.
func (m *Module) byVisitor(
	serve func(*visit.Visit), anonymous http.HandlerFunc, noTenant func(http.ResponseWriter, *http.Request, error),
) http.HandlerFunc {
	return m.withVisitor(func(w http.ResponseWriter, r *http.Request, v visit.Visitor, unknown error) {
		switch {
		case v.Err != nil && !errors.Is(v.Err, tenants.ErrDenied):
			m.Log.WarnContext(r.Context(), "a session cannot be checked", "error", v.Err)
			m.common.Layout.Unavailable(w, "")
		case unknown != nil:
			noTenant(w, r, unknown)
		case v.Err != nil:
			anonymous(w, r)
		default:
			serve(visit.New(&m.common, w, r, v))
		}
	})
}
