package sqlite

import (
	"context"
	"fmt"
	"strings"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// Explain implements driver.Explainer. It reads the plan of SQLite's planner.
func (w *workspace) Explain(ctx context.Context, q driver.Query) (driver.Plan, error) {
	t, err := w.table(q.Collection)
	if err != nil {
		return driver.Plan{}, err
	}
	doing := "explain a query on " + t.name
	s := w.statement(t, q.Where, nil)
	if q.Limit > 0 {
		s, err = w.compileQuery(t, q, nil)
	} else {
		s.chooseScan(q.Where)
		s.add("SELECT count(*)")
		err = s.from(q.Where)
	}
	if err != nil {
		return driver.Plan{}, fmt.Errorf("%s: %w", doing, err)
	}
	db, err := w.acquire(ctx)
	if err != nil {
		return driver.Plan{}, wrapError(ctx, doing, err)
	}
	defer w.file.release()
	plan := driver.Plan{Every: true}
	found := false
	err = db.withReader(ctx, func(r *reader) error {
		return r.conn.rows("EXPLAIN QUERY PLAN "+s.sql.String(), s.args, func(row *sqlite.Stmt) error {
			index, every, is := access(row.ColumnText(3))
			every = every || s.fullScan
			switch {
			case is && index == entriesIndex: // the plan may list the documents that it leads to first
				plan.Index, plan.Every, found = s.indexedField, every, true
			case is && !found:
				plan.Index, plan.Every, found = index, every, true
			case is:
				plan.Every = plan.Every && every // the look-up of documents found by a subquery
			}
			return nil
		})
	})
	for _, name := range s.indexable {
		plan.Fields = append(plan.Fields, w.file.indexes.status(s.fieldKey(name)))
	}
	return plan, wrapError(ctx, doing, err)
}

// entriesIndex is what access returns for the entries of an index on a custom field. It is not the name of an index.
const entriesIndex = "e:"

// access parses a line of a plan. It returns the index through which a table is read, and whether all of it is read. is
// reports whether the line describes such an access.
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

// status describes the index on a custom field.
func (f *fieldIndexes) status(key fieldKey) driver.IndexStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := driver.IndexStatus{Collection: key.table, Index: key.name}
	if x := f.all[key]; x != nil {
		s.State, s.Reason = x.state, x.reason
	}
	return s
}
