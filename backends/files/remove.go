package files

import (
	"context"
	"errors"
	"fmt"

	"tenantry/backends/api"
	"tenantry/backends/store"
)

func (m *Module) removeFile(ctx context.Context, c *api.Call) (api.Result, error) {
	id := c.Path("id")
	_, err := m.kinds.Files.In(c.Workspace).Update(ctx, id, func(f *File) error {
		f.Deleted = true
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return api.Result{}, api.Failed(fileMissing, nil)
	}
	if err != nil {
		return api.Result{}, err
	}
	return api.Result{Data: Removed{ID: id}}, nil
}

const restoreTries = 10

// Restore makes a soft-deleted file live again; a live one stays as it is. Errors:
// store.ErrNotFound where the workspace has or shows no such file, store.ErrConflict
// after ten tries against other writers.
func (m *Module) Restore(ctx context.Context, ws *store.Workspace, id string) error {
	in := m.kinds.Files.In(ws)
	if !store.ValidID(id) {
		return fmt.Errorf("file: %w", store.ErrNotFound)
	}
	for range restoreTries {
		file, err := in.First(ctx, store.Query{Filter: store.Eq("id", id), State: store.Either})
		if err != nil || !file.Deleted {
			return err
		}
		file.Deleted = false
		if err := in.Replace(ctx, file); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("file %s: %w", id, store.ErrConflict)
}
