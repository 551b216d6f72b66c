// Package s3 stores objects in a bucket of an S3-compatible server, such as Amazon S3, MinIO, Ceph, Garage or R2.
//
// Every wait for the server is bounded: to connect, for an answer to begin, for the next bytes of it, and until sent
// bytes are taken. A call is tried three times, and only if the failure may pass.
//
// The bucket must not keep old versions of objects: deleted ones would remain in it.
package s3

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"tenantry/backends/blobs"
	"tenantry/crypto/secret"
)

// Options say where the objects are.
type Options struct {
	// Endpoint is the address of the server: http or https, a host, and possibly a port.
	Endpoint string
	// Region is the region of the bucket; empty: the server is asked.
	Region string
	Bucket string
	// Prefix is put before the names of objects, followed by "/"; empty: nothing.
	Prefix    string
	AccessKey string
	SecretKey secret.String
	// PathStyle puts the name of the bucket into the path of every address. Otherwise that depends on the server:
	// Amazon's and some others have it in the host name.
	PathStyle bool
	// Wait is how long the server may be silent; 0: 30 s.
	Wait time.Duration
}

const (
	defaultWait = 30 * time.Second
	// tries bounds how often a request is sent, and how often a read that was interrupted continues.
	tries = 3
	// partSize is the size of the parts of large files in bytes, unless there would be more than maxParts.
	partSize = 16 << 20
	maxParts = 10_000
	// minRate, in bytes a second, is assumed of a connection to bound how long a part may take.
	minRate = 64 << 10
	// abandonedAfter is the age at which an incomplete upload has certainly been abandoned.
	abandonedAfter = 24 * time.Hour
)

// Bucket is a blobs.Bucket. Its objects are in a bucket of a server.
type Bucket struct {
	core      minio.Core
	endpoint  string
	bucket    string
	prefix    string // empty, or ends with "/"
	wait      time.Duration
	transport *http.Transport
}

// Open returns the bucket. It does not connect; see Check. The caller should close the bucket. Errors: options that
// cannot be used.
func Open(o Options) (*Bucket, error) {
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" ||
		endpoint.User != nil || strings.Trim(endpoint.Path, "/") != "" || endpoint.RawQuery != "" || endpoint.Fragment != "" {
		return nil, errors.New("the endpoint is not an address like https://s3.example.com:9000, without path and credentials")
	}
	b := &Bucket{endpoint: endpoint.Scheme + "://" + endpoint.Host, bucket: o.Bucket, wait: o.Wait}
	if b.wait <= 0 {
		b.wait = defaultWait
	}
	if prefix := strings.Trim(o.Prefix, "/"); prefix != "" {
		if err := blobs.CheckName(prefix); err != nil {
			return nil, fmt.Errorf("the prefix: %w", err)
		}
		b.prefix = prefix + "/"
	}
	if o.AccessKey == "" || o.SecretKey.IsZero() {
		return nil, errors.New("the access key and the secret key are required")
	}
	b.transport = newTransport(b.wait)
	lookup := minio.BucketLookupAuto
	if o.PathStyle {
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(o.AccessKey, o.SecretKey.Reveal(), ""),
		Secure: endpoint.Scheme == "https", Region: o.Region, BucketLookup: lookup, MaxRetries: tries,
		Transport: impatient{b.transport, b.wait},
	})
	if err != nil {
		return nil, fmt.Errorf("the endpoint %s: %w", b.endpoint, err)
	}
	b.core = minio.Core{Client: client}
	return b, nil
}

// Close closes idle connections. It returns no error.
func (b *Bucket) Close() error {
	b.transport.CloseIdleConnections()
	return nil
}

// Check returns an error if the bucket does not exist, or objects cannot be stored in it and deleted. The error names
// the bucket and the endpoint, and says what to do. Errors: blobs.ErrUnavailable if the server does not answer or
// cannot answer now, blobs.ErrFull, and faults of the settings, which are neither.
func (b *Bucket) Check(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, 2*b.timeFor(0))
	defer cancel()
	if err := b.lookUp(limited); err != nil {
		return b.explain("%s cannot be looked up", b.translate(ctx, err), err)
	}

	key := b.prefix + "~check-" + rand.Text() // "~" is in no name of an object
	content := strings.NewReader("Tenantry checks that it can write here.\n")
	err := b.send(limited, key, io.NewSectionReader(content, 0, content.Size()))
	if err == nil {
		err = b.core.RemoveObject(limited, b.bucket, key, minio.RemoveObjectOptions{})
	}
	if err != nil {
		return b.explain("%s can be read, but not written", b.translate(ctx, err), err)
	}
	return nil
}

// lookUp returns an error if the bucket does not exist or cannot be listed. It lists one object, because answers to HEAD
// do not have the reason.
func (b *Bucket) lookUp(ctx context.Context) error {
	o := minio.ListObjectsOptions{Prefix: b.prefix, Recursive: true, MaxKeys: 1}
	for found := range b.core.ListObjectsIter(ctx, b.bucket, o) {
		return found.Err
	}
	return ctx.Err()
}

