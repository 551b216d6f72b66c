// Package memtest is an in-memory engine for tests. It is the simplest implementation of the contract in package driver
// and the reference to which package storetest compares the results of other engines. It therefore has no indexes: each
// query reads every document.
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
	mu         sync.Mutex // held by every call, including those on workspaces
	closed     bool
	workspaces map[string]*workspace
}

// The abilities of the engine.
var (
	_ driver.Meter    = (*workspace)(nil)
	_ driver.Counting = (*workspace)(nil)
)

// New returns an empty engine.
func New() *Engine { return &Engine{workspaces: map[string]*workspace{}} }

type workspace struct {
	engine      *Engine
	name, owner string
	removed     bool
	documents   map[string]map[string]driver.Document // by collection, by id
	uncounted   map[string]bool                       // collections
	counters    map[string]int64
}

// lock begins a call on the workspace, or on the engine if w is nil. Without an error, unlock must follow.
func (e *Engine) lock(ctx context.Context, w *workspace) error {
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

func (e *Engine) unlock() { e.mu.Unlock() }

// admit returns the workspace if the opening may use it, and a new one if it does not exist. Error:
// *driver.ForeignError.
func (e *Engine) admit(o driver.Opening) (*workspace, error) {
	w := e.workspaces[o.Workspace]
	if w == nil {
		w = &workspace{
			engine:    e,
			name:      o.Workspace,
			documents: map[string]map[string]driver.Document{},
			uncounted: map[string]bool{},
			counters:  map[string]int64{},
		}
	}
	hasDocuments := func() (bool, error) {
		for _, collection := range w.documents {
			if len(collection) > 0 {
				return true, nil
			}
		}
		return false, nil
	}
	claim, err := o.Admit(w.owner, "memory", hasDocuments)
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
	if err := e.lock(ctx, nil); err != nil {
		return nil, err
	}
	defer e.unlock()
	w, err := e.admit(o)
	if err != nil {
		return nil, err
	}
	e.workspaces[o.Workspace] = w
	for _, c := range o.Collections {
		w.uncounted[c.Name] = c.Uncounted
	}
	return w, nil
}

// Remove implements driver.Engine. Calls on handles of the workspace fail afterwards.
func (e *Engine) Remove(ctx context.Context, name, owner string) error {
	if err := e.lock(ctx, nil); err != nil {
		return err
	}
	defer e.unlock()
	w, err := e.admit(driver.Opening{Workspace: name, Owner: owner})
	if err == nil {
		w.removed = true
		delete(e.workspaces, name)
	}
	return err
}

// Residents implements driver.Engine.
func (e *Engine) Residents(ctx context.Context) ([]string, error) {
	if err := e.lock(ctx, nil); err != nil {
		return nil, err
	}
	defer e.unlock()
	return slices.Sorted(maps.Keys(e.workspaces)), nil
}

// Resident implements driver.Engine.
func (e *Engine) Resident(ctx context.Context, name string) (driver.Resident, error) {
	r := driver.Resident{Workspace: name, Where: "memory"}
	if err := e.lock(ctx, nil); err != nil {
		return r, err
	}
	defer e.unlock()
	if w := e.workspaces[name]; w != nil {
		r.Owner = w.owner
	}
	return r, nil
}

// Check implements driver.Engine.
func (e *Engine) Check(ctx context.Context) error {
	if err := e.lock(ctx, nil); err != nil {
		return err
	}
	e.unlock()
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
	if err := w.engine.lock(ctx, w); err != nil {
		return 0, err
	}
	defer w.engine.unlock()
	w.counters[name] = max(w.counters[name], atLeast) + add
	return w.counters[name], nil
}

// Counters implements driver.Counting.
func (w *workspace) Counters(ctx context.Context) (map[string]int64, error) {
	if err := w.engine.lock(ctx, w); err != nil {
		return nil, err
	}
	defer w.engine.unlock()
	return maps.Clone(w.counters), nil
}

// Write implements driver.Workspace.
func (w *workspace) Write(ctx context.Context, writes []driver.Write) error {
	return w.WriteWithin(ctx, writes, driver.Quota{})
}

// Used implements driver.Meter.
func (w *workspace) Used(ctx context.Context) (driver.Usage, error) { return w.Recount(ctx) }

// Recount implements driver.Meter.
func (w *workspace) Recount(ctx context.Context) (driver.Usage, error) {
	if err := w.engine.lock(ctx, w); err != nil {
		return driver.Usage{}, err
	}
	defer w.engine.unlock()
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
	if err := w.engine.lock(ctx, w); err != nil {
		return err
	}
	defer w.engine.unlock()
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

// apply applies one write to the documents of a collection. Errors: *driver.ConflictError, *driver.DuplicateError.
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
		if x.Unique && isDuplicate(all, c, x, doc) {
			return &driver.DuplicateError{Collection: c.Name, Index: x.Name, Position: position}
		}
	}
	all[doc.ID] = doc
	return nil
}

// isDuplicate reports whether another document has the same values in the fields of the index.
func isDuplicate(all map[string]driver.Document, c *driver.Collection, x driver.Index, doc driver.Document) bool {
	values := func(d driver.Document) (out []any) {
		for _, name := range x.Fields {
			out = append(out, value(c, d, driver.Ref{Name: name}))
		}
		return out
	}
	indexed := values(doc)
	if slices.Contains(indexed, nil) {
		return false
	}
	for _, other := range all {
		if slices.CompareFunc(indexed, values(other), order) == 0 {
			return true
		}
	}
	return false
}

// matching returns the matching documents, sorted by id.
func (w *workspace) matching(ctx context.Context, c *driver.Collection, where driver.Predicate) ([]driver.Document, error) {
	if err := w.engine.lock(ctx, w); err != nil {
		return nil, err
	}
	defer w.engine.unlock()
	if err := checkFields(c, where); err != nil {
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
	sortKey := func(d driver.Document, r driver.Ref) any {
		v := value(q.Collection, d, r)
		if class(v) < 0 {
			return nil // lists and objects sort like missing values
		}
		return v
	}
	slices.SortStableFunc(found, func(a, b driver.Document) int {
		for _, o := range q.Sort {
			if c := directed(order(sortKey(a, o.Ref), sortKey(b, o.Ref)), o.Desc); c != 0 {
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
