package load

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/rate"
	"tenantry/operation"
	"tenantry/tenants"
)

// setLimits sets limits of an organization.
func setLimits(t testing.TB, o *gatewaytest.Org, set map[string]int64) {
	t.Helper()
	change := control.OrganizationChange{Slug: o.Slug, OrganizationFields: control.OrganizationFields{Limits: set}}
	if _, err := control.Call[control.Organization](t.Context(), o.Commands, "org.update", change); err != nil {
		t.Fatal(err)
	}
}

// used returns the present usage of an organization.
func used(t testing.TB, o *gatewaytest.Org) store.Usage {
	t.Helper()
	u, err := o.Tenant(t).Workspace().Used(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// TestStorageQuota checks that an organization at its quota is refused in every interface, with the reason, and can
// still make room.
func TestStorageQuota(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.Limits.Bytes = 1 << 40 })
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ContactsBundle(3)...)
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin, key := fixture.As(acme, gatewaytest.Cookie(cookie)), fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	folder, _ := key.Want(t, http.MethodPost, "/api/files/folders", `{"name":"First"}`, 200, "").Field("id").(string)
	has := used(t, acme)
	setLimits(t, acme, map[string]int64{"documents": has.Documents})
	admin.Want(t, http.MethodGet, "/api/organization", "", 200, fmt.Sprintf(`"used":{"documents":%d,"bytes":%d,"file_bytes":0}`, has.Documents, has.Bytes))
	admin.Want(t, http.MethodGet, "/api/organization", "", 200, fmt.Sprintf(`"limits":{"bytes":%d,"documents":%d,"file_size":1073741824,"folder_children":1000}`, int64(1)<<40, has.Documents))
	shown, err := control.Call[control.Organization](t.Context(), acme.Commands, "org.show", control.Slug{Slug: "acme"})
	if err != nil || shown.Used == nil || shown.Used.Usage != has {
		t.Errorf("shown by the command: got %+v, %v, want the usage", shown.Used, err)
	}

	full := fmt.Sprintf(`{"limit":"documents","used":%d,"allowed":%[1]d}`, has.Documents)
	more := `{"kind":"contact","email":"more@example.com"}`
	for path, body := range map[string]string{
		"/api/files/folders": `{"name":"Second"}`, "/api/contacts": `{"email":"new@example.com"}`,
		"/api/contacts/bulk": `{"records":[{"email":"a@example.com"},{"email":"b@example.com"}]}`,
		"/api/form/collections/" + fixture.DocID(1) + "/submissions": `{"values":{"form_name":"x"}}`,
	} {
		key.Want(t, http.MethodPost, path, body, http.StatusInsufficientStorage, full)
	}
	sent := acme.Do(t, http.MethodPost, "/api/import", admin.As, gatewaytest.Body("application/x-ndjson", more))
	id, _ := sent.Field("id").(string)
	if a := fixture.AwaitImport(t, acme, admin.As, id); a.Field("state") != "refused" || !strings.Contains(a.Text(), "the file adds 1 records") {
		t.Errorf("an import: got %s, want state refused with %q", a.Body, "the file adds 1 records")
	}
	if now := used(t, acme); now != has {
		t.Errorf("after refused calls: used %+v, want %+v", now, has)
	}
	admin.Want(t, http.MethodGet, "/api/audit?per_page=100&filters[operation]=contacts.create", "", 200, `"code":507`)

	key.Want(t, http.MethodPut, "/api/files/folders/"+folder, `{"name":"Another name, and a longer one"}`, 200, "Another name")
	has = used(t, acme)
	setLimits(t, acme, map[string]int64{"documents": 0, "bytes": has.Bytes})
	key.Want(t, http.MethodPost, "/api/files/folders", `{"name":"Second"}`, 507, fmt.Sprintf(`"limit":"bytes","used":%d`, has.Bytes))
	key.Want(t, http.MethodPut, "/api/files/folders/"+folder, `{"name":"Another name, and a longer one still"}`, 200, "still") // a small change
	key.Want(t, http.MethodDelete, "/api/files/folders/"+folder, "", 200, "")                                                  // to the trash, which makes it longer
	key.Want(t, http.MethodDelete, "/api/files/folders/"+folder+"?purge=true", "", 200, "")
	key.Want(t, http.MethodPost, "/api/files/folders", `{"name":"Second"}`, 200, "Second")

	has = used(t, acme)
	setLimits(t, acme, map[string]int64{"documents": has.Documents + 5, "bytes": 0})
	var stored, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			switch a := acme.Do(t, http.MethodPost, "/api/contacts", key.As, fixture.JSONText(fmt.Sprintf(`{"email":"race%d@example.com"}`, i))); a.Code {
			case http.StatusOK:
				stored.Add(1)
			case http.StatusInsufficientStorage:
				refused.Add(1)
			default:
				t.Errorf("got %d %s, want 200 or 507", a.Code, a.Body)
			}
		})
	}
	all.Wait()
	if now := used(t, acme); stored.Load() != 5 || refused.Load() != 27 || now.Documents != has.Documents+5 {
		t.Errorf("of 32, %d were stored and %d refused; %+v of %+v, want 5, 27 and Documents %v",
			stored.Load(), refused.Load(), now, has, has.Documents+5)
	}
	if n, err := acme.Tenant(t).Workspace().Recount(t.Context()); err != nil || n != used(t, acme) {
		t.Errorf("recounted: got %+v, %v, want the present usage", n, err)
	}
}

