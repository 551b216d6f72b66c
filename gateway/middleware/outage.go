package middleware

import (
	"sync"
	"time"
)

// tellEvery is how often the cause of an outage is logged for one operation. Every request
// has its own line in any case; a thousand times the same cause would hide the others.
const tellEvery = 10 * time.Second

// outages remembers when an operation last said why it is unavailable. The zero value is
// ready; there are no more entries than operations. Safe for concurrent use.
type outages struct {
	mu   sync.Mutex
	told map[string]telling
}

type telling struct {
	at     time.Time
	untold int
}

// tell reports whether to log the cause now, and how often it was not logged before.
func (o *outages) tell(operation string, now time.Time) (tell bool, untold int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t, known := o.told[operation]
	if age := now.Sub(t.at); known && age >= 0 && age < tellEvery {
		t.untold++
		o.told[operation] = t
		return false, 0
	}
	if o.told == nil {
		o.told = map[string]telling{}
	}
	o.told[operation] = telling{at: now}
	return true, t.untold
}
