// Package sessions keeps the browser sessions of signed-in people in Redis and holds
// sign-in attempts back.
package sessions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/crypto/tokens"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/limits"
	"tenantry/tenants/redisconn"
)

// Defaults of Options.
const (
	DefaultIdle     = 30 * time.Minute
	DefaultAbsolute = 12 * time.Hour
)

const (
	tokenPrefix    = "ses"
	sessionVersion = 2
)

// Options are what a Service needs; Directory, People and Redis are required.
type Options struct {
	Directory *tenants.Directory
	People    *identity.Service
	Redis     redisconn.Client
	Now       func() time.Time // nil: time.Now
	Idle      time.Duration    // 0: DefaultIdle; a session ends that long after its last use
	Absolute  time.Duration    // 0: DefaultAbsolute; and that long after the sign-in in any case
	Throttle  Throttle
}

// Service starts, finds and ends sessions. Safe for concurrent use.
type Service struct {
	dir      *tenants.Directory
	people   *identity.Service
	redis    redisconn.Client
	now      func() time.Time
	idle     time.Duration
	absolute time.Duration
	throttle Throttle

	attempts, givenBack, unseens *redisconn.Script
}

// NewService returns a Service.
func NewService(o Options) *Service {
	s := &Service{
		dir: o.Directory, people: o.People, redis: o.Redis, now: o.Now, idle: o.Idle, absolute: o.Absolute, throttle: o.Throttle.withDefaults(),
	}
	s.attempts, s.givenBack, s.unseens = limits.Script(attemptScript), limits.GiveBack(), redisconn.NewScript(unseenScript)
	if s.now == nil {
		s.now = time.Now
	}
	if s.idle <= 0 {
		s.idle = DefaultIdle
	}
	if s.absolute <= 0 {
		s.absolute = DefaultAbsolute
	}
	return s
}

// Session is a session as its owner may see it.
type Session struct {
	ID        string // names it among those of the person, and opens nothing
	UserID    int64
	StartedAt time.Time
	ExpiresAt time.Time // at the latest
	UsedAt    time.Time // last, of those that List returns
	From
}

// From says where somebody signed in.
type From struct {
	Address netip.Addr
	Browser string // as it names itself; cut to maxBrowser bytes
}

const maxBrowser = 256

// stored is a session as Redis holds it, sealed under its name: nobody else can make one,
// alter one or put one in another's place.
type stored struct {
	Version     int                  `json:"v"`
	Hash        string               `json:"-"` // of the token, as the name has it
	Rev         int64                `json:"r"` // access revision of the organization the rights were read at
	ReadAt      int64                `json:"t"` // Unix milliseconds; when they were
	UserID      int64                `json:"u"`
	PasswordRev int64                `json:"w"`
	StartedAt   int64                `json:"b"` // Unix milliseconds
	ExpiresAt   int64                `json:"e"` // Unix milliseconds
	Admin       bool                 `json:"a"`
	Permissions []tenants.Permission `json:"p"`
	Limited     bool                 `json:"l"`
	Teams       []string             `json:"s"`
	Address     netip.Addr           `json:"n,omitzero"`
	Browser     string               `json:"c,omitempty"`
}

func (v *stored) take(p *tenants.Principal, rev int64, now time.Time) {
	v.ReadAt = now.UnixMilli()
	v.Rev, v.Admin, v.Permissions, v.Limited, v.Teams = rev, p.Admin, p.Permissions, p.Teams != nil, p.Teams
}

func (v *stored) principal() *tenants.Principal {
	p := &tenants.Principal{Kind: tenants.Person, UserID: v.UserID, Admin: v.Admin, Permissions: v.Permissions}
	if v.Limited {
		p.Teams = append([]string{}, v.Teams...)
	}
	return p
}

func sessionKey(t *tenants.Tenant, hash string) string { return t.RedisPrefix() + "session:" + hash }

// sealed returns the session as Redis is to hold it.
func (s *Service) sealed(ctx context.Context, t *tenants.Tenant, v *stored) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return s.dir.Seal(ctx, t, sessionKey(t, v.Hash), raw)
}

func unavailable(doing string, err error) error {
	return fmt.Errorf("%s: %w: %w", doing, tenants.ErrUnavailable, err)
}

func denied(reason string) error { return fmt.Errorf("%s: %w", reason, tenants.ErrDenied) }

