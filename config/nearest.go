package config

import (
	"strings"

	"tenantry/internal/typos"
)

// Nearest returns the name of which given is probably a misspelling, or "". It is a name that begins with given, or the
// one that differs least, in at most two letters and at most a third of its own.
func Nearest(given string, names []string) string {
	given = strings.ToLower(given)
	best, least := "", min(2, len(given)/2)+1
	for _, name := range names {
		d := typos.Distance(given, strings.ToLower(name))
		if len(given) >= 3 && strings.HasPrefix(strings.ToLower(name), given) {
			d = 0
		}
		if d < least && d <= max(1, len(name)/3) {
			best, least = name, d
		}
	}
	return best
}
