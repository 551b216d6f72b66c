// Package keys issues, revokes and checks API keys. The store is the truth; Redis and a
// small map in the process are indexes of it. What either index holds names the access
// revision of the organization it was read at, and is void when that has grown: an index
// that loses entries, or brings old ones back, can never revive a revoked key.
package keys

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/crypto/tokens"
	"tenantry/internal/cache"
	"tenantry/internal/fault"
	"tenantry/internal/rate"
	"tenantry/internal/texts"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/redisconn"
)

// Key is an API key. The token itself is stored nowhere.
type Key struct {
	store.Meta
	OrgID       int64                `json:"org_id" use:"local"`
	Hash        string               `json:"hash" rule:"unique" use:"local"`
	OldHash     string               `json:"old_hash,omitempty" rule:"unique" use:"local"` // of the token before a rotation, while it goes on
	OldUntil    int64                `json:"old_until,omitempty" use:"local"`              // Unix milliseconds
	Older       []Older              `json:"older,omitempty" use:"local"`                  // of the tokens before that, which go on as well; the latest first
	OlderHashes []string             `json:"older_hashes,omitempty" use:"local filter"`    // their hashes, to find the key by
	Hint        string               `json:"hint"`                                         // the beginning of the token, for lists
	AccountID   string               `json:"account_id" as:"account" use:"filter"`
	Name        string               `json:"name" use:"filter" example:"crm"`
	Kind        tenants.KeyKind      `json:"kind" use:"local filter"`
	Permissions []tenants.Permission `json:"permissions,omitempty"`                   // empty: not narrowed
	Teams       []string             `json:"teams,omitempty"`                         // empty: not narrowed
	AllowIPs    []string             `json:"allow_ips,omitempty"`                     // empty: from anywhere
	Origins     []string             `json:"origins,omitempty"`                       // of a browser key
	ExpiresAt   int64                `json:"expires_at,omitempty" use:"local filter"` // Unix milliseconds; 0: never
	Lifetime    int64                `json:"lifetime,omitempty"`                      // milliseconds, as issued; 0: for ever
	RevokedAt   int64                `json:"revoked_at,omitempty" use:"local filter"` // Unix milliseconds; 0: not revoked
	LastUsed    int64                `json:"last_used,omitempty"`                     // Unix milliseconds, roughly; 0: never
	NeededSince int64                `json:"needed_since,omitempty"`                  // Unix milliseconds; 0: it was not noted yet
	Needed      []tenants.Permission `json:"needed,omitempty"`                        // the permissions that calls needed since then
	Limits      rate.Pair            `json:"limits,omitzero"`                         // of the key's own; zero: the organization's for keys
	Visitors    rate.Pair            `json:"visitors,omitzero"`                       // of each address that presents a browser key; zero: the organization's
	ProofOfWork int                  `json:"proof_of_work,omitempty"`                 // bits that a browser key asks for a submission; 0: none
}

// Kinds are the records of this package. They belong to the control workspace, parted by
// organization, and travel nowhere.
type Kinds struct {
	Keys   *record.Of[Key]
	Rights *record.Of[Rights]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	return Kinds{record.Must(record.Options[Key]{
		Traits: record.Traits{Name: "key", Control: true, Rights: true},
		Spec: store.Spec{
			Name: "keys", Partition: true,
			Indexes: []store.Index{
				{Fields: []string{"account_id"}}, {Fields: []string{"name"}}, {Fields: []string{"created_at"}}, {Fields: []string{"older_hashes"}},
			},
			Access: []store.Access{
				{Where: []string{"account_id"}}, {Where: []string{"name"}}, {Where: []string{"older_hashes"}}, {Sort: []string{"created_at"}},
			},
		},
	}), record.Must(record.Options[Rights]{
		Traits: record.Traits{Name: "noted_rights", Control: true},
		Spec:   store.Spec{Name: "noted_rights", Partition: true},
	})}
}

// Specs returns the declarations, for the store's list of control kinds.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Keys.Spec(), k.Rights.Spec()} }

// Options are what a Service needs; all but Redis, Breaker, Now, Grace and Kept are required.
type Options struct {
	Directory *tenants.Directory
	Kinds     Kinds
	People    *identity.Service
	Redis     redisconn.Client   // nil: keys are looked up in the store
	Breaker   *redisconn.Breaker // of Redis; nil: one of its own
	Now       func() time.Time   // nil: time.Now
	// Grace is how long a key accepted before stays accepted while neither Redis nor the
	// store answers. 0 is DefaultGrace; below 0 there is none.
	Grace time.Duration
	// Kept is how many accepted keys are kept in memory, 0: tenants.DefaultOrganizations.
	Kept int
}

