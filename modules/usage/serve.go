package usage

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// Sum is the usage in the units of an answer.
type Sum struct {
	Requests int64 `json:"requests" doc:"Number of requests."`
	Refused  int64 `json:"refused" doc:"Number of refused requests: 403, or 429 over a limit."`
	StoreMS  int64 `json:"store_ms" doc:"Total duration of calls to the store in milliseconds."`
	Sent     int64 `json:"sent_bytes" doc:"Total size of the bodies sent."`
}

func sum(c Counts) Sum { return Sum{c.Requests, c.Refused, c.Micros / 1000, c.Sent} }

// OperationUsage is the usage of one operation.
type OperationUsage struct {
	Operation string `json:"operation" doc:"Name of the operation; page for pages."`
	Sum
}

// HourUsage is the usage of one hour.
type HourUsage struct {
	Hour string `json:"hour" doc:"The hour, in UTC: 00 to 23."`
	Sum
}

// MinuteUsage is the usage of five minutes.
type MinuteUsage struct {
	Minute string `json:"minute" doc:"When they began, in UTC: 00:00 to 23:55."`
	Sum
}

// Answer is the usage of one day.
type Answer struct {
	Day string `json:"day" doc:"The day, in UTC."`
	Sum
	Documents  int64            `json:"documents" doc:"Number of documents of the organization, counted once an hour while it is used."`
	Bytes      *int64           `json:"bytes" doc:"Their size; null if the engine does not report it."`
	Operations []OperationUsage `json:"operations" doc:"The same by operation, in order of their names."`
	Hours      []HourUsage      `json:"hours" doc:"The same by hour; empty if only one operation is counted, and for old days without hours."`
	Minutes    []MinuteUsage    `json:"minutes" doc:"The same by five minutes, within the last hour of the day with requests; empty when hours are."`
}

// Kept returns what is stored. It is not part of exports, because it is the history of this organization.
func (m *Meter) Kept() []record.Kept { return []record.Kept{m.kind.Kind} }

// Operations returns the rows.
func (m *Meter) Operations() []operation.Row {
	size := int64(1_368_064)
	list := crud.List(m.kind.Resource, crud.Options{
		Path: "/api/usage", Things: "Usage Days", Tag: "Usage", Read: operation.Needs(tenants.ViewAudit).Unlimited(), Sort: "-day",
		Show: crud.ShowEach(show),
		Example: Answer{
			"2026-11-22", Sum{120, 2, 340, 51_200}, 4711, &size,
			[]OperationUsage{{"reports.get", Sum{120, 2, 340, 51_200}}}, []HourUsage{{"13", Sum{120, 2, 340, 51_200}}},
			[]MinuteUsage{{"13:05", Sum{120, 2, 340, 51_200}}},
		},
		List: crud.Action{
			Around: crud.Only(m.between),
			Docs:   operation.Docs{Summary: "List the usage of the organization by day", Title: "Usage", Over: "day"},
			Request: operation.Request{Params: []operation.Param{
				{
					Name: "from", In: operation.InQuery, Shape: operation.Text, Description: "The first day.",
					Example: "2026-11-01",
				},
				{
					Name: "to", In: operation.InQuery, Shape: operation.Text, Description: "The last day.",
					Example: "2026-11-30",
				},
				{
					Name: "operation", In: operation.InQuery, Shape: operation.Text,
					Description: "Counts only this operation.", Ask: operation.Ask{Label: "Counts only"},
					Example: "reports.get",
				},
			}},
			Response: operation.Response{Failures: []operation.Failure{
				{
					Code:    http.StatusUnprocessableEntity,
					Message: "Validation failed: from must be a day like 2026-11-22", When: "a day cannot be read",
				},
			}},
		},
	})
	return []operation.Row{list, m.explain()}
}

// between returns the filter for the requested days, within those that are kept.
func (m *Meter) between(_ context.Context, c *operation.Call) (store.Filter, error) {
	var faults fault.List
	all := []store.Filter{store.Where(store.F("day"), store.OpGte, oldest(m.now()))}
	for _, end := range []struct {
		name string
		op   store.Op
	}{{"from", store.OpGte}, {"to", store.OpLte}} {
		text := c.Query.Text(end.name)
		if !c.Query.Has(end.name) {
			continue
		}
		if _, err := time.Parse(time.DateOnly, text); err != nil {
			faults.Add(end.name, fault.Format, "%s must be a day like 2026-11-22%s", end.name, texts.NoSuchTime(text))
		}
		all = append(all, store.Where(store.F("day"), end.op, text))
	}
	if name := c.Query.Text("operation"); c.Query.Has("operation") && !slices.ContainsFunc(m.operations, func(op operation.Row) bool { return op.Name == name }) {
		faults.Add("operation", fault.Unknown, "there is no operation %q", texts.Clip(name))
	}
	return store.All(all...), faults.Err()
}

// show answers a day: all operations, or the one that the caller names.
func show(c *operation.Call, d *Day) Answer {
	a, total := Answer{
		Day: d.Day, Documents: d.Documents, Operations: []OperationUsage{}, Hours: []HourUsage{},
		Minutes: []MinuteUsage{},
	}, Counts{}
	if d.Bytes > 0 {
		a.Bytes = &d.Bytes
	}
	for _, name := range slices.Sorted(maps.Keys(d.Operations)) {
		if c.Query.Has("operation") && name != c.Query.Text("operation") {
			continue
		}
		total.add(d.Operations[name])
		a.Operations = append(a.Operations, OperationUsage{name, sum(d.Operations[name])})
	}
	if !c.Query.Has("operation") { // hours and minutes count all operations together
		for _, hour := range slices.Sorted(maps.Keys(d.Hours)) {
			a.Hours = append(a.Hours, HourUsage{hour, sum(d.Hours[hour])})
		}
		for _, minute := range slices.Sorted(maps.Keys(d.Minutes)) {
			a.Minutes = append(a.Minutes, MinuteUsage{minute, sum(d.Minutes[minute])})
		}
	}
	a.Sum = sum(total)
	return a
}
