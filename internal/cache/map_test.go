package cache

import (
	"slices"
	"strconv"
	"sync"
	"testing"
)

func TestMapIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	const size = 320
	m := New[string, int](size)
	m.Put("used", 1)
	for i := range 100_000 {
		m.Put(strconv.Itoa(i), i)
		if i%5 == 0 {
			if v, ok := m.Get("used"); !ok || v != 1 {
				t.Fatalf("an entry in use left after %d others", i)
			}
		}
	}
	if n := m.Len(); n > size || n < size/4 {
		t.Errorf("%d entries, want at most %d", n, size)
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
			t.Fatalf("entry %d is still there", i)
		}
	}
	if m.Len() != 0 {
		t.Errorf("%d entries left", m.Len())
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
			t.Fatal("two callers have different values")
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
		t.Errorf("%d values %v of %d entries", len(got), got, m.Len())
	}
}

func TestFewIsCleared(t *testing.T) {
	t.Parallel()
	f := Few[int, int]{Size: 8}
	for i := range 100 {
		f.Put(i, i)
	}
	if v, ok := f.Get(99); !ok || v != 99 || f.Len() > 8 || f.Len() < 4 {
		t.Errorf("the last is %d, %t, of %d entries, want at most 8", v, ok, f.Len())
	}
	if f.Clear(); f.Len() != 0 {
		t.Errorf("%d entries are left", f.Len())
	}
}
