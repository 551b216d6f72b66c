package cache

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestWeakHasWhatIsHeld: all who hold a value have the same one, and what nobody holds takes no entry.
func TestWeakHasWhatIsHeld(t *testing.T) {
	t.Parallel()
	type thing struct{ name string }
	var w Weak[int, thing]
	held := map[int]*thing{}
	for i := range 10_000 {
		v := w.GetOrPut(i, func() *thing { return &thing{name: "first"} })
		if i%100 == 0 {
			held[i] = v
		}
	}
	for deadline := time.Now().Add(time.Minute); w.Len() > len(held) && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		runtime.GC()
	}
	if w.Len() != len(held) {
		t.Fatalf("%d entries of %d that are held", w.Len(), len(held))
	}
	for i, v := range held {
		if w.Get(i) != v || w.GetOrPut(i, func() *thing { return nil }) != v {
			t.Fatal("another was made while one was held")
		}
	}
	all := w.Values()
	for _, v := range all {
		if v.name != "first" {
			t.Errorf("%+v was never put there", v)
		}
	}
	if len(all) != len(held) {
		t.Errorf("%d values of %d that are held", len(all), len(held))
	}
	other := &thing{name: "second"}
	w.Put(0, other)
	w.Delete(0, held[0]) // that is not the one any more
	if w.Get(0) != other {
		t.Error("the one that took the place of another is gone")
	}
	w.Delete(100)
	if w.Get(100) != nil || w.Get(1) != nil {
		t.Error("what was forgotten, or held by nobody, is still there")
	}
	runtime.KeepAlive(held)
}

// TestWeakMakesOneForMany: however often it is let go and asked for again.
func TestWeakMakesOneForMany(t *testing.T) {
	t.Parallel()
	var w Weak[string, [64]byte]
	for round := range 50 {
		var wg sync.WaitGroup
		got := make([]*[64]byte, 8)
		for i := range got {
			wg.Go(func() { got[i] = w.GetOrPut("k", func() *[64]byte { return new([64]byte) }) })
		}
		wg.Wait()
		for _, p := range got {
			if p != got[0] {
				t.Fatal("two callers have different values")
			}
		}
		if round%10 == 0 {
			runtime.GC()
		}
	}
}
