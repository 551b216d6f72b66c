package limits

import (
	"sync"

	"tenantry/internal/cache"
)

// localCapacity bounds the number of parties that a process counts, separately for lasting and transient ones. The
// least recently used ones are dropped first.
const localCapacity = 65_536

// local counts in this process, with the arithmetic of the script.
type local struct {
	parties *cache.Map[string, *party]
	// transient are addresses of callers without credentials, and organizations that do not exist. They are kept apart
	// because they are unlimited in number and would displace the others.
	transient *cache.Map[string, *party]
}

// party holds the meters of one party.
type party struct {
	mu          sync.Mutex
	rate, quota meter
}

func newLocal() *local {
	return &local{
		parties: cache.New[string, *party](localCapacity), transient: cache.New[string, *party](localCapacity),
	}
}

// lock locks the parties of the rules and appends their meters. The rules are ordered from the organization to the
// visitor, so all requests lock in the same order.
func (l *local) lock(rules []rule, meters []*meter) (held [maxParties]*party, _ []*meter) {
	n := 0
	for i := range rules {
		r := &rules[i]
		if i == 0 || r.holder != rules[i-1].holder {
			from := l.parties
			if r.transient {
				from = l.transient
			}
			held[n] = from.GetOrPut(r.holder, newParty)
			held[n].mu.Lock()
			n++
		}
		if r.suffix == rateSuffix {
			meters = append(meters, &held[n-1].rate)
		} else {
			meters = append(meters, &held[n-1].quota)
		}
	}
	return held, meters
}

func newParty() *party { return &party{} }

func unlock(held [maxParties]*party) {
	for _, a := range held {
		if a != nil {
			a.mu.Unlock()
		}
	}
}

func (l *local) decide(rules []rule, now int64) verdict {
	var buffer [maxRules]*meter
	held, meters := l.lock(rules, buffer[:0])
	defer unlock(held)
	return decide(meters, rules, now)
}

func (l *local) refund(rules []rule, now int64) {
	var buffer [maxRules]*meter
	held, meters := l.lock(rules, buffer[:0])
	defer unlock(held)
	giveBack(meters, rules, now)
}
