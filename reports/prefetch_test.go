package reports_test

import (
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// away is an engine that other machines use too, so that what a report needed last is read along with it.
type away struct{ driver.Engine }

func (away) Remote() bool { return true }

// TestSharesOfAReportAreBounded: of the good ones, and of records of dead ones. TestReadAheadShowsNoMore: what was read
// along with a report that was changed since is not taken for what it asks for now.
func TestReadAheadShowsNoMore(t *testing.T) {
	t.Parallel()
	w := newWorldOn(t, away{enginetest.Open(t)}, map[string]bool{tenants.FeatureTeams: true})
	w.addPeople(&person{Country: "A", Teams: []string{teamA}}, &person{Country: "B", Teams: []string{teamB}}, &person{Country: "none"})
	if err := w.rows.In(w.tenant.Workspace()).Insert(t.Context(), &row{Object: "orders", ExternalID: "1"}); err != nil {
		t.Fatal(err)
	}
	const query = `"query":{"measures":[{"op":"count"}]}`
	child := w.add(`{"class":"Contacts",` + query + `}`)
	root := w.add(`{"class":"Contacts","child_reports":["` + child.ID + `"],` + query + `}`)
	all := w.kinds.Reports.In(w.tenant.Workspace())
	for _, step := range []struct {
		name      string
		change    *reports.Report
		to        func(*reports.Report)
		root, kid float64
	}{
		{"as they are", root, func(*reports.Report) {}, 3, 3},
		{"the child limited to a team", child, func(r *reports.Report) { r.Teams = []string{teamA} }, 3, 2},
		{"to another", child, func(r *reports.Report) { r.Teams = []string{teamB} }, 3, 2},
		{"to both", child, func(r *reports.Report) { r.Teams = []string{teamA, teamB} }, 3, 3},
		{"the one at the address limited to a team", root, func(r *reports.Report) { r.Teams = []string{teamA} }, 2, 2},
		{"limited no more", root, func(r *reports.Report) { r.Teams = nil }, 3, 3},
		{"of another class", child, func(r *reports.Report) { r.Class, r.Source = "Records", "orders" }, 3, 1},
		{"of another class alone", child, func(r *reports.Report) { r.Class = "Contacts" }, 3, 3},
		{"of the class before", child, func(r *reports.Report) { r.Class = "Records" }, 3, 1},
		{"of a source that is not there", child, func(r *reports.Report) { r.Source = "others" }, 3, 0},
	} {
		now := must[*reports.Report](t)(all.Get(t.Context(), step.change.ID))
		step.to(now)
		if err := all.Replace(t.Context(), now); err != nil {
			t.Fatal(err)
		}
		for range 2 { // with what was needed before, and with what is needed now
			for id, want := range map[string]float64{"": step.root, child.ID: step.kid} {
				a := w.call("reports.shared", map[string]string{"pid": root.PID, "report_id": id}, "data=1", "", anyone())
				if want == 0 {
					a.failed(t, 200, "The report cannot be shown")
					continue
				}
				if a.Status != operation.StatusOK {
					t.Fatalf("%s, report %q: %s", step.name, id, a.Message)
				}
				if got := a.rows(t)[0][0]; got != want {
					t.Errorf("%s, report %q counts %v, want %v", step.name, id, got, want)
				}
			}
		}
	}
}

// TestWhatWasReadIsConfirmed: a reader is told what was read for as long as the report, and the one at the address,
// show no less.
func TestWhatWasReadIsConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]bool{tenants.FeatureTeams: true})
	child := w.add(`{"class":"Contacts","teams":["` + teamA + `","` + teamB + `"]}`)
	open := w.add(`{"class":"Contacts"}`)
	root := w.add(`{"class":"Contacts","child_reports":["` + child.ID + `","` + open.ID + `"]}`)
	for name, tt := range map[string]struct {
		report, changed *reports.Report
		before, after   []string
		good            bool
	}{
		"nothing changed":                       {root, root, nil, nil, true},
		"limited to a team":                     {root, root, nil, []string{teamA}, false},
		"the one at the address is limited":     {open, root, nil, []string{teamA}, false},
		"limited further":                       {child, child, []string{teamA, teamB}, []string{teamA}, false},
		"limited to another team":               {child, child, []string{teamA}, []string{teamB}, false},
		"limited to more teams":                 {child, child, []string{teamA}, []string{teamA, teamB}, true},
		"limited no more":                       {child, child, []string{teamA}, nil, true},
		"another report of the address changed": {child, open, nil, []string{teamA}, true},
	} {
		all := w.kinds.Reports.In(w.tenant.Workspace())
		change := func(teams []string) {
			now := must[*reports.Report](t)(all.Get(t.Context(), tt.changed.ID))
			if now.Teams = teams; all.Replace(t.Context(), now) != nil {
				t.Fatal("the report is not changed")
			}
		}
		was := must[*reports.Report](t)(all.Get(t.Context(), tt.changed.ID)).Teams
		change(tt.before)
		ask := reports.SharedRequest{PID: root.PID, ReportID: tt.report.ID}
		found := must[reports.Shared](t)(w.module.Open(t.Context(), w.tenant, ask))
		if err := w.module.Confirm(t.Context(), w.tenant, ask, &found); err != nil {
			t.Errorf("%s, before: %v", name, err)
		}
		change(tt.after)
		if err := w.module.Confirm(t.Context(), w.tenant, ask, &found); (err == nil) != tt.good {
			t.Errorf("%s: got %v, want (err == nil) = %v", name, err, tt.good)
		}
		change(was)
	}
}
