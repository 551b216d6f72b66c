package backup

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/klauspost/compress/zstd"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/internal/durable"
)

// Beside the backups a folder may have a log of the pages of databases, with which a backup becomes the state of any
// later second. It has a file for each hour:
//
//	log/20261127/15.pages
//
// A file is a series of records; see record.go. The first one has the positions of all databases, so that the files
// before need not be read to go on. A cut is complete if its last record is there.
const (
	logFolder    = "log"
	logLock      = "log.lock"
	logSuffix    = ".pages"
	dayLayout    = "20060102"
	hourLayout   = "15"
	logBlock     = 1 << 20 // bytes of pages in a record, before compression
	logInFlight  = 1 << 20 // bytes that are collected before they are written
	baseDistance = 2 * time.Second
)

// ErrLogBusy: another process writes the log.
var ErrLogBusy = errors.New("another process logs changes in the folder")

// Log writes the log of a folder. Its methods are safe for concurrent use.
type Log struct {
	folder string
	keep   time.Duration
	files  blobs.Bucket // of the folder; nil: the bytes of files are not copied
	lock   *flock.Flock
	pack   *zstd.Encoder

	mu     sync.Mutex // guards the fields below
	out    *os.File   // nil before the first cut, and after a failure
	hour   string     // the path of out
	end    int64      // of what is complete in out
	state  logState
	put    map[string]int64 // objects that were stored since the last cut, and their sizes
	gone   []string         // objects that were removed since the last cut
	failed error            // of the last cut
	since  time.Time        // when it failed first
}

// logState is where a log has got to. It begins each of its files.
type logState struct {
	Sequence uint64    `json:"sequence"` // the number of cuts so far
	Last     time.Time `json:"last"`     // the time of the last cut
	// Broken is when the log began, or the chain of a database was last broken: only a backup that began later is a base.
	Broken time.Time                                `json:"broken"`
	Known  map[string]map[string]store.PagePosition `json:"known"` // by backend and file
}

// OpenLog opens the log of a folder, in which hours older than keep are removed if no backup needs them. What a killed
// process has written in part is removed. Unless files is set, the bytes of files are not logged. Close must be called.
// Errors: ErrLogBusy, ErrDamaged; those of the folder.
func OpenLog(folder string, keep time.Duration, files bool) (_ *Log, err error) {
	l := &Log{folder: folder, keep: keep, put: map[string]int64{}}
	if err := checkForLog(folder); err != nil {
		return nil, fmt.Errorf("the log of changes: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(folder, logFolder), folderMode); err != nil {
		return nil, fmt.Errorf("the log of changes: %w", err)
	}
	if files {
		if err := os.MkdirAll(FilesFolder(folder), folderMode); err != nil {
			return nil, fmt.Errorf("the log of changes: %w", err)
		}
		if l.files, err = blobs.Folder(FilesFolder(folder)); err != nil {
			return nil, err
		}
	}
	l.lock = flock.New(filepath.Join(folder, logFolder, logLock), flock.SetPermissions(0o600))
	if locked, err := l.lock.TryLock(); err != nil {
		return nil, fmt.Errorf("the log of changes: %w", err)
	} else if !locked {
		return nil, fmt.Errorf("%w %s", ErrLogBusy, folder)
	}
	defer func() {
		if err != nil {
			_ = l.lock.Unlock()
		}
	}()
	if l.pack, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(logBlock)); err != nil {
		return nil, err
	}
	return l, l.recover()
}

