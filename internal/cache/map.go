// Package cache has the caches of the process.
//
// A Map is bounded by the number of its entries and serves the caches that every request uses. Few is a Map with one
// lock, for caches of which there are many. A Weak is bounded by the holders of its values, who all get the same one.
//
// Map is a sharded map instead of a caching library, because a removal takes effect at once for every reader, the bound
// is exact, look-ups allocate nothing, and there is no background goroutine.
package cache

import "hash/maphash"

const shards = 16

// Map holds at most a fixed number of entries. It evicts the least recently used ones first, by generations. Safe for
// concurrent use. Make one with New.
type Map[K comparable, V any] struct {
	seed   maphash.Seed
	shards [shards]struct {
		Few[K, V]
		_ [64]byte // keeps the locks of adjacent shards on different cache lines
	}
}

// New returns a Map of at most size entries. The smallest size is 32.
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

// GetOrPut returns the entry, or stores and returns the result of fresh. Concurrent callers get the same value.
func (m *Map[K, V]) GetOrPut(key K, fresh func() V) V { return m.shard(key).getOrPut(key, fresh) }

// Delete removes the entry.
func (m *Map[K, V]) Delete(key K) { m.shard(key).Delete(key) }

// Values returns all entries, in no order. Entries that are added meanwhile may be missing.
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

// Len returns the number of entries.
func (m *Map[K, V]) Len() (n int) {
	for i := range m.shards {
		n += m.shards[i].Len()
	}
	return n
}
