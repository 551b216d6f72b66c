package crud

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"

	"tenantry/backends/store"
	"tenantry/operation"
)

type deleteInput struct {
	Purge bool `json:"purge" default:"false" doc:"Deletes the record for good, whether it was deleted before or not. It cannot be restored."`
}

func (s *handlers) remove() operation.Row {
	row := s.row("delete", http.MethodDelete, s.recordPath(), s.Thing+" deleted")
	row.Summary, row.Description = "Delete "+s.thing(), "Deletes the record for good. Answers it as it was."
	row.End, row.Verb = s.endAll, "Delete"
	if s.trash {
		row.Description = "Moves the record to the trash: it leaves every list and count, can be restored, and keeps its " +
			"unique values reserved. With purge it is deleted for good. Answers the record."
	}
	return typedRow(s, row, func(ctx context.Context, c *operation.Call, in deleteInput) (operation.Result, error) {
		if in.Purge || !s.trash {
			return s.purge(ctx, c)
		}
		return s.change(ctx, c, func(need *store.Preconditions, rec, _ any) error { return s.mark(ctx, c, need, rec, true) })
	})
}

func (s *handlers) purging() operation.Row {
	row := s.row("purge", http.MethodDelete, s.recordPath()+"/purge", s.Thing+" deleted")
	row.Summary, row.Description = "Purge "+s.thing(), "Deletes the record for good, whether it was deleted before or "+
		"not. It cannot be restored. Answers it as it was."
	row.End, row.Verb = s.endAll, "Purge"
	return typedRow(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (operation.Result, error) {
		return s.purge(ctx, c)
	})
}

// endAll is the End of a row.
func (s *handlers) endAll(ctx context.Context, c *operation.Call, ids []string) error {
	in := s.workspace(c)
	return s.of.Collection.EachBatch(ctx, in, store.In("id", ids...), store.Either, func(recs []any) error {
		if s.Before != nil || s.Keeper != nil {
			for _, rec := range recs {
				if err := s.endOne(ctx, c, s.of.Meta(rec).ID); err != nil {
					return err
				}
			}
			return nil
		}
		for len(recs) > 0 { // nothing depends on them
			n := s.of.Records.Portion(in, recs)
			err := s.delete(ctx, in, recs[:n])
			for i := 0; errors.Is(err, store.ErrConflict) && i < n; i++ { // one of them was changed meanwhile
				if failed := s.endOne(ctx, c, s.of.Meta(recs[i]).ID); failed != nil {
					return failed
				}
			}
			if err != nil && !errors.Is(err, store.ErrConflict) {
				return err
			}
			recs = recs[n:]
		}
		return nil
	})
}

// delete removes records for good: all or none if the engine has transactions.
func (s *handlers) delete(ctx context.Context, in *store.Workspace, recs []any) error {
	b := in.Batch()
	if err := s.of.Collection.StageDelete(ctx, in, b, recs...); err != nil {
		return err
	}
	return b.Commit(ctx)
}

