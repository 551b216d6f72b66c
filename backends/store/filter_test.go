package store_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/store"
)

// TestUndeclaredFieldsCannotBeQueried holds that no query can depend on a field that the kind does not declare.
func TestUndeclaredFieldsCannotBeQueried(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		ctx := t.Context()
		insert(t, f.items.In(f.ws), &item{Name: "x", Secret: "s", Fields: map[string]any{"k": 1}})
		table := f.items.Table(f.ws)
		count := []store.Measure{{Op: store.MeasureCount}}
		for _, name := range []string{"secret", "sealed", "sealed.iban", "fields", "Secret", "SECRET", "", "rev", "body", "custom", "f_name", "id ", "$where", `x" OR 1=1 --`, "unknown", "org_id"} {
			field := store.F(name)
			for _, filter := range []store.Filter{
				store.Eq(name, "s"), store.Has(name, true), store.In(name, "s"), store.Where(field, store.OpContains, "s"),
				store.AnyOf(store.Eq("name", "x"), store.All(store.Eq(name, "s"))),
			} {
				for what, err := range everyRead(ctx, f.items, f.ws, filter) {
					wantErr(t, fmt.Sprintf("%s with a condition on %q", what, name), err, store.ErrQuery)
				}
			}
			_, err := f.items.In(f.ws).Find(ctx, store.Query{Sort: []store.Order{store.Asc("name"), store.Desc(name)}})
			wantErr(t, fmt.Sprintf("sorted by %q", name), err, store.ErrQuery)
			_, _, err = table.Select(ctx, []store.Field{store.F("name"), field}, store.Query{})
			wantErr(t, fmt.Sprintf("Select %q", name), err, store.ErrQuery)
			_, _, err = table.Select(ctx, []store.Field{store.F("name")}, store.Query{Sort: []store.Order{{Field: field}}})
			wantErr(t, fmt.Sprintf("Select sorted by %q", name), err, store.ErrQuery)
			_, _, err = table.Aggregate(ctx, store.Aggregation{Groups: []store.Group{{Field: field}}, Measures: count})
			wantErr(t, fmt.Sprintf("grouped by %q", name), err, store.ErrQuery)
			for op := store.MeasureSum; op <= store.MeasureDistinct; op++ {
				_, _, err = table.Aggregate(ctx, store.Aggregation{Measures: []store.Measure{{Op: op, Field: field}}})
				wantErr(t, fmt.Sprintf("measure %d of %q", op, name), err, store.ErrQuery)
			}
		}
		// Names of custom fields are outside text: only plain ones pass, and only where the kind has them.
		for _, name := range []string{"", "a.b", "$x", "a b", `a"`, "ä", "a\x00", string(make([]byte, 65))} {
			field := store.Field{Name: name, Custom: true}
			for what, err := range everyRead(ctx, f.items, f.ws, store.Where(field, store.OpEq, "s")) {
				wantErr(t, fmt.Sprintf("%s with the custom field %q", what, name), err, store.ErrQuery)
			}
			_, _, err := table.Select(ctx, []store.Field{field}, store.Query{})
			wantErr(t, fmt.Sprintf("Select the custom field %q", name), err, store.ErrQuery)
		}
		for what, err := range everyRead(ctx, f.plains, f.ws, store.Where(store.Field{Name: "k", Custom: true}, store.OpEq, "s")) {
			wantErr(t, what+" with a custom field of a kind that has none", err, store.ErrQuery)
		}
	})
}

