package limits

import (
	"sync"

	"tenantry/internal/cache"
)

// maxAccounts bounds the parties whose requests this process counts, and once more the addresses of callers whom
// nobody knows, with organizations that are nobody's; the ones seen least recently are forgotten first.
const maxAccounts = 65_536

// local counts in this process, by the arithmetic of the script.
type local struct {
	accounts *cache.Map[string, *account]
	// passing are the addresses of callers whom nobody knows, and organizations that are nobody's: however many there
	// are, they drive out nobody but each other.
	passing *cache.Map[string, *account]
}

// account is one party's meters.
type account struct {
	mu          sync.Mutex
	rate, quota meter
}

func newLocal() *local {
	return &local{accounts: cache.New[string, *account](maxAccounts), passing: cache.New[string, *account](maxAccounts)}
}

// hold locks the parties of the rules and appends their meters. The organization's rules
// come first, a visitor's last, so that everybody locks in the same order.
func (l *local) hold(rules []rule, meters []*meter) (held [maxParties]*account, _ []*meter) {
	parties := 0
	for i := range rules {
		r := &rules[i]
		if i == 0 || r.holder != rules[i-1].holder {
			from := l.accounts
			if r.passing {
				from = l.passing
			}
			held[parties] = from.GetOrPut(r.holder, newAccount)
			held[parties].mu.Lock()
			parties++
		}
		if r.suffix == rateSuffix {
			meters = append(meters, &held[parties-1].rate)
		} else {
			meters = append(meters, &held[parties-1].quota)
		}
	}
	return held, meters
}

func newAccount() *account { return &account{} }

func release(held [maxParties]*account) {
	for _, a := range held {
		if a != nil {
			a.mu.Unlock()
		}
	}
}

func (l *local) decide(rules []rule, now int64) verdict {
	var buffer [maxRules]*meter
	held, meters := l.hold(rules, buffer[:0])
	defer release(held)
	return decide(meters, rules, now)
}

func (l *local) returnOne(rules []rule, now int64) {
	var buffer [maxRules]*meter
	held, meters := l.hold(rules, buffer[:0])
	defer release(held)
	giveBack(meters, rules, now)
}
