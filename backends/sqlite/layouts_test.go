package sqlite

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tenantry/backends/driver"
)

// TestLayouts changes between two versions of a collection: a database has the layout of the version that opened it
// last.
func TestLayouts(t *testing.T) {
	inBoth(t, func(t *testing.T, shared bool) {
		dir := t.TempDir()
		older, newer := people(), people()
		newer.Fields = append(newer.Fields, driver.Field{Name: "plan", Type: driver.String})
		newer.Indexes = append(newer.Indexes, driver.Index{Name: "plan", Fields: []string{"plan"}})
		file := "w"
		e := openEngine(t, Options{Dir: dir, Shared: shared})
		if shared {
			file = sharedName("w")
		}
		wants := func(when string, c *driver.Collection, current int, others ...string) {
			t.Helper()
			got, err := e.Layouts(t.Context(), func(string) []*driver.Collection { return []*driver.Collection{c} })
			if err != nil || got.Current != current || !slices.Equal(got.Others, others) {
				t.Errorf("%s: got %+v, %v; want %d current, and others %q", when, got, err, current, others)
			}
		}
		wants("in an empty folder", older, 0)
		for _, use := range []struct {
			when    string
			by, not *driver.Collection
		}{{"new", older, newer}, {"upgraded", newer, older}, {"rolled back", older, newer}} {
			openWorkspace(t, e, "w", use.by)
			wants(use.when, use.by, 1)
			wants(use.when+", seen by the other version", use.not, 0, file)
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			e = openEngine(t, Options{Dir: dir, Shared: shared})
			wants(use.when+", by a new process", use.by, 1)
		}
		for name, text := range map[string]string{"empty.db": "", "other.db": "no database, but long enough for a header of one", "x.txt": "y"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		wants("with files of others", older, 1)
	})
}