// Service issues and checks keys. Safe for concurrent use.
type Service struct {
	dir    *tenants.Directory
	kinds  Kinds
	people *identity.Service
	index  index
	now    func() time.Time
	grace  time.Duration

	uses     uses
	accepted *cache.Map[presented, *entry]
	unknown  *cache.Map[presented, absence]
}

// NewService returns a Service.
func NewService(o Options) *Service {
	s := &Service{
		dir: o.Directory, kinds: o.Kinds, people: o.People, now: o.Now, grace: o.Grace,
		accepted: cache.New[presented, *entry](cmp.Or(o.Kept, tenants.DefaultOrganizations)), unknown: cache.New[presented, absence](maxUnknown),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.grace == 0 {
		s.grace = DefaultGrace
	}
	s.uses.waiting, s.uses.flush = map[user]use{}, make(chan struct{}, 1)
	s.index = index{dir: o.Directory, redis: o.Redis, breaker: o.Breaker, now: s.now}
	if s.index.breaker == nil {
		s.index.breaker = redisconn.NewBreaker(nil, s.now)
	}
	o.Directory.OnRemove(s.purged)
	return s
}

// Kept returns how many accepted keys are kept in memory.
func (s *Service) Kept() int { return s.accepted.Len() }

func (s *Service) purged(people *store.Workspace) []store.Purger {
	return []store.Purger{s.kinds.Keys.In(people), s.kinds.Rights.In(people)}
}

// NewKey is what Issue needs. Name and Kind are required.
type NewKey struct {
	Name string
	Kind tenants.KeyKind
	// Account is the ID or the name of the service account that owns the key. Empty: the
	// account that has the key's name, made with Permissions where there is none.
	Account     string
	Permissions []tenants.Permission // narrow the account's; empty: all of the account's
	Teams       []string             // narrow the account's; empty: all of the account's
	AllowIPs    []string             // CIDRs or addresses
	Origins     []string             // of a browser key, "https://www.example.com"
	Lifetime    time.Duration        // 0: the key does not expire
	Limits      rate.Pair            // zero: those of the organization for keys
	Visitors    rate.Pair            // of each address that presents a browser key; zero: the organization's
	ProofOfWork int                  // bits of work that a browser key asks for a submission, up to MaxProofOfWork; 0: none
	// May, where set, is asked of the key as it would be, before it is made, and may narrow it.
	May func(*Key, *identity.Account) error
}

// Issued is a new key with its token, which cannot be had again.
type Issued struct {
	Key     Key
	Token   secret.String
	Account identity.Account
	Late    error // why LateNote is to be told; nil: it is not
	// TakeBack makes the key what it was before, for who cannot tell the token to anybody. Errors:
	// store.ErrConflict where somebody else has changed it since, store.ErrUnavailable.
	TakeBack func(context.Context) error
}

// LateNote is told of a rotation that could not be announced: what accepted the token before forgets it by itself.
const LateNote = "the token before may be accepted for a few minutes more"

const (
	maxEntries = 100
	// MaxProofOfWork bounds how many bits of work a key asks for: each more doubles it.
	MaxProofOfWork = 24
	// MaxLifetime bounds an expiry.
	MaxLifetime = 10 * 366 * 24 * time.Hour
)

// Issue stores a new key and returns it with its token. Errors: *fault.Error
// with every fault, *store.DuplicateError, store.ErrUnavailable.
func (s *Service) Issue(ctx context.Context, t *tenants.Tenant, n NewKey) (*Issued, error) {
	var faults fault.List
	if n.Kind.Label() == "" {
		faults.Add("kind", fault.Unknown, "the kind of a key is one of %s, %s, %s", tenants.ServerFull, tenants.ServerRead, tenants.Browser)
	}
	if n.Lifetime < 0 || n.Lifetime > MaxLifetime {
		faults.Add("expires", fault.Range, "a key expires in the future, within %d hours", int(MaxLifetime.Hours()))
	}
	if n.ProofOfWork < 0 || n.ProofOfWork > MaxProofOfWork || n.ProofOfWork > 0 && n.Kind != tenants.Browser {
		faults.Add("proof_of_work", fault.Range, "only a browser key asks for proof of work, of 1 to %d bits", MaxProofOfWork)
	}
	allow, origins := n.Places(&faults)
	wants := identity.Account{Name: n.Name, Permissions: n.Permissions, Teams: n.Teams} // by the rules of what may own it
	var wrong *fault.Error
	if err := s.people.CheckAccount(ctx, t, &wants); errors.As(err, &wrong) {
		faults = append(faults, wrong.Faults...)
	} else if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	n.Name = wants.Name
	permissions, teams := wants.Permissions, wants.Teams
	if n.Account != "" {
		if _, err := s.people.FindAccount(ctx, t, n.Account); errors.Is(err, store.ErrNotFound) {
			faults.Add("account", fault.Unknown, "unknown service account")
		} else if err != nil {
			return nil, fmt.Errorf("create a key: %w", err)
		}
	}
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	account, own, err := s.account(ctx, t, n, permissions)
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	if !account.Active {
		faults.Add("account", fault.Forbidden, "the service account %q is not active", account.Name)
		return nil, fmt.Errorf("create a key: %w", faults.Err())
	}
	if !own {
		checkHeld(&faults, account, permissions, teams)
		if err := faults.Err(); err != nil {
			return nil, fmt.Errorf("create a key: %w", err)
		}
	}
	k := Key{AccountID: account.ID, Name: n.Name, Kind: n.Kind, Permissions: permissions, Teams: teams, AllowIPs: allow, Origins: origins, Limits: n.Limits, Visitors: n.Visitors, ProofOfWork: n.ProofOfWork}
	if own {
		k.Permissions = nil // the account holds just these
	}
	if n.Lifetime > 0 {
		k.Lifetime = n.Lifetime.Milliseconds()
		k.ExpiresAt = s.now().UnixMilli() + k.Lifetime
	}
	if n.May != nil {
		if err := n.May(&k, account); err != nil {
			return nil, err
		}
	}
	made, err := tokens.NewAPIKey(k.Kind)
	if err == nil {
		k.Hash, k.Hint = made.Hash, made.Hint
		// No announcement: nobody can have been told yet that the token is unknown.
		err = s.kinds.Keys.In(t.People()).Insert(ctx, &k)
	}
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return &Issued{Key: k, Token: made.Text, Account: *account, TakeBack: func(ctx context.Context) error {
		return s.kinds.Keys.In(t.People()).Delete(ctx, &k)
	}}, nil
}

// checkHeld notes permissions and teams that the account lacks: a key narrows what its
// account may do and never adds to it.
func checkHeld(faults *fault.List, a *identity.Account, permissions []tenants.Permission, teams []string) {
	lacking := slices.DeleteFunc(slices.Clone(permissions), func(p tenants.Permission) bool { return slices.Contains(a.Permissions, p) })
	if len(lacking) > 0 {
		has := "no permissions"
		if len(a.Permissions) > 0 {
			has = identity.Joined(a.Permissions)
		}
		faults.Add("permissions", fault.Forbidden, "the service account %q lacks %s; it has %s", a.Name, identity.Joined(lacking), has)
	}
	if len(a.Teams) == 0 {
		return
	}
	if slices.ContainsFunc(teams, func(team string) bool { return !slices.Contains(a.Teams, team) }) {
		faults.Add("teams", fault.Forbidden, "the service account %q is limited to the teams %s", a.Name, strings.Join(a.Teams, ", "))
	}
}

// account returns the owner of a new key, and whether it was made for it.
func (s *Service) account(ctx context.Context, t *tenants.Tenant, n NewKey, permissions []tenants.Permission) (*identity.Account, bool, error) {
	if n.Account != "" {
		a, err := s.people.FindAccount(ctx, t, n.Account)
		return a, false, err
	}
	a, err := s.people.AccountByName(ctx, t, n.Name)
	if !errors.Is(err, store.ErrNotFound) {
		return a, false, err
	}
	a, err = s.people.CreateAccount(ctx, t, identity.Account{Name: n.Name, Permissions: permissions, Active: true})
	if _, dup := errors.AsType[*store.DuplicateError](err); dup { // somebody else was first
		a, err = s.people.AccountByName(ctx, t, n.Name)
		return a, false, err
	}
	return a, err == nil, err
}

// Places returns from where the key may be used, as it is stored, and notes what is wrong with that.
func (n *NewKey) Places(faults *fault.List) (allow, origins []string) {
	return checkIPs(faults, n.AllowIPs), checkOrigins(faults, n.Kind, n.Origins)
}

func checkIPs(faults *fault.List, given []string) []string {
	if len(given) > maxEntries {
		faults.Add("allow_ips", fault.Length, "at most %d address ranges", maxEntries)
		return nil
	}
	var out []string
	for _, text := range given {
		prefix, err := parsePrefix(strings.TrimSpace(text))
		if err != nil {
			faults.Add("allow_ips", fault.Format, "%q is no address range such as 192.0.2.0/24", text)
			continue
		}
		out = append(out, prefix.String())
	}
	return out
}

// parsePrefix reads a CIDR or a single address, IPv4 in IPv6 as IPv4.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err == nil && p.Addr().Is4In6() {
		if p.Bits() < 96 {
			return netip.Prefix{}, errors.New("a range of mapped addresses that is wider than IPv4")
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), err
}

