package reports_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// crowd returns 300 people: countries in turn, one a day from 1 January 2024.
func crowd() []*person {
	countries := []string{"DE", "FR", "US", ""}
	start := time.Date(2024, 1, 1, 12, 0, 0, 0, time.UTC)
	var people []*person
	for i := range 300 {
		p := &person{Country: countries[i%4], Status: "active", Fields: map[string]any{"age": i % 60, "vip": i%10 == 0}}
		if i%3 == 0 {
			p.Status = "lapsed"
		}
		if i%2 == 0 {
			p.Fields["joined"] = start.AddDate(0, 0, i).Format(time.DateOnly)
		}
		p.CreatedAt = start.AddDate(0, 0, i).UnixMilli()
		p.UpdatedAt = p.CreatedAt
		people = append(people, p)
	}
	return people
}

func TestGroupedReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.addPeople(crowd()...)
	tests := []struct {
		name, query string
		columns     []string // name:type
		rows        string   // JSON of the first rows
		total       int
		truncated   bool
	}{
		{
			"counts by country, the most first", `{"filter":{"status":"lapsed"},"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["-count","country"]}`,
			[]string{"country:text", "count:number"}, `[[null,25],["DE",25],["FR",25],["US",25]]`, 4, false,
		},
		{
			"months", `{"group_by":[{"field":"created_at","by":"month"}],"measures":[{"op":"count"},{"op":"avg","field":"age"}],"limit":2}`,
			[]string{"created_at:text", "count:number", "avg_age:number"}, `[["2024-01",31,15],["2024-02",29,45]]`, 2, true,
		},
		{
			"quarters of a date field, missing ones first", `{"group_by":[{"field":"joined","by":"quarter"}],"measures":[{"op":"count"}]}`,
			[]string{"joined:text", "count:number"}, `[[null,150],["2024-Q1",46],["2024-Q2",45],["2024-Q3",46],["2024-Q4",13]]`, 5, false,
		},
		{
			"days are dates", `{"filter":{"created_at":{"lt":"2024-01-02"}},"group_by":[{"field":"created_at","by":"day"}],"measures":[{"op":"count"}]}`,
			[]string{"created_at:date", "count:number"}, `[["2024-01-01",1]]`, 1, false,
		},
		{
			"one row of measures", `{"measures":[{"op":"count"},{"op":"min","field":"created_at"},{"op":"max","field":"age"},{"op":"sum","field":"age"},{"op":"distinct","field":"country"}]}`,
			[]string{"count:number", "min_created_at:datetime", "max_age:number", "sum_age:number", "distinct_country:number"},
			`[[300,"2024-01-01T12:00:00.000Z",59,8850,3]]`, 1, false,
		},
		{
			"groups without measures", `{"group_by":[{"field":"status"}],"sort":["-status"]}`,
			[]string{"status:text"}, `[["lapsed"],["active"]]`, 2, false,
		},
		{
			"a list of rows", `{"filter":{"country":"US","vip":true},"fields":["country","created_at","age","joined"],"sort":["-created_at"],"limit":2}`,
			[]string{"country:text", "created_at:datetime", "age:number", "joined:date"},
			`[["US","2024-10-17T12:00:00.000Z",50,"2024-10-17"],["US","2024-09-27T12:00:00.000Z",30,"2024-09-27"]]`, 15, true,
		},
		{
			"a limit that is not reached", `{"filter":{"country":"US","vip":true},"fields":["age"],"limit":15}`,
			[]string{"age:number"}, `[[10],[30],[50]]`, 15, false,
		},
		{
			"as many groups as the limit", `{"group_by":[{"field":"status"}],"limit":2}`,
			[]string{"status:text"}, `[["active"],["lapsed"]]`, 2, false,
		},
		{"nothing", `{"filter":{"country":"XX"},"fields":["age"]}`, []string{"age:number"}, `[]`, 0, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := w.add(`{"class":"Contacts","query":` + test.query + `}`)
			a := w.open(r, "data=1")
			s, ok := a.Data.(*reports.Shared)
			if !ok {
				t.Fatalf("got %v, want ok", a.raw)
			}
			var columns []string
			for _, c := range s.Data.Columns {
				columns = append(columns, c.Name+":"+c.Type)
			}
			if diff := cmp.Diff(test.columns, columns); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
			var want [][]any
			if err := json.Unmarshal([]byte(test.rows), &want); err != nil {
				t.Fatal(err)
			}
			rows := a.rows(t)
			if diff := cmp.Diff(want, rows[:min(len(want), len(rows))]); diff != "" {
				t.Errorf("rows (-want +got):\n%s", diff)
			}
			if s.Data.Total != test.total || s.Data.Truncated != test.truncated {
				t.Errorf("total %d, truncated %t; want %d, %t", s.Data.Total, s.Data.Truncated, test.total, test.truncated)
			}
			if len(s.Fields) != len(test.columns) {
				t.Errorf("fields are %v", s.Fields)
			}
		})
	}
}

func TestRecordsOfOneObjectOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	rows := w.rows.In(w.tenant.Workspace())
	for i := range 10 {
		object := []string{"orders", "invoices"}[i%2]
		if err := rows.Insert(t.Context(), &row{Object: object, Values: map[string]any{"amount": i + 1, "sku": fmt.Sprint("S", i)}}); err != nil {
			t.Fatal(err)
		}
	}
	r := w.add(`{"class":"Records","source":"orders","query":{"measures":[{"op":"count"},{"op":"sum","field":"amount"}]}}`)
	if diff := cmp.Diff([][]any{{5.0, 25.0}}, w.open(r, "data=1").rows(t)); diff != "" {
		t.Errorf("difference:\n%s", diff)
	}
	gone := w.add(`{"class":"Records","source":"gone","query":{"measures":[{"op":"count"}]}}`)
	w.open(gone, "").failed(t, 200, "The report cannot be shown")
}

func TestEditableInputs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	w.addPeople(crowd()...)
	r := w.add(`{"class":"Contacts","input":{
		"country":{"rule":"editable","value":"DE","label":"Land","choices":["DE","FR"]},"older":{"rule":"editable","type":"number"},"plain":{"rule":"editable"}},
		"query":{"filter":{"country":{"input":"country"},"age":{"gte":{"input":"older"},"ne":{"input":"plain"}}},"measures":[{"op":"count"}]}}`)
	count := func(query string) float64 {
		t.Helper()
		n, _ := w.open(r, "data=1&"+query).rows(t)[0][0].(float64)
		return n
	}
	for query, want := range map[string]float64{
		"":                                    75,
		"params[country]=FR":                  75,
		"params[country]=":                    300, // no value leaves the condition out
		"params[country]=DE&params[older]=56": 5,
		"params%5Bcountry%5D=&params%5Bolder%5D=0": 300,
	} {
		if got := count(query); got != want {
			t.Errorf("%s counts %v, want %v", query, got, want)
		}
	}
	w.open(r, "params[older]=old").failed(t, 422, "params[older] must be a number")
	w.open(r, "params[country]=IT").failed(t, 422, "params[country] must be one of the choices of the input")
	w.open(r, "params[plain]=old").failed(t, 422, "a value in params does not fit")
	w.open(r, "params[country]=FR&params[country]=DE").failed(t, 422, "given twice")
	w.open(r, "params=FR").failed(t, 422, "params[<name>]=<value>")
	w.open(r, "params[country][]=FR").failed(t, 422, "params[<name>]=<value>")

	s, _ := w.open(r, "params[country]=FR").Data.(*reports.Shared)
	if s.Data != nil {
		t.Error("rows are there without data=1")
	}
	if want := map[string]string{"country": "FR", "older": "", "plain": ""}; !cmp.Equal(want, s.Params) {
		t.Errorf("mismatch (-want +got):\n%s", cmp.Diff(want, s.Params))
	}
	if want := (reports.Control{Label: "Land", Type: "text", Value: "DE", Rule: "editable", Choices: []string{"DE", "FR"}}); !cmp.Equal(want, s.Controls["country"]) {
		t.Errorf("control is %+v", s.Controls["country"])
	}
}

