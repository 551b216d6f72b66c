package reports

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"unicode/utf8"

	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/operation/export"
	"tenantry/tenants"
)

// Bounds of the rows that maintainers of a report read.
const (
	previewRows = 50
	exportPage  = 1_000   // rows read at once
	maxExported = 100_000 // rows of a list without a limit
)

// Rows is a page of a report's rows for its maintainers.
type Rows struct {
	Columns   []Column `json:"columns" doc:"The columns, in order"`
	Page      int64    `json:"page"`
	Pages     int64    `json:"pages"`
	Count     int64    `json:"count" doc:"Number of rows of the report, within the limit of its query"`
	Results   [][]any  `json:"results" doc:"The rows; each has one value for every column, null if there is none"`
	Truncated bool     `json:"truncated" doc:"Whether rows were left out because of the limit, or because an answer is at most 4 MiB"`
	Total     int      `json:"total" doc:"For a list, the number of all matching records, even beyond the limit; for groups, the number of groups answered"`
}

// rowsInput says which rows of a report are read.
type rowsInput struct {
	operation.Paging
	Whole bool `json:"whole" default:"false" doc:"true: instead of a page, all rows of the query, as in the shared report, up to 4 MiB."`
}

// window returns the part of the rows that is read.
func (p rowsInput) window() window {
	if p.Whole {
		return window{}
	}
	return window{p.Offset(), p.Limit()}
}

// planFor binds a report for its maintainers: to the data that both they and the readers may see. They may set every
// input, even locked ones; conditions on an input without a value are left out.
func (m *Module) planFor(ctx context.Context, c *operation.Call, r *Report) (plan Plan, err error) {
	var errs fault.List
	given := readerParams(c.Query.Tree("params"), &errs)
	if err := errs.Err(); err != nil {
		return plan, err
	}
	free := *r
	free.Input = maps.Clone(r.Input)
	for name, in := range free.Input {
		in.Rule = Editable
		free.Input[name] = in
	}
	inputs, err := resolveInputs(&free, &free, nil, given)
	if err != nil {
		return plan, err
	}
	err = m.timed(ctx, func(run context.Context) (err error) {
		plan, err = m.bind(run, c.Tenant, &bundle{root: r, scope: c.Scope, prefetched: &prefetched{}}, &free, inputs)
		return err
	})
	return plan, err
}

// part runs a part of a plan.
func (m *Module) part(ctx context.Context, plan Plan, part window) (data Data, err error) {
	plan.window = part
	err = m.timed(ctx, func(run context.Context) (err error) {
		data, err = plan.Run(run)
		return err
	})
	return data, err
}

func (m *Module) rows(ctx context.Context, c *operation.Call, r *Report, in rowsInput) (*Rows, error) {
	plan, err := m.planFor(ctx, c, r)
	if err != nil {
		return nil, err
	}
	plan.countAhead = true
	data, err := m.part(ctx, plan, in.window())
	count := int64(min(data.Total, plan.limit))
	out := &Rows{
		Columns: data.Columns, Page: in.Page, Pages: in.Pages(count), Count: count, Total: data.Total,
		Results: data.Rows, Truncated: data.Truncated,
	}
	if in.Whole {
		out.Page, out.Pages = 1, min(count, 1)
	}
	return out, err
}

// export answers all rows of the report.
func (m *Module) export(ctx context.Context, c *operation.Call, r *Report, in export.Input) (operation.Result, error) {
	if !r.Exportable {
		return operation.Result{}, fault.One("exportable", fault.Forbidden, "the report is set not to be exportable")
	}
	plan, err := m.planFor(ctx, c, r)
	if err != nil {
		return operation.Result{}, err
	}
	return m.exported(ctx, c, in, r.Title, plan)
}

