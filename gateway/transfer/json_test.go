package transfer

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

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
		if got := sniff(line); got != want {
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
		r := NewLineReader(strings.NewReader(c.in), MaxLine)
		var got []string
		for {
			line, err := r.Next()
			if errors.Is(err, ErrLineTooLong) {
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
