package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/klauspost/compress/zstd"

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
	baseDistance = 2 * time.Second
)

// ErrLogBusy: another process writes the log.
var ErrLogBusy = errors.New("another process logs changes in the folder")

// LogOptions say what is logged.
type LogOptions struct {
	Folder string        // of backups
	Keep   time.Duration // older hours are removed, if no backup needs them
	Files  bool          // also the bytes of files
	// Gap is called once for each gap in the log, with the databases that it is in, but nil for all.
	Gap func(databases []string, why string)
}

// Log writes the log of a folder. Its methods are safe for concurrent use. They wait for a folder that does not answer
// for ten seconds at most, and do not wait at all while an earlier call hangs there.
type Log struct {
	LogOptions

	patience time.Duration
	sync     func(*os.File) error
	stuck    atomic.Int32 // calls that hang
	moved    atomic.Int64 // grows with everything that is read or written

	turn     chan struct{} // held to use the fields below
	pack     *zstd.Encoder
	claimed  bool         // the mark of the folder has been seen
	lock     *flock.Flock // nil: the log is not open
	lockInfo os.FileInfo
	out      *os.File // nil before the first cut after the log was opened
	hour     string   // the path of out
	end      int64    // of what is complete in out
	state    logState
	anew     bool // the next record is a state, because the folder lacks what is before

	mu           sync.Mutex // guards the fields below; nothing is read or written while it is held
	installation string
	put          map[string]int64     // objects that were stored since the last cut, and their sizes
	gone         []string             // objects that were removed since the last cut
	lacking      map[string]lackingOf // objects that could not be copied
	status       LogStatus
}

// lackingOf is an object that could not be copied.
type lackingOf struct {
	size  int64
	since time.Time
}

// logState is where a log has got to. It begins each of its files.
type logState struct {
	Sequence uint64    `json:"sequence"` // the number of cuts so far
	Last     time.Time `json:"last"`     // the time of the last cut
	// Broken is when the log began, or the chain of a database was last broken: only a backup that began later is a base.
	Broken time.Time                                `json:"broken"`
	Known  map[string]map[string]store.PagePosition `json:"known"` // by backend and file
}

// OpenLog returns the log of a folder, and reads where it has got to. Nothing is written before Begin. Close must be
// called.
func OpenLog(ctx context.Context, o LogOptions) (*Log, error) {
	l := &Log{
		LogOptions: o, patience: logPatience, sync: (*os.File).Sync, turn: make(chan struct{}, 1),
		put: map[string]int64{}, lacking: map[string]lackingOf{},
	}
	var err error
	if l.pack, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(logBlock)); err != nil {
		return nil, err
	}
	read := make(chan logState, 1)
	err = l.attempt(ctx, func(context.Context) error {
		at, err := l.newest()
		read <- at.state
		return err
	})
	l.state = emptyState()
	if err == nil { // otherwise the first cut tells why, and begins anew if it finds something else
		l.state = <-read
	}
	l.noteState()
	return l, nil
}

// Begin lets the log of an installation be written. A folder that is marked as that of another one stays as it is.
func (l *Log) Begin(installation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.installation = installation
}

func emptyState() logState {
	return logState{Known: map[string]map[string]store.PagePosition{}}
}

// logEnd is the newest file of a log that has something complete.
type logEnd struct {
	state logState
	path  string // empty: the log is empty
	end   int64  // of what is complete
	// incomplete are files after it.
	incomplete []string
}

// newest reads where the log has got to.
func (l *Log) newest() (at logEnd, err error) {
	at.state = emptyState()
	hours, err := logHours(l.Folder)
	for _, path := range slices.Backward(hours) {
		if err != nil {
			break
		}
		var state logState
		if state, at.end, err = l.readState(path); err == nil && at.end > 0 {
			at.state, at.path = state, path
			break
		}
		at.incomplete = append(at.incomplete, path)
	}
	return at, err
}

// recover reads where the log has got to, and removes what is incomplete at its end.
func (l *Log) recover() (logState, error) {
	at, err := l.newest()
	for _, path := range at.incomplete {
		if err == nil {
			err = os.Remove(path)
		}
	}
	if err == nil && at.path != "" {
		err = os.Truncate(at.path, at.end)
	}
	return at.state, err
}

