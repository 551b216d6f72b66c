package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"

	"tenantry/backends/driver"
)

// CopyOptions says how workspaces are copied to another engine.
type CopyOptions struct {
	// Last are the names of the control kinds that are copied last, in this order.
	Last []string
	// Keys are the control kinds that are copied once more after organizations that were created until the end.
	Keys []KeyKind
	// Told, if set, is called with the number of documents of a workspace that have been compared.
	Told func(workspace string, documents int64)
}

// KeyKind is a control kind that holds keys of what organizations store.
type KeyKind struct {
	Name string
	// Known: only documents that the copy has are copied once more.
	Known bool
}

// Copied says what was copied to another engine.
type Copied struct {
	Workspaces []string
	// Damaged says by workspace which documents cannot be read. The copy lacks these, and may lack others of their kind.
	Damaged map[string]string
	// Unsettled are the workspaces that changed until the last pass over them, or were created while the control workspace
	// was copied for the last time.
	Unsettled []string
}

// copyPasses bounds the pairs of passes over a workspace until both sides are equal, and the copies of the control
// workspace until no organization is created meanwhile.
const copyPasses = 3

// CopyTo makes the workspaces of a backend the same on another engine, which nobody else uses, while they are in use.
// The control workspace, if the backend has it, is copied after those of organizations, because it has the keys of
// their encrypted values, and again if organizations were created meanwhile. If that has no end, those of the last
// time are copied, and after them the keys. A workspace is copied as it is at one moment if the engine can read so,
// and otherwise in passes until nothing changes between two of them. Errors: ErrForeign if the engine has a workspace
// of another owner, ErrUnavailable, the context's own.
func (s *Store) CopyTo(ctx context.Context, backend string, to Engine, o CopyOptions) (*Copied, error) {
	if o.Told == nil {
		o.Told = func(string, int64) {}
	}
	engine, backend, err := s.engine(backend)
	if err != nil {
		return nil, err
	}
	c := &copier{CopyOptions: o, store: s, engine: engine, backend: backend, to: to, found: Copied{Damaged: map[string]string{}}}
	late, err := c.organizations(ctx)
	for try := 1; err == nil && backend == s.controlAt; try++ {
		if err = c.control(ctx); err == nil {
			late, err = c.organizations(ctx) // those that were created meanwhile
		}
		if err != nil || len(late) == 0 {
			break
		}
		if try == copyPasses {
			err = c.keys(ctx)
			c.found.Unsettled = append(c.found.Unsettled, late...)
			break
		}
	}
	return &c.found, err
}

// copier is a call of CopyTo.
type copier struct {
	CopyOptions

	store   *Store
	engine  driver.Engine
	backend string
	to      driver.Engine
	found   Copied
}

// organizations copies the workspaces of organizations that have no copy, returns their names, and removes the copies of
// those that were removed.
func (c *copier) organizations(ctx context.Context) (copied []string, err error) {
	names, err := c.engine.Residents(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing the workspaces of backend %s: %w", c.backend, err)
	}
	for _, name := range names {
		if !ofOrganization(name) || slices.Contains(c.found.Workspaces, name) {
			continue
		}
		r, err := c.engine.Resident(ctx, name)
		if err == nil && r.Owner != "" { // without an owner it is being made, or removed
			copied = append(copied, name)
			err = c.workspace(ctx, c.store.opening(name, r.Owner), c.store.kinds)
		}
		if err != nil {
			return nil, fmt.Errorf("copying workspace %s of backend %s: %w", name, c.backend, err)
		}
	}
	for _, name := range slices.Clone(c.found.Workspaces) {
		if !ofOrganization(name) || slices.Contains(names, name) {
			continue
		}
		r, err := c.to.Resident(ctx, name)
		if err == nil {
			err = c.to.Remove(ctx, name, r.Owner)
		}
		if err != nil {
			return nil, fmt.Errorf("removing the copy of workspace %s: %w", name, err)
		}
		c.found.Workspaces = slices.DeleteFunc(c.found.Workspaces, func(one string) bool { return one == name })
	}
	return copied, nil
}

// control copies the control workspace with its counters.
func (c *copier) control(ctx context.Context) error {
	kinds := slices.Clone(c.store.controlKinds)
	slices.SortStableFunc(kinds, func(a, b *Spec) int { return slices.Index(c.Last, a.Name) - slices.Index(c.Last, b.Name) })
	opening := c.store.controlOpening()
	if err := c.counters(ctx, opening); err != nil {
		return fmt.Errorf("copying the counters of the control data: %w", err)
	}
	if err := c.workspace(ctx, opening, kinds); err != nil {
		return fmt.Errorf("copying the control data of backend %s: %w", c.backend, err)
	}
	return c.counters(ctx, opening) // numbers that were given meanwhile
}

