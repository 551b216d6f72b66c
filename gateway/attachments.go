package gateway

import (
	"context"

	"tenantry/backends/store"
	"tenantry/modules/files"
	"tenantry/modules/forms"
	"tenantry/operation"
)

// formFiles keeps the files of forms. It implements forms.Attachments.
type formFiles struct{ files *files.Module }

// Keep implements forms.Attachments.
func (f formFiles) Keep(ctx context.Context, c *operation.Call, a forms.Attachment) (operation.Result, error) {
	return f.files.Attach(ctx, c, files.Attaching{
		Form: a.Form, Field: a.Field, Filename: a.Filename, Mimetype: a.Mimetype, Most: a.Most, Judge: a.Judge,
		Answer: func(kept files.Attached) any { return a.Answer(forms.Attached(kept)) },
	})
}

// Redeem implements forms.Attachments.
func (f formFiles) Redeem(
	ctx context.Context, c *operation.Call, b *store.Batch, form, field, folder, token string,
) (id string, found bool, err error) {
	return f.files.Redeem(ctx, c, b, form, field, folder, token)
}

// FindMissing implements forms.Attachments.
func (f formFiles) FindMissing(
	ctx context.Context, c *operation.Call, ids []string,
) ([]string, []store.Precondition, error) {
	return f.files.Files.FindMissing(ctx, c.Workspace, c.Tenant.People(), ids)
}

// FindMissingFolders implements forms.Attachments.
func (f formFiles) FindMissingFolders(
	ctx context.Context, c *operation.Call, ids []string,
) ([]string, []store.Precondition, error) {
	return f.files.Folders.FindMissing(ctx, c.Workspace, c.Tenant.People(), ids)
}
