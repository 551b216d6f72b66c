package backup

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
)

func second(n int) time.Time { return time.Date(2026, 11, 27, 15, 45, n, 0, time.UTC) }

// TestSpans: a backup can be completed to the seconds since it ended, but for those of which something is missing.
func TestSpans(t *testing.T) {
	t.Parallel()
	m := Manifest{Name: "b", Began: second(10), Ended: second(12)}
	cut := func(n, at, since int, files ...logFile) logCut {
		return logCut{Sequence: uint64(n), Backend: "default", At: second(at), Since: second(since), Files: files}
	}
	file := func(kind store.CutKind) logFile { return logFile{File: "control.db", Kind: kind, Changed: 1} }
	changed, broken, created := file(store.CutChanged), file(store.CutBroken), file(store.CutCreated)
	for what, test := range map[string]struct {
		cuts []logCut
		want []span
		cut  uint64 // of the backup; 0: 1
		none bool   // the backup has no number
		now  time.Time
	}{
		"changes":               {cuts: []logCut{cut(1, 8, 7), cut(2, 14, 13, changed), cut(3, 20, 19)}, want: []span{{second(13), second(20)}}},
		"no number":             {cuts: []logCut{cut(1, 8, 7), cut(2, 14, 13, changed), cut(3, 20, 19)}, none: true, want: nil},
		"an end before":         {cuts: []logCut{cut(1, 8, 7), cut(2, 12, 11, changed)}, want: nil},
		"a late cut":            {cuts: []logCut{cut(1, 8, 7), cut(2, 14, 13, changed), cut(3, 20, 16, changed)}, want: []span{{second(13), second(16)}, {second(20), second(20)}}},
		"a late cut of nothing": {cuts: []logCut{cut(1, 8, 7), cut(2, 20, 8)}, want: []span{{second(13), second(20)}}},
		"a late cut before":     {cuts: []logCut{cut(1, 8, 7), cut(2, 15, 8, changed), cut(3, 20, 19)}, want: []span{{second(15), second(20)}}},
		"a part is missing":     {cuts: []logCut{cut(1, 8, 7), cut(2, 14, 13, changed), cut(4, 20, 19, changed)}, want: []span{{second(13), second(14)}}},
		"a gap":                 {cuts: []logCut{cut(1, 8, 7), cut(2, 15, 14, broken), cut(3, 20, 19, changed)}, want: []span{{second(13), second(14)}}},
		"a gap before":          {cuts: []logCut{cut(1, 8, 7), cut(2, 9, 8, broken), cut(3, 20, 19, changed)}, want: nil},
		"a gap that ends":       {cuts: []logCut{cut(1, 8, 7), cut(2, 9, 8, broken), cut(3, 17, 16, created), cut(4, 20, 19)}, want: []span{{second(17), second(20)}}},
		"a clock that was ahead": {
			cuts: []logCut{cut(1, 8, 7), cut(2, 14, 13, changed), cut(3, 50, 14, changed), cut(4, 52, 50), cut(6, 20, 19, changed)},
			want: []span{{second(13), second(14)}},
		},
		"a clock that was ahead before": {
			cuts: []logCut{cut(1, 50, 49, changed), cut(3, 8, 7, changed), cut(4, 20, 19, changed)}, want: nil,
		},
		"a backup after a clock was ahead": {
			cuts: []logCut{cut(1, 50, 49, changed), cut(3, 9, 8, changed), cut(4, 20, 19, changed)}, cut: 3,
			want: []span{{second(13), second(20)}},
		},
		"a backup while a clock was ahead": {
			cuts: []logCut{cut(1, 9, 8, changed), cut(3, 6, 5, changed), cut(4, 20, 19, changed)}, cut: 1, want: nil,
		},
		"a number of another log": {
			cuts: []logCut{cut(1, 18, 17, changed), cut(2, 19, 18, changed), cut(3, 20, 19, changed)}, cut: 2, want: nil,
		},
		"a clock that is ahead": {
			cuts: []logCut{cut(1, 8, 7), cut(2, 14, 13, changed), cut(3, 200, 14)}, now: second(20), want: []span{{second(13), second(14)}},
		},
	} {
		m := m
		if m.Cut = max(test.cut, 1); test.none {
			m.Cut = 0
		}
		if found, why := (&logIndex{cuts: test.cuts, now: test.now}).spans(&m); !slices.Equal(found, test.want) || why == "" {
			t.Errorf("%s: got %v (%s), want %v", what, found, why, test.want)
		}
	}
}

