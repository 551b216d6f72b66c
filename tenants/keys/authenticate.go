package keys

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

const (
	maxUnknown = 16_384
	// freshFor is how long an accepted key is not looked up again, unless rights in the organization change.
	freshFor = 30 * time.Second
	// absentFor is how long an unknown key is not looked up again.
	absentFor = 2 * time.Second
	// DefaultGrace is how much longer a cached key is accepted while neither Redis nor the store answers.
	DefaultGrace = 30 * time.Second
)

// entry is an accepted key, with everything needed to check it again.
type entry struct {
	principal *tenants.Principal
	rev       int64 // access revision of the organization it was read at
	expiresAt int64 // Unix milliseconds; 0: never
	allow     []netip.Prefix
	readAt    time.Time
	used      atomic.Int64 // minute of the last use that was recorded
}

type absence struct {
	rev    int64
	readAt time.Time
}

// presented identifies a presented token. It includes the organization, because a key is valid in its own organization
// only.
type presented struct {
	org string
	sum [sha256.Size]byte // of the token
}

func cacheKey(t *tenants.Tenant, token string) presented {
	return presented{t.Org.ID, sha256.Sum256([]byte(token))}
}

// Authenticate returns the principal that presents the token to the organization from the remote address. Errors:
// tenants.ErrDenied for every token that is not accepted, tenants.ErrUnavailable if that cannot be decided now. The
// principal is shared and must not be changed.
func (s *Service) Authenticate(
	ctx context.Context, t *tenants.Tenant, token string, remote netip.Addr,
) (*tenants.Principal, error) {
	key := cacheKey(t, token) // without parsing the token, because every cached token is well formed
	now := s.now()
	cached, ok := s.accepted.Get(key)
	if ok && cached.rev != t.Org.AccessRev {
		cached, ok = nil, false // a change since then may have revoked the key
	}
	if ok && youngerThan(now, cached.readAt, freshFor) {
		return s.admit(t, cached, now, remote)
	}
	if a, ok := s.unknown.Get(key); ok && a.rev == t.Org.AccessRev && youngerThan(now, a.readAt, absentFor) {
		return nil, denied("unknown key")
	}
	if _, err := tokens.ParseAPIKey(token); err != nil {
		return nil, denied("malformed key")
	}
	e, err := s.lookUp(ctx, t, tokens.HashAPIKey(token), now)
	switch {
	case err == nil:
		s.accepted.Put(key, e)
		return s.admit(t, e, now, remote)
	case errors.Is(err, tenants.ErrDenied):
		s.accepted.Delete(key)
		s.unknown.Put(key, absence{t.Org.AccessRev, now})
		return nil, err
	case cached != nil && youngerThan(now, cached.readAt, freshFor+s.grace):
		return s.admit(t, cached, now, remote)
	}
	return nil, err
}

// admit applies entry.admit, and records the use of an accepted key.
func (s *Service) admit(t *tenants.Tenant, e *entry, now time.Time, remote netip.Addr) (*tenants.Principal, error) {
	p, err := e.admit(now, remote)
	if err == nil {
		s.noteUse(t, e, now)
	}
	return p, err
}

func denied(reason string) error { return fmt.Errorf("%s: %w", reason, tenants.ErrDenied) }

func youngerThan(now, then time.Time, limit time.Duration) bool {
	age := now.Sub(then)
	return age >= 0 && age < limit
}

// admit checks what can change between two calls: the time and the remote address.
func (e *entry) admit(now time.Time, remote netip.Addr) (*tenants.Principal, error) {
	if e.expiresAt > 0 && now.UnixMilli() >= e.expiresAt {
		return nil, denied("expired key")
	}
	if len(e.allow) > 0 {
		remote = remote.Unmap().WithZone("")
		if !remote.IsValid() || !slices.ContainsFunc(e.allow, func(p netip.Prefix) bool { return p.Contains(remote) }) {
			return nil, denied("key used from an address that is not allowed")
		}
	}
	return e.principal, nil
}

// lookUp looks a key up in Redis, and then in the store. The entry gets the access revision of the tenant with which
// the look-up began. If the key is revoked meanwhile, the entry is void by the time it is cached.
func (s *Service) lookUp(ctx context.Context, t *tenants.Tenant, hash string, now time.Time) (*entry, error) {
	if e, ok := s.index.get(ctx, t, hash); ok {
		e.readAt = now
		e.principal.Needs = s.needs(t.People(), subject{key: e.principal.KeyID})
		return e, nil
	}
	k, account, err := s.read(ctx, t, hash)
	if err != nil {
		return nil, err
	}
	p, err := k.principal(account, now)
	if err != nil {
		return nil, err
	}
	p.Needs = s.needs(t.People(), subject{key: k.ID})
	e := &entry{principal: p, rev: t.Org.AccessRev, expiresAt: k.ExpiresAt, readAt: now}
	if hash != k.Hash {
		if e.expiresAt = k.Until(hash); now.UnixMilli() >= e.expiresAt {
			return nil, denied("key that was rotated")
		}
	}
	if e.allow, err = prefixes(k.AllowIPs); err != nil {
		return nil, fmt.Errorf("key %s: %w: %w", k.ID, tenants.ErrUnavailable, err)
	}
	s.index.put(ctx, t, hash, e)
	return e, nil
}