func TestValuesOfTheWrongTypeAreRefused(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		type status string
		text, whole, real, boolean := []any{"a", ""}, []any{1, int64(1)}, []any{1.5, 0.0}, []any{true, false}
		never := []any{nil, int32(1), uint(1), float32(1), []string{"a"}, []any{"a"}, map[string]any{"$ne": 1}, status("a"), []byte("a"), struct{}{}, math.NaN(), math.Inf(1), math.Inf(-1), ptr("a")}
		compare := []store.Op{store.OpEq, store.OpNe, store.OpGt, store.OpGte, store.OpLt, store.OpLte, store.OpIn, store.OpNin}
		custom := func(typ store.Type) store.Field { return store.Field{Name: "k", Custom: true, Type: typ} }
		for _, tt := range []struct {
			field store.Field
			good  [][]any
		}{
			{store.F("id"), [][]any{text}}, {store.F("name"), [][]any{text}}, {store.F("text"), [][]any{text}}, {store.F("tags"), [][]any{text}},
			{store.F("n"), [][]any{whole, real}}, {store.F("number"), [][]any{whole, real}}, {store.F("x"), [][]any{whole, real}}, {store.F("at"), [][]any{whole, real}},
			{store.F("flag"), [][]any{boolean}},
			{custom(store.TypeString), [][]any{text}}, {custom(store.TypeDate), [][]any{text}}, {custom(store.TypeStrings), [][]any{text}},
			{custom(store.TypeInt), [][]any{whole, real}}, {custom(store.TypeFloat), [][]any{whole, real}}, {custom(store.TypeTime), [][]any{whole, real}},
			{custom(store.TypeBool), [][]any{boolean}}, {custom(store.TypeAny), [][]any{text, whole, real, boolean}},
		} {
			good := slices.Concat(tt.good...)
			for _, v := range slices.Concat(text, whole, real, boolean, never) {
				accept := slices.ContainsFunc(good, func(g any) bool { return fmt.Sprintf("%T%v", g, g) == fmt.Sprintf("%T%v", v, v) })
				for _, op := range compare {
					_, err := c.Count(t.Context(), store.Where(tt.field, op, v))
					if accept && err != nil {
						t.Errorf("%+v %d %T %v: %v", tt.field, op, v, v, err)
					} else if !accept {
						wantErr(t, fmt.Sprintf("%+v %d %T %v", tt.field, op, v, v), err, store.ErrQuery)
					}
				}
				_, isText := v.(string)
				_, isBool := v.(bool)
				textual := tt.field.Name == "id" || slices.Contains(tt.good[0], any("a"))
				for op, accept := range map[store.Op]bool{
					store.OpContains:       isText && textual,
					store.OpStartsWith:     isText && textual && tt.field.Name != "tags" && tt.field.Type != store.TypeStrings,
					store.OpContainsFold:   isText && textual && tt.field.Name != "tags" && tt.field.Type != store.TypeStrings,
					store.OpStartsWithFold: isText && textual && tt.field.Name != "tags" && tt.field.Type != store.TypeStrings,
					store.OpExists:         isBool,
					store.OpFrom:           tt.field.Custom && tt.field.Type != store.TypeStrings && slices.ContainsFunc(slices.Concat(text, whole, real, boolean, []any{math.Inf(1), math.Inf(-1)}), func(g any) bool { return fmt.Sprintf("%T%v", g, g) == fmt.Sprintf("%T%v", v, v) }),
				} {
					_, err := c.Count(t.Context(), store.Where(tt.field, op, v))
					if accept != (err == nil) {
						t.Errorf("%+v %d %T %v: %v", tt.field, op, v, v, err)
					}
					if err != nil {
						wantErr(t, "text operator", err, store.ErrQuery)
					}
				}
			}
		}
	})
}