// checkForLog returns an error if the folder has something, and is no place of backups.
func checkForLog(folder string) error {
	if marked, err := os.ReadDir(filepath.Join(folder, marks)); err == nil && len(marked) > 0 {
		return nil
	}
	found, err := foreignIn(folder)
	if err == nil && found != "" {
		err = fmt.Errorf("%s is not empty (%s is there), and no place of backups: name an empty one", folder, found)
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}

// recover reads where the log has got to, and removes what is incomplete at its end.
func (l *Log) recover() error {
	l.state = logState{Known: map[string]map[string]store.PagePosition{}}
	hours, err := logHours(l.folder)
	if err != nil {
		return err
	}
	for _, path := range slices.Backward(hours) {
		state, end, err := readState(path)
		if err != nil {
			return err
		}
		if end > 0 {
			l.state = state
			return os.Truncate(path, end)
		}
		if err := os.Remove(path); err != nil { // not even its first record is complete
			return err
		}
	}
	return nil
}

// readState returns where the log was at the end of a file, and up to where the file is complete; 0: it has no state.
func readState(path string) (state logState, end int64, err error) {
	begin, end, err := lastCut(path)
	if err != nil || end == 0 {
		return state, end, err
	}
	whole, err := isWhole(path, begin, end)
	if err != nil {
		return state, 0, err
	}
	if !whole {
		end = begin
	}
	err = readRecords(path, 0, false, func(r *logRecord, at int64) error {
		switch {
		case at > end:
		case r.State != nil:
			state = *r.State
			if state.Known == nil {
				state.Known = map[string]map[string]store.PagePosition{}
			}
		case r.Cut != nil:
			state.add(r.Cut)
		}
		return nil
	})
	return state, end, err
}

// lastCut returns where the last cut of a file, or the state that begins it, begins and ends.
func lastCut(path string) (begin, end int64, err error) {
	err = readRecords(path, 0, false, func(r *logRecord, at int64) error {
		if r.Pages == nil {
			begin, end = end, at
		}
		return nil
	})
	return begin, end, err
}

// isWhole reports whether all records of a cut are undamaged. After a loss of power its end may have been written, and
// not what is before. Earlier cuts had been synced.
func isWhole(path string, begin, end int64) (bool, error) {
	last := int64(0)
	err := readRecords(path, begin, true, func(_ *logRecord, at int64) error {
		last = at
		return nil
	})
	return last >= end, err
}

// add adds a complete cut.
func (s *logState) add(c *logCut) {
	if s.Broken.IsZero() || c.Sequence != s.Sequence+1 {
		s.Broken = c.At
	}
	s.Sequence, s.Last = c.Sequence, c.At
	known := s.Known[c.Backend]
	if known == nil {
		known = map[string]store.PagePosition{}
		s.Known[c.Backend] = known
	}
	for _, f := range c.Files {
		switch f.Kind {
		case store.CutGone:
			delete(known, f.File)
			continue
		case store.CutBroken:
			s.Broken = c.At
		case store.CutChanged, store.CutCreated:
		}
		known[f.File] = f.Position
	}
}

// logHours returns the paths of the files of a log, the oldest first.
func logHours(folder string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(folder, logFolder, "[0-9]*", "[0-9][0-9]"+logSuffix))
	slices.Sort(found)
	return found, err
}

// hourOf returns the path of the file for a time.
func hourOf(folder string, at time.Time) string {
	return filepath.Join(folder, logFolder, at.Format(dayLayout), at.Format(hourLayout)+logSuffix)
}

// beganAt returns the hour of a file of the log.
func beganAt(path string) time.Time {
	day, hour := filepath.Base(filepath.Dir(path)), filepath.Base(path)
	at, _ := time.Parse(dayLayout+hourLayout+logSuffix, day+hour) // logHours found it
	return at
}

// Logging says how an engine passes its changes to the log.
func (l *Log) Logging(backend string, now func() time.Time, told func(error)) store.PageLogging {
	l.mu.Lock()
	defer l.mu.Unlock()
	return store.PageLogging{
		Known: maps.Clone(l.state.Known[backend]), Last: l.state.Last, Now: now, Told: told,
		Ship: func(ctx context.Context, cut store.PageCut) error { return l.ship(ctx, backend, cut) },
	}
}

// ship appends a cut and syncs it.
func (l *Log) ship(ctx context.Context, backend string, cut store.PageCut) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.append(ctx, backend, cut)
	switch {
	case err == nil:
		l.failed, l.since = nil, time.Time{}
	case l.failed == nil:
		l.failed, l.since = err, cut.At
	default:
		l.failed = err
	}
	if err != nil && l.out != nil {
		_ = l.out.Close() // what is incomplete in it is removed before the next cut
		l.out = nil
	}
	return err
}

