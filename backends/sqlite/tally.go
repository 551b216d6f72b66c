package sqlite

import (
	"context"
	"maps"
	"time"

	"tenantry/backends/driver"

	"zombiezen.com/go/sqlite"
)

// What a workspace holds stands in its counters, and changes in the transaction that changes the documents: exact,
// whatever becomes of the process. The jobs of a transaction add up in the tally, which is stored once, right before
// the commit.
const (
	countedDocuments = "documents"
	countedBytes     = "bytes"
	// timesCounted is how often all has been counted; before the first time the two above tell only what changed since
	// they began.
	timesCounted = "counted"
	// sizeOf is the part of a statement that tells the driver.Document.Size of a row, of which it reads no text.
	sizeOf = "octet_length(body) + ifnull(octet_length(custom), 0)"
	// countPatience is how long writes wait for the first count, of what was stored before there were counters. One
	// that takes longer is taken beside them, and a quota begins to hold once it has ended.
	countPatience = time.Second
)

// tally is what the jobs of the transaction under way have added to each workspace of the file.
type tally map[int64]driver.Usage

// before returns a copy to go back to, where that may be needed.
func (t tally) before(needed bool) tally {
	if !needed {
		return nil
	}
	return maps.Clone(t)
}

// storeTally stores what was added up.
func (c *conn) storeTally(shared bool) error {
	for ws, by := range c.tally {
		if by == (driver.Usage{}) {
			continue
		}
		sql := "INSERT INTO counters (name, value) VALUES ('documents', ?1), ('bytes', ?2) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"
		args := []any{by.Documents, by.Bytes}
		if shared {
			sql = "INSERT INTO counters (ws, name, value) VALUES (?3, 'documents', ?1), (?3, 'bytes', ?2) ON CONFLICT (ws, name) DO UPDATE SET value = value + excluded.value"
			args = append(args, ws)
		}
		if err := c.exec(sql, args...); err != nil {
			return err
		}
	}
	clear(c.tally)
	return nil
}

// usage returns what the counters tell, and how often everything has been counted.
func (w *workspace) usage(c *conn) (used driver.Usage, times int64, err error) {
	sql, args := "SELECT name, value FROM counters", []any(nil)
	if w.shared {
		sql, args = sql+" WHERE ws = ?1", []any{w.space.id}
	}
	err = c.each(sql, args, func(row *sqlite.Stmt) {
		switch row.ColumnText(0) {
		case countedDocuments:
			used.Documents = row.ColumnInt64(1)
		case countedBytes:
			used.Bytes = row.ColumnInt64(1)
		case timesCounted:
			times = row.ColumnInt64(1)
		}
	})
	return used, times, err
}

// meter measures one batch. A nil one measures nothing.
type meter struct {
	w     *workspace
	quota driver.Quota
	known bool         // what the batch adds, without looking: it replaces and deletes nothing
	adds  driver.Usage // where it is known
	by    driver.Usage // as measured so far
}

// expect notes what the batch will add, where it can be told.
func (m *meter) expect(changes []change) {
	if m == nil {
		return
	}
	m.known = true
	for i := range changes {
		switch c := &changes[i]; {
		case c.t.uncounted || c.op == driver.Hold:
		case c.op == driver.Insert:
			m.adds = m.adds.Plus(driver.Usage{Documents: 1, Bytes: c.size()})
		default:
			m.known = false
		}
	}
}

// begin refuses a batch, before it has written anything, whose growth is known.
func (m *meter) begin(c *conn) error {
	if m == nil {
		return nil
	}
	m.by = driver.Usage{} // it may be done more than once
	if !m.known {
		return nil
	}
	m.by = m.adds
	return m.admit(c)
}

func (m *meter) admit(c *conn) error {
	if m.quota == (driver.Quota{}) || m.by.Documents <= 0 && m.by.Bytes <= 0 {
		return nil
	}
	used, _, err := m.w.usage(c)
	if err != nil {
		return err
	}
	return m.quota.Admit(used.Plus(c.tally[m.w.space.id]), m.by)
}

// size is the driver.Document.Size of what is stored.
func (c *change) size() int64 {
	custom, _ := c.custom.(string)
	return int64(len(c.body) + len(custom))
}

// measure adds what a change is about to add.
func (m *meter) measure(c *conn, one *change) error {
	if m == nil || m.known || one.t.uncounted || one.op == driver.Hold {
		return nil
	}
	was := driver.Usage{}
	if one.op != driver.Insert {
		if err := c.each(one.t.selectSize, one.t.args(one.ws, one.id), func(row *sqlite.Stmt) {
			was = driver.Usage{Documents: 1, Bytes: row.ColumnInt64(0)}
		}); err != nil {
			return err
		}
	}
	m.by = m.by.Minus(was)
	if one.op != driver.Delete {
		m.by = m.by.Plus(driver.Usage{Documents: 1, Bytes: one.size()})
	}
	return nil
}

