package contract

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// contractCall is an operation with a path to no particular record.
type contractCall struct {
	method, path string
	teams        bool // takes teams[]
	open         bool // needs no credential
}

func contractCalls() []contractCall {
	return []contractCall{
		{"GET", "/api/files/folders/" + fixture.AbsentID, true, false},
		{"DELETE", "/api/files/" + fixture.AbsentID, true, false},
		{"POST", "/api/custom/objects", true, false},
		{"GET", "/api/custom/objects/schema", true, false},
		{"PUT", "/api/form/collections/" + fixture.AbsentID, true, false},
		{"GET", "/api/form/collections/schema", true, false},
		{"GET", "/api/reports/shared/nothing", true, true},
		{"GET", "/api/reports/shared/nothing/" + fixture.AbsentID, true, true},
		{"GET", "/api/custom-reports/" + fixture.AbsentID, true, false},
		{"POST", "/api/custom-reports/" + fixture.AbsentID + "/share", true, false},
		{"GET", "/api/compliance/schema", true, false},
		{"GET", "/api/users/12345", false, false},
		{"GET", "/api/contacts/" + fixture.AbsentID + "/reveal-secret", true, false},
		{"GET", "/api/campaigns/count", true, false},
		{"GET", "/api/campaigns/count/" + fixture.AbsentID, true, false},
	}
}

// outsideContract reports whether the operation is not one of the contract's eleven.
func (c contractCall) outsideContract() bool {
	return strings.HasSuffix(c.path, "/share") || c.path == "/api/custom/objects/schema"
}

// send calls the operation, with an empty object if it takes a body.
func (c contractCall) send(t *testing.T, o *gatewaytest.Org, query string, with ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	if c.method == http.MethodPost || c.method == http.MethodPut {
		with = append(slices.Clone(with), fixture.JSONText(`{}`))
	}
	return o.Do(t, c.method, c.path+query, with...)
}

func TestContract_Credentials(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other, asleep := g.Org(t, "acme", "teams"), g.Org(t, "other"), g.Org(t, "asleep")
	key := acme.Key(t, tenants.AllPermissions()...)
	sleeping := asleep.Key(t, tenants.AllPermissions()...)
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.suspend", control.Slug{Slug: "asleep"}); err != nil {
		t.Fatal(err)
	}
	revoked := acme.KeyWith(t, func(*control.NewKey) {})
	if _, err := control.Call[control.Key](t.Context(), g.Commands, "key.revoke", control.KeyRef{Org: "acme", ID: revoked.ID}); err != nil {
		t.Fatal(err)
	}
	elsewhere := acme.KeyWith(t, func(k *control.NewKey) { k.AllowIPs = []string{"192.0.2.0/24"} }).Token
	browser := acme.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Origins = "browser", []string{"https://app.example.com"} }).Token
	nowhere := &gatewaytest.Org{Gateway: g, Slug: "nowhere", Host: "nowhere.localhost"}
	header := gatewaytest.WithKey
	denials := []struct {
		name  string
		org   *gatewaytest.Org
		query string
		with  []gatewaytest.Request
	}{
		{"none", acme, "", nil},
		{"empty", acme, "", []gatewaytest.Request{header("")}},
		{"nonsense", acme, "", []gatewaytest.Request{header("nonsense")}},
		{"wrong checksum", acme, "", []gatewaytest.Request{header(key[:len(key)-1] + "!")}},
		{"unknown", acme, "", []gatewaytest.Request{header(sleeping)}},
		{"of another organization", other, "", []gatewaytest.Request{header(key)}},
		{"unknown organization", nowhere, "", []gatewaytest.Request{header(key)}},
		{"suspended organization", asleep, "", []gatewaytest.Request{header(sleeping)}},
		{"revoked", acme, "", []gatewaytest.Request{header(revoked.Token)}},
		{"from another network", acme, "", []gatewaytest.Request{header(elsewhere)}},
		{"twice", acme, "", []gatewaytest.Request{header(key), header(key)}},
		{"with a comma", acme, "", []gatewaytest.Request{header(key + "," + key)}},
		{"as a bearer token", acme, "", []gatewaytest.Request{gatewaytest.Header("Authorization", "Bearer "+key)}},
		{"in the query", acme, "?x-service-token=" + key, nil},
		{"in a cookie", acme, "", []gatewaytest.Request{gatewaytest.Header("Cookie", "x-service-token="+key)}},
		{"from a browser", acme, "", []gatewaytest.Request{header(key), gatewaytest.Header("Origin", "https://app.example.com")}},
		{"browser key without an origin", acme, "", []gatewaytest.Request{header(browser)}},
		{"browser key from another origin", acme, "", []gatewaytest.Request{header(browser), gatewaytest.Header("Origin", "https://evil.example.com")}},
	}
	for _, call := range contractCalls() {
		if call.open {
			continue
		}
		for _, row := range denials {
			a := call.send(t, row.org, row.query, row.with...)
			if a.Code != http.StatusForbidden || a.Text() != fixture.DeniedBody {
				t.Errorf("%s %s, key %s: got %d %s, want 403 and the text %q",
					call.method, call.path, row.name, a.Code, a.Text(), fixture.DeniedBody)
			}
		}
		if a := call.send(t, acme, "", header(key)); a.Text() == fixture.DeniedBody && !strings.Contains(call.path, "compliance") {
			t.Errorf("%s %s: got the denial of a good key, want it accepted", call.method, call.path)
		}
	}
}

