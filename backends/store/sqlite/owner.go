package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tenantry/backends/store/driver"

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
// nothing, also where an engine has the file open.
func ownerOf(path string) (owner string, err error) {
	header, err := readHeader(path)
	if err == nil {
		_, err = checkFile(path)
	}
	if err != nil || header == nil {
		return "", err
	}
	c, err := openConn(path, connectionFlags, readerSetUp)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	stored, err := storedSpecs(c)
	return stored[ownerRow], err
}

// Residents tells of every workspace that has a file in the folder.
func (e *Engine) Residents(ctx context.Context) ([]driver.Resident, error) {
	entries, err := os.ReadDir(e.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	var all []driver.Resident
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), ".db")
		if !is || !validName(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := driver.Resident{Workspace: name, Where: filepath.Join(e.opts.Dir, entry.Name())}
		r.Owner, r.Err = ownerOf(r.Where)
		if _, err := os.Stat(r.Where); errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		all = append(all, r)
	}
	return all, nil
}
