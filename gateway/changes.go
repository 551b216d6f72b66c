package gateway

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/store"
	"tenantry/gateway/backup"
)

// baseInterval bounds how often a backup is made because the log of changes needs one.
const baseInterval = time.Hour

// baseWait is the age of a log from which a backup can be completed.
const baseWait = 3 * time.Second

// logChanges follows the changes of all SQLite files, if the settings say that they are logged in the folder of backups.
// They are logged when it is known of which installation they are; see beginLog.
func (s *Services) logChanges(ctx context.Context) {
	b := s.cfg.Backup
	if b.Log <= 0 || b.To == "" {
		return
	}
	if err := checkPlace(&s.cfg, b.To); err != nil {
		s.log.ErrorContext(ctx, "changes are not logged until the next start", "folder", b.To, "error", err)
		return
	}
	pages, err := backup.OpenLog(ctx, backup.LogOptions{Folder: b.To, Keep: b.Log, Files: !b.WithoutFiles, Gap: s.noteGap})
	if err != nil {
		s.log.ErrorContext(ctx, "changes are not logged until the next start", "folder", b.To, "error", err)
		return
	}
	logged := false
	for _, name := range slices.Sorted(maps.Keys(s.engines)) {
		engine, can := s.engines[name].(store.PageLogger)
		if !can {
			continue
		}
		failing := false
		if err := engine.LogPages(ctx, pages.Logging(name, s.now, func(err error) {
			switch {
			case err != nil && !failing:
				s.log.Error("changes cannot be logged, which is tried again each second", "folder", b.To, "backend", name, "error", err)
			case err == nil && failing:
				s.log.Info("changes are logged again", "folder", b.To, "backend", name)
			}
			failing = err != nil
		})); err != nil {
			s.log.ErrorContext(ctx, "changes are not logged until the next start", "folder", b.To, "backend", name, "error", err)
			continue
		}
		logged = true
	}
	if logged {
		s.pages = pages
	} else {
		_ = pages.Close() // nothing was written
	}
}

// beginLog lets the log of changes be written.
func (s *Services) beginLog() {
	if s.pages != nil {
		s.pages.Begin(s.directory.Installation())
	}
}

// maxGapNames bounds the databases that a line names.
const maxGapNames = 5

// noteGap logs a gap of the log of changes.
func (s *Services) noteGap(databases []string, why string) {
	facts := []any{"folder", s.cfg.Backup.To, "because", why}
	if n := len(databases); n > 0 {
		facts = append(facts, "databases", n, "first", databases[:min(n, maxGapNames)])
	}
	s.log.Warn("the log of changes has a gap, which the next backup ends", facts...)
}

// logObject copies the bytes of a file to the log before they are stored.
func (s *Services) logObject(ctx context.Context, name string, file *os.File) {
	if s.pages == nil {
		return
	}
	if err := s.pages.Store(ctx, name, file, s.now()); err != nil && ctx.Err() == nil {
		s.log.WarnContext(ctx, "the bytes of a file could not be copied to the backups, which is tried again",
			"folder", s.cfg.Backup.To, "error", err)
	}
}

// retryObjects copies the bytes of files that could not be copied to the log.
func (s *Services) retryObjects(ctx context.Context) {
	if s.pages == nil {
		return
	}
	if err := s.pages.Retry(ctx, s.markedBucket()); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "bytes of files could not be copied to the backups", "folder", s.cfg.Backup.To, "error", err)
	}
}

// logRemoval logs that an object is removed, or all with a prefix.
func (s *Services) logRemoval(name string) {
	if s.pages != nil {
		s.pages.Removed(name)
	}
}

// needsBase reports whether the log of changes needs a backup to begin with, which could be made now.
func (s *Services) needsBase(ctx context.Context, now time.Time) bool {
	if s.pages == nil || s.pages.Status().Failed != nil {
		return false
	}
	last, err := s.lastBackup(ctx)
	status := s.pages.Status()
	return err == nil && status.NeedsBase(last) && !status.NeedsBase(now.Add(-time.Second))
}

