package texts

import (
	"strings"
	"testing"
)

func TestClip(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                            "",
		strings.Repeat("a", 64):       strings.Repeat("a", 64),
		strings.Repeat("a", 65):       strings.Repeat("a", 64) + "...",
		strings.Repeat("a", 63) + "é": strings.Repeat("a", 63) + "...",
		"a\xffb":                      "a?b",
	} {
		if got := Clip(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	if got := Time(1717509162005); got != "2024-06-04T13:52:42.005Z" {
		t.Error(got)
	}
}
