package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestPublicSettingsAreChecked: origins, the address of the thanks and the identifier of a form are checked, wherever
// they are set.
func TestPublicSettingsAreChecked(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "")
	for settings, fault := range map[string]string{
		`{"origins":["https://*.example.com"]}`: "origins format", `{"origins":["javascript:alert(1)"]}`: "origins format", `{"frame_origins":["https://a.example; script-src *"]}`: "frame_origins format",
		`{"frame_origins":["'self'"]}`: "frame_origins format", `{"frame_origins":["https://a.example/x"]}`: "frame_origins format",
		`{"thanks_url":"http://www.example.com"}`: "thanks_url format", `{"thanks_url":"//evil.example"}`: "thanks_url format", `{"thanks_url":"javascript:alert(1)"}`: "thanks_url format",
		`{"thanks_url":"https://a@evil.example"}`: "thanks_url format", `{"thanks_url":"https:evil.example"}`: "thanks_url format", `{"thanks_url":"https://a.example; script-src *"}`: "thanks_url format",
		`{"thanks_url":"https://a.example\r\nx: y"}`: "thanks_url format", `{"thanks_url":"https://a.example\\@b"}`: "thanks_url format", `{"thanks_url":"https://"}`: "thanks_url format",
		`{"pid":"short"}`: "pid format", `{"pid":"with/a/slash/in-it"}`: "pid format", `{"proof_of_work":25}`: "proof_of_work range", `{"proof_of_work":-1}`: "proof_of_work range", `{"public":"yes"}`: "public type",
	} {
		fixture.WantFaults(t, p.set(t, settings), http.StatusUnprocessableEntity, fault)
		settings = strings.Replace(settings, "{", `{"name":"another","label":"Another","label_plural":"Another",`, 1)
		fixture.WantFaults(t, fixture.PostJSON(t, p.Org, p.full, "/api/form/collections", settings), http.StatusUnprocessableEntity, fault)
	}
	fixture.WantFaults(t, fixture.PostJSON(t, p.Org, p.full, "/api/form/collections", `{"name":"a","label":"A","label_plural":"A","pid":"`+publicPID+`"}`), http.StatusConflict, "pid duplicate")
	a := fixture.PostJSON(t, p.Org, p.full, "/api/form/collections", `{"name":"a","label":"A","label_plural":"A"}`)
	if a.Field("pid") != "" {
		t.Errorf("got %s, want no identifier before the form is public", a.Body)
	}
	a = p.Do(t, http.MethodPut, "/api/form/collections/"+a.Field("id").(string)+"/public", gatewaytest.WithKey(p.full), fixture.JSONText(`{"public":true}`))
	if pid, _ := a.Field("pid").(string); len(pid) < 20 || !strings.HasSuffix(fmt.Sprint(a.Field("public_url")), "/f/"+pid) {
		t.Errorf("got %s, want an identifier and an address", a.Body)
	}
}