// beginsLog reports whether the log of changes is about to begin: a backup that is made earlier cannot be completed.
func (s *Services) beginsLog(now time.Time) bool {
	if s.pages == nil {
		return false
	}
	status := s.pages.Status()
	age := now.Sub(status.Broken)
	return status.Failed == nil && (status.Broken.IsZero() || age >= 0 && age < baseWait)
}

// examineFailure reports that changes cannot be logged, and whether that is so.
func (s *Services) examineFailure(e *examination) bool {
	if s.pages == nil {
		return false
	}
	status := s.pages.Status()
	if status.Failed == nil && !status.Hangs {
		return false
	}
	why := "the folder does not answer"
	if status.Failed != nil {
		why = status.Failed.Error()
	}
	says := "changes are not logged: " + why
	if !status.Last.IsZero() {
		says = fmt.Sprintf("changes since %s are not logged: %s", status.Last.Format(time.RFC3339), why)
	}
	e.wrong("backups", says, s.adviceOnPlace(status.Failed))
	return true
}

// examineChanges reports how far the log of changes is, and whether it did.
func (s *Services) examineChanges(e *examination, last time.Time) bool {
	if s.pages == nil {
		if s.cfg.Backup.Log > 0 {
			e.wrong("backups", "changes are not logged", "the log of the gateway says why; restart it afterwards")
		}
		return s.cfg.Backup.Log > 0
	}
	status := s.pages.Status()
	switch folder := s.cfg.Backup.To; {
	case status.IsAhead(s.now()):
		e.wrong("backups", "changes are logged in "+folder+" up to "+status.Last.Format(time.RFC3339)+", which is not yet",
			"the clock is behind or was ahead: correct it; a running gateway begins the log anew and makes a backup")
	case status.Broken.IsZero():
		e.warn("backups", "the newest in "+folder+" is of "+last.Format(time.RFC3339)+", and no change is logged yet",
			"the log begins within ten seconds")
	case !status.Lacks.IsZero() && last.Before(status.Lacks):
		e.warn("backups", fmt.Sprintf("bytes of files could not be copied to %s since %s", folder, status.Lacks.Format(time.RFC3339)),
			"a running gateway tries it again, or run tenantry backup --to "+folder)
	case status.NeedsBase(last):
		e.warn("backups", fmt.Sprintf("changes are logged in %s since %s, but there is no backup since then to begin with",
			folder, status.Broken.Format(time.RFC3339)), "a running gateway makes one within a minute, unless it made one for that "+
			"reason within the last hour; or run tenantry backup --to "+folder)
	default:
		e.good("backups", "the newest in %s is of %s, and changes are logged up to %s (tenantry backup list names the seconds)",
			folder, last.Format(time.RFC3339), status.Last.Format(time.RFC3339))
	}
	return true
}

// measureLog registers the metric of the log of changes.
func (s *Services) measureLog(r *prometheus.Registry) {
	if s.pages == nil {
		return
	}
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenantry_backup_log_lag_seconds", Help: "For how long changes could not be logged in the folder of backups.",
	}, func() float64 {
		if status := s.pages.Status(); status.Failed != nil {
			return max(0, s.now().Sub(status.Since).Seconds())
		}
		return 0
	}))
}

// readMoment returns the backup of a name and, unless at is zero, the moment to which it is completed. Errors: those of
// backup.Depot.Read and FindMoment.
func readMoment(ctx context.Context, d *backup.Depot, name string, at time.Time) (*backup.Manifest, *backup.Moment, error) {
	if at.IsZero() {
		m, err := d.Read(ctx, name)
		return m, nil, err
	}
	then, err := d.FindMoment(ctx, name, at)
	if err != nil {
		return nil, nil, err
	}
	return then.Manifest, then, nil
}

// momentOf returns the time of a moment, nil if there is none.
func momentOf(m *backup.Moment) *time.Time {
	if m == nil {
		return nil
	}
	return &m.At
}
