package audit

import (
	"maps"
	"sync"
	"time"
)

// written are the organizations in whose logs this process has written records that may not be in a tree yet.
type written struct {
	mu   sync.Mutex
	last map[int64]time.Time // when the last record was written; made when it is needed
}

func (w *written) note(org int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[int64]time.Time{}
	}
	w.last[org] = time.Now()
}

// Written returns the numbers of the organizations in whose logs this process has written records since Covered, each
// with the time of the last one; 0 is the installation.
func (l *Log) Written() map[int64]time.Time {
	l.ahead.mu.Lock()
	defer l.ahead.mu.Unlock()
	return maps.Clone(l.ahead.last)
}

// Covered forgets an organization if the last record was written at that time: it is in the tree.
func (l *Log) Covered(org int64, last time.Time) {
	l.ahead.mu.Lock()
	defer l.ahead.mu.Unlock()
	if l.ahead.last[org].Equal(last) {
		delete(l.ahead.last, org)
	}
}
