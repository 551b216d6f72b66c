package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"tenantry/backends/driver"
)

// State says which records of a kind with SoftDelete a question sees.
type State int

// The states. The zero value sees live records only.
const (
	Live State = iota
	Deleted
	Either
)

// Order is one step of a sort; missing values come first, ascending.
type Order struct {
	Field Field
	Desc  bool
}

// Asc orders by a declared field, ascending.
func Asc(name string) Order { return Order{Field: F(name)} }

// Desc orders by a declared field, descending.
func Desc(name string) Order { return Order{Field: F(name), Desc: true} }

// maxOffset is more than any kind of an organization has: what lies beyond it is nothing.
const maxOffset = 1<<31 - 1

// Query asks for records. Ties are broken by id. Limit 0 means MaxLimit; more is cut to it. A record that cannot be
// read fails the question with an *UnreadableError, or with LeaveOut itself alone: it is left out, noted and logged.
// Its place stays empty, so that pages meet, and it counts.
type Query struct {
	Filter Filter
	Sort   []Order
	Limit  int
	Offset int
	State  State
	// LeaveOut is for lists that are shown to somebody, and not for what all records are taken along by or decided on.
	LeaveOut bool
	// Bytes, where positive, ends the answer before the record with which all of them would take more than that,
	// decoded, but not before the first. What is more than UnweighedBytes of it is held in the room of the request.
	Bytes int64
	// Roomed is how much of the room of the request was found for Bytes already, by an earlier question whose answer is
	// not held any more.
	Roomed int64
	// Shared spares the decoding of records that are read far more often than they change, as Peek does: nobody may
	// change what their members point to.
	Shared bool
}

// Collection is a kind opened in a workspace. Safe for concurrent use.
type Collection[T any] struct {
	kind *Kind[T]
	ws   *Workspace
}

// In opens the kind in a workspace.
func (k *Kind[T]) In(w *Workspace) Collection[T] { return Collection[T]{k, w} }

// where joins the caller's filter with everything the workspace imposes.
func (w *Workspace) where(s *Spec, f Filter, state State) (driver.Predicate, error) {
	if !slices.Contains(w.specs, s.collection) {
		return driver.Predicate{}, fmt.Errorf("%w: %s is not a kind of this workspace", ErrQuery, s.Name)
	}
	var room [4]Filter // most questions have one condition, and nothing is allocated to join it
	all := room[:0]
	if s.Partition {
		if w.partition == 0 {
			return driver.Predicate{}, fmt.Errorf("%w: %s needs a partition", ErrQuery, s.Name)
		}
		all = append(all, Eq(partitionField, w.partition))
	} else if w.partition != 0 {
		return driver.Predicate{}, fmt.Errorf("%w: %s is not partitioned", ErrQuery, s.Name)
	}
	switch {
	case !s.SoftDelete || state == Either:
	case state == Live && s.liveSaysNothing:
		all = append(all, Where(F("deleted"), OpNe, true))
	default:
		all = append(all, Eq("deleted", state == Deleted))
	}
	if !f.IsZero() {
		all = append(all, f)
	}
	if s.Teams && w.scoped && !w.scope.All {
		visible := Has("teams", false)
		if len(w.scope.Teams) > 0 {
			visible = AnyOf(visible, In("teams", w.scope.Teams...))
		}
		all = append(all, visible)
	}
	if len(all) == 1 {
		return s.compile(all[0], w.part(s), 1) // as deep as beside others
	}
	return s.compile(All(slices.Clone(all)...), w.part(s), 0)
}

func (w *Workspace) query(s *Spec, q Query) (driver.Query, error) {
	where, err := w.where(s, q.Filter, q.State)
	if err != nil {
		return driver.Query{}, err
	}
	out := driver.Query{Collection: s.collection, Where: where, Limit: q.Limit, Offset: max(q.Offset, 0)}
	if out.Limit <= 0 || out.Limit > MaxLimit {
		out.Limit = MaxLimit
	}
	for _, o := range q.Sort {
		ref, err := s.ref(o.Field)
		if err != nil {
			return driver.Query{}, err
		}
		out.Sort = append(out.Sort, driver.Order{Ref: ref, Desc: o.Desc})
	}
	return out, nil
}

