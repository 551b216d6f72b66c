package files

import (
	"context"
	"errors"

	"tenantry/backends/api"
	"tenantry/backends/store"
)

func (m *Module) removeFile(ctx context.Context, c *api.Call) (api.Result, error) {
	id := c.Path("id")
	_, err := m.Files.In(c.Workspace).Update(ctx, id, func(f *File) error {
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
