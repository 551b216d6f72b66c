package store

import (
	"bytes"
	"context"
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

// NewestFirst orders by the time of creation, descending. What one process created in the same millisecond is in the
// order of its identifiers.
func NewestFirst() []Order { return []Order{Desc("created_at"), Desc("id")} }

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
