package crud

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
)

// storeValid stores the entries without faults. A record that was changed since it was read makes the attempt
// errRetry; in the last attempt, or once others are stored, it is refused instead. The last commit includes the
// answer.
func (b *bulk) storeValid(ctx context.Context, entries []*entry, last bool) error {
	s, c := b.s, b.c
	var fresh, changed []*entry
	for _, e := range entries {
		err := b.finish(ctx, c, &b.need, e)
		switch {
		case err != nil:
			if b.refused[e] = operation.ErrorsOf(s.problem(err)); len(b.refused[e]) == 0 {
				return err
			}
		case e.was == nil:
			fresh = append(fresh, e)
		default:
			changed = append(changed, e)
		}
	}
	added := make([]any, len(fresh))
	for i, e := range fresh {
		s.of.Fill(e.rec)
		added[i] = e.rec
	}
	if err := s.of.Number(ctx, c.Workspace, added); err != nil {
		return err
	}
	if err := b.put(ctx, append(fresh, changed...), last); err != nil {
		for _, name := range []string{"created", "updated", "done", "failed"} { // nothing is known to be stored
			delete(c.AuditNote, name)
		}
		return err
	}
	if !last { // the answer needs only identifiers, so the records are released
		for _, e := range entries {
			done := entry{rec: s.of.Bare()}
			s.of.Meta(done.rec).ID = s.of.Meta(e.rec).ID
			if e.was != nil {
				done.was = done.rec
			}
			*e = done
		}
	}
	return nil
}

// maxRetried bounds how many records of one write the store may refuse, each followed by another try of all others
// together.
const maxRetried = 16

// put stores records in one write, without those that the store refuses, so that they are stored together with the
// answer or not at all. If they are more rows than one write should have, or more than maxRetried are refused, it
// takes several writes, the last with the answer; an error of one of those is then reported for its records.
func (b *bulk) put(ctx context.Context, entries []*entry, last bool) error {
	s, c := b.s, b.c
	recs := make([]any, len(entries))
	for i, e := range entries {
		recs[i] = e.rec
	}
	for tried := 0; len(recs) > 0; tried++ {
		n := s.of.Records.Portion(s.workspace(c), recs)
		err := b.checkTime(ctx)
		if err == nil {
			err = b.save(ctx, recs[:n], last && n == len(recs))
		}
		if err == nil {
			b.writes++
			if n == len(recs) {
				return nil
			}
			recs, entries, tried = recs[n:], entries[n:], -1
			continue
		}
		bad := refusedPosition(err, n)
		if b.writes == 0 && s.overtaken(err, bad, b.attempt) {
			return errRetry
		}
		if b.writes > 0 && bad < 0 && ctx.Err() == nil && resendable(err) { // the earlier ones are stored and reported
			b.refuse(entries, err)
			break
		}
		if bad < 0 {
			return err
		}
		says := s.problem(s.of.Taken(ctx, s.workspace(c), entries[bad].rec, rowError(err)))
		if b.refused[entries[bad]] = operation.ErrorsOf(says); len(b.refused[entries[bad]]) == 0 {
			return err
		}
		if tried >= maxRetried && bad > 1 { // the record before it is kept back for the commit with the answer
			switch err := b.save(ctx, recs[:bad-1], false); {
			case err == nil:
				recs, entries, bad = recs[bad-1:], entries[bad-1:], 1
				b.writes++
			case refusedPosition(err, bad) < 0:
				return err
			}
		}
		recs, entries = slices.Delete(recs, bad, bad+1), slices.Delete(entries, bad, bad+1)
	}
	return nil
}

// save stores records in one commit; the last commit includes the answer.
func (b *bulk) save(ctx context.Context, recs []any, last bool) error {
	batch := b.s.workspace(b.c).Batch()
	batch.Preconditions = b.need
	err := b.s.of.Collection.StageSave(ctx, b.s.workspace(b.c), batch, recs...)
	switch {
	case err != nil:
		return err
	case !last:
		return batch.Commit(ctx)
	}
	result, err := b.c.Commit(ctx, batch, b.answer)
	if err == nil {
		b.result = &result
	}
	return err
}

// refusedPosition returns which of n records a write was refused for; -1: none of them.
func refusedPosition(err error, n int) int {
	var dup *store.DuplicateError
	var conflict *store.ConflictError
	at := -1
	switch {
	case errors.As(err, &dup):
		at = dup.Position
	case errors.As(err, &conflict):
		at = conflict.Position
	}
	if at >= n {
		return -1
	}
	return at
}

// overtaken reports whether another change came first and another attempt would see it: the attempt may change the
// record that holds a unique value, or avoid what has been removed. A duplicate may also be hidden from the caller and
// then recurs, so that those have fewer attempts.
func (s *handlers) overtaken(err error, bad, attempt int) bool {
	const mostHidden = 3
	var dup *store.DuplicateError
	if errors.As(err, &dup) {
		return bad >= 0 && attempt < mostHidden && slices.ContainsFunc(s.of.Uniques, func(u record.Unique) bool {
			return u.Identity != record.Never && slices.Contains(dup.Fields, u.Field)
		})
	}
	return errors.Is(err, store.ErrConflict) && attempt < tries-1
}

// answerTime is the part of its time that a bulk reserves for its answer once it has stored some records.
const answerTime = 2 * time.Second

var errTime = fmt.Errorf("%w: the call ran out of time", store.ErrSlow)

// resendable reports whether records that a write was refused for may succeed when they are sent again.
func resendable(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrSlow)
}

// unstored returns the error of a record that was not stored in a bulk that has stored others.
func unstored(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return rowError(err)
	}
	return fault.One(
		"id", "unavailable",
		"the record was not stored, because time ran out or the store was unavailable: send it again",
	)
}

// rowError returns the error of one record among others. A conflict becomes a fault of the record, because a 409 would
// be the answer to all.
func rowError(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return fault.One("id", fault.Duplicate, "the record was changed by somebody else at the same time: send it again")
	}
	return err
}
