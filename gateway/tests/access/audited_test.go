package access

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// auditOf returns the audit record of the answered call.
func auditOf(t *testing.T, o *gatewaytest.Org, a *gatewaytest.Answer) control.AuditRecord {
	t.Helper()
	all := fixture.AuditLog(t, o)
	i := slices.IndexFunc(all, func(r control.AuditRecord) bool { return r.RequestID == a.Header.Get("X-Request-Id") })
	if i < 0 {
		t.Errorf("got no audit record of the answer %d %.200s, want one", a.Code, a.Body)
		return control.AuditRecord{}
	}
	return all[i]
}

// TestEveryChangeIsAudited checks that each operation that changes, reveals or exports something leaves a record of who
// did it, from where, and to which record, also when it is refused.
func TestEveryChangeIsAudited(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithDemoFiles)
	p := w.A
	key := p.KeyWith(t, func(k *control.NewKey) { k.Permissions = fixture.PermissionNames(tenants.AllPermissions()) })
	account, err := p.App.People().AccountByName(t.Context(), p.Tenant(t), key.Account)
	if err != nil {
		t.Fatal(err)
	}
	_, powerless := p.Person(t, "powerless@example.com", nil)
	rows := slices.DeleteFunc(slices.Clone(w.Rows()), func(op operation.Row) bool {
		return (op.Method == http.MethodGet || op.Reads) && op.Audit != operation.AuditAlways
	})
	slices.SortStableFunc(rows, func(a, b operation.Row) int { // what others need is deleted last
		rank := func(op operation.Row) int {
			return slices.Index([]string{"sessions.end", "passwords.change", "sessions.end_others", "sessions.delete", "roles.delete", "teams.delete", "keys.delete", "service_accounts.delete"}, op.Name)
		}
		return cmp.Compare(rank(a), rank(b))
	})
	if len(rows) < 9 {
		t.Fatalf("%d operations change something, want at least 9", len(rows))
	}
	for _, op := range rows {
		s := fixture.SampleFor(&op)
		call := w.Build(&op, op.Path, s, p.Own, func(name string) bool { return name != "public_key" })
		if op.Rule.Permissions() != nil && op.Credentials&operation.Session != 0 {
			a := p.Do(t, call.Method, call.Target, append(slices.Clone(call.Changes), gatewaytest.Cookie(powerless))...)
			if r := auditOf(t, p.Org, a); a.Code != http.StatusForbidden || r.Outcome != "denied" || !strings.HasPrefix(r.Subject, "user:") || r.Address != "127.0.0.1" {
				t.Errorf("%s refused: got %d %+v, want 403, Outcome denied, beginning with user: and Address 127.0.0.1",
					op.Name, a.Code, r)
			}
		}
		want := control.AuditRecord{Operation: op.Name, Subject: "key:" + key.ID, Account: account.ID, Address: "127.0.0.1", Outcome: "ok"}
		switch {
		case op.Credentials == operation.Open:
			want.Subject, want.Account = "anonymous", ""
		case op.Rule.IsAdminOnly(), strings.HasPrefix(op.Path, "/api/me/"):
			want.Subject, want.Account = "user:"+strconv.FormatInt(p.Admin.ID, 10), ""
			call.Changes = append(call.Changes, gatewaytest.Cookie(p.AdminCookie))
		case op.Credentials&operation.Key == 0:
			want.Subject, want.Account = "user:"+strconv.FormatInt(p.Member.ID, 10), ""
			call.Changes = append(call.Changes, gatewaytest.Cookie(p.MemberCookie))
		default:
			call.Changes = append(call.Changes, gatewaytest.WithKey(key.Token))
		}
		a := p.Do(t, call.Method, call.Target, call.Changes...)
		r := auditOf(t, p.Org, a)
		got := control.AuditRecord{Operation: r.Operation, Subject: r.Subject, Account: r.Account, Address: r.Address, Outcome: r.Outcome}
		if !fixture.Succeeded(&op, a) || !equalJSON(t, got, want) {
			t.Errorf("%s: %d %.200s\nrecorded %+v\nwant     %+v", op.Name, a.Code, a.Body, r, want)
		}
		facts := slices.Collect(maps.Values(r.Facts))
		for _, at := range s.Path {
			if id := p.IDs[at]; fixture.IsID(id) && !slices.Contains(facts, id) {
				t.Errorf("%s: the record has the facts %[3]v, want the %[2]s %[4]s", op.Name, at, r.Facts, id)
			}
		}
		if id, made := a.Field("id").(string); made && fixture.IsID(id) && !slices.Contains(facts, id) {
			t.Errorf("%s: the record has the facts %v, want the identifier %s of the new record", op.Name, r.Facts, id)
		}
	}
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(x) == string(y)
}

