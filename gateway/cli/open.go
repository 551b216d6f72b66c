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

// faultsOf returns the errors that were joined in err.
func faultsOf(err error) configFaults {
	var faults configFaults
	var joined interface{ Unwrap() []error }
	switch {
	case errors.As(err, &faults):
		return faults
	case errors.As(err, &joined):
		return joined.Unwrap()
	}
	return configFaults{err}
}

// load reads the settings. flags are the command's flags, by the name of their setting. Errors: configFaults.
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
	return cfg, faultsOf(err)
}

const (
	// inUseTimeout bounds the wait for other commands that use the data folder.
	inUseTimeout = 10 * time.Second
	inUsePoll    = 50 * time.Millisecond
)

// withClient calls do with a client that works on the data, through the server that holds the data folder or by holding
// the folder itself, and closes the client afterwards. If mayInit is set, it may make an installation.
func (p *program) withClient(
	ctx context.Context, cmd *cobra.Command, mayInit bool, do func(context.Context, *control.Client) error,
) error {
	cfg, err := p.load(nil)
	if err != nil {
		return err
	}
	c, end, err := p.connect(ctx, cfg, cmd.CommandPath(), mayInit)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, c), end())
}

// noteNewInstallation says where a command made an installation, because a mistyped folder or backend makes one by
// accident.
func (p *program) noteNewInstallation(cfg config.Config) {
	if cfg.Shared() {
		p.note("Note: there was no installation on backend %s, so a new one was created there; name another in the settings",
			cfg.Control)
		return
	}
	where := cfg.Data
	if abs, err := filepath.Abs(where); err == nil {
		where = abs
	}
	p.note("Note: there was no installation in %s, so a new one was created there; name another with --data", where)
}

// connect opens the data, or connects to the server that holds them. The caller calls the returned function when it is
// done with the client.
func (p *program) connect(
	ctx context.Context, cfg config.Config, command string, mayInit bool,
) (*control.Client, func() error, error) {
	var end func() error
	log := slog.New(slog.NewTextHandler(p.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := waitWhile(ctx, func() (*control.Client, error) {
		options := gateway.Options{Log: log, Version: version().Version, Holder: command, Init: mayInit}
		services, err := gateway.OpenServices(ctx, cfg, options)
		if err == nil && mayInit {
			if err = services.LookForFiles(ctx); err != nil {
				return nil, errors.Join(err, services.Close())
			}
		}
		if err == nil {
			if services.Made() {
				p.noteNewInstallation(cfg)
			}
			end = services.Close
			return services.Commands(), nil //nolint:contextcheck // it ends after ctx
		}
		if holder, _ := holderIn(err); holder.Control != "" {
			c, dialErr := control.Dial(ctx, holder.Control)
			if dialErr == nil {
				end = func() error { c.Close(); return nil }
				return c, nil
			}
			err = errors.Join(err, dialErr) // the server may be about to end, so the caller tries again
		}
		return nil, explainOpenError(cfg, err)
	}, func(err error) bool { _, inUse := holderIn(err); return inUse })
	return c, end, err
}

// holderIn returns the process that uses the data folder, if that is what an error says.
func holderIn(err error) (gateway.Holder, bool) {
	if inUse := new(gateway.InUseError); errors.As(err, &inUse) {
		return inUse.Holder, true
	}
	return gateway.Holder{}, false
}

// waitWhile calls open until it succeeds or returns an error for which it is not to wait. It gives up after inUseTimeout,
// or when ctx ends.
func waitWhile[T any](ctx context.Context, open func() (T, error), again func(error) bool) (T, error) {
	timeout := time.After(inUseTimeout)
	for {
		opened, err := open()
		if err == nil || !again(err) {
			return opened, err
		}
		select {
		case <-time.After(inUsePoll):
		case <-timeout:
			return opened, fmt.Errorf("%w (waited %s)", err, inUseTimeout)
		case <-ctx.Done():
			return opened, fmt.Errorf("%w: %w", err, ctx.Err())
		}
	}
}

// explainOpenError adds to an error what to do about data or an address that cannot be used.
func explainOpenError(cfg config.Config, err error) error {
	switch {
	case errors.Is(err, store.ErrNewer):
		return fmt.Errorf("the data folder %s was written by a newer version of tenantry than this one (%s), "+
			"which cannot read it; run that version, or restore a backup from before the upgrade: %w",
			cfg.Data, version().Version, err)
	case errors.Is(err, gateway.ErrListen):
		hint := "choose another with --listen or --admin-listen"
		holder, e := gateway.ReadHolder(cfg.Data)
		if e == nil && holder.Listen != "" && errors.Is(err, syscall.EADDRINUSE) &&
			strings.Contains(err.Error(), holder.Listen) {
			hint = fmt.Sprintf("%s uses this address and the data folder %s; stop it, or choose another folder and address",
				holder, cfg.Data)
		}
		if errors.Is(e, fs.ErrPermission) {
			hint = fmt.Sprintf("this user cannot read the data folder %s; run this as the user that owns it", cfg.Data)
		}
		return fmt.Errorf("%w; %s", err, hint)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; run this as the user that owns the data folder %s", err, cfg.Data)
	}
	return err
}

// missingOrg returns the usage error of a command that names no organization. It lists the organizations.
func (p *program) missingOrg(ctx context.Context, cmd *cobra.Command) error {
	var names []string
	err := p.withClient(ctx, cmd, false, func(ctx context.Context, c *control.Client) error {
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
		return usagef("name the organization with --org SLUG; tenantry org create creates one")
	case len(names) == 1:
		return usagef("name the organization: --org %s", names[0])
	}
	return usagef("name the organization with --org SLUG; there are: %s", strings.Join(names, ", "))
}
