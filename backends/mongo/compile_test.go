package mongo

import (
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"tenantry/backends/driver"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"pgregory.net/rapid"
)

func things() *driver.Collection {
	return &driver.Collection{Name: "things", Custom: true, Fields: []driver.Field{
		{Name: "name", Type: driver.String}, {Name: "n", Type: driver.Int}, {Name: "x", Type: driver.Float}, {Name: "flag", Type: driver.Bool},
		{Name: "at", Type: driver.Time}, {Name: "day", Type: driver.Date}, {Name: "tags", Type: driver.Strings}, {Name: "any", Type: driver.Any},
	}, Indexes: []driver.Index{
		{Name: "name", Fields: []string{"name"}, Unique: true, Ordered: true}, {Name: "n_tags", Fields: []string{"n", "tags"}}, {Name: "n", Fields: []string{"n"}}, {Name: "tags", Fields: []string{"tags"}},
	}}
}

// offline returns a workspace "org-1" without a server.
func offline(t testing.TB) (*workspace, *kind) {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI("mongodb://127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(t.Context()) })
	c := things()
	s, err := newShape(c)
	if err != nil {
		t.Fatal(err)
	}
	k := &kind{shape: s, coll: client.Database("d").Collection(s.name)}
	return &workspace{name: "org-1", schema: &schema{kinds: map[string]*kind{"things": k}, known: map[*driver.Collection]*kind{c: k}}}, k
}

func on(field string, op driver.Op, values ...any) driver.Predicate {
	return driver.Predicate{Op: op, Ref: driver.Ref{Name: field}, Values: values}
}

func onCustom(key string, typ driver.Type, op driver.Op, values ...any) driver.Predicate {
	return driver.Predicate{Op: op, Ref: driver.Ref{Name: key, Custom: true, Type: typ}, Values: values}
}

func and(kids ...driver.Predicate) driver.Predicate {
	return driver.Predicate{Op: driver.And, Kids: kids}
}

func or(kids ...driver.Predicate) driver.Predicate {
	return driver.Predicate{Op: driver.Or, Kids: kids}
}

// TestWorkspacesShareSchemas: workspaces that are opened with the same collections share a schema, so that a handle
// takes little memory.
func TestWorkspacesShareSchemas(t *testing.T) {
	t.Parallel()
	e := openAt(t, Options{URI: secret.New("mongodb://127.0.0.1:1")})
	list := []*driver.Collection{things(), {Name: "others"}}
	var all []*schema
	for _, of := range [][]*driver.Collection{list, slices.Clone(list), list[:1]} {
		s, _, err := e.space("org-" + strconv.Itoa(len(all)+1))
		if err != nil {
			t.Fatal(err)
		}
		one, err := e.schema(s, of)
		if err != nil || len(one.list) != len(of) {
			t.Fatalf("got %v, %v, want no error and len(one.list) = %v", one, err, len(of))
		}
		all = append(all, one)
	}
	if all[0] != all[1] || all[0] == all[2] {
		t.Errorf("schemas %p and %p of the same collections, and %p of others; want the first two the same",
			all[0], all[1], all[2])
	}
}

// TestDatabaseHandlesAreEvicted holds that the handle of an organization's own database is evicted once its indexes
// are made and nobody uses it; the shared database is kept.
func TestDatabaseHandlesAreEvicted(t *testing.T) {
	t.Parallel()
	const many = 200
	list := []*driver.Collection{things(), {Name: "others"}}
	for isolation, want := range map[Isolation]int{PerDatabase: 2, Shared: 1} {
		e := openAt(t, Options{URI: secret.New("mongodb://127.0.0.1:1"), Isolation: isolation})
		e.builder.close()
		var held *space
		for i := range many {
			s, _, err := e.space("org-" + strconv.Itoa(i))
			if err != nil {
				t.Fatal(err)
			}
			all, err := e.schema(s, list)
			if err != nil {
				t.Fatal(err)
			}
			e.builder.add(s, all.list)
			if i == 1 {
				held = s
			}
		}
		if n := len(e.tasks()); n != e.spaces.Len()*len(list) {
			t.Errorf("%d index tasks for %d databases, want %d for each", n, e.spaces.Len(), len(list))
		}
		for next := e.builder.next(); next != nil && (isolation == Shared || next.space.db.Name() != e.opts.Database+"_org-"+strconv.Itoa(many-1)); next = e.builder.next() {
			e.builder.finish(next)
		}
		for deadline := time.Now().Add(time.Minute); e.Kept() > want && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			runtime.GC()
		}
		if n := len(e.tasks()); e.Kept() != want || n != want*len(list) {
			t.Errorf("%d databases and workspaces are cached with %d index tasks, want %d with %d",
				e.Kept(), n, want, want*len(list))
		}
		if again, _, err := e.space("org-1"); again != held || err != nil {
			t.Errorf("space returned another database than that in use: %v", err)
		}
	}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	w, k := offline(t)
	const nothing = "nothing"
	single := func(key string) string { return `{"custom.` + key + `":{"$not":{"$type":"array"}}}]` }
	for _, c := range []struct {
		p    driver.Predicate
		want string // the filter after org_id, or "nothing" if no document can match
	}{
		{driver.Predicate{}, ``}, {and(and(), or(and())), ``}, {or(), nothing}, {and(on("n", driver.Eq, int64(1)), or()), nothing},
		{on("n", driver.In), nothing}, {on("n", driver.Nin), ``}, {or(on("n", driver.In), on("n", driver.Nin)), ``},
		{on("n", driver.Eq, "1"), nothing}, {on("n", driver.Ne, "1"), ``}, {on("n", driver.Gt, true), nothing}, {on("n", driver.Contains, "1"), nothing},
		{on("x", driver.Eq, math.NaN()), nothing}, {on("name", driver.StartsWith, int64(1)), nothing}, {on("tags", driver.Gt, "a"), nothing}, {on("tags", driver.Eq, int64(1)), nothing},
		{on("name", driver.Contains, "\xff"), nothing}, {on("name", driver.StartsWith, "\xe6"), nothing},
		{on("n", driver.Eq, int64(1)), `"n":{"$eq":{"$numberLong":"1"}}`}, {on("n", driver.Eq, 1.5), `"n":{"$eq":{"$numberDouble":"1.5"}}`},
		{on("n", driver.In, int64(1), "2", int64(3)), `"n":{"$in":[{"$numberLong":"1"},{"$numberLong":"3"}]}`}, {on("flag", driver.Nin, true, int64(1)), `"flag":{"$ne":true}`},
		{on("name", driver.Eq, `{"$gt":""}`), `"name":{"$eq":"{\"$gt\":\"\"}"}`}, {on("name", driver.Eq, "$where"), `"name":{"$eq":"$where"}`},
		{on("name", driver.Exists, true), `"name":{"$ne":null}`}, {on("id", driver.Exists, true), ``}, {on("id", driver.Exists, false), nothing},
		{on("id", driver.Eq, "a"), `"_id":{"$eq":"org-1/a"}`}, {on("id", driver.In, "a", "b"), `"_id":{"$in":["org-1/a","org-1/b"]}`}, {on("id", driver.Gt, ""), `"_id":{"$gt":"org-1/"}`},
		{on("id", driver.StartsWith, "a"), `"_id":{"$gte":"org-1/a","$lt":"org-1/b"}`}, {on("id", driver.StartsWith, ""), `"_id":{"$gte":"org-1/","$lt":"org-10"}`},
		{on("id", driver.Contains, "o."), `"_id":{"$regex":"^org\\-1\\/[\\s\\S]*o\\."}`},
		{on("name", driver.StartsWith, "ab"), `"name":{"$gte":"ab","$lt":"ac"}`}, {on("name", driver.StartsWith, ""), `"name":{"$gte":""}`},
		{on("name", driver.StartsWith, "a\uD7FF"), `"name":{"$gte":"a` + "\uD7FF" + `","$lt":"a` + "\uE000" + `"}`},
		{on("name", driver.StartsWith, "a\U0010FFFF"), `"name":{"$gte":"a` + "\U0010FFFF" + `","$lt":"b"}`}, {on("name", driver.StartsWith, "\U0010FFFF"), `"name":{"$gte":"` + "\U0010FFFF" + `"}`},
		{on("name", driver.Contains, "a.*é\x00"), `"name":{"$regex":"a\\.\\*é\\x00"}`}, {on("name", driver.Contains, ""), `"name":{"$gte":""}`},
		{on("name", driver.ContainsFold, "kß.[\x00"), `"name":{"$regex":"[KkK][ßẞ]\\.\\[\\x00"}`}, {on("name", driver.ContainsFold, "\xff"), nothing}, {on("tags", driver.ContainsFold, "a"), nothing},
		{on("name", driver.StartsWithFold, "a1"), `"$and":[{"$or":[{"name":{"$gte":"A1","$lt":"A2"}},{"name":{"$gte":"a1","$lt":"a2"}}]},{"name":{"$regex":"^[Aa]1"}}]`}, {on("name", driver.StartsWithFold, "12"), `"name":{"$gte":"12","$lt":"13"}`},
		{on("id", driver.ContainsFold, "o."), `"_id":{"$regex":"^org\\-1\\/[\\s\\S]*[Oo]\\."}`}, {onCustom("k", driver.String, driver.ContainsFold, "1"), `"$and":[{"$and":[{"custom.k":{"$gte":""}},{"custom.k":{"$regex":"1"}}]},` + single("k")},
		{on("any", driver.Contains, "1"), `"$and":[{"any":{"$gte":""}},{"any":{"$regex":"1"}}]`},
		{on("tags", driver.Contains, "$x"), `"tags":{"$eq":"$x"}`}, {on("tags", driver.Nin, "a", int64(1), "b"), `"tags":{"$nin":["a","b"]}`},
		{and(on("n", driver.Gt, int64(1)), on("n", driver.Lte, int64(5))), `"$and":[{"n":{"$gt":{"$numberLong":"1"}}},{"n":{"$lte":{"$numberLong":"5"}}}]`},
		{or(on("flag", driver.Eq, true), and(on("n", driver.Eq, "x")), on("name", driver.Exists, false)), `"$or":[{"flag":{"$eq":true}},{"name":{"$eq":null}}]`},
		{on("at", driver.Gt, int64(5)), `"at":{"$gt":{"$date":{"$numberLong":"5"}}}`}, {on("at", driver.Gt, 5.5), `"at":{"$gt":{"$date":{"$numberLong":"5"}}}`}, {on("at", driver.Lt, 5.5), `"at":{"$lt":{"$date":{"$numberLong":"6"}}}`},
		{on("at", driver.Eq, 5.5), nothing}, {on("at", driver.Gt, 1e300), nothing}, {on("at", driver.Lt, 1e300), `"at":{"$lt":{"$date":{"$numberLong":"9223372036854775807"}}}`}, {on("at", driver.Lt, -1e300), nothing}, {on("at", driver.Gte, math.NaN()), nothing},
		{onCustom("a.b", driver.Any, driver.Eq, "v"), `"$and":[{"custom.a%2Eb":{"$eq":"v"}},` + single("a%2Eb")}, {onCustom("", driver.Any, driver.Lt, false), `"$and":[{"custom.%":{"$lt":false}},` + single("%")},
		{onCustom("$where", driver.Any, driver.Exists, true), `"$or":[{"custom.%24where":{"$ne":null}},{"custom.%24where":{"$type":"array"}}]`}, {onCustom("k", driver.Any, driver.Exists, false), `"$and":[{"custom.k":{"$eq":null}},` + single("k")},
		{onCustom("%", driver.Any, driver.Gte, 2.5), `"$and":[{"custom.%25":{"$gte":{"$numberDouble":"2.5"}}},` + single("%25")}, {onCustom("k", driver.Any, driver.Ne, "a"), `"$or":[{"custom.k":{"$ne":"a"}},{"custom.k":{"$type":"array"}}]`},
		{onCustom("k", driver.Strings, driver.Eq, "a"), `"custom.k":{"$eq":"a"}`}, {onCustom("k", driver.Strings, driver.Nin, "a", "b"), `"custom.k":{"$nin":["a","b"]}`},
		{onCustom("k", driver.Float, driver.From, int64(1)), `"$and":[{"$or":[{"custom.k":{"$gte":{"$numberLong":"1"}}},{"custom.k":{"$gte":""}},{"custom.k":{"$gte":false}}]},` + single("k")}, {onCustom("k", driver.Any, driver.From, true), `"$and":[{"$or":[{"custom.k":{"$gte":true}}]},` + single("k")},
		{onCustom("k", driver.Any, driver.Before, "a"), `"$or":[{"$and":[{"custom.k":{"$not":{"$gte":"a"}}},{"custom.k":{"$not":{"$gte":false}}}]},{"custom.k":{"$type":"array"}}]`}, {onCustom("k", driver.Strings, driver.From, "a"), nothing},
		{onCustom("k", driver.Strings, driver.Exists, true), `"$or":[{"custom.k":{"$elemMatch":{"$ne":null}}},{"custom.k":{"$gte":""}}]`},
		{onCustom("k", driver.Strings, driver.Exists, false), `"$and":[{"custom.k":{"$not":{"$elemMatch":{"$ne":null}}}},{"custom.k":{"$not":{"$gte":""}}}]`},
	} {
		f, truth, err := w.filter(k, c.p)
		if err != nil {
			t.Errorf("%+v: %v", c.p, err)
			continue
		}
		if truth == never {
			if c.want != nothing {
				t.Errorf("%+v matches nothing, want %s", c.p, c.want)
			}
			continue
		}
		want := `{"org_id":{"$eq":"org-1"}`
		if c.want != "" {
			want += "," + c.want
		}
		got, err := bson.MarshalExtJSON(f, true, false)
		if err != nil || string(got) != want+"}" {
			t.Errorf("%+v:\n%s, %v, want\n%s}", c.p, got, err, want)
		}
	}
}

