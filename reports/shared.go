package reports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
)

// Shared is a report as its readers see it: without actions and locked inputs, and without teams or the organization.
type Shared struct {
	ID           string                 `json:"id" doc:"Identifier of the report"`
	Title        string                 `json:"title"`
	Desc         string                 `json:"desc"`
	Folder       string                 `json:"folder"`
	Parent       string                 `json:"parent"`
	Visual       string                 `json:"visual" doc:"table, number, bar, line, area, pie or heat"`
	Fields       map[string]SharedField `json:"fields" doc:"The columns by name"`
	Controls     map[string]Control     `json:"controls" doc:"The editable inputs by name"`
	ChildReports []ChildReport          `json:"child_reports" doc:"Further reports that can be read at this address"`
	Actions      Nothing                `json:"actions" doc:"Always empty"`
	RowKey       string                 `json:"row_key"`
	Exportable   bool                   `json:"exportable"`
	Shareable    bool                   `json:"shareable"`
	Params       map[string]string      `json:"params" doc:"The effective values of the editable inputs"`
	Data         *Data                  `json:"data,omitempty" doc:"The rows; present with data=1"`
	RetrievedAt  int64                  `json:"retrieved_at" doc:"Unix seconds"`
	VisualProps  map[string]any         `json:"visual_props"`
	Debug        Nothing                `json:"debug" doc:"Always empty"`

	// For pages only, not part of the answer.
	Tabs  []Tab `json:"-"` // all reports at this address, the report of the address first
	Asked Query `json:"-"`

	read reading
}

// SharedField describes a column by its name.
type SharedField struct {
	Title string `json:"title"`
	Type  string `json:"type" doc:"text, number, boolean, date, datetime or list"`
}

// Control is an input that the reader may set.
type Control struct {
	Label   string   `json:"label"`
	Type    string   `json:"type"`
	Value   string   `json:"value" doc:"The value without a choice of the reader"`
	Rule    string   `json:"rule" doc:"Always editable"`
	Choices []string `json:"choices,omitempty" doc:"The allowed values, in addition to none; absent if any value of the type is allowed"`
}

// ChildReport names a report of the same bundle.
type ChildReport struct {
	ID     string `json:"id"`
	Title  string `json:"title"`
	Visual string `json:"visual"`
}

// Tab is one of the reports that can be read at an address.
type Tab struct {
	ID, Title string
	root, of  *Report
}

// Takes reports whether readers may set the input of the report to that value. It is false for a secure report at an
// address that is not secure, because the reader may have no token.
func (t Tab) Takes(input, value string) bool {
	if t.of.Secure && !t.root.Secure {
		return false
	}
	var errs fault.List
	in := inputAt(t.root, t.of, input)
	checkInput(&errs, input, in, value)
	return in.Rule == Editable && len(errs) == 0
}

// Nothing is the empty object.
type Nothing struct{}

// SharedRequest is the request of a reader. All fields but PID are optional.
type SharedRequest struct {
	PID      string
	ReportID string           // a child of the report, or the report itself
	Token    secret.String    // a share token
	Provider string           // a name
	Params   []operation.Pair // params[<name>]=<value>, as operation.Query.Tree gives them
	Data     bool             // with rows
	Teams    []string         // narrows the answer to records of these teams and those without teams
}

// NotFoundProblem is the answer for unknown shared reports, and for unknown organizations.
func NotFoundProblem() *operation.Problem { return operation.Failed("Shared Report not found", nil) }

// bundle is a shared report and the reports that can be read at its address.
type bundle struct {
	root       *Report
	children   []Report
	scope      store.Scope
	prefetched *prefetched
}

// reading is a shared report that a reader has been admitted to.
type reading struct {
	bundle   *bundle
	selected *Report
	inputs   *inputValues
	provider Provider
}

