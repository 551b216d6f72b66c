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

// What the table of all indexes of a file says of the entries of one. It is kept up from the first.
const (
	entriesBuilding = "building" // those of documents up to one are there
	entriesReady    = "ready"
	entriesDropped  = "dropped" // they are to be deleted
)

// fieldsTable makes the table of all indexes of a file.
func fieldsTable(shared bool) string {
	return "CREATE TABLE fields (" + led(shared, "ws INTEGER NOT NULL, ") + "tbl TEXT NOT NULL, kind TEXT NOT NULL, number INTEGER NOT NULL, name TEXT NOT NULL, rides INTEGER NOT NULL, " +
		"state TEXT NOT NULL, at TEXT NOT NULL, used INTEGER NOT NULL, PRIMARY KEY (" + led(shared, "ws, ") + "tbl, kind, number)) WITHOUT ROWID"
}

// newFields makes the table of all indexes where there is none. Of one that is another's, which an earlier version
// made, all goes with it: questions ask for indexes anew.
func (c *conn) newFields(shared bool) error {
	made, err := c.words("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'fields'")
	if err != nil || len(made) == 1 && made[0] == fieldsTable(shared) {
		return err
	}
	var all strings.Builder
	if err := c.each("SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'trigger') AND (name = 'fields' OR name GLOB 'e:*') ORDER BY type DESC", nil, func(row *sqlite.Stmt) {
		all.WriteString("DROP " + row.ColumnText(0) + " " + quote(row.ColumnText(1)) + "; ")
	}); err != nil {
		return err
	}
	return c.script(all.String() + fieldsTable(shared))
}

// oneField is the condition on the row of an index, for fieldArgs.
func oneField(ws int64) string {
	return " WHERE " + led(ws != 0, "ws = ?4 AND ") + "tbl = ?1 AND kind = ?5 AND number = ?2"
}

// fieldArgs are those of a statement on one, of which ?3 is its own.
func fieldArgs(key fieldKey, number int64, own any) []any {
	return []any{key.table, number, own, key.ws, key.kind}
}

// entriesCreate returns the statement that makes the table of entries. It differs where what keeps them up does.
func (t *table) entriesCreate() string {
	var riders strings.Builder
	for _, r := range t.riders {
		riders.WriteString(r + ", ")
	}
	return "CREATE TABLE " + t.entries + " (" + t.led("ws INTEGER NOT NULL, ") + "number INTEGER NOT NULL, v NOT NULL, id TEXT NOT NULL, " +
		riders.String() + "custom, PRIMARY KEY (" + t.led("ws, ") + fmt.Sprintf("number, v, id) /* %08x */) WITHOUT ROWID", crc32.ChecksumIEEE([]byte(t.triggers())))
}

// entry returns the columns of an entry: of a document, "new." for one, in an index of that number, name and riding.
func (t *table) entry(of, number, name, rides string) string {
	return t.entryKey(of, number, name) + strings.Join(append([]string{""}, t.riders...), ", "+of) + ", CASE WHEN " + rides + " THEN " + of + "custom END"
}

// kind returns what says which custom fields a document has, "new." one.
func (t *table) kind(of string) string {
	if t.of == "" {
		return "''"
	}
	return of + t.columns[t.of].column
}

// among returns the conditions that confine the table to documents of a kind, with the marks of the workspace and the
// kind, and to which others are added.
func (t *table) among(ws, kind string) string {
	return " WHERE " + t.led("ws = "+ws+" AND ") + t.kind("") + " = " + kind + " AND "
}

func (t *table) entryKey(of, number, name string) string {
	return t.led(of+"ws, ") + number + ", ifnull(max(" + customOperand(of+"custom", name).expr + ", " + leastValue + "), " + noValue + "), " + of + "id"
}

