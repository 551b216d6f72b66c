package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/background"
)

const (
	// pageLogInterval is the time between two cuts. They are at full seconds.
	pageLogInterval = time.Second
	// heartbeat is the time after which a cut is shipped in which nothing changed.
	heartbeat = 10 * time.Second
	// maxUnshipped is the size of a log in bytes above which it is not kept for a folder that cannot be written.
	maxUnshipped = 256 << 20
	// clockSlack is how far the last cut may be ahead of the clock.
	clockSlack = 5 * time.Second
	// recycledFrames is the length of a log, in frames, from which it is written from its beginning again.
	recycledFrames = 8_000
	// turnTimeout is how long the closing of a file waits for a cut that is being shipped.
	turnTimeout = 5 * time.Second
)

// pageLog passes the changes of all files on. A file that is written to has a follower, from before its first write
// until its log has been emptied, for which nothing may be written. So a log that is not empty has all changes since
// the last cut.
type pageLog struct {
	driver.PageLogging

	e *Engine
	// turn is held to make a cut, and to empty a log. It is taken before a writer.
	turn chan struct{}
	last time.Time // of the last cut; guarded by turn
	beat time.Time // when it was shipped; guarded by turn
	// looked is when all was shipped that there was in all files; guarded by turn.
	looked time.Time
	// gate is held while it is noted how far the logs are committed, so that no commit begins meanwhile that knows of
	// another one in between.
	gate sync.RWMutex

	mu       sync.Mutex                     // guards the fields below; nothing waits while it is held
	known    map[string]driver.PagePosition // by the name of the file without its suffix
	live     map[string]*follower
	events   []driver.FileCut // for the next cut
	shipping int              // the number of events that are being shipped
	failing  bool

	stop    chan struct{}
	stopped chan struct{} // closed when run has ended
}

// LogPages implements driver.PageLogger.
func (e *Engine) LogPages(ctx context.Context, o driver.PageLogging) error {
	l := &pageLog{
		PageLogging: o, e: e, turn: make(chan struct{}, 1), last: o.Last, looked: o.Last, known: map[string]driver.PagePosition{},
		live: map[string]*follower{}, stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	for file, at := range o.Known {
		l.known[strings.TrimSuffix(file, ".db")] = at
	}
	names, err := databaseNames(e.opts.Dir)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	l.turn <- struct{}{}
	defer l.give()
	for _, name := range names {
		l.find(name)
	}
	for name := range l.known {
		if !slices.Contains(names, name) {
			l.gone(name)
		}
	}
	if err = l.cut(ctx, "", false); err == nil { // otherwise Told was told, or it is not yet the time
		for name := range maps.Clone(l.live) {
			_, _ = l.rest(ctx, name, true) // otherwise it is read on
		}
	}
	e.pages.Store(l)
	go l.run(context.WithoutCancel(ctx))
	return nil
}

// databaseNames returns the names of the database files in a folder without their suffix, but for empty ones.
func databaseNames(dir string) (names []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), ".db")
		if !is || !isShared(name) && driver.CheckName(name) != nil {
			continue
		}
		if info, err := entry.Info(); err == nil && info.Size() > 0 {
			names = append(names, name)
		}
	}
	return names, err
}

// find looks what became of a file since it was in the log. A log that is not empty, because a process was killed, gets a
// follower.
func (l *pageLog) find(name string) {
	known, isKnown := l.known[name]
	if size, err := logSize(l.e.ownPath(name)); err != nil || size > 0 {
		l.follow(name)
		return
	}
	at, err := restingPosition(l.e.ownPath(name))
	if _, ok := continues(known, driver.PagePosition{}, at); err != nil || ok && known.Rests || !isKnown && at.Size <= emptyFile {
		return
	} else if ok && isKnown {
		l.note(name, driver.CutChanged, at)
	} else {
		l.note(name, driver.CutBroken, at)
	}
}

// follow begins to follow a file that is about to be written to, unless it is followed already. Afterwards its writer
// may write. If that fails, its changes are not in the log until it is followed. Calls for one file do not overlap.
func (l *pageLog) follow(name string) {
	l.mu.Lock()
	skip := l.live[name] != nil || l.failing
	known, isKnown := l.known[name]
	l.mu.Unlock()
	if skip {
		return
	}
	f, err := l.e.follow(name, known, isKnown)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live[name] = f
}

