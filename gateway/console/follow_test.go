package console_test

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

var followed = regexp.MustCompile(`<main[^>]* data-kinds="([^"]*)" data-record="([^"]*)" data-after="([^"]*)">`)

// TestFollow_Pages checks that pages follow exactly the events of the records that they show, from a cursor on that the
// event log accepts, and that they ask for no script otherwise.
func TestFollow_Pages(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	root := person{t, acme, cookie}
	contact := root.api(http.MethodGet, "/api/contacts?per_page=1", nil).Field("results").([]any)[0].(map[string]any)["id"].(string)
	for path, want := range map[string]string{
		"/contacts": "contact", "/contacts?deleted=true": "contact", "/contacts/" + contact: "contact",
		"/form/collections": "form_collection", "/custom/objects": "custom_object", "/files": "file", "/webhooks": "webhook",
		"/users": "", "/keys": "", "/audit": "", "/usage": "", "/me": "", "/do/contacts.create": "", "/find?q=a": "", "/docs": "",
	} {
		page := root.open(path).Text()
		got := followed.FindStringSubmatch(page)
		if want == "" {
			if got != nil || strings.Contains(page, "/assets/follow.js") {
				t.Errorf("%s follows %q", path, got)
			}
			continue
		}
		if got == nil || got[1] != want || !strings.Contains(page, `<script src="/assets/follow.js" type="module">`) {
			t.Errorf("%s follows %q, want %s", path, got, want)
			continue
		}
		record := ""
		if strings.HasSuffix(path, contact) {
			record = contact
		}
		if got[2] != record {
			t.Errorf("%s follows the record %q, want %q", path, got[2], record)
		}
		root.api(http.MethodGet, "/api/events?"+url.Values{"kinds": {got[1]}, "after": {got[3]}}.Encode(), nil)
	}
	if kinds := strings.Split(followed.FindStringSubmatch(root.open("/").Text())[1], ","); !slices.Contains(kinds, "contact") ||
		!slices.Contains(kinds, "campaign") {
		t.Errorf("the overview follows %q", kinds)
	}
	a := acme.Page(t, "/assets/follow.js")
	if a.Code != 200 || !strings.HasPrefix(a.Header.Get("Content-Type"), "text/javascript") {
		t.Errorf("the script: %d %q", a.Code, a.Header)
	}
}

// TestFollow_Rights checks that the pages of a person follow no kinds that the person may not read.
func TestFollow_Rights(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	_, cookie := acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Permissions = []string{"view_form_submissions"} })
	ada := person{t, acme, cookie}
	got := followed.FindStringSubmatch(ada.open("/").Text())
	if got != nil && got[3] != "" || acme.Tenant(t).Org.EventLog != nil {
		t.Errorf("before the event log has begun, the overview follows %q, or began it", got)
	}
	if got == nil || strings.Contains(got[1], "contact") {
		t.Fatalf("the overview follows %q", got)
	}
	if a := acme.Do(t, http.MethodGet, "/api/events?kinds="+url.QueryEscape(got[1]), gatewaytest.Cookie(cookie)); a.Code != 200 {
		t.Errorf("events of %s: %d %s", got[1], a.Code, a.Body)
	}
	if page := ada.open("/contacts").Text(); strings.Contains(page, "follow.js") || followed.MatchString(page) {
		t.Error("a page that is refused follows events")
	}
}
