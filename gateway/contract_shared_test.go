package gateway_test

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

const (
	sharedPath    = "/api/reports/shared/"
	missingShared = `{"status":"failed","message":"Shared Report not found","data":[]}`
)

// clock is a time that tests move.
type clock struct{ ahead atomic.Int64 }

// option has the gateway run by the clock.
func (c *clock) option(_ *config.Config, o *gateway.Options) { o.Now = c.now }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// advance moves the clock.
func (c *clock) advance(d time.Duration) { c.ahead.Add(int64(d)) }

// share issues a token with that body and returns it.
func share(t *testing.T, o *gatewaytest.Org, key string, report int, body string) string {
	t.Helper()
	a := post(t, o, key, reportPath+docID(report)+"/share", body)
	token, _ := a.Field("token").(string)
	if a.Code != http.StatusOK || token == "" {
		t.Fatalf("sharing: %d %s", a.Code, a.Text())
	}
	return token
}

var retrieved = regexp.MustCompile(`"retrieved_at":\d{10},`)

func TestContract_SharedReport(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other, asleep := g.Org(t, "acme", "teams"), g.Org(t, "other"), g.Org(t, "asleep")
	acme.Import(t, reportLines()...)
	asleep.Import(t, reportLines()...)

	plain := acme.Get(t, "", sharedPath+openPID)
	if plain.Code != http.StatusOK || plain.Message != "Shared Report found" {
		t.Fatalf("%d %s", plain.Code, plain.Text())
	}
	wantMembers(t, plain.DataJSON(), "id", "title", "desc", "folder", "parent", "visual", "fields", "controls", "child_reports", "actions", "row_key",
		"exportable", "shareable", "params", "retrieved_at", "visual_props", "debug")
	want := `{"id":"` + docID(reportOpen) + `","title":"Countries","desc":"Who is where","folder":"Sales","parent":"","visual":"bar",` +
		`"fields":FIELDS,"controls":{"status":{"label":"LABEL","type":"text","value":"active","rule":"editable"}},"child_reports":[],"actions":{},"row_key":"country",` +
		`"exportable":true,"shareable":true,"params":{"status":"active"},"retrieved_at":0,"visual_props":{"stacked":true},"debug":{}}`
	data := plain.DataJSON()
	want = strings.Replace(want, "FIELDS", member(t, data, "fields"), 1) // the titles are the class's own
	want = strings.Replace(want, `"LABEL"`, member(t, data, "controls", "status", "label"), 1)
	if got := retrieved.ReplaceAllString(data, `"retrieved_at":0,`); got != want {
		t.Errorf("answered %s\nwant     %s", got, want)
	}
	if names := memberNames(t, member(t, data, "fields")); strings.Join(names, " ") != "count country" && strings.Join(names, " ") != "country count" {
		t.Errorf("fields describes %q", names)
	}
	for name, value := range map[string]string{"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex"} {
		if !strings.Contains(plain.Header.Get(name), value) {
			t.Errorf("%s is %q, want %s", name, plain.Header.Get(name), value)
		}
	}

	withData := acme.Get(t, "", sharedPath+openPID+"?data=1")
	wantMembers(t, withData.DataJSON(), "id", "title", "desc", "folder", "parent", "visual", "fields", "controls", "child_reports", "actions", "row_key",
		"exportable", "shareable", "params", "data", "retrieved_at", "visual_props", "debug")
	rows := member(t, withData.DataJSON(), "data")
	wantMembers(t, rows, "columns", "rows", "total", "truncated")
	if names := column(t, member(t, rows, "columns"), "name"); strings.Join(names, " ") != "country count" {
		t.Errorf("the columns are %q", names)
	}
	wantMembers(t, element(t, member(t, rows, "columns"), 0), "name", "title", "type")

	for query, want := range map[string]string{
		"data=1":                         `[["DE",2],["FR",1]]`,
		"data=1&params[status]=inactive": `[["DE",1]]`,
		"data=1&params[status]=none":     `[]`,
		"data=1&teams[]=" + teamB:        `[["DE",1],["FR",1]]`,
		"data=1&teams[]=" + teamA:        `[["DE",2],["FR",1]]`,
		"data=1&teams=nonsense":          `[["DE",2],["FR",1]]`,
		"data=0":                         "", "data=": "", "": "",
	} {
		a := acme.Get(t, "", sharedPath+openPID+"?"+query)
		if got := member(t, a.DataJSON(), "data"); a.Code != http.StatusOK || (want == "") != (got == "") {
			t.Errorf("%s: %d %s", query, a.Code, a.Text())
		} else if want != "" {
			wantMember(t, got, want, "rows")
		}
	}
	changed := acme.Get(t, "", sharedPath+openPID+"?params[status]=inactive").DataJSON()
	wantMember(t, changed, `"inactive"`, "params", "status")

	checkRows(t, acme, []exactRow{
		{name: "unknown pid", path: sharedPath + "nothing", body: missingShared},
		{name: "unknown pid with data", path: sharedPath + "nothing?data=1", body: missingShared},
		{name: "an id is no pid", path: sharedPath + docID(reportOpen), body: missingShared},
		{name: "report of another bundle", path: sharedPath + openPID + "/" + docID(reportChild), body: missingShared},
		{name: "absent report", path: sharedPath + bundlePID + "/" + absentID, body: missingShared},
		{name: "malformed report", path: sharedPath + bundlePID + "/x", body: missingShared},
	})
	checkRows(t, other, []exactRow{{name: "of another organization", path: sharedPath + openPID, body: missingShared}})
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.suspend", control.Slug{Slug: "asleep"}); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"nowhere.localhost", "asleep.localhost"} {
		wantBody(t, g.Do(t, http.MethodGet, host, sharedPath+openPID), http.StatusOK, missingShared)
		wantBody(t, g.Do(t, http.MethodGet, host, sharedPath+openPID+"/"+docID(reportOpen)+"?data=1&token=x"), http.StatusOK, missingShared)
	}

	// No key is needed, and none is looked at.
	for _, key := range []string{"nonsense", acme.Key(t), other.Key(t)} {
		if a := acme.Get(t, key, sharedPath+openPID); a.Status != "ok" {
			t.Errorf("with a key: %d %s", a.Code, a.Text())
		}
	}
	for _, query := range []string{"params[colour]=red", "provider=nobody", "provider=http%3A%2F%2F127.0.0.1%2F", "provider=..%2F..", "params=1", "params[status][x]=1"} {
		if a := acme.Get(t, "", sharedPath+openPID+"?"+query); a.Status != "failed" || a.Code < 400 {
			t.Errorf("%s: %d %s", query, a.Code, a.Text())
		}
	}
}

