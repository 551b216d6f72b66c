package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/internal/request"
)

// rooms notes the room that is asked for, and refuses what is beyond most.
type rooms struct{ asked, most int64 }

var errNoRoom = errors.New("no room")

func (r *rooms) Hold(_ context.Context, more int64) error {
	if r.asked += more; r.asked > r.most {
		return errNoRoom
	}
	return nil
}

// TestBudgets: pages, rows and groups end before what does not fit their budget, say so, and what follows them is the
// rest. What is more than every request may hold finds room first.
func TestBudgets(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		in, table := f.items.In(f.ws), f.items.Table(f.ws)
		const many, long = 1300, 1000 // bytes of each, and 1,300 because a page beyond 1,000 is read another way
		some := make([]*item, many)
		for i := range some {
			some[i] = &item{Code: fmt.Sprintf("%04d", i), Title: fmt.Sprintf("%04d%s", i, strings.Repeat("x", long))}
		}
		insert(t, in, some...)
		const budget = 20 * (long + 1000) // for more than ten of them, and less than forty
		whole := store.Query{Sort: []store.Order{store.Asc("code")}, Limit: 100, Bytes: budget}
		for _, offset := range []int{0, 500, 1100, 1190} {
			q := whole
			q.Offset = offset
			found, count, err := in.Page(t.Context(), q, store.Filter{})
			if n := len(found.Records); err != nil || !found.Cut || count != many || n < 10 || n > 40 || found.Records[0].Code != fmt.Sprintf("%04d", offset) {
				t.Fatalf("from %d: %d records, cut %v, of %d, %v", offset, n, found.Cut, count, err)
			}
		}
		if found, _, err := in.Page(t.Context(), store.Query{Limit: 5, Bytes: budget}, store.Filter{}); err != nil || found.Cut || len(found.Records) != 5 {
			t.Errorf("what fits: %d records, cut %v, %v", len(found.Records), found.Cut, err)
		}
		if found, err := in.FindPart(t.Context(), store.Query{Bytes: 1}); err != nil || !found.Cut || len(found.Records) != 1 {
			t.Errorf("one that is larger than the budget: %d records, cut %v, %v", len(found.Records), found.Cut, err)
		}
		seen := 0
		if err := in.Each(t.Context(), store.Filter{}, store.Live, func(*item) error { seen++; return nil }); err != nil || seen != many {
			t.Errorf("each: %d, %v", seen, err)
		}
		seen = 0
		if err := in.EachBatch(t.Context(), store.Filter{}, store.Live, func(some []*item) error {
			if seen += len(some); len(some) == 0 || len(some)*long > store.BatchBytes {
				t.Errorf("a batch of %d", len(some))
			}
			return nil
		}); err != nil || seen != many {
			t.Errorf("each batch: %d, %v", seen, err)
		}
		title := store.F("title")
		rows, cut, err := table.Select(t.Context(), []store.Field{title}, whole)
		if err != nil || !cut || len(rows) < 10 || len(rows) > 40 {
			t.Errorf("%d rows, cut %v, %v", len(rows), cut, err)
		}
		if rows, cut, err = table.Select(t.Context(), []store.Field{store.F("code")}, whole); err != nil || cut || len(rows) != 100 {
			t.Errorf("rows that take little of records that take much: %d, cut %v, %v", len(rows), cut, err)
		}
		groups := store.Aggregation{Groups: []store.Group{{Field: title}}, Measures: []store.Measure{{Op: store.MeasureMax, Field: title}}, Bytes: budget}
		if rows, cut, err = table.Aggregate(t.Context(), groups); err != nil || !cut || len(rows) < 5 || len(rows) > 20 {
			t.Errorf("%d groups, cut %v, %v", len(rows), cut, err)
		}
		groups.Bytes = 1
		if rows, cut, err = table.Aggregate(t.Context(), groups); err != nil || !cut || len(rows) != 1 {
			t.Errorf("a group that is larger than the budget: %d, cut %v, %v", len(rows), cut, err)
		}

		for name, ask := range map[string]func(ctx context.Context, bytes int64) (n int, cut bool, err error){
			"page": func(ctx context.Context, bytes int64) (int, bool, error) {
				found, _, err := in.Page(ctx, store.Query{Bytes: bytes}, store.Filter{})
				return len(found.Records), found.Cut, err
			},
			"rows": func(ctx context.Context, bytes int64) (int, bool, error) {
				rows, cut, err := table.Select(ctx, []store.Field{title}, store.Query{Bytes: bytes})
				return len(rows), cut, err
			},
			"groups": func(ctx context.Context, bytes int64) (int, bool, error) {
				groups.Bytes = bytes
				rows, cut, err := table.Aggregate(ctx, groups)
				return len(rows), cut, err
			},
		} {
			room := &rooms{most: 1 << 40}
			ctx := request.With(t.Context(), &request.Request{Room: room})
			if n, cut, err := ask(ctx, store.UnweighedBytes); err != nil || !cut || room.asked != 0 {
				t.Errorf("%s within what needs no room: %d, cut %v, asked for %d, %v", name, n, cut, room.asked, err)
			}
			if n, cut, err := ask(ctx, 1<<30); err != nil || cut || n != many || room.asked < 3*store.UnweighedBytes {
				t.Errorf("%s within much room: %d, cut %v, asked for %d, %v", name, n, cut, room.asked, err)
			}
			if _, err := in.FindPart(ctx, store.Query{Limit: 100}); err != nil || room.asked == 0 {
				t.Errorf("what is read as a whole holds nothing: %v", err)
			}
			room.asked, room.most = 0, 0
			if n, _, err := ask(ctx, 1<<30); !errors.Is(err, errNoRoom) || n != 0 {
				t.Errorf("%s without room: %d, %v", name, n, err)
			}
		}
	})
}

