package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestPublicFormIsSetUp opens a form on its page. The form with the settings has the present ones, keeps what was typed
// if a value is wrong, and is refused if the form was changed meanwhile.
func TestPublicFormIsSetUp(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	id := p.api(http.MethodPost, "/api/form/collections", map[string]any{
		"name": "tour", "label": "Tour", "label_plural": "Tours", "pid": "tour-form-0123456789", "thanks": "Thank you",
		"schema": map[string]any{"why": map[string]any{"title": "Why", "type": "Text"}},
	}).Field("id").(string)
	page, one := "/form/collections/"+id, "/api/form/collections/"+id
	const action = "/do/forms.publish"
	first := p.open(page)
	checkPage(t, first, 200, "Set up the public form", "tour-form-0123456789", "Thank you")
	if strings.Contains(first.Text(), "Everybody who has this address") {
		t.Error("the page of a form that is not public shows an address")
	}
	values := formTo(t, first, action)
	values.Set("public", "true")
	values.Set("thanks_url", "http://www.example.com")
	wrong := p.send(action, values)
	checkPage(t, wrong, http.StatusUnprocessableEntity, "http://www.example.com", "tour-form-0123456789")
	values = formTo(t, wrong, action)
	values.Set("public", "true")
	values.Set("thanks_url", "https://www.example.com/thanks")
	checkPage(t, p.follows(p.send(action, values)), 200, "Everybody who has this address", "/f/tour-form-0123456789")
	a := p.api(http.MethodGet, one, nil)
	for name, want := range map[string]any{
		"public": true, "pid": "tour-form-0123456789", "thanks": "Thank you", "thanks_url": "https://www.example.com/thanks", "label": "Tour",
	} {
		if got := a.Field(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}

	stale := formTo(t, p.open(page), action)
	p.api(http.MethodPut, one, map[string]any{"label": "Visit"})
	stale.Set("thanks", "Nothing")
	refused := p.send(action, stale)
	checkPage(t, refused, http.StatusPreconditionFailed, "Nothing")
	p.follows(p.send(action, formTo(t, refused, action)))
	if got := p.api(http.MethodGet, one, nil).Field("thanks"); got != "Nothing" {
		t.Errorf("got %v, want what was sent the second time", got)
	}
	if a := p.open(action + "?" + url.Values{"path.id": {id}}.Encode()); a.Code != http.StatusSeeOther || a.Header.Get("Location") != page {
		t.Errorf("got %d %v, want the page of the form", a.Code, a.Header)
	}
}
