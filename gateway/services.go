package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/crypto/keyring"
	"tenantry/gateway/backup"
	"tenantry/gateway/telemetry"
	"tenantry/internal/background"
	"tenantry/internal/request"
	"tenantry/modules/audit"
	"tenantry/modules/events"
	"tenantry/modules/files"
	"tenantry/modules/files/contents"
	"tenantry/modules/forms"
	"tenantry/modules/imports"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/mail"
	"tenantry/modules/people"
	"tenantry/modules/usage"
	"tenantry/modules/webhooks"
	"tenantry/operation/idempotency"
	"tenantry/reports"
	"tenantry/reports/schedules"
	"tenantry/tenants"
	"tenantry/tenants/announce"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/sessions"
)

// Services are the parts of a gateway without its listeners. Commands work on them.
type Services struct {
	cfg            config.Config
	log            *slog.Logger
	requests       slog.Handler // gets a line for each request; nil: off
	now            func() time.Time
	reportReuse    time.Duration // how long rows of shared reports are reused
	reportTimeout  time.Duration // of a run; 0: the default
	passwordMemory uint32
	redisTimeout   time.Duration
	version        string
	made           bool                          // this process made the installation
	current        atomic.Pointer[config.Config] // cfg, with the settings that were read again
	proxied        atomic.Bool                   // a request came from a proxy that is not trusted

	background *background.Work
	lock       *folderLock
	engines    engines
	metrics    *storeMetrics
	telemetry  *telemetry.Telemetry // nil: off
	store      *store.Store
	bucket     blobs.Bucket // of the bytes of files
	pages      *backup.Log  // the log of changes; nil: off
	placed     atomic.Bool  // the place of backups has been seen with the mark of this installation
	keyring    *keyring.Keyring
	localRedis *localredis.Server
	redis      redisconn.Client

	directory    *tenants.Directory
	announcer    *announce.Announcer // nil if Redis is inside the process: no other replica could listen
	people       *identity.Service
	keys         *keys.Service
	sessions     *sessions.Service
	limiter      *limits.Limiter
	audit        *audit.Log
	seals        *audit.Seals
	heads        *audit.Heads
	events       *events.Module
	webhooks     *webhooks.Module
	schedules    *schedules.Module
	sends        *sendMetrics
	idempotency  *idempotency.Log
	usage        *usage.Meter
	kinds        kinds
	modules      []Module
	peopleModule *people.Module
	reports      *reports.Module
	forms        *forms.Module
	contents     *contents.Keeper
	files        *files.Module
	transfer     *bundle.Service
	imports      *imports.Service
	mails        *mail.Module
	port         string // of the public listener, for addresses in answers
}

// kinds are the kinds of records in the control data.
type kinds struct {
	organizations tenants.Kinds
	people        identity.Kinds
	keys          keys.Kinds
}

func newKinds() kinds { return kinds{tenants.NewKinds(), identity.NewKinds(), keys.NewKinds()} }

func (k kinds) specs() []*store.Spec {
	return slices.Concat(k.organizations.Specs(), record.Specs(k.people.Kept()), k.keys.Specs())
}

// OpenServices locks the data folder and opens everything but the listeners. The caller must call Close. Errors:
// *InUseError, store.ErrNewer, and faults of the folder, the keyring, the bucket, Redis or the settings of mail, each
// saying how to correct it.
func OpenServices(ctx context.Context, cfg config.Config, o Options) (_ *Services, err error) {
	s := &Services{
		cfg: cfg, log: o.Log, now: o.Now, reportReuse: o.ReportReuse, reportTimeout: o.ReportTimeout,
		passwordMemory: o.PasswordMemory, redisTimeout: o.RedisTimeout, kinds: newKinds(), audit: audit.New(),
		version: cmp.Or(o.Version, "development"),
	}
	s.current.Store(&cfg)
	_, s.port, _ = net.SplitHostPort(cfg.Listen)
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if cfg.Log.Requests {
		s.requests = s.log.Handler()
	}
	s.log = slog.New(request.Log(s.log.Handler()))
	s.background = background.New(s.log)
	if s.telemetry, err = telemetry.Open(cfg.Telemetry, s.version, s.log); err != nil {
		return nil, err
	}
	for _, folder := range folders(&s.cfg) {
		if _, err = checkFolder(folder); err != nil {
			return nil, err
		}
	}
	if err = s.checkBeforeOpening(o.Init); err != nil {
		return nil, err
	}
	if s.lock, err = lockFolder(cfg.Data, o.Holder, s.now()); err != nil {
		return nil, err
	}
	if err = s.openEngines(ctx, o.Engines); err != nil {
		return nil, err
	}
	s.logChanges(ctx)
	s.metrics = newStoreMetrics()
	s.metrics.observer, s.metrics.traces = o.Observe, s.telemetry
	s.store = store.New(store.Options{
		Backends: s.engines, ControlBackend: cfg.Control, Control: append(s.kinds.specs(), s.audit.Specs()...),
		Now: o.Now, Observe: s.metrics.observe, Damage: s.noteDamage, Unreadable: s.noteUnreadable, Leases: o.Leases,
	})
	if err = s.awaitControl(ctx, o.WaitForStore, o.Init); err != nil {
		return nil, err
	}
	if s.keyring, err = s.openKeyring(ctx, o.Init); err != nil {
		return nil, err
	}
	if err = s.openBucket(ctx); err != nil {
		return nil, err
	}
	if err = s.openRedis(ctx, o.Inherited.Memory); err != nil {
		return nil, err
	}
	if err = s.openIdentity(ctx); err != nil {
		return nil, err
	}
	s.beginLog()
	for _, d := range s.store.Damaged() { // found by an earlier process
		s.noteDamage(d, false)
	}
	if err = s.openModules(o.Modules); err != nil {
		return nil, err
	}
	return s, nil
}

