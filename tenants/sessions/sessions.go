// Package sessions stores the browser sessions of signed-in people in Redis, and throttles attempts to sign in.
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

// Options configure a Service. Directory, People and Redis are required.
type Options struct {
	Directory *tenants.Directory
	People    *identity.Service
	Redis     redisconn.Client
	Now       func() time.Time // nil: time.Now
	Idle      time.Duration    // lifetime of a session after its last use; 0: DefaultIdle
	Absolute  time.Duration    // maximum lifetime of a session; 0: DefaultAbsolute
	Throttle  Throttle
}

// Service starts, finds and ends sessions. It is safe for concurrent use.
type Service struct {
	dir      *tenants.Directory
	people   *identity.Service
	redis    redisconn.Client
	now      func() time.Time
	idle     time.Duration
	absolute time.Duration
	throttle Throttle

	attempts, refunds, undos *redisconn.Script
}

// NewService returns a Service.
func NewService(o Options) *Service {
	s := &Service{
		dir: o.Directory, people: o.People, redis: o.Redis, now: o.Now,
		idle: o.Idle, absolute: o.Absolute, throttle: o.Throttle.withDefaults(),
		attempts: limits.Script(attemptScript), refunds: limits.GiveBack(),
		undos: redisconn.NewScript(undoScript),
	}
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

// Session describes a session to its owner.
type Session struct {
	ID        string // identifies the session among those of the person; it is not a credential
	UserID    int64
	StartedAt time.Time
	ExpiresAt time.Time // at the latest
	UsedAt    time.Time // last use; set by List only
	From
}

// From is where a person signed in from.
type From struct {
	Address netip.Addr
	Browser string // user agent, cut to maxBrowser bytes
}

const maxBrowser = 256

// record is a session as Redis stores it, sealed together with its name. Nobody else can therefore forge a session,
// change one, or put one in the place of another.
type record struct {
	Version     int                  `json:"v"`
	Hash        string               `json:"-"` // hash of the token, taken from the name
	Rev         int64                `json:"r"` // access revision of the organization at which the rights were read
	ReadAt      int64                `json:"t"` // when the rights were read, in Unix milliseconds
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

func (v *record) setRights(p *tenants.Principal, rev int64, now time.Time) {
	v.ReadAt = now.UnixMilli()
	v.Rev, v.Admin, v.Permissions, v.Limited, v.Teams = rev, p.Admin, p.Permissions, p.Teams != nil, p.Teams
}

func (v *record) principal() *tenants.Principal {
	p := &tenants.Principal{Kind: tenants.Person, UserID: v.UserID, Admin: v.Admin, Permissions: v.Permissions}
	if v.Limited {
		p.Teams = append([]string{}, v.Teams...)
	}
	return p
}

func sessionKey(t *tenants.Tenant, hash string) string { return t.RedisPrefix() + "session:" + hash }

// seal returns the session in the form that Redis stores.
func (s *Service) seal(ctx context.Context, t *tenants.Tenant, v *record) ([]byte, error) {
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

// Start starts a session of a user, who must have been read after the tenant was resolved, and returns its token. Only
// the token's hash is stored. Errors: tenants.ErrDenied if the user is not active, tenants.ErrUnavailable.
func (s *Service) Start(
	ctx context.Context, t *tenants.Tenant, u *identity.User, from From,
) (secret.String, Session, error) {
	principal, err := s.people.PrincipalOf(ctx, t, u)
	if errors.Is(err, tenants.ErrDenied) {
		return secret.String{}, Session{}, err
	}
	if err != nil {
		return secret.String{}, Session{}, unavailable("starting a session", err)
	}
	token, hash := tokens.NewOpaque(tokenPrefix)
	now := s.now()
	v := record{
		Version: sessionVersion, Hash: hash, UserID: u.UID, PasswordRev: u.PasswordRev,
		// Not before SessionsFrom, which the clock of another server may have set ahead of this one's.
		StartedAt: max(now.UnixMilli(), u.SessionsFrom),
		ExpiresAt: now.Add(s.absolute).UnixMilli(),
		Address:   from.Address, Browser: strings.ToValidUTF8(from.Browser[:min(len(from.Browser), maxBrowser)], ""),
	}
	v.setRights(principal, t.Org.AccessRev, now)
	raw, err := s.seal(ctx, t, &v)
	if err != nil {
		return secret.String{}, Session{}, unavailable("starting a session", err)
	}
	if err := s.save(ctx, t, &v, raw); err != nil {
		return secret.String{}, Session{}, unavailable("starting a session", err)
	}
	return token, v.session(), nil
}

func (v *record) session() Session {
	return Session{
		ID: v.Hash[:idLength], UserID: v.UserID, From: From{v.Address, v.Browser},
		StartedAt: time.UnixMilli(v.StartedAt), ExpiresAt: time.UnixMilli(v.ExpiresAt),
	}
}

// Lookup returns the principal of the session with that token, and renews the idle timeout. If rights in the
// organization changed since they were read, it reads the user again: sessions that the user ended, and those of users
// who were deactivated or have a new password, are refused. Errors: tenants.ErrDenied, tenants.ErrUnavailable.
func (s *Service) Lookup(ctx context.Context, t *tenants.Tenant, token string) (*tenants.Principal, error) {
	v, err := s.current(ctx, t, token)
	if err != nil {
		return nil, err
	}
	return v.principal(), nil
}

// Info describes the session with a token that Lookup accepts. Errors: as Lookup.
func (s *Service) Info(ctx context.Context, t *tenants.Tenant, token string) (Session, error) {
	v, err := s.current(ctx, t, token)
	if err != nil {
		return Session{}, err
	}
	return v.session(), nil
}

// current returns the session with the present rights of its user.
func (s *Service) current(ctx context.Context, t *tenants.Tenant, token string) (*record, error) {
	v, err := s.find(ctx, t, token)
	if err != nil {
		return v, err
	}
	announced := v.Rev != t.Org.AccessRev
	if !announced && s.now().Sub(time.UnixMilli(v.ReadAt)) < refreshAfter {
		return v, nil
	}
	if err = s.refresh(ctx, t, v); !announced && errors.Is(err, tenants.ErrUnavailable) {
		err = nil // the rights read last still count, because no change was announced
	}
	return v, err
}

// refreshAfter is how long a session's rights are used without reading the user again, because a process may have
// stopped between a change of rights and its announcement.
const refreshAfter = 5 * time.Minute

func (s *Service) find(ctx context.Context, t *tenants.Tenant, token string) (*record, error) {
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
	v, err := s.open(ctx, t, hash, raw)
	if errors.Is(err, errUnreadable) { // of another version, or expired
		s.delete(ctx, key)
	}
	return v, err
}

var errUnreadable = fmt.Errorf("unreadable or expired session: %w", tenants.ErrDenied)

// open verifies and decodes the session that Redis holds for that hash. Errors: errUnreadable, tenants.ErrDenied,
// tenants.ErrUnavailable.
func (s *Service) open(ctx context.Context, t *tenants.Tenant, hash string, raw []byte) (*record, error) {
	raw, err := s.dir.Unseal(ctx, t, sessionKey(t, hash), raw)
	if errors.Is(err, tenants.ErrUnsealed) {
		return nil, denied("session that the organization did not write")
	}
	if err != nil {
		return nil, unavailable("looking up a session", err)
	}
	v := record{Hash: hash}
	if err := json.Unmarshal(raw, &v); err != nil || v.Version != sessionVersion || s.now().UnixMilli() >= v.ExpiresAt {
		return nil, errUnreadable
	}
	return &v, nil
}

// delete removes an entry that is refused in any case. Errors are ignored, because the entry expires by itself.
func (s *Service) delete(ctx context.Context, key string) { _ = s.redis.Del(ctx, key) }

// Holder identifies the person of a session, for work that may outlast the session, such as an import.
type Holder struct {
	userID, passwordRev int64
	session             string // hash of its token
	startedAt           int64  // Unix milliseconds
}

func (v *record) holder() Holder { return Holder{v.UserID, v.PasswordRev, v.Hash, v.StartedAt} }

// Holder returns the holder of the session with that token. Errors: as Lookup.
func (s *Service) Holder(ctx context.Context, t *tenants.Tenant, token string) (Holder, error) {
	v, err := s.current(ctx, t, token)
	if err != nil {
		return Holder{}, err
	}
	return v.holder(), nil
}

// Rights returns the principal of a holder with the present rights, even after the session has expired. Errors:
// tenants.ErrDenied if the person is not active, has another password or ended the session; tenants.ErrUnavailable.
func (s *Service) Rights(ctx context.Context, t *tenants.Tenant, h Holder) (*tenants.Principal, error) {
	u, err := s.people.FindUser(ctx, t, h.userID)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, denied("session of a user who was removed")
	case err != nil:
		return nil, unavailable("reading the user of a session", err)
	case !u.Active || u.PasswordRev != h.passwordRev:
		return nil, denied("session of a user who was deactivated or changed the password")
	case u.SessionEnded(h.session, h.startedAt): // even if Redis was set back to an older state
		return nil, denied("session that was ended")
	}
	principal, err := s.people.PrincipalOf(ctx, t, u)
	if err != nil {
		return nil, unavailable("reading the rights of a session", err)
	}
	return principal, nil
}

// refresh reads the rights of the session's user again and stores them in the session.
func (s *Service) refresh(ctx context.Context, t *tenants.Tenant, v *record) error {
	key := sessionKey(t, v.Hash)
	principal, err := s.Rights(ctx, t, v.holder())
	if errors.Is(err, tenants.ErrDenied) {
		s.delete(ctx, key)
	}
	if err != nil {
		return err
	}
	v.setRights(principal, t.Org.AccessRev, s.now())
	raw, err := s.seal(ctx, t, v)
	if err != nil {
		return unavailable("storing a session", err)
	}
	// Replace stores nothing if the session was ended meanwhile.
	err = s.redis.Replace(ctx, key, raw)
	if errors.Is(err, redisconn.ErrNil) {
		return denied("ended session")
	}
	if err != nil {
		return unavailable("storing a session", err)
	}
	return nil
}

// End ends a session. A session that does not exist is not an error. The end is noted in the store first: if Redis
// loses its last writes, or is restored from a backup, the session that comes back is void. Error:
// tenants.ErrUnavailable, after which the session may still be valid.
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

func (s *Service) end(ctx context.Context, t *tenants.Tenant, v *record) error {
	noted := s.people.SignOut(ctx, t, v.UserID, identity.SignOut{Session: v.Hash, StartedAt: v.StartedAt,
		ExpiresAt: v.ExpiresAt})
	deleted := s.redis.Del(ctx, sessionKey(t, v.Hash))
	if noted != nil && !errors.Is(noted, store.ErrNotFound) {
		return unavailable("ending a session", errors.Join(noted, deleted))
	}
	return nil // if the entry could not be deleted, it is void
}
