package storetest

import (
	"math"
	"slices"
)

// sameRows reports whether rows are equal. Floats may differ in the last digits, because engines add in different
// orders.
func sameRows(a, b [][]any) bool {
	return slices.EqualFunc(a, b, func(x, y []any) bool { return slices.EqualFunc(x, y, same) })
}

func same(a, b any) bool {
	x, isNumber := number(a)
	y, both := number(b)
	if !isNumber || !both {
		return a == b
	}
	return x == y || math.Abs(x-y) <= 1e-9*max(math.Abs(x), math.Abs(y))
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}
