package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	pageLogChild  = "TENANTRY_TEST_PAGELOG_CHILD"
	pageLogShared = "TENANTRY_TEST_PAGELOG_SHARED"
	pageLogWrites = 6 // workspaces
)

// crashOptions are the options of the engine in a process that is killed.
func crashOptions(dir string, shared bool) Options {
	return Options{
		Shared: shared, Dir: dir, MaxOpen: 3, maxLog: 200 << 10, recycled: 30, checkpointRows: 30, pageInterval: 10 * time.Millisecond,
		idleInterval: 15 * time.Millisecond, idleTimeout: 40 * time.Millisecond,
	}
}

// TestPageLogWriter runs in the process that TestPageLogAfterKill kills.
func TestPageLogWriter(t *testing.T) {
	if os.Getenv(pageLogChild) == "" {
		t.Skip("runs as a child of TestPageLogAfterKill, in its folder")
	}
	dir := "."
	e := openEngine(t, crashOptions(dir, os.Getenv(pageLogShared) != ""))
	(&pageRecords{path: filepath.Join(dir, "log")}).start(t, e, time.Now)
	c := items()
	var printing sync.Mutex
	var wg sync.WaitGroup
	for i := range pageLogWrites {
		wg.Go(func() {
			ws := openWorkspace(t, e, fmt.Sprintf("w%d", i), c)
			end := time.Now().Add(20 * time.Second)
			for n := reached(t, ws, c) + 1; time.Now().Before(end); n++ {
				if err := ws.Write(t.Context(), step(c, n)); err != nil {
					t.Error(err)
					return
				}
				printing.Lock()
				fmt.Printf("acknowledged %d %d\n", i, n)
				printing.Unlock()
				time.Sleep(time.Duration(rand.IntN(20*i+1)) * time.Millisecond)
			}
		})
	}
	wg.Wait()
}

// TestPageLogAfterKill: after a process was killed, the log goes on without a gap.
func TestPageLogAfterKill(t *testing.T) { inBoth(t, testPageLogAfterKill) }

func testPageLogAfterKill(t *testing.T, shared bool) {
	dir, c := t.TempDir(), items()
	log := &pageRecords{path: filepath.Join(dir, "log")}
	for round := range 6 {
		acknowledged := killWriter(t, dir, shared, time.Duration(50+rand.IntN(300))*time.Millisecond)
		o := crashOptions(dir, shared)
		if round%2 == 0 {
			o.MaxOpen = 0
		}
		e := openEngine(t, o)
		log.start(t, e, time.Now)
		var have [pageLogWrites]int
		for i := range pageLogWrites {
			have[i] = reached(t, openWorkspace(t, e, fmt.Sprintf("w%d", i), c), c)
			if have[i] < acknowledged[i] {
				t.Fatalf("w%d is at step %d, and %d was acknowledged", i, have[i], acknowledged[i])
			}
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		restored := t.TempDir()
		restorePages(t, restored, log.cuts(t))
		then := openEngine(t, Options{Shared: shared, Dir: restored})
		for i := range pageLogWrites {
			if n := reached(t, openWorkspace(t, then, fmt.Sprintf("w%d", i), c), c); n != have[i] {
				t.Fatalf("round %d: w%d is restored at step %d, want %d", round, i, n, have[i])
			}
		}
		if err := then.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killWriter runs TestPageLogWriter, kills it some time after its first write, and returns the acknowledged steps.
func killWriter(t *testing.T, dir string, shared bool, after time.Duration) (steps [pageLogWrites]int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestPageLogWriter$", "-test.v")
	cmd.Env = append(os.Environ(), pageLogChild+"=yes")
	cmd.Dir = dir
	if shared {
		cmd.Env = append(cmd.Env, pageLogShared+"=yes")
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var i, n int
		if _, err := fmt.Sscanf(lines.Text(), "acknowledged %d %d", &i, &n); err == nil {
			steps[i] = n
			once.Do(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) })
		} else if strings.Contains(lines.Text(), "_test.go") {
			t.Error(lines.Text())
		}
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the writer ended before it was killed")
	}
	return steps
}
