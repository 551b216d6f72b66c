package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"tenantry/backends/driver"
)

func quoteJSON(t testing.TB, s string) string {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("Marshal: %v", err)
	}
	return string(b)
}

func by(field string, desc bool) driver.Order { return driver.Order{Ref: ref(field), Desc: desc} }

func testSort(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(
		record{id: "d", values: map[string]any{"name": "b", "n": int64(2), "x": 2.0, "flag": true, "any": "s"}, custom: `{"v": "b"}`},
		record{id: "c", values: map[string]any{"name": "b", "n": int64(1), "x": 10.5, "flag": false, "any": int64(3)}, custom: `{"v": 2}`},
		record{id: "b", values: map[string]any{"name": "B", "n": int64(2), "any": 2.5}, custom: `{"v": 10.5}`},
		record{id: "a", values: map[string]any{"name": "é", "n": int64(-3), "x": -1.0, "flag": true, "any": true}, custom: `{"v": true}`},
		record{id: "f", values: map[string]any{}, custom: `{"v": null}`},
		record{id: "e", values: map[string]any{"name": "a", "any": false}},
	)
	for _, c := range []struct {
		sort []driver.Order
		want string
	}{
		{nil, "a b c d e f"},
		{[]driver.Order{by("id", true)}, "f e d c b a"},
		{[]driver.Order{by("name", false)}, "f b e c d a"},
		{[]driver.Order{by("name", true)}, "a c d e b f"},
		{[]driver.Order{by("n", false)}, "e f a c b d"},
		{[]driver.Order{by("n", true)}, "b d c a e f"},
		{[]driver.Order{by("n", true), by("id", true)}, "d b c a f e"},
		{[]driver.Order{by("x", false)}, "b e f a d c"},
		{[]driver.Order{by("flag", false), by("name", true)}, "e b f c a d"},
		{[]driver.Order{by("name", true), by("n", false)}, "a c d e b f"},
		{[]driver.Order{by("any", false)}, "f b c d e a"},
		{[]driver.Order{{Ref: custom("v", driver.Any)}}, "e f c b d a"},
		{[]driver.Order{{Ref: custom("v", driver.Any), Desc: true}}, "a d b c e f"},
		{[]driver.Order{{Ref: custom("none", driver.Any)}, by("n", false)}, "e f a c b d"},
	} {
		for _, in := range []*driver.Collection{b.things, b.plain} {
			if got := ids(b.find(driver.Query{Collection: in, Sort: c.sort})); got != c.want {
				t.Errorf("%s sorted by %+v: [%s], want [%s]", in.Name, c.sort, got, c.want)
			}
		}
	}
}

