package tenants

// ForgetAll makes what is cached about every organization void: the next Resolve of each
// reads again. It is called where announcements of other processes may have been missed.
func (d *Directory) ForgetAll() {
	for _, s := range d.slots.Values() {
		s.mu.Lock()
		s.gen++
		s.flight = nil // as in forget: a read that began before says nothing
		s.answer.Store(nil)
		s.mu.Unlock()
	}
}
