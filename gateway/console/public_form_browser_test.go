package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// TestBrowserPublicForm fills in public forms as visitors do: with and without scripts, with proof of work and files, on
// a wide and a narrow screen, and in a frame on another site.
func TestBrowserPublicForm(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme := start(t)
	acme.Person(t, "root@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><title>Site</title><iframe src="%s" width="600" height="900"></iframe>`, r.URL.Query().Get("show"))
	}))
	t.Cleanup(site.Close)
	elsewhere := strings.Replace(site.URL, "127.0.0.1", "localhost", 1)
	key := acme.Key(t, tenants.AllPermissions()...)
	define := func(name, settings string) (id, path string) {
		t.Helper()
		pid := name + "-form-0123456789"
		a := acme.Do(t, http.MethodPost, "/api/form/collections", gatewaytest.WithKey(key), gatewaytest.Body("application/json", fmt.Sprintf(
			`{"name":%q,"label":%q,"label_plural":%q,"public":true,"pid":%q,"frame_origins":[%q],"schema":{"why":{"title":"Why do you want to visit us?","type":"LongText","required":true},`+
				`"when":{"title":"Day","type":"Date"},"mail":{"title":"E-mail address","type":"Email","required":true},"meal":{"title":"Vegetarian meal","type":"Boolean"},"likes":{"title":"What you would like to see","type":"MultiSelect"},`+
				`"iban":{"title":"IBAN","type":"Encrypted"},"photo":{"title":"Photos","type":"File","accept":["image/*","text/plain"],"max_files":3}},"thanks":"We will answer within two days.\nYour trees"%s}`,
			name, "Site visit "+name, name+"s", pid, elsewhere, settings)))
		if a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want a form", a.Code, a.Body)
		}
		return a.Field("id").(string), "/f/" + pid
	}
	stored := func(id string) string {
		return fmt.Sprint(acme.Get(t, key, "/api/form/collections/"+id+"/submissions").Field("count"))
	}
	for _, screen := range []size{{"desktop", 1280, 800, false}, {"phone", 360, 780, true}} {
		plainID, plain := define("plain_"+screen.name, "")
		workID, work := define("work_"+screen.name, `,"proof_of_work":12`)
		p := b.tab(screen)
		fill := func() {
			p.put("values.why", "To see the oaks.")
			p.put("values.when", "2026-12-01")
			p.put("values.mail", "ada@example.com")
		}
		p.visit(address(t, acme, plain))
		fits(p)
		accessible(p)
		p.whole(screen, "public-form-"+screen.name)
		if got := p.value("getComputedStyle(document.querySelector('.trap')).position + document.querySelector('.trap').getBoundingClientRect().right"); !strings.HasPrefix(got, "absolute-") {
			t.Errorf("the hidden field is at %s", got)
		}

		// Without scripts, with a fault.
		p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
		p.visit(address(t, acme, plain))
		p.value("document.querySelector('form').noValidate = true")
		p.put("values.mail", "ada@example.com")
		p.click("main form button")
		p.arrives("/f/", "Please correct this")
		fits(p)
		p.whole(screen, "public-form-wrong-"+screen.name)
		fill()
		p.click("main form button")
		p.arrives("/f/", "Your trees")
		fits(p)
		p.whole(screen, "public-form-thanks-"+screen.name)
		p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
		accessible(p)

		// With proof of work, for the form and a file.
		p.visit(address(t, acme, work))
		fill()
		p.value(`(() => { const d = new DataTransfer(); d.items.add(new File(["hello"], "oak.txt", {type: "text/plain"})); document.querySelector("input[type=file]").files = d.files; return 1 })()`)
		p.click("main form button")
		p.arrives("/f/", "Your trees")

		// In a frame on another site.
		p.visit(elsewhere + "/?show=" + address(t, acme, plain))
		p.whole(screen, "public-form-framed-"+screen.name)
		for id, want := range map[string]string{plainID: "1", workID: "1"} {
			if got := stored(id); got != want {
				t.Errorf("%s: %s submissions are stored, want %s", screen.name, got, want)
			}
		}
		p.visit(address(t, acme, "/f/no-such-form-0123456789"))
		fits(p)
		p.whole(screen, "public-form-missing-"+screen.name)
		people := b.signedIn(screen, acme)
		people.visit(address(t, acme, "/form/collections/"+plainID))
		fits(people)
		accessible(people)
		people.whole(screen, "public-form-settings-"+screen.name)
		people.value("(document.querySelector('[name=public]').closest('details').open = true, document.querySelector('[name=public]').scrollIntoView(), 1)")
		fits(people)
		accessible(people)
		people.picture("public-form-controls-" + screen.name)
	}
	if got := fmt.Sprint(acme.Get(t, key, "/api/files?q=oak").Field("count")); got != "2" {
		t.Errorf("%s files are stored, want 2", got)
	}
	b.quiet("status of 422", "status of 404")
}
