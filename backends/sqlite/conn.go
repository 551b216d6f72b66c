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

// The cache of prepared statements of one connection is bounded, because callers' filters produce any number of
// statements.
const (
	maxStatements = 256
	// maxTexts bounds the total length of the cached statements' texts. A prepared statement takes about fifty times the
	// memory of its text.
	maxTexts = 256 << 10
	// longStatement is the length of a text above which a statement is not cached.
	longStatement = 16 << 10
	// longBinding is the size of bound values above which they are cleared after use.
	longBinding = 4 << 10
)

// busyTimeout is how long a connection waits for locks, which other connections hold only briefly.
const busyTimeout = 2 * time.Second

// conn is a connection with its prepared statements. One goroutine uses it at a time.
type conn struct {
	raw       *sqlite.Conn
	stmts     map[string]*sqlite.Stmt
	textBytes int           // total length of their texts
	done      chan struct{} // closed to interrupt; replaced afterwards

	// For the writer alone: writes counts the statements that may have changed something, present has the workspaces
	// that the transaction has found in its file, and tally what the transaction adds to their usage.
	writes  uint64
	present map[int64]bool
	tally   tally
	cache   *pageCache // nil if the connection has no share of one
	shares  int64      // number of shares
	pages   int64      // the cache size that was set for these shares

	run      *queryRun // the query that a reader executes
	searched int64     // bytes that instrFold has read since the last tick
	progress progress  // see watch
}

func openConn(path string, flags sqlite.OpenFlags, pragmas ...string) (*conn, error) {
	raw, err := sqlite.OpenConn(path, flags)
	if err != nil {
		return nil, err
	}
	c := &conn{raw: raw, stmts: map[string]*sqlite.Stmt{}, done: make(chan struct{}), present: map[int64]bool{}, tally: tally{}}
	raw.SetBusyTimeout(busyTimeout)
	for name, match := range map[string]func(*driver.Folded, string) bool{
		instrFold:  (*driver.Folded).In,
		beginsFold: (*driver.Folded).Begins,
	} {
		function := &sqlite.FunctionImpl{NArgs: 2, Deterministic: true, Scalar: c.folded(match)}
		if err := raw.CreateFunction(name, function); err != nil {
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

// instrFold is the SQL function of a case-insensitive substring search. SQLite's own functions fold only ASCII, and
// GLOB with the cases of each letter takes four times as long and stops at NUL. The stored schema does not use it, so
// that other programs can read the file.
const instrFold = "instr_fold"

// beginsFold is the SQL function of a case-insensitive prefix search.
const beginsFold = "begins_fold"

// folded returns an SQL function that reports whether its first argument is a text that matches the second.
func (c *conn) folded(match func(*driver.Folded, string) bool) func(sqlite.Context, []sqlite.Value) (sqlite.Value, error) {
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
		if match(part, text) {
			return sqlite.IntegerValue(1), nil
		}
		return sqlite.IntegerValue(0), nil
	}
}

func (c *conn) close() error {
	c.stmts, c.textBytes = map[string]*sqlite.Stmt{}, 0 // the connection may outlive this call through a pointer to its database
	err := c.raw.Close()
	if c.cache != nil {
		c.cache.count(-c.shares)
	}
	return err
}

// interruptAt interrupts the connection when ctx ends, until disarm is called. It uses one channel for the life of the
// connection, because a channel for each statement would need a goroutine each.
func (c *conn) interruptAt(ctx context.Context) (disarm func()) {
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

// runUntil calls do and interrupts it when ctx ends. A panic of do is returned as an error.
func (c *conn) runUntil(ctx context.Context, do func() error) error {
	defer c.interruptAt(ctx)()
	return background.Try(do)
}

// prepare returns the cached or newly prepared statement, reset. It may still have the bindings of an earlier use.
func (c *conn) prepare(sql string) (*sqlite.Stmt, error) {
	if s := c.stmts[sql]; s != nil {
		return s, nil
	}
	for len(c.stmts) >= maxStatements || c.textBytes+len(sql) > maxTexts && len(c.stmts) > 0 {
		c.forget(maxStatements / 4)
	}
	s, err := c.raw.Prepare(sql)
	if err != nil {
		return nil, err
	}
	c.stmts[sql] = s
	c.textBytes += len(sql)
	return s, nil
}

// preparedUse is a prepared statement for one execution, after which end must be called.
type preparedUse struct {
	*sqlite.Stmt
	once  bool // finalize it
	clear bool // clear its bindings
}

// use prepares the statement for one execution with the arguments, which it does not bind.
func (c *conn) use(sql string, args []any) (r preparedUse, err error) {
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

func (r preparedUse) end() {
	if r.once {
		_ = r.Finalize()
		return
	}
	_ = r.Reset()
	if r.clear {
		_ = r.ClearBindings()
	}
}

// forget removes n statements, no matter which, from the cache.
func (c *conn) forget(n int) {
	for sql, s := range c.stmts {
		if n--; n < 0 {
			return
		}
		delete(c.stmts, sql)
		c.textBytes -= len(sql)
		_ = s.Finalize()
	}
}

// rows runs the statement and calls each, unless it is nil, for every row. An error of each ends it.
func (c *conn) rows(sql string, args []any, each func(*sqlite.Stmt) error) error {
	s, err := c.use(sql, args)
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
			c.noteWrite(more, err)
		}
		if err != nil || !more {
			return err
		}
		if c.run != nil {
			c.run.countRow()
		}
		if each == nil {
			continue
		}
		if err := each(s.Stmt); err != nil {
			return err
		}
	}
}

// noteWrite counts a statement that may have changed something. The number of changes is known only at its end, and
// only the error of a constraint guarantees that the statement was rolled back.
func (c *conn) noteWrite(more bool, err error) {
	if more || err == nil && c.raw.Changes() > 0 || err != nil && sqlite.ErrCode(err).ToPrimary() != sqlite.ResultConstraint {
		c.writes++
	}
}

// exec runs a statement without results.
func (c *conn) exec(sql string, args ...any) error { return c.rows(sql, args, nil) }

// each is rows with a function that cannot fail.
func (c *conn) each(sql string, args []any, read func(*sqlite.Stmt)) error {
	return c.rows(sql, args, func(row *sqlite.Stmt) error {
		read(row)
		return nil
	})
}

// number returns the first column of the last row, 0 if there is no row.
func (c *conn) number(sql string, args ...any) (n int64, err error) {
	err = c.each(sql, args, func(row *sqlite.Stmt) { n = row.ColumnInt64(0) })
	return n, err
}

// texts returns the first column of all rows.
func (c *conn) texts(sql string, args ...any) (all []string, err error) {
	err = c.each(sql, args, func(row *sqlite.Stmt) { all = append(all, row.ColumnText(0)) })
	return all, err
}

// pairs returns a map from the first column of all rows to the second.
func (c *conn) pairs(sql string, args ...any) (map[string]string, error) {
	all := map[string]string{}
	err := c.each(sql, args, func(row *sqlite.Stmt) { all[row.ColumnText(0)] = row.ColumnText(1) })
	return all, err
}

// script runs statements without caching them.
func (c *conn) script(sql string) error {
	for sql = strings.TrimSpace(sql); sql != ""; {
		s, rest, err := c.raw.PrepareTransient(sql)
		if err != nil {
			return err
		}
		for more := true; more && err == nil; {
			more, err = s.Step()
		}
		c.writes++
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