func TestContract_SharedBundle(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, reportLines()...)
	whole := acme.Get(t, "", sharedPath+bundlePID)
	wantMember(t, whole.DataJSON(), `[{"id":"`+docID(reportChild)+`","title":"Child","visual":"pie"}]`, "child_reports")
	itself := acme.Get(t, "", sharedPath+bundlePID+"/"+docID(reportBundle))
	mask := func(a *gatewaytest.Answer) string { return retrieved.ReplaceAllString(a.Text(), "") }
	if mask(whole) != mask(itself) {
		t.Errorf("the report by its id differs:\n%s\n%s", whole.Text(), itself.Text())
	}
	child := acme.Get(t, "", sharedPath+bundlePID+"/"+docID(reportChild)+"?data=1&params[status]=inactive")
	wantMember(t, child.DataJSON(), `"Child"`, "title")
	wantMember(t, child.DataJSON(), `[["DE",1]]`, "data", "rows")
}

func TestContract_ReportProvider(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, reportLines()...)
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", control.OrganizationChange{Slug: "acme", OrganizationFields: control.OrganizationFields{Providers: []string{"store"}}}); err != nil {
		t.Fatal(err)
	}
	a := acme.Get(t, "", sharedPath+openPID+"?data=1&provider=store")
	wantMember(t, a.DataJSON(), `[["DE",2],["FR",1]]`, "data", "rows")
	for _, provider := range []string{"warehouse", "Store", "store%2F..", "http%3A%2F%2F127.0.0.1%3A1%2F", "%2Fetc%2Fpasswd"} {
		if a := acme.Get(t, "", sharedPath+openPID+"?data=1&provider="+provider); a.Status != "failed" || a.Code < 400 {
			t.Errorf("provider %s: %d %s", provider, a.Code, a.Text())
		}
	}
}

func TestContract_LockedInputs(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, reportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	token := share(t, acme, key, reportLocked, `{"params":{"region":"FR"}}`)
	own := share(t, acme, key, reportLocked, `{}`) // the report's own value

	a := acme.Get(t, "", sharedPath+lockedPID+"?data=1&token="+token)
	wantMember(t, a.DataJSON(), `[["cyd@example.com"]]`, "data", "rows")
	wantMember(t, a.DataJSON(), `{"status":"active"}`, "params")
	if names := memberNames(t, member(t, a.DataJSON(), "controls")); len(names) != 1 || names[0] != "status" {
		t.Errorf("the controls are %q", names)
	}
	if strings.Contains(a.Text(), "region") {
		t.Errorf("the answer tells of the locked input: %s", a.Text())
	}
	wantMember(t, acme.Get(t, "", sharedPath+lockedPID+"?data=1&token="+own).DataJSON(), `[["ada@example.com"],["dan@example.com"]]`, "data", "rows")
	wantMember(t, acme.Get(t, "", sharedPath+lockedPID+"?data=1&params[status]=inactive&token="+own).DataJSON(), `[["bob@example.com"]]`, "data", "rows")

	checkRows(t, acme, []exactRow{
		{name: "without a token", path: sharedPath + lockedPID, code: 403, body: deniedBody},
		{name: "without a token, with data", path: sharedPath + lockedPID + "?data=1", code: 403, body: deniedBody},
	})
	for _, query := range []string{"params[region]=DE", "params[region]=FR", "params[region]=", "token=" + token + "&params[region]=DE", "token=" + token + "&params[region]=FR"} {
		if b := acme.Get(t, "", sharedPath+lockedPID+"?data=1&"+query); b.Status != "failed" || b.Code < 400 {
			t.Errorf("%s: %d %s", query, b.Code, b.Text())
		}
	}
}

