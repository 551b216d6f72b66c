package sqlite

import (
	"context"
	"fmt"
	"strings"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/background"

	"zombiezen.com/go/sqlite"
)

// maxStatements bounds the prepared statements of one connection: filters come from outside, so their number of shapes
// has no bound of its own. A prepared statement takes some fifty times its text, so that of all of them is bounded too;
// one that is longer than longStatement is prepared for its one use. What was bound to one is kept with it, unless that
// is longer than longBinding.
const (
	maxStatements = 256
	maxTexts      = 256 << 10
	longStatement = 16 << 10
	longBinding   = 4 << 10
)

// busyTimeout is how long a connection waits for a lock that others hold for moments.
const busyTimeout = 2 * time.Second

// conn is a connection with its prepared statements. One goroutine uses it at a time.
type conn struct {
	raw   *sqlite.Conn
	stmts map[string]*sqlite.Stmt
	texts int           // bytes of theirs
	done  chan struct{} // closed to interrupt; replaced afterwards
	// wrote counts the statements that may have changed something, there are the workspaces that the transaction has
	// found in its file; both of the writer alone.
	wrote uint64
	there map[int64]bool
	tally tally      // of the writer
	cache *pageCache // nil where it has no share of one
	parts int64      // of it
	pages int64      // what it was told they are

	visit    *visit   // the question that a reader answers
	searched int64    // bytes that instrFold has read since the last tick
	progress progress // see watch
}

func openConn(path string, flags sqlite.OpenFlags, pragmas ...string) (*conn, error) {
	raw, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	c := &conn{raw: raw, stmts: map[string]*sqlite.Stmt{}, done: make(chan struct{}), there: map[int64]bool{}, tally: tally{}}
	raw.SetBusyTimeout(busyTimeout)
	for name, meets := range map[string]func(*driver.Folded, string) bool{instrFold: (*driver.Folded).In, beginsFold: (*driver.Folded).Begins} {
		if err := raw.CreateFunction(name, &sqlite.FunctionImpl{NArgs: 2, Deterministic: true, Scalar: c.folded(meets)}); err != nil {
			_ = raw.Close()
			return nil, err
		}
	}
	for _, p := range pragmas {
		if err := c.script(p); err != nil {
			_ = raw.Close()
			return nil, err
		}
	}
	raw.SetInterrupt(c.done)
	return c, nil
}

// instrFold is instr whatever the case, a function of ours: SQLite folds ASCII alone, and GLOB with the cases of each
// letter takes four times as long and ends at NUL. Nothing that is stored names it, so that other programs can read the
// file.
const instrFold = "instr_fold"

// beginsFold tells of the beginning what instrFold tells of all.
const beginsFold = "begins_fold"

// folded returns the function that tells whether its first argument, a text, meets the second.
func (c *conn) folded(meets func(*driver.Folded, string) bool) func(sqlite.Context, []sqlite.Value) (sqlite.Value, error) {
	return func(ctx sqlite.Context, args []sqlite.Value) (sqlite.Value, error) {
		if args[0].Type() != sqlite.TypeText {
			return sqlite.IntegerValue(0), nil
		}
		part, known := ctx.AuxData(1).(*driver.Folded)
		if !known {
			part = driver.Fold(args[1].Text())
			ctx.SetAuxData(1, part)
		}
		text := args[0].Text()
		c.searched += int64(len(text))
		if meets(part, text) {
			return sqlite.IntegerValue(1), nil
		}
		return sqlite.IntegerValue(0), nil
	}
}

func (c *conn) close() error {
	c.stmts, c.texts = map[string]*sqlite.Stmt{}, 0 // who still has the database has not them too
	err := c.raw.Close()
	if c.cache != nil {
		c.cache.count(-c.parts)
	}
	return err
}

// arm makes the end of ctx interrupt the connection, until the returned function is called.
// A channel that lives as long as the connection spares a goroutine for every statement.
func (c *conn) arm(ctx context.Context) (disarm func()) {
	if ctx.Done() == nil {
		return func() {}
	}
	done := c.done
	stop := context.AfterFunc(ctx, func() { close(done) })
	return func() {
		if stop() {
			return
		}
		<-done
		c.done = make(chan struct{})
		c.raw.SetInterrupt(c.done)
	}
}

