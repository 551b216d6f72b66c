package storetest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"tenantry/backends/driver"
)

const (
	exact53 = int64(1) << 53
	above53 = exact53 + 1
)

func testOperators(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(
		record{id: "a", values: map[string]any{"name": "Zoe", "n": int64(1), "x": 1.0, "flag": true, "at": int64(1000), "day": "2024-05-17", "any": int64(1)}},
		record{id: "b", values: map[string]any{"name": "ann", "n": int64(2), "x": 2.5, "flag": false, "at": int64(-1), "day": "2024-05-17T10:00:00Z", "any": true}},
		record{id: "c", values: map[string]any{"name": "Ärzte", "n": above53, "x": -0.5, "any": "1"}},
		record{id: "d", values: map[string]any{"name": "", "n": exact53, "x": float64(exact53), "any": false}},
		record{id: "e", values: map[string]any{"name": "an_n%", "n": int64(math.MinInt64), "x": math.MaxFloat64, "any": 1.5}},
		record{id: "f", values: map[string]any{"name": "日本", "n": int64(math.MaxInt64)}},
		record{id: "g", values: map[string]any{}},
		record{id: "h", values: map[string]any{"name": nil, "n": nil, "x": nil, "flag": nil, "at": nil, "day": nil, "any": nil}},
	)
	for _, c := range []struct {
		p    driver.Predicate
		want string
	}{
		{driver.Predicate{}, "a b c d e f g h"},
		{and(), "a b c d e f g h"}, {or(), ""},
		{and(and(), or(and())), "a b c d e f g h"}, {and(or()), ""},
		{where("id", driver.Eq, "c"), "c"}, {where("id", driver.In, "h", "a", "zz"), "a h"}, {where("id", driver.Gt, "f"), "g h"},
		{where("id", driver.Ne, "c"), "a b d e f g h"}, {where("id", driver.Exists, true), "a b c d e f g h"},

		{where("name", driver.Eq, "Zoe"), "a"}, {where("name", driver.Eq, "zoe"), ""}, {where("name", driver.Eq, ""), "d"},
		{where("name", driver.Ne, "Zoe"), "b c d e f g h"},
		{where("name", driver.Gt, "Z"), "a b c e f"}, {where("name", driver.Gte, "ann"), "b c f"}, {where("name", driver.Lt, "an"), "a d"},
		{where("name", driver.Lte, "Zoe"), "a d"}, {where("name", driver.Gt, "~"), "c f"}, {where("name", driver.Gt, "日本"), ""},
		{where("name", driver.In, "Zoe", "ann", "nobody"), "a b"}, {where("name", driver.In), ""},
		{where("name", driver.Nin, "Zoe", "ann"), "c d e f g h"}, {where("name", driver.Nin), "a b c d e f g h"},
		{where("name", driver.Contains, "n"), "b e"}, {where("name", driver.Contains, "N"), ""}, {where("name", driver.Contains, "_"), "e"},
		{where("name", driver.Contains, "%"), "e"}, {where("name", driver.Contains, ""), "a b c d e f"}, {where("name", driver.Contains, "本"), "f"},
		{where("name", driver.StartsWith, "an"), "b e"}, {where("name", driver.StartsWith, "an_"), "e"}, {where("name", driver.StartsWith, ""), "a b c d e f"},
		{where("name", driver.StartsWith, "Ä"), "c"}, {where("name", driver.StartsWith, "日"), "f"}, {where("name", driver.StartsWith, "ANN"), ""},
		{where("name", driver.Exists, true), "a b c d e f"}, {where("name", driver.Exists, false), "g h"},
		{where("name", driver.Eq, int64(1)), ""}, {where("name", driver.Ne, int64(1)), "a b c d e f g h"}, {where("name", driver.Lt, int64(1)), ""},
		{where("name", driver.Gt, true), ""}, {where("name", driver.In, int64(1), "Zoe", true), "a"},

		{where("n", driver.Eq, int64(1)), "a"}, {where("n", driver.Eq, 1.0), "a"}, {where("n", driver.Eq, 1.5), ""}, {where("n", driver.Eq, true), ""},
		{where("n", driver.Eq, "1"), ""}, {where("n", driver.Eq, above53), "c"}, {where("n", driver.Eq, float64(exact53)), "d"}, {where("n", driver.Gt, float64(exact53)), "c f"},
		{where("n", driver.Gt, 1.5), "b c d f"}, {where("n", driver.Lt, int64(2)), "a e"}, {where("n", driver.Lte, 2.0), "a b e"}, {where("n", driver.Gte, above53), "c f"},
		{where("n", driver.Ne, 2.0), "a c d e f g h"}, {where("n", driver.In, 1.0, int64(2), "3"), "a b"}, {where("n", driver.Nin, 1.0, int64(2)), "c d e f g h"},
		{where("n", driver.Gt, "0"), ""}, {where("n", driver.Lt, "a"), ""}, {where("n", driver.Exists, false), "g h"}, {where("n", driver.Contains, "1"), ""},
		{where("n", driver.StartsWith, "1"), ""},

		{where("x", driver.Eq, int64(1)), "a"}, {where("x", driver.Gt, int64(1)), "b d e"}, {where("x", driver.Lt, 0.0), "c"}, {where("x", driver.Eq, exact53), "d"},
		{where("x", driver.Lt, above53), "a b c d"}, {where("x", driver.Eq, math.MaxFloat64), "e"}, {where("x", driver.Lt, math.MaxFloat64), "a b c d"},

		{where("flag", driver.Eq, true), "a"}, {where("flag", driver.Eq, false), "b"}, {where("flag", driver.Ne, true), "b c d e f g h"},
		{where("flag", driver.Gt, false), "a"}, {where("flag", driver.Lte, true), "a b"}, {where("flag", driver.In, true, false), "a b"}, {where("flag", driver.Eq, int64(1)), ""},
		{where("flag", driver.Ne, int64(1)), "a b c d e f g h"}, {where("flag", driver.Eq, "true"), ""}, {where("flag", driver.Exists, true), "a b"},
		{where("flag", driver.Nin, int64(0), false), "a c d e f g h"},

		{where("at", driver.Gte, int64(-1)), "a b"}, {where("at", driver.Lt, int64(0)), "b"}, {where("at", driver.Eq, 1000.0), "a"},
		{where("day", driver.StartsWith, "2024-05"), "a b"}, {where("day", driver.Eq, "2024-05-17"), "a"}, {where("day", driver.Gt, "2024-05-17"), "b"},

		{where("any", driver.Eq, int64(1)), "a"}, {where("any", driver.Eq, true), "b"}, {where("any", driver.Eq, "1"), "c"}, {where("any", driver.Eq, false), "d"},
		{where("any", driver.Ne, int64(1)), "b c d e f g h"}, {where("any", driver.Gt, int64(0)), "a e"}, {where("any", driver.Lt, int64(9)), "a e"},
		{where("any", driver.Gt, ""), "c"}, {where("any", driver.Lt, "z"), "c"}, {where("any", driver.Gte, false), "b d"}, {where("any", driver.Lt, true), "d"},
		{where("any", driver.In, "1", true, 1.5), "b c e"}, {where("any", driver.Nin, "1", true, 1.5), "a d f g h"}, {where("any", driver.Contains, "1"), "c"},
		{where("any", driver.StartsWith, "1"), "c"}, {where("any", driver.StartsWith, ""), "c"}, {where("any", driver.Exists, true), "a b c d e"},

		{and(where("name", driver.Gt, "Z"), where("n", driver.Lt, int64(3))), "a b e"},
		{or(where("name", driver.Eq, "Zoe"), where("n", driver.Eq, int64(2)), where("flag", driver.Exists, false)), "a b c d e f g h"},
		{or(where("name", driver.Eq, "Zoe"), and(where("n", driver.Eq, int64(2)), where("x", driver.Gt, 2.0))), "a b"},
		{and(or(where("n", driver.Eq, int64(1)), where("n", driver.Eq, int64(2))), or(where("flag", driver.Eq, true), where("x", driver.Gt, 100.0))), "a"},
	} {
		b.matches(c.p, c.want)
	}
}