// pagesOf returns a cut of a file with one page.
func pagesOf(at time.Time, kind store.CutKind, page string) store.PageCut {
	content := []byte(page + strings.Repeat("\x00", 512-len(page)))
	return store.PageCut{At: at, Since: at.Add(-time.Second), Files: []store.FileCut{{
		File: "control.db", Kind: kind, Position: store.PagePosition{Salt: 7, Frame: 1}, PageSize: 512, Pages: 1, Changed: 1,
		Read: iter.Seq2[uint32, []byte](func(yield func(uint32, []byte) bool) { yield(1, content) }),
		Err:  func() error { return nil },
	}}}
}

func openLog(t *testing.T, folder string) *Log {
	t.Helper()
	l, err := OpenLog(t.Context(), LogOptions{Folder: folder, Keep: time.Hour, Files: true, Gap: func([]string, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	l.Begin("a")
	return l
}

func ship(t *testing.T, l *Log, cuts ...store.PageCut) {
	t.Helper()
	for _, cut := range cuts {
		if err := shipped(t, l, cut); err != nil {
			t.Fatal(err)
		}
	}
}

func shipped(t *testing.T, l *Log, cut store.PageCut) error {
	t.Helper()
	return l.ship(t.Context(), "default", cut)
}

// TestLogIsCutAtAnIncompleteRecord: whatever is incomplete or damaged at the end of a log, the log goes on after what is
// complete, and the cuts before it can be restored.
func TestLogIsCutAtAnIncompleteRecord(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLog(t, folder)
	ship(t, l, pagesOf(second(1), store.CutCreated, "one"), pagesOf(second(2), store.CutChanged, "two"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	path := hourOf(folder, second(0))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	begin, end, err := l.lastCut(path)
	if err != nil || end != int64(len(whole)) || begin <= 0 || begin >= end {
		t.Fatalf("got a last cut from %d to %d, %v, want to %d", begin, end, err, len(whole))
	}
	for size := begin; size <= end; size += 7 {
		for what, content := range map[string][]byte{
			"cut": whole[:size], "damaged": slices.Concat(whole[:size], []byte("?"), whole[min(size+1, end):]),
		} {
			if what == "damaged" && size == end {
				continue
			}
			if err := os.WriteFile(path, content, 0o600); err != nil {
				t.Fatal(err)
			}
			l := openLog(t, folder)
			want := second(1)
			if what == "cut" && size == end {
				want = second(2)
			}
			if got := l.Status().Last; !got.Equal(want) {
				t.Errorf("%s at %d of %d: the log ends at %s, want %s", what, size, end, got, want)
			}
			ship(t, l, pagesOf(second(3), store.CutChanged, "three"))
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			x, err := readIndex(folder, time.Time{})
			if err != nil || len(x.cuts) < 2 || x.cuts[len(x.cuts)-1].Sequence != uint64(len(x.cuts)) {
				t.Fatalf("%s at %d: got %+v %v, want cuts without a gap", what, size, x, err)
			}
			dir := t.TempDir()
			then := x.moment(&Depot{folder: folder}, &Manifest{Began: second(0), Ended: second(0)}, second(3))
			if err := then.Complete(t.Context(), func(string, string) string { return dir }, func(context.Context, string) error { return nil }, func(Progress) {}); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "control.db")); err != nil || !strings.HasPrefix(string(got), "three") || len(got) != 512 {
				t.Errorf("%s at %d: got %.10q %v, want the page of the last cut", what, size, got, err)
			}
		}
	}
}

// TestLogIsOfOneProcess: two processes do not write one log.
func TestLogIsOfOneProcess(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	first := openLog(t, folder)
	ship(t, first, pagesOf(second(1), store.CutCreated, "one"))
	defer func() { _ = first.Close() }() // otherwise the garbage collector may unlock it
	if err := shipped(t, openLog(t, folder), pagesOf(second(2), store.CutChanged, "two")); !errors.Is(err, ErrLogBusy) {
		t.Errorf("got %v, want %v", err, ErrLogBusy)
	}
}

// TestLogGoesOnAfterAFailure: a cut that failed leaves nothing that a later one is read with.
func TestLogGoesOnAfterAFailure(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLog(t, folder)
	ship(t, l, pagesOf(second(1), store.CutCreated, "one"))
	failing := pagesOf(second(2), store.CutChanged, "two")
	failing.Files[0].Err = func() error { return errors.New("unreadable") }
	if err := shipped(t, l, failing); err == nil || l.Status().Failed == nil || !l.Status().Since.Equal(second(2)) {
		t.Errorf("got %v and %+v, want the failure", err, l.Status())
	}
	ship(t, l, pagesOf(second(3), store.CutChanged, "three"))
	if status := l.Status(); status.Failed != nil || !status.Last.Equal(second(3)) {
		t.Errorf("got %+v, want no failure any more", status)
	}
	x, err := readIndex(folder, time.Time{})
	if err != nil || len(x.cuts) != 2 || x.cuts[1].Sequence != 2 {
		t.Errorf("got %+v %v, want two cuts", x, err)
	}
}

// TestLogTurnsBack: if the clock was ahead, the log goes on at the true time, with what was known, needs a backup, and is
// read again where it has got to. A process that is killed at any moment changes nothing of that.
func TestLogTurnsBack(t *testing.T) {
	t.Parallel()
	for what, ahead := range map[string]time.Duration{"in the same hour": 10 * time.Minute, "by days": 40 * 24 * time.Hour} {
		folder := t.TempDir()
		l := openLog(t, folder)
		ship(t, l, pagesOf(second(1), store.CutCreated, "one"), pagesOf(second(1).Add(ahead), store.CutChanged, "ahead"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		for n := range 2 {
			l = openLog(t, folder)
			ship(t, l, pagesOf(second(10+n), store.CutChanged, fmt.Sprint("back", n)))
			status := l.Status()
			if want := second(10); !status.Last.Equal(second(10+n)) || !status.Broken.Equal(want) || status.Cut != uint64(4+n) {
				t.Errorf("%s: got %+v, want cut %d at %s, and a backup since %s", what, status, 4+n, second(10+n), want)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
		}
		x, err := readIndex(folder, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if found, why := x.spans(&Manifest{Began: second(3), Ended: second(4), Cut: 1}); len(found) > 0 {
			t.Errorf("%s: a backup from before: got %v (%s), want no second", what, found, why)
		}
		if found, _ := x.spans(&Manifest{Began: second(10), Ended: second(10), Cut: 4}); !slices.Equal(found, []span{{second(11), second(11)}}) {
			t.Errorf("%s: a backup since: got %v, want second 11", what, found)
		}
	}
}

// TestLogIsPruned removes the hours that no restoration within the setting needs, and no others.
func TestLogIsPruned(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	began := second(0)
	hour := func(n int) time.Time { return began.Add(time.Duration(n) * time.Hour) }
	for _, n := range []int{2, 4, 6} { // of backups
		at := hour(n)
		manifest := fmt.Sprintf(`{"format":1,"began":%q,"ended":%q,"databases":[{"backend":"default","file":"control.db"}]}`,
			at.Format(time.RFC3339), at.Add(time.Minute).Format(time.RFC3339))
		path := filepath.Join(folder, manifests, at.Format(nameLayout)+manifestExt)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(manifest), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{marks + "a", filesFolder} {
		if err := os.MkdirAll(filepath.Join(folder, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l := openLog(t, folder)
	l.Keep = 3 * time.Hour
	for n := range 9 {
		ship(t, l, pagesOf(hour(n), store.CutChanged, "x"))
	}
	hours, err := logHours(folder) // at 8 the state of 5 needs the backup of 4
	if err != nil || len(hours) != 5 || hours[0] != hourOf(folder, hour(4)) {
		t.Errorf("got %v %v, want those from %s on", hours, err, hour(4))
	}
}

// TestFindMoment_Hole: a second that a killed gateway had not logged is refused with the reason and the nearest ones,
// however many others are available.
func TestFindMoment_Hole(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLog(t, folder)
	late := func(n, since int) store.PageCut {
		cut := pagesOf(second(n), store.CutChanged, fmt.Sprint(n))
		cut.Since = second(since)
		return cut
	}
	ship(t, l, pagesOf(second(1), store.CutCreated, "1"), late(8, 4)) // nothing is known of seconds 5 to 7
	for n := range 6 {
		ship(t, l, late(12+4*n, 8+4*n))
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	manifest := fmt.Sprintf(`{"format": 1, "began": %q, "ended": %q, "cut": 1, "databases": [{"backend": "default", "file": %q}]}`,
		second(1).Format(time.RFC3339), second(2).Format(time.RFC3339), controlFile)
	d, err := Folder(folder, true)
	if err == nil {
		err = os.MkdirAll(filepath.Join(folder, manifests), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, manifests, "20261127T154501Z.json"), []byte(manifest), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]string{
		6:  "nobody logged changes in that second, because the gateway was killed or could not write the log; the nearest are 2026-11-27T15:45:04Z and 2026-11-27T15:45:08Z",
		2:  "no backup ended before it; available are",
		40: "the log ends; available are",
	} {
		if _, err := d.FindMoment(t.Context(), "", second(n)); !errors.Is(err, ErrNoMoment) || !strings.Contains(err.Error(), want) {
			t.Errorf("second %d: got %v, want %q", n, err, want)
		}
	}
}
