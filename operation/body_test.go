package operation_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/internal/fault"
	"tenantry/operation"
)

func TestParseBodyRefuses(t *testing.T) {
	t.Parallel()
	deep := func(n int) string { return `{"a":` + strings.Repeat("[", n-1) + strings.Repeat("]", n-1) + `}` }
	tests := []struct{ name, body, says string }{
		{"empty", "", "The body is empty; a JSON object is expected"},
		{"blank", " \n\t", "The body is empty"},
		{"byte order mark", "\xef\xbb\xbf{}", "byte order mark"},
		{"invalid UTF-8", "{\"a\":\"\xff\"}", "not valid UTF-8"},
		{"UTF-16", "{\x00}\x00", "not valid JSON, at byte 2"},
		{"NUL in a value", `{"a":"x` + "\\u0000" + `"}`, "NUL character, at byte 14"},
		{"NUL in a name", `{"a` + "\\u0000" + `":1}`, "NUL character, at byte 10"},
		{"NUL deep inside", `{"a":[{"b":"` + "\\u0000" + `"}]}`, "NUL character"},
		{"raw NUL", "{\"a\":\"\x00\"}", "not valid JSON, at byte 7"},
		{"array", `[]`, "must be a JSON object"},
		{"text", `"x"`, "must be a JSON object"},
		{"null", `null`, "must be a JSON object"},
		{"cut short", `{"a":1`, "ends too early, after byte 6"},
		{"cut in a text", `{"a":"x`, "ends too early, after byte 7"},
		{"comma too many", `{"a":1,}`, "not valid JSON, at byte 8"},
		{"comma too many in a list", `{"a":[1,]}`, "not valid JSON, at byte"},
		{"no quotes", `{a:1}`, "not valid JSON, at byte 2"},
		{"single quotes", `{'a':1}`, "not valid JSON, at byte 2"},
		{"comment", `{/**/}`, "not valid JSON, at byte 2"},
		{"NaN", `{"a":NaN}`, "not valid JSON"},
		{"leading zero", `{"a":01}`, "not valid JSON"},
		{"wrong bracket", `{"a":[1}}`, "not valid JSON"},
		{"trailing text", `{} x`, "at byte"},
		{"trailing object", `{}{}`, "bytes after its JSON value, at byte"},
		{"trailing bracket", `{}}`, "bytes after its JSON value, at byte"},
		{"name twice", `{"a":1,"a":2}`, `the name "a" twice in one object, at byte 10`},
		{"name twice, escaped", `{"a":1,"\u0061":2}`, `the name "a" twice`},
		{"name twice, deep inside", `{"a":[{"b":{"c":1,"c":1}}]}`, `the name "c" twice`},
		{"depth 33", deep(33), "nests deeper than 32 levels"},
		{"depth 33, never closed", `{"a":` + strings.Repeat("[", 32), "nests deeper than 32 levels"},
		{"depth of a million", strings.Repeat(`{"a":`, 1_000_000), "nests deeper than 32 levels"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b, err := operation.ParseBody([]byte(test.body))
			var p *operation.Problem
			if !errors.As(err, &p) || p.Code != http.StatusBadRequest || !strings.Contains(p.Message, test.says) {
				t.Errorf("got %v, want a 400 that says %q", err, test.says)
			}
			if len(b.Names()) != 0 {
				t.Error("a refused body still holds fields")
			}
		})
	}
	for _, body := range []string{`{}`, ` {"a":1} ` + "\r\n", deep(32), `{"a":"[[[[{{{{\"[[[["}`, `{"A":1,"a":2}`, `{"x":{"a":1},"y":{"a":1}}`, `{"":1}`} {
		if _, err := operation.ParseBody([]byte(body)); err != nil {
			t.Errorf("%.60s: %v", body, err)
		}
	}
}

