package reports_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/backends/record"
	"tenantry/backends/record/recordtest"
	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

func TestRowsAreComplete(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for _, o := range w.module.Operations() {
		for _, fault := range o.Validate() {
			t.Error(fault)
		}
		if _, err := json.Marshal(o.Example); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
	}
}

func TestGetReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t, map[string]bool{tenants.FeatureTeams: true})
	plain := w.add(`{"class":"Contacts","title":"Plain","pid":"a-plain-report-01"}`)
	full := w.add(`{"class":"Contacts","title":"Full","pid":"a-complete-report","secure":true,"portal_visible":true,"teams":["` + teamA + `"],
		"input":{"region":{"rule":"locked","value":"DE","label":"Region","type":"text"}},"desc":"d","source":"s","shareable":false,"exportable":true,
		"query":{"limit":5,"filter":{"country":{"input":"region"}}},
		"visual":"bar","visual_props":{"x":1},"folder":"f","parent":"p","row_key":"k","actions":{"a":{"b":[1]}},"child_reports":["` + plain.ID + `"]}`)
	get := func(id string, p *tenants.Principal) answer {
		return w.call("reports.get", map[string]string{"id": id}, "", "", p)
	}
	stamp := func(r *reports.Report) string { return must[string](t)(instantOf(get(r.ID, keeper()))) }
	a := get(plain.ID, keeper())
	want := `{"status":"ok","message":"Custom Report found","data":{"id":"` + plain.ID + `","pid":"a-plain-report-01","title":"Plain","class":"Contacts","secure":false,` +
		`"portal_visible":false,"teams":[],"input":{},"share_url":"https://acme.example.com/shared/reports/a-plain-report-01","desc":"","source":"","query":{},` +
		`"shareable":true,"exportable":false,"visual":"table","visual_props":{},"folder":"","parent":"","row_key":"","actions":{},"child_reports":[],` +
		`"created_at":"` + stamp(plain) + `","updated_at":"` + stamp(plain) + `"}}`
	if diff := cmp.Diff(want, a.raw); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	a = get(full.ID, keeper())
	want = `{"status":"ok","message":"Custom Report found","data":{"id":"` + full.ID + `","pid":"a-complete-report","title":"Full","class":"Contacts","secure":true,` +
		`"portal_visible":true,"teams":["` + teamA + `"],"input":{"region":{"rule":"locked","value":"DE","label":"Region","type":"text"}},` +
		`"share_url":"https://acme.example.com/shared/reports/a-complete-report","desc":"d","source":"s","query":{"limit":5,"filter":{"country":{"input":"region"}}},` +
		`"shareable":false,"exportable":true,"visual":"bar","visual_props":{"x":1},"folder":"f","parent":"p","row_key":"k","actions":{"a":{"b":[1]}},` +
		`"child_reports":["` + plain.ID + `"],"created_at":"` + stamp(full) + `","updated_at":"` + stamp(full) + `"}}`
	if diff := cmp.Diff(want, a.raw); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	ofB := keeper()
	ofB.Teams = []string{teamB}
	for _, id := range []string{"0123456789abcdef01234567", "", "full", full.ID + "x"} {
		get(id, keeper()).failed(t, 404, "Custom Report not found")
	}
	get(full.ID, ofB).failed(t, 404, "Custom Report not found")
	if a := w.call("reports.share", map[string]string{"id": full.ID}, "", `{}`, ofB); a.code != 404 {
		t.Errorf("another team shares it: %s", a.raw)
	}

	// What is kept of an answer is for those alone who are shown the same.
	ofA := keeper()
	ofA.Teams = []string{teamA}
	open := w.add(`{"class":"Contacts","title":"Open","pid":"of-all-the-contacts"}`)
	for range 2 {
		for who, shown := range map[*tenants.Principal]bool{keeper(): true, ofA: false, ofB: false} {
			if a := get(open.ID, who); strings.Contains(a.raw, open.PID) != shown || !strings.Contains(a.raw, `"title":"Open"`) {
				t.Errorf("who is limited to %v reads %s", who.Teams, a.raw)
			}
		}
	}

	off := newWorld(t, nil)
	r := off.add(`{"class":"Contacts","teams":["` + teamA + `"]}`)
	var data struct{ Data map[string]any }
	if err := json.Unmarshal([]byte(off.call("reports.get", map[string]string{"id": r.ID}, "", "", ofB).raw), &data); err != nil {
		t.Fatal(err)
	}
	if _, there := data.Data["teams"]; there || data.Data["id"] != r.ID {
		t.Errorf("without the teams feature: %v", data.Data)
	}
}

func instantOf(a answer) (string, error) {
	var envelope struct {
		Data struct {
			CreatedAt string `json:"created_at"`
		}
	}
	err := json.Unmarshal([]byte(a.raw), &envelope)
	return envelope.Data.CreatedAt, err
}