// pass waits while the ends of logs are noted. It is called before each commit.
func (l *pageLog) pass() {
	l.gate.RLock()
	defer l.gate.RUnlock()
}

// committed is called after each commit to a file.
func (l *pageLog) committed(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live[name] == nil {
		l.breakOff(name, "")
	}
}

// breakOff ends the chain of a file. l.mu is held.
func (l *pageLog) breakOff(name, why string) {
	if f := l.live[name]; f != nil {
		delete(l.live, name)
		f.close()
	}
	l.noteLocked(name, driver.CutBroken, driver.PagePosition{})
	i := slices.IndexFunc(l.events[l.shipping:], func(c driver.FileCut) bool { return c.File == name+".db" && c.Kind == driver.CutBroken })
	if one := &l.events[l.shipping+i]; one.Why == "" {
		one.Why = why
	}
}

// note puts what became of a file into the next cut.
func (l *pageLog) note(name string, kind driver.CutKind, at driver.PagePosition) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noteLocked(name, kind, at)
}

func (l *pageLog) noteLocked(name string, kind driver.CutKind, at driver.PagePosition) {
	l.known[name] = at
	if kind == driver.CutGone {
		delete(l.known, name)
	}
	one := driver.FileCut{File: name + ".db", Kind: kind, Position: at}
	for i, other := range slices.Backward(l.events) {
		if other.File == one.File {
			if i >= l.shipping && kind == driver.CutBroken && other.Kind == kind {
				one.Why = other.Why
				l.events[i] = one
				return
			}
			break
		}
	}
	l.events = append(l.events, one)
}

// gone notes that a file was removed.
func (l *pageLog) gone(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if f := l.live[name]; f != nil {
		delete(l.live, name)
		f.close()
	}
	if _, is := l.known[name]; is {
		l.noteLocked(name, driver.CutGone, driver.PagePosition{})
	}
}

// take waits for the turn. give must follow if it returns true.
func (l *pageLog) take(timeout time.Duration) bool {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case l.turn <- struct{}{}:
		return true
	case <-timer.C:
		return false
	}
}

func (l *pageLog) give() { <-l.turn }

// cut ships what was committed since the last cut: of all files, or of one if this second has a cut of all already. If
// sealed is set, it also says of the one, or of all, that their logs may be emptied. l.turn is held.
func (l *pageLog) cut(ctx context.Context, only string, sealed bool) error {
	l.turnBack()
	cut, followers, now, all := l.look(only)
	events := len(cut.Files)
	var shipped []*follower
	for _, f := range followers {
		one, err := driver.FileCut{}, f.err
		if err == nil {
			if sealed && (only == "" || f.name == only) && f.end.Frame > 0 {
				err = f.seal()
			}
		}
		if err == nil {
			if f.end == f.position && f.kind == driver.CutChanged || f.end.Frame == 0 && f.kind == driver.CutCreated {
				continue
			}
			one, err = f.changes()
		}
		if err != nil {
			l.drop(f, err)
			continue
		}
		shipped = append(shipped, f)
		cut.Files = append(cut.Files, one)
	}
	l.mu.Lock()
	idle := len(cut.Files) == 0 && !l.failing && now.Sub(l.beat).Abs() < heartbeat
	l.mu.Unlock()
	if idle {
		if all {
			l.looked = cut.At
		}
		return nil
	}
	err := background.Try(func() error { return l.Ship(ctx, cut) })
	l.mu.Lock()
	if l.shipping = 0; errors.Is(err, driver.ErrNotYet) { // files are followed meanwhile
		l.mu.Unlock()
		return err
	}
	tell := err != nil || l.failing
	l.failing = err != nil
	if err == nil {
		l.events = slices.Delete(l.events, 0, events)
	}
	l.mu.Unlock()
	if tell {
		l.Told(err)
	}
	if err != nil {
		l.limit(followers)
		return err
	}
	if l.last, l.beat = cut.At, now; all {
		l.looked = cut.At
	}
	for _, f := range shipped {
		l.mu.Lock()
		if l.live[f.name] == f { // otherwise its chain was broken meanwhile
			l.known[f.name] = f.end
		}
		l.mu.Unlock()
		f.position, f.kind = f.end, driver.CutChanged
		if err := f.renew(); err != nil {
			l.drop(f, err)
		}
	}
	return nil
}

