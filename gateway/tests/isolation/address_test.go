package isolation

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// keyOf returns a key with every permission, limited to the teams.
func keyOf(t testing.TB, p *fixture.Party, teams ...string) string {
	return p.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), teams
	}).Token
}

func TestReportAddressNeedsRightsToItsContent(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	team, other, none := p.IDs[fixture.RefTeam], p.IDs[fixture.RefOtherTeam], []string{}
	report := func(n int, children []string, teams ...string) string {
		line, err := json.Marshal(map[string]any{
			"kind": "custom_report", "id": p.ID(n), "pid": "address-of-report-" + p.ID(n), "title": "t", "class": "Contacts", "secure": false,
			"query": map[string]any{"fields": []string{"email"}}, "child_reports": children, "teams": append([]string{}, teams...),
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(line)
	}
	p.Import(t,
		report(400, none), report(401, none, team), report(402, none, team, other), report(403, none, other),
		report(404, []string{p.ID(401), p.ID(403)}, team), report(405, []string{p.ID(400)}, team), report(406, []string{p.ID(402)}, team))
	limited, both, free := keyOf(t, p, team), keyOf(t, p, team, other), p.FullKey
	for _, test := range []struct {
		what       string
		n          int
		key, query string
		given      bool
	}{
		{"no teams, a limited key", 400, limited, "", false},
		{"no teams, a key limited to all teams", 400, both, "", false},
		{"no teams, a free key", 400, free, "", true},
		{"no teams, a free key that asks for less", 400, free, "?teams[]=" + team, true},
		{"its team", 401, limited, "", true},
		{"its team and another", 402, limited, "", false},
		{"its team and another, asking for less", 402, limited, "?teams[]=" + team, false},
		{"both teams", 402, both, "", true},
		{"both teams, asking for less", 402, both, "?teams[]=" + team, true},
		{"children of its team, and one that cannot be read there", 404, limited, "", true},
		{"a child without teams", 405, limited, "", false},
		{"a child of another team too", 406, limited, "", false},
		{"a child without teams, a free key", 405, free, "", true},
		{"a child of both teams", 406, both, "", true},
	} {
		a := p.Get(t, test.key, "/api/custom-reports/"+p.ID(test.n)+test.query)
		pid, url := "", ""
		if test.given {
			pid = "address-of-report-" + p.ID(test.n)
			url = fixture.BaseURL(p.Org) + "/shared/reports/" + pid
		}
		if a.Status != "ok" || a.Field("pid") != pid || a.Field("share_url") != url || a.Field("title") != "t" {
			t.Errorf("%s: got %d pid %q, share_url %q, want the status ok, pid %v, share_url %v and title t",
				test.what, a.Code, a.Field("pid"), a.Field("share_url"), pid, url)
		}
		shared := p.Do(t, http.MethodPost, "/api/custom-reports/"+p.ID(test.n)+"/share"+test.query, gatewaytest.WithKey(test.key), gatewaytest.JSON(map[string]any{}))
		if (shared.Status == "ok") != test.given {
			t.Errorf("%[1]s: sharing: got %[2]d %[3]s, want shared = %[4]t",
				test.what, shared.Code, shared.Body, test.given)
		}
	}
}

// TestNoAnswerRevealsAReportAddress calls every operation with a key limited to a team and looks for addresses of
// reports that show more, also in the audit log.
func TestNoAnswerRevealsAReportAddress(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t)
	p := w.A
	limited := keyOf(t, p, p.IDs[fixture.RefTeam])
	var pids []string
	for _, n := range []int{80, 81, 82, 83, 84, 85, 86, 87} {
		if pid, _ := p.Get(t, p.FullKey, "/api/custom-reports/"+p.ID(n)).Field("pid").(string); pid != "" {
			pids = append(pids, pid)
		}
	}
	if len(pids) != 8 {
		t.Fatalf("%d addresses are known to a key without limits, want 8", len(pids))
	}
	calls := 0
	for _, op := range w.Rows() {
		for _, path := range op.Paths() {
			for _, own := range []func(fixture.Slot) (string, bool){p.Own, func(at fixture.Slot) (string, bool) { return p.IDs[at.Ref], true }} {
				q := w.Build(&op, path, fixture.SampleFor(&op), own, fixture.Every)
				a := p.Do(t, q.Method, q.Target, append(q.Changes, gatewaytest.WithKey(limited))...)
				for _, pid := range pids {
					if strings.Contains(fixture.Canonical(a, "", nil), pid) {
						t.Errorf("%s %s reveals the address %s: %s, want it nowhere", op.Method, path, pid, a.Body)
					}
				}
				calls++
			}
		}
	}
	for _, query := range []string{"sort=pid", "filters[pid][starts_with]=" + pids[0][:3], "filters[or][0][pid]=" + pids[0]} {
		if a := p.Get(t, limited, "/api/custom-reports?"+query); a.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s gives addresses away: got %d %s, want 422", query, a.Code, a.Body)
		}
	}
	list := w.App.Operations()[slices.IndexFunc(w.App.Operations(), func(op operation.Row) bool { return op.Name == "reports.list" })]
	_, sorts, _ := strings.Cut(strings.SplitN(list.Description, ".", 2)[0], ": ")
	for _, sort := range strings.Split(sorts, ", ") {
		a := p.Get(t, limited, "/api/custom-reports?after=&per_page=1&sort="+sort)
		next, _ := a.Field("next").(string)
		raw, err := base64.RawURLEncoding.DecodeString(next)
		if err != nil || len(raw) == 0 || slices.ContainsFunc(pids, func(pid string) bool { return strings.Contains(string(raw), pid) }) {
			t.Errorf("sorted by %s, next is %q, which contains %s (%v), want no address", sort, next, raw, err)
		}
	}
	records := fixture.AuditRecords(t, p.Org, 1000)
	if len(records) == 0 || calls < 2*len(w.Rows()) {
		t.Fatalf("got %d audit records of %d calls, want some, of at least %d", len(records), calls, 2*len(w.Rows()))
	}
	raw, err := json.Marshal(records)
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if strings.Contains(string(raw), pid) {
			t.Errorf("the audit log holds the address %s, want it nowhere", pid)
		}
	}
}