func TestInvalidQueriesAreErrors(t *testing.T) {
	t.Parallel()
	w, k := offline(t)
	for _, p := range []driver.Predicate{
		on("nope", driver.Eq, "x"), on("org_id", driver.Eq, "x"), on("f.n", driver.Eq, int64(1)), on("$where", driver.Eq, "x"), on("n", driver.Eq), on("n", driver.Gt, int64(1), int64(2)),
		on("n", driver.Exists, "true"), on("n", driver.Op(99), int64(1)), on("n", driver.From, int64(1)), and(or(and(), on("nope", driver.Eq, "x")), or()),
	} {
		if f, _, err := w.filter(k, p); err == nil {
			t.Errorf("filter(%+v) = %v, want an error", p, f)
		}
	}
	for _, a := range []driver.Aggregation{
		{}, {Measures: []driver.Measure{{Op: 99, Ref: driver.Ref{Name: "n"}}}}, {Groups: []driver.Group{{Ref: driver.Ref{Name: "nope"}}}}, {Groups: []driver.Group{{Ref: driver.Ref{Name: "at"}, By: 99}}},
		{Groups: []driver.Group{{Ref: driver.Ref{Name: "n"}}}, Sort: []driver.Rank{{Column: 1}}}, {Groups: []driver.Group{{Ref: driver.Ref{Name: "n"}}}, Sort: []driver.Rank{{Column: -1}}},
	} {
		if _, err := w.plan(k, a); err == nil {
			t.Errorf("plan(%+v) returned no error", a)
		}
	}
	if _, _, err := w.sort(k, []driver.Order{{Ref: driver.Ref{Name: "nope"}}}); err == nil {
		t.Error("sort by an undeclared field returned no error")
	}
}

