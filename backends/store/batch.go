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

// A Batch holds the writes of one commit and its preconditions. Collections stage the writes (StageInsert,
// StageReplace, StageSave, StageDelete) and Commit stores them, all or none if the engine has transactions.
// Workspace.Batch makes a Batch. It is for one Commit and not safe for concurrent use.
type Batch struct {
	Preconditions

	ws       *Workspace
	writes   []driver.Write
	kinds    []*Spec   // of the writes
	records  []*Meta   // of the writes, already at their next revision; nil for deletions
	told     []telling // of the writes
	ending   []string
	conclude *Claim // completed by a staged write; may be nil
	spent    bool   // it was discarded, or its commit failed
}

// Batch returns an empty batch. Claimed and BeyondQuota of the workspace apply to its commit.
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
		Collection: c.kind.spec.collection, Op: driver.Hold,
		Doc: driver.Document{ID: c.ws.part(c.kind.spec).qualify(meta.ID), Rev: meta.Rev},
	}}
}

// Preconditions are records that must be unchanged for a batch to commit; otherwise the commit is an ErrConflict.
// They close the gap between reading a record and acting on it. A change of a record that others depend on must be
// stored before its dependents are looked up. The zero value requires nothing.
type Preconditions struct{ unchanged []Precondition }

// Require adds preconditions. The commit ignores those on records of other organizations.
func (p *Preconditions) Require(unchanged ...Precondition) {
	p.unchanged = append(p.unchanged, unchanged...)
}

// Reset drops all preconditions, for an attempt that reads everything again.
func (p *Preconditions) Reset() { p.unchanged = nil }

// stage adds writes of a kind, and raises the records to the revision at which they will be stored. gone, of
// deletions, has what the records were that are deleted.
func (b *Batch) stage(home *home, s *Spec, writes []driver.Write, records []*Meta, gone []*prior) error {
	if home != b.ws.home {
		return fmt.Errorf("%w: %s is staged in a batch of another workspace", ErrQuery, s.Name)
	}
	for i, write := range writes {
		told := telling{spec: s, actor: b.ws.actor}
		if records[i] != nil {
			records[i].Rev++
			told.was = records[i].was
		} else if gone != nil {
			told.was = gone[i]
		}
		b.told = append(b.told, told)
		b.writes, b.kinds, b.records = append(b.writes, write), append(b.kinds, s), append(b.records, records[i])
	}
	return nil
}

// Discard restores the revisions of the staged records. A failed Commit calls it.
func (b *Batch) Discard() {
	for _, meta := range b.records {
		if meta != nil {
			meta.Rev--
		}
	}
	b.writes, b.kinds, b.records, b.told, b.conclude, b.spent = nil, nil, nil, nil, nil, true
}

// Atomic reports whether the batch is stored all or nothing, and in the same place as the documents of w.
func (b *Batch) Atomic(w *Workspace) bool { return w != nil && b.ws.home == w.home && b.ws.atomic() }

// Room returns a *QuotaError if the records that the batch inserts would exceed the organization's quota. It writes
// nothing. Other errors: ErrUnavailable.
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

// Commit stores the batch and returns once it is durable. Errors: *DuplicateError, ErrConflict if a record or a
// precondition has changed, *QuotaError, ErrUnavailable. The Position of an error is the index of the staged write; an
// index beyond them means a precondition.
func (b *Batch) Commit(ctx context.Context) error {
	if b.spent {
		return fmt.Errorf("%w: the batch was discarded, or its commit failed", ErrQuery)
	}
	if len(b.writes) == 0 {
		return nil
	}
	writes := b.writes
	for _, p := range b.unchanged {
		own := func(w driver.Write) bool { // a write of the same record checks its revision itself
			return w.Collection == p.write.Collection && w.Doc.ID == p.write.Doc.ID
		}
		if p.ws != nil && p.ws.home == b.ws.home && !slices.ContainsFunc(b.writes, own) {
			writes = append(slices.Clip(writes), p.write)
		}
	}
	if err := b.ws.commit(ctx, writes, b.told, b.conclude); err != nil {
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
			meta.was = b.kinds[i].tells(b.writes[i].Doc.Values).orNil()
		}
	}
	if !b.ws.atomic() {
		_ = b.ws.NotifyEnd(ctx, b.ending...) // the records are deleted already, whether or not it fails
	}
	return nil
}