// Start returns a new session of a user of the organization, read after the tenant was
// resolved, and its token. Only the token's hash is stored. Errors: tenants.ErrDenied
// where the user is not active, tenants.ErrUnavailable.
func (s *Service) Start(ctx context.Context, t *tenants.Tenant, u *identity.User, from From) (secret.String, Session, error) {
	principal, err := s.people.PrincipalOf(ctx, t, u)
	if errors.Is(err, tenants.ErrDenied) {
		return secret.String{}, Session{}, err
	}
	if err != nil {
		return secret.String{}, Session{}, unavailable("starting a session", err)
	}
	token, hash := tokens.NewOpaque(tokenPrefix)
	now := s.now()
	v := stored{
		Version: sessionVersion, Hash: hash, UserID: u.UID, PasswordRev: u.PasswordRev,
		StartedAt: max(now.UnixMilli(), u.SessionsFrom), // where another server's clock is ahead, it is not over already
		ExpiresAt: now.Add(s.absolute).UnixMilli(),
		Address:   from.Address, Browser: strings.ToValidUTF8(from.Browser[:min(len(from.Browser), maxBrowser)], ""),
	}
	v.take(principal, t.Org.AccessRev, now)
	raw, err := s.sealed(ctx, t, &v)
	if err != nil {
		return secret.String{}, Session{}, unavailable("starting a session", err)
	}
	if err := s.store(ctx, t, &v, raw); err != nil {
		return secret.String{}, Session{}, unavailable("starting a session", err)
	}
	return token, v.session(), nil
}

func (v *stored) session() Session {
	return Session{
		ID: v.Hash[:idLength], UserID: v.UserID, StartedAt: time.UnixMilli(v.StartedAt), ExpiresAt: time.UnixMilli(v.ExpiresAt), From: From{v.Address, v.Browser},
	}
}

// Lookup returns the person whose session the token names in this organization, and
// keeps the session from idling out. Where rights in the organization changed since, the
// user is read again: a person who was deactivated, has a new password or ended this
// session is refused. Errors: tenants.ErrDenied, tenants.ErrUnavailable.
func (s *Service) Lookup(ctx context.Context, t *tenants.Tenant, token string) (*tenants.Principal, error) {
	v, err := s.live(ctx, t, token)
	if err != nil {
		return nil, err
	}
	return v.principal(), nil
}

// Info returns the session of a token that Lookup accepts. Errors: as Lookup.
func (s *Service) Info(ctx context.Context, t *tenants.Tenant, token string) (Session, error) {
	v, err := s.live(ctx, t, token)
	if err != nil {
		return Session{}, err
	}
	return v.session(), nil
}

// live returns the session, with the rights that its user has now.
func (s *Service) live(ctx context.Context, t *tenants.Tenant, token string) (*stored, error) {
	v, err := s.find(ctx, t, token)
	if err != nil {
		return v, err
	}
	announced := v.Rev != t.Org.AccessRev
	if !announced && s.now().Sub(time.UnixMilli(v.ReadAt)) < rereadAfter {
		return v, nil
	}
	if err = s.reread(ctx, t, v); !announced && errors.Is(err, tenants.ErrUnavailable) {
		err = nil // nothing is known to have changed
	}
	return v, err
}

// rereadAfter is how long a session's rights hold without a look at the user: who changed them may have been stopped
// before it could announce that.
const rereadAfter = 5 * time.Minute

func (s *Service) find(ctx context.Context, t *tenants.Tenant, token string) (*stored, error) {
	hash, ok := tokens.HashOpaque(tokenPrefix, token)
	if !ok {
		return nil, denied("malformed session token")
	}
	key := sessionKey(t, hash)
	raw, err := s.redis.GetEx(ctx, key, s.idle)
	if errors.Is(err, redisconn.ErrNil) {
		return nil, denied("unknown or ended session")
	}
	if err != nil {
		return nil, unavailable("looking up a session", err)
	}
	v, err := s.opened(ctx, t, hash, raw)
	if errors.Is(err, errUnreadable) { // written by another version, or over: the person signs in again
		s.drop(ctx, key)
	}
	return v, err
}

var errUnreadable = fmt.Errorf("unreadable or expired session: %w", tenants.ErrDenied)

