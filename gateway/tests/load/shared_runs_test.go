package load

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestConcurrentReadersOfASharedReportCostOneQuery checks that the operation and the page share one run, and that
// callers without the right are still refused.
func TestConcurrentReadersOfASharedReportCostOneQuery(t *testing.T) {
	t.Parallel()
	var runs, ahead atomic.Int64
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.ReportReuse = time.Hour
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		o.Observe = func(c store.Call) {
			if c.Operation == "aggregate" && c.Collection == "contacts" {
				runs.Add(1)
			}
		}
	})
	acme, birch := g.Org(t, "acme", tenants.FeatureTeams), g.Org(t, "birch")
	const team = "0000000000000000000000a1"
	report := func(more string) string {
		return `{"kind":"custom_report","id":"` + fixture.DocID(1) + `","pid":"crowded-report-0001","title":"Crowd","class":"Contacts","input":{"city":{"rule":"editable"},"country":{"rule":"locked"}},` +
			`"query":{"filter":{"city":{"input":"city"},"country":{"input":"country"}},"group_by":[{"field":"country"}],"measures":[{"op":"count"}]}` + more + `}`
	}
	contact := func(id int, city, country string) string {
		return `{"kind":"contact","id":"` + fixture.DocID(id) + `","email":"` + fixture.DocID(id) + `@example.com","city":"` + city + `","country":"` + country + `"}`
	}
	acme.Import(t, `{"kind":"team","id":"`+team+`","name":"A"}`, contact(0x10, "Köln", "DE"), contact(0x11, "Lyon", "FR"), report(""))
	birch.Import(t, contact(0x12, "Rom", "IT"), report(""))
	share := func(o *gatewaytest.Org, country string) (token, id string) {
		a := fixture.PostJSON(t, o, o.Key(t, tenants.ManageReports), fixture.ReportPath+fixture.DocID(1)+"/share", `{"params":{"country":"`+country+`"}}`)
		token, _ = a.Field("token").(string)
		id, _ = a.Field("id").(string)
		return token, id
	}
	german, id := share(acme, "DE")
	french, _ := share(acme, "FR")
	italian, _ := share(birch, "IT")
	read := func(o *gatewaytest.Org, token, more string) *gatewaytest.Answer {
		return o.Get(t, "", fixture.SharedPath+"crowded-report-0001?data=1&token="+token+more)
	}
	cost := func(what string, want int64, of func()) {
		t.Helper()
		before := runs.Load()
		of()
		if got := runs.Load() - before; got != want {
			t.Errorf("%s: %d queries, want %d", what, got, want)
		}
	}
	var first *gatewaytest.Answer
	cost("a crowd", 1, func() {
		var crowd sync.WaitGroup
		for range 32 {
			crowd.Go(func() {
				if a := read(acme, german, ""); a.Status != "ok" || !strings.Contains(a.Text(), `["DE",1]`) {
					t.Errorf(`got %d %s, want a.Status = "ok" and containing "[\"DE\",1]"`, a.Code, a.Body)
				}
			})
		}
		crowd.Wait()
		first = read(acme, german, "")
		if page := acme.Page(t, "/shared/reports/crowded-report-0001?token="+german); page.Code != http.StatusOK || !strings.Contains(page.Text(), "DE") {
			t.Errorf("the page: got %d %s, want 200 with DE", page.Code, page.Body)
		}
	})
	for _, other := range []struct {
		what, want string
		of         *gatewaytest.Org
		token      string
		more       string
	}{
		{"another locked value", `["FR",1]`, acme, french, ""},
		{"another value of the reader", `"rows":[]`, acme, german, "&params[city]=Lyon"},
		{"another scope", `["DE",1]`, acme, german, "&teams[]=" + team},
		{"another organization's report of the same id", `["IT",1]`, birch, italian, ""},
	} {
		cost(other.what, 1, func() {
			for range 2 {
				if a := read(other.of, other.token, other.more); a.Status != "ok" || !strings.Contains(a.Text(), other.want) {
					t.Errorf(`%s: got %d %s, want a.Status = "ok" and containing %q`, other.what, a.Code, a.Body, other.want)
				}
			}
		})
	}
	// Changes of the rows are seen after the moment, a change of the report at once.
	acme.Import(t, contact(0x13, "Bonn", "DE"))
	cost("after a write, within the moment", 0, func() {
		if a := read(acme, german, ""); a.Text() != first.Text() {
			t.Errorf("within a second: got %s\nwant the first answer %s", a.Text(), first.Text())
		}
	})
	acme.Import(t, report(`,"desc":"changed"`))
	cost("a changed report", 1, func() {
		if a := read(acme, german, ""); a.Field("desc") != "changed" || !strings.Contains(a.Text(), `["DE",2]`) {
			t.Errorf(`got %d %s, want a.Field("desc") = "changed" and containing "[\"DE\",2]"`, a.Code, a.Body)
		}
	})
	acme.Import(t, contact(0x14, "Ulm", "DE"))
	ahead.Store(int64(time.Hour))
	german, id = share(acme, "DE")
	cost("after the moment", 1, func() {
		if a := read(acme, german, ""); !strings.Contains(a.Text(), `["DE",3]`) {
			t.Errorf(`got %d %s, want containing "[\"DE\",3]"`, a.Code, a.Body)
		}
	})
	// The rows are cached, but not for callers without the right.
	cost("who may not read", 0, func() {
		fixture.WantDenied(t, "without a token", acme.Get(t, "", fixture.SharedPath+"crowded-report-0001?data=1"))
		if a := acme.Do(t, http.MethodDelete, fixture.ReportPath+fixture.DocID(1)+"/shares/"+id, gatewaytest.WithKey(acme.Key(t, tenants.ManageReports))); a.Status != "ok" {
			t.Fatalf(`got %d %s, want a.Status = "ok"`, a.Code, a.Body)
		}
		fixture.WantDenied(t, "with a revoked token", read(acme, german, ""))
		acme.Import(t, report(`,"shareable":false`))
		again := acme.Get(t, "", fixture.SharedPath+"crowded-report-0001?data=1&token="+german)
		if again.Message != "Shared Report not found" {
			t.Errorf("no longer shareable: got %d %s, want the message %q",
				again.Code, again.Body, "Shared Report not found")
		}
	})
}

