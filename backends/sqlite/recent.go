package sqlite

import (
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/cache"
)

// maxRecent bounds the documents of one database that are kept, and maxRecentSize each of them.
const (
	maxRecent     = 256
	maxRecentSize = 16 << 10
)

// recent are documents read a moment ago, by their ids or as the one that meets a condition. One is answered again
// for as long as the reader that read it would answer from the same snapshot, had nobody written to other tables:
// until something of its shelf is committed, and never after snapshotAge.
// So who asks sees what the file would have shown, without asking it.
type recent struct{ docs cache.Few[place, seen] }

// place is where a document lies, or what it was asked for with.
type place struct {
	ws    int64
	t     *table
	id    string
	asked string // see countKey; then the id is empty
}

func (at place) shelf() shelf { return shelf{at.ws, at.t.name} }

// seen is a document of a snapshot; found is false where there was none.
type seen struct {
	doc   driver.Document
	found bool
	at    standing // of its shelf, before the snapshot
	began time.Time
}

// get returns what is still seen at a place, or where its shelf stands, for put.
func (r *recent) get(db *database, at place) (s seen, ok bool) {
	s, ok = r.docs.Get(at)
	now := db.counts.standing(at.shelf())
	if ok && s.at == now && time.Since(s.began) < snapshotAge {
		return s, true
	}
	return seen{at: now}, false
}

// keep keeps a document until the next sweep, which it sees to.
func (db *database) keep(at place, s seen) {
	db.recent.put(at, s)
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.armed {
		db.arm()
	}
}

func (r *recent) put(at place, s seen) {
	if len(at.asked)+len(s.doc.Body)+len(s.doc.Custom) > maxRecentSize {
		return
	}
	r.docs.Put(at, s)
}
