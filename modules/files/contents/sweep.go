package contents

import (
	"context"
	"errors"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/tenants"
)

// Used returns which of the hashes records of the organization have, in any state.
type Used func(ctx context.Context, t *tenants.Tenant, hashes []string) (map[string]bool, error)

const (
	// unusedFor is the age from which bytes that nothing uses are removed: longer than an upload takes.
	unusedFor  = 24 * time.Hour
	sweepEvery = 20 * time.Hour
	sweepBatch = 500
)

// IsDue reports whether Sweep has something to do.
func (k *Keeper) IsDue(ctx context.Context, t *tenants.Tenant) (bool, error) {
	sum, err := k.Storage(ctx, t)
	return err == nil && k.isDue(sum), err
}

func (k *Keeper) isDue(sum Storage) bool {
	return sum.ID != "" && k.Now().Sub(time.UnixMilli(sum.SweptAt)) >= sweepEvery
}

// Drop removes the bytes of these hashes that no record uses. A record that comes to use them meanwhile keeps them.
func (k *Keeper) Drop(ctx context.Context, t *tenants.Tenant, hashes []string, used Used) error {
	for _, hash := range hashes {
		if err := k.drop(ctx, t, hash, used); err != nil {
			return err
		}
	}
	return nil
}

var errUsed = errors.New("in use")

func (k *Keeper) drop(ctx context.Context, t *tenants.Tenant, hash string, used Used) error {
	if t.Org.Restoring() { // records that come back may use them; Sweep removes the others later
		return nil
	}
	in := t.Workspace().BeyondQuota()
	var blob *Blob
	_, err := k.storage.In(in).Revise(ctx, storageID, func(_ *store.Preconditions, sum *Storage) (err error) {
		if blob, err = k.Find(ctx, t, hash); err != nil {
			return err
		}
		// Store gives the blob another revision, so a record that is stored after this look-up makes the commit fail.
		now, err := used(ctx, t, []string{hash})
		if err == nil && now[hash] {
			err = errUsed
		}
		sum.Files, sum.Bytes = max(sum.Files-1, 0), max(sum.Bytes-blob.Size, 0)
		return err
	}, func(ctx context.Context, b *store.Batch, _ *Storage) error {
		if err := k.blobs.In(in).StageDelete(ctx, b, blob); err != nil {
			return err
		}
		return b.Commit(ctx)
	})
	if errors.Is(err, ErrNone) || errors.Is(err, errUsed) || errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return k.deleteObjects(ctx, blob)
}

// deleteObjects removes the objects of a blob that is gone. What it does not reach, Sweep does.
func (k *Keeper) deleteObjects(ctx context.Context, blob *Blob) error {
	err := k.Bucket.Delete(ctx, blob.Object)
	if err == nil && blob.Thumbnail != nil && blob.Thumbnail.Object != "" {
		err = k.Bucket.Delete(ctx, blob.Thumbnail.Object)
	}
	return err
}

// Sweep removes bytes that have been without a record for a day: first blobs that no record uses, then objects that no
// blob names. It continues where an earlier call ended, begins a round at most once in 20 hours, and reports whether it
// ran out of time.
func (k *Keeper) Sweep(ctx context.Context, t *tenants.Tenant, used Used) (left bool, err error) {
	sum, err := k.Storage(ctx, t)
	now := k.Now()
	if err != nil || !k.isDue(sum) {
		return false, err
	}
	in := t.Workspace().BeyondQuota()
	for after := sum.Swept; ; {
		found, err := k.blobs.In(in).Find(ctx, store.Query{
			Filter: store.Where(store.F("id"), store.OpGt, after), Sort: []store.Order{store.Asc("id")}, Limit: sweepBatch,
		})
		if err != nil {
			return ctx.Err() != nil, err
		}
		var old []string
		for i := range found {
			if after = found[i].ID; now.Sub(time.UnixMilli(found[i].UpdatedAt)) > unusedFor {
				old = append(old, found[i].Hash)
			}
		}
		if err := k.dropUnused(ctx, t, old, used); err != nil {
			return ctx.Err() != nil, err
		}
		if len(found) < sweepBatch {
			break
		}
		if err := k.noteSwept(ctx, in, after, sum.SweptAt); err != nil {
			return ctx.Err() != nil, err
		}
	}
	if err := k.sweepObjects(ctx, t, now.Add(-unusedFor)); err != nil {
		return ctx.Err() != nil, err
	}
	return false, k.noteSwept(ctx, in, "", now.UnixMilli())
}

