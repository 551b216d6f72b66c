package record

import (
	"context"

	"tenantry/backends/store"
)

// Records are where the records of a resource are kept.
type Records interface {
	// Spec returns their declaration for the store; nil where they are in no collection.
	Spec() *store.Spec
	Find(ctx context.Context, ws *store.Workspace, q store.Query) ([]any, error)
	// Each visits all that match, deleted ones among them.
	Each(ctx context.Context, ws *store.Workspace, f store.Filter, visit func(rec any) error) error
	// Count returns how many there are, deleted ones among them.
	Count(ctx context.Context, ws *store.Workspace) (int64, error)
	Insert(ctx context.Context, ws *store.Workspace, recs []any) error
	// Portion returns how many of the records one Insert should store; see store.Collection.
	Portion(ws *store.Workspace, recs []any) int
	// Replace stores rec, to which change has been made already.
	Replace(ctx context.Context, ws *store.Workspace, rec any, change func(rec any)) error
	// Delete removes rec for good. Error: store.ErrConflict where it is not as it was read.
	Delete(ctx context.Context, ws *store.Workspace, rec any) error
	// Holding returns what makes a write stand on rec as it was read; see store.Basis.
	Holding(ws *store.Workspace, rec any) store.Change
}

// records are those of a collection.
type records[T any] struct{ kind *store.Kind[T] }

func (r records[T]) Spec() *store.Spec { return r.kind.Spec() }

func (r records[T]) Find(ctx context.Context, ws *store.Workspace, q store.Query) ([]any, error) {
	found, err := r.kind.In(ws).Find(ctx, q)
	out := make([]any, len(found))
	for i := range found {
		out[i] = &found[i]
	}
	return out, err
}

func (r records[T]) Each(ctx context.Context, ws *store.Workspace, f store.Filter, visit func(any) error) error {
	return r.kind.In(ws).Each(ctx, f, store.Either, func(rec *T) error { return visit(rec) })
}

func (r records[T]) Count(ctx context.Context, ws *store.Workspace) (int64, error) {
	return r.kind.In(ws).CountIn(ctx, store.Filter{}, store.Either)
}

func (r records[T]) Insert(ctx context.Context, ws *store.Workspace, recs []any) error {
	return r.kind.In(ws).Insert(ctx, typed[T](recs)...)
}

func (r records[T]) Portion(ws *store.Workspace, recs []any) int {
	return r.kind.In(ws).Portion(typed[T](recs))
}

func (r records[T]) Holding(ws *store.Workspace, rec any) store.Change {
	return r.kind.In(ws).Holding(rec.(*T))
}

func (r records[T]) Replace(ctx context.Context, ws *store.Workspace, rec any, _ func(any)) error {
	return r.kind.In(ws).Replace(ctx, rec.(*T))
}

func (r records[T]) Delete(ctx context.Context, ws *store.Workspace, rec any) error {
	return r.kind.In(ws).Delete(ctx, rec.(*T))
}
