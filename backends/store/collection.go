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

// State selects the records of a kind with SoftDelete that a query sees.
type State int

// The states. The zero value selects live records only.
const (
	Live State = iota
	Deleted
	Either
)

// Order is one key of a sort. In ascending order missing values come first.
type Order struct {
	Field Field
	Desc  bool
}

// Asc orders by a declared field, ascending.
func Asc(name string) Order { return Order{Field: F(name)} }

// Desc orders by a declared field, descending.
func Desc(name string) Order { return Order{Field: F(name), Desc: true} }

// maxOffset exceeds the number of records of any kind. A query with a larger offset finds nothing.
const maxOffset = 1<<31 - 1

// Query selects records. Ties are broken by id. A Limit of 0, or above MaxLimit, means MaxLimit.
//
// A record that cannot be read fails the query with an *UnreadableError. With LeaveOut it is omitted, noted and
// reported instead. It still counts towards Limit and Offset, so that pages join without gaps.
type Query struct {
	Filter Filter
	Sort   []Order
	Limit  int
	Offset int
	State  State
	// LeaveOut omits records that cannot be read. It is for lists that are shown, not for work that must cover all
	// records or decides on them.
	LeaveOut bool
	// Bytes, if positive, is the budget of the answer in decoded bytes. The answer ends before the record that exceeds
	// it, but has at least one. What exceeds UnweighedBytes is held in the room of the request.
	Bytes int64
	// Reserved is how many bytes of the request's room an earlier query has reserved for Bytes, whose answer is no
	// longer held.
	Reserved int64
	// Shared reuses decoded records, as Peek does, for records that are read far more often than they change. What
	// their fields point to must not be modified.
	Shared bool
}

// Collection is a kind opened in a workspace. Safe for concurrent use.
type Collection[T any] struct {
	kind *Kind[T]
	ws   *Workspace
}

// In opens the kind in a workspace.
func (k *Kind[T]) In(w *Workspace) Collection[T] { return Collection[T]{k, w} }

