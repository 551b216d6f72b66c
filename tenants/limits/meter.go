package limits

import (
	"time"

	"tenantry/internal/rate"
)

// meter is what one limit remembers: GCRA, written as the leaky bucket that it equals.
// Instead of a theoretical arrival time it holds how full the bucket is, in units of
// which a request adds period and a millisecond drains count. Everything stays a whole
// number below 2^53 that way, for any count, and the twin in Lua cannot differ by a
// rounding. The zero value is an empty bucket.
type meter struct {
	level int64
	at    int64      // Unix milliseconds at which level was true
	limit rate.Limit // by which it was filled
}

// full is the level at which a limit admits nothing more.
func full(l rate.Limit) int64 { return l.Count() * l.Period() }

// drained returns the meter as it is now, under the limit that holds now. Where the limit
// was changed, what was used stays used: 30 of 100 become 30 of 200.
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

// admits reports whether one more request fits, of a meter that is drained.
func (m meter) admits() bool { return m.level+m.limit.Period() <= full(m.limit) }

// wait returns the milliseconds until one more request fits.
func (m meter) wait() int64 {
	return max(ceil(m.level+m.limit.Period()-full(m.limit), m.limit.Count()), 0)
}

// remaining returns how many requests fit.
func (m meter) remaining() int64 { return (full(m.limit) - m.level) / m.limit.Period() }

// reset returns the milliseconds until the bucket is empty, which is all that fits.
func (m meter) reset() int64 { return ceil(m.level, m.limit.Count()) }

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// Decision is what became of a request.
type Decision struct {
	// Refused: the request is over a limit, and none of its limits counted it.
	Refused bool
	// Limit is the tightest of those that govern the request: of a refused one that with
	// the longest wait, else the one with the fewest requests left. Zero: there is none. Of a
	// stranger it is the address's, whatever refused the request: the organization's are not told.
	Limit     rate.Limit
	Name      string        // of what refused the request, else of Limit, "organization quota" for one; "": nothing counted it
	Remaining int64         // requests that Limit admits at once
	Reset     time.Duration // until Limit is full again
	Wait      time.Duration // of a refused request, until the same would be admitted; 0: not refused, or not told
}

// decide counts a request on all meters, or on none where one refuses. The Lua script does
// the same, step by step.
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
		// What was only drained can be drained again later; a change of the limit or of the
		// clock must be noted, or it would be met anew each time.
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

// giveBack takes one request off the meters again.
func giveBack(meters []*meter, rules []rule, now int64) {
	for i, m := range meters {
		*m = m.drained(rules[i].limit, now)
		m.level = max(m.level-m.limit.Period(), 0)
	}
}

// verdict is a decision in terms of the rules that were asked.
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
