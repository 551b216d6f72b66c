package operation_test

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/internal/fault"
	"tenantry/operation"
)

func TestParseQuery(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw  string
		want []operation.Pair
	}{
		{"", nil},
		{"&&", nil},
		{"a=1", []operation.Pair{{Name: "a", Path: []string{"a"}, Value: "1"}}},
		{"a", []operation.Pair{{Name: "a", Path: []string{"a"}}}},
		{"a=", []operation.Pair{{Name: "a", Path: []string{"a"}}}},
		{"a=b=c", []operation.Pair{{Name: "a", Path: []string{"a"}, Value: "b=c"}}},
		{"a=x+y%2Bz%26%3B", []operation.Pair{{Name: "a", Path: []string{"a"}, Value: "x y+z&;"}}},
		{"teams[]=1&teams[]=2", []operation.Pair{
			{Name: "teams[]", Path: []string{"teams", ""}, Value: "1"}, {Name: "teams[]", Path: []string{"teams", ""}, Value: "2"},
		}},
		{"filters%5Bage%5D%5Bgt%5D=3", []operation.Pair{{Name: "filters[age][gt]", Path: []string{"filters", "age", "gt"}, Value: "3"}}},
		{"f[a][b][c][d][e]=1", []operation.Pair{{Name: "f[a][b][c][d][e]", Path: []string{"f", "a", "b", "c", "d", "e"}, Value: "1"}}},
		{"f[a.b]=1", []operation.Pair{{Name: "f[a.b]", Path: []string{"f", "a.b"}, Value: "1"}}},
		{"=v", []operation.Pair{{Path: []string{""}, Value: "v"}}},
	}
	for _, test := range tests {
		t.Run(test.raw, func(t *testing.T) {
			t.Parallel()
			q, err := operation.ParseQuery(test.raw)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, allPairs(q, test.want)); diff != "" {
				t.Errorf("mismatch (-want +got):\n%s", diff)
			}
		})
	}
}

// allPairs reads back what a query holds through Tree, in the order of the roots of want.
func allPairs(q operation.Query, want []operation.Pair) []operation.Pair {
	var found []operation.Pair
	seen := map[string]bool{}
	for _, p := range want {
		if root := p.Path[0]; !seen[root] {
			seen[root] = true
			found = append(found, q.Tree(root)...)
		}
	}
	return found
}

func TestParseQueryRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, raw, says string }{
		{"semicolon", "a=1;b=2", "Parameter 1 of the query string contains a semicolon"},
		{"semicolon in the second", "a=1&b=2;", "Parameter 2"},
		{"malformed escape in a value", "a=1&b=%zz", "The value of parameter 2 of the query string has a malformed percent-encoding"},
		{"cut escape", "a=%2", "malformed percent-encoding"},
		{"malformed escape in a name", "%zz=1", "The name of parameter 1"},
		{"invalid UTF-8 in a value", "a=%ff", "is not valid UTF-8"},
		{"invalid UTF-8 in a name", "%c0%af=1", "is not valid UTF-8"},
		{"NUL in a value", "a=%00", "contains a NUL character"},
		{"NUL in a name", "a%00=1", "contains a NUL character"},
		{"open bracket", "f[=1", "unbalanced brackets"},
		{"open bracket, encoded", "f%5B=1", "unbalanced brackets"},
		{"closed without open", "f]=1", "unbalanced brackets"},
		{"text after a bracket", "f[a]b=1", "unbalanced brackets"},
		{"bracket in a bracket", "f[[a]]=1", "unbalanced brackets"},
		{"bracket before a closed one", "f[a[b]=1", "unbalanced brackets"},
		{"text between brackets", "f[a]bc]=1", "unbalanced brackets"},
		{"two closed", "f[a]]=1", "unbalanced brackets"},
		{"no root", "[a]=1", "unbalanced brackets"},
		{"too deep", "f[a][b][c][d][e][f]=1", "more than 5 brackets"},
		{"too many", strings.Repeat("a=1&", 1000) + "a=1", "more than 1000 parameters"},
		{"too long", "a=" + strings.Repeat("x", 128<<10), "longer than 131072 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			q, err := operation.ParseQuery(test.raw)
			var p *operation.Problem
			if !errors.As(err, &p) || p.Code != http.StatusBadRequest || !strings.Contains(p.Message, test.says) {
				t.Errorf("got %v, want a 400 that says %q", err, test.says)
			}
			for _, root := range []string{"a", "b", "f"} {
				if q.Has(root) {
					t.Errorf("a refused query still holds %s", root)
				}
			}
		})
	}
}