// testSortMixed sorts by a custom field with values of all types, which have one order, and checks that conditions on
// the position in that order agree with it.
func testSortMixed(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	values := []string{"", `[]`, `[5]`, `["z", true]`, `{}`, `{"v": 1}`, `null`, `-9007199254740993`, `-1.5`, `0`, `1`, `1.0`, `1.5`, `9007199254740992`, `9007199254740993`, `1e300`, `""`, `"1"`, `"B"`, `"a"`, `"é"`, `"日本"`, `"😀"`, `false`, `true`}
	const nothing = 7 // the first values, which sort as missing
	n := len(values)
	for i, v := range values {
		r := record{id: fmt.Sprintf("%02d", (i*7)%n)}
		if i < nothing || v == `1` || v == `1.0` { // equal values sort by id
			r.id = fmt.Sprintf("%02d", i)
		}
		if r.id += v[:min(1, len(v))]; v != "" {
			r.custom = `{"k": ` + v + `}`
		}
		b.insert(r)
		values[i] = r.id
	}
	up := strings.Join(values, " ")
	equal := slices.Index(values, "101")
	slices.Reverse(values[nothing:])
	values = append(slices.Clone(values[nothing:]), values[:nothing]...)
	i := n - 1 - equal - 1
	values[i], values[i+1] = values[i+1], values[i]
	down := strings.Join(values, " ")
	order := func(typ driver.Type, desc bool) []driver.Order {
		return []driver.Order{{Ref: custom("k", typ), Desc: desc}}
	}
	for _, typ := range []driver.Type{driver.Any, driver.String, driver.Float, driver.Bool, driver.Date} {
		for desc, want := range map[bool]string{false: up, true: down} {
			for _, in := range []*driver.Collection{b.things, b.plain} {
				if got := ids(b.find(driver.Query{Collection: in, Sort: order(typ, desc)})); got != want {
					t.Errorf("%s by a field of type %d, descending %v:\n%s, want\n%s", in.Name, typ, desc, got, want)
				}
			}
		}
	}
	is := func(op driver.Op, v any) driver.Predicate {
		return driver.Predicate{Op: op, Ref: custom("k", driver.Any), Values: []any{v}}
	}
	sorted := strings.Fields(up)
	for v, from := range map[any]int{-math.MaxFloat64: nothing, int64(0): 9, 1.0: 10, 1.25: 12, above53: 14, "": 16, "A": 18, "\U0010FFFF": 23, false: 23, true: 24} {
		for op, want := range map[driver.Op][]string{driver.From: sorted[from:], driver.Before: sorted[:from]} {
			for _, in := range []*driver.Collection{b.things, b.plain} {
				if got := ids(b.find(driver.Query{Collection: in, Where: is(op, v), Sort: order(driver.Any, false)})); got != strings.Join(want, " ") {
					t.Errorf("%s: operator %d of %v finds %s, want %s", in.Name, op, v, got, want)
				}
			}
		}
	}
}

func testPaging(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	var all []record
	for i := range 25 {
		all = append(all, record{id: fmt.Sprintf("%02d", i), values: map[string]any{"n": int64(i % 3), "name": "x"}})
	}
	b.insert(all...)
	q := driver.Query{Collection: b.things, Where: where("name", driver.Eq, "x"), Sort: []driver.Order{by("n", true)}}
	want := ids(b.find(q))
	got := ""
	for q.Limit = 7; q.Offset < 30; q.Offset += 7 {
		page := b.find(q)
		if n := min(7, max(0, 25-q.Offset)); len(page) != n {
			t.Errorf("offset %d: %d documents, want %d", q.Offset, len(page), n)
		}
		if len(page) > 0 && got != "" {
			got += " "
		}
		got += ids(page)
	}
	if got != want {
		t.Errorf("pages give\n%s, all at once\n%s", got, want)
	}
	for _, c := range []struct{ offset, want int }{{0, 1}, {1, 0}} {
		if docs := b.find(driver.Query{Collection: b.things, Where: where("id", driver.Eq, "03"), Offset: c.offset, Limit: 5}); len(docs) != c.want {
			t.Errorf("by id from %d: %d documents, want %d", c.offset, len(docs), c.want)
		}
	}
}

// testBudgets: a Find ends when Take returns an error, and an Aggregate with the first row that exceeds its budget.
func testBudgets(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	var all []record
	for i := range 150 {
		all = append(all, record{id: fmt.Sprintf("%03d", i), values: map[string]any{"n": int64(i % 5), "name": strings.Repeat("x", i)}})
	}
	b.insert(all...)
	enough := errors.New("enough")
	for _, q := range []driver.Query{
		{}, {Sort: []driver.Order{by("n", true)}}, {Offset: 120}, {Offset: 120, Sort: []driver.Order{by("name", false)}}, {Where: where("n", driver.Eq, int64(3))},
	} {
		for _, q.Collection = range []*driver.Collection{b.things, b.plain} {
			want := b.find(q)[:10]
			var got []driver.Document
			q.Limit, q.Take = 100, func(d *driver.Document) error {
				if d == nil {
					got = nil
					return nil
				}
				if len(got) == len(want) {
					return enough
				}
				got = append(got, *d)
				return nil
			}
			if docs, err := b.ws.Find(b.ctx, q); !errors.Is(err, enough) || docs != nil || ids(got) != ids(want) {
				t.Errorf("%+v took [%s], %v; want [%s], %v", q, ids(got), err, ids(want), enough)
			}
			q.Limit, q.Take = 0, nil
		}
	}
	a := driver.Aggregation{Collection: b.things, Groups: []driver.Group{{Ref: ref("name")}}, Measures: []driver.Measure{{Op: driver.Max, Ref: ref("name")}}, Limit: 1000}
	rows := b.aggregate(a)
	for _, n := range []int{1, 2, 70, len(rows)} {
		a.Bytes = -1
		for _, row := range rows[:n] {
			a.Bytes += driver.RowSize(row)
		}
		want := rows[:max(n, 2)]
		if got := b.aggregate(a); !sameRows(got, want) {
			t.Errorf("within %d bytes: %d rows, want %d", a.Bytes, len(got), len(want))
		}
	}
}

