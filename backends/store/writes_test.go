package store_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
)

// stamps returns the exported fields of a Meta.
func stamps(m store.Meta) [4]any { return [4]any{m.ID, m.Rev, m.CreatedAt, m.UpdatedAt} }

func TestInsertStamps(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		clock := time.UnixMilli(1_700_000_000_999)
		f := setupOn(t, open(t), func() time.Time { return clock })
		c := f.plains.In(f.ws)
		now := clock.UnixMilli()
		own := f.NewID()
		for name, tt := range map[string]struct{ in, want store.Meta }{
			"nothing set": {store.Meta{}, store.Meta{Rev: 1, CreatedAt: now, UpdatedAt: now}},
			"created set": {store.Meta{CreatedAt: 5}, store.Meta{Rev: 1, CreatedAt: 5, UpdatedAt: 5}},
			"updated set": {store.Meta{UpdatedAt: 7}, store.Meta{Rev: 1, CreatedAt: now, UpdatedAt: 7}},
			"all set":     {store.Meta{ID: own, Rev: 42, CreatedAt: 5, UpdatedAt: 7}, store.Meta{ID: own, Rev: 1, CreatedAt: 5, UpdatedAt: 7}},
		} {
			rec := &plain{Meta: tt.in, Name: name}
			insert(t, c, rec)
			if tt.want.ID == "" {
				tt.want.ID = rec.ID
			}
			if stamps(rec.Meta) != stamps(tt.want) || !store.ValidID(rec.ID) {
				t.Errorf("%s: %+v, want %+v", name, rec.Meta, tt.want)
			}
			if got, err := c.Get(t.Context(), rec.ID); err != nil || stamps(got.Meta) != stamps(tt.want) {
				t.Errorf("%s: Get = %+v, %v; want %+v", name, got, err, tt.want)
			}
		}
		rec := &plain{Name: "later"}
		insert(t, c, rec)
		clock = clock.Add(time.Second)
		if err := c.Replace(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		got, err := c.Get(t.Context(), rec.ID)
		if want := (store.Meta{ID: rec.ID, Rev: 2, CreatedAt: now, UpdatedAt: now + 1000}); err != nil || stamps(rec.Meta) != stamps(want) || stamps(got.Meta) != stamps(want) {
			t.Errorf("replaced: %+v, read %+v, %v; want %+v", rec.Meta, got, err, want)
		}
	})
}

func TestInsertRefusesMalformedIDs(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		for _, id := range malformedIDs() {
			if id == "" {
				continue // is filled
			}
			if err := c.Insert(t.Context(), &plain{Name: "good"}, &plain{Meta: store.Meta{ID: id}}); err == nil {
				t.Errorf("%q was stored", id)
			}
		}
		if n, err := c.Count(t.Context(), store.Filter{}); n != 0 || err != nil {
			t.Errorf("%d records, %v", n, err)
		}
	})
}

func TestBatchesAreAllOrNothing(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		insert(t, c) // without records
		first := &item{Name: "first", Title: "t", Code: "taken"}
		insert(t, c, first)
		for name, tt := range map[string]struct {
			last   item
			fields []string
		}{
			"one field":  {item{Code: "taken"}, []string{"code"}},
			"two fields": {item{Name: "first", Title: "t"}, []string{"name", "title"}},
			"the id":     {item{Meta: store.Meta{ID: first.ID}}, []string{"id"}},
		} {
			batch := []*item{{Name: "b1"}, {Name: "b2"}, &tt.last}
			err := c.Insert(t.Context(), batch...)
			var dup *store.DuplicateError
			if !errors.As(err, &dup) || dup.Kind != "items" || !slices.Equal(dup.Fields, tt.fields) || dup.Position != 2 {
				t.Errorf("%s: %v (%+v)", name, err, dup)
			}
			if batch[0].Rev != 0 {
				t.Errorf("%s: a record that was not stored has revision %d", name, batch[0].Rev)
			}
			if got := names(t, c, store.Query{State: store.Either}); got != "first" {
				t.Errorf("%s: %q is stored", name, got)
			}
			// The same records without the duplicate.
			if err := c.Insert(t.Context(), batch[:2]...); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, rec := range batch[:2] {
				if err := c.Delete(t.Context(), rec); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		twice := &item{Name: "twice"}
		var dup *store.DuplicateError
		if err := c.Insert(t.Context(), twice, twice); !errors.As(err, &dup) || dup.Position != 1 {
			t.Errorf("one record twice in a batch: %v", err)
		}
	})
}

