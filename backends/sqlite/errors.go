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
	errGivenUp = fmt.Errorf("%w: the write was given up", driver.ErrUnavailable)
	errRemoved = errors.New("the workspace was removed; open it again")
)

// failed turns an error of SQLite into one that callers of the driver can judge.
// An interrupted statement, or a wait that was in vain, becomes the context's own error, which is an ErrSlow
// where time was up.
func failed(ctx context.Context, doing string, err error) error {
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

// interrupted reports whether a statement was ended from outside. Of one that reads a function as a table, while that
// is prepared, SQLite tells so in words alone.
func interrupted(err error) bool {
	code := sqlite.ErrCode(err)
	return code.ToPrimary() == sqlite.ResultInterrupt || code == sqlite.ResultError && strings.HasSuffix(err.Error(), ": interrupted")
}

// transient reports whether the cause lies outside the statement and may go away.
func transient(err error) bool {
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultBusy, sqlite.ResultLocked,
		sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultPerm, sqlite.ResultProtocol:
		return true
	}
	return false
}

// broken reports whether the connection that err came from had better not be used again.
func broken(err error) bool { return transient(err) || errors.Is(err, background.ErrPanic) }

// duplicate returns the error for a broken unique constraint, or nil when err is another one.
// SQLite names the columns at the end of its message.
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
