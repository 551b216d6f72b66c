package sqlite

import (
	"context"
	"fmt"
	"strings"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// Explain tells how SQLite's planner would find what a question asks for.
func (w *workspace) Explain(ctx context.Context, q driver.Query) (driver.Plan, error) {
	t, err := w.table(q.Collection)
	if err != nil {
		return driver.Plan{}, err
	}
	doing := "explain a question about " + t.name
	s := w.statement(t, q.Where, nil)
	if q.Limit > 0 {
		s, err = w.compileQuery(t, q, nil)
	} else {
		s.reading(q.Where)
		s.add("SELECT count(*)")
		err = s.from(q.Where)
	}
	if err != nil {
		return driver.Plan{}, fmt.Errorf("%s: %w", doing, err)
	}
	db, err := w.acquire(ctx)
	if err != nil {
		return driver.Plan{}, failed(ctx, doing, err)
	}
	defer w.file.release()
	plan := driver.Plan{Every: true}
	found := false
	err = db.ask(ctx, func(r *reader) error {
		return r.conn.rows("EXPLAIN QUERY PLAN "+s.sql.String(), s.args, func(row *sqlite.Stmt) error {
			index, every, is := access(row.ColumnText(3))
			every = every || s.whole
			switch {
			case is && index == entriesIndex: // the documents that it leads to may be looked up before, on paper
				plan.Index, plan.Every, found = s.field, every, true
			case is && !found:
				plan.Index, plan.Every, found = index, every, true
			case is:
				plan.Every = plan.Every && every // the documents of those that an inner question found
			}
			return nil
		})
	})
	for _, name := range s.sought {
		plan.Fields = append(plan.Fields, w.file.fields.status(s.fieldKey(name)))
	}
	return plan, failed(ctx, doing, err)
}

// entriesIndex is what access returns for the entries of an index on a custom value, no name of an index.
const entriesIndex = "e:"

// access reads a line of a plan: by which index a table is entered, and whether from its beginning to its end.
// is says that it is such a line.
func access(line string) (index string, every, is bool) {
	how, of, _ := strings.Cut(line, " ")
	if how != "SEARCH" && how != "SCAN" || strings.HasPrefix(of, "j ") || strings.HasPrefix(of, "json_each") {
		return "", false, false
	}
	_, bounds, _ := strings.Cut(of, " (")
	bounds = strings.TrimSuffix(bounds, ")")
	if strings.HasPrefix(of, "e:") {
		return entriesIndex, strings.HasSuffix(bounds, "number=?"), true
	}
	every = how == "SCAN" || bounds == "ws=?"
	if _, name, ok := strings.Cut(of, " INDEX "); ok {
		name, _, _ = strings.Cut(name, " ")
		if part := strings.Split(name, ":"); len(part) > 2 { // i:contacts:country
			name = part[2]
		}
		return name, every, true
	}
	if every {
		return "", true, true
	}
	return "id", false, true
}

// status tells of the index on a key.
func (f *fields) status(key fieldKey) driver.IndexStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := driver.IndexStatus{Collection: key.table, Index: key.key}
	if x := f.all[key]; x != nil {
		s.State, s.Reason = x.state, x.reason
	}
	return s
}