func (k *Keeper) dropUnused(ctx context.Context, t *tenants.Tenant, hashes []string, used Used) error {
	if len(hashes) == 0 {
		return nil
	}
	now, err := used(ctx, t, hashes)
	if err != nil {
		return err
	}
	for _, hash := range hashes {
		if now[hash] {
			continue
		}
		if err := k.drop(ctx, t, hash, used); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) noteSwept(ctx context.Context, in *store.Workspace, after string, at int64) error {
	_, err := k.storage.In(in).Update(ctx, storageID, func(s *Storage) error {
		s.Swept, s.SweptAt = after, at
		return nil
	})
	return err
}

// sweepObjects removes the objects stored before that time that no blob names.
func (k *Keeper) sweepObjects(ctx context.Context, t *tenants.Tenant, before time.Time) error {
	return k.orphans(ctx, t, func(object blobs.Info) error {
		if object.Stored.After(before) {
			return nil
		}
		return k.Bucket.Delete(ctx, object.Name)
	})
}

// orphans visits the objects of an organization that no blob names, except those of uploads under way.
func (k *Keeper) orphans(ctx context.Context, t *tenants.Tenant, visit func(blobs.Info) error) error {
	var some []blobs.Info
	flush := func() error {
		named, err := k.named(ctx, t, some)
		for _, object := range some {
			if err == nil && !named[object.Name] {
				err = visit(object)
			}
		}
		some = some[:0]
		return err
	}
	for object, err := range k.Bucket.List(ctx, prefix(t)) {
		if err != nil {
			return err
		}
		if isPart(t, object.Name) {
			continue
		}
		if some = append(some, object); len(some) == sweepBatch {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// named returns which of the objects a blob names.
func (k *Keeper) named(ctx context.Context, t *tenants.Tenant, objects []blobs.Info) (map[string]bool, error) {
	hashes, named := make([]string, len(objects)), map[string]bool{}
	if len(objects) == 0 {
		return named, nil
	}
	for i, object := range objects {
		hashes[i] = hashOf(object.Name)
	}
	found, err := k.blobs.In(t.Workspace()).Find(ctx, store.Query{Filter: store.In("hash", hashes...), Limit: len(hashes)})
	for i := range found {
		named[found[i].Object] = true
		if small := found[i].Thumbnail; small != nil {
			named[small.Object] = true
		}
	}
	return named, err
}

// Damage is what Examine found wrong with the bytes of an organization.
type Damage struct {
	Missing []Blob // the first without an object, or with one of another size
	More    int    // how many more there are
	// Orphans and OrphanBytes are the number and the size of the objects that no blob names. Sweep removes them when
	// they are a day old; Old of them should have been removed.
	Orphans, Old int
	OrphanBytes  int64
	Lost         int64 // bytes that the organization has, less those that its Storage says
}

const (
	maxDamage = 100                // bounds Damage.Missing
	overdue   = 3 * 24 * time.Hour // is the age at which an orphan should have been removed
)

// Examine compares the blobs of an organization with the objects in the bucket. Uploads and removals meanwhile are no
// damage. Errors: blobs.ErrUnavailable, store.ErrUnavailable, that of the context.
func (k *Keeper) Examine(ctx context.Context, t *tenants.Tenant) (d Damage, err error) {
	now := k.Now()
	err = k.orphans(ctx, t, func(object blobs.Info) error {
		d.Orphans++
		d.OrphanBytes += object.Size
		if now.Sub(object.Stored) > overdue {
			d.Old++
		}
		return nil
	})
	if err != nil {
		return d, err
	}
	before, err := k.Storage(ctx, t)
	if err != nil {
		return d, err
	}
	bytes := int64(0)
	err = k.blobs.In(t.Workspace()).Each(ctx, store.Filter{}, store.Either, func(blob *Blob) error {
		bytes += blob.Size
		whole, err := k.isWhole(ctx, t, blob)
		switch {
		case err != nil || whole:
		case len(d.Missing) < maxDamage:
			d.Missing = append(d.Missing, *blob)
		default:
			d.More++
		}
		return err
	})
	if err != nil {
		return d, err
	}
	after, err := k.Storage(ctx, t)
	if after.Rev == before.Rev { // otherwise bytes came or went meanwhile
		d.Lost = bytes - after.Bytes
	}
	return d, err
}

// isWhole reports whether a blob has an object of its size, or is gone by now.
func (k *Keeper) isWhole(ctx context.Context, t *tenants.Tenant, blob *Blob) (bool, error) {
	object, err := k.Open(ctx, blob)
	if err == nil {
		size := object.Size()
		return size == blob.Size, object.Close()
	}
	if !errors.Is(err, blobs.ErrNotFound) {
		return false, err
	}
	_, err = k.Find(ctx, t, blob.Hash)
	if errors.Is(err, ErrNone) {
		return true, nil
	}
	return false, err
}