// end adds to the tally what the batch has added, or refuses it.
func (m *meter) end(c *conn) error {
	if m == nil || m.by == (driver.Usage{}) {
		return nil
	}
	if !m.known {
		if err := m.admit(c); err != nil {
			return err
		}
	}
	c.tally[m.w.space.id] = c.tally[m.w.space.id].Plus(m.by)
	return nil
}

// WriteWithin implements driver.Meter.
func (w *workspace) WriteWithin(ctx context.Context, writes []driver.Write, q driver.Quota) error {
	if q != (driver.Quota{}) && !w.isCounted(ctx) {
		q = driver.Quota{}
	}
	return w.write(ctx, writes, &meter{w: w, quota: q})
}

// isCounted reports whether the counters tell everything, and has all counted where they do not.
func (w *workspace) isCounted(ctx context.Context) bool {
	if w.space.counted.Load() || w.space.countedLater.Load() {
		return w.space.counted.Load()
	}
	first, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	if _, err := w.Used(first); err == nil {
		return true
	}
	if ctx.Err() == nil && !w.space.countedLater.Swap(true) {
		select {
		case w.engine.builds <- func(ctx context.Context) {
			defer w.space.countedLater.Store(false)
			_, _ = w.Recount(ctx) // what fails is tried again by the next write
		}:
		default:
			w.space.countedLater.Store(false)
		}
	}
	return false
}

// Used implements driver.Meter.
func (w *workspace) Used(ctx context.Context) (used driver.Usage, err error) {
	for turn := false; ; turn = true {
		times := int64(0)
		if err := w.snapshot(ctx, "measure", func(c *conn) (err error) {
			used, times, err = w.usage(c)
			return err
		}); err != nil {
			return driver.Usage{}, err
		}
		if times > 0 {
			w.space.counted.Store(true)
			return used, nil
		}
		if turn {
			return w.Recount(ctx)
		}
		select { // one of them counts
		case w.space.counting <- struct{}{}:
			defer func() { <-w.space.counting }()
		case <-ctx.Done():
			return driver.Usage{}, failed(ctx, "measure", ctx.Err())
		}
	}
}

// Recount implements driver.Meter. It keeps nobody from writing: it counts in a snapshot, and then adds what the
// counters of that snapshot lacked, unless somebody else has done so meanwhile.
func (w *workspace) Recount(ctx context.Context) (used driver.Usage, err error) {
	var told, found driver.Usage
	var times int64
	err = w.inTurns(ctx, "count", func(c *conn) (err error) {
		if told, times, err = w.usage(c); err != nil {
			return err
		}
		for _, t := range w.tables {
			if t.uncounted {
				continue
			}
			sql, args := "SELECT count(*), ifnull(sum("+sizeOf+"), 0) FROM "+t.quoted, []any(nil)
			if w.shared {
				sql, args = sql+" WHERE ws = ?1", []any{w.space.id}
			}
			if err := c.each(sql, args, func(row *sqlite.Stmt) {
				found = found.Plus(driver.Usage{Documents: row.ColumnInt64(0), Bytes: row.ColumnInt64(1)})
			}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return driver.Usage{}, err
	}
	err = w.transact(ctx, "count", load{ws: w.space.party, rows: 1}, map[shelf]bool{}, func(_ context.Context, c *conn) error {
		now, latest, err := w.usage(c)
		if err == nil && latest == times {
			if _, err = c.counter(w.shared, w.space.id, timesCounted, 1, 0); err == nil {
				c.tally[w.space.id] = c.tally[w.space.id].Plus(found.Minus(told))
			}
		}
		used = now.Plus(c.tally[w.space.id])
		return err
	})
	if err == nil {
		w.space.counted.Store(true)
	}
	return used, err
}

// snapshot calls do with a reader that sees one state of the file.
func (w *workspace) snapshot(ctx context.Context, doing string, do func(*conn) error) error {
	db, err := w.acquire(ctx)
	if err != nil {
		return failed(ctx, doing, err)
	}
	defer w.file.release()
	return failed(ctx, doing, db.ask(ctx, func(r *reader) error { return r.snapshot(ctx, do) }))
}

// inTurns is snapshot for what reads everything: it is a long question.
func (w *workspace) inTurns(ctx context.Context, doing string, do func(*conn) error) error {
	ctx, end, err := w.begin(ctx, doing)
	if err != nil {
		return err
	}
	defer end()
	v := visit{ctx: ctx, db: w.file.db, space: w.space, question: question{w.space.party, doing}}
	return failed(ctx, doing, v.try(true, func(r *reader) error { return r.snapshot(ctx, do) }))
}

func (r *reader) snapshot(ctx context.Context, do func(*conn) error) error {
	defer r.conn.arm(ctx)()
	if r.conn.raw.AutocommitEnabled() {
		if err := r.conn.exec("BEGIN"); err != nil {
			return err
		}
		defer func() { _ = r.conn.exec("ROLLBACK") }()
	}
	return do(r.conn)
}