// position returns the index of the write that an engine's error is about, -1 if it is about none.
func position(err error) int {
	if dup, is := errors.AsType[*driver.DuplicateError](err); is {
		return dup.Position
	}
	if conflict, is := errors.AsType[*driver.ConflictError](err); is {
		return conflict.Position
	}
	return -1
}

// A Claim is a record which says that a piece of work has begun. It is stored with the first commit through the
// workspaces that carry it (see Workspace.Claimed): in the same commit if that is in the claim's workspace, otherwise
// right before it. No write through these workspaces is stored without it. What a service writes through a workspace of
// its own may precede the claim, unless Begin is called first. Safe for concurrent use; commits that carry the claim
// run one after another.
type Claim struct {
	ws    *Workspace
	write driver.Write
	spec  *Spec

	mu               sync.Mutex // held during a commit that carries the claim
	begun, concluded atomic.Bool
	ended            sync.Map // identifiers of records that were deleted for good
}

// Claim returns a claim that replaces the record at the revision at which it was read.
func (c Collection[T]) Claim(rec *T) (*Claim, error) {
	write, err := c.replaceWrite(rec)
	return &Claim{ws: c.ws, write: write, spec: c.kind.spec}, err
}

// Conclude stages a record that completes a claim. If the claim has not been stored yet, the batch stores this record
// in its place. The record must be at the revision at which it was claimed.
func (c Collection[T]) Conclude(b *Batch, claim *Claim, rec *T) error {
	if claim.Begun() {
		metaOf(rec).Rev++
	}
	write, err := c.replaceWrite(rec)
	if err == nil {
		err = b.stage(c.ws.home, c.kind.spec, []driver.Write{write}, []*Meta{metaOf(rec)}, nil)
	}
	b.conclude = claim
	return err
}

// Begin stores the claim on its own, unless it is stored already. Errors: those of Commit.
func (c *Claim) Begin(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begun.Load() {
		return nil
	}
	err := c.ws.apply(ctx, []driver.Write{c.write}, nil)
	c.begun.Store(err == nil)
	return translate(c.spec, err)
}

// Begun reports whether the claim was stored. It returns false after a failed commit with an unknown outcome.
func (c *Claim) Begun() bool { return c.begun.Load() }

// Concluded reports whether a batch that concludes the claim was committed.
func (c *Claim) Concluded() bool { return c.concluded.Load() }

// Ended reports whether a workspace that carries the claim has deleted the record for good, or was about to.
func (c *Claim) Ended(id string) bool {
	_, ended := c.ended.Load(id)
	return ended
}

// Claimed returns the workspace with a claim, which the first commit stores too.
func (w *Workspace) Claimed(claim *Claim) *Workspace {
	c := *w
	c.claim = claim
	return &c
}

// commit stores the writes with the claim of the workspace, unless the claim is stored already or the writes conclude
// it. told is of the first writes.
func (w *Workspace) commit(ctx context.Context, writes []driver.Write, told []telling, concludes *Claim) error {
	c := w.claim
	if c == nil {
		return w.apply(ctx, writes, told)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := 0
	switch {
	case c.begun.Load() || concludes == c:
	case c.ws.home != w.home:
		if err := c.ws.apply(ctx, []driver.Write{c.write}, nil); err != nil {
			return err
		}
		c.begun.Store(true)
	default:
		writes, before = slices.Insert(slices.Clone(writes), 0, c.write), 1
		told = slices.Insert(slices.Clone(told), 0, telling{})
	}
	err := shifted(w.apply(ctx, writes, told), before)
	if err == nil {
		c.begun.Store(true)
		c.concluded.Store(concludes == c || c.concluded.Load())
	}
	return err
}

// apply stores the writes where the workspace lives. told is of the first writes.
func (w *Workspace) apply(ctx context.Context, writes []driver.Write, told []telling) error {
	if w.home == nil {
		return w.control.Write(ctx, writes)
	}
	return w.home.write(ctx, writes, told, w.beyondQuota)
}
