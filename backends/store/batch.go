package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"tenantry/backends/driver"
)

// A Batch is the writes of one commit: what must be unchanged, what is inserted, replaced and deleted. Collections
// stage writes (StageInsert, StageReplace, StageSave, StageDelete), and Commit stores all of them, or none where the
// engine has transactions. One goroutine uses it, for one Commit. Workspace.Batch makes one.
type Batch struct {
	Preconditions

	ws       *Workspace
	writes   []driver.Write
	kinds    []*Spec // of the writes
	records  []*Meta // of the writes whose records have the next revision already; nil for deletions
	ending   []string
	conclude *Claim // which a staged write completes
	spent    bool   // it was discarded, or its commit failed
}

// Batch returns an empty batch. Its commit follows the workspace: Claimed, BeyondQuota.
func (w *Workspace) Batch() *Batch { return &Batch{ws: w} }

// A Precondition is a record that must be unchanged for a batch to commit; Collection.Unchanged makes one.
type Precondition struct {
	ws    *Workspace
	write driver.Write
}

// Unchanged returns the precondition that the record is at the revision at which it was read.
func (c Collection[T]) Unchanged(rec *T) Precondition {
	meta := metaOf(rec)
	return Precondition{c.ws, driver.Write{
		Collection: c.kind.spec.collection, Op: driver.Hold, Doc: driver.Document{ID: c.ws.part(c.kind.spec).stored(meta.ID), Rev: meta.Rev},
	}}
}

// Preconditions are what a commit requires, so that nobody looks first and then acts on what has changed: the commit is
// an ErrConflict unless each record of the batch's own organization is as it was read. Whoever changes a record that
// others depend on changes it first, and then looks for those that depend on it. The zero value requires nothing.
type Preconditions struct{ unchanged []Precondition }

// Require adds preconditions. Those of records elsewhere are left out when the batch commits.
func (p *Preconditions) Require(unchanged ...Precondition) {
	p.unchanged = append(p.unchanged, unchanged...)
}

// Reset drops all preconditions, for an attempt that reads everything anew.
func (p *Preconditions) Reset() { p.unchanged = nil }

// stage adds writes of a kind. The records have the next revision from then on, as they are about to be stored.
func (b *Batch) stage(home *home, s *Spec, writes []driver.Write, records []*Meta) error {
	if home != b.ws.home {
		return fmt.Errorf("%w: %s is staged in a batch of another workspace", ErrQuery, s.Name)
	}
	for i, write := range writes {
		if records[i] != nil {
			records[i].Rev++
		}
		b.writes, b.kinds, b.records = append(b.writes, write), append(b.kinds, s), append(b.records, records[i])
	}
	return nil
}

// Discard gives the staged records their revisions back. A failed Commit does so itself.
func (b *Batch) Discard() {
	for _, meta := range b.records {
		if meta != nil {
			meta.Rev--
		}
	}
	b.writes, b.kinds, b.records, b.conclude, b.spent = nil, nil, nil, nil, true
}

// Atomic reports whether all of the batch is stored or nothing, and in the same place as what the workspace has.
func (b *Batch) Atomic(w *Workspace) bool { return w != nil && b.ws.home == w.home && b.ws.atomic() }

// Room returns a *QuotaError where the organization has no room for what the batch inserts. Nothing is written.
// Other errors: ErrUnavailable.
func (b *Batch) Room(ctx context.Context) error {
	if b.ws.home == nil {
		return nil
	}
	r, err := b.ws.home.permit(ctx)
	if err != nil || r.Quota == (Quota{}) {
		return err
	}
	used, err := b.ws.Used(ctx)
	if err != nil {
		return err
	}
	var more Usage
	for _, write := range b.writes {
		if write.Op == driver.Insert {
			more.Documents++
			more.Bytes += write.Doc.Size()
		}
	}
	return r.Quota.Admit(used, more)
}