func checkOrigins(faults *fault.List, kind tenants.KeyKind, given []string) []string {
	switch {
	case kind == tenants.Browser && len(given) == 0:
		faults.Add("origins", fault.Required, "a browser key needs the origins it may be used from")
	case kind != tenants.Browser && kind != "" && len(given) > 0:
		faults.Add("origins", fault.Forbidden, "only a browser key has origins")
	case len(given) > maxEntries:
		faults.Add("origins", fault.Length, "at most %d origins", maxEntries)
		return nil
	}
	var out []string
	for _, text := range given {
		origin, ok := tenants.Origin(text)
		if !ok {
			tenants.NoOrigin(faults, "origins", text)
			continue
		}
		if !slices.Contains(out, origin) {
			out = append(out, origin)
		}
	}
	return out
}

// Get returns a key. Errors: store.ErrNotFound, store.ErrUnavailable.
func (s *Service) Get(ctx context.Context, t *tenants.Tenant, id string) (*Key, error) {
	return s.kinds.Keys.In(t.People()).Get(ctx, id)
}

// List returns keys in order of their making, and how many there are.
func (s *Service) List(ctx context.Context, t *tenants.Tenant, p identity.Page) ([]Key, int64, error) {
	return identity.List(ctx, s.kinds.Keys.In(t.People()), p, "id")
}