// A condition with an unknown operator must be refused: ignoring it would widen the answer.
func TestUnknownOperatorsAreRefused(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		insert(t, f.items.In(f.ws), &item{Name: "x"})
		for op := store.Op(-2); op < 20; op++ {
			if op >= store.OpEq && op <= store.OpBefore {
				continue
			}
			condition := store.Where(store.F("name"), op, "y")
			if condition.IsZero() {
				t.Errorf("IsZero of a condition with operator %d = true, want false", op)
			}
			for _, filter := range []store.Filter{condition, store.All(condition), store.AnyOf(store.Eq("name", "y"), condition), store.Where(store.Field{}, op)} {
				for what, err := range everyRead(t.Context(), f.items, f.ws, filter) {
					wantErr(t, fmt.Sprintf("%s with operator %d", what, op), err, store.ErrQuery)
				}
			}
		}
		for _, op := range []store.Op{store.OpEq, store.OpNe, store.OpGt, store.OpGte, store.OpLt, store.OpLte, store.OpContains, store.OpContainsFold, store.OpStartsWith, store.OpStartsWithFold, store.OpExists, store.OpFrom} {
			for _, values := range [][]any{{}, {"a", "b"}} {
				_, err := f.items.In(f.ws).Count(t.Context(), store.Where(store.F("name"), op, values...))
				wantErr(t, fmt.Sprintf("operator %d with %d values", op, len(values)), err, store.ErrQuery)
			}
		}
	})
}

func TestFilterTree(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		insert(t, c, &item{Name: "a", N: 1}, &item{Name: "b", N: 2}, &item{Name: "c", N: 3})
		is := func(name string) store.Filter { return store.Eq("name", name) }
		for i, tt := range []struct {
			filter store.Filter
			want   string
		}{
			{store.Filter{}, "a b c"},
			{store.All(), "a b c"},
			{store.All(store.All(), store.Filter{}), "a b c"},
			{store.AnyOf(), ""},
			{store.All(store.AnyOf()), ""},
			{store.AnyOf(store.All()), "a b c"},
			{store.AnyOf(is("a"), is("c")), "a c"},
			{store.All(is("a"), is("c")), ""},
			{store.All(store.AnyOf(is("a"), is("b")), store.Where(store.F("n"), store.OpGt, 1.5)), "b"},
			{store.In[string]("name"), ""},
			{store.Where(store.F("name"), store.OpNin), "a b c"},
			{store.In("n", 1, 3), "a c"},
		} {
			if got := names(t, c, store.Query{Filter: tt.filter}); got != tt.want {
				t.Errorf("case %d finds %q, want %q", i, got, tt.want)
			}
		}
		if !(store.Filter{}).IsZero() || !store.All().IsZero() || store.AnyOf().IsZero() || is("a").IsZero() {
			t.Error("IsZero is wrong for one of the zero Filter, All(), AnyOf() and a condition")
		}
	})
}

func TestEmptyTextMeansMissing(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		// The declared text fields of the record called "none" are missing, as "" and as nil.
		insert(t, c, &item{Name: "none", Text: ptr(""), Fields: map[string]any{"k": ""}}, &item{Name: "a", Title: "a", Code: "a", Text: ptr("a"), Fields: map[string]any{"k": "a"}},
			&item{Name: "b", Title: "b", Code: "b", Text: ptr("b")})
		one := []any{""}
		for i, tt := range []struct {
			op     store.Op
			values []any
			want   string
			custom string // result for a custom field, where "" is a value
		}{
			{store.OpEq, one, "none", "none"},
			{store.OpNe, one, "a b", "a b"},
			{store.OpGt, one, "a b", "a"},
			{store.OpGte, one, "a b none", "a none"},
			{store.OpLt, one, "", ""},
			{store.OpLte, one, "none", "none"},
			{store.OpContains, one, "a b", "a none"},
			{store.OpContainsFold, one, "a b", "a none"}, {store.OpStartsWithFold, one, "a b", "a none"},
			{store.OpStartsWith, one, "a b", "a none"},
			{store.OpIn, []any{""}, "none", "none"},
			{store.OpIn, []any{"", "a", ""}, "a none", "a none"},
			{store.OpIn, []any{"b", ""}, "b none", "none"},
			{store.OpNin, []any{""}, "a b", "a b"},
			{store.OpNin, []any{"", "a"}, "b", "b"},
			{store.OpNin, []any{"a"}, "b none", "b none"},
			{store.OpExists, []any{false}, "none", "b"},
		} {
			for _, field := range []string{"title", "code", "text"} {
				values := slices.Clone(tt.values)
				filter := store.Where(store.F(field), tt.op, values...)
				for range 2 { // a query does not change its filter
					if got := names(t, c, store.Query{Filter: filter}); got != tt.want {
						t.Errorf("case %d: %s finds %q, want %q", i, field, got, tt.want)
					}
				}
				if !slices.Equal(values, tt.values) {
					t.Errorf("case %d: the caller's values became %q", i, values)
				}
			}
			filter := store.Where(store.Field{Name: "k", Custom: true, Type: store.TypeString}, tt.op, tt.values...)
			if got := names(t, c, store.Query{Filter: filter}); got != tt.custom {
				t.Errorf("case %d: the custom field finds %q, want %q", i, got, tt.custom)
			}
		}
		if got := names(t, c, store.Query{Filter: store.Eq("id", "")}); got != "" {
			t.Errorf("an empty id finds %q", got)
		}
		if got := names(t, c, store.Query{Filter: store.Eq("tags", "")}); got != "" {
			t.Errorf("an empty tag finds %q", got)
		}
	})
}

