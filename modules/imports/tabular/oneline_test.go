package tabular

import "testing"

func TestOneLine(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"  plain ":                "plain",
		"two\tcells\r\nof one":    "two cells of one",
		"Academy \u0093Old\u0094": "Academy “Old”",
		"a \u0096 b":              "a – b",
		"\u0081undefined":         "undefined",
		"bell\a":                  "bell",
	} {
		if got := oneLine(given); got != want {
			t.Errorf("%q becomes %q, not %q", given, got, want)
		}
	}
}