// Open returns a shared report. The reader sees what a caller limited to the report's
// teams would see; without teams, or without the teams feature, that is everything.
//
// Errors: NotFoundProblem; a denial if the token is missing or invalid; a 422 for the reader's own input; a failure if the
// report cannot be shown or takes too long. Other errors mean that this cannot be determined now.
func (m *Module) Open(ctx context.Context, t *tenants.Tenant, r SharedRequest) (Shared, error) {
	it, err := m.admit(ctx, t, r)
	if err != nil {
		return Shared{}, err
	}
	b, selected, inputs := it.bundle, it.selected, it.inputs
	ask := func(ctx context.Context) (found, error) {
		return m.run(ctx, t, b, selected, inputs, it.provider, r.Data)
	}
	var f found
	if r.Data {
		f, err = m.reuse.do(ctx, runKeyOf(t, b, selected, inputs, r.Provider), ask)
	} else {
		f, err = ask(ctx)
	}
	if err != nil {
		return Shared{}, err
	}
	m.remember(t, b.prefetched, selected, f.full)
	s := m.describe(b, selected, inputs, &f)
	s.read = it
	return s, nil
}

// Confirm returns nil if the current state of the organization still admits the reader to s, which Open returned for
// r; the zero Shared stands for an error of Open. Errors: those of Open.
func (m *Module) Confirm(ctx context.Context, t *tenants.Tenant, r SharedRequest, s *Shared) error {
	return m.recheck(r, s.read, false)(ctx, t)
}

// recheck returns the function that admits the reader again, to at least the teams that were read; exports also checks
// that the report is exportable. Errors of the function: those of Open.
func (m *Module) recheck(r SharedRequest, it reading, exports bool) func(context.Context, *tenants.Tenant) error {
	return func(ctx context.Context, t *tenants.Tenant) error {
		now, err := m.admit(ctx, t, r)
		if err == nil && (it.bundle != nil && !now.shows(&it) || exports && !now.selected.Exportable) {
			err = NotFoundProblem()
		}
		return err
	}
}

// admit finds the requested report and checks that the reader may read it. Errors: those of Open.
func (m *Module) admit(ctx context.Context, t *tenants.Tenant, r SharedRequest) (it reading, err error) {
	b, err := m.bundle(ctx, t, r)
	if err != nil {
		return it, err
	}
	var locked map[string]string
	if !r.Token.IsZero() {
		if locked, err = m.verify(ctx, t, b, r.Token.Reveal()); err != nil {
			return it, err
		}
	} else if b.root.Secure {
		return it, operation.Denied("the shared report needs a token")
	}
	selected, ok := b.selectReport(r.ReportID)
	if !ok {
		return it, NotFoundProblem()
	}
	secure := b.root.Secure || selected.Secure
	if secure && r.Token.IsZero() {
		return it, operation.Denied("the shared report needs a token")
	}
	provider, err := m.chooseProvider(t, r.Provider, secure)
	if err != nil {
		return it, err
	}
	var errs fault.List
	given := readerParams(r.Params, &errs)
	if err := errs.Err(); err != nil {
		return it, err
	}
	inputs, err := resolveInputs(b.root, selected, locked, given)
	if err != nil {
		return it, err
	}
	return reading{b, selected, inputs, provider}, nil
}

// shows reports whether a reading covers all teams that another reading of the same report does.
func (r *reading) shows(other *reading) bool {
	own := func(it *reading) store.Scope {
		return store.Scope{All: len(it.selected.Teams) == 0, Teams: it.selected.Teams}
	}
	return r.bundle.scope.Covers(other.bundle.scope) && own(r).Covers(own(other))
}

