// Package typos measures how far a misspelling is from a name.
package typos

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
