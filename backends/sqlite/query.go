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

// maxReserve bounds the capacity that is allocated for documents before they are read.
const maxReserve = 128

// Find implements driver.Workspace.
func (w *workspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	t, err := w.table(q.Collection)
	if err != nil {
		return nil, err
	}
	doing := "find in " + t.name
	if id, ok := idOf(q); ok {
		docs, err := w.findByID(ctx, doing, t, id)
		if q.Take == nil || err != nil {
			return docs, err
		}
		return nil, deliver(docs, q.Take)
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
	if len(q.Sort) == 0 && q.Offset == 0 && q.Take == nil && len(s.args) <= maxCachedParams && s.indexed(q.Where) {
		s.single = s.t.matchesOne(q.Where)
		return w.findOne(ctx, doing, s)
	}
	s.take = q.Take
	if q.Offset >= deepPage {
		return w.findDeep(ctx, doing, s, q)
	}
	return w.documents(ctx, doing, s, min(q.Limit, maxReserve))
}

// begin applies the engine's deadline and opens the file, so that its indexes are known when a statement is compiled.
// end must be called at the end of the query.
func (w *workspace) begin(ctx context.Context, doing string) (_ context.Context, end func(), err error) {
	ctx, cancel := w.engine.limit(ctx)
	if _, err := w.acquire(ctx); err != nil {
		cancel()
		return nil, nil, wrapError(ctx, doing, err)
	}
	return ctx, func() {
		w.file.release()
		cancel()
	}, nil
}

// documents executes a statement and returns its documents, or passes them to statement.take.
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

// deliver passes documents to a driver.Query.Take.
func deliver(docs []driver.Document, take func(*driver.Document) error) error {
	err := take(nil)
	for i := 0; i < len(docs) && err == nil; i++ {
		err = take(&docs[i])
	}
	return err
}

// maxCachedParams bounds the parameters of a query whose result may be cached.
const maxCachedParams = 8

// findOne executes a query that may find a single document by a unique value, such as the definition that every write
// of a record looks up. Results of at most one document are cached in the same way as documents found by id.
func (w *workspace) findOne(ctx context.Context, doing string, s *statement) ([]driver.Document, error) {
	db, err := w.acquire(ctx)
	if err != nil {
		return nil, wrapError(ctx, doing, err)
	}
	defer w.file.release()
	at := recentKey{ws: w.space.id, t: s.t, query: cacheKey(s.sql.String(), s.args)}
	kept, ok := db.recent.get(db, at)
	if ok && !kept.found {
		return nil, nil
	}
	if ok {
		return []driver.Document{kept.doc}, nil
	}
	docs, err := w.documents(ctx, doing, s, 1)
	if err == nil && len(docs) <= 1 && !s.snapshotAt.IsZero() {
		kept.snapshotAt, kept.found = s.snapshotAt, len(docs) == 1
		if kept.found {
			kept.doc = docs[0]
		}
		db.cacheRecent(at, kept)
	}
	return docs, err
}

// document returns the document of a row with the columns id, rev, body and custom.
func document(row *sqlite.Stmt) driver.Document {
	return driver.Document{
		ID:     row.ColumnText(0),
		Rev:    row.ColumnInt64(1),
		Body:   columnBytes(row, 2),
		Custom: columnBytes(row, 3),
	}
}

// idOf returns the id if the query's only condition is on the id.
func idOf(q driver.Query) (string, bool) {
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

// findByID is the fast path to a document by its id. It builds no statement, and needs no interruption because it reads
// only a few pages.
func (w *workspace) findByID(ctx context.Context, doing string, t *table, id string) ([]driver.Document, error) {
	ctx, cancel := w.engine.limit(ctx)
	defer cancel()
	db, err := w.acquire(ctx)
	if err != nil {
		return nil, wrapError(ctx, doing, err)
	}
	defer w.file.release()
	at := recentKey{ws: w.space.id, t: t, id: id}
	kept, ok := db.recent.get(db, at)
	if ok {
		return []driver.Document{kept.doc}, nil
	}
	var doc driver.Document
	found := false
	err = db.withReader(ctx, func(r *reader) (err error) {
		doc, found, err = r.findByID(w.engine, at)
		if found && err == nil && r.inSnapshot {
			db.cacheRecent(at, recentDoc{doc, found, kept.version, r.snapshotAt})
		}
		return err
	})
	if err != nil {
		return nil, wrapError(ctx, doing, err)
	}
	if !found {
		return nil, nil
	}
	return []driver.Document{doc}, nil
}

func (r *reader) findByID(e *Engine, at recentKey) (doc driver.Document, found bool, err error) {
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

// deepPage is the offset from which a page is read in two steps: first the ids from an index, so that the documents
// before the page are not read.
const deepPage = 100

// compileQuery returns the statement of a Find. It begins at a bookmark if near is not nil.
func (w *workspace) compileQuery(t *table, q driver.Query, near *bookmark) (*statement, error) {
	s := w.statement(t, q.Where, q.Sort)
	s.add("SELECT id, rev, body, custom")
	deep := q.Offset >= deepPage || near != nil || s.indexOnly
	var by []string
	within := ") >= ("
	if deep {
		var desc bool
		if by, desc = s.bookmarkColumns(q); desc {
			within = ") <= ("
		}
		for _, column := range by[:max(0, len(by)-1)] {
			s.add(", ", column)
		}
		s.add(" FROM ", t.quoted, " WHERE ", s.inWorkspace(" AND "), "id IN (SELECT ", s.id())
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
	if err := s.order(q, s.id(), s.entryOperand); err != nil {
		return nil, err
	}
	if q.Limit == 1 {
		s.add(" LIMIT 1") // as a constant, because SQLite recompiles a statement whose limit changes from or to 1
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

// order writes the ORDER BY clause, with the given column for the id and function for other values.
func (s *statement) order(q driver.Query, id string, operand func(driver.Ref) (operand, error)) error {
	s.add(" ORDER BY ")
	unique := false
	for i, o := range q.Sort {
		v, err := operand(o.Ref)
		if err != nil {
			return err
		}
		if i == 0 && v.typ == driver.Any && o.Ref.Custom && s.kindKnown && !slices.Contains(s.indexable, o.Ref.Name) {
			s.indexable = append(s.indexable, o.Ref.Name)
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
		// The plus keeps SQLite from reading the whole table in the order of its key, which it would prefer to a range of
		// an index with a sort.
		s.add("+", id)
	default:
		s.add(id)
	}
	return nil
}

// Count implements driver.Workspace.
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
	s.chooseScan(where)
	s.add("SELECT count(*)")
	if err := s.from(where); err != nil {
		return 0, fmt.Errorf("%s: %w", doing, err)
	}
	db, key := w.file.db, cacheKey(s.sql.String(), s.args)
	n, known, at := db.counts.get(w.partition(t), key)
	if known {
		return n, nil
	}
	err = w.read(ctx, doing, s, func(row *sqlite.Stmt) error {
		n = row.ColumnInt64(0)
		return nil
	})
	if err == nil {
		db.counts.put(w.partition(t), key, n, at)
	}
	return n, err
}

// Aggregate implements driver.Workspace. It starts over with floats if a sum of integers overflows.
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
			return errLimitReached
		}
		return nil
	})
	if errors.Is(err, errLimitReached) {
		err = nil
	}
	return rows, err
}

// errLimitReached ends the reading of rows at driver.Aggregation.Bytes.
var errLimitReached = errors.New("the size limit of the rows was reached")

// read executes a statement in a snapshot that has every acknowledged write, and calls each for every row. It requests
// indexes on custom fields if the statement was slow.
func (w *workspace) read(ctx context.Context, doing string, s *statement, each func(*sqlite.Stmt) error) error {
	ctx, cancel := w.engine.limit(ctx)
	defer cancel()
	db, err := w.acquire(ctx)
	if err != nil {
		return wrapError(ctx, doing, err)
	}
	defer w.file.release()
	sql := s.sql.String()
	q := queryRun{ctx: ctx, db: db, space: w.space, key: queryKey{w.space.party, hashLong(sql)}, exempt: s.single}
	err = q.execute(func(r *reader) error {
		if r.inSnapshot {
			s.snapshotAt = r.snapshotAt
		}
		return r.conn.runUntil(ctx, func() error {
			if err := w.engine.observe(r.conn, sql); err != nil {
				return err
			}
			return r.conn.rows(sql, s.args, each)
		})
	})
	if len(s.indexable) > 0 && !q.began.IsZero() {
		w.buildIndexes(s.t, w.file.indexes.noteQuery(s, q.duration(), w.engine.opts.eager))
	}
	return wrapError(ctx, doing, err)
}
