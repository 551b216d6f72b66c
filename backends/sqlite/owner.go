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

// ownerRow is the name of the row in the table collections that has the owner of the file. No collection can have this
// name, older versions ignore it, and opening a file reads that table anyway.
const ownerRow = "@owner"

// lockName is the name of the lock file in a folder of databases.
const lockName = "workspaces.lock"

// lockFolder locks the folder against other engines, and so against other installations.
func lockFolder(dir string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(dir, lockName), flock.SetPermissions(0o600))
	locked, err := lock.TryLock()
	switch {
	case err != nil:
		return nil, fmt.Errorf("lock the folder %s of the embedded store: %w", dir, err)
	case !locked:
		return nil, fmt.Errorf("the folder %s of the embedded store: %w; stop that process, or give this installation a "+
			"folder of its own (backends.<name>.dir)", dir, driver.ErrInUse)
	}
	return lock, nil
}

// admit decides by driver.Opening.Admit whether the file with these stored collections may be used.
func admit(c *conn, o *driver.Opening, path string, stored map[string]string) (claim bool, err error) {
	return o.Admit(stored[ownerRow], path, func() (bool, error) {
		found := false
		for name := range stored {
			err := c.rows("SELECT 1 FROM "+quote("c:"+name)+" LIMIT 1", nil, func(*sqlite.Stmt) error {
				found = true
				return nil
			})
			if found || err != nil {
				return found, err
			}
		}
		return false, nil
	})
}

// ownerOf returns the owner of the file, empty if it has none or does not exist. It does not change the file, and must
// not open it other than through SQLite: see check.
func (e *Engine) ownerOf(path string) (owner string, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	err = e.inspect(path, func(_ *conn, stored map[string]string) error {
		owner = stored[ownerRow]
		return nil
	})
	return owner, err
}

// inspect calls do with a connection of its own to a file of this program, and the result of storedSpecs. It does not
// change the file.
func (e *Engine) inspect(path string, do func(c *conn, stored map[string]string) error) (err error) {
	defer e.sideConns.enter(path)()
	flags := sqlite.OpenReadOnly
	if _, err := os.Stat(path + "-wal"); errors.Is(err, fs.ErrNotExist) {
		flags = sqlite.OpenReadWrite // a read-only connection would leave the empty log that it creates
	}
	c, err := openConn(path, flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	version, app, err := c.version()
	if err == nil {
		err = checkHeader(path, version, app)
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

// Exists implements driver.Finder. It reports whether the workspace has tables in its own file, or an entry in a shared
// one. A file whose log was lost may have neither.
func (e *Engine) Exists(ctx context.Context, name string) (there bool, err error) {
	if info, err := os.Stat(e.ownPath(name)); err == nil && info.Size() > 0 {
		err = e.inspect(e.ownPath(name), func(_ *conn, stored map[string]string) error {
			there = len(stored) > 0
			return nil
		})
		return there, wrapError(ctx, "look into "+e.ownPath(name), err)
	}
	_, there, err = e.entry(ctx, name)
	return there, err
}

// sideConns counts, by path, the connections that do not belong to an open database. While a file has one, it must not
// be opened other than through SQLite, because closing it again would release the locks of all connections of this
// process. Connections opened meanwhile rely on the same locks. Another program, such as a backup, would then find no
// lock, and delete the log when it closes the file. The zero value has none. Safe for concurrent use.
type sideConns struct {
	mu sync.Mutex
	of map[string]int
}

// enter counts a connection that is about to be opened. leave must be called after it was closed.
func (a *sideConns) enter(path string) (leave func()) {
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

// ifNone calls do, unless the file has such a connection, and reports whether it did. None is opened meanwhile.
func (a *sideConns) ifNone(path string, do func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.of[path] > 0 {
		return false
	}
	do()
	return true
}

// Residents implements driver.Engine. It lists the files in the folder and the workspaces in shared files.
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
	slices.Sort(names) // the folder is sorted by file names, including ".db"
	return names, err
}

// Resident implements driver.Engine.
func (e *Engine) Resident(ctx context.Context, name string) (driver.Resident, error) {
	there, found, err := e.entry(ctx, name)
	if found || err != nil {
		return driver.Resident{Workspace: name, Where: name + " in " + e.sharedPath(name), Owner: there.owner}, err
	}
	r := driver.Resident{Workspace: name, Where: e.ownPath(name)}
	owner, err := e.ownerOf(r.Where)
	r.Owner = owner
	return r, wrapError(ctx, "read the owner of "+r.Where, err)
}