// FuzzParseQuery: it never panics, and what it accepts is what net/url reads, with nothing dropped.
func FuzzParseQuery(f *testing.F) {
	for _, seed := range []string{
		"", "a=1", "a=1&a=2", "teams[]=x&teams=y", "filters[age][gt]=3&filters[or][0][x]=1", "a;b", "%zz", "a=%00", "[", "]", "a[b", "f[a]b=1",
		"a=%E2%82%AC", "a=+%2B", "=", "&=&", "a[]]=1", "a[b][c][d][e][f][g]=1", "%5B%5D=1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		q, err := operation.ParseQuery(raw)
		if err != nil {
			var p *operation.Problem
			if !errors.As(err, &p) || p.Code != http.StatusBadRequest {
				t.Fatalf("the refusal is no 400: %v", err)
			}
			return
		}
		reference, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("accepted what net/url refuses: %v", err)
		}
		for name, values := range reference {
			root, _, _ := strings.Cut(name, "[")
			var found []string
			for _, p := range q.Tree(root) {
				if p.Name == name {
					found = append(found, p.Value)
				}
				if rebuilt := rebuild(p.Path); rebuilt != p.Name {
					t.Fatalf("path %q of name %q spells %q", p.Path, p.Name, rebuilt)
				}
			}
			if !slices.Equal(found, values) {
				t.Fatalf("%q: got %q, net/url reads %q", name, found, values)
			}
		}
	})
}

func rebuild(path []string) string {
	name := path[0]
	for _, key := range path[1:] {
		name += "[" + key + "]"
	}
	return name
}

func queryOperation() *operation.Row {
	return &operation.Row{
		Request: operation.Request{
			Contract: true, Teams: true,
			Params: []operation.Param{
				{Name: "id", In: operation.InPath}, {Name: "page", In: operation.InQuery, Shape: operation.Integer}, {Name: "tags", In: operation.InQuery, Shape: operation.List},
				{Name: "filters", In: operation.InQuery, Shape: operation.Tree}, {Name: "schema", In: operation.InQuery, Shape: operation.Text},
			},
		},
	}
}

func bind(t *testing.T, o *operation.Row, raw string) (*operation.Call, error) {
	t.Helper()
	q, err := operation.ParseQuery(raw)
	if err != nil {
		t.Fatal(err)
	}
	c := operation.NewCall(o, func(string) string { return "" })
	return c, c.Bind(q)
}