// testFold tests case-insensitive conditions, with several scripts, with letters of more than two cases and with
// characters that are special in patterns.
func testFold(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	texts := []string{
		"Straße", "STRASSE", "STRAẞE", "İstanbul", "istanbul", "ısparta", "ΣΑΣ", "σας", "\u212a", "k", "K", "ſ", "S", "\u00c5ngstr\u00f6m", "\u212bngstr\u00f6m", "A\u030angstro\u0308m",
		"\u0345", "\u03b9", "\u1fbe", "\u01c4", "\u01c5", "\u01c6", "ⓐⅣ", "Ⓐⅳ", "\U00010400", "\U00010428", "Ольга", "ОЛЬГА", "日本", "*?[]^-\\", `a'b"c`, "(?i)X.", "[a]", "a\x00B", "A\x00b", "\uFFFD", " ", "a b\nc", "$Where",
	}
	for i, text := range texts {
		b.insert(record{id: fmt.Sprintf("t%02d", i), values: map[string]any{"name": text, "any": text, "tags": []string{text}}, custom: `{"k": ` + quoteJSON(t, text) + `}`})
	}
	b.insert(record{id: "none"}, record{id: "other", values: map[string]any{"any": int64(1)}, custom: `{"k": ["Straße", "k", "1"], "o": {"k": "K"}}`}, record{id: "truth", values: map[string]any{"any": true}, custom: `{"k": true}`})
	for _, c := range []struct {
		part string
		want string
	}{
		{"straße", "t00 t02"}, {"STRASSE", "t01"}, {"istanbul", "t04"}, {"İ", "t03"}, {"I", "t04 t31"}, {"ı", "t05"}, {"σασ", "t06 t07"}, {"k", "t08 t09 t10"}, {"\u212a", "t08 t09 t10"},
		{"Å", "t13 t14"}, {"\u1fbe", "t16 t17 t18"}, {"\u01c5", "t19 t20 t21"}, {"ⓐⅳ", "t22 t23"}, {"\U00010400", "t24 t25"}, {"оЛЬГА", "t26 t27"}, {"A\x00B", "t33 t34"},
		{"*", "t29"}, {"[]", "t29"}, {"\\", "t29"}, {"'B\"", "t30"}, {"(?I)x.", "t31"}, {"[A]", "t32"}, {"B\nC", "t37"}, {"$wHERE", "t38"}, {"\uFFFD", "t35"}, {"\xff", ""}, {"k\xff", ""}, {"1", ""}, {"true", ""},
		{strings.Repeat("k", 2048), ""},
	} {
		for _, r := range []driver.Ref{ref("name"), ref("any"), custom("k", driver.String)} {
			b.matches(driver.Predicate{Op: driver.ContainsFold, Ref: r, Values: []any{c.part}}, c.want)
		}
		b.matches(where("tags", driver.ContainsFold, c.part), "")
	}
	for _, c := range []struct {
		part string
		want string
	}{
		{"sT", "t00 t01 t02"}, {"straß", "t00 t02"}, {"tra", ""}, {"K", "t08 t09 t10"}, {"ſ", "t00 t01 t02 t11 t12"}, {"i", "t04"}, {"İ", "t03"}, {"σΑ", "t06 t07"}, {"ОлЬ", "t26 t27"},
		{"日", "t28"}, {"(?I)", "t31"}, {"A\x00b", "t33 t34"}, {"a\x00", "t33 t34"}, {"\U00010428", "t24 t25"}, {"\xff", ""}, {"s\xff", ""}, {"1", ""}, {strings.Repeat("k", 2048), ""},
	} {
		for _, r := range []driver.Ref{ref("name"), ref("any"), custom("k", driver.String)} {
			b.matches(driver.Predicate{Op: driver.StartsWithFold, Ref: r, Values: []any{c.part}}, c.want)
		}
		b.matches(where("tags", driver.StartsWithFold, c.part), "")
	}
	b.matches(where("name", driver.StartsWithFold, int64(1)), "")
	b.matches(where("name", driver.ContainsFold, ""), ids(b.find(driver.Query{Collection: b.plain, Where: where("name", driver.Exists, true)})))
	b.matches(and(where("id", driver.ContainsFold, "T0"), where("name", driver.ContainsFold, "SSE")), "t01")
	b.matches(where("name", driver.ContainsFold, int64(1)), "")
	for i, text := range texts { // each text finds its own document
		p := and(where("id", driver.Eq, fmt.Sprintf("t%02d", i)), where("name", driver.ContainsFold, text), whereCustom("k", driver.ContainsFold, text))
		b.matches(p, fmt.Sprintf("t%02d", i))
	}
}