func TestDuplicatesDoNotNameThePartition(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		one, two := f.members.In(f.control.Partition(1)), f.members.In(f.control.Partition(2))
		rec := &member{Email: "a@example.com"}
		insert(t, one, rec)
		insert(t, two, &member{Email: "a@example.com"})
		other := &member{Email: "b@example.com"}
		insert(t, one, other)
		other.Email = rec.Email
		_, updated := one.Update(t.Context(), other.ID, func(m *member) error { m.Email = rec.Email; return nil })
		for what, err := range map[string]error{
			"Insert":  one.Insert(t.Context(), &member{Email: "a@example.com"}),
			"Replace": one.Replace(t.Context(), other),
			"Update":  updated,
		} {
			var dup *store.DuplicateError
			if !errors.As(err, &dup) || !slices.Equal(dup.Fields, []string{"email"}) || dup.Kind != "members" {
				t.Errorf("%s: %v (%+v)", what, err, dup)
			}
		}
	})
}

func malformedIDs() []string {
	good := strings.Repeat("0a", 12)
	return []string{
		"", "1", good[:23], good + "0", strings.ToUpper(good), good[:23] + "g", good[:23] + "\x00", good[:23] + " ", good[:22] + "é",
		"../" + good[3:], good[:20] + "' --", strings.Repeat("０", 8), `{"$ne":1}`,
	}
}

func TestGet(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		rec := &plain{Name: "x"}
		insert(t, c, rec)
		if got, err := c.Get(t.Context(), rec.ID); err != nil || !reflect.DeepEqual(got, rec) {
			t.Errorf("got %+v, %v", got, err)
		}
		for _, id := range append(malformedIDs(), f.NewID()) {
			got, err := c.Get(t.Context(), id)
			wantErr(t, fmt.Sprintf("Get %q", id), err, store.ErrNotFound)
			_, updated := c.Update(t.Context(), id, func(*plain) error { t.Errorf("changed %q", id); return nil })
			wantErr(t, fmt.Sprintf("Update %q", id), updated, store.ErrNotFound)
			if got != nil {
				t.Errorf("Get %q: %+v", id, got)
			}
		}
		_, err := c.First(t.Context(), store.Query{Filter: store.Eq("name", "y")})
		wantErr(t, "First", err, store.ErrNotFound)
	})
}

func TestStaleRecordsConflict(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		rec := &plain{Name: "x"}
		insert(t, c, rec)
		stale := *rec
		rec.Count = 1
		if err := c.Replace(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		stale.Count = 99
		wantErr(t, "Replace", c.Replace(t.Context(), &stale), store.ErrConflict)
		wantErr(t, "Delete", c.Delete(t.Context(), &stale), store.ErrConflict)
		future := *rec
		future.Rev += 5
		wantErr(t, "Replace of a later revision", c.Replace(t.Context(), &future), store.ErrConflict)
		wantErr(t, "Delete of a later revision", c.Delete(t.Context(), &future), store.ErrConflict)
		if got, err := c.Get(t.Context(), rec.ID); err != nil || got.Count != 1 || got.Rev != 2 {
			t.Errorf("read %+v, %v", got, err)
		}
		gone := *rec
		if err := c.Delete(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		wantErr(t, "Replace of a deleted record", c.Replace(t.Context(), &gone), store.ErrConflict)
		wantErr(t, "Delete of a deleted record", c.Delete(t.Context(), &gone), store.ErrConflict)
		never := &plain{Meta: store.Meta{ID: f.NewID(), Rev: 1}}
		wantErr(t, "Replace of a record never stored", c.Replace(t.Context(), never), store.ErrConflict)
		if n, err := c.Count(t.Context(), store.Filter{}); n != 0 || err != nil {
			t.Errorf("%d records, %v", n, err)
		}
	})
}