func (l *Log) append(ctx context.Context, backend string, cut store.PageCut) error {
	if err := l.turnBack(cut.At); err != nil {
		return fmt.Errorf("the log of changes: %w", err)
	}
	if cut.At.Before(l.state.Last) { // of another engine
		cut.At = l.state.Last
	}
	if err := l.turnTo(ctx, cut.At); err != nil {
		return fmt.Errorf("the log of changes: %w", err)
	}
	w := &recordWriter{to: l.out, at: l.end, pack: l.pack}
	end := &logCut{Sequence: l.state.Sequence + 1, Backend: backend, At: cut.At, Since: cut.Since, Put: l.put, Gone: l.gone}
	for _, f := range cut.Files {
		end.Files = append(end.Files, logFile{File: f.File, Kind: f.Kind, Position: f.Position, Changed: f.Changed})
		if err := w.file(ctx, backend, f); err != nil {
			return fmt.Errorf("the log of changes: %w", err)
		}
	}
	w.record(&logRecord{Cut: end}, nil)
	if err := errors.Join(w.flush(), l.out.Sync()); err != nil {
		return fmt.Errorf("the log of changes: %w", err)
	}
	l.end = w.at
	l.state.add(end)
	l.put, l.gone = map[string]int64{}, nil
	return nil
}

// turnTo opens the file for a time.
func (l *Log) turnTo(ctx context.Context, at time.Time) (err error) {
	path := hourOf(l.folder, at)
	if l.out != nil && l.hour == path {
		return nil
	}
	if l.out != nil {
		if err := l.out.Close(); err != nil {
			return err
		}
		l.out = nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, folderMode); err != nil {
		return err
	}
	out, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = out.Close()
		}
	}()
	end := int64(0)
	if l.hour == path {
		end = l.end
	} else if _, end, err = readState(path); err != nil {
		return err
	}
	if err := out.Truncate(end); err != nil {
		return err
	}
	if end == 0 {
		w := &recordWriter{to: out, pack: l.pack}
		w.record(&logRecord{State: &l.state}, nil)
		if err := errors.Join(w.flush(), out.Sync(), durable.SyncDir(dir), durable.SyncDir(filepath.Dir(dir))); err != nil {
			return err
		}
		end = w.at
		if err := l.prune(ctx, at); err != nil {
			return err
		}
	}
	l.out, l.hour, l.end = out, path, end
	return nil
}

// prune removes the hours that no restoration to a second within l.keep needs.
func (l *Log) prune(ctx context.Context, now time.Time) error {
	d, err := Folder(l.folder, true)
	if err != nil {
		return err
	}
	names, err := d.List(ctx)
	if err != nil {
		return err
	}
	oldest := now.Add(-l.keep)
	for i, name := range names { // the newest first
		m, err := d.read(ctx, name)
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err != nil {
			return err
		}
		last := i == len(names)-1
		if m.Ended.Before(now.Add(-l.keep)) || last && m.Began.After(oldest) {
			oldest = m.Began
			break
		}
	}
	hours, err := logHours(l.folder)
	if err != nil {
		return err
	}
	for _, path := range hours {
		if beganAt(path).Add(time.Hour).Before(oldest.Add(-baseDistance)) {
			if err := os.Remove(path); err != nil {
				return err
			}
			_ = os.Remove(filepath.Dir(path)) // if that was its last hour
		}
	}
	return l.pruneAhead(now)
}

