package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tenantry/backends/sqlite"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway/backup"
	"tenantry/internal/texts"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

// RestoreOptions say what is restored.
type RestoreOptions struct {
	From     string    // the place of backups: a folder, or s3://bucket/prefix
	Name     string    // of the backup; empty: the newest
	At       time.Time // the second to which the backup is completed from the log of changes; zero: it is not
	Identity io.Reader // age identities that open the keyring; nil: none
	Files    bool      // also the bytes of files
	DryRun   bool      // only check whether it can be restored
	Holder   string    // names this process in errors of others
	Operator string    // names who restores, for the audit log of the installation
	Version  string
	Log      *slog.Logger
	Told     func(backup.Progress)
}

// Restored says what was restored.
type Restored struct {
	*backup.Manifest

	At            *time.Time `json:"at,omitempty"`  // RestoreOptions.At
	Organizations int        `json:"organizations"` // found in the restored control data, without erased ones
	// Lacking are the first files and versions whose bytes the place lacks, and MoreLacking is how many more there are.
	// They are looked for if RestoreOptions.At is set.
	Lacking     []string `json:"lacking,omitempty"`
	MoreLacking int      `json:"more_lacking,omitempty"`
}

// Restore puts a backup into the places that the settings name, in which there must be no data, and opens it for a
// trial. Errors: *InUseError, backup.ErrNone, backup.ErrDamaged, backup.ErrOccupied, backup.ErrKeyring; those of opening
// the installation, after which it is complete nevertheless.
func Restore(ctx context.Context, cfg config.Config, o RestoreOptions) (found *Restored, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkTarget(&cfg, o.From); err != nil {
		return nil, err
	}
	if err := checkUnused(cfg.Data); err != nil {
		return nil, err
	}
	depot, err := openDepot(&cfg, o.From, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, depot.Close()) }()
	m, then, err := readMoment(ctx, depot, o.Name, o.At)
	if err != nil {
		return nil, err
	}
	target := backup.Target{
		Dirs: map[string]string{}, Control: cfg.Control, Keyring: cfg.KeyringPath(), Then: then, Verify: sqlite.Verify,
		Staging: filepath.Join(cfg.Data, "restoring"),
	}
	into := &restoration{cfg: cfg, RestoreOptions: o, target: &target, kinds: newKinds()}
	defer func() { err = errors.Join(err, into.servers.close()) }()
	err = into.openServers(ctx)
	switch {
	case err != nil:
	case o.DryRun:
		target.WithFiles = o.Files
		err = depot.Verify(ctx, m, target, o.Identity, o.Told)
	default:
		err = target.Check(m, o.Identity != nil)
	}
	if err != nil || o.DryRun {
		return &Restored{Manifest: m, At: momentOf(then), Organizations: m.Organizations}, err
	}
	if err := into.run(ctx, depot, m); err != nil {
		return nil, err
	}
	found = &Restored{Manifest: m, At: momentOf(then)}
	cfg.Backup = config.Backup{} // the trial changes nothing that would be logged
	services, err := OpenServices(ctx, cfg, Options{Log: o.Log, Version: o.Version, Holder: o.Holder})
	if err != nil {
		return nil, fmt.Errorf("the backup was restored, but cannot be opened: %w", err)
	}
	if err := services.directory.RenewEventLogs(ctx); err != nil {
		err = fmt.Errorf("the backup was restored, but those who follow changes would not notice: restore it again: %w", err)
		return nil, errors.Join(err, services.Close())
	}
	if err := services.noteRestored(ctx, m, o); err != nil {
		err = fmt.Errorf("the backup was restored, but that could not be written to the audit log: %w", err)
		return nil, errors.Join(err, services.Close())
	}
	found.Organizations, err = services.countOrganizations(ctx)
	if err == nil && then != nil && o.Files && m.Files != nil {
		if err = services.recoverBytes(ctx, depot, found); err != nil {
			err = fmt.Errorf("the backup was restored, but its files cannot be compared with their bytes: %w", err)
		}
	}
	return found, errors.Join(err, services.Close())
}

