// Package typos finds the name of which a text is probably a misspelling.
package typos

import "strings"

// Nearest returns the name of which given is probably a misspelling, or "". It is a name that begins with given, or the
// one that differs least, in at most two letters and at most a third of its own.
func Nearest(given string, names []string) string {
	given = strings.ToLower(given)
	best, least := "", min(2, len(given)/2)+1
	for _, name := range names {
		d := Distance(given, strings.ToLower(name))
		if len(given) >= 3 && strings.HasPrefix(strings.ToLower(name), given) {
			d = 0
		}
		if d < least && d <= max(1, len(name)/3) {
			best, least = name, d
		}
	}
	return best
}

// Distance returns how many bytes must be inserted, removed, replaced or swapped with their neighbour to turn b into a.
// Its time grows with the product of their lengths.
func Distance(a, b string) int {
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