// readState returns where the log was at the end of a file, and up to where the file is complete; 0: it has no state.
func (l *Log) readState(path string) (state logState, end int64, err error) {
	begin, end, err := l.lastCut(path)
	if err != nil || end == 0 {
		return state, end, err
	}
	whole, err := l.isWhole(path, begin, end)
	if err != nil {
		return state, 0, err
	}
	if !whole {
		end = begin
	}
	err = l.records(path, 0, false, func(r *logRecord, at int64) error {
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
func (l *Log) lastCut(path string) (begin, end int64, err error) {
	err = l.records(path, 0, false, func(r *logRecord, at int64) error {
		if r.Pages == nil {
			begin, end = end, at
		}
		return nil
	})
	return begin, end, err
}

// isWhole reports whether all records of a cut are undamaged. After a loss of power its end may have been written, and
// not what is before. Earlier cuts had been synced.
func (l *Log) isWhole(path string, begin, end int64) (bool, error) {
	last := int64(0)
	err := l.records(path, begin, true, func(_ *logRecord, at int64) error {
		last = at
		return nil
	})
	return last >= end, err
}

// records is readRecords for a call that must not hang.
func (l *Log) records(path string, from int64, bodies bool, do func(r *logRecord, end int64) error) error {
	return readRecords(path, from, bodies, func(r *logRecord, end int64) error {
		l.moved.Add(1)
		return do(r, end)
	})
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
func logHours(folder string) ([]string, error) { return hoursEndingIn(folder, logSuffix) }

func hoursEndingIn(folder, suffix string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(folder, logFolder, "[0-9]*", "[0-9][0-9]"+suffix))
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

// Logging says how an engine passes its changes to the log. It is for before Begin.
func (l *Log) Logging(backend string, now func() time.Time, told func(error)) store.PageLogging {
	return store.PageLogging{
		Known: maps.Clone(l.state.Known[backend]), Last: l.state.Last, Now: now, Told: told,
		Ship: func(ctx context.Context, cut store.PageCut) error { return l.ship(ctx, backend, cut) },
	}
}

// ship appends a cut and syncs it.
func (l *Log) ship(ctx context.Context, backend string, cut store.PageCut) error {
	if l.owner() == "" {
		return store.ErrNotYet
	}
	err := l.attempt(ctx, func(ctx context.Context) error {
		l.turn <- struct{}{}
		defer func() { <-l.turn }()
		return l.append(ctx, backend, cut)
	})
	if err != nil {
		err = fmt.Errorf("the log of changes: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s := &l.status; {
	case err == nil:
		s.Failed, s.Since = nil, time.Time{}
	case s.Failed == nil:
		s.Failed, s.Since = err, cut.At
	default:
		s.Failed = err
	}
	return err
}

// append writes a cut. Its pages may be read only until ctx ends, because the engine goes on then. A cut that became
// complete after that stays: the next one has its changes, too.
func (l *Log) append(ctx context.Context, backend string, cut store.PageCut) error {
	if err := ctx.Err(); err != nil { // another engine had the turn
		return err
	}
	if err := l.reopen(ctx, cut.At); err != nil {
		return err
	}
	if err := l.turnBack(cut.At); err != nil {
		return err
	}
	if cut.At.Before(l.state.Last) { // of another engine
		cut.At = l.state.Last
	}
	if err := l.turnTo(ctx, cut.At); err != nil {
		return err
	}
	put, gone := l.notes()
	w := &recordWriter{to: l.out, at: l.end, pack: l.pack, sync: l.sync, moved: &l.moved}
	end := &logCut{Sequence: l.state.Sequence + 1, Backend: backend, At: cut.At, Since: cut.Since, Put: put, Gone: gone}
	var err error
	for _, f := range cut.Files {
		end.Files = append(end.Files, logFile{File: f.File, Kind: f.Kind, Position: f.Position, Changed: f.Changed})
		if err = w.file(ctx, backend, f); err != nil {
			break
		}
	}
	if err == nil {
		w.record(&logRecord{Cut: end}, nil)
		err = w.finish()
	}
	if err != nil {
		_ = l.out.Truncate(l.end) // if that fails, the next call finds a wrong size
		return err
	}
	l.end = w.at
	l.tellGaps(backend, cut)
	l.state.add(end)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteState()
	maps.DeleteFunc(l.put, func(name string, size int64) bool { return put[name] == size })
	l.gone = slices.Clone(l.gone[len(gone):])
	return nil
}

// notes returns what became of objects since the last cut.
func (l *Log) notes() (put map[string]int64, gone []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.put), slices.Clone(l.gone)
}

// tellGaps tells which chains a cut breaks. Databases that were there before the log began are no gap.
func (l *Log) tellGaps(backend string, cut store.PageCut) {
	var all []string
	why := ""
	known := l.state.Known[backend]
	for _, f := range cut.Files {
		if f.Kind == store.CutBroken && len(known) > 0 {
			all = append(all, backend+"/"+f.File)
			why = cmp.Or(why, f.Why)
		}
	}
	if len(all) > 0 {
		l.Gap(all, cmp.Or(why, "they were changed while changes were not logged, or by another program"))
	}
}

// turnTo opens the file for a time.
func (l *Log) turnTo(ctx context.Context, at time.Time) (err error) {
	path := hourOf(l.Folder, at)
	if l.out != nil && l.hour == path && !l.anew {
		return nil
	}
	if l.out != nil {
		if err := l.out.Close(); err != nil {
			return err
		}
		l.out = nil
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, folderMode); err != nil && !errors.Is(err, fs.ErrExist) {
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
	_, end, err := l.readState(path)
	if err != nil {
		return err
	}
	if err := out.Truncate(end); err != nil {
		return err
	}
	began := end == 0
	if began || l.anew {
		w := &recordWriter{to: out, at: end, pack: l.pack, sync: l.sync, moved: &l.moved}
		w.record(&logRecord{State: &l.state}, nil)
		if err := errors.Join(w.finish(), durable.SyncDir(dir), durable.SyncDir(filepath.Dir(dir))); err != nil {
			return err
		}
		end = w.at
	}
	l.out, l.hour, l.end, l.anew = out, path, end, false
	if began {
		return l.prune(ctx, at)
	}
	return nil
}

// prune removes the hours that no restoration to a second within l.keep needs.
func (l *Log) prune(ctx context.Context, now time.Time) error {
	d, err := Folder(l.Folder, false)
	if err != nil {
		return err
	}
	names, err := d.List(ctx)
	if err != nil {
		return err
	}
	oldest := now.Add(-l.Keep)
	for i, name := range names { // the newest first
		l.moved.Add(1)
		m, err := d.read(ctx, name)
		if errors.Is(err, ErrDamaged) {
			continue
		}
		if err != nil {
			return err
		}
		last := i == len(names)-1
		if m.Ended.Before(now.Add(-l.Keep)) || last && m.Began.After(oldest) {
			oldest = m.Began
			break
		}
	}
	err = removeHours(l.Folder, logSuffix, func(path string) bool {
		return beganAt(path).Add(time.Hour).Before(oldest.Add(-baseDistance))
	})
	return errors.Join(err, removeHours(l.Folder, aheadSuffix, func(path string) bool {
		info, err := os.Stat(path)
		return err == nil && now.Sub(info.ModTime()) >= l.Keep
	}))
}

// removeHours removes files of a log that are old.
func removeHours(folder, suffix string, isOld func(path string) bool) error {
	paths, err := hoursEndingIn(folder, suffix)
	for _, path := range paths {
		if err != nil || !isOld(path) {
			continue
		}
		err = os.Remove(path)
		_ = os.Remove(filepath.Dir(path)) // if that was its last hour
	}
	return err
}

// LogStatus says how far a log is.
type LogStatus struct {
	Cut    uint64    // the number of the last cut; 0: there is none
	Last   time.Time // of the last cut
	Broken time.Time // a backup that began later is needed to restore to later seconds; zero: there is no cut yet
	Failed error     // of the last cut; nil: it succeeded
	Since  time.Time // when it failed first
	Lacks  time.Time // since when the bytes of a file are in the folder only after a backup; zero: they are all there
	Hangs  bool      // the folder does not answer
}

// Status says how far the log is. It does not wait.
func (l *Log) Status() LogStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.status
	for _, one := range l.lacking {
		if s.Lacks.IsZero() || one.since.Before(s.Lacks) {
			s.Lacks = one.since
		}
	}
	s.Hangs = l.stuck.Load() > 0
	return s
}

// noteState makes the state that of the status. The caller holds l.mu and the turn.
func (l *Log) noteState() {
	l.status.Cut, l.status.Last, l.status.Broken = l.state.Sequence, l.state.Last, l.state.Broken
}

// IsAhead reports whether the log is ahead of the clock, so that what it has of the last seconds cannot be restored.
func (s *LogStatus) IsAhead(now time.Time) bool { return s.Last.Sub(now) > clockSlack }

// NeedsBase reports whether a backup that began at a time is too old to be completed from the log.
func (s *LogStatus) NeedsBase(began time.Time) bool {
	return !s.Broken.IsZero() && began.Before(s.Broken.Add(baseDistance)) || !s.Lacks.IsZero() && began.Before(s.Lacks)
}

// Close closes the log. No engine may use it any more.
func (l *Log) Close() error {
	return l.attempt(context.Background(), func(context.Context) error {
		l.turn <- struct{}{} // and nobody gets it again
		l.shut()
		return l.pack.Close()
	})
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
