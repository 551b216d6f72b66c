package blobs

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tenantry/internal/durable"
)

// aside is the folder, in that of a bucket, for what is not an object: copies that have not become objects yet, and
// objects that were deleted together. "+" is in no name of an object. Earlier versions called it formerAside, with which
// a shell means the home of the user; it is emptied and removed.
const (
	aside       = "on-the-way+"
	formerAside = "~"
	partPattern = "part-*"
	trashPrefix = "deleted-"
)

const (
	// partAge is the age at which a copy has certainly been abandoned.
	partAge = 24 * time.Hour
	// moveTries bounds how often Put makes the directories of an object that others remove because they are empty.
	moveTries = 100
)

// folder is a Bucket in a folder: an object is a file whose path is its name. It remembers nothing about the folder,
// because other processes may change it, too.
type folder struct{ dir string }

// File is an Object of a folder. Its *os.File can be given to a connection, so that the kernel sends it.
type File struct {
	*os.File
	size int64
}

// Size returns the size in bytes.
func (f *File) Size() int64 { return f.size }

// Folder returns the bucket whose objects are files below dir, which it makes if necessary. Several processes of a
// machine may use a folder. Objects that it opens are *File. It returns an error if the folder cannot be made or read.
func Folder(dir string) (Bucket, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder of files: %w", err)
	}
	if _, err := os.ReadDir(dir); err != nil {
		return nil, fmt.Errorf("the folder of files: %w", err)
	}
	return &folder{dir: dir}, nil
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f *folder) Put(ctx context.Context, name string, file *os.File) error {
	if err := check(ctx, CheckName(name)); err != nil {
		return err
	}
	return translate("store", name, f.put(ctx, name, file))
}

func (f *folder) put(ctx context.Context, name string, file *os.File) error {
	if err := file.Chmod(0o600); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	target := f.path(name)
	err := f.move(file.Name(), target)
	if errors.Is(err, syscall.EXDEV) {
		err = f.copy(ctx, file, target)
	}
	if err != nil {
		return err
	}
	return f.makeDurable(filepath.Dir(target))
}

// move renames a file to the path of an object, and makes the directories on the way.
func (f *folder) move(from, target string) error {
	for try := 1; ; try++ {
		err := os.Rename(from, target)
		if !errors.Is(err, fs.ErrNotExist) || try == moveTries {
			return err
		}
		if _, err := os.Lstat(from); err != nil { // it is not the directory that is missing
			return err
		}
		if err := f.present(); err != nil {
			return err
		}
		// What others remove between two steps of this call is missing, or was there a moment ago: the next try decides.
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
}

// makeDir makes a directory below that of the bucket, which must exist: if a mount was lost, nothing appears in its place.
func (f *folder) makeDir(path string) error {
	if err := f.present(); err != nil {
		return err
	}
	return os.MkdirAll(path, 0o700)
}

// present returns an error if the directory of the bucket is not there, which says nothing about an object.
func (f *folder) present() error {
	if _, err := os.Stat(f.dir); err != nil {
		return fmt.Errorf("the folder itself: %w", err)
	}
	return nil
}

// copy stores the content of a file of another device as an object.
func (f *folder) copy(ctx context.Context, file *os.File, target string) (err error) {
	stat, err := file.Stat()
	if err != nil {
		return err
	}
	if err := f.makeDir(f.path(aside)); err != nil {
		return err
	}
	part, err := os.CreateTemp(f.path(aside), partPattern) // its mode is 0600
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, part.Close())
		if err != nil {
			_ = os.Remove(part.Name())
		}
	}()
	content := io.NewSectionReader(file, 0, stat.Size())
	if n, err := io.Copy(part, untilDone{ctx, content}); err != nil {
		return err
	} else if n != stat.Size() {
		return fmt.Errorf("copied %d of %d bytes: %w", n, stat.Size(), io.ErrUnexpectedEOF)
	}
	if err := part.Sync(); err != nil {
		return err
	}
	return f.move(part.Name(), target)
}

// makeDurable syncs a directory and all that lead to it. Another process may have made them, and not have synced them
// yet. Where nothing is to be written, a sync takes about 0.1 ms.
func (f *folder) makeDurable(dir string) error {
	for ; ; dir = filepath.Dir(dir) {
		// A directory is missing if DeleteAll has removed it with the object.
		if err := durable.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) || dir == f.dir {
			return err
		}
	}
}

func (f *folder) Open(ctx context.Context, name string) (Object, error) {
	if err := check(ctx, CheckName(name)); err != nil {
		return nil, err
	}
	object, err := f.open(name)
	if err != nil {
		return nil, translate("open", name, err)
	}
	return object, nil
}

func (f *folder) open(name string) (Object, error) {
	path := f.path(name)
	stat, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		if err := f.present(); err != nil {
			return nil, err
		}
		return nil, ErrNotFound
	case err != nil:
		return nil, err
	case !stat.Mode().IsRegular():
		return nil, ErrNotFound
	}
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
		return nil, ErrNotFound
	} else if err != nil {
		return nil, err
	}
	return &File{File: file, size: stat.Size()}, nil
}

