package store_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"tenantry/backends/store"
)

func ptr[T any](v T) *T { return &v }

// TestRecordsRoundTrip: records are read as they were stored. In particular, no custom values and an empty object of
// custom values stay distinct.
func TestRecordsRoundTrip(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		for name, rec := range map[string]item{
			"zero": {},
			"full": {
				Name: "Ünï <&> \u2028 \x00 \"quoted\"", Title: "t", Code: "c1", N: 1<<53 + 1, Size: -7, X: 0.1, Flag: true,
				Text: ptr("text"), Number: ptr(int64(math.MinInt64)), At: 1_700_000_000_123, Tags: []label{"a", "b,c", `"d"`, "a"}, Teams: []string{"red"},
				Secret: "s3cret", Sealed: map[string]string{"iban": "x"},
				Fields: map[string]any{"n": json.Number("9007199254740993"), "t": "", "l": []any{"x", json.Number("1")}, "b": false, "o": map[string]any{"k": nil}},
			},
			"pointers to nothing": {Name: "p", Text: ptr(""), Number: ptr(int64(0))},
			"empty lists":         {Name: "l", Tags: []label{}, Fields: map[string]any{}},
			"largest":             {Name: "m", N: math.MaxInt64, X: math.MaxFloat64, At: -1},
		} {
			t.Run(name, func(t *testing.T) {
				stored := rec
				insert(t, c, &stored)
				got, err := c.Get(t.Context(), stored.ID)
				if err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(*got, stored) {
					t.Errorf("stored %+v\nread   %+v", stored, *got)
				}
				if rec.Fields != nil && stored.Fields == nil {
					t.Error("Insert cleared the custom values of the caller's record")
				}
				// A second round trip, of the record that was read.
				if err := c.Replace(t.Context(), got); err != nil {
					t.Fatal(err)
				}
				again, err := c.Get(t.Context(), stored.ID)
				if err != nil || !reflect.DeepEqual(again, got) || again.Rev != 2 {
					t.Errorf("replaced %+v\nread     %+v (%v)", got, again, err)
				}
			})
		}
	})
}

func TestLargeCustomNumbersAreExact(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		const large = 1<<53 + 1
		for name, v := range map[string]any{"int64": int64(large), "json.Number": json.Number("9007199254740993")} {
			rec := &item{Name: name, Fields: map[string]any{"n": v}}
			insert(t, c, rec)
			got, err := c.Get(t.Context(), rec.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got.Fields["n"] != json.Number("9007199254740993") {
				t.Errorf("%s came back as %T %v", name, got.Fields["n"], got.Fields["n"])
			}
		}
		field := store.Field{Name: "n", Custom: true, Type: store.TypeFloat}
		for v, want := range map[any]string{int64(large): "int64 json.Number", int64(large - 1): "", float64(large - 1): ""} {
			if got := names(t, c, store.Query{Filter: store.Where(field, store.OpEq, v)}); got != want {
				t.Errorf("%T %v finds %q, want %q", v, v, got, want)
			}
		}
	})
}

func TestUnencodableRecordsAreRefused(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		for name, rec := range map[string]*item{
			"NaN": {X: math.NaN()}, "infinite": {X: math.Inf(1)}, "a channel": {Fields: map[string]any{"c": make(chan int)}},
			"NaN in custom": {Fields: map[string]any{"x": math.NaN()}}, "no number": {Fields: map[string]any{"x": json.Number("1e")}},
		} {
			if err := c.Insert(t.Context(), &item{Name: "before"}, rec); err == nil {
				t.Errorf("%s was stored", name)
			}
		}
		if n, err := c.CountIn(t.Context(), store.Filter{}, store.Either); n != 0 || err != nil {
			t.Errorf("%d records were stored, %v", n, err)
		}
	})
}

// Queries see the same text as readers, even if it is not valid UTF-8.
func TestInvalidUTF8IsOneTextEverywhere(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		insert(t, c, &item{Name: "a\xff\xfeb", Code: "k\xff", Tags: []label{"t\xff"}, Text: ptr("\xc3")})
		got, err := c.First(t.Context(), store.Query{})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []store.Filter{store.Eq("name", got.Name), store.Eq("code", got.Code), store.Eq("tags", string(got.Tags[0])), store.Eq("text", *got.Text)} {
			if n, err := c.Count(t.Context(), q); n != 1 || err != nil {
				t.Errorf("%+v counts %d, %v", q, n, err)
			}
		}
		rows, _, err := f.items.Table(f.ws).Aggregate(t.Context(), store.Aggregation{Groups: []store.Group{{Field: store.F("name")}}})
		if err != nil || len(rows) != 1 || rows[0][0] != got.Name {
			t.Errorf("grouped as %q, read as %q (%v)", rows, got.Name, err)
		}
		var dup *store.DuplicateError
		if err := c.Insert(t.Context(), &item{Name: "other", Code: got.Code}); !errors.As(err, &dup) {
			t.Errorf("the same text was stored twice in a unique field: %v", err)
		}
	})
}

