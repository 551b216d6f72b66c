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

// Found are records that were found.
type Found[T any] struct {
	Records []T
	Left    int   // how many cannot be read, and are left out
	Cut     bool  // Query.Bytes ended them before its Limit: there are more
	Size    int64 // how many bytes they take, where the question had a budget
}

// FindPart is Find, and tells how much of what there is was found.
func (c Collection[T]) FindPart(ctx context.Context, q Query) (found Found[T], err error) {
	if q.Bytes > 0 || q.Limit != 1 && roomOf(ctx) != nil {
		found.Cut, err = q.within(ctx, func(r *reading) error { return c.take(ctx, q, r, &found) })
	} else {
		err = c.findAll(ctx, q, &found)
	}
	if err != nil {
		return Found[T]{}, err
	}
	leftOut(ctx, found.Left)
	return found, nil
}

func (c Collection[T]) findAll(ctx context.Context, q Query, found *Found[T]) error {
	docs, err := c.ws.documents(ctx, c.kind.spec, q, nil)
	if err != nil {
		return err
	}
	return c.decode(ctx, q, docs, found)
}

// decode makes records of documents, which it gives up one by one.
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
		found.Records[at] = *new(T) // a part of it may be there
		found.Left++
	}
	found.Records = found.Records[:len(docs)-found.Left]
	return nil
}

// take finds the records of a reading. They are decoded once the engine has what it reads from back, which others wait
// for.
func (c Collection[T]) take(ctx context.Context, q Query, r *reading, found *Found[T]) error {
	var docs []driver.Document
	_, err := c.ws.documents(ctx, c.kind.spec, q, func(d *driver.Document) error {
		if d == nil {
			docs = nil
			r.anew()
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
	case err != nil && !errors.Is(err, errFull):
		return err
	case r.full: // it is read once more
		return nil
	}
	if q.Bytes <= 0 && r.most <= UnweighedBytes {
		if err := held(ctx, docs); err != nil {
			return err
		}
	}
	if err := c.decode(ctx, q, docs, found); err != nil {
		return err
	}
	found.Size = r.size
	return nil
}

// Page returns the records of a page, as far as its budget of bytes goes, and how many match of
// in all: the filter of q, but where that begins after some record. A page near the end is read from there, so that the
// last one costs what the first does.
func (c Collection[T]) Page(ctx context.Context, q Query, of Filter) (found Found[T], count int64, err error) {
	q.LeaveOut = true
	limit := min(cmp.Or(max(q.Limit, 0), MaxLimit), MaxLimit)
	finding := func() (err error) {
		found, err = c.FindPart(ctx, q)
		return err
	}
	first := !c.ws.Remote() && q.Offset == 0 && reflect.DeepEqual(q.Filter, of) // it is found before it is counted
	counting := func() (err error) {
		if count = int64(len(found.Records) + found.Left); first && !found.Cut && count < int64(limit) {
			return nil // they are all there are; counting them would read once more what words were looked for in
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
		// What does not fit is at the end of a page, and not at its beginning.
	}
	err = finding()
	return found, count, err
}

// deepPage is the offset from which it is worth knowing where the end is.
const deepPage = 1000