// TestDeletesBeyondTheQuotaSucceed checks that no row that deletes or makes a small change is refused beyond the quota,
// and that other rows fail for no other reason.
func TestDeletesBeyondTheQuotaSucceed(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p, tried, refused := w.A, 0, 0
	setLimits(t, p.Org, map[string]int64{"documents": 1, "bytes": 1})
	for _, op := range w.App.Operations() {
		if op.Method == http.MethodGet || op.Credentials == operation.Operator || op.OwnLimits {
			continue
		}
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, fixture.Every)
		a := p.Do(t, q.Method, q.Target, append(q.Changes, p.CredentialFor(&op))...)
		switch {
		case a.Code == http.StatusInsufficientStorage && (op.Method == http.MethodPost || op.Name == "files.update"): // it adds a version
			refused++
		case a.Code >= http.StatusInternalServerError:
			t.Errorf("%s: got %d %s, want a code below 500", op.Name, a.Code, a.Body)
		}
		if op.Method == http.MethodDelete {
			tried++
		}
	}
	if tried < 10 || refused < 10 {
		t.Errorf("%d rows that delete were tried, and %d others refused, want at least 10", tried, refused)
	}
}

// TestDeletesFarBeyondTheQuotaSucceed holds that rows that make room are refused by no quota, not even where small
// changes are: a record in the trash takes a little more than one that is live.
func TestDeletesFarBeyondTheQuotaSucceed(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p, tried := w.A, 0
	const changeRoom = 1 << 20 // that small changes may take beyond the quota, see driver.Quota
	text := strings.Repeat("x", 200)
	lines := make([]string, changeRoom/600)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"kind":"contact","email":"far%d@example.com","city":%q,"country":%[2]q,"status":%[2]q}`, i, text)
	}
	p.Import(t, lines...)
	setLimits(t, p.Org, map[string]int64{"documents": 1, "bytes": 1})
	if has := used(t, p.Org); has.Bytes <= changeRoom {
		t.Fatalf("the organization holds %d bytes, want more than %d", has.Bytes, changeRoom)
	}

	for _, op := range w.App.Operations() {
		if op.Method != http.MethodDelete && !op.MakesRoom || op.Credentials == operation.Operator || op.OwnLimits {
			continue
		}
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, fixture.Every)
		if a := p.Do(t, q.Method, q.Target, append(q.Changes, p.CredentialFor(&op))...); a.Code >= http.StatusInternalServerError {
			t.Errorf("%s answered %d %s, want it to make room", op.Name, a.Code, a.Body)
		}
		tried++
	}
	if tried < 15 {
		t.Errorf("%d rows that make room were tried, want 15 or more", tried)
	}
}

// TestVisitorsAreLimitedSeparately checks that a visitor beyond the limit does not block other visitors of the page.
func TestVisitorsAreLimitedSeparately(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) {
		c.TrustedProxies = []string{"127.0.0.1"}
		c.Limits.Visitor = rate.PerHour(3)
	})
	acme := g.Org(t, "acme")
	acme.Import(t, fixture.ContactsBundle(0)...)
	issue := func(rate string) control.IssuedKey {
		return acme.KeyWith(t, func(k *control.NewKey) {
			k.Kind, k.Permissions, k.Origins, k.Name = string(tenants.Browser), []string{"create_form_submissions"}, []string{fixture.PageOrigin}, "page "+rate
		})
	}
	made := issue("")
	submit := func(key, address string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/form/collections/"+fixture.DocID(1)+"/submissions", gatewaytest.WithKey(key), gatewaytest.Header("Origin", fixture.PageOrigin),
			gatewaytest.Header("X-Forwarded-For", address), fixture.JSONText(`{"values":{"form_name":"x"}}`))
	}
	for i, want := range []int{200, 200, 200, 429, 429} {
		if a := submit(made.Token, "198.51.100.1"); a.Code != want || a.Header.Get("RateLimit-Limit") != "3" {
			t.Errorf("submission %d of a visitor: got %d, limit %s, want %d and the header RateLimit-Limit 3",
				i+1, a.Code, a.Header.Get("RateLimit-Limit"), want)
		}
	}
	if a := submit(made.Token, "198.51.100.2"); a.Code != http.StatusOK {
		t.Errorf("another visitor: got %d %s, want 200", a.Code, a.Body)
	}
	rate := "1/h"
	changed, err := control.Call[control.RequestLimits](t.Context(), acme.Commands, "key.limits", control.KeyLimitsChange{
		KeyRef: control.KeyRef{Org: "acme", ID: made.ID}, VisitorLimits: control.VisitorLimits{VisitorRate: &rate},
	})
	if err != nil || changed.VisitorRate != "1/h" || fmt.Sprint(changed.Own) != "[visitor_rate]" {
		t.Errorf("the key's own limits: got %+v, %v, want the visitor rate 1/h", changed, err)
	}
	for i, want := range []int{200, 429} {
		if a := submit(made.Token, "2001:db8::"+fmt.Sprint(i+1)); a.Code != want {
			t.Errorf("submission %d of a network, of a key with limits of its own: got %d %s, want %d",
				i+1, a.Code, a.Body, want)
		}
	}
}
