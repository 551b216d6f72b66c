package backup

import (
	"net/http"
	"net/url"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// eventsAfter returns the answer to a cursor.
func eventsAfter(t *testing.T, o *gatewaytest.Org, key, cursor string) *gatewaytest.Answer {
	t.Helper()
	return o.Get(t, key, "/api/events?after="+url.QueryEscape(cursor))
}

// TestRestore_Events checks that whoever follows an organization notices that it was set back, alone or with the whole
// installation: their cursors end, and new ones work.
func TestRestore_Events(t *testing.T) {
	t.Parallel()
	s := newSite(t, gatewaytest.SharedFiles, quickly)
	acme := s.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	begin := eventsAfter(t, acme, key, "").Field("next").(string)
	c := fixture.WithToken(acme, key)
	c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"Then"}`)
	m := s.backUp(t, nil)
	c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"Since"}`)
	a := eventsAfter(t, acme, key, begin)
	if found := a.Field("results").([]any); len(found) != 2 {
		t.Fatalf("got %s, want two events", a.Body)
	}
	last := a.Field("next").(string)

	followed := func(what string, o *gatewaytest.Org) {
		t.Helper()
		for _, cursor := range []string{begin, last} {
			if a := eventsAfter(t, o, key, cursor); a.Code != http.StatusGone {
				t.Errorf("%s: got %d %s for a cursor from before, want 410", what, a.Code, a.Body)
			}
		}
		next := eventsAfter(t, o, key, "").Field("next").(string)
		id := fixture.WithToken(o, key).Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"New"}`).Field("id")
		a := eventsAfter(t, o, key, next)
		if found, _ := a.Field("results").([]any); len(found) != 1 || found[0].(map[string]any)["record"] != id {
			t.Errorf("%s: got %s, want the new contact %s", what, a.Body, id)
		}
	}
	if _, err := s.restoreOrg(t, confirmed); err != nil {
		t.Fatal(err)
	}
	followed("one organization", acme)
	whole := s.mustRestore(t, m.Name)
	followed("the installation", at(whole, acme))
}