// TestPublicSettingsHaveTheirOwnOperation: the operation that changes a form neither takes nor answers the settings of
// its public form, and the one that does leaves the rest as it is, honours If-Match and refuses standalone forms.
func TestPublicSettingsHaveTheirOwnOperation(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, `,"thanks":"Thank you"`)
	one := "/api/form/collections/" + p.id
	a := p.Do(t, http.MethodPut, one, gatewaytest.WithKey(p.full), fixture.JSONText(`{"label":"Tour","public":false,"pid":"another-form-0123456789","thanks":""}`))
	if a.Code != http.StatusOK || a.Field("public") != nil || a.Field("pid") != nil || a.Header.Get("X-Ignored") != "public, pid, thanks" {
		t.Errorf("got %d %v %s, want the settings ignored, and named", a.Code, a.Header, a.Body)
	}
	was := p.Get(t, p.full, one)
	a = p.set(t, `{"proof_of_work":3}`)
	if a.Code != http.StatusOK || a.Field("public") != true || a.Field("pid") != publicPID || a.Field("thanks") != "Thank you" ||
		a.Field("label") != "Tour" || fmt.Sprint(a.Field("schema")) != fmt.Sprint(was.Field("schema")) || fmt.Sprint(a.Field("proof_of_work")) != "3" {
		t.Errorf("got %d %s, want one setting changed", a.Code, a.Body)
	}
	stale := p.Do(t, http.MethodPut, one+"/public", gatewaytest.WithKey(p.full), gatewaytest.Header("If-Match", was.Header.Get("ETag")), fixture.JSONText(`{"public":false}`))
	fixture.WantFailure(t, stale, http.StatusPreconditionFailed)
	fixture.WantFaults(t, p.set(t, `{"label":"Visit"}`), http.StatusUnprocessableEntity, "label unknown")
	p.Import(t, `{"kind":"form_collection","id":"`+fixture.DocID(3)+`","name":"still","label":"Still","label_plural":"Stills","standalone":true}`)
	for _, body := range []string{`{"public":true}`, `{"pid":"short"}`} {
		a := p.Do(t, http.MethodPut, "/api/form/collections/"+fixture.DocID(3)+"/public", gatewaytest.WithKey(p.full), fixture.JSONText(body))
		if a.Code != http.StatusOK || a.Status != "failed" || a.Message != "Unable to update Form Collection" {
			t.Errorf("got %d %s, want a standalone form refused", a.Code, a.Body)
		}
		a = p.Do(t, http.MethodPut, "/api/form/collections/"+fixture.DocID(4)+"/public", gatewaytest.WithKey(p.full), fixture.JSONText(body))
		fixture.WantFailure(t, a, http.StatusNotFound)
	}
}

// TestPublicFormOrder: visitors see the fields in the order that the form says, as JSON and on the page, where files come
// last. Names that are none of a field are told to whoever sets the order.
func TestPublicFormOrder(t *testing.T) {
	t.Parallel()
	p := newPublicForm(t, "")
	const warning = `field_order names "form", "gone", and the form has no such field`
	for _, test := range []struct{ settings, warning, order, page string }{
		{`{}`, "", "why iban paper seats sure when", "why iban seats sure when paper"},
		{`{"field_order":["when","paper","why"]}`, "", "when paper why iban seats sure", "when why iban seats sure paper"},
		{`{"field_order":["form","seats","gone","form_name"]}`, warning, "seats why iban paper sure when", "seats why iban sure when paper"},
		{`{"field_order":[]}`, "", "why iban paper seats sure when", "why iban seats sure when paper"},
	} {
		if a := p.set(t, test.settings); a.Code != http.StatusOK || a.Header.Get("X-Warning") != test.warning {
			t.Errorf("%s: got %d %s and the warning %q, want %q", test.settings, a.Code, a.Body, a.Header.Get("X-Warning"), test.warning)
		}
		if got := fmt.Sprint(p.Get(t, "", p.path).Field("field_order")); got != "["+test.order+"]" {
			t.Errorf("%s: visitors are told %s, want %s", test.settings, got, test.order)
		}
		page, rest := p.Page(t, p.path, gatewaytest.Header("Accept", "text/html")).Text(), ""
		for _, name := range strings.Fields(test.page) {
			if _, rest, _ = strings.Cut(page, `name="values.`+name+`"`); rest == "" {
				t.Fatalf("%s: the page has no %s after the ones before it, want %s:\n%s", test.settings, name, test.page, page)
			}
			page = rest
		}
	}
	other := fixture.PostJSON(t, p.Org, p.full, "/api/form/collections", `{"name":"o","label":"O","label_plural":"Os","field_order":["gone"]}`)
	if got := other.Header.Get("X-Warning"); other.Code != http.StatusOK || got != `field_order names "gone", and the form has no such field` {
		t.Errorf("a new form: got %d %s and the warning %q", other.Code, other.Body, got)
	}
}