// byHash returns the key whose token, current or replaced, has that hash. Errors: store.ErrNotFound,
// store.ErrUnavailable.
func (s *Service) byHash(ctx context.Context, people *store.Workspace, hash string) (*Key, error) {
	keys := s.kinds.Keys.In(people)
	// Three queries, because SQLite would answer their disjunction by reading every key.
	k, err := keys.First(ctx, store.Query{Filter: store.Eq("hash", hash)})
	if errors.Is(err, store.ErrNotFound) {
		k, err = keys.First(ctx, store.Query{Filter: store.Eq("old_hash", hash)})
	}
	if errors.Is(err, store.ErrNotFound) {
		k, err = keys.First(ctx, store.Query{Filter: store.Eq("older_hashes", hash)})
	}
	return k, err
}

func (s *Service) read(ctx context.Context, t *tenants.Tenant, hash string) (*Key, *identity.Account, error) {
	k, err := s.byHash(ctx, t.People(), hash)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, denied("unknown key")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("looking up a key: %w: %w", tenants.ErrUnavailable, err)
	}
	account, err := s.people.Account(ctx, t, k.AccountID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, denied("key without an account")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("looking up the account of a key: %w: %w", tenants.ErrUnavailable, err)
	}
	return k, account, nil
}

// principal returns the principal of a key that may be used. Error: tenants.ErrDenied.
func (k *Key) principal(a *identity.Account, now time.Time) (*tenants.Principal, error) {
	if state := k.State(now); state != "active" {
		return nil, denied(state + " key")
	}
	if !a.Active {
		return nil, denied("key of an account that is not active")
	}
	p := &tenants.Principal{
		Kind: tenants.ServiceAccount, AccountID: a.ID, KeyID: k.ID, KeyKind: k.Kind,
		Permissions: k.Effective(a), Teams: k.Narrowed(a), Limits: k.Limits,
	}
	if k.Kind == tenants.Browser {
		p.Origins, p.Visitors, p.ProofOfWork = k.Origins, k.Visitors, k.ProofOfWork
	}
	return p, nil
}

// Principal returns the principal of the key with that ID, regardless of the remote address. Errors: store.ErrNotFound;
// tenants.ErrDenied, with the reason, if the key is not accepted; store.ErrUnavailable.
func (s *Service) Principal(ctx context.Context, t *tenants.Tenant, id string) (*tenants.Principal, error) {
	k, err := s.Get(ctx, t, id)
	if err != nil {
		return nil, err
	}
	owners, err := s.Owners(ctx, t, k)
	if err != nil {
		return nil, err
	}
	if owners[k.AccountID] == nil {
		return nil, denied("key without an account")
	}
	return k.principal(owners[k.AccountID], s.now())
}

// Effective returns the permissions of the key: those of its account, narrowed.
func (k *Key) Effective(a *identity.Account) []tenants.Permission {
	held := slices.Clone(a.Permissions)
	if len(k.Permissions) > 0 {
		held = slices.DeleteFunc(held, func(p tenants.Permission) bool { return !slices.Contains(k.Permissions, p) })
	}
	return held
}

// Narrowed returns the teams to which the key is limited: those of its account, narrowed.
func (k *Key) Narrowed(a *identity.Account) []string { return narrowed(a.Teams, k.Teams) }

// narrowed returns the teams in both lists. An empty list means no limit. For two limits without a common team it
// returns an empty list that is not nil: such a key sees only records without teams.
func narrowed(a, b []string) []string {
	switch {
	case len(a) == 0 && len(b) == 0:
		return nil
	case len(a) == 0:
		return slices.Clone(b)
	case len(b) == 0:
		return slices.Clone(a)
	}
	both := make([]string, 0, len(a))
	for _, team := range a {
		if slices.Contains(b, team) {
			both = append(both, team)
		}
	}
	return both
}

func prefixes(list []string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, text := range list {
		p, err := parsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("a stored address range cannot be read: %w", err)
		}
		out = append(out, p)
	}
	return out, nil
}
