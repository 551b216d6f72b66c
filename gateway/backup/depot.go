package backup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/gofrs/flock"

	"tenantry/backends/blobs"
	"tenantry/backends/blobs/s3"
	"tenantry/internal/durable"
)

// Depot is a place for backups: a folder, or a bucket of a server. It is safe for concurrent use.
type Depot struct {
	place string
	// folder is the place if it is a folder; empty: it is a bucket.
	folder string
	sets   blobs.Bucket // manifests and databases
	files  blobs.Bucket // bytes of files
	// foreign returns the name of something in the place that is not of backups; empty: there is nothing.
	foreign func(context.Context) (string, error)
	// staging is a folder for what is on its way. Only the holder of the lock uses it.
	staging string
	lock    func() (unlock func(), err error)
	close   func() error
}

// Folder returns the depot in a folder. If make is set, the folder is made. Errors: fs.ErrNotExist if there are no backups
// in it, and those of making it.
func Folder(folder string, make bool) (*Depot, error) {
	var err error
	if files := filepath.Join(folder, filesFolder); make {
		err = os.MkdirAll(files, folderMode)
	} else {
		_, err = os.Stat(files)
	}
	if errors.Is(err, fs.ErrNotExist) && !make {
		return nil, fmt.Errorf("%w in %s: name the place that tenantry backup --to named (%w)", ErrNone, folder, err)
	}
	if err != nil {
		return nil, fmt.Errorf("the folder of backups: %w", err)
	}
	d := &Depot{place: folder, folder: folder, staging: filepath.Join(folder, stagingFolder), close: func() error { return nil }}
	if d.sets, err = blobs.Folder(folder); err == nil {
		d.files, err = blobs.Folder(filepath.Join(folder, filesFolder))
	}
	if err != nil {
		return nil, fmt.Errorf("the folder of backups: %w", err)
	}
	d.foreign = func(context.Context) (string, error) { return foreignIn(folder) }
	d.lock = func() (func(), error) {
		lock := flock.New(filepath.Join(folder, lockFile), flock.SetPermissions(0o600))
		if locked, err := lock.TryLock(); err != nil {
			return nil, fmt.Errorf("the folder of backups: %w", err)
		} else if !locked {
			return nil, fmt.Errorf("%w %s", ErrBusy, folder)
		}
		return func() { _ = lock.Unlock() }, nil // it ends with the process at the latest
	}
	return d, nil
}

// Bucket returns the depot in a bucket of a server. staging is a folder of this machine for databases on their way, which
// is made and removed. The caller sees to it that only one call of Write at a time uses the bucket, and closes the depot.
// Errors: those of s3.Open.
func Bucket(o s3.Options, staging string) (*Depot, error) {
	sets, err := s3.Open(o)
	if err != nil {
		return nil, err
	}
	d := &Depot{
		place: "s3://" + o.Bucket, sets: sets, staging: staging,
		lock: func() (func(), error) { return func() {}, nil },
	}
	d.foreign = func(ctx context.Context) (string, error) {
		for info, err := range sets.List(ctx, "") {
			return info.Name, err
		}
		return "", nil
	}
	if o.Prefix != "" {
		d.place += "/" + o.Prefix
	}
	o.Prefix = FilesPrefix(o.Prefix)
	files, err := s3.Open(o)
	if err != nil {
		return nil, errors.Join(err, sets.Close())
	}
	d.files, d.close = files, func() error { return errors.Join(sets.Close(), files.Close()) }
	return d, nil
}

// foreignIn returns the name of an entry of a new place in a folder, besides those that opening it makes. A folder with a
// log of changes was looked at when that was opened.
func foreignIn(folder string) (string, error) {
	if _, err := os.Stat(filepath.Join(folder, logFolder, logLock)); err == nil {
		return "", nil
	}
	for _, dir := range []string{folder, filepath.Join(folder, filesFolder)} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if name := e.Name(); dir != folder || name != lockFile && name != filesFolder {
				return name, nil
			}
		}
	}
	return "", nil
}

// mark makes an empty place one for the backups of an installation. Error: it has something else, or backups of another
// installation, and removing old backups could remove that.
func (d *Depot) mark(ctx context.Context, installation string) error {
	if marked, err := d.IsOf(ctx, installation); marked || err != nil {
		return err
	}
	if found, err := d.foreign(ctx); err != nil {
		return fmt.Errorf("looking for other things in %s: %w", d, err)
	} else if found != "" {
		return fmt.Errorf("%s is not empty (%s is there), and no place of backups: name an empty one", d, found)
	}
	if err := os.MkdirAll(d.staging, folderMode); err != nil {
		return err
	}
	path := filepath.Join(d.staging, "mark")
	err := durable.WriteFile(path, []byte("Backups of Tenantry. Nothing else may be here.\n"))
	if err == nil {
		err = d.put(ctx, marks+installation, path)
	}
	return errors.Join(err, os.RemoveAll(d.staging))
}

// IsOf reports whether the place is marked as that of an installation. Errors: ErrForeign if it is marked as that of
// another one, those of blobs.Bucket.
func (d *Depot) IsOf(ctx context.Context, installation string) (bool, error) {
	for info, err := range d.sets.List(ctx, marks) {
		switch {
		case err != nil:
			return false, fmt.Errorf("listing the backups in %s: %w", d, err)
		case info.Name != marks+installation:
			return false, foreignPlace(d.String(), strings.TrimPrefix(info.Name, marks), installation)
		}
		return true, nil
	}
	return false, nil
}

// FilesPrefix returns the prefix of the bytes of files in a bucket with backups of that prefix.
func FilesPrefix(prefix string) string {
	if prefix == "" {
		return filesFolder
	}
	return prefix + "/" + filesFolder
}

// String names the place.
func (d *Depot) String() string { return d.place }

// FileBytes returns the bucket with the bytes of files of all backups.
func (d *Depot) FileBytes() blobs.Bucket { return d.files }

// Close ends the use of the depot.
func (d *Depot) Close() error { return d.close() }

// put moves a file of the staging folder to its place. Errors: those of blobs.Bucket.
func (d *Depot) put(ctx context.Context, name, path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	err = d.sets.Put(ctx, name, f)
	_ = f.Close()       // the bucket has synced what it kept
	_ = os.Remove(path) // the bucket may have moved it
	return err
}
