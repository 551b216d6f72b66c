package store

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"tenantry/backends/driver"
)

// Insert stores new records, all or none if the engine has transactions, and returns once they are durable. It sets
// Rev, and ID, CreatedAt and UpdatedAt where they are empty. Error: *DuplicateError.
func (c Collection[T]) Insert(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageInsert(b, recs...))
}

// StageInsert adds the writes of Insert to a batch.
func (c Collection[T]) StageInsert(b *Batch, recs ...*T) error {
	return c.stage(b, c.insertWrite, recs)
}

// commit stores a batch, or discards it if staging its writes failed with err.
func commit(ctx context.Context, b *Batch, err error) error {
	if err != nil {
		b.Discard()
		return err
	}
	return b.Commit(ctx)
}

// insertWrite returns the write that inserts a record, and sets the record's identifier and times.
func (c Collection[T]) insertWrite(rec *T) (driver.Write, error) {
	meta := metaOf(rec)
	if meta.ID == "" {
		meta.ID = c.ws.NewID()
	}
	if !ValidID(meta.ID) {
		return driver.Write{}, fmt.Errorf("%s: %q is not a valid identifier", c.kind.spec.Name, meta.ID)
	}
	if meta.CreatedAt == 0 {
		meta.CreatedAt = c.ws.store.now().UnixMilli()
	}
	if meta.UpdatedAt == 0 {
		meta.UpdatedAt = meta.CreatedAt
	}
	meta.Rev = 0
	return c.write(driver.Insert, rec)
}

// stage adds writes of records to a batch.
func (c Collection[T]) stage(b *Batch, writing func(*T) (driver.Write, error), recs []*T) (err error) {
	writes, records := make([]driver.Write, len(recs)), make([]*Meta, len(recs))
	for i, rec := range recs {
		if writes[i], err = writing(rec); err != nil {
			return err
		}
		records[i] = metaOf(rec)
	}
	return b.stage(c.ws.home, c.kind.spec, writes, records, nil)
}

// Replace stores records over the revisions at which they were read, all or none if the engine has transactions, and
// returns once they are durable. It raises Rev by one and sets UpdatedAt. Errors: ErrConflict if a record was changed
// or removed since it was read or the workspace does not show it, *DuplicateError.
func (c Collection[T]) Replace(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageReplace(ctx, b, recs...))
}

// StageReplace adds the writes of Replace to a batch. Error: ErrConflict if the workspace does not show a record.
func (c Collection[T]) StageReplace(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.checkVisible(ctx, recs...); err != nil {
		return err
	}
	return c.stage(b, c.replaceWrite, recs)
}

// Save inserts the records of revision 0 and replaces the others, all or none if the engine has transactions. Errors:
// *DuplicateError, *ConflictError.
func (c Collection[T]) Save(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageSave(ctx, b, recs...))
}

// StageSave adds the writes of Save to a batch. Error: ErrConflict if the workspace does not show a record.
func (c Collection[T]) StageSave(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.checkVisible(ctx, recs...); err != nil {
		return err
	}
	return c.stage(b, func(rec *T) (driver.Write, error) {
		if metaOf(rec).Rev == 0 {
			return c.insertWrite(rec)
		}
		return c.replaceWrite(rec)
	}, recs)
}

// MaxRows is how many rows one write should change at most, see Portion. Other writes wait about 20 ms for that many.
const MaxRows = 2_000

// Portion returns how many of the records, counted from the first and at least one, a single write should insert,
// replace or delete. It is for work that may be divided, because it need not be stored all or nothing.
func (c Collection[T]) Portion(recs []*T) int {
	rows := 0
	for i, rec := range recs {
		one := c.kind.spec.collection.Rows(func(n int) int {
			return reflect.ValueOf(rec).Elem().FieldByIndex(c.kind.fields[n].path).Len()
		})
		if metaOf(rec).Rev > 0 { // the stored record has about as many rows, which the write removes
			one *= 2
		}
		if rows += one; rows > MaxRows && i > 0 {
			return i
		}
	}
	return len(recs)
}

