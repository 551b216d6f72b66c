package typos_test

import (
	"testing"

	"tenantry/internal/typos"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"listen", "listen", 0}, {"lisen", "listen", 1}, {"litsen", "listen", 1},
		{"nubmer", "number", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}, {"abcd", "badc", 2},
	} {
		for range 2 {
			if got := typos.Distance(c.a, c.b); got != c.want {
				t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
			}
			c.a, c.b = c.b, c.a
		}
	}
}
