package console_test

import (
	"net/http"
	"testing"
)

// TestBrowserMembers checks the controls of a form's e-mail alerts, and where their faults are shown.
func TestBrowserMembers(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	root := person{t, acme, cookie}
	form, _ := root.api(http.MethodPost, "/api/form/collections", m{
		"name": "visit", "label": "Visit", "label_plural": "Visits",
		"schema":       m{"mail": m{"title": "Your address", "type": "Email"}, "age": m{"title": "Age", "type": "Number"}},
		"email_alerts": m{"enabled": true, "recipients": []string{"office@example.com"}},
	}).Field("id").(string)
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
		p.visit(address(t, acme, "/form/collections/"+form))
		accessible(p)
		fits(p)
		p.value(`document.querySelector("[name='email_alerts.enabled']").closest("fieldset").scrollIntoView()`)
		p.picture("members-" + screen.name)
		p.put("email_alerts.recipients", "office@example.com\nnobody")
		p.click("main .form .ends button")
		p.wait(`!window.before && document.activeElement.name === "email_alerts.recipients" &&
			document.querySelector("#forms-update-email_alerts-recipients-said").innerText.includes("must be an e-mail address")`)
		accessible(p)
		fits(p)
		p.picture("members-wrong-" + screen.name)
		p.visit(address(t, acme, "/do/forms.create"))
		accessible(p)
		fits(p)
		p.visit(address(t, acme, "/followers"))
		accessible(p)
		fits(p)
		p.whole(screen, "followers-"+screen.name)
	}
	b.quiet("status of 422")
}
