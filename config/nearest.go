package config

import "strings"

// Nearest returns the name that what was given is a misspelling of, "" where none is near:
// one that begins with it, or differs in at most two letters, and in a third of its own.
func Nearest(given string, names []string) string {
	given = strings.ToLower(given)
	best, least := "", min(2, len(given)/2)+1
	for _, name := range names {
		d := distance(given, strings.ToLower(name))
		if len(given) >= 3 && strings.HasPrefix(strings.ToLower(name), given) {
			d = 0
		}
		if d < least && d <= max(1, len(name)/3) {
			best, least = name, d
		}
	}
	return best
}

// distance is how many letters are put in, left out or replaced between the two.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = min(before, row[j], row[j+1]) + 1
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
