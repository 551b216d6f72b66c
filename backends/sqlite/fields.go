package sqlite

import (
	"cmp"
	"context"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// A condition on a custom field reads every document of the collection, unless the field has an index. The engine
// builds an index if queries turn out to need it.
//
// An index of SQLite would block all writes to the file while it is built, seconds for a million documents, and every
// write would have to consider it, whatever its workspace. So the indexes are rows of a table instead: each collection
// has one table with the entries of all its indexes, ordered by value, and triggers that keep the entries up to date.
// The entries of existing documents are stored in batches.
const (
	// A field gets an index after slowScans queries that took slowScan or longer.
	slowScan  = 20 * time.Millisecond
	slowScans = 2
	// minIndexedDocuments is the smallest number of documents for which an index is built.
	minIndexedDocuments = 5_000
	// maxFieldIndexes bounds the indexes of one kind of documents, because each slows writes. The least recently used
	// index makes room for another.
	maxFieldIndexes = 8
	// buildRun is the number of documents whose entries are sorted in memory, so that neighbouring entries are stored
	// together. They are stored in batches of minBatch to maxBatch; batchTime is how long other writes should wait for
	// one.
	buildRun           = 100_000
	minBatch, maxBatch = 200, 5_000
	batchTime          = 20 * time.Millisecond
	// unusedAfter is the time after which an unused index is dropped. The last use is stored in the file with a delay of
	// up to useInterval.
	unusedAfter = 7 * 24 * time.Hour
	useInterval = time.Hour
	// dropGrace is how long, beyond the duration of a query, the entries of a dropped index are kept up to date, because
	// running queries may still read them.
	dropGrace = 5 * time.Minute
	// maxJobs bounds the waiting background jobs. Further ones are dropped and requested again later.
	maxJobs = 64
	// maxFields bounds the fields of a file without an index whose slow queries are counted.
	maxFields = 256
	// maxCoveredCustom is the average size of the custom values of a document, in bytes, up to which entries include all
	// of them. A query with conditions on several custom fields then reads no document.
	maxCoveredCustom = 256
	// noValue takes the place of a missing value in an entry, whose key cannot be NULL. It is less than any value.
	// leastValue replaces smaller numbers that JSON can express.
	noValue, leastValue = "-9e999", "-1.7976931348623157e308"
)

// fieldKey identifies a custom field of a collection. ws is 0 in a file that is not shared; kind is empty if all
// documents of the collection have the same custom fields.
type fieldKey struct {
	ws                int64
	table, kind, name string
}

// fieldIndex is the state of the index on a custom field. Once it is ready, only its last use changes.
type fieldIndex struct {
	state       driver.IndexState // empty: there is no index
	reason      string
	slowQueries int // number of slow queries

	number       int64  // of its entries
	coversCustom bool   // the entries include all custom values
	tableSQL     string // the statement that created the table of entries

	lastUsed  atomic.Int64 // Unix nanoseconds
	storedUse int64        // the last use according to the file
}

// droppedIndex is an index that queries do not use any more since a time, and whose entries are to be deleted.
type droppedIndex struct {
	key    fieldKey
	number int64
	since  time.Time
}

// fieldIndexes are the indexes on custom fields of one file, and the fields whose slow queries are counted. The zero
// value has none. Safe for concurrent use.
type fieldIndexes struct {
	onChange func(some bool) // told whether the file has any; may be nil
	mu       sync.Mutex
	all      map[fieldKey]*fieldIndex
	dropped  []droppedIndex
	ready    atomic.Pointer[map[fieldKey]*fieldIndex] // ready indexes; nil before load
	file     os.FileInfo                              // the file that load has read; guarded by file.mutex
}

// indexedBy returns the ready index on a field, nil if there is none.
func (f *fieldIndexes) indexedBy(key fieldKey) *fieldIndex {
	have := f.ready.Load()
	if have == nil {
		return nil
	}
	return (*have)[key]
}

// perDocument returns the number of indexes in which a document may have an entry, for an estimate.
func (f *fieldIndexes) perDocument() int {
	have := f.ready.Load()
	if have == nil {
		return 0
	}
	return min(len(*have), maxFieldIndexes)
}

// update calls do with all indexes and publishes the changes.
func (f *fieldIndexes) update(do func(all map[fieldKey]*fieldIndex)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[fieldKey]*fieldIndex{}
	}
	do(f.all)
	have, some := map[fieldKey]*fieldIndex{}, len(f.dropped) > 0
	for key, x := range f.all {
		some = some || x.state != ""
		if x.state == driver.IndexReady {
			have[key] = x
		}
	}
	f.ready.Store(&have)
	if f.onChange != nil {
		f.onChange(some)
	}
}

// set replaces the state of a field.
func (f *fieldIndexes) set(key fieldKey, x *fieldIndex) {
	f.update(func(all map[fieldKey]*fieldIndex) { all[key] = x })
}