func TestContract_KeyExpires(t *testing.T) {
	t.Parallel()
	c := &fixture.Clock{}
	acme := gatewaytest.Start(t, c.Option).Org(t, "acme")
	key := acme.KeyWith(t, func(k *control.NewKey) { k.Expires = time.Hour }).Token
	if a := acme.Get(t, key, "/api/campaigns/count"); a.Status != "ok" {
		t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Text())
	}
	c.Advance(time.Hour + time.Second)
	fixture.WantBody(t, acme.Get(t, key, "/api/campaigns/count"), http.StatusForbidden, fixture.DeniedBody)
}

// TestContract_KeyKinds checks that a reading key calls only operations that read, and a browser key only those meant
// for it.
func TestContract_KeyKinds(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	all := make([]string, 0, len(tenants.AllPermissions()))
	for _, p := range tenants.AllPermissions() {
		all = append(all, string(p))
	}
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Permissions = "server_read", all }).Token
	browser := acme.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins = "browser", all, []string{"https://app.example.com"}
	}).Token
	origin := gatewaytest.Header("Origin", "https://app.example.com")
	for _, call := range contractCalls() {
		if call.open || strings.Contains(call.path, "compliance") {
			continue
		}
		contacts := strings.HasPrefix(call.path, "/api/contacts/")
		a := call.send(t, acme, "", gatewaytest.WithKey(read))
		if refused := a.Code == http.StatusForbidden && a.Text() == fixture.DeniedBody; refused != (call.method != http.MethodGet || contacts) {
			t.Errorf("%[1]s %[2]s with a reading key: got %[3]d %[4]s, want denied = %[5]t",
				call.method, call.path, a.Code, a.Text(), call.method != http.MethodGet || contacts)
		}
		a = call.send(t, acme, "", gatewaytest.WithKey(browser), origin)
		if refused := a.Code == http.StatusForbidden && a.Text() == fixture.DeniedBody; refused != (call.path != "/api/form/collections/schema") {
			t.Errorf("%[1]s %[2]s with a browser key: got %[3]d %[4]s, want denied = %[5]t",
				call.method, call.path, a.Code, a.Text(), call.path != "/api/form/collections/schema")
		}
	}
	if a := acme.Get(t, browser, "/api/form/collections/schema", origin); a.Status != "ok" || a.Header.Get("Access-Control-Allow-Origin") != "https://app.example.com" {
		t.Errorf("a page of an allowed origin cannot read the answer: got %d %s, %v, want the status ok and the header Access-Control-Allow-Origin https://app.example.com",
			a.Code, a.Text(), a.Header)
	}
	preflight := acme.Do(t, http.MethodOptions, "/api/form/collections/schema", origin,
		gatewaytest.Header("Access-Control-Request-Method", "GET"), gatewaytest.Header("Access-Control-Request-Headers", "x-service-token"))
	if preflight.Code >= 300 || !strings.Contains(strings.ToLower(preflight.Header.Get("Access-Control-Allow-Headers")), "x-service-token") {
		t.Errorf("a preflight with the key: got %d %s, %v, want it allowed",
			preflight.Code, preflight.Text(), preflight.Header)
	}
}

func TestContract_TeamsEverywhere(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	key := gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))
	for _, call := range contractCalls() {
		with := key
		if strings.Contains(call.path, "compliance") {
			with = gatewaytest.Cookie(admin)
		}
		a := call.send(t, acme, "?teams[]="+fixture.TeamA, with)
		if named := slices.Contains(ignored(a), "teams[]"); named == call.teams {
			t.Errorf("%[1]s %[2]s: X-Ignored = %[3]q, want teams[] in it: %[4]t",
				call.method, call.path, ignored(a), !call.teams)
		}
		if a := call.send(t, acme, "?teams[]=nonsense", with, strict()); a.Code != http.StatusBadRequest {
			t.Errorf("%s %s with an invalid team, strictly: got %d %s, want 400",
				call.method, call.path, a.Code, a.Text())
		}
		if a := call.send(t, acme, "?colour=red", with); call.outsideContract() {
			if a.Code != http.StatusBadRequest || !strings.Contains(a.Message, `"colour"`) {
				t.Errorf("%s %s with an unknown parameter: got %d %s, want 400 with %q",
					call.method, call.path, a.Code, a.Text(), `"colour"`)
			}
		} else if !slices.Equal(ignored(a), []string{"colour"}) {
			t.Errorf("%s %s: X-Ignored = %q, want colour", call.method, call.path, ignored(a))
		}
		if a := call.send(t, acme, "?colour=red", with, strict()); a.Code != http.StatusBadRequest {
			t.Errorf("%s %s with an unknown parameter, strictly: got %d %s, want 400",
				call.method, call.path, a.Code, a.Text())
		}
	}
}

// TestContract_UnknownInput checks that an unknown parameter with brackets is refused, because it would have narrowed
// the answer, and that other operations refuse every unknown parameter.
func TestContract_UnknownInput(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	key := gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))
	for _, call := range contractCalls() {
		with := key
		if strings.Contains(call.path, "compliance") {
			with = gatewaytest.Cookie(admin)
		}
		for _, name := range []string{"filter[country]", "Filters[country]", "teams[0]", "Teams[]", "param[]"} {
			if a := call.send(t, acme, "?"+name+"=France", with); a.Code != http.StatusBadRequest || !strings.Contains(a.Message, name) {
				t.Errorf("%s %s with %s: got %d %s, want 400 with %q",
					call.method, call.path, name, a.Code, a.Text(), name)
			}
		}
	}
	for _, call := range []struct{ path, body, field string }{
		{"/api/custom-reports", `{"titel":"DE"}`, "titel"},
		{"/api/custom-reports", `{"title":"DE","org_id":7}`, "org_id"},
		{"/auth/sign-in", `{"email":"admin@example.com","password":"x","remember":true}`, "remember"},
		{"/auth/password", `{"token":"x","password":"x","id":7}`, "id"},
	} {
		a := acme.Do(t, http.MethodPost, call.path, key, fixture.JSONText(call.body))
		if a.Code != http.StatusUnprocessableEntity || !strings.Contains(a.Text(), `"field":"`+call.field+`","code":"unknown"`) {
			t.Errorf("%s with %s: got %d %s, want 422 with %q",
				call.path, call.body, a.Code, a.Text(), `"field":"`+call.field+`","code":"unknown"`)
		}
	}
	objects := func(typ string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPost, "/api/custom/objects", key, fixture.JSONText(`{"name":"n`+strings.ToLower(typ)+`","label":"`+typ+`","label_plural":"`+typ+`s","schema":{"size":{"title":"Size","type":"`+typ+`"}}}`))
	}
	if a := objects("Nubmer"); a.Code != http.StatusUnprocessableEntity || !strings.Contains(a.Message, `unknown type "Nubmer"; did you mean Number?`) {
		t.Errorf("a misspelled type: got %d %s, want 422 with %q",
			a.Code, a.Text(), `unknown type "Nubmer"; did you mean Number?`)
	}
	if a := objects("Weight"); a.Status != "ok" {
		t.Errorf("a type of one's own: got %d %s, want the status ok", a.Code, a.Text())
	}
}

