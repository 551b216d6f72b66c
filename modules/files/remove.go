package files

import (
	"context"
	"errors"

	"tenantry/backends/store"
	"tenantry/operation"
)

type removal struct {
	ID string `json:"id" doc:"Identifier of the file." example:"665f1c2ab4d3e2f1a0b9c8e1"`
}

func (m *Module) removeFile(ctx context.Context, c *operation.Call, in removal) (Removed, error) {
	_, err := m.Files.In(c.Workspace).Update(ctx, in.ID, func(f *File) error {
		f.Deleted = true
		c.Closes(func(context.Context) (operation.Result, error) { return operation.Result{Data: Removed(in)}, nil })
		return c.Current(f.Rev)
	})
	if errors.Is(err, store.ErrNotFound) {
		err = operation.Failed(fileMissing, nil)
	}
	return Removed(in), err
}
