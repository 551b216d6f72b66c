package contract

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const (
	missingShared = `{"status":"failed","message":"Shared Report not found","data":[]}`
)

var retrieved = regexp.MustCompile(`"retrieved_at":\d{10},`)

func TestContract_SharedReport(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other, asleep := g.Org(t, "acme", "teams"), g.Org(t, "other"), g.Org(t, "asleep")
	acme.Import(t, fixture.ReportLines()...)
	asleep.Import(t, fixture.ReportLines()...)

	plain := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID)
	if plain.Code != http.StatusOK || plain.Message != "Shared Report found" {
		t.Fatalf(`got %d %s, want %v and plain.Message = "Shared Report found"`, plain.Code, plain.Text(), http.StatusOK)
	}
	fixture.WantMembers(t, plain.DataJSON(), "id", "title", "desc", "folder", "parent", "visual", "fields", "controls", "child_reports", "actions", "row_key",
		"exportable", "shareable", "params", "retrieved_at", "visual_props", "debug")
	want := `{"id":"` + fixture.DocID(fixture.ReportOpen) + `","title":"Countries","desc":"Who is where","folder":"Sales","parent":"","visual":"bar",` +
		`"fields":FIELDS,"controls":{"status":{"label":"LABEL","type":"text","value":"active","rule":"editable"}},"child_reports":[],"actions":{},"row_key":"country",` +
		`"exportable":true,"shareable":true,"params":{"status":"active"},"retrieved_at":0,"visual_props":{"stacked":true},"debug":{}}`
	data := plain.DataJSON()
	want = strings.Replace(want, "FIELDS", fixture.Member(t, data, "fields"), 1) // the titles are the class's own
	want = strings.Replace(want, `"LABEL"`, fixture.Member(t, data, "controls", "status", "label"), 1)
	if got := retrieved.ReplaceAllString(data, `"retrieved_at":0,`); got != want {
		t.Errorf("answered %s\nwant     %s", got, want)
	}
	if names := fixture.MemberNames(t, fixture.Member(t, data, "fields")); strings.Join(names, " ") != "count country" && strings.Join(names, " ") != "country count" {
		t.Errorf("fields = %q, want count and country", names)
	}
	for name, value := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex"} {
		if !strings.Contains(plain.Header.Get(name), value) {
			t.Errorf("%s is %q, want %s", name, plain.Header.Get(name), value)
		}
	}

	withData := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?data=1")
	fixture.WantMembers(t, withData.DataJSON(), "id", "title", "desc", "folder", "parent", "visual", "fields", "controls", "child_reports", "actions", "row_key",
		"exportable", "shareable", "params", "data", "retrieved_at", "visual_props", "debug")
	rows := fixture.Member(t, withData.DataJSON(), "data")
	fixture.WantMembers(t, rows, "columns", "rows", "total", "truncated")
	if names := column(t, fixture.Member(t, rows, "columns"), "name"); strings.Join(names, " ") != "country count" {
		t.Errorf("columns = %q, want country and count", names)
	}
	fixture.WantMembers(t, element(t, fixture.Member(t, rows, "columns"), 0), "name", "title", "type")

	for query, want := range map[string]string{
		"data=1":                          `[["DE",2],["FR",1]]`,
		"data=1&params[status]=inactive":  `[["DE",1]]`,
		"data=1&params[status]=none":      `[]`,
		"data=1&teams[]=" + fixture.TeamB: `[["DE",1],["FR",1]]`,
		"data=1&teams[]=" + fixture.TeamA: `[["DE",2],["FR",1]]`,
		"data=1&teams=nonsense":           `[["DE",2],["FR",1]]`,
		"data=0":                          "", "data=": "", "": "",
	} {
		a := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?"+query)
		if got := fixture.Member(t, a.DataJSON(), "data"); a.Code != http.StatusOK || (want == "") != (got == "") {
			t.Errorf(`%s: got %d %s, want %v and (want == "") = %v`, query, a.Code, a.Text(), http.StatusOK, (got == ""))
		} else if want != "" {
			fixture.WantMember(t, got, want, "rows")
		}
	}
	changed := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?params[status]=inactive").DataJSON()
	fixture.WantMember(t, changed, `"inactive"`, "params", "status")

	checkRows(t, acme, []exactRow{
		{name: "unknown pid", path: fixture.SharedPath + "nothing", body: missingShared},
		{name: "unknown pid with data", path: fixture.SharedPath + "nothing?data=1", body: missingShared},
		{name: "an id is no pid", path: fixture.SharedPath + fixture.DocID(fixture.ReportOpen), body: missingShared},
		{name: "report of another bundle", path: fixture.SharedPath + fixture.OpenPID + "/" + fixture.DocID(fixture.ReportChild), body: missingShared},
		{name: "absent report", path: fixture.SharedPath + fixture.BundlePID + "/" + fixture.AbsentID, body: missingShared},
		{name: "malformed report", path: fixture.SharedPath + fixture.BundlePID + "/x", body: missingShared},
	})
	checkRows(t, other, []exactRow{{name: "of another organization", path: fixture.SharedPath + fixture.OpenPID, body: missingShared}})
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.suspend", control.Slug{Slug: "asleep"}); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"nowhere.localhost", "asleep.localhost"} {
		fixture.WantBody(t, g.Do(t, http.MethodGet, host, fixture.SharedPath+fixture.OpenPID), http.StatusOK, missingShared)
		fixture.WantBody(t, g.Do(t, http.MethodGet, host, fixture.SharedPath+fixture.OpenPID+"/"+fixture.DocID(fixture.ReportOpen)+"?data=1&token=x"), http.StatusOK, missingShared)
	}

	// No key is needed, and none is checked.
	for _, key := range []string{"nonsense", acme.Key(t), other.Key(t)} {
		if a := acme.Get(t, key, fixture.SharedPath+fixture.OpenPID); a.Status != "ok" {
			t.Errorf("with a key: got %d %s, want the status ok", a.Code, a.Text())
		}
	}
	for _, query := range []string{"params[colour]=red", "provider=nobody", "provider=http%3A%2F%2F127.0.0.1%2F", "provider=..%2F..", "params=1", "params[status][x]=1"} {
		if a := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?"+query); a.Status != "failed" || a.Code < 400 {
			t.Errorf(`%s: got %d %s, want a.Status = "failed" and a.Code >= 400`, query, a.Code, a.Text())
		}
	}
}

