package files

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"net/http"
	"testing"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/gateway/tests/fixture"
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

// TestThumbnail_Interrupted: a small picture that is interrupted is made later. One whose time runs out is tried again on
// the next day.
func TestThumbnail_Interrupted(t *testing.T) {
	t.Parallel()
	a := open(t)
	k, tenant := a.App.Contents(), a.Tenant(t)
	bucket := &opening{Bucket: k.Bucket, do: func() {}}
	k.Bucket = bucket
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, image.NewGray(image.Rect(0, 0, 600, 600))); err != nil {
		t.Fatal(err)
	}
	hash := keep(t, k, tenant, encoded.Bytes())
	small := func(ctx context.Context, opened func()) (*contents.Thumbnail, error) {
		bucket.do = opened
		err := k.MakeThumbnail(ctx, tenant, hash)
		blob, failed := k.Find(t.Context(), tenant, hash)
		if failed != nil {
			t.Fatal(failed)
		}
		return blob.Thumbnail, err
	}
	ctx, cancel := context.WithCancel(t.Context())
	if made, err := small(ctx, cancel); !errors.Is(err, context.Canceled) || made != nil {
		t.Fatalf("interrupted: got %v and %+v, want nothing noted", err, made)
	}
	late, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if made, err := small(late, func() { <-late.Done() }); err != nil || made == nil || made.Failed == "" || made.Until == 0 {
		t.Fatalf("out of time: got %v and %+v, want it noted for a time", err, made)
	}
	if made, err := small(t.Context(), func() {}); err != nil || made.Object != "" {
		t.Errorf("at once: got %v and %+v, want no attempt", err, made)
	}
	a.clock.Advance(25 * time.Hour)
	if made, err := small(t.Context(), func() {}); err != nil || made.Object == "" || made.Until != 0 {
		t.Errorf("a day later: got %v and %+v, want a small picture", err, made)
	}
}

// TestThumbnail_ReadersAreAnswered: readers of a small picture that is not made are told to ask again.
func TestThumbnail_ReadersAreAnswered(t *testing.T) {
	t.Parallel()
	a := open(t)
	k, made := a.App.Contents(), make(chan struct{})
	k.Bucket = &opening{Bucket: k.Bucket, do: func() { <-made }}
	var encoded bytes.Buffer
	if err := png.Encode(&encoded, image.NewGray(image.Rect(0, 0, 10, 10))); err != nil {
		t.Fatal(err)
	}
	f := a.upload(t, "a.png", "image/png", encoded.String())
	codes := fixture.Concurrently(4, func(int) int { return a.fetch(t, f.Thumbnail).Code })
	if codes[http.StatusServiceUnavailable] != 4 {
		t.Errorf("got %v, want 503 of all", codes)
	}
	close(made)
	fixture.Await(t, "the small picture is there", func() bool { return a.fetch(t, f.Thumbnail).Code == http.StatusOK })
}

// keep stores bytes that no file uses, and returns their hash.
func keep(t *testing.T, k *contents.Keeper, tenant *tenants.Tenant, data []byte) (hash string) {
	t.Helper()
	arrival, err := k.Receive(t.Context(), tenant, bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = arrival.Close() }()
	commit := func(ctx context.Context, b *store.Batch, stored []*contents.Blob) error {
		hash = stored[0].Hash
		return b.Commit(ctx)
	}
	if err := k.Store(t.Context(), tenant, []*contents.Arrival{arrival}, commit); err != nil {
		t.Fatal(err)
	}
	return hash
}