// turnBack goes on at the time of the clock if the last cut is ahead of it: the clock was ahead, and the seconds since
// then come again.
func (l *pageLog) turnBack() {
	now := l.Now().UTC()
	if l.last.Sub(now) <= clockSlack {
		return
	}
	l.Told(fmt.Errorf("the log of changes has a gap: the clock was ahead, at %s, and is back at %s",
		l.last.Format(time.RFC3339), now.Format(time.RFC3339)))
	l.last, l.looked, l.beat = time.Time{}, now, time.Time{}
}

// look notes the ends of the logs, and returns a cut with the events so far, and whether it is of all files.
func (l *pageLog) look(only string) (cut driver.PageCut, followers []*follower, now time.Time, all bool) {
	l.gate.Lock()
	defer l.gate.Unlock()
	now = l.Now().UTC()
	cut.At, cut.Since = now, l.looked
	second := now.Truncate(time.Second)
	switch {
	case second.After(l.last):
		cut.At, only = second, ""
	case !now.After(l.last):
		cut.At = l.last
	}
	l.mu.Lock()
	cut.Files = slices.Clone(l.events)
	l.shipping = len(l.events)
	for name, f := range l.live {
		if only == "" || name == only {
			followers = append(followers, f)
		}
	}
	l.mu.Unlock()
	for _, f := range followers {
		f.look()
	}
	return cut, followers, now, only == ""
}

// drop ends the chain of a file that cannot be read on, unless that has happened already. The cut says why.
func (l *pageLog) drop(f *follower, why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.live[f.name] == f {
		l.breakOff(f.name, why.Error())
	}
}

// limit breaks the chains of files whose logs have become too large.
func (l *pageLog) limit(followers []*follower) {
	for _, f := range followers {
		if size, err := logSize(f.path); err == nil && size > l.e.opts.maxUnshipped {
			l.drop(f, fmt.Errorf("%d bytes could not be logged", size))
		} else if err != nil {
			l.drop(f, err)
		}
	}
}

// rest ships what remains of a file, empties its log and stops following it, and reports whether it did. It does nothing
// if the file is not followed. Nobody may write to the file, and l.turn is held. If sync is set, it is durable that the
// file rests before rest returns. Otherwise nobody may write to the file before the next cut.
func (l *pageLog) rest(ctx context.Context, name string, sync bool) (bool, error) {
	f := l.follower(name)
	if f == nil {
		return false, nil
	}
	if sealed, err := l.seal(ctx, f); err != nil || !sealed {
		return false, err
	}
	emptied, err := f.empty()
	at := driver.PagePosition{}
	if err == nil && emptied {
		at, err = restingPosition(f.path)
	}
	if err != nil {
		l.drop(f, err)
		return false, err
	}
	if !emptied {
		return false, nil
	}
	l.mu.Lock()
	if l.live[name] == f {
		delete(l.live, name)
		l.noteLocked(name, driver.CutChanged, at)
	}
	l.mu.Unlock()
	f.close()
	if sync {
		err = l.cut(ctx, name, false)
	}
	return err == nil, err
}

// seal ships what remains of a file, and that its log may be emptied or begun anew, and reports whether it did. It does
// not if others keep something from being moved into the file. All is there before that is said, so that emptying the
// log changes nothing in the file, by whose size and time it is recognized after a kill. Nobody may write to the file,
// and l.turn is held.
func (l *pageLog) seal(ctx context.Context, f *follower) (bool, error) {
	if err := l.cut(ctx, f.name, false); err != nil {
		return false, err
	}
	if l.follower(f.name) != f {
		return false, nil
	}
	whole, err := f.file()
	if err != nil {
		l.drop(f, err)
	}
	if err != nil || !whole {
		return false, err
	}
	err = l.cut(ctx, f.name, true)
	return err == nil && l.follower(f.name) == f, err
}

// run makes a cut each second until stop is closed.
func (l *pageLog) run(ctx context.Context) {
	defer close(l.stopped)
	for {
		now := time.Now()
		next := time.NewTimer(now.Truncate(l.e.opts.pageInterval).Add(l.e.opts.pageInterval).Sub(now))
		select {
		case <-l.stop:
			next.Stop()
			return
		case <-next.C:
		}
		select {
		case <-l.stop:
			return
		case l.turn <- struct{}{}:
		}
		_ = l.cut(ctx, "", false) // Told was told
		l.give()
	}
}