func TestContract_MalformedQueries(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	key := gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))
	for _, call := range contractCalls() {
		with := key
		if strings.Contains(call.path, "compliance") {
			with = gatewaytest.Cookie(admin)
		}
		for _, query := range []string{"?a=1;b=2", "?a=%zz", "?a=%", "?teams[=x", "?teams]=x", "?a[b=1", "?" + strings.Repeat("a=1&", 5000)} {
			a := call.send(t, acme, query, with)
			if a.Code != http.StatusBadRequest || a.Status != "failed" || a.DataJSON() != "[]" {
				t.Errorf(`%s %s%.20s: got %d %s, want %v and a.Status = "failed" and a.DataJSON() = "[]"`,
					call.method, call.path, query, a.Code, a.Text(), http.StatusBadRequest)
			}
		}
	}
	for _, path := range []string{
		"/api/files/folders/" + fixture.AbsentID + "?schema=full&schema=full", "/api/files/folders/" + fixture.AbsentID + "?page=1&page=2",
		"/api/form/collections/schema?id=1&id=2", "/api/reports/shared/x?token=a&token=b", "/api/contacts/" + fixture.AbsentID + "/reveal-secret?field=a&field=b",
	} {
		fixture.WantFailure(t, acme.Do(t, http.MethodGet, path, key), http.StatusBadRequest)
	}
}

