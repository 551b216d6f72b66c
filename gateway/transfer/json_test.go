package transfer

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"tenantry/backends/api"
)

// seeds are texts on which strict and lenient readers of JSON differ.
func seeds() []string {
	return []string{
		`{}`, `{"a":1}`, ` { "a" : [1, -2.5e+3, "x", true, false, null, {}] } `, `{"a":{"b":{"c":[[],[[]]]}}}`,
		`{"a":1,"a":2}`, `{"a":1,"A":2}`, `{"ſchema":1,"schema":2}`, `{"a\u0000":1}`, `{"a":"\u0000"}`, `{"a":"\ud800"}`,
		`{"a":"\ud83d\ude00é\n\/"}`, "{\"a\":\"\x01\"}", "{\"a\":\"\xff\"}", "\xef\xbb\xbf{}", `{"a":01}`, `{"a":1.}`, `{"a":.5}`,
		`{"a":-}`, `{"a":1e}`, `{"a":9007199254740993}`, `{"a":1}x`, `{"a":1} {"b":2}`, `{"a":1,}`, `[1,]`, `[`, `{`, `{"a"`, `{"a":`, ``, ` `,
		`"x"`, `tru`, `nul`, `truex`, `{'a':1}`, `{a:1}`, "{\"a\":\"x\ty\"}", "{\"a\":1}\r", strings.Repeat("[", 33) + strings.Repeat("]", 33),
		strings.Repeat("[", 32) + strings.Repeat("]", 32), `{"` + strings.Repeat("x", 100) + `":1}`, `{"a":"\x"}`, `{"a":"\u12"}`,
	}
}

// agrees holds the fast reader to the slow one: it takes the same texts and reads the same.
func agrees(t *testing.T, src string) {
	t.Helper()
	var p parser
	got, err := p.parse(src)
	want := api.CheckJSON([]byte(src))
	if (err == nil) != (want == nil) {
		t.Fatalf("%q: %v, but the strict reader says %v", src, err, want)
	}
	if err != nil {
		return
	}
	var decoded any
	if err := api.Decode([]byte(src), &decoded); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got.any(), decoded) {
		t.Fatalf("%q: %#v, expected %#v", src, got.any(), decoded)
	}
	var again any
	if err := api.Decode(got.raw(), &again); err != nil || !reflect.DeepEqual(again, decoded) {
		t.Fatalf("%q is written as %s: %v", src, got.raw(), err)
	}
}

func TestParse_TakesWhatTheStrictReaderTakes(t *testing.T) {
	t.Parallel()
	for _, src := range seeds() {
		agrees(t, src)
	}
}

func TestParse_ManyNames(t *testing.T) {
	t.Parallel()
	m := map[string]int{}
	for i := range 100 {
		m[strings.Repeat("n", i)] = i
	}
	text, err := json.Marshal(m)
	check(t, err)
	agrees(t, string(text))
	agrees(t, strings.Replace(string(text), `{`, `{"nn":1,`, 1))
}

func FuzzParse(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	for line := range strings.Lines(complete) {
		f.Add(line)
	}
	f.Fuzz(agrees)
}

// FuzzLine holds decoding to its promise that no line ends the program, that bad lines
// are said to be bad, and that good ones are written as they were read.
func FuzzLine(f *testing.F) {
	for line := range strings.Lines(complete) {
		f.Add(line)
	}
	w := newWorld(f)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	f.Fuzz(func(t *testing.T, line string) {
		if strings.ContainsAny(line, "\n") || strings.TrimSpace(line) == "" {
			return
		}
		r, err := w.service.Import(t.Context(), acme, BytesSource([]byte(line)), ImportOptions{DryRun: true})
		if (r.Failed > 0) != (err != nil) || r.Lines != 1 || r.Created+r.Updated+r.Unchanged+r.Failed != 1 {
			t.Fatalf("%q: %+v %v", line, r, err)
		}
		for _, p := range r.Problems {
			if len(p.Errors) == 0 || len(p.String()) > 20_000 {
				t.Fatalf("%q: %v", line, p)
			}
		}
	})
}

func TestSniff(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`{"kind":"contact","id":1}`: "contact", ` { "kind" : "team" }`: "team", "\t{\"kind\"\t:\t\"x\"": "x",
		`{"id":1,"kind":"contact"}`: "", `{"kind":1}`: "", `{"kind":"c\u006fntact"}`: "", ``: "", `{`: "", `{"kind":"` + strings.Repeat("x", 50): "",
	} {
		if got := sniff([]byte(line)); got != want {
			t.Errorf("%s: %q, expected %q", line, got, want)
		}
	}
}

func TestLineReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxLine)
	for name, c := range map[string]struct {
		in   string
		want []string // "!" for a line that is too long
	}{
		"empty":            {"", nil},
		"no feed at end":   {"a\nb", []string{"a", "b"}},
		"blank lines":      {"\n\na\n", []string{"", "", "a"}},
		"the longest":      {long + "\nb\n", []string{long, "b"}},
		"one byte more":    {"a\n" + long + "x\nb", []string{"a", "!", "b"}},
		"far too long":     {long + long + long + "\nb", []string{"!", "b"}},
		"too long, at end": {"a\n" + long + "x", []string{"a", "!"}},
	} {
		r := newLineReader(strings.NewReader(c.in))
		var got []string
		for {
			line, err := r.next()
			if errors.Is(err, errLineTooLong) {
				got = append(got, "!")
				continue
			}
			if err != nil {
				break
			}
			got = append(got, string(line))
		}
		if !reflect.DeepEqual(got, c.want) || r.offset != int64(len(c.in)) {
			t.Errorf("%s: %d lines, %d bytes read", name, len(got), r.offset)
		}
	}
}
