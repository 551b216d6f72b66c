package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"tenantry/backends/sqlite"
	"tenantry/config"
	"tenantry/crypto/sealing"
	"tenantry/gateway/backup"
	"tenantry/gateway/control"
	"tenantry/internal/diskroom"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// restoreOrganization makes an organization what it was in a backup, or makes a new one of it, while everybody is served.
// The backup is opened like an installation, from a copy, and the organization is exported there and imported here, with
// secrets sealed to a key that is used once. Errors: those of backup.Depot.Read and of the import; *control.Error.
func (s *Services) restoreOrganization(
	ctx context.Context, in control.OrganizationRestore, told func(control.Progress),
) (found *control.OrganizationRestored, err error) {
	at := time.Time{}
	if in.At != "" {
		if at, err = backup.ParseMoment(in.At); err != nil {
			return nil, err
		}
	}
	depot, err := openDepot(&s.cfg, in.From, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, depot.Close()) }()
	m, moment, err := readMoment(ctx, depot, in.Backup, at)
	if err != nil {
		return nil, err
	}
	if m.Installation != s.directory.Installation() {
		return nil, fmt.Errorf("the backup %s is of another installation (%s): restore that one as a whole, export the "+
			"organization there, and import it here", m.Name, m.Installation)
	}
	if in.As != "" {
		if err := s.directory.Refusals(ctx, tenants.NewOrganization{Slug: in.As, Name: in.As})[0]; err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(s.importsFolder(), folderMode); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(s.importsFolder(), "backup-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	told(control.Progress{Step: "opening the backup", Told: true})
	then, err := s.openBackup(ctx, depot, in.From, m, moment, dir)
	if err != nil {
		return nil, fmt.Errorf("the backup %s cannot be opened: %w", m.Name, err)
	}
	defer func() { err = errors.Join(err, then.Close()) }()
	was, err := then.organizationThen(ctx, depot, m, moment, in.Slug)
	if err != nil {
		return nil, err
	}
	key, err := sealing.NewPrivateKey()
	if err != nil {
		return nil, err
	}
	told(control.Progress{Step: "reading the organization", Told: true})
	src, remove, err := then.exported(ctx, was, bundle.ExportOptions{SealTo: key.Public(), Files: m.Files != nil}, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	into, err := s.restoreTarget(ctx, in, was)
	if err != nil {
		return nil, err
	}
	found = &control.OrganizationRestored{
		Slug: into.Org.Slug, Backup: m.Name, BackedUpAt: m.Began, At: momentOf(moment), Files: m.Files != nil,
	}
	found.Report, err = s.transfer.Import(ctx, into, src, bundle.ImportOptions{
		Mirror: in.As == "", DryRun: in.DryRun, OpenWith: key,
		Progress: func(p bundle.Progress) {
			told(control.Progress{Step: p.Phase, Done: p.Bytes, Total: p.Total, Bytes: true})
		},
	})
	if err != nil && in.As != "" {
		err = fmt.Errorf("the new organization %s is not complete (tenantry org delete %[1]s --yes --now removes it): %w", in.As, err)
	}
	return found, err
}

// restoreTarget returns the organization that is restored: the living one, or a new one with the settings that it had.
func (s *Services) restoreTarget(ctx context.Context, in control.OrganizationRestore, was *tenants.Tenant) (*tenants.Tenant, error) {
	if in.As == "" {
		return s.directory.BySlug(ctx, in.Slug)
	}
	o := was.Org
	return s.directory.Create(ctx, tenants.NewOrganization{
		Slug: in.As, Backend: s.backendLike(o.Backend), Name: o.Name,
		Features: o.Features, Settings: o.Settings, Limits: o.Limits, Providers: o.Providers,
	})
}

// backendLike returns the backend of that name if there is one, and otherwise that of new organizations.
func (s *Services) backendLike(name string) string {
	if s.store.HasBackend(name) {
		return name
	}
	return ""
}

// openBackup opens the control data and the shared databases of a backup, as they were at a moment unless that is nil,
// from copies in the folder.
func (s *Services) openBackup(
	ctx context.Context, depot *backup.Depot, from string, m *backup.Manifest, then *backup.Moment, dir string,
) (_ *Services, err error) {
	c := config.Default()
	c.Data, c.Keyring, c.Engines = dir, s.cfg.KeyringPath(), s.cfg.Engines
	c.Backends, c.Store, c.Control = map[string]config.Backend{}, s.cfg.Store, s.cfg.Control
	if c.Files, err = filesOfDepot(&s.cfg, from); err != nil {
		return nil, err
	}
	for _, d := range m.Databases {
		c.Backends[d.Backend] = config.Backend{Engine: config.EngineSQLite, Isolation: config.IsolationShared}
	}
	c.Files.Reserve = s.cfg.Files.Reserve
	if c.Backends[c.Store].Engine == "" { // new organizations live elsewhere now
		c.Store = c.Control
	}
	var names []backup.Database
	for _, d := range m.Databases {
		if !d.Own() {
			names = append(names, d)
		}
	}
	if err := s.checkRoom(dir, names); err != nil {
		return nil, err
	}
	if err := extractThen(ctx, depot, m, then, c, func(d *backup.Database) bool { return !d.Own() }); err != nil {
		return nil, err
	}
	log := slog.New(slog.DiscardHandler)
	return OpenServices(ctx, c, Options{Log: log, Version: s.version, Holder: "tenantry org restore", Now: s.now})
}

// extractThen copies the wanted databases of a backup, as they were at a moment unless that is nil, into the folders of
// the settings.
func extractThen(
	ctx context.Context, depot *backup.Depot, m *backup.Manifest, then *backup.Moment, c config.Config, want func(*backup.Database) bool,
) error {
	names := slices.DeleteFunc(slices.Clone(m.Databases), func(d backup.Database) bool { return !want(&d) })
	if err := depot.Extract(ctx, m, names, c.BackendDir); err != nil || then == nil {
		return err
	}
	return then.Complete(ctx, func(backend, file string) string {
		if c.Backends[backend].Engine == "" || !want(&backup.Database{Backend: backend, File: file}) {
			return ""
		}
		return c.BackendDir(backend)
	}, sqlite.Verify, func(backup.Progress) {})
}

// checkRoom returns an error if copies of the databases would take the room that files.reserve keeps free.
func (s *Services) checkRoom(dir string, copies []backup.Database) error {
	var bytes int64
	for _, d := range copies {
		bytes += d.Bytes
	}
	free, known := diskroom.Free(dir)
	if known && free-bytes < s.cfg.Files.ReserveBytes() {
		return fmt.Errorf("the databases of the backup take %d bytes in %s, of which %d are free and %d are reserved (files.reserve): "+
			"make room, or restore the whole backup elsewhere", bytes, dir, free, s.cfg.Files.ReserveBytes())
	}
	return nil
}

// organizationThen returns an organization of an opened backup. If it has a database of its own, that is copied first.
func (s *Services) organizationThen(
	ctx context.Context, depot *backup.Depot, m *backup.Manifest, then *backup.Moment, slug string,
) (*tenants.Tenant, error) {
	o, err := s.directory.Stored(ctx, slug)
	if err != nil {
		return nil, fmt.Errorf("the backup %s has no organization %q: %w", m.Name, slug, err)
	}
	file := fmt.Sprintf("org-%d.db", o.OrgID)
	if err := extractThen(ctx, depot, m, then, s.cfg, func(d *backup.Database) bool { return d.File == file }); err != nil {
		return nil, err
	}
	return s.directory.BySlug(ctx, slug)
}

// exported writes an export of an organization to a temporary file.
func (s *Services) exported(
	ctx context.Context, t *tenants.Tenant, o bundle.ExportOptions, dir string,
) (bundle.Source, func() error, error) {
	r, w := io.Pipe()
	go func() {
		_, err := s.transfer.Export(ctx, t, w, o)
		_ = w.CloseWithError(err) // never fails
	}()
	src, remove, err := bundle.Spool(ctx, r, dir, s.cfg.Files.ReserveBytes())
	_ = r.Close() // so that the export ends
	return src, remove, err
}
