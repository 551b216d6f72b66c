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

// A condition on a field that an organization defined reads every document of the collection, unless the field has an
// index. The engine makes those that questions turn out to need. SQLite's own keeps all of a file from writing for as
// long as it takes to make, seconds for a million documents, and is one more for every writer to look at. So they are
// tables: each collection has one with the entries of all its indexes, in whose order they are looked up, and triggers
// that keep it up. Entries of documents that are there already are stored a few at a time.
const (
	// slowScan is how long a question takes that deserves an index, once it was slowScans times so slow.
	slowScan  = 20 * time.Millisecond
	slowScans = 2
	// leastIndexed is how many documents are worth one.
	leastIndexed = 5_000
	// maxFieldIndexes bounds those that a document may have entries in: each makes writes dearer. The one whose last
	// use is longest ago makes room for another.
	maxFieldIndexes = 8
	// fieldRun is how many documents are put in the order of their entries in memory, so that those that are stored
	// together lie together; leastPiece and mostPiece bound how many that are, and pieceTime is how long others should
	// wait for them.
	fieldRun              = 100_000
	leastPiece, mostPiece = 200, 5_000
	pieceTime             = 20 * time.Millisecond
	// fieldUnused is how long one is kept that nobody asks for, and fieldNoted how much later that may be than the file
	// says.
	fieldUnused = 7 * 24 * time.Hour
	fieldNoted  = time.Hour
	// fieldRest is how much longer than a question may take one is kept up that was dropped: some may be about to read
	// it.
	fieldRest = 5 * time.Minute
	// maxJobs bounds what waits to be done. What finds no room is asked for again.
	maxJobs = 64
	// maxFields bounds the fields of a file that are watched and have none.
	maxFields = 256
	// maxRiding is how many bytes the custom values of a document have, by the average, for entries to have all of them
	// too: a question with conditions on several of them then reads no document.
	maxRiding = 256
	// noValue stands in an entry for what has none: less than any, as NULL is, which a key cannot have. leastValue
	// stands there for what JSON has as a number less than it.
	noValue, leastValue = "-9e999", "-1.7976931348623157e308"
)

// fieldKey is a custom key of a collection; ws is 0 in a file of its own, kind empty where all its documents have the
// same fields.
type fieldKey struct {
	ws               int64
	table, kind, key string
}

// fieldIndex is what is known of the index on a key. One that is ready is not changed but for its use.
type fieldIndex struct {
	state  driver.IndexState // empty: there is none
	reason string
	slow   int // questions that were

	number int64  // of its entries
	rides  bool   // they have all custom values
	made   string // the statement that made their table

	used  atomic.Int64 // last, Unix nanoseconds
	noted int64        // when the file says that was
}

// dropped are entries that nobody is to read any more, since a time.
type dropped struct {
	key    fieldKey
	number int64
	since  time.Time
}

// fields are the indexes on custom values of one file, and what asks for more. The zero value knows of none.
type fields struct {
	tell    func(some bool) // whether any is known; may be nil
	mu      sync.Mutex
	all     map[fieldKey]*fieldIndex
	dropped []dropped
	have    atomic.Pointer[map[fieldKey]*fieldIndex] // those that are ready; nil before the file was looked at
	of      os.FileInfo                              // the file that was looked at; of who opens it
}

// indexedBy returns the ready index on a key, nil where there is none.
func (f *fields) indexedBy(key fieldKey) *fieldIndex {
	have := f.have.Load()
	if have == nil {
		return nil
	}
	return (*have)[key]
}

// indexes returns how many a document may have entries in.
func (f *fields) indexes() int {
	have := f.have.Load()
	if have == nil {
		return 0
	}
	return min(len(*have), maxFieldIndexes)
}

// change changes what is known, and tells readers.
func (f *fields) change(do func(all map[fieldKey]*fieldIndex)) {
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
	f.have.Store(&have)
	if f.tell != nil {
		f.tell(some)
	}
}

// set says what is known of a key.
func (f *fields) set(key fieldKey, x *fieldIndex) {
	f.change(func(all map[fieldKey]*fieldIndex) { all[key] = x })
}

// drop forgets indexes, whose entries are deleted once nobody can read them.
func (f *fields) drop(gone ...dropped) {
	f.change(func(all map[fieldKey]*fieldIndex) {
		for _, d := range gone {
			if x := all[d.key]; x != nil && x.number == d.number {
				delete(all, d.key)
			}
		}
		f.dropped = append(f.dropped, gone...)
	})
}

// load reads which indexes the file has, when it is opened for the first time, and where it had some: it may be
// another by now.
func (f *fields) load(ctx context.Context, db *database) error {
	if have := f.have.Load(); have != nil && len(*have) == 0 && os.SameFile(f.of, db.file) {
		return nil
	}
	found, former := map[fieldKey]*fieldIndex{}, []string{}
	var gone []dropped
	if err := db.ask(ctx, func(r *reader) error {
		names, err := r.conn.words("SELECT name FROM sqlite_schema WHERE name GLOB 'x:*' OR sql = ?1", fieldsTable(db.shared))
		if err != nil || len(names) == 0 {
			return err
		}
		if former = slices.DeleteFunc(names, func(name string) bool { return name == "fields" }); len(former) == len(names) {
			return nil
		}
		return r.conn.each("SELECT tbl, name, number, rides, state, used, kind, (SELECT sql FROM sqlite_schema AS s WHERE s.name = 'e:' || tbl)"+led(db.shared, ", ws")+" FROM fields", nil, func(row *sqlite.Stmt) {
			key := fieldKey{table: row.ColumnText(0), kind: row.ColumnText(6), key: row.ColumnText(1)}
			if db.shared {
				key.ws = row.ColumnInt64(8)
			}
			used := time.Unix(row.ColumnInt64(5), 0)
			x := &fieldIndex{state: driver.IndexReady, number: row.ColumnInt64(2), rides: row.ColumnBool(3), made: row.ColumnText(7), noted: used.UnixNano()}
			x.used.Store(x.noted)
			switch state := row.ColumnText(4); {
			case state == entriesReady:
				found[key] = x
			case state == entriesDropped, time.Since(used) > fieldUnused:
				gone = append(gone, dropped{key: key, number: x.number})
			}
		})
	}); err != nil {
		return err
	}
	f.change(func(all map[fieldKey]*fieldIndex) {
		maps.DeleteFunc(all, func(_ fieldKey, x *fieldIndex) bool { return x.state == driver.IndexReady })
		maps.Copy(all, found)
		for i, d := range gone {
			if n := slices.IndexFunc(f.dropped, func(known dropped) bool { return known.number == d.number }); n >= 0 {
				gone[i].since = f.dropped[n].since
			}
		}
		f.dropped = gone
	})
	f.of = db.file
	if len(former) == 0 {
		return nil
	}
	// Those of an earlier version were SQLite's own. Where one cannot be dropped now, it is when the file is opened
	// next.
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

// asked notes a question and how long it took, and reports which keys an index is wanted on by now.
func (f *fields) asked(s *statement, took time.Duration, eager bool) (wanted []fieldKey) {
	if s.by != nil {
		s.by.used.Store(time.Now().UnixNano())
		return nil // what is slow is so by another cause
	}
	if took < slowScan && !eager {
		return nil
	}
	f.change(func(all map[fieldKey]*fieldIndex) {
		for _, name := range s.sought {
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
			if x.state != "" && (x.state != driver.IndexReady || x.made == s.t.entriesMade) {
				continue
			}
			if x.slow++; x.slow >= slowScans || eager {
				wanted = append(wanted, key)
			}
		}
	})
	return wanted
}

// want has indexes made that questions of the workspace want.
func (w *workspace) want(t *table, keys []fieldKey) {
	for _, key := range keys {
		job := fieldJob{w: w, t: t, key: key}
		if w.engine.opts.eager {
			w.engine.makeIndex(context.Background(), job)
			continue
		}
		w.file.fields.set(key, &fieldIndex{state: driver.IndexBuilding}) // before, for it may be made at once
		select {
		case w.engine.builds <- func(ctx context.Context) { w.engine.makeIndex(ctx, job) }:
		default:
			w.file.fields.set(key, &fieldIndex{})
		}
	}
}

// surplus returns the ready indexes among those beyond the most that are kept, those whose last use is
// longest ago, and those last used before that time in Unix nanoseconds.
func (f *fields) surplus(among func(fieldKey) bool, most int, before int64) (gone []dropped) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used := func(d dropped) int64 { return f.all[d.key].used.Load() }
	for key, x := range f.all {
		if x.state == driver.IndexReady && among(key) {
			gone = append(gone, dropped{key, x.number, time.Now()})
		}
	}
	slices.SortFunc(gone, func(a, b dropped) int { return cmp.Compare(used(a), used(b)) })
	n := 0
	for n < len(gone) && (len(gone)-n > most || used(gone[n]) < before) {
		n++
	}
	return gone[:n]
}