// bundle finds the report with the pid, in the scope of its own teams and those of the request.
func (m *Module) bundle(ctx context.Context, t *tenants.Tenant, r SharedRequest) (*bundle, error) {
	if !plainText(r.PID) {
		return nil, NotFoundProblem()
	}
	if t.Workspace() == nil { // an unknown host must take as long to answer as an organization without the report
		return nil, cmp.Or[error](t.Absent(ctx), NotFoundProblem())
	}
	a := m.prefetch(ctx, t, &r)
	if errors.Is(a.rootErr, store.ErrNotFound) {
		return nil, NotFoundProblem()
	}
	if a.rootErr != nil {
		return nil, a.rootErr
	}
	b := bundleOf(t, a.root, r.Teams)
	b.prefetched = a
	if !b.sees(a.root) {
		return nil, NotFoundProblem()
	}
	var read bool
	if b.children, read = a.childrenOf(); read {
		return b, nil
	}
	var err error
	b.children, err = m.children(ctx, t, a.root)
	return b, err
}

// bundleOf returns the report, still without its children, in the scope of its readers.
func bundleOf(t *tenants.Tenant, root *Report, requested []string) *bundle {
	reader := tenants.Principal{Teams: root.Teams}
	return &bundle{root: root, scope: reader.Scope(t, requested)}
}

// sees reports whether the report can be read at the bundle's address.
func (b *bundle) sees(r *Report) bool {
	return r.CanShare() && (b.scope.All || len(r.Teams) == 0 ||
		slices.ContainsFunc(r.Teams, func(team string) bool { return slices.Contains(b.scope.Teams, team) }))
}

func (b *bundle) selectReport(id string) (*Report, bool) {
	if id == "" || id == b.root.ID {
		return b.root, true
	}
	for i := range b.children {
		if child := &b.children[i]; child.ID == id && b.sees(child) {
			return child, true
		}
	}
	return nil, false
}

// listed returns the children of the report that can be read at the bundle's address.
func (b *bundle) listed(r *Report) (found []*Report) {
	for i := range b.children {
		if child := &b.children[i]; slices.Contains(r.ChildReports, child.ID) && b.sees(child) {
			found = append(found, child)
		}
	}
	return found
}

func visualOf(r *Report) string { return cmp.Or(r.Visual, "table") }

func (m *Module) chooseProvider(t *tenants.Tenant, name string, secure bool) (Provider, error) {
	if name != "" && secure {
		return nil, fault.One("provider", "forbidden", "provider cannot be chosen for this report")
	}
	p, ok := m.provider(t, name)
	if !ok {
		return nil, fault.One("provider", "unknown", "provider must be the name of one of the organization's report providers")
	}
	return p, nil
}

// found is the result of a run. Readers share it, so it must not be changed.
type found struct {
	columns []Column
	data    *Data // nil: rows were not requested
	full    bool  // a list that was cut at its limit
	at      int64 // Unix seconds
}

// run binds the report and, if rows are requested, reads them.
func (m *Module) run(
	ctx context.Context, t *tenants.Tenant, b *bundle, r *Report, inputs *inputValues, provider Provider, rows bool,
) (found, error) {
	f := found{at: m.deps.Now().Unix()}
	err := m.timed(ctx, func(run context.Context) error {
		plan, err := m.bind(run, t, b, r, inputs)
		if f.columns = plan.Columns; err != nil || !rows {
			return err
		}
		plan.countAhead = b.prefetched.guess.full
		data, err := provider.Data(run, RunRequest{Tenant: t, Report: r, Inputs: inputs.all(), Plan: plan})
		f.data, f.full = &data, plan.list != nil && len(data.Rows) >= plan.limit
		return err
	})
	return f, err
}

// timed calls do with the time limit of a run, and explains its error.
func (m *Module) timed(ctx context.Context, do func(context.Context) error) error {
	run, cancel := context.WithTimeout(ctx, m.deps.RunTimeout)
	defer cancel()
	if err := do(run); err != nil {
		return m.explain(ctx, run, err)
	}
	return nil
}

// bind binds the report to the data that the readers of the bundle see.
func (m *Module) bind(ctx context.Context, t *tenants.Tenant, b *bundle, r *Report, inputs *inputValues) (Plan, error) {
	dataset, read := b.prefetched.datasetOf(r)
	if !read {
		var err error
		if dataset, err = m.dataset(ctx, t, workspaceOf(t, b.scope, r.Teams), r.Class, r.Source); err != nil {
			return Plan{}, fmt.Errorf("report %s: %w", r.ID, err)
		}
	}
	return m.plan(&dataset, r, inputs)
}

