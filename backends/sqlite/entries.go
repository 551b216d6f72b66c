package sqlite

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// The states of an index in the table fields, which lists the indexes on custom fields of a file. In each of them
// triggers keep the entries up to date.
const (
	entriesBuilding = "building" // older documents have entries up to the one in column at
	entriesReady    = "ready"
	entriesDropped  = "dropped" // the entries are to be deleted
)

// fieldsTable returns the statement that creates the table fields.
func fieldsTable(shared bool) string {
	return "CREATE TABLE fields (" + ifShared(shared, "ws INTEGER NOT NULL, ") + "tbl TEXT NOT NULL, kind TEXT NOT NULL, " +
		"number INTEGER NOT NULL, name TEXT NOT NULL, rides INTEGER NOT NULL, " +
		"state TEXT NOT NULL, at TEXT NOT NULL, used INTEGER NOT NULL, " +
		"PRIMARY KEY (" + ifShared(shared, "ws, ") + "tbl, kind, number)) WITHOUT ROWID"
}

// ensureFieldsTable creates the table fields if it is missing. If an earlier version created it differently, all
// indexes are dropped with it; slow queries will request them again.
func (c *conn) ensureFieldsTable(shared bool) error {
	made, err := c.texts("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'fields'")
	if err != nil || len(made) == 1 && made[0] == fieldsTable(shared) {
		return err
	}
	var all strings.Builder
	if err := c.each("SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'trigger')"+
		" AND (name = 'fields' OR name GLOB 'e:*') ORDER BY type DESC", nil, func(row *sqlite.Stmt) {
		all.WriteString("DROP " + row.ColumnText(0) + " " + quote(row.ColumnText(1)) + "; ")
	}); err != nil {
		return err
	}
	return c.script(all.String() + fieldsTable(shared))
}

// whereIndex returns the condition on the row of an index in the table fields, for indexArgs.
func whereIndex(ws int64) string {
	return " WHERE " + ifShared(ws != 0, "ws = ?4 AND ") + "tbl = ?1 AND kind = ?5 AND number = ?2"
}

// indexArgs returns the arguments of a statement with whereIndex. own is the statement's own argument, ?3.
func indexArgs(key fieldKey, number int64, own any) []any {
	return []any{key.table, number, own, key.ws, key.kind}
}

// createEntries returns the statement that creates the table of entries. It includes a checksum of the triggers, so
// that a change of these is noticed.
func (t *table) createEntries() string {
	var riders strings.Builder
	for _, r := range t.entryColumns {
		riders.WriteString(r + ", ")
	}
	return "CREATE TABLE " + t.entries + " (" + t.ifShared("ws INTEGER NOT NULL, ") +
		"number INTEGER NOT NULL, v NOT NULL, id TEXT NOT NULL, " + riders.String() +
		"custom, PRIMARY KEY (" + t.ifShared("ws, ") +
		fmt.Sprintf("number, v, id) /* %08x */) WITHOUT ROWID", crc32.ChecksumIEEE([]byte(t.triggers())))
}

// entry returns the SQL of an entry's columns. All arguments are SQL: of is the prefix of the document's columns, such
// as "new."; the others are columns or placeholders of the index.
func (t *table) entry(of, number, name, coversCustom string) string {
	return t.entryKey(of, number, name) + strings.Join(append([]string{""}, t.entryColumns...), ", "+of) +
		", CASE WHEN " + coversCustom + " THEN " + of + "custom END"
}

// kindOf returns the SQL of the value that determines a document's custom fields.
func (t *table) kindOf(of string) string {
	if t.kindField == "" {
		return "''"
	}
	return of + t.columns[t.kindField].column
}

// whereKind returns a WHERE clause that limits the table to documents of a kind and ends in AND. The arguments are
// placeholders.
func (t *table) whereKind(ws, kind string) string {
	return " WHERE " + t.ifShared("ws = "+ws+" AND ") + t.kindOf("") + " = " + kind + " AND "
}

