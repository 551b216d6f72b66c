package files

import (
	"context"
	"time"

	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/tenants"
)

// contentRows returns the rows about the bytes of files.
func (m *Module) contentRows() []operation.Row {
	return append([]operation.Row{m.uploadRow(), m.replaceRow(), m.versionsRow(), m.fetchRow()}, m.tusRows()...)
}

// used is the contents.Used of files and their versions, in any state.
func (m *Module) used(ctx context.Context, t *tenants.Tenant, hashes []string) (map[string]bool, error) {
	in, of := map[string]bool{}, store.In("hash", hashes...)
	err := m.Files.In(t.Workspace()).Each(ctx, of, store.Either, func(f *File) error {
		in[f.Hash] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = m.Versions.In(t.Workspace()).Each(ctx, of, store.Either, func(v *Version) error {
		in[v.Hash] = true
		return nil
	})
	return in, err
}

// dropTime bounds the removal of bytes after a purge. What it does not reach, Sweep does.
const dropTime = 10 * time.Second

// dropAfterPurge removes the versions and the bytes of a file that was purged.
func (m *Module) dropAfterPurge(purge operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		file, err := m.Files.In(c.Workspace).First(ctx, store.Query{Filter: store.Eq("id", c.Path("id")), State: store.Either})
		if err != nil {
			file = &File{} // the purge says why
		}
		result, err := purge(ctx, c)
		if err == nil {
			m.dropBytes(ctx, c.Tenant, file)
		}
		return result, err
	}
}

// dropBytes removes the versions and bytes of files that are gone, as far as it can now.
func (m *Module) dropBytes(ctx context.Context, t *tenants.Tenant, gone ...*File) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTime)
	defer cancel()
	var hashes []string
	for _, f := range gone {
		all, err := m.versionsOf(ctx, t, f.ID)
		for i := range all {
			if err == nil {
				err = m.Versions.In(t.Workspace()).Delete(ctx, &all[i])
				hashes = append(hashes, all[i].Hash)
			}
		}
		if f.Stored() {
			hashes = append(hashes, f.Hash)
		}
	}
	if err := m.deps.Contents.Drop(ctx, t, hashes, m.used); err != nil {
		m.deps.Contents.Log.WarnContext(ctx, "bytes of a purged file could not be removed and will be retried",
			"organization", t.Org.Slug, "error", err)
	}
}

// Sweep removes the versions of files that are gone, and bytes that nothing has used for a day. It reports whether it ran
// out of time. Errors: store.ErrUnavailable, blobs.ErrUnavailable.
func (m *Module) Sweep(ctx context.Context, t *tenants.Tenant) (left bool, err error) {
	if err := m.endTransfers(ctx, t); err != nil {
		return ctx.Err() != nil, err
	}
	due, err := m.deps.Contents.IsDue(ctx, t)
	if err != nil || !due {
		return false, err
	}
	in := m.Versions.In(t.Workspace().BeyondQuota())
	err = in.EachBatch(ctx, store.Filter{}, store.Either, func(all []*Version) error {
		gone, err := m.orphans(ctx, t, all)
		if err != nil || len(gone) == 0 {
			return err
		}
		return in.Delete(ctx, gone...)
	})
	if err != nil {
		return ctx.Err() != nil, err
	}
	return m.deps.Contents.Sweep(ctx, t, m.used)
}

// orphans returns the versions whose file is gone.
func (m *Module) orphans(ctx context.Context, t *tenants.Tenant, all []*Version) (gone []*Version, err error) {
	ids, there := make([]string, len(all)), map[string]bool{}
	for i, v := range all {
		ids[i] = v.FileID
	}
	if len(ids) == 0 {
		return nil, nil
	}
	err = m.Files.In(t.Workspace()).Each(ctx, store.In("id", ids...), store.Either, func(f *File) error {
		there[f.ID] = true
		return nil
	})
	for _, v := range all {
		if !there[v.FileID] {
			gone = append(gone, v)
		}
	}
	return gone, err
}
