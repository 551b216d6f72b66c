// Package reports keeps custom reports, runs them over the organization's data, and shares them by token with people
// who have no account.
package reports

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/cache"
	"tenantry/operation"
	"tenantry/tenants"
)

// KeyPurpose is the purpose of the data keys that sign share tokens.
const KeyPurpose = "share"

// DefaultRunTimeout is how long one run of a report may take.
const DefaultRunTimeout = 5 * time.Second

// DefaultReuse is how long the rows of a shared report are reused for readers with the same request.
const DefaultReuse = time.Second

// KeySet holds an organization's data keys for one purpose. Only the current one signs and verifies, so a new key
// voids every token of the organization.
type KeySet interface {
	Current() keyring.DataKey
}

// Deps are the dependencies of the module.
type Deps struct {
	// Keys returns the organization's keys for KeyPurpose.
	Keys func(ctx context.Context, t *tenants.Tenant) (KeySet, error)
	// Classes are the classes of reports.
	Classes []Class
	// Providers are the providers in addition to the built-in one. Readers of a shared report may choose one that the
	// organization has.
	Providers  map[string]Provider
	RunTimeout time.Duration    // 0: DefaultRunTimeout
	Reuse      time.Duration    // how long rows are reused for the same request; 0: DefaultReuse; negative: never
	Now        func() time.Time // nil: time.Now
}

// Module is the module of custom reports. Safe for concurrent use.
type Module struct {
	Kinds
	deps    Deps
	classes map[string]Class
	needs   *cache.Map[address, *needs]
	reuse   *reuse
}

// New returns the module.
func New(deps Deps) *Module {
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.RunTimeout <= 0 {
		deps.RunTimeout = DefaultRunTimeout
	}
	if deps.Reuse == 0 {
		deps.Reuse = DefaultReuse
	}
	m := &Module{
		Kinds: NewKinds(), deps: deps, classes: map[string]Class{}, needs: cache.New[address, *needs](maxNeeds),
		reuse: newReuse(deps.Reuse, deps.Now),
	}
	for _, c := range deps.Classes {
		m.classes[c.Name()] = c
	}
	m.Reports.Ask = func(c *record.Checking, rec any) { m.checkWith(c, rec.(*Report)) }
	return m
}

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	return append([]operation.Row{
		m.getOperation(), m.fieldsOperation(), m.sharedOperation(), m.exportSharedOperation(), m.shareOperation(), m.listSharesOperation(), m.revokeAllOperation(), m.revokeOperation(),
	}, m.recordRows()...)
}

// byID returns the report that the path names. It is shared and must not be changed.
func (m *Module) byID(ctx context.Context, c *operation.Call) (*Report, error) {
	r, err := m.peek(ctx, c)
	return r.Report, err
}

// peeked is a report with its cached answers.
type peeked struct {
	*Report
	made *store.Derived
}

func (m *Module) peek(ctx context.Context, c *operation.Call) (peeked, error) {
	r, made, err := m.Reports.In(c.Workspace).Peek(ctx, c.Path("id"))
	return peeked{r, made}, operation.OrMissing(err, "Custom Report not found")
}

// children returns the report's children that exist, in the order of the report.
func (m *Module) children(ctx context.Context, t *tenants.Tenant, r *Report) ([]Report, error) {
	return m.reportsOf(ctx, t, childIDs(r))
}

func childIDs(r *Report) []string { return r.ChildReports[:min(len(r.ChildReports), MaxChildren)] }

// reportsOf returns the reports that exist, in the order of ids.
func (m *Module) reportsOf(ctx context.Context, t *tenants.Tenant, ids []string) ([]Report, error) {
	place := make(map[string]int, len(ids))
	for i, id := range ids {
		place[id] = i
	}
	var all []Report
	for some := range slices.Chunk(ids, operation.MostPerPage) {
		found, err := m.Reports.In(t.Workspace()).Find(ctx, store.Query{
			Filter: store.In("id", some...), Limit: len(some),
		})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b Report) int { return place[a.ID] - place[b.ID] })
	return all, nil
}

// dataset returns the data of a class and source, as the workspace shows it.
func (m *Module) dataset(
	ctx context.Context, t *tenants.Tenant, ws *store.Workspace, name, source string,
) (Dataset, error) {
	class, ok := m.classes[name]
	if !ok {
		return Dataset{}, fmt.Errorf("%w: there is no report class %q", ErrSource, name)
	}
	return class.Dataset(ctx, t, ws, source)
}

// provider finds a provider by name; "" is the built-in one.
func (m *Module) provider(t *tenants.Tenant, name string) (Provider, bool) {
	if name == "" || name == BuiltIn {
		return storeProvider{}, true
	}
	p, ok := m.deps.Providers[name]
	return p, ok && p != nil && slices.Contains(t.Org.Providers, name)
}