// entryKey returns the SQL of the columns of an entry's key.
func (t *table) entryKey(of, number, name string) string {
	value := customOperand(of+"custom", name).expr
	return t.ifShared(of+"ws, ") + number + ", ifnull(max(" + value + ", " + leastValue + "), " + noValue + "), " + of + "id"
}

// triggers returns the statements that create the triggers, which update the entries with every write of a document.
func (t *table) triggers() string {
	indexes := func(of string) string {
		return " FROM fields WHERE " + t.ifShared("ws = "+of+"ws AND ") + "tbl = '" + t.name + "' AND kind = " + t.kindOf(of)
	}
	add := "INSERT OR REPLACE INTO " + t.entries + " SELECT " +
		t.entry("new.", "number", "name", "rides") + indexes("new.") + "; "
	remove := "DELETE FROM " + t.entries + " WHERE (" + t.ifShared("ws, ") + "number, v, id) IN (SELECT " +
		t.entryKey("old.", "number", "name") + indexes("old.") + "); "
	values := func(of string) string {
		return t.kindOf(of) + ", " + of + "custom" + strings.Join(append([]string{""}, t.entryColumns...), ", "+of)
	}
	changed := "(" + values("old.") + ") IS NOT (" + values("new.") + ")"
	var all strings.Builder
	for _, tr := range []struct{ on, when, do string }{
		{"INSERT", "", add},
		{"UPDATE", " WHEN " + changed, remove + add},
		{"DELETE", "", remove},
	} {
		name := quote("e:" + t.name + ":" + strings.ToLower(tr.on))
		all.WriteString("DROP TRIGGER IF EXISTS " + name + "; CREATE TRIGGER " + name +
			" AFTER " + tr.on + " ON " + t.quoted + tr.when + " BEGIN " + tr.do + "END; ")
	}
	return all.String()
}

// ensureEntries creates the table of entries and its triggers. If another version created them differently, they are
// replaced, and the collection's indexes dropped.
func (t *table) ensureEntries(c *conn) error {
	made, err := c.texts("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'e:' || ?1", t.name)
	if err != nil || len(made) == 1 && made[0] == t.entriesSQL {
		return err
	}
	if err := c.ensureFieldsTable(t.shared); err != nil {
		return err
	}
	if err := c.exec("DELETE FROM fields WHERE tbl = ?1", t.name); err != nil {
		return err
	}
	return c.script("DROP TABLE IF EXISTS " + t.entries + "; " + t.entriesSQL + "; " + t.triggers())
}

// drop marks indexes as dropped in the file.
func (c *conn) drop(gone []droppedIndex) error {
	for _, d := range gone {
		args := append(indexArgs(d.key, d.number, entriesDropped), d.key.name)
		if err := c.exec("UPDATE fields SET state = ?3"+whereIndex(d.key.ws)+" AND name = ?6", args...); err != nil {
			return err
		}
	}
	return nil
}

// indexJob builds an index in the background.
type indexJob struct {
	w   *workspace
	t   *table
	key fieldKey
}

var errFewDocuments = errors.New("the collection is small")

// buildIndex builds an index and records its state.
func (e *Engine) buildIndex(ctx context.Context, job indexJob) {
	x, err := job.build(ctx)
	switch {
	case err == nil:
	case errors.Is(err, errRemoved), errors.Is(err, errFewDocuments), errors.Is(err, errIndexGone),
		errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrSlow), ctx.Err() != nil:
		x = &fieldIndex{} // slow queries will request it again, and the build continues
	default:
		gone := droppedIndex{key: job.key, number: x.number}
		x = &fieldIndex{
			state:  driver.IndexRefused,
			reason: fmt.Sprintf("it could not be built, so queries on the field read every document: %v", err),
		}
		drop := func(c *conn) error { return c.drop([]droppedIndex{gone}) }
		if gone.number != 0 && job.w.file.transactIfOpen(ctx, drop, func() {}) == nil {
			job.w.file.indexes.drop(gone)
		}
	}
	job.w.file.indexes.set(job.key, x)
}

