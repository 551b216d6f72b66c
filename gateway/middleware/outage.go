package middleware

import (
	"sync"
	"time"
)

// outageLogInterval is the interval at which the cause of an outage is logged for one operation. Each request has a
// line of its own, so repeating the same cause for each would only hide others.
const outageLogInterval = 10 * time.Second

// outages limits how often operations log why they are unavailable. There are at most as many entries as operations.
// The zero value is ready to use. Safe for concurrent use.
type outages struct {
	mu   sync.Mutex
	logs map[string]outageLog // by operation
}

type outageLog struct {
	at         time.Time
	suppressed int // causes not logged since
}

// admit reports whether to log the cause now, and how many causes were suppressed since the last one.
func (o *outages) admit(operation string, now time.Time) (ok bool, suppressed int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	last, known := o.logs[operation]
	if age := now.Sub(last.at); known && age >= 0 && age < outageLogInterval {
		last.suppressed++
		o.logs[operation] = last
		return false, 0
	}
	if o.logs == nil {
		o.logs = map[string]outageLog{}
	}
	o.logs[operation] = outageLog{at: now}
	return true, last.suppressed
}
