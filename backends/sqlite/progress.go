package sqlite

import (
	"errors"
	"reflect"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

var errLibrary = errors.New("the connection of the linked SQLite library has an unexpected layout")

// progress is a progress handler of SQLite: a result other than 0 interrupts the statement.
type progress func(*libc.TLS, uintptr) int32

// watch calls step of the connection's queryRun after every tick steps of its statements. The library that opens
// connections has no function for that, so the handle is read from its private fields. It returns errLibrary if an
// update of the library has changed these.
func (c *conn) watch() error {
	raw := reflect.ValueOf(c.raw).Elem()
	tls, db := raw.FieldByName("tls"), raw.FieldByName("conn")
	if !tls.IsValid() || tls.Type() != reflect.TypeFor[*libc.TLS]() || !db.IsValid() || db.Kind() != reflect.Uintptr {
		return errLibrary
	}
	c.progress = func(*libc.TLS, uintptr) int32 {
		if c.run == nil {
			return 0
		}
		searched := c.searched / textPerStep
		c.searched = 0
		if c.run.step(searched) {
			return 1
		}
		return 0
	}
	// The library represents a C function by the address of a Go function value, which c keeps alive.
	handler := *(*uintptr)(unsafe.Pointer(&c.progress)) //nolint:gosec // package lib takes functions so
	lib.Xsqlite3_progress_handler((*libc.TLS)(tls.UnsafePointer()), uintptr(db.Uint()), tick, handler, 0)
	return nil
}
