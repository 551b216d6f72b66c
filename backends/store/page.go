package store

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"

	"tenantry/backends/driver"
	"tenantry/internal/together"
)

// Found is the answer to a query.
type Found[T any] struct {
	Records []T
	Left    int   // records omitted because they cannot be read
	Cut     bool  // Query.Bytes ended the answer before its Limit: there are more
	Size    int64 // bytes of the records, if the query had a budget
}

// FindPart is Find that also reports omitted records, and whether the budget ended the answer.
func (c Collection[T]) FindPart(ctx context.Context, q Query) (found Found[T], err error) {
	if q.Bytes > 0 || q.Limit != 1 && roomOf(ctx) != nil {
		found.Cut, err = q.readWithin(ctx, func(r *reading) error { return c.take(ctx, q, r, &found) })
	} else {
		err = c.findAll(ctx, q, &found)
	}
	if err != nil {
		return Found[T]{}, err
	}
	countOmitted(ctx, found.Left)
	return found, nil
}

func (c Collection[T]) findAll(ctx context.Context, q Query, found *Found[T]) error {
	docs, err := c.ws.documents(ctx, c.kind.spec, q, nil)
	if err != nil {
		return err
	}
	return c.decode(ctx, q, docs, found)
}

// decode turns documents into records. It releases each document once it is decoded.
func (c Collection[T]) decode(ctx context.Context, q Query, docs []driver.Document, found *Found[T]) error {
	*found = Found[T]{Records: make([]T, len(docs))}
	for i := range docs {
		doc, at := docs[i], i-found.Left
		docs[i] = driver.Document{}
		err := c.read(&doc, &found.Records[at], q.Shared)
		if err == nil {
			continue
		}
		if err = c.ws.unreadable(ctx, c.kind.spec, &doc, err); !q.LeaveOut {
			return err
		}
		found.Records[at] = *new(T) // it may be decoded in part
		found.Left++
	}
	found.Records = found.Records[:len(docs)-found.Left]
	return nil
}

// take finds the records of one reading. It decodes them after the engine's call has ended, because other calls wait
// for the engine's connection in the meantime.
func (c Collection[T]) take(ctx context.Context, q Query, r *reading, found *Found[T]) error {
	var docs []driver.Document
	_, err := c.ws.documents(ctx, c.kind.spec, q, func(d *driver.Document) error {
		if d == nil {
			docs = nil
			r.restart()
			return nil
		}
		keep, err := r.keep(d.Held())
		if keep {
			docs = append(docs, *d)
		} else if r.full {
			docs = nil
		}
		return err
	})
	switch {
	case err != nil && !errors.Is(err, errBudget):
		return err
	case r.full: // it will be read again
		return nil
	}
	if q.Bytes <= 0 && r.keepMax <= UnweighedBytes {
		if err := holdRoom(ctx, docs); err != nil {
			return err
		}
	}
	if err := c.decode(ctx, q, docs, found); err != nil {
		return err
	}
	found.Size = r.size
	return nil
}

// Page returns the records of a page, up to the query's budget, and the number of all records that match of. Of is the
// filter of q without a condition on the first record of the page. A page near the end is read backwards, so that the
// last page costs as much as the first.
func (c Collection[T]) Page(ctx context.Context, q Query, of Filter) (found Found[T], count int64, err error) {
	q.LeaveOut = true
	limit := min(cmp.Or(max(q.Limit, 0), MaxLimit), MaxLimit)
	finding := func() (err error) {
		found, err = c.FindPart(ctx, q)
		return err
	}
	// The first page of a local backend is found before it is counted.
	first := !c.ws.Remote() && q.Offset == 0 && reflect.DeepEqual(q.Filter, of)
	counting := func() (err error) {
		if count = int64(len(found.Records) + found.Left); first && !found.Cut && count < int64(limit) {
			return nil // the page has all records; counting would repeat a search through their text
		}
		count, err = c.CountIn(ctx, of, q.State)
		return err
	}
	if q.Offset <= deepPage {
		err = together.Do(c.ws.Remote(), finding, counting)
		return found, count, err
	}
	if err := counting(); err != nil || int64(q.Offset) >= count {
		return Found[T]{Records: []T{}}, count, err
	}
	if rest := int(count) - q.Offset; rest < q.Offset {
		back := q
		back.Limit = min(limit, rest)
		back.Offset = rest - back.Limit
		back.Sort = make([]Order, 0, len(q.Sort)+1)
		for _, o := range append(slices.Clone(q.Sort), Asc("id")) {
			back.Sort = append(back.Sort, Order{o.Field, !o.Desc})
		}
		if found, err = c.FindPart(ctx, back); err != nil || !found.Cut {
			slices.Reverse(found.Records)
			return found, count, err
		}
		// The budget must drop records at the end of the page, but read backwards it drops those at its beginning.
	}
	err = finding()
	return found, count, err
}

// deepPage is the offset above which Page counts first, because reading backwards from the end may be cheaper.
const deepPage = 1000
