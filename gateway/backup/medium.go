package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"tenantry/backends/blobs"
	"tenantry/internal/background"
)

// logPatience is how long a call waits while nothing moves, twice.
const logPatience = 5 * time.Second

// errHangs: the folder of backups did not answer, or an earlier call still waits for it.
var errHangs = errors.New("the folder of backups does not answer")

// attempt runs do, which uses the folder, and returns its error, or errHangs if it does not end while nothing moves. Then
// ctx of do ends, and do goes on by itself. Until it has ended, other calls fail at once.
func (l *Log) attempt(ctx context.Context, do func(ctx context.Context) error) error {
	if l.stuck.Load() > 0 {
		return errHangs
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		done <- background.Try(func() error { return do(ctx) })
	}()
	tick := time.NewTicker(l.patience)
	defer tick.Stop()
	for moved := l.moved.Load(); ; {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
		if now := l.moved.Load(); now != moved {
			moved = now
			continue
		}
		l.stuck.Add(1)
		go func() {
			<-ended
			l.stuck.Add(-1)
		}()
		return errHangs
	}
}

// owner returns the installation whose log it is; empty: it has not begun.
func (l *Log) owner() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.installation
}

// reopen sees to it that the log is open for a cut of a time. It trusts nothing but the folder: a mount may have been
// lost, or another one may be in its place.
func (l *Log) reopen(ctx context.Context, at time.Time) error {
	if l.lock != nil && l.check() != nil {
		l.shut()
	}
	if l.lock != nil {
		return nil
	}
	err := l.open(ctx, at)
	if err != nil {
		l.shut()
	}
	return err
}

// check returns an error unless the folder is that of the installation, and has the files that were opened in it.
func (l *Log) check() error {
	if err := checkMark(l.Folder, l.owner()); err != nil {
		return err
	}
	if err := isStill(l.lockPath(), l.lockInfo, -1); err != nil || l.out == nil {
		return err
	}
	info, err := l.out.Stat()
	if err != nil {
		return err
	}
	return isStill(l.hour, info, l.end)
}

// isStill returns an error unless a path leads to an opened file, and that has a size; -1: any.
func isStill(path string, opened os.FileInfo, size int64) error {
	info, err := os.Stat(path)
	if err == nil && (!os.SameFile(info, opened) || size >= 0 && info.Size() != size) {
		err = fmt.Errorf("%s is not the file that was written", path)
	}
	return err
}

// errUnmarked: a folder is not marked as that of an installation.
var errUnmarked = errors.New("it is not the folder of the backups of this installation")