// exportShared answers all rows of a shared report to its readers.
func (m *Module) exportShared(ctx context.Context, c *operation.Call, in export.Input) (operation.Result, error) {
	ask, err := sharedRequest(c)
	if err != nil {
		return operation.Result{}, err
	}
	it, err := m.admit(ctx, c.Tenant, ask)
	if err != nil {
		return operation.Result{}, err
	}
	c.Recheck = m.recheck(ask, it, true)
	c.Note(m.Reports.Name, it.selected.ID)
	if !it.selected.Exportable {
		return operation.Result{}, fault.One("exportable", fault.Forbidden, "the report is set not to be exportable")
	}
	if _, own := it.provider.(storeProvider); !own {
		f, err := m.run(ctx, c.Tenant, it.bundle, it.selected, it.inputs, it.provider, true)
		if err != nil {
			return operation.Result{}, err
		}
		return answerRows(
			c, in, it.selected.Title, f.columns,
			func(_ context.Context, write func([][]any) error) error { return write(f.data.Rows) },
		)
	}
	var plan Plan
	if err := m.timed(ctx, func(run context.Context) (err error) {
		plan, err = m.bind(run, c.Tenant, it.bundle, it.selected, it.inputs)
		return err
	}); err != nil {
		return operation.Result{}, err
	}
	return m.exported(ctx, c, in, it.selected.Title, plan)
}

// exported answers all rows of a plan.
func (m *Module) exported(
	ctx context.Context, c *operation.Call, in export.Input, title string, plan Plan,
) (operation.Result, error) {
	rows, err := m.whole(ctx, plan)
	if err != nil {
		return operation.Result{}, err
	}
	return answerRows(c, in, title, plan.Columns, rows)
}

// rowsReader calls a function with the rows of a report, part by part.
type rowsReader func(context.Context, func([][]any) error) error

// whole returns a reader of all rows of a plan, of which the first part has been read. The error is a 422 if there are
// more than an export may have.
func (m *Module) whole(ctx context.Context, plan Plan) (rowsReader, error) {
	plan.whole = true
	at := window{most: exportPage}
	if plan.list == nil {
		at.most = 0
	}
	if plan.countAhead = !plan.limited; plan.countAhead {
		plan.limit = map[bool]int{true: MaxRows, false: maxExported}[plan.list == nil]
	}
	data, err := m.part(ctx, plan, at)
	if err != nil {
		return nil, err
	}
	if !plan.limited && (data.Total > plan.limit || plan.list == nil && data.Truncated && !data.cut) {
		return nil, fault.One(
			"query", fault.Length, "the report has more than %d rows: give its query a filter or a limit", plan.limit,
		)
	}
	if plan.list == nil && data.cut { // groups cannot be read in parts
		return nil, fault.One(
			"query", fault.Length, "the groups of the report take more than %d MiB: give its query a filter or a limit",
			MaxBytes>>20,
		)
	}
	plan.countAhead = false
	return func(ctx context.Context, write func([][]any) error) error {
		for {
			if err := write(data.Rows); err != nil {
				return err
			}
			if at.from += data.read; at.most == 0 || data.read < at.most && !data.cut || at.from >= plan.limit {
				return nil
			}
			var err error
			if data, err = m.part(ctx, plan, at); err != nil {
				return err
			}
		}
	}, nil
}

// answerRows answers the rows that rows writes, part by part.
func answerRows(
	c *operation.Call, in export.Input, title string, columns []Column, rows rowsReader,
) (operation.Result, error) {
	names := namesOf(columns)
	return export.Answer(c, in, title, names, func(ctx context.Context, w *export.Writer) error {
		return rows.write(ctx, w, names)
	})
}

func namesOf(columns []Column) []string {
	names := make([]string, len(columns))
	for i, column := range columns {
		names[i] = column.Name
	}
	return names
}

// write writes the rows, whose columns have those names.
func (rows rowsReader) write(ctx context.Context, w *export.Writer, names []string) error {
	return rows(ctx, func(part [][]any) error {
		for _, row := range part {
			line := make(map[string]any, len(row))
			for i, v := range row {
				line[names[i]] = v
			}
			if err := w.Row(line, func() []any { return row }); err != nil {
				return err
			}
		}
		return nil
	})
}

