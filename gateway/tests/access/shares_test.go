package access

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/reports"
	"tenantry/tenants"
)

func TestSharesAreListedAndRevokedByTheirIdentifier(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, fixture.ReportLines()...)
	issued := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{string(tenants.ManageReports)} })
	key := issued.Token
	path := fixture.ReportPath + fixture.DocID(fixture.ReportSecure) + "/shares"
	list := func(query string) *gatewaytest.Answer { return acme.Get(t, key, path+query) }
	if a := list(""); a.DataJSON() != `{"page":1,"pages":0,"count":0,"results":[]}` || a.Message != "Shares found" {
		t.Errorf("before any: got %d %s, want the data %q and the message %q",
			a.Code, a.Body, `{"page":1,"pages":0,"count":0,"results":[]}`, "Shares found")
	}
	var tokens, ids []string
	for n := range 3 {
		a := fixture.PostJSON(t, acme, key, fixture.ReportPath+fixture.DocID(fixture.ReportSecure)+"/share", fmt.Sprintf(`{"expires_in":%d}`, 3600*(n+1)))
		fixture.WantMembers(t, a.DataJSON(), "id", "token", "url", "expires_at")
		token, _ := a.Field("token").(string)
		id, _ := a.Field("id").(string)
		tokens, ids = append(tokens, token), append(ids, id)
		fixture.WantMember(t, list("?per_page=1").DataJSON(), fmt.Sprint(n+1), "count")
		time.Sleep(2 * time.Millisecond) // the list is in the order of milliseconds
	}
	first := list("?page=3&per_page=1")
	fixture.WantMember(t, first.DataJSON(), "3", "pages")
	one := fixture.Member(t, first.DataJSON(), "results")
	for _, want := range []string{`[{"id":"` + ids[0] + `","created_at":"`, `"expires_at":"`, `"issued_by":"key:` + issued.ID + `","params":{}}]`} {
		if !strings.Contains(one, want) {
			t.Errorf("%s lacks %s", one, want)
		}
	}
	if a := list(""); strings.Contains(a.Text(), tokens[0][:20]) || strings.Contains(a.Text(), fixture.SecurePID) || strings.Index(a.Text(), ids[2]) > strings.Index(a.Text(), ids[0]) {
		t.Errorf("the list: got %s, want newest first, without tokens and addresses", a.Text())
	}
	if a := list("?sort=created_at"); strings.Index(a.Text(), ids[2]) < strings.Index(a.Text(), ids[0]) {
		t.Errorf("sorted by created_at: got %s, want oldest first", a.Text())
	}
	for _, query := range []string{"?page=0", "?per_page=x", "?sort=token"} {
		fixture.WantFailure(t, list(query), http.StatusUnprocessableEntity)
	}
	opens := func(token string) bool {
		return acme.Get(t, "", fixture.SharedPath+fixture.SecurePID+"?token="+token).Status == "ok"
	}
	revoke := func(report int, id string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodDelete, fixture.ReportPath+fixture.DocID(report)+"/shares/"+id, gatewaytest.WithKey(key))
	}
	// A token that was never issued, or that belongs to another report, is not found.
	for _, id := range []string{"0-neverissued", "1" + ids[1][1:], ids[1] + "x"} {
		fixture.WantBody(t, revoke(fixture.ReportSecure, id), http.StatusNotFound, `{"status":"failed","message":"Share not found","data":[]}`)
	}
	fixture.WantBody(t, revoke(fixture.ReportOpen, ids[1]), http.StatusNotFound, `{"status":"failed","message":"Share not found","data":[]}`)
	for range 2 { // again changes nothing
		if a := revoke(fixture.ReportSecure, ids[1]); a.Status != "ok" {
			t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
		}
	}
	if a := list(""); strings.Contains(a.Text(), ids[1]) || opens(tokens[1]) || !opens(tokens[0]) || !opens(tokens[2]) {
		t.Errorf("after one was revoked: got %s, want it gone and refused, and the others valid", a.Text())
	}
	// A token from a version that recorded none is valid, and is revoked together with all others.
	signer, kid := signer(t, (&fixture.Party{Org: acme}))
	now := time.Now().Unix()
	old := forge(claims{"alg": "HS256", "typ": "JWT", "kid": kid}, claims{"iss": "tenantry", "aud": acme.Slug, "sub": fixture.SecurePID, "iat": now, "exp": now + 60, "jti": "0-old", "params": claims{}}, sha256.New, signer)
	if !opens(old) {
		t.Error("got a refused token that was not recorded, want it valid")
	}
	fixture.WantFailure(t, revoke(fixture.ReportSecure, "0-old"), http.StatusNotFound)
	if a := acme.Do(t, http.MethodDelete, path, gatewaytest.WithKey(key)); a.Status != "ok" || opens(old) || opens(tokens[0]) {
		t.Errorf("revoking all: got %d %s, want the status ok and all tokens refused", a.Code, a.Body)
	}
	fixture.WantMember(t, list("").DataJSON(), "0", "count")
	fixture.WantFailure(t, revoke(fixture.ReportSecure, ids[0]), http.StatusNotFound)
	fixture.PostJSON(t, acme, key, fixture.ReportPath+fixture.DocID(fixture.ReportSecure)+"/share", `{}`)
	fixture.WantMember(t, list("").DataJSON(), "1", "count")
	if _, err := g.App.Directory().NextDataKey(t.Context(), acme.Tenant(t), reports.KeyPurpose); err != nil {
		t.Fatal(err)
	}
	fixture.WantMember(t, list("").DataJSON(), "0", "count") // of the former key
	fixture.WantFailure(t, acme.Get(t, acme.Key(t), path), http.StatusForbidden)
	fixture.WantFailure(t, acme.Get(t, key, fixture.ReportPath+fixture.DocID(fixture.ReportStranger)+"/shares?teams[]="+fixture.TeamB), http.StatusNotFound)
}

