package limits

import (
	"time"

	"tenantry/internal/rate"
)

// meter is the state of one limit: GCRA in its equivalent form of a leaky bucket. Instead of a theoretical arrival time
// it stores the level of the bucket, in a unit of which a request adds period and a millisecond drains count. All
// numbers are then integers below 2^53 for any count, and the Lua version computes exactly the same. The zero value is
// an empty bucket.
type meter struct {
	level int64
	at    int64      // Unix milliseconds at which level was true
	limit rate.Limit // under which it was filled
}

// full returns the level at which a limit admits no more requests.
func full(l rate.Limit) int64 { return l.Count() * l.Period() }

// drained returns the meter as of now under the current limit. If the limit was changed, the number of used requests is
// kept: 30 of 100 become 30 of 200.
func (m meter) drained(l rate.Limit, now int64) meter {
	level := m.level
	// A clock that was set back must not keep the bucket from draining.
	if elapsed := max(now-m.at, 0); elapsed >= m.limit.Period() {
		level = 0
	} else {
		level = max(level-elapsed*m.limit.Count(), 0)
	}
	if level > 0 && m.limit != l {
		level = min(ceil(level, m.limit.Period())*l.Period(), full(l))
	}
	return meter{level, now, l}
}

// admits reports whether a drained meter has room for one more request.
func (m meter) admits() bool { return m.level+m.limit.Period() <= full(m.limit) }

// wait returns the milliseconds until there is room for one more request.
func (m meter) wait() int64 {
	return max(ceil(m.level+m.limit.Period()-full(m.limit), m.limit.Count()), 0)
}

// remaining returns how many more requests there is room for.
func (m meter) remaining() int64 { return (full(m.limit) - m.level) / m.limit.Period() }

// reset returns the milliseconds until the bucket is empty.
func (m meter) reset() int64 { return ceil(m.level, m.limit.Count()) }

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// Decision is the result for a request.
type Decision struct {
	// Refused means that a limit is used up. No limit counted the request.
	Refused bool
	// Limit is the tightest limit of the request: the one with the longest wait if the request is refused, otherwise
	// the one with the fewest requests left. Zero: there is none. For an Anonymous caller it is always that of the
	// address, because the organization's limits are not disclosed.
	Limit rate.Limit
	// Name is that of the limit that refused the request, otherwise that of Limit, such as "organization quota"; "": no
	// limit.
	Name      string
	Remaining int64         // requests that Limit admits at once
	Reset     time.Duration // until Limit is unused again
	Wait      time.Duration // until a refused request would be admitted; 0: not refused, or not disclosed
}

// decide counts a request on all meters, or on none if one refuses. takeScript does the same, step by step.
func decide(meters []*meter, rules []rule, now int64) verdict {
	refused := false
	var buffer [maxRules]meter
	next := buffer[:len(meters)]
	for i, m := range meters {
		next[i] = m.drained(rules[i].limit, now)
		refused = refused || !next[i].admits()
	}
	v := verdict{refused: refused, now: now}
	for i, m := range meters {
		n := &next[i]
		if !refused {
			n.level += n.limit.Period()
		}
		// Draining can be repeated later, but a change of the limit or of the clock must be stored, because otherwise
		// it would be applied each time.
		if !refused || m.limit != n.limit || now < m.at {
			*m = *n
		}
		left, wait := n.remaining(), n.wait()
		if refused && wait > v.wait || !refused && (i == 0 || left < v.remaining) {
			v.index, v.remaining, v.reset = i, left, n.reset()
			if refused {
				v.wait = wait
			}
		}
	}
	return v
}

// giveBack removes one request from the meters.
func giveBack(meters []*meter, rules []rule, now int64) {
	for i, m := range meters {
		*m = m.drained(rules[i].limit, now)
		m.level = max(m.level-m.limit.Period(), 0)
	}
}

// verdict is a decision in terms of the rules that were given.
type verdict struct {
	refused                     bool
	index                       int // of the tightest rule
	remaining, reset, wait, now int64
}

func (v verdict) decision(rules []rule) Decision {
	r := rules[v.index]
	return Decision{
		Refused: v.refused, Limit: r.limit, Name: r.name, Remaining: v.remaining,
		Reset: time.Duration(v.reset) * time.Millisecond, Wait: time.Duration(v.wait) * time.Millisecond,
	}
}