// close ships what remains, and stops. All databases are closed.
func (l *pageLog) close() error {
	if !l.take(turnTimeout) {
		return fmt.Errorf("%w: the changes of the last seconds could not be logged", driver.ErrUnavailable)
	}
	defer l.give()
	for name := range l.live {
		_, _ = l.rest(context.Background(), name, false)
	}
	l.beat = time.Time{}
	err := l.cut(context.Background(), "", false)
	if errors.Is(err, driver.ErrNotYet) { // the process that opens the files next reads on
		err = nil
	}
	for _, f := range l.live {
		f.close()
	}
	clear(l.live)
	return err
}

// followBeforeWrite follows the file before a write, if changes are logged. The caller holds the writer.
func (db *database) followBeforeWrite() {
	if l := db.engine.pages.Load(); l != nil {
		l.follow(db.name())
	}
}

// noteCommit is called after something was committed, or may have been.
func (db *database) noteCommit() {
	if l := db.engine.pages.Load(); l != nil {
		l.committed(db.name())
	}
}

func (db *database) name() string { return strings.TrimSuffix(filepath.Base(db.path), ".db") }

// restLog empties the log of the database and reports whether it did. logged is false if changes of the file are not
// logged, so that its log can be emptied at any time. lock waits for the writer and returns a function that releases it,
// or nil if it cannot be had.
func (db *database) restLog(ctx context.Context, timeout time.Duration, lock func() (unlock func())) (emptied, logged bool) {
	l := db.engine.pages.Load()
	if l == nil {
		return false, false
	}
	name := db.name()
	if !l.take(timeout) {
		if f := l.follower(name); f != nil {
			l.limit([]*follower{f}) // the folder of the log may hang
		}
		return false, true
	}
	defer l.give()
	if l.follower(name) == nil || l.cut(ctx, name, false) != nil { // so that little remains while nobody writes
		return false, l.follower(name) != nil
	}
	unlock := lock()
	if unlock == nil {
		return false, true
	}
	defer unlock()
	db.mu.Lock()
	db.endSnapshots(0)
	db.mu.Unlock()
	if emptied, _ = l.rest(ctx, name, true); emptied {
		db.lastLogSize = 0
	}
	return emptied, emptied || l.follower(name) != nil
}

// whileNotFollowed calls do, which may truncate the log, if nobody follows the file. Whoever begins to follow it
// meanwhile keeps what is written then, because a follower lets the log be begun anew only with pageLog.turn.
func (db *database) whileNotFollowed(do func()) {
	if l := db.engine.pages.Load(); l != nil {
		if !l.take(time.Second) {
			return
		}
		defer l.give()
		if l.follower(db.name()) != nil {
			return
		}
	}
	do()
}

// recycleLog lets the next write begin the log anew, if it is long. Otherwise it would grow until it is truncated, for
// which readers are held back too. The writer is held for about as long as some commits take.
func (db *database) recycleLog() {
	l := db.engine.pages.Load()
	if mark, _ := db.heldLog(); l == nil || mark < db.engine.opts.recycled || !l.take(truncateWait) {
		return
	}
	defer l.give()
	ctx, cancel := context.WithTimeout(context.Background(), truncateWait)
	defer cancel()
	if l.cut(ctx, db.name(), false) != nil {
		return
	}
	if _, _, err := db.checkpoint("PASSIVE"); err != nil { // so that little remains while nobody writes
		return
	}
	release := db.awaitWriter(ctx)
	if release == nil {
		return
	}
	defer release()
	f := l.follower(db.name())
	if f == nil {
		return
	}
	if sealed, err := l.seal(context.WithoutCancel(ctx), f); err != nil || !sealed {
		return
	}
	if err := f.release(); err != nil {
		l.drop(f, err)
	}
}

// heldLog returns the frame of the log up to which it can be checkpointed while it is followed, and when the follower
// began to hold it there; 0: it is not followed.
func (db *database) heldLog() (mark uint32, began time.Time) {
	if l := db.engine.pages.Load(); l != nil {
		if f := l.follower(db.name()); f != nil {
			return f.held()
		}
	}
	return 0, time.Time{}
}

// closeLog empties the log of a database that is being closed. If that fails, the file is followed further.
func (db *database) closeLog() {
	l := db.engine.pages.Load()
	if l == nil || !l.take(turnTimeout) {
		return
	}
	defer l.give()
	_, _ = l.rest(context.Background(), db.name(), !db.engine.closed.Load())
}

// follower returns the follower of a file, nil if it has none.
func (l *pageLog) follower(name string) *follower {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live[name]
}
