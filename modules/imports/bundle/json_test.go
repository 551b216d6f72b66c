package bundle

import (
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
			t.Fatalf("%q: got %+v %v, want (r.Failed > 0) = %v and r.Lines = 1 and r.Created+r.Updated+r.Unchanged+r.Failed = 1",
				line, r, err, (err != nil))
		}
		for _, p := range r.Problems {
			if len(p.Errors) == 0 || len(p.String()) > 20_000 {
				t.Fatalf("%q: got %v, want len(p.Errors) > 0 and len(p.String()) <= 20_000", line, p)
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
