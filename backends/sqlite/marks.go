package sqlite

import (
	"context"
	"slices"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// A page that lies deep in a list is found by walking there. Where the table has not changed, the next one begins
// where the one before ended, and the same one where it began: documents met at a known place are marks.

// maxMarks bounds the marks of one question.
const maxMarks = 64

// mark is where a document stood among all that a question asks for: its values in their order, the id last.
type mark struct {
	offset int
	values []any
	taken  time.Time
}

// ordered returns the columns by which the answer is in order, and whether it descends, nil where a document of it is
// no mark for others. Where something is missing comes last in an order that descends: marks serve that of one column,
// as far as it has values.
func (s *statement) ordered(q driver.Query) (by []string, desc bool) {
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

// findDeep answers a page that lies behind many others.
func (w *workspace) findDeep(ctx context.Context, doing string, s *statement, q driver.Query) ([]driver.Document, error) {
	by, desc := s.ordered(q)
	if by == nil {
		return w.documents(ctx, doing, s, min(q.Limit, maxReserve))
	}
	db, err := w.acquire(ctx)
	if err != nil {
		return nil, failed(ctx, doing, err)
	}
	defer w.file.release()
	key, of := countKey(s.sql.String(), s.args[:len(s.args)-1]), w.shelf(s.t) // the last is the offset
	near, at := db.counts.near(of, key, q.Offset)
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
	ended := take(nil)
	if ended != nil {
		return nil, ended
	}
	var met []mark
	taken := time.Now()
	err = w.read(ctx, doing, s, func(row *sqlite.Stmt) error {
		if n == 0 || n == q.Limit-1 {
			m := mark{q.Offset + n, nil, taken}
			for i := range by[1:] {
				m.values = append(m.values, value(row, 4+i))
			}
			m.values = append(m.values, row.ColumnText(0))
			met = append(met, m)
		}
		n++
		doc := document(row)
		ended = take(&doc)
		return ended
	})
	moved := near != nil && db.counts.standing(of) != at                                           // the mark, perhaps
	if moved && (err == nil || ended != nil) || near != nil && err == nil && desc && n < q.Limit { // there may be others, without a value
		if s, err = w.compileQuery(s.t, q, nil); err == nil {
			s.take = q.Take
			return w.documents(ctx, doing, s, min(q.Limit, maxReserve))
		}
	}
	if err != nil {
		return nil, err
	}
	db.counts.meet(of, key, met, at)
	return docs, nil
}

// value returns a value as it is stored, nil for null.
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

// near returns the last mark at or before an offset that still holds, nil for none, and where the table stands, for
// meet.
func (c *counts) near(of shelf, key string, offset int) (found *mark, at standing) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	t := c.tables[of]
	if t == nil {
		return nil, standing{c.epoch, 0}
	}
	for i, m := range t.marks[key] {
		if m.offset <= offset && time.Since(m.taken) < countAge && (found == nil || m.offset > found.offset) {
			found = &t.marks[key][i]
		}
	}
	return found, standing{c.epoch, t.turn}
}

// meet keeps marks that were met after at was told, unless the table has changed since.
func (c *counts) meet(of shelf, key string, met []mark, at standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table(of)
	if at != (standing{c.epoch, t.turn}) {
		return
	}
	kept := slices.Clone(t.marks[key]) // a list of them is never changed
	for _, m := range met {
		kept = slices.DeleteFunc(kept, func(k mark) bool { return k.offset == m.offset })
		if !slices.Contains(m.values, nil) { // nothing is greater than what is missing
			kept = append(kept, m)
		}
	}
	keep(c, &t.marks, key, kept[max(0, len(kept)-maxMarks):]) // the oldest go
}
