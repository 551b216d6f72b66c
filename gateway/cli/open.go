package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/tenants"
)

// configFaults are the faults of a configuration.
type configFaults []error

func (f configFaults) Error() string { return errors.Join(f...).Error() }

// load reads the settings; flags are those of the command by the setting's name.
func (p *program) load(flags map[string]string) (config.Config, error) {
	if flags == nil {
		flags = map[string]string{}
	}
	if p.data != "" {
		flags["data"] = p.data
	}
	cfg, err := config.Load(config.Source{File: p.configFile, Environ: p.environ, Flags: flags})
	if err == nil {
		return cfg, nil
	}
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return cfg, configFaults(joined.Unwrap())
	}
	return cfg, configFaults{err}
}

const (
	// busyFor is how long a command waits for others that use the data folder.
	busyFor   = 10 * time.Second
	busyPause = 50 * time.Millisecond
)

// with opens the way to the data, lets do work and closes it again: through the server
// that holds the data folder, or by holding the folder itself.
// A command that begins may make an installation.
func (p *program) with(ctx context.Context, cmd *cobra.Command, begins bool, do func(context.Context, *control.Client) error) error {
	cfg, err := p.load(nil)
	if err != nil {
		return err
	}
	c, end, err := p.reach(ctx, cfg, cmd.CommandPath(), begins)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, c), end())
}

// began tells that a command made an installation, which is seldom what is wanted where
// there is one already.
func (p *program) began(cfg config.Config) {
	if cfg.Shared() {
		p.note("Note: there was no installation on backend %s, so a new one was made there; name another in the settings", cfg.Control)
		return
	}
	where := cfg.Data
	if abs, err := filepath.Abs(where); err == nil {
		where = abs
	}
	p.note("Note: there was no installation in %s, so a new one was made there; name another with --data", where)
}

// reach opens the data, or the way to the server that has it. What it returns besides is called in the end.
func (p *program) reach(ctx context.Context, cfg config.Config, command string, begins bool) (*control.Client, func() error, error) {
	var end func() error
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := whileInUse(ctx, func() (*control.Client, error) {
		services, err := gateway.OpenServices(ctx, cfg, gateway.Options{Log: log, Version: version().Version, Holder: command, Init: begins})
		if err == nil && begins {
			if err = services.LookForFiles(ctx); err != nil {
				return nil, errors.Join(err, services.Close())
			}
		}
		if err == nil {
			if services.Made() {
				p.began(cfg)
			}
			end = services.Close
			return services.Commands(), nil //nolint:contextcheck // it ends after ctx
		}
		if inUse := new(gateway.InUseError); errors.As(err, &inUse) && inUse.Holder.Control != "" {
			c, dialErr := control.Dial(ctx, inUse.Holder.Control)
			if dialErr == nil {
				end = func() error { c.Close(); return nil }
				return c, nil
			}
			err = errors.Join(err, dialErr) // it may be about to end
		}
		return nil, opening(cfg, err)
	}, func(gateway.Holder) bool { return true })
	return c, end, err
}

// whileInUse opens the data folder again and again while it is in use by what is worth to wait for, and
// returns an error once that takes too long.
func whileInUse[T any](ctx context.Context, open func() (T, error), worth func(gateway.Holder) bool) (T, error) {
	late := time.After(busyFor)
	for {
		opened, err := open()
		var inUse *gateway.InUseError
		if !errors.As(err, &inUse) || !worth(inUse.Holder) {
			return opened, err
		}
		select {
		case <-time.After(busyPause):
		case <-late:
			return opened, fmt.Errorf("%w (waited %s for it)", err, busyFor)
		case <-ctx.Done():
			return opened, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// opening says what to do where the data or an address cannot be used.
func opening(cfg config.Config, err error) error {
	switch {
	case errors.Is(err, store.ErrNewer):
		return fmt.Errorf("the data folder %s was written by a newer version of tenantry than this one (%s), which cannot read it; run that version, or restore a backup from before the upgrade: %w",
			cfg.Data, version().Version, err)
	case errors.Is(err, syscall.EADDRINUSE):
		hint := "choose another with --listen or --admin-listen"
		if holder, e := gateway.ReadHolder(cfg.Data); e == nil && holder.Listen != "" && strings.Contains(err.Error(), holder.Listen) {
			hint = fmt.Sprintf("%s has it, and the data folder %s; stop it, or choose another folder and address", holder, cfg.Data)
		}
		return fmt.Errorf("%w; %s", err, hint)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run this as the user that owns the data folder %s", err, cfg.Data)
	}
	return err
}

// whichOrg says that an organization must be named, and which there are.
func (p *program) whichOrg(ctx context.Context, cmd *cobra.Command) error {
	var names []string
	err := p.with(ctx, cmd, false, func(ctx context.Context, c *control.Client) error {
		found, err := control.Call[[]control.Organization](ctx, c, "org.list", control.OrganizationPage{Limit: 10})
		for _, o := range found {
			if o.State != string(tenants.Removed) && o.State != string(tenants.Deleted) {
				names = append(names, o.Slug)
			}
		}
		return err
	})
	switch {
	case err != nil || len(names) == 0:
		return usagef("name the organization with --org SLUG; tenantry org create makes one")
	case len(names) == 1:
		return usagef("name the organization: --org %s", names[0])
	}
	return usagef("name the organization with --org SLUG; there are: %s", strings.Join(names, ", "))
}