// build builds the index. It continues a build that was interrupted.
func (j indexJob) build(ctx context.Context) (*fieldIndex, error) {
	x := &fieldIndex{state: driver.IndexReady, tableSQL: j.t.entriesSQL}
	x.lastUsed.Store(time.Now().UnixNano())
	x.storedUse = x.lastUsed.Load()
	at, ready, err := j.start(ctx, x)
	for more := !ready; more && err == nil; {
		at, more, err = j.storeRun(ctx, x, at)
	}
	return x, wrapError(ctx, "build an index", err)
}

// step calls do in a transaction, and then sleeps for as long as that took, so that other writes proceed.
func (j indexJob) step(
	ctx context.Context, rows int, touched map[partition]bool, do func(*conn) error,
) (took time.Duration, err error) {
	limited, cancel := j.w.engine.limit(ctx)
	defer cancel()
	db, err := j.w.acquire(limited)
	if err != nil {
		return 0, err
	}
	defer j.w.file.unref()
	var began time.Time
	err = db.transact(limited, limited, load{ws: j.key.ws, rows: rows}, touched, func(c *conn) error {
		began = time.Now()
		if err := j.w.checkPresent(c); err != nil {
			return err
		}
		return do(c)
	})
	if took = time.Since(began); err == nil && !j.w.engine.opts.eager {
		select {
		case <-time.After(took):
		case <-ctx.Done():
		}
	}
	return took, err
}

// start adds the index to the table fields, so that documents written from now on get entries. It returns the id up to
// which older documents have entries, and whether the index is ready already.
func (j indexJob) start(ctx context.Context, x *fieldIndex) (at string, ready bool, err error) {
	var gone []droppedIndex
	_, err = j.step(ctx, 0, nil, func(c *conn) error {
		var documents int64
		x.number, at, ready, gone = 0, "", false, nil
		sample := "SELECT count(*), avg(n) FROM (SELECT ifnull(octet_length(custom), 0) AS n FROM " +
			j.t.quoted + j.t.whereKind("?3", "?2") + "true LIMIT ?1)"
		args := j.t.args(j.key.ws, int64(minIndexedDocuments), j.key.kind)
		if err := c.each(sample, args, func(row *sqlite.Stmt) {
			documents, x.coversCustom = row.ColumnInt64(0), row.ColumnFloat(1) <= maxCoveredCustom
		}); err != nil {
			return err
		}
		if documents < minIndexedDocuments && !j.w.engine.opts.eager {
			return errFewDocuments
		}
		if err := j.t.ensureEntries(c); err != nil {
			return err
		}
		var begun []droppedIndex // interrupted builds for other fields; none is running, because builds run one by one
		others := 0              // ready indexes on other fields
		existing := "SELECT number, name, rides, at, state FROM fields WHERE " + j.t.ifShared("ws = ?3 AND ") +
			"tbl = ?1 AND kind = ?5 AND state <> ?2 ORDER BY state = ?4 DESC, number"
		args = []any{j.t.name, entriesDropped, j.key.ws, entriesReady, j.key.kind}
		if err := c.each(existing, args, func(row *sqlite.Stmt) {
			d := droppedIndex{fieldKey{j.key.ws, j.t.name, j.key.kind, row.ColumnText(1)}, row.ColumnInt64(0), time.Now()}
			built := row.ColumnText(4) == entriesReady
			switch {
			case d.key == j.key && x.number == 0:
				x.number, x.coversCustom, at, ready = d.number, row.ColumnBool(2), row.ColumnText(3), built
			case d.key == j.key:
				gone = append(gone, d)
			case built:
				others++
			default:
				begun = append(begun, d)
			}
		}); err != nil {
			return err
		}
		surplus := j.w.file.indexes.surplus(func(k fieldKey) bool {
			return k != j.key && k.ws == j.key.ws && k.table == j.key.table && k.kind == j.key.kind
		}, maxFieldIndexes-1, 0)
		room := max(maxFieldIndexes-1-(others-len(surplus)), 0)
		gone = slices.Concat(gone, surplus, begun[:max(len(begun)-room, 0)])
		if err := c.drop(gone); err != nil {
			return err
		}
		if x.number != 0 {
			args := indexArgs(j.key, x.number, time.Now().Unix())
			return c.exec("UPDATE fields SET used = ?3"+whereIndex(j.key.ws), args...)
		}
		var err error
		if x.number, err = c.counter(j.t.shared, 0, "x:fields", 1, 0); err != nil {
			return err
		}
		return c.exec("INSERT INTO fields (tbl, kind, number, name, rides, state, at, used"+j.t.ifShared(", ws")+
			") VALUES (?1, ?7, ?2, ?3, ?4, ?5, '', ?6"+j.t.ifShared(", ?8")+")",
			j.t.name, x.number, j.key.name, x.coversCustom, entriesBuilding, time.Now().Unix(), j.key.kind, j.key.ws)
	})
	if err == nil {
		j.w.file.indexes.drop(gone...)
	}
	return at, ready, err
}

