package reports

import (
	"context"
	"slices"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/internal/together"
	"tenantry/tenants"
)

// maxNeeds bounds how many addresses of shared reports have remembered needs.
const maxNeeds = 4096

// address names a report as its readers do.
type address struct {
	org         int64
	pid, report string
}

// needs is what the last answer at an address of a shared report needed. It predicts what the next answer needs, which
// is read together with the report. A wrong prediction is not used.
type needs struct {
	children         []string
	rootTeams, teams []string // of the report at the address, and of the one selected
	class, source    string   // of the one selected
	full             bool     // it listed as many rows as its limit once
}

func (n *needs) equal(o *needs) bool {
	return n.class == o.class && n.source == o.source && n.full == o.full && slices.Equal(n.children, o.children) &&
		slices.Equal(n.rootTeams, o.rootTeams) && slices.Equal(n.teams, o.teams)
}

// prefetched is a report as read, with the predicted needs.
type prefetched struct {
	root    *Report
	rootErr error
	key     address
	guess   needs
	guessed bool

	children []Report     // nil: not read
	dataset  *Dataset     // nil: not read
	share    *openedToken // nil: not read
}

// openedToken is a verified token or the error, and whether the token was revoked.
type openedToken struct {
	share   tokens.Share
	err     error
	revoked bool
}

// prefetch reads the report with the pid and, if the store is remote, its last needs at the same time. If reading
// these fails they count as not read: they are read again if they are needed, and the error is reported then.
func (m *Module) prefetch(ctx context.Context, t *tenants.Tenant, r *SharedRequest) *prefetched {
	a := &prefetched{key: address{t.Org.OrgID, r.PID, r.ReportID}}
	questions := []func() error{func() error {
		a.root, a.rootErr = m.Reports.In(t.Workspace()).First(ctx, store.Query{Filter: store.Eq("pid", r.PID)})
		return nil
	}}
	if guess, ok := m.needs.Get(a.key); ok && t.Workspace().Remote() {
		a.guess, a.guessed = *guess, true
		questions = append(questions, m.predictedQueries(ctx, t, r, a)...)
	}
	_ = together.Do(true, questions...) // each query keeps its own error
	return a
}

// predictedQueries returns the queries for the predicted needs.
func (m *Module) predictedQueries(
	ctx context.Context, t *tenants.Tenant, r *SharedRequest, a *prefetched,
) (questions []func() error) {
	ask := func(question func()) {
		questions = append(questions, func() error {
			question()
			return nil
		})
	}
	if len(a.guess.children) > 0 {
		ask(func() {
			if found, err := m.reportsOf(ctx, t, a.guess.children); err == nil {
				a.children = found
			}
		})
	}
	if m.asksForFields(a.guess.class) {
		ask(func() { a.dataset = m.prefetchDataset(ctx, t, r.Teams, &a.guess) })
	}
	if r.Token.IsZero() {
		return questions
	}
	share, err := m.openToken(ctx, t, r.PID, r.Token.Reveal())
	if err != nil {
		a.share = &openedToken{err: err}
		return questions
	}
	ask(func() {
		if revoked, err := m.isRevoked(ctx, t, r.PID, share); err == nil {
			a.share = &openedToken{share: share, revoked: revoked}
		}
	})
	return questions
}

// asksForFields reports whether a dataset of the class needs a query.
func (m *Module) asksForFields(name string) bool {
	c, ok := m.classes[name].(*class)
	return !ok || c.custom != nil
}

func (m *Module) prefetchDataset(ctx context.Context, t *tenants.Tenant, requested []string, guess *needs) *Dataset {
	ctx, cancel := context.WithTimeout(ctx, m.deps.RunTimeout)
	defer cancel()
	reader := tenants.Principal{Teams: guess.rootTeams}
	d, err := m.dataset(ctx, t, workspaceOf(t, reader.Scope(t, requested), guess.teams), guess.class, guess.source)
	if err != nil {
		return nil
	}
	return &d
}

// workspaceOf returns the organization's data that readers of a report see: in the scope of its bundle and of the
// report's own teams.
func workspaceOf(t *tenants.Tenant, scope store.Scope, teams []string) *store.Workspace {
	ws := t.Workspace()
	if t.Org.Feature(tenants.FeatureTeams) {
		ws = ws.Scoped(scope)
		if len(teams) > 0 {
			ws = ws.Scoped(store.Scope{Teams: teams})
		}
	}
	return ws
}

// childrenOf returns the children of the report if they were predicted.
func (a *prefetched) childrenOf() ([]Report, bool) {
	return a.children, a.children != nil && slices.Equal(a.guess.children, childIDs(a.root))
}

// datasetOf returns the data of the selected report if it was predicted.
func (a *prefetched) datasetOf(selected *Report) (Dataset, bool) {
	g := &a.guess
	if a.dataset == nil || g.class != selected.Class || g.source != selected.Source ||
		!slices.Equal(g.rootTeams, a.root.Teams) || !slices.Equal(g.teams, selected.Teams) {
		return Dataset{}, false
	}
	return *a.dataset, true
}

// remember notes what the answer needed, if that makes the next one faster.
func (m *Module) remember(t *tenants.Tenant, a *prefetched, selected *Report, full bool) {
	if !t.Workspace().Remote() {
		return
	}
	n := needs{
		children: childIDs(a.root), rootTeams: a.root.Teams, teams: selected.Teams,
		class: selected.Class, source: selected.Source, full: full || a.guess.full,
	}
	if !a.guessed || !a.guess.equal(&n) {
		m.needs.Put(a.key, &n)
	}
}