func TestContract_Bodies(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, `{"kind":"form_collection","id":"`+fixture.DocID(1)+`","name":"f","label":"F","label_plural":"Fs"}`, fixture.ReportLines()[2],
		`{"kind":"custom_report","id":"`+fixture.DocID(2)+`","title":"R","secure":false,"class":"Contacts","query":{"measures":[{"op":"count"}]},"visual":"number"}`)
	key := gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))
	nested := func(depth int) string { // the body's own object is the first level
		return `{"x":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
	}
	for _, target := range []struct{ method, path string }{
		{"POST", "/api/custom/objects"}, {"PUT", "/api/form/collections/" + fixture.DocID(1)}, {"POST", "/api/custom-reports/" + fixture.DocID(2) + "/share"},
	} {
		send := func(body gatewaytest.Request, more ...gatewaytest.Request) *gatewaytest.Answer {
			return acme.Do(t, target.method, target.path, append([]gatewaytest.Request{key, body}, more...)...)
		}
		for name, row := range map[string]struct {
			body string
			says string // in the message, besides "byte"
		}{
			"empty": {"", ""}, "cut": {`{"name":"a"`, "byte"}, "no JSON": {`name=a`, "byte"}, "trailing": {`{"name":"a"} {}`, "byte"}, "trailing text": {`{} x`, "byte"},
			"duplicate": {`{"name":"a","name":"b"}`, "name"}, "duplicate below": {`{"schema":{"a":{"title":"x","title":"y"}}}`, "title"},
			"depth 33": {nested(33), "32"}, "comment": {`{/**/}`, "byte"}, "comma": {`{"name":"a",}`, "byte"}, "single quotes": {`{'name':'a'}`, "byte"},
			"byte order mark": {"\ufeff{}", "byte order mark"}, "invalid UTF-8": {"{\"name\":\"\xff\"}", "byte"}, "half of a surrogate pair": {`{"name":"\ud800abc"}`, "at byte 10"}, "NaN": {`{"name":NaN}`, "byte"}, "leading zero": {`{"name":01}`, "byte"},
		} {
			a := send(fixture.JSONText(row.body))
			if fixture.WantFailure(t, a, http.StatusBadRequest); a.DataJSON() != "[]" || !strings.Contains(a.Message, row.says) || row.body != "" && !strings.Contains(a.Message, "byte") {
				t.Errorf(`got %s %s, %s: %s, want a.DataJSON() = "[]" and containing %q`,
					target.method, target.path, name, a.Text(), row.says)
			}
		}
		for _, body := range []string{"[]", `"x"`, "7", "null", "true"} {
			if a := send(fixture.JSONText(body)); a.Status != "failed" || a.Code != http.StatusBadRequest && a.Code != http.StatusUnprocessableEntity {
				t.Errorf("%s %s, body %s: got %d %s, want a failure with 400 or 422",
					target.method, target.path, body, a.Code, a.Text())
			}
		}
		if a := send(fixture.JSONText(nested(32))); a.Code == http.StatusBadRequest {
			t.Errorf("%s %s: a depth of 32 is allowed: got %s, want a code other than 400",
				target.method, target.path, a.Text())
		}
		for _, kind := range []string{"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp", "application/json; charset=latin1"} {
			a := send(gatewaytest.Body(kind, `{}`))
			if fixture.WantFailure(t, a, http.StatusUnsupportedMediaType); a.DataJSON() != "[]" {
				t.Errorf("content type %q: got %s, want the data %q", kind, a.Text(), "[]")
			}
		}
		fixture.WantFailure(t, send(fixture.JSONText(`{}`), gatewaytest.Header("Content-Encoding", "gzip")), http.StatusUnsupportedMediaType)
		for _, kind := range []string{"application/json; charset=utf-8", "application/json;charset=UTF-8", "Application/JSON"} {
			if a := send(gatewaytest.Body(kind, `{}`)); a.Code == http.StatusUnsupportedMediaType {
				t.Errorf("content type %q: got %s, want a code other than 415", kind, a.Text())
			}
		}
		large := send(fixture.JSONText(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`))
		if fixture.WantFailure(t, large, http.StatusRequestEntityTooLarge); large.DataJSON() != "[]" {
			t.Errorf("too large: got %s, want the data %q", large.Text(), "[]")
		}
		// A caller without a valid key learns nothing about the body.
		fixture.WantBody(t, acme.Do(t, target.method, target.path, fixture.JSONText(`{`)), http.StatusForbidden, fixture.DeniedBody)
	}
}

func TestContract_BodyLimit(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	key := acme.Key(t, tenants.ManageCustomObjects)
	body := func(word string, size int) string {
		text := `{` + fixture.NamesOf(word) + `}`
		return text + strings.Repeat(" ", size-len(text))
	}
	unknownLength := gatewaytest.Request(func(r *http.Request) { r.ContentLength = -1 })
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body("a", 256<<10)), "a", "a one", "a many")
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body("b", 256<<10), unknownLength), "b", "b one", "b many")
	fixture.WantFailure(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body("c", 256<<10+1)), http.StatusRequestEntityTooLarge)
	fixture.WantFailure(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body("c", 256<<10+1), unknownLength), http.StatusRequestEntityTooLarge)
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body("c", 100)), "c", "c one", "c many") // nothing was stored
}