// duplicate stores a copy of a report with an address of its own.
func (m *Module) duplicate(ctx context.Context, c *operation.Call, r *Report, _ struct{}) (*Configuration, error) {
	other := *r
	other.Meta, other.PID, other.Title = store.Meta{}, "", "Copy of "+r.Title
	for utf8.RuneCountInString(other.Title) > maxTitle {
		_, last := utf8.DecodeLastRuneInString(other.Title)
		other.Title = other.Title[:len(other.Title)-last]
	}
	var errs fault.List
	err := m.before(ctx, c, nil, &other, nil)
	if err == nil {
		err = m.checkData(ctx, c, &other, nil, &errs)
	}
	if err = cmp.Or(err, errs.Err()); err != nil {
		return nil, err
	}
	m.Reports.Fill(&other)
	b := c.Workspace.Batch()
	if err = m.Reports.In(c.Workspace).StageInsert(b, &other); err != nil {
		return nil, err
	}
	var shown *Configuration
	_, err = c.Commit(ctx, b, func(ctx context.Context) (operation.Result, error) {
		c.Note(m.Reports.Name, other.ID)
		all, err := m.shown(ctx, c, &other)
		if err != nil {
			return operation.Result{}, err
		}
		c.Revision, shown = other.Rev, all[0]
		return operation.Result{Data: shown}, nil
	})
	return shown, err
}

// runProblem explains to the maintainers of a report why it cannot be run.
func runProblem(p *operation.Problem) *operation.Problem {
	var wrong *fault.Error
	switch {
	case errors.Is(p, ErrTooLong):
		return later(p)
	case errors.Is(p, ErrSource):
		return operation.ProblemOf(fault.One("source", fault.Unknown, "source must name an existing source of reports of the class"))
	case errors.Is(p, ErrNotShowable) && errors.As(p.Err, &wrong):
		return operation.ProblemOf(wrong)
	}
	return p
}

// rowsRows returns the operations on the rows of reports, and the one that duplicates a report.
func (m *Module) rowsRows() []operation.Row {
	params := operation.Param{
		Name: "params", In: operation.InQuery, Shape: operation.Tree, Document: "inputs", Ask: operation.Ask{Kind: declare.Inputs}, Example: "params[country]=DE",
		Description: "Values of inputs, locked ones too: params[<name>]=<value>. An empty value leaves out the conditions on the input.",
	}
	unfit := operation.Failure{
		Code:    http.StatusUnprocessableEntity,
		Message: "Validation failed: params[none] is not an input that readers of this report may set",
		When:    "a parameter has an unacceptable value, or the report no longer fits the organization's data; every problem is named",
	}
	slow := operation.Failure{
		Code: http.StatusServiceUnavailable, Message: "The report took too long: it was stopped after 5s",
		When: "the run was stopped at its time limit",
	}
	shown := Rows{
		Columns: []Column{
			{"country", "Country", TypeText}, {"count", "Count", TypeNumber},
		}, Page: 1, Pages: 1, Count: 2, Total: 2, Results: [][]any{{"DE", 120}, {"FR", 80}},
	}
	run := on(operation.Row{
		Name: "reports.run", Method: http.MethodGet, Path: "/api/custom-reports/{id}/run",
		Policy: operation.Policy{
			Kinds: operation.ServerKeys, Rule: operation.Needs(tenants.ManageReports),
			Weight: operation.Heavy,
		},
		Response: operation.Response{
			Message: "Custom Report run", Example: shown,
			Failures: []operation.Failure{unfit, slow}, Failure: runProblem,
		},
		Docs: operation.Docs{
			Summary: "Run a custom report",
			Description: "Answers a page of the report's rows, from records that both the caller and the report's teams may " +
				"see. Inputs that are not given have the report's own values.",
		},
	}, m.byID, m.rows)
	run.Params = append(run.Params, params)
	exported := operation.Row{
		Name: "reports.export", Path: "/api/custom-reports/{id}/export",
		Policy: operation.Policy{Kinds: operation.ServerKeys, Rule: operation.Needs(tenants.ManageReports)},
		Response: operation.Response{
			Message: "Custom Report found",
			Data:    map[string]any{}, Example: map[string]any{"country": "DE", "count": 120},
			Failures: []operation.Failure{
				unfit, slow,
				{
					Code:    http.StatusUnprocessableEntity,
					Message: "Validation failed: the report is set not to be exportable",
					When:    "the report is not exportable, or has more rows than an export may have",
				},
			},
			Failure: runProblem,
		},
		Docs: operation.Docs{
			Summary: "Export the rows of a custom report",
			Description: "Writes all rows of the report, or up to 100,000 of a list without a limit. Rows are read page by " +
				"page: if records are created, changed or deleted meanwhile, others can be missing or appear twice.",
		},
	}
	export.Row(&exported)
	exported = on(exported, m.byID, m.export)
	exported.Params = append(exported.Params, params)
	return []operation.Row{run, m.previewRow(shown, unfit, slow), exported, on(operation.Row{
		Name: "reports.duplicate", Method: http.MethodPost, Path: "/api/custom-reports/{id}/duplicate",
		Policy: operation.Policy{
			Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageReports),
			Audit: operation.AuditAlways,
		},
		Response: operation.Response{
			Message: "Custom Report duplicated", Example: m.getOperation().Example,
			Failures: []operation.Failure{{
				Code:    http.StatusUnprocessableEntity,
				Message: "Validation failed: source must name an existing source of reports of class Records",
				When:    "the report no longer fits the organization's data, or shows more than the caller's teams",
			}},
		},
		Target: operation.Target{Action: operation.DuplicateAction, Revised: true},
		Docs: operation.Docs{
			Summary: "Duplicate a custom report", Verb: "Duplicate",
			Description: "Creates a copy of the report with an address of its own and the title Copy of …. Share tokens are " +
				"not copied. Answers the new report.",
		},
	}, m.byID, m.duplicate)}
}