// TestRoomIsFoundBeforeReading: of an answer that needs room a request asks twice, whatever its order and its budget,
// and for the room that all of it takes; of one without a budget too, and without room it keeps nothing of it.
func TestRoomIsFoundBeforeReading(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		in := f.items.In(f.ws)
		const many, long = 64, 100_000
		some := make([]*item, many)
		codes := make([]string, many)
		for i := range some {
			codes[i] = fmt.Sprintf("%04d", i)
			some[i] = &item{Code: codes[i], Title: codes[i] + strings.Repeat("x", long)}
		}
		insert(t, in, some...)
		for name, q := range map[string]store.Query{
			"a sorted page": {Sort: []store.Order{store.Desc("title")}, Limit: many, Bytes: 64 << 20},
			"what is named": {Filter: store.In("code", codes...), Limit: many},
		} {
			room := &rooms{most: 1 << 40}
			r := &request.Request{Room: room}
			found, err := in.FindPart(request.With(t.Context(), r), q)
			if err != nil || len(found.Records) != many || found.Cut {
				t.Fatalf("%s: %d records, cut %v, %v", name, len(found.Records), found.Cut, err)
			}
			if r.Calls() > 2 {
				t.Errorf("%s is asked for %d times", name, r.Calls())
			}
			if need := found.Size - store.UnweighedBytes; room.asked != need || need < (many-3)*long {
				t.Errorf("%s: asked for room of %d bytes, of %d", name, room.asked, need)
			}
			r = &request.Request{Room: &rooms{}}
			if _, err := in.FindPart(request.With(t.Context(), r), q); !errors.Is(err, errNoRoom) || r.Calls() > 1 {
				t.Errorf("%s without room: %d questions, %v", name, r.Calls(), err)
			}
			q.Bytes, q.Roomed = found.Size, found.Size
			r = &request.Request{Room: &rooms{}}
			if again, err := in.FindPart(request.With(t.Context(), r), q); err != nil || len(again.Records) != many || r.Calls() > 1 {
				t.Errorf("%s with room that was found: %d records, %d questions, %v", name, len(again.Records), r.Calls(), err)
			}
		}
	})
}
