package contents

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/tenants"
)

// ErrDiffers: bytes in a backup are not those that were stored.
var ErrDiffers = errors.New("the bytes of a file in the backup are not those that were stored")

// Lacking calls visit with each blob of the same organization in a backup that the organization does not have now.
// Errors: store.ErrUnavailable, those of visit.
func (k *Keeper) Lacking(
	ctx context.Context, now *tenants.Tenant, backup *Keeper, then *tenants.Tenant, visit func(*Blob) error,
) error {
	return backup.each(ctx, then, func(page []Blob) error {
		hashes := make([]string, len(page))
		for i := range page {
			hashes[i] = page[i].Hash
		}
		has, err := k.FindAll(ctx, now, hashes)
		for i := range page {
			if err == nil && has[page[i].Hash] == nil {
				err = visit(&page[i])
			}
		}
		return err
	})
}

// each calls visit with the blobs of an organization, some at a time.
func (k *Keeper) each(ctx context.Context, t *tenants.Tenant, visit func([]Blob) error) error {
	for after := ""; ; {
		page, err := k.blobs.In(t.Workspace()).Find(ctx, store.Query{
			Filter: store.Where(store.F("id"), store.OpGt, after), Sort: []store.Order{store.Asc("id")}, Limit: sweepBatch,
		})
		if err != nil || len(page) == 0 {
			return err
		}
		after = page[len(page)-1].ID
		if err := visit(page); err != nil {
			return err
		}
	}
}

// Return stores the bytes of a blob in a backup for records of the organization that will use them, at the latest when
// Sweep would remove them as unused. Errors: as Store, ErrDiffers, blobs.ErrNotFound if the backup lacks them.
func (k *Keeper) Return(ctx context.Context, now *tenants.Tenant, backup *Keeper, blob *Blob) error {
	object, err := backup.Open(ctx, blob)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }() // it was only read
	a, err := k.Receive(ctx, now, object)
	if err != nil {
		return err
	}
	defer func() { _ = a.Close() }() // a temporary file
	if hex.EncodeToString(a.Sum[:]) != blob.Sum {
		return fmt.Errorf("%w: %s", ErrDiffers, blob.Object)
	}
	return k.Store(ctx, now, []*Arrival{a}, func(ctx context.Context, b *store.Batch, got []*Blob) error {
		if got[0].Hash != blob.Hash {
			return fmt.Errorf("%w: %s has another name now", ErrDiffers, blob.Object)
		}
		return b.Commit(ctx)
	})
}

// ReturnAll puts all objects that an organization has in a backup back into the bucket, under their names. It is for an
// organization that has none now. It returns how many the backup lacks. Errors: blobs.ErrFull, blobs.ErrUnavailable.
func (k *Keeper) ReturnAll(ctx context.Context, backup *Keeper, then *tenants.Tenant) (missing int, err error) {
	if err := os.MkdirAll(k.Incoming, 0o700); err != nil {
		return 0, full(err)
	}
	err = backup.each(ctx, then, func(page []Blob) error {
		for i := range page {
			blob := &page[i]
			switch err := k.putBack(ctx, backup.Bucket, blob.Object); {
			case errors.Is(err, blobs.ErrNotFound):
				missing++
				continue
			case err != nil:
				return err
			}
			if small := blob.Thumbnail; small != nil && small.Object != "" {
				if err := k.putBack(ctx, backup.Bucket, small.Object); err != nil && !errors.Is(err, blobs.ErrNotFound) {
					return err
				}
			}
		}
		return nil
	})
	return missing, err
}

// Recover copies the objects that an organization lacks from a bucket that has them under the same names. Errors:
// blobs.ErrFull, blobs.ErrUnavailable, store.ErrUnavailable.
func (k *Keeper) Recover(ctx context.Context, t *tenants.Tenant, from blobs.Bucket) error {
	if err := os.MkdirAll(k.Incoming, 0o700); err != nil {
		return full(err)
	}
	return k.each(ctx, t, func(page []Blob) error {
		for i := range page {
			whole, err := k.isWhole(ctx, t, &page[i])
			if err == nil && !whole {
				err = k.putBack(ctx, from, page[i].Object)
			}
			if err != nil && !errors.Is(err, blobs.ErrNotFound) {
				return err
			}
		}
		return nil
	})
}

// putBack copies an object from a backup.
func (k *Keeper) putBack(ctx context.Context, from blobs.Bucket, name string) error {
	object, err := from.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }() // it was only read
	f, err := os.CreateTemp(k.Incoming, "file-*")
	if err != nil {
		return full(err)
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // the bucket may have moved it
	}()
	n, err := io.Copy(f, object)
	if err == nil && n != object.Size() {
		err = fmt.Errorf("%s: %d of %d bytes: %w", name, n, object.Size(), io.ErrUnexpectedEOF)
	}
	if err != nil {
		return full(err)
	}
	return k.Bucket.Put(ctx, name, f)
}
