package backup

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
)

// indexed returns the numbers of the cuts in the log of a folder.
func indexed(t *testing.T, folder string) (numbers []uint64) {
	t.Helper()
	x, err := readIndex(folder, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range x.cuts {
		numbers = append(numbers, x.cuts[i].Sequence)
	}
	return numbers
}

// TestLogLosesItsFolder: a log whose folder was lost or replaced fails until the folder of the installation is back. Then
// it goes on if that has all that was logged, and begins anew otherwise, with a gap that is told once.
func TestLogLosesItsFolder(t *testing.T) {
	t.Parallel()
	move := func(t *testing.T, from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	for what, test := range map[string]struct {
		lose func(t *testing.T, folder string) // something is lost
		back func(t *testing.T, folder string) // nil: nothing has to come back
		want []uint64
		gap  bool
	}{
		"unmounted": {
			func(t *testing.T, folder string) {
				move(t, folder, folder+".away")
				_ = os.Mkdir(folder, 0o700) // the mount point
			},
			func(t *testing.T, folder string) {
				if found, err := os.ReadDir(folder); err != nil || len(found) > 0 {
					t.Errorf("got %v %v, want nothing made in the mount point", found, err)
				}
				_ = os.Remove(folder)
				move(t, folder+".away", folder)
			},
			[]uint64{1, 2, 3}, false,
		},
		"removed": {
			func(t *testing.T, folder string) { _ = os.RemoveAll(folder) },
			func(t *testing.T, folder string) { // by a backup
				_ = os.MkdirAll(filepath.Join(folder, filesFolder), 0o700)
				_ = os.MkdirAll(filepath.Join(folder, marks, "a"), 0o700)
			},
			[]uint64{4}, true,
		},
		"of another installation": {
			func(t *testing.T, folder string) {
				move(t, filepath.Join(folder, marks, "a"), filepath.Join(folder, marks, "b"))
			},
			func(t *testing.T, folder string) {
				move(t, filepath.Join(folder, marks, "b"), filepath.Join(folder, marks, "a"))
			},
			[]uint64{1, 2, 3}, false,
		},
		"the file removed": {
			func(t *testing.T, folder string) { _ = os.Remove(hourOf(folder, second(0))) }, nil, []uint64{4}, true,
		},
		"the file replaced": {
			func(t *testing.T, folder string) {
				path := hourOf(folder, second(0))
				content, err := os.ReadFile(path)
				if err == nil {
					err = errors.Join(os.Remove(path), os.WriteFile(path, content, 0o600))
				}
				if err != nil {
					t.Fatal(err)
				}
			}, nil, []uint64{1, 2, 3}, false,
		},
		"the file cut": {
			func(t *testing.T, folder string) {
				path := hourOf(folder, second(0))
				info, err := os.Stat(path)
				if err == nil {
					err = os.Truncate(path, info.Size()-1)
				}
				if err != nil {
					t.Fatal(err)
				}
			}, nil, []uint64{1, 4}, true,
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "backups")
			l, gaps := openLog(t, folder), 0
			l.Gap = func([]string, string) { gaps++ }
			ship(t, l, pagesOf(second(1), store.CutCreated, "one"), pagesOf(second(2), store.CutChanged, "two"))
			test.lose(t, folder)
			if test.back != nil {
				for range 2 {
					if err := shipped(t, l, pagesOf(second(3), store.CutChanged, "three")); err == nil || l.Status().Failed == nil {
						t.Errorf("got %v and %+v, want a failure", err, l.Status())
					}
				}
				test.back(t, folder)
			}
			ship(t, l, pagesOf(second(4), store.CutChanged, "four"))
			if status := l.Status(); status.Failed != nil || status.NeedsBase(second(3)) != test.gap {
				t.Errorf("got %+v, want no failure, and a base needed: %v", status, test.gap)
			}
			if got := indexed(t, folder); !slices.Equal(got, test.want) || (gaps == 1) != test.gap || gaps > 1 {
				t.Errorf("got the cuts %v and %d gaps, want %v and a gap: %v", got, gaps, test.want, test.gap)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			after := openLog(t, folder)
			ship(t, after, pagesOf(second(5), store.CutChanged, "five"))
			if got := indexed(t, folder); !slices.Equal(got, append(test.want, test.want[len(test.want)-1]+1)) {
				t.Errorf("after a restart: got the cuts %v, want them to go on", got)
			}
		})
	}
}

// TestLogIsOfOneInstallation: nothing is written into a folder of another installation, and the error names both.
func TestLogIsOfOneInstallation(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLog(t, folder)
	ship(t, l, pagesOf(second(1), store.CutCreated, "one"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(hourOf(folder, second(0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, logFolder, logLock)); err != nil {
		t.Fatal(err)
	}
	other := openLog(t, folder)
	if err := other.ship(t.Context(), "default", pagesOf(second(2), store.CutCreated, "two")); err != nil {
		t.Fatal(err)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hourOf(folder, second(0)), append(before, "incomplete"...), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(folder, logFolder, logLock))
	foreign := openLog(t, folder)
	foreign.Begin("b")
	err = shipped(t, foreign, pagesOf(second(3), store.CutCreated, "three"))
	if !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), "(a), and this one is b") {
		t.Errorf("got %v, want both installations named", err)
	}
	after, err := os.ReadFile(hourOf(folder, second(0)))
	if err != nil || string(after) != string(before)+"incomplete" {
		t.Errorf("got %d bytes %v, want the %d of before", len(after), err, len(before))
	}
	if _, err := os.Stat(filepath.Join(folder, logFolder, logLock)); err == nil {
		t.Error("a lock was made in the folder of another installation")
	}
}

// TestLogBeforeBegin: nothing is written before the installation is known.
func TestLogBeforeBegin(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "backups")
	l := openLog(t, folder)
	l.Begin("")
	if err := shipped(t, l, pagesOf(second(1), store.CutCreated, "one")); !errors.Is(err, store.ErrNotYet) || l.Status().Failed != nil {
		t.Errorf("got %v %+v, want %v and no failure", err, l.Status(), store.ErrNotYet)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("the folder was made")
	}
}

// TestLogHangs: while the folder does not answer, calls end with an error, and what was begun in vain is not read later.
func TestLogHangs(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLog(t, folder)
	ship(t, l, pagesOf(second(1), store.CutCreated, "one"))
	thaw := make(chan struct{})
	l.patience = time.Millisecond
	var begun atomic.Bool
	l.sync = func(f *os.File) error {
		begun.Store(true)
		<-thaw
		return f.Sync()
	}
	for !begun.Load() {
		if err := shipped(t, l, pagesOf(second(2), store.CutChanged, "two")); !errors.Is(err, errHangs) {
			t.Errorf("a cut: got %v, want %v", err, errHangs)
		}
	}
	if status := l.Status(); !status.Hangs || !errors.Is(status.Failed, errHangs) || !status.Since.Equal(second(2)) {
		t.Errorf("got %+v, want it to say that the folder hangs", status)
	}
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Store(t.Context(), "1/x", file, second(2)); !errors.Is(err, errHangs) || !l.Status().Lacks.Equal(second(2)) {
		t.Errorf("an upload: got %v %+v, want %v", err, l.Status(), errHangs)
	}
	l.Removed("1/y")
	if err := l.Close(); !errors.Is(err, errHangs) {
		t.Errorf("the end: got %v, want %v", err, errHangs)
	}
	close(thaw)
	for l.Status().Hangs {
		time.Sleep(time.Millisecond)
	}
	l.patience = time.Minute
	ship(t, l, pagesOf(second(3), store.CutChanged, "three"))
	if got := indexed(t, folder); got[len(got)-1] != uint64(len(got)) {
		t.Errorf("got the cuts %v, want no gap", got)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestLogIgnoresLatePages: a cut whose pages were read after the engine was told that it failed does not become complete.
func TestLogIgnoresLatePages(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLog(t, folder)
	ship(t, l, pagesOf(second(1), store.CutCreated, "one"))
	l.patience = time.Millisecond
	thaw := make(chan struct{})
	late := pagesOf(second(2), store.CutChanged, "late")
	late.Files[0].Read = func(yield func(uint32, []byte) bool) {
		<-thaw
		yield(1, make([]byte, 512))
	}
	if err := shipped(t, l, late); !errors.Is(err, errHangs) {
		t.Fatalf("got %v, want %v", err, errHangs)
	}
	close(thaw)
	for l.Status().Hangs {
		time.Sleep(time.Millisecond)
	}
	if got := indexed(t, folder); !slices.Equal(got, []uint64{1}) {
		t.Errorf("got the cuts %v, want the first only", got)
	}
}

// TestLogTellsGaps: each gap is told once, when it is in the log, and not what was there before the log began.
func TestLogTellsGaps(t *testing.T) {
	t.Parallel()
	l := openLog(t, t.TempDir())
	var told []string
	l.Gap = func(databases []string, why string) { told = append(told, strings.Join(databases, " ")+": "+why) }
	ship(t, l, pagesOf(second(1), store.CutBroken, ""))
	if len(told) > 0 {
		t.Errorf("at the beginning: got %q, want nothing told", told)
	}
	broken := pagesOf(second(2), store.CutBroken, "")
	broken.Files[0].Why = "9 bytes could not be logged"
	l.sync = func(*os.File) error { return errors.New("full") }
	for range 2 {
		if err := shipped(t, l, broken); err == nil {
			t.Fatal("a cut succeeded in a full folder")
		}
	}
	l.sync = (*os.File).Sync
	ship(t, l, broken, pagesOf(second(3), store.CutChanged, "three"))
	if want := []string{"default/control.db: 9 bytes could not be logged"}; !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}

// TestLogRetriesObjects: bytes that could not be copied are copied later, unless they were removed.
func TestLogRetriesObjects(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	l := openLog(t, folder)
	ship(t, l, pagesOf(second(1), store.CutCreated, "one"))
	bucket, err := blobs.Folder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	aside := filepath.Join(folder, logFolder+".aside")
	if err := os.Rename(filepath.Join(folder, logFolder), aside); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"1/a", "1/b"} {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err == nil {
			_, err = f.WriteString(name)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Store(t.Context(), name, f, second(2)); err == nil {
			t.Fatal("bytes were stored although the log is missing")
		}
		if name == "1/a" {
			err = bucket.Put(context.WithoutCancel(t.Context()), name, f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if status := l.Status(); !status.NeedsBase(second(1)) || status.NeedsBase(second(5)) {
		t.Errorf("got %+v, want a base needed since", status)
	}
	if err := os.Rename(aside, filepath.Join(folder, logFolder)); err != nil {
		t.Fatal(err)
	}
	if err := l.Retry(t.Context(), bucket); err != nil || !l.Status().Lacks.IsZero() {
		t.Errorf("got %v %+v, want nothing lacking", err, l.Status())
	}
	if got, err := os.ReadFile(filepath.Join(FilesFolder(folder), "1", "a")); err != nil || string(got) != "1/a" {
		t.Errorf("got %q %v, want the bytes", got, err)
	}
}