// opened returns the session that Redis holds under the name of that hash. Errors: errUnreadable, tenants.ErrDenied,
// tenants.ErrUnavailable.
func (s *Service) opened(ctx context.Context, t *tenants.Tenant, hash string, raw []byte) (*stored, error) {
	raw, err := s.dir.Unseal(ctx, t, sessionKey(t, hash), raw)
	if errors.Is(err, tenants.ErrUnsealed) {
		return nil, denied("session that the organization did not write")
	}
	if err != nil {
		return nil, unavailable("looking up a session", err)
	}
	v := stored{Hash: hash}
	if err := json.Unmarshal(raw, &v); err != nil || v.Version != sessionVersion || s.now().UnixMilli() >= v.ExpiresAt {
		return nil, errUnreadable
	}
	return &v, nil
}

// drop deletes a session that is refused in any case; the entry would idle out by itself.
func (s *Service) drop(ctx context.Context, key string) { _ = s.redis.Del(ctx, key) }

// Holder is the person of a session, for what goes on after it may have expired: an import for one.
type Holder struct {
	userID, passwordRev int64
	session             string // hash of its token
	startedAt           int64  // Unix milliseconds
}

func (v *stored) holder() Holder { return Holder{v.UserID, v.PasswordRev, v.Hash, v.StartedAt} }

// Holder returns the person whose session the token names. Errors: as Lookup.
func (s *Service) Holder(ctx context.Context, t *tenants.Tenant, token string) (Holder, error) {
	v, err := s.live(ctx, t, token)
	if err != nil {
		return Holder{}, err
	}
	return v.holder(), nil
}

// Rights returns the person with the rights of now, also where the session has expired by itself, which stays so.
// Errors: tenants.ErrDenied where the person is not active, has another password or ended the session;
// tenants.ErrUnavailable.
func (s *Service) Rights(ctx context.Context, t *tenants.Tenant, h Holder) (*tenants.Principal, error) {
	u, err := s.people.FindUser(ctx, t, h.userID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, denied("session of a user who is gone")
	case err != nil:
		return nil, unavailable("reading the user of a session", err)
	case !u.Active || u.PasswordRev != h.passwordRev:
		return nil, denied("session of a user who was deactivated or changed the password")
	case u.SessionOver(h.session, h.startedAt): // also where an older state of Redis has come back
		return nil, denied("session that was ended")
	}
	principal, err := s.people.PrincipalOf(ctx, t, u)
	if err != nil {
		return nil, unavailable("reading the rights of a session", err)
	}
	return principal, nil
}

// reread brings the session up to date with its user.
func (s *Service) reread(ctx context.Context, t *tenants.Tenant, v *stored) error {
	key := sessionKey(t, v.Hash)
	principal, err := s.Rights(ctx, t, v.holder())
	if errors.Is(err, tenants.ErrDenied) {
		s.drop(ctx, key)
	}
	if err != nil {
		return err
	}
	v.take(principal, t.Org.AccessRev, s.now())
	raw, err := s.sealed(ctx, t, v)
	if err != nil {
		return unavailable("storing a session", err)
	}
	// Only over what is there: a session that was ended meanwhile must stay so.
	err = s.redis.Replace(ctx, key, raw)
	if errors.Is(err, redisconn.ErrNil) {
		return denied("ended session")
	}
	if err != nil {
		return unavailable("storing a session", err)
	}
	return nil
}

// End ends a session; one that is not there is no error. The end is noted in the store
// first: a Redis that loses its last writes, or is restored from a backup, brings the
// session back and finds it void. Error: tenants.ErrUnavailable, where the session may
// go on.
func (s *Service) End(ctx context.Context, t *tenants.Tenant, token string) error {
	v, err := s.find(ctx, t, token)
	if errors.Is(err, tenants.ErrDenied) {
		return nil
	}
	if err != nil {
		return unavailable("ending a session", err)
	}
	return s.end(ctx, t, v)
}

func (s *Service) end(ctx context.Context, t *tenants.Tenant, v *stored) error {
	noted := s.people.SignOut(ctx, t, v.UserID, identity.SignOut{Session: v.Hash, StartedAt: v.StartedAt, ExpiresAt: v.ExpiresAt})
	deleted := s.redis.Del(ctx, sessionKey(t, v.Hash))
	if noted != nil && !errors.Is(noted, store.ErrNotFound) {
		return unavailable("ending a session", errors.Join(noted, deleted))
	}
	return nil // what could not be deleted is void
}
