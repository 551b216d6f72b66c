package store_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/sqlite"
	"tenantry/backends/store"
)

// A missing file is not taken for an empty organization, neither by a handle nor by a move.
func TestMissingFilesAreNotCreated(t *testing.T) {
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
		t.Fatalf("the existing file: %v", err)
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
		t.Errorf("the missing file was created: %v, %v", left, err)
	}
}

// An unreadable record of a removed organization is dropped from the list.
func TestUnreadableRecordsEndWithTheirOrganization(t *testing.T) {
	t.Parallel()
	e, items := openSQLite(t), define[item](t, itemSpec())
	s := store.New(store.Options{Engine: e, Tenant: []*store.Spec{items.Spec()}})
	w, err := s.At(t.Context(), 1, store.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	rec := &item{Name: "whole"}
	insert(t, items.In(w), rec)
	raw, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{items.Spec().Collection()}})
	if err != nil {
		t.Fatal(err)
	}
	damaged := driver.Document{ID: rec.ID, Rev: rec.Rev, Body: []byte(`{"name":1}`), Values: make([]any, len(items.Spec().Collection().Fields))}
	if err := raw.Write(t.Context(), []driver.Write{{Collection: items.Spec().Collection(), Op: driver.Put, Doc: damaged}}); err != nil {
		t.Fatal(err)
	}
	if _, err := items.In(w).Find(t.Context(), store.Query{LeaveOut: true, State: store.Either}); err != nil || len(s.Unreadable(t.Context(), "", true)) != 1 {
		t.Fatalf("%v, %v", s.Unreadable(t.Context(), "", true), err)
	}
	if err := s.Remove(t.Context(), 1, ""); err != nil {
		t.Fatal(err)
	}
	if left := s.Unreadable(t.Context(), "", true); len(left) > 0 {
		t.Errorf("unreadable records of a removed organization: %+v, want none", left)
	}
}
