package reports

import (
	"context"
	"math"
	"slices"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/internal/together"
	"tenantry/tenants"
)

// Data is the data that a report shows.
type Data struct {
	Columns []Column `json:"columns" doc:"The columns, in order"`
	Rows    [][]any  `json:"rows" doc:"The rows; each has one value for every column, null if there is none"`
	// Total counts, for a list, all records that match, even beyond the limit; for groups, the groups answered.
	Total     int  `json:"total" doc:"For a list, the number of all matching records; for groups, the number of groups answered"`
	Truncated bool `json:"truncated" doc:"Whether rows were left out because of the limit, or because the rows of a run are at most 4 MiB"`

	cut  bool // rows were cut at the bound of bytes
	read int  // records that the rows were read from
}

// RunRequest is the request to a Provider.
type RunRequest struct {
	Tenant *tenants.Tenant
	Report *Report
	Inputs map[string]string // the values of inputs that have one, locked ones included
	Plan   Plan              // the report bound to the organization's own store
}

// Provider computes a report's data. Implementations must be safe for concurrent use, honour the context's deadline
// and answer the plan's columns.
type Provider interface {
	Data(ctx context.Context, r RunRequest) (Data, error)
}

// BuiltIn is the name of the provider that queries the organization's own store.
const BuiltIn = "store"

type storeProvider struct{}

func (storeProvider) Data(ctx context.Context, r RunRequest) (Data, error) { return r.Plan.Run(ctx) }

// Run queries the store. Errors are those of store.Table.
func (p *Plan) Run(ctx context.Context) (Data, error) {
	data := Data{Columns: slices.Clone(p.Columns)}
	var err error
	if p.list != nil {
		err = p.runList(ctx, &data)
	} else {
		err = p.runAggregation(ctx, &data)
	}
	if err != nil {
		return Data{}, err
	}
	if data.Rows == nil {
		data.Rows = [][]any{}
	}
	for _, row := range data.Rows {
		for i := range row {
			row[i] = p.present(i, row[i])
		}
	}
	return data, nil
}

func (p *Plan) runList(ctx context.Context, data *Data) error {
	most := p.limit - p.from
	if p.most > 0 {
		most = min(most, p.most)
	}
	var n int64
	count := func() (err error) {
		n, err = p.table.Count(ctx, p.where)
		return err
	}
	questions := []func() error{func() (err error) {
		if most > 0 { // otherwise the page is beyond the end
			data.Rows, data.cut, err = p.table.Select(ctx, p.list, store.Query{
				Filter: p.where, Sort: p.orders, Limit: most, Offset: p.from, LeaveOut: !p.whole, Bytes: p.bytes(),
			})
		}
		return err
	}}
	var countErr error
	if p.countAhead {
		questions = append(questions, func() error {
			countErr = count()
			return nil // it matters only if the list was cut
		})
	}
	if err := together.Do(true, questions...); err != nil {
		return err
	}
	read := len(data.Rows)
	data.read = read
	if read > 0 {
		data.Total = p.from + read
	}
	data.Rows = slices.DeleteFunc(data.Rows, func(row []any) bool { return row == nil }) // unreadable records
	if read < most && p.from == 0 && !data.cut {
		return nil
	}
	if !p.countAhead && p.most == 0 {
		countErr = count()
	}
	if countErr != nil {
		return countErr
	}
	data.Total = max(int(n), data.Total)
	data.Truncated = data.Total > p.limit || data.cut
	return nil
}

// bytes is the bound of a run, or of each part if all rows are read in parts.
func (p *Plan) bytes() int64 {
	if p.whole && p.list != nil {
		return store.BatchBytes
	}
	return MaxBytes
}

func (p *Plan) runAggregation(ctx context.Context, data *Data) error {
	// One row more than the limit shows whether there are more. The store's own limit does not allow that, so a full
	// answer counts as cut there.
	ask := min(p.limit+1, store.MaxLimit)
	rows, cut, err := p.table.Aggregate(ctx, store.Aggregation{
		Filter: p.where, Groups: p.groups, Measures: p.measure, Sort: p.ranks, Limit: ask, Bytes: p.bytes(),
	})
	if err != nil {
		return err
	}
	data.cut, data.Truncated = cut, len(rows) >= ask || cut
	data.Rows = rows[:min(len(rows), p.limit)]
	data.Total = len(data.Rows)
	if p.most > 0 {
		data.Rows = data.Rows[min(p.from, data.Total):min(p.from+p.most, data.Total)]
	}
	return nil
}

// present turns a value of an engine into a value of an answer.
func (p *Plan) present(column int, v any) any {
	switch x := v.(type) {
	case int64:
		if p.instant[column] {
			return texts.Time(x)
		}
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) { // JSON has no such numbers
			return nil
		}
	}
	return v
}
