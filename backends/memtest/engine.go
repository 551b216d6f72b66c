// Package memtest is an engine in memory, for tests alone. It is the plainest reading of what
// package driver promises: package storetest holds the answers of the others against its own, so
// it reads every document for every question and knows no index.
package memtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"tenantry/backends/driver"
)

// Engine implements driver.Engine. Safe for concurrent use.
type Engine struct {
	mu     sync.Mutex // held by every call, also of workspaces
	closed bool
	spaces map[string]*workspace
}

// New returns an engine that holds nothing. What is in it ends with it.
func New() *Engine { return &Engine{spaces: map[string]*workspace{}} }

type workspace struct {
	engine      *Engine
	name, owner string
	removed     bool
	documents   map[string]map[string]driver.Document // by collection, by id
	uncounted   map[string]bool                       // collections
	counters    map[string]int64
}

// enter begins a call, which leave ends.
func (e *Engine) enter(ctx context.Context, w *workspace) error {
	e.mu.Lock()
	err := ctx.Err()
	if err == nil && (e.closed || w != nil && w.removed) {
		err = fmt.Errorf("%w: the engine was closed, or the workspace removed", driver.ErrUnavailable)
	}
	if err != nil {
		e.mu.Unlock()
	}
	return err
}

func (e *Engine) leave() { e.mu.Unlock() }

// admit returns the workspace, a new one where there is none.
func (e *Engine) admit(o driver.Opening) (*workspace, error) {
	w := e.spaces[o.Workspace]
	if w == nil {
		w = &workspace{engine: e, name: o.Workspace, documents: map[string]map[string]driver.Document{}, uncounted: map[string]bool{}, counters: map[string]int64{}}
	}
	some := func() (bool, error) {
		return slices.ContainsFunc(slices.Collect(maps.Values(w.documents)), func(d map[string]driver.Document) bool { return len(d) > 0 }), nil
	}
	claim, err := o.Admit(w.owner, "memory", some)
	if claim {
		w.owner = o.Owner
	}
	return w, err
}

// Open implements driver.Engine.
func (e *Engine) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	if err := driver.CheckName(o.Workspace); err != nil {
		return nil, err
	}
	if err := e.enter(ctx, nil); err != nil {
		return nil, err
	}
	defer e.leave()
	w, err := e.admit(o)
	if err != nil {
		return nil, err
	}
	e.spaces[o.Workspace] = w
	for _, c := range o.Collections {
		w.uncounted[c.Name] = c.Uncounted
	}
	return w, nil
}

// Remove implements driver.Engine. Handles on the workspace fail from then on.
func (e *Engine) Remove(ctx context.Context, name, owner string) error {
	if err := e.enter(ctx, nil); err != nil {
		return err
	}
	defer e.leave()
	w, err := e.admit(driver.Opening{Workspace: name, Owner: owner})
	if err == nil {
		w.removed = true
		delete(e.spaces, name)
	}
	return err
}

// Residents implements driver.Engine.
func (e *Engine) Residents(ctx context.Context) ([]string, error) {
	if err := e.enter(ctx, nil); err != nil {
		return nil, err
	}
	defer e.leave()
	return slices.Sorted(maps.Keys(e.spaces)), nil
}

// Resident implements driver.Engine.
func (e *Engine) Resident(ctx context.Context, name string) (driver.Resident, error) {
	r := driver.Resident{Workspace: name, Where: "memory"}
	if err := e.enter(ctx, nil); err != nil {
		return r, err
	}
	defer e.leave()
	if w := e.spaces[name]; w != nil {
		r.Owner = w.owner
	}
	return r, nil
}

// Check implements driver.Engine.
func (e *Engine) Check(ctx context.Context) error {
	if err := e.enter(ctx, nil); err != nil {
		return err
	}
	e.leave()
	return nil
}

// Close implements driver.Engine.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	return nil
}

// Counter implements driver.Workspace.
func (w *workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	if err := w.engine.enter(ctx, w); err != nil {
		return 0, err
	}
	defer w.engine.leave()
	w.counters[name] = max(w.counters[name], atLeast) + add
	return w.counters[name], nil
}

// Write implements driver.Workspace.
func (w *workspace) Write(ctx context.Context, writes []driver.Write) error {
	return w.WriteWithin(ctx, writes, driver.Quota{})
}

// Used implements driver.Meter.
func (w *workspace) Used(ctx context.Context) (driver.Usage, error) { return w.Recount(ctx) }

// Recount implements driver.Meter.
func (w *workspace) Recount(ctx context.Context) (driver.Usage, error) {
	if err := w.engine.enter(ctx, w); err != nil {
		return driver.Usage{}, err
	}
	defer w.engine.leave()
	return w.used(), nil
}

