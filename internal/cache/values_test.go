package cache

import (
	"slices"
	"strconv"
	"testing"
)

func TestValuesAreThoseOfBothGenerations(t *testing.T) {
	t.Parallel()
	m := New[int](64)
	want := 0
	for i := range 64 {
		m.Put(strconv.Itoa(i), i)
	}
	for i := range 64 {
		if v, ok := m.Get(strconv.Itoa(i)); ok && v == i {
			want++
		}
	}
	got := m.Values()
	if len(got) != m.Len() || want == 0 || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
		t.Errorf("Values() = %d values %v, want %d distinct ones", len(got), got, m.Len())
	}
}
