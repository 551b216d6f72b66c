package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/store/driver"
	"zombiezen.com/go/sqlite"
)

// A condition on a field that an organization defined reads every document of the collection, unless the
// field has an index. The engine makes those that questions turn out to need.
const (
	// slowScan is how long a question takes that deserves an index, once it was slowScans times so slow.
	slowScan  = 20 * time.Millisecond
	slowScans = 2
	// leastIndexed is how many documents are worth one.
	leastIndexed = 5_000
	// maxFieldIndexes bounds those of a collection: each makes writes dearer. The one whose last use is
	// longest ago makes room for another.
	maxFieldIndexes = 8
	// fieldBuild is how long writes wait for one, at most: less than they may be waited for.
	fieldBuild = 4 * time.Second
	// fieldAgain is how long one is not tried again that took longer: the machine may have been busy.
	fieldAgain = time.Hour
	// fieldUnused is how long one is kept that nobody asks for, and fieldNoted how much later that may be than the file says. It
	// does by counters of nobody's that have the names of the indexes and count in Unix seconds.
	fieldUnused = 7 * 24 * time.Hour
	fieldNoted  = time.Hour
	// maxJobs bounds what waits to be done. What finds no room is asked for again.
	maxJobs = 64
	// maxFields bounds the fields of a file that are watched.
	maxFields = 256
	// maxRiding is how many bytes the custom values of a document have, by the average, for an index to have all of
	// them too. SQLite reads the document for every entry of an index on an expression, unless the index has the
	// column that it is of: a count of half of 100,000 documents then takes 4 ms instead of 140.
	maxRiding = 256
	riding    = ", custom)" // in the statement that made such an index
	// sharedBuild and maxSharedIndexes are less than fieldBuild, and bound the indexes of all workspaces
	// together, where others wait and pay for them too.
	sharedBuild      = time.Second
	maxSharedIndexes = 64
)

// fieldKey is a custom key of a collection; ws is 0 in a file of its own.
type fieldKey struct {
	ws         int64
	table, key string
}

// index returns the name of the index. SQLite takes names for one that differ in their case alone, so that of a capital
// letter is written as +.
func (k fieldKey) index() string {
	name := "x:" + k.table + ":" + capitals.ReplaceAllStringFunc(k.key, func(c string) string { return "+" + strings.ToLower(c) })
	if k.ws != 0 {
		name += ":" + strconv.FormatInt(k.ws, 10)
	}
	return name
}

var capitals, marked = regexp.MustCompile(`[A-Z]`), regexp.MustCompile(`\+[a-z]`)

// keyOf returns the key that an index of that name is on.
func keyOf(index string) (key fieldKey, ok bool) {
	part := strings.Split(index, ":")
	if len(part) < 3 || part[0] != "x" {
		return key, false
	}
	key = fieldKey{table: part[1], key: marked.ReplaceAllStringFunc(part[2], func(c string) string { return strings.ToUpper(c[1:]) })}
	if len(part) == 4 {
		key.ws, _ = strconv.ParseInt(part[3], 10, 64)
	}
	return key, key.index() == index
}

// fieldIndex is what is known of the index on a key.
type fieldIndex struct {
	state  driver.IndexState // empty: there is none
	reason string
	dated  bool         // it was made without what counts read, or not in time; where questions are slow it is made anew
	next   time.Time    // when, at the earliest
	slow   int          // questions that were
	used   atomic.Int64 // last, Unix nanoseconds
	noted  int64        // when the file says that was
}

// readyIndex returns what is known of one that was used just now.
func readyIndex() *fieldIndex {
	x := &fieldIndex{state: driver.IndexReady}
	x.used.Store(time.Now().UnixNano())
	return x
}

// fields are the indexes on custom values of one file, and what asks for more. The zero value knows of none.
type fields struct {
	tell func(some bool) // whether any is known; may be nil
	mu   sync.Mutex
	all  map[fieldKey]*fieldIndex
	have atomic.Pointer[map[fieldKey]*fieldIndex] // those that are ready; nil before the file was looked at
}

