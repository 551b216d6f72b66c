package contents

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// Store stores bytes that have arrived, and then lets commit stage the records that use them and commit the batch. blobs
// has one for each arrival. Commit may be called several times. If it fails, nothing is stored. Errors: those of commit,
// *store.QuotaError, ErrRefused, ErrNone (see Known), blobs.ErrFull, blobs.ErrUnavailable, store.ErrUnavailable.
func (k *Keeper) Store(
	ctx context.Context, t *tenants.Tenant, all []*Arrival,
	commit func(ctx context.Context, b *store.Batch, blobs []*Blob) error,
) error {
	for _, a := range all {
		if k.Scan != nil && a.file != nil {
			if err := k.Scan(ctx, t, a); err != nil {
				return err
			}
		}
	}
	in := t.Workspace()
	s := &storing{Keeper: k, t: t, all: all, in: k.blobs.In(in), made: map[string]bool{}}
	if err := s.putMissing(ctx); err != nil { // outside of the turn, because it takes long
		s.removeUnused(ctx, err)
		return err
	}
	if err := k.ensureStorage(ctx, in); err != nil {
		s.removeUnused(ctx, err)
		return err
	}
	_, err := k.storage.In(in).Revise(ctx, storageID, func(_ *store.Preconditions, sum *Storage) error {
		return s.plan(ctx, sum)
	}, func(ctx context.Context, b *store.Batch, _ *Storage) error {
		if err := s.stage(ctx, b); err != nil {
			return err
		}
		return commit(ctx, b, s.blobs)
	})
	s.removeUnused(ctx, err)
	if err == nil { // from now on the bytes count as stored
		for _, a := range all {
			a.count.end()
		}
	}
	return err
}

// storing is one call of Store.
type storing struct {
	*Keeper
	t     *tenants.Tenant
	all   []*Arrival
	in    store.Collection[Blob]
	blobs []*Blob         // of all, in their order
	made  map[string]bool // the objects that were made, and whether a blob of the last plan has them
}

// find returns the blob that has the bytes of an arrival, under any key; nil if there is none.
func (s *storing) find(ctx context.Context, a *Arrival) (*Blob, error) {
	names, err := s.names(ctx, s.t, a)
	if err != nil {
		return nil, err
	}
	a.hash = names[0]
	found, err := s.in.Find(ctx, store.Query{Filter: store.In("hash", names...), Limit: len(names)})
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// putMissing makes objects of the bytes that the organization does not have, or whose object is missing. Equal ones are
// made once.
func (s *storing) putMissing(ctx context.Context) error {
	objects := map[string]string{}
	for _, a := range s.all {
		there, err := s.find(ctx, a)
		if err != nil {
			return err
		}
		if there != nil {
			whole := a.file == nil
			if !whole {
				if whole, err = s.isWhole(ctx, s.t, there); err != nil {
					return err
				}
			}
			if whole {
				continue
			}
			a.mends = there.Object
		}
		if a.put = objects[a.hash]; a.put == "" {
			if err := s.put(ctx, a); err != nil {
				return err
			}
			objects[a.hash] = a.put
		}
	}
	return nil
}

// put makes an object of the bytes of an arrival.
func (s *storing) put(ctx context.Context, a *Arrival) error {
	if a.file == nil { // it is Known, but the organization does not have it any more
		return ErrNone
	}
	file, err := a.File()
	if err != nil {
		return err
	}
	object := newObject(s.t, a.hash)
	s.made[object] = false
	if err := s.Bucket.Put(ctx, object, file); err != nil {
		return err
	}
	a.put = object
	return nil
}

// plan chooses the blob of each arrival, and adds the new ones to the sum of what is stored.
func (s *storing) plan(ctx context.Context, sum *Storage) error {
	s.blobs = s.blobs[:0]
	for object := range s.made {
		s.made[object] = false
	}
	planned := map[string]*Blob{}
	before := *sum
	var more int64
	for _, a := range s.all {
		blob, err := s.find(ctx, a)
		if err != nil {
			return err
		}
		if blob == nil {
			if blob = planned[a.hash]; blob == nil {
				if a.put == "" { // it was removed since putMissing found it
					if err := s.put(ctx, a); err != nil {
						return err
					}
				}
				blob = &Blob{
					Hash: a.hash, Object: a.put, Size: a.Size, Sum: hex.EncodeToString(a.Sum[:]), Media: a.Media,
					Plain: a.plain,
				}
				s.made[a.put] = true
				sum.Files++
				more += a.Size
			}
		} else if known := planned[blob.Hash]; known != nil {
			blob = known
		} else if a.mends == blob.Object && a.put != "" {
			blob.Object = a.put
			s.made[a.put] = true
		}
		planned[blob.Hash] = blob
		s.blobs = append(s.blobs, blob)
	}
	sum.Bytes += more
	return admit(s.t, before, more)
}

// stage adds the blobs to the batch. One that exists gets another revision, so that Sweep does not remove it as unused.
func (s *storing) stage(ctx context.Context, b *store.Batch) error {
	staged := map[*Blob]bool{}
	for _, blob := range s.blobs {
		if staged[blob] {
			continue
		}
		staged[blob] = true
		if err := s.in.StageSave(ctx, b, blob); err != nil {
			return err
		}
	}
	return nil
}

// cleanTime bounds the removal of objects that nothing uses. What it does not remove, Sweep does.
const cleanTime = 10 * time.Second

// removeUnused removes the objects that were made for nothing. After an error with an unknown outcome it removes none.
func (s *storing) removeUnused(ctx context.Context, err error) {
	if errors.Is(err, store.ErrUnavailable) || err != nil && ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	for object, used := range s.made {
		if used && err == nil {
			continue
		}
		if gone := s.Bucket.Delete(ctx, object); gone != nil {
			s.Log.WarnContext(ctx, "bytes of a file that was not stored could not be removed and will be retried", "error", gone)
		}
	}
}

// ensureStorage makes the Storage of an organization unless it has one.
func (k *Keeper) ensureStorage(ctx context.Context, in *store.Workspace) error {
	all := k.storage.In(in)
	_, err := all.Get(ctx, storageID)
	if errors.Is(err, store.ErrNotFound) {
		err = all.Insert(ctx, &Storage{Meta: store.Meta{ID: storageID}})
		if _, taken := errors.AsType[*store.DuplicateError](err); taken {
			err = nil
		}
	}
	return err
}