// documents returns those of a kind that match, or gives them to who takes them.
func (w *Workspace) documents(ctx context.Context, s *Spec, q Query, take func(*driver.Document) error) ([]driver.Document, error) {
	asked, err := w.query(s, q)
	if err != nil {
		return nil, err
	}
	var ended error
	if part := w.part(s); take != nil {
		asked.Take = func(d *driver.Document) error {
			if d != nil {
				d.ID = part.given(d.ID)
			}
			ended = take(d)
			return ended
		}
	}
	if asked.Offset > maxOffset {
		return nil, translate(s, ctx.Err())
	}
	drv, err := w.reader(ctx)
	if err != nil {
		return nil, translate(s, err)
	}
	docs, err := drv.Find(ctx, asked)
	if ended != nil {
		return nil, ended // which is no failure of the engine
	}
	if full := held(ctx, docs); full != nil {
		return nil, full
	}
	for i, part := 0, w.part(s); i < len(docs); i++ {
		docs[i].ID = part.given(docs[i].ID)
	}
	return docs, translate(s, err)
}

// Find returns the matching records; with a budget of bytes as far as those go, see FindPart.
func (c Collection[T]) Find(ctx context.Context, q Query) ([]T, error) {
	found, err := c.FindPart(ctx, q)
	return found.Records, err
}

// read decodes a document, or copies what it was decoded to before.
func (c Collection[T]) read(doc *driver.Document, rec *T, shared bool) error {
	if !shared {
		return c.kind.decode(doc, rec)
	}
	d, err := c.shared(doc)
	if err == nil {
		*rec = *d.rec
	}
	return err
}

// First returns the first matching record, or ErrNotFound.
func (c Collection[T]) First(ctx context.Context, q Query) (*T, error) {
	q.Limit = 1
	found, err := c.Find(ctx, q)
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%s: %w", c.kind.spec.Name, ErrNotFound)
	}
	return &found[0], nil
}

// Get returns the live record of that id, or ErrNotFound. A malformed id is a missing record.
func (c Collection[T]) Get(ctx context.Context, id string) (*T, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("%s: %w", c.kind.spec.Name, ErrNotFound)
	}
	return c.First(ctx, Query{Filter: Eq("id", id)})
}

// Peek is Get for records that are read far more often than they change. What it returns
// is shared with other callers: nobody may change it. The store is asked as for Get; only
// the decoding is spared while the document is the same, byte for byte, and with it what Made keeps.
func (c Collection[T]) Peek(ctx context.Context, id string) (*T, *Made, error) {
	missing := func() error { return fmt.Errorf("%s: %w", c.kind.spec.Name, ErrNotFound) }
	if !ValidID(id) {
		return nil, nil, missing()
	}
	// Whether it is live is seen below: a question of the id alone is by far the quickest.
	docs, err := c.ws.documents(ctx, c.kind.spec, Query{Filter: Eq("id", id), Limit: 1, State: Either}, nil)
	if err != nil {
		return nil, nil, err
	}
	if len(docs) == 0 {
		return nil, nil, missing()
	}
	d, err := c.shared(&docs[0])
	if err != nil {
		return nil, nil, c.ws.unreadable(ctx, c.kind.spec, &docs[0], err)
	}
	if c.kind.trash != nil && reflect.ValueOf(d.rec).Elem().FieldByIndex(c.kind.trash).Bool() {
		return nil, nil, missing()
	}
	return d.rec, &d.made, nil
}

// shared decodes a document, or returns what it was decoded to before.
func (c Collection[T]) shared(doc *driver.Document) (*decoded[T], error) {
	key := owned{c.ws.Org(), doc.ID}
	if d, ok := c.kind.decoded.Get(key); ok && d.rev == doc.Rev && bytes.Equal(d.body, doc.Body) && bytes.Equal(d.custom, doc.Custom) {
		return d, nil
	}
	d := &decoded[T]{rev: doc.Rev, body: doc.Body, custom: doc.Custom, rec: new(T)}
	if err := c.kind.decode(doc, d.rec); err != nil {
		return nil, err
	}
	if len(doc.Body)+len(doc.Custom) <= maxDecodedBytes {
		c.kind.decoded.Put(key, d)
	}
	return d, nil
}

