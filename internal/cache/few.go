package cache

import "sync"

// Few is a Map with one lock. It allocates no maps while it is empty. Size must be set before the first use. Safe for
// concurrent use.
type Few[K comparable, V any] struct {
	Size int // maximum number of entries; at least 2

	mu         sync.RWMutex
	young, old map[K]V
}

// Get returns the entry.
func (f *Few[K, V]) Get(key K) (V, bool) {
	f.mu.RLock()
	v, ok := f.young[key]
	if ok {
		f.mu.RUnlock()
		return v, true
	}
	_, ok = f.old[key]
	f.mu.RUnlock()
	if !ok {
		return v, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.get(key)
}

// get returns the entry and moves it to the young generation. f.mu is held.
func (f *Few[K, V]) get(key K) (V, bool) {
	if v, ok := f.young[key]; ok {
		return v, true
	}
	v, ok := f.old[key]
	if ok {
		f.put(key, v)
	}
	return v, ok
}

// Put stores the entry.
func (f *Few[K, V]) Put(key K, v V) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.put(key, v)
}

// getOrPut returns the entry, or stores and returns the result of fresh.
func (f *Few[K, V]) getOrPut(key K, fresh func() V) V {
	if v, ok := f.Get(key); ok {
		return v
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.get(key)
	if !ok {
		v = fresh()
		f.put(key, v)
	}
	return v
}

// Delete removes the entry.
func (f *Few[K, V]) Delete(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.young, key)
	delete(f.old, key)
}

// Clear removes all entries and releases their memory.
func (f *Few[K, V]) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.young, f.old = nil, nil
}

// Len returns the number of entries.
func (f *Few[K, V]) Len() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.young) + len(f.old)
}

// put stores the entry in the young generation. A full young generation replaces the old one first. f.mu is held.
func (f *Few[K, V]) put(key K, v V) {
	if _, ok := f.young[key]; !ok && len(f.young) >= max(1, f.Size/2) {
		f.old, f.young = f.young, nil
	}
	if f.young == nil {
		f.young = map[K]V{}
	}
	f.young[key] = v
	delete(f.old, key)
}