func TestContract_SharedBundle(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, fixture.ReportLines()...)
	whole := acme.Get(t, "", fixture.SharedPath+fixture.BundlePID)
	fixture.WantMember(t, whole.DataJSON(), `[{"id":"`+fixture.DocID(fixture.ReportChild)+`","title":"Child","visual":"pie"}]`, "child_reports")
	itself := acme.Get(t, "", fixture.SharedPath+fixture.BundlePID+"/"+fixture.DocID(fixture.ReportBundle))
	mask := func(a *gatewaytest.Answer) string { return retrieved.ReplaceAllString(a.Text(), "") }
	if mask(whole) != mask(itself) {
		t.Errorf("the report by its id: got\n%[2]s\nwant\n%[1]s", whole.Text(), itself.Text())
	}
	child := acme.Get(t, "", fixture.SharedPath+fixture.BundlePID+"/"+fixture.DocID(fixture.ReportChild)+"?data=1&params[status]=inactive")
	fixture.WantMember(t, child.DataJSON(), `"Child"`, "title")
	fixture.WantMember(t, child.DataJSON(), `[["DE",1]]`, "data", "rows")
}

func TestContract_ReportProvider(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, fixture.ReportLines()...)
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", control.OrganizationChange{Slug: "acme", OrganizationFields: control.OrganizationFields{Providers: []string{"store"}}}); err != nil {
		t.Fatal(err)
	}
	a := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?data=1&provider=store")
	fixture.WantMember(t, a.DataJSON(), `[["DE",2],["FR",1]]`, "data", "rows")
	for _, provider := range []string{"warehouse", "Store", "store%2F..", "http%3A%2F%2F127.0.0.1%3A1%2F", "%2Fetc%2Fpasswd"} {
		if a := acme.Get(t, "", fixture.SharedPath+fixture.OpenPID+"?data=1&provider="+provider); a.Status != "failed" || a.Code < 400 {
			t.Errorf("provider %s: got %d %s, want the status failed and a code of at least 400",
				provider, a.Code, a.Text())
		}
	}
}

