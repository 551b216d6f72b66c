package gateway

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"tenantry/backends/blobs/s3"
	"tenantry/config"
	"tenantry/gateway/backup"
)

// openDepot opens a place of backups: a folder, which is made if make is set, or s3://bucket/prefix on the server of the
// settings backup.s3. The caller closes it. Errors: a folder that cannot be used, and settings.
func openDepot(cfg *config.Config, place string, make bool) (*backup.Depot, error) {
	if !config.IsBucket(place) {
		return backup.Folder(place, make)
	}
	o, err := cfg.Backup.Bucket(place)
	if err != nil {
		return nil, fmt.Errorf("backups in %s: %w", place, err)
	}
	return backup.Bucket(s3Options(o), filepath.Join(cfg.Data, "backing-up"))
}

// s3Options are the options of a bucket of the settings.
func s3Options(o config.S3) s3.Options {
	return s3.Options{
		Endpoint: o.Endpoint, Region: o.Region, Bucket: o.Bucket, Prefix: o.Prefix,
		AccessKey: o.AccessKey, SecretKey: o.SecretKey, PathStyle: o.PathStyle,
	}
}

// filesOfDepot returns the settings of the store with the bytes of files of a place of backups.
func filesOfDepot(cfg *config.Config, place string) (f config.Files, err error) {
	f = config.Default().Files
	if !config.IsBucket(place) {
		f.Folder = backup.FilesFolder(place)
		return f, nil
	}
	f.Store = config.FilesS3
	f.S3, err = cfg.Backup.Bucket(place)
	f.S3.Prefix = backup.FilesPrefix(f.S3.Prefix)
	return f, err
}

// ListBackups returns what a place of backups can be restored to. Errors: backup.ErrNone, and those of the place.
func ListBackups(ctx context.Context, cfg config.Config, place string) (found *backup.Survey, err error) {
	depot, err := openDepot(&cfg, place, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, depot.Close()) }()
	return depot.Survey(ctx)
}
