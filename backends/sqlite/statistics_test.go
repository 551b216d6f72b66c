package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// TestPlansFollowTheData: of two indexes that could serve a query, the one that selects fewer documents is used, also
// by connections that were open before the data was written.
func TestPlansFollowTheData(t *testing.T) { inBoth(t, testPlansFollowTheData) }

func testPlansFollowTheData(t *testing.T, shared bool) {
	seen := &plans{}
	e := openEngine(t, Options{Shared: shared, Observe: seen.add})
	c := &driver.Collection{Name: "people", Fields: []driver.Field{
		{Name: "name", Type: driver.String}, {Name: "status", Type: driver.String}, {Name: "created", Type: driver.Time},
	}, Indexes: []driver.Index{
		{Name: "name", Fields: []string{"name"}}, {Name: "status", Fields: []string{"status", "created"}},
	}}
	ws := openWorkspace(t, e, "acme", c)
	if shared { // add many small workspaces, so that the average size is small
		db, err := ws.acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.transact(t.Context(), t.Context(), load{}, nil, func(c *conn) error {
			return c.exec(`WITH RECURSIVE n(i) AS (VALUES (-9000) UNION ALL SELECT i + 1 FROM n WHERE i < -1)` +
				` INSERT INTO "c:people" (ws, id, rev, body, f_name, f_status, f_created) SELECT i, 'x', 1, '{}', 'n', 'new', i FROM n`)
		}); err != nil {
			t.Fatal(err)
		}
		ws.file.release()
	}
	if _, err := ws.Count(t.Context(), c, onField("name", driver.Eq, "somebody")); err != nil {
		t.Fatal(err) // opens a reader
	}
	for _, plan := range seen.take() {
		if line := strings.Join(plan.Lines, "\n"); strings.Contains(line, "(ws=?)") {
			t.Errorf("plan without statistics = %s, want no scan of the workspace", line)
		}
	}
	const total, batch = 20_000, 1000
	for from := 0; from < total; from += batch {
		writes := make([]driver.Write, batch)
		for i := range writes {
			n := from + i
			writes[i] = driver.Write{Collection: c, Doc: driver.Document{
				ID: fmt.Sprintf("%024x", n), Body: []byte("{}"),
				Values: []any{fmt.Sprintf("Name %d", n%1000), []string{"active", "new", "gone"}[n%3], int64(n + 1)},
			}}
		}
		if err := ws.Write(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
	seen.take()
	where := driver.Predicate{Op: driver.And, Kids: []driver.Predicate{onField("status", driver.Eq, "new"), onField("name", driver.Eq, "Name 7")}}
	if n, err := ws.Count(t.Context(), c, where); err != nil || n != 7 {
		t.Fatalf("Count = %d, %v; want 7", n, err)
	}
	plans := seen.take()
	by := "people:name"
	if shared {
		by = "f_" // either index, because the average over all workspaces decides
	}
	if len(plans) != 1 || !strings.Contains(strings.Join(plans[0].Lines, "\n"), by) {
		t.Errorf("plans = %v, want one by %s", plans, by)
	}
}

// TestCloseUpdatesStatistics: a database that grows too slowly for analyzeEvery gets statistics when its file is
// closed.
func TestCloseUpdatesStatistics(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := people()
	e, err := Open(t.Context(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	ws := openWorkspace(t, e, "acme", c)
	for i := range 300 {
		if err := ws.Write(t.Context(), []driver.Write{person(c, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	found := 0
	again, err := openConn(filepath.Join(dir, "acme.db"), sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = again.close() }()
	err = again.rows("SELECT 1 FROM sqlite_stat1", nil, func(*sqlite.Stmt) error { found++; return nil })
	if err != nil || found == 0 {
		t.Errorf("%d rows of statistics, %v; want some", found, err)
	}
}
