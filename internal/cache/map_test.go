package cache

import (
	"strconv"
	"sync"
	"testing"
)

func TestMapIsBoundedAndKeepsWhatIsUsed(t *testing.T) {
	t.Parallel()
	const size = 320
	m := New[int](size)
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
	m := New[int](64)
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
	m := New[*int](64)
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
