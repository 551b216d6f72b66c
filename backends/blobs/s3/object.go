package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"tenantry/backends/blobs"
)

// retryPause lies before the second attempt to continue an interrupted read; it doubles.
const retryPause = 100 * time.Millisecond

// object reads an object from the server while it is consumed.
type object struct {
	b      *Bucket
	ctx    context.Context // of Open
	name   string
	size   int64
	at     int64         // where the next Read begins
	body   io.ReadCloser // of an answer, from bodyAt; nil: none
	bodyAt int64
	closed bool
}

// Open returns an object; see blobs.Bucket. It asks for the size only, and the first Read for content.
func (b *Bucket) Open(ctx context.Context, name string) (blobs.Object, error) {
	if err := check(ctx, blobs.CheckName(name)); err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, b.timeFor(0))
	defer cancel()
	stat, err := b.core.StatObject(limited, b.bucket, b.prefix+name, minio.StatObjectOptions{})
	if code, _ := codeOf(err); code == minio.NoSuchKey {
		err = b.absent(limited)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, b.translate(ctx, err))
	}
	return &object{b: b, ctx: ctx, name: name, size: stat.Size}, nil
}

// absent returns blobs.ErrNotFound, unless the bucket itself does not exist: such an outage says nothing about an
// object, and answers to HEAD do not tell the two apart.
func (b *Bucket) absent(ctx context.Context) error {
	err := b.lookUp(ctx)
	if code, _ := codeOf(err); err == nil || code == minio.AccessDenied { // a key may be limited to objects
		return blobs.ErrNotFound
	}
	return err
}

func (o *object) Size() int64 { return o.size }

func (o *object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += o.at
	case io.SeekEnd:
		offset += o.size
	default:
		return 0, fmt.Errorf("seek in %s: invalid whence %d", o.name, whence)
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek in %s: negative position %d", o.name, offset)
	}
	o.at = offset
	return offset, nil
}

// Read returns what the server has sent. If an answer ends too early, it asks for the rest, a limited number of times.
func (o *object) Read(p []byte) (int, error) {
	if o.closed {
		return 0, fmt.Errorf("read %s: %w", o.name, os.ErrClosed)
	}
	if o.at >= o.size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	for try := 1; ; try++ {
		n, err := o.read(p[:min(int64(len(p)), o.size-o.at)])
		if n > 0 {
			return n, nil
		}
		if code, status := codeOf(err); code == minio.NoSuchKey || status >= 400 || try == tries || o.ctx.Err() != nil {
			return 0, fmt.Errorf("read %s: %w", o.name, o.b.translate(o.ctx, err))
		}
		select {
		case <-time.After(retryPause << (try - 1)):
		case <-o.ctx.Done():
		}
	}
}

// read reads from the answer at the position, and asks for one if there is none. It returns bytes or an error.
func (o *object) read(p []byte) (n int, err error) {
	if o.body != nil && o.bodyAt != o.at {
		o.drop()
	}
	if o.body == nil {
		if err := o.ask(); err != nil {
			return 0, err
		}
	}
	n, err = o.body.Read(p)
	o.at, o.bodyAt = o.at+int64(n), o.bodyAt+int64(n)
	if err != nil || o.at == o.size {
		o.drop()
	}
	switch {
	case n > 0:
		return n, nil
	case err == nil, errors.Is(err, io.EOF):
		return 0, io.ErrUnexpectedEOF
	}
	return 0, err
}

// ask requests the object from the position to its end.
func (o *object) ask() error {
	var options minio.GetObjectOptions
	if o.at > 0 {
		if err := options.SetRange(o.at, o.size-1); err != nil {
			return err
		}
	}
	answer, _, header, err := o.b.core.GetObject(o.ctx, o.b.bucket, o.b.prefix+o.name, options)
	if err != nil {
		return err
	}
	if o.at > 0 && !strings.HasPrefix(header.Get("Content-Range"), fmt.Sprintf("bytes %d-", o.at)) {
		_ = answer.Close()
		return fmt.Errorf("the server did not answer with the range from %d", o.at)
	}
	o.body, o.bodyAt = answer, o.at
	return nil
}

// drop closes the answer, and with it its connection if bytes of it are left.
func (o *object) drop() {
	if o.body != nil {
		_ = o.body.Close()
		o.body = nil
	}
}

// Close ends reading. It returns no error.
func (o *object) Close() error {
	o.drop()
	o.closed = true
	return nil
}
