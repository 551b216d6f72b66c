// Package cache has the caches of the process.
//
// A Map is bounded by the number of its entries, and serves what every request asks; Few is a Map of one lock, for what
// there are many caches of. A Weak is bounded by who holds its values, so that all have the same one.
//
// A sharded map was taken rather than a caching library: removing an entry holds at once
// and for every reader, the bound is exact, look-ups allocate nothing, and no
// goroutine runs behind it.
package cache

import (
	"hash/maphash"
)

const shards = 16

// Map holds at most a fixed number of entries; the least recently used leave first, by
// generations. Safe for concurrent use. Make one with New.
type Map[K comparable, V any] struct {
	seed   maphash.Seed
	shards [shards]struct {
		Few[K, V]
		_ [64]byte // keeps the locks of neighbours on different cache lines
	}
}

// New returns a Map of at most size entries, at least 32.
func New[K comparable, V any](size int) *Map[K, V] {
	m := &Map[K, V]{seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].Size = size / shards
	}
	return m
}

func (m *Map[K, V]) shard(key K) *Few[K, V] {
	return &m.shards[maphash.Comparable(m.seed, key)%shards].Few
}

// Get returns the entry.
func (m *Map[K, V]) Get(key K) (V, bool) { return m.shard(key).Get(key) }

// Put stores the entry.
func (m *Map[K, V]) Put(key K, v V) { m.shard(key).Put(key, v) }

// GetOrPut returns the entry, or stores and returns what fresh makes.
func (m *Map[K, V]) GetOrPut(key K, fresh func() V) V { return m.shard(key).getOrPut(key, fresh) }

// Delete removes the entry.
func (m *Map[K, V]) Delete(key K) { m.shard(key).Delete(key) }

// Values returns the entries there are, in no order. What is put in meanwhile may be
// missing.
func (m *Map[K, V]) Values() []V {
	var all []V
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.RLock()
		for _, generation := range []map[K]V{s.young, s.old} {
			for _, v := range generation {
				all = append(all, v)
			}
		}
		s.mu.RUnlock()
	}
	return all
}

// Len returns how many entries there are.
func (m *Map[K, V]) Len() (n int) {
	for i := range m.shards {
		n += m.shards[i].Len()
	}
	return n
}
