package sqlite

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"tenantry/backends/driver"
)

// TestArchive_NothingIsCreatedMeanwhile: a workspace that was created at the last moment before nothing may be created is
// in the copies, with what it had then, and what is written afterwards is in no copy of its file.
func TestArchive_NothingIsCreatedMeanwhile(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]Options{"shared files": {Shared: true}, "own files": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := openEngine(t, o)
			c := people()
			names := neighbours(3)
			for _, name := range names[:2] {
				fill(t, openWorkspace(t, e, name, c), c, 2)
			}
			dir := t.TempDir()
			all, err := e.Archive(t.Context(), driver.Archiving{
				Dir: dir, Last: names[0], Told: func(string, int64, int64) {},
				Still: func(_ context.Context, do func() error) error {
					last := openWorkspace(t, e, names[2], c)
					fill(t, last, c, 3)
					if err := do(); err != nil {
						return err
					}
					return last.Write(t.Context(), []driver.Write{person(c, 100)})
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			has := func(workspace string) bool {
				return slices.ContainsFunc(all, func(a driver.Archived) bool { return slices.Contains(a.Workspaces, workspace) && a.Damage == "" })
			}
			for _, name := range names {
				if !has(name) {
					t.Errorf("%s is in none of %+v", name, all)
				}
			}
			copied := openEngine(t, Options{Dir: dir, Shared: o.Shared})
			if n, err := openWorkspace(t, copied, names[2], c).Count(t.Context(), c, driver.Predicate{}); n != 3 || err != nil {
				t.Errorf("got %d documents, %v, want the 3 of the moment", n, err)
			}
		})
	}
}

// TestArchive_Ends: a copy ends with its context, and leaves no connection.
func TestArchive_Ends(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{Shared: true})
	c := people()
	fill(t, openWorkspace(t, e, neighbours(1)[0], c), c, 500)
	ctx, cancel := context.WithCancel(t.Context())
	dir := t.TempDir()
	_, err := e.Archive(ctx, driver.Archiving{
		Dir: dir, Still: func(_ context.Context, do func() error) error { return do() },
		Told: func(string, int64, int64) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that it was cancelled", err)
	}
	if whole, _ := filepath.Glob(filepath.Join(dir, "*.db")); len(whole) != 0 {
		t.Errorf("got %v, want no copy", whole)
	}
	e.sideConns.mu.Lock()
	defer e.sideConns.mu.Unlock()
	if len(e.sideConns.of) != 0 {
		t.Errorf("got the connections %v, want none", e.sideConns.of)
	}
}

// TestArchive_Removed: a workspace that is removed before its turn keeps no other from being copied.
func TestArchive_Removed(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	names := neighbours(2)
	slices.Sort(names)
	for _, name := range names {
		fill(t, openWorkspace(t, e, name, c), c, 2)
	}
	all, err := e.Archive(t.Context(), driver.Archiving{
		Dir: t.TempDir(), Still: func(_ context.Context, do func() error) error { return do() },
		Told: func(string, int64, int64) {
			if err := e.Remove(t.Context(), names[1], ""); err != nil {
				t.Error(err)
			}
		},
	})
	if err != nil || len(all) != 1 || all[0].File != names[0]+".db" || all[0].Damage != "" {
		t.Errorf("got %+v %v, want the one that is left", all, err)
	}
}