// errIndexGone says that an index being built is not in the file any more, because it was dropped or the file replaced.
var errIndexGone = errors.New("the index was dropped")

// checkBuilding returns errIndexGone unless the index is in state building in the file.
func (j indexJob) checkBuilding(c *conn, x *fieldIndex) error {
	state, err := c.stateOf(j.key, x.number)
	if err == nil && state != entriesBuilding {
		err = errIndexGone
	}
	return err
}

// stateOf returns the state of an index in the file, "" if the index is not there.
func (c *conn) stateOf(key fieldKey, number int64) (state string, err error) {
	have, err := c.texts("SELECT name FROM sqlite_schema WHERE name IN ('fields', 'e:' || ?1)", key.table)
	if err != nil || len(have) < 2 {
		return "", err
	}
	sql, args := "SELECT state FROM fields"+whereIndex(key.ws)+" AND name = ?3", indexArgs(key, number, key.name)
	err = c.each(sql, args, func(row *sqlite.Stmt) { state = row.ColumnText(0) })
	return state, err
}

// storeRun stores the entries of the next buildRun documents after an id, in batches, and returns the id after which to
// continue. When there are no more documents, it marks the index as ready.
func (j indexJob) storeRun(ctx context.Context, x *fieldIndex, at string) (last string, more bool, err error) {
	ids, last, err := j.nextRun(ctx, at)
	for n := minBatch; len(ids) > 0 && err == nil; {
		batch := ids[:min(n, len(ids))]
		ids = ids[len(batch):]
		list := make([]any, len(batch))
		for i, id := range batch {
			list[i] = id
		}
		var took time.Duration
		took, err = j.step(ctx, len(batch), map[partition]bool{}, func(c *conn) error {
			if err := j.checkBuilding(c, x); err != nil {
				return err
			}
			// The entries are made of the documents as they are now: documents changed meanwhile get the same entry
			// again, and deleted ones get none.
			if err := c.exec("INSERT OR REPLACE INTO "+j.t.entries+" SELECT "+j.t.entry("", "?1", "?2", "?3")+
				" FROM "+j.t.quoted+j.t.whereKind("?6", "?5")+"id IN (SELECT value FROM json_each(?4))",
				j.t.args(j.key.ws, x.number, j.key.name, x.coversCustom, jsonList(list), j.key.kind)...); err != nil || len(ids) > 0 {
				return err
			}
			return c.exec("UPDATE fields SET at = ?3"+whereIndex(j.key.ws), indexArgs(j.key, x.number, last)...)
		})
		n = min(max(int(float64(len(batch))*float64(batchTime)/float64(took+1)), minBatch), maxBatch, 2*n)
	}
	if more = last != ""; more || err != nil {
		return last, more, err
	}
	_, err = j.step(ctx, 0, nil, func(c *conn) error {
		if err := j.checkBuilding(c, x); err != nil {
			return err
		}
		args := indexArgs(j.key, x.number, entriesReady)
		if err := c.exec("UPDATE fields SET state = ?3"+whereIndex(j.key.ws), args...); err != nil {
			return err
		}
		err := c.script(analysisLimit + "; ANALYZE " + j.t.entries) // otherwise the planner has no statistics of this index
		if err == nil && j.t.shared {
			err = c.equalize()
		}
		return err
	})
	j.w.file.refreshStatistics()
	return "", false, err
}

