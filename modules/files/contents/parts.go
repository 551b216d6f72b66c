package contents

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tenantry/backends/blobs"
	"tenantry/tenants"
)

// partsFolder is the folder, below the prefix of an organization, of the parts of uploads under way.
const partsFolder = "parts/"

// Part is some bytes of an upload that has not ended.
type Part struct {
	Object string `json:"object"`
	Size   int64  `json:"size"`
}

// isPart reports whether an object is a part of an upload under way.
func isPart(t *tenants.Tenant, object string) bool {
	return strings.HasPrefix(object, prefix(t)+partsFolder)
}

// PartBytes is the size of the parts of an upload of that many bytes: what is sent again at most if it is cut. An upload
// has at most some thousand parts.
func PartBytes(length int64) int64 {
	const least, most = 32 << 20, 1000 // bytes of a part; parts
	return max(least, length/most)
}

// AppendPart stores bytes that have arrived as the next part of an upload, and returns its parts from then on, and those
// that the new part replaces: those before it of up to twice its size are joined with it, so that many small requests
// leave few parts. Each part that is left has more than twice the size of the next, or PartBytes.
// Errors: blobs.ErrFull, blobs.ErrUnavailable, blobs.ErrNotFound if a part is gone.
func (k *Keeper) AppendPart(
	ctx context.Context, t *tenants.Tenant, upload string, parts []Part, a *Arrival, length int64,
) (all, replaced []Part, err error) {
	keep, size := len(parts), a.Size
	for ; keep > 0 && size < PartBytes(length) && parts[keep-1].Size <= 2*size; keep-- {
		size += parts[keep-1].Size
	}
	if replaced = parts[keep:]; len(replaced) > 0 {
		file, err := a.File()
		if err != nil {
			return nil, nil, err
		}
		if a, err = k.Join(ctx, replaced, file); err != nil {
			return nil, nil, err
		}
		defer func() { _ = a.Close() }()
	}
	var unique [6]byte
	_, _ = rand.Read(unique[:])
	part := Part{Object: prefix(t) + partsFolder + upload + "/" + hex.EncodeToString(unique[:]), Size: a.Size}
	file, err := a.File()
	if err == nil {
		err = k.Bucket.Put(ctx, part.Object, file)
	}
	return append(slices.Clip(parts[:keep]), part), replaced, err
}

// DropParts removes all parts of an upload.
func (k *Keeper) DropParts(ctx context.Context, t *tenants.Tenant, upload string) error {
	return k.Bucket.DeleteAll(ctx, prefix(t)+partsFolder+upload+"/")
}

// DropPart removes some parts of an upload.
func (k *Keeper) DropPart(ctx context.Context, parts ...Part) (err error) {
	for _, p := range parts {
		err = errors.Join(err, k.Bucket.Delete(ctx, p.Object))
	}
	return err
}

// Uploads returns which of these uploads are under way.
type Uploads func(ctx context.Context, t *tenants.Tenant, ids []string) (map[string]bool, error)

// SweepParts removes the parts of uploads that are gone, which a process has left that was killed.
func (k *Keeper) SweepParts(ctx context.Context, t *tenants.Tenant, are Uploads) error {
	begin, uploads := prefix(t)+partsFolder, []string{}
	for object, err := range k.Bucket.List(ctx, begin) {
		if err != nil {
			return err
		}
		upload, _, _ := strings.Cut(strings.TrimPrefix(object.Name, begin), "/")
		if last := len(uploads) - 1; last < 0 || uploads[last] != upload {
			uploads = append(uploads, upload)
		}
	}
	for some := range slices.Chunk(uploads, sweepBatch) {
		there, err := are(ctx, t, some)
		if err != nil {
			return err
		}
		for _, upload := range some {
			if there[upload] {
				continue
			}
			if err := k.DropParts(ctx, t, upload); err != nil {
				return err
			}
		}
	}
	return nil
}

// Join receives the parts of an upload, and the bytes that follow them, as one file. Errors: as Receive, and
// blobs.ErrNotFound if a part is gone.
func (k *Keeper) Join(ctx context.Context, parts []Part, last io.Reader) (*Arrival, error) {
	first := &joined{ctx: ctx, bucket: k.Bucket, left: parts}
	defer first.close()
	return k.Receive(ctx, nil, io.MultiReader(first, last))
}

// joined reads parts one after another.
type joined struct {
	ctx    context.Context //nolint:containedctx // of the reader
	bucket blobs.Bucket
	left   []Part
	open   blobs.Object
	read   int64 // of the open one
}

// close closes the part that was not read to its end.
func (j *joined) close() {
	if j.open != nil {
		_ = j.open.Close() // it was only read
	}
}

func (j *joined) Read(p []byte) (int, error) {
	for {
		if j.open == nil {
			if len(j.left) == 0 {
				return 0, io.EOF
			}
			object, err := j.bucket.Open(j.ctx, j.left[0].Object)
			if err != nil {
				return 0, err
			}
			j.open, j.read = object, 0
		}
		n, err := j.open.Read(p)
		j.read += int64(n)
		if err == io.EOF { //nolint:errorlint // io.Reader returns it as it is
			size := j.left[0].Size
			err = j.open.Close()
			if j.open = nil; err == nil && j.read != size {
				err = fmt.Errorf("part %s has %d bytes instead of %d", j.left[0].Object, j.read, size)
			}
			j.left = j.left[1:]
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}
