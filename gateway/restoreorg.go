package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/record"
	"tenantry/backends/sqlite"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/crypto/sealing"
	"tenantry/gateway/backup"
	"tenantry/gateway/control"
	"tenantry/internal/diskroom"
	"tenantry/modules/files/contents"
	"tenantry/modules/imports/bundle"
	"tenantry/reports"
	"tenantry/tenants"
)

// orgRestore is one restoration of an organization.
type orgRestore struct {
	s, then *Services // then is the opened backup
	was     *tenants.Tenant
	in      control.OrganizationRestore
	m       *backup.Manifest
	dir     string // for temporary files
	told    func(control.Progress)
	found   *control.OrganizationRestored
}

// restoreOrganization makes an organization what it was in a backup, brings it back after it was erased, or makes a new
// one of it, while everybody is served. The backup is opened like an installation, from a copy. Errors: those of
// backup.Depot.Read, tenants.Directory.Restore and Revive, and of an import; *control.Error.
func (s *Services) restoreOrganization(
	ctx context.Context, in control.OrganizationRestore, told func(control.Progress),
) (found *control.OrganizationRestored, err error) {
	at := time.Time{}
	if in.At != "" {
		if at, err = backup.ParseMoment(in.At); err != nil {
			return nil, fmt.Errorf("--at: %w", err)
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
		err := s.directory.Refusals(ctx, tenants.NewOrganization{Slug: in.As, Name: in.As})[0]
		if _, taken := errors.AsType[*store.DuplicateError](err); taken {
			return nil, s.slugTaken(ctx, in.As)
		}
		if err != nil {
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
	isErased, err := s.isErased(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	told(control.Progress{Step: "opening the backup", Told: true})
	then, err := s.openBackup(ctx, depot, in.From, m, moment, dir)
	if err != nil {
		return nil, fmt.Errorf("the backup %s cannot be opened: %w", m.Name, err)
	}
	defer func() { err = errors.Join(err, then.Close()) }()
	r := &orgRestore{s: s, then: then, in: in, m: m, dir: dir, told: told, found: &control.OrganizationRestored{
		Slug: in.Slug, Backup: m.Name, BackedUpAt: m.Began, At: momentOf(moment), Files: m.Files != nil,
	}}
	if r.was, err = then.organizationThen(ctx, depot, m, moment, in.Slug); err != nil {
		return nil, err
	}
	if in.As != "" {
		return r.beside(ctx)
	}
	switch now, err := s.isErased(ctx, in.Slug); {
	case err != nil:
		return nil, err
	case now != isErased:
		return nil, &control.Error{Code: control.CodeConflict, Message: in.Slug + " was erased, or came back, while the backup was " +
			"opened: look what there is, and repeat the command"}
	case isErased:
		return r.revive(ctx)
	}
	return r.inPlace(ctx)
}

// slugTaken returns why a slug cannot be that of a new organization.
func (s *Services) slugTaken(ctx context.Context, slug string) error {
	if o, err := s.directory.Stored(ctx, slug); err == nil && o.CopyOf != "" {
		return fmt.Errorf("--as %s: this is an unfinished copy of %s; remove it with tenantry org delete %[1]s --yes --now, "+
			"and choose another slug", slug, o.CopyOf)
	}
	return fmt.Errorf("--as %s: this slug is or was that of another organization; choose another one", slug)
}

// isErased reports whether there is no organization of that slug.
func (s *Services) isErased(ctx context.Context, slug string) (bool, error) {
	o, err := s.directory.Stored(ctx, slug)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		return true, nil
	}
	return err == nil && o.State == tenants.Removed, err
}

// beside makes a new organization of the backup by an export and an import, with secrets sealed to a key that is used
// once: what is encrypted, named or signed for the number of the one cannot be copied to the other.
func (r *orgRestore) beside(ctx context.Context) (_ *control.OrganizationRestored, err error) {
	key, err := sealing.NewPrivateKey()
	if err != nil {
		return nil, err
	}
	r.told(control.Progress{Step: "reading the organization", Told: true})
	if err := r.closeReports(ctx); err != nil {
		return nil, err
	}
	src, remove, err := r.then.exported(ctx, r.was, bundle.ExportOptions{
		SealTo: key.Public(), Files: r.m.Files != nil, SkipMissing: true,
	}, r.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	o := r.was.Org
	into, err := r.s.directory.Create(ctx, tenants.NewOrganization{
		Slug: r.in.As, Backend: r.s.backendLike(o.Home()), Name: o.Name,
		Features: o.Features, Settings: o.Settings, Limits: o.Limits, Providers: o.Providers, CopyOf: r.in.Slug,
	})
	if err != nil {
		return nil, err
	}
	r.found.Slug = into.Org.Slug
	report, err := r.s.transfer.Import(ctx, into, src, bundle.ImportOptions{OpenWith: key, Progress: func(p bundle.Progress) {
		r.told(control.Progress{Step: p.Phase, Done: p.Bytes, Total: p.Total, Bytes: true})
	}})
	r.found.Report, r.found.Records.Returned, r.found.FilesWithout = &report, report.Created, report.FilesWithout
	if err == nil {
		err = r.s.directory.Copied(ctx, r.in.As)
	}
	if err != nil {
		err = fmt.Errorf("the new organization %s is not complete (tenantry org delete %[1]s --yes --now removes it): %w", r.in.As, err)
	}
	return r.found, err
}

// closeReports makes all reports of the opened backup, which is a copy, need a share link: none is valid for the new
// organization.
func (r *orgRestore) closeReports(ctx context.Context) error {
	all := r.then.reports.Reports.In(r.was.Workspace().BeyondQuota())
	return all.Each(ctx, store.Filter{}, store.Either, func(p *reports.Report) error {
		if p.Secure {
			return nil
		}
		p.Secure = true
		return all.Replace(ctx, p)
	})
}

// inPlace restores an organization that there is, or says what that would change.
func (r *orgRestore) inPlace(ctx context.Context) (*control.OrganizationRestored, error) {
	now, err := r.s.directory.BySlug(ctx, r.in.Slug)
	if err != nil {
		return nil, err
	}
	r.found.Access = r.in.Access
	if r.found.Access == "" {
		r.found.Access = control.AccessNow
	}
	a, err := r.compareAccess(ctx, now)
	if err != nil {
		return nil, err
	}
	if r.in.DryRun || r.found.Access == control.AccessThen {
		r.found.Revived, r.found.Stopped = a.revived, a.stopped
	}
	what, err := r.restoration(ctx, a)
	if err != nil {
		return nil, err
	}
	r.told(control.Progress{Step: "comparing", Told: true})
	if err := r.s.directory.Compare(ctx, now, what, r.note); err != nil {
		return nil, err
	}
	if r.in.DryRun {
		return r.found, nil
	}
	r.told(control.Progress{Step: "copying", Told: true})
	report, err := r.s.directory.Restore(ctx, r.in.Slug, what)
	if err != nil {
		return r.found, err
	}
	r.found.Sums, r.found.HeldSeconds = report.Sums, report.Held.Seconds()
	return r.found, nil
}

// revive brings back an organization that was erased, or says what would come back.
func (r *orgRestore) revive(ctx context.Context) (*control.OrganizationRestored, error) {
	if r.in.Access == control.AccessNow {
		return nil, &control.Error{Code: control.CodeConflict, Message: "there is no organization " + r.in.Slug +
			" now, so its keys and people can only come from the backup: leave --access out"}
	}
	r.found.Access, r.found.Erased = control.AccessThen, true
	a, err := r.compareAccess(ctx, nil)
	if err != nil {
		return nil, err
	}
	r.found.Revived = a.revived
	if r.found.Records.Returned, err = count(ctx, r.was); err != nil || r.in.DryRun {
		return r.found, err
	}
	what := tenants.Restoration{
		From: r.was, Passing: []string{r.s.files.Transfers.Spec().Name}, Parts: r.s.partKinds(), Alter: a.alterPart,
		Counters: []string{"users", "share_generations"}, Progress: r.moving,
	}
	if r.m.Files != nil {
		what.Before = func(ctx context.Context, _ *tenants.Tenant) (err error) {
			r.found.FilesWithout, err = r.s.contents.ReturnAll(ctx, r.then.contents, r.was)
			return err
		}
	} else if r.found.FilesWithout, err = r.withoutBytes(ctx, nil); err != nil {
		return nil, err
	}
	report, err := r.s.directory.Revive(ctx, r.in.Slug, what)
	if err != nil {
		return r.found, err
	}
	r.found.Sums = report.Sums
	return r.found, nil
}

// count returns how many documents an organization of a backup has.
func count(ctx context.Context, t *tenants.Tenant) (int, error) {
	n, err := t.Workspace().Documents(ctx)
	return int(n), err
}

// restoration returns what is restored of an organization that there is.
func (r *orgRestore) restoration(ctx context.Context, a *access) (tenants.Restoration, error) {
	what := tenants.Restoration{From: r.was, Continue: r.s.continuing(), Progress: r.moving}
	if r.found.Access == control.AccessThen {
		what.Parts, what.Alter = r.s.partKinds(), a.alterPart
	} else {
		what.Continue = append(what.Continue, r.s.reports.Issued.Spec().Name, r.s.reports.Revocations.Spec().Name)
		what.Kept, what.AlterDocument = []string{r.s.kinds.people.Teams.Spec().Name}, a.alterReport
	}
	var err error
	if r.m.Files == nil {
		var now *tenants.Tenant
		if now, err = r.s.directory.BySlug(ctx, r.in.Slug); err == nil {
			r.found.FilesWithout, err = r.withoutBytes(ctx, now)
		}
	}
	what.Before = func(ctx context.Context, now *tenants.Tenant) error {
		if r.found.Access == control.AccessNow {
			for _, pid := range a.ended {
				if err := r.s.reports.RevokeAll(ctx, now, pid); err != nil {
					return err
				}
			}
			a.ended, a.voided = nil, append(a.voided, a.ended...)
		}
		if r.m.Files == nil {
			return nil
		}
		return r.returnBytes(ctx, now)
	}
	what.Check = func(ctx context.Context, now *tenants.Tenant) (err error) {
		if r.found.DocumentsBefore, err = count(ctx, now); err == nil {
			err = a.stillStrict(ctx, r, now)
		}
		if r.m.Files == nil || err != nil {
			return err
		}
		missing := 0
		err = r.s.contents.Lacking(ctx, now, r.then.contents, r.was, func(*contents.Blob) error { missing++; return nil })
		if err == nil && missing != r.found.FilesWithout {
			err = fmt.Errorf("%w: bytes of files were removed meanwhile", store.ErrUnavailable)
		}
		return err
	}
	return what, err
}

// returnBytes stores the bytes of files that the organization lacks, and counts those that the backup lacks too.
func (r *orgRestore) returnBytes(ctx context.Context, now *tenants.Tenant) error {
	r.found.FilesWithout = 0
	return r.s.contents.Lacking(ctx, now, r.then.contents, r.was, func(blob *contents.Blob) error {
		err := r.s.contents.Return(ctx, now, r.then.contents, blob)
		if errors.Is(err, blobs.ErrNotFound) {
			r.found.FilesWithout++
			return nil
		}
		return err
	})
}

// withoutBytes returns how many different contents of files a backup without bytes cannot bring back; now is nil if
// there is no organization.
func (r *orgRestore) withoutBytes(ctx context.Context, now *tenants.Tenant) (n int, err error) {
	if now == nil {
		stored, err := r.then.contents.Storage(ctx, r.was)
		return int(stored.Files), err
	}
	err = r.s.contents.Lacking(ctx, now, r.then.contents, r.was, func(*contents.Blob) error { n++; return nil })
	return n, err
}

// moving reports the progress of the copy.
func (r *orgRestore) moving(p tenants.MoveProgress) {
	r.told(control.Progress{Step: p.Step, Detail: p.Kind, Done: p.Compared, Told: p.Kind == "" && p.Note == "", Note: p.Note})
}

// continuing returns the kinds of documents that go on while an organization is set back: its history, what is known of
// bytes of files, uploads under way, and what was answered to requests.
func (s *Services) continuing() (names []string) {
	all := slices.Concat(s.audit.Kept(), s.seals.Kept(), s.heads.Kept(), s.usage.Kept(), s.contents.Kept(), s.imports.Kept(), s.mails.Kept())
	names = []string{store.EventsKind}
	for _, spec := range record.Specs(append(slices.Concat(all, s.webhooks.Notes(), s.schedules.Notes()), s.idempotency, s.files.Transfers)) {
		names = append(names, spec.Name)
	}
	return names
}

// partKinds returns the kinds of control data that belong to an organization.
func (s *Services) partKinds() (names []string) {
	for _, spec := range slices.Concat(record.Specs(s.kinds.people.Kept()), s.kinds.keys.Specs()) {
		names = append(names, spec.Name)
	}
	return names
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
	if errors.Is(err, tenants.ErrUnknownTenant) {
		return nil, &control.Error{
			Code: control.CodeNotFound, Message: fmt.Sprintf("the backup %s has no organization %q", m.Name, slug),
		}
	}
	if err != nil {
		return nil, fmt.Errorf("organization %s in the backup %s: %w", slug, m.Name, err)
	}
	name := fmt.Sprintf("org-%d", o.OrgID)
	own := func(d *backup.Database) bool { return d.File == name+".db" || strings.HasPrefix(d.File, name+"-") }
	if err := extractThen(ctx, depot, m, then, s.cfg, own); err != nil {
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