func TestContract_StrictHandling(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	key := acme.Key(t)
	const path = "/api/campaigns/count?colour=red"
	for preference, code := range map[string]int{
		"handling=strict": 400, "Handling=strict": 400, `handling="strict"`: 400, "respond-async, handling=strict": 400, "handling=strict; x=1": 400,
		"handling=lenient": 200, "respond-async": 200, "handling": 200, "x=handling=strict": 200,
	} {
		if a := acme.Get(t, key, path, gatewaytest.Header("Prefer", preference)); a.Code != code {
			t.Errorf("Prefer: %s: got %d %s, want %d", preference, a.Code, a.Text(), code)
		}
	}
	if a := acme.Get(t, key, path, gatewaytest.Header("Prefer", "respond-async"), strict()); a.Code != http.StatusBadRequest {
		t.Errorf("a second header: got %d %s, want 400", a.Code, a.Text())
	}
	// A name cannot escape from the header that repeats it.
	a := acme.Get(t, key, "/api/campaigns/count?a%0d%0aX-Evil:%201=1&%C3%A4=1")
	if a.Header.Get("X-Evil") != "" || len(a.Header.Values("X-Ignored")) != 1 || a.Status != "ok" {
		t.Errorf(`got %d %s %v, want a.Header.Get("X-Evil") = "" and len(a.Header.Values("X-Ignored")) = 1 and a.Status = "ok"`,
			a.Code, a.Text(), a.Header)
	}
}

// taken reports whether another operation has the path and the method.
func taken(o *gatewaytest.Org, method, path string) bool {
	return slices.ContainsFunc(o.App.Operations(), func(op operation.Row) bool {
		return op.Method == method && regexp.MustCompile("^"+regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(op.Path, "[^/]+")+"$").MatchString(path)
	})
}

func TestContract_RoutesAndMethods(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	key := gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))
	for _, path := range []string{"/api", "/api/", "/api/nothing", "/api/files", "/api/files/", "/api/files/folders", "/api/files/folders/", "/api/files/folders/" + fixture.AbsentID + "/",
		"/api/files/folders/" + fixture.AbsentID + "/files", "/api/reports/shared", "/api/users", "/api/custom-reports/", "/API/users/1", "/api/contacts/" + fixture.AbsentID,
		"/api/reports/shared/a/b/c", "/auth/nothing"} {
		a := acme.Do(t, http.MethodGet, path, key)
		if path == "/API/users/1" { // outside the interface: any refusal will do
			if a.Code != http.StatusNotFound {
				t.Errorf("%s: got %d, want %v", path, a.Code, http.StatusNotFound)
			}
			continue
		}
		if taken(acme, http.MethodGet, path) || a.Code == http.StatusMethodNotAllowed && a.Header.Get("Allow") != "" {
			continue // an operation of another method has the path
		}
		fixture.WantMembers(t, a.Text(), "status", "message", "data")
		fixture.WantMember(t, a.Text(), `"failed"`, "status")
		fixture.WantMember(t, a.Text(), `[]`, "data")
		if a.Code != http.StatusNotFound {
			t.Errorf("%s: got %d %s, want %v", path, a.Code, a.Text(), http.StatusNotFound)
		}
	}
	methods := map[string][]string{}
	for _, call := range contractCalls() {
		methods[call.path] = append(methods[call.path], call.method)
	}
	for path, allowed := range methods {
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if slices.Contains(allowed, method) || taken(acme, method, path) {
				continue
			}
			if method == http.MethodPut && path == "/api/form/collections/schema" {
				continue // a form's path, see below
			}
			a := acme.Do(t, method, path, key)
			if fixture.WantFailure(t, a, http.StatusMethodNotAllowed); a.DataJSON() != "[]" {
				t.Errorf(`%s %s: got %s, want a.DataJSON() = "[]"`, method, path, a.Text())
			}
			for _, want := range allowed {
				if !slices.Contains(strings.FieldsFunc(a.Header.Get("Allow"), func(r rune) bool { return r == ',' || r == ' ' }), want) {
					t.Errorf("%s %s: Allow is %q, without %s", method, path, a.Header.Get("Allow"), want)
				}
			}
		}
		head := acme.Do(t, http.MethodHead, path, key)
		if reads := slices.Contains(allowed, http.MethodGet) || taken(acme, http.MethodGet, path); len(head.Body) > 0 || head.Code >= 500 || reads == (head.Code == http.StatusMethodNotAllowed) {
			t.Errorf("HEAD %[1]s: got %[2]d, %[3]d bytes, want no body and allowed = %[4]t",
				path, head.Code, len(head.Body), reads)
		}
		options := acme.Do(t, http.MethodOptions, path, key)
		if options.Code >= 500 || options.Header.Get("Allow") == "" {
			t.Errorf("OPTIONS %s: got %d, Allow %q, want a code below 500 and a header Allow",
				path, options.Code, options.Header.Get("Allow"))
		}
	}
	// In place of an identifier any text is accepted as one, even if malformed.
	checkRows(t, acme, []exactRow{
		{name: "PUT of a form", method: http.MethodPut, path: "/api/form/collections/schema", with: []gatewaytest.Request{key, fixture.JSONText(`{}`)}, code: 404, body: missingForm},
		{name: "DELETE of a file", method: http.MethodDelete, path: "/api/files/folders", with: []gatewaytest.Request{key}, body: envelopeFailed("File not found")},
	})
}