// indexedBy returns the ready index on a key, nil where there is none.
func (f *fields) indexedBy(key fieldKey) *fieldIndex {
	have := f.have.Load()
	if have == nil {
		return nil
	}
	return (*have)[key]
}

// change changes what is known, and tells readers.
func (f *fields) change(do func(all map[fieldKey]*fieldIndex)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[fieldKey]*fieldIndex{}
	}
	do(f.all)
	have, some := map[fieldKey]*fieldIndex{}, false
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

// set says what is known of a key, and that others have no index any more.
func (f *fields) set(key fieldKey, x *fieldIndex, dropped ...fieldKey) {
	f.change(func(all map[fieldKey]*fieldIndex) {
		all[key] = x
		for _, other := range dropped {
			delete(all, other)
		}
	})
}

// load reads which indexes the file has, the first time that it is opened.
func (f *fields) load(ctx context.Context, db *database) error {
	if f.have.Load() != nil {
		return nil
	}
	found, former := map[fieldKey]*fieldIndex{}, []string{}
	if err := db.ask(ctx, func(r *reader) error {
		return r.conn.rows("SELECT name, sql, (SELECT max(value) FROM counters"+nobodys(db.shared)+" AND name = x.name) FROM sqlite_schema AS x WHERE name GLOB 'x:*'", nil, func(row *sqlite.Stmt) error {
			if key, ok := keyOf(row.ColumnText(0)); ok && strings.Contains(row.ColumnText(1), customOperand("'"+key.key+"'").expr) {
				found[key] = readyIndex()
				if last := time.Unix(row.ColumnInt64(2), 0).UnixNano(); last > 0 {
					found[key].noted = last
					found[key].used.Store(last)
				}
				found[key].dated = !strings.Contains(row.ColumnText(1), riding)
			} else {
				former = append(former, row.ColumnText(0))
			}
			return nil
		})
	}); err != nil {
		return err
	}
	f.change(func(all map[fieldKey]*fieldIndex) { maps.Copy(all, found) })
	if len(former) == 0 {
		return nil
	}
	// An earlier version named them otherwise, or had lists in
	// them. Where they cannot be dropped now, they are when the file is opened next.
	_ = db.transact(ctx, ctx, 0, nil, func(c *conn) error {
		for _, name := range former {
			if err := dropIndex(c, name); err != nil {
				return err
			}
		}
		return nil
	})
	return nil
}

// asked notes a question and how long it took, and reports which keys an index is wanted on by now.
func (f *fields) asked(s *statement, took time.Duration, eager bool) (wanted []fieldKey) {
	sought := s.sought
	for i, name := range sought {
		if x := f.indexedBy(fieldKey{s.ws, s.t.name, name}); x != nil {
			x.used.Store(time.Now().UnixNano())
			if sought = sought[i : i+1]; !x.dated {
				return nil // what is slow is so by another cause
			}
			break
		}
	}
	if took < slowScan && !eager || len(sought) == 0 {
		return nil
	}
	f.change(func(all map[fieldKey]*fieldIndex) {
		for _, name := range sought {
			key := fieldKey{s.ws, s.t.name, name}
			x := all[key]
			if len(all) >= maxFields {
				maps.DeleteFunc(all, func(_ fieldKey, other *fieldIndex) bool { return other != x && other.state == "" })
			}
			if x == nil && len(all) < maxFields {
				x = &fieldIndex{}
				all[key] = x
			}
			if x == nil || x.state != "" && (!x.dated || time.Now().Before(x.next)) {
				continue
			}
			if x.slow++; x.slow >= slowScans || eager {
				wanted = append(wanted, key)
			}
		}
	})
	return wanted
}

// fieldJob is an index to be made.
type fieldJob struct {
	w   *workspace
	t   *table
	key fieldKey
	had bool // one that is dated
}

