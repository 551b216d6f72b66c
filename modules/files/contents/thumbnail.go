package contents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"tenantry/internal/picture"
	"tenantry/tenants"
)

// thumbnailEdge is the largest width and height of a small picture in pixels.
const thumbnailEdge = 400

// slowPause is how long a small picture whose time has run out is not tried again: the picture may need that time
// always, or the bucket was slow.
const slowPause = 24 * time.Hour

// MakeThumbnail makes and stores the small picture of a blob, or notes why there can be none. It does nothing if that was
// done before. Errors: ErrNone, blobs.ErrUnavailable, blobs.ErrFull, store.ErrUnavailable, that of the context.
func (k *Keeper) MakeThumbnail(ctx context.Context, t *tenants.Tenant, hash string) error {
	blob, err := k.Find(ctx, t, hash)
	if err != nil || blob.Small(k.Now()) != nil {
		return err
	}
	object, err := k.Open(ctx, blob)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }()
	small := &Thumbnail{}
	encoded, media, err := picture.Thumbnail(ctx, object, thumbnailEdge)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		small.Failed, small.Until = "it took too long", k.Now().Add(slowPause).UnixMilli()
	case ctx.Err() != nil: // the process stops
		return ctx.Err()
	case errors.Is(err, picture.ErrUnsupported), errors.Is(err, picture.ErrTooLarge), errors.Is(err, picture.ErrBroken):
		small.Failed = err.Error()
	case err != nil:
		return err
	default:
		small.Media, small.Object = media, newObject(t, hash)
		if err := k.putBytes(ctx, small.Object, encoded); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTime)
	defer cancel()
	_, err = k.blobs.In(t.Workspace().BeyondQuota()).Update(ctx, blob.ID, func(b *Blob) error {
		if b.Small(k.Now()) != nil {
			return errUsed
		}
		b.Thumbnail = small
		return nil
	})
	if err != nil && small.Object != "" {
		err = errors.Join(err, k.Bucket.Delete(ctx, small.Object))
	}
	if errors.Is(err, errUsed) {
		return nil
	}
	return err
}

// putBytes stores bytes that are in memory as an object.
func (k *Keeper) putBytes(ctx context.Context, object string, bytes []byte) error {
	if err := os.MkdirAll(k.Incoming, 0o700); err != nil {
		return full(err)
	}
	file, err := os.CreateTemp(k.Incoming, "thumbnail-*")
	if err != nil {
		return full(err)
	}
	a := &Arrival{file: file}
	defer func() { _ = a.Close() }()
	if _, err := file.Write(bytes); err != nil {
		return full(fmt.Errorf("write a thumbnail: %w", err))
	}
	if file, err = a.File(); err != nil {
		return err
	}
	return k.Bucket.Put(ctx, object, file)
}