// maxLacking bounds the files and versions without bytes that a restoration names.
const maxLacking = 100

// recoverBytes copies bytes from a place that restored records name and the log of changes does not, because the process
// was killed before it noted them, and says which bytes the place lacks.
func (s *Services) recoverBytes(ctx context.Context, from *backup.Depot, found *Restored) error {
	return s.directory.Each(ctx, func(o *tenants.Organization) error {
		if o.State == tenants.Removed {
			return nil
		}
		t, err := s.directory.BySlug(ctx, o.Slug)
		if err != nil {
			return err
		}
		if err := s.contents.Recover(ctx, t, from.FileBytes()); err != nil {
			return err
		}
		d, err := s.files.Examine(ctx, t)
		for _, file := range d.Files {
			if len(found.Lacking) == maxLacking {
				found.MoreLacking++
				continue
			}
			found.Lacking = append(found.Lacking, o.Slug+": "+file)
		}
		found.MoreLacking += d.MoreFiles
		return err
	})
}

// noteRestored writes to the log of the installation that a backup was restored. Whoever finds that a log does not
// continue a head sees the reason there.
func (s *Services) noteRestored(ctx context.Context, m *backup.Manifest, o RestoreOptions) error {
	facts := map[string]string{"backup": m.Name, "from": texts.Clip(o.From)}
	if o.Operator != "" {
		facts["operator"] = texts.Clip(o.Operator)
	}
	if !o.At.IsZero() {
		facts["at"] = o.At.UTC().Format(time.RFC3339)
	}
	by := tenants.Principal{Kind: tenants.Operator}
	return s.audit.Write(ctx, s.directory.Own().Workspace(), audit.Record{
		Operation: "restore", Subject: by.Subject(), Outcome: audit.OK, Facts: facts,
	})
}

// restoration puts a backup back.
type restoration struct {
	RestoreOptions

	cfg     config.Config
	target  *backup.Target
	servers engines // of the backends that are on database servers
	kinds   kinds
}

// openServers opens the backends that are on database servers and sets how they are filled. Errors: backup.ErrOccupied if
// there are data of organizations on one; store.ErrUnavailable.
func (r *restoration) openServers(ctx context.Context) error {
	r.servers = engines{}
	for name, b := range r.cfg.Backends {
		if b.Engine == config.EngineSQLite {
			r.target.Dirs[name] = r.cfg.BackendDir(name)
			continue
		}
		e, err := builtinEngines()[b.Engine](ctx, &r.cfg, name, r.Log)
		if err != nil {
			return fmt.Errorf("backend %s: %w", name, err)
		}
		r.servers[name] = e
		r.target.Dirs[name] = filepath.Join(r.target.Staging, name)
		if r.target.Load == nil {
			r.target.Load = map[string]func(context.Context, string) error{}
		}
		r.target.Load[name] = func(ctx context.Context, dir string) error { return r.load(ctx, name, dir) }
	}
	return r.checkServers(ctx)
}

// checkServers returns ErrOccupied if there are data on a database server, unless they are of a restoration that was
// interrupted.
func (r *restoration) checkServers(ctx context.Context) error {
	if on := r.servers[r.cfg.Control]; on != nil {
		control := r.controlOn(on)
		there, err := control.HasControl(ctx)
		if err == nil && there {
			r.target.Resumed, err = r.isBegun(ctx, control)
		}
		if err != nil {
			return fmt.Errorf("backend %s: %w", r.cfg.Control, err)
		}
		if there && !r.target.Resumed {
			return fmt.Errorf("%w of an installation on backend %s: a backup is restored to a server that has none; "+
				"name another database in the settings", backup.ErrOccupied, r.cfg.Control)
		}
	}
	if r.target.Begun() {
		return nil
	}
	for name := range r.servers {
		found, err := r.servers[name].Residents(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("backend %s: %w", name, err)
		case len(found) > 0:
			return fmt.Errorf("%w on backend %s: it has %s; a backup is restored to a server without organizations, so name "+
				"another database in the settings", backup.ErrOccupied, name, found[0])
		}
	}
	return nil
}