func TestValidateNamesEveryProblem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	_, errs := recordtest.Read(t, w.kinds.Reports, record.Checking{}, `{"title":" ","desc":5,"class":"Secrets","child_reports":["x"],"teams":["x"],"query":{"limit":0,"nope":1}}`)
	var unread []string
	for _, e := range errs {
		unread = append(unread, e.Field+"/"+e.Code)
	}
	if diff := cmp.Diff([]string{"desc/type", "child_reports/format", "teams/format", "query.limit/range", "query/unknown", "title/required", "class/unknown"}, unread); diff != "" {
		t.Errorf("difference:\n%s", diff)
	}
	_, errs = recordtest.Read(t, w.kinds.Reports, record.Checking{}, `{"pid":"a b","title":"T","class":"Secrets","visual":"pie-chart",
		"input":{"a b":{"rule":"locked"},"n":{"rule":"open","type":"list"},"d":{"rule":"editable","type":"date","value":"soon"}},
		"query":{"filter":{"country":{"input":"undeclared"}}}}`)
	var got []string
	for _, e := range errs {
		got = append(got, e.Field+"/"+e.Code)
	}
	want := []string{
		"pid/format", "class/unknown", "visual/unknown", "input.a b/format",
		"input.d.value/type", "input.n.rule/unknown", "input.n.type/unknown", "query.filter/unknown",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("mismatch (-want +got):\n%s", diff)
	}
	if _, errs = recordtest.Read(t, w.kinds.Reports, record.Checking{}, `{"pid":"of sixteen chars","title":"T","class":"Contacts"}`); len(errs) != 1 || errs[0].Field != "pid" {
		t.Errorf("a pid with blanks: %v", errs)
	}
	errs = nil
	w.module.Validate(&reports.Report{Title: "T", Class: "Records"}, &errs)
	if len(errs) != 1 || errs[0].Field != "source" {
		t.Errorf("without a source: %v", errs)
	}
	errs = nil
	own := &reports.Report{Title: "T", Class: "Contacts", ChildReports: []string{"665f1c2ab4d3e2f1a0b9c8d7"}}
	if w.module.Validate(own, &errs); len(errs) > 0 {
		t.Errorf("with a child: %v", errs)
	}
	own.ID = own.ChildReports[0]
	if w.module.Validate(own, &errs); len(errs) != 1 || errs[0].Field != "child_reports" || errs[0].Code != "forbidden" {
		t.Errorf("as its own child: %v", errs)
	}
}

// TestUndeclaredInput: a filter that uses an input that the report lacks is refused once.
func TestUndeclaredInput(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	const report = `{"title":"T","class":"Contacts","query":{"filter":{"country":{"input":"a"}}}}`
	r, errs := recordtest.Read(t, w.kinds.Reports, record.Checking{}, report)
	w.module.CheckFields(r, nil, &errs)
	if len(errs) != 1 || errs[0].Field != "query.filter" {
		t.Errorf("got %v, want one fault, of query.filter", errs)
	}
}

// TestBoundsOfInputs: of each part of an input what is still taken, and what is not any more.
func TestBoundsOfInputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	inputs := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(`"i%d":{"rule":"editable"}`, i))
		}
		return strings.Join(all, ",")
	}
	choices := func(n int) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf("%q", fmt.Sprint("c", i)))
		}
		return strings.Join(all, ",")
	}
	for _, tt := range []struct{ name, inputs, want string }{
		{"many", inputs(reports.MaxInputs), ""},
		{"too many", inputs(reports.MaxInputs + 1), "input/length"},
		{"long label", `"a":{"rule":"editable","label":"` + strings.Repeat("ä", 200) + `"}`, ""},
		{"longer label", `"a":{"rule":"editable","label":"` + strings.Repeat("ä", 201) + `"}`, "input.a.label/length"},
		{"long value", `"a":{"rule":"editable","value":"` + strings.Repeat("a", 1025) + `"}`, "input.a.value/length"},
		{"number", `"a":{"rule":"editable","type":"number","value":"-1.5"}`, ""},
		{"number of nothing", `"a":{"rule":"editable","type":"number","value":"null"}`, "input.a.value/type"},
		{"no number", `"a":{"rule":"editable","type":"number","value":"1x"}`, "input.a.value/type"},
		{"boolean", `"a":{"rule":"editable","type":"boolean","value":"false"}`, ""},
		{"no boolean", `"a":{"rule":"editable","type":"boolean","value":"no"}`, "input.a.value/type"},
		{"moment", `"a":{"rule":"editable","type":"datetime","value":"2024-05-17T10:00:00Z"}`, ""},
		{"no moment", `"a":{"rule":"editable","type":"datetime","value":"2024-05-17 10:00"}`, "input.a.value/type"},
		{"none of the choices", `"a":{"rule":"editable","choices":["x"],"value":"y"}`, "input.a.value/unknown"},
		{"many choices", `"a":{"rule":"editable","choices":[` + choices(reports.MaxChoices) + `]}`, ""},
		{"too many choices", `"a":{"rule":"editable","choices":[` + choices(reports.MaxChoices+1) + `]}`, "input.a.choices/length"},
		{"empty choice", `"a":{"rule":"editable","choices":[""]}`, "input.a.choices/required"},
		{"choice of another type", `"a":{"rule":"editable","type":"number","choices":["x"]}`, "input.a.choices/type"},
	} {
		_, errs := recordtest.Read(t, w.kinds.Reports, record.Checking{}, `{"title":"T","class":"Contacts","query":{},"input":{`+tt.inputs+`}}`)
		var got []string
		for _, e := range errs {
			got = append(got, e.Field+"/"+e.Code)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %q", tt.name, errs, tt.want)
		}
	}
}

func BenchmarkGetReport(b *testing.B) {
	w := newWorld(b, nil)
	r := w.add(`{"class":"Contacts","input":{"a":{"rule":"editable","value":"x"}},
		"query":{"filter":{"country":{"input":"a"}},"group_by":[{"field":"country"}],"measures":[{"op":"count"}]}}`)
	var get operation.Row
	for _, o := range w.module.Operations() {
		if o.Name == "reports.get" {
			get = o
		}
	}
	c := operation.NewCall(&get, func(string) string { return r.ID })
	c.Tenant, c.BaseURL, c.Workspace = w.tenant, "https://acme.example.com", w.tenant.Workspace().Scoped(store.Scope{All: true})
	b.ReportAllocs()
	for b.Loop() {
		res, err := get.Handler(b.Context(), c)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(res.Data); err != nil {
			b.Fatal(err)
		}
	}
}