// drop removes indexes. Their entries are deleted once no query can read them.
func (f *fieldIndexes) drop(gone ...droppedIndex) {
	f.update(func(all map[fieldKey]*fieldIndex) {
		for _, d := range gone {
			if x := all[d.key]; x != nil && x.number == d.number {
				delete(all, d.key)
			}
		}
		f.dropped = append(f.dropped, gone...)
	})
}

// load reads the indexes of the file when it is opened. It does nothing if the same file had none before.
func (f *fieldIndexes) load(ctx context.Context, db *database) error {
	if have := f.ready.Load(); have != nil && len(*have) == 0 && os.SameFile(f.file, db.file) {
		return nil
	}
	found, former := map[fieldKey]*fieldIndex{}, []string{}
	var gone []droppedIndex
	if err := db.withReader(ctx, func(r *reader) error {
		names, err := r.conn.texts("SELECT name FROM sqlite_schema WHERE name GLOB 'x:*' OR sql = ?1", fieldsTable(db.shared))
		if err != nil || len(names) == 0 {
			return err
		}
		if former = slices.DeleteFunc(names, func(name string) bool { return name == "fields" }); len(former) == len(names) {
			return nil
		}
		all := "SELECT tbl, name, number, rides, state, used, kind," +
			" (SELECT sql FROM sqlite_schema AS s WHERE s.name = 'e:' || tbl)" + ifShared(db.shared, ", ws") + " FROM fields"
		return r.conn.each(all, nil, func(row *sqlite.Stmt) {
			key := fieldKey{table: row.ColumnText(0), kind: row.ColumnText(6), name: row.ColumnText(1)}
			if db.shared {
				key.ws = row.ColumnInt64(8)
			}
			used := time.Unix(row.ColumnInt64(5), 0)
			x := &fieldIndex{
				state:        driver.IndexReady,
				number:       row.ColumnInt64(2),
				coversCustom: row.ColumnBool(3),
				tableSQL:     row.ColumnText(7),
				storedUse:    used.UnixNano(),
			}
			x.lastUsed.Store(x.storedUse)
			switch state := row.ColumnText(4); {
			case state == entriesReady:
				found[key] = x
			case state == entriesDropped, time.Since(used) > unusedAfter:
				gone = append(gone, droppedIndex{key: key, number: x.number})
			}
		})
	}); err != nil {
		return err
	}
	f.update(func(all map[fieldKey]*fieldIndex) {
		maps.DeleteFunc(all, func(_ fieldKey, x *fieldIndex) bool { return x.state == driver.IndexReady })
		maps.Copy(all, found)
		for i, d := range gone {
			if n := slices.IndexFunc(f.dropped, func(known droppedIndex) bool { return known.number == d.number }); n >= 0 {
				gone[i].since = f.dropped[n].since
			}
		}
		f.dropped = gone
	})
	f.file = db.file
	if len(former) == 0 {
		return nil
	}
	// An earlier version used indexes of SQLite. If one cannot be dropped now, the next opening tries again.
	for _, name := range former {
		_ = db.transact(ctx, ctx, load{}, nil, func(c *conn) error {
			if err := c.script("DROP INDEX IF EXISTS " + quote(name)); err != nil {
				return err
			}
			return c.exec("DELETE FROM counters WHERE name = ?1", name)
		})
	}
	return nil
}

// noteQuery records the use of an index, or a slow query without one. It returns the fields that should get an index.
func (f *fieldIndexes) noteQuery(s *statement, took time.Duration, eager bool) (wanted []fieldKey) {
	if s.index != nil {
		s.index.lastUsed.Store(time.Now().UnixNano())
		return nil // another index would not help
	}
	if took < slowScan && !eager {
		return nil
	}
	f.update(func(all map[fieldKey]*fieldIndex) {
		for _, name := range s.indexable {
			key := s.fieldKey(name)
			x := all[key]
			if x == nil {
				watched := 0
				for _, other := range all {
					if other.state == "" {
						watched++
					}
				}
				if watched >= maxFields {
					maps.DeleteFunc(all, func(_ fieldKey, other *fieldIndex) bool { return other.state == "" })
				}
				x = &fieldIndex{}
				all[key] = x
			}
			if x.state != "" && (x.state != driver.IndexReady || x.tableSQL == s.t.entriesSQL) {
				continue
			}
			if x.slowQueries++; x.slowQueries >= slowScans || eager {
				wanted = append(wanted, key)
			}
		}
	})
	return wanted
}

// buildIndexes starts building indexes on fields of the workspace in the background.
func (w *workspace) buildIndexes(t *table, keys []fieldKey) {
	for _, key := range keys {
		job := indexJob{w: w, t: t, key: key}
		if w.engine.opts.eager {
			w.engine.buildIndex(context.Background(), job)
			continue
		}
		w.file.indexes.set(key, &fieldIndex{state: driver.IndexBuilding}) // before the job is sent, because it may run at once
		select {
		case w.engine.builds <- func(ctx context.Context) { w.engine.buildIndex(ctx, job) }:
		default:
			w.file.indexes.set(key, &fieldIndex{})
		}
	}
}