func TestBind(t *testing.T) {
	t.Parallel()
	tests := []struct {
		raw     string
		ignored []string
		says    string // of a refusal
	}{
		{"page=1&schema=full", nil, ""},
		{"page=1&page=1", nil, "Parameter page is given twice"},
		{"page[]=1", nil, "Parameter page takes no brackets"},
		{"page[x]=1", nil, "Parameter page takes no brackets"},
		{"tags=a&tags=b", nil, ""},
		{"tags[]=a&tags[]=b", nil, ""},
		{"tags[x]=a", nil, "Parameter tags takes no brackets"},
		{"tags[][]=a", nil, "Parameter tags takes no brackets"},
		{"filters[a]=1&filters[a]=2&filters=", nil, ""},
		{"teams=a&teams=b&teams[]=c&teams[]=d", nil, ""},
		{"teams[x]=a", nil, `The operation does not take "teams[x]"`},
		{"teams[][x]=a", nil, `The operation does not take "teams[][x]"`},
		{"filter[country]=France", nil, `The operation does not take "filter[country]"; did you mean filters[country]?`},
		{"filter[" + strings.Repeat("x", 58) + "]=a", nil, // too long to look for names that are like it
			`The operation does not take "filter[` + strings.Repeat("x", 57) + `..."`},
		{"Filters[country]=France", nil, `The operation does not take "Filters[country]"; did you mean filters[country]?`},
		{
			"filter[%E2%80%AE%1B]=France", nil,
			`The operation does not take "filter[\u202e\x1b]"; did you mean filters[\u202e\x1b]?`,
		},
		{"id=7", []string{"id"}, ""}, // a path parameter is not set by the query
		{"Page=1", []string{"Page"}, ""},
		{"who=1&who=2&else=3", []string{"who", "else"}, ""},
		{"=v", []string{""}, ""},
	}
	for _, test := range tests {
		t.Run(test.raw, func(t *testing.T) {
			t.Parallel()
			c, err := bind(t, queryOperation(), test.raw)
			if test.says != "" {
				if p := operation.ProblemOf(err); err == nil || p.Code != http.StatusBadRequest || p.Message != test.says {
					t.Errorf("got %v, want a 400: %s", err, test.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.ignored, c.Ignored()); diff != "" {
				t.Errorf("difference:\n%s", diff)
			}
		})
	}
}

func TestIgnoredIsBoundedAndStrictNamesIt(t *testing.T) {
	t.Parallel()
	c := operation.NewCall(queryOperation(), nil)
	for i := range 100 {
		c.Ignore(strings.Repeat("x", i*10))
		c.Ignore(strings.Repeat("x", i*10))
	}
	if n := len(c.Ignored()); n != 20 {
		t.Errorf("%d names are kept", n)
	}
	if err := c.CheckIgnored(); err != nil {
		t.Errorf("without strict handling: %v", err)
	}
	c.Strict = true
	p := operation.ProblemOf(c.CheckIgnored())
	const begins = `The operation does not take "", "xxxxxxxxxx", `
	if p.Code != http.StatusBadRequest || !strings.HasPrefix(p.Message, begins) || len(p.Message) > 4096 {
		t.Errorf("got %d %s, want %d, beginning with %s, of at most 4096 bytes", p.Code, p.Message,
			http.StatusBadRequest, begins)
	}
	if p := operation.ProblemOf(c.IgnoreParts("schema.a.help")); p.Code != http.StatusBadRequest || p.Message != "Not accepted with strict handling: schema.a.help" {
		t.Errorf("parts of fields: %d %s", p.Code, p.Message)
	}
	if err := c.IgnoreParts(); err != nil {
		t.Errorf("no parts: %v", err)
	}
	if err := (&operation.Call{Strict: true}).CheckIgnored(); err != nil {
		t.Errorf("nothing was ignored, yet %v", err)
	}
}

func TestQueryBooleans(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct{ is, bad bool }{
		"true": {true, false}, "1": {true, false}, "false": {false, false}, "0": {false, false},
		"": {true, true}, "TRUE": {true, true}, "yes": {true, true}, "null": {true, true},
	} {
		q, err := operation.ParseQuery("deleted=" + value)
		if err != nil {
			t.Fatal(err)
		}
		var errs fault.List
		if is := q.Bool(&errs, "deleted", true); is != want.is || (len(errs) > 0) != want.bad {
			t.Errorf("Bool(%q) = %t, faults %v", value, is, errs)
		}
	}
	var errs fault.List
	var none operation.Query
	if none.Bool(&errs, "deleted", true) != true || len(errs) > 0 || none.Has("page") || none.Text("page") != "" {
		t.Error("an absent parameter is the fallback and no fault")
	}
}

const (
	teamA = "65f000000000000000000001"
	teamB = "65f000000000000000000002"
	teamC = "65f000000000000000000003"
)

func TestTeams(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, query, body string
		want              []string
		strict            bool // refused with strict handling
	}{
		{"none", "", "", nil, false},
		{"brackets repeat", "teams[]=" + teamA + "&teams[]=" + teamB, "", []string{teamA, teamB}, false},
		{"plain: the last counts", "teams=" + teamA + "&teams=" + teamB, "", []string{teamB}, false},
		{"brackets win over plain, before it", "teams[]=" + teamA + "&teams=" + teamB, "", []string{teamA}, false},
		{"brackets win over plain, after it", "teams=" + teamB + "&teams[]=" + teamA, "", []string{teamA}, false},
		{"the query wins over the body", "teams=" + teamB, `{"teams":["` + teamA + `"]}`, []string{teamB}, false},
		{"brackets win over the body", "teams[]=" + teamB, `{"teams":["` + teamA + `"]}`, []string{teamB}, false},
		{"body", "", `{"teams":["` + teamA + `","` + teamC + `"]}`, []string{teamA, teamC}, false},
		{"body, one text", "", `{"teams":"` + teamA + `"}`, []string{teamA}, false},
		{"body, null", "", `{"teams":null}`, nil, false},
		{"body, empty", "", `{"teams":[]}`, nil, false},
		{"body, others in it", "", `{"teams":["` + teamA + `",5,null,{}]}`, []string{teamA}, true},
		{"an invalid value is ignored", "teams[]=x&teams[]=" + teamA, "", []string{teamA}, true},
		{"only invalid: as if none were sent", "teams[]=x", "", nil, true},
		{"invalid brackets still win over plain", "teams[]=x&teams=" + teamB, "", nil, true},
		{"invalid brackets still win over the body", "teams[]=x", `{"teams":["` + teamA + `"]}`, nil, true},
		{"empty", "teams[]=", "", nil, true},
		{"upper case is no identifier", "teams[]=" + strings.ToUpper("65f00000000000000000000a"), "", nil, true},
		{"too long", "teams[]=" + teamA + "0", "", nil, true},
		{"other names", "Teams=" + teamA + "&TEAMS=" + teamB, "", nil, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			for _, strict := range []bool{false, true} {
				c, err := bind(t, queryOperation(), test.query)
				if err != nil {
					t.Fatal(err)
				}
				if test.body != "" {
					b, err := operation.ParseBody([]byte(test.body))
					if err != nil {
						t.Fatal(err)
					}
					c.BindBody(b)
				}
				c.Strict = strict
				got, err := c.Teams()
				if strict && test.strict {
					if p := operation.ProblemOf(err); err == nil || p.Code != http.StatusBadRequest {
						t.Errorf("strict: %v, want a 400", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("strict %t: %s", strict, diff)
				}
			}
		})
	}
}

func TestTreeKeepsOrder(t *testing.T) {
	t.Parallel()
	q, err := operation.ParseQuery("filters[b]=1&x=2&filters[a]=3&filters=4")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range q.Tree("filters") {
		got = append(got, p.Name+"="+p.Value)
	}
	if want := []string{"filters[b]=1", "filters[a]=3", "filters=4"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if !q.Has("filters") || q.Has("filter") || q.Text("filters") != "4" {
		t.Error("Has or Text mistakes a root")
	}
}
