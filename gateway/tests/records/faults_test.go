package records

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestAllProblemsAtOnce checks that reserved fields, invalid values and the module's own rules are reported in one
// answer.
func TestAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, ada := acme.Person(t, "ada@example.com", fixture.WithRoles("admin"))
	id := fixture.DocID(1)
	acme.Import(t, `{"kind":"contact","id":"`+id+`","email":"a@example.com"}`, `{"kind":"service_account","id":"`+fixture.DocID(2)+`","name":"Sync","active":true}`)
	for _, c := range []struct {
		method, path, body string
		fields             []string
	}{
		{"POST", "/api/contacts", `{"colour":1,"fields":{"nope":1},"email":"bad","tags":"x"}`, []string{"colour", "email", "fields.nope", "tags"}},
		{"PUT", "/api/contacts/" + id, `{"colour":1,"fields":{"nope":1},"email":"bad"}`, []string{"colour", "email", "fields.nope"}},
		{"POST", "/api/contacts/bulk", `{"records":[],"mode":"x"}`, []string{"mode", "records"}},
		{"POST", "/api/contacts/" + id + "/tags", `{"colour":1,"tags":"x"}`, []string{"colour", "tags"}},
		{"PUT", "/api/organization", `{"colour":1,"name":"","features":{"wings":true},"settings":{"nope":true},"limits":{"folder_children":0,"nope":1},"frame_origins":["x"]}`,
			[]string{"colour", "features.wings", "frame_origins", "limits.folder_children", "limits.nope", "name", "settings.nope"}},
		{"POST", "/api/keys", `{"colour":1,"name":"x","kind":"browser","account":"` + fixture.DocID(2) + `","teams":["x"],"expires_in":0,"allowed_ips":["y"],"origins":["z"]}`, []string{"allowed_ips", "colour", "expires_in", "origins", "teams"}},
		{"POST", "/api/keys", `{"name":"x","account":"` + fixture.DocID(2) + `","origins":["z"]}`, []string{"kind", "origins"}},
		{"POST", "/api/users", `{"colour":1,"name":"","email":"bad","roles":["nobody"],"teams":["` + fixture.DocID(3) + `"]}`, []string{"colour", "email", "name", "roles", "teams"}},
		{"POST", "/api/users", `{"name":"","email":"a@example.com","roles":["admin"]}`, []string{"name"}},
		{"POST", "/api/service-accounts", `{"name":"","teams":["` + fixture.DocID(3) + `"]}`, []string{"name", "teams"}},
		{"GET", "/api/contacts?filters[email][like]=x&filters[nope]=1&sort=nope", "", []string{"filters[email][like]", "filters[nope]", "sort"}},
		{"GET", "/api/campaigns/count?filters[email][like]=x&filters[nope]=1", "", []string{"filters[email][like]", "filters[nope]"}},
		{"POST", "/api/campaigns", `{"filter":{"email":{"like":"x"},"nope":1}}`, []string{"filter.email.like", "filter.nope", "name"}},
	} {
		change := []gatewaytest.Request{gatewaytest.Cookie(ada)}
		if c.body != "" {
			change = append(change, fixture.JSONText(c.body))
		}
		a := acme.Do(t, c.method, c.path, change...)
		if got := fixture.FaultFields(a); a.Code != http.StatusUnprocessableEntity || !slices.Equal(got, c.fields) {
			t.Errorf("%s %s %s: %d %s, want faults of %v", c.method, c.path, c.body, a.Code, a.Body, c.fields)
		}
	}
	a := acme.Do(t, http.MethodPost, "/api/contacts/bulk", gatewaytest.Cookie(ada), fixture.JSONText(`{"records":[{"colour":1,"fields":{"nope":1},"email":"bad","tags":"x"},7]}`))
	for _, want := range []string{`"field":"colour"`, `"field":"fields.nope"`, `"field":"email"`, `"field":"tags"`, "a record must be an object"} {
		if !strings.Contains(a.Text(), want) {
			t.Errorf("a bulk does not tell %s: %s", want, a.Body)
		}
	}
}