// checkMark returns an error unless a folder has the mark of an installation. Error: errUnmarked if it has none.
func checkMark(folder, installation string) error {
	_, err := os.Lstat(filepath.Join(folder, marks, installation))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found, err := os.ReadDir(filepath.Join(folder, marks))
	if len(found) > 0 {
		return foreignPlace(folder, found[0].Name(), installation)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%s: %w, because %s is missing", folder, errUnmarked, marks+installation)
}

// ErrForeign: a place is marked as that of another installation.
var ErrForeign = errors.New("is for the backups of another installation")

// foreignPlace returns ErrForeign with both installations.
func foreignPlace(place, other, own string) error {
	return fmt.Errorf("%s %w (%s), and this one is %s: name a place of its own for each", place, ErrForeign, other, own)
}

// open opens the log for a cut of a time. If the folder does not have all that was logged so far, the log begins anew.
func (l *Log) open(ctx context.Context, at time.Time) error {
	if err := l.claim(ctx); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(l.Folder, logFolder), folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	l.lock = flock.New(l.lockPath(), flock.SetPermissions(0o600))
	if locked, err := l.lock.TryLock(); err != nil {
		return err
	} else if !locked {
		return fmt.Errorf("%w %s", ErrLogBusy, l.Folder)
	}
	var err error
	if l.lockInfo, err = os.Stat(l.lockPath()); err != nil {
		return err
	}
	found, err := l.recover()
	if err != nil {
		return err
	}
	if found.Sequence != l.state.Sequence || !found.Last.Equal(l.state.Last) {
		l.state.Sequence = max(found.Sequence, l.state.Sequence) + 1 // so that no cut continues one that is there
		if !l.anew {
			l.Gap(nil, "the folder lacks changes that were logged, or has others")
		}
		l.state.Broken, l.anew = at, true
	}
	return nil
}

// claim returns an error unless the folder is that of the installation. A new one is marked, but only until the mark was
// seen: afterwards a folder without it is not that folder.
func (l *Log) claim(ctx context.Context) error {
	own := l.owner()
	err := checkMark(l.Folder, own)
	if errors.Is(err, errUnmarked) && !l.claimed {
		err = l.mark(ctx, own)
	}
	l.claimed = l.claimed || err == nil
	return err
}

func (l *Log) mark(ctx context.Context, own string) error {
	d, err := Folder(l.Folder, true)
	if err != nil {
		return err
	}
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	return d.mark(ctx, own)
}

// shut forgets what is open. The next cut opens it again.
func (l *Log) shut() {
	if l.out != nil {
		_ = l.out.Close() // all complete cuts are synced
	}
	if l.lock != nil {
		_ = l.lock.Unlock()
	}
	l.out, l.lock, l.hour, l.end = nil, nil, "", 0
}

func (l *Log) lockPath() string { return filepath.Join(l.Folder, logFolder, logLock) }

// Store copies the bytes of a file into the folder, before they are stored under the name in the bucket. After an error
// Retry copies them, or the next backup.
func (l *Log) Store(ctx context.Context, name string, file *os.File, now time.Time) error {
	if !l.Files {
		return nil
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	err = l.attempt(ctx, func(ctx context.Context) error { return l.copy(ctx, name, file, info.Size()) })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put[name] = info.Size()
	if err != nil {
		l.lacking[name] = lackingOf{info.Size(), now}
	} else {
		delete(l.lacking, name)
	}
	return err
}

// copy stores the bytes of a file in the folder.
func (l *Log) copy(ctx context.Context, name string, file *os.File, size int64) error {
	if err := checkMark(l.Folder, l.owner()); err != nil {
		return err
	}
	copied, err := os.CreateTemp(filepath.Join(l.Folder, logFolder), "object-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = copied.Close()
		_ = os.Remove(copied.Name()) // the bucket may have moved it
	}()
	if _, err = io.Copy(copied, untilDone{ctx, movingReader{io.NewSectionReader(file, 0, size), l}}); err != nil {
		return err
	}
	to, err := blobs.Folder(FilesFolder(l.Folder))
	if err != nil {
		return err
	}
	return to.Put(ctx, name, copied)
}

// movingReader notes that something moves.
type movingReader struct {
	io.Reader
	l *Log
}

func (r movingReader) Read(p []byte) (int, error) {
	r.l.moved.Add(1)
	return r.Reader.Read(p)
}

// Retry copies from the bucket what Store could not copy, as long as the bucket has it. Errors: those of both buckets.
func (l *Log) Retry(ctx context.Context, from blobs.Bucket) error {
	l.mu.Lock()
	all := make(map[string]int64, len(l.lacking))
	for name, one := range l.lacking {
		all[name] = one.size
	}
	l.mu.Unlock()
	if len(all) == 0 {
		return nil
	}
	if l.stuck.Load() > 0 {
		return errHangs
	}
	if err := checkMark(l.Folder, l.owner()); err != nil {
		return err
	}
	to, err := blobs.Folder(FilesFolder(l.Folder))
	if err != nil {
		return err
	}
	for name, size := range all {
		_, err := copyObject(ctx, from, to, name, filepath.Join(l.Folder, logFolder), object{size: size})
		if err != nil && !errors.Is(err, blobs.ErrNotFound) { // otherwise it was not stored, or was removed
			return err
		}
		l.mu.Lock()
		delete(l.lacking, name)
		l.mu.Unlock()
	}
	return nil
}

// Removed notes that an object was removed, or all objects whose names begin with the prefix, which ends in a slash.
func (l *Log) Removed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, name)
}