func TestContract_LockedInputs(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, fixture.ReportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	token := fixture.Share(t, acme, key, fixture.ReportLocked, `{"params":{"region":"FR"}}`)
	own := fixture.Share(t, acme, key, fixture.ReportLocked, `{}`) // the report's own value

	a := acme.Get(t, "", fixture.SharedPath+fixture.LockedPID+"?data=1&token="+token)
	fixture.WantMember(t, a.DataJSON(), `[["cyd@example.com"]]`, "data", "rows")
	fixture.WantMember(t, a.DataJSON(), `{"status":"active"}`, "params")
	if names := fixture.MemberNames(t, fixture.Member(t, a.DataJSON(), "controls")); len(names) != 1 || names[0] != "status" {
		t.Errorf("the controls are %q, want 1 name and names[0] status", names)
	}
	if strings.Contains(a.Text(), "region") {
		t.Errorf("the answer tells of the locked input: got %s, want it without region", a.Text())
	}
	fixture.WantMember(t, acme.Get(t, "", fixture.SharedPath+fixture.LockedPID+"?data=1&token="+own).DataJSON(), `[["ada@example.com"],["dan@example.com"]]`, "data", "rows")
	fixture.WantMember(t, acme.Get(t, "", fixture.SharedPath+fixture.LockedPID+"?data=1&params[status]=inactive&token="+own).DataJSON(), `[["bob@example.com"]]`, "data", "rows")

	checkRows(t, acme, []exactRow{
		{name: "without a token", path: fixture.SharedPath + fixture.LockedPID, code: 403, body: fixture.DeniedBody},
		{name: "without a token, with data", path: fixture.SharedPath + fixture.LockedPID + "?data=1", code: 403, body: fixture.DeniedBody},
	})
	for _, query := range []string{"params[region]=DE", "params[region]=FR", "params[region]=", "token=" + token + "&params[region]=DE", "token=" + token + "&params[region]=FR"} {
		if b := acme.Get(t, "", fixture.SharedPath+fixture.LockedPID+"?data=1&"+query); b.Status != "failed" || b.Code < 400 {
			t.Errorf(`%s: got %d %s, want b.Status = "failed" and b.Code >= 400`, query, b.Code, b.Text())
		}
	}
}

