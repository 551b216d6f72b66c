package contract

import (
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestContract_Compliance checks that administrators can set what contacts must have, and see who lacks it.
func TestContract_Compliance(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	ann, bob, cid, dan := fixture.DocID(0xc1), fixture.DocID(0xc2), fixture.DocID(0xc3), fixture.DocID(0xc4)
	lesson := func(contact, tags string) string {
		return `{"kind":"record","object":"lesson","values":{"contact":"` + contact + `","tags":[` + tags + `]}}`
	}
	acme.Import(t, append(
		fixture.TeamLines(), `{"kind":"contact","id":"`+ann+`"}`, `{"kind":"contact","id":"`+bob+`"}`, `{"kind":"contact","id":"`+cid+`"}`, `{"kind":"contact","id":"`+dan+`","teams":["`+fixture.TeamB+`"]}`,
	)...)
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	_, simple := acme.Person(t, "bob@example.com", func(u *control.NewUser) { u.Name = "Bob" })
	do := func(code int, method, path, body string, wanted ...string) {
		t.Helper()
		with := []gatewaytest.Request{gatewaytest.Cookie(cookie)}
		if body != "" {
			with = append(with, fixture.JSONText(body))
		}
		a := acme.Do(t, method, "/api/compliance/"+path, with...)
		if a.Code != code {
			t.Fatalf("%s %s %s: got %d %s, want %v", method, path, body, a.Code, a.Body, code)
		}
		for _, text := range wanted {
			if !strings.Contains(a.Text(), text) {
				t.Errorf("%s %s %s: %s, want %s", method, path, body, a.Body, text)
			}
		}
	}
	const off = `{"enabled":false,"lesson_tags_all":[],"lesson_tags_any":[],"submission_enabled":false}`
	do(200, http.MethodGet, "settings", "", fixture.EnvelopeOK("Compliance Settings found", off))
	do(422, http.MethodGet, "contacts", "", "compliance is not enabled")
	do(200, http.MethodPut, "settings", `{"enabled":true}`, "Compliance Settings updated", `"enabled":true`)
	do(422, http.MethodGet, "contacts", "", "there is no custom object lesson")
	do(422, http.MethodPut, "settings", `{"key":"other"}`, "key")
	var tags []string
	for i := range 101 {
		tags = append(tags, strconv.Quote(strconv.Itoa(i)))
	}
	do(422, http.MethodPut, "settings", `{"lesson_tags_all":[`+strings.Join(tags, ",")+`]}`, "at most 100 tags")
	do(422, http.MethodPut, "settings", `{"enabled":"yes","lesson_tags_any":7}`, `"enabled"`, `"lesson_tags_any"`)
	acme.Import(
		t, fixture.LessonObject, lesson(ann, `"fire","2026"`), lesson(bob, `"fire"`), lesson(bob, `"2026"`), lesson(dan, `"fire"`),
		`{"kind":"form_collection","id":"`+fixture.DocID(0xf1)+`","name":"lesson","label":"Lesson","label_plural":"Lessons",`+fixture.LessonFields,
		`{"kind":"submission","form":"`+fixture.DocID(0xf1)+`","values":{"form_name":"x","contact":"`+cid+`","tags":["fire","2027"]}}`)
	who := func(id, fails string) string {
		return `{"contact":"` + id + `","compliant":` + map[bool]string{true: "true", false: "false"}[fails == ""] + `,"fails":[` + fails + `]}`
	}
	do(200, http.MethodGet, "contacts", "", `"page":1,"pages":1,"count":4,"results":[`+strings.Join([]string{who(ann, ""), who(bob, ""), who(cid, `"lessons"`), who(dan, "")}, ",")+`]`)
	do(200, http.MethodPut, "settings", `{"lesson_tags_all":["fire"]}`, `"enabled":true,"lesson_tags_all":["fire"],"lesson_tags_any":[]`)
	do(200, http.MethodGet, "contacts/"+cid, "", who(cid, `"lesson_tags_all"`))
	do(200, http.MethodPut, "settings", `{"lesson_tags_any":["2026","2027"]}`)
	do(200, http.MethodGet, "contacts", "", who(ann, ""), who(bob, `"lesson_tags_all","lesson_tags_any"`), who(cid, `"lesson_tags_all","lesson_tags_any"`), who(dan, `"lesson_tags_any"`))
	do(200, http.MethodPut, "settings", `{"submission_enabled":true}`)
	do(200, http.MethodGet, "contacts/"+cid, "", fixture.EnvelopeOK("Contact found", who(cid, "")))
	do(200, http.MethodGet, "contacts?per_page=3&page=2", "", `"page":2,"pages":2,"count":4,"results":[`+who(dan, `"lesson_tags_any"`)+`]`)
	do(200, http.MethodGet, "contacts?per_page=3&page=3", "", `"count":4,"results":[]`)
	do(200, http.MethodGet, "contacts?teams[]="+fixture.TeamA, "", `"count":3`)
	do(404, http.MethodGet, "contacts/"+fixture.DocID(0xdead), "", "Contact not found")
	do(404, http.MethodGet, "contacts/none", "", "Contact not found")
	do(200, http.MethodPut, "settings", `{"enabled":null,"lesson_tags_all":null,"lesson_tags_any":null,"submission_enabled":false}`, off)

	for _, path := range []string{"settings", "contacts", "contacts/" + ann} {
		for who, with := range map[string]gatewaytest.Request{"a key": gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)), "a person": gatewaytest.Cookie(simple)} {
			if a := acme.Do(t, http.MethodGet, "/api/compliance/"+path, with); a.Code != http.StatusForbidden || a.Message != "Manage Compliance" {
				t.Errorf("%s with %s: got %d %s, want 403 and the message %q",
					path, who, a.Code, a.Body, "Manage Compliance")
			}
		}
	}
}

// TestCompliance_FirstSettingsAtOnce checks that concurrent first settings create one record, which later calls change.
func TestCompliance_FirstSettingsAtOnce(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if a := acme.Do(t, http.MethodPut, "/api/compliance/settings", gatewaytest.Cookie(cookie), fixture.JSONText(`{"enabled":true}`)); a.Code != http.StatusOK {
				t.Errorf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
			}
		})
	}
	all.Wait()
}
