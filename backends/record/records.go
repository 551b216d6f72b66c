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
	// Insert stores new records if what it requires is unchanged.
	Insert(ctx context.Context, ws *store.Workspace, need store.Preconditions, recs []any) error
	// Portion returns how many of the records one Insert should store; see store.Collection.
	Portion(ws *store.Workspace, recs []any) int
	// Replace stores rec, to which change has been made already, if what it requires is unchanged.
	Replace(ctx context.Context, ws *store.Workspace, need store.Preconditions, rec any, change func(rec any)) error
	// Delete removes rec for good. Error: store.ErrConflict where it is not as it was read.
	Delete(ctx context.Context, ws *store.Workspace, rec any) error
	// Unchanged returns the precondition that rec is as it was read.
	Unchanged(ws *store.Workspace, rec any) store.Precondition
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

func (r records[T]) Insert(ctx context.Context, ws *store.Workspace, need store.Preconditions, recs []any) error {
	b := ws.Batch()
	b.Preconditions = need
	if err := r.kind.In(ws).StageInsert(b, typed[T](recs)...); err != nil {
		return err
	}
	return b.Commit(ctx)
}

func (r records[T]) Portion(ws *store.Workspace, recs []any) int {
	return r.kind.In(ws).Portion(typed[T](recs))
}

func (r records[T]) Unchanged(ws *store.Workspace, rec any) store.Precondition {
	return r.kind.In(ws).Unchanged(rec.(*T))
}

func (r records[T]) Replace(ctx context.Context, ws *store.Workspace, need store.Preconditions, rec any, _ func(any)) error {
	b := ws.Batch()
	b.Preconditions = need
	if err := r.kind.In(ws).StageReplace(ctx, b, rec.(*T)); err != nil {
		return err
	}
	return b.Commit(ctx)
}

func (r records[T]) Delete(ctx context.Context, ws *store.Workspace, rec any) error {
	return r.kind.In(ws).Delete(ctx, rec.(*T))
}
