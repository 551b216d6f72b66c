package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"tenantry/backends/driver"

	"github.com/gofrs/flock"
	"zombiezen.com/go/sqlite"
)

// ownerRow is the row of table collections that says whose the file is. No collection can
// have its name, older versions pass it over, and opening a file reads that table anyhow.
const ownerRow = "@owner"

// lockName is the file that is locked, in a folder of workspaces.
const lockName = "workspaces.lock"

// lockFolder keeps other engines, and so other installations, out of the folder.
func lockFolder(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("locking the folder %s of the embedded store: %w", dir, err)
	case !locked:
		return nil, fmt.Errorf("the folder %s of the embedded store is in use by another process; stop that, or give this installation a folder of its own (backends.<name>.dir)", dir)
	}
	return lock, nil
}

// admit decides whether the file, which says this of itself, may be used.
func admit(c *conn, o *driver.Opening, path string, stored map[string]string) (claim bool, err error) {
	return o.Admit(stored[ownerRow], path, func() (bool, error) {
		some := false
		for name := range stored {
			err := c.rows("SELECT 1 FROM "+quote("c:"+name)+" LIMIT 1", nil, func(*sqlite.Stmt) error {
				some = true
				return nil
			})
			if some || err != nil {
				return some, err
			}
		}
		return false, nil
	})
}

// ownerOf reads whose the file is, empty where it has no owner or is not there. It changes
// nothing, and must not open the file by itself: see check.
func (e *Engine) ownerOf(path string) (owner string, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	err = e.reading(path, func(_ *conn, stored map[string]string) error {
		owner = stored[ownerRow]
		return nil
	})
	return owner, err
}

// reading calls do on a connection of its own to a file of this program that changes nothing, with what
// storedSpecs tells.
func (e *Engine) reading(path string, do func(c *conn, stored map[string]string) error) (err error) {
	defer e.aside.enter(path)()
	flags := sqlite.OpenReadOnly
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		flags = sqlite.OpenReadWrite // else the empty log that it makes is left
	}
	c, err := openConn(path, flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	version, app, err := c.version()
	if err == nil {
		err = known(path, version, app)
	}
	if err != nil {
		return err
	}
	stored, err := storedSpecs(c)
	if err != nil {
		return err
	}
	return do(c, stored)
}

// Exists reports whether the workspace has tables in a file, or a place in a shared one. A file whose log was lost may
// have neither.
func (e *Engine) Exists(ctx context.Context, name string) (there bool, err error) {
	if info, err := os.Stat(e.own(name)); err == nil && info.Size() > 0 {
		err = e.reading(e.own(name), func(_ *conn, stored map[string]string) error {
			there = len(stored) > 0
			return nil
		})
		return there, failed(ctx, "look into "+e.own(name), err)
	}
	_, there, err = e.entry(ctx, name)
	return there, err
}

// aside counts connections to files beside those of databases that are open, by path. While there is one, nobody may
// open the file by itself: closing it again ends the locks of all connections that this process has, and those of a
// database that is opened meanwhile take the locks of that one for theirs. Another program, a backup for example, would
// then take itself for the last that has the file, and remove its log. The zero value has none. Safe for concurrent
// use.
type aside struct {
	mu sync.Mutex
	of map[string]int
}

// enter notes a connection that is about to be opened, until leave is called, once it is closed.
func (a *aside) enter(path string) (leave func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of == nil {
		a.of = map[string]int{}
	}
	a.of[path]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.of[path]--; a.of[path] == 0 {
			delete(a.of, path)
		}
	}
}

// without calls do while there is none, and reports whether it did.
func (a *aside) without(path string, do func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[path] > 0 {
		return false
	}
	do()
	return true
}

// Residents returns the names of the files in the folder, and of the workspaces in shared ones.
func (e *Engine) Residents(ctx context.Context) ([]string, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(e.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	var names []string
	for _, entry := range entries {
		if name, is := strings.CutSuffix(entry.Name(), ".db"); is && driver.CheckName(name) == nil {
			names = append(names, name)
		}
	}
	names, err = e.sharedResidents(ctx, names)
	slices.Sort(names) // the folder's order knows the endings
	return names, err
}

// Resident reads whose a file is, or whose the workspace in a shared one.
func (e *Engine) Resident(ctx context.Context, name string) (driver.Resident, error) {
	there, found, err := e.entry(ctx, name)
	if found || err != nil {
		return driver.Resident{Workspace: name, Where: name + " in " + e.shared(name), Owner: there.owner}, err
	}
	r := driver.Resident{Workspace: name, Where: e.own(name)}
	owner, err := e.ownerOf(r.Where)
	r.Owner = owner
	return r, failed(ctx, "read whose "+r.Where+" is", err)
}
