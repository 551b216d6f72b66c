package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"tenantry/crypto/passwords"
	"tenantry/gateway/console"
	"tenantry/gateway/console/visit"
	"tenantry/gateway/middleware"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/announce"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
	"tenantry/tenants/localredis"
	"tenantry/tenants/redisconn"
	"tenantry/tenants/sessions"
)

// openRedis connects to the configured servers, or starts one within the process, with what another process had in it.
// Both have the same client.
func (s *Services) openRedis(ctx context.Context, inherited []byte) (err error) {
	if len(s.cfg.Redis.Addrs) == 0 {
		if s.localRedis, err = localredis.Start(); err != nil {
			return err
		}
		if len(inherited) > 0 {
			if err := s.localRedis.Import(inherited); err != nil {
				s.log.WarnContext(ctx, "sessions could not be taken over", "error", err)
			}
		}
		s.redis, err = s.localRedis.Client(redisconn.Options{Timeout: s.redisTimeout, Trace: s.telemetry.Redis()})
		return err
	}
	o := redisconn.Options{
		Addrs: s.cfg.Redis.Addrs, MasterName: s.cfg.Redis.MasterName, Username: s.cfg.Redis.Username,
		Password: s.cfg.Redis.Password, DB: s.cfg.Redis.DB, PoolSize: s.cfg.Redis.PoolSize,
		Timeout: s.redisTimeout, Trace: s.telemetry.Redis(),
		SentinelUsername: s.cfg.Redis.SentinelUsername, SentinelPassword: s.cfg.Redis.SentinelPassword,
	}
	if r := s.cfg.Redis; r.TLS {
		files := redisconn.TLSOptions{
			CAFile: r.TLSCAFile, CertFile: r.TLSCertFile, KeyFile: r.TLSKeyFile, ServerName: r.TLSServerName,
		}
		if o.TLS, err = files.Config(); err != nil {
			return err
		}
	}
	s.redis, err = redisconn.Open(o)
	return err
}

// openIdentity makes the parts that identify callers and count their requests.
func (s *Services) openIdentity(ctx context.Context) (err error) {
	s.directory, err = tenants.NewDirectory(ctx, tenants.DirectoryOptions{
		Store: s.store, Kinds: s.kinds.organizations, Keyring: s.keyring, BaseDomain: s.cfg.BaseDomain, Now: s.now,
		NewBackend: s.cfg.Store, Log: s.log, Organizations: s.cfg.Memory.Organizations, Limits: s.cfg.Limits.Stored(),
	})
	if errors.Is(err, tenants.ErrForeignKeyring) {
		return fmt.Errorf("keyring %s: %w", absolute(s.cfg.KeyringPath()), err)
	}
	if err != nil {
		return err
	}
	if s.localRedis == nil {
		o := announce.Options{Redis: s.redis, Directory: s.directory, Log: s.log}
		s.announcer, err = announce.Start(o) //nolint:contextcheck // Close stops it
		if err != nil {
			return err
		}
	}
	hasher, err := passwords.New(passwords.Options{Memory: s.passwordMemory})
	if err != nil {
		return err
	}
	s.people = identity.NewService(identity.Options{
		Directory: s.directory, Kinds: s.kinds.people, Passwords: hasher, Now: s.now,
	})
	s.sessions = sessions.NewService(sessions.Options{
		Directory: s.directory, People: s.people, Redis: s.redis, Now: s.now,
	})
	breaker := redisconn.NewBreaker(s.log, s.now)
	keyOptions := keys.Options{
		Directory: s.directory, Kinds: s.kinds.keys, People: s.people, Breaker: breaker, Now: s.now,
		Kept: s.cfg.Memory.Organizations,
	}
	limitOptions := limits.Options{
		Defaults: s.cfg.Limits.Set(), Prefix: s.directory.RedisPrefix(), Timeout: s.redisTimeout,
		Breaker: breaker, Now: s.now,
	}
	// A Redis inside the process shares with no other replica, and would only copy the store and the memory of this
	// process.
	if s.localRedis == nil {
		limitOptions.Redis, keyOptions.Redis = s.redis, s.redis
	}
	s.keys = keys.NewService(keyOptions)
	s.limiter = limits.New(limitOptions)
	return nil
}

// fileHost returns the base address of the contents of an organization's files.
func (s *Services) fileHost(t *tenants.Tenant) string {
	if s.cfg.FileHost != "" {
		return strings.TrimSuffix(s.cfg.FileHost, "/") + "/" + t.Org.Slug
	}
	return s.baseURL(t.Org.Slug) + operation.ContentPath + "content"
}

// newConsole makes the pages. cookie is the name of the session cookie.
func (s *Services) newConsole(cookie string, p *middleware.Pipeline) (*console.Module, error) {
	visit := func(r *http.Request) (visit.Visitor, error) {
		v, err := p.Visit(r)
		return visit.Visitor(v), err
	}
	return console.New(console.Deps{
		Sessions: s.sessions, People: s.people, Reports: s.reports, Forms: s.forms, Visit: visit, Resolve: p.Tenant,
		Static: middleware.Static, BaseURL: s.baseURL, FileHost: s.fileHost,
		Cookie: cookie, SignedIn: s.noteSignIn, Forgotten: s.mails.Forgotten, Mails: s.mails.On(),
		Secure: strings.HasPrefix(s.baseURL("x"), "https:"), Now: s.now, Log: s.log,
	})
}
