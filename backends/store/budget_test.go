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

// rooms counts the room that is reserved, and refuses more than most.
type rooms struct{ asked, most int64 }

var errNoRoom = errors.New("no room")

func (r *rooms) Hold(_ context.Context, more int64) error {
	if r.asked += more; r.asked > r.most {
		return errNoRoom
	}
	return nil
}

// TestBudgets: pages, rows and groups end where their budget is used up, and say so. Answers that are larger than every
// request may hold reserve room first.
func TestBudgets(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		in, table := f.items.In(f.ws), f.items.Table(f.ws)
		const many, long = 1300, 1000 // 1,300 records, because a page beyond 1,000 is read differently; 1,000 bytes each
		some := make([]*item, many)
		for i := range some {
			some[i] = &item{Code: fmt.Sprintf("%04d", i), Title: fmt.Sprintf("%04d%s", i, strings.Repeat("x", long))}
		}
		insert(t, in, some...)
		const budget = 20 * (long + 1000) // fits between ten and forty records
		whole := store.Query{Sort: []store.Order{store.Asc("code")}, Limit: 100, Bytes: budget}
		for _, offset := range []int{0, 500, 1100, 1190} {
			q := whole
			q.Offset = offset
			found, count, err := in.Page(t.Context(), q, store.Filter{})
			if n := len(found.Records); err != nil || !found.Cut || count != many || n < 10 || n > 40 || found.Records[0].Code != fmt.Sprintf("%04d", offset) {
				t.Fatalf("Page from %d = %d records, cut %v, count %d, %v; want 10 to 40 from that offset, cut, count %d",
					offset, n, found.Cut, count, err, many)
			}
		}
		if found, _, err := in.Page(t.Context(), store.Query{Limit: 5, Bytes: budget}, store.Filter{}); err != nil || found.Cut || len(found.Records) != 5 {
			t.Errorf("a page within its budget: %d records, cut %v, %v; want 5, not cut",
				len(found.Records), found.Cut, err)
		}
		if found, err := in.FindPart(t.Context(), store.Query{Bytes: 1}); err != nil || !found.Cut || len(found.Records) != 1 {
			t.Errorf("a record larger than the budget: %d records, cut %v, %v; want 1, cut",
				len(found.Records), found.Cut, err)
		}
		seen := 0
		if err := in.Each(t.Context(), store.Filter{}, store.Live, func(*item) error { seen++; return nil }); err != nil || seen != many {
			t.Errorf("Each saw %d records, %v; want %d", seen, err, many)
		}
		seen = 0
		if err := in.EachBatch(t.Context(), store.Filter{}, store.Live, func(some []*item) error {
			if seen += len(some); len(some) == 0 || len(some)*long > store.BatchBytes {
				t.Errorf("a batch of %d", len(some))
			}
			return nil
		}); err != nil || seen != many {
			t.Errorf("EachBatch saw %d records, %v; want %d", seen, err, many)
		}
		title := store.F("title")
		rows, cut, err := table.Select(t.Context(), []store.Field{title}, whole)
		if err != nil || !cut || len(rows) < 10 || len(rows) > 40 {
			t.Errorf("Select: %d rows, cut %v, %v; want 10 to 40, cut", len(rows), cut, err)
		}
		if rows, cut, err = table.Select(t.Context(), []store.Field{store.F("code")}, whole); err != nil || cut || len(rows) != 100 {
			t.Errorf("small rows of large records: %d, cut %v, %v; want 100, not cut", len(rows), cut, err)
		}
		groups := store.Aggregation{Groups: []store.Group{{Field: title}}, Measures: []store.Measure{{Op: store.MeasureMax, Field: title}}, Bytes: budget}
		if rows, cut, err = table.Aggregate(t.Context(), groups); err != nil || !cut || len(rows) < 5 || len(rows) > 20 {
			t.Errorf("Aggregate: %d groups, cut %v, %v; want 5 to 20, cut", len(rows), cut, err)
		}
		groups.Bytes = 1
		if rows, cut, err = table.Aggregate(t.Context(), groups); err != nil || !cut || len(rows) != 1 {
			t.Errorf("a group larger than the budget: %d groups, cut %v, %v; want 1, cut", len(rows), cut, err)
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
				t.Errorf("%s that needs no room: %d, cut %v, reserved %d, %v; want it cut, 0 reserved",
					name, n, cut, room.asked, err)
			}
			if n, cut, err := ask(ctx, 1<<30); err != nil || cut || n != many || room.asked < 3*store.UnweighedBytes {
				t.Errorf("%s with ample room: %d, cut %v, reserved %d, %v; want %d, not cut",
					name, n, cut, room.asked, err, many)
			}
			if _, err := in.FindPart(ctx, store.Query{Limit: 100}); err != nil || room.asked == 0 {
				t.Errorf("an answer without a budget reserved %d bytes, %v; want more than 0", room.asked, err)
			}
			room.asked, room.most = 0, 0
			if n, _, err := ask(ctx, 1<<30); !errors.Is(err, errNoRoom) || n != 0 {
				t.Errorf("%s without room: %d, %v; want 0, %v", name, n, err, errNoRoom)
			}
		}
	})
}

// TestRoomIsReservedBeforeReading: an answer that needs room takes two queries, whatever its order and budget: the
// first measures it, the second reads it into the reserved room. Without room nothing of it is kept.
func TestRoomIsReservedBeforeReading(t *testing.T) {
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
			"a sorted page":            {Sort: []store.Order{store.Desc("title")}, Limit: many, Bytes: 64 << 20},
			"records without a budget": {Filter: store.In("code", codes...), Limit: many},
		} {
			room := &rooms{most: 1 << 40}
			r := &request.Request{Room: room}
			found, err := in.FindPart(request.With(t.Context(), r), q)
			if err != nil || len(found.Records) != many || found.Cut {
				t.Fatalf("%s: %d records, cut %v, %v; want %d, not cut", name, len(found.Records), found.Cut, err, many)
			}
			if r.Calls() > 2 {
				t.Errorf("%s took %d queries, want at most 2", name, r.Calls())
			}
			if need := found.Size - store.UnweighedBytes; room.asked != need || need < (many-3)*long {
				t.Errorf("%s reserved %d bytes, want %d", name, room.asked, need)
			}
			r = &request.Request{Room: &rooms{}}
			if _, err := in.FindPart(request.With(t.Context(), r), q); !errors.Is(err, errNoRoom) || r.Calls() > 1 {
				t.Errorf("%s without room: %d queries, %v; want 1, %v", name, r.Calls(), err, errNoRoom)
			}
			q.Bytes, q.Reserved = found.Size, found.Size
			r = &request.Request{Room: &rooms{}}
			if again, err := in.FindPart(request.With(t.Context(), r), q); err != nil || len(again.Records) != many || r.Calls() > 1 {
				t.Errorf("%s with reserved room: %d records, %d queries, %v; want %d, 1",
					name, len(again.Records), r.Calls(), err, many)
			}
		}
	})
}