// String names the bucket and its endpoint.
func (b *Bucket) String() string { return fmt.Sprintf("the bucket %q at %s", b.bucket, b.endpoint) }

// explain returns an error of Check with advice. format has a place for the bucket.
func (b *Bucket) explain(format string, translated, err error) error {
	what := fmt.Sprintf(format, b)
	code, status := codeOf(err)
	switch {
	case code == minio.NoSuchBucket:
		return fmt.Errorf("%s does not exist: create it, or correct the name of the bucket", b)
	case code == "" || errors.Is(translated, blobs.ErrFull), status >= http.StatusInternalServerError:
		return fmt.Errorf("%s: check that the server runs and has room, the endpoint, and the network between: %w",
			what, translated)
	case status == http.StatusMovedPermanently, status == http.StatusTemporaryRedirect, strings.Contains(code, "Region"),
		code == "AuthorizationHeaderMalformed":
		return fmt.Errorf("%s: correct the region or the endpoint (%s)", what, reason(err))
	case status == http.StatusForbidden, status == http.StatusUnauthorized, code == "InvalidAccessKeyId",
		code == "XAdminUserNotFound": // VersityGW's code for an unknown key
		return fmt.Errorf("%s: correct the access key and the secret key, or let this key list the bucket, and read, write "+
			"and delete objects (%s)", what, reason(err))
	}
	return fmt.Errorf("%s: check endpoint, bucket and path style (%s)", what, reason(err))
}

// Put stores an object; see blobs.Bucket. It never moves the file.
func (b *Bucket) Put(ctx context.Context, name string, file *os.File) error {
	if err := check(ctx, blobs.CheckName(name)); err != nil {
		return err
	}
	stat, err := file.Stat()
	if err != nil {
		return fmt.Errorf("store %s: %w", name, err)
	}
	if err := b.send(ctx, b.prefix+name, io.NewSectionReader(file, 0, stat.Size())); err != nil {
		return fmt.Errorf("store %s: %w", name, b.translate(ctx, err))
	}
	return nil
}

// send stores content, in parts if it is large. Every request names the SHA-256 of its body, so that the server refuses
// a body that was damaged on the way.
func (b *Bucket) send(ctx context.Context, key string, content *io.SectionReader) error {
	size := content.Size()
	if size > partSize {
		return b.sendParts(ctx, key, content)
	}
	sum, err := sha256Of(content)
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, b.timeFor(size))
	defer cancel()
	_, err = b.core.PutObject(limited, b.bucket, key, content, size, "", sum,
		minio.PutObjectOptions{DisableContentSha256: true}) // that is the hash of a stream; this body has its own
	return err
}

func (b *Bucket) sendParts(ctx context.Context, key string, content *io.SectionReader) (err error) {
	limited, cancel := context.WithTimeout(ctx, b.timeFor(0))
	upload, err := b.core.NewMultipartUpload(limited, b.bucket, key, minio.PutObjectOptions{})
	cancel()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil { // also if ctx has ended
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.wait)
			defer cancel()
			_ = b.core.AbortMultipartUpload(limited, b.bucket, key, upload)
		}
	}()

	step := max(partSize, (content.Size()+maxParts-1)/maxParts)
	var parts []minio.CompletePart
	for at := int64(0); at < content.Size(); at += step {
		part := io.NewSectionReader(content, at, min(step, content.Size()-at))
		etag, err := b.sendPart(ctx, key, upload, len(parts)+1, part)
		if err != nil {
			return err
		}
		parts = append(parts, minio.CompletePart{PartNumber: len(parts) + 1, ETag: etag})
	}
	return b.complete(ctx, key, upload, parts, content.Size())
}

func (b *Bucket) sendPart(ctx context.Context, key, upload string, number int, part *io.SectionReader) (string, error) {
	sum, err := sha256Of(part)
	if err != nil {
		return "", err
	}
	limited, cancel := context.WithTimeout(ctx, b.timeFor(part.Size()))
	defer cancel()
	sent, err := b.core.PutObjectPart(limited, b.bucket, key, upload, number, part, part.Size(),
		minio.PutObjectPartOptions{Sha256Hex: sum, DisableContentSha256: true})
	return sent.ETag, err
}

// complete makes an object of the parts. If an answer was lost, the server may know only the object when it is asked
// again.
func (b *Bucket) complete(ctx context.Context, key, upload string, parts []minio.CompletePart, size int64) error {
	limited, cancel := context.WithTimeout(ctx, b.timeFor(size))
	defer cancel()
	_, err := b.core.CompleteMultipartUpload(limited, b.bucket, key, upload, parts, minio.PutObjectOptions{})
	if code, _ := codeOf(err); code != minio.NoSuchUpload {
		return err
	}
	stat, statErr := b.core.StatObject(limited, b.bucket, key, minio.StatObjectOptions{})
	if statErr == nil && stat.Size == size {
		return nil
	}
	return err
}