// noteUses has an open file know when its indexes were used last.
func (f *file) noteUses(ctx context.Context) {
	used := map[fieldKey]*fieldIndex{}
	f.fields.mu.Lock()
	for key, x := range f.fields.all {
		if x.state == driver.IndexReady && x.used.Load()-x.noted >= int64(fieldNoted) {
			used[key] = x
		}
	}
	f.fields.mu.Unlock()
	if len(used) == 0 {
		return
	}
	_ = f.idly(ctx, func(c *conn) error {
		for key, x := range used {
			if err := c.exec("UPDATE fields SET used = ?3"+oneField(key.ws), fieldArgs(key, x.number, x.used.Load()/int64(time.Second))...); err != nil {
				return err // the next round does
			}
		}
		return nil
	}, func() {
		f.fields.mu.Lock()
		defer f.fields.mu.Unlock()
		for _, x := range used {
			x.noted = x.used.Load()
		}
	})
}

// dropUnused drops the indexes of an open file that nobody has asked for since.
func (f *file) dropUnused(ctx context.Context, since time.Time) {
	if gone := f.fields.surplus(func(fieldKey) bool { return true }, maxFields, since.UnixNano()); len(gone) > 0 {
		_ = f.idly(ctx, func(c *conn) error { return c.drop(gone) }, func() { f.fields.drop(gone...) })
	}
}

// idly changes an open file when nobody waits for it, and then does what follows.
func (f *file) idly(ctx context.Context, do func(*conn) error, then func()) error {
	if !f.retain() {
		return nil
	}
	defer f.leave()
	ctx, cancel := f.engine.limit(ctx)
	defer cancel()
	err := f.db.transact(ctx, ctx, load{}, map[shelf]bool{}, do)
	if err == nil {
		then()
	}
	return err
}

// deleteDropped has the entries deleted that nobody can be reading any more.
func (f *file) deleteDropped(before time.Time) {
	var due []dropped
	f.fields.change(func(map[fieldKey]*fieldIndex) {
		f.fields.dropped = slices.DeleteFunc(f.fields.dropped, func(d dropped) bool {
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
				f.fields.drop(d) // later, then
			}
		}:
		default:
			f.fields.drop(due[i:]...)
			return
		}
	}
}

// Indexes tells of the indexes on custom values in the files that have been opened: the others are there
// from the start.
func (e *Engine) Indexes(ctx context.Context) (found []driver.IndexStatus, err error) {
	e.mu.Lock()
	files := slices.Collect(maps.Keys(e.indexed))
	e.mu.Unlock()
	for _, f := range files {
		names := map[int64]string{}
		if isShared(f.name) {
			if err := e.look(ctx, f.name, func(c *conn) error {
				return c.each("SELECT ws, name FROM workspaces", nil, func(row *sqlite.Stmt) { names[row.ColumnInt64(0)] = row.ColumnText(1) })
			}); err != nil {
				return nil, failed(ctx, "read who lives in "+f.path, err)
			}
		}
		f.fields.mu.Lock()
		for key, x := range f.fields.all {
			if x.state != "" {
				found = append(found, driver.IndexStatus{Database: cmp.Or(names[key.ws], f.name), Collection: key.table, Index: key.key, State: x.state, Reason: x.reason})
			}
		}
		f.fields.mu.Unlock()
	}
	slices.SortFunc(found, func(a, b driver.IndexStatus) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Collection, b.Collection), cmp.Compare(a.Index, b.Index))
	})
	return found, nil
}