func (w *workspace) used() (used driver.Usage) {
	for name, all := range w.documents {
		if w.uncounted[name] {
			continue
		}
		for _, d := range all {
			used = used.Plus(driver.Usage{Documents: 1, Bytes: d.Size()})
		}
	}
	return used
}

// WriteWithin implements driver.Meter.
func (w *workspace) WriteWithin(ctx context.Context, writes []driver.Write, q driver.Quota) error {
	if err := w.engine.enter(ctx, w); err != nil {
		return err
	}
	defer w.engine.leave()
	before := driver.Usage{}
	if q != (driver.Quota{}) {
		before = w.used()
	}
	var undo []func()
	for position, write := range writes {
		name, id := write.Collection.Name, write.Doc.ID
		all := w.documents[name]
		if all == nil {
			all = map[string]driver.Document{}
			w.documents[name] = all
		}
		old, there := all[id]
		undo = append(undo, func() {
			if delete(all, id); there {
				all[id] = old
			}
		})
		err := apply(all, write, position)
		if err == nil && position == len(writes)-1 && q != (driver.Quota{}) {
			err = q.Admit(before, w.used().Minus(before))
		}
		if err != nil {
			for _, one := range slices.Backward(undo) {
				one()
			}
			return err
		}
	}
	return nil
}

// apply does one write. Errors: *driver.ConflictError, *driver.DuplicateError.
func apply(all map[string]driver.Document, write driver.Write, position int) error {
	c, doc := write.Collection, write.Doc
	old, there := all[doc.ID]
	switch write.Op {
	case driver.Hold:
		if old.Rev != doc.Rev {
			return &driver.ConflictError{Collection: c.Name, Position: position}
		}
		return nil
	case driver.Insert:
		if there {
			return &driver.DuplicateError{Collection: c.Name, Index: "id", Position: position}
		}
		doc.Rev = 1
	case driver.Replace, driver.Delete:
		if !there || old.Rev != doc.Rev {
			return &driver.ConflictError{Collection: c.Name, Position: position}
		}
		doc.Rev++
	case driver.Put:
	}
	delete(all, doc.ID)
	if write.Op == driver.Delete {
		return nil
	}
	for _, x := range c.Indexes {
		if x.Unique && taken(all, c, x, doc) {
			return &driver.DuplicateError{Collection: c.Name, Index: x.Name, Position: position}
		}
	}
	all[doc.ID] = doc
	return nil
}

// taken reports whether another document has the values of the index.
func taken(all map[string]driver.Document, c *driver.Collection, x driver.Index, doc driver.Document) bool {
	values := func(d driver.Document) (out []any) {
		for _, name := range x.Fields {
			out = append(out, value(c, d, driver.Ref{Name: name}))
		}
		return out
	}
	mine := values(doc)
	if slices.Contains(mine, nil) {
		return false
	}
	for _, other := range all {
		if slices.CompareFunc(mine, values(other), order) == 0 {
			return true
		}
	}
	return false
}

// matching returns the documents that match, by id.
func (w *workspace) matching(ctx context.Context, c *driver.Collection, where driver.Predicate) ([]driver.Document, error) {
	if err := w.engine.enter(ctx, w); err != nil {
		return nil, err
	}
	defer w.engine.leave()
	if err := declared(c, where); err != nil {
		return nil, err
	}
	var found []driver.Document
	for _, d := range w.documents[c.Name] {
		if matches(c, d, where) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b driver.Document) int { return cmp.Compare(a.ID, b.ID) })
	return found, nil
}

// Find implements driver.Workspace.
func (w *workspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	found, err := w.matching(ctx, q.Collection, q.Where)
	placed := func(d driver.Document, r driver.Ref) any {
		v := value(q.Collection, d, r)
		if class(v) < 0 {
			return nil // it has no place of its own
		}
		return v
	}
	slices.SortStableFunc(found, func(a, b driver.Document) int {
		for _, o := range q.Sort {
			if c := directed(order(placed(a, o.Ref), placed(b, o.Ref)), o.Desc); c != 0 {
				return c
			}
		}
		return 0
	})
	found = found[min(q.Offset, len(found)):]
	found = found[:min(q.Limit, len(found))]
	if q.Take == nil || err != nil {
		return found, err
	}
	err = q.Take(nil)
	for i := 0; i < len(found) && err == nil; i++ {
		err = q.Take(&found[i])
	}
	return nil, err
}

// Count implements driver.Workspace.
func (w *workspace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	found, err := w.matching(ctx, c, where)
	return int64(len(found)), err
}

// Aggregate implements driver.Workspace.
func (w *workspace) Aggregate(ctx context.Context, a driver.Aggregation) ([][]any, error) {
	found, err := w.matching(ctx, a.Collection, a.Where)
	if err != nil {
		return nil, err
	}
	return aggregate(a, found), nil
}
