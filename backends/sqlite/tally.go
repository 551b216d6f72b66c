package sqlite

import (
	"context"
	"maps"
	"time"

	"tenantry/backends/driver"

	"zombiezen.com/go/sqlite"
)

// The usage of a workspace is stored in counters and updated in the transaction that changes the documents, so it is
// exact even if the process is killed. The jobs of a transaction add to its tally, which is stored once, right before
// the commit.
const (
	countedDocuments = "documents"
	countedBytes     = "bytes"
	// countsTaken is the number of times that everything was counted. While it is 0, the counters above have only the
	// changes since they exist.
	countsTaken = "counted"
	// sizeExpr is the SQL of driver.Document.Size. It does not read the texts.
	sizeExpr = "octet_length(body) + ifnull(octet_length(custom), 0)"
	// firstCountWait is how long a write waits for the first count, which is needed for documents stored before there
	// were counters. A longer count continues in the background, and quotas are enforced once it has ended.
	firstCountWait = time.Second
)

// tally is what the jobs of the current transaction add to the usage of each workspace of the file.
type tally map[int64]driver.Usage

// snapshot returns a copy to roll back to, or nil if none is needed.
func (t tally) snapshot(needed bool) tally {
	if !needed {
		return nil
	}
	return maps.Clone(t)
}

// storeTally adds the tally to the stored counters and clears it.
func (c *conn) storeTally(shared bool) error {
	for ws, by := range c.tally {
		if by == (driver.Usage{}) {
			continue
		}
		sql := "INSERT INTO counters (name, value) VALUES ('documents', ?1), ('bytes', ?2) ON CONFLICT (name)"
		args := []any{by.Documents, by.Bytes}
		if shared {
			sql = "INSERT INTO counters (ws, name, value) VALUES (?3, 'documents', ?1), (?3, 'bytes', ?2) ON CONFLICT (ws, name)"
			args = append(args, ws)
		}
		if err := c.exec(sql+" DO UPDATE SET value = value + excluded.value", args...); err != nil {
			return err
		}
	}
	clear(c.tally)
	return nil
}

// usage returns the stored counters of the workspace, and the number of times that everything was counted.
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
		case countsTaken:
			times = row.ColumnInt64(1)
		}
	})
	return used, times, err
}

// meter measures the growth of the workspace by one batch and enforces a quota. A nil meter does nothing.
type meter struct {
	w           *workspace
	quota       driver.Quota
	predictable bool         // without reading documents, because the batch replaces and deletes none
	predicted   driver.Usage // the growth, if predictable
	growth      driver.Usage // measured so far
}

// predict computes the growth by the batch, if it is predictable.
func (m *meter) predict(changes []change) {
	if m == nil {
		return
	}
	m.predictable = true
	for i := range changes {
		switch c := &changes[i]; {
		case c.t.uncounted || c.op == driver.Hold:
		case c.op == driver.Insert:
			m.predicted = m.predicted.Plus(driver.Usage{Documents: 1, Bytes: c.size()})
		default:
			m.predictable = false
		}
	}
}

// begin starts a measurement. A batch with a predictable growth is refused before it has written anything. Error:
// *driver.QuotaError.
func (m *meter) begin(c *conn) error {
	if m == nil {
		return nil
	}
	m.growth = driver.Usage{} // the job may run more than once
	if !m.predictable {
		return nil
	}
	m.growth = m.predicted
	return m.admit(c)
}

// admit returns a *driver.QuotaError if the growth exceeds the quota.
func (m *meter) admit(c *conn) error {
	if m.quota == (driver.Quota{}) || m.growth.Documents <= 0 && m.growth.Bytes <= 0 {
		return nil
	}
	used, _, err := m.w.usage(c)
	if err != nil {
		return err
	}
	return m.quota.Admit(used.Plus(c.tally[m.w.space.id]), m.growth)
}

// size returns the driver.Document.Size of the new document.
func (c *change) size() int64 {
	custom, _ := c.custom.(string)
	return int64(len(c.body) + len(custom))
}

