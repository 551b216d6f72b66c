package sqlite

import (
	"errors"
	"reflect"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

var errLibrary = errors.New("the linked SQLite library has another connection than this program was written for")

// progress is a progress handler as SQLite calls it: a result other than 0 interrupts the statement.
type progress func(*libc.TLS, uintptr) int32

// watch has the visit of the connection called after every tick steps of its statements. The library that opens
// connections has no such call, so the handle is read from its struct; an update that names it otherwise fails here,
// when the first reader is opened.
func (c *conn) watch() error {
	raw := reflect.ValueOf(c.raw).Elem()
	tls, db := raw.FieldByName("tls"), raw.FieldByName("conn")
	if !tls.IsValid() || tls.Type() != reflect.TypeFor[*libc.TLS]() || !db.IsValid() || db.Kind() != reflect.Uintptr {
		return errLibrary
	}
	c.progress = func(*libc.TLS, uintptr) int32 {
		if c.visit == nil {
			return 0
		}
		searched := c.searched / textPerStep
		c.searched = 0
		if c.visit.step(searched) {
			return 1
		}
		return 0
	}
	// A function of C is the address of a Go function's value, which c keeps for as long as the connection has it.
	handler := *(*uintptr)(unsafe.Pointer(&c.progress)) //nolint:gosec // the way in which package lib takes functions
	lib.Xsqlite3_progress_handler((*libc.TLS)(tls.UnsafePointer()), uintptr(db.Uint()), tick, handler, 0)
	return nil
}
