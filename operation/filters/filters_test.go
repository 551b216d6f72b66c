package filters

import (
	"encoding/json"
	"errors"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
)

type catalog map[string]Field

func (c catalog) Field(name string) (Field, bool) {
	f, ok := c[name]
	return f, ok
}

func custom(name string, typ store.Type) store.Field {
	return store.Field{Name: name, Custom: true, Type: typ}
}

func testCatalog() catalog {
	c := catalog{}
	for _, f := range []Field{
		{Name: "country", Ref: country()}, {Name: "city", Ref: declared("city", store.TypeString)},
		{Name: "tags", Ref: declared("tags", store.TypeStrings)},
		{Name: "created_at", Ref: declared("created_at", store.TypeTime)},
		{Name: "uploaded", Ref: declared("updated_at", store.TypeTime), Seconds: true},
		{Name: "age", Ref: custom("age", store.TypeFloat)}, {Name: "vip", Ref: custom("vip", store.TypeBool)},
		{Name: "birthday", Ref: custom("birthday", store.TypeDate)},
		{Name: "ssn", Ref: custom("ssn", store.TypeAny), Secret: true},
		{Name: "$where", Ref: country()}, // Bind must not even ask for it
	} {
		c[f.Name] = f
	}
	return c
}

// canary stands for every value in tests of refusals: no error may repeat it.
const canary = "zq9value"

func fromQuery(t *testing.T, raw string) (Expr, bool, fault.List) {
	t.Helper()
	q, err := operation.ParseQuery(raw)
	if err != nil {
		t.Fatalf("ParseQuery(%q): %v", raw, err)
	}
	var errs fault.List
	e, present := FromQuery(q.Tree("filters"), &errs)
	return e, present, errs
}

func bind(e Expr, errs *fault.List) store.Filter { return e.Bind(testCatalog(), nil, errs) }

func declared(name string, t store.Type) store.Field { return store.Field{Name: name, Type: t} }

func country() store.Field { return declared("country", store.TypeString) }

