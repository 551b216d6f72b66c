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
	// freshFor is how long an accepted key is not looked up again. A change of rights
	// ends it at once.
	freshFor = 30 * time.Second
	// absentFor is how long an unknown key is not looked up again.
	absentFor = 2 * time.Second
	// DefaultGrace is how much longer an accepted key may be used while neither Redis nor
	// the store answers.
	DefaultGrace = 30 * time.Second
)

// entry is a key that was accepted: all that checking it again needs.
type entry struct {
	principal *tenants.Principal
	rev       int64 // access revision of the organization it was read at
	expiresAt int64 // Unix milliseconds; 0: never
	allow     []netip.Prefix
	readAt    time.Time
	used      atomic.Int64 // the minute of the last use that was noted
}

type absence struct {
	rev    int64
	readAt time.Time
}

// presented is a token that is presented to an organization: a key is known to its own organization only.
type presented struct {
	org string
	sum [sha256.Size]byte // of the token
}

func cacheKey(t *tenants.Tenant, token string) presented {
	return presented{t.Org.ID, sha256.Sum256([]byte(token))}
}

// Authenticate returns who presents the token to the organization, from the remote
// address. Errors: tenants.ErrDenied for every token that is not accepted, and
// tenants.ErrUnavailable where that cannot be told now. The principal is shared and must
// not be altered.
func (s *Service) Authenticate(ctx context.Context, t *tenants.Tenant, token string, remote netip.Addr) (*tenants.Principal, error) {
	key := cacheKey(t, token) // before it is looked at: what was accepted has its form
	now := s.now()
	cached, ok := s.accepted.Get(key)
	if ok && cached.rev != t.Org.AccessRev {
		cached, ok = nil, false // whoever changed something since may have revoked it
	}
	if ok && within(now, cached.readAt, freshFor) {
		return s.admit(t, cached, now, remote)
	}
	if a, ok := s.unknown.Get(key); ok && a.rev == t.Org.AccessRev && within(now, a.readAt, absentFor) {
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
	case cached != nil && within(now, cached.readAt, freshFor+s.grace):
		return s.admit(t, cached, now, remote)
	}
	return nil, err
}

// admit is entry.admit, and notes the use of a key that is accepted.
func (s *Service) admit(t *tenants.Tenant, e *entry, now time.Time, remote netip.Addr) (*tenants.Principal, error) {
	p, err := e.admit(now, remote)
	if err == nil {
		s.note(t, e, now)
	}
	return p, err
}

func denied(reason string) error { return fmt.Errorf("%s: %w", reason, tenants.ErrDenied) }

func within(now, then time.Time, limit time.Duration) bool {
	age := now.Sub(then)
	return age >= 0 && age < limit
}

// admit applies what may change between two calls: the time and the caller's address.
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

// lookUp asks Redis, then the store. The entry bears the revision of the tenant with
// which the look-up began: if a key is revoked meanwhile, what was read before is void
// when it gets into a cache.
func (s *Service) lookUp(ctx context.Context, t *tenants.Tenant, hash string, now time.Time) (*entry, error) {
	if e, ok := s.index.get(ctx, t, hash); ok {
		e.readAt = now
		e.principal.Needs = s.needs(t.People(), user{key: e.principal.KeyID})
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
	p.Needs = s.needs(t.People(), user{key: k.ID})
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

// byHash returns the key with that text, or that had it before it was rotated. Errors: store.ErrNotFound,
// store.ErrUnavailable.
func (s *Service) byHash(ctx context.Context, people *store.Workspace, hash string) (*Key, error) {
	keys := s.kinds.Keys.In(people)
	// One after the other, since SQLite asked for either reads every key there is.
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

// principal returns who presents the key, where anybody may.
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

// Principal returns who presents the key of that identifier, from wherever that is allowed. Errors:
// store.ErrNotFound, tenants.ErrDenied with the reason where nobody may, store.ErrUnavailable.
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

// Effective returns what the key may do: the permissions of its account, narrowed.
func (k *Key) Effective(a *identity.Account) []tenants.Permission {
	held := slices.Clone(a.Permissions)
	if len(k.Permissions) > 0 {
		held = slices.DeleteFunc(held, func(p tenants.Permission) bool { return !slices.Contains(k.Permissions, p) })
	}
	return held
}

// Narrowed returns the teams that the key is limited to: those of its account, narrowed.
func (k *Key) Narrowed(a *identity.Account) []string { return narrowed(a.Teams, k.Teams) }

// narrowed returns the teams in both lists, where an empty list means no limit. Two
// limits without a common team leave an empty list that is not nil: records without
// teams are all such a key sees.
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
