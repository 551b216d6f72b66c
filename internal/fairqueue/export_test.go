package fairqueue

// Parties returns of how many parties the queue remembers something.
func (q *Queue[P]) Parties() int { return len(q.parties) }
