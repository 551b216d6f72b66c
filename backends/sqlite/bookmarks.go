package sqlite

import (
	"context"
	"slices"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// Finding a page deep in a list means skipping all documents before it. Bookmarks spare that: they are documents at
// known offsets, the first and last of each page that was read. As long as the partition does not change, another page
// starts at the nearest bookmark before it.

// maxBookmarks bounds the bookmarks of one query.
const maxBookmarks = 64

// bookmark is the offset of a document in the result of a query, with the document's sort values, the id last.
type bookmark struct {
	offset int
	values []any
	taken  time.Time
}

// bookmarkColumns returns the columns that determine the order of the result, and whether it is descending. It returns
// nil if the result cannot have bookmarks. In a descending order documents without a value come last, where no
// comparison finds them, so such an order has bookmarks only if it is by one column, and only at documents with a
// value.
func (s *statement) bookmarkColumns(q driver.Query) (by []string, desc bool) {
	if len(q.Sort) == 0 && s.ranged(q.Where) || !s.t.shared && q.Where.Op == driver.And && len(q.Where.Kids) == 0 {
		return nil, false
	}
	order := append(slices.Clone(q.Sort), driver.Order{Ref: driver.Ref{Name: "id"}})
	for i, o := range order {
		if o.Desc != order[0].Desc || o.Desc && i > 1 || o.Ref.Custom {
			return nil, false
		}
		if o.Ref.Name == "id" {
			break
		}
		by = append(by, s.t.columns[o.Ref.Name].column)
	}
	return append(by, "id"), order[0].Desc
}

// findDeep returns a page with a large offset.
func (w *workspace) findDeep(ctx context.Context, doing string, s *statement, q driver.Query) ([]driver.Document, error) {
	by, desc := s.bookmarkColumns(q)
	if by == nil {
		return w.documents(ctx, doing, s, min(q.Limit, maxReserve))
	}
	db, err := w.acquire(ctx)
	if err != nil {
		return nil, wrapError(ctx, doing, err)
	}
	defer w.file.release()
	key, of := cacheKey(s.sql.String(), s.args[:len(s.args)-1]), w.partition(s.t) // without the last, the offset

	near, at := db.counts.nearestBookmark(of, key, q.Offset)
	if near != nil {
		rest := q
		rest.Offset -= near.offset
		if s, err = w.compileQuery(s.t, rest, near); err != nil {
			return nil, err
		}
	}
	take, n := q.Take, 0
	var docs []driver.Document
	if take == nil {
		docs = make([]driver.Document, 0, min(q.Limit, maxReserve))
		take = func(d *driver.Document) error {
			if d != nil {
				docs = append(docs, *d)
			}
			return nil
		}
	}
	takeErr := take(nil)
	if takeErr != nil {
		return nil, takeErr
	}

	var found []bookmark
	taken := time.Now()
	err = w.read(ctx, doing, s, func(row *sqlite.Stmt) error {
		if n == 0 || n == q.Limit-1 {
			m := bookmark{q.Offset + n, nil, taken}
			for i := range by[1:] {
				m.values = append(m.values, value(row, 4+i))
			}
			m.values = append(m.values, row.ColumnText(0))
			found = append(found, m)
		}
		n++
		doc := document(row)
		takeErr = take(&doc)
		return takeErr
	})

	// Start over from the beginning if a change may have moved the bookmark, or if documents without a value may follow.
	moved := near != nil && db.counts.version(of) != at
	incomplete := near != nil && err == nil && desc && n < q.Limit
	if moved && (err == nil || takeErr != nil) || incomplete {
		if s, err = w.compileQuery(s.t, q, nil); err == nil {
			s.take = q.Take
			return w.documents(ctx, doing, s, min(q.Limit, maxReserve))
		}
	}
	if err != nil {
		return nil, err
	}
	db.counts.addBookmarks(of, key, found, at)
	return docs, nil
}

// value returns the value of a column as it is stored, nil for NULL.
func value(row *sqlite.Stmt, i int) any {
	switch row.ColumnType(i) {
	case sqlite.TypeInteger:
		return row.ColumnInt64(i)
	case sqlite.TypeFloat:
		return row.ColumnFloat(i)
	case sqlite.TypeText:
		return row.ColumnText(i)
	}
	return nil
}

// nearestBookmark returns the last valid bookmark at or before an offset, nil if there is none, and the version of the
// partition, for addBookmarks.
func (c *countCache) nearestBookmark(of partition, key string, offset int) (found *bookmark, at version) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.partitions[of]
	if t == nil {
		return nil, version{c.epoch, 0}
	}
	for i, m := range t.bookmarks[key] {
		if m.offset <= offset && time.Since(m.taken) < maxCountAge && (found == nil || m.offset > found.offset) {
			found = &t.bookmarks[key][i]
		}
	}
	return found, version{c.epoch, t.changes}
}

// addBookmarks stores bookmarks that were found after nearestBookmark returned the version, unless the partition has
// changed since.
func (c *countCache) addBookmarks(of partition, key string, found []bookmark, at version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.partition(of)
	if at != (version{c.epoch, t.changes}) {
		return
	}
	kept := slices.Clone(t.bookmarks[key]) // because callers of nearestBookmark may have the list
	for _, m := range found {
		kept = slices.DeleteFunc(kept, func(k bookmark) bool { return k.offset == m.offset })
		if !slices.Contains(m.values, nil) { // comparisons with NULL are never true
			kept = append(kept, m)
		}
	}
	keep(c, &t.bookmarks, key, kept[max(0, len(kept)-maxBookmarks):]) // without the oldest
}
