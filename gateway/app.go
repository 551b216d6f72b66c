// Package gateway is the front end: it wires all parts together, serves HTTP and shuts down in order. It is the only
// package that knows all parts, and the only importer of the HTTP framework.
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

// flushInterval is the interval at which uses of keys and counts of requests are stored.
const flushInterval = time.Minute

// Options are the settings of an App that are not part of the configuration. The zero value is usable.
type Options struct {
	Log *slog.Logger     // nil: nothing is logged
	Now func() time.Time // nil: time.Now
	// Version is shown in the OpenAPI document and sent with traces and metrics; empty: "development".
	Version string
	// Holder names this process in the lock of the data folder, such as "tenantry serve".
	Holder string
	// Init makes an installation if there is none. Without it, a missing installation is an ErrNoInstallation.
	Init bool
	// WaitForStore is how long to wait at the start for a control backend that is a server; 0: one attempt, of about
	// two seconds.
	WaitForStore time.Duration
	// ReportReuse is how long the rows of a shared report are reused for the same query; 0: reports.DefaultReuse;
	// negative: never.
	ReportReuse time.Duration
	// Leases are how long the placement of an organization may be used; zero: store.DefaultLeases. It must be the same
	// on all replicas.
	Leases store.Leases
	// PasswordMemory is the memory for hashing a password, in KiB; 0: the default. Tests set less, to be faster.
	PasswordMemory uint32
	// RedisTimeout bounds a call of Redis; 0: 200 ms, and 100 ms for counting a request against limits.
	RedisTimeout time.Duration
	// Observe, when set, is called after each call of a storage engine, before its result is returned; possibly
	// concurrently.
	Observe func(store.Call)
	// Engines are storage engines besides those of Tenantry, by their names in the settings.
	Engines map[string]OpenEngine
	// Modules are served besides those of Tenantry.
	Modules []Module
}

// App is a gateway: New wires it and listens, Run serves, Close releases everything.
type App struct {
	*Services
	rows    []operation.Row
	public  *http.Server
	admin   *http.Server
	publicL net.Listener
	adminL  net.Listener
	closing sync.Once
	down    sync.Map // names of the dependencies that were down at the last check
	err     error
}

// New opens the data folder and listens; nothing is served before Run. Errors say what to correct. The caller must call
// Close, even if Run was never called.
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
	if err := errors.Join(services.LookForFiles(ctx), services.checkBucket(ctx)); err != nil {
		closeAll(listen, adminListen)
		return nil, errors.Join(err, services.Close()) //nolint:contextcheck // Close must run even if ctx has ended
	}
	for _, d := range services.settingWarnings() {
		services.logWarning(ctx, d)
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
		return nil, nil, listenError("listen", cfg.Listen, err)
	}
	if cfg.AdminListen != "" {
		if admin, err = lc.Listen(ctx, "tcp", cfg.AdminListen); err != nil {
			closeAll(public)
			return nil, nil, listenError("admin_listen", cfg.AdminListen, err)
		}
	}
	return public, admin, nil
}

// ErrListen: an address of the settings cannot be listened on.
var ErrListen = errors.New("cannot listen")

// listenError names the setting and its address once; err is of net.ListenConfig.
func listenError(setting, address string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var invalid *net.AddrError
	if errors.As(err, &invalid) {
		err = errors.New(invalid.Err)
	}
	return fmt.Errorf("%s: %w on %s: %w", setting, ErrListen, address, err)
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
	a.metrics.register(registry)
	a.measureEngines(registry)
	a.measureAnnouncer(registry)
	a.telemetry.Metrics(registry)
	handler, rows, err := a.routes(registry)
	if err != nil {
		return err
	}
	a.rows = rows
	a.background.Every(flushInterval, "storing uses of keys", a.keys.FlushUses)
	a.background.Every(flushInterval, "storing usage", a.usage.Flush)
	a.background.Every(trashTick, "emptying the trash", a.takeTrashTurn)
	if a.cfg.Backup.To != "" {
		a.background.Go("backing up", a.backUpOnTime)
	}
	a.watch()
	errorLog := slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)
	t := a.cfg.Timeouts
	a.public = &http.Server{
		Handler: handler, ReadHeaderTimeout: t.ReadHeader, ReadTimeout: t.Read, WriteTimeout: t.Write,
		IdleTimeout: t.Idle, MaxHeaderBytes: maxHeaderBytes, ErrorLog: errorLog,
	}
	middleware.Framing(a.public)
	a.admin = &http.Server{
		Handler: a.adminHandler(registry), ReadHeaderTimeout: t.ReadHeader, ReadTimeout: t.Read,
		WriteTimeout: 2 * time.Minute, // a CPU profile takes 30 s
		IdleTimeout:  t.Idle, MaxHeaderBytes: 16 << 10, ErrorLog: errorLog,
	}
	return nil
}

// Addr returns the address the gateway listens on.
func (a *App) Addr() net.Addr { return a.publicL.Addr() }

// AdminAddr returns the address of the admin listener (health, metrics, profiles), or nil if it is off.
func (a *App) AdminAddr() net.Addr {
	if a.adminL == nil {
		return nil
	}
	return a.adminL.Addr()
}

// Operations returns the rows of the operations that are served.
func (a *App) Operations() []operation.Row { return slices.Clone(a.rows) }

// Run serves until ctx ends, then stops accepting connections and waits for running requests, at most
// timeouts.shutdown. It returns nil after a clean stop.
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
	for server := range servers { // at once: a long profile must not use up the time of requests
		running.Go(func() {
			e := server.Shutdown(stop)
			if e != nil {
				_ = server.Close() // cuts the requests still running
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

// Close releases the listeners, the stores and the data folder. Later calls return the result of the first.
func (a *App) Close() error {
	a.closing.Do(func() {
		closeAll(a.publicL, a.adminL)
		a.err = a.Services.Close()
	})
	return a.err
}
