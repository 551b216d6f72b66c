package reports_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/reports"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	var errs fault.List
	q := reports.ParseQuery([]byte(`{"filter": {"country": "DE", "age": {"gt": {"input": "least"}}},
		"group_by": [{"field": "country"}, {"field": "created_at", "by": "month"}],
		"measures": [{"op": "count"}, {"op": "avg", "field": "age"}], "sort": ["-count", "country"], "limit": 100}`), &errs)
	def := q.Definition(&errs)
	if len(errs) != 0 {
		t.Fatalf("got %v, want len(errs) = 0", errs)
	}
	if want := []reports.Group{{Field: "country"}, {Field: "created_at", By: store.Month}}; !slices.Equal(want, def.Groups) {
		t.Errorf("groups are %v", def.Groups)
	}
	if want := []reports.Measure{{Op: store.MeasureCount}, {Op: store.MeasureAvg, Field: "age"}}; !slices.Equal(want, def.Measures) {
		t.Errorf("measures are %v", def.Measures)
	}
	if def.Measures[0].Column() != "count" || def.Measures[1].Column() != "avg_age" {
		t.Errorf("columns are %s, %s", def.Measures[0].Column(), def.Measures[1].Column())
	}
	if want := []reports.Sort{{Column: "count", Desc: true}, {Column: "country"}}; !slices.Equal(want, def.Sort) {
		t.Errorf("sort is %v", def.Sort)
	}
	if def.Limit != 100 || !slices.Equal(def.Filter.Inputs(), []string{"least"}) {
		t.Errorf("limit %d, inputs %v", def.Limit, def.Filter.Inputs())
	}
}

func TestParseQueryNamesEveryProblem(t *testing.T) {
	t.Parallel()
	many := func(n int, item string) string { return "[" + strings.Repeat(item+",", n-1) + item + "]" }
	for query, want := range map[string][]string{
		`{}`:                                     nil,
		`{"limit":10000}`:                        nil,
		`[]`:                                     {"query/format"},
		`{"limit":1,"limit":2}`:                  {"query/format"},
		`{"limit":1} x`:                          {"query/format"},
		`{"Limit":1,"$where":"x"}`:               {"query/unknown", "query/unknown"},
		`{"limit":0}`:                            {"query.limit/range"},
		`{"limit":10001}`:                        {"query.limit/range"},
		`{"limit":"5"}`:                          {"query.limit/range"},
		`{"limit":1.5}`:                          {"query.limit/range"},
		`{"sort":"count"}`:                       {"query.sort/type"},
		`{"sort":["a","-a"]}`:                    {"query.sort/duplicate"},
		`{"sort":[1,null,""]}`:                   {"query.sort/type", "query.sort/type", "query.sort/type"},
		`{"fields":["a","a"]}`:                   {"query.fields/duplicate"},
		`{"group_by":[{"field":1}]}`:             {"query.group_by[0].field/type"},
		`{"group_by":[{"by":"hour"}]}`:           {"query.group_by[0].field/required", "query.group_by[0].by/unknown"},
		`{"group_by":[{"field":"a","by":null}]}`: {"query.group_by[0].by/unknown"},
		`{"measures":[{"op":null}]}`:             {"query.measures[0].op/unknown"},
		`{"group_by":["a"]}`:                     {"query.group_by[0]/type"},
		`{"group_by":null}`:                      {"query.group_by/type"},
		`{"measures":[{"op":"median"}]}`:         {"query.measures[0].op/unknown"},
		`{"measures":[{"op":"sum"}]}`:            {"query.measures[0].field/required"},
		`{"measures":[{"op":"count","field":"a"},{"op":"sum","field":"b","x":1}]}`:         {"query.measures[0].field/forbidden", "query.measures[1]/unknown"},
		`{"measures":[{"op":"count"},{"op":"count"}]}`:                                     {"query/duplicate"},
		`{"group_by":[{"field":"a","by":"day"},{"field":"a"}]}`:                            {"query/duplicate"},
		`{"fields":["a"],"measures":[{"op":"count"}]}`:                                     {"query.fields/forbidden"},
		`{"filter":{"a":{"$gt":1}},"limit":-1}`:                                            {"filter.a.$gt/unknown", "query.limit/range"},
		`{"group_by":` + many(9, `{"field":"a"}`) + `}`:                                    {"query.group_by/length"},
		`{"measures":` + many(17, `{"op":"count"}`) + `,"fields":` + many(51, `"a"`) + `}`: {"query.measures/length", "query.fields/length"},
	} {
		var errs fault.List
		reports.ParseQuery([]byte(query), &errs)
		var got []string
		for _, e := range errs {
			got = append(got, e.Field+"/"+e.Code)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", query, diff)
		}
	}
}

func TestQueryKeepsItsJSON(t *testing.T) {
	t.Parallel()
	const text = `{"limit":5,"filter":{"n":9007199254740993,"x":{"input":"i"}},"sort":["-a"]}`
	var r reports.Report
	if err := json.Unmarshal([]byte(`{"query":`+text+`}`), &r); err != nil {
		t.Fatal(err)
	}
	if got := string(must[[]byte](t)(json.Marshal(r.Query))); got != text {
		t.Errorf("written as %s", got)
	}
	for _, empty := range []string{`{}`, `{"query":null}`} {
		r := reports.Report{}
		if err := json.Unmarshal([]byte(empty), &r); err != nil {
			t.Fatal(err)
		}
		if got := string(must[[]byte](t)(json.Marshal(r.Query))); got != "{}" {
			t.Errorf("%s is written as %s", empty, got)
		}
	}
}

func FuzzParseQuery(f *testing.F) {
	f.Add(`{"filter":{"a":{"input":"i"}},"group_by":[{"field":"a","by":"week"}],"measures":[{"op":"sum","field":"b"}],"sort":["-a"],"limit":3}`)
	f.Add(`{"fields":["a","b"],"sort":["a"]}`)
	f.Add(`{"group_by":[{"field":"a"},null,[]],"limit":1e400}`)
	f.Add("\xef\xbb\xbf{}")
	f.Fuzz(func(t *testing.T, text string) {
		var errs fault.List
		q := reports.ParseQuery([]byte(text), &errs)
		def := q.Definition(&fault.List{})
		if len(errs) > 0 {
			return
		}
		if len(def.Groups) > reports.MaxGroups || len(def.Measures) > reports.MaxMeasures || len(def.Fields) > reports.MaxFields ||
			def.Limit < 1 || def.Limit > reports.MaxRows {
			t.Fatalf("%q was taken as %+v", text, def)
		}
		raw, err := json.Marshal(q)
		if err != nil {
			t.Fatalf("%q was taken but cannot be written: %v", text, err)
		}
		var again reports.Query
		if err := json.Unmarshal(raw, &again); err != nil {
			t.Fatal(err)
		}
		if want, got := fmt.Sprintf("%+v", def), fmt.Sprintf("%+v", again.Definition(&errs)); want != got || len(errs) > 0 {
			t.Fatalf("%q came back as %s: %v", text, raw, errs)
		}
	})
}