func TestSortsEndWithTheID(t *testing.T) {
	t.Parallel()
	w, k := offline(t)
	id, n := driver.Ref{Name: "id"}, driver.Ref{Name: "n"}
	for _, c := range []struct {
		steps []driver.Order
		want  string
	}{
		{nil, `{"_id":1}`}, {[]driver.Order{{Ref: n, Desc: true}}, `{"n":-1,"_id":1}`}, {[]driver.Order{{Ref: id, Desc: true}, {Ref: n}}, `{"_id":-1}`},
		{[]driver.Order{{Ref: n}, {Ref: n, Desc: true}}, `{"n":1,"_id":1}`}, {[]driver.Order{{Ref: driver.Ref{Name: "a.$b", Custom: true}}}, `{"%s_a%2E%24b":1,"_id":1}`},
	} {
		order, places, err := w.sort(k, c.steps)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := bson.MarshalExtJSON(order, false, false); err != nil || string(got) != c.want {
			t.Errorf("%+v: %s, %v, want %s", c.steps, got, err, c.want)
		}
		if strings.Contains(c.want, "%") != (len(places) == 1) {
			t.Errorf("%+v has the computed fields %v, want one for each custom value", c.steps, places)
		}
	}
}

// TestOneNeedsNoOrder: one is true for predicates that pin the id or all fields of a unique index.
func TestOneNeedsNoOrder(t *testing.T) {
	t.Parallel()
	c := things()
	c.Indexes = append(c.Indexes, driver.Index{Name: "n_x", Fields: []string{"n", "x"}, Unique: true}, driver.Index{Name: "any", Fields: []string{"any"}, Unique: true})
	s, err := newShape(c)
	if err != nil {
		t.Fatal(err)
	}
	for want, all := range map[bool][]driver.Predicate{
		true: {on("id", driver.Eq, "a"), on("name", driver.Eq, "a"), and(on("flag", driver.Eq, true), and(on("name", driver.Eq, "a"))), and(on("n", driver.Eq, int64(1)), on("x", driver.Eq, 1.5))},
		false: {
			{}, on("name", driver.Gte, "a"), on("name", driver.In, "a", "b"), or(on("name", driver.Eq, "a"), on("name", driver.Eq, "b")), on("n", driver.Eq, int64(1)),
			on("any", driver.Eq, int64(1)), onCustom("name", driver.Any, driver.Eq, "a"), // these need not be unique
		},
	} {
		for _, p := range all {
			if got := s.one(p); got != want {
				t.Errorf("one(%+v) = %t, want %t", p, got, want)
			}
		}
	}
}

