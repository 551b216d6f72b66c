package sqlite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"tenantry/backends/driver"
	"tenantry/internal/durable"
)

const (
	// archiveStep is the number of pages that are copied at a time, and archiveSync that after which they are synced:
	// commits of other files would wait for all that is to be written, and should find little.
	archiveStep = 64
	archiveSync = 1024
	// archiveRounds bounds how often files are copied again because workspaces were created in them meanwhile.
	archiveRounds = 10
	// maxSnapshots bounds the files that are held at the same time.
	maxSnapshots = 32
	partSuffix   = ".part" // of copies that are not complete
)

// Archive implements driver.Archiver. A read transaction holds each file as it is while it is copied, so its log grows
// meanwhile.
func (e *Engine) Archive(ctx context.Context, o driver.Archiving) ([]driver.Archived, error) {
	a := &archive{Archiving: o, e: e, copies: map[string]driver.Archived{}}
	for round := range archiveRounds { // until little remains to be copied while nothing may be created
		stale, err := a.stale(ctx)
		if err != nil {
			return nil, err
		}
		if round > 0 && len(stale) <= maxSnapshots {
			break
		}
		for _, name := range stale {
			if err := a.copyAll(ctx, a.hold(ctx, name)); err != nil {
				return nil, err
			}
		}
	}
	var rest []*snapshot
	err := o.Still(ctx, func() error {
		stale, err := a.stale(ctx)
		if err != nil {
			return err
		}
		if _, err := os.Stat(e.ownPath(o.Last)); o.Last != "" && err == nil {
			stale = append(stale, o.Last)
		}
		rest = a.hold(ctx, stale...)
		return nil
	})
	if err == nil {
		err = a.copyAll(ctx, rest)
	}
	return slices.SortedFunc(maps.Values(a.copies), func(a, b driver.Archived) int { return strings.Compare(a.File, b.File) }), err
}

// archive is a call of Archive.
type archive struct {
	driver.Archiving

	e      *Engine
	copies map[string]driver.Archived // by the name of the file, without its suffix
}

// copyAll copies snapshots and ends them. A damaged file is noted, unless it is the last.
func (a *archive) copyAll(ctx context.Context, all []*snapshot) error {
	defer func() {
		for _, s := range all {
			s.close()
		}
	}()
	for _, s := range all {
		copied, err := driver.Archived{File: s.name + ".db"}, s.err
		if err == nil {
			copied, err = s.archive(ctx, a.Archiving)
		}
		if _, gone := os.Stat(a.e.ownPath(s.name)); err != nil && errors.Is(gone, os.ErrNotExist) && s.name != a.Last {
			delete(a.copies, s.name) // it was removed with its organization
			continue
		}
		if copied.Damage != "" && s.name == a.Last {
			err = &driver.DamagedError{Reason: copied.Damage}
		}
		if damaged := new(driver.DamagedError); errors.As(err, &damaged) && s.name != a.Last {
			copied.Damage, err = damaged.Reason, nil
		}
		if err != nil {
			return err
		}
		a.copies[s.name] = copied
	}
	return nil
}

// stale returns the names of the files besides the last that have no copy, or have workspaces that their copies lack.
func (a *archive) stale(ctx context.Context) ([]string, error) {
	entries, err := os.ReadDir(a.e.opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	var names []string
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), ".db")
		if !is || name == a.Last || !isShared(name) && driver.CheckName(name) != nil {
			continue
		}
		if info, err := entry.Info(); err != nil || info.Size() == 0 {
			continue // it was removed, or is being created
		}
		there, copied := a.copies[name]
		switch {
		case !copied, there.Damage != "":
		case !isShared(name):
			copied = len(there.Workspaces) > 0
		default:
			err := a.e.readShared(ctx, name, func(c *conn) error {
				now, err := c.workspaces()
				copied = !slices.ContainsFunc(now, func(one string) bool { return !slices.Contains(there.Workspaces, one) })
				return err
			})
			if err != nil {
				return nil, wrapError(ctx, "list the workspaces in "+a.e.ownPath(name), err)
			}
		}
		if !copied {
			names = append(names, name)
		}
	}
	return names, nil
}

// workspaces returns the names of the workspaces in a shared file, without removed ones. A file that is being created
// has none.
func (c *conn) workspaces() ([]string, error) {
	if prepared, err := c.tables("workspaces"); err != nil || len(prepared) == 0 {
		return nil, err
	}
	all, err := c.texts("SELECT name FROM workspaces ORDER BY name")
	return slices.DeleteFunc(all, func(name string) bool { return driver.CheckName(name) != nil }), err
}

// snapshot is a file as it is at one moment. It holds a connection, unless it has an error.
type snapshot struct {
	e        *Engine
	name     string
	src      *conn
	pageSize int64
	leave    func()
	err      error
}

