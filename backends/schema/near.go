package schema

import "strings"

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
		typos := 1
		switch {
		case len(b) >= 8:
			typos = maxTypos
		case len(b) <= 5 && a[0] != b[0]:
			typos = 0
		}
		if n := distance(a, b); n <= typos && n < least {
			best, least = known, n
		}
	}
	return best
}

const maxTypos = 2

// distance returns how many characters are to be inserted, removed, replaced or swapped with
// their neighbour to make a of b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
		for j := range b {
			if i == 0 {
				rows[0][j+1] = j + 1
				continue
			}
			change := rows[i-1][j]
			if a[i-1] != b[j] {
				change++
			}
			rows[i][j+1] = min(change, rows[i-1][j+1]+1, rows[i][j]+1)
			if i > 1 && j > 0 && a[i-1] == b[j-1] && a[i-2] == b[j] {
				rows[i][j+1] = min(rows[i][j+1], rows[i-2][j-1]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