func (b *bench) aggregate(a driver.Aggregation) [][]any {
	b.t.Helper()
	if a.Limit == 0 {
		a.Limit = 1000
	}
	rows, err := b.ws.Aggregate(b.ctx, a)
	if err != nil {
		b.t.Fatalf("Aggregate %+v: %v", a, err)
	}
	return rows
}

// expect checks the rows of an aggregation of both collections. Numbers are compared by value.
func (b *bench) expect(a driver.Aggregation, want ...[]any) {
	b.t.Helper()
	for _, c := range []*driver.Collection{b.things, b.plain} {
		a.Collection = c
		if got := b.aggregate(a); !sameRows(got, want) {
			b.t.Errorf("%s: %+v gives\n%v, want\n%v", c.Name, a, got, want)
		}
	}
}

func measure(op driver.MeasureOp, r driver.Ref) driver.Measure { return driver.Measure{Op: op, Ref: r} }

func (f faults) testMeasures(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	all := []driver.MeasureOp{driver.Count, driver.Sum, driver.Avg, driver.Min, driver.Max, driver.Distinct}
	of := func(r driver.Ref) driver.Aggregation {
		a := driver.Aggregation{}
		for _, op := range all {
			a.Measures = append(a.Measures, measure(op, r))
		}
		return a
	}
	b.expect(of(ref("n")), []any{int64(0), nil, nil, nil, nil, int64(0)})
	b.expect(driver.Aggregation{Groups: []driver.Group{{Ref: ref("n")}}, Measures: []driver.Measure{{Op: driver.Count}}})
	b.insert(
		record{id: "a", values: map[string]any{"name": "x", "n": int64(1), "x": 0.5, "flag": true, "at": int64(1000), "day": "2024-01-01", "any": int64(3), "tags": []string{"p"}}, custom: `{"v": 3, "s": "b"}`},
		record{id: "b", values: map[string]any{"name": "y", "n": int64(2), "x": 1.5, "flag": false, "at": int64(-1000), "day": "2023-12-31", "any": "3"}, custom: `{"v": "3", "s": "a"}`},
		record{id: "c", values: map[string]any{"name": "x", "n": int64(2), "x": 2.0, "flag": true, "any": true, "tags": []string{"p"}}, custom: `{"v": true, "s": 5}`},
		record{id: "d", values: map[string]any{"name": "z", "any": 4.5}, custom: `{"v": 4.5}`},
		record{id: "e", values: map[string]any{}, custom: `{"v": null, "s": null}`},
	)
	b.expect(of(ref("n")), []any{int64(5), int64(5), 5.0 / 3, int64(1), int64(2), int64(2)})
	b.expect(of(ref("x")), []any{int64(5), 4.0, 4.0 / 3, 0.5, 2.0, int64(3)})
	b.expect(of(ref("name")), []any{int64(5), nil, nil, "x", "z", int64(3)})
	b.expect(of(ref("day")), []any{int64(5), nil, nil, "2023-12-31", "2024-01-01", int64(2)})
	b.expect(of(ref("at")), []any{int64(5), int64(0), 0.0, int64(-1000), int64(1000), int64(2)})
	b.expect(of(ref("flag")), []any{int64(5), nil, nil, nil, nil, int64(2)})
	b.expect(of(ref("any")), []any{int64(5), 7.5, 3.75, int64(3), 4.5, int64(4)})
	b.expect(of(custom("v", driver.Float)), []any{int64(5), 7.5, 3.75, int64(3), 4.5, int64(4)})
	b.expect(of(custom("s", driver.String)), []any{int64(5), int64(5), 5.0, "a", "b", int64(3)})
	b.expect(of(custom("none", driver.Float)), []any{int64(5), nil, nil, nil, nil, int64(0)})
	a := of(ref("n"))
	a.Where = where("name", driver.Eq, "nobody")
	b.expect(a, []any{int64(0), nil, nil, nil, nil, int64(0)})

	count := []driver.Measure{{Op: driver.Count}}
	group := func(refs ...driver.Ref) driver.Aggregation {
		a := driver.Aggregation{Measures: count}
		for _, r := range refs {
			a.Groups = append(a.Groups, driver.Group{Ref: r})
		}
		return a
	}
	b.expect(group(ref("name")), []any{nil, int64(1)}, []any{"x", int64(2)}, []any{"y", int64(1)}, []any{"z", int64(1)})
	b.expect(group(ref("flag")), []any{nil, int64(2)}, []any{false, int64(1)}, []any{true, int64(2)})
	b.expect(group(custom("v", driver.Any)), []any{nil, int64(1)}, []any{int64(3), int64(1)}, []any{4.5, int64(1)}, []any{"3", int64(1)}, []any{true, int64(1)})
	b.expect(group(ref("name"), ref("flag")), []any{nil, nil, int64(1)}, []any{"x", true, int64(2)}, []any{"y", false, int64(1)}, []any{"z", nil, int64(1)})
	b.expect(driver.Aggregation{Groups: []driver.Group{{Ref: ref("name")}}}, []any{nil}, []any{"x"}, []any{"y"}, []any{"z"})

	f.on(t, "DollarGroups", DollarGroups, func(*testing.T) {
		b.insert(record{id: "w", values: map[string]any{"name": "$n", "slug": "$name"}})
		one := group(ref("name"), ref("slug"))
		one.Where = where("name", driver.Eq, "$n")
		b.expect(one, []any{"$n", "$name", int64(1)})
		one.Groups = one.Groups[:1]
		one.Measures = []driver.Measure{measure(driver.Distinct, ref("slug"))}
		b.expect(one, []any{"$n", int64(1)})
	})
	// Sums beyond 64 bits become floats.
	f.on(t, "WideSums", WideSums, func(*testing.T) {
		b.insert(record{id: "y", values: map[string]any{"n": int64(math.MaxInt64), "name": "big"}}, record{id: "z", values: map[string]any{"n": int64(math.MaxInt64), "name": "big"}})
		b.expect(driver.Aggregation{Where: where("name", driver.Eq, "big"), Measures: []driver.Measure{measure(driver.Sum, ref("n"))}}, []any{2 * float64(math.MaxInt64)})
	})
}

