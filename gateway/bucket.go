package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync/atomic"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/blobs/s3"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/tenants"
)

// bucketCheckTimeout bounds the check of a bucket at the start.
const bucketCheckTimeout = 5 * time.Second

// openBucket opens the bucket of the settings. If its server does not answer, it returns no error: calls fail until the
// server answers.
func (s *Services) openBucket(ctx context.Context) error {
	if s.cfg.Files.Store != config.FilesS3 {
		folder, err := blobs.Folder(s.cfg.FilesDir())
		if err != nil {
			return fmt.Errorf("%w: correct the setting files.folder, or let this user write there", err)
		}
		s.bucket = folder
		return nil
	}
	bucket, err := s3.Open(s3Options(s.cfg.Files.S3))
	if err != nil {
		return fmt.Errorf("the settings files.s3: %w", err)
	}
	s.bucket = bucket
	limited, cancel := context.WithTimeout(ctx, bucketCheckTimeout)
	defer cancel()
	switch err := bucket.Check(limited); {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, blobs.ErrUnavailable), errors.Is(err, blobs.ErrFull), limited.Err() != nil:
		s.log.WarnContext(ctx, "files cannot be stored or read now", "bucket", bucket.String(), "error", err)
		return nil
	default:
		return fmt.Errorf("the settings files.s3: %w", err)
	}
}

// bucketMark names the empty object that tells the bucket of this installation from others.
func (s *Services) bucketMark() string { return "installation/" + s.directory.Installation() }

// bucketPlace says where the bucket is.
func (s *Services) bucketPlace() string {
	if s.cfg.Files.Store == config.FilesS3 {
		return "files.s3 (bucket " + s.cfg.Files.S3.Bucket + ")"
	}
	return absolute(s.cfg.FilesDir())
}

// checkBucket returns ErrNoFiles if files were stored, but not in this bucket: it would be started with all files lost,
// as after a mount is missing. A server that does not answer is no error.
func (s *Services) checkBucket(ctx context.Context) error {
	has, err := s.directory.HasFiles(ctx)
	if err != nil || !has {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, bucketCheckTimeout)
	defer cancel()
	mark, err := s.bucket.Open(limited, s.bucketMark())
	switch {
	case err == nil:
		return mark.Close()
	case errors.Is(err, blobs.ErrNotFound):
		return fmt.Errorf("%w: %s is not where this installation has the bytes of its files: mount the folder, or correct the "+
			"settings files.*. After a restoration without them, copy files/ of the place of backups there. "+
			"If the bytes are lost, make the empty file %s there, and tenantry doctor names the files without any",
			ErrNoFiles, s.bucketPlace(), s.bucketMark())
	case ctx.Err() != nil:
		return ctx.Err()
	}
	s.log.WarnContext(ctx, "files cannot be read now", "error", err)
	return nil
}

// markedBucket is the bucket of an installation, in which a mark tells it from others. What is missing or was stored
// while the mark is missing says nothing about the installation: a mount may have been lost. Such calls return
// blobs.ErrUnavailable.
type markedBucket struct {
	blobs.Bucket
	s *Services
	// lasting: the bucket of a server, from which a mark that was seen does not disappear.
	lasting bool
	seen    atomic.Bool
}

func (s *Services) markedBucket() *markedBucket {
	return &markedBucket{Bucket: s.bucket, s: s, lasting: s.cfg.Files.Store == config.FilesS3}
}

func (m *markedBucket) Put(ctx context.Context, name string, file *os.File) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.s.logObject(ctx, name, file)
	err := m.Bucket.Put(ctx, name, file)
	if err != nil || m.lasting {
		return err
	}
	if err = m.check(ctx); err != nil {
		_ = m.Bucket.Delete(context.WithoutCancel(ctx), name) // it is not where anybody would look for it
	}
	return err
}

func (m *markedBucket) Open(ctx context.Context, name string) (blobs.Object, error) {
	object, err := m.Bucket.Open(ctx, name)
	if errors.Is(err, blobs.ErrNotFound) {
		err = cmp.Or(m.check(ctx), err)
	}
	return object, err
}

func (m *markedBucket) Delete(ctx context.Context, name string) error {
	m.s.logRemoval(name)
	return cmp.Or(m.Bucket.Delete(ctx, name), m.check(ctx))
}

func (m *markedBucket) DeleteAll(ctx context.Context, prefix string) error {
	m.s.logRemoval(prefix)
	return cmp.Or(m.Bucket.DeleteAll(ctx, prefix), m.check(ctx))
}

func (m *markedBucket) List(ctx context.Context, prefix string) iter.Seq2[blobs.Info, error] {
	return func(yield func(blobs.Info, error) bool) {
		if err := m.check(ctx); err != nil {
			yield(blobs.Info{}, err)
			return
		}
		for info, err := range m.Bucket.List(ctx, prefix) {
			if !yield(info, err) {
				return
			}
		}
		if err := m.check(ctx); err != nil {
			yield(blobs.Info{}, err)
		}
	}
}

// check returns blobs.ErrUnavailable if files were stored, but the mark is missing.
func (m *markedBucket) check(ctx context.Context) error {
	if m.lasting && m.seen.Load() {
		return nil
	}
	is, err := m.isMarked(ctx)
	if err != nil || is {
		return err
	}
	if has, err := m.s.directory.HasFiles(ctx); err != nil || !has {
		return err
	}
	// The first file may have been stored, after the mark, since the mark was looked for.
	if is, err = m.isMarked(ctx); err == nil && !is {
		err = fmt.Errorf("%w: the object %s is missing in %s", blobs.ErrUnavailable, m.s.bucketMark(), m.s.bucketPlace())
	}
	return err
}

func (m *markedBucket) isMarked(ctx context.Context) (bool, error) {
	mark, err := m.Bucket.Open(ctx, m.s.bucketMark())
	if errors.Is(err, blobs.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, mark.Close()
}

// reachFiles returns an error if the bucket does not answer, or is not the one of this installation.
func (s *Services) reachFiles(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	err := s.markedBucket().check(ctx)
	if errors.Is(err, store.ErrUnavailable) { // nobody knows whether there are files
		err = nil
	}
	return err
}

// ready marks the bucket before the first file is stored, and later checks that the mark is there.
func (m *markedBucket) ready(ctx context.Context) error {
	err := m.check(ctx)
	if err != nil || m.seen.Load() {
		return err
	}
	if err = m.s.putMark(ctx); err == nil { // if it is there already, nothing changes
		err = m.s.directory.NoteFiles(ctx)
	}
	m.seen.Store(err == nil)
	return err
}

func (s *Services) putMark(ctx context.Context) error {
	if err := os.MkdirAll(s.incomingFolder(), folderMode); err != nil {
		return err
	}
	file, err := os.CreateTemp(s.incomingFolder(), "mark-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = file.Close()
		_ = os.Remove(file.Name()) // the bucket may have moved it
	}()
	s.logObject(ctx, s.bucketMark(), file)
	return s.bucket.Put(ctx, s.bucketMark(), file)
}

const folderMode = 0o700

// fileBytes returns how many bytes of files the organization has stored.
func (s *Services) fileBytes(ctx context.Context, t *tenants.Tenant) (int64, error) {
	stored, err := s.contents.Storage(ctx, t)
	return stored.Bytes, err
}

// closeBucket closes the connections to the server of the bucket, if it has one.
func (s *Services) closeBucket() error {
	if closer, is := s.bucket.(io.Closer); is {
		return closer.Close()
	}
	return nil
}
