// Package cache has the maps behind the caches that every request uses.
//
// It is a sharded map instead of a caching library, because a removal takes effect at once for every reader, the bound is
// exact, look-ups by text allocate nothing, and there is no background goroutine.
package cache

import (
	"hash/maphash"
	"sync"
)

const shards = 16

// Map holds at most a fixed number of entries. It evicts the least recently used ones first, by generations. Safe for
// concurrent use. Make one with New.
type Map[V any] struct {
	seed   maphash.Seed
	shards [shards]shard[V]
}

type shard[V any] struct {
	mu         sync.RWMutex
	young, old map[string]V
	half       int
	_          [64]byte // keeps the locks of adjacent shards on different cache lines
}

// New returns a Map of at most size entries. The smallest size is 32.
func New[V any](size int) *Map[V] {
	m := &Map[V]{seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].half = max(1, size/shards/2)
		m.shards[i].young = map[string]V{}
	}
	return m
}

func (m *Map[V]) shard(key string) *shard[V] {
	return &m.shards[maphash.String(m.seed, key)%shards]
}

// Get returns the entry.
func (m *Map[V]) Get(key string) (V, bool) {
	s := m.shard(key)
	s.mu.RLock()
	v, ok := s.young[key]
	if ok {
		s.mu.RUnlock()
		return v, true
	}
	_, ok = s.old[key]
	s.mu.RUnlock()
	if !ok {
		return v, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok = s.young[key]; ok {
		return v, true
	}
	if v, ok = s.old[key]; ok { // it may have been evicted meanwhile
		s.put(key, v)
	}
	return v, ok
}

// Put stores the entry.
func (m *Map[V]) Put(key string, v V) {
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(key, v)
}

// GetOrPut returns the entry, or stores and returns the result of fresh. Concurrent callers get the same value.
func (m *Map[V]) GetOrPut(key string, fresh func() V) V {
	if v, ok := m.Get(key); ok {
		return v
	}
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if v, ok := s.young[key]; ok {
		return v
	}
	v, ok := s.old[key]
	if !ok {
		v = fresh()
	}
	s.put(key, v)
	return v
}

// Delete removes the entry.
func (m *Map[V]) Delete(key string) {
	s := m.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.young, key)
	delete(s.old, key)
}

func (s *shard[V]) put(key string, v V) {
	if _, ok := s.young[key]; !ok && len(s.young) >= s.half {
		s.old, s.young = s.young, map[string]V{}
	}
	s.young[key] = v
	delete(s.old, key)
}
