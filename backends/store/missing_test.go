package store_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/backends/store/driver"
	"tenantry/backends/store/sqlite"
)

// A file that was lost, or is on another machine, is not taken for an empty organization, and
// a move does not take it for one with nothing to copy.
func TestMissingFilesAreNotMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	items := define[item](t, itemSpec())
	var before *sqlite.Engine
	open := func(move bool) (*store.Store, *store.Workspace, error) {
		t.Helper()
		if before != nil {
			if err := before.Close(); err != nil {
				t.Fatal(err)
			}
		}
		e, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		before = e
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
		s := store.New(store.Options{Engine: e, Backends: map[string]driver.Engine{"other": openSQLite(t)}, Tenant: []*store.Spec{items.Spec()}})
		if move {
			_, err := s.NewMover(t.Context(), 1, "", "", "other")
			return s, nil, err
		}
		w, err := s.At(t.Context(), 1, store.Placement{Rev: 1, ReadAt: time.Now()})
		return s, w, err
	}
	first, _, err := open(false)
	wantErr(t, "an organization without a file", err, store.ErrUnavailable)
	if err := first.Prepare(t.Context(), 1, "", ""); err != nil {
		t.Fatal(err)
	}
	w, err := first.At(t.Context(), 1, store.Placement{Rev: 1, ReadAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	insert(t, items.In(w), &item{Name: "a"})
	if _, again, err := open(false); err != nil || names(t, items.In(again), store.Query{}) != "a" {
		t.Fatalf("the file that is there: %v", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "org-1.db*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, f := range files {
		if err := os.Rename(f, f+".lost"); err != nil {
			t.Fatal(err)
		}
	}
	for _, move := range []bool{false, true} {
		_, _, err := open(move)
		wantErr(t, "a lost file", err, store.ErrUnavailable)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "org-1.db")); len(left) != 0 || err != nil {
		t.Errorf("the file was made anew: %v, %v", left, err)
	}
}