// TestUnexpectedBodiesAreRefused checks that an operation without a body refuses one, except for the contract's, which
// ignore it, and that a body whose fields are all optional may be missing.
func TestUnexpectedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p, without, optional := w.A, 0, 0
	for _, op := range w.App.Operations() {
		s := fixture.SampleFor(&op)
		q := w.Build(&op, op.Path, s, p.Own, func(string) bool { return false })
		switch {
		case op.Method == http.MethodGet, op.Upload != nil, s.Once, s.Slow:
		case op.Bodiless:
			optional++
			q.Changes = nil
			if a := p.Do(t, q.Method, q.Target, p.CredentialFor(&op)); a.Code != http.StatusOK && a.Code != http.StatusForbidden && !slices.Equal(fixture.FaultFields(a), []string{"params.region"}) {
				t.Errorf("%s without a body: got %d %s, want 200, 403 or a fault of the input", op.Name, a.Code, a.Body)
			}
		case op.Body == nil && !op.Contract:
			without++
			for body, code := range map[string]int{`{"bogus":1,"email":"x"}`: http.StatusUnprocessableEntity, `{"bogus"`: http.StatusBadRequest, strings.Repeat(" ", 1<<20): http.StatusBadRequest} {
				a := p.Do(t, q.Method, q.Target, p.CredentialFor(&op), fixture.JSONText(body))
				if a.Code != code || code == http.StatusUnprocessableEntity && !slices.Equal(fixture.FaultFields(a)[:2], []string{"bogus", "email"}) {
					t.Errorf("%[1]s with %.20[2]s: got %[3]d %[4]s, want %[5]d with the faults of the body",
						op.Name, body, a.Code, a.Body, code)
				}
			}
		}
	}
	if without < 30 || optional < 2 {
		t.Errorf("got %d operations without a body, %d with one that may be left out, want at least 30 and at least 2",
			without, optional)
	}
	if a := p.Do(t, http.MethodDelete, "/api/files/"+p.IDs[fixture.RefFile], gatewaytest.WithKey(p.FullKey), fixture.JSONText(`{"bogus":1}`)); a.Status != "ok" {
		t.Errorf("the contract's own: got %d %s, want the status ok", a.Code, a.Body)
	}
	reader := p.Key(t, tenants.ManageKeys)
	if a := p.Do(t, http.MethodPost, "/api/keys/"+p.IDs["key"]+"/rotate", gatewaytest.WithKey(reader)); a.Code == http.StatusUnsupportedMediaType {
		t.Errorf("rotated without a body: got %d %s, want a code other than 415", a.Code, a.Body)
	}
}

// TestUnknownNamesAreRefused checks that unknown names in imports and counts are reported, and that nothing begins.
func TestUnknownNamesAreRefused(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, ada := acme.Person(t, "ada@example.com", fixture.WithRoles("admin"))
	for path, says := range map[string]string{
		"/api/import": "required for rows", "/api/import?key=email": "required for rows", "/api/import?as=bananas": "rows can be imported as ", "/api/import?as=records": "records:OBJECT", "/api/import?as=contacts:x": "rows can be imported as ",
	} {
		a := acme.Do(t, http.MethodPost, path, gatewaytest.Cookie(ada), gatewaytest.Body("text/csv", "email\na@example.com\n"))
		if a.Code != http.StatusUnprocessableEntity || !strings.Contains(a.Message, says) || !slices.Equal(fixture.FaultFields(a), []string{"as"}) {
			t.Errorf("%s: got %d %s, want %v and containing %q", path, a.Code, a.Body, http.StatusUnprocessableEntity, says)
		}
	}
	bundle := gatewaytest.Body("application/x-ndjson", "{}")
	for _, query := range []string{"?format=json", "?key=email"} {
		a := acme.Do(t, http.MethodPost, "/api/import"+query, gatewaytest.Cookie(ada), bundle)
		if a.Code != http.StatusUnprocessableEntity || !strings.Contains(a.Message, "required for rows") {
			t.Errorf("a bundle with %s: got %d %s, want 422 with %q", query, a.Code, a.Body, "required for rows")
		}
	}
	for what, tt := range map[string]struct {
		header gatewaytest.Request
		code   int
	}{
		"compressed":                      {gatewaytest.Header("Content-Encoding", "gzip"), http.StatusUnsupportedMediaType},
		"to be repeated":                  {gatewaytest.Header("Idempotency-Key", "a"), http.StatusBadRequest},
		"with no transfer key":            {gatewaytest.Header("x-transfer-key", "a"), http.StatusUnprocessableEntity},
		"with two transfer keys":          {func(r *http.Request) { r.Header["X-Transfer-Key"] = []string{"a", "b"} }, http.StatusBadRequest},
		"with two types, of which one is": {gatewaytest.Header("Content-Type", "text/html"), http.StatusBadRequest},
	} {
		if a := acme.Do(t, http.MethodPost, "/api/import", gatewaytest.Cookie(ada), bundle, tt.header); a.Code != tt.code {
			t.Errorf("a bundle %s: got %d %s, want %d", what, a.Code, a.Body, tt.code)
		}
	}
	if a := acme.Do(t, http.MethodGet, "/api/usage?operation=nope&from=x", gatewaytest.Cookie(ada)); a.Code != http.StatusUnprocessableEntity || !slices.Equal(fixture.FaultFields(a), []string{"from", "operation"}) {
		t.Errorf("usage: got %d %s, want 422 for from and operation", a.Code, a.Body)
	}
	for path, code := range map[string]int{
		"/api/usage?operation=nope&sort=-day": 422, "/api/custom/objects/missing/records?sort=-created_at": 404, "/api/custom/objects/missing/records/export?sort=x": 404, "/api/keys?state=x&sort=-name": 422,
	} {
		if a := acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(ada)); a.Code != code {
			t.Errorf("%s: got %d %s, want %v", path, a.Code, a.Body, code)
		}
	}
	if a := acme.Do(t, http.MethodGet, "/api/usage?operation=contacts.list", gatewaytest.Cookie(ada)); a.Code != http.StatusOK {
		t.Errorf("usage: got %d %s, want 200", a.Code, a.Body)
	}
}

// TestEveryListHasPages checks that the list of one's own sessions has pages like any other.
func TestEveryListHasPages(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, ada := acme.Person(t, "ada@example.com", fixture.WithRoles("admin"))
	for range 2 {
		acme.SignIn(t, "ada@example.com")
	}
	for query, want := range map[string]string{"": "1 1 3 3", "?per_page=2": "1 2 3 2", "?page=2&per_page=2": "2 2 3 1", "?page=9": "9 1 3 0"} {
		a := acme.Do(t, http.MethodGet, "/api/me/sessions"+query, gatewaytest.Cookie(ada))
		list, _ := a.Field("results").([]any)
		if got := fmt.Sprintf("%v %v %v %d", a.Field("page"), a.Field("pages"), a.Field("count"), len(list)); got != want {
			t.Errorf("%s: %s, want %s", query, a.Body, want)
		}
	}
}

// TestWordsAreFoundInAnyField checks that each word is found separately, in any field.
func TestWordsAreFoundInAnyField(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, ada := acme.Person(t, "ada@example.com", fixture.WithRoles("admin"))
	acme.Import(t, `{"kind":"contact_field","key":"size","title":"Frame size","type":"Text"}`, `{"kind":"role","name":"seller","label":"Sales","permissions":[]}`,
		`{"kind":"contact","email":"j@example.com","first_name":"Jonas","last_name":"Moreau"}`, `{"kind":"contact","email":"k@example.com","first_name":"Jonas","last_name":"Adler"}`,
		`{"kind":"folder","name":"One two three four five six seven"}`)
	for query, want := range map[string]int{
		"contacts/fields?q=Frame": 1, "contacts/fields?q=size+Frame": 1, "roles?q=Sales": 1, "contacts?q=Jonas+Moreau": 1, "contacts?q=Moreau%20%20Jonas": 1, "contacts?q=Jonas": 2, "contacts?q=Jonas+nobody": 0, "contacts?q=+": 2,
		"files/folders?q=five+four+three+two+One+six+seven": 1, "files/folders?q=five+four+three+two+One+seven+six": 0, "files/folders?q=One+two+three+four+five+six+seven": 1,
	} {
		if a := acme.Do(t, http.MethodGet, "/api/"+query, gatewaytest.Cookie(ada)); a.Code != http.StatusOK || fmt.Sprint(a.Field("count")) != strconv.Itoa(want) {
			t.Errorf("%s: %d %s, want %d", query, a.Code, a.Body, want)
		}
	}
}