// triggers returns the statements that keep the entries up: whoever writes documents writes them too.
func (t *table) triggers() string {
	indexes := func(of string) string {
		return " FROM fields WHERE " + t.led("ws = "+of+"ws AND ") + "tbl = '" + t.name + "' AND kind = " + t.kind(of)
	}
	add := "INSERT OR REPLACE INTO " + t.entries + " SELECT " + t.entry("new.", "number", "name", "rides") + indexes("new.") + "; "
	take := "DELETE FROM " + t.entries + " WHERE (" + t.led("ws, ") + "number, v, id) IN (SELECT " + t.entryKey("old.", "number", "name") + indexes("old.") + "); "
	seen := func(of string) string {
		return t.kind(of) + ", " + of + "custom" + strings.Join(append([]string{""}, t.riders...), ", "+of)
	}
	same := "(" + seen("old.") + ") IS NOT (" + seen("new.") + ")"
	var all strings.Builder
	for _, tr := range []struct{ on, when, do string }{{"INSERT", "", add}, {"UPDATE", " WHEN " + same, take + add}, {"DELETE", "", take}} {
		name := quote("e:" + t.name + ":" + strings.ToLower(tr.on))
		all.WriteString("DROP TRIGGER IF EXISTS " + name + "; CREATE TRIGGER " + name + " AFTER " + tr.on + " ON " + t.quoted + tr.when + " BEGIN " + tr.do + "END; ")
	}
	return all.String()
}

// keepEntries makes the table of entries and what keeps it up, anew where it is another.
func (t *table) keepEntries(c *conn) error {
	made, err := c.words("SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = 'e:' || ?1", t.name)
	if err != nil || len(made) == 1 && made[0] == t.entriesMade {
		return err
	}
	if err := c.newFields(t.shared); err != nil {
		return err
	}
	if err := c.exec("DELETE FROM fields WHERE tbl = ?1", t.name); err != nil {
		return err
	}
	return c.script("DROP TABLE IF EXISTS " + t.entries + "; " + t.entriesMade + "; " + t.triggers())
}

// drop says in the file that indexes are dropped.
func (c *conn) drop(gone []dropped) error {
	for _, d := range gone {
		if err := c.exec("UPDATE fields SET state = ?3"+oneField(d.key.ws)+" AND name = ?6", append(fieldArgs(d.key, d.number, entriesDropped), d.key.key)...); err != nil {
			return err
		}
	}
	return nil
}

// fieldJob is an index to be made.
type fieldJob struct {
	w   *workspace
	t   *table
	key fieldKey
}

var errFewDocuments = errors.New("the collection is small")

// makeIndex makes one, and says what became of it.
func (e *Engine) makeIndex(ctx context.Context, job fieldJob) {
	x, err := job.make(ctx)
	switch {
	case err == nil:
	case errors.Is(err, errRemoved), errors.Is(err, errFewDocuments), errors.Is(err, errGone), errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrSlow), ctx.Err() != nil:
		x = &fieldIndex{} // who asks again finds out again, and goes on from there
	default:
		gone := dropped{key: job.key, number: x.number}
		x = &fieldIndex{state: driver.IndexRefused, reason: fmt.Sprintf("it could not be made, so questions about the field read every document: %v", err)}
		if gone.number != 0 && job.w.file.idly(ctx, func(c *conn) error { return c.drop([]dropped{gone}) }, func() {}) == nil {
			job.w.file.fields.drop(gone)
		}
	}
	job.w.file.fields.set(job.key, x)
}

// make makes the index, and goes on where one that was begun has ended.
func (j fieldJob) make(ctx context.Context) (*fieldIndex, error) {
	x := &fieldIndex{state: driver.IndexReady, made: j.t.entriesMade}
	x.used.Store(time.Now().UnixNano())
	x.noted = x.used.Load()
	at, ready, err := j.begin(ctx, x)
	for more := !ready; more && err == nil; {
		at, more, err = j.run(ctx, x, at)
	}
	return x, failed(ctx, "make an index", err)
}