// TestWhoMayDeleteFiles checks that any server_full key, and people with manage_files, can delete a file.
func TestWhoMayDeleteFiles(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, nobody := acme.Person(t, "nobody@example.com", nil)
	_, other := acme.Person(t, "other@example.com", func(u *control.NewUser) { u.Permissions = []string{"manage_forms", "contacts"} })
	_, holder := acme.Person(t, "holder@example.com", func(u *control.NewUser) { u.Permissions = []string{"manage_files"} })
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	reader := acme.Key(t, tenants.ManageFiles)
	kind := func(kind string) []gatewaytest.Request {
		key := acme.KeyWith(t, func(k *control.NewKey) {
			if k.Kind, k.Permissions = kind, []string{"manage_files"}; kind == "browser" {
				k.Origins = []string{fixture.PageOrigin}
			}
		}).Token
		if kind == "browser" {
			return []gatewaytest.Request{gatewaytest.WithKey(key), gatewaytest.Header("Origin", fixture.PageOrigin)}
		}
		return []gatewaytest.Request{gatewaytest.WithKey(key)}
	}
	for n, test := range []struct {
		name string
		with []gatewaytest.Request
		code int
		body string // empty: deleted
	}{
		{"person without a role", []gatewaytest.Request{gatewaytest.Cookie(nobody)}, 403, fixture.EnvelopeLacking("manage_files")},
		{"person with other permissions", []gatewaytest.Request{gatewaytest.Cookie(other)}, 403, fixture.EnvelopeLacking("manage_files")},
		{"reading key", kind("server_read"), 403, fixture.DeniedBody},
		{"browser key", kind("browser"), 403, fixture.DeniedBody},
		{"nobody", nil, 403, fixture.DeniedBody},
		{"person with manage_files", []gatewaytest.Request{gatewaytest.Cookie(holder)}, 200, ""},
		{"administrator", []gatewaytest.Request{gatewaytest.Cookie(admin)}, 200, ""},
		{"server_full key without permissions", []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}, 200, ""},
	} {
		id := fixture.DocID(500 + n)
		acme.Import(t, `{"kind":"file","id":"`+id+`","filename":"a.pdf","mimetype":"application/pdf"}`)
		want, outcome := test.body, "denied"
		if want == "" {
			want, outcome = fixture.EnvelopeOK("File record deleted", `{"id":"`+id+`"}`), "ok"
		}
		a := acme.Do(t, http.MethodDelete, "/api/files/"+id, test.with...)
		if a.Code != test.code || a.Text() != want {
			t.Errorf("%s: %d %s, want %d %s", test.name, a.Code, a.Body, test.code, want)
		}
		if r := auditOf(t, acme, a); r.Operation != "files.delete" || r.Outcome != outcome || r.Facts["id"] != id || r.Address == "" {
			t.Errorf("%s: recorded %+v, want Operation files.delete, Outcome %v, id %v and Address set",
				test.name, r, outcome, id)
		}
		shown := acme.Get(t, reader, "/api/files/"+id).Code == http.StatusOK
		if want := test.body != ""; shown != want {
			t.Errorf("%s: the file is shown: got %t, want %t", test.name, shown, want)
		}
	}
}

// TestSignInFailuresAreAudited checks that refused sign-ins are recorded with the address and, if the e-mail address is
// known, the person, and never with the typed text, which may be a password.
func TestSignInFailuresAreAudited(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	ada, err := control.Call[control.User](t.Context(), acme.Commands, "user.create", control.NewUser{Org: acme.Slug, UserFields: control.UserFields{Name: "Ada", Email: "ada@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	const typed = "Tr0ub4dor&3@example.com"
	signIn := func(email string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": email, "password": "wrong " + typed}))
	}
	known, unknown := signIn("ADA@example.com"), signIn(typed)
	if known.Text() != unknown.Text() || known.Code != http.StatusForbidden {
		t.Errorf("got %d %s and %d %s, want the same 403", known.Code, known.Body, unknown.Code, unknown.Body)
	}
	if r := auditOf(t, acme, known); r.Outcome != "denied" || r.Facts["user"] != strconv.FormatInt(ada.ID, 10) || r.Address != "127.0.0.1" {
		t.Errorf("a known person: got %+v, want a denied record with the user's number and the address 127.0.0.1", r)
	}
	if r := auditOf(t, acme, unknown); r.Outcome != "denied" || r.Facts["user"] != "" || r.Address != "127.0.0.1" {
		t.Errorf("nobody: got %+v, want Outcome denied, no user and Address 127.0.0.1", r)
	}
	raw, err := json.Marshal(fixture.AuditLog(t, acme))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"Tr0ub4dor", "ada@", "ADA@"} {
		if strings.Contains(string(raw), secret) {
			t.Errorf("the audit log holds %s: got %s, want it nowhere", secret, raw)
		}
	}
}

// TestFloodOfOneAddressHidesNoOtherRecords checks that repeated refusals of one address, or of one IPv6 network, leave
// 20 records a minute, and that records of others are kept.
func TestFloodOfOneAddressHidesNoOtherRecords(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.TrustedProxies = []string{"127.0.0.1"} })
	for slug, from := range map[string]string{"four": "192.0.2.1", "six": "2001:db8:0:1::"} {
		o := g.Org(t, slug)
		refused := func(address string) *gatewaytest.Answer {
			return o.Do(t, http.MethodDelete, "/api/files/"+fixture.DocID(1), gatewaytest.Header("X-Forwarded-For", address))
		}
		for n := range 70 {
			address := from
			if slug == "six" {
				address += strconv.FormatInt(int64(n+1), 16)
			}
			if a := refused(address); a.Code != http.StatusForbidden {
				t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusForbidden)
			}
		}
		// If another minute begins, there can be 20 more.
		written := slices.DeleteFunc(fixture.AuditLog(t, o), func(r control.AuditRecord) bool { return r.Operation != "files.delete" })
		if n := len(written); n < 20 || n > 2*20 {
			t.Errorf("%s: %d of 70 refusals of one address have a record, want at least 20 and at most %v",
				slug, n, 2*20)
		}
		if r := auditOf(t, o, refused("198.51.100.7")); r.Address != "198.51.100.7" || r.Outcome != "denied" {
			t.Errorf("%s: another address: got %+v, want Address 198.51.100.7 and Outcome denied", slug, r)
		}
	}
}
