package sqlite

import (
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/cache"
)

// maxRecent bounds the cached documents of one database, and maxRecentSize the size of each.
const (
	maxRecent     = 256
	maxRecentSize = 16 << 10
)

// recentCache caches documents that were just found by id or by a query for a single document. An entry is valid until
// its partition changes, which a write notes before it is acknowledged, and for at most snapshotAge. Safe for
// concurrent use.
type recentCache struct {
	docs cache.Few[recentKey, recentDoc]
}

// recentKey identifies a document by its id, or by the query that found it.
type recentKey struct {
	ws    int64
	t     *table
	id    string
	query string // the cacheKey of the query; id is empty then
}

func (at recentKey) partition() partition { return partition{at.ws, at.t.name} }

// recentDoc is the result of a query in a snapshot; found is false if there was no document.
type recentDoc struct {
	doc        driver.Document
	found      bool
	version    version // of the partition, before the snapshot
	snapshotAt time.Time
}

// get returns a valid entry. If there is none, it returns the version of the partition in an empty entry, for
// cacheRecent.
func (r *recentCache) get(db *database, at recentKey) (s recentDoc, ok bool) {
	s, ok = r.docs.Get(at)
	now := db.counts.version(at.partition())
	if ok && s.version == now && time.Since(s.snapshotAt) < snapshotAge {
		return s, true
	}
	return recentDoc{version: now}, false
}

// cacheRecent caches a document until the next sweep, which it schedules.
func (db *database) cacheRecent(at recentKey, s recentDoc) {
	db.recent.put(at, s)
	db.mu.Lock()
	defer db.mu.Unlock()
	if !db.armed {
		db.arm()
	}
}

func (r *recentCache) put(at recentKey, s recentDoc) {
	if len(at.query)+len(s.doc.Body)+len(s.doc.Custom) > maxRecentSize {
		return
	}
	r.docs.Put(at, s)
}