// step changes the file, some rows of it, and leaves others the writer then for as long as that took.
func (j fieldJob) step(ctx context.Context, rows int, touched map[shelf]bool, do func(*conn) error) (took time.Duration, err error) {
	limited, cancel := j.w.engine.limit(ctx)
	defer cancel()
	db, err := j.w.acquire(limited)
	if err != nil {
		return 0, err
	}
	defer j.w.file.leave()
	var began time.Time
	err = db.transact(limited, limited, load{ws: j.key.ws, rows: rows}, touched, func(c *conn) error {
		began = time.Now()
		if err := j.w.there(c); err != nil {
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

// begin writes down that there is to be one, so that every document that is written from now on has an entry, and
// returns up to which document those that were there before have. Where the file has one already it returns true.
func (j fieldJob) begin(ctx context.Context, x *fieldIndex) (at string, ready bool, err error) {
	var gone []dropped
	_, err = j.step(ctx, 0, nil, func(c *conn) error {
		var documents int64
		x.number, at, ready, gone = 0, "", false, nil
		if err := c.each("SELECT count(*), avg(n) FROM (SELECT ifnull(octet_length(custom), 0) AS n FROM "+j.t.quoted+j.t.among("?3", "?2")+"true LIMIT ?1)", j.t.args(j.key.ws, int64(leastIndexed), j.key.kind), func(row *sqlite.Stmt) {
			documents, x.rides = row.ColumnInt64(0), row.ColumnFloat(1) <= maxRiding
		}); err != nil {
			return err
		}
		if documents < leastIndexed && !j.w.engine.opts.eager {
			return errFewDocuments
		}
		if err := j.t.keepEntries(c); err != nil {
			return err
		}
		var begun []dropped // of other fields, and not under way: one is made after the other
		others := 0
		if err := c.each("SELECT number, name, rides, at, state FROM fields WHERE "+j.t.led("ws = ?3 AND ")+"tbl = ?1 AND kind = ?5 AND state <> ?2 ORDER BY state = ?4 DESC, number", []any{j.t.name, entriesDropped, j.key.ws, entriesReady, j.key.kind}, func(row *sqlite.Stmt) {
			d := dropped{fieldKey{j.key.ws, j.t.name, j.key.kind, row.ColumnText(1)}, row.ColumnInt64(0), time.Now()}
			built := row.ColumnText(4) == entriesReady
			switch {
			case d.key == j.key && x.number == 0:
				x.number, x.rides, at, ready = d.number, row.ColumnBool(2), row.ColumnText(3), built
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
		surplus := j.w.file.fields.surplus(func(k fieldKey) bool {
			return k != j.key && k.ws == j.key.ws && k.table == j.key.table && k.kind == j.key.kind
		}, maxFieldIndexes-1, 0)
		room := max(maxFieldIndexes-1-(others-len(surplus)), 0)
		gone = slices.Concat(gone, surplus, begun[:max(len(begun)-room, 0)])
		if err := c.drop(gone); err != nil {
			return err
		}
		if x.number != 0 {
			return c.exec("UPDATE fields SET used = ?3"+oneField(j.key.ws), fieldArgs(j.key, x.number, time.Now().Unix())...)
		}
		var err error
		if x.number, err = c.counter(j.t.shared, 0, "x:fields", 1, 0); err != nil {
			return err
		}
		return c.exec("INSERT INTO fields (tbl, kind, number, name, rides, state, at, used"+j.t.led(", ws")+") VALUES (?1, ?7, ?2, ?3, ?4, ?5, '', ?6"+j.t.led(", ?8")+")",
			j.t.name, x.number, j.key.key, x.rides, entriesBuilding, time.Now().Unix(), j.key.kind, j.key.ws)
	})
	if err == nil {
		j.w.file.fields.drop(gone...)
	}
	return at, ready, err
}

// errGone is of an index that the file does not have, or not as it was: another was put in its place, or it was
// dropped.
var errGone = errors.New("the index is gone")

// under returns errGone where the file does not say that the index is being made.
func (j fieldJob) under(c *conn, x *fieldIndex) error {
	state, err := c.stateOf(j.key, x.number)
	if err == nil && state != entriesBuilding {
		err = errGone
	}
	return err
}

// stateOf returns what the file says of an index, "" where it says nothing.
func (c *conn) stateOf(key fieldKey, number int64) (state string, err error) {
	have, err := c.words("SELECT name FROM sqlite_schema WHERE name IN ('fields', 'e:' || ?1)", key.table)
	if err != nil || len(have) < 2 {
		return "", err
	}
	err = c.each("SELECT state FROM fields"+oneField(key.ws)+" AND name = ?3", fieldArgs(key, number, key.key), func(row *sqlite.Stmt) { state = row.ColumnText(0) })
	return state, err
}

// run stores the entries of the documents that follow one, and says after which to go on. Where there are no more,
// the index is ready.
func (j fieldJob) run(ctx context.Context, x *fieldIndex, at string) (last string, more bool, err error) {
	ids, last, err := j.inOrder(ctx, at)
	for n := leastPiece; len(ids) > 0 && err == nil; {
		piece := ids[:min(n, len(ids))]
		ids = ids[len(piece):]
		list := make([]any, len(piece))
		for i, id := range piece {
			list[i] = id
		}
		var took time.Duration
		took, err = j.step(ctx, len(piece), map[shelf]bool{}, func(c *conn) error {
			if err := j.under(c, x); err != nil {
				return err
			}
			// As they are now: those that were changed meanwhile have theirs, those that were deleted have none.
			if err := c.exec("INSERT OR REPLACE INTO "+j.t.entries+" SELECT "+j.t.entry("", "?1", "?2", "?3")+" FROM "+j.t.quoted+j.t.among("?6", "?5")+"id IN (SELECT value FROM json_each(?4))",
				j.t.args(j.key.ws, x.number, j.key.key, x.rides, jsonList(list), j.key.kind)...); err != nil || len(ids) > 0 {
				return err
			}
			return c.exec("UPDATE fields SET at = ?3"+oneField(j.key.ws), fieldArgs(j.key, x.number, last)...)
		})
		n = min(max(int(float64(len(piece))*float64(pieceTime)/float64(took+1)), leastPiece), mostPiece, 2*n)
	}
	if more = last != ""; more || err != nil {
		return last, more, err
	}
	_, err = j.step(ctx, 0, nil, func(c *conn) error {
		if err := j.under(c, x); err != nil {
			return err
		}
		if err := c.exec("UPDATE fields SET state = ?3"+oneField(j.key.ws), fieldArgs(j.key, x.number, entriesReady)...); err != nil {
			return err
		}
		err := c.script(sampled + "; ANALYZE " + j.t.entries) // else the planner takes one index to be like the others
		if err == nil && j.t.shared {
			err = c.level()
		}
		return err
	})
	j.w.file.remeasured()
	return "", false, err
}

// inOrder returns the ids of the documents that follow one, in the order of their entries, and the last of them: all
// that are stored in one run. Where there are none it is empty.
func (j fieldJob) inOrder(ctx context.Context, at string) (ids []string, last string, err error) {
	ctx, cancel := j.w.engine.limit(ctx)
	defer cancel()
	db, err := j.w.acquire(ctx)
	if err != nil {
		return nil, "", err
	}
	defer j.w.file.leave()
	v := visit{ctx: ctx, db: db, space: j.w.space, question: question{j.w.space.party, inRuns}}
	err = v.answer(func(r *reader) error {
		return r.conn.until(ctx, func() error {
			ids, err = r.conn.words("SELECT id FROM (SELECT id, "+customOperand("custom", "?1").expr+" AS v FROM "+j.t.quoted+j.t.among("?5", "?4")+"id > ?2 ORDER BY id LIMIT ?3) ORDER BY v",
				j.t.args(j.key.ws, j.key.key, at, int64(fieldRun), j.key.kind)...)
			return err
		})
	})
	if err == nil && len(ids) > 0 {
		last = slices.Max(ids)
	}
	return ids, last, err
}

// remeasured has readers begin anew, who read the planner's statistics when they do.
func (f *file) remeasured() {
	if f.retain() {
		f.db.statistics.Add(1)
		f.leave()
	}
}

// deleteEntries deletes those of an index that was dropped, a few at a time, and the index. One of that number that the
// file has, and did not drop, it leaves alone: it is of a file that was put in its place, or goes on.
func (f *file) deleteEntries(ctx context.Context, d dropped) error {
	table := quote("e:" + d.key.table)
	where, key := led(d.key.ws != 0, "ws = ?4 AND ")+"number = ?2", led(d.key.ws != 0, "ws, ")+"number, v, id"
	for done := false; !done; {
		limited, cancel := f.engine.limit(ctx)
		db, err := f.acquire(limited)
		if err == nil {
			err = db.transact(limited, limited, load{ws: d.key.ws, rows: clearBatch}, map[shelf]bool{}, func(c *conn) error {
				state, err := c.stateOf(d.key, d.number)
				if err == nil && state == entriesBuilding { // begun long ago, and nobody asked again
					if err = c.exec("UPDATE fields SET state = '"+entriesDropped+"'"+oneField(d.key.ws)+" AND used < ?3", fieldArgs(d.key, d.number, time.Now().Add(-fieldUnused).Unix())...); err == nil {
						state, err = c.stateOf(d.key, d.number)
					}
				}
				if done = state != entriesDropped; done || err != nil {
					return err
				}
				if err := c.exec("DELETE FROM "+table+" WHERE ("+key+") IN (SELECT "+key+" FROM "+table+" WHERE "+where+" LIMIT ?3)", fieldArgs(d.key, d.number, int64(clearBatch))...); err != nil {
					return err
				}
				if done = c.raw.Changes() < clearBatch; !done {
					return nil
				}
				return c.exec("DELETE FROM fields"+oneField(d.key.ws), fieldArgs(d.key, d.number, nil)...)
			})
			f.leave()
		}
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