func testBuckets(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	// Days around the boundaries of ISO years and quarters, and around the epoch.
	days := []string{"2020-12-31", "2021-01-01", "2021-01-03", "2021-01-04", "2018-12-30", "2018-12-31", "2019-12-29", "2019-12-30", "2016-01-01", "2026-12-31",
		"2024-02-29", "2024-03-31", "2024-04-01", "2024-06-30", "2024-10-01", "1969-12-31", "1970-01-01", "1900-03-01", "2000-02-29", "2100-12-31"}
	var all []record
	for i, d := range days {
		at, err := time.Parse("2006-01-02", d)
		if err != nil {
			t.Fatal(err)
		}
		last := at.Add(24*time.Hour - time.Millisecond)
		all = append(all,
			record{id: fmt.Sprintf("%02da", i), values: map[string]any{"at": at.UnixMilli(), "day": d}, custom: fmt.Sprintf(`{"at": %d, "day": %q}`, at.UnixMilli(), d)},
			record{id: fmt.Sprintf("%02db", i), values: map[string]any{"at": last.UnixMilli(), "day": d + "T23:59:59.999-08:00"}, custom: fmt.Sprintf(`{"at": %d, "day": %q}`, last.UnixMilli(), d+"T23:59:59.999-08:00")})
	}
	for i, bad := range []string{"", "now", "2024-02-30", "2024-13-01", "24-01-01", "2024-1-1", "2460000.5", "12:00:00", "2024/01/01", "not a date"} {
		all = append(all, record{id: fmt.Sprintf("x%d", i), values: map[string]any{"day": bad}, custom: fmt.Sprintf(`{"day": %q, "at": %q}`, bad, bad)})
	}
	b.insert(all...)
	plainly := b.plainly(all...)
	for _, bucket := range []driver.Bucket{driver.Day, driver.Week, driver.Month, driver.Quarter, driver.Year} {
		for _, r := range []driver.Ref{ref("at"), ref("day"), custom("at", driver.Time), custom("day", driver.Date)} {
			a := driver.Aggregation{Groups: []driver.Group{{Ref: r, By: bucket}}, Measures: []driver.Measure{{Op: driver.Count}}}
			a.Collection = b.plain
			b.expect(a, plainly.aggregate(a)...)
		}
	}
	b.expect(driver.Aggregation{Where: where("day", driver.StartsWith, "2021-01-03"), Groups: []driver.Group{{Ref: ref("at"), By: driver.Week}}}, []any{"2020-W53"})
	b.expect(driver.Aggregation{Where: where("day", driver.StartsWith, "2019-12-30"), Groups: []driver.Group{{Ref: ref("day"), By: driver.Week}}}, []any{"2020-W01"})
	b.expect(driver.Aggregation{Where: where("day", driver.StartsWith, "2024-06-30"), Groups: []driver.Group{{Ref: ref("at"), By: driver.Quarter}}}, []any{"2024-Q2"})
	b.expect(driver.Aggregation{Where: where("day", driver.StartsWith, "1969-12-31"), Groups: []driver.Group{{Ref: ref("at"), By: driver.Year}}}, []any{"1969"})
}