// Store copies the bytes of a file into the folder, before they are stored under the name in the bucket. After an error
// the next backup copies them.
func (l *Log) Store(ctx context.Context, name string, file *os.File) error {
	if l.files == nil {
		return nil
	}
	copied, err := os.CreateTemp(filepath.Join(l.folder, logFolder), "object-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = copied.Close()
		_ = os.Remove(copied.Name()) // the bucket may have moved it
	}()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if _, err = io.Copy(copied, untilDone{ctx, io.NewSectionReader(file, 0, info.Size())}); err == nil {
		err = l.files.Put(ctx, name, copied)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put[name] = info.Size()
	return err
}

// Removed notes that an object was removed, or all objects whose names begin with the prefix, which ends in a slash.
func (l *Log) Removed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = append(l.gone, name)
}

// LogStatus says how far a log is.
type LogStatus struct {
	Cut    uint64    // the number of the last cut; 0: there is none
	Last   time.Time // of the last cut
	Broken time.Time // a backup that began later is needed to restore to later seconds; zero: there is no cut yet
	Failed error     // of the last cut; nil: it succeeded
	Since  time.Time // when it failed first
}

// Status says how far the log is.
func (l *Log) Status() LogStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LogStatus{l.state.Sequence, l.state.Last, l.state.Broken, l.failed, l.since}
}

// NeedsBase reports whether a backup that began at a time is too old to be completed from the log.
func (s *LogStatus) NeedsBase(began time.Time) bool {
	return !s.Broken.IsZero() && began.Before(s.Broken.Add(baseDistance))
}

// Close closes the log. No engine may use it any more.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.out != nil {
		err = l.out.Close()
		l.out = nil
	}
	return errors.Join(err, l.pack.Close(), l.lock.Unlock())
}

// unnamedAge is the age from which a copy of an object must be in the log, if there is one.
const unnamedAge = time.Hour

// loggedObjects returns the objects that were stored since the oldest hour of a log, and whether there is a log.
func loggedObjects(folder string) (all map[string]object, isLogged bool, err error) {
	all = map[string]object{}
	if folder == "" { // a bucket has no log
		return nil, false, nil
	}
	hours, err := logHours(folder)
	for _, path := range hours {
		if err != nil {
			break
		}
		err = readRecords(path, 0, false, func(r *logRecord, _ int64) error {
			if r.Cut != nil {
				for name, size := range r.Cut.Put {
					all[name] = object{size: size}
				}
			}
			return nil
		})
		if errors.Is(err, fs.ErrNotExist) { // it was pruned meanwhile
			err = nil
		}
	}
	return all, len(hours) > 0, err
}

// recordWriter writes the records of a cut.
type recordWriter struct {
	to   *os.File
	at   int64 // where the next bytes go
	pack *zstd.Encoder
	out  bytes.Buffer
	err  error
}

// file writes the pages of a file.
func (w *recordWriter) file(ctx context.Context, backend string, f store.FileCut) error {
	head := &logRecord{Pages: &logPages{Backend: backend, File: f.File, Kind: f.Kind, Size: f.PageSize, Count: f.Pages}}
	if f.Changed == 0 {
		w.record(head, nil)
		return w.err
	}
	var block []byte
	var packed []byte
	written := 0
	for number, page := range f.Read {
		block = append(binary.BigEndian.AppendUint32(block, number), page...)
		if written++; len(block) < logBlock && written < f.Changed {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		packed = w.pack.EncodeAll(block, packed[:0])
		w.record(head, packed)
		head.Pages.Kind = store.CutChanged // the rest of a new file does not begin it again
		block = block[:0]
	}
	if err := errors.Join(f.Err(), w.err); err != nil || written != f.Changed {
		return fmt.Errorf("%s: %d of %d pages: %w", f.File, written, f.Changed, err)
	}
	return nil
}

// record writes one record.
func (w *recordWriter) record(r *logRecord, body []byte) {
	head, err := json.Marshal(r)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	w.out.Write(recordHeader(head, body))
	w.out.Write(head)
	w.out.Write(body)
	if w.out.Len() > logInFlight {
		_ = w.flush()
	}
}

func (w *recordWriter) flush() error {
	if w.err == nil && w.out.Len() > 0 {
		var n int
		n, w.err = w.to.WriteAt(w.out.Bytes(), w.at)
		w.at += int64(n)
		w.out.Reset()
	}
	return w.err
}
