package cache

import (
	"runtime"
	"sync"
	"weak"
)

// Weak holds values only as long as other code refers to them. So concurrent users of a key share one value, and unused
// values take no memory. Safe for concurrent use; the zero value is empty.
type Weak[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]weak.Pointer[V]
}

// Get returns the value, or nil if none is in use.
func (w *Weak[K, V]) Get(key K) *V {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[key].Value()
}

// GetOrPut returns the value, or stores and returns the result of fresh.
func (w *Weak[K, V]) GetOrPut(key K, fresh func() *V) *V {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.all[key].Value()
	if v == nil {
		v = fresh()
		w.put(key, v)
	}
	return v
}

// Put stores the value and replaces any other.
func (w *Weak[K, V]) Put(key K, v *V) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all[key].Value() != v {
		w.put(key, v)
	}
}

func (w *Weak[K, V]) put(key K, v *V) {
	if w.all == nil {
		w.all = map[K]weak.Pointer[V]{}
	}
	mine := weak.Make(v)
	w.all[key] = mine
	runtime.AddCleanup(v, func(key K) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.all[key] == mine { // it was not replaced
			delete(w.all, key)
		}
	}, key)
}

// Delete removes the value. If only is given, it removes the value only if it is that one.
func (w *Weak[K, V]) Delete(key K, only ...*V) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(only) == 0 || w.all[key].Value() == only[0] {
		delete(w.all, key)
	}
}

// Values returns the values in use, in no order.
func (w *Weak[K, V]) Values() []*V {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]*V, 0, len(w.all))
	for _, v := range w.all {
		if v := v.Value(); v != nil {
			all = append(all, v)
		}
	}
	return all
}

// Len returns the number of entries, including those that are about to be removed.
func (w *Weak[K, V]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}
