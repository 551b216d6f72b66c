package cache

// Values returns the entries there are, in no order. What is put in meanwhile may be
// missing.
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

// Len returns how many entries there are.
func (m *Map[V]) Len() (n int) {
	for i := range m.shards {
		s := &m.shards[i]
		s.mu.RLock()
		n += len(s.young) + len(s.old)
		s.mu.RUnlock()
	}
	return n
}
