package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// TestLostFileIsNotRecreated: a file that is lost while closed is not created again on its next use.
func TestLostFileIsNotRecreated(t *testing.T) { inBoth(t, testLostFileIsNotRecreated) }

func testLostFileIsNotRecreated(t *testing.T, shared bool) {
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
		t.Errorf("Missing for an existing file = %v, want nil", err)
	}
	if err := os.Rename(ws.file.path, ws.file.path+".lost"); err != nil {
		t.Fatal(err)
	}
	if _, err := ws.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("Count on a lost file = %v, want %v", err, driver.ErrUnavailable)
	}
	if _, err := os.Stat(ws.file.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Stat of the lost file = %v, want %v", err, fs.ErrNotExist)
	}
	if err := os.Rename(ws.file.path+".lost", ws.file.path); err != nil {
		t.Fatal(err)
	}
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); n != 1 || err != nil {
		t.Errorf("Count after the file was put back = %d, %v; want 1", n, err)
	}
}
