package records

import (
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

func ifMatch(tags string) gatewaytest.Request { return gatewaytest.Header("If-Match", tags) }

func ifNoneMatch(tags string) gatewaytest.Request { return gatewaytest.Header("If-None-Match", tags) }

func wantStale(t *testing.T, a *gatewaytest.Answer) {
	t.Helper()
	if a.Code != http.StatusPreconditionFailed || !strings.Contains(a.Text(), `"errors":[{"field":"If-Match","code":"stale"`) || !strings.Contains(a.Message, "read it again") {
		t.Errorf("got %d %s, want a 412", a.Code, a.Body)
	}
}

// TestIfMatchOnEveryOperation checks that every Revised row refuses a stale If-Match before it changes anything, and
// that every other row refuses the header, so that no condition is ignored.
func TestIfMatchOnEveryOperation(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	conditional := 0
	for _, op := range w.Rows() {
		as := gatewaytest.WithKey(w.A.FullKey)
		if op.Credentials&operation.Key == 0 || op.Rule.IsAdminOnly() {
			as = gatewaytest.Cookie(w.A.AdminCookie)
		}
		if op.Content != nil { // its conditions are about bytes
			continue
		}
		before := w.A.Export(t)
		send := func(tags string) *gatewaytest.Answer {
			q := w.Build(&op, op.Path, fixture.SampleFor(&op), w.A.Own, fixture.Every)
			return w.A.Do(t, q.Method, q.Target, append(q.Changes, as, ifMatch(tags))...)
		}
		for _, malformed := range []string{"1", `"1`, `W/1`, `"1" "2"`, `*, "1"`, ","} {
			if a := send(malformed); a.Code != http.StatusBadRequest {
				t.Errorf("%s with If-Match %s: got %d %s, want 400", op.Name, malformed, a.Code, a.Body)
			}
		}
		for _, stale := range []string{`"0-x"`, `"77", "78"`, `W/"1-x"`, `""`} {
			a := send(stale)
			if !op.Conditional() {
				if a.Code != http.StatusBadRequest || !strings.Contains(a.Message, "If-Match") {
					t.Errorf("%s ignores If-Match: got %d %s, want 400 with If-Match", op.Name, a.Code, a.Body)
				}
				continue
			}
			conditional++
			wantStale(t, a)
		}
		if op.Method != http.MethodGet && op.Revised {
			q := w.Build(&op, op.Path, fixture.SampleFor(&op), w.A.Own, fixture.Every)
			if a := w.A.Do(t, q.Method, q.Target, append(q.Changes, as, ifNoneMatch("*"))...); a.Code != http.StatusBadRequest {
				t.Errorf("%s ignores If-None-Match: got %d %s, want 400", op.Name, a.Code, a.Body)
			}
		}
		if w.A.Export(t) != before {
			t.Errorf("%s was carried out, want it refused", op.Name)
		}
		if op.Conditional() {
			if a := send("*"); a.Status != "ok" {
				t.Errorf("%s with If-Match *: got %d %s, want the status ok", op.Name, a.Code, a.Body)
			}
		}
	}
	if conditional < 10 {
		t.Errorf("got %d stale calls, want at least 10", conditional)
	}
}

func TestRevisions(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, fixture.TeamLines()...)
	const report, form = "0000000000000000000000a1", "0000000000000000000000f1"
	acme.Import(t, `{"kind":"custom_report","id":"`+report+`","pid":"public-report-pid-0001","title":"Long","desc":"`+strings.Repeat("long ", 300)+`","class":"Contacts"}`,
		`{"kind":"form_collection","id":"`+form+`","name":"visit","label":"Visit","label_plural":"Visits","schema":{}}`)
	key := acme.Key(t, tenants.ManageForms)
	path := "/api/custom-reports/" + report
	read := func(more ...gatewaytest.Request) *gatewaytest.Answer { return acme.Get(t, key, path, more...) }
	first := read()
	tag := first.Header.Get("ETag")
	rev, _, _ := strings.Cut(strings.Trim(tag, `"`), "-")
	if !strings.HasPrefix(tag, `"1-`) {
		t.Fatalf("the ETag is %s, want it beginning with %q", tag, `"1-`)
	}
	if again := read().Header.Get("ETag"); again != tag {
		t.Errorf("the same answer has the tags %s and %s, want one", tag, again)
	}
	packed := acme.Page(t, path, gatewaytest.WithKey(key), gatewaytest.Header("Accept-Encoding", "gzip"))
	packedTag := packed.Header.Get("ETag")
	if packed.Header.Get("Content-Encoding") != "gzip" || packedTag == tag || packedTag == "" {
		t.Errorf("compressed: got %v, want gzip and another tag", packed.Header)
	}
	limited := acme.KeyWith(t, func(k *control.NewKey) { k.Teams = []string{fixture.TeamA} }).Token
	others := acme.Get(t, limited, path)
	if other := others.Header.Get("ETag"); others.Status != "ok" || other == tag || !strings.HasPrefix(other, `"1-`) {
		t.Errorf("a narrower answer has the tag %s: %s, want another one of the same revision", other, others.Body)
	}
	for known, is304 := range map[string]bool{
		tag: true, packedTag: true, "W/" + tag: true, `"x", ` + tag: true, "*": true,
		`"1"`: false, others.Header.Get("ETag"): false, `"2-` + tag[3:]: false,
	} {
		a := read(ifNoneMatch(known))
		if (a.Code == http.StatusNotModified) != is304 {
			t.Errorf("If-None-Match %[1]s: got %[2]d %[3]s, want 304 = %[4]t", known, a.Code, a.Body, is304)
		}
		if is304 && (len(a.Body) > 0 || a.Header.Get("ETag") == "" || a.Header.Get("Cache-Control") != first.Header.Get("Cache-Control") || a.Header.Get("X-Request-Id") == "") {
			t.Errorf("304: got %v %q, want the headers and no body", a.Header, a.Body)
		}
	}
	if a := read(ifMatch(`"` + rev + `"`)); a.Code != http.StatusOK {
		t.Errorf("the revision alone: got %d, want 200", a.Code)
	}
	if a := acme.Get(t, key, path, ifNoneMatch("nonsense")); a.Code != http.StatusBadRequest {
		t.Errorf("a malformed If-None-Match: got %d, want 400", a.Code)
	}
	if a := acme.Get(t, key, "/api/custom-reports/"+fixture.DocID(999), ifMatch(tag), ifNoneMatch(tag)); a.Code != http.StatusNotFound || a.Header.Get("ETag") != "" {
		t.Errorf("a missing record: got %d %v, want 404 and no header ETag", a.Code, a.Header)
	}

	// Of two changes of the same revision one is refused.
	change := func(label, tags string) *gatewaytest.Answer {
		return acme.Do(t, http.MethodPut, "/api/form/collections/"+form, gatewaytest.WithKey(key), fixture.JSONText(`{"label":"`+label+`"}`), ifMatch(tags))
	}
	one := change("One", `"1"`)
	if one.Code != http.StatusOK || !strings.HasPrefix(one.Header.Get("ETag"), `"2-`) {
		t.Fatalf(`got %d %s %v, want %v and beginning with "\"2-"`, one.Code, one.Body, one.Header, http.StatusOK)
	}
	wantStale(t, change("Two", `"1"`))
	if a := change("Two", `"1", `+one.Header.Get("ETag")); a.Field("label") != "Two" || !strings.HasPrefix(a.Header.Get("ETag"), `"3-`) {
		t.Errorf("after reading again: got %d %s, want the third revision", a.Code, a.Body)
	}
}

