package cache

// Values returns all entries, in no order. Entries that are added meanwhile may be missing.
func (m *Map[V]) Values() []V {
	var all []V
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.RLock()
		for _, generation := range []map[string]V{s.young, s.old} {
			for _, v := range generation {
				all = append(all, v)
			}
		}
		s.mu.RUnlock()
	}
	return all
}

// Len returns the number of entries.
func (m *Map[V]) Len() (n int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.RLock()
		n += len(s.young) + len(s.old)
		s.mu.RUnlock()
	}
	return n
}