// want has indexes made that questions of the workspace want.
func (w *workspace) want(t *table, keys []fieldKey) {
	for _, key := range keys {
		old := w.file.fields.indexedBy(key)
		job := fieldJob{w: w, t: t, key: key, had: old != nil}
		if w.engine.opts.eager {
			w.engine.makeIndex(context.Background(), job)
			continue
		}
		// It is said before, for it may be made at once.
		before, meanwhile := &fieldIndex{}, &fieldIndex{state: driver.IndexBuilding}
		if job.had {
			before, meanwhile = old, readyIndex()
		}
		w.file.fields.set(key, meanwhile)
		select {
		case w.engine.jobs <- func(ctx context.Context) { w.engine.makeIndex(ctx, job) }:
		default:
			w.file.fields.set(key, before)
		}
	}
}

// makeIndex makes one, and says what became of it.
func (e *Engine) makeIndex(ctx context.Context, job fieldJob) {
	x := readyIndex()
	dropped, err := job.make(ctx, maxRiding)
	if errors.Is(err, driver.ErrSlow) {
		x.dated, x.next = true, time.Now().Add(fieldAgain)
		if !job.had {
			dropped, err = job.make(ctx, 0)
		}
	}
	if err != nil {
		dropped = nil
	}
	switch {
	case errors.Is(err, errRemoved):
		x.state = ""
	case err == nil, job.had: // that one is still there
	case errors.Is(err, errFewDocuments), errors.Is(err, driver.ErrUnavailable), ctx.Err() != nil:
		x.state = "" // who asks again finds out again
	case err != nil:
		x.state, x.reason = driver.IndexRefused, job.refused(err)
	}
	job.w.file.fields.set(job.key, x, dropped...)
}

// refused says why there is no index, and what to do.
func (j fieldJob) refused(err error) string {
	const so = "so questions about the field read every document"
	switch {
	case !errors.Is(err, driver.ErrSlow):
		return fmt.Sprintf("it could not be made, %s: %v", so, err)
	case j.t.shared:
		return fmt.Sprintf("it takes longer than the %s that others may be kept from writing, %s; move the organization into a file of its own: tenantry org move --help", j.within(), so)
	}
	return fmt.Sprintf("it takes longer than the %s that writes may wait for it, %s", j.within(), so)
}

var errFewDocuments = errors.New("the collection is small")

// within returns how long writes wait for the index.
func (j fieldJob) within() time.Duration {
	if j.t.shared {
		return sharedBuild
	}
	return fieldBuild
}

// make makes the index, and returns those that it took the place of. It has all custom values where these have no
// more bytes than that, by the average of some documents.
func (j fieldJob) make(ctx context.Context, most float64) (dropped []fieldKey, err error) {
	ctx, cancel := context.WithTimeout(ctx, j.within())
	defer cancel()
	db, err := j.w.acquire(ctx)
	if err != nil {
		return nil, failed(ctx, "open the database", err)
	}
	defer j.w.file.release()
	err = db.transact(ctx, ctx, 0, nil, func(c *conn) error {
		if err := j.w.there(c); err != nil {
			return err
		}
		var documents int64
		end := ")"
		if err := c.rows("SELECT count(*), avg(n) FROM (SELECT ifnull(octet_length(custom), 0) AS n FROM "+j.t.quoted+j.t.led(" WHERE ws = ?2")+" LIMIT ?1)", j.t.args(j.key.ws, int64(leastIndexed)), func(row *sqlite.Stmt) error {
			documents = row.ColumnInt64(0)
			if row.ColumnFloat(1) <= most {
				end = riding
			}
			return nil
		}); err != nil {
			return err
		}
		if documents < leastIndexed && !j.w.engine.opts.eager {
			return errFewDocuments
		}
		dropped = j.w.file.fields.surplus(func(k fieldKey) bool { return k != j.key && k.ws == j.key.ws && k.table == j.key.table }, maxFieldIndexes-1, 0)
		if j.t.shared && len(dropped) == 0 {
			dropped = j.w.file.fields.surplus(func(k fieldKey) bool { return k != j.key }, maxSharedIndexes-1, 0)
		}
		if err := dropAll(c, append(dropped, j.key)); err != nil {
			return err
		}
		// The workspace is said twice: the planner takes no index from its beginning to its end where it has another for ws.
		if err := c.script("CREATE INDEX " + quote(j.key.index()) + " ON " + j.t.quoted + " (" + j.t.led("ws, ") + strings.Join(append([]string{
			customOperand("'" + j.key.key + "'").expr, "id",
		}, j.t.riders...), ", ") + end + j.t.led(" WHERE ws = "+strconv.FormatInt(j.key.ws, 10))); err != nil {
			return err
		}
		err := c.script(sampled + "; ANALYZE " + quote(j.key.index())) // else the planner takes it to be like any other
		if err == nil && j.t.shared {
			err = c.level()
		}
		return err
	})
	db.statistics.Add(1)
	return dropped, failed(ctx, "make an index", err)
}

