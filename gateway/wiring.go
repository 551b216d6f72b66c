package gateway

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tenantry/backends/api"
	"tenantry/backends/campaigns"
	"tenantry/backends/compliance"
	"tenantry/backends/contacts"
	"tenantry/backends/files"
	"tenantry/backends/forms"
	"tenantry/backends/objects"
	"tenantry/backends/resource"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/backends/users"
	"tenantry/crypto/passwords"
	"tenantry/gateway/console"
	"tenantry/gateway/middleware"
	"tenantry/gateway/transfer"
	"tenantry/reports"
	"tenantry/tenants"
	"tenantry/tenants/announce"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
	"tenantry/tenants/localredis"
	"tenantry/tenants/people"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/sessions"
)

// module is a part that serves operations.
type module interface{ Operations() []api.Operation }

// modules are the parts that work on an organization's data, in the order of the document.
type modules struct {
	files      *files.Module
	objects    *objects.Module
	forms      *forms.Module
	reports    *reports.Module
	compliance *compliance.Module
	users      *users.Module
	contacts   *contacts.Module
	campaigns  *campaigns.Module
}

func (m *modules) all() []module {
	return []module{m.files, m.objects, m.forms, m.reports, m.compliance, m.users, m.contacts, m.campaigns}
}

// openRedis connects to the configured servers, or starts one within the process: the
// same client speaks to both.
func (s *Services) openRedis(_ context.Context) (err error) {
	if len(s.cfg.Redis.Addrs) == 0 {
		if s.localRedis, err = localredis.Start(); err != nil {
			return err
		}
		s.redis, err = s.localRedis.Client(s.redisTimeout)
		return err
	}
	o := redisconn.Options{
		Addrs: s.cfg.Redis.Addrs, MasterName: s.cfg.Redis.MasterName, Username: s.cfg.Redis.Username,
		Password: s.cfg.Redis.Password, DB: s.cfg.Redis.DB, PoolSize: s.cfg.Redis.PoolSize, Timeout: s.redisTimeout,
		SentinelUsername: s.cfg.Redis.SentinelUsername, SentinelPassword: s.cfg.Redis.SentinelPassword,
	}
	if r := s.cfg.Redis; r.TLS {
		files := redisconn.TLSOptions{CAFile: r.TLSCAFile, CertFile: r.TLSCertFile, KeyFile: r.TLSKeyFile, ServerName: r.TLSServerName}
		if o.TLS, err = files.Config(); err != nil {
			return err
		}
	}
	s.redis, err = redisconn.Open(o)
	return err
}

// openWho makes the parts that know who calls.
func (s *Services) openWho(ctx context.Context) (err error) {
	s.directory, err = tenants.NewDirectory(ctx, tenants.DirectoryOptions{
		Store: s.store, Kinds: s.kinds.organizations, Keyring: s.keyring, BaseDomain: s.cfg.BaseDomain, Now: s.now,
		NewBackend: s.cfg.Store, Log: s.log,
	})
	if errors.Is(err, tenants.ErrForeignKeyring) {
		return fmt.Errorf("keyring %s: %w", s.cfg.KeyringPath(), err)
	}
	if err != nil {
		return err
	}
	if s.localRedis == nil {
		s.announcer, err = announce.Start(announce.Options{Redis: s.redis, Directory: s.directory, Log: s.log}) //nolint:contextcheck // it ends with Close
		if err != nil {
			return err
		}
	}
	hasher, err := passwords.New(passwords.Options{Memory: s.passwordMemory})
	if err != nil {
		return err
	}
	s.people = people.NewService(people.Options{Directory: s.directory, Kinds: s.kinds.people, Passwords: hasher, Now: s.now})
	s.keys = keys.NewService(keys.Options{Directory: s.directory, Kinds: s.kinds.keys, People: s.people, Redis: s.redis, Now: s.now})
	s.sessions = sessions.NewService(sessions.Options{Directory: s.directory, People: s.people, Redis: s.redis, Now: s.now})
	counting := limits.Options{Defaults: s.cfg.Limits.Set(), Patience: s.redisTimeout, Log: s.log, Now: s.now}
	if s.localRedis == nil {
		counting.Redis = s.redis
	}
	s.limiter = limits.New(counting)
	return nil
}

