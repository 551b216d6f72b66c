package crud

import (
	"context"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
)

// The rows of all resources share their code, so that it is compiled once; they know a record as any: a pointer to the
// struct that the resource describes. The functions of this file let a module write its hooks for its own type.

// of returns the record as its type; nil if there is none.
func of[T any](rec any) *T {
	typed, _ := rec.(*T)
	return typed
}

// Before makes an Options.Before.
func Before[T any](
	f func(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was *T) error,
) func(context.Context, *operation.Call, *store.Preconditions, any, any) error {
	return func(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was any) error {
		return f(ctx, c, need, of[T](rec), of[T](was))
	}
}

// Stage makes an Options.Stage.
func Stage[T any](
	f func(ctx context.Context, c *operation.Call, b *store.Batch, rec, was *T) error,
) func(context.Context, *operation.Call, *store.Batch, any, any) error {
	return func(ctx context.Context, c *operation.Call, b *store.Batch, rec, was any) error {
		return f(ctx, c, b, of[T](rec), of[T](was))
	}
}

// After makes an Options.After.
func After[T any](
	f func(ctx context.Context, c *operation.Call, rec, was *T) error,
) func(context.Context, *operation.Call, any, any) error {
	return func(ctx context.Context, c *operation.Call, rec, was any) error {
		return f(ctx, c, of[T](rec), of[T](was))
	}
}

// Check makes an Options.Check.
func Check[T any](
	f func(ctx context.Context, c *operation.Call, rec, was *T, errs *fault.List) error,
) func(context.Context, *operation.Call, any, any, *fault.List) error {
	return func(ctx context.Context, c *operation.Call, rec, was any, errs *fault.List) error {
		return f(ctx, c, of[T](rec), of[T](was), errs)
	}
}

// Show makes an Options.Show.
func Show[T, Out any](
	f func(ctx context.Context, c *operation.Call, recs []*T) ([]Out, error),
) func(context.Context, *operation.Call, []any) ([]any, error) {
	return func(ctx context.Context, c *operation.Call, recs []any) ([]any, error) {
		typed := make([]*T, len(recs))
		for i, rec := range recs {
			typed[i] = of[T](rec)
		}
		shown, err := f(ctx, c, typed)
		out := make([]any, len(shown))
		for i := range shown {
			out[i] = shown[i]
		}
		return out, err
	}
}

// ShowEach makes an Options.Show of a function that answers one record.
func ShowEach[T, Out any](
	f func(c *operation.Call, rec *T) Out,
) func(context.Context, *operation.Call, []any) ([]any, error) {
	return func(_ context.Context, c *operation.Call, recs []any) ([]any, error) {
		out := make([]any, len(recs))
		for i, rec := range recs {
			out[i] = f(c, of[T](rec))
		}
		return out, nil
	}
}

// Keeper is a service that stores records and may do more. Its errors are answered like those of the store.
type Keeper[T any] struct {
	Insert func(ctx context.Context, c *operation.Call, rec *T) (*T, error)
	// Update stores what change makes of the record. It may call change several times.
	Update func(ctx context.Context, c *operation.Call, rec *T, change func(*T) error) (*T, error)
	Delete func(ctx context.Context, c *operation.Call, rec *T) error
	// Refers, if set, notes dangling references, as Insert and Update do.
	Refers func(ctx context.Context, c *operation.Call, rec *T, errs *fault.List) error
}

// keeper is a Keeper of records of any type.
type keeper struct {
	insert func(ctx context.Context, c *operation.Call, rec any) (any, error)
	update func(ctx context.Context, c *operation.Call, rec any, change func(any) error) (any, error)
	delete func(ctx context.Context, c *operation.Call, rec any) error
	refers func(ctx context.Context, c *operation.Call, rec any, errs *fault.List) error // may be nil
}

// Keep makes an Options.Keeper.
func Keep[T any](k Keeper[T]) *keeper {
	all := &keeper{
		insert: func(ctx context.Context, c *operation.Call, rec any) (any, error) {
			return k.Insert(ctx, c, of[T](rec))
		},
		update: func(ctx context.Context, c *operation.Call, rec any, change func(any) error) (any, error) {
			return k.Update(ctx, c, of[T](rec), func(rec *T) error { return change(rec) })
		},
		delete: func(ctx context.Context, c *operation.Call, rec any) error { return k.Delete(ctx, c, of[T](rec)) },
	}
	if k.Refers != nil {
		all.refers = func(ctx context.Context, c *operation.Call, rec any, errs *fault.List) error {
			return k.Refers(ctx, c, of[T](rec), errs)
		}
	}
	return all
}