func dropAll(c *conn, keys []fieldKey) error {
	for _, key := range keys {
		if err := dropIndex(c, key.index()); err != nil {
			return err
		}
		if err := c.exec("DELETE FROM counters"+nobodys(key.ws != 0)+" AND name = ?1", key.index()); err != nil {
			return err
		}
	}
	return nil
}

// nobodys begins the condition on counters that are no workspace's.
func nobodys(shared bool) string {
	if shared {
		return " WHERE ws = 0"
	}
	return " WHERE true"
}

func dropIndex(c *conn, name string) error { return c.script("DROP INDEX IF EXISTS " + quote(name)) }

// surplus returns the ready indexes among those beyond the most that are kept, those whose last use is
// longest ago, and those last used before that time in Unix nanoseconds.
func (f *fields) surplus(among func(fieldKey) bool, most int, before int64) (keys []fieldKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	used := func(key fieldKey) int64 { return f.all[key].used.Load() }
	for key, x := range f.all {
		if x.state == driver.IndexReady && among(key) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b fieldKey) int { return cmp.Compare(used(a), used(b)) })
	n := 0
	for n < len(keys) && (len(keys)-n > most || used(keys[n]) < before) {
		n++
	}
	return keys[:n]
}

// noteUses has an open file know when its indexes were used last.
func (f *file) noteUses(ctx context.Context) {
	used := map[fieldKey]int64{}
	f.fields.mu.Lock()
	for key, x := range f.fields.all {
		if last := x.used.Load(); x.state == driver.IndexReady && last-x.noted >= int64(fieldNoted) {
			used[key] = last
		}
	}
	f.fields.mu.Unlock()
	if len(used) == 0 || !f.retain() {
		return
	}
	defer f.release()
	ctx, cancel := context.WithTimeout(ctx, fieldBuild)
	defer cancel()
	if err := f.db.transact(ctx, ctx, 0, nil, func(c *conn) error {
		for key, last := range used {
			if f.fields.indexedBy(key) == nil { // it was dropped meanwhile
				continue
			}
			if _, err := c.counter(f.db.shared, 0, key.index(), 0, last/int64(time.Second)); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return // the next round does
	}
	f.fields.mu.Lock()
	defer f.fields.mu.Unlock()
	for key, last := range used {
		if x := f.fields.all[key]; x != nil {
			x.noted = last
		}
	}
}

// dropUnused drops the indexes of an open file that nobody has asked for since.
func (f *file) dropUnused(ctx context.Context, since time.Time) {
	keys := f.fields.surplus(func(fieldKey) bool { return true }, maxFields, since.UnixNano())
	if len(keys) == 0 || !f.retain() {
		return
	}
	defer f.release()
	ctx, cancel := context.WithTimeout(ctx, fieldBuild)
	defer cancel()
	if err := f.db.transact(ctx, ctx, 0, nil, func(c *conn) error { return dropAll(c, keys) }); err == nil {
		f.fields.change(func(all map[fieldKey]*fieldIndex) {
			for _, key := range keys {
				delete(all, key)
			}
		})
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
