package gateway

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/modules/files/contents"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// bundledBytes are the bytes of files for imports and exports.
type bundledBytes struct{ keeper *contents.Keeper }

var _ bundle.Bytes = bundledBytes{}

func contentOf(b *contents.Blob) bundle.Content {
	return bundle.Content{Hash: b.Hash, Size: b.Size, Media: b.Media, Checksum: b.Sum}
}

// Named implements bundle.Bytes.
func (b bundledBytes) Named(
	ctx context.Context, t *tenants.Tenant, hashes []string,
) (map[string]bundle.Content, error) {
	found, err := b.keeper.FindAll(ctx, t, hashes)
	out := make(map[string]bundle.Content, len(found))
	for hash, blob := range found {
		out[hash] = contentOf(blob)
	}
	return out, explained(err)
}

// Measure implements bundle.Bytes.
func (b bundledBytes) Measure(
	ctx context.Context, t *tenants.Tenant, src io.Reader,
) (c bundle.Content, has bool, err error) {
	a, err := contents.Measure(ctx, src)
	if err != nil {
		return c, false, err
	}
	blob, err := b.keeper.Name(ctx, t, a)
	if err != nil {
		return c, false, explained(err)
	}
	return contentOf(blob), blob.ID != "", nil
}

// Open implements bundle.Bytes.
func (b bundledBytes) Open(ctx context.Context, t *tenants.Tenant, hash string) (io.ReadCloser, int64, error) {
	blob, err := b.keeper.Find(ctx, t, hash)
	if err != nil {
		return nil, 0, explained(err)
	}
	object, err := b.keeper.Open(ctx, blob)
	if err != nil {
		return nil, 0, explained(err)
	}
	return object, object.Size(), nil
}

// Admit implements bundle.Bytes.
func (b bundledBytes) Admit(ctx context.Context, t *tenants.Tenant, more int64) error {
	return b.keeper.Admit(ctx, t, more)
}

// Store implements bundle.Bytes.
func (b bundledBytes) Store(
	ctx context.Context, t *tenants.Tenant, all []bundle.Given,
	commit func(ctx context.Context, b *store.Batch, got []bundle.Content) error,
) error {
	arrivals, arrived := make([]*contents.Arrival, len(all)), map[string]*contents.Arrival{}
	defer func() {
		for _, a := range arrived {
			_ = a.Close() // a temporary file; the folder is emptied when the gateway starts
		}
	}()
	for i, given := range all {
		a := arrived[given.Checksum]
		if a == nil {
			var err error
			if a, err = b.receive(ctx, given); err != nil {
				return explained(err)
			}
			arrived[given.Checksum] = a
		}
		arrivals[i] = a
	}
	return explained(b.keeper.Store(ctx, t, arrivals, func(ctx context.Context, batch *store.Batch, blobs []*contents.Blob) error {
		got := make([]bundle.Content, len(blobs))
		for i := range blobs {
			got[i] = contentOf(blobs[i])
		}
		return commit(ctx, batch, got)
	}))
}

// receive returns the bytes for Keeper.Store. Error: bundle.ErrBytes.
func (b bundledBytes) receive(ctx context.Context, given bundle.Given) (*contents.Arrival, error) {
	sum, err := hex.DecodeString(given.Checksum)
	var known [32]byte
	if err != nil || len(sum) != len(known) {
		return nil, fmt.Errorf("%w: the checksum %q is none", bundle.ErrBytes, given.Checksum)
	}
	copy(known[:], sum)
	if given.Open == nil {
		return contents.Known(known), nil
	}
	r, err := given.Open()
	if err != nil {
		return nil, err
	}
	a, err := b.keeper.Receive(ctx, nil, io.LimitReader(r, given.Size+1))
	if err = errors.Join(err, r.Close()); err != nil {
		if a != nil {
			_ = a.Close()
		}
		return nil, err
	}
	if a.Sum != known {
		return nil, errors.Join(bundle.ErrBytes, a.Close())
	}
	return a, nil
}

// explained converts errors of the keeper and its bucket to those of bundle.Bytes.
func explained(err error) error {
	switch {
	case errors.Is(err, contents.ErrNone), errors.Is(err, blobs.ErrNotFound):
		return fmt.Errorf("%w: %w", bundle.ErrNoBytes, err)
	case errors.Is(err, blobs.ErrUnavailable):
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}
