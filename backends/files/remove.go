package files

import (
	"context"
	"errors"

	"tenantry/backends/api"
	"tenantry/backends/store"
)

type removal struct {
	ID string `json:"id" doc:"Identifier of the file." example:"665f1c2ab4d3e2f1a0b9c8e1"`
}

func (m *Module) removeFile(ctx context.Context, c *api.Call, in removal) (Removed, error) {
	_, err := m.Files.In(c.Workspace).Update(ctx, in.ID, func(f *File) error {
		f.Deleted = true
		c.Closes(func(context.Context) (api.Result, error) { return api.Result{Data: Removed(in)}, nil })
		return c.Current(f.Rev)
	})
	if errors.Is(err, store.ErrNotFound) {
		err = api.Failed(fileMissing, nil)
	}
	return Removed(in), err
}
