package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
	"tenantry/backends/driver"
	"tenantry/backends/memtest"
)

// words draws from a few texts, which makes matches and ties likely.
func words() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"", "a", "ab", "abc", "b", "B", "é", "日本", "z", "1", "true", "Straße", "ẞ", "K", "ΣΑΣ", "ς", "a,b", `q"q`, `\`, "$where", "2024-05-17", "2024-12-30T00:00:00Z", "x y"})
}

func ints() *rapid.Generator[int64] {
	return rapid.OneOf(rapid.Int64Range(-3, 3), rapid.SampledFrom([]int64{exact53, exact53 + 1, -exact53 - 1, 1_715_904_000_000, 0}))
}

func floats() *rapid.Generator[float64] {
	return rapid.SampledFrom([]float64{-1.5, -1, 0, 0.25, 1, 1.5, 2, 3, 1e10, float64(exact53), 0.1})
}

func anyOf(t *rapid.T, label string) any {
	switch rapid.IntRange(0, 3).Draw(t, label+" type") {
	case 0:
		return words().Draw(t, label)
	case 1:
		return ints().Draw(t, label)
	case 2:
		return floats().Draw(t, label)
	}
	return rapid.Bool().Draw(t, label)
}

func valueOf(t *rapid.T, typ driver.Type, label string) any {
	if rapid.IntRange(0, 3).Draw(t, label+" set") == 0 {
		return nil
	}
	switch typ {
	case driver.String, driver.Date:
		return words().Draw(t, label)
	case driver.Int, driver.Time:
		return ints().Draw(t, label)
	case driver.Float:
		return floats().Draw(t, label)
	case driver.Bool:
		return rapid.Bool().Draw(t, label)
	case driver.Strings:
		return rapid.SliceOfN(words(), 0, 3).Draw(t, label)
	}
	return anyOf(t, label)
}

func customValue(t *rapid.T) string {
	switch rapid.IntRange(0, 7).Draw(t, "custom type") {
	case 0:
		return "null"
	case 1:
		return `["a", "b", 1]`
	case 2:
		return rapid.SampledFrom([]string{"[]", `["a"]`, `["日本", null]`, "[null]"}).Draw(t, "custom list")
	}
	switch v := anyOf(t, "custom").(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case float64:
		return rapid.SampledFrom([]string{fmt.Sprint(v), fmt.Sprintf("%e", v)}).Draw(t, "spelling")
	default:
		return fmt.Sprint(v)
	}
}

// records draws documents without unique fields, which have their own tests.
func records(t *rapid.T) []record {
	all := make([]record, rapid.IntRange(0, 14).Draw(t, "documents"))
	for i := range all {
		all[i] = record{id: fmt.Sprintf("d%02d", i), values: map[string]any{}}
		for _, f := range fields() {
			if f.Name == "slug" || f.Name == "code" {
				continue
			}
			if v := valueOf(t, f.Type, f.Name); v != nil {
				all[i].values[f.Name] = v
			}
		}
		var members []string
		for _, key := range []string{"k", "7"} {
			if rapid.Bool().Draw(t, "has "+key) {
				members = append(members, fmt.Sprintf("%q: %s", key, customValue(t)))
			}
		}
		if members != nil {
			all[i].custom = "{" + strings.Join(members, ", ") + "}"
		}
	}
	return all
}

func refs(t *rapid.T, lists bool) driver.Ref {
	options := []driver.Ref{{Name: "id", Type: driver.String}, custom("k", driver.Any), custom("7", driver.Float), custom("none", driver.String)}
	for _, f := range fields() {
		if lists || f.Type != driver.Strings {
			options = append(options, ref(f.Name))
		}
	}
	if lists {
		options = append(options, custom("k", driver.Strings))
	}
	return rapid.SampledFrom(options).Draw(t, "field")
}

func predicates(t *rapid.T, depth int) driver.Predicate {
	if depth > 0 && rapid.IntRange(0, 2).Draw(t, "leaf") == 0 {
		p := driver.Predicate{Op: rapid.SampledFrom([]driver.Op{driver.And, driver.Or}).Draw(t, "join")}
		for range rapid.IntRange(0, 3).Draw(t, "kids") {
			p.Kids = append(p.Kids, predicates(t, depth-1))
		}
		return p
	}
	p := driver.Predicate{
		Op:  driver.Op(rapid.IntRange(int(driver.Eq), int(driver.Before)).Draw(t, "op")),
		Ref: refs(t, true),
	}
	n := 1
	switch p.Op {
	case driver.From, driver.Before:
		p.Ref, p.Values = custom(rapid.SampledFrom([]string{"k", "7", "none"}).Draw(t, "placed"), driver.Any), []any{anyOf(t, "place")}
		return p
	case driver.Exists:
		p.Values = []any{rapid.Bool().Draw(t, "exists")}
		return p
	case driver.In, driver.Nin:
		n = rapid.IntRange(0, 5).Draw(t, "values")
	}
	for range n {
		v := valueOf(t, p.Ref.Type, "value")
		if list, isList := v.([]string); v == nil || isList {
			if v = anyOf(t, "other value"); len(list) > 0 {
				v = list[0]
			}
		}
		p.Values = append(p.Values, v)
	}
	return p
}

// withoutDollars removes the dollar signs at the beginning of texts.
func withoutDollars(all []record) {
	for i, r := range all {
		for name, v := range r.values {
			if s, ok := v.(string); ok {
				r.values[name] = strings.TrimLeft(s, "$")
			}
		}
		all[i].custom = strings.ReplaceAll(r.custom, `"$`, `"`)
	}
}

// plainly returns a bench with these documents on the engine in memory, for comparison.
func (b *bench) plainly(all ...record) *bench {
	p := *b
	var err error
	if p.ws, err = memtest.New().Open(b.ctx, driver.Opening{Workspace: b.name}); err != nil {
		b.t.Fatal(err)
	}
	p.insert(all...)
	return &p
}

// reset replaces the documents of both collections.
func (b *bench) reset(all []record) {
	for _, c := range []*driver.Collection{b.things, b.plain} {
		var writes []driver.Write
		for _, d := range b.find(driver.Query{Collection: c}) {
			writes = append(writes, driver.Write{Collection: c, Op: driver.Delete, Doc: driver.Document{ID: d.ID, Rev: d.Rev}})
		}
		for _, r := range all {
			writes = append(writes, driver.Write{Collection: c, Op: driver.Insert, Doc: r.document(b.t, c)})
		}
		if err := b.ws.Write(b.ctx, writes); err != nil {
			b.t.Fatalf("write the documents of a case: %v", err)
		}
	}
}

// severalBounds reports whether the predicate has more than one bound on a field.
func severalBounds(p driver.Predicate) bool {
	seen := map[string]bool{}
	var twice func(p driver.Predicate) bool
	twice = func(p driver.Predicate) bool {
		switch p.Op {
		case driver.And, driver.Or:
			return slices.ContainsFunc(p.Kids, twice)
		case driver.Gt, driver.Gte, driver.Lt, driver.Lte, driver.Contains, driver.ContainsFold, driver.StartsWith, driver.StartsWithFold, driver.From, driver.Before:
			was := seen[p.Ref.Name]
			seen[p.Ref.Name] = true
			return was
		}
		return false
	}
	return twice(p)
}

func (f faults) testDifferential(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	rapid.Check(t, func(rt *rapid.T) {
		all := records(rt)
		b.reset(all)
		plainly := b.plainly(all...)
		for range 8 {
			q := driver.Query{Where: predicates(rt, 3), Limit: rapid.IntRange(1, 20).Draw(rt, "limit"), Offset: rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(rt, "offset")}
			for range rapid.IntRange(0, 2).Draw(rt, "steps") {
				q.Sort = append(q.Sort, driver.Order{Ref: refs(rt, false), Desc: rapid.Bool().Draw(rt, "desc")})
			}
			if slices.Contains(f, SeveralBounds) && severalBounds(q.Where) {
				continue
			}
			q.Collection = b.plain
			want, n := ids(plainly.find(q)), plainly.count(b.plain, q.Where)
			for _, c := range []*driver.Collection{b.things, b.plain} {
				q.Collection = c
				docs, err := b.ws.Find(b.ctx, q)
				if err != nil {
					rt.Fatalf("Find %+v: %v", q, err)
				}
				if got := ids(docs); got != want {
					rt.Fatalf("%s: %+v sorted by %+v finds [%s], want [%s]", c.Name, q.Where, q.Sort, got, want)
				}
				if got, err := b.ws.Count(b.ctx, c, q.Where); err != nil || got != n {
					rt.Fatalf("%s: %+v counts %d, %v, want %d", c.Name, q.Where, got, err, n)
				}
			}
		}
	})
}

// grouped draws a field whose values all engines group in the same way.
func grouped(t *rapid.T) driver.Ref {
	for {
		if r := refs(t, false); r.Name != "k" && r.Name != "7" {
			return r
		}
	}
}

// withoutGiants reduces large numbers, so that sums are exact.
func withoutGiants(all []record) {
	const giant = 1 << 40
	for _, r := range all {
		for name, v := range r.values {
			switch n := v.(type) {
			case int64:
				if n > giant || n < -giant {
					r.values[name] = n >> 30
				}
			case float64:
				if n > giant || n < -giant {
					r.values[name] = n / (1 << 30)
				}
			}
		}
	}
}

func (f faults) testDifferentialAggregates(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	rapid.Check(t, func(rt *rapid.T) {
		all := records(rt)
		if slices.Contains(f, DollarGroups) {
			withoutDollars(all)
		}
		if slices.Contains(f, RoughSums) {
			withoutGiants(all)
		}
		b.reset(all)
		plainly := b.plainly(all...)
		for range 4 {
			a := driver.Aggregation{Where: predicates(rt, 1), Limit: 100}
			for range rapid.IntRange(0, 2).Draw(rt, "groups") {
				g := driver.Group{Ref: grouped(rt)}
				if g.Ref.Type == driver.Time || g.Ref.Type == driver.Date {
					g.By = driver.Bucket(rapid.IntRange(int(driver.NoBucket), int(driver.Year)).Draw(rt, "by"))
				}
				if g.By != driver.NoBucket && g.Ref.Type == driver.Time {
					// Engines disagree on buckets of years with more than four digits.
					a.Where = and(a.Where, driver.Predicate{Op: driver.Lt, Ref: g.Ref, Values: []any{int64(1) << 47}}, driver.Predicate{Op: driver.Gt, Ref: g.Ref, Values: []any{-(int64(1) << 45)}})
				}
				a.Groups = append(a.Groups, g)
			}
			for range rapid.IntRange(1, 3).Draw(rt, "measures") {
				a.Measures = append(a.Measures, driver.Measure{Op: driver.MeasureOp(rapid.IntRange(int(driver.Count), int(driver.Distinct)).Draw(rt, "measure")), Ref: grouped(rt)})
			}
			a.Collection = b.plain
			want, err := plainly.ws.Aggregate(b.ctx, a)
			if err != nil {
				rt.Fatalf("in memory: %v", err)
			}
			for _, c := range []*driver.Collection{b.things, b.plain} {
				a.Collection = c
				got, err := b.ws.Aggregate(b.ctx, a)
				if err != nil {
					rt.Fatalf("Aggregate %+v: %v", a, err)
				}
				if !sameRows(got, want) {
					rt.Fatalf("%s: %+v gives\n%v, want\n%v", c.Name, a, got, want)
				}
			}
		}
	})
}