// Commit stores the batch and returns once it is durable. Errors: *DuplicateError, ErrConflict where a record or a
// precondition has changed, *QuotaError, ErrUnavailable. The Position of an error is that of the staged write; behind
// them it is a precondition.
func (b *Batch) Commit(ctx context.Context) error {
	if b.spent {
		return fmt.Errorf("%w: the batch was discarded, or its commit has failed", ErrQuery)
	}
	if len(b.writes) == 0 {
		return nil
	}
	writes := b.writes
	for _, p := range b.unchanged {
		own := func(w driver.Write) bool {
			return w.Collection == p.write.Collection && w.Doc.ID == p.write.Doc.ID // which says at which revision
		}
		if p.ws != nil && p.ws.home == b.ws.home && !slices.ContainsFunc(b.writes, own) {
			writes = append(slices.Clip(writes), p.write)
		}
	}
	if err := b.ws.commit(ctx, writes, b.conclude); err != nil {
		spec := b.kinds[0]
		if at := position(err); at >= 0 && at < len(b.kinds) {
			spec = b.kinds[at]
		}
		b.Discard()
		return translate(spec, err)
	}
	for i, meta := range b.records {
		if meta != nil {
			meta.bytes = b.writes[i].Doc.Size()
		}
	}
	if !b.ws.atomic() {
		_ = b.ws.Ending(ctx, b.ending...) // they are gone, whatever becomes of it
	}
	return nil
}

// position returns which write an engine's error is about, -1 where it is about none.
func position(err error) int {
	if dup, is := errors.AsType[*driver.DuplicateError](err); is {
		return dup.Position
	}
	if conflict, is := errors.AsType[*driver.ConflictError](err); is {
		return conflict.Position
	}
	return -1
}

// A Claim is a note that something has begun, stored with the first commit through the workspaces that carry it (see
// Workspace.Claimed): in the same commit where that is of the same organization, right before it otherwise. Nothing is
// written through them without it; what a service keeps in a workspace of its own comes before, unless the call Begins.
// Safe for concurrent use; commits that carry it follow each other.
type Claim struct {
	ws    *Workspace
	write driver.Write
	spec  *Spec

	mu               sync.Mutex
	begun, concluded atomic.Bool
	ended            sync.Map // identifiers
}

// Claim returns the claim that replaces the record over the revision it was read at.
func (c Collection[T]) Claim(rec *T) (*Claim, error) {
	write, err := c.replacing(rec)
	return &Claim{ws: c.ws, write: write, spec: c.kind.spec}, err
}

// Conclude stages a record that completes a claim: the batch stores it instead of the note where that has not been
// stored by then. The record is at the revision at which it was claimed.
func (c Collection[T]) Conclude(b *Batch, claim *Claim, rec *T) error {
	if claim.Begun() {
		metaOf(rec).Rev++
	}
	write, err := c.replacing(rec)
	if err == nil {
		err = b.stage(c.ws.home, c.kind.spec, []driver.Write{write}, []*Meta{metaOf(rec)})
	}
	b.conclude = claim
	return err
}

// Begin stores the claim by itself where it has not begun. Errors: those of Commit.
func (c *Claim) Begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.Load() {
		return nil
	}
	err := c.ws.apply(ctx, []driver.Write{c.write})
	c.begun.Store(err == nil)
	return translate(c.spec, err)
}

// Begun reports whether the claim was stored. Where that is not known, because a commit failed whose outcome nobody can
// tell, it has not been.
func (c *Claim) Begun() bool { return c.begun.Load() }

// Concluded reports whether a batch has concluded the claim.
func (c *Claim) Concluded() bool { return c.concluded.Load() }

// Ended reports whether the record was deleted for good through a workspace that carries the claim.
func (c *Claim) Ended(id string) bool {
	_, ended := c.ended.Load(id)
	return ended
}

// Claimed returns the workspace whose first commit stores the claim too.
func (w *Workspace) Claimed(claim *Claim) *Workspace {
	c := *w
	c.claim = claim
	return &c
}

// commit makes writes, with the claim that the workspace carries unless they conclude it.
func (w *Workspace) commit(ctx context.Context, writes []driver.Write, concludes *Claim) error {
	c := w.claim
	if c == nil {
		return w.apply(ctx, writes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := 0
	switch {
	case c.begun.Load() || concludes == c:
	case c.ws.home != w.home:
		if err := c.ws.apply(ctx, []driver.Write{c.write}); err != nil {
			return err
		}
		c.begun.Store(true)
	default:
		writes, before = slices.Insert(slices.Clone(writes), 0, c.write), 1
	}
	err := w.apply(ctx, writes)
	if dup, is := errors.AsType[*driver.DuplicateError](err); is {
		dup.Position -= before
	}
	if conflict, is := errors.AsType[*driver.ConflictError](err); is {
		conflict.Position -= before
	}
	if err == nil {
		c.begun.Store(true)
		c.concluded.Store(concludes == c || c.concluded.Load())
	}
	return err
}

// apply makes writes at the workspace's place.
func (w *Workspace) apply(ctx context.Context, writes []driver.Write) error {
	if w.home == nil {
		return w.control.Write(ctx, writes)
	}
	return w.home.write(ctx, writes, w.beyond)
}
