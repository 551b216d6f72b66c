package schema

import (
	"strings"

	"tenantry/internal/typos"
)

// misspelled returns the known type that text is most likely meant to be, "" where it is a
// known one or close to none. Case does not count. The shorter a name, the
// closer it must be: an organization may well have a type Rate beside Date, and Member beside
// Number.
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