// openModules makes the parts that work on an organization's data.
func (s *Services) openModules() {
	k := s.kinds
	m := &modules{objects: objects.New(k.objects), compliance: compliance.New()}
	m.users = users.New(users.Deps{People: s.people})
	m.contacts = contacts.New(k.contacts, contacts.Deps{Keys: s.directory})
	m.campaigns = campaigns.New(k.campaigns, campaigns.Deps{Contacts: m.contacts, Standard: contacts.StandardCatalog()})
	m.files = files.New(k.files, files.Deps{CDNBase: s.fileHost, Contacts: contactNames{m.contacts}, Users: userNames{s.people}})
	m.reports = reports.New(k.reports, reports.Deps{
		Now: s.now, Reuse: s.reuse,
		Keys: func(ctx context.Context, t *tenants.Tenant) (reports.KeySet, error) {
			return s.directory.DataKeys(ctx, t, reports.KeyPurpose)
		},
		Classes: []reports.Class{
			reports.NewContactsClass(k.contacts.Contacts.Table, s.contactFields),
			reports.NewRecordsClass(k.objects.Records.Table, s.recordFields),
			reports.NewSubmissionsClass(k.forms.Submissions.Table, s.submissionFields),
			reports.NewFilesClass(k.files.Files.Table),
			reports.NewCampaignsClass(k.campaigns.Campaigns.Table),
		},
	})
	m.forms = forms.New(k.forms, m.reports)
	s.modules = m
	s.transfer = transfer.New(transfer.Deps{
		Directory: s.directory, People: k.people, Resources: k.resources(),
		Ask: map[string]func(*resource.Checking, any){
			k.campaigns.Campaigns.Name: func(c *resource.Checking, rec any) {
				campaigns.Validate(rec.(*campaigns.Campaign), contacts.KnownCatalog(c.Known), c.Errs)
			},
			k.reports.Reports.Name: func(c *resource.Checking, rec any) { m.reports.Ask(c, rec.(*reports.Report)) },
		},
	})
}

// fileHost returns where the bytes of an organization's files are served.
func (s *Services) fileHost(t *tenants.Tenant) string {
	if s.cfg.FileHost != "" {
		return strings.TrimSuffix(s.cfg.FileHost, "/") + "/" + t.Org.Slug
	}
	return s.baseURL(t.Org.Slug) + "/files"
}

func (s *Services) contactFields(ctx context.Context, ws *store.Workspace, _ string) (schema.Fields, error) {
	defs, err := s.modules.contacts.Definitions(ctx, ws)
	if err != nil {
		return nil, err
	}
	fields := make(schema.Fields, len(defs))
	for key, def := range defs {
		fields[key] = schema.Field{Title: def.Title, Type: def.Type}
	}
	return fields, nil
}

func (s *Services) recordFields(ctx context.Context, ws *store.Workspace, object string) (schema.Fields, error) {
	def, err := s.kinds.objects.Definitions.In(ws).First(ctx, store.Query{Filter: store.Eq("name", object)})
	if err != nil {
		return nil, err
	}
	return def.Schema, nil
}

func (s *Services) submissionFields(ctx context.Context, ws *store.Workspace, form string) (schema.Fields, error) {
	def, err := s.kinds.forms.Collections.In(ws).Get(ctx, form)
	if err != nil {
		return nil, err
	}
	return def.Fields(), nil
}

type contactNames struct{ contacts *contacts.Module }

func (n contactNames) ContactNames(ctx context.Context, ws *store.Workspace, ids []string) (map[string]string, error) {
	return n.contacts.Names(ctx, ws, ids)
}

type userNames struct{ people *people.Service }

func (n userNames) UserNames(ctx context.Context, t *tenants.Tenant, ids []int64) (map[int64]string, error) {
	return n.people.Names(ctx, t, ids)
}

// newConsole makes the pages. cookie is the name of the session cookie.
func (s *Services) newConsole(cookie string, p *middleware.Pipeline) (*console.Module, error) {
	return console.New(console.Deps{
		Sessions: s.sessions, People: s.people, Reports: s.modules.reports, Visit: p.Visit, Resolve: p.Tenant, Static: middleware.Static, BaseURL: s.baseURL,
		Cookie: cookie, Secure: strings.HasPrefix(s.baseURL("x"), "https:"), Log: s.log,
	})
}
