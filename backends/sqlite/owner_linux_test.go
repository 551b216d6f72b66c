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

// locksOn returns what the system knows of locks on the file.
func locksOn(t *testing.T, path string) (locks []string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		t.Fatalf("%s has no number", path)
	}
	all, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Skipf("the system does not tell its locks: %v", err)
	}
	for line := range strings.Lines(string(all)) {
		if strings.Contains(line, fmt.Sprintf(":%d ", file.Ino)) && strings.Contains(line, fmt.Sprintf(" %d ", os.Getpid())) {
			locks = append(locks, line[strings.Index(line, "POSIX"):])
		}
	}
	slices.Sort(locks) // the system may tell one twice while others come and go
	return slices.Compact(locks)
}

// To learn whose a file is must not end the locks that keep other programs from changing it
// while it is open: a process loses them all when it closes the file once.
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
	// The list may lack a lock for a moment, while others come and go.
	telling := func(enough func(locks []string) bool) (locks []string) {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if locks = locksOn(t, e.Place("mine")); enough(locks) || time.Now().After(deadline) {
				return locks
			}
		}
	}
	before := telling(func(locks []string) bool { return len(locks) > 0 })
	if len(before) == 0 {
		t.Fatal("an open database has no lock")
	}
	if r, err := e.Resident(t.Context(), "mine"); err != nil || r.Owner != "me" {
		t.Errorf(`got %+v, %v, want no error and r.Owner = "me"`, r, err)
	}
	if after := telling(func(locks []string) bool { return len(locks) >= len(before) }); len(after) < len(before) {
		t.Errorf("locks %q, and before the owner was read %q", after, before)
	}
}

// Nor must the opening of a file that somebody reads by a connection of its own, as who examines it, or looks for a
// workspace in it: the connections that stay would take the locks of that one for theirs.
func TestOpeningAFileThatIsBeingReadKeepsTheLocks(t *testing.T) {
	t.Parallel()
	e := openEngine(t, Options{})
	c := people()
	ws := openWorkspace(t, e, "mine", c)
	if err := ws.Write(t.Context(), []driver.Write{person(c, 1)}); err != nil {
		t.Fatal(err)
	}
	if done, err := ws.file.closeIdle(); !done || err != nil {
		t.Fatalf("got %v, %v, want done and no error", done, err)
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