// endOne removes the current state of a record for good. A record with a trash is deleted first, so that what others
// add to it meanwhile is kept.
func (s *handlers) endOne(ctx context.Context, c *operation.Call, id string) (err error) {
	for range tries {
		c.Forget()
		var rec any
		if rec, err = s.of.Collection.First(ctx, s.workspace(c), store.Query{Filter: store.Eq("id", id), State: store.Either}); errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil && s.trash && !s.of.Deleted(rec) && s.Before != nil {
			s.setDeleted(rec, true)
			err = s.of.Records.Replace(ctx, s.workspace(c), store.Preconditions{}, rec, nil)
		}
		if err == nil {
			err = s.end(ctx, c, rec, (*store.Batch).Commit)
		}
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return err
}

// purge removes the record that the path names for good.
func (s *handlers) purge(ctx context.Context, c *operation.Call) (operation.Result, error) {
	return s.retry(ctx, c, store.Either, func(rec any) (result operation.Result, err error) {
		if s.trash {
			c.Note("purge", "true")
		}
		err = s.end(ctx, c, rec, func(b *store.Batch, ctx context.Context) (err error) {
			result, err = c.Commit(ctx, b, s.lastAnswer(c, rec))
			return err
		})
		if err == nil && s.Keeper != nil {
			result, err = s.answer(c, rec)(ctx)
		}
		return result, err
	})
}

// end removes a record for good, through its Keeper or else by commit.
func (s *handlers) end(
	ctx context.Context, c *operation.Call, rec any, commit func(*store.Batch, context.Context) error,
) error {
	was, b := s.of.Clone(rec), s.workspace(c).Batch()
	if err := s.before(ctx, c, &b.Preconditions, nil, rec); err != nil {
		return err
	}
	if s.Keeper != nil {
		return s.Keeper.delete(ctx, c, rec)
	}
	if err := s.refuseLimitedPurge(ctx, c, rec, was); err != nil {
		return err
	}
	if err := s.of.Collection.StageDelete(ctx, s.workspace(c), b, rec); err != nil {
		return err
	}
	return commit(b, ctx)
}

// expire is the Expire of a row.
func (s *handlers) expire(
	ctx context.Context, c *operation.Call, before int64, ended func(id string),
) (left bool, err error) {
	const some = 100
	old := store.Where(store.F("updated_at"), store.OpLt, before)
	for passed := 0; ; { // records that cannot be removed or read come first again, so they are skipped
		if ctx.Err() != nil {
			return true, err
		}
		found, failed := s.of.Collection.FindPart(ctx, s.workspace(c), store.Query{
			Filter: old, Sort: []store.Order{store.Asc("updated_at")}, State: store.Deleted, Limit: some, Offset: passed,
			LeaveOut: true, Bytes: store.BatchBytes,
		})
		if failed != nil || len(found.Records)+found.Left == 0 {
			return left, cmp.Or(failed, err)
		}
		passed += found.Left
		for i := range found.Records {
			rec := found.Records[i]
			switch failed := s.end(ctx, c, rec, (*store.Batch).Commit); {
			case failed == nil:
				ended(s.of.Meta(rec).ID)
			case errors.Is(failed, store.ErrConflict): // it was removed or restored meanwhile
				passed++
			default:
				passed, err = passed+1, failed
				left = left || operation.ProblemOf(failed).Code == http.StatusConflict // it had too many dependents for one call
			}
		}
	}
}

func (s *handlers) restore() operation.Row {
	row := s.row("restore", http.MethodPost, s.recordPath()+"/restore", s.Thing+" restored")
	row.Summary, row.Description, row.Verb = "Restore "+s.thing(), "Restores a deleted record. Answers it.", "Restore"
	row.Expire, row.OnRecord = s.expire, true
	return typedRow(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (operation.Result, error) {
		return s.retry(ctx, c, store.Deleted, func(rec any) (operation.Result, error) {
			if s.expired(c, rec) {
				return operation.Result{}, operation.NotFound(s.missing())
			}
			b := s.workspace(c).Batch()
			err := s.mark(ctx, c, &b.Preconditions, rec, false)
			if err == nil {
				err = s.of.Collection.StageReplace(ctx, s.workspace(c), b, rec)
			}
			if err != nil {
				return operation.Result{}, err
			}
			return c.Commit(ctx, b, s.answer(c, rec))
		})
	})
}

// expired reports whether the record was deleted too long ago to be restored, because records that depend on it may be
// gone already.
func (s *handlers) expired(c *operation.Call, rec any) bool {
	n, ok := s.of.Index("deleted")
	return ok && reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).Bool() && s.of.Meta(rec).UpdatedAt < c.Expired
}

const tries = 10

// retry finds the record in that state and changes it, and repeats both when another change came first.
func (s *handlers) retry(
	ctx context.Context, c *operation.Call, state store.State, change func(rec any) (operation.Result, error),
) (result operation.Result, err error) {
	for range tries {
		c.Forget()
		var rec any
		if rec, err = s.find(ctx, c, state); err != nil {
			return operation.Result{}, err
		}
		if err = c.Current(s.of.Revision(rec)); err == nil {
			result, err = change(rec)
		}
		if !errors.Is(err, store.ErrConflict) {
			return result, s.problem(err)
		}
	}
	return operation.Result{}, s.problem(err)
}

// mark sets whether a record is deleted, and checks the change.
func (s *handlers) mark(
	ctx context.Context, c *operation.Call, need *store.Preconditions, rec any, deleted bool,
) error {
	was := s.of.Clone(rec)
	s.setDeleted(rec, deleted)
	return s.before(ctx, c, need, rec, was)
}

func (s *handlers) setDeleted(rec any, deleted bool) {
	n, _ := s.of.Index("deleted")
	reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).SetBool(deleted)
}
