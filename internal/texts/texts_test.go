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
			t.Errorf("Clip(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestTime(t *testing.T) {
	t.Parallel()
	if got := Time(1717509162005); got != "2024-06-04T13:52:42.005Z" {
		t.Errorf(`Time = %q, want "2024-06-04T13:52:42.005Z"`, got)
	}
}

func TestPlain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text, more   string
		plain, lower bool
	}{
		{"", "", false, false}, {"az09", "", true, true}, {"AZ", "", true, false}, {"a-b", "", false, false}, {"a-b", "_-", true, true},
		{"A_b", "_-", true, false}, {"abcde", "", true, true}, {"abcdef", "", false, false}, {"\xe1", "", false, false}, {"a\n", "_-", false, false},
		{"@", "", false, false}, {"[", "", false, false}, {"`", "", false, false}, {"{", "", false, false}, {"/", "", false, false}, {":", "", false, false}, {"\x01", "", false, false},
	} {
		if plain, lower := Plain(tt.text, 5, tt.more), PlainLower(tt.text, 5, tt.more); plain != tt.plain || lower != tt.lower {
			t.Errorf("%q with %q: got plain %v and lower %v, want %v and %v", tt.text, tt.more, plain, lower, tt.plain, tt.lower)
		}
	}
}

func TestNoSuchTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"1999-02-30": true, "2024-13-01": true, "2024-05-17T25:00:00Z": true, "2023-02-29T08:30:00Z": true,
		"2024-05-17": false, "2024-05-17T08:30:00Z": false, "tomorrow": false, "": false,
		"1999-02-30T08:30:00." + strings.Repeat("0", 30) + "Z": false, // too long to be looked at
		"17.05.2024": false,
	} {
		if got := NoSuchTime(text) != ""; got != want {
			t.Errorf("NoSuchTime(%q) says so: %t, want %t", text, got, want)
		}
	}
}