// controlOn returns a store of the control data on a server.
func (r *restoration) controlOn(e store.Engine) *store.Store {
	return store.New(store.Options{
		Backends: engines{r.cfg.Control: e}, ControlBackend: r.cfg.Control, Control: append(r.kinds.specs(), audit.New().Specs()...),
	})
}

func (r *restoration) isBegun(ctx context.Context, s *store.Store) (bool, error) {
	control, err := s.Control(ctx)
	if err != nil {
		return false, err
	}
	return r.kinds.organizations.Restoring(ctx, control)
}

// run puts the backup back while it holds the data folder.
func (r *restoration) run(ctx context.Context, from *backup.Depot, m *backup.Manifest) (err error) {
	s := &Services{cfg: r.cfg, log: r.Log}
	if err := os.MkdirAll(r.cfg.Data, folderMode); err != nil {
		return err
	}
	for _, folder := range folders(&s.cfg) {
		if _, err := checkFolder(folder); err != nil {
			return err
		}
	}
	lock, err := lockFolder(r.cfg.Data, r.Holder, time.Now())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	if r.Files && m.Files != nil {
		if err := s.openBucket(ctx); err != nil {
			return err
		}
		r.target.Files = s.bucket
		defer func() { err = errors.Join(err, s.closeBucket()) }()
	}
	if on := r.servers[r.cfg.Control]; on != nil {
		control, err := r.controlOn(on).Control(ctx)
		if err == nil {
			err = r.kinds.organizations.BeginRestore(ctx, control)
		}
		if err != nil {
			return fmt.Errorf("backend %s: %w", r.cfg.Control, err)
		}
	}
	return from.Restore(ctx, m, *r.target, r.Identity, r.Told)
}

// load copies the databases in a folder to the server of a backend. Of the control data comes last what a gateway needs
// to start, and then what says that a restoration has begun.
func (r *restoration) load(ctx context.Context, backend, dir string) (err error) {
	r.Told(backup.Progress{Step: "loading databases", Detail: backend})
	c := config.Default()
	c.Data, c.Keyring, c.Engines = filepath.Join(r.target.Staging, "opened"), r.cfg.KeyringPath(), r.cfg.Engines
	c.Control, c.Store = r.cfg.Control, r.cfg.Control
	control := backup.Restoring(r.target.Dirs[r.cfg.Control])
	if backend == r.cfg.Control {
		control = dir
	}
	c.Backends = map[string]config.Backend{c.Control: {Engine: config.EngineSQLite, Dir: control}}
	if backend != c.Control {
		c.Backends[backend] = config.Backend{Engine: config.EngineSQLite, Dir: dir}
	}
	if err := os.MkdirAll(c.Data, folderMode); err != nil {
		return err
	}
	from, err := OpenServices(ctx, c, Options{Log: slog.New(slog.DiscardHandler), Version: r.Version, Holder: r.Holder})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	copied, err := from.store.CopyTo(ctx, backend, r.servers[backend], store.CopyOptions{
		Last: tenants.LastRestored(),
		Told: func(workspace string, _ int64) { r.Told(backup.Progress{Step: "loading databases", Detail: workspace}) },
	})
	if err == nil && len(copied.Damaged) > 0 {
		err = fmt.Errorf("records of the backup cannot be read: %s", strings.Join(slices.Sorted(maps.Values(copied.Damaged)), "; "))
	}
	return err
}

// countOrganizations returns how many organizations there are, without erased ones.
func (s *Services) countOrganizations(ctx context.Context) (n int, err error) {
	err = s.directory.Each(ctx, func(o *tenants.Organization) error {
		if o.State != tenants.Removed {
			n++
		}
		return nil
	})
	return n, err
}