// surplus returns ready indexes to be dropped, of those for which among returns true: the least recently used ones in
// excess of most, and those last used before a time in Unix nanoseconds.
func (f *fieldIndexes) surplus(among func(fieldKey) bool, most int, before int64) (gone []droppedIndex) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used := func(d droppedIndex) int64 { return f.all[d.key].lastUsed.Load() }
	for key, x := range f.all {
		if x.state == driver.IndexReady && among(key) {
			gone = append(gone, droppedIndex{key, x.number, time.Now()})
		}
	}
	slices.SortFunc(gone, func(a, b droppedIndex) int { return cmp.Compare(used(a), used(b)) })
	n := 0
	for n < len(gone) && (len(gone)-n > most || used(gone[n]) < before) {
		n++
	}
	return gone[:n]
}

// noteUses stores in an open file when its indexes were last used.
func (f *file) noteUses(ctx context.Context) {
	used := map[fieldKey]*fieldIndex{}
	f.indexes.mu.Lock()
	for key, x := range f.indexes.all {
		if x.state == driver.IndexReady && x.lastUsed.Load()-x.storedUse >= int64(useInterval) {
			used[key] = x
		}
	}
	f.indexes.mu.Unlock()
	if len(used) == 0 {
		return
	}
	_ = f.transactIfOpen(ctx, func(c *conn) error {
		for key, x := range used {
			args := indexArgs(key, x.number, x.lastUsed.Load()/int64(time.Second))
			if err := c.exec("UPDATE fields SET used = ?3"+whereIndex(key.ws), args...); err != nil {
				return err // the next call tries again
			}
		}
		return nil
	}, func() {
		f.indexes.mu.Lock()
		defer f.indexes.mu.Unlock()
		for _, x := range used {
			x.storedUse = x.lastUsed.Load()
		}
	})
}

// dropUnused drops the indexes of an open file that were last used before a time.
func (f *file) dropUnused(ctx context.Context, since time.Time) {
	if gone := f.indexes.surplus(func(fieldKey) bool { return true }, maxFields, since.UnixNano()); len(gone) > 0 {
		_ = f.transactIfOpen(ctx, func(c *conn) error { return c.drop(gone) }, func() { f.indexes.drop(gone...) })
	}
}

// transactIfOpen calls do in a transaction if the file is open, and then, if it was committed, the second function. It
// does not count as a use of the file.
func (f *file) transactIfOpen(ctx context.Context, do func(*conn) error, then func()) error {
	if !f.retain() {
		return nil
	}
	defer f.unref()
	ctx, cancel := f.engine.limit(ctx)
	defer cancel()
	err := f.db.transact(ctx, ctx, load{}, map[partition]bool{}, do)
	if err == nil {
		then()
	}
	return err
}

// deleteDropped starts deleting the entries of indexes that were dropped before a time.
func (f *file) deleteDropped(before time.Time) {
	var due []droppedIndex
	f.indexes.update(func(map[fieldKey]*fieldIndex) {
		f.indexes.dropped = slices.DeleteFunc(f.indexes.dropped, func(d droppedIndex) bool {
			if d.since.Before(before) {
				due = append(due, d)
			}
			return d.since.Before(before)
		})
	})
	for i, d := range due {
		select {
		case f.engine.builds <- func(ctx context.Context) {
			if err := f.deleteEntries(ctx, d); err != nil {
				f.indexes.drop(d) // try again later
			}
		}:
		default:
			f.indexes.drop(due[i:]...)
			return
		}
	}
}

// Indexes implements driver.Indexer. It reports the indexes on custom fields; declared indexes are always ready.
func (e *Engine) Indexes(ctx context.Context) (found []driver.IndexStatus, err error) {
	e.mu.Lock()
	files := slices.Collect(maps.Keys(e.indexed))
	e.mu.Unlock()
	for _, f := range files {
		names := map[int64]string{}
		if isShared(f.name) {
			if err := e.readShared(ctx, f.name, func(c *conn) error {
				return c.each("SELECT ws, name FROM workspaces", nil, func(row *sqlite.Stmt) {
					names[row.ColumnInt64(0)] = row.ColumnText(1)
				})
			}); err != nil {
				return nil, wrapError(ctx, "list the workspaces in "+f.path, err)
			}
		}
		f.indexes.mu.Lock()
		for key, x := range f.indexes.all {
			if x.state != "" {
				found = append(found, driver.IndexStatus{
					Database:   cmp.Or(names[key.ws], f.name),
					Collection: key.table,
					Index:      key.name,
					State:      x.state,
					Reason:     x.reason,
				})
			}
		}
		f.indexes.mu.Unlock()
	}
	slices.SortFunc(found, func(a, b driver.IndexStatus) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.Index, b.Index))
	})
	return found, nil
}