// TestSave: new and changed records are stored together, and an error has the index of the refused record.
func TestSave(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		there := &plain{Name: "there"}
		insert(t, c, there)
		stale, fresh := *there, &plain{Name: "fresh"}
		there.Count = 1
		if err := c.Save(t.Context(), fresh, there); err != nil || fresh.Rev != 1 || there.Rev != 2 {
			t.Fatalf("%+v, %+v, %v", fresh, there, err)
		}
		other := &plain{Name: "other"}
		var dup *store.DuplicateError
		var conflict *store.ConflictError
		if err := c.Save(t.Context(), other, &plain{Meta: store.Meta{ID: fresh.ID}}, there); !errors.As(err, &dup) || dup.Position != 1 {
			t.Errorf("a new record with an existing identifier: %v, want a duplicate at 1", err)
		}
		if err := c.Save(t.Context(), other, there, &stale); !errors.As(err, &conflict) || conflict.Position != 2 || !errors.Is(err, store.ErrConflict) {
			t.Errorf("a stale record: %v, want a conflict at 2", err)
		}
		other.Rev++
		if err := c.Save(t.Context(), other); !errors.Is(err, store.ErrConflict) {
			t.Errorf("a record that was never stored, with revision 1: %v, want a conflict", err)
		}
		if n, err := c.Count(t.Context(), store.Filter{}); n != 2 || err != nil || there.Rev != 2 {
			t.Errorf("%d records, %v, revision %d; want 2 records, revision 2", n, err, there.Rev)
		}
	})
}

func TestUpdate(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		rec, other := &plain{Name: "x"}, &plain{Name: "other"}
		insert(t, c, rec, other)
		got, err := c.Update(t.Context(), rec.ID, func(p *plain) error { p.Count++; return nil })
		if err != nil || got.Count != 1 || got.Rev != 2 || got.ID != rec.ID {
			t.Errorf("got %+v, %v", got, err)
		}
		mine := errors.New("mine")
		got, err = c.Update(t.Context(), rec.ID, func(p *plain) error { p.Count = 50; return mine })
		if wantErr(t, "the caller's error", err, mine); got != nil {
			t.Errorf("got %+v", got)
		}
		// An update that always meets a conflict gives up.
		tries := 0
		got, err = c.Update(t.Context(), rec.ID, func(*plain) error {
			tries++
			now, err := c.Get(t.Context(), rec.ID)
			if err != nil {
				return err
			}
			return c.Replace(t.Context(), now)
		})
		if wantErr(t, "Update", err, store.ErrConflict); got != nil || tries != 10 {
			t.Errorf("Update = %+v after %d tries, want nil after 10", got, tries)
		}
		// The record is deleted during the update.
		_, err = c.Update(t.Context(), rec.ID, func(p *plain) error { return c.Delete(t.Context(), ptr(*p)) })
		wantErr(t, "Update of a record deleted meanwhile", err, store.ErrNotFound)
		// The change sets the values only, not the identifier or the revision.
		_, err = c.Update(t.Context(), other.ID, func(p *plain) error {
			*p = plain{Name: "changed"}
			return nil
		})
		if got, e := c.Get(t.Context(), other.ID); err != nil || e != nil || got.Name != "changed" || got.Rev != 2 {
			t.Errorf("read %+v, %v, %v", got, err, e)
		}
		victim := &plain{Name: "victim"}
		insert(t, c, victim)
		if _, err = c.Update(t.Context(), other.ID, func(p *plain) error {
			p.ID, p.Rev, p.Name = victim.ID, victim.Rev, "overwritten"
			return nil
		}); err != nil {
			t.Error(err)
		}
		if got, err := c.Get(t.Context(), victim.ID); err != nil || got.Name != "victim" {
			t.Errorf("an Update of another record changed it: %+v, %v", got, err)
		}
	})
}