// timeFor returns how long a call may take that transfers a number of bytes, with all its tries.
func (b *Bucket) timeFor(size int64) time.Duration {
	return tries * (2*b.wait + time.Duration(size/minRate)*time.Second)
}

func sha256Of(content *io.SectionReader) (string, error) {
	h := sha256.New()
	if _, err := io.Copy(h, content); err != nil {
		return "", err
	}
	_, err := content.Seek(0, io.SeekStart)
	return hex.EncodeToString(h.Sum(nil)), err
}

// Delete removes an object; see blobs.Bucket.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := check(ctx, blobs.CheckName(name)); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, b.timeFor(0))
	defer cancel()
	err := b.core.RemoveObject(limited, b.bucket, b.prefix+name, minio.RemoveObjectOptions{})
	if code, _ := codeOf(err); err != nil && code != minio.NoSuchKey {
		return fmt.Errorf("delete %s: %w", name, b.translate(ctx, err))
	}
	return nil
}

// List yields objects; see blobs.Bucket. It also ends uploads below the prefix that were abandoned a day ago.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[blobs.Info, error] {
	return func(yield func(blobs.Info, error) bool) {
		if err := check(ctx, blobs.CheckPrefix(prefix)); err != nil {
			yield(blobs.Info{}, err)
			return
		}
		_ = b.abort(ctx, prefix, abandonedAfter) // not every server and key may do that, and no object depends on it
		for found, err := range b.objects(ctx, prefix) {
			if err != nil {
				yield(blobs.Info{}, fmt.Errorf("list %s: %w", prefix, b.translate(ctx, err)))
				return
			}
			name := strings.TrimPrefix(found.Key, b.prefix)
			if blobs.CheckName(name) != nil {
				continue
			}
			if !yield(blobs.Info{Name: name, Size: found.Size, Stored: found.LastModified}, nil) {
				return
			}
		}
	}
}

// objects yields everything below the prefix, in order.
func (b *Bucket) objects(ctx context.Context, prefix string) iter.Seq2[minio.ObjectInfo, error] {
	return func(yield func(minio.ObjectInfo, error) bool) {
		o := minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}
		for found := range b.core.ListObjectsIter(ctx, b.bucket, o) {
			if !yield(found, found.Err) || found.Err != nil {
				return
			}
		}
		if err := ctx.Err(); err != nil { // the library just ends
			yield(minio.ObjectInfo{}, err)
		}
	}
}

// DeleteAll removes objects and incomplete uploads; see blobs.Bucket.
func (b *Bucket) DeleteAll(ctx context.Context, prefix string) error {
	if err := check(ctx, blobs.CheckErasure(prefix)); err != nil {
		return err
	}
	err := b.removeAll(ctx, prefix)
	if err == nil {
		err = b.abort(ctx, prefix, 0)
	}
	if code, status := codeOf(err); code == "NotImplemented" || status == http.StatusMethodNotAllowed {
		err = nil // a server without these calls has no incomplete uploads
	}
	if err != nil {
		return fmt.Errorf("delete all of %s: %w", prefix, b.translate(ctx, err))
	}
	return nil
}

func (b *Bucket) removeAll(ctx context.Context, prefix string) error {
	var listErr error
	found := func(yield func(minio.ObjectInfo) bool) {
		for object, err := range b.objects(ctx, prefix) {
			if listErr = err; err != nil || !yield(object) {
				return
			}
		}
	}
	results, err := b.core.RemoveObjectsWithIter(ctx, b.bucket, found, minio.RemoveObjectsOptions{})
	if err != nil {
		return err
	}
	for result := range results {
		if code, _ := codeOf(result.Err); result.Err != nil && code != minio.NoSuchKey {
			return result.Err
		}
	}
	if listErr != nil {
		return listErr
	}
	return ctx.Err()
}

// abort ends the incomplete uploads below the prefix that are at least that old.
func (b *Bucket) abort(ctx context.Context, prefix string, age time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	uploads := b.core.ListIncompleteUploads(ctx, b.bucket, b.prefix+prefix, true)
	defer func() {
		cancel()
		for range uploads { // until its goroutine has ended
		}
	}()
	for upload := range uploads {
		if upload.Err != nil {
			return upload.Err
		}
		if time.Since(upload.Initiated) < age {
			continue
		}
		err := b.core.AbortMultipartUpload(ctx, b.bucket, upload.Key, upload.UploadID)
		if code, _ := codeOf(err); err != nil && code != minio.NoSuchUpload {
			return err
		}
	}
	return nil
}

// check returns the error of an argument, or that of the context.
func check(ctx context.Context, argument error) error {
	if argument != nil {
		return argument
	}
	return ctx.Err()
}