func testLists(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	tricky := []string{`,`, `"`, `x"yz`, `yz`, `\`, `a","b`, `]`, ` `, ``, "\u0000\n", `日本`, `y\`, `$where`, `a`, `b`}
	b.insert(
		record{id: "a", values: map[string]any{"tags": []string{"red", "blue"}, "teams": []string{"red", "blue"}}},
		record{id: "b", values: map[string]any{"tags": []string{"red"}, "teams": []string{"red"}, "name": "Ann"}},
		record{id: "c", values: map[string]any{"tags": []string{}, "teams": []string{}}},
		record{id: "d", values: map[string]any{}},
		record{id: "e", values: map[string]any{"tags": []string{"Red", "redd", "red"}, "teams": []string{"Red", "redd", "red"}}},
		record{id: "f", values: map[string]any{"tags": []string{"green", "green"}, "teams": []string{"green", "green"}, "name": "Ann"}},
	)
	for _, field := range []string{"tags", "teams"} {
		for _, c := range []struct {
			p    driver.Predicate
			want string
		}{
			{where(field, driver.Eq, "red"), "a b e"}, {where(field, driver.Contains, "red"), "a b e"}, {where(field, driver.Eq, "re"), ""},
			{where(field, driver.Contains, "re"), ""}, {where(field, driver.Eq, ""), ""}, {where(field, driver.In, "blue", "green"), "a f"},
			{where(field, driver.In, "red", "blue"), "a b e"}, {where(field, driver.In), ""}, {where(field, driver.Ne, "red"), "c d f"}, {where(field, driver.Nin, "blue", "green"), "b c d e"},
			{where(field, driver.Nin), "a b c d e f"}, {where(field, driver.Exists, true), "a b e f"}, {where(field, driver.Exists, false), "c d"},
			{where(field, driver.Eq, int64(1)), ""}, {where(field, driver.Ne, int64(1)), "a b c d e f"}, {where(field, driver.In, "red", true), "a b e"},
			{or(where(field, driver.Exists, false), where(field, driver.In, "blue")), "a c d"},
			{or(where(field, driver.Eq, "blue"), where(field, driver.Eq, "green")), "a f"},
			{and(where(field, driver.Eq, "red"), where(field, driver.Eq, "blue")), "a"},
			{and(where("name", driver.Eq, "Ann"), where(field, driver.Eq, "red")), "b"},
			{or(where("name", driver.Eq, "Ann"), where(field, driver.Eq, "blue")), "a b f"},
		} {
			b.matches(c.p, c.want)
		}
	}
	var want []string
	for i, s := range tricky {
		id := fmt.Sprintf("t%02d", i)
		want = append(want, id)
		b.insert(record{id: id, values: map[string]any{"tags": []string{"-", s, "+"}, "teams": []string{"-", s, "+"}}})
	}
	for i, s := range tricky {
		for _, field := range []string{"tags", "teams"} {
			b.matches(where(field, driver.Eq, s), want[i])
			b.matches(and(where("id", driver.StartsWith, "t"), where(field, driver.Ne, s)), strings.Join(append(append([]string{}, want[:i]...), want[i+1:]...), " "))
		}
	}
}

func testLongLists(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(
		record{id: "a", values: map[string]any{"name": "v5", "n": int64(5), "any": true, "tags": []string{"v5"}, "teams": []string{"v7"}}, custom: `{"k":"v5"}`},
		record{id: "b", values: map[string]any{"name": "w", "n": int64(-5), "any": "w", "tags": []string{"w"}, "teams": []string{"w"}}, custom: `{"k":"w"}`},
		record{id: "c", values: map[string]any{}},
	)
	for _, size := range []int{1, 2, 3, 17, 600, 12_000} {
		words, numbers := []any{}, []any{}
		for i := range size {
			words, numbers = append(words, fmt.Sprintf("v%d", i)), append(numbers, int64(i))
		}
		words, numbers = append(words, "v5", "v7", true), append(numbers, 5.0)
		b.matches(where("name", driver.In, words...), "a")
		b.matches(where("name", driver.Nin, words...), "b c")
		b.matches(where("n", driver.In, numbers...), "a")
		b.matches(where("n", driver.Nin, numbers...), "b c")
		b.matches(where("any", driver.In, words...), "a")
		b.matches(where("any", driver.Nin, words...), "b c")
		for _, list := range []string{"tags", "teams"} {
			b.matches(where(list, driver.In, words...), "a")
			b.matches(where(list, driver.Nin, words...), "b c")
		}
		b.matches(whereCustom("k", driver.In, words...), "a")
		b.matches(whereCustom("k", driver.Nin, words...), "b c")
	}
	// Many short lists.
	var numbers, others []driver.Predicate
	for i := range 70 {
		in, out := []any{int64(5)}, []any{"w", true}
		for n := range 510 {
			in, out = append(in, int64(1000*i+n+6)), append(out, int64(1000*i+n))
		}
		numbers, others = append(numbers, where("n", driver.In, in...)), append(others, where("any", driver.Nin, out...))
	}
	b.matches(driver.Predicate{Kids: numbers}, "a")
	b.matches(driver.Predicate{Kids: others}, "c")
}

func testCustom(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	b.insert(
		record{id: "a", custom: `{"v": "1", "list": ["x", "y"], "7": "seven", "-1": "minus", "a_b-C": 1}`},
		record{id: "b", custom: `{"v": 1, "list": "x"}`},
		record{id: "c", custom: `{"v": 1.0, "list": []}`},
		record{id: "d", custom: `{"v": true, "list": [1, "1", null]}`},
		record{id: "e", custom: `{"v": false, "list": null}`},
		record{id: "f", custom: `{"v": null}`},
		record{id: "g", custom: `{}`},
		record{id: "h"},
		record{id: "i", custom: `{"v": ["1", 1, true]}`},
		record{id: "j", custom: `{"v": {"v": "1"}}`},
		record{id: "k", custom: `{"v": "true"}`},
		record{id: "l", custom: `{"v": 9007199254740993}`},
		record{id: "m", custom: `{"v": ""}`},
		record{id: "n", custom: `{"v": "[\"1\"]"}`},
		record{id: "o", custom: `{"v": "z\"ü\\"}`},
	)
	list := func(op driver.Op, values ...any) driver.Predicate {
		return driver.Predicate{Op: op, Ref: custom("list", driver.Strings), Values: values}
	}
	for _, c := range []struct {
		p    driver.Predicate
		want string
	}{
		{whereCustom("v", driver.Eq, "1"), "a"}, {whereCustom("v", driver.Eq, int64(1)), "b c"}, {whereCustom("v", driver.Eq, 1.0), "b c"},
		{whereCustom("v", driver.Eq, true), "d"}, {whereCustom("v", driver.Eq, false), "e"}, {whereCustom("v", driver.Eq, "true"), "k"}, {whereCustom("v", driver.Eq, ""), "m"},
		{whereCustom("v", driver.Eq, int64(0)), ""}, {whereCustom("v", driver.Eq, above53), "l"}, {whereCustom("v", driver.Eq, float64(exact53)), ""},
		{whereCustom("v", driver.Eq, `["1"]`), "n"}, {whereCustom("v", driver.Eq, `["1",1,true]`), ""}, {whereCustom("v", driver.Eq, `{"v":"1"}`), ""},
		{whereCustom("v", driver.Eq, `z"ü\`), "o"}, {whereCustom("v", driver.Eq, "null"), ""},
		{whereCustom("v", driver.Ne, int64(1)), "a d e f g h i j k l m n o"}, {whereCustom("v", driver.Ne, true), "a b c e f g h i j k l m n o"},
		{whereCustom("v", driver.Gt, int64(0)), "b c l"}, {whereCustom("v", driver.Lt, int64(5)), "b c"}, {whereCustom("v", driver.Gt, "0"), "a k n o"},
		{whereCustom("v", driver.Lt, "2"), "a m"}, {whereCustom("v", driver.Gte, false), "d e"}, {whereCustom("v", driver.Lt, true), "e"},
		{whereCustom("v", driver.In, "1", true, int64(1)), "a b c d"}, {whereCustom("v", driver.Nin, "1", true, int64(1)), "e f g h i j k l m n o"},
		{whereCustom("v", driver.Contains, "1"), "a n"}, {whereCustom("v", driver.Contains, ""), "a k m n o"}, {whereCustom("v", driver.StartsWith, "t"), "k"},
		{whereCustom("v", driver.StartsWith, ""), "a k m n o"},
		{whereCustom("v", driver.Exists, true), "a b c d e i j k l m n o"}, {whereCustom("v", driver.Exists, false), "f g h"},
		{whereCustom("7", driver.Eq, "seven"), "a"}, {whereCustom("-1", driver.Eq, "minus"), "a"}, {whereCustom("a_b-C", driver.Eq, int64(1)), "a"},
		{whereCustom("A_b-C", driver.Exists, true), ""}, {whereCustom("0", driver.Exists, true), ""},
		{list(driver.Eq, "x"), "a b"}, {list(driver.Contains, "y"), "a"}, {list(driver.Eq, "1"), "d"}, {list(driver.Eq, int64(1)), ""},
		{list(driver.In, "y", "1"), "a d"}, {list(driver.Ne, "x"), "c d e f g h i j k l m n o"}, {list(driver.Nin, "x", "1"), "c e f g h i j k l m n o"},
		{list(driver.Exists, true), "a b d"}, {list(driver.Exists, false), "c e f g h i j k l m n o"},
		{and(whereCustom("v", driver.Gt, "0"), whereCustom("7", driver.Exists, true), whereCustom("v", driver.Lt, "2")), "a"},
	} {
		b.matches(c.p, c.want)
	}
}

