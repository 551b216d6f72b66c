package filters

import (
	"encoding/json"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
)

// spelling is one filter, written both ways.
type spelling struct {
	query []string
	json  map[string]any
}

func valueOf(t store.Type) *rapid.Generator[any] {
	switch t {
	case store.TypeInt, store.TypeFloat:
		return rapid.OneOf(rapid.Map(rapid.Int64(), func(n int64) any { return n }),
			rapid.Map(rapid.Float64Range(-1e9, 1e9), func(f float64) any { return f }))
	case store.TypeBool:
		return rapid.Map(rapid.Bool(), func(b bool) any { return b })
	case store.TypeTime, store.TypeDate:
		return rapid.Map(rapid.SampledFrom([]string{"2024-05-17", "1969-12-31", "2024-05-17T10:00:00Z", "2024-05-17T10:00:00.123456+02:00"}),
			func(s string) any { return s })
	}
	return rapid.Map(rapid.StringOf(rapid.RuneFrom([]rune("aß&=;%+[]0\"\\ ,é\U0001F600"))), func(s string) any { return s })
}

func written(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	raw, _ := json.Marshal(v)
	return string(raw)
}

func (s *spelling) put(path string, v any) {
	s.query = append(s.query, url.QueryEscape(path)+"="+url.QueryEscape(written(v)))
}

// object draws one AND and returns its JSON; prefix is where it stands in a query.
func (s *spelling) object(t *rapid.T, prefix string, least int) map[string]any {
	c, out := testCatalog(), map[string]any{}
	names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"age", "birthday", "city", "country", "created_at", "tags", "vip"}), least, 3, rapid.ID).Draw(t, "fields")
	for _, name := range names {
		typ, at := c[name].Ref.Type, prefix+"["+name+"]"
		if rapid.Bool().Draw(t, "plain") {
			if rapid.Bool().Draw(t, "list") {
				values := rapid.SliceOfN(valueOf(typ), 1, 3).Draw(t, "values")
				for _, v := range values {
					s.put(at+"[]", v)
				}
				out[name] = values
				continue
			}
			v := valueOf(typ).Draw(t, "value")
			s.put(at, v)
			out[name] = v
			continue
		}
		members := map[string]any{}
		ops := rapid.SliceOfNDistinct(rapid.SampledFrom(operatorsOf(typ)), 1, 2, rapid.ID).Draw(t, "operators")
		for _, op := range ops {
			path := at + "[" + operatorName(op) + "]"
			switch {
			case op == store.OpExists:
				v := rapid.Bool().Draw(t, "exists")
				s.put(path, v)
				members["exists"] = v
			case takesList(op):
				values := rapid.SliceOfN(valueOf(typ), 1, 3).Draw(t, "values")
				for _, v := range values {
					s.put(path, v)
				}
				members[operatorName(op)] = values
			default:
				v := valueOf(typ).Draw(t, "value")
				s.put(path, v)
				members[operatorName(op)] = v
			}
		}
		out[name] = members
	}
	return out
}

func drawSpelling(t *rapid.T) spelling {
	var s spelling
	s.json = s.object(t, "filters", 1)
	if n := rapid.IntRange(0, 3).Draw(t, "alternatives"); n > 0 {
		var list []any
		for i := range n {
			list = append(list, s.object(t, "filters[or]["+strconv.Itoa(i)+"]", 1))
		}
		s.json[orKey] = list
	}
	return s
}

// sortedConditions makes filters comparable: JSON objects do not keep the order in which
// the query was written.
func sortedConditions(e Expr) Expr {
	order := func(group []condition) []condition {
		out := append([]condition{}, group...)
		for i := range out {
			for j := i; j > 0 && key(out[j]) < key(out[j-1]); j-- {
				out[j], out[j-1] = out[j-1], out[j]
			}
		}
		return out
	}
	sorted := Expr{conditions: order(e.conditions), invalid: e.invalid}
	for _, group := range e.alternatives {
		sorted.alternatives = append(sorted.alternatives, order(group))
	}
	return sorted
}

func key(c condition) string { return c.field + " " + operatorName(c.op) }

func TestPropertyQueryAndJSONBindEqual(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpelling(t)
		raw, err := json.Marshal(s.json)
		if err != nil {
			t.Fatal(err)
		}
		q, err := operation.ParseQuery(strings.Join(s.query, "&"))
		if err != nil {
			t.Fatal(err)
		}
		var errs fault.List
		one, _ := FromQuery(q.Tree("filters"), &errs)
		two := FromJSON(raw, &errs)
		a, b := bind(sortedConditions(one), &errs), bind(sortedConditions(two), &errs)
		if len(errs) > 0 {
			t.Fatalf("%s: got %v, want len(errs) <= 0", raw, errs)
		}
		if !reflect.DeepEqual(a, b) {
			t.Fatalf("query %v\nbinds to %+v\nJSON %s\nbinds to %+v", s.query, a, raw, b)
		}
	})
}

// checkExpr holds what is true of every filter, whatever it was read from.
func checkExpr(t *testing.T, e Expr, errs fault.List) {
	t.Helper()
	if e.invalid != (len(errs) > 0) {
		t.Fatalf("invalid %v with problems %v", e.invalid, errs)
	}
	if e.invalid && e.IsEmpty() {
		t.Fatal("an unreadable filter counts as none")
	}
	if e.size() > MaxConditions && !e.invalid {
		t.Fatalf("%d conditions", e.size())
	}
	read := len(errs)
	bound := e.Bind(testCatalog(), func(name string) (Input, bool) { return Input{Value: name, Set: true}, true }, &errs)
	if len(errs) > 0 {
		refused(t, e, errs[:read:read], "")
	}
	if len(errs) == 0 && bound.IsZero() != e.IsEmpty() {
		t.Fatalf("empty %v, but bound to %+v", e.IsEmpty(), bound)
	}
}

func FuzzFromQuery(f *testing.F) {
	for _, seed := range []string{"filters[country]=DE", "filters[or][0][age][gt]=3&filters[or][1][tags][]=a", "filters=0", "filters[$where]=1",
		"filters[created_at][nin][]=2024-05-17", "filters[a][b][c]=", "filters[vip]=true&filters[vip]=false", "filters[]=&filters=", "filters[%F3%A0%80%81]=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := operation.ParseQuery(raw)
		if err != nil {
			return
		}
		var errs fault.List
		pairs := q.Tree("filters")
		e, present := FromQuery(pairs, &errs)
		if present != (len(pairs) > 0) {
			t.Fatalf("present %v with %d pairs", present, len(pairs))
		}
		checkExpr(t, e, errs)
	})
}

func FuzzFromJSON(f *testing.F) {
	for _, seed := range []string{`{"country":"DE"}`, `{"age":{"gt":30},"or":[{"tags":["a"]},{"vip":true}]}`, `{"country":{"input":"c"}}`,
		`{"created_at":{"ne":"2024-05-17"}}`, `{"or":[{"or":[]}]}`, `{"\u0000":1}`, `{"country":{"in":{"input":"x"}}}`, `{"\ud800":1}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		var errs fault.List
		checkExpr(t, FromJSON([]byte(raw), &errs), errs)
	})
}
