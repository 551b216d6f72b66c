package sqlite

import (
	"context"
	"encoding/json"
	"fmt"

	"zombiezen.com/go/sqlite"

	"tenantry/backends/driver"
)

// change is a validated write with its values as they are bound.
type change struct {
	ws     int64
	t      *table
	op     driver.WriteOp
	id     string
	rev    int64
	body   string
	custom any
	values []any      // as stored
	lists  [][]string // for the side tables of t, in their order
}

// Write applies the writes in one transaction, which is on disk when Write returns.
func (w *workspace) Write(ctx context.Context, writes []driver.Write) error {
	return w.write(ctx, writes, nil)
}

// write is Write with an optional meter, which enforces a quota and counts the usage.
func (w *workspace) write(ctx context.Context, writes []driver.Write, m *meter) error {
	changes := make([]change, 0, len(writes))
	touched, rows := map[partition]bool{}, 0
	for i, wr := range writes {
		c, err := w.change(wr)
		if err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
		rows += wr.Rows()
		if c.custom != nil {
			rows += w.file.indexes.perDocument() // entries of custom values
		}
		if changes = append(changes, c); c.op != driver.Hold {
			touched[w.partition(c.t)] = true
		}
	}
	if len(changes) == 0 {
		return ctx.Err()
	}
	m.predict(changes)
	return w.transact(ctx, "write", load{w.space.party, len(changes), rows}, touched, func(ctx context.Context, c *conn) error {
		if err := m.begin(c); err != nil {
			return err
		}
		for i := range changes {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := m.measure(c, &changes[i]); err != nil {
				return err
			}
			if err := changes[i].apply(c, i); err != nil {
				return err
			}
		}
		return m.end(c)
	})
}

// change validates a write.
func (w *workspace) change(wr driver.Write) (change, error) {
	t, err := w.table(wr.Collection)
	if err != nil {
		return change{}, err
	}
	c := change{ws: w.space.id, t: t, op: wr.Op, id: wr.Doc.ID, rev: wr.Doc.Rev}
	if c.id == "" {
		return c, fmt.Errorf("a document of %s has no id", t.name)
	}
	if wr.Op == driver.Delete || wr.Op == driver.Hold {
		return c, nil
	}
	if wr.Op != driver.Insert && wr.Op != driver.Replace && wr.Op != driver.Put {
		return c, fmt.Errorf("unknown write %d", wr.Op)
	}
	if len(wr.Doc.Values) != len(t.fields) {
		return c, fmt.Errorf("document %s of %s has %d values for %d fields", c.id, t.name, len(wr.Doc.Values), len(t.fields))
	}
	c.values = make([]any, len(t.fields))
	for i, f := range t.fields {
		if c.values[i], err = column(f, wr.Doc.Values[i]); err != nil {
			return c, fmt.Errorf("document %s of %s: %w", c.id, t.name, err)
		}
	}
	for _, s := range t.sides {
		list, _ := wr.Doc.Values[s.position].([]string)
		c.lists = append(c.lists, list)
	}
	c.body = string(wr.Doc.Body)
	if wr.Doc.Custom != nil {
		// One malformed object would fail every query on a custom field.
		if !json.Valid(wr.Doc.Custom) {
			return c, fmt.Errorf("document %s of %s: the custom values are not JSON", c.id, t.name)
		}
		c.custom = string(wr.Doc.Custom)
	}
	return c, nil
}

// args returns the arguments of a prepared statement of the table: if it is shared, the workspace is the last one.
func (t *table) args(ws int64, args ...any) []any {
	if t.shared {
		return append(args, ws)
	}
	return args
}