// Made keeps what was last made of a record that Peek returned. Safe for concurrent use.
type Made struct{ last atomic.Pointer[made] }

type made struct{ from, is any }

// Of returns what make makes of the record and from, which is all else that it depends on and can be compared; where
// that was asked last, it is what was made then, which nobody may change.
func (m *Made) Of(from any, make func() (any, error)) (any, error) {
	if last := m.last.Load(); last != nil && last.from == from {
		return last.is, nil
	}
	is, err := make()
	if err == nil {
		m.last.Store(&made{from, is})
	}
	return is, err
}

// Count returns how many live records match.
func (c Collection[T]) Count(ctx context.Context, f Filter) (int64, error) {
	return c.CountIn(ctx, f, Live)
}

// CountIn returns how many records in that state match.
func (c Collection[T]) CountIn(ctx context.Context, f Filter, state State) (int64, error) {
	return c.ws.count(ctx, c.kind.spec, f, state)
}

func (w *Workspace) count(ctx context.Context, s *Spec, f Filter, state State) (int64, error) {
	where, err := w.where(s, f, state)
	if err != nil {
		return 0, err
	}
	n, err := w.countAll(ctx, s.collection, where)
	return n, translate(s, err)
}

func (w *Workspace) countAll(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	drv, err := w.reader(ctx)
	if err != nil {
		return 0, err
	}
	return drv.Count(ctx, c, where)
}

// Each calls fn with every matching record in order of id, reading in pages: records
// written meanwhile may or may not be seen. It stops at fn's first error and returns it, or an *UnreadableError
// at a record that cannot be read.
func (c Collection[T]) Each(ctx context.Context, f Filter, state State, fn func(*T) error) error {
	return c.EachBatch(ctx, f, state, func(recs []*T) error {
		for _, rec := range recs {
			if err := fn(rec); err != nil {
				return err
			}
		}
		return nil
	})
}

// EachBatch is Each for whoever writes the records in batches: fn gets those of a page, of BatchBytes at most or one,
// and keeps none of them.
func (c Collection[T]) EachBatch(ctx context.Context, f Filter, state State, fn func([]*T) error) error {
	const page = 500
	after := "" // every id is greater
	for {
		filter := All(f, Where(F("id"), driver.Gt, after))
		found, err := c.FindPart(ctx, Query{Filter: filter, Sort: []Order{Asc("id")}, Limit: page, State: state, Bytes: BatchBytes})
		if err != nil {
			return err
		}
		recs := make([]*T, len(found.Records))
		for i := range recs {
			recs[i] = &found.Records[i]
			after = metaOf(recs[i]).ID // fn may change it
		}
		if err := fn(recs); err != nil {
			return err
		}
		if len(recs) < page && !found.Cut {
			return nil
		}
	}
}

// Purger deletes records.
type Purger interface {
	// Purge deletes all records of a kind for good, and returns how many it did.
	Purge(ctx context.Context) (int64, error)
}

// Purge deletes all records one by one, and stops at the first error.
func (c Collection[T]) Purge(ctx context.Context) (n int64, err error) {
	err = c.Each(ctx, Filter{}, Either, func(rec *T) error {
		err := c.Delete(ctx, rec)
		if err == nil {
			n++
		}
		return err
	})
	return n, err
}

// Insert stores new records, all or none where the engine has
// transactions, and returns once they are durable. It fills ID where empty, CreatedAt where zero,
// UpdatedAt where zero, and Rev. Error: *DuplicateError.
func (c Collection[T]) Insert(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageInsert(b, recs...))
}

// StageInsert adds to a batch what Insert stores.
func (c Collection[T]) StageInsert(b *Batch, recs ...*T) error { return c.stage(b, c.inserting, recs) }

// commit stores a batch whose writes could be staged.
func commit(ctx context.Context, b *Batch, err error) error {
	if err != nil {
		b.Discard()
		return err
	}
	return b.Commit(ctx)
}