// where joins the caller's filter with the conditions that the workspace imposes: partition, state and teams.
func (w *Workspace) where(s *Spec, f Filter, state State) (driver.Predicate, error) {
	if !slices.Contains(w.specs, s.collection) {
		return driver.Predicate{}, fmt.Errorf("%w: %s is not a kind of this workspace", ErrQuery, s.Name)
	}
	var room [4]Filter // on the stack, because most queries have a single condition
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
	case state == Live && s.liveOmitted:
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
		return s.compile(all[0], w.part(s), 1) // at the depth it would have in a conjunction
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

// documents returns the matching documents of a kind, or passes them to take one by one, if that is not nil.
func (w *Workspace) documents(
	ctx context.Context, s *Spec, q Query, take func(*driver.Document) error,
) ([]driver.Document, error) {
	asked, err := w.query(s, q)
	if err != nil {
		return nil, err
	}
	var ended error
	if part := w.part(s); take != nil {
		asked.Take = func(d *driver.Document) error {
			if d != nil {
				d.ID = part.unqualify(d.ID)
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
		return nil, ended // not a failure of the engine
	}
	if full := holdRoom(ctx, docs); full != nil {
		return nil, full
	}
	for i, part := 0, w.part(s); i < len(docs); i++ {
		docs[i].ID = part.unqualify(docs[i].ID)
	}
	return docs, translate(s, err)
}

// Find returns the matching records, up to the query's budget. FindPart reports whether the budget ended the answer.
func (c Collection[T]) Find(ctx context.Context, q Query) ([]T, error) {
	found, err := c.FindPart(ctx, q)
	return found.Records, err
}

// read decodes a document, or copies the record that an earlier read of the same document decoded.
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

// Get returns the live record of that id, or ErrNotFound. A malformed id is an ErrNotFound too.
func (c Collection[T]) Get(ctx context.Context, id string) (*T, error) {
	if !ValidID(id) {
		return nil, fmt.Errorf("%s: %w", c.kind.spec.Name, ErrNotFound)
	}
	return c.First(ctx, Query{Filter: Eq("id", id)})
}

// Peek is Get for records that are read far more often than they change. The returned record is shared with other
// callers and must not be modified. Peek reads the document as Get does, but decodes it only if it differs from the
// cached one. The Derived belongs to the cached record.
func (c Collection[T]) Peek(ctx context.Context, id string) (*T, *Derived, error) {
	missing := func() error { return fmt.Errorf("%s: %w", c.kind.spec.Name, ErrNotFound) }
	if !ValidID(id) {
		return nil, nil, missing()
	}
	// The state is checked below, because a query by id alone is by far the fastest.
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

// shared decodes a document, or returns the cached record if the document is unchanged.
func (c Collection[T]) shared(doc *driver.Document) (*decoded[T], error) {
	key := orgDocument{c.ws.Org(), doc.ID}
	d, ok := c.kind.decoded.Get(key)
	if ok && d.rev == doc.Rev && bytes.Equal(d.body, doc.Body) && bytes.Equal(d.custom, doc.Custom) {
		return d, nil
	}

	d = &decoded[T]{rev: doc.Rev, body: doc.Body, custom: doc.Custom, rec: new(T)}
	if err := c.kind.decode(doc, d.rec); err != nil {
		return nil, err
	}
	if len(doc.Body)+len(doc.Custom) <= maxDecodedBytes {
		c.kind.decoded.Put(key, d)
	}
	return d, nil
}

// Derived caches the last value that was computed from a record that Peek returned. Safe for concurrent use.
type Derived struct{ last atomic.Pointer[derivation] }

// derivation is a value with the inputs from which it was computed.
type derivation struct{ from, value any }

// Of returns compute's value for the record and from. From must be comparable, and hold everything but the record that
// the value depends on. If from equals that of the last call, Of returns the cached value, which must not be modified.
func (m *Derived) Of(from any, compute func() (any, error)) (any, error) {
	if last := m.last.Load(); last != nil && last.from == from {
		return last.value, nil
	}
	value, err := compute()
	if err == nil {
		m.last.Store(&derivation{from, value})
	}
	return value, err
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

// Each calls fn with every matching record in order of id. It reads page by page, so records written in the meantime
// may or may not be seen. It stops at the first error of fn and returns it. Further error: *UnreadableError.
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

// EachBatch is Each for callers that process records in batches. It calls fn with the records of a page, which are at
// most BatchBytes or a single record. Fn must not retain them.
func (c Collection[T]) EachBatch(ctx context.Context, f Filter, state State, fn func([]*T) error) error {
	const page = 500
	after := "" // every id is greater
	for {
		found, err := c.FindPart(ctx, Query{
			Filter: All(f, Where(F("id"), driver.Gt, after)), Sort: []Order{Asc("id")},
			Limit: page, State: state, Bytes: BatchBytes,
		})
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
	// Purge deletes all records of a kind for good, and returns their number.
	Purge(ctx context.Context) (int64, error)
}

// Purge deletes all records for good, one by one, and returns how many it deleted. It stops at the first error.
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

// Insert stores new records, all or none if the engine has transactions, and returns once they are durable. It sets
// Rev, and ID, CreatedAt and UpdatedAt where they are empty. Error: *DuplicateError.
func (c Collection[T]) Insert(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageInsert(b, recs...))
}

// StageInsert adds the writes of Insert to a batch.
func (c Collection[T]) StageInsert(b *Batch, recs ...*T) error {
	return c.stage(b, c.insertWrite, recs)
}

// commit stores a batch, or discards it if staging its writes failed with err.
func commit(ctx context.Context, b *Batch, err error) error {
	if err != nil {
		b.Discard()
		return err
	}
	return b.Commit(ctx)
}

// insertWrite returns the write that inserts a record, and sets the record's identifier and times.
func (c Collection[T]) insertWrite(rec *T) (driver.Write, error) {
	meta := metaOf(rec)
	if meta.ID == "" {
		meta.ID = c.ws.NewID()
	}
	if !ValidID(meta.ID) {
		return driver.Write{}, fmt.Errorf("%s: %q is not a valid identifier", c.kind.spec.Name, meta.ID)
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

// Replace stores records over the revisions at which they were read, all or none if the engine has transactions, and
// returns once they are durable. It raises Rev by one and sets UpdatedAt. Errors: ErrConflict if a record was changed
// or removed since it was read or the workspace does not show it, *DuplicateError.
func (c Collection[T]) Replace(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageReplace(ctx, b, recs...))
}

// StageReplace adds the writes of Replace to a batch. Error: ErrConflict if the workspace does not show a record.
func (c Collection[T]) StageReplace(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.checkVisible(ctx, recs...); err != nil {
		return err
	}
	return c.stage(b, c.replaceWrite, recs)
}

// Save inserts the records of revision 0 and replaces the others, all or none if the engine has transactions. Errors:
// *DuplicateError, *ConflictError.
func (c Collection[T]) Save(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageSave(ctx, b, recs...))
}

// StageSave adds the writes of Save to a batch. Error: ErrConflict if the workspace does not show a record.
func (c Collection[T]) StageSave(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.checkVisible(ctx, recs...); err != nil {
		return err
	}
	return c.stage(b, func(rec *T) (driver.Write, error) {
		if metaOf(rec).Rev == 0 {
			return c.insertWrite(rec)
		}
		return c.replaceWrite(rec)
	}, recs)
}

// MaxRows is how many rows one write should change at most, see Portion. Other writes wait about 20 ms for that many.
const MaxRows = 2_000

// Portion returns how many of the records, counted from the first and at least one, a single write should insert,
// replace or delete. It is for work that may be divided, because it need not be stored all or nothing.
func (c Collection[T]) Portion(recs []*T) int {
	rows := 0
	for i, rec := range recs {
		one := c.kind.spec.collection.Rows(func(n int) int {
			return reflect.ValueOf(rec).Elem().FieldByIndex(c.kind.fields[n].path).Len()
		})
		if metaOf(rec).Rev > 0 { // the stored record has about as many rows, which the write removes
			one *= 2
		}
		if rows += one; rows > MaxRows && i > 0 {
			return i
		}
	}
	return len(recs)
}

// checkVisible returns a *ConflictError unless the workspace shows each record that is not new, live or not, at the
// revision at which it was read. The write that follows checks the revisions again, so a change in between is a
// conflict.
func (c Collection[T]) checkVisible(ctx context.Context, recs ...*T) error {
	s := c.kind.spec
	if err := c.checkWritable(); err != nil {
		return err
	}
	if !s.Teams || !c.ws.scoped || c.ws.scope.All {
		return nil // stored identifiers include the partition, so they cannot name another organization's records
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
	note := func(d *driver.Document) error {
		if d == nil { // the engine starts over
			clear(revs)
		} else {
			revs[d.ID] = d.Rev
		}
		return nil
	}
	q := Query{Filter: In("id", ids...), State: Either, Limit: len(ids)}
	if _, err := c.ws.documents(ctx, s, q, note); err != nil {
		return err
	}
	for i, rec := range recs {
		if meta := metaOf(rec); meta.Rev > 0 && revs[meta.ID] != meta.Rev {
			return &ConflictError{Kind: s.Name, Position: i}
		}
	}
	return nil
}

// replaceWrite returns the write that replaces a record at the revision at which it was read.
func (c Collection[T]) replaceWrite(rec *T) (driver.Write, error) {
	metaOf(rec).UpdatedAt = c.ws.store.now().UnixMilli()
	return c.write(driver.Replace, rec)
}

const updateTries = 10

// Update reads the live record of that id, calls change to modify it, and stores it. On a conflict it starts over with
// the record read again. Updates of one record take turns within the process. It returns the record as stored. Errors:
// ErrNotFound, those of change, *DuplicateError, ErrConflict after ten tries.
func (c Collection[T]) Update(ctx context.Context, id string, change func(*T) error) (*T, error) {
	return c.Revise(ctx, id, func(_ *Preconditions, rec *T) error { return change(rec) }, nil)
}

// Revise is Update for a change with preconditions, or with further writes. Commit, if not nil, adds the writes to the
// batch and must commit it. Each try begins with a new batch.
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
		meta.ID, meta.Rev, meta.bytes = id, rev, bytes // change may replace the whole record
		if err = c.stage(b, c.replaceWrite, []*T{rec}); err == nil {
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

// Delete deletes records for good, all or none if the engine has transactions. Error: ErrConflict if a record was
// changed since it was read, or the workspace does not show it.
func (c Collection[T]) Delete(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageDelete(ctx, b, recs...))
}

// StageDelete adds the writes of Delete to a batch, and calls the hook of Store.OnEnd. Errors: ErrConflict if the
// workspace does not show a record; those of the hook.
func (c Collection[T]) StageDelete(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.checkVisible(ctx, recs...); err != nil {
		return err
	}
	writes := make([]driver.Write, len(recs))
	var ending []string
	for i, rec := range recs {
		meta := metaOf(rec)
		writes[i] = driver.Write{
			Collection: c.kind.spec.collection, Op: driver.Delete,
			Doc: driver.Document{ID: c.ws.part(c.kind.spec).qualify(meta.ID), Rev: meta.Rev, Was: meta.bytes},
		}
		if c.kind.spec.SoftDelete {
			ending = append(ending, meta.ID)
		}
	}
	if err := c.ws.NotifyEnd(ctx, ending...); err != nil {
		return err
	}
	b.ending = append(b.ending, ending...)
	return b.stage(c.ws.home, c.kind.spec, writes, make([]*Meta, len(writes)))
}

// checkWritable returns an error if the workspace does not have the kind, or lacks the partition that the kind needs.
func (c Collection[T]) checkWritable() error {
	s := c.kind.spec
	if !slices.Contains(c.ws.specs, s.collection) || s.Partition != (c.ws.partition != 0) {
		return fmt.Errorf("%w: %s cannot be written in this workspace", ErrQuery, s.Name)
	}
	return nil
}

// write encodes a record into a write.
func (c Collection[T]) write(op driver.WriteOp, rec *T) (driver.Write, error) {
	s := c.kind.spec
	if err := c.checkWritable(); err != nil {
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
	doc.ID, doc.Was = c.ws.part(s).qualify(doc.ID), metaOf(rec).bytes
	return driver.Write{Collection: s.collection, Op: op, Doc: doc}, err
}