// Empty text, empty lists, nil pointers and the zero time are missing; 0 and false are values.
func TestEmptyValuesAreMissing(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c := f.items.In(f.ws)
		insert(t, c, &item{Text: ptr(""), Tags: []label{}})
		for field, want := range map[string]bool{
			"name": false, "title": false, "code": false, "text": false, "number": false, "at": false, "tags": false,
			"n": true, "size": true, "x": true, "flag": true, "created_at": true, "updated_at": true,
		} {
			for present, n := range map[bool]int64{want: 1, !want: 0} {
				if got, err := c.Count(t.Context(), store.Has(field, present)); got != n || err != nil {
					t.Errorf("%s present=%t counts %d, %v", field, present, got, err)
				}
			}
		}
		for _, q := range []store.Filter{store.Eq("n", 0), store.Eq("x", 0), store.Eq("flag", false), store.Eq("size", 0.0)} {
			if n, err := c.Count(t.Context(), q); n != 1 || err != nil {
				t.Errorf("%+v counts %d, %v", q, n, err)
			}
		}
		// Unique indexes ignore what is missing.
		insert(t, c, &item{}, &item{Name: "n"}, &item{Name: "n"}, &item{Title: "t"}, &item{Title: "t"})
	})
}

func TestSelectTypes(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		insert(t, f.items.In(f.ws),
			&item{
				Meta: store.Meta{ID: strings.Repeat("0", 23) + "1", CreatedAt: 1234, UpdatedAt: 5678},
				Name: "n", Title: "t", N: 1<<53 + 1, Size: 3, X: 1.5, Flag: true, Text: ptr("x"), Number: ptr(int64(0)), At: 99, Tags: []label{"a", "b"}, Teams: []string{"red"},
				Fields: map[string]any{"n": int64(1<<53 + 1), "x": 0.5, "big": json.Number("1e400"), "t": "", "b": true, "l": []string{"p"}, "nil": nil, "id": "mine", "secret": "custom", "text": "null"},
			},
			&item{Meta: store.Meta{ID: strings.Repeat("0", 23) + "2", CreatedAt: 1234, UpdatedAt: 5678}, X: 2, Text: ptr(""), Tags: []label{}})
		custom := func(name string) store.Field { return store.Field{Name: name, Custom: true} }
		for _, tt := range []struct {
			field       store.Field
			full, empty any
		}{
			{store.F("id"), strings.Repeat("0", 23) + "1", strings.Repeat("0", 23) + "2"},
			{store.F("created_at"), int64(1234), int64(1234)},
			{store.F("updated_at"), int64(5678), int64(5678)},
			{store.F("name"), "n", nil},
			{store.F("title"), "t", nil},
			{store.F("n"), int64(1<<53 + 1), int64(0)},
			{store.F("size"), int64(3), int64(0)},
			{store.F("x"), 1.5, int64(2)},
			{store.F("flag"), true, false},
			{store.F("deleted"), false, false},
			{store.F("text"), "x", nil},
			{store.F("number"), int64(0), nil},
			{store.F("at"), int64(99), nil},
			{store.F("tags"), []any{"a", "b"}, nil},
			{store.F("teams"), []any{"red"}, nil},
			{custom("n"), int64(1<<53 + 1), nil},
			{custom("x"), 0.5, nil},
			{custom("t"), "", nil},
			{custom("b"), true, nil},
			{custom("l"), []any{"p"}, nil},
			{custom("nil"), nil, nil},
			{custom("id"), "mine", nil},
			{custom("secret"), "custom", nil},
			{custom("text"), "null", nil},
			{custom("absent"), nil, nil},
			{custom("name"), nil, nil}, // not the declared field of that name
		} {
			rows, _, err := f.items.Table(f.ws).Select(t.Context(), []store.Field{tt.field, store.F("id")}, store.Query{})
			if err != nil || len(rows) != 2 {
				t.Fatalf("%+v: %v, %v", tt.field, rows, err)
			}
			for i, want := range []any{tt.full, tt.empty} {
				if !reflect.DeepEqual(rows[i][0], want) {
					t.Errorf("%+v of record %d is %T %v, want %T %v", tt.field, i, rows[i][0], rows[i][0], want, want)
				}
			}
		}
		rows, _, err := f.items.Table(f.ws).Select(t.Context(), nil, store.Query{Limit: 1})
		if err != nil || len(rows) != 1 || len(rows[0]) != 0 {
			t.Errorf("no fields give %v, %v", rows, err)
		}
	})
}

// Select, a group and a condition agree on the value of a field.
func TestSelectAgreesWithGroupsAndConditions(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		c, table := f.items.In(f.ws), f.items.Table(f.ws)
		insert(t, c, &item{}, &item{Name: "a", Code: "c", N: 3, Size: 4, X: 2.5, Flag: true, Text: ptr("t"), Number: ptr(int64(0)), At: 5})
		for _, name := range []string{"id", "name", "title", "code", "n", "size", "x", "flag", "text", "number", "at", "deleted", "created_at"} {
			rows, _, err := table.Select(t.Context(), []store.Field{store.F(name), store.F("id")}, store.Query{})
			if err != nil {
				t.Fatal(err)
			}
			for _, row := range rows {
				q := store.Has(name, false)
				if row[0] != nil {
					q = store.Eq(name, row[0])
				}
				q = store.All(store.Eq("id", row[1]), q)
				groups, _, err := table.Aggregate(t.Context(), store.Aggregation{Filter: q, Groups: []store.Group{{Field: store.F(name)}}})
				if err != nil || len(groups) != 1 {
					t.Errorf("%s is %v in Select, but a condition on that value finds %v, %v",
						name, row[0], groups, err)
					continue
				}
				if g := groups[0][0]; g != row[0] && !equalNumbers(g, row[0]) {
					t.Errorf("%s is %T %v in Select, %T %v in a group", name, row[0], row[0], g, g)
				}
			}
		}
	})
}

func equalNumbers(a, b any) bool {
	number := func(v any) float64 {
		switch x := v.(type) {
		case int64:
			return float64(x)
		case float64:
			return x
		}
		return math.NaN()
	}
	return number(a) == number(b)
}