func TestSecretFieldsAppearNowhere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	for name, query := range map[string]string{
		"filter":  `{"filter":{"ssn":"1"}}`,
		"or":      `{"filter":{"or":[{"ssn":{"exists":true}}]}}`,
		"group":   `{"group_by":[{"field":"ssn"}]}`,
		"measure": `{"measures":[{"op":"distinct","field":"ssn"}]}`,
		"fields":  `{"fields":["ssn"]}`,
		"sort":    `{"sort":["ssn"]}`,
	} {
		r := w.add(`{"class":"Contacts","query":` + query + `}`)
		w.open(r, "data=1").failed(t, 200, "The report cannot be shown")
		var errs fault.List
		if err := w.module.Check(t.Context(), w.tenant, w.tenant.Workspace(), r, &errs); err != nil {
			t.Fatal(err)
		}
		if len(errs) != 1 || errs[0].Code != "forbidden" {
			t.Errorf("%s: Check found %v", name, errs)
		}
	}
	all := w.add(`{"class":"Contacts","query":{}}`)
	s, _ := w.open(all, "data=1").Data.(*reports.Shared)
	if slices.ContainsFunc(s.Data.Columns, func(c reports.Column) bool { return c.Name == "ssn" || c.Name == "teams" }) {
		t.Errorf("the columns are %v", s.Data.Columns)
	}
}

func TestCheckNamesEveryProblem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	r := w.add(`{"class":"Contacts","query":{"filter":{"nope":1,"age":"x"},"group_by":[{"field":"tags"},{"field":"country","by":"day"}],
		"measures":[{"op":"avg","field":"country"},{"op":"min","field":"vip"},{"op":"distinct","field":"tags"}],"sort":["-sum_age"]}}`)
	var errs fault.List
	if err := w.module.Check(t.Context(), w.tenant, w.tenant.Workspace(), r, &errs); err != nil {
		t.Fatal(err)
	}
	if len(errs) != 8 {
		t.Errorf("%d problems: %v", len(errs), errs)
	}
	errs = nil
	if err := w.module.Check(t.Context(), w.tenant, w.tenant.Workspace(), w.add(`{"class":"Contacts","query":{"fields":["country"],"sort":["tags"]}}`), &errs); err != nil {
		t.Fatal(err)
	}
	if len(errs) != 1 || errs[0].Field != "query.sort" || errs[0].Code != "forbidden" {
		t.Errorf("rows sorted by a list: %v", errs)
	}
}

// slowClass waits for the end of the run.
type slowClass struct{}

func (slowClass) Name() string      { return "Slow" }
func (slowClass) NeedsSource() bool { return false }
func (slowClass) Dataset(ctx context.Context, _ *tenants.Tenant, _ *store.Workspace, _ string) (reports.Dataset, error) {
	<-ctx.Done()
	return reports.Dataset{}, ctx.Err()
}

func TestRunsAreStoppedInTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(_ *world, d *reports.Deps) {
		d.Classes = append(d.Classes, slowClass{})
		d.RunTimeout = 20 * time.Millisecond
	})
	r := w.add(`{"class":"Slow"}`)
	w.open(r, "").failed(t, 200, "The report took too long: it was stopped after 20ms")

	exported := w.add(`{"class":"Slow","exportable":true}`)
	for _, row := range w.module.Operations() {
		late := func(f operation.Failure) bool { return strings.HasPrefix(f.Message, "The report took too long") }
		if row.Method != http.MethodGet || !slices.ContainsFunc(row.Failures, late) {
			continue
		}
		a := w.call(row.Name, map[string]string{"pid": exported.PID, "id": exported.ID}, "", "", keeper())
		a.failed(t, a.code, "The report took too long: it was stopped after 20ms")
		if !slices.ContainsFunc(row.Failures, func(f operation.Failure) bool { return late(f) && f.Code == a.code }) {
			t.Errorf("%s: %d is not what the row says", row.Name, a.code)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := w.module.Open(ctx, w.tenant, reports.SharedRequest{PID: r.PID})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who left is told %v", err)
	}
	patient := newWorld(t, nil, func(_ *world, d *reports.Deps) { d.Classes = append(d.Classes, slowClass{}) })
	r = patient.add(`{"class":"Slow"}`)
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := patient.module.Open(ctx, patient.tenant, reports.SharedRequest{PID: r.PID}); operation.ProblemOf(err).Code != 503 {
		t.Errorf("where the whole call ran out of time it is told %v", err)
	}
}
