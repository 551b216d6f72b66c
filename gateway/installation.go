package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"tenantry/crypto/keyring"
	"tenantry/tenants"
)

// Errors of a start, wrapped. Each says what to do.
var (
	// ErrNoInstallation: there is none where the settings say, or a part of one alone.
	ErrNoInstallation = errors.New("there is no installation")
	// ErrNoFiles: the control data name organizations of which a backend has nothing.
	ErrNoFiles = errors.New("the control data are there without the data of organizations")
)

// Made reports whether this process made the installation.
func (s *Services) Made() bool { return s.made }

// where names the place of the control data.
func (s *Services) where() string {
	if s.cfg.Shared() {
		b := s.cfg.Backends[s.cfg.Control]
		return fmt.Sprintf("backend %s (%s, database %s)", s.cfg.Control, b.Engine, b.Database)
	}
	return s.cfg.BackendDir(s.cfg.Control)
}

// lookBefore refuses folders in which no installation can be, before anything is made in them.
func (s *Services) lookBefore(init bool) error {
	if s.cfg.Shared() {
		return nil
	}
	ring, err := s.hasKeyring()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.cfg.BackendDir(s.cfg.Control))
	if len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // whoever opens it tells
	}
	return s.mayBegin(init, ring)
}

// hasKeyring reports whether there is a keyring. It is asked before the control data are looked for: a replica that
// starts at the same time makes its keyring after them, so that one without them is one that has lost them.
func (s *Services) hasKeyring() (bool, error) {
	switch _, err := os.Stat(s.cfg.KeyringPath()); {
	case err == nil:
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	default:
		return false, fmt.Errorf("looking for the keyring: %w", err)
	}
}

// mayBegin returns an ErrNoInstallation where there are no control data, unless there is no keyring either, as
// hasKeyring said before, and an installation is to be made.
func (s *Services) mayBegin(init, ring bool) error {
	switch {
	case ring:
		return fmt.Errorf("%w: the keyring %s is there, and the control data that belong to it are not, in %s. "+
			"Mount or name what holds them (--data, or the settings control and backends.%s), or restore them: of a SQLite folder that was copied the -wal files too. "+
			"If that keyring never had data, move it away and begin anew", ErrNoInstallation, s.cfg.KeyringPath(), s.where(), s.cfg.Control)
	case !init:
		return fmt.Errorf("%w in %s: mount or name the one that is meant (--data, or the settings control and backends.%s), "+
			"or make one with tenantry org create, tenantry init or tenantry serve --init", ErrNoInstallation, s.where(), s.cfg.Control)
	}
	return nil
}

// openKeyring reads the keyring. One is made only for an installation that begins: a new one cannot read what another
// encrypted, and a keyring without control data means that these were lost. The control data are claimed first, so that
// what a process that was killed in between, or another replica, has made is known for what it is.
func (s *Services) openKeyring(ctx context.Context, init bool) (*keyring.Keyring, error) {
	path := s.cfg.KeyringPath()
	open := keyring.Open
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		_ = f.Close() // nothing was written
	} else if !errors.Is(err, fs.ErrNotExist) {
		open = keyring.OpenReadOnly // something else maintains it, such as a mounted secret
	}
	control, err := s.store.Control(ctx)
	if err != nil {
		return nil, err
	}
	used, err := s.kinds.organizations.InUse(ctx, control)
	if err != nil {
		return nil, err
	}
	ring, err := open(path)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case used && missing:
		return nil, fmt.Errorf("the keyring %s is missing, but there is data that was encrypted with one; put it back, or copy it from another replica: without it encrypted values are lost", path)
	case used || err != nil && !missing:
		return ring, err
	}
	if err := s.claim(ctx, init); err != nil {
		return nil, err
	}
	s.made = true
	if ring, err = keyring.Create(path); errors.Is(err, fs.ErrExist) {
		return open(path) // another replica that starts now was quicker, or a start that was killed
	}
	return ring, err
}

// claim begins an installation, or goes on with one that was begun.
func (s *Services) claim(ctx context.Context, init bool) error {
	control, err := s.store.Control(ctx)
	if err != nil {
		return err
	}
	had, err := s.hasKeyring()
	if err != nil {
		return err
	}
	begun, err := s.kinds.organizations.Claimed(ctx, control)
	switch {
	case err != nil:
		return err
	case begun && init:
		return nil
	case begun:
		return fmt.Errorf("%w in %s: one was begun there and not finished; begin again with tenantry init or tenantry serve --init", ErrNoInstallation, s.where())
	}
	if err := s.mayBegin(init, had); err != nil {
		return err
	}
	return s.kinds.organizations.Claim(ctx, control)
}

// LookForFiles refuses to serve, or to make organizations, where a backend has lost the files of all organizations that
// live there, as where its folder is not mounted: whatever they asked would be answered as an outage. Where some are
// lost the others are served, see lookFor.
func (s *Services) LookForFiles(ctx context.Context) error {
	lost, reason, there := map[string]int{}, map[string]error{}, map[string]bool{}
	for after, looking := "", true; looking; {
		page, err := s.directory.List(ctx, after, lookAtOnce)
		if err != nil {
			return fmt.Errorf("looking for the data of organizations: %w", err)
		}
		looking = len(page) == lookAtOnce
		for i := range page {
			o := &page[i]
			after = o.Slug
			name := o.Home()
			if o.State == tenants.Removed || !s.store.HasBackend(name) || there[name] {
				continue
			}
			if err := s.store.FileMissing(o.OrgID, name); err != nil {
				lost[name]++
				reason[name] = err
			} else {
				there[name] = true
			}
		}
		looking = looking && len(there) < len(s.cfg.Backends)
	}
	var wrong []string
	for _, name := range s.store.Backends() {
		if lost[name] > 0 && !there[name] {
			wrong = append(wrong, fmt.Sprintf("backend %s (%s) has none of the %d that live there, for one: %v", name, s.cfg.BackendDir(name), lost[name], reason[name]))
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s. Mount or restore the folder; tenantry doctor names every organization, and tenantry org delete --now those that are to go",
		ErrNoFiles, strings.Join(wrong, "; "))
}