// measure adds the growth by a change, before it is applied.
func (m *meter) measure(c *conn, one *change) error {
	if m == nil || m.predictable || one.t.uncounted || one.op == driver.Hold {
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
	m.growth = m.growth.Minus(was)
	if one.op != driver.Delete {
		m.growth = m.growth.Plus(driver.Usage{Documents: 1, Bytes: one.size()})
	}
	return nil
}

// end adds the growth by the batch to the tally. Error: *driver.QuotaError.
func (m *meter) end(c *conn) error {
	if m == nil || m.growth == (driver.Usage{}) {
		return nil
	}
	if !m.predictable {
		if err := m.admit(c); err != nil {
			return err
		}
	}
	c.tally[m.w.space.id] = c.tally[m.w.space.id].Plus(m.growth)
	return nil
}

// WriteWithin implements driver.Meter. The quota is not enforced before everything was counted once.
func (w *workspace) WriteWithin(ctx context.Context, writes []driver.Write, q driver.Quota) error {
	if q != (driver.Quota{}) && !w.isCounted(ctx) {
		q = driver.Quota{}
	}
	return w.write(ctx, writes, &meter{w: w, quota: q})
}

// isCounted reports whether the counters include all documents. If not, it counts them, or leaves that to a background
// job if it takes longer than firstCountWait.
func (w *workspace) isCounted(ctx context.Context) bool {
	if w.space.counted.Load() || w.space.countPending.Load() {
		return w.space.counted.Load()
	}
	first, cancel := context.WithTimeout(ctx, firstCountWait)
	defer cancel()
	if _, err := w.Used(first); err == nil {
		return true
	}
	if ctx.Err() == nil && !w.space.countPending.Swap(true) {
		select {
		case w.engine.builds <- func(ctx context.Context) {
			defer w.space.countPending.Store(false)
			_, _ = w.Recount(ctx) // after an error the next write tries again
		}:
		default:
			w.space.countPending.Store(false)
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
		select { // of concurrent callers, one counts
		case w.space.counting <- struct{}{}:
			defer func() { <-w.space.counting }()
		case <-ctx.Done():
			return driver.Usage{}, wrapError(ctx, "measure", ctx.Err())
		}
	}
}

// Recount implements driver.Meter. It does not block writes: it counts in a snapshot, and then corrects the counters by
// the difference found in that snapshot, unless another call has done so meanwhile.
func (w *workspace) Recount(ctx context.Context) (used driver.Usage, err error) {
	var stored, found driver.Usage
	var times int64
	err = w.asLongQuery(ctx, "count", func(c *conn) (err error) {
		if stored, times, err = w.usage(c); err != nil {
			return err
		}
		for _, t := range w.tables {
			if t.uncounted {
				continue
			}
			sql, args := "SELECT count(*), ifnull(sum("+sizeExpr+"), 0) FROM "+t.quoted, []any(nil)
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
	size := load{ws: w.space.party, rows: 1}
	err = w.transact(ctx, "count", size, map[partition]bool{}, func(_ context.Context, c *conn) error {
		now, latest, err := w.usage(c)
		if err == nil && latest == times {
			if _, err = c.counter(w.shared, w.space.id, countsTaken, 1, 0); err == nil {
				c.tally[w.space.id] = c.tally[w.space.id].Plus(found.Minus(stored))
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

// snapshot calls do with a connection that reads one snapshot.
func (w *workspace) snapshot(ctx context.Context, doing string, do func(*conn) error) error {
	db, err := w.acquire(ctx)
	if err != nil {
		return wrapError(ctx, doing, err)
	}
	defer w.file.release()
	return wrapError(ctx, doing, db.withReader(ctx, func(r *reader) error { return r.snapshot(ctx, do) }))
}

// asLongQuery is snapshot for a function that reads everything. It runs as a long query.
func (w *workspace) asLongQuery(ctx context.Context, doing string, do func(*conn) error) error {
	ctx, end, err := w.begin(ctx, doing)
	if err != nil {
		return err
	}
	defer end()
	q := queryRun{ctx: ctx, db: w.file.db, space: w.space, key: queryKey{w.space.party, doing}}
	return wrapError(ctx, doing, q.attempt(true, func(r *reader) error { return r.snapshot(ctx, do) }))
}

// snapshot calls do in the reader's snapshot, or in one that ends with the call.
func (r *reader) snapshot(ctx context.Context, do func(*conn) error) error {
	defer r.conn.interruptAt(ctx)()
	if r.conn.raw.AutocommitEnabled() {
		if err := r.conn.exec("BEGIN"); err != nil {
			return err
		}
		defer func() { _ = r.conn.exec("ROLLBACK") }()
	}
	return do(r.conn)
}