// inserting returns the write of a new record, which it fills.
func (c Collection[T]) inserting(rec *T) (driver.Write, error) {
	meta := metaOf(rec)
	if meta.ID == "" {
		meta.ID = c.ws.NewID()
	}
	if !ValidID(meta.ID) {
		return driver.Write{}, fmt.Errorf("%s: %q is no identifier", c.kind.spec.Name, meta.ID)
	}
	if meta.CreatedAt == 0 {
		meta.CreatedAt = c.ws.store.now().UnixMilli()
	}
	if meta.UpdatedAt == 0 {
		meta.UpdatedAt = meta.CreatedAt
	}
	meta.Rev = 0
	return c.write(driver.Insert, rec)
}

// stage adds writes of records to a batch.
func (c Collection[T]) stage(b *Batch, writing func(*T) (driver.Write, error), recs []*T) (err error) {
	writes, records := make([]driver.Write, len(recs)), make([]*Meta, len(recs))
	for i, rec := range recs {
		if writes[i], err = writing(rec); err != nil {
			return err
		}
		records[i] = metaOf(rec)
	}
	return b.stage(c.ws.home, c.kind.spec, writes, records)
}

// Replace stores records over the revisions they were read at, all or none where the engine has
// transactions, and returns once they are durable; Rev grows by one and UpdatedAt becomes now.
// Errors: ErrConflict where one was changed or removed meanwhile or the workspace does not show it,
// *DuplicateError.
func (c Collection[T]) Replace(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageReplace(ctx, b, recs...))
}

// StageReplace adds to a batch what Replace stores. Error: ErrConflict where the workspace does not show a record.
func (c Collection[T]) StageReplace(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.visible(ctx, recs...); err != nil {
		return err
	}
	return c.stage(b, c.replacing, recs)
}

// Save inserts the records that are new, whose revision is 0, and replaces the others, all or none where the
// engine has transactions, as Insert and Replace do each. Errors: *DuplicateError, *ConflictError.
func (c Collection[T]) Save(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageSave(ctx, b, recs...))
}

// StageSave adds to a batch what Save stores. Error: ErrConflict where the workspace does not show a record.
func (c Collection[T]) StageSave(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.visible(ctx, recs...); err != nil {
		return err
	}
	return c.stage(b, func(rec *T) (driver.Write, error) {
		if metaOf(rec).Rev == 0 {
			return c.inserting(rec)
		}
		return c.replacing(rec)
	}, recs)
}

// MostRows is how many rows one write should change, see Portion: those of others wait for it, some 20 ms.
const MostRows = 2_000

// Portion returns how many of the records, from the first on and at least one, should be inserted, replaced or deleted
// by one write. What need not be all or nothing is divided so.
func (c Collection[T]) Portion(recs []*T) int {
	rows := 0
	for i, rec := range recs {
		one := c.kind.spec.collection.Rows(func(n int) int {
			return reflect.ValueOf(rec).Elem().FieldByIndex(c.kind.fields[n].path).Len()
		})
		if metaOf(rec).Rev > 0 { // of the record before it there are as many
			one *= 2
		}
		if rows += one; rows > MostRows && i > 0 {
			return i
		}
	}
	return len(recs)
}

