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

type removal struct {
	Purge bool `json:"purge" default:"false" doc:"Ends the record for good, whether it was deleted before or not. Nobody can restore it."`
}

func (s *handlers) remove() operation.Row {
	row := s.row("delete", http.MethodDelete, s.each(), s.Thing+" deleted")
	row.Summary, row.Description = "Delete "+s.one(), "The record is gone for good. Answers it as it was."
	row.End = s.endAll
	if s.trash {
		row.Description = "The record leaves every list and count, and can be restored; with purge it is gone for good. Answers it. Until then its unique values stay its own."
	}
	return as(s, row, func(ctx context.Context, c *operation.Call, in removal) (operation.Result, error) {
		if in.Purge || !s.trash {
			return s.purge(ctx, c)
		}
		return s.change(ctx, c, func(need *store.Preconditions, rec, _ any) error { return s.mark(ctx, c, need, rec, true) })
	})
}

func (s *handlers) purging() operation.Row {
	row := s.row("purge", http.MethodDelete, s.each()+"/purge", s.Thing+" deleted")
	row.Summary, row.Description = "Purge "+s.one(), "Ends the record for good, whether it was deleted before or not. Nobody can restore it. Answers it as it was."
	row.End = s.endAll
	return as(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (operation.Result, error) {
		return s.purge(ctx, c)
	})
}

// endAll is the End of a row.
func (s *handlers) endAll(ctx context.Context, c *operation.Call, ids []string) error {
	in := s.in(c)
	return s.of.Collection.EachBatch(ctx, in, store.In("id", ids...), store.Either, func(recs []any) error {
		if s.Before != nil || s.Keeper != nil {
			for _, rec := range recs {
				if err := s.endOne(ctx, c, s.of.Meta(rec).ID); err != nil {
					return err
				}
			}
			return nil
		}
		for len(recs) > 0 { // nothing hangs on them
			n := s.of.Records.Portion(in, recs)
			err := s.delete(ctx, in, recs[:n])
			for i := 0; errors.Is(err, store.ErrConflict) && i < n; i++ { // somebody changed one of them meanwhile
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

// delete removes records for good, all or none where the engine has transactions.
func (s *handlers) delete(ctx context.Context, in *store.Workspace, recs []any) error {
	b := in.Batch()
	if err := s.of.Collection.StageDelete(ctx, in, b, recs...); err != nil {
		return err
	}
	return b.Commit(ctx)
}

// endOne ends a record as it is by now. It is deleted first where it can be, so that what others put into it is kept.
func (s *handlers) endOne(ctx context.Context, c *operation.Call, id string) (err error) {
	for range tries {
		c.Forget()
		var rec any
		if rec, err = s.of.Collection.First(ctx, s.in(c), store.Query{Filter: store.Eq("id", id), State: store.Either}); errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err == nil && s.trash && !s.of.Deleted(rec) && s.Before != nil {
			s.setDeleted(rec, true)
			err = s.of.Records.Replace(ctx, s.in(c), store.Preconditions{}, rec, nil)
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

// purge ends the record that the path names for good.
func (s *handlers) purge(ctx context.Context, c *operation.Call) (operation.Result, error) {
	return s.again(ctx, c, store.Either, func(rec any) (result operation.Result, err error) {
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

// end ends a record for good, which commit does unless a service keeps the records.
func (s *handlers) end(ctx context.Context, c *operation.Call, rec any, commit func(*store.Batch, context.Context) error) error {
	was, b := s.of.Clone(rec), s.in(c).Batch()
	if err := s.before(ctx, c, &b.Preconditions, nil, rec); err != nil {
		return err
	}
	if s.Keeper != nil {
		return s.Keeper.delete(ctx, c, rec)
	}
	if err := s.unshared(ctx, c, rec, was); err != nil {
		return err
	}
	if err := s.of.Collection.StageDelete(ctx, s.in(c), b, rec); err != nil {
		return err
	}
	return commit(b, ctx)
}

// expire is the Expire of a row.
func (s *handlers) expire(ctx context.Context, c *operation.Call, before int64, ended func(id string)) (left bool, err error) {
	const some = 100
	old := store.Where(store.F("updated_at"), store.OpLt, before)
	for passed := 0; ; { // what cannot be ended, or read, comes first again
		if ctx.Err() != nil {
			return true, err
		}
		found, failed := s.of.Collection.FindPart(ctx, s.in(c), store.Query{
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
			case errors.Is(failed, store.ErrConflict): // somebody else ended it, or brought it back
				passed++
			default:
				passed, err = passed+1, failed
				left = left || operation.ProblemOf(failed).Code == http.StatusConflict // it was too much at once
			}
		}
	}
}

func (s *handlers) restore() operation.Row {
	row := s.row("restore", http.MethodPost, s.each()+"/restore", s.Thing+" restored")
	row.Summary, row.Description = "Restore "+s.one(), "Brings back a record that was deleted. Answers it."
	row.Expire, row.OnRecord = s.expire, true
	return as(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (operation.Result, error) {
		return s.again(ctx, c, store.Deleted, func(rec any) (operation.Result, error) {
			if s.ending(c, rec) {
				return operation.Result{}, operation.NotFound(s.missing())
			}
			b := s.in(c).Batch()
			err := s.mark(ctx, c, &b.Preconditions, rec, false)
			if err == nil {
				err = s.of.Collection.StageReplace(ctx, s.in(c), b, rec)
			}
			if err != nil {
				return operation.Result{}, err
			}
			return c.Commit(ctx, b, s.answer(c, rec))
		})
	})
}

// ending reports whether the record was deleted too long ago to come back: what hangs on it may be gone already.
func (s *handlers) ending(c *operation.Call, rec any) bool {
	n, ok := s.of.Index("deleted")
	return ok && reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).Bool() && s.of.Meta(rec).UpdatedAt < c.Expired
}

const tries = 10

// again finds the record in that state and changes it, anew where somebody else came between.
func (s *handlers) again(ctx context.Context, c *operation.Call, state store.State, change func(rec any) (operation.Result, error)) (result operation.Result, err error) {
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
			return result, s.told(err)
		}
	}
	return operation.Result{}, s.told(err)
}

// mark says of a record whether it is deleted.
func (s *handlers) mark(ctx context.Context, c *operation.Call, need *store.Preconditions, rec any, deleted bool) error {
	was := s.of.Clone(rec)
	s.setDeleted(rec, deleted)
	return s.before(ctx, c, need, rec, was)
}

func (s *handlers) setDeleted(rec any, deleted bool) {
	n, _ := s.of.Index("deleted")
	reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).SetBool(deleted)
}
