package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/backends/driver"
)

// TestReplacedFileIsRefusedWhenReopened: a file that was replaced by another owner's while closed is not used.
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
	open("third", "us") // closes the others, because one file may be open
	if err := os.Rename(filepath.Join(e.opts.Dir, "other.db"), filepath.Join(e.opts.Dir, "mine.db")); err != nil {
		t.Fatal(err)
	}
	if n, err := ws.Count(t.Context(), c, driver.Predicate{}); !errors.Is(err, driver.ErrForeign) || !strings.Contains(err.Error(), "you") {
		t.Errorf("Count on another owner's file = %d, %v; want %v with the owner", n, err, driver.ErrForeign)
	}
	if err := e.Remove(t.Context(), "mine", "me"); !errors.Is(err, driver.ErrForeign) {
		t.Errorf("Remove of another owner's file = %v, want %v", err, driver.ErrForeign)
	}
}

// TestFolderIsLocked: one engine at a time can open a folder.
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
		t.Errorf("Open of a folder in use = %v, want an error with its path", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatalf("Open after Close = %v, want nil", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}