func TestContract_SecureReport(t *testing.T) {
	t.Parallel()
	c := &clock{}
	g := gatewaytest.Start(t, c.option)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	acme.Import(t, reportLines()...)
	other.Import(t, reportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	token := share(t, acme, key, reportSecure, `{}`)
	short := share(t, acme, key, reportSecure, `{"expires_in":60}`)
	elsewhere := share(t, acme, key, reportLocked, `{}`)
	foreign := share(t, other, other.Key(t, tenants.ManageReports), reportSecure, `{}`)
	part := strings.Split(token, ".")
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + part[1] + "."
	ok := func(token string) {
		t.Helper()
		a := acme.Get(t, "", sharedPath+securePID+"?data=1&token="+token)
		if a.Code != http.StatusOK || a.Status != "ok" {
			t.Fatalf("with a token: %d %s", a.Code, a.Text())
		}
		wantMember(t, a.DataJSON(), `[["DE",2],["FR",1]]`, "data", "rows")
		if !strings.Contains(a.Header.Get("Cache-Control"), "no-store") {
			t.Errorf("Cache-Control is %q", a.Header.Get("Cache-Control"))
		}
	}
	ok(token)
	ok(short)
	row := func(name, query string) exactRow {
		return exactRow{name: name, path: sharedPath + securePID + "?" + query, code: 403, body: deniedBody}
	}
	checkRows(t, acme, []exactRow{
		row("without a token", ""), row("with data", "data=1"), row("empty", "token="), row("nonsense", "token=nonsense"),
		row("cut", "token="+token[:len(token)-2]), row("unsigned", "token="+none), row("without a signature", "token="+part[0]+"."+part[1]+"."),
		row("of another report", "token="+elsewhere), row("of another organization", "token="+foreign),
		row("a key is no token", "token="+key),
		{name: "a key in the header", path: sharedPath + securePID, with: []gatewaytest.Request{gatewaytest.WithKey(key)}, code: 403, body: deniedBody},
		{name: "of a report in it", path: sharedPath + securePID + "/" + docID(reportSecure), code: 403, body: deniedBody},
	})
	if a := acme.Get(t, "", sharedPath+securePID+"?provider=store&token="+token); a.Status != "failed" {
		t.Errorf("a provider override: %d %s", a.Code, a.Text())
	}
	if a := acme.Get(t, "", sharedPath+securePID+"?token="+token+"&token="+token); a.Code != http.StatusBadRequest {
		t.Errorf("two tokens: %d %s", a.Code, a.Text())
	}
	c.advance(2 * time.Minute)
	ok(token)
	checkRows(t, acme, []exactRow{row("expired", "token="+short), row("expired, with data", "data=1&token="+short)})
	c.advance(time.Hour)
	checkRows(t, acme, []exactRow{row("expired by default after an hour", "token="+token)})
	if strings.Contains(g.Log.String(), part[2]) {
		t.Error("the log holds a token")
	}
}

func TestContract_Share(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, reportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	path := reportPath + docID(reportLocked) + "/share"
	for body, seconds := range map[string]int{`{}`: 3600, `{"expires_in":1}`: 1, `{"expires_in":31536000}`: 31536000, `{"params":{"region":"FR"},"expires_in":90}`: 90} {
		a := post(t, acme, key, path, body)
		wantMembers(t, a.DataJSON(), "id", "token", "url", "expires_at")
		token, _ := a.Field("token").(string)
		if a.Code != http.StatusOK || a.Status != "ok" || a.Field("url") != baseURL(acme)+"/shared/reports/"+lockedPID+"?token="+token {
			t.Fatalf("%s: %d %s", body, a.Code, a.Text())
		}
		text, _ := a.Field("expires_at").(string)
		expires, err := time.Parse("2006-01-02T15:04:05.000Z", text)
		if off := time.Until(expires) - time.Duration(seconds)*time.Second; err != nil || off < -5*time.Second || off > 2*time.Second {
			t.Errorf("%s: expires_at is %q, off by %s: %v", body, text, off, err)
		}
		parts := strings.Split(token, ".")
		if len(parts) != 3 {
			t.Fatalf("the token has %d segments", len(parts))
		}
		decoded := make([]string, 2)
		for i := range decoded {
			raw, err := base64.RawURLEncoding.DecodeString(parts[i])
			if err != nil {
				t.Fatal(err)
			}
			decoded[i] = string(raw)
		}
		wantMember(t, decoded[0], `"HS256"`, "alg")
		if member(t, decoded[0], "kid") == "" {
			t.Errorf("the header has no kid: %s", decoded[0])
		}
		for _, claim := range []string{"iss", "aud", "iat", "exp", "jti"} {
			if member(t, decoded[1], claim) == "" {
				t.Errorf("the claims lack %s: %s", claim, decoded[1])
			}
		}
		wantMember(t, decoded[1], `"`+lockedPID+`"`, "sub")
		region := `"DE"`
		if strings.Contains(body, "FR") {
			region = `"FR"`
		}
		wantMember(t, decoded[1], region, "params", "region")
	}
	for _, row := range []struct{ body, fault string }{
		{`{"expires_in":0}`, "expires_in *"}, {`{"expires_in":-1}`, "expires_in *"}, {`{"expires_in":31536001}`, "expires_in *"},
		{`{"expires_in":"60"}`, "expires_in *"}, {`{"expires_in":1.5}`, "expires_in *"}, {`{"params":[]}`, "params type"}, {`{"params":{"region":{}}}`, "* *"},
		{`{"params":{"colour":"red"}}`, "* *"}, {`{"params":{"status":"active"}}`, "* *"}, // undeclared; editable
	} {
		wantFaults(t, post(t, acme, key, path, row.body), http.StatusUnprocessableEntity, row.fault)
	}
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Permissions = "server_read", []string{"manage_reports"} }).Token
	row := func(name, key, path string, code int, want string) exactRow {
		return exactRow{name: name, method: http.MethodPost, path: path, with: []gatewaytest.Request{gatewaytest.WithKey(key), jsonText(`{}`)}, code: code, body: want}
	}
	checkRows(t, acme, []exactRow{
		row("absent", key, reportPath+absentID+"/share", 404, missingReport),
		row("malformed", key, reportPath+"x/share", 404, missingReport),
		row("out of scope", key, reportPath+docID(reportStranger)+"/share?teams[]="+teamB, 404, missingReport),
		row("no permission", acme.Key(t), path, 403, envelopeLacking("manage_reports")),
		row("a reading key", read, path, 403, deniedBody),
		row("bad key", "nonsense", path, 403, deniedBody),
	})
	acme.Import(t, `{"kind":"custom_report","id":"`+docID(0x30)+`","title":"Private","class":"Contacts","query":{"measures":[{"op":"count"}]},"visual":"number","shareable":false}`)
	if a := post(t, acme, key, reportPath+docID(0x30)+"/share", `{}`); a.Status != "failed" || strings.Contains(a.Text(), "token") {
		t.Errorf("a report that cannot be shared: %d %s", a.Code, a.Text())
	}
	for _, with := range [][]gatewaytest.Request{nil, {strict()}} {
		wantFailure(t, post(t, acme, key, path, `{"colour":"red"}`, with...), http.StatusUnprocessableEntity)
	}
}

