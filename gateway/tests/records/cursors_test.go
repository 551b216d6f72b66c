package records

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

// oneOf identifies the record on a page of one: by its identifier if it has one, because a key's last use changes in
// between.
func oneOf(page *gatewaytest.Answer) string {
	results, _ := page.Field("results").([]any)
	if len(results) == 1 {
		if members, _ := results[0].(map[string]any); members["id"] != nil {
			return fmt.Sprint(members["id"])
		}
	}
	return fmt.Sprint(results)
}

// TestEveryListCanBeFollowed reads each list to its end in parts of one record, and compares them with its pages, in
// the default order and in each order that its parameter names. Invalid places, and a place together with a page, are
// refused.
func TestEveryListCanBeFollowed(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	for range 4 { // there are some of most, but no shares
		p.Do(t, http.MethodPost, "/api/custom-reports/"+p.IDs[fixture.RefScratch]+"/share", gatewaytest.WithKey(p.FullKey), fixture.JSONText(`{}`))
	}
	for range 3 {
		p.Do(t, http.MethodPost, "/api/contacts", gatewaytest.WithKey(p.FullKey), fixture.JSONText(`{}`))
	}
	p.Import(t, fixture.LessonObject)
	p.Do(t, http.MethodPut, "/api/compliance/settings", gatewaytest.Cookie(p.AdminCookie), fixture.JSONText(`{"enabled": true}`))
	long := map[string]int{}
	for _, op := range w.App.Operations() {
		takes := func(name string) (int, bool) {
			n := slices.IndexFunc(op.Params, func(p operation.Param) bool { return p.Name == name })
			return n, n >= 0
		}
		_, pages := takes("page")
		if _, follows := takes("after"); !pages || !follows {
			if pages && op.Name != "sessions.list" && op.Name != "reports.run" { // a few of a person, and rows made for each call
				if _, own := takes("per_page"); own && !op.Contract {
					t.Errorf("%s cannot be followed with after, want it possible", op.Name)
				}
			}
			continue
		}
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, func(string) bool { return false })
		ask := func(query string) *gatewaytest.Answer {
			t.Helper()
			return p.Do(t, q.Method, q.With(query), append(slices.Clone(q.Changes), p.CredentialFor(&op))...)
		}
		orders := []string{""}
		if n, sorts := takes("sort"); sorts {
			for _, name := range append(slices.Clone(op.Params[n].Names), op.Params[n].Enum...) {
				orders = append(orders, "&sort="+name, "&sort=-"+name)
			}
		}
		for _, order := range orders {
			var paged, followed []string
			for after, n := "", 1; n <= 8; n++ {
				part := ask("per_page=1&after=" + url.QueryEscape(after) + order)
				page := ask(fmt.Sprintf("per_page=1&page=%d", n) + order)
				if part.Code == http.StatusUnprocessableEntity && page.Code == part.Code {
					break // no such order of an enumeration that names both
				}
				followed, paged = append(followed, oneOf(part)), append(paged, oneOf(page))
				if fmt.Sprint(part.Field("count")) != fmt.Sprint(page.Field("count")) {
					t.Errorf("%s %s: got %s, want the count of %s", op.Name, order, part.Body, page.Body)
				}
				if after, _ = part.Field("next").(string); after == "" {
					if fmt.Sprint(page.Field("pages")) != fmt.Sprint(n) && fmt.Sprint(page.Field("count")) != "0" {
						t.Errorf("%s %s ends after %d pages, want %v", op.Name, order, n, page.Field("pages"))
					}
					break
				}
				long[op.Name] = max(long[op.Name], n+1)
			}
			if !slices.Equal(paged, followed) {
				t.Errorf("%s %s: pages %s\nparts %s, want the same", op.Name, order, paged, followed)
			}
		}
		for query, want := range map[string]string{"after=bogus": "after must be the value of next in an answer with the same sort", "after=&page=2": "after and page exclude each other"} {
			if a := ask(query); a.Code != http.StatusUnprocessableEntity || !strings.Contains(a.Text(), want) {
				t.Errorf("%s ?%s: got %d %s, want 422 with %q", op.Name, query, a.Code, a.Body, want)
			}
		}
	}
	for _, name := range []string{"reports.list_shares", "compliance.check", "contacts.list", "files.list", "audit.list"} {
		if long[name] < 3 {
			t.Errorf("%s had %d parts, want at least 3", name, long[name])
		}
	}
}
