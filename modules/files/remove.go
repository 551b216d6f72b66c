package files

import (
	"context"
	"errors"

	"tenantry/backends/store"
	"tenantry/operation"
)

type deleteInput struct {
	ID string `json:"id" doc:"Identifier of the file." example:"665f1c2ab4d3e2f1a0b9c8e1"`
}

func (m *Module) removeFile(ctx context.Context, c *operation.Call, in deleteInput) (Removed, error) {
	_, err := m.Files.In(c.Workspace).Revise(ctx, in.ID, func(_ *store.Preconditions, f *File) error {
		f.Deleted = true
		return c.Current(f.Rev)
	}, func(ctx context.Context, b *store.Batch, _ *File) error {
		_, err := c.Commit(ctx, b, func(context.Context) (operation.Result, error) { return operation.Result{Data: Removed(in)}, nil })
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = operation.Failed(fileMissing, nil)
	}
	return Removed(in), err
}
