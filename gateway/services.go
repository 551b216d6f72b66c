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

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/crypto/keyring"
	"tenantry/gateway/telemetry"
	"tenantry/internal/background"
	"tenantry/internal/request"
	"tenantry/modules/audit"
	"tenantry/modules/imports"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/people"
	"tenantry/modules/usage"
	"tenantry/operation/idempotency"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/announce"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/sessions"
)

// Services are the parts of a gateway without its listeners: what commands work on.
type Services struct {
	cfg            config.Config
	log            *slog.Logger
	requests       slog.Handler // takes a line of each request; nil: there is none
	now            func() time.Time
	reuse          time.Duration // of shared reports' rows
	passwordMemory uint32
	redisTimeout   time.Duration
	version        string
	made           bool // the installation was made by this process
	ready          atomic.Bool
	proxied        atomic.Bool // a proxy that is not trusted has been seen

	background *background.Work
	lock       *folderLock
	engines    engines
	measured   *storeMetrics
	telemetry  *telemetry.Telemetry // nil: off
	store      *store.Store
	keyring    *keyring.Keyring
	localRedis *localredis.Server
	redis      redisconn.Client

	directory *tenants.Directory
	announcer *announce.Announcer // nil where Redis is inside the process: nobody else would hear
	people    *identity.Service
	keys      *keys.Service
	sessions  *sessions.Service
	limiter   *limits.Limiter
	audit     *audit.Log
	seals     *audit.Seals
	repeats   *idempotency.Log
	usage     *usage.Meter
	kinds     kinds
	modules   []Module
	members   *people.Module
	reports   *reports.Module
	transfer  *bundle.Service
	bundles   *imports.Service
	port      string // of the public listener, for addresses in answers
}

// kinds are the records of who calls.
type kinds struct {
	organizations tenants.Kinds
	people        identity.Kinds
	keys          keys.Kinds
}

func newKinds() kinds { return kinds{tenants.NewKinds(), identity.NewKinds(), keys.NewKinds()} }

func (k kinds) specs() []*store.Spec {
	return slices.Concat(k.organizations.Specs(), record.Specs(k.people.Kept()), k.keys.Specs())
}

// OpenServices takes the data folder and opens everything but the listeners. Close must
// be called. Errors: *InUseError, store.ErrNewer, and what is wrong with the folder, the
// keyring or Redis, each saying how to mend it.
func OpenServices(ctx context.Context, cfg config.Config, o Options) (_ *Services, err error) {
	s := &Services{cfg: cfg, log: o.Log, now: o.Now, reuse: o.ReportReuse, passwordMemory: o.PasswordMemory, redisTimeout: o.RedisTimeout, kinds: newKinds(), audit: audit.New(), version: cmp.Or(o.Version, "development")}
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
	for _, folder := range s.folders() {
		if _, err = judgeFolder(folder); err != nil {
			return nil, err
		}
	}
	if err = s.lookBefore(o.Init); err != nil {
		return nil, err
	}
	if s.lock, err = lockFolder(cfg.Data, o.Holder, s.now()); err != nil {
		return nil, err
	}
	if err = s.openEngines(ctx, o.Engines); err != nil {
		return nil, err
	}
	s.measured = newStoreMetrics()
	s.measured.also, s.measured.traces = o.Observe, s.telemetry
	s.store = store.New(store.Options{
		Backends: s.engines, ControlBackend: cfg.Control, Control: append(s.kinds.specs(), s.audit.Specs()...), Now: o.Now, Observe: s.measured.observe,
		Damage: s.noteDamage, Unreadable: s.noteUnreadable, Leases: o.Leases,
	})
	if err = s.awaitControl(ctx, o.WaitForStore, o.Init); err != nil {
		return nil, err
	}
	if s.keyring, err = s.openKeyring(ctx, o.Init); err != nil {
		return nil, err
	}
	if err = s.openRedis(ctx); err != nil {
		return nil, err
	}
	if err = s.openWho(ctx); err != nil {
		return nil, err
	}
	for _, d := range s.store.Damaged() { // as the process before found it
		s.noteDamage(d, false)
	}
	s.openModules(o.Modules)
	return s, nil
}

// baseURL returns the address of an organization, for links.
func (s *Services) baseURL(slug string) string { return s.cfg.OrganizationURL(slug, s.port) }

// awaitControl opens the workspace of organizations, people and keys, without which nothing
// can begin: the keyring is proven against it. A database server that is still starting
// is tried again until limit has passed. It is made only for an installation that may begin.
func (s *Services) awaitControl(ctx context.Context, limit time.Duration, init bool) error {
	started, told := time.Now(), false
	for {
		ring, err := s.hasKeyring()
		there := false
		if err == nil {
			there, err = s.store.HasControl(ctx)
		}
		if err == nil && !there {
			err = s.mayBegin(init, ring)
		}
		if err == nil {
			_, err = s.store.Control(ctx)
		}
		switch {
		case errors.Is(err, ErrNoInstallation):
			return err
		case err == nil && told:
			s.log.InfoContext(ctx, "the control backend answers", "backend", s.cfg.Control, "waited", time.Since(started).Round(time.Millisecond).String())
			return nil
		case err == nil || !s.cfg.Shared() || ctx.Err() != nil:
			return err
		case !errors.Is(err, store.ErrUnavailable):
			return fmt.Errorf("backend %s, which holds organizations, people and keys: %w", s.cfg.Control, err)
		case time.Since(started) >= limit:
			return fmt.Errorf("the backend %s, which holds organizations, people and keys, does not answer (tried for %s): start its server, and check backends.%s.uri and the network between: %w",
				s.cfg.Control, time.Since(started).Round(time.Second), s.cfg.Control, err)
		}
		if !told {
			told = true
			s.log.WarnContext(ctx, "waiting for the control backend", "backend", s.cfg.Control, "at_most", limit.String(), "error", err)
		}
		select {
		case <-time.After(startPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// startPause lies between two attempts to reach the control backend at the start.
const startPause = 250 * time.Millisecond

// Close ends what OpenServices began, in reverse order.
func (s *Services) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Timeouts.Shutdown)
	defer cancel()
	var commands sync.WaitGroup
	if s.lock != nil {
		commands.Go(func() { s.lock.stopCommands(ctx) }) // one that takes all the time leaves none for what was noted
	}
	s.background.Close(ctx)
	if s.keys != nil && ctx.Err() == nil {
		s.keys.FlushUses(ctx)
	}
	if s.usage != nil && ctx.Err() == nil {
		s.usage.Flush(ctx)
	}
	commands.Wait() // they need everything below
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
	errs = append(errs, s.engines.close())
	if err := s.telemetry.Close(ctx); err != nil {
		s.log.Warn("the last traces and figures were not sent", "error", err) // nothing of anybody's is lost
	}
	if s.lock != nil {
		errs = append(errs, s.lock.free())
	}
	return errors.Join(errs...)
}