// visible fails unless the workspace shows the records, live or not, at the revisions they
// were read at, or they are new. The write that follows names the revisions, so nobody comes between.
func (c Collection[T]) visible(ctx context.Context, recs ...*T) error {
	s := c.kind.spec
	if err := c.writable(); err != nil {
		return err
	}
	if !s.Teams || !c.ws.scoped || c.ws.scope.All {
		return nil // a partition's identifiers are stored with it and reach no other's
	}
	var ids []string
	for _, rec := range recs {
		if meta := metaOf(rec); meta.Rev > 0 {
			ids = append(ids, meta.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	revs := make(map[string]int64, len(ids))
	_, err := c.ws.documents(ctx, s, Query{Filter: In("id", ids...), State: Either, Limit: len(ids)}, func(d *driver.Document) error {
		if d == nil {
			clear(revs)
		} else {
			revs[d.ID] = d.Rev
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, rec := range recs {
		if meta := metaOf(rec); meta.Rev > 0 && revs[meta.ID] != meta.Rev {
			return &ConflictError{Kind: s.Name, Position: i}
		}
	}
	return nil
}

// replacing returns the write of a record over the revision it was read at.
func (c Collection[T]) replacing(rec *T) (driver.Write, error) {
	metaOf(rec).UpdatedAt = c.ws.store.now().UnixMilli()
	return c.write(driver.Replace, rec)
}

const updateTries = 10

// Update reads the live record of that id, lets change alter it, and stores it, again
// from the start where somebody else came between. Those of one process take turns. It returns the record as stored.
// Errors: ErrNotFound, what change returns, *DuplicateError, ErrConflict after ten tries.
func (c Collection[T]) Update(ctx context.Context, id string, change func(*T) error) (*T, error) {
	return c.Revise(ctx, id, func(_ *Preconditions, rec *T) error { return change(rec) }, nil)
}

// Revise is Update for a change with preconditions, or whose batch holds more than the record: commit, where it is not
// nil, adds that and commits. Each try begins with a batch of its own.
func (c Collection[T]) Revise(ctx context.Context, id string, change func(*Preconditions, *T) error,
	commit func(context.Context, *Batch, *T) error) (*T, error) {
	if commit == nil {
		commit = func(ctx context.Context, b *Batch, _ *T) error { return b.Commit(ctx) }
	}
	defer c.ws.store.turn(ctx, recordTurn{c.ws.Org(), c.kind.spec.Name, id})()
	for range updateTries {
		rec, err := c.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		meta, b := metaOf(rec), c.ws.Batch()
		rev, bytes := meta.Rev, meta.bytes
		if err := change(&b.Preconditions, rec); err != nil {
			return nil, err
		}
		meta.ID, meta.Rev, meta.bytes = id, rev, bytes // change decides about the values only
		if err = c.stage(b, c.replacing, []*T{rec}); err == nil {
			err = commit(ctx, b, rec)
		}
		if err == nil {
			return rec, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s %s: %w", c.kind.spec.Name, id, ErrConflict)
}

// Delete removes records for good, all or none where the engine has transactions, if each still has the
// revision it was read at and the workspace shows it. Error: ErrConflict.
func (c Collection[T]) Delete(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageDelete(ctx, b, recs...))
}

// StageDelete adds to a batch what Delete removes, and tells who keeps something of the records, see Store.OnEnd.
// Error: ErrConflict where the workspace does not show a record.
func (c Collection[T]) StageDelete(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.visible(ctx, recs...); err != nil {
		return err
	}
	writes := make([]driver.Write, len(recs))
	var ending []string
	for i, rec := range recs {
		meta := metaOf(rec)
		writes[i] = driver.Write{Collection: c.kind.spec.collection, Op: driver.Delete, Doc: driver.Document{ID: c.ws.part(c.kind.spec).stored(meta.ID), Rev: meta.Rev, Was: meta.bytes}}
		if c.kind.spec.SoftDelete {
			ending = append(ending, meta.ID)
		}
	}
	if err := c.ws.Ending(ctx, ending...); err != nil {
		return err
	}
	b.ending = append(b.ending, ending...)
	return b.stage(c.ws.home, c.kind.spec, writes, make([]*Meta, len(writes)))
}

func (c Collection[T]) writable() error {
	s := c.kind.spec
	if !slices.Contains(c.ws.specs, s.collection) || s.Partition != (c.ws.partition != 0) {
		return fmt.Errorf("%w: %s cannot be written in this workspace", ErrQuery, s.Name)
	}
	return nil
}

func (c Collection[T]) write(op driver.WriteOp, rec *T) (driver.Write, error) {
	s := c.kind.spec
	if err := c.writable(); err != nil {
		return driver.Write{}, err
	}
	if s.Partition {
		for i, f := range s.collection.Fields {
			if f.Name == partitionField {
				reflect.ValueOf(rec).Elem().FieldByIndex(c.kind.fields[i].path).SetInt(c.ws.partition)
			}
		}
	}
	doc, err := c.kind.encode(rec)
	doc.ID, doc.Was = c.ws.part(s).stored(doc.ID), metaOf(rec).bytes
	return driver.Write{Collection: s.collection, Op: op, Doc: doc}, err
}
