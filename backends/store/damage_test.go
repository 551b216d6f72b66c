package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"tenantry/backends/sqlite"
	"tenantry/backends/store"
)

// filed is a store on the SQLite files of a folder.
type filed struct {
	*store.Store
	engine *sqlite.Engine
	items  *store.Kind[item]
}

func openFiles(t *testing.T, dir string, shared bool) *filed {
	t.Helper()
	e, err := sqlite.Open(t.Context(), sqlite.Options{Dir: dir, Shared: shared})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	items := define[item](t, itemSpec())
	return &filed{store.New(store.Options{Engine: e, Tenant: []*store.Spec{items.Spec()}}), e, items}
}

func (f *filed) write(t *testing.T, org int64, name string) error {
	t.Helper()
	w, err := f.At(t.Context(), org, store.Placement{Rev: 1, ReadAt: time.Now()})
	if err != nil {
		return err
	}
	return f.items.In(w).Insert(t.Context(), &item{Name: name})
}

// fill creates two organizations, in one file if shared is set, and closes the store. It overwrites a page of the first
// organization's file with zeros, and returns the content of the file before and after.
func fill(t *testing.T, dir string, shared bool) (a, b int64, file string, good, bad []byte) {
	t.Helper()
	f := openFiles(t, dir, shared)
	for a, b = 1, 2; shared && f.engine.Place(fmt.Sprint("org-", a)) != f.engine.Place(fmt.Sprint("org-", b)); b++ {
	}
	for _, org := range []int64{a, b} {
		if err := f.Prepare(t.Context(), org, "", ""); err != nil {
			t.Fatal(err)
		}
		for i := range 200 {
			if err := f.write(t, org, fmt.Sprint("item", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	file = f.engine.Place(fmt.Sprint("org-", a))
	if err := f.engine.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	bad = bytes.Clone(good)
	clear(bad[len(bad)/page/2*page:][:page])
	put(t, file, bad)
	return a, b, file, good, bad
}

func put(t *testing.T, file string, content []byte) {
	t.Helper()
	for _, suffix := range []string{"-wal", "-shm", ""} {
		_ = os.Remove(file + suffix) // it may not be there
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamageIsRecordedForTheFile: the damage outlasts restarts, and the removal of the organization in which it was
// found, until an examination finds the file intact.
func TestDamageIsRecordedForTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b, file, good, bad := fill(t, dir, true)
	f := openFiles(t, dir, true)
	held := func(when string) store.Damage {
		t.Helper()
		all := f.Damaged()
		if err := f.write(t, b, "lost"); !errors.Is(err, store.ErrReadOnly) || len(all) == 0 || all[0].File != file {
			t.Fatalf("%s: a write of another organization in the file: %v; damaged: %+v", when, err, all)
		}
		return all[0]
	}
	restart := func() {
		t.Helper()
		if err := f.engine.Close(); err != nil {
			t.Fatal(err)
		}
		f = openFiles(t, dir, true)
	}
	_, err := f.Examine(t.Context(), a, store.Placement{Rev: 1, ReadAt: time.Now()})
	wantErr(t, "the damaged file", err, store.ErrUnavailable)
	held("found")
	restart()
	d := held("after a restart")
	if d.Org != a || d.Reason == "" {
		t.Errorf("the mark says %+v", d)
	}
	wantErr(t, "the damaged file, by its mark", f.Reexamine(t.Context(), d), store.ErrUnavailable)
	held("examined again")
	_ = f.Remove(t.Context(), a, "") // may fail, because the file is damaged
	wantErr(t, "the damaged file of a removed organization", f.Reexamine(t.Context(), held("its finder removed")), store.ErrUnavailable)
	restart()
	held("after another restart")
	if err := os.Rename(file, file+".away"); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "a missing file", f.Reexamine(t.Context(), d), store.ErrUnavailable)
	restart()
	if err := f.Prepare(t.Context(), a, "", ""); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("Prepare with a missing, damaged file: %v, want %v", err, store.ErrReadOnly)
	}
	put(t, file, bad)
	wantErr(t, "the damaged file put back", f.Reexamine(t.Context(), d), store.ErrUnavailable)
	put(t, file, good)
	held("put back, not yet examined")
	if err := f.Reexamine(t.Context(), f.Damaged()[0]); err != nil || len(f.Damaged()) > 0 {
		t.Fatalf("the intact file: %v; damaged: %+v, want none", err, f.Damaged())
	}
	for range 2 {
		if err := f.write(t, b, "kept"); err != nil {
			t.Errorf("a write to the intact file: %v", err)
		}
		restart()
	}
	// A mark that cannot be read counts as a damage.
	if err := os.WriteFile(file+".damaged", []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	restart()
	held("an unreadable mark")
}

// TestDamageEndsWithTheOnlyOrganizationOfAFile: removing the organization removes the file and its mark.
func TestDamageEndsWithTheOnlyOrganizationOfAFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a, b, file, _, _ := fill(t, dir, false)
	f := openFiles(t, dir, false)
	_, err := f.Examine(t.Context(), a, store.Placement{Rev: 1, ReadAt: time.Now()})
	wantErr(t, "the damaged file", err, store.ErrUnavailable)
	if err := f.write(t, b, "kept"); err != nil {
		t.Errorf("a write to another file: %v", err)
	}
	d := f.Damaged()[0]
	if err := f.Remove(t.Context(), a, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file + ".damaged"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the mark is left: %v", err)
	}
	if err := f.Reexamine(t.Context(), d); err != nil || len(f.Damaged()) > 0 {
		t.Errorf("Reexamine: %v; damaged: %+v, want none", err, f.Damaged())
	}
}