func TestReportsAreSecureUnlessTheySayOtherwise(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	line := func(id int, pid, more string) string {
		return `{"kind":"custom_report","id":"` + fixture.DocID(id) + `","pid":"` + pid + `","title":"Report","class":"Contacts","query":{"fields":["email"]}` + more + `}`
	}
	acme.Import(t, line(1, "says-nothing-about-it", ""), line(2, "says-secure-is-false", `,"secure":false`), line(3, "is-not-to-be-shared-1", `,"secure":false,"shareable":false`),
		line(4, "holds-what-is-private", `,"secure":false,"child_reports":["`+fixture.DocID(3)+`","`+fixture.DocID(2)+`"]`), line(5, "is-not-to-be-shared-2", `,"shareable":false`))
	key := acme.Key(t, tenants.ManageReports)
	for id, want := range map[int]string{1: "true true", 2: "false true", 3: "false false", 5: "true false"} {
		data := acme.Get(t, key, fixture.ReportPath+fixture.DocID(id)).DataJSON()
		if got := fixture.Member(t, data, "secure") + " " + fixture.Member(t, data, "shareable"); got != want {
			t.Errorf("report %d: secure and shareable are %s, want %s", id, got, want)
		}
	}
	fixture.WantDenied(t, "a report that says nothing, without a token", acme.Get(t, "", fixture.SharedPath+"says-nothing-about-it"))
	if a := acme.Get(t, "", fixture.SharedPath+"says-secure-is-false"); a.Status != "ok" {
		t.Errorf("a report that is not secure: got %d %s, want the status ok", a.Code, a.Body)
	}
	// A report that is not shareable is not found, even with a token of it, and as a child of another report.
	missing := acme.Get(t, "", fixture.SharedPath+"there-is-no-such-report").Text()
	for _, path := range []string{"is-not-to-be-shared-1", "is-not-to-be-shared-1?data=1", "is-not-to-be-shared-1/" + fixture.DocID(3), "is-not-to-be-shared-2", "is-not-to-be-shared-2?token=x", "holds-what-is-private/" + fixture.DocID(3)} {
		fixture.WantBody(t, acme.Get(t, "", fixture.SharedPath+path), http.StatusOK, missing)
	}
	if page := acme.Page(t, "/shared/reports/is-not-to-be-shared-1"); page.Code != http.StatusNotFound || strings.Contains(page.Text(), "Report</") {
		t.Errorf("its page: got %d %s, want 404 and without %q", page.Code, page.Text(), "Report</")
	}
	fixture.WantMember(t, acme.Get(t, "", fixture.SharedPath+"holds-what-is-private").DataJSON(), `[{"id":"`+fixture.DocID(2)+`","title":"Report","visual":"table"}]`, "child_reports")
	fixture.WantFaults(t, fixture.PostJSON(t, acme, key, fixture.ReportPath+fixture.DocID(3)+"/share", `{}`), http.StatusUnprocessableEntity, "shareable forbidden")
	// An import that does not name a setting leaves it unchanged.
	acme.Import(t, line(2, "says-secure-is-false", `,"desc":"changed"`))
	if a := acme.Get(t, "", fixture.SharedPath+"says-secure-is-false"); a.Field("desc") != "changed" {
		t.Errorf("after an import that does not name secure: got %d %s, want desc changed", a.Code, a.Body)
	}
}