// keys copies the kinds with keys once more, and the counters, so that the copy does not give numbers again.
func (c *copier) keys(ctx context.Context) error {
	known := map[string]bool{}
	for _, k := range c.Keys {
		known[k.Name] = k.Known
	}
	kinds := slices.DeleteFunc(slices.Clone(c.store.controlKinds), func(s *Spec) bool {
		_, holds := known[s.Name]
		return !holds
	})
	o := c.store.controlOpening()
	m, err := c.mover(ctx, o, kinds)
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		_, _, err := c.passes(ctx, m, o.Workspace, kinds, known)
		if !errors.Is(err, driver.ErrSnapshotLost) || try == copyPasses {
			return errors.Join(err, c.counters(ctx, o))
		}
	}
}

func (s *Store) controlOpening() driver.Opening {
	return driver.Opening{Workspace: controlName, Collections: s.control, Apart: true}
}

// counters raises the counters of the copy.
func (c *copier) counters(ctx context.Context, o driver.Opening) error {
	from, err := c.engine.Open(ctx, o)
	if err != nil {
		return err
	}
	to, err := c.to.Open(ctx, o)
	if err != nil {
		return err
	}
	lister, ok := from.(driver.Counting)
	if !ok {
		return errors.New("the engine cannot list counters")
	}
	all, err := lister.Counters(ctx)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err == nil {
			_, err = to.Counter(ctx, name, 0, all[name])
		}
	}
	return err
}

// mover returns a Mover of the kinds of one workspace.
func (c *copier) mover(ctx context.Context, o driver.Opening, kinds []*Spec) (*Mover, error) {
	from, err := c.engine.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	to, err := c.to.Open(ctx, o)
	return &Mover{store: c.store, kinds: kinds, from: from, to: to, apart: true}, err
}

// workspace copies one workspace, in passes until one finds both sides equal.
func (c *copier) workspace(ctx context.Context, o driver.Opening, kinds []*Spec) error {
	m, err := c.mover(ctx, o, kinds)
	if err != nil {
		return err
	}
	c.found.Unsettled = slices.DeleteFunc(c.found.Unsettled, func(one string) bool { return one == o.Workspace })
	delete(c.found.Damaged, o.Workspace)
	for try := 1; ; try++ {
		changed, damage, err := c.passes(ctx, m, o.Workspace, kinds, nil)
		switch {
		case errors.Is(err, driver.ErrSnapshotLost) && try < copyPasses:
			continue
		case err != nil:
			return err
		case changed > 0 && try < copyPasses:
			continue
		case changed > 0:
			c.found.Unsettled = append(c.found.Unsettled, o.Workspace)
		}
		if damage != "" {
			c.found.Damaged[o.Workspace] = damage
		}
		break
	}
	if meter, ok := m.to.(driver.Meter); ok {
		if _, err := meter.Recount(ctx); err != nil {
			return err
		}
	}
	if !slices.Contains(c.found.Workspaces, o.Workspace) {
		c.found.Workspaces = append(c.found.Workspaces, o.Workspace)
	}
	return nil
}

// passes makes two passes over all kinds, as they are at one moment if the engine can read so. The second finds
// whether that was so. It returns how many documents the second has changed. Of kinds that are known, documents that
// the copy lacks are left out.
func (c *copier) passes(
	ctx context.Context, m *Mover, workspace string, kinds []*Spec, known map[string]bool,
) (changed int64, damage string, err error) {
	if e, ok := c.engine.(driver.Snapshotter); ok {
		reading, release, err := e.Snapshot(ctx)
		if err != nil {
			return 0, "", err
		}
		defer release()
		ctx = reading
	}
	for range 2 {
		changed, damage = 0, ""
		var compared int64
		for _, spec := range kinds {
			p := &pass{mover: m, spec: spec, equal: digest{sum: sha256.New()}, known: known[spec.Name]}
			m.Progress = func(_ string, n, _ int64) { c.Told(workspace, compared+n) }
			err := p.run(ctx)
			if unreadable := new(UnreadableError); errors.As(err, &unreadable) {
				damage = fmt.Sprintf("workspace %s: %s", workspace, err)
			} else if err != nil {
				return changed, "", fmt.Errorf("%s: %w", spec.Name, err)
			}
			changed += p.changed
			compared += p.compared
		}
		if changed == 0 {
			break
		}
	}
	return changed, damage, nil
}

// ArchiveBy is Archive for a backend whose engine cannot copy its files: the workspaces are copied to an empty engine
// that can, and its files are copied.
func (s *Store) ArchiveBy(ctx context.Context, backend string, by Engine, c CopyOptions, o Archiving) ([]Archived, error) {
	e, ok := by.(driver.Archiver)
	if !ok {
		return nil, fmt.Errorf("backend %s cannot be copied while it serves", backend)
	}
	copied, err := s.CopyTo(ctx, backend, by, c)
	if err != nil {
		return nil, err
	}
	if o.Last = ""; BackendName(backend) == s.controlAt {
		o.Last = controlName
	}
	all, err := e.Archive(ctx, o)
	for i := range all {
		for _, name := range all[i].Workspaces {
			all[i].Unsettled = all[i].Unsettled || slices.Contains(copied.Unsettled, name)
			if damage := copied.Damaged[name]; damage != "" {
				all[i].Damage = damage
			}
		}
	}
	return all, err
}
