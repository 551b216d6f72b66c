package sqlite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// maxReserve bounds what is set aside for documents before they are read.
const maxReserve = 128

func (w *workspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	t, err := w.table(q.Collection)
	if err != nil {
		return nil, err
	}
	doing := "find in " + t.name
	if id, ok := byID(q); ok {
		docs, err := w.findByID(ctx, doing, t, id)
		if q.Take == nil || err != nil {
			return docs, err
		}
		return nil, give(docs, q.Take)
	}
	ctx, end, err := w.begin(ctx, doing)
	if err != nil {
		return nil, err
	}
	defer end()
	s, err := w.compileQuery(t, q, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if len(q.Sort) == 0 && q.Offset == 0 && q.Take == nil && len(s.args) <= maxAsked && s.indexed(q.Where) {
		s.brief = s.t.one(q.Where)
		return w.findOne(ctx, doing, s)
	}
	s.take = q.Take
	if q.Offset >= deepPage {
		return w.findDeep(ctx, doing, s, q)
	}
	return w.documents(ctx, doing, s, min(q.Limit, maxReserve))
}

// begin gives a question its time and the open file, whose indexes it goes by. Call end at its end.
func (w *workspace) begin(ctx context.Context, doing string) (_ context.Context, end func(), err error) {
	ctx, cancel := w.engine.limit(ctx)
	if _, err := w.acquire(ctx); err != nil {
		cancel()
		return nil, nil, failed(ctx, doing, err)
	}
	return ctx, func() {
		w.file.release()
		cancel()
	}, nil
}

func (w *workspace) documents(ctx context.Context, doing string, s *statement, reserve int) ([]driver.Document, error) {
	if s.take != nil {
		if err := s.take(nil); err != nil {
			return nil, err
		}
		return nil, w.read(ctx, doing, s, func(row *sqlite.Stmt) error {
			doc := document(row)
			return s.take(&doc)
		})
	}
	docs := make([]driver.Document, 0, reserve)
	err := w.read(ctx, doing, s, func(row *sqlite.Stmt) error {
		docs = append(docs, document(row))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// give hands documents that were read to who takes them.
func give(docs []driver.Document, take func(*driver.Document) error) error {
	err := take(nil)
	for i := 0; i < len(docs) && err == nil; i++ {
		err = take(&docs[i])
	}
	return err
}

// maxAsked bounds the parameters of a question whose answer is kept for a moment.
const maxAsked = 8

// findOne answers a question that may be one for a document by a name that it alone has, such as a definition that
// every write of a record looks up: that is kept for as long as one that was found by its id.
func (w *workspace) findOne(ctx context.Context, doing string, s *statement) ([]driver.Document, error) {
	db, err := w.acquire(ctx)
	if err != nil {
		return nil, failed(ctx, doing, err)
	}
	defer w.file.release()
	at := place{ws: w.space.id, t: s.t, asked: countKey(s.sql.String(), s.args)}
	kept, ok := db.recent.get(db, at)
	if ok && !kept.found {
		return nil, nil
	}
	if ok {
		return []driver.Document{kept.doc}, nil
	}
	docs, err := w.documents(ctx, doing, s, 1)
	if err == nil && len(docs) <= 1 && !s.began.IsZero() {
		kept.began, kept.found = s.began, len(docs) == 1
		if kept.found {
			kept.doc = docs[0]
		}
		db.keep(at, kept)
	}
	return docs, err
}

func document(row *sqlite.Stmt) driver.Document {
	return driver.Document{ID: row.ColumnText(0), Rev: row.ColumnInt64(1), Body: columnBytes(row, 2), Custom: columnBytes(row, 3)}
}

// byID returns the id where the query asks for one document by its key and nothing else.
func byID(q driver.Query) (string, bool) {
	p := q.Where
	if p.Op == driver.And && len(p.Kids) == 1 {
		p = p.Kids[0]
	}
	if p.Op != driver.Eq || p.Ref.Custom || p.Ref.Name != "id" || len(p.Values) != 1 || q.Offset != 0 || q.Limit < 1 {
		return "", false
	}
	id, ok := p.Values[0].(string)
	return id, ok
}

// findByID is the shortest way to a document: no statement to build, and nothing to
// interrupt, because it reads a handful of pages.
func (w *workspace) findByID(ctx context.Context, doing string, t *table, id string) ([]driver.Document, error) {
	ctx, cancel := w.engine.limit(ctx)
	defer cancel()
	db, err := w.acquire(ctx)
	if err != nil {
		return nil, failed(ctx, doing, err)
	}
	defer w.file.release()
	at := place{ws: w.space.id, t: t, id: id}
	kept, ok := db.recent.get(db, at)
	if ok {
		return []driver.Document{kept.doc}, nil
	}
	var doc driver.Document
	found := false
	err = db.ask(ctx, func(r *reader) (err error) {
		doc, found, err = r.findByID(w.engine, at)
		if found && err == nil && r.holding {
			db.keep(at, seen{doc, found, kept.at, r.began})
		}
		return err
	})
	if err != nil {
		return nil, failed(ctx, doing, err)
	}
	if !found {
		return nil, nil
	}
	return []driver.Document{doc}, nil
}

func (r *reader) findByID(e *Engine, at place) (doc driver.Document, found bool, err error) {
	if err := e.observe(r.conn, at.t.selectByID); err != nil {
		return doc, false, err
	}
	s, err := r.conn.prepare(at.t.selectByID)
	if err != nil {
		return doc, false, err
	}
	s.BindText(1, at.id)
	if at.t.shared {
		s.BindInt64(2, at.ws)
	}
	if found, err = s.Step(); found {
		doc = document(s)
	}
	if e := s.Reset(); err == nil {
		err = e
	}
	return doc, found, err
}

// deepPage is the offset from which a page is read in two steps: the identifiers from an index first, so that
// the documents before it are not read.
const deepPage = 100

// compileQuery returns the statement of a Find, which begins at a mark where one is given.
func (w *workspace) compileQuery(t *table, q driver.Query, near *mark) (*statement, error) {
	s := w.statement(t, q.Where, q.Sort)
	s.add("SELECT id, rev, body, custom")
	deep := q.Offset >= deepPage || near != nil || s.within
	var by []string
	within := ") >= ("
	if deep {
		var desc bool
		if by, desc = s.ordered(q); desc {
			within = ") <= ("
		}
		for _, column := range by[:max(0, len(by)-1)] {
			s.add(", ", column)
		}
		s.add(" FROM ", t.quoted, " WHERE ", s.mine(" AND "), "id IN (SELECT ", s.id())
	}
	if err := s.from(q.Where); err != nil {
		return nil, err
	}
	if near != nil {
		s.add(" AND (", strings.Join(by, ", "), within)
		for i, v := range near.values {
			if i > 0 {
				s.add(", ")
			}
			s.add(s.param(v))
		}
		s.add(")")
	}
	if err := s.order(q, s.id(), s.compared); err != nil {
		return nil, err
	}
	if q.Limit == 1 {
		s.add(" LIMIT 1") // SQLite compiles a statement anew whose limit was 1 and is another now, or the other way round
	} else {
		s.add(" LIMIT ", s.param(int64(q.Limit)))
	}
	if q.Offset > 0 {
		s.add(" OFFSET ", s.param(int64(q.Offset)))
	}
	if deep {
		s.add(")")
		return s, s.order(q, "id", s.operand)
	}
	return s, nil
}

// order writes the order of an answer, in which the id is read from that column and values as that says.
func (s *statement) order(q driver.Query, id string, operand func(driver.Ref) (operand, error)) error {
	s.add(" ORDER BY ")
	unique := false
	for i, o := range q.Sort {
		v, err := operand(o.Ref)
		if err != nil {
			return err
		}
		if i == 0 && v.typ == driver.Any && o.Ref.Custom && s.known && !slices.Contains(s.sought, o.Ref.Name) {
			s.sought = append(s.sought, o.Ref.Name)
		}
		if unique = v.expr == "id"; unique {
			v.expr = id
		}
		s.add(v.expr)
		if o.Desc {
			s.add(" DESC")
		}
		// Nothing after the id can change the order.
		if unique {
			break
		}
		s.add(", ")
	}
	switch {
	case unique:
	case len(q.Sort) == 0 && s.ranged(q.Where):
		// The plus keeps SQLite from reading the whole table in the order of its key, which it
		// prefers to a range of an index and a sort.
		s.add("+", id)
	default:
		s.add(id)
	}
	return nil
}

func (w *workspace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	t, err := w.table(c)
	if err != nil {
		return 0, err
	}
	doing := "count in " + t.name
	ctx, end, err := w.begin(ctx, doing)
	if err != nil {
		return 0, err
	}
	defer end()
	s := w.statement(t, where, nil)
	s.reading(where)
	s.add("SELECT count(*)")
	if err := s.from(where); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	db, key := w.file.db, countKey(s.sql.String(), s.args)
	n, known, at := db.counts.get(w.shelf(t), key)
	if known {
		return n, nil
	}
	err = w.read(ctx, doing, s, func(row *sqlite.Stmt) error {
		n = row.ColumnInt64(0)
		return nil
	})
	if err == nil {
		db.counts.put(w.shelf(t), key, n, at)
	}
	return n, err
}

func (w *workspace) Aggregate(ctx context.Context, a driver.Aggregation) ([][]any, error) {
	t, err := w.table(a.Collection)
	if err != nil {
		return nil, err
	}
	rows, err := w.aggregate(ctx, t, a, false)
	if err != nil && strings.Contains(err.Error(), "integer overflow") {
		return w.aggregate(ctx, t, a, true)
	}
	return rows, err
}

func (w *workspace) aggregate(ctx context.Context, t *table, a driver.Aggregation, wide bool) ([][]any, error) {
	doing := "aggregate " + t.name
	ctx, end, err := w.begin(ctx, doing)
	if err != nil {
		return nil, err
	}
	defer end()
	s, types, err := w.compileAggregation(t, a, wide)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var rows [][]any
	size := int64(0)
	err = w.read(ctx, doing, s, func(row *sqlite.Stmt) error {
		values := make([]any, len(types))
		for i, t := range types {
			values[i] = decode(row, i, t)
		}
		rows = append(rows, values)
		if size += driver.RowSize(values); a.Bytes > 0 && size > a.Bytes && len(rows) > 1 {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rows, err
}

// errEnough ends the reading of rows.
var errEnough = errors.New("enough was read")

// read runs a statement on a snapshot that holds every acknowledged write.
func (w *workspace) read(ctx context.Context, doing string, s *statement, each func(*sqlite.Stmt) error) error {
	ctx, cancel := w.engine.limit(ctx)
	defer cancel()
	db, err := w.acquire(ctx)
	if err != nil {
		return failed(ctx, doing, err)
	}
	defer w.file.release()
	sql := s.sql.String()
	v := visit{ctx: ctx, db: db, space: w.space, question: question{w.space.party, shortened(sql)}, brief: s.brief}
	err = v.answer(func(r *reader) error {
		if r.holding {
			s.began = r.began
		}
		return r.conn.until(ctx, func() error {
			if err := w.engine.observe(r.conn, sql); err != nil {
				return err
			}
			return r.conn.rows(sql, s.args, each)
		})
	})
	if len(s.sought) > 0 && !v.began.IsZero() { // it was asked
		w.want(s.t, w.file.fields.asked(s, v.took(), w.engine.opts.eager))
	}
	return failed(ctx, doing, err)
}