func TestEncodedKeysAreInjectiveAndSafe(t *testing.T) {
	t.Parallel()
	harmless := regexp.MustCompile(`^[A-Za-z0-9_%-]+$`)
	keys := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "%", "%25", "a.b", "a%2Eb", "$", "\x00", "é", "0", "-1", "a_b-C"}))
	rapid.Check(t, func(rt *rapid.T) {
		a, b := keys.Draw(rt, "a"), keys.Draw(rt, "b")
		x, y := encodeKey(a), encodeKey(b)
		if !harmless.MatchString(x) || (a == b) != (x == y) {
			rt.Fatalf("%q becomes %q, %q becomes %q", a, x, b, y)
		}
	})
}

func TestQuotedTextMatchesOnlyItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOfN(rapid.RuneFrom([]rune("ab.*+?()[]{}|^$\\/-_ \x00\n\"é日0")), 1, 8, -1).Draw(rt, "text")
		pattern, err := regexp.Compile("^(?:" + quote(text) + ")$")
		if err != nil {
			rt.Fatalf("%q: %v", text, err)
		}
		if strings.ContainsRune(quote(text), 0) || !pattern.MatchString(text) || pattern.MatchString(text+"a") || pattern.MatchString("a"+text) {
			rt.Fatalf("%q as %q", text, quote(text))
		}
		folded, err := regexp.Compile("^(?:" + fold(text) + ")$")
		if err != nil || strings.ContainsRune(fold(text), 0) || !folded.MatchString(strings.ToUpper(text)) || folded.MatchString(text+"a") || folded.MatchString("a"+text) {
			rt.Fatalf("%q whatever its case as %q: %v", text, fold(text), err)
		}
	})
}