// hold returns snapshots of the files of those names.
func (a *archive) hold(ctx context.Context, names ...string) []*snapshot {
	all := make([]*snapshot, len(names))
	for i, name := range names {
		path := a.e.ownPath(name)
		s := &snapshot{e: a.e, name: name, leave: a.e.sideConns.enter(path)}
		if s.src, s.err = (&database{engine: a.e, path: path}).connect(readerShares, readerPragmas); s.err == nil {
			s.err = s.begin()
		}
		if s.err = wrapError(ctx, "copy "+path, s.err); s.err != nil {
			s.close()
		}
		all[i] = s
	}
	return all
}

// begin begins the transaction without which a copy would begin anew after every write.
func (s *snapshot) begin() error {
	err := s.src.exec("BEGIN")
	if err == nil {
		_, err = s.src.number("SELECT count(*) FROM sqlite_schema")
	}
	if err == nil {
		s.pageSize, err = s.src.number("PRAGMA page_size")
	}
	return err
}

// close ends the snapshot. It may be called again.
func (s *snapshot) close() {
	if s.leave == nil {
		return
	}
	if s.src != nil {
		_ = s.src.close() // it was only read
	}
	s.leave()
	s.src, s.leave = nil, nil
}

// archive copies the snapshot into the folder, ends it, and checks the copy.
func (s *snapshot) archive(ctx context.Context, o driver.Archiving) (a driver.Archived, err error) {
	a = driver.Archived{File: s.name + ".db"}
	path := filepath.Join(o.Dir, a.File)
	part := path + partSuffix
	if err := os.Remove(part); err != nil && !errors.Is(err, os.ErrNotExist) {
		return a, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if err := create(part); err != nil {
		return a, err
	}
	doing := "copy " + s.e.ownPath(s.name) + " to " + o.Dir
	if err := s.copyPages(ctx, part, o.Told); err != nil {
		return a, wrapError(ctx, doing, err)
	}
	s.close()
	doing = "check the copy of " + s.e.ownPath(s.name) + " in " + o.Dir
	c, err := openConn(part, sqlite.OpenReadWrite, readerPragmas)
	if err != nil {
		return a, wrapError(ctx, doing, err)
	}
	err = c.runUntil(ctx, func() (err error) {
		fault := ""
		if err := c.each("PRAGMA integrity_check(1)", nil, func(row *sqlite.Stmt) { fault = row.ColumnText(0) }); err != nil {
			return err
		}
		if fault != "ok" {
			a.Damage = doing + ": " + fault
		}
		if a.Workspaces, err = c.workspaces(); err != nil {
			return err
		}
		prepared := false
		if a.Documents, prepared, err = c.documents(); prepared && !isShared(s.name) { // otherwise it was being created
			a.Workspaces = []string{s.name}
		}
		return err
	})
	if err = wrapError(ctx, doing, errors.Join(err, c.close())); err != nil {
		return a, err
	}
	return a, finishArchive(part, path)
}

// documents returns the number of documents in the file, and whether it has collections.
func (c *conn) documents() (n int64, prepared bool, err error) {
	tables, err := c.tables("c:*")
	for _, table := range tables {
		if err == nil {
			var some int64
			some, err = c.number("SELECT count(*) FROM " + quote(table))
			n += some
		}
	}
	return n, len(tables) > 0, err
}

// copyPages copies the pages of the snapshot. While organizations compete for the processors, it pauses for as long as
// it works.
func (s *snapshot) copyPages(ctx context.Context, to string, told func(file string, done, total int64)) (err error) {
	dst, err := openConn(to, sqlite.OpenReadWrite, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF") // it is synced as a whole
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.close()) }()
	b, err := sqlite.NewBackup(dst.raw, "", s.src.raw, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	written, err := os.OpenFile(to, os.O_RDWR, 0) // closing it ends the locks of dst, for which nobody competes
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, written.Close()) }()
	for step := 1; ; step++ {
		began := time.Now()
		more, err := b.Step(archiveStep)
		if err == nil && step%(archiveSync/archiveStep) == 0 {
			err = written.Sync()
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		told(s.name+".db", int64(b.PageCount()-b.Remaining())*s.pageSize, int64(b.PageCount())*s.pageSize)
		if !more {
			return nil
		}
		if s.e.contention.present() {
			time.Sleep(time.Since(began))
		}
	}
}

// finishArchive makes a complete copy durable under its name.
func finishArchive(part, path string) error {
	f, err := os.OpenFile(part, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	err = errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(part, path)
	}
	if err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return nil
}

// Verify checks the integrity of a copy of a file. Errors: *driver.DamagedError; the context's own.
func Verify(ctx context.Context, path string) error {
	doing := "check " + path
	c, err := openConn(path, sqlite.OpenReadWrite, readerPragmas)
	if err != nil {
		return wrapError(ctx, doing, err)
	}
	err = c.runUntil(ctx, func() error {
		fault, err := c.texts("PRAGMA integrity_check(1)")
		if err == nil && (len(fault) != 1 || fault[0] != "ok") {
			err = &driver.DamagedError{Reason: doing + ": " + fmt.Sprint(fault)}
		}
		return err
	})
	return wrapError(ctx, doing, errors.Join(err, c.close()))
}