func nest(levels int, f store.Filter) store.Filter {
	for range levels {
		f = store.All(f)
	}
	return f
}

func TestLimitsOfAQuery(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		ctx := t.Context()
		wide := func(n int) store.Filter {
			kids := make([]store.Filter, n)
			for i := range kids {
				kids[i] = store.Eq("name", "x")
			}
			return store.AnyOf(kids...)
		}
		long := func(n int) store.Filter {
			values := make([]string, n)
			for i := range values {
				values[i] = fmt.Sprint("v", i)
			}
			return store.In("name", values...)
		}
		for name, tt := range map[string]struct {
			filter store.Filter
			ok     bool
		}{
			"depth":               {nest(15, store.Eq("name", "x")), true},
			"too deep":            {nest(16, store.Eq("name", "x")), false},
			"much too deep":       {nest(100_000, store.Eq("name", "x")), false},
			"deep without leaves": {nest(17, store.AnyOf()), false},
			"conditions":          {wide(500), true},
			"too many conditions": {wide(501), false},
			"in two branches":     {store.All(wide(450), wide(51)), false},
			"values":              {long(10_000), true},
			"too many values":     {long(10_001), false},
			"text to find":        {store.Where(store.F("name"), store.OpContainsFold, strings.Repeat("k", 2048)), true},
			"too long a text":     {store.Where(store.F("name"), store.OpContainsFold, strings.Repeat("k", 2049)), false},
			"too long a start":    {store.Where(store.F("name"), store.OpStartsWithFold, strings.Repeat("k", 2049)), false},
		} {
			_, err := f.plains.In(f.ws).Count(ctx, tt.filter)
			if tt.ok && err != nil {
				t.Errorf("%s: %v", name, err)
			} else if !tt.ok {
				wantErr(t, name, err, store.ErrQuery)
			}
		}
	})
}

// If Each accepts a filter for the first page, it accepts it for all pages.
func TestEachTakesAFilterForAllPages(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.plains.In(f.ws)
		recs := make([]*plain, 501)
		for i := range recs {
			recs[i] = &plain{Name: "x"}
		}
		insert(t, c, recs...)
		kids := func(n int) store.Filter {
			list := make([]store.Filter, n)
			for i := range list {
				list[i] = store.Eq("name", "x")
			}
			return store.All(list...)
		}
		taken := 0
		for _, filter := range []store.Filter{
			nest(13, store.Eq("name", "x")), nest(14, store.Eq("name", "x")), nest(15, store.Eq("name", "x")), nest(16, store.Eq("name", "x")),
			kids(198), kids(199), kids(200), kids(201),
		} {
			seen := 0
			err := c.Each(t.Context(), filter, store.Live, func(*plain) error { seen++; return nil })
			if err == nil {
				taken++
			}
			if (err == nil) != (seen == len(recs)) || seen != 0 && seen != len(recs) {
				t.Errorf("Each saw %d of %d records: %v", seen, len(recs), err)
			}
		}
		if taken < 4 {
			t.Errorf("Each accepted %d of the filters, want at least 4", taken)
		}
	})
}