// testOutsideText uses text that is special in databases wherever outside text may occur.
func testOutsideText(t *testing.T, e driver.Engine) {
	b := newBench(t, e)
	hostile := []string{`'; DROP TABLE things; --`, `" OR 1=1 --`, `$where`, `a.b`, `$.x`, `[0]`, `$`, `%`, `{"$gt": ""}`, `\`, `x' OR 'x'='x`, "a\x00b", `?1`, `:v`, `.*`}
	b.insert(record{id: "safe", values: map[string]any{"name": "n", "tags": []string{"t"}}, custom: `{"x": 1, "a": {"b": 2}}`})
	for i, h := range hostile {
		// Custom keys with such text are stored unchanged, and do not affect queries.
		b.insert(record{id: fmt.Sprintf("h%02d", i), values: map[string]any{"name": h, "any": h, "tags": []string{h}}, custom: `{"x": ` + quoteJSON(t, h) + `, ` + quoteJSON(t, h+"~") + `: [1], "": 2}`})
	}
	for i, h := range hostile {
		want := fmt.Sprintf("h%02d", i)
		for _, p := range []driver.Predicate{
			where("name", driver.Eq, h), where("any", driver.Eq, h), where("tags", driver.Eq, h), where("name", driver.In, h, "nobody"), whereCustom("x", driver.Eq, h),
			and(where("name", driver.Contains, h), where("name", driver.StartsWith, h), where("name", driver.Gte, h), where("name", driver.Lte, h)),
		} {
			b.matches(p, want)
		}
		// An invalid name of a custom field is refused or matches nothing. It must never be taken for a path.
		for _, op := range []driver.Op{driver.Eq, driver.Exists} {
			var v any = true
			if op == driver.Eq {
				v = int64(1)
			}
			if n, err := b.ws.Count(b.ctx, b.things, whereCustom(h, op, v)); err == nil && n != 0 {
				t.Errorf("a condition on custom field %q counts %d", h, n)
			}
		}
		if docs, err := b.ws.Find(b.ctx, driver.Query{Collection: b.things, Sort: []driver.Order{{Ref: custom(h, driver.Any)}}, Limit: 100}); err == nil && len(docs) != len(hostile)+1 {
			t.Errorf("sorting by custom field %q finds %d documents", h, len(docs))
		}
		if rows, err := b.ws.Aggregate(b.ctx, driver.Aggregation{Collection: b.things, Groups: []driver.Group{{Ref: custom(h, driver.Any)}}, Limit: 100}); err == nil && (len(rows) != 1 || rows[0][0] != nil) {
			t.Errorf("grouping by custom field %q gives %v", h, rows)
		}
		if _, err := b.ws.Count(b.ctx, b.things, where(h, driver.Eq, "x")); err == nil {
			t.Errorf("a condition on the undeclared field %q was accepted", h)
		}
	}
	for i, h := range hostile {
		d, _ := b.get(b.things, fmt.Sprintf("h%02d", i))
		if want := `{"x": ` + quoteJSON(t, h) + `, ` + quoteJSON(t, h+"~") + `: [1], "": 2}`; string(d.Custom) != want {
			t.Errorf("custom values %s, want %s", d.Custom, want)
		}
	}
	if n := b.count(b.things, driver.Predicate{}); n != int64(len(hostile)+1) {
		t.Errorf("%d documents are left, want %d", n, len(hostile)+1)
	}
}
