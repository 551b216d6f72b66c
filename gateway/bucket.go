package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// closeBucket closes the connections to the server of the bucket, if it has one.
func (s *Services) closeBucket() error {
	if closer, is := s.bucket.(io.Closer); is {
		return closer.Close()
	}
	return nil
}
