package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"tenantry/backends/sqlite"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway/backup"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

const (
	backupChore = "000000000000000000000002"
	backupHold  = time.Minute // how long others wait for a replica that was killed
)

// backUp writes a backup of the installation to a place, and logs that it has. In the place of the settings their
// recipient is the default, and the backups remain that their log of changes needs. Errors: those of backup.Depot.Write.
func (s *Services) backUp(ctx context.Context, place string, o backup.Options, files bool) (m *backup.Manifest, err error) {
	if err := checkPlace(&s.cfg, place); err != nil {
		return nil, err
	}
	src := s.backupSource(files)
	if b := s.cfg.Backup; b.To != "" && !config.IsBucket(place) && resolved(place) == resolved(b.To) || place == b.To {
		o.Recipient = cmp.Or(o.Recipient, b.Recipient)
		if b.Log > 0 {
			o.Since = s.now().Add(-b.Log)
		}
		if s.pages != nil {
			src.Cut = func() uint64 { status := s.pages.Status(); return status.Cut }
		}
	}
	defer func() {
		switch {
		case err != nil: // the caller says it
		case len(m.Damaged) > 0:
			s.log.ErrorContext(ctx, "a backup is incomplete, and older ones were kept",
				"to", place, "backup", m.Name, "damaged", m.Damaged)
		default:
			s.log.InfoContext(ctx, "a backup ended", "to", place, "backup", m.Name, "bytes", m.Bytes)
		}
	}()
	depot, err := openDepot(&s.cfg, place, true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, depot.Close()) }()
	if !config.IsBucket(place) {
		return depot.Write(ctx, src, o)
	}
	held, err := s.directory.HoldChore(ctx, backupChore, backupHold, func(ctx context.Context) (err error) {
		m, err = depot.Write(ctx, src, o)
		return err
	})
	if err == nil && !held {
		err = fmt.Errorf("%w %s, by another replica", backup.ErrBusy, place)
	}
	return m, err
}

func (s *Services) backupSource(files bool) backup.Source {
	backends := slices.DeleteFunc(s.store.Backends(), func(name string) bool { return name == s.cfg.Control })
	src := backup.Source{
		Installation: s.directory.Installation(), Version: s.version, Backends: append(backends, s.cfg.Control),
		Archive: s.archive, Still: s.directory.Still, Keyring: s.cfg.KeyringPath(), Now: s.now, Homes: s.directory.Homes,
		Missing: s.store.HomeMissing,
	}
	if files {
		src.Files = s.markedBucket()
	}
	return src
}

// checkPlace returns an error if a folder of backups would be in a folder that the gateway uses itself, or around one:
// the bytes of files in it could be taken for those of backups.
func checkPlace(cfg *config.Config, place string) error {
	if config.IsBucket(place) {
		return nil
	}
	for _, folder := range folders(cfg) {
		how := ""
		switch {
		case isIn(folder, place):
			how = "in"
		case isIn(place, folder):
			how = "around"
		default:
			continue
		}
		return fmt.Errorf("%s is %s %s, which the gateway uses itself; name a folder elsewhere, on another disk at best",
			place, how, folder)
	}
	return nil
}

// checkTarget returns an error if a backup would be restored into a folder in its own place, or around it.
func checkTarget(cfg *config.Config, place string) error {
	if config.IsBucket(place) {
		return nil
	}
	for _, folder := range folders(cfg) {
		switch {
		case isIn(place, folder):
			return fmt.Errorf("a backup is not restored into its own place: %s is in %s; name a folder outside it, such as with --data",
				folder, place)
		case isIn(folder, place):
			return fmt.Errorf("a backup is not restored around its own place: %s has %s in it; name another folder, such as with --data",
				folder, place)
		}
	}
	return nil
}

// isIn reports whether a path leads into a folder, or to it.
func isIn(folder, path string) bool {
	below, err := filepath.Rel(resolved(folder), resolved(path))
	return err == nil && filepath.IsLocal(below)
}

// resolved returns the path without symbolic links, as far as it exists.
func resolved(path string) string {
	path = absolute(path)
	for rest := ""; ; rest = filepath.Join(filepath.Base(path), rest) {
		found, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(found, rest)
		}
		if filepath.Dir(path) == path {
			return filepath.Join(path, rest)
		}
		path = filepath.Dir(path)
	}
}

// archive copies the databases of a backend into a folder. The workspaces of one on a database server become databases.
func (s *Services) archive(ctx context.Context, backend string, o store.Archiving) (_ []store.Archived, err error) {
	if s.store.CanArchive(backend) {
		return s.store.Archive(ctx, backend, o)
	}
	dir := o.Dir + "-copying"
	by, err := sqlite.Open(ctx, sqlite.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, by.Close(), os.RemoveAll(dir)) }()
	copying := store.CopyOptions{
		Last: audit.CopiedLast(), Keys: tenants.KindsWithKeys(),
		Told: func(workspace string, _ int64) { o.Told(workspace, 0, 0) },
	}
	return s.store.ArchiveBy(ctx, backend, by, copying, o)
}

const (
	backupTick  = 20 * time.Second // between two looks at the clock
	logTick     = time.Second      // between two looks at the log of changes, before it begins
	backupRetry = 10 * time.Minute // after a failure
	// backupLate is how long a backup may be overdue before doctor calls that wrong.
	backupLate = 24 * time.Hour
)