// TestSharedReportExplainsARemovedField checks that the operation and the page explain a removed field without naming
// it.
func TestSharedReportExplainsARemovedField(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	form := func(fields string) string {
		return `{"kind":"form_collection","id":"` + fixture.DocID(1) + `","name":"visit","label":"Visit","label_plural":"Visits","schema":{` + fields + `}}`
	}
	acme.Import(t, form(`"rating":{"title":"Rating","type":"Number"}`),
		`{"kind":"custom_report","id":"`+fixture.DocID(2)+`","pid":"report-of-ratings-01","title":"Ratings","class":"Submissions","source":"`+fixture.DocID(1)+`","secure":false,"query":{"measures":[{"op":"avg","field":"rating"}]}}`)
	if a := acme.Get(t, "", fixture.SharedPath+"report-of-ratings-01"); a.Status != "ok" {
		t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
	}
	a := acme.Do(t, http.MethodPut, "/api/form/collections/"+fixture.DocID(1), gatewaytest.WithKey(acme.Key(t, tenants.ManageForms)), fixture.JSONText(`{"schema":{"mood":{"title":"Mood","type":"Text"}}}`))
	if a.Status != "ok" {
		t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
	}
	for _, query := range []string{"", "?data=1"} {
		fixture.WantBody(t, acme.Get(t, "", fixture.SharedPath+"report-of-ratings-01"+query), http.StatusOK,
			`{"status":"failed","message":"The report cannot be shown: a field or a source that it uses was removed or changed","data":[]}`)
	}
	page := acme.Page(t, "/shared/reports/report-of-ratings-01")
	if text := page.Text(); page.Code != http.StatusConflict || !strings.Contains(text, "A field or a source that it uses has been removed or changed") ||
		strings.Contains(text, "no such report") || strings.Contains(text, "rating") {
		t.Errorf("the page: got %d %s, want 409 and the reason", page.Code, text)
	}
}