func TestBothSpellings(t *testing.T) {
	t.Parallel()
	age, vip := custom("age", store.TypeFloat), custom("vip", store.TypeBool)
	for _, tc := range []struct {
		query, json string
		want        store.Filter
	}{
		{"filters[country]=DE", `{"country":"DE"}`, store.All(store.Where(country(), store.OpEq, "DE"))},
		{"filters[country]=", `{"country":""}`, store.All(store.Where(country(), store.OpEq, ""))},
		{"filters[country][eq]=DE", `{"country":{"eq":"DE"}}`, store.All(store.Where(country(), store.OpEq, "DE"))},
		{"filters[country]=DE&filters[country]=FR", `{"country":["DE","FR"]}`, store.All(store.Where(country(), store.OpIn, "DE", "FR"))},
		{"filters[country][eq]=DE&filters[country]=FR", `{"country":["DE","FR"]}`, store.All(store.Where(country(), store.OpIn, "DE", "FR"))},
		{"filters[country][]=DE", `{"country":["DE"]}`, store.All(store.Where(country(), store.OpIn, "DE"))},
		{"filters[country][in]=DE", `{"country":{"in":["DE"]}}`, store.All(store.Where(country(), store.OpIn, "DE"))},
		{"filters[country][nin][]=DE&filters[country][nin][]=FR", `{"country":{"nin":["DE","FR"]}}`, store.All(store.Where(country(), store.OpNin, "DE", "FR"))},
		{"filters[country][in]=a,b", `{"country":{"in":["a,b"]}}`, store.All(store.Where(country(), store.OpIn, "a,b"))},
		{"filters[country][contains]=E&filters[country][starts_with]=D", `{"country":{"contains":"E","starts_with":"D"}}`,
			store.All(store.Where(country(), store.OpContainsFold, "E"), store.Where(country(), store.OpStartsWithFold, "D"))},
		{"filters[country][contains_exact]=E&filters[country][starts_with_exact]=D", `{"country":{"contains_exact":"E","starts_with_exact":"D"}}`,
			store.All(store.Where(country(), store.OpContains, "E"), store.Where(country(), store.OpStartsWith, "D"))},
		{"filters[country]=DE&filters[country][ne]=FR", `{"country":{"eq":"DE","ne":"FR"}}`,
			store.All(store.Where(country(), store.OpEq, "DE"), store.Where(country(), store.OpNe, "FR"))},
		{"filters[age][gt]=30&filters[age][lte]=4.5e1", `{"age":{"gt":30,"lte":4.5e1}}`,
			store.All(store.Where(age, store.OpGt, int64(30)), store.Where(age, store.OpLte, 45.0))},
		{"filters[age]=9007199254740993", `{"age":9007199254740993}`, store.All(store.Where(age, store.OpEq, int64(9007199254740993)))},
		{"filters[age]=-0", `{"age":-0}`, store.All(store.Where(age, store.OpEq, int64(0)))},
		{"filters[vip]=true&filters[age][exists]=false", `{"vip":true,"age":{"exists":false}}`,
			store.All(store.Where(vip, store.OpEq, true), store.Where(age, store.OpExists, false))},
		{"filters[tags][contains]=a&filters[tags][nin]=b", `{"tags":{"contains":"a","nin":["b"]}}`,
			store.All(store.Where(declared("tags", store.TypeStrings), store.OpContains, "a"), store.Where(declared("tags", store.TypeStrings), store.OpNin, "b"))},
		{"filters[or][7][city]=Bonn&filters[or][2][country]=FR&filters[or][2][age][gt]=1&filters[vip]=false",
			`{"vip":false,"or":[{"country":"FR","age":{"gt":1}},{"city":"Bonn"}]}`,
			store.All(store.Where(vip, store.OpEq, false), store.AnyOf(
				store.All(store.Where(country(), store.OpEq, "FR"), store.Where(age, store.OpGt, int64(1))),
				store.All(store.Where(declared("city", store.TypeString), store.OpEq, "Bonn"))))},
	} {
		t.Run(tc.query, func(t *testing.T) {
			t.Parallel()
			e, present, errs := fromQuery(t, tc.query)
			got := bind(e, &errs)
			if len(errs) > 0 || !present || e.IsEmpty() {
				t.Fatalf("query: present %v, empty %v, %v", present, e.IsEmpty(), errs)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("query bound to %+v, want %+v", got, tc.want)
			}
			got = bind(FromJSON([]byte(tc.json), &errs), &errs)
			if len(errs) > 0 {
				t.Fatalf("JSON: %v", errs)
			}
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("JSON bound to %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestFalsyIsPresentAndEmpty(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"", "0", "false", "null", "[]", "{}"} {
		e, present, errs := fromQuery(t, "filters="+url.QueryEscape(value))
		if !present || !e.IsEmpty() || len(errs) > 0 {
			t.Errorf("%q: present %v, empty %v, %v", value, present, e.IsEmpty(), errs)
		}
	}
	for _, value := range []string{"00", "False", " ", "NULL", "[ ]", "0.0", "none", "undefined", "-0", `{"country":"DE"}`} {
		e, present, errs := fromQuery(t, "filters="+url.QueryEscape(value))
		if !present || e.IsEmpty() || len(errs) != 1 {
			t.Errorf("%q: present %v, empty %v, %v", value, present, e.IsEmpty(), errs)
		}
	}
	if e, present, errs := fromQuery(t, "teams[]=x"); present || !e.IsEmpty() || len(errs) > 0 {
		t.Errorf("absent: present %v, empty %v, %v", present, e.IsEmpty(), errs)
	}
}

// refused holds that a filter is refused with a problem that names what is wrong, and
// that it then matches nothing.
func refused(t *testing.T, e Expr, errs fault.List, names string) {
	t.Helper()
	filter := bind(e, &errs)
	if len(errs) == 0 {
		t.Fatalf("accepted as %+v", filter)
	}
	if !reflect.DeepEqual(filter, store.AnyOf()) {
		t.Errorf("matches %+v, want nothing", filter)
	}
	text := ""
	for _, p := range errs {
		text += p.Field + " " + p.Message + "\n"
	}
	if !strings.Contains(text, names) {
		t.Errorf("%q does not name %q", text, names)
	}
	if strings.Contains(text, canary) {
		t.Errorf("%q repeats a value", text)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("%q is not printable", text)
	}
	for _, p := range errs {
		if utf8.RuneCountInString(p.Field) > 3*(maxShown+4) || utf8.RuneCountInString(p.Message) > 600 {
			t.Errorf("problem is too long: %+v", p)
		}
	}
}

func TestHostileFilterNamesAreRefused(t *testing.T) {
	t.Parallel()
	for query, names := range map[string]string{
		"filters[$where]=" + canary:                                  "filters[$where]",
		"filters[$expr][eq]=" + canary:                               "filters[$expr]",
		"filters[email][$regex]=" + canary:                           "filters[email][$regex]",
		"filters[country][$ne]=" + canary:                            "filters[country][$ne]",
		"filters[country][regex]=" + canary:                          "filters[country][regex]",
		"filters[country][EQ]=" + canary:                             "filters[country][EQ]",
		"filters[country][input]=" + canary:                          "filters[country][input]",
		"filters[__proto__]=" + canary:                               "__proto__",
		"filters[__proto__][eq]=" + canary:                           "__proto__",
		"filters[constructor][prototype]=" + canary:                  "constructor",
		"filters[a.b]=" + canary:                                     "a.b",
		"filters[Country]=" + canary:                                 "Country",
		"filters[ssn]=" + canary:                                     `filters[ssn]: the field "ssn" is encrypted`,
		"filters[SSN]=" + canary:                                     "SSN",
		"filters[ssn][exists]=true":                                  "ssn",
		"filters[or][0][ssn][starts_with]=" + canary:                 "ssn",
		"filters[or][0][$where]=" + canary:                           "$where",
		"filters[or]=" + canary:                                      "filters[or]",
		"filters[or][0]=" + canary:                                   "filters[or][0]",
		"filters[or][x][country]=" + canary:                          "filters[or][x][country]",
		"filters[or][00][country]=" + canary:                         "filters[or][00]",
		"filters[or][-1][country]=" + canary:                         "filters[or][-1]",
		"filters[or][][country]=" + canary:                           "filters[or][][country]",
		"filters[or][0][or][0]=" + canary:                            "filters[or][0][or][0]: alternatives cannot hold alternatives",
		"filters[or][0][]=" + canary:                                 "filters[or][0][]",
		"filters[]=" + canary:                                        "filters[]",
		"filters[][country]=" + canary:                               "filters[][country]",
		"filters[country][eq][x]=" + canary:                          "filters[country][eq][x]",
		"filters[country][][x]=" + canary:                            "filters[country][][x]",
		"filters[country][gt][]=" + canary:                           "filters[country][gt][]",
		"filters[country][gt]=a&filters[country][gt]=" + canary:      "filters[country][gt]",
		"filters[country][]=a&filters[country][in]=" + canary:        "filters[country][in]",
		"filters=&filters[country]=" + canary:                        "filters",
		"filters=0&filters=0":                                        "filters",
		"filters[age]=" + canary:                                     "filters[age]",
		"filters[age]=0x10":                                          "filters[age]",
		"filters[age]=NaN":                                           "filters[age]",
		"filters[age]=Inf":                                           "filters[age]",
		"filters[age]=1e999":                                         "filters[age]",
		"filters[age]=01":                                            "filters[age]",
		"filters[age]=%2B1":                                          "filters[age]",
		"filters[age]=1_000":                                         "filters[age]",
		"filters[age]=+1":                                            "filters[age]",
		"filters[age]=1.":                                            "filters[age]",
		"filters[age]=.5":                                            "filters[age]",
		"filters[age]=0." + strings.Repeat("1", 400):                 "filters[age]",
		"filters[age]=":                                              "filters[age]",
		"filters[age][contains]=1":                                   "filters[age][contains]",
		"filters[vip]=1":                                             "filters[vip]",
		"filters[vip]=True":                                          "filters[vip]",
		"filters[vip][gt]=true":                                      "filters[vip][gt]",
		"filters[vip][exists]=1":                                     "filters[vip][exists]",
		"filters[tags][gt]=" + canary:                                "filters[tags][gt]",
		"filters[tags][starts_with]=" + canary:                       "filters[tags][starts_with]",
		"filters[created_at]=1715940000":                             "filters[created_at]",
		"filters[created_at]=2024-02-30":                             "filters[created_at]",
		"filters[created_at]=2024-05-17T1:00:00Z":                    "filters[created_at]",
		"filters[created_at]=2024-05-17T1:00:00.0Z":                  "filters[created_at]",
		"filters[created_at]=2024-05-17T10:00:00,5Z":                 "filters[created_at]",
		"filters[created_at]=2024-05-17T10:00:00":                    "filters[created_at]",
		"filters[birthday]=17.05.2024":                               "filters[birthday]",
		"filters[birthday][contains]=2024":                           "filters[birthday][contains]",
		"filters[country][contains]=" + strings.Repeat("x", 2049):    "filters[country][contains]",
		"filters[country][starts_with]=" + strings.Repeat("x", 2049): "filters[country][starts_with]",
		"filters[tags][contains_exact]=a":                            "filters[tags][contains_exact]",
		"filters[%01%02" + strings.Repeat("x", 4000) + "]=1":         "filters[??xxx",
		"filters[a%0D%0AX-Evil: 1]=" + canary:                        "filters[a??X-Evil: 1]",
		"filters[%E2%80%AE]=" + canary:                               "filters[?]",
	} {
		t.Run(show(query), func(t *testing.T) {
			t.Parallel()
			e, present, errs := fromQuery(t, query)
			if !present {
				t.Fatal("not present")
			}
			refused(t, e, errs, names)
		})
	}
}

func TestMalformedQueryNeverReachesTheFilter(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"filters[a", "filters[a]]=1", "filters]a[=1", "filters[a][=1", "filters[a]b=1", "[filters]=1",
		"filters[a]=%zz", "filters[a]=1;b=2", "filters[[a]]=1", "filters[a][b][c][d][e][f]=1", "filters[%00]=1", "filters[a]=%ff"} {
		_, err := operation.ParseQuery(raw)
		var p *operation.Problem
		if !errors.As(err, &p) || p.Code != 400 {
			t.Errorf("%q: %v, want a 400", raw, err)
		}
	}
}

func TestFilterOfWrongJSONTypeIsRefused(t *testing.T) {
	t.Parallel()
	for raw, names := range map[string]string{
		`null`: "filter must be a JSON object", `[]`: "filter", `"x"`: "filter", `1`: "filter", `{`: "filter must be valid JSON", ``: "", ` `: "filter must be valid JSON",
		`{"country":"a","country":"` + canary + `"}`:      "filter",
		`{"country":"` + canary + `"} x`:                  "filter",
		`{"country":null}`:                                "filter.country",
		`{"country":1}`:                                   "filter.country",
		`{"country":true}`:                                "filter.country",
		`{"country":{}}`:                                  "filter.country",
		`{"country":[]}`:                                  "filter.country",
		`{"country":[null]}`:                              "filter.country",
		`{"country":["a",1]}`:                             "filter.country",
		`{"country":[["` + canary + `"]]}`:                "filter.country",
		`{"country":{"eq":["` + canary + `"]}}`:           "filter.country.eq: the operator eq takes one value",
		`{"country":{"in":"` + canary + `"}}`:             "filter.country.in",
		`{"country":{"in":[]}}`:                           "filter.country.in",
		`{"country":{"eq":{"eq":"` + canary + `"}}}`:      "filter.country.eq",
		`{"country":{"$ne":"` + canary + `"}}`:            "filter.country.$ne",
		`{"country":{"input":"a","eq":"` + canary + `"}}`: "filter.country.input",
		`{"country":{"input":1}}`:                         "filter.country must be a value, or",
		`{"country":{"eq":{"input":"a","x":1}}}`:          "filter.country.eq must be a value, or",
		`{"country":{"input":""}}`:                        "filter.country",
		`{"age":"30"}`:                                    "filter.age",
		`{"age":{"gt":"30"}}`:                             "filter.age.gt",
		`{"vip":"true"}`:                                  "filter.vip",
		`{"vip":{"exists":"true"}}`:                       "filter.vip.exists",
		`{"created_at":1715940000}`:                       "filter.created_at",
		`{"tags":[1]}`:                                    "filter.tags",
		`{"ssn":"` + canary + `"}`:                        `filter.ssn: the field "ssn" is encrypted`,
		`{"or":[{"ssn":"` + canary + `"}]}`:               "ssn",
		`{"$where":"` + canary + `"}`:                     "$where",
		`{"":"` + canary + `"}`:                           "filter: a name must not be empty",
		`{"or":{}}`:                                       "filter.or",
		`{"or":[]}`:                                       "filter.or",
		`{"or":[{}]}`:                                     "filter.or",
		`{"or":["` + canary + `"]}`:                       "filter.or",
		`{"or":[{"or":[{"country":"a"}]}]}`:               "filter.or: alternatives cannot hold alternatives",
		`{"or":[{"or":"a"}]}`:                             "filter.or: alternatives cannot hold alternatives",
		`{"country":{"input":"nobody"}}`:                  "nobody",
	} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			var errs fault.List
			e := FromJSON([]byte(raw), &errs)
			if raw == "" {
				if !e.IsEmpty() || len(errs) > 0 {
					t.Fatalf("nothing at all: empty %v, %v", e.IsEmpty(), errs)
				}
				return
			}
			refused(t, e, errs, names)
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	conditions := func(n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, "filters[or]["+string(rune('0'+i/25))+"][country"+strings.Repeat("x", i%25)+"]=1")
		}
		return strings.Join(parts, "&")
	}
	if _, _, errs := fromQuery(t, conditions(MaxConditions)); len(errs) > 0 {
		t.Errorf("%d conditions: %v", MaxConditions, errs)
	}
	e, _, errs := fromQuery(t, conditions(MaxConditions+1))
	refused(t, e, errs, "at most 50 conditions")

	list := func(n int, element string) []byte {
		return []byte(`{"country":{"in":[` + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + `]}}`)
	}
	var good, bad fault.List
	if FromJSON(list(MaxValues, `"a"`), &good); len(good) > 0 {
		t.Errorf("%d values: %v", MaxValues, good)
	}
	refused(t, FromJSON(list(MaxValues+1, `"a"`), &bad), bad, "filter.country.in")

	var many fault.List // more than a query string can hold
	pair := operation.Pair{Name: "filters[country][]", Path: []string{"filters", "country", ""}, Value: "a"}
	e, _ = FromQuery(slices.Repeat([]operation.Pair{pair}, MaxValues+1), &many)
	refused(t, e, many, "may have at most 1000 values")

	bad = nil
	refused(t, FromJSON([]byte(`{"country":"a"`+strings.Repeat(" ", maxJSON)+`}`), &bad), bad, "filter is longer than")

	for n, ok := range map[int]bool{MaxConditions: true, MaxConditions + 1: false} {
		var many fault.List
		if FromJSON([]byte(`{"or":[`+strings.Repeat(`{"country":"a"},`, n-1)+`{"country":"a"}]}`), &many); ok != (len(many) == 0) {
			t.Errorf("%d alternatives: %v", n, many)
		}
		var errs fault.List
		raw := strings.ReplaceAll(string(list(n, `"2024-05-17"`)), "country", "created_at")
		bind(FromJSON([]byte(raw), &errs), &errs)
		if ok != (len(errs) == 0) {
			t.Errorf("%d dates: %v", n, errs)
		}
	}
}