func TestContract_SecureReport(t *testing.T) {
	t.Parallel()
	c := &fixture.Clock{}
	g := gatewaytest.Start(t, c.Option)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	acme.Import(t, fixture.ReportLines()...)
	other.Import(t, fixture.ReportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	token := fixture.Share(t, acme, key, fixture.ReportSecure, `{}`)
	short := fixture.Share(t, acme, key, fixture.ReportSecure, `{"expires_in":60}`)
	elsewhere := fixture.Share(t, acme, key, fixture.ReportLocked, `{}`)
	foreign := fixture.Share(t, other, other.Key(t, tenants.ManageReports), fixture.ReportSecure, `{}`)
	part := strings.Split(token, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + part[1] + "."
	ok := func(token string) {
		t.Helper()
		a := acme.Get(t, "", fixture.SharedPath+fixture.SecurePID+"?data=1&token="+token)
		if a.Code != http.StatusOK || a.Status != "ok" {
			t.Fatalf("with a token: got %d %s, want 200 and the status ok", a.Code, a.Text())
		}
		fixture.WantMember(t, a.DataJSON(), `[["DE",2],["FR",1]]`, "data", "rows")
		if !strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
			t.Errorf("Cache-Control is %q, want the header Cache-Control with no-store", a.Header.Get("Cache-Control"))
		}
	}
	ok(token)
	ok(short)
	row := func(name, query string) exactRow {
		return exactRow{name: name, path: fixture.SharedPath + fixture.SecurePID + "?" + query, code: 403, body: fixture.DeniedBody}
	}
	checkRows(t, acme, []exactRow{
		row("without a token", ""), row("with data", "data=1"), row("empty", "token="), row("nonsense", "token=nonsense"),
		row("cut", "token="+token[:len(token)-2]), row("unsigned", "token="+none), row("without a signature", "token="+part[0]+"."+part[1]+"."),
		row("of another report", "token="+elsewhere), row("of another organization", "token="+foreign),
		row("a key is no token", "token="+key),
		{name: "a key in the header", path: fixture.SharedPath + fixture.SecurePID, with: []gatewaytest.Request{gatewaytest.WithKey(key)}, code: 403, body: fixture.DeniedBody},
		{name: "of a report in it", path: fixture.SharedPath + fixture.SecurePID + "/" + fixture.DocID(fixture.ReportSecure), code: 403, body: fixture.DeniedBody},
	})
	if a := acme.Get(t, "", fixture.SharedPath+fixture.SecurePID+"?provider=store&token="+token); a.Status != "failed" {
		t.Errorf("a provider override: got %d %s, want the status failed", a.Code, a.Text())
	}
	if a := acme.Get(t, "", fixture.SharedPath+fixture.SecurePID+"?token="+token+"&token="+token); a.Code != http.StatusBadRequest {
		t.Errorf("two tokens: got %d %s, want 400", a.Code, a.Text())
	}
	c.Advance(2 * time.Minute)
	ok(token)
	checkRows(t, acme, []exactRow{row("expired", "token="+short), row("expired, with data", "data=1&token="+short)})
	c.Advance(time.Hour)
	checkRows(t, acme, []exactRow{row("expired by default after an hour", "token="+token)})
	if strings.Contains(g.Log.String(), part[2]) {
		t.Error("got a token in the log, want it nowhere")
	}
}

func TestContract_Share(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, fixture.ReportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	path := fixture.ReportPath + fixture.DocID(fixture.ReportLocked) + "/share"
	for body, seconds := range map[string]int{`{}`: 3600, `{"expires_in":1}`: 1, `{"expires_in":31536000}`: 31536000, `{"params":{"region":"FR"},"expires_in":90}`: 90} {
		a := fixture.PostJSON(t, acme, key, path, body)
		fixture.WantMembers(t, a.DataJSON(), "id", "token", "url", "expires_at")
		token, _ := a.Field("token").(string)
		if a.Code != http.StatusOK || a.Status != "ok" || a.Field("url") != fixture.BaseURL(acme)+"/shared/reports/"+fixture.LockedPID+"?token="+token {
			t.Fatalf(`%s: got %d %s, want %v and a.Status = "ok"`, body, a.Code, a.Text(), http.StatusOK)
		}
		text, _ := a.Field("expires_at").(string)
		expires, err := time.Parse("2006-01-02T15:04:05.000Z", text)
		if off := time.Until(expires) - time.Duration(seconds)*time.Second; err != nil || off < -5*time.Second || off > 2*time.Second {
			t.Errorf("%s: expires_at = %q, off by %s: %v, want at most 5 s before or 2 s after", body, text, off, err)
		}
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			t.Fatalf("the token has %d segments, want 3", len(parts))
		}
		decoded := make([]string, 2)
		for i := range decoded {
			raw, err := base64.RawURLEncoding.DecodeString(parts[i])
			if err != nil {
				t.Fatal(err)
			}
			decoded[i] = string(raw)
		}
		fixture.WantMember(t, decoded[0], `"HS256"`, "alg")
		if fixture.Member(t, decoded[0], "kid") == "" {
			t.Errorf("the header %s has no kid, want one", decoded[0])
		}
		for _, claim := range []string{"iss", "aud", "iat", "exp", "jti"} {
			if fixture.Member(t, decoded[1], claim) == "" {
				t.Errorf("the claims lack %s: %s, want it", claim, decoded[1])
			}
		}
		fixture.WantMember(t, decoded[1], `"`+fixture.LockedPID+`"`, "sub")
		region := `"DE"`
		if strings.Contains(body, "FR") {
			region = `"FR"`
		}
		fixture.WantMember(t, decoded[1], region, "params", "region")
	}
	for _, row := range []struct{ body, fault string }{
		{`{"expires_in":0}`, "expires_in *"}, {`{"expires_in":-1}`, "expires_in *"}, {`{"expires_in":31536001}`, "expires_in *"},
		{`{"expires_in":"60"}`, "expires_in *"}, {`{"expires_in":1.5}`, "expires_in *"}, {`{"params":[]}`, "params type"}, {`{"params":{"region":{}}}`, "* *"},
		{`{"params":{"colour":"red"}}`, "* *"}, {`{"params":{"status":"active"}}`, "* *"}, // undeclared; editable
	} {
		fixture.WantFaults(t, fixture.PostJSON(t, acme, key, path, row.body), http.StatusUnprocessableEntity, row.fault)
	}
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Permissions = "server_read", []string{"manage_reports"} }).Token
	row := func(name, key, path string, code int, want string) exactRow {
		return exactRow{name: name, method: http.MethodPost, path: path, with: []gatewaytest.Request{gatewaytest.WithKey(key), fixture.JSONText(`{}`)}, code: code, body: want}
	}
	checkRows(t, acme, []exactRow{
		row("absent", key, fixture.ReportPath+fixture.AbsentID+"/share", 404, missingReport),
		row("malformed", key, fixture.ReportPath+"x/share", 404, missingReport),
		row("out of scope", key, fixture.ReportPath+fixture.DocID(fixture.ReportStranger)+"/share?teams[]="+fixture.TeamB, 404, missingReport),
		row("no permission", acme.Key(t), path, 403, fixture.EnvelopeLacking("manage_reports")),
		row("a reading key", read, path, 403, fixture.DeniedBody),
		row("bad key", "nonsense", path, 403, fixture.DeniedBody),
	})
	acme.Import(t, `{"kind":"custom_report","id":"`+fixture.DocID(0x30)+`","title":"Private","class":"Contacts","query":{"measures":[{"op":"count"}]},"visual":"number","shareable":false}`)
	if a := fixture.PostJSON(t, acme, key, fixture.ReportPath+fixture.DocID(0x30)+"/share", `{}`); a.Status != "failed" || strings.Contains(a.Text(), "token") {
		t.Errorf("a report that cannot be shared: got %d %s, want the status failed and without token",
			a.Code, a.Text())
	}
	for _, with := range [][]gatewaytest.Request{nil, {strict()}} {
		fixture.WantFailure(t, fixture.PostJSON(t, acme, key, path, `{"colour":"red"}`, with...), http.StatusUnprocessableEntity)
	}
}