// apply executes the change. Errors: *driver.DuplicateError, *driver.ConflictError.
func (c *change) apply(on *conn, position int) error {
	if c.op == driver.Hold {
		return c.checkRevision(on, position)
	}
	if c.op == driver.Insert {
		if err := c.store(on, c.t.insert, 1); err != nil {
			return c.translate(err, position)
		}
		return c.insertSides(on)
	}
	var expected any // the revision; a Put expects none
	if c.op != driver.Put {
		expected = c.rev
	}
	for _, s := range c.t.sides {
		if err := on.exec(s.removeOld, c.t.args(c.ws, c.id, expected)...); err != nil {
			return err
		}
	}
	var err error
	switch c.op {
	case driver.Delete:
		err = on.exec(c.t.remove, c.t.args(c.ws, c.id, c.rev)...)
	case driver.Put:
		err = c.store(on, c.t.put, c.rev)
	default:
		err = c.store(on, c.t.replace, c.rev)
	}
	if err != nil {
		return c.translate(err, position)
	}
	if on.raw.Changes() == 0 {
		return &driver.ConflictError{Collection: c.t.name, Position: position}
	}
	return c.insertSides(on)
}

// checkRevision returns a *driver.ConflictError if the document is not at the expected revision.
func (c *change) checkRevision(on *conn, position int) error {
	var rev int64
	err := on.rows(c.t.selectRev, c.t.args(c.ws, c.id), func(row *sqlite.Stmt) error {
		rev = row.ColumnInt64(0)
		return nil
	})
	if err == nil && rev != c.rev {
		err = &driver.ConflictError{Collection: c.t.name, Position: position}
	}
	return err
}

// translate turns a violated constraint into a *driver.DuplicateError.
func (c *change) translate(err error, position int) error {
	if d := c.t.duplicate(err, position); d != nil {
		return d
	}
	return err
}

// store executes a statement that writes the whole document. It binds without a list of arguments, because it is on the
// path of every write.
func (c *change) store(on *conn, sql string, rev int64) error {
	s, err := on.prepare(sql)
	if err != nil {
		return err
	}
	s.BindText(1, c.id)
	s.BindInt64(2, rev)
	s.BindText(3, c.body)
	if err := bind(s, 4, c.custom); err != nil {
		return err
	}
	for i, v := range c.values {
		if err := bind(s, i+5, v); err != nil {
			return err
		}
	}
	if c.t.shared {
		s.BindInt64(len(c.values)+5, c.ws)
	}
	more, err := s.Step()
	on.noteWrite(more, err)
	if reset := s.Reset(); err == nil { // after a failed step, Reset only repeats its error
		err = reset
	}
	return err
}

// insertSides inserts the elements of lists into the side tables.
func (c *change) insertSides(on *conn) error {
	for i, list := range c.lists {
		for _, element := range list {
			if err := on.exec(c.t.sides[i].insert, c.t.args(c.ws, element, c.id)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// Counter implements driver.Workspace.
func (w *workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	var value int64
	size := load{ws: w.space.party, rows: 1}
	err := w.transact(ctx, "count up", size, map[partition]bool{}, func(_ context.Context, c *conn) (err error) {
		value, err = c.counter(w.shared, w.space.id, name, add, atLeast)
		return err
	})
	return value, err
}

// Counters implements driver.Counting.
func (w *workspace) Counters(ctx context.Context) (map[string]int64, error) {
	all := map[string]int64{}
	err := w.snapshot(ctx, "list counters", func(c *conn) error {
		clear(all)
		sql, args := "SELECT name, value FROM counters", []any(nil)
		if w.shared {
			sql, args = sql+" WHERE ws = ?1", []any{w.space.id}
		}
		return c.each(sql, args, func(row *sqlite.Stmt) { all[row.ColumnText(0)] = row.ColumnInt64(1) })
	})
	for _, usage := range []string{countedDocuments, countedBytes, countsTaken} {
		delete(all, usage)
	}
	return all, err
}

// counter sets a counter to max(value, atLeast) + add and returns it.
func (c *conn) counter(shared bool, ws int64, name string, add, atLeast int64) (int64, error) {
	sql := "INSERT INTO counters (name, value) VALUES (?1, max(0, ?3) + ?2) ON CONFLICT (name)"
	args := []any{name, add, atLeast}
	if shared {
		sql = "INSERT INTO counters (ws, name, value) VALUES (?4, ?1, max(0, ?3) + ?2) ON CONFLICT (ws, name)"
		args = append(args, ws)
	}
	return c.number(sql+" DO UPDATE SET value = max(value, ?3) + ?2 RETURNING value", args...)
}