func TestAfterPrefix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		prefix := rapid.StringN(1, 4, -1).Draw(rt, "prefix")
		other := rapid.OneOf(rapid.String(), rapid.Map(rapid.String(), func(s string) string { return prefix + s })).Draw(rt, "other")
		end, ok := afterPrefix(prefix)
		if !utf8.ValidString(end) {
			rt.Fatalf("after %q comes %q", prefix, end)
		}
		if in := other >= prefix && (!ok || other < end); in != strings.HasPrefix(other, prefix) {
			rt.Fatalf("%q is in [%q, %q): %v", other, prefix, end, in)
		}
	})
}

func TestIndexDefinitions(t *testing.T) {
	t.Parallel()
	_, k := offline(t)
	var got []string
	for _, d := range k.indexes {
		keys, err := bson.MarshalExtJSON(d.keys, false, false)
		if err != nil {
			t.Fatal(err)
		}
		name, sum, _ := strings.Cut(d.name, "_"+d.name[len(d.name)-8:])
		if sum != "" || len(d.name) != len(name)+9 {
			t.Errorf("the name %s does not end with a checksum", d.name)
		}
		line := name + " " + string(keys)
		if d.unique {
			partial, err := bson.MarshalExtJSON(d.partial, false, false)
			if err != nil {
				t.Fatal(err)
			}
			line += " unique " + string(partial)
		}
		got = append(got, line)
	}
	want := `id {"org_id":1,"_id":1}
name {"org_id":1,"name":1} unique {"name":{"$gte":""}}
name {"org_id":1,"name":1,"_id":1}
n_tags {"org_id":1,"n":1,"_id":1}
tags {"org_id":1,"tags":1,"_id":1}
custom {"org_id":1,"custom.$**":1}`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	// A unique index has no plain index beside it if no query needs its order.
	alone := things()
	alone.Indexes[0].Ordered = false
	if got := definitions(alone); len(got) != len(k.indexes)-1 || !got[1].unique || got[2].declared != "n_tags" {
		t.Errorf("without an order: %+v", got)
	}
	for typ, want := range map[driver.Type]any{driver.Any: "", driver.String: "", driver.Date: "", driver.Int: math.Inf(-1), driver.Float: math.Inf(-1), driver.Bool: false, driver.Time: bson.DateTime(math.MinInt64)} {
		if got := least(typ); got != want {
			t.Errorf("least(%d) = %v, want %v", typ, got, want)
		}
	}
	changed := things()
	changed.Indexes[0].Unique = false
	if a, b := definitions(things())[1].name, definitions(changed)[1].name; a == b {
		t.Errorf("a changed index keeps the name %s", a)
	}
}
