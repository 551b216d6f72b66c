package record

import (
	"context"

	"tenantry/backends/store"
)

// Records reads and writes the records of a resource, wherever they are kept. A record is a pointer to the struct that
// the resource describes.
type Records interface {
	// Spec returns the declaration of the records for the store; nil if they are not in a collection.
	Spec() *store.Spec
	Find(ctx context.Context, ws *store.Workspace, q store.Query) ([]any, error)
	// Each visits all matching records, deleted or not.
	Each(ctx context.Context, ws *store.Workspace, f store.Filter, visit func(rec any) error) error
	// Count returns the number of all records, deleted or not.
	Count(ctx context.Context, ws *store.Workspace) (int64, error)
	// Insert stores new records under the preconditions.
	Insert(ctx context.Context, ws *store.Workspace, need store.Preconditions, recs []any) error
	// Portion returns how many of the records one Insert should store; see store.Collection.
	Portion(ws *store.Workspace, recs []any) int
	// Replace stores rec under the preconditions. The change has been applied to rec already.
	Replace(ctx context.Context, ws *store.Workspace, need store.Preconditions, rec any, change func(rec any)) error
	// Delete deletes rec for good. Error: store.ErrConflict if it was changed since it was read.
	Delete(ctx context.Context, ws *store.Workspace, rec any) error
	// Unchanged returns the precondition that rec is unchanged since it was read.
	Unchanged(ws *store.Workspace, rec any) store.Precondition
}

// Collection is Records that are kept in a collection. Its further methods are those of store.Collection, on untyped
// records.
type Collection interface {
	Records
	First(ctx context.Context, ws *store.Workspace, q store.Query) (any, error)
	FindPart(ctx context.Context, ws *store.Workspace, q store.Query) (store.Found[any], error)
	Page(ctx context.Context, ws *store.Workspace, q store.Query, of store.Filter) (store.Found[any], int64, error)
	CountIn(ctx context.Context, ws *store.Workspace, f store.Filter, state store.State) (int64, error)
	EachBatch(ctx context.Context, ws *store.Workspace, f store.Filter, state store.State,
		visit func(recs []any) error) error
	Revise(ctx context.Context, ws *store.Workspace, id string, change func(need *store.Preconditions, rec any) error,
		commit func(ctx context.Context, b *store.Batch, rec any) error) (any, error)
	StageInsert(ws *store.Workspace, b *store.Batch, recs ...any) error
	StageReplace(ctx context.Context, ws *store.Workspace, b *store.Batch, recs ...any) error
	StageSave(ctx context.Context, ws *store.Workspace, b *store.Batch, recs ...any) error
	StageDelete(ctx context.Context, ws *store.Workspace, b *store.Batch, recs ...any) error
}

// records implements Collection for records of type T.
type records[T any] struct{ kind *store.Kind[T] }

func (r records[T]) Spec() *store.Spec { return r.kind.Spec() }

func (r records[T]) Find(ctx context.Context, ws *store.Workspace, q store.Query) ([]any, error) {
	found, err := r.kind.In(ws).Find(ctx, q)
	return pointers(found), err
}

// pointers returns pointers to the records, as untyped values.
func pointers[T any](recs []T) []any {
	out := make([]any, len(recs))
	for i := range recs {
		out[i] = &recs[i]
	}
	return out
}

func (r records[T]) First(ctx context.Context, ws *store.Workspace, q store.Query) (any, error) {
	rec, err := r.kind.In(ws).First(ctx, q)
	if err != nil {
		return nil, err
	}
	return rec, nil
}

func (r records[T]) FindPart(ctx context.Context, ws *store.Workspace, q store.Query) (store.Found[any], error) {
	found, err := r.kind.In(ws).FindPart(ctx, q)
	return untyped(found), err
}

func untyped[T any](found store.Found[T]) store.Found[any] {
	return store.Found[any]{Records: pointers(found.Records), Left: found.Left, Cut: found.Cut, Size: found.Size}
}

func (r records[T]) Page(
	ctx context.Context, ws *store.Workspace, q store.Query, of store.Filter,
) (store.Found[any], int64, error) {
	found, count, err := r.kind.In(ws).Page(ctx, q, of)
	return untyped(found), count, err
}

func (r records[T]) CountIn(
	ctx context.Context, ws *store.Workspace, f store.Filter, state store.State,
) (int64, error) {
	return r.kind.In(ws).CountIn(ctx, f, state)
}

func (r records[T]) EachBatch(
	ctx context.Context, ws *store.Workspace, f store.Filter, state store.State, visit func([]any) error,
) error {
	return r.kind.In(ws).EachBatch(ctx, f, state, func(recs []*T) error {
		out := make([]any, len(recs))
		for i, rec := range recs {
			out[i] = rec
		}
		return visit(out)
	})
}

func (r records[T]) Revise(
	ctx context.Context, ws *store.Workspace, id string, change func(*store.Preconditions, any) error,
	commit func(context.Context, *store.Batch, any) error,
) (any, error) {
	rec, err := r.kind.In(ws).Revise(ctx, id,
		func(need *store.Preconditions, rec *T) error { return change(need, rec) },
		func(ctx context.Context, b *store.Batch, rec *T) error { return commit(ctx, b, rec) })
	if err != nil {
		return nil, err
	}
	return rec, nil
}

func (r records[T]) StageInsert(ws *store.Workspace, b *store.Batch, recs ...any) error {
	return r.kind.In(ws).StageInsert(b, typed[T](recs)...)
}

func (r records[T]) StageReplace(ctx context.Context, ws *store.Workspace, b *store.Batch, recs ...any) error {
	return r.kind.In(ws).StageReplace(ctx, b, typed[T](recs)...)
}

func (r records[T]) StageSave(ctx context.Context, ws *store.Workspace, b *store.Batch, recs ...any) error {
	return r.kind.In(ws).StageSave(ctx, b, typed[T](recs)...)
}

func (r records[T]) StageDelete(ctx context.Context, ws *store.Workspace, b *store.Batch, recs ...any) error {
	return r.kind.In(ws).StageDelete(ctx, b, typed[T](recs)...)
}

func (r records[T]) Each(ctx context.Context, ws *store.Workspace, f store.Filter, visit func(any) error) error {
	return r.kind.In(ws).Each(ctx, f, store.Either, func(rec *T) error { return visit(rec) })
}

func (r records[T]) Count(ctx context.Context, ws *store.Workspace) (int64, error) {
	return r.kind.In(ws).CountIn(ctx, store.Filter{}, store.Either)
}

func (r records[T]) Insert(
	ctx context.Context, ws *store.Workspace, need store.Preconditions, recs []any,
) error {
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

func (r records[T]) Replace(
	ctx context.Context, ws *store.Workspace, need store.Preconditions, rec any, _ func(any),
) error {
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