// checkVisible returns a *ConflictError unless the workspace shows each record that is not new, live or not, at the
// revision at which it was read. The write that follows checks the revisions again, so a change in between is a
// conflict.
func (c Collection[T]) checkVisible(ctx context.Context, recs ...*T) error {
	s := c.kind.spec
	if err := c.checkWritable(); err != nil {
		return err
	}
	if !s.Teams || !c.ws.scoped || c.ws.scope.All {
		return nil // stored identifiers include the partition, so they cannot name another organization's records
	}
	var ids []string
	for _, rec := range recs {
		if meta := metaOf(rec); meta.Rev > 0 {
			ids = append(ids, meta.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	revs, err := c.ws.Revisions(ctx, s, ids)
	if err != nil {
		return err
	}
	for i, rec := range recs {
		if meta := metaOf(rec); meta.Rev > 0 && revs[meta.ID] != meta.Rev {
			return &ConflictError{Kind: s.Name, Position: i}
		}
	}
	return nil
}

// replaceWrite returns the write that replaces a record at the revision at which it was read.
func (c Collection[T]) replaceWrite(rec *T) (driver.Write, error) {
	metaOf(rec).UpdatedAt = c.ws.store.now().UnixMilli()
	return c.write(driver.Replace, rec)
}

const updateTries = 10

// Update reads the live record of that id, calls change to modify it, and stores it. On a conflict it starts over with
// the record read again. Updates of one record take turns within the process. It returns the record as stored. Errors:
// ErrNotFound, those of change, *DuplicateError, ErrConflict after ten tries.
func (c Collection[T]) Update(ctx context.Context, id string, change func(*T) error) (*T, error) {
	return c.Revise(ctx, id, func(_ *Preconditions, rec *T) error { return change(rec) }, nil)
}

// Revise is Update for a change with preconditions, or with further writes. Commit, if not nil, adds the writes to the
// batch and must commit it. Each try begins with a new batch.
func (c Collection[T]) Revise(ctx context.Context, id string, change func(*Preconditions, *T) error,
	commit func(context.Context, *Batch, *T) error) (*T, error) {
	if commit == nil {
		commit = func(ctx context.Context, b *Batch, _ *T) error { return b.Commit(ctx) }
	}
	defer c.ws.store.turn(ctx, recordTurn{c.ws.Org(), c.kind.spec.Name, id})()
	for range updateTries {
		rec, err := c.Get(ctx, id)
		if err != nil {
			return nil, err
		}
		meta, b := metaOf(rec), c.ws.Batch()
		rev, bytes, was := meta.Rev, meta.bytes, meta.was
		if err := change(&b.Preconditions, rec); err != nil {
			return nil, err
		}
		meta.ID, meta.Rev, meta.bytes, meta.was = id, rev, bytes, was // change may replace the whole record
		if err = c.stage(b, c.replaceWrite, []*T{rec}); err == nil {
			err = commit(ctx, b, rec)
		}
		if err == nil {
			return rec, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%s %s: %w", c.kind.spec.Name, id, ErrConflict)
}

// Delete deletes records for good, all or none if the engine has transactions. Error: ErrConflict if a record was
// changed since it was read, or the workspace does not show it.
func (c Collection[T]) Delete(ctx context.Context, recs ...*T) error {
	b := c.ws.Batch()
	return commit(ctx, b, c.StageDelete(ctx, b, recs...))
}

// StageDelete adds the writes of Delete to a batch, and calls the hook of Store.OnEnd. Errors: ErrConflict if the
// workspace does not show a record; those of the hook.
func (c Collection[T]) StageDelete(ctx context.Context, b *Batch, recs ...*T) error {
	if err := c.checkVisible(ctx, recs...); err != nil {
		return err
	}
	writes, gone := make([]driver.Write, len(recs)), make([]*prior, len(recs))
	var ending []string
	for i, rec := range recs {
		meta := metaOf(rec)
		writes[i] = driver.Write{
			Collection: c.kind.spec.collection, Op: driver.Delete,
			Doc: driver.Document{ID: c.ws.part(c.kind.spec).qualify(meta.ID), Rev: meta.Rev, Was: meta.bytes},
		}
		gone[i] = c.kind.last(rec)
		if c.kind.spec.SoftDelete {
			ending = append(ending, meta.ID)
		}
	}
	if err := c.ws.NotifyEnd(ctx, ending...); err != nil {
		return err
	}
	b.ending = append(b.ending, ending...)
	return b.stage(c.ws.home, c.kind.spec, writes, make([]*Meta, len(writes)), gone)
}

// checkWritable returns an error if the workspace does not have the kind, or lacks the partition that the kind needs.
func (c Collection[T]) checkWritable() error {
	s := c.kind.spec
	if !slices.Contains(c.ws.specs, s.collection) || s.Partition != (c.ws.partition != 0) {
		return fmt.Errorf("%w: %s cannot be written in this workspace", ErrQuery, s.Name)
	}
	return nil
}

// write encodes a record into a write.
func (c Collection[T]) write(op driver.WriteOp, rec *T) (driver.Write, error) {
	s := c.kind.spec
	if err := c.checkWritable(); err != nil {
		return driver.Write{}, err
	}
	if s.Partition {
		for i, f := range s.collection.Fields {
			if f.Name == partitionField {
				reflect.ValueOf(rec).Elem().FieldByIndex(c.kind.fields[i].path).SetInt(c.ws.partition)
			}
		}
	}
	doc, err := c.kind.encode(rec)
	doc.ID, doc.Was = c.ws.part(s).qualify(doc.ID), metaOf(rec).bytes
	return driver.Write{Collection: s.collection, Op: op, Doc: doc}, err
}
