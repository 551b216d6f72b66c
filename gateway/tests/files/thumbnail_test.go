package files

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"testing"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/modules/files/contents"
	"tenantry/tenants"
)

// opening is a Bucket that calls a function when it has opened an object.
type opening struct {
	blobs.Bucket

	do func()
}

func (o *opening) Open(ctx context.Context, name string) (blobs.Object, error) {
	object, err := o.Bucket.Open(ctx, name)
	o.do()
	return object, err
}

// TestThumbnail_Interrupted: a small picture that is interrupted is made later. Only if its time has run out three times,
// it is never made.
func TestThumbnail_Interrupted(t *testing.T) {
	t.Parallel()
	a := open(t)
	k, tenant := a.App.Contents(), a.Tenant(t)
	bucket := &opening{Bucket: k.Bucket, do: func() {}}
	k.Bucket = bucket
	var encoded bytes.Buffer
	for side := range 2 { // different bytes
		encoded.Reset()
		if err := png.Encode(&encoded, image.NewGray(image.Rect(0, 0, 600+side, 600))); err != nil {
			t.Fatal(err)
		}
		hash := keep(t, k, tenant, encoded.Bytes())
		find := func() *contents.Blob {
			blob, err := k.Find(t.Context(), tenant, hash)
			if err != nil {
				t.Fatal(err)
			}
			return blob
		}
		ctx, cancel := context.WithCancel(t.Context())
		bucket.do = cancel
		if err := k.MakeThumbnail(ctx, tenant, hash); !errors.Is(err, context.Canceled) || find().Thumbnail != nil || find().SlowThumbnails != 0 {
			t.Fatalf("interrupted: got %v and %+v, want nothing noted", err, find())
		}
		for slow, tries := 0, 0; slow < 2+side; tries++ {
			if tries == 100 {
				t.Fatal("no attempt was counted as slow")
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			bucket.do = func() { <-ctx.Done() }
			err := k.MakeThumbnail(ctx, tenant, hash)
			cancel()
			if slow = find().SlowThumbnails; err != nil && !errors.Is(err, context.DeadlineExceeded) { // it may end before the bucket
				t.Fatal(err)
			}
		}
		bucket.do = func() {}
		if err := k.MakeThumbnail(t.Context(), tenant, hash); err != nil {
			t.Fatal(err)
		}
		if made := find().Thumbnail; made == nil || (made.Object == "") != (side == 1) || (made.Failed != "") != (side == 1) {
			t.Errorf("after %d slow attempts: got %+v", 2+side, made)
		}
	}
}

// keep stores bytes that no file uses, and returns their hash.
func keep(t *testing.T, k *contents.Keeper, tenant *tenants.Tenant, data []byte) (hash string) {
	t.Helper()
	arrival, err := k.Receive(t.Context(), tenant, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = arrival.Close() }()
	if err := k.Store(t.Context(), tenant, []*contents.Arrival{arrival}, func(ctx context.Context, b *store.Batch, stored []*contents.Blob) error {
		hash = stored[0].Hash
		return b.Commit(ctx)
	}); err != nil {
		t.Fatal(err)
	}
	return hash
}
