package cache

import (
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestWeakKeepsValuesInUse checks that all users of a key have the same value, and that unused values take no entry.
func TestWeakKeepsValuesInUse(t *testing.T) {
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
		t.Fatalf("Len() = %d, want the %d values in use", w.Len(), len(held))
	}
	for i, v := range held {
		if w.Get(i) != v || w.GetOrPut(i, func() *thing { return nil }) != v {
			t.Fatalf("key %d: got another value, want the one in use", i)
		}
	}
	all := w.Values()
	for _, v := range all {
		if v.name != "first" {
			t.Errorf("Values() has %+v, want only values that were stored", v)
		}
	}
	if len(all) != len(held) {
		t.Errorf("got %d values, want %d", len(all), len(held))
	}
	other := &thing{name: "second"}
	w.Put(0, other)
	w.Delete(0, held[0]) // which was replaced
	if w.Get(0) != other {
		t.Errorf("Get(0) = %v, want the replacement %v", w.Get(0), other)
	}
	w.Delete(100)
	if w.Get(100) != nil || w.Get(1) != nil {
		t.Errorf("Get of a deleted and an unused value = %v and %v, want nil", w.Get(100), w.Get(1))
	}
	runtime.KeepAlive(held)
}

// TestWeakMakesOneForMany checks that concurrent callers share a value, also after it was collected.
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
				t.Fatalf("two callers got %p and %p, want the same value", p, got[0])
			}
		}
		if round%10 == 0 {
			runtime.GC()
		}
	}
}