// A list of problems that is full already must not turn a refusal into an acceptance.
func TestFullErrorListStillRefuses(t *testing.T) {
	t.Parallel()
	var errs fault.List
	for range 200 {
		errs.Add("x", "x", "x")
	}
	e := FromJSON([]byte(`{"country":1,"or":3}`), &errs)
	if e.IsEmpty() || !reflect.DeepEqual(bind(e, &errs), store.AnyOf()) {
		t.Error("an unreadable filter matches something")
	}
	if got := bind(FromJSON([]byte(`{"nope":"1"}`), &errs), &errs); !reflect.DeepEqual(got, store.AnyOf()) {
		t.Errorf("an unknown field matches %+v", got)
	}
}

func TestMoments(t *testing.T) {
	t.Parallel()
	at, birthday := declared("created_at", store.TypeTime), custom("birthday", store.TypeDate)
	const day, next = int64(1715904000000), int64(1715990400000)
	for _, tc := range []struct {
		json string
		want store.Filter
	}{
		{`{"created_at":{"gte":"2024-05-17"}}`, store.Where(at, store.OpGte, day)},
		{`{"created_at":{"gt":"2024-05-17"}}`, store.Where(at, store.OpGt, day)},
		{`{"created_at":{"lt":"2024-05-17T02:00:00+02:00"}}`, store.Where(at, store.OpLt, day)},
		{`{"created_at":{"gte":"2024-05-17T00:00:00.0001Z"}}`, store.Where(at, store.OpGte, day+1)},
		{`{"created_at":{"lt":"2024-05-17T00:00:00.0001Z"}}`, store.Where(at, store.OpLt, day+1)},
		{`{"created_at":{"gt":"2024-05-17T00:00:00.0001Z"}}`, store.Where(at, store.OpGt, day)},
		{`{"created_at":{"lte":"2024-05-17T00:00:00.0001Z"}}`, store.Where(at, store.OpLte, day)},
		{`{"created_at":"2024-05-17T00:00:00Z"}`, store.Where(at, store.OpEq, day)},
		{`{"created_at":"2024-05-17"}`, store.AnyOf(store.All(store.Where(at, store.OpGte, day), store.Where(at, store.OpLt, next)))},
		{`{"created_at":{"ne":"2024-05-17"}}`, store.All(store.AnyOf(store.Where(at, store.OpExists, false),
			store.Where(at, store.OpLt, day), store.Where(at, store.OpGte, next)))},
		{`{"created_at":["2024-05-17","2024-05-18T00:00:00Z"]}`, store.AnyOf(
			store.All(store.Where(at, store.OpGte, day), store.Where(at, store.OpLt, next)), store.Where(at, store.OpIn, next))},
		{`{"created_at":{"exists":true}}`, store.Where(at, store.OpExists, true)},
		{`{"birthday":{"lt":"2024-05-17"}}`, store.Where(birthday, store.OpLt, "2024-05-17")},
		{`{"birthday":{"lte":"2024-05-17"}}`, store.Where(birthday, store.OpLte, "2024-05-17T00:00:00.000Z")},
		{`{"birthday":{"gte":"2024-05-17T02:00:00+02:00"}}`, store.Where(birthday, store.OpGte, "2024-05-17")},
		{`{"birthday":{"gte":"2024-05-16T23:59:59.9999Z"}}`, store.Where(birthday, store.OpGte, "2024-05-17")},
		{`{"birthday":{"gt":"2024-05-17T00:00:00.0001Z"}}`, store.Where(birthday, store.OpGt, "2024-05-17T00:00:00.000Z")},
		{`{"birthday":{"ne":"2024-05-17T00:00:00Z"}}`, store.Where(birthday, store.OpNin, "2024-05-17", "2024-05-17T00:00:00.000Z")},
		{`{"birthday":{"lt":"2024-05-17T02:00:00.5+02:00"}}`, store.Where(birthday, store.OpLt, "2024-05-17T00:00:00.500Z")},
		{`{"birthday":"9999-12-31"}`, store.AnyOf(store.All(store.Where(birthday, store.OpGte, "9999-12-31"), store.Where(birthday, store.OpLt, "9999-12-31~")))},
	} {
		var errs fault.List
		got := bind(FromJSON([]byte(tc.json), &errs), &errs)
		if len(errs) > 0 || !reflect.DeepEqual(got, store.All(tc.want)) {
			t.Errorf("%s: %+v %v, want %+v", tc.json, got, errs, tc.want)
		}
	}
}