func body(t *testing.T, text string) operation.Body {
	t.Helper()
	b, err := operation.ParseBody([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func codes(errs fault.List) []string {
	var all []string
	for _, e := range errs {
		all = append(all, e.Field+":"+e.Code)
	}
	return all
}

func TestBodyTexts(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		text string
		ok   bool
		code string // of Required
	}{
		`"x"`: {"x", true, ""}, `""`: {"", true, "a:required"}, `"  "`: {"  ", true, "a:required"}, `"\u00e9"`: {"é", true, ""}, `"éééé"`: {"éééé", true, ""},
		`"12345"`: {"12345", true, "a:length"}, `1`: {"", false, "a:type"}, `null`: {"", false, "a:type"}, `true`: {"", false, "a:type"},
		`["x"]`: {"", false, "a:type"}, `{"x":1}`: {"", false, "a:type"},
	} {
		b := body(t, `{"a": `+value+`}`)
		var errs, required fault.List
		if text, ok := b.Text(&errs, "a"); text != want.text || ok != want.ok || (len(errs) == 0) != want.ok {
			t.Errorf("Text of %s: %q %t %v", value, text, ok, errs)
		}
		b.Required(&required, "a", 4)
		if got := strings.Join(codes(required), " "); got != want.code {
			t.Errorf("Required of %s: faults %q, want %q", value, got, want.code)
		}
	}
	var errs fault.List
	b := body(t, `{"A":"x"}`)
	if b.Required(&errs, "a", 10) != "" || !slices.Equal(codes(errs), []string{"a:required"}) {
		t.Errorf("names match exactly, case included: %v", errs)
	}
}

func TestBodyObjects(t *testing.T) {
	t.Parallel()
	var errs fault.List

	m, ok := body(t, `{"a": {"n": 9007199254740993, "x": null}}`).Object(&errs, "a")
	if diff := cmp.Diff(map[string]any{"n": json.Number("9007199254740993"), "x": nil}, m); diff != "" || !ok || len(errs) > 0 {
		t.Errorf("Object: %s %v", diff, errs)
	}
	for _, value := range []string{`[]`, `"{}"`, `null`, `1`} {
		var errs fault.List
		if _, ok := body(t, `{"a":`+value+`}`).Object(&errs, "a"); ok || !slices.Equal(codes(errs), []string{"a:type"}) {
			t.Errorf("Object of %s: %t %v", value, ok, errs)
		}
	}
	if _, ok := body(t, `{}`).Object(&errs, "a"); ok || len(errs) > 0 {
		t.Error("an absent object is no fault")
	}
}

func TestBindBodyNamesWhatIsNotTaken(t *testing.T) {
	t.Parallel()
	for _, teams := range []bool{true, false} {
		want := []string{"org_id", "teams", "Name", "locked"}
		if teams {
			want = []string{"org_id", "Name", "locked"}
		}
		for _, contract := range []bool{true, false} {
			o := &operation.Row{Request: operation.Request{Contract: contract, Teams: teams, Body: []operation.Field{{Name: "name", Shape: operation.Text}}}}
			c := operation.NewCall(o, nil)
			c.BindBody(body(t, `{"org_id":7,"name":"x","teams":[],"Name":"y","locked":true}`))
			got, err := c.Ignored(), c.Unknown.Err()
			if !contract {
				p := operation.ProblemOf(err)
				if p.Code != http.StatusUnprocessableEntity || !strings.HasPrefix(p.Message, `Validation failed: "org_id" is not a field that can be set here; `) {
					t.Errorf(`got %d %s, want %v and beginning with "Validation failed: \"org_id\" is not a field that can be set here; "`,
						p.Code, p.Message, http.StatusUnprocessableEntity)
				}
				var refused struct{ Errors []fault.Fault }
				text, _ := json.Marshal(p.Data)
				if err = json.Unmarshal(text, &refused); err == nil && len(got) == 0 {
					for _, e := range refused.Errors {
						got = append(got, e.Field)
					}
				}
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("teams %t, contract %t: %v %s", teams, contract, err, diff)
			}
		}
	}
}
