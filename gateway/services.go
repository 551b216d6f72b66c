package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/backends/campaigns"
	"tenantry/backends/compliance"
	"tenantry/backends/contacts"
	"tenantry/backends/files"
	"tenantry/backends/forms"
	"tenantry/backends/objects"
	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/crypto/keyring"
	"tenantry/gateway/audit"
	"tenantry/gateway/transfer"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/announce"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
	"tenantry/tenants/localredis"
	"tenantry/tenants/people"
	"tenantry/tenants/sessions"
)

// Services are the parts of a gateway without its listeners: what commands work on.
type Services struct {
	cfg            config.Config
	log            *slog.Logger
	now            func() time.Time
	reuse          time.Duration // of shared reports' rows
	passwordMemory uint32
	redisTimeout   time.Duration
	version        string
	ready          atomic.Bool

	lock       *folderLock
	engines    engines
	measured   *storeMetrics
	store      *store.Store
	keyring    *keyring.Keyring
	localRedis *localredis.Server
	redis      redis.UniversalClient

	directory *tenants.Directory
	announcer *announce.Announcer // nil where Redis is inside the process: nobody else would hear
	people    *people.Service
	keys      *keys.Service
	sessions  *sessions.Service
	limiter   *limits.Limiter
	audit     *audit.Log
	kinds     kinds
	modules   *modules
	transfer  *transfer.Service
	port      string // of the public listener, for addresses in answers
}

// kinds are the records of every module.
type kinds struct {
	files      files.Kinds
	objects    objects.Kinds
	forms      forms.Kinds
	contacts   contacts.Kinds
	campaigns  campaigns.Kinds
	compliance compliance.Kinds
	reports    reports.Kinds

	organizations tenants.Kinds
	people        people.Kinds
	keys          keys.Kinds
}

func newKinds() (k kinds, err error) {
	errs := make([]error, 10)
	k.files, errs[0] = files.NewKinds()
	k.objects, errs[1] = objects.NewKinds()
	k.forms, errs[2] = forms.NewKinds()
	k.contacts, errs[3] = contacts.NewKinds()
	k.campaigns, errs[4] = campaigns.NewKinds()
	k.compliance, errs[5] = compliance.NewKinds()
	k.reports, errs[6] = reports.NewKinds()
	k.organizations, errs[7] = tenants.NewKinds()
	k.people, errs[8] = people.NewKinds()
	k.keys, errs[9] = keys.NewKinds()
	return k, errors.Join(errs...)
}

func (k kinds) control() []*store.Spec {
	return join(k.organizations.Specs(), k.people.Specs(), k.keys.Specs())
}

func (k kinds) tenant(log *audit.Log) []*store.Spec {
	return join(k.files.Specs(), k.objects.Specs(), k.forms.Specs(), k.contacts.Specs(), k.campaigns.Specs(),
		k.compliance.Specs(), k.reports.Specs(), log.Specs())
}

// resources are all whose records travel, after those that they refer to.
func (k kinds) resources() []*resource.Resource {
	return []*resource.Resource{
		k.people.Teams.Resource, k.people.Roles.Resource, k.people.Users.Resource, k.people.Accounts.Resource,
		k.contacts.Fields.Resource, k.objects.Definitions.Resource, k.forms.Collections.Resource,
		k.contacts.Contacts.Resource, k.files.Folders.Resource, k.files.Files.Resource, k.objects.Records.Resource,
		k.forms.Submissions.Resource, k.campaigns.Campaigns.Resource, k.reports.Reports.Resource, k.compliance.Settings.Resource,
	}
}

func join(lists ...[]*store.Spec) []*store.Spec {
	var all []*store.Spec
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// OpenServices takes the data folder and opens everything but the listeners. Close must
// be called. Errors: *InUseError, store.ErrNewer, and what is wrong with the folder, the
// keyring or Redis, each saying how to mend it.
func OpenServices(ctx context.Context, cfg config.Config, o Options) (_ *Services, err error) {
	s := &Services{cfg: cfg, log: o.Log, now: o.Now, reuse: o.ReportReuse, passwordMemory: o.PasswordMemory, redisTimeout: o.RedisTimeout, version: cmp.Or(o.Version, "development")}
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
	if s.lock, err = lockFolder(cfg.Data, o.Holder, s.now()); err != nil {
		return nil, err
	}
	if s.kinds, err = newKinds(); err != nil {
		return nil, err
	}
	if s.audit, err = audit.New(); err != nil {
		return nil, err
	}
	if err = s.openEngines(ctx); err != nil {
		return nil, err
	}
	s.measured = newStoreMetrics()
	s.measured.also = o.Observe
	s.store = store.New(store.Options{
		Backends: s.engines, ControlBackend: cfg.Control, Control: s.kinds.control(), Tenant: s.kinds.tenant(s.audit), Now: o.Now, Observe: s.measured.observe,
		Damage: s.noteDamage, Leases: o.Leases,
	})
	if err = s.awaitControl(ctx, o.WaitForStore); err != nil {
		return nil, err
	}
	if s.keyring, err = s.openKeyring(ctx); err != nil {
		return nil, err
	}
	if err = s.openRedis(ctx); err != nil {
		return nil, err
	}
	if err = s.openWho(ctx); err != nil {
		return nil, err
	}
	s.openModules()
	return s, nil
}

// baseURL returns the address of an organization, for links.
func (s *Services) baseURL(slug string) string { return s.cfg.OrganizationURL(slug, s.port) }

// openKeyring reads the keyring, and makes one only where there is no data yet: a new one
// cannot read what another encrypted.
func (s *Services) openKeyring(ctx context.Context) (*keyring.Keyring, error) {
	path := s.cfg.KeyringPath()
	open := keyring.Open
	if f, err := os.OpenFile(path, os.O_WRONLY, 0); err == nil {
		_ = f.Close() // nothing was written
	} else if !errors.Is(err, fs.ErrNotExist) {
		open = keyring.OpenReadOnly // something else maintains it, such as a mounted secret
	}
	ring, err := open(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return ring, err
	}
	control, err := s.store.Control(ctx)
	if err != nil {
		return nil, err
	}
	used, err := s.kinds.organizations.InUse(ctx, control)
	if err != nil {
		return nil, err
	}
	if used {
		return nil, fmt.Errorf("the keyring %s is missing, but there is data that was encrypted with one; put it back, or copy it from another replica: without it encrypted values are lost", path)
	}
	if ring, err = keyring.Create(path); errors.Is(err, fs.ErrExist) {
		return open(path) // another replica that starts now was quicker
	}
	return ring, err
}

// awaitControl opens the workspace of organizations, people and keys, without which nothing
// can begin: the keyring is proven against it. A database server that is still starting
// is tried again until limit has passed.
func (s *Services) awaitControl(ctx context.Context, limit time.Duration) error {
	started, told := time.Now(), false
	for {
		_, err := s.store.Control(ctx)
		switch {
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
	if s.lock != nil {
		s.lock.stopCommands(ctx) // they need everything below
	}
	if s.keys != nil {
		s.keys.Close(ctx) // it stores when keys were last used
	}
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
	if s.lock != nil {
		errs = append(errs, s.lock.free())
	}
	return errors.Join(errs...)
}