func TestUpdatesLoseNothing(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		rec := &plain{}
		insert(t, c, rec)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		const writers, each = 32, 4
		var wg sync.WaitGroup
		var seen sync.Map
		var changes atomic.Int64
		for range writers {
			wg.Go(func() {
				for done := 0; done < each; {
					got, err := c.Update(ctx, rec.ID, func(p *plain) error {
						changes.Add(1)
						p.Count++
						return nil
					})
					if errors.Is(err, store.ErrConflict) {
						continue // the wait for a turn timed out
					}
					if err != nil {
						t.Error(err)
						return
					}
					if _, twice := seen.LoadOrStore(got.Count, true); twice {
						t.Errorf("%d was returned twice", got.Count)
					}
					done++
				}
			})
		}
		wg.Wait()
		got, err := c.Get(t.Context(), rec.ID)
		if err != nil || got.Count != writers*each || got.Rev != writers*each+1 {
			t.Errorf("read %+v, %v", got, err)
		}
		if n := changes.Load(); n > 8*writers*each { // without turns all but one of 32 tries conflict
			t.Errorf("%d tries for %d changes, want at most %d", n, writers*each, 8*writers*each)
		}
	})
}

func TestOneOfManyEqualInsertsWins(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		var won, lost atomic.Int64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				var dup *store.DuplicateError
				switch err := c.Insert(t.Context(), &item{Code: "only"}); {
				case err == nil:
					won.Add(1)
				case errors.As(err, &dup):
					lost.Add(1)
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won.Load() != 1 || lost.Load() != 31 {
			t.Errorf("%d inserts succeeded, %d were duplicates; want 1 and 31", won.Load(), lost.Load())
		}
	})
}

func TestEachReadsOverPages(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		const n = 1203 // more than two pages, and none ends with the last record
		recs := make([]*plain, n)
		for i := range recs {
			recs[i] = &plain{Name: "old", Count: int64(i)}
		}
		insert(t, c, recs...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			for i := 0; ctx.Err() == nil && i < 500; i++ {
				if err := c.Insert(ctx, &plain{Name: "new"}); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
		last, seen := "", map[string]bool{}
		err := c.Each(ctx, store.Filter{}, store.Live, func(p *plain) error {
			if p.ID <= last {
				return fmt.Errorf("%s follows %s", p.ID, last)
			}
			last = p.ID
			if p.Name == "old" {
				seen[p.ID] = true
			}
			*p = plain{} // the callback may change the record
			return nil
		})
		cancel()
		wg.Wait()
		if err != nil || len(seen) != n {
			t.Errorf("Each saw %d records, %v; want %d", len(seen), err, n)
		}
		stop, calls := errors.New("stop"), 0
		err = c.Each(t.Context(), store.Eq("name", "old"), store.Live, func(*plain) error {
			if calls++; calls == 501 {
				return stop
			}
			return nil
		})
		if !errors.Is(err, stop) || calls != 501 {
			t.Errorf("Each: %v after %d calls, want %v after 501", err, calls, stop)
		}
		// The callback may delete records.
		if err := c.Each(t.Context(), store.Eq("name", "old"), store.Either, func(p *plain) error { return c.Delete(t.Context(), p) }); err != nil {
			t.Error(err)
		}
		if left, err := c.Count(t.Context(), store.Eq("name", "old")); left != 0 || err != nil {
			t.Errorf("%d are left, %v", left, err)
		}
	})
}