func TestLimitAndOffset(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		inner := &recorder{Engine: open(t)}
		f := setupOn(t, inner, nil)
		insert(t, f.plains.In(f.ws), &plain{Name: "a"}, &plain{Name: "b"})
		for _, tt := range []struct{ limit, offset, wantLimit, wantOffset int }{
			{0, 0, store.MaxLimit, 0}, {-1, -1, store.MaxLimit, 0}, {1, 1, 1, 1}, {store.MaxLimit, 5, store.MaxLimit, 5},
			{store.MaxLimit + 1, 0, store.MaxLimit, 0}, {math.MaxInt, math.MaxInt32, store.MaxLimit, math.MaxInt32}, {math.MinInt, math.MinInt, store.MaxLimit, 0},
		} {
			q := store.Query{Limit: tt.limit, Offset: tt.offset}
			for what, ask := range map[string]func(context.Context) error{
				"Find":   func(ctx context.Context) error { _, err := f.plains.In(f.ws).Find(ctx, q); return err },
				"Select": func(ctx context.Context) error { _, _, err := f.plains.Table(f.ws).Select(ctx, nil, q); return err },
			} {
				if err := ask(t.Context()); err != nil {
					t.Fatal(err)
				}
				if last := inner.lastQuery(); last.Limit != tt.wantLimit || last.Offset != tt.wantOffset {
					t.Errorf("%s %+v asked the engine for %d from %d", what, q, last.Limit, last.Offset)
				}
			}
			if _, _, err := f.plains.Table(f.ws).Aggregate(t.Context(), store.Aggregation{Groups: []store.Group{{Field: store.F("name")}}, Limit: tt.limit}); err != nil {
				t.Fatal(err)
			}
			if got := inner.lastAggregation().Limit; got != tt.wantLimit {
				t.Errorf("an aggregation with limit %d asked the engine for %d", tt.limit, got)
			}
		}
	})
}

func TestAggregateRefuses(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		insert(t, f.items.In(f.ws), &item{Name: "x", Tags: []label{"a"}})
		groups := []store.Group{{Field: store.F("name")}}
		count := []store.Measure{{Op: store.MeasureCount}}
		list := store.Field{Name: "k", Custom: true, Type: store.TypeStrings}
		for name, a := range map[string]store.Aggregation{
			"nothing":            {},
			"only a sort":        {Sort: []store.Rank{{Column: 0}}},
			"a list":             {Groups: []store.Group{{Field: store.F("tags")}}},
			"a custom list":      {Groups: []store.Group{{Field: list}}},
			"column -1":          {Groups: groups, Sort: []store.Rank{{Column: -1}}},
			"column past":        {Groups: groups, Measures: count, Sort: []store.Rank{{Column: 0}, {Column: 2}}},
			"unknown measure":    {Measures: []store.Measure{{Op: store.MeasureDistinct + 1, Field: store.F("n")}}},
			"negative measure":   {Measures: []store.Measure{{Op: -1, Field: store.F("n")}}},
			"measure of nothing": {Measures: []store.Measure{{Op: store.MeasureSum}}},
			"unknown bucket":     {Groups: []store.Group{{Field: store.F("created_at"), By: store.Year + 1}}},
			"negative bucket":    {Groups: []store.Group{{Field: store.F("created_at"), By: -1}}},
			"bad filter":         {Groups: groups, Filter: store.Eq("secret", "x")},
		} {
			_, _, err := f.items.Table(f.ws).Aggregate(t.Context(), a)
			wantErr(t, name, err, store.ErrQuery)
		}
		rows, _, err := f.items.Table(f.ws).Aggregate(t.Context(), store.Aggregation{Groups: groups, Measures: count, Sort: []store.Rank{{Column: 1, Desc: true}}})
		if err != nil || len(rows) != 1 || rows[0][0] != "x" || rows[0][1] != int64(1) {
			t.Errorf("rows %v, %v", rows, err)
		}
	})
}
