// Package gateway is the front end: it wires all parts together, serves HTTP and shuts down in order. It is the only
// package that knows all parts, and the only importer of the HTTP framework.
package gateway

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway/handover"
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
	// ReportTimeout bounds a run of a report; 0: reports.DefaultRunTimeout.
	ReportTimeout time.Duration
	// TrashInterval is the time between two turns of emptying the trash that this process tries to take; 0: a minute;
	// negative: it takes those of EmptyTrash alone.
	TrashInterval time.Duration
	// HeadInterval is the time between two rounds in which this process signs heads of audit logs; 0: 15 s; negative:
	// only the hourly round signs them.
	HeadInterval time.Duration
	// Unsent: this process sends no events to webhooks, only what callers have it send.
	Unsent bool
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
	// Inherited is what another process has left. New takes the sockets for the addresses of the settings, and returns
	// them if it fails; the caller closes the others.
	Inherited handover.Estate
	// Hurry ends the wait of timeouts.drain when it is closed.
	Hurry <-chan struct{}
}

// App is a gateway: New wires it and listens, Run serves, Close releases everything.
type App struct {
	*Services
	rows    []operation.Row
	public  *http.Server
	admin   *http.Server
	publicL *handover.Listener
	adminL  *handover.Listener // nil: off
	hurry   <-chan struct{}
	// headInterval is Options.HeadInterval, or the default.
	headInterval time.Duration
	// trashInterval is Options.TrashInterval, or the default.
	trashInterval time.Duration
	unsent        bool // Options.Unsent
	phase         atomicPhase
	down          sync.Map // names of the dependencies that were down at the last check
	// leaving is set while connections are to be closed after their next answer.
	leaving    atomic.Bool
	asked      atomic.Bool              // a successor has asked
	successors chan *handover.Successor // at most one

	closing   sync.Once
	err       error // of Close
	successor *handover.Successor
	estate    handover.Estate // for the successor
}

// New opens the data folder and listens; nothing is served before Run. Errors say what to correct. The caller must call
// Close, even if Run was never called.
func New(ctx context.Context, cfg config.Config, o Options) (_ *App, err error) {
	app := &App{hurry: o.Hurry, successors: make(chan *handover.Successor, 1)}
	defer func() {
		if err != nil {
			app.returnSockets(o.Inherited.Sockets)
		}
	}()
	if err := app.listen(ctx, cfg, o.Inherited.Sockets); err != nil {
		return nil, err
	}
	services, err := OpenServices(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	app.Services = services
	app.unsent = o.Unsent
	app.headInterval, app.trashInterval = cmp.Or(o.HeadInterval, headTick), cmp.Or(o.TrashInterval, trashTick)
	services.port = portOf(app.publicL)
	if err := errors.Join(services.LookForFiles(ctx), services.checkBucket(ctx)); err != nil {
		return nil, errors.Join(err, services.Close()) //nolint:contextcheck // Close must run even if ctx has ended
	}
	for _, d := range services.settingWarnings() {
		services.logWarning(ctx, d)
	}
	if err := app.build(); err != nil {
		return nil, errors.Join(err, services.Close()) //nolint:contextcheck // Close must run even if ctx has ended
	}
	if err := services.lock.serve(ctx, app.Addr(), app.controlHandler()); err != nil {
		return nil, errors.Join(err, services.Close()) //nolint:contextcheck // Close must run even if ctx has ended
	}
	return app, nil
}

func (a *App) build() error {
	registry := prometheus.NewRegistry()
	a.metrics.register(registry)
	a.measureEngines(registry)
	a.measureAnnouncer(registry)
	a.measureLog(registry)
	a.measureMail(registry)
	a.measureWebhooks(registry)
	a.telemetry.Metrics(registry)
	handler, rows, err := a.routes(registry)
	if err != nil {
		return err
	}
	a.rows = rows
	a.background.Every(flushInterval, "storing uses of keys", a.keys.FlushUses)
	a.background.Every(flushInterval, "storing usage", a.usage.Flush)
	if a.trashInterval > 0 {
		a.background.Every(a.trashInterval, "emptying the trash", a.takeTrashTurn)
	}
	a.sendMail()
	a.mailReports()
	if !a.unsent {
		a.webhooks.Start(a.background)
	}
	if a.cfg.Backup.To != "" {
		a.background.Go("backing up", a.backUpOnTime)
	}
	if a.headInterval > 0 {
		a.background.Every(a.headInterval, "signing the heads of audit logs", a.SignHeads)
	}
	a.watch()
	errorLog := slog.NewLogLogger(a.log.Handler(), slog.LevelWarn)
	t := a.cfg.Timeouts
	a.public = &http.Server{
		Handler: a.announceClose(handler), ReadHeaderTimeout: t.ReadHeader, ReadTimeout: t.Read,
		WriteTimeout: t.Write, IdleTimeout: t.Idle, MaxHeaderBytes: maxHeaderBytes, ErrorLog: errorLog,
	}
	middleware.Framing(a.public)
	a.admin = &http.Server{
		Handler: a.adminHandler(registry), ReadHeaderTimeout: t.ReadHeader, ReadTimeout: t.Read,
		WriteTimeout: 2 * time.Minute, // a CPU profile takes 30 s
		IdleTimeout:  t.Idle, MaxHeaderBytes: 16 << 10, ErrorLog: errorLog,
	}
	handover.Watch(a.public)
	handover.Watch(a.admin)
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
