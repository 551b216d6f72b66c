package fairqueue

import "maps"

// Turns assigns start times to the work of parties (start-time fair queueing). Work starts when the party's previous
// work ends, but not before now, and the work with the earliest start is next. So the party that used least is served
// first, and a party without work saves up no turns. Costs may have any unit. The zero value is ready. Not safe for
// concurrent use.
type Turns[Party comparable] struct {
	ends map[Party]int64
	now  int64
}

// Start returns the start of new work with that cost, which is more than 0.
func (t *Turns[P]) Start(party P, cost int64) int64 {
	if t.ends == nil {
		t.ends = map[P]int64{}
	}
	start := max(t.now, t.ends[party])
	t.ends[party] = start + cost
	return start
}

// Cancel subtracts the cost of work that Start has counted and that is not served.
func (t *Turns[P]) Cancel(party P, cost int64) {
	if end, ok := t.ends[party]; ok {
		t.ends[party] = end - cost
	}
}

// Serve records that the work with this start and cost is served, while so many parties have work. It advances now, so
// work of new parties starts no earlier than work that has waited for its share, however many new parties come.
func (t *Turns[P]) Serve(start, cost int64, parties int) {
	t.now = max(t.now, start) + max(cost/int64(max(parties, 1)), 1)
	maps.DeleteFunc(t.ends, func(_ P, end int64) bool { return end <= t.now })
}

// Known returns the number of parties whose work ends after now.
func (t *Turns[P]) Known() int { return len(t.ends) }