// TestChangedChildReportIsReadAtOnce checks that the rows of a child are those of its own definition, which changes
// without the report that leads to it.
func TestChangedChildReportIsReadAtOnce(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) { o.ReportReuse = time.Hour })
	acme := g.Org(t, "acme")
	child := func(query string) string {
		return `{"kind":"custom_report","id":"` + fixture.DocID(2) + `","title":"Child","class":"Contacts","secure":false,"query":` + query + `}`
	}
	read := func() string {
		return acme.Get(t, "", fixture.SharedPath+"bundle-of-reports-1/"+fixture.DocID(2)+"?data=1").Text()
	}
	acme.Import(t, `{"kind":"contact","id":"`+fixture.DocID(3)+`","email":"a@example.com","city":"Bonn"}`, child(`{"fields":["email"]}`),
		`{"kind":"custom_report","id":"`+fixture.DocID(1)+`","pid":"bundle-of-reports-1","title":"Root","class":"Contacts","secure":false,"query":{"measures":[{"op":"count"}]},"child_reports":["`+fixture.DocID(2)+`"]}`)
	if first := read(); !strings.Contains(first, `[["a@example.com"]]`) {
		t.Errorf(`got %s, want containing "[[\"a@example.com\"]]"`, first)
	}
	acme.Import(t, child(`{"fields":["city"]}`))
	if second := read(); !strings.Contains(second, `[["Bonn"]]`) {
		t.Errorf("the child of before: got %s, want Bonn", second)
	}
}
