package contract

import (
	"net/http"
	"strconv"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

func TestContract_ComplianceSchema(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	_, person := acme.Person(t, "person@example.com", func(u *control.NewUser) {
		for _, p := range tenants.AllPermissions() {
			u.Permissions = append(u.Permissions, string(p))
		}
	})
	const path = "/api/compliance/schema"
	refused := `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`
	schema := fixture.EnvelopeOK("Compliance configuration schema", `{"schema":{`+
		`"enabled":{"type":"boolean","label":"Enable compliance","default":false},`+
		`"lesson_tags_all":{"type":"array","label":"Lesson tags (all)","description":"A lesson counts only if it has every one of these tags."},`+
		`"lesson_tags_any":{"type":"array","label":"Lesson tags (any)","description":"A lesson counts only if it has at least one of these tags."},`+
		`"submission_enabled":{"type":"boolean","label":"Include form submissions","default":false}}}`)
	rows := []exactRow{
		{name: "administrator", path: path, with: []gatewaytest.Request{gatewaytest.Cookie(admin)}, body: schema},
		{name: "teams[]", path: path + "?teams[]=" + fixture.TeamA, with: []gatewaytest.Request{gatewaytest.Cookie(admin), strict()}, body: schema},
		{name: "person with every permission", path: path, with: []gatewaytest.Request{gatewaytest.Cookie(person)}, code: 403, body: refused},
		{name: "strongest key", path: path, with: []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))}, code: 403, body: refused},
		{name: "no credential", path: path, code: 403, body: fixture.DeniedBody},
		{name: "bad key", path: path, with: []gatewaytest.Request{gatewaytest.WithKey("nonsense")}, code: 403, body: fixture.DeniedBody},
	}
	for _, kind := range []string{"server_full", "server_read", "browser"} {
		key := acme.KeyWith(t, func(k *control.NewKey) {
			if k.Kind = kind; kind == "browser" {
				k.Origins = []string{"https://app.example.com"}
			}
		}).Token
		with := []gatewaytest.Request{gatewaytest.WithKey(key)}
		if kind == "browser" {
			with = append(with, gatewaytest.Header("Origin", "https://app.example.com"))
		}
		rows = append(rows, exactRow{name: kind, path: path, with: with, code: 403, body: refused})
	}
	checkRows(t, acme, rows)
}

func TestContract_User(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	acme.Import(t, `{"kind":"role","name":"editor","label":"Editor","permissions":["manage_forms"]}`)
	grace, self := acme.Person(t, "grace@example.com", func(u *control.NewUser) {
		u.Name, u.Roles, u.Permissions = "Grace Hopper", []string{"editor"}, []string{"contacts"}
	})
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	_, person := acme.Person(t, "person@example.com", nil)
	_, viewer := acme.Person(t, "viewer@example.com", func(u *control.NewUser) { u.Permissions = []string{"view_users"} })
	other.Import(t, `{"kind":"user","id":9000,"name":"Foreign","email":"foreign@example.com"}`)

	id := strconv.FormatInt(grace.ID, 10)
	found := fixture.EnvelopeOK("User found", `{"id":`+id+`,"name":"Grace Hopper","email":"grace@example.com",`+
		`"permissions":{"label":"Permissions","value":["contacts","manage_forms"]},"roles":{"label":"Roles","value":["editor"]}}`)
	denied, missing := envelopeFailed("Permission Denied"), envelopeFailed("Unable to locate user.")
	cookie := func(c *http.Cookie) []gatewaytest.Request { return []gatewaytest.Request{gatewaytest.Cookie(c)} }
	key := func(p ...tenants.Permission) []gatewaytest.Request {
		return []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t, p...))}
	}
	view, nobody := key(tenants.ViewUsers), key(tenants.Contacts, tenants.ManageForms)
	rows := []exactRow{
		{name: "self", path: id, with: cookie(self), body: found},
		{name: "administrator", path: id, with: cookie(admin), body: found},
		{name: "view_users", path: id, with: view, body: found},
		{name: "manage_users", path: id, with: key(tenants.ManageUsers), body: found},
		{name: "person with view_users", path: id, with: cookie(viewer), body: found},
		{name: "another person", path: id, with: cookie(person), code: 403, body: denied},
		{name: "key without the permission", path: id, with: nobody, code: 403, body: denied},
		{name: "no credential", path: id, code: 403, body: fixture.DeniedBody},
		{name: "missing, administrator", path: "12345", with: cookie(admin), code: 404, body: missing},
		{name: "missing, view_users", path: "12345", with: view, code: 404, body: missing},
		{name: "missing, another person", path: "12345", with: cookie(person), code: 403, body: denied},
		{name: "missing, key without the permission", path: "12345", with: nobody, code: 403, body: denied},
		{name: "of another organization", path: "9000", with: view, code: 404, body: missing},
		{name: "of another organization, not entitled", path: "9000", with: nobody, code: 403, body: denied},
	}
	for _, malformed := range []string{"abc", "0", "-1", "1.5", "99999999999999999999", "0x1", "+" + id, fixture.AbsentID} {
		rows = append(rows,
			exactRow{name: "malformed " + malformed, path: malformed, with: view, code: 404, body: missing},
			exactRow{name: "malformed, not entitled " + malformed, path: malformed, with: nobody, code: 403, body: denied})
	}
	for i := range rows {
		rows[i].path = "/api/users/" + rows[i].path
	}
	checkRows(t, acme, rows)

	// The operation has no other parameters, including teams[].
	a := acme.Do(t, http.MethodGet, "/api/users/"+id+"?teams[]="+fixture.TeamA+"&colour=red", view...)
	fixture.WantBody(t, a, http.StatusOK, found)
	wantIgnored(t, a, "teams[]", "colour")
	fixture.WantFailure(t, acme.Do(t, http.MethodGet, "/api/users/"+id+"?teams[]="+fixture.TeamA, append(view, strict())...), http.StatusBadRequest)

	bare := acme.Do(t, http.MethodGet, "/api/users/"+strconv.FormatInt(grace.ID, 10), cookie(admin)...)
	fixture.WantMembers(t, bare.DataJSON(), "id", "name", "email", "permissions", "roles")
}