// TestContract_PermissionsOfPersonsAndNarrowedKeys checks that a person's permissions come from roles, and that a key
// can have fewer than its account.
func TestContract_PermissionsOfPersonsAndNarrowedKeys(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	acme.Import(t, `{"kind":"role","name":"builder","label":"Builder","permissions":["manage_custom_objects","manage_forms"]}`)
	_, builder := acme.Person(t, "builder@example.com", fixture.WithRoles("builder"))
	_, admin := acme.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	_, person := acme.Person(t, "person@example.com", nil)
	fixture.WantCreated(t, acme.Do(t, http.MethodPost, fixture.ObjectsPath, gatewaytest.Cookie(builder), fixture.JSONText(`{`+fixture.NamesOf("a")+`}`)), "a", "a one", "a many")
	fixture.WantCreated(t, acme.Do(t, http.MethodPost, fixture.ObjectsPath, gatewaytest.Cookie(admin), fixture.JSONText(`{`+fixture.NamesOf("b")+`}`)), "b", "b one", "b many")
	account := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = []string{"manage_custom_objects", "manage_forms"} }).Account
	narrow := acme.KeyWith(t, func(k *control.NewKey) { k.Account, k.Permissions = account, []string{"manage_forms"} }).Token
	row := func(name, path string, with gatewaytest.Request, permission string) exactRow {
		return exactRow{name: name, method: http.MethodPost, path: path, with: []gatewaytest.Request{with, fixture.JSONText(`{}`)}, code: 403, body: fixture.EnvelopeLacking(permission)}
	}
	checkRows(t, acme, []exactRow{
		row("person without the permission", fixture.ObjectsPath, gatewaytest.Cookie(person), "manage_custom_objects"),
		row("role without the permission", fixture.ReportPath+fixture.AbsentID+"/share", gatewaytest.Cookie(builder), "manage_reports"),
		row("narrowed key", fixture.ObjectsPath, gatewaytest.WithKey(narrow), "manage_custom_objects"),
		{name: "narrowed key, permission left", path: "/api/form/collections/schema", with: []gatewaytest.Request{gatewaytest.WithKey(narrow)}, body: fixture.EnvelopeOK("Form Collection schema", `{"schema":{`+formName+`}}`)},
	})
}

// TestContract_EnvelopeOfEveryAnswer checks that every answer has three members in order and is declared as JSON.
func TestContract_EnvelopeOfEveryAnswer(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	key := gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))
	for _, call := range contractCalls() {
		for _, with := range [][]gatewaytest.Request{nil, {key}} {
			a := call.send(t, acme, "", with...)
			fixture.WantMembers(t, a.Text(), "status", "message", "data")
			if !strings.HasPrefix(a.Header.Get("Content-Type"), "application/json") || a.Message == "" || (a.Status != "ok" && a.Status != "failed") {
				t.Errorf(`%s %s: got %d %s %v, want beginning with "application/json" and a.Message other than ""`,
					call.method, call.path, a.Code, a.Text(), a.Header)
			}
			if data := a.DataJSON(); data == "" || data[0] != '[' && data[0] != '{' {
				t.Errorf("%s %s: data = %s, want an array or object", call.method, call.path, data)
			}
		}
	}
}