// until calls do, which the end of ctx interrupts. A panic in it is an error.
func (c *conn) until(ctx context.Context, do func() error) error {
	defer c.arm(ctx)()
	return background.Try(do)
}

// prepare returns the statement, reset. Its bindings may be those of an earlier use.
func (c *conn) prepare(sql string) (*sqlite.Stmt, error) {
	if s := c.stmts[sql]; s != nil {
		return s, nil
	}
	for len(c.stmts) >= maxStatements || c.texts+len(sql) > maxTexts && len(c.stmts) > 0 {
		c.forget(maxStatements / 4)
	}
	s, err := c.raw.Prepare(sql)
	if err != nil {
		return nil, err
	}
	c.stmts[sql] = s
	c.texts += len(sql)
	return s, nil
}

// readied is a statement for one use.
type readied struct {
	*sqlite.Stmt
	once, clear bool
}

func (c *conn) ready(sql string, args []any) (r readied, err error) {
	if len(sql) > longStatement {
		r.once = true
		r.Stmt, _, err = c.raw.PrepareTransient(sql)
		return r, err
	}
	bound := 0
	for _, a := range args {
		switch v := a.(type) {
		case string:
			bound += len(v)
		case []byte:
			bound += len(v)
		}
	}
	r.clear = bound > longBinding
	r.Stmt, err = c.prepare(sql)
	return r, err
}

func (r readied) end() {
	if r.once {
		_ = r.Finalize()
		return
	}
	_ = r.Reset()
	if r.clear {
		_ = r.ClearBindings()
	}
}

func (c *conn) forget(n int) {
	for sql, s := range c.stmts {
		if n--; n < 0 {
			return
		}
		delete(c.stmts, sql)
		c.texts -= len(sql)
		_ = s.Finalize()
	}
}

// rows runs the statement and calls each for every row.
func (c *conn) rows(sql string, args []any, each func(*sqlite.Stmt) error) error {
	s, err := c.ready(sql, args)
	if err != nil {
		return err
	}
	defer s.end()
	if err := bindAll(s.Stmt, args); err != nil {
		return err
	}
	for {
		more, err := s.Step()
		if !strings.HasPrefix(sql, "SELECT") {
			c.note(more, err)
		}
		if err != nil || !more {
			return err
		}
		if c.visit != nil {
			c.visit.row()
		}
		if each == nil {
			continue
		}
		if err := each(s.Stmt); err != nil {
			return err
		}
	}
}

// note counts a statement that may have changed something. How much is known at its end alone, and no error but that
// of a constraint is certain to have taken it back.
func (c *conn) note(more bool, err error) {
	if more || err == nil && c.raw.Changes() > 0 || err != nil && sqlite.ErrCode(err).ToPrimary() != sqlite.ResultConstraint {
		c.wrote++
	}
}

func (c *conn) exec(sql string, args ...any) error { return c.rows(sql, args, nil) }

// each is rows for what cannot fail.
func (c *conn) each(sql string, args []any, read func(*sqlite.Stmt)) error {
	return c.rows(sql, args, func(row *sqlite.Stmt) error {
		read(row)
		return nil
	})
}

// number returns the first column of the last row, 0 where there is none.
func (c *conn) number(sql string, args ...any) (n int64, err error) {
	err = c.each(sql, args, func(row *sqlite.Stmt) { n = row.ColumnInt64(0) })
	return n, err
}

// words returns the first column of all rows.
func (c *conn) words(sql string, args ...any) (all []string, err error) {
	err = c.each(sql, args, func(row *sqlite.Stmt) { all = append(all, row.ColumnText(0)) })
	return all, err
}

// pairs returns the second column of all rows by the first.
func (c *conn) pairs(sql string, args ...any) (map[string]string, error) {
	all := map[string]string{}
	err := c.each(sql, args, func(row *sqlite.Stmt) { all[row.ColumnText(0)] = row.ColumnText(1) })
	return all, err
}

// script runs statements that are used once and not worth keeping.
func (c *conn) script(sql string) error {
	for sql = strings.TrimSpace(sql); sql != ""; {
		s, rest, err := c.raw.PrepareTransient(sql)
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			more, err = s.Step()
		}
		c.wrote++
		if e := s.Finalize(); err == nil {
			err = e
		}
		if err != nil {
			return fmt.Errorf("%.60s: %w", sql, err)
		}
		sql = strings.TrimSpace(sql[len(sql)-rest:])
	}
	return nil
}
