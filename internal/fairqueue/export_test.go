package fairqueue

// Parties returns the number of parties that the queue remembers.
func (q *Queue[P]) Parties() int { return len(q.parties) }