// backUpOnTime backs up at the times of the settings, and when the log of changes needs a backup to begin with, until ctx
// ends. It asks the place when the last backup was made: one that was due while no gateway ran is made as soon as one
// runs, and of several gateways one makes it.
func (s *Services) backUpOnTime(ctx context.Context) {
	tick := time.NewTicker(backupTick)
	defer tick.Stop()
	var done, retry, based time.Time // done: up to when every backup that was due has been made
	for {
		now := s.now()
		s.retryObjects(ctx)
		if s.beginsLog(now) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(logTick):
				continue
			}
		}
		if due := s.cfg.Backup.Due(now); due.After(done) && now.After(retry) {
			last, err := s.lastBackup(ctx)
			switch {
			case err == nil && last.Before(due):
				err = s.backUpNow(ctx)
			case err != nil && ctx.Err() == nil:
				s.log.ErrorContext(ctx, "backups cannot be listed, which is tried again in ten minutes", "in", s.cfg.Backup.To, "error", err)
			}
			if err == nil {
				done = due
			} else {
				retry = now.Add(backupRetry)
			}
		} else if now.After(retry) && now.Sub(based) > baseInterval && s.needsBase(ctx, now) {
			if based = now; s.backUpNow(ctx) != nil {
				retry = now.Add(backupRetry)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lastBackup returns when the newest backup in the place of the settings began; the zero time if there is none. Errors:
// backup.ErrForeign; a place that had the mark of this installation is gone or has it no more, such as an empty mount
// point, which must not become the place; those of the place.
func (s *Services) lastBackup(ctx context.Context) (last time.Time, err error) {
	depot, err := openDepot(&s.cfg, s.cfg.Backup.To, false)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) && !s.placed.Load() {
			err = nil
		}
		return time.Time{}, err
	}
	defer func() { err = errors.Join(err, depot.Close()) }()
	marked, err := depot.IsOf(ctx, s.directory.Installation())
	if err == nil && !marked && s.placed.Load() {
		err = fmt.Errorf("%s has lost the mark of this installation", s.cfg.Backup.To)
	}
	if err != nil {
		return time.Time{}, err
	}
	s.placed.Store(marked)
	names, err := depot.List(ctx)
	for _, name := range names {
		if last, err = backup.Began(name); err != nil || !last.After(s.now()) { // otherwise the clock was ahead
			return last, err
		}
	}
	return time.Time{}, err
}

// newestBackup is lastBackup with a limit, because a folder may never answer.
func (s *Services) newestBackup(ctx context.Context) (time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	type answer struct {
		last time.Time
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		last, err := s.lastBackup(ctx)
		got <- answer{last, err}
	}()
	select {
	case a := <-got:
		return a.last, a.err
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("%s does not answer: %w", s.cfg.Backup.To, ctx.Err())
	}
}

// backUpNow makes a backup as the settings say, and logs how it ended.
func (s *Services) backUpNow(ctx context.Context) error {
	b := s.cfg.Backup
	m, err := s.backUp(ctx, b.To, backup.Options{Recipient: b.Recipient, Keep: b.Keep}, !b.WithoutFiles)
	facts := map[string]string{"to": b.To}
	outcome := audit.OK
	if m != nil {
		facts["backup"] = m.Name
	}
	if err != nil || len(m.Damaged) > 0 {
		outcome = audit.Failed
	}
	if ctx.Err() == nil {
		by := tenants.Principal{Kind: tenants.System}
		if e := s.audit.Write(ctx, s.directory.Own().Workspace(), audit.Record{
			Operation: "backup", Subject: by.Subject(), Outcome: outcome, Facts: facts,
		}); e != nil {
			s.log.WarnContext(ctx, "a backup could not be recorded in the audit log", "error", e)
		}
	}
	if m != nil && len(m.Notes) > 0 {
		s.log.WarnContext(ctx, "the place of backups needs attention", "to", b.To, "notes", m.Notes)
	}
	if err != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "a backup failed and is tried again in ten minutes", "to", b.To, "error", err)
	}
	return err
}

// adviceOnPlace returns what to do about an error of the place of the settings.
func (s *Services) adviceOnPlace(err error) string {
	if errors.Is(err, backup.ErrForeign) {
		return "set backup.to to another place, and restart the gateway"
	}
	to := s.cfg.Backup.To
	return "mount " + to + ", make room in it, or let this user read and write there; if what was in it is lost for good, " +
		"tenantry backup --to " + to + " begins anew"
}

// examineBackups reports how old the newest backup is.
func (s *Services) examineBackups(ctx context.Context, e *examination) {
	if s.cfg.Backup.To == "" {
		return
	}
	if s.examineFailure(e) {
		return
	}
	last, err := s.newestBackup(ctx)
	due := s.cfg.Backup.Due(s.now())
	switch {
	case err != nil:
		e.wrong("backups", err.Error(), s.adviceOnPlace(err))
	case !last.Before(due) && s.examineChanges(e, last):
	case !last.Before(due):
		e.good("backups", "the newest in %s is of %s", s.cfg.Backup.To, last.Format(time.RFC3339))
	case s.now().Sub(due) < backupLate && last.IsZero():
		e.warn("backups", "there is none in "+s.cfg.Backup.To, "a running gateway makes one within a minute")
	case s.now().Sub(due) < backupLate:
		e.warn("backups", fmt.Sprintf("the newest in %s is of %s, and one was due at %s",
			s.cfg.Backup.To, last.Format(time.RFC3339), due.Format(time.RFC3339)),
			"it is being made, or no gateway runs, or its log says why it failed")
	default:
		e.wrong("backups", fmt.Sprintf("the newest in %s is of %s", s.cfg.Backup.To, last.Format(time.RFC3339)),
			"the log of the gateway says why")
	}
}
