package sqlite

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenantry/backends/driver"
)

// locksOn returns the locks of this process on the file, from /proc/locks.
func locksOn(t *testing.T, path string) (locks []string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%s has no inode number", path)
	}
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Skipf("the locks of the system cannot be read: %v", err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, fmt.Sprintf(":%d ", file.Ino)) && strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) {
			locks = append(locks, line[strings.Index(line, "POSIX"):])
		}
	}
	slices.Sort(locks) // the list may have one twice while others change
	return slices.Compact(locks)
}

// TestReadingTheOwnerKeepsTheLocks: reading the owner of a file does not release the locks on it. A process loses all
// of its locks on a file when it closes any descriptor of it.
func TestReadingTheOwnerKeepsTheLocks(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	ws, err := e.Open(t.Context(), driver.Opening{Workspace: "mine", Owner: "me", Collections: []*driver.Collection{c}})
	if err != nil {
		t.Fatal(err)
	}
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	// The list may lack a lock for a moment while others change.
	awaitLocks := func(enough func(locks []string) bool) (locks []string) {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if locks = locksOn(t, e.Place("mine")); enough(locks) || time.Now().After(deadline) {
				return locks
			}
		}
	}
	before := awaitLocks(func(locks []string) bool { return len(locks) > 0 })
	if len(before) == 0 {
		t.Fatal("an open database has no lock")
	}
	if r, err := e.Resident(t.Context(), "mine"); err != nil || r.Owner != "me" {
		t.Errorf("Resident = %+v, %v; want owner me", r, err)
	}
	if after := awaitLocks(func(locks []string) bool { return len(locks) >= len(before) }); len(after) < len(before) {
		t.Errorf("locks after reading the owner = %q, want %q", after, before)
	}
}

// TestOpeningAFileThatIsBeingReadKeepsTheLocks: a database that is opened while another connection reads the file, such
// as that of an examination, keeps its locks when the latter is closed.
func TestOpeningAFileThatIsBeingReadKeepsTheLocks(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	ws := openWorkspace(t, e, "mine", c)
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	if done, err := ws.file.closeIdle(); !done || err != nil {
		t.Fatalf("closeIdle() = %v, %v; want true", done, err)
	}
	if err := e.inspect(e.Place("mine"), func(*conn, map[string]string) error {
		return ws.Write(t.Context(), []driver.Write{person(c, 2)})
	}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(5 * time.Second); len(locksOn(t, e.Place("mine"))) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("an open database has no lock")
		}
	}
}