// settings returns the settings in force. Those that Reload does not change are also in cfg.
func (s *Services) settings() *config.Config { return s.current.Load() }

// Settings returns the settings in force.
func (s *Services) Settings() config.Config { return *s.settings() }

// Reload applies the settings of config.Reloadable while the gateway serves, and returns the names of those that
// changed, and of the other settings that differ. Those take effect at the next start. After an error nothing has
// changed.
func (s *Services) Reload(next config.Config) (changed, remaining []string, err error) {
	merged, changed, remaining, err := s.settings().Reload(next)
	if err != nil {
		return nil, nil, err
	}
	s.current.Store(&merged)
	s.limiter.SetDefaults(merged.Limits.Set())
	return changed, remaining, nil
}

// baseURL returns the address of an organization, for links.
func (s *Services) baseURL(slug string) string { return s.cfg.OrganizationURL(slug, s.port) }

// awaitControl opens the control workspace, which everything else needs. It tries a database server that is still
// starting again until limit has passed. It makes the workspace only if checkMayInit permits it. Error:
// ErrNoInstallation.
func (s *Services) awaitControl(ctx context.Context, limit time.Duration, init bool) error {
	started, waiting := time.Now(), false
	for {
		keyring, err := s.hasKeyring()
		exists := false
		if err == nil {
			exists, err = s.store.HasControl(ctx)
		}
		if err == nil && !exists {
			err = s.checkMayInit(init, keyring)
		}
		if err == nil {
			_, err = s.store.Control(ctx)
		}
		switch {
		case errors.Is(err, ErrNoInstallation):
			return err
		case err == nil && waiting:
			s.log.InfoContext(ctx, "the control backend answers",
				"backend", s.cfg.Control, "waited", time.Since(started).Round(time.Millisecond).String())
			return nil
		case err == nil || !s.cfg.Shared() || ctx.Err() != nil:
			return err
		case !errors.Is(err, store.ErrUnavailable):
			return fmt.Errorf("backend %s, which holds organizations, people and keys: %w", s.cfg.Control, err)
		case time.Since(started) >= limit:
			return fmt.Errorf("the backend %s, which holds organizations, people and keys, does not answer (tried for %s): "+
				"start its server, and check backends.%s.uri and the network between: %w",
				s.cfg.Control, time.Since(started).Round(time.Second), s.cfg.Control, err)
		}
		if !waiting {
			waiting = true
			s.log.WarnContext(ctx, "waiting for the control backend",
				"backend", s.cfg.Control, "at_most", limit.String(), "error", err)
		}
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startPause lies between two attempts to reach the control backend.
const startPause = 250 * time.Millisecond

// Close closes what OpenServices opened, in reverse order, and stores what was counted in memory. It waits at most
// timeouts.shutdown for background tasks and commands.
func (s *Services) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.settings().Timeouts.Shutdown)
	defer cancel()
	var commands sync.WaitGroup
	if s.lock != nil {
		// Concurrently, because a long command must leave time to store uses and usage.
		commands.Go(func() { s.lock.stopCommands(ctx) })
	}
	s.background.Close(ctx)
	if s.keys != nil && ctx.Err() == nil {
		s.keys.FlushUses(ctx)
	}
	if s.usage != nil && ctx.Err() == nil {
		s.usage.Flush(ctx)
	}
	commands.Wait() // before the parts that commands use are closed
	s.audit.Settle(ctx, 0)
	var errs []error
	if s.announcer != nil {
		errs = append(errs, s.announcer.Close())
	}
	if s.redis != nil {
		errs = append(errs, s.redis.Close())
	}
	if s.localRedis != nil {
		errs = append(errs, s.localRedis.Close())
	}
	errs = append(errs, s.closeBucket(), s.engines.close())
	if s.pages != nil {
		errs = append(errs, s.pages.Close())
	}
	if err := s.telemetry.Close(ctx); err != nil {
		s.log.Warn("the last traces and metrics were not sent", "error", err) // not an error of Close: no data are lost
	}
	if s.lock != nil {
		errs = append(errs, s.lock.release())
	}
	return errors.Join(errs...)
}
