package crud

import (
	"context"
	"slices"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/store"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// Maker makes records in a row of the module's own, with the checks of a create. It is immutable and safe for
// concurrent use.
type Maker[T any] struct{ s *handlers }

// NewMaker returns the maker of records of the resource. The hooks of the options apply as to a create.
func NewMaker[T any](of *record.Of[T], o Options) Maker[T] {
	return Maker[T]{newHandlers(of.Resource, o)}
}

// Declare adds the fields that callers may set to the input of a row, and its refusals to the failures. Every field is
// optional, because Stage may be given it.
func (m Maker[T]) Declare(row *operation.Row, but ...string) {
	for _, f := range m.s.fields {
		if !slices.Contains(but, f.Name) {
			f.Rule.Required = false
			row.Declare(&f)
		}
	}
	row.Joins, row.Failures = true, append(row.Failures, m.s.invalid()...)
}

// Fields returns the fields that callers may set.
func (m Maker[T]) Fields() []field.Field { return m.s.fields }

// Stage makes a record and stages it in the batch, after the checks of a create. Its values are those that the call
// gives, unless given has the same field. Complete sets what callers cannot. Errors: *fault.Error and those of the
// store; the batch requires that what the record refers to is unchanged.
func (m Maker[T]) Stage(
	ctx context.Context, c *operation.Call, b *store.Batch, given []strictjson.Member, complete func(*T),
) (*T, error) {
	body := m.s.sent(c)
	for _, more := range given {
		body.Members = slices.DeleteFunc(body.Members, func(m strictjson.Member) bool { return m.Name == more.Name })
		body.Members = append(body.Members, more)
	}
	rec := m.s.of.New()
	complete(of[T](rec))
	return of[T](rec), m.s.stageNew(ctx, c, b, rec, body)
}

// Show returns the answers of records.
func (m Maker[T]) Show(ctx context.Context, c *operation.Call, recs []*T) ([]any, error) {
	all := make([]any, len(recs))
	for i, rec := range recs {
		all[i] = rec
	}
	return m.s.show(ctx, c, all)
}
