package schema

import (
	"strings"

	"tenantry/internal/typos"
)

// misspelled returns the known type that text most likely means, "" if it is a known type or not similar to one. Case
// is ignored. Shorter names must be more similar, because an organization may have a type Rate as well as Date, or
// Member as well as Number.
func misspelled(text string) string {
	best, least := "", len(text)+maxTypos
	for _, known := range KnownTypes() {
		if text == known {
			return ""
		}
		a, b := strings.ToLower(text), strings.ToLower(known)
		most := 1
		switch {
		case len(b) >= 8:
			most = maxTypos
		case len(b) <= 5 && a[0] != b[0]:
			most = 0
		}
		if n := typos.Distance(a, b); n <= most && n < least {
			best, least = known, n
		}
	}
	return best
}

const maxTypos = 2