func (f *folder) Delete(ctx context.Context, name string) error {
	if err := check(ctx, CheckName(name)); err != nil {
		return err
	}
	return translate("delete", name, f.delete(name))
}

func (f *folder) delete(name string) error {
	path := f.path(name)
	stat, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil
	case err != nil:
		return err
	case !stat.Mode().IsRegular():
		return nil // it is no object
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return f.prune(filepath.Dir(path))
}

// prune removes a directory if it is empty, likewise those above it, and syncs the first that is not.
func (f *folder) prune(dir string) error {
	for ; dir != f.dir; dir = filepath.Dir(dir) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err := durable.SyncDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folder) DeleteAll(ctx context.Context, prefix string) error {
	if err := check(ctx, CheckErasure(prefix)); err != nil {
		return err
	}
	return translate("delete all of", prefix, f.deleteAll(ctx, strings.TrimSuffix(prefix, "/")))
}

// deleteAll moves the directory out of the names first, so that objects are gone at once, and together.
func (f *folder) deleteAll(ctx context.Context, name string) error {
	path := f.path(name)
	if stat, err := os.Lstat(path); err == nil && stat.IsDir() {
		if err := f.makeDir(f.path(aside)); err != nil {
			return err
		}
		err = os.Rename(path, filepath.Join(f.path(aside), trashPrefix+rand.Text()))
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // others have deleted them
			return err
		}
		if err := errors.Join(f.prune(filepath.Dir(path)), durable.SyncDir(f.path(aside))); err != nil {
			return err
		}
	}
	return f.removeLeftovers(ctx)
}

// removeLeftovers removes objects that were deleted together, and abandoned copies.
func (f *folder) removeLeftovers(ctx context.Context) error {
	if err := f.removeLeftoversIn(ctx, f.path(formerAside)); err != nil {
		return err
	}
	_ = os.Remove(f.path(formerAside)) // it may be missing, or have copies that are not old enough
	return f.removeLeftoversIn(ctx, f.path(aside))
}

func (f *folder) removeLeftoversIn(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		switch info, err := e.Info(); {
		case err != nil: // removed meanwhile
		case strings.HasPrefix(e.Name(), trashPrefix):
			if err := removeTree(ctx, path); err != nil {
				return err
			}
		case time.Since(info.ModTime()) > partAge:
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// removeTree removes a directory with its content. Unlike os.RemoveAll it ends with ctx.
func removeTree(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if err = ctx.Err(); err == nil && e.IsDir() {
			err = removeTree(ctx, path)
		} else if err == nil {
			err = os.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folder) List(ctx context.Context, prefix string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		if err := check(ctx, CheckPrefix(prefix)); err != nil {
			yield(Info{}, err)
			return
		}
		err := f.removeLeftovers(ctx)
		if err == nil {
			_, err = f.walk(ctx, strings.TrimSuffix(prefix, "/"), yield)
		}
		if err != nil {
			yield(Info{}, translate("list", prefix, err))
		}
	}
}

// walk yields the objects in and below the directory of that name. It reports whether the caller wants more.
func (f *folder) walk(ctx context.Context, name string, yield func(Info, error) bool) (more bool, err error) {
	entries, err := os.ReadDir(f.path(name))
	if name != "" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortKey(a), sortKey(b)) })

	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		object := strings.TrimPrefix(name+"/"+e.Name(), "/")
		if CheckName(object) != nil {
			continue
		}
		if e.IsDir() {
			if more, err := f.walk(ctx, object, yield); err != nil || !more {
				return false, err
			}
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) { // deleted meanwhile
			continue
		} else if err != nil {
			return false, err
		}
		if info.Mode().IsRegular() && !yield(Info{Name: object, Size: info.Size(), Stored: info.ModTime()}, nil) {
			return false, nil
		}
	}
	return true, nil
}

// sortKey orders entries like the whole names of the objects in them: "a-b/c" precedes "a/b".
func sortKey(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

// untilDone reads until the context ends.
type untilDone struct {
	ctx context.Context // it lives as long as one call of Put
	r   io.Reader
}

func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// check returns the error of an argument, or that of the context.
func check(ctx context.Context, argument error) error {
	if argument != nil {
		return argument
	}
	return ctx.Err()
}

// translate turns an error of the operating system into one of this package.
func translate(doing, name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, ErrNotFound):
		return fmt.Errorf("%s %s: %w", doing, name, err)
	case isFull(err):
		return fmt.Errorf("%s %s: %w: %w", doing, name, ErrFull, err)
	}
	return fmt.Errorf("%s %s: %w: %w", doing, name, ErrUnavailable, err)
}

// isFull reports whether a disk or the quota of a user is full.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }
