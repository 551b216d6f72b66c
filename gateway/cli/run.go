package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/handover"
	"tenantry/gateway/logging"
)

// storeWait bounds the wait at the start for a database server that may be starting at the same time.
const storeWait = 30 * time.Second

// errTakenOver is why a gateway ends that has a successor.
var errTakenOver = errors.New("another process has taken over")

// service is a gateway as a command runs it.
type service struct {
	cfg      config.Config
	options  gateway.Options
	takeover bool // from the server that uses the data folder
	// reload returns the settings as they are now; nil: they are not read again.
	reload func() (config.Config, error)
	// ready is called once the gateway accepts connections. Its error ends the gateway.
	ready func(context.Context, *gateway.App) error

	log    *slog.Logger
	output *logging.Output
}

// runGateway runs the gateway until ctx ends or another process takes over. It waits for other commands that use the
// data folder, but not for another server.
func (p *program) runGateway(ctx context.Context, s service) error {
	s.log, s.output = logging.New(p.stderr, s.cfg.Log)
	defer func() { _ = s.output.Close() }() // a failure to write the log cannot be reported
	s.options.Log, s.options.Version, s.options.WaitForStore = s.log, version().Version, storeWait
	s.options.Hurry = p.signals.hurry
	defer func() { _ = s.options.Inherited.Sockets.Close() }() // those that were not used
	var predecessor *handover.Predecessor
	var lost bool // the predecessor has ended, and its lock and addresses may be released a moment later
	if s.takeover {
		var err error
		if predecessor, lost, err = s.takeOver(ctx); err != nil {
			return explainOpenError(s.cfg, err)
		}
	}
	var told sync.Once
	for {
		var since time.Time
		if s.options.Inherited.Sockets[handover.HTTP] != nil {
			since = s.options.Inherited.Sockets[handover.HTTP].Since
		}
		app, err := waitWhile(ctx,
			func() (*gateway.App, error) { return gateway.New(ctx, s.cfg, s.options) },
			func(err error) bool {
				held := errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, store.ErrInUse)
				holder, inUse := holderIn(err)
				if lost && held {
					told.Do(func() { s.log.InfoContext(ctx, "waiting for the other server to end", "error", err) })
				}
				return lost && held || inUse && (holder.Control == "" || s.takeover)
			})
		lost = false
		if err != nil {
			err = explainOpenError(s.cfg, err)
			if predecessor != nil {
				predecessor.Fail(err)
			}
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				s.log.InfoContext(ctx, "the gateway has ended before it served", "cause", context.Cause(ctx).Error())
				return nil
			}
			return err
		}
		_ = s.options.Inherited.Sockets.Close() // those of other addresses: clients are refused there
		s.options.Inherited = handover.Estate{}
		if predecessor != nil {
			predecessor.Ready()
			predecessor = nil
		}
		s.log.InfoContext(ctx, "the gateway is ready", "version", s.options.Version, "listen", app.Addr().String())
		if !since.IsZero() {
			s.log.InfoContext(ctx, "requests waited", "for", time.Since(since).Round(time.Millisecond).String())
		}
		err = s.run(ctx, app, p.signals.reload)
		left, failed := app.HandOver(ctx)
		if failed == nil || ctx.Err() != nil {
			_ = left.Sockets.Close() // nobody will accept on them
			cause := cmp.Or(err, context.Cause(ctx), errTakenOver)
			s.log.InfoContext(ctx, "the gateway has ended", "cause", cause.Error())
			return err
		}
		s.log.WarnContext(ctx, "the other process did not take over, so this one serves again", "error", failed)
		s.cfg, s.takeover, s.options.Inherited, s.options.Init = app.Settings(), true, left, false
		s.ready = func(context.Context, *gateway.App) error { return nil }
	}
}

// run runs an App to its end.
func (s *service) run(ctx context.Context, app *gateway.App, reload <-chan struct{}) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- app.Run(running) }()
	err := s.ready(running, app)
	if err != nil {
		stop()
	}
	for {
		select {
		case <-reload:
			s.readAgain(ctx, app)
		case e := <-ended:
			return errors.Join(err, e, app.Close()) //nolint:contextcheck // it ends after ctx
		}
	}
}

// readAgain applies the settings as they are now. A mistake in them changes nothing.
func (s *service) readAgain(ctx context.Context, app *gateway.App) {
	if s.reload == nil {
		return
	}
	next, err := s.reload()
	var changed, remaining []string
	if err == nil {
		changed, remaining, err = app.Reload(next)
	}
	if err != nil {
		for _, fault := range faultsOf(err) {
			s.log.ErrorContext(ctx, "the settings were not read again, and nothing has changed", "error", fault)
		}
		return
	}
	tell := func() {
		s.log.InfoContext(ctx, "the settings were read again", "changed", changed)
		if len(remaining) > 0 {
			s.log.WarnContext(ctx, "some settings take effect only at the next start", "settings", remaining)
		}
	}
	told := s.log.Enabled(ctx, slog.LevelInfo)
	if told { // the new level may not have the lines any more
		tell()
	}
	s.output.SetLevel(next.Log.Level)
	if !told {
		tell()
	}
}

// takeOver asks the server that uses the data folder to hand over, and adds what it leaves to the options. It returns
// nil if there is no such server, or if it ended before it could; lost says that there was one.
func (s *service) takeOver(ctx context.Context) (_ *handover.Predecessor, lost bool, err error) {
	holder, err := gateway.ReadHolder(s.cfg.Data)
	switch {
	case errors.Is(err, fs.ErrPermission): // the folder belongs to another user, and so does its server
		return nil, false, err
	case err != nil || holder.Control == "":
		s.log.InfoContext(ctx, "there is no server to take over from")
		return nil, false, nil // the lock of the folder decides whether there is one
	}
	predecessor, err := handover.Ask(ctx, holder.Control)
	switch {
	case errors.Is(err, handover.ErrRefused):
		return nil, false, fmt.Errorf("%s: %w", holder, err)
	case errors.Is(err, fs.ErrPermission):
		return nil, false, fmt.Errorf("taking over from %s: %w", holder, err)
	case err != nil:
		s.log.InfoContext(ctx, "there is no server to take over from", "error", err)
		return nil, true, nil
	}
	s.log.InfoContext(ctx, "taking over", "from", holder.String())
	slow := time.AfterFunc(gateway.SlowTakeover, func() {
		s.log.WarnContext(ctx, "the other server has not handed over yet: its running requests and commands end first",
			"process", holder.PID, "advice", "if it hangs, kill it, and this process starts without it")
	})
	estate, err := predecessor.Estate(ctx)
	slow.Stop()
	if err != nil {
		predecessor.Fail(err)
		if ctx.Err() != nil {
			return nil, false, err
		}
		s.log.WarnContext(ctx, "the other server has not handed over; starting without it", "error", err)
		return nil, true, nil
	}
	_ = s.options.Inherited.Sockets.Close() // those of a service manager; the other server has its own
	s.options.Inherited = estate
	return predecessor, false, nil
}
