package tenants

// ForgetAll invalidates everything cached about organizations: the next Resolve of each reads it again. It is called
// when announcements of other processes may have been missed.
func (d *Directory) ForgetAll() {
	for _, s := range d.slots.Values() {
		s.mu.Lock()
		s.gen++
		s.flight = nil // as in forget: a read that began earlier may be stale
		s.answer.Store(nil)
		s.mu.Unlock()
	}
}
