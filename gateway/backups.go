package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"tenantry/backends/blobs"
	"tenantry/config"
	"tenantry/gateway/backup"
	"tenantry/tenants"
)

// backUp writes a backup of the installation. Errors: those of backup.Write.
func (s *Services) backUp(ctx context.Context, o backup.Options, files bool) (*backup.Manifest, error) {
	backends := slices.DeleteFunc(s.store.Backends(), func(name string) bool { return name == s.cfg.Control })
	backends = append(backends, s.cfg.Control)
	for _, name := range backends {
		if !s.store.CanArchive(name) {
			return nil, fmt.Errorf("backend %s is on a database server, whose own tools back it up (mongodump, or snapshots of its disks); "+
				"tenantry backup is for SQLite", name)
		}
	}
	src := backup.Source{
		Installation: s.directory.Installation(), Version: s.version, Backends: backends, Archive: s.store.Archive,
		Still: s.directory.Still, Keyring: s.cfg.KeyringPath(), Now: s.now,
	}
	if files {
		src.Files = s.markedBucket()
	}
	return backup.Write(ctx, src, o)
}

// RestoreOptions say what is restored.
type RestoreOptions struct {
	Folder   string
	Name     string    // of the backup; empty: the newest
	Identity io.Reader // age identities that open the keyring; nil: none
	Files    bool      // also the bytes of files
	DryRun   bool      // only check whether it can be restored
	Holder   string    // names this process in errors of others
	Version  string
	Log      *slog.Logger
	Told     func(backup.Progress)
}

// Restored says what was restored.
type Restored struct {
	*backup.Manifest

	Organizations int `json:"organizations"` // found in the restored control data, without erased ones
}

// Restore puts a backup into the places that the settings name, in which there must be no data, and opens it for a
// trial. Errors: *InUseError, backup.ErrNone, backup.ErrDamaged, backup.ErrOccupied, backup.ErrKeyring; those of opening
// the installation, after which it is complete nevertheless.
func Restore(ctx context.Context, cfg config.Config, o RestoreOptions) (*Restored, error) {
	m, err := backup.Read(o.Folder, o.Name)
	if err != nil {
		return nil, err
	}
	target := backup.Target{
		Dirs: map[string]string{}, Control: cfg.Control, Keyring: cfg.KeyringPath(),
		Staging: filepath.Join(cfg.Data, "restoring"),
	}
	for name, b := range cfg.Backends {
		if b.Engine == config.EngineSQLite {
			target.Dirs[name] = cfg.BackendDir(name)
		}
	}
	if target.Dirs[cfg.Control] == "" {
		return nil, fmt.Errorf("the backend %s of the control data is no SQLite, and a backup is restored to SQLite; "+
			"name another in the settings, and move organizations afterwards", cfg.Control)
	}
	if err := target.Check(m, o.Identity != nil); err != nil || o.DryRun {
		return &Restored{Manifest: m, Organizations: m.Organizations}, err
	}
	if err := restoreInto(ctx, cfg, m, target, o); err != nil {
		return nil, err
	}
	found := &Restored{Manifest: m}
	services, err := OpenServices(ctx, cfg, Options{Log: o.Log, Version: o.Version, Holder: o.Holder})
	if err != nil {
		return nil, fmt.Errorf("the backup was restored, but cannot be opened: %w", err)
	}
	found.Organizations, err = services.countOrganizations(ctx)
	return found, errors.Join(err, services.Close())
}

// restoreInto puts a backup back while it holds the data folder.
func restoreInto(ctx context.Context, cfg config.Config, m *backup.Manifest, target backup.Target, o RestoreOptions) (err error) {
	s := &Services{cfg: cfg, log: o.Log}
	if err := os.MkdirAll(cfg.Data, folderMode); err != nil {
		return err
	}
	for _, folder := range s.folders() {
		if _, err := checkFolder(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	lock, err := lockFolder(cfg.Data, o.Holder, m.Ended)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	var bucket blobs.Bucket
	if o.Files && m.Files != nil {
		if err := s.openBucket(ctx); err != nil {
			return err
		}
		bucket = s.bucket
		defer func() { err = errors.Join(err, s.closeBucket()) }()
	}
	target.Files = bucket
	return backup.Restore(ctx, o.Folder, m, target, o.Identity, o.Told)
}

// countOrganizations returns how many organizations there are, without erased ones.
func (s *Services) countOrganizations(ctx context.Context) (n int, err error) {
	for after := ""; ; {
		page, err := s.directory.List(ctx, after, 0)
		if err != nil || len(page) == 0 {
			return n, err
		}
		for i := range page {
			if page[i].State != tenants.Removed {
				n++
			}
		}
		after = page[len(page)-1].Slug
	}
}
