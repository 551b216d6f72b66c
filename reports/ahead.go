package reports

import (
	"context"
	"slices"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/internal/together"
	"tenantry/tenants"
)

// maxNeeds is for how many addresses of shared reports it is remembered what they need.
const maxNeeds = 4096

// address is that of a report.
type address struct {
	org         int64
	pid, report string
}

// needs is what it took to answer at an address of a shared report. It is a guess at what
// the next answer takes, which is read along with the report itself; nothing of it is used
// where the report turns out to need something else.
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

// ahead is a report as it was read, with what was guessed to be needed besides.
type ahead struct {
	root    *Report
	rootErr error
	key     address
	guess   needs
	guessed bool

	children []Report // nil: not read
	dataset  *Dataset // nil: not read
	share    *opened  // nil: not read
}

// opened is a token's content, or why there is none, and whether it was revoked.
type opened struct {
	share   tokens.Share
	err     error
	revoked bool
}

// readAhead reads the report of the pid and, where the store is remote, at the same time
// what it needed last. What
// fails besides the report itself counts as not read: it is asked for again, and then fails
// where it matters.
func (m *Module) readAhead(ctx context.Context, t *tenants.Tenant, r *SharedRequest) *ahead {
	a := &ahead{key: address{t.Org.OrgID, r.PID, r.ReportID}}
	questions := []func() error{func() error {
		a.root, a.rootErr = m.Reports.In(t.Workspace()).First(ctx, store.Query{Filter: store.Eq("pid", r.PID)})
		return nil
	}}
	if guess, ok := m.needs.Get(a.key); ok && t.Workspace().Remote() {
		a.guess, a.guessed = *guess, true
		questions = append(questions, m.guesses(ctx, t, r, a)...)
	}
	_ = together.Do(true, questions...) // each keeps its own
	return a
}

// guesses returns the questions that are asked along with the one for the report.
func (m *Module) guesses(ctx context.Context, t *tenants.Tenant, r *SharedRequest, a *ahead) (questions []func() error) {
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
		ask(func() { a.dataset = m.datasetAhead(ctx, t, r.Teams, &a.guess) })
	}
	if r.Token.IsZero() {
		return questions
	}
	share, err := m.openToken(ctx, t, r.PID, r.Token.Reveal())
	if err != nil {
		a.share = &opened{err: err}
		return questions
	}
	ask(func() {
		if revoked, err := m.isRevoked(ctx, t, r.PID, share); err == nil {
			a.share = &opened{share: share, revoked: revoked}
		}
	})
	return questions
}

// asksForFields reports whether a dataset of the class takes a question.
func (m *Module) asksForFields(name string) bool {
	c, ok := m.classes[name].(*class)
	return !ok || c.custom != nil
}

func (m *Module) datasetAhead(ctx context.Context, t *tenants.Tenant, requested []string, guess *needs) *Dataset {
	ctx, cancel := context.WithTimeout(ctx, m.deps.RunTimeout)
	defer cancel()
	reader := tenants.Principal{Teams: guess.rootTeams}
	d, err := m.dataset(ctx, t, workspaceOf(t, reader.Scope(t, requested), guess.teams), guess.class, guess.source)
	if err != nil {
		return nil
	}
	return &d
}

// workspaceOf returns the organization's data as the readers of a report see it: in the
// scope of its bundle and the report's own teams.
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

// childrenOf returns the children of the report that was read, where the guess named them.
func (a *ahead) childrenOf() ([]Report, bool) {
	return a.children, a.children != nil && slices.Equal(a.guess.children, childIDs(a.root))
}

// datasetOf returns the data that the selected report asks, where the guess was right.
func (a *ahead) datasetOf(selected *Report) (Dataset, bool) {
	g := &a.guess
	if a.dataset == nil || g.class != selected.Class || g.source != selected.Source ||
		!slices.Equal(g.rootTeams, a.root.Teams) || !slices.Equal(g.teams, selected.Teams) {
		return Dataset{}, false
	}
	return *a.dataset, true
}

// remember notes what the answer took, where that makes the next one faster.
func (m *Module) remember(t *tenants.Tenant, a *ahead, selected *Report, full bool) {
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
