package cache

import (
	"runtime"
	"sync"
	"weak"
)

// Weak has values for as long as somebody else holds them, so that all who ask for one at the same time have the same,
// and none is kept for those who came once. Safe for concurrent use; the zero value is empty.
type Weak[K comparable, V any] struct {
	mu  sync.Mutex
	all map[K]weak.Pointer[V]
}

// Get returns the value, nil where nobody holds one.
func (w *Weak[K, V]) Get(key K) *V {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.all[key].Value()
}

// GetOrPut returns the value, or keeps and returns what fresh makes.
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

// Put has the value in the place of any other.
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
		if w.all[key] == mine { // nobody has made another
			delete(w.all, key)
		}
	}, key)
}

// Delete forgets the value, or, where one is given, that one alone.
func (w *Weak[K, V]) Delete(key K, only ...*V) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(only) == 0 || w.all[key].Value() == only[0] {
		delete(w.all, key)
	}
}

// Values returns those that somebody holds, in no order.
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

// Len returns how many entries there are, with those that are about to go.
func (w *Weak[K, V]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.all)
}
