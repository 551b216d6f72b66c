package gateway

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tenantry/crypto/keyring"
	"tenantry/gateway/backup"
	"tenantry/tenants"
)

// Errors of a start. They are wrapped in errors that say what to do.
var (
	// ErrNoInstallation: there is no installation in the place that the settings name, or only a part of one.
	ErrNoInstallation = errors.New("there is no installation")
	// ErrNoFiles: the control data name organizations, but a backend has the files of none of them.
	ErrNoFiles = errors.New("the data of organizations are missing")
)

// Made reports whether this process made the installation.
func (s *Services) Made() bool { return s.made }

// controlLocation says where the control data are, for errors and logs.
func (s *Services) controlLocation() string {
	if s.cfg.Shared() {
		b := s.cfg.Backends[s.cfg.Control]
		return fmt.Sprintf("backend %s (%s, database %s)", s.cfg.Control, b.Engine, b.Database)
	}
	return absolute(s.cfg.BackendDir(s.cfg.Control))
}

// absolute returns the path as it is from everywhere, for errors and logs.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// checkBeforeOpening returns an ErrNoInstallation before anything is written if the control folder is empty and none
// may be made in it.
func (s *Services) checkBeforeOpening(init bool) error {
	if s.cfg.Shared() {
		return nil
	}
	keyring, err := s.hasKeyring()
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(s.cfg.BackendDir(s.cfg.Control))
	if len(entries) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil //nolint:nilerr // opening it reports the error
	}
	return s.checkMayInit(init, keyring)
}

// hasKeyring reports whether there is a keyring. It must be called before the control data are looked for: another
// replica that starts at the same time makes its keyring after the control data, so a keyring that was found before
// them belongs to control data that are lost.
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

// checkMayInit returns an ErrNoInstallation unless a new installation may be made: init is set and there was no
// keyring. Call it if there are no control data.
func (s *Services) checkMayInit(init, keyring bool) error {
	interrupted := backup.Restoring(s.cfg.BackendDir(s.cfg.Control))
	if _, err := os.Stat(interrupted); err == nil && !s.cfg.Shared() {
		return fmt.Errorf("%w yet: a backup is being restored, or that was interrupted: repeat tenantry restore, or remove %s to give it up",
			ErrNoInstallation, absolute(interrupted))
	}
	switch {
	case keyring:
		return fmt.Errorf("%w: the keyring %s is there, but the control data that belong to it are not in %s. "+
			"Mount or name the place that holds them (--data, or the settings control and backends.%s), or restore them: "+
			"a copy of a SQLite folder needs its -wal files too. "+
			"If that keyring never had data, move it away and begin again",
			ErrNoInstallation, absolute(s.cfg.KeyringPath()), s.controlLocation(), s.cfg.Control)
	case !init:
		return fmt.Errorf("%w in %s: mount or name the right one (--data, or the settings control and backends.%s), "+
			"or make one with tenantry org create, tenantry init or tenantry serve --init", ErrNoInstallation, s.controlLocation(), s.cfg.Control)
	}
	return nil
}

// openKeyring opens the keyring, or creates one for a new installation. A new keyring cannot read what another
// encrypted, and a keyring without control data means that the data are lost, so one is created only if there are
// neither.
//
// The control data are claimed before the keyring is created. A start that finds the claim without a keyring can go on,
// whether the claim was made by a process that was killed or by another replica.
func (s *Services) openKeyring(ctx context.Context, init bool) (*keyring.Keyring, error) {
	path := absolute(s.cfg.KeyringPath())
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
	if restoring, err := s.kinds.organizations.Restoring(ctx, control); err != nil {
		return nil, err
	} else if restoring {
		return nil, fmt.Errorf("%w in %s yet: a backup is being restored there, or that was interrupted: repeat tenantry restore",
			ErrNoInstallation, s.controlLocation())
	}
	used, err := s.kinds.organizations.InUse(ctx, control)
	if err != nil {
		return nil, err
	}
	ring, err := open(path)
	switch missing := errors.Is(err, fs.ErrNotExist); {
	case used && missing:
		return nil, fmt.Errorf("the keyring %s is missing, but there is data that was encrypted with one; "+
			"put it back, or copy it from another replica: without it encrypted values are lost", path)
	case used || err != nil && !missing:
		return ring, err
	}
	if err := s.claim(ctx, init); err != nil {
		return nil, err
	}
	s.made = true
	if ring, err = keyring.Create(path); errors.Is(err, fs.ErrExist) {
		return open(path) // made by another replica at the same time, or by a start that was killed
	}
	return ring, err
}

// claim begins an installation, or continues one that was begun and not finished.
func (s *Services) claim(ctx context.Context, init bool) error {
	control, err := s.store.Control(ctx)
	if err != nil {
		return err
	}
	hasKeyring, err := s.hasKeyring()
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
		return fmt.Errorf("%w in %s: one was begun there and not finished; begin again with tenantry init or tenantry serve --init",
			ErrNoInstallation, s.controlLocation())
	}
	if err := s.checkMayInit(init, hasKeyring); err != nil {
		return err
	}
	return s.kinds.organizations.Claim(ctx, control)
}

// LookForFiles returns an ErrNoFiles if a backend has the files of none of the organizations that live on it, such as
// when its folder is not mounted: every request would be answered as an outage. If only some are missing, the others
// are served; lookFor reports the missing ones later.
func (s *Services) LookForFiles(ctx context.Context) error {
	lost, reason, found := map[string]int{}, map[string]error{}, map[string]bool{}
	for after, looking := "", true; looking; {
		page, err := s.directory.List(ctx, after, lookPage)
		if err != nil {
			return fmt.Errorf("looking for the data of organizations: %w", err)
		}
		looking = len(page) == lookPage
		for i := range page {
			o := &page[i]
			after = o.Slug
			name := o.Home()
			if o.State == tenants.Removed || !s.store.HasBackend(name) || found[name] {
				continue
			}
			if err := s.store.FileMissing(o.OrgID, o.Place); err != nil {
				lost[name]++
				reason[name] = err
			} else {
				found[name] = true
			}
		}
		looking = looking && len(found) < len(s.cfg.Backends)
	}
	var failures []string
	for _, name := range s.store.Backends() {
		if lost[name] > 0 && !found[name] {
			failures = append(failures, fmt.Sprintf("backend %s (%s) has none of its %d organizations, for example: %v",
				name, absolute(s.cfg.BackendDir(name)), lost[name], reason[name]))
		}
	}
	if len(failures) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %s. Mount or restore the folder; tenantry doctor names every organization, "+
		"and tenantry org delete --now deletes those that are no longer wanted", ErrNoFiles, strings.Join(failures, "; "))
}