// TestRevisionOfAnotherRecordDoesNotMatch checks that a record's tag does not match a later record with the same name.
func TestRevisionOfAnotherRecordDoesNotMatch(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	send := func(method, path, body string, more ...gatewaytest.Request) *gatewaytest.Answer {
		t.Helper()
		more = append(more, gatewaytest.Cookie(cookie))
		if body != "" {
			more = append(more, fixture.JSONText(body))
		}
		return acme.Do(t, method, path, more...)
	}
	for _, kind := range []struct{ path, name, body, other, change string }{
		{"/api/roles", "editor", `{"name":"editor","permissions":["contacts"]}`, `{"name":"editor","permissions":[]}`, `{"permissions":["contacts","view_audit"]}`},
		{"/api/contacts/fields", "plan", `{"key":"plan","title":"Plan","type":"Text"}`, `{"key":"plan","title":"Floor plan","type":"Text"}`, `{"title":"Tariff"}`},
		{
			fixture.ObjectsPath, "tree", `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{}}`,
			`{"name":"tree","label":"Graph","label_plural":"Graphs","schema":{"root":{"title":"Root","type":"Text"}}}`, `{"schema":{}}`,
		},
	} {
		one := kind.path + "/" + kind.name
		made := send(http.MethodPost, kind.path, kind.body).Header.Get("ETag")
		read := send(http.MethodGet, one, "").Header.Get("ETag")
		if a := send(http.MethodPut, one, kind.change, ifMatch(made)); a.Status != "ok" {
			t.Errorf("%s as it was made: got %d %s, want the status ok", one, a.Code, a.Body)
		}
		wantStale(t, send(http.MethodPut, one, kind.change, ifMatch(read)))
		purge := map[bool]string{true: "", false: "?purge=true"}[kind.path == "/api/roles"]
		if a := send(http.MethodDelete, one+purge, ""); a.Status != "ok" {
			t.Fatalf(`%s: got %d %s, want a.Status = "ok"`, one, a.Code, a.Body)
		}
		other := send(http.MethodPost, kind.path, kind.other)
		for _, tag := range []string{made, read} {
			wantStale(t, send(http.MethodPut, one, kind.change, ifMatch(tag)))
			wantStale(t, send(http.MethodDelete, one, "", ifMatch(tag)))
		}
		if a := send(http.MethodPut, one, kind.change, ifMatch(other.Header.Get("ETag"))); a.Status != "ok" {
			t.Errorf("the other %s: got %d %s, want the status ok", one, a.Code, a.Body)
		}
	}
}
