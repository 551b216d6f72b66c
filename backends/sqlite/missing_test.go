package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// A file that goes away while nobody uses it is not made anew when somebody does.
func TestLostFileIsNotMadeAnew(t *testing.T) { inBoth(t, testLostFileIsNotMadeAnew) }

func testLostFileIsNotMadeAnew(t *testing.T, shared bool) {
	e := openEngine(t, Options{Shared: shared, idleInterval: time.Millisecond, idleTimeout: time.Millisecond})
	c := people()
	ws := openWorkspace(t, e, "w", c)
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); len(e.opened()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the file stays open")
		}
	}
	if err := e.Missing("w"); err != nil {
		t.Errorf("the file is there: %v", err)
	}
	if err := os.Rename(ws.file.path, ws.file.path+".lost"); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a question after the file was lost: %v", err)
	}
	if _, err := os.Stat(ws.file.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file was made anew: %v", err)
	}
	if err := os.Rename(ws.file.path+".lost", ws.file.path); err != nil {
		t.Fatal(err)
	}
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); n != 1 || err != nil {
		t.Errorf("with the file back: %d, %v", n, err)
	}
}
