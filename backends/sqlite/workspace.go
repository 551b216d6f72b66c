package sqlite

import (
	"context"
	"fmt"

	"tenantry/backends/driver"
)

// workspace is a handle on a workspace in a file, with the tables of its collections.
type workspace struct {
	engine *Engine
	file   *file
	space  *space
	*schema
}

// Part implements driver.Parted. Workspaces in shared files are scheduled separately already.
func (w *workspace) Part(party string) driver.Workspace {
	if w.shared {
		return w
	}
	part := *w
	part.space = w.file.parts.GetOrPut(party, func() *space {
		s := &space{name: party, party: w.file.parties.Add(1)}
		s.initLanes(w.engine)
		return s
	})
	return &part
}

func (w *workspace) table(c *driver.Collection) (*table, error) {
	if t := w.byCollection[c]; t != nil {
		return t, nil
	}
	if c == nil {
		return nil, fmt.Errorf("a call on workspace %s names no collection", w.file.name)
	}
	if t := w.tables[c.Name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("workspace %s was opened without collection %q", w.file.name, c.Name)
}

// acquire returns the open database of the workspace. The file's release must follow.
func (w *workspace) acquire(ctx context.Context) (*database, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w.engine.contention.note(w.space)
	db, err := w.file.acquire(ctx)
	if err != nil || w.space.id == 0 {
		return db, err
	}
	if w.space.removed.Load() {
		err = errRemoved
	} else if w.space.verified.Load() != db {
		err = w.verify(ctx, db)
	}
	if err != nil {
		w.file.release()
		return nil, err
	}
	return db, nil
}

// verify checks that a newly opened file has the workspace under the same number and owner. Errors:
// *driver.DamagedError, *driver.ForeignError.
func (w *workspace) verify(ctx context.Context, db *database) error {
	there, found, err := db.entry(ctx, w.space.name)
	w.engine.mu.Lock()
	owner := w.space.owner
	w.engine.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !found || there.id != w.space.id:
		return &driver.DamagedError{Reason: fmt.Sprintf("the file %s was replaced by one that does not contain "+
			"workspace %s as before; put the former file back, or restart", db.path, w.space.name)}
	case there.owner != owner:
		where := w.space.name + " in " + db.path
		return &driver.ForeignError{Workspace: w.space.name, Where: where, Owner: there.owner, Wanted: owner}
	}
	w.space.verified.Store(db)
	return nil
}

// checkPresent returns errRemoved if the workspace was removed before the transaction, because its documents would be
// left behind.
func (w *workspace) checkPresent(c *conn) error {
	if !w.shared || c.present[w.space.id] {
		return nil
	}
	there, found, err := entryOf(c, w.space.name)
	if err == nil && (!found || there.id != w.space.id) {
		return errRemoved
	}
	if err == nil {
		c.present[w.space.id] = true // until the transaction ends: removals have transactions of their own
	}
	return err
}