// Revoke ends a key: when it returns, this process accepts it no more, others within a
// second. Repeating it repeats the announcement. may, where set, is asked of the key as stored. Errors:
// store.ErrNotFound, store.ErrUnavailable, that of may.
func (s *Service) Revoke(ctx context.Context, t *tenants.Tenant, id string, may func(*Key) error) (*Key, error) {
	k, err := s.change(ctx, t, id, func(k *Key) error {
		if may != nil {
			if err := may(k); err != nil {
				return err
			}
		}
		if k.RevokedAt == 0 {
			k.RevokedAt = s.now().UnixMilli()
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("revoke a key: %w", err)
	}
	return k, nil
}

// RevokeAccount ends every key of an account and returns how many went on until now.
// Errors: store.ErrUnavailable.
func (s *Service) RevokeAccount(ctx context.Context, t *tenants.Tenant, account string) (int, error) {
	n := 0
	err := s.kinds.Keys.In(t.People()).Each(ctx, store.Eq("account_id", account), store.Either, func(k *Key) error {
		if k.RevokedAt != 0 || k.expired(s.now()) {
			return nil
		}
		n++
		_, err := s.Revoke(ctx, t, k.ID, nil)
		return err
	})
	if err != nil {
		return n, fmt.Errorf("revoke the keys of a service account: %w", err)
	}
	return n, nil
}

// SetLimits lets alter change the key's own limits, and those of each of its visitors. When it returns, they hold in
// this process, in others within a second. Errors: store.ErrNotFound, store.ErrUnavailable.
func (s *Service) SetLimits(ctx context.Context, t *tenants.Tenant, id string, alter func(own, visitors *rate.Pair)) (*Key, error) {
	k, err := s.change(ctx, t, id, func(k *Key) error {
		alter(&k.Limits, &k.Visitors)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("limit a key: %w", err)
	}
	return k, nil
}

// change stores a change of a key, makes cached identities void, and then clears the index, where what it holds
// is void already, unless that could not be announced. A key with an error is stored.
func (s *Service) change(ctx context.Context, t *tenants.Tenant, id string, alter func(*Key) error) (*Key, error) {
	var before string
	k, err := s.kinds.Keys.In(t.People()).Update(ctx, id, func(k *Key) error {
		before = k.Hash
		return alter(k)
	})
	if err != nil {
		return nil, err
	}
	if err = s.dir.BumpAccess(ctx, t.Org.OrgID); err != nil {
		err = fmt.Errorf("the change is stored, but may not hold everywhere yet; repeat it: %w", err)
	}
	for _, hash := range slices.Compact([]string{before, k.Hash}) {
		s.accepted.Delete(cacheKey(t, hash))
		s.index.remove(ctx, t, hash)
	}
	return k, err
}

// Bound reports whether the key ends, or may be used from some addresses alone.
func (k *Key) Bound() bool { return k.ExpiresAt > 0 || len(k.AllowIPs) > 0 }

// Covers refuses another key that would do what this one, which asks for it, cannot: outlast it, be used
// from elsewhere, or hold what it is narrowed to do without, whatever its account is given later. Errors:
// *fault.Error.
func (k *Key) Covers(other *Key) error {
	var faults fault.List
	if k.ExpiresAt > 0 && (other.ExpiresAt == 0 || other.ExpiresAt > k.ExpiresAt) {
		faults.Add("expires_in", fault.Forbidden, "the key that asks ends at %s, and none that it asks for may outlast it", texts.Time(k.ExpiresAt))
	}
	if wider(k.Permissions, other.Permissions) {
		faults.Add("permissions", fault.Forbidden, "the key that asks is narrowed to %s, and those that it asks for name some of these", identity.Joined(k.Permissions))
	}
	if wider(k.Teams, other.Teams) {
		faults.Add("teams", fault.Forbidden, "the key that asks is narrowed to the teams %s, and those that it asks for name some of these", strings.Join(k.Teams, ", "))
	}
	own, err := prefixes(k.AllowIPs)
	wanted, otherErr := prefixes(other.AllowIPs)
	elsewhere := slices.ContainsFunc(wanted, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(own, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
	})
	if len(k.AllowIPs) > 0 && (len(wanted) == 0 || elsewhere || err != nil || otherErr != nil) {
		faults.Add("allowed_ips", fault.Forbidden, "the key that asks may be used from %s alone, and so may those that it asks for", strings.Join(k.AllowIPs, ", "))
	}
	return faults.Err()
}

// wider reports whether a key that is narrowed to the list named wanted holds what one narrowed to own cannot.
func wider[T comparable](own, wanted []T) bool {
	return len(own) > 0 && (len(wanted) == 0 || slices.ContainsFunc(wanted, func(one T) bool { return !slices.Contains(own, one) }))
}

// State returns what has become of the key: active, expired or revoked.
func (k *Key) State(now time.Time) string {
	switch {
	case k.RevokedAt != 0:
		return "revoked"
	case k.expired(now):
		return "expired"
	}
	return "active"
}

// InState matches the keys that are active, expired or revoked at that time.
func InState(state string, now time.Time) store.Filter {
	never := func(field string) store.Filter { // one stored by an earlier version may lack it
		return store.AnyOf(store.Eq(field, int64(0)), store.Where(store.F(field), store.OpExists, false))
	}
	switch state {
	case "active":
		return store.All(never("revoked_at"), store.AnyOf(never("expires_at"), store.Where(store.F("expires_at"), store.OpGt, now.UnixMilli())))
	case "expired":
		return store.All(never("revoked_at"), store.Where(store.F("expires_at"), store.OpGt, int64(0)), store.Where(store.F("expires_at"), store.OpLte, now.UnixMilli()))
	}
	return store.Where(store.F("revoked_at"), store.OpGt, int64(0))
}

// Owners returns the service accounts of the keys by identifier; one that was deleted is missing. Errors:
// store.ErrUnavailable.
func (s *Service) Owners(ctx context.Context, t *tenants.Tenant, keys ...*Key) (map[string]*identity.Account, error) {
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.AccountID)
	}
	slices.Sort(ids)
	return s.people.AccountsOf(ctx, t, slices.Compact(ids))
}

// RemoveAccount ends every key of an account and deletes it, as it was read. It returns how many keys went on
// until now. Errors: store.ErrNotFound, store.ErrConflict where it was changed since, store.ErrUnavailable.
func (s *Service) RemoveAccount(ctx context.Context, t *tenants.Tenant, a *identity.Account) (n int, err error) {
	// From here on it has no use and no further keys; and whoever changed it comes first.
	ended, err := s.people.UpdateAccount(ctx, t, a, func(now *identity.Account) error {
		if now.Rev != a.Rev {
			return store.ErrConflict
		}
		now.Active = false
		return nil
	})
	if err == nil {
		n, err = s.RevokeAccount(ctx, t, a.ID)
	}
	if err == nil {
		err = s.people.DeleteAccount(ctx, t, ended)
	}
	return n, err
}

func (k *Key) expired(now time.Time) bool { return k.ExpiresAt > 0 && now.UnixMilli() >= k.ExpiresAt }
