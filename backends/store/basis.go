package store

import (
	"context"
	"slices"

	"tenantry/backends/driver"
)

// Basis are records that the writes of whoever has its context stand on: each of those that is of the same organization is an
// ErrConflict unless they are as they were read, so that nobody looks first and then acts on what has changed. Who changes
// what a record stands on does that first, and then looks for what stands on it. The zero value holds nothing. Not safe for
// concurrent use, but by writes.
type Basis struct{ records []Change }

// Holding returns the change that makes a batch an ErrConflict unless the record is at the revision at which it was read.
func (c Collection[T]) Holding(rec *T) Change {
	meta := metaOf(rec)
	return Change{c.ws, driver.Write{
		Collection: c.kind.spec.collection, Op: driver.Hold, Doc: driver.Document{ID: c.ws.part(c.kind.spec).stored(meta.ID), Rev: meta.Rev},
	}}
}

type basisKey struct{}

// With returns the context of those whose writes are meant.
func (b *Basis) With(ctx context.Context) context.Context {
	return context.WithValue(ctx, basisKey{}, b)
}

// StandOn has the writes of whoever has the context stand on these records too.
func StandOn(ctx context.Context, records ...Change) {
	if b, ok := ctx.Value(basisKey{}).(*Basis); ok && b != nil {
		b.records = append(b.records, records...)
	}
}

// Anew has the writes of whoever has the context stand on nothing: what they stood on is read once more.
func Anew(ctx context.Context) {
	if b, ok := ctx.Value(basisKey{}).(*Basis); ok && b != nil {
		b.records = nil
	}
}

// beside returns writes of the workspace with what they stand on, but for what they change themselves: those say at which
// revision.
func (b *Basis) beside(w *Workspace, writes []driver.Write) []driver.Write {
	own := writes
	for _, held := range b.records {
		if held.ws != nil && held.ws.home == w.home && !slices.ContainsFunc(own, func(one driver.Write) bool {
			return one.Collection == held.write.Collection && one.Doc.ID == held.write.Doc.ID
		}) {
			writes = append(slices.Clip(writes), held.write)
		}
	}
	return writes
}
