// Package gateway is the front end: it wires every part, serves HTTP and ends cleanly. It
// is the only place that knows all parts, and the only importer of the HTTP framework.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway/middleware"
	"tenantry/operation"
)

// maxHeaderBytes bounds the headers of a request, the query string included.
const maxHeaderBytes = 160 << 10

// noteEvery lies between two rounds of storing what was noted beside requests.
const noteEvery = time.Minute

// Options are what a program embedding the App may set besides the configuration.
type Options struct {
	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // nil: time.Now
	// Version is told in the operations listener and the OpenAPI document.
	Version string
	// Holder says in the data folder's lock who holds it, such as "tenantry serve".
	Holder string
	// Init: where there is no installation one is made. Otherwise that is an ErrNoInstallation.
	Init bool
	// WaitForStore is how long a control backend that is a server may take to answer at the
	// start; 0: one attempt, of about two seconds.
	WaitForStore time.Duration
	// ReportReuse is how long rows of a shared report serve readers who ask the same; 0:
	// reports.DefaultReuse; negative: not at all.
	ReportReuse time.Duration
	// Leases are how long placements of organizations may be used; zero: store.DefaultLeases. All
	// replicas have the same. PasswordMemory is that of hashing a password in KiB; 0: the
	// default. Tests wait for less.
	Leases         store.Leases
	PasswordMemory uint32
	// RedisTimeout is how long a call of Redis may take; 0: 200 ms, and 100 ms where it
	// counts a request.
	RedisTimeout time.Duration
	// Observe, when set, is told of every call of a storage engine that has ended, before
	// its caller goes on.
	Observe func(store.Call)
	// Engines are opened besides those of Tenantry, by the names that the configuration's Engines has.
	Engines map[string]OpenEngine
	// Modules are served besides those of Tenantry.
	Modules []Module
}

// App is a gateway: New wires it and listens, Run serves, Close ends it.
type App struct {
	*Services
	rows    []operation.Row
	public  *http.Server
	admin   *http.Server
	publicL net.Listener
	adminL  net.Listener
	closing sync.Once
	down    sync.Map // names of dependencies that were down when last looked at
	err     error
}

// New opens the data folder and listens; nothing is served before Run. The error tells
// what to mend. Close must be called, also where Run never was.
func New(ctx context.Context, cfg config.Config, o Options) (*App, error) {
	listen, adminListen, err := listeners(ctx, cfg)
	if err != nil {
		return nil, err
	}
	services, err := OpenServices(ctx, cfg, o)
	if err != nil {
		closeAll(listen, adminListen)
		return nil, err
	}
	services.port = portOf(listen)
	if err := services.LookForFiles(ctx); err != nil {
		closeAll(listen, adminListen)
		return nil, errors.Join(err, services.Close()) //nolint:contextcheck // it ends after ctx
	}
	for _, d := range services.doubts() {
		services.warn(ctx, d)
	}
	app := &App{Services: services, publicL: listen, adminL: adminListen}
	if err := app.build(); err != nil {
		return nil, errors.Join(err, app.Close())
	}
	if err := services.lock.serve(ctx, app.Addr(), services.Control()); err != nil {
		return nil, errors.Join(err, app.Close())
	}
	return app, nil
}

func listeners(ctx context.Context, cfg config.Config) (public, admin net.Listener, err error) {
	var lc net.ListenConfig
	if public, err = lc.Listen(ctx, "tcp", cfg.Listen); err != nil {
		return nil, nil, fmt.Errorf("listen: %w", err)
	}
	if cfg.AdminListen != "" {
		if admin, err = lc.Listen(ctx, "tcp", cfg.AdminListen); err != nil {
			closeAll(public)
			return nil, nil, fmt.Errorf("admin_listen: %w", err)
		}
	}
	return public, admin, nil
}

func closeAll(listeners ...net.Listener) {
	for _, l := range listeners {
		if l != nil {
			_ = l.Close() // nothing was accepted on it
		}
	}
}

func portOf(l net.Listener) string {
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func (a *App) build() error {
	registry := prometheus.NewRegistry()
	a.measured.register(registry)
	a.measureEngines(registry)
	a.measureAnnouncer(registry)
	a.telemetry.Figures(registry)
	handler, rows, err := a.routes(registry)
	if err != nil {
		return err
	}
	a.rows = rows
	a.background.Every(noteEvery, "noting when keys were used", a.keys.FlushUses)
	a.background.Every(noteEvery, "noting what was asked", a.usage.Flush)
	a.background.Every(trashTick, "emptying the trash", a.keepTrashEmpty)
	a.watch()
	errorLog := slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)
	t := a.cfg.Timeouts
	a.public = &http.Server{
		Handler: handler, ReadHeaderTimeout: t.ReadHeader, ReadTimeout: t.Read, WriteTimeout: t.Write,
		IdleTimeout: t.Idle, MaxHeaderBytes: maxHeaderBytes, ErrorLog: errorLog,
	}
	middleware.Framing(a.public)
	a.admin = &http.Server{
		Handler: a.operations(registry), ReadHeaderTimeout: t.ReadHeader, ReadTimeout: t.Read, WriteTimeout: 2 * time.Minute, // a CPU profile takes 30 s
		IdleTimeout: t.Idle, MaxHeaderBytes: 16 << 10, ErrorLog: errorLog,
	}
	return nil
}

// Addr returns the address the gateway listens on.
func (a *App) Addr() net.Addr { return a.publicL.Addr() }

// AdminAddr returns the address of health, metrics and profiles, nil where it is off.
func (a *App) AdminAddr() net.Addr {
	if a.adminL == nil {
		return nil
	}
	return a.adminL.Addr()
}

// Operations returns the rows that are served.
func (a *App) Operations() []operation.Row { return slices.Clone(a.rows) }

// Run serves until ctx ends, then stops accepting and finishes running requests within
// the configured time. It returns nil after a clean stop.
func (a *App) Run(ctx context.Context) error {
	servers := map[*http.Server]net.Listener{a.public: middleware.Framed(a.publicL)}
	if a.adminL != nil {
		servers[a.admin] = a.adminL
	}
	failed := make(chan error, len(servers))
	var running sync.WaitGroup
	for server, listener := range servers {
		running.Go(func() {
			if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
				failed <- err
			}
		})
	}
	a.ready.Store(true)
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		err = fmt.Errorf("serving: %w", err)
	}
	a.ready.Store(false)
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.Timeouts.Shutdown)
	defer cancel()
	cut := make(chan error, len(servers))
	for server := range servers { // all at once: who takes a profile has no time of others
		running.Go(func() {
			e := server.Shutdown(stop)
			if e != nil {
				_ = server.Close() // cuts what would not end
				e = fmt.Errorf("requests were cut after %s: %w", a.cfg.Timeouts.Shutdown, e)
			}
			cut <- e
		})
	}
	running.Wait()
	for range servers {
		err = errors.Join(err, <-cut)
	}
	return err
}

// Close releases the listeners, the stores and the data folder. It may be called more
// than once; later calls return what the first did.
func (a *App) Close() error {
	a.closing.Do(func() {
		closeAll(a.publicL, a.adminL)
		a.err = a.Services.Close()
	})
	return a.err
}