func testRanks(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	for i, name := range []string{"a", "b", "b", "c", "c", "d", "d", "d"} {
		b.insert(record{id: fmt.Sprint(i), values: map[string]any{"name": name, "n": int64(i)}})
	}
	b.insert(record{id: "9", values: map[string]any{}})
	a := driver.Aggregation{Groups: []driver.Group{{Ref: ref("name")}}, Measures: []driver.Measure{{Op: driver.Count}, measure(driver.Sum, ref("n"))}}
	for _, c := range []struct {
		sort  []driver.Rank
		limit int
		want  []any
	}{
		{nil, 0, []any{nil, "a", "b", "c", "d"}},
		{[]driver.Rank{{Column: 0, Desc: true}}, 0, []any{"d", "c", "b", "a", nil}},
		{[]driver.Rank{{Column: 1, Desc: true}}, 0, []any{"d", "b", "c", nil, "a"}},
		{[]driver.Rank{{Column: 1, Desc: true}}, 2, []any{"d", "b"}},
		{[]driver.Rank{{Column: 2}}, 0, []any{nil, "a", "b", "c", "d"}},
		{[]driver.Rank{{Column: 1}, {Column: 0, Desc: true}}, 0, []any{"a", nil, "c", "b", "d"}},
	} {
		a.Sort, a.Limit, a.Collection = c.sort, c.limit, b.things
		var got []any
		for _, row := range b.aggregate(a) {
			got = append(got, row[0])
		}
		if !cmp.Equal(got, c.want) {
			t.Errorf("sort %v limit %d: %v, want %v", c.sort, c.limit, got, c.want)
		}
	}
}