// nextRun returns the ids of the next buildRun documents after an id, in the order of their entries, and the greatest
// of these ids. If there are none, last is empty.
func (j indexJob) nextRun(ctx context.Context, at string) (ids []string, last string, err error) {
	ctx, cancel := j.w.engine.limit(ctx)
	defer cancel()
	db, err := j.w.acquire(ctx)
	if err != nil {
		return nil, "", err
	}
	defer j.w.file.unref()
	q := queryRun{ctx: ctx, db: db, space: j.w.space, key: queryKey{j.w.space.party, indexBuild}}
	err = q.execute(func(r *reader) error {
		return r.conn.runUntil(ctx, func() error {
			ids, err = r.conn.texts("SELECT id FROM (SELECT id, "+customOperand("custom", "?1").expr+" AS v FROM "+
				j.t.quoted+j.t.whereKind("?5", "?4")+"id > ?2 ORDER BY id LIMIT ?3) ORDER BY v",
				j.t.args(j.key.ws, j.key.name, at, int64(buildRun), j.key.kind)...)
			return err
		})
	})
	if err == nil && len(ids) > 0 {
		last = slices.Max(ids)
	}
	return ids, last, err
}

// refreshStatistics makes readers reconnect, because a connection reads the planner's statistics when it is opened.
func (f *file) refreshStatistics() {
	if f.retain() {
		f.db.statistics.Add(1)
		f.unref()
	}
}

// deleteEntries deletes the entries of a dropped index in batches, and then the index. It leaves an index alone that is
// not dropped in the file, because the file was replaced or the build has continued.
func (f *file) deleteEntries(ctx context.Context, d droppedIndex) error {
	table := quote("e:" + d.key.table)
	where, key := ifShared(d.key.ws != 0, "ws = ?4 AND ")+"number = ?2", ifShared(d.key.ws != 0, "ws, ")+"number, v, id"
	for done := false; !done; {
		limited, cancel := f.engine.limit(ctx)
		db, err := f.acquire(limited)
		if err == nil {
			err = db.transact(limited, limited, load{ws: d.key.ws, rows: clearBatchSize}, map[partition]bool{}, func(c *conn) error {
				state, err := c.stateOf(d.key, d.number)
				if err == nil && state == entriesBuilding { // drop it if its build was interrupted long ago
					args := indexArgs(d.key, d.number, time.Now().Add(-unusedAfter).Unix())
					err = c.exec("UPDATE fields SET state = '"+entriesDropped+"'"+whereIndex(d.key.ws)+" AND used < ?3", args...)
					if err == nil {
						state, err = c.stateOf(d.key, d.number)
					}
				}
				if done = state != entriesDropped; done || err != nil {
					return err
				}
				if err := c.exec("DELETE FROM "+table+" WHERE ("+key+") IN (SELECT "+key+" FROM "+table+" WHERE "+where+" LIMIT ?3)",
					indexArgs(d.key, d.number, int64(clearBatchSize))...); err != nil {
					return err
				}
				if done = c.raw.Changes() < clearBatchSize; !done {
					return nil
				}
				return c.exec("DELETE FROM fields"+whereIndex(d.key.ws), indexArgs(d.key, d.number, nil)...)
			})
			f.unref()
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
