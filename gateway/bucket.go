package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/blobs/s3"
	"tenantry/config"
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
	o := s.cfg.Files.S3
	bucket, err := s3.Open(s3.Options{
		Endpoint: o.Endpoint, Region: o.Region, Bucket: o.Bucket, Prefix: o.Prefix,
		AccessKey: o.AccessKey, SecretKey: o.SecretKey, PathStyle: o.PathStyle,
	})
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
		where := "files.s3 (bucket " + s.cfg.Files.S3.Bucket + ")"
		if s.cfg.Files.Store != config.FilesS3 {
			where = absolute(s.cfg.FilesDir())
		}
		return fmt.Errorf("%w: %s is not where this installation has the bytes of its files: mount the folder, or correct the "+
			"settings files.*. If the bytes are lost, make the empty file %s there, and tenantry doctor names the files without any",
			ErrNoFiles, where, s.bucketMark())
	case ctx.Err() != nil:
		return ctx.Err()
	}
	s.log.WarnContext(ctx, "files cannot be read now", "error", err)
	return nil
}

// markBucket marks the bucket as that of this installation before the first file is stored. If it was another one before,
// it returns blobs.ErrUnavailable: a mount may have been lost.
func (s *Services) markBucket(ctx context.Context) error {
	if s.marked.Load() {
		return nil
	}
	mark, err := s.bucket.Open(ctx, s.bucketMark())
	if errors.Is(err, blobs.ErrNotFound) {
		has, failed := s.directory.HasFiles(ctx)
		if failed != nil {
			return failed
		}
		if has {
			return fmt.Errorf("%w: the object %s is missing", blobs.ErrUnavailable, s.bucketMark())
		}
		if err = s.putMark(ctx); err == nil {
			err = s.directory.NoteFiles(ctx)
		}
	} else if err == nil {
		err = errors.Join(mark.Close(), s.directory.NoteFiles(ctx))
	}
	s.marked.Store(err == nil)
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
	return s.bucket.Put(ctx, s.bucketMark(), file)
}

const folderMode = 0o700

// closeBucket closes the connections to the server of the bucket, if it has one.
func (s *Services) closeBucket() error {
	if closer, is := s.bucket.(io.Closer); is {
		return closer.Close()
	}
	return nil
}