// previewRow returns the row that reads and checks a new report and runs it, but stores nothing.
func (m *Module) previewRow(shown Rows, failures ...operation.Failure) operation.Row {
	row := crud.Create(m.Reports.Resource, crud.Options{
		Path: "/api/custom-reports/preview", Name: "reports", Things: "Custom Reports", Tag: tag,
		Read: operation.Needs(tenants.ManageReports), Write: operation.Needs(tenants.ManageReports),
		Check: crud.Check(m.checkData), Before: crud.Before(m.before), Example: shown,
		Keeper: crud.Keep(crud.Keeper[Report]{Insert: func(_ context.Context, _ *operation.Call, r *Report) (*Report, error) { return r, nil }}),
		Show: crud.Show(func(ctx context.Context, c *operation.Call, all []*Report) ([]any, error) {
			var errs fault.List
			in := rowsInput{operation.Paging{Page: 1, PerPage: previewRows}, c.Query.Bool(&errs, "whole", false)}
			if err := errs.Err(); err != nil {
				return nil, err
			}
			rows, err := m.rows(ctx, c, all[0], in)
			if err != nil {
				return nil, err
			}
			return []any{*rows}, nil
		}),
		Create: crud.Action{
			Policy: operation.Policy{Reads: true, Weight: operation.Heavy},
			Request: operation.Request{Params: []operation.Param{{
				Name: "whole", In: operation.InQuery, Shape: operation.Boolean, Default: "false",
				Description: "true: all rows of the query, as in the shared report, up to 4 MiB.",
			}}},
			Response: operation.Response{Message: "Custom Report run", Failure: runProblem},
			Docs: operation.Docs{
				Summary: "Run a custom report that is not stored", Verb: "Preview",
				Description: "Takes the body of a new report, checks it, and answers its first 50 rows or, with whole=true, all " +
					"rows, with the values of its inputs. Nothing is stored.",
			},
			Types: bodyTypes(),
		},
	})
	row.Name, row.Action, row.Revised, row.Audit = "reports.preview", operation.OtherAction, false, operation.NoAudit
	row.Failures = append(row.Failures[:1], failures...) // nothing is stored, so there are no duplicates
	return row
}