// describe returns the answer to one reader.
func (m *Module) describe(b *bundle, r *Report, inputs *inputValues, f *found) Shared {
	s := Shared{
		ID: r.ID, Title: r.Title, Desc: r.Desc, Folder: r.Folder, Parent: r.Parent, Visual: visualOf(r),
		Fields: map[string]SharedField{}, Controls: map[string]Control{}, ChildReports: []ChildReport{},
		RowKey: r.RowKey, Exportable: r.Exportable, Shareable: r.CanShare(), Params: map[string]string{},
		Data: f.data, RetrievedAt: f.at, VisualProps: r.VisualProps,
		Asked: r.Query,
	}
	for _, child := range b.listed(r) {
		s.ChildReports = append(s.ChildReports, ChildReport{child.ID, child.Title, visualOf(child)})
	}
	for _, of := range append([]*Report{b.root}, b.listed(b.root)...) {
		s.Tabs = append(s.Tabs, Tab{of.ID, of.Title, b.root, of})
	}
	if s.VisualProps == nil {
		s.VisualProps = map[string]any{}
	}
	for _, c := range f.columns {
		s.Fields[c.Name] = SharedField{c.Title, c.Type}
	}
	for name, in := range inputs.rules {
		if in.Rule == Editable {
			s.Controls[name] = Control{
				Label: cmp.Or(in.Label, name), Type: cmp.Or(in.Type, TypeText), Value: in.Value, Rule: in.Rule,
				Choices: in.Choices,
			}
			s.Params[name] = inputs.effective(name)
		}
	}
	return s
}

// plan binds the report's query. The reader is told if their own values do not fit; a report that no longer fits the
// data is only answered as not showable, because details would reveal fields and locked inputs.
func (m *Module) plan(d *Dataset, r *Report, inputs *inputValues) (Plan, error) {
	var errs fault.List
	plan := Bind(d, r.Query.Definition(&errs), inputs.value, &errs)
	if len(errs) == 0 {
		return plan, nil
	}
	if len(inputs.given) > 0 {
		own := *inputs
		own.given = nil
		var without fault.List
		Bind(d, r.Query.Definition(&without), own.value, &without)
		if len(without) == 0 {
			return Plan{}, fault.One("params", "type", "a value in params does not fit the report")
		}
	}
	return Plan{}, notShowable(errs.Err())
}

// Errors that failures of Open with code 200 wrap if the report was found.
var (
	ErrNotShowable = errors.New("the report does not fit the organization's data")
	ErrTooLong     = fmt.Errorf("the run of the report was stopped at its time limit: %w", context.DeadlineExceeded)
)

const notShowableMessage = "The report cannot be shown: a field or a source that it uses was removed or changed"

func notShowable(err error) *operation.Problem {
	p := operation.Failed(notShowableMessage, nil)
	p.Err, p.Reason = fmt.Errorf("%w: %w", ErrNotShowable, err), err.Error()
	return p
}

// explain returns the answer to a failed run.
func (m *Module) explain(ctx, run context.Context, err error) error {
	switch {
	case errors.Is(err, ErrSource):
		return notShowable(err)
	case ctx.Err() == nil && errors.Is(run.Err(), context.DeadlineExceeded):
		return &operation.Problem{
			Code: http.StatusOK, Err: fmt.Errorf("%w: %w", ErrTooLong, err),
			Message: "The report took too long: it was stopped after " + m.deps.RunTimeout.Round(time.Millisecond).String(),
		}
	}
	return err
}

// later answers with a 503 that a run took too long, and when to retry.
func later(p *operation.Problem) *operation.Problem {
	told := *p
	told.Code, told.RetryAfter = http.StatusServiceUnavailable, time.Minute
	return &told
}