func TestInputs(t *testing.T) {
	t.Parallel()
	const raw = `{"country":{"input":"c"},"age":{"gt":{"input":"min"},"lt":9},"or":[{"city":{"in":{"input":"c"}}},{"vip":{"input":"v"}}]}`
	var errs fault.List
	e := FromJSON([]byte(raw), &errs)
	if got := e.Inputs(); len(errs) > 0 || !reflect.DeepEqual(got, []string{"c", "min", "v"}) {
		t.Fatalf("inputs %v, %v", got, errs)
	}
	if got := e.Fields(); !reflect.DeepEqual(got, []string{"age", "city", "country", "vip"}) {
		t.Errorf("fields %v", got)
	}
	age, vip := custom("age", store.TypeFloat), custom("vip", store.TypeBool)
	for name, tc := range map[string]struct {
		inputs map[string]Input
		want   store.Filter
		names  string
	}{
		"all set": {
			map[string]Input{"c": {Value: "DE", Set: true, Locked: true}, "min": {Value: "3", Set: true}, "v": {Value: "true", Set: true}},
			store.All(store.Where(country(), store.OpEq, "DE"), store.Where(age, store.OpGt, int64(3)), store.Where(age, store.OpLt, int64(9)),
				store.AnyOf(store.All(store.Where(declared("city", store.TypeString), store.OpIn, "DE")), store.All(store.Where(vip, store.OpEq, true)))), "",
		},
		"one alternative left": {
			map[string]Input{"c": {}, "min": {}, "v": {Value: "false", Set: true}},
			store.All(store.Where(age, store.OpLt, int64(9)), store.AnyOf(store.All(store.Where(vip, store.OpEq, false)))), "",
		},
		"none set":       {map[string]Input{"c": {}, "min": {}, "v": {}}, store.All(store.Where(age, store.OpLt, int64(9))), ""},
		"locked without": {map[string]Input{"c": {Locked: true}, "min": {}, "v": {}}, store.AnyOf(), "filter.country"},
		"wrong type":     {map[string]Input{"c": {}, "min": {Value: canary, Set: true}, "v": {}}, store.AnyOf(), "filter.age.gt"},
		"undeclared":     {map[string]Input{"c": {}, "min": {}}, store.AnyOf(), `"v"`},
	} {
		var errs fault.List
		got := e.Bind(testCatalog(), func(name string) (Input, bool) { in, ok := tc.inputs[name]; return in, ok }, &errs)
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
		text, _ := json.Marshal(errs)
		if (tc.names == "") != (len(errs) == 0) || !strings.Contains(string(text), strings.ReplaceAll(tc.names, `"`, `\"`)) || strings.Contains(string(text), canary) {
			t.Errorf("%s: problems %s, want %q named", name, text, tc.names)
		}
	}
}

