package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tenantry/backends/driver"
	"tenantry/internal/background"

	"zombiezen.com/go/sqlite"
)

var (
	errClosed  = fmt.Errorf("%w: the embedded store is closed", driver.ErrUnavailable)
	errAborted = fmt.Errorf("%w: the write was aborted", driver.ErrUnavailable)
	errRemoved = errors.New("the workspace was removed; open it again")
)

// wrapError translates an error of SQLite into one of package driver, and says what failed. An interrupted statement, or a
// wait that ended with the context, becomes the context's own error, with driver.ErrSlow if the deadline has passed.
func wrapError(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if done := ctx.Err(); done != nil && (interrupted(err) || errors.Is(err, done)) {
		if errors.Is(done, context.DeadlineExceeded) {
			return fmt.Errorf("%s: %w: %w", doing, driver.ErrSlow, done)
		}
		return fmt.Errorf("%s: %w", doing, done)
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return damaged(doing, err)
	}
	if transient(err) {
		return fmt.Errorf("%s: %w: %w", doing, driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// interrupted reports whether a statement was interrupted. While SQLite prepares a statement with a table-valued
// function, only the text of the error says so.
func interrupted(err error) bool {
	code := sqlite.ErrCode(err)
	return code.ToPrimary() == sqlite.ResultInterrupt ||
		code == sqlite.ResultError && strings.HasSuffix(err.Error(), ": interrupted")
}

// transient reports whether the cause lies outside the statement and may disappear.
func transient(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultBusy, sqlite.ResultLocked,
		sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultPerm, sqlite.ResultProtocol:
		return true
	}
	return false
}

// broken reports whether the connection must not be used again after the error.
func broken(err error) bool { return transient(err) || errors.Is(err, background.ErrPanic) }

// duplicate returns a *driver.DuplicateError for a violated unique constraint, or nil for another error. It recognizes
// the index by the columns that SQLite names at the end of its message.
func (t *table) duplicate(err error, position int) error {
	switch sqlite.ErrCode(err) {
	case sqlite.ResultConstraintUnique, sqlite.ResultConstraintPrimaryKey, sqlite.ResultConstraintRowID:
	default:
		return nil
	}
	text := err.Error()
	for _, u := range t.uniques {
		if strings.HasSuffix(text, ": "+u.columns) {
			return &driver.DuplicateError{Collection: t.name, Index: u.index, Position: position}
		}
	}
	return nil
}
