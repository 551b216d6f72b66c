package files

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/tenants"
)

// contentRows returns the rows about the bytes of files.
func (m *Module) contentRows() []operation.Row {
	return append([]operation.Row{m.uploadRow(), m.replaceRow(), m.versionsRow(), m.fetchRow()}, m.tusRows()...)
}

// used is the contents.Used of attachments, files and their versions, in any state. Bytes pass from an attachment to a
// file and from a file to a version, so they are looked for in this order: none are missed on their way.
func (m *Module) used(ctx context.Context, t *tenants.Tenant, hashes []string) (map[string]bool, error) {
	in, of := map[string]bool{}, store.In("hash", hashes...)
	err := m.Attachments.In(t.Workspace()).Each(ctx, of, store.Either, func(a *Attachment) error {
		in[a.Hash] = true
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = m.Files.In(t.Workspace()).Each(ctx, of, store.Either, func(f *File) error {
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

// Sweep removes uploads and attachments that have expired, the versions of files that are gone, and bytes that nothing has
// used for a day. It reports whether it ran out of time.
// Errors: store.ErrUnavailable, blobs.ErrUnavailable.
func (m *Module) Sweep(ctx context.Context, t *tenants.Tenant) (left bool, err error) {
	if err := m.endTransfers(ctx, t); err != nil {
		return ctx.Err() != nil, err
	}
	if err := m.endAttachments(ctx, t); err != nil {
		return ctx.Err() != nil, err
	}
	due, err := m.deps.Contents.IsDue(ctx, t)
	if err != nil || !due {
		return false, err
	}
	if err := m.deps.Contents.SweepParts(ctx, t, m.areTransfers); err != nil {
		return ctx.Err() != nil, err
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

// Damage is what Examine found wrong with the files of an organization.
type Damage struct {
	contents.Damage
	// Files are the first files and versions whose bytes are missing, each as its identifier and name; MoreFiles is how
	// many more there are.
	Files     []string
	MoreFiles int
}

const (
	maxDamage    = 20 // bounds Damage.Files
	examineBatch = 500
)

// Examine compares the files of an organization, with their versions, with the bytes that are kept. Uploads and removals
// meanwhile are no damage. Errors: store.ErrUnavailable, blobs.ErrUnavailable, that of the context.
func (m *Module) Examine(ctx context.Context, t *tenants.Tenant) (d Damage, err error) {
	if d.Damage, err = m.deps.Contents.Examine(ctx, t); err != nil {
		return d, err
	}
	lost := map[string]bool{}
	for i := range d.Missing {
		lost[d.Missing[i].Hash] = true
	}
	note := func(batch []held) error {
		hashes := make([]string, len(batch))
		for i := range batch {
			hashes[i] = batch[i].hash
		}
		slices.Sort(hashes)
		found, err := m.deps.Contents.FindAll(ctx, t, slices.Compact(hashes))
		for _, one := range batch {
			if err != nil || found[one.hash] != nil && !lost[one.hash] {
				continue
			}
			var is bool
			if is, err = one.lasts(ctx); err == nil && is {
				d.MoreFiles++
				if len(d.Files) < maxDamage {
					d.Files = append(d.Files, one.name)
					d.MoreFiles--
				}
			}
		}
		return err
	}
	files := m.Files.In(t.Workspace())
	err = files.EachBatch(ctx, store.Filter{}, store.Either, func(all []*File) error {
		return inBatches(all, note, func(f *File) (held, bool) {
			return held{f.Hash, fmt.Sprintf("%s %q", f.ID, f.Filename), func(ctx context.Context) (bool, error) {
				now, err := files.First(ctx, store.Query{Filter: store.Eq("id", f.ID), State: store.Either})
				return err == nil && now.Stored() && now.Hash == f.Hash, orGone(err)
			}}, f.Stored()
		})
	})
	if err != nil {
		return d, err
	}
	versions := m.Versions.In(t.Workspace())
	err = versions.EachBatch(ctx, store.Filter{}, store.Either, func(all []*Version) error {
		return inBatches(all, note, func(v *Version) (held, bool) {
			name := fmt.Sprintf("%s %q (version %s)", v.FileID, v.Filename, v.ID)
			return held{v.Hash, name, func(ctx context.Context) (bool, error) {
				_, err := versions.Get(ctx, v.ID)
				return err == nil, orGone(err)
			}}, true
		})
	})
	return d, err
}

// held is a record that should have bytes. lasts reports whether it still should.
type held struct {
	hash, name string
	lasts      func(context.Context) (bool, error)
}

// inBatches calls visit with the records that should have bytes.
func inBatches[T any](all []*T, visit func([]held) error, as func(*T) (held, bool)) error {
	for part := range slices.Chunk(all, examineBatch) {
		var batch []held
		for _, rec := range part {
			if one, has := as(rec); has {
				batch = append(batch, one)
			}
		}
		if len(batch) == 0 {
			continue
		}
		if err := visit(batch); err != nil {
			return err
		}
	}
	return nil
}

func orGone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}
