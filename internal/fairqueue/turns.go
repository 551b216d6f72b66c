package fairqueue

import "maps"

// Turns tell where the work of parties starts (start-time fair queueing): where the work of the same party before it
// ends, but not before now. What starts first is next. So who had least is served first, and who wants nothing saves up
// no turns. Costs are of any one unit. The zero value is ready. Not safe for concurrent use.
type Turns[Party comparable] struct {
	ends map[Party]int64
	now  int64
}

// Start returns where work of that cost, more than 0, starts.
func (t *Turns[P]) Start(party P, cost int64) int64 {
	if t.ends == nil {
		t.ends = map[P]int64{}
	}
	start := max(t.now, t.ends[party])
	t.ends[party] = start + cost
	return start
}

// Cancel takes back what Start has counted for work that is not served.
func (t *Turns[P]) Cancel(party P, cost int64) {
	if end, ok := t.ends[party]; ok {
		t.ends[party] = end - cost
	}
}

// Serve notes that work which starts there is served, for one of so many parties that want something. Of whoever comes
// now nobody starts before those who have waited for their part of it, however many new parties come.
func (t *Turns[P]) Serve(start, cost int64, parties int) {
	t.now = max(t.now, start) + max(cost/int64(max(parties, 1)), 1)
	maps.DeleteFunc(t.ends, func(_ P, end int64) bool { return end <= t.now })
}

// Known returns how many parties have had more than others would get now.
func (t *Turns[P]) Known() int { return len(t.ends) }
