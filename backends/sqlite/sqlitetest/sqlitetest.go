// Package sqlitetest reads and changes database files without the engine, for tests of the stored data.
package sqlitetest

import (
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"
)

// Exec runs a statement on a database file, which an engine may have open. It fails the test if the statement changes
// nothing.
func Exec(t testing.TB, path, statement string, args ...any) {
	t.Helper()
	conn := open(t, path)
	defer conn.Close()
	if err := sqlitex.Execute(conn, statement, &sqlitex.ExecOptions{Args: args}); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if conn.Changes() == 0 && !strings.HasPrefix(statement, "DROP") {
		t.Fatalf("%s with %v changed nothing", statement, args)
	}
	time.Sleep(50 * time.Millisecond) // the engine's readers keep a snapshot for up to 10 ms
}

// Text returns the first column of the last row of a query. It fails the test if that is empty.
func Text(t testing.TB, path, query string, args ...any) string {
	t.Helper()
	conn := open(t, path)
	defer conn.Close()
	found := ""
	err := sqlitex.Execute(conn, query, &sqlitex.ExecOptions{Args: args, ResultFunc: func(s *sqlite.Stmt) error {
		found = s.ColumnText(0)
		return nil
	}})
	if err != nil || found == "" {
		t.Fatalf("%s with %v = %q, %v; want a text", query, args, found, err)
	}
	return found
}

func open(t testing.TB, path string) *sqlite.Conn {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	conn.SetBusyTimeout(5 * time.Second)
	return conn
}
