package console_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestMembers checks that the declared members of an object have controls, which keep the other members.
func TestMembers(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	root := person{t, acme, cookie}
	alerts := func(form string) string {
		t.Helper()
		_, rest, _ := strings.Cut(root.api(http.MethodGet, "/api/form/collections/"+form, nil).DataJSON(), `"email_alerts":`)
		rest, _, _ = strings.Cut(rest, `,"external_id"`)
		return rest
	}
	const action = "/do/forms.update"
	form, _ := root.api(http.MethodPost, "/api/form/collections", m{
		"name": "visit", "label": "Visit", "label_plural": "Visits",
		"schema":       m{"mail": m{"title": "Your address", "type": "Email"}, "age": m{"title": "Age", "type": "Number"}, "code": m{"title": "Code", "type": "Encrypted"}},
		"email_alerts": m{"recipients": []string{}, "fields": []string{"gone"}, "color": m{"a": 1}},
	}).Field("id").(string)
	page := root.open("/form/collections/" + form)
	checkPage(t, page, 200, ">E-mail alerts</legend>", `<input type="checkbox" id="forms-update-email_alerts-enabled"`,
		`<option value="mail">Your address</option>`, `name="email_alerts.fields" value="age"> Age</label>`,
		`name="email_alerts.fields" value="gone" checked>`, `name="email_alerts.color"`)
	for _, wrong := range []string{`<option value="age">`, `name="email_alerts.fields" value="code"`} {
		if strings.Contains(page.Text(), wrong) {
			t.Errorf("the page has %s", wrong)
		}
	}
	values := formTo(t, page, action)
	root.follows(root.send(action, values))
	if got, want := alerts(form), `{"color":{"a":1},"fields":["gone"],"recipients":[]}`; got != want {
		t.Errorf("saved unchanged: %s, want %s", got, want)
	}

	values = formTo(t, root.open("/form/collections/"+form), action)
	values.Set("email_alerts.enabled", "true")
	values.Set("email_alerts.recipients", "office@example.com\r\n\r\nnobody\r\n")
	values.Set("email_alerts.subject", "A visit")
	values.Set("email_alerts.reply_to_field", "mail")
	values["email_alerts.fields"] = []string{"age", "mail"}
	refused := root.send(action, values)
	checkPage(t, refused, 422, `<p id="forms-update-email_alerts-recipients-said" class="error">“nobody” must be an e-mail address`,
		`<option value="mail" selected>`, `value="mail" checked>`, `value="A visit"`)
	values = formTo(t, refused, action)
	values.Set("email_alerts.recipients", "office@example.com\r\nshop@example.com")
	root.follows(root.send(action, values))
	want := `{"color":{"a":1},"enabled":true,"fields":["age","mail"],"recipients":["office@example.com","shop@example.com"],"reply_to_field":"mail","subject":"A visit"}`
	if got := alerts(form); got != want {
		t.Errorf("saved: %s, want %s", got, want)
	}

	values = formTo(t, root.open("/form/collections/"+form), action)
	values.Del("email_alerts.enabled")
	values.Del("email_alerts.fields")
	values.Set("email_alerts.subject", "")
	root.follows(root.send(action, values))
	if got, want := alerts(form), `{"color":{"a":1},"enabled":false,"fields":[],"recipients":["office@example.com","shop@example.com"],"reply_to_field":"mail","subject":""}`; got != want {
		t.Errorf("emptied: %s, want %s", got, want)
	}

	values = formTo(t, root.open("/do/forms.create"), "/do/forms.create")
	values.Set("name", "plain")
	values.Set("label", "Plain")
	values.Set("label_plural", "Plains")
	made := root.follows(root.send("/do/forms.create", values))
	if id := formTo(t, made, action).Get("path.id"); alerts(id) != "{}" {
		t.Errorf("a form made without alerts has %s", alerts(id))
	}
}