// TestSeconds: a number stands for all that is shown as that number.
func TestSeconds(t *testing.T) {
	t.Parallel()
	at := declared("updated_at", store.TypeTime)
	in := store.All(store.Where(at, store.OpGte, int64(1717509162000)), store.Where(at, store.OpLt, int64(1717509163000)))
	out := store.AnyOf(store.Where(at, store.OpExists, false), store.Where(at, store.OpLt, int64(1717509162000)), store.Where(at, store.OpGte, int64(1717509163000)))
	for query, want := range map[string]store.Filter{
		"=1717509162": store.AnyOf(in), "[in]=1717509162": store.AnyOf(in), "[ne]=1717509162": store.All(out), "[nin]=1717509162": store.All(out),
		"[gte]=1717509162": store.Where(at, store.OpGte, int64(1717509162000)), "[lt]=1717509162": store.Where(at, store.OpLt, int64(1717509162000)),
		"[gt]=1717509162": store.Where(at, store.OpGt, int64(1717509162999)), "[lte]=1717509162": store.Where(at, store.OpLte, int64(1717509162999)),
		"[gt]=2024-06-04T13:52:42Z": store.Where(at, store.OpGt, int64(1717509162000)),
	} {
		e, _, errs := fromQuery(t, "filters[uploaded]"+query)
		if got := bind(e, &errs); len(errs) > 0 || !reflect.DeepEqual(got, store.All(want)) {
			t.Errorf("%s: %+v (%v), want %+v", query, got, errs, want)
		}
	}
}

// TestAfterTheYear9999: what is stored as text is compared as such, and comes before a year of five digits all the
// same.
func TestAfterTheYear9999(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"9999-12-31T23:59:59-01:00", "9999-12-31T23:59:59.9999Z"} {
		for _, op := range []string{"lt", "gte"} {
			e, _, errs := fromQuery(t, "filters[birthday]["+op+"]="+moment)
			is, _ := operatorOf(op)
			if got, want := bind(e, &errs), store.All(store.Where(custom("birthday", store.TypeDate), is, "9999-12-31~")); len(errs) > 0 || !reflect.DeepEqual(got, want) {
				t.Errorf("%s %s: %+v (%v), want %+v", op, moment, got, errs, want)
			}
		}
	}
}
