package crud

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

func (s *handlers) update() operation.Row {
	row := s.row("update", http.MethodPut, s.recordPath(), s.Thing+" updated")
	row.Summary, row.Description = "Change "+s.thing(), "Fields that are not given stay unchanged; null removes an optional value."
	row.Verb = "Save"
	s.declareBody(&row, true)
	return typedRow(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (operation.Result, error) {
		return s.change(ctx, c, func(need *store.Preconditions, rec, was any) error {
			return s.take(ctx, c, need, rec, was, s.sent(c))
		})
	})
}

// change applies a change to the live record that the path names, if its revision is the one that the caller means,
// and stores it.
func (s *handlers) change(
	ctx context.Context, c *operation.Call, change func(need *store.Preconditions, rec, was any) error,
) (operation.Result, error) {
	id := c.Path(s.param)
	if s.of.KeyField().Rule.Format != "id" || s.parent != "" || s.Keeper != nil || s.of.Single {
		rec, err := s.find(ctx, c, store.Live)
		if err != nil {
			return operation.Result{}, err
		}
		if id = s.of.Meta(rec).ID; s.Keeper != nil {
			return s.updateKept(ctx, c, rec, change)
		}
		if s.of.Meta(rec).Rev == 0 { // the only record of the resource was never stored
			result, err := s.first(ctx, c, rec, change)
			taken := new(store.DuplicateError)
			if !errors.As(err, &taken) {
				return result, s.problem(err)
			}
			if rec, err = s.find(ctx, c, store.Live); err != nil { // another call stored it first
				return operation.Result{}, s.problem(err)
			}
			id = s.of.Meta(rec).ID
		}
	}
	var wanted, was any
	var result operation.Result
	rec, err := s.of.Collection.Revise(ctx, s.workspace(c), id, func(need *store.Preconditions, rec any) error {
		wanted, was = rec, s.of.Clone(rec)
		return s.edit(c, need, rec, was, change)
	}, func(ctx context.Context, b *store.Batch, rec any) (err error) {
		if err = s.stage(ctx, c, b, rec, was); err == nil {
			result, err = c.Commit(ctx, b, s.answer(c, rec))
		}
		return err
	})
	return result, s.problem(s.settleWrite(ctx, c, rec, wanted, was, err))
}

// edit makes one attempt at a change, after it has checked the revision.
func (s *handlers) edit(
	c *operation.Call, need *store.Preconditions, rec, was any,
	change func(need *store.Preconditions, rec, was any) error,
) error {
	c.Forget()
	if err := c.Current(s.of.Revision(rec)); err != nil {
		return err
	}
	return change(need, rec, was)
}

// first stores the only record of a resource for the first time, as a change of its default.
func (s *handlers) first(
	ctx context.Context, c *operation.Call, rec any, change func(need *store.Preconditions, rec, was any) error,
) (operation.Result, error) {
	b, was := s.workspace(c).Batch(), s.of.Clone(rec)
	err := s.edit(c, &b.Preconditions, rec, was, change)
	if err == nil {
		err = s.of.Collection.StageInsert(s.workspace(c), b, rec)
	}
	if err != nil {
		return operation.Result{}, err
	}
	return c.Commit(ctx, b, s.answer(c, rec))
}

// updateKept changes a record through its Keeper, which may store more than the record.
func (s *handlers) updateKept(
	ctx context.Context, c *operation.Call, rec any, change func(need *store.Preconditions, rec, was any) error,
) (operation.Result, error) {
	rec, err := s.Keeper.update(ctx, c, rec, func(rec any) error {
		return s.edit(c, &store.Preconditions{}, rec, s.of.Clone(rec), change)
	})
	if err != nil {
		return operation.Result{}, s.problem(err)
	}
	return s.answer(c, rec)(ctx)
}

// settleWrite completes a write that returned err. If rec was stored it runs the checks that follow a write; otherwise
// it explains why wanted was refused.
func (s *handlers) settleWrite(ctx context.Context, c *operation.Call, rec, wanted, was any, err error) error {
	if err != nil {
		return s.of.Taken(ctx, s.workspace(c), wanted, err)
	}
	return Settle(ctx, c, s.of, rec, was, func(ctx context.Context) error {
		// Others may have stored dependents before this change was visible.
		err := RefuseLimited(ctx, c, s.of, rec, was)
		if err == nil && s.After != nil {
			err = s.After(ctx, c, rec, was)
		}
		return err
	})
}

// Settle checks a change of a record of the organization after it was stored. If the check fails, Settle restores the
// record as it was, unless it has been changed since, and returns the error of the check. A caller who hangs up ends
// neither the check nor the restoration, because the change is already stored; they have the time of the operation
// anew. Errors, besides those of the check: store.ErrConflict, store.ErrUnavailable.
func Settle(
	ctx context.Context, c *operation.Call, of *record.Resource, rec, was any, check func(context.Context) error,
) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Operation.Deadline())
	defer cancel()
	err := check(ctx)
	if err == nil {
		return nil
	}

	back := of.Clone(was)
	*of.Meta(back) = *of.Meta(rec)
	return cmp.Or(of.Records.Replace(ctx, c.Workspace, store.Preconditions{}, back, nil), err)
}

// Act returns the row of a further action on a live record, such as contacts.tag for the name tag: do changes the
// record, which is then checked against its description and stored. path is appended to that of the record. a describes
// the row; its Docs must have a Summary and a Verb.
func Act[In, T any](
	resource *record.Of[T], o Options, name, method, path string, a Action, do func(rec *T, in In),
) operation.Row {
	s := newHandlers(resource.Resource, o)
	row := s.row(name, method, s.recordPath()+"/"+path, s.Thing+" updated")
	row.OnRecord = true
	row.Failures = append(row.Failures, s.invalid()[0])
	return s.finish(typedRow(s, row, func(ctx context.Context, c *operation.Call, in In) (operation.Result, error) {
		return s.change(ctx, c, func(need *store.Preconditions, rec, was any) error {
			do(of[T](rec), in)
			return s.take(ctx, c, need, rec, was, strictjson.Value{})
		})
	}), &a)
}
