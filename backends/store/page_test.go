package store_test

import (
	"fmt"
	"reflect"
	"testing"

	"tenantry/backends/store"
)

// TestPage: a page that is read backwards from the end is the same as one that is read from the beginning, with ties,
// with missing values and at any offset.
func TestPage(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		in := f.items.In(f.ws)
		some := make([]*item, 2500)
		for i := range some {
			some[i] = &item{Title: fmt.Sprint(i % 7), N: int64(i % 3), Code: fmt.Sprint(i)}
			if i%5 == 0 {
				some[i].Name = fmt.Sprint(i)
			}
		}
		insert(t, in, some...)
		if err := in.Delete(t.Context(), some[3], some[2000]); err != nil {
			t.Fatal(err)
		}
		for _, sort := range [][]store.Order{nil, {store.Asc("name")}, {store.Desc("name"), store.Asc("n")}, {store.Desc("id")}} {
			for _, where := range []store.Filter{{}, store.Where(store.F("n"), store.OpNe, int64(1))} {
				whole, err := in.Find(t.Context(), store.Query{Filter: where, Sort: sort})
				if err != nil {
					t.Fatal(err)
				}
				for _, offset := range []int{0, 999, 1001, 1249, 1251, len(whole) - 60, len(whole) - 50, len(whole) - 1, len(whole), len(whole) + 70, 1 << 30} {
					q := store.Query{Filter: where, Sort: sort, Limit: 50, Offset: offset}
					found, n, err := in.Page(t.Context(), q, where)
					page := found.Records
					want := whole[min(offset, len(whole)):min(offset+50, len(whole))]
					if err != nil || n != int64(len(whole)) || len(page) != len(want) || len(want) > 0 && !reflect.DeepEqual(page, want) {
						t.Fatalf("Page from %d, sorted by %v: %d records of %d, %v; want %d of %d",
							offset, sort, len(page), n, err, len(want), len(whole))
					}
				}
			}
		}
	})
}
