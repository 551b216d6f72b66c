package sqlite

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// TestPageLogLag: what is in the log alone is no older than the last cut, although checkpoints stop there.
func TestPageLogLag(t *testing.T) {
	t.Parallel()
	c, e := items(), openEngine(t, Options{pageInterval: time.Hour, idleInterval: time.Hour})
	(&pageRecords{path: filepath.Join(t.TempDir(), "log")}).start(t, e, time.Now)
	ws := openWorkspace(t, e, "w", c)
	write := func(n int) {
		t.Helper()
		if err := ws.Write(t.Context(), step(c, n)); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	time.Sleep(20 * time.Millisecond)
	before := time.Now()
	cutNow(e)
	write(2)
	ws.file.checkpointIdle()
	if _, age := e.Lag(); age == 0 || age > time.Since(before) {
		t.Errorf("got an age of %s, want at most that of the cut, %s", age, time.Since(before))
	}
}

// TestPageLogUnfollowedCommit: a commit of a transaction that began while its file could not be followed is a gap, also
// if the log works again by then.
func TestPageLogUnfollowedCommit(t *testing.T) {
	t.Parallel()
	c, e := items(), openEngine(t, Options{pageInterval: time.Hour, idleInterval: time.Hour})
	log := &pageRecords{path: filepath.Join(t.TempDir(), "log")}
	log.start(t, e, time.Now)
	ws := openWorkspace(t, e, "w", c)
	write := func(n int) {
		t.Helper()
		if err := ws.Write(t.Context(), step(c, n)); err != nil {
			t.Fatal(err)
		}
	}
	write(1)
	cutNow(e)
	ws.file.db.restLog(t.Context(), time.Minute, func() func() { return func() {} })
	ws.file.db.noteCommit() // as after a commit without a follower
	cutNow(e)
	if found, want := kinds(t, log, "w.db"), []driver.CutKind{driver.CutCreated, driver.CutChanged, driver.CutBroken}; !slices.Equal(found, want) {
		t.Errorf("the log has %v, want %v", found, want)
	}
}

// TestPageLogKeepsLog: a log that was moved into its file completely is not begun anew before it was shipped, although
// a write is committed while a cut is shipped.
func TestPageLogKeepsLog(t *testing.T) {
	t.Parallel()
	c, e := items(), openEngine(t, Options{pageInterval: time.Hour, idleInterval: time.Hour})
	log := &pageRecords{path: filepath.Join(t.TempDir(), "log")}
	log.start(t, e, time.Now)
	ws := openWorkspace(t, e, "w", c)
	write := func(n int) {
		if err := ws.Write(t.Context(), step(c, n)); err != nil {
			t.Error(err)
		}
	}
	write(1)
	log.shipping = func() { write(2) }
	cutNow(e)
	log.shipping = nil
	for n := 3; n < 6; n++ {
		if _, _, err := ws.file.db.checkpoint("PASSIVE"); err != nil {
			t.Fatal(err)
		}
		cutNow(e)
		write(n)
	}
	cutNow(e)
	if found, want := kinds(t, log, "w.db"), []driver.CutKind{driver.CutCreated, driver.CutChanged}; !slices.Equal(found, want) {
		t.Errorf("the log has %v, want %v", found, want)
	}
}

// TestPageLogSealedWhole: a log is said to be sealed only when all of it is in the file, also if a commit came between
// the beginning of the pin and the count of what it sees. Otherwise a kill while the log is emptied leaves a file that
// was changed after that, which is a gap.
func TestPageLogSealedWhole(t *testing.T) {
	t.Parallel()
	c, e := items(), openEngine(t, Options{pageInterval: time.Hour, idleInterval: time.Hour})
	log := &pageRecords{path: filepath.Join(t.TempDir(), "log")}
	log.start(t, e, time.Now)
	ws := openWorkspace(t, e, "w", c)
	for n := range 2 {
		if err := ws.Write(t.Context(), step(c, n+1)); err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			cutNow(e)
			e.pages.Load().follower("w").mark = 1 << 20
		}
	}
	if emptied, _ := ws.file.db.restLog(t.Context(), time.Minute, func() func() { return func() {} }); !emptied {
		t.Fatal("the log was not emptied")
	}
	var sealed, rests driver.PagePosition
	for _, record := range slices.Concat(log.cuts(t)...) {
		if at := record.Position; record.File == "w.db" && at.Sealed {
			sealed = at
		} else if record.File == "w.db" && at.Rests {
			rests = at
		}
	}
	if sealed.Size != rests.Size || sealed.Modified != rests.Modified || sealed.Size == 0 {
		t.Errorf("the file was changed after its log was sealed: %+v, then %+v", sealed, rests)
	}
}

// TestPageLogNotYet: files are followed while cuts cannot be stored yet, and that is told to nobody.
func TestPageLogNotYet(t *testing.T) {
	t.Parallel()
	c, e := items(), openEngine(t, Options{pageInterval: time.Hour, idleInterval: time.Hour})
	log := &pageRecords{path: filepath.Join(t.TempDir(), "log"), fail: driver.ErrNotYet}
	var told []error
	if err := e.LogPages(t.Context(), driver.PageLogging{
		Ship: log.ship, Now: time.Now, Told: func(err error) { told = append(told, err) },
	}); err != nil {
		t.Fatal(err)
	}
	ws := openWorkspace(t, e, "w", c)
	for n := range 2 {
		if err := ws.Write(t.Context(), step(c, n+1)); err != nil {
			t.Fatal(err)
		}
		cutNow(e)
	}
	log.setFail(nil)
	cutNow(e)
	if found, want := kinds(t, log, "w.db"), []driver.CutKind{driver.CutCreated}; !slices.Equal(found, want) || len(told) > 0 {
		t.Errorf("the log has %v, and %v was told, want %v", found, told, want)
	}
}

// TestPageLogDropped: the cut that ends a chain says why.
func TestPageLogDropped(t *testing.T) {
	t.Parallel()
	c, e := items(), openEngine(t, Options{pageInterval: time.Hour, idleInterval: time.Hour, maxUnshipped: 1})
	log := &pageRecords{path: filepath.Join(t.TempDir(), "log")}
	log.start(t, e, time.Now)
	ws := openWorkspace(t, e, "w", c)
	log.setFail(driver.ErrUnavailable)
	if err := ws.Write(t.Context(), step(c, 1)); err != nil {
		t.Fatal(err)
	}
	cutNow(e)
	log.setFail(nil)
	cutNow(e)
	reasons := map[string]bool{}
	for _, record := range slices.Concat(log.cuts(t)...) {
		if record.Kind == driver.CutBroken {
			reasons[record.Why] = true
		}
	}
	if len(reasons) != 1 || reasons[""] {
		t.Errorf("got the reasons %v, want one", reasons)
	}
}