func TestContract_RevokedShares(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, reportLines()...)
	key := acme.Key(t, tenants.ManageReports)
	one, two := share(t, acme, key, reportSecure, `{}`), share(t, acme, key, reportSecure, `{}`)
	claims, err := base64.RawURLEncoding.DecodeString(strings.Split(one, ".")[1])
	if err != nil {
		t.Fatal(err)
	}
	read := func(token string) int { return acme.Get(t, "", sharedPath+securePID+"?token="+token).Code }
	jti := strings.Trim(member(t, string(claims), "jti"), `"`)
	if a := acme.Do(t, http.MethodDelete, reportPath+docID(reportSecure)+"/shares/"+jti, gatewaytest.WithKey(key)); a.Status != "ok" {
		t.Fatalf("%d %s", a.Code, a.Text())
	}
	if read(one) != http.StatusForbidden || read(two) != http.StatusOK {
		t.Errorf("after one was revoked: %d and %d", read(one), read(two))
	}
	if a := acme.Do(t, http.MethodDelete, reportPath+docID(reportSecure)+"/shares", gatewaytest.WithKey(key)); a.Status != "ok" {
		t.Fatalf("%d %s", a.Code, a.Text())
	}
	if three := share(t, acme, key, reportSecure, `{}`); read(two) != http.StatusForbidden || read(three) != http.StatusOK {
		t.Errorf("after all were revoked: %d, and %d with a new one", read(two), read(three))
	}
}
