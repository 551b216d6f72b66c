package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/backends/driver"
)

// TestReplacedFileIsRefusedWhenReopened replaces an organization's file by another's while it is closed.
func TestReplacedFileIsRefusedWhenReopened(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{MaxOpen: 1})
	c := people()
	open := func(name, owner string) driver.Workspace {
		t.Helper()
		ws, err := e.Open(t.Context(), driver.Opening{Workspace: name, Owner: owner, Collections: []*driver.Collection{c}})
		if err != nil {
			t.Fatal(err)
		}
		return ws
	}
	ws, other := open("mine", "me"), open("other", "you")
	if err := other.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	open("third", "us") // takes the place of the others, which are closed
	if err := os.Rename(filepath.Join(e.opts.Dir, "other.db"), filepath.Join(e.opts.Dir, "mine.db")); err != nil {
		t.Fatal(err)
	}
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, driver.ErrForeign) || !strings.Contains(err.Error(), "you") {
		t.Errorf("a file of somebody else, opened again: %d, %v", n, err)
	}
	if err := e.Remove(t.Context(), "mine", "me"); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("removing it: %v", err)
	}
}

// TestFolderIsLocked holds that a folder belongs to one engine at a time.
func TestFolderIsLocked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if second, err := Open(t.Context(), Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), dir) {
		if err == nil {
			_ = second.Close()
		}
		t.Errorf("a second engine on the folder: %v", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
