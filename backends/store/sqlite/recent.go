package sqlite

import (
	"sync"
	"time"

	"tenantry/backends/store/driver"
)

// maxRecent bounds the documents of one database that are kept, and maxRecentSize each of them.
const (
	maxRecent     = 256
	maxRecentSize = 16 << 10
)

// recent are documents read by their ids a moment ago. One is answered again for as long as the reader that
// read it would answer from the same snapshot: until something is committed, and never after snapshotAge.
// So who asks sees what the file would have shown, without asking it.
type recent struct {
	mu   sync.RWMutex
	docs map[place]seen
}

type place struct {
	ws int64
	t  *table
	id string
}

// seen is a document of a snapshot.
type seen struct {
	doc     driver.Document
	commits uint64
	began   time.Time
}

func (s *seen) holds(db *database) bool {
	return s.commits == db.commits.Load() && time.Since(s.began) < snapshotAge
}

func (r *recent) get(db *database, at place) (driver.Document, bool) {
	r.mu.RLock()
	s, ok := r.docs[at]
	r.mu.RUnlock()
	return s.doc, ok && s.holds(db)
}

func (r *recent) put(at place, s seen) {
	if len(s.doc.Body)+len(s.doc.Custom) > maxRecentSize {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.docs == nil || len(r.docs) >= maxRecent {
		r.docs = map[place]seen{}
	}
	r.docs[at] = s
}

// forget gives the memory back.
func (r *recent) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.docs = nil
}
