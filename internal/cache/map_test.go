package cache

import (
	"slices"
	"strconv"
	"sync"
	"testing"
)

func TestMapIsBoundedAndKeepsUsedEntries(t *testing.T) {
	t.Parallel()
	const size = 320
	m := New[string, int](size)
	m.Put("used", 1)
	for i := range 100_000 {
		m.Put(strconv.Itoa(i), i)
		if i%5 == 0 {
			if v, ok := m.Get("used"); !ok || v != 1 {
				t.Fatalf("Get of an entry in use after %d others = %d, %v, want 1", i, v, ok)
			}
		}
	}
	if n := m.Len(); n > size || n < size/4 {
		t.Errorf("Len() = %d, want %d to %d", n, size/4, size)
	}
}

func TestMapDeletesFromBothGenerations(t *testing.T) {
	t.Parallel()
	m := New[string, int](64)
	for i := range 64 {
		m.Put(strconv.Itoa(i), i)
	}
	for i := range 64 {
		m.Delete(strconv.Itoa(i))
		if _, ok := m.Get(strconv.Itoa(i)); ok {
			t.Fatalf("Get of the deleted entry %d succeeded, want no entry", i)
		}
	}
	if m.Len() != 0 {
		t.Errorf("Len() = %d, want 0", m.Len())
	}
}

func TestMapMakesOneValueForMany(t *testing.T) {
	t.Parallel()
	m := New[string, *int](64)
	var wg sync.WaitGroup
	got := make([]*int, 32)
	for i := range got {
		wg.Go(func() { got[i] = m.GetOrPut("k", func() *int { return new(int) }) })
	}
	wg.Wait()
	for _, p := range got {
		if p != got[0] {
			t.Fatalf("two callers got %p and %p, want the same value", p, got[0])
		}
	}
}

func TestValuesAreThoseOfBothGenerations(t *testing.T) {
	t.Parallel()
	m := New[string, int](64)
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

func TestFewIsCleared(t *testing.T) {
	t.Parallel()
	f := Few[int, int]{Size: 8}
	for i := range 100 {
		f.Put(i, i)
	}
	if v, ok := f.Get(99); !ok || v != 99 || f.Len() > 8 || f.Len() < 4 {
		t.Errorf("Get(99) = %d, %t of %d entries, want 99, true and 4 to 8 entries", v, ok, f.Len())
	}
	if f.Clear(); f.Len() != 0 {
		t.Errorf("Len() after Clear = %d, want 0", f.Len())
	}
}