func TestContract_RevokedShares(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, fixture.ReportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	one, two := fixture.Share(t, acme, key, fixture.ReportSecure, `{}`), fixture.Share(t, acme, key, fixture.ReportSecure, `{}`)
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(one, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	read := func(token string) int {
		return acme.Get(t, "", fixture.SharedPath+fixture.SecurePID+"?token="+token).Code
	}
	jti := strings.Trim(fixture.Member(t, string(claims), "jti"), `"`)
	if a := acme.Do(t, http.MethodDelete, fixture.ReportPath+fixture.DocID(fixture.ReportSecure)+"/shares/"+jti, gatewaytest.WithKey(key)); a.Status != "ok" {
		t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Text())
	}
	if read(one) != http.StatusForbidden || read(two) != http.StatusOK {
		t.Errorf("after one was revoked: got %d and %d, want 403 and 200", read(one), read(two))
	}
	if a := acme.Do(t, http.MethodDelete, fixture.ReportPath+fixture.DocID(fixture.ReportSecure)+"/shares", gatewaytest.WithKey(key)); a.Status != "ok" {
		t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Text())
	}
	if three := fixture.Share(t, acme, key, fixture.ReportSecure, `{}`); read(two) != http.StatusForbidden || read(three) != http.StatusOK {
		t.Errorf("after all were revoked: got %d, and %d with a new one, want 403 and 200", read(two), read(three))
	}
}
