package mongo

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"tenantry/backends/store/driver"

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
		{Name: "name", Fields: []string{"name"}, Unique: true}, {Name: "n_tags", Fields: []string{"n", "tags"}}, {Name: "n", Fields: []string{"n"}}, {Name: "tags", Fields: []string{"tags"}},
	}}
}

// offline returns a workspace "org-1" whose server is never asked.
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
	return &workspace{name: "org-1", kinds: map[string]*kind{"things": k}, known: map[*driver.Collection]*kind{c: k}}, k
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

func TestFilters(t *testing.T) {
	t.Parallel()
	w, k := offline(t)
	const nothing = "nothing"
	for _, c := range []struct {
		p    driver.Predicate
		want string // after org_id, or nothing
	}{
		{driver.Predicate{}, ``}, {and(and(), or(and())), ``}, {or(), nothing}, {and(on("n", driver.Eq, int64(1)), or()), nothing},
		{on("n", driver.In), nothing}, {on("n", driver.Nin), ``}, {or(on("n", driver.In), on("n", driver.Nin)), ``},
		{on("n", driver.Eq, "1"), nothing}, {on("n", driver.Ne, "1"), ``}, {on("n", driver.Gt, true), nothing}, {on("n", driver.Contains, "1"), nothing},
		{on("x", driver.Eq, math.NaN()), nothing}, {on("name", driver.StartsWith, int64(1)), nothing}, {on("tags", driver.Gt, "a"), nothing}, {on("tags", driver.Eq, int64(1)), nothing},
		{on("name", driver.Contains, "\xff"), nothing}, {on("name", driver.StartsWith, "\xe6"), nothing},
		{on("n", driver.Eq, int64(1)), `"f.n":{"$eq":{"$numberLong":"1"}}`}, {on("n", driver.Eq, 1.5), `"f.n":{"$eq":{"$numberDouble":"1.5"}}`},
		{on("n", driver.In, int64(1), "2", int64(3)), `"f.n":{"$in":[{"$numberLong":"1"},{"$numberLong":"3"}]}`}, {on("flag", driver.Nin, true, int64(1)), `"f.flag":{"$ne":true}`},
		{on("name", driver.Eq, `{"$gt":""}`), `"f.name":{"$eq":"{\"$gt\":\"\"}"}`}, {on("name", driver.Eq, "$where"), `"f.name":{"$eq":"$where"}`},
		{on("name", driver.Exists, true), `"f.name":{"$exists":true}`}, {on("id", driver.Exists, true), ``}, {on("id", driver.Exists, false), nothing},
		{on("id", driver.Eq, "a"), `"_id":{"$eq":"org-1/a"}`}, {on("id", driver.In, "a", "b"), `"_id":{"$in":["org-1/a","org-1/b"]}`}, {on("id", driver.Gt, ""), `"_id":{"$gt":"org-1/"}`},
		{on("id", driver.StartsWith, "a"), `"_id":{"$gte":"org-1/a","$lt":"org-1/b"}`}, {on("id", driver.StartsWith, ""), `"_id":{"$gte":"org-1/","$lt":"org-10"}`},
		{on("id", driver.Contains, "o."), `"_id":{"$regex":"^org\\-1\\/[\\s\\S]*o\\."}`},
		{on("name", driver.StartsWith, "ab"), `"f.name":{"$gte":"ab","$lt":"ac"}`}, {on("name", driver.StartsWith, ""), `"f.name":{"$gte":""}`},
		{on("name", driver.StartsWith, "a\uD7FF"), `"f.name":{"$gte":"a` + "\uD7FF" + `","$lt":"a` + "\uE000" + `"}`},
		{on("name", driver.StartsWith, "a\U0010FFFF"), `"f.name":{"$gte":"a` + "\U0010FFFF" + `","$lt":"b"}`}, {on("name", driver.StartsWith, "\U0010FFFF"), `"f.name":{"$gte":"` + "\U0010FFFF" + `"}`},
		{on("name", driver.Contains, "a.*é\x00"), `"f.name":{"$regex":"a\\.\\*é\\x00"}`}, {on("name", driver.Contains, ""), `"f.name":{"$gte":""}`},
		{on("any", driver.Contains, "1"), `"$and":[{"f.any":{"$gte":""}},{"f.any":{"$regex":"1"}}]`},
		{on("tags", driver.Contains, "$x"), `"f.tags":{"$eq":"$x"}`}, {on("tags", driver.Nin, "a", int64(1), "b"), `"f.tags":{"$nin":["a","b"]}`},
		{and(on("n", driver.Gt, int64(1)), on("n", driver.Lte, int64(5))), `"$and":[{"f.n":{"$gt":{"$numberLong":"1"}}},{"f.n":{"$lte":{"$numberLong":"5"}}}]`},
		{or(on("flag", driver.Eq, true), and(on("n", driver.Eq, "x")), on("name", driver.Exists, false)), `"$or":[{"f.flag":{"$eq":true}},{"f.name":{"$exists":false}}]`},
		{onCustom("a.b", driver.Any, driver.Eq, "v"), `"c.a%2Eb":{"$eq":"v"}`}, {onCustom("$where", driver.Any, driver.Exists, true), `"c.%24where":{"$exists":true}`},
		{onCustom("", driver.Any, driver.Lt, false), `"c.%":{"$lt":false}`}, {onCustom("%", driver.Any, driver.Gte, 2.5), `"c.%25":{"$gte":{"$numberDouble":"2.5"}}`},
		{onCustom("k", driver.Strings, driver.Eq, "a"), `"$or":[{"l.k":{"$eq":"a"}},{"c.k":{"$eq":"a"}}]`}, {onCustom("k", driver.Strings, driver.Nin, "a", "b"), `"$and":[{"l.k":{"$nin":["a","b"]}},{"c.k":{"$nin":["a","b"]}}]`},
		{onCustom("k", driver.Strings, driver.Exists, true), `"$or":[{"l.k":{"$exists":true}},{"c.k":{"$gte":""}}]`}, {onCustom("k", driver.Strings, driver.Exists, false), `"$and":[{"l.k":{"$exists":false}},{"c.k":{"$not":{"$gte":""}}}]`},
	} {
		f, truth, err := w.filter(k, c.p)
		if err != nil {
			t.Errorf("%+v: %v", c.p, err)
			continue
		}
		if truth == never {
			if c.want != nothing {
				t.Errorf("%+v asks nothing, want %s", c.p, c.want)
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

func TestFaultyQuestionsAreErrors(t *testing.T) {
	t.Parallel()
	w, k := offline(t)
	for _, p := range []driver.Predicate{
		on("nope", driver.Eq, "x"), on("org_id", driver.Eq, "x"), on("f.n", driver.Eq, int64(1)), on("$where", driver.Eq, "x"), on("n", driver.Eq), on("n", driver.Gt, int64(1), int64(2)),
		on("n", driver.Exists, "true"), on("n", driver.Op(99), int64(1)), and(or(and(), on("nope", driver.Eq, "x")), or()),
	} {
		if f, _, err := w.filter(k, p); err == nil {
			t.Errorf("%+v became %v", p, f)
		}
	}
	for _, a := range []driver.Aggregation{
		{}, {Measures: []driver.Measure{{Op: 99, Ref: driver.Ref{Name: "n"}}}}, {Groups: []driver.Group{{Ref: driver.Ref{Name: "nope"}}}}, {Groups: []driver.Group{{Ref: driver.Ref{Name: "at"}, By: 99}}},
		{Groups: []driver.Group{{Ref: driver.Ref{Name: "n"}}}, Sort: []driver.Rank{{Column: 1}}}, {Groups: []driver.Group{{Ref: driver.Ref{Name: "n"}}}, Sort: []driver.Rank{{Column: -1}}},
	} {
		if _, err := w.plan(k, a); err == nil {
			t.Errorf("%+v was planned", a)
		}
	}
	if _, err := w.sort(k, []driver.Order{{Ref: driver.Ref{Name: "nope"}}}); err == nil {
		t.Error("an undeclared field was sorted by")
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
		{nil, `{"_id":1}`}, {[]driver.Order{{Ref: n, Desc: true}}, `{"f.n":-1,"_id":1}`}, {[]driver.Order{{Ref: id, Desc: true}, {Ref: n}}, `{"_id":-1}`},
		{[]driver.Order{{Ref: n}, {Ref: n, Desc: true}}, `{"f.n":1,"_id":1}`}, {[]driver.Order{{Ref: driver.Ref{Name: "a.$b", Custom: true}}}, `{"c.a%2E%24b":1,"_id":1}`},
	} {
		order, err := w.sort(k, c.steps)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := bson.MarshalExtJSON(order, false, false); err != nil || string(got) != c.want {
			t.Errorf("%+v: %s, %v, want %s", c.steps, got, err, c.want)
		}
	}
}

func TestEncodedKeysAreInjectiveAndHarmless(t *testing.T) {
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

func TestQuotedTextMatchesItselfAlone(t *testing.T) {
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

func TestDocumentsKeepTheirTextAndSplitCustomValues(t *testing.T) {
	t.Parallel()
	w, k := offline(t)
	d := driver.Document{
		ID: "a/b", Body: []byte(`{"name": "x"  }`), Custom: []byte(`{"s":"$gt","n":1,"big":9007199254740993,"f":1.0,"t":true,"z":null,"l":["a",1,null],"e":[],"o":{"a":1},"u":[1],"a.b":2,"":3}`),
		Values: []any{"x", int64(5), math.NaN(), false, nil, nil, []string{}, "any"},
	}
	doc, err := k.document(w.name, &d, 7)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := bson.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"_id":"org-1/a/b","org_id":"org-1","rev":7,"body":"{\"name\": \"x\"  }","custom":` + quoted(t, d.Custom) +
		`,"f":{"name":"x","n":5,"flag":false,"any":"any"},"c":{"%":3,"a%2Eb":2,"big":9007199254740993,"e":{"$binary":{"base64":"W10=","subType":"00"}},"f":1.0,` +
		`"l":{"$binary":{"base64":"WyJhIiwxLG51bGxd","subType":"00"}},"n":1,"o":{"$binary":{"base64":"eyJhIjoxfQ==","subType":"00"}},"s":"$gt","t":true,"u":{"$binary":{"base64":"WzFd","subType":"00"}}},"l":{"l":["a"],"u":[]}}`
	if got, err := bson.MarshalExtJSON(bson.Raw(raw), false, false); err != nil || string(got) != want {
		t.Errorf("%s, %v, want\n%s", got, err, want)
	}
	back, err := w.decode(raw)
	if err != nil || back.ID != d.ID || back.Rev != 7 || string(back.Body) != string(d.Body) || string(back.Custom) != string(d.Custom) {
		t.Errorf("came back as %+v, %v", back, err)
	}
	for _, other := range []string{"org-10", "org-2", "org"} {
		if d, err := (&workspace{name: other}).decode(raw); err == nil {
			t.Errorf("workspace %s decoded another's document as %+v", other, d)
		}
	}
	for _, bad := range []driver.Document{
		{ID: "a", Values: []any{"x"}}, {ID: "a", Values: d.Values, Custom: []byte(`[1]`)}, {ID: "a", Values: d.Values, Custom: []byte(`{`)}, {ID: "a", Values: d.Values, Body: []byte{0xff}},
		{ID: "a", Values: []any{int64(1), nil, nil, nil, nil, nil, nil, nil}}, {ID: "a", Values: []any{nil, nil, nil, nil, nil, nil, "red", nil}}, {ID: "a", Values: []any{nil, nil, nil, nil, nil, nil, nil, []string{"x"}}},
	} {
		if doc, err := k.document("w", &bad, 1); err == nil {
			t.Errorf("%+v became %v", bad, doc)
		}
	}
}

func quoted(t *testing.T, b []byte) string {
	t.Helper()
	var s strings.Builder
	enc := json.NewEncoder(&s)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(string(b)); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(s.String(), "\n")
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
			t.Errorf("the name %s does not end with its definition", d.name)
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
name {"org_id":1,"f.name":1} unique {"f.name":{"$exists":true}}
name {"org_id":1,"f.name":1,"_id":1}
n_tags {"org_id":1,"f.n":1,"_id":1}
tags {"org_id":1,"f.tags":1,"_id":1}
custom_c {"org_id":1,"c.$**":1}
custom_l {"org_id":1,"l.$**":1}`
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
	changed := things()
	changed.Indexes[0].Unique = false
	if a, b := definitions(things())[1].name, definitions(changed)[1].name; a == b {
		t.Errorf("a changed index keeps the name %s", a)
	}
}
