package contents

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// Known returns an arrival of bytes that the organization has already, with which Store keeps them for further records.
// If the organization does not have them by then, Store returns ErrNone.
func Known(sum [sha256.Size]byte) *Arrival { return &Arrival{Sum: sum} }

// Measure reads bytes like Receive, but keeps none of them: its result can only be named. Errors: those of src, and that
// of the context.
func Measure(ctx context.Context, src io.Reader) (*Arrival, error) {
	a := &Arrival{}
	cut, err := a.read(ctx, src, io.Discard)
	return a, cmp.Or(cut, err)
}

// Name returns the blob that has the bytes of an arrival. If the organization has none, it is the one that Store would
// make, without an ID and an Object. Errors: store.ErrUnavailable, those of the keys.
func (k *Keeper) Name(ctx context.Context, t *tenants.Tenant, a *Arrival) (*Blob, error) {
	s := &storing{Keeper: k, t: t, in: k.blobs.In(t.Workspace())}
	blob, err := s.find(ctx, a)
	if blob == nil {
		blob = &Blob{Hash: a.hash, Size: a.Size, Sum: hex.EncodeToString(a.Sum[:]), Media: a.Media}
	}
	return blob, err
}

// FindAll returns the blobs of those hashes that the organization has, by hash; at most 1,000. Error:
// store.ErrUnavailable.
func (k *Keeper) FindAll(ctx context.Context, t *tenants.Tenant, hashes []string) (map[string]*Blob, error) {
	found := make(map[string]*Blob, len(hashes))
	if len(hashes) == 0 {
		return found, nil
	}
	all, err := k.blobs.In(t.Workspace()).Find(ctx, store.Query{
		Filter: store.In("hash", hashes...), Limit: len(hashes),
	})
	for i := range all {
		found[all[i].Hash] = &all[i]
	}
	return found, err
}
