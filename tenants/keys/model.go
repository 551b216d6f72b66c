// Package keys issues, revokes and authenticates API keys. The store is authoritative; Redis and a cache in the process
// are indexes of it. Every index entry carries the organization's access revision at which it was read, and is void
// once that has grown. An index that loses entries, or restores old ones, therefore cannot revive a revoked key.
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

// Key is an API key. The token itself is not stored.
type Key struct {
	store.Meta
	OrgID       int64                `json:"org_id" use:"local"`
	Hash        string               `json:"hash" rule:"unique" use:"local"`
	OldHash     string               `json:"old_hash,omitempty" rule:"unique" use:"local"` // of the token before the last rotation, while that is valid
	OldUntil    int64                `json:"old_until,omitempty" use:"local"`              // Unix milliseconds
	Older       []Older              `json:"older,omitempty" use:"local"`                  // earlier tokens that are still valid, latest first
	OlderHashes []string             `json:"older_hashes,omitempty" use:"local filter"`    // their hashes, for look-ups
	Hint        string               `json:"hint"`                                         // beginning of the token, for lists
	AccountID   string               `json:"account_id" as:"account" use:"filter"`
	Name        string               `json:"name" use:"filter" example:"crm"`
	Kind        tenants.KeyKind      `json:"kind" use:"local filter"`
	Permissions []tenants.Permission `json:"permissions,omitempty"`                   // empty: not narrowed
	Teams       []string             `json:"teams,omitempty"`                         // empty: not narrowed
	AllowIPs    []string             `json:"allow_ips,omitempty"`                     // empty: from anywhere
	Origins     []string             `json:"origins,omitempty"`                       // origins from which a browser key may be used
	ExpiresAt   int64                `json:"expires_at,omitempty" use:"local filter"` // Unix milliseconds; 0: never
	Lifetime    int64                `json:"lifetime,omitempty"`                      // milliseconds, as issued; 0: unlimited
	RevokedAt   int64                `json:"revoked_at,omitempty" use:"local filter"` // Unix milliseconds; 0: not revoked
	LastUsed    int64                `json:"last_used,omitempty"`                     // Unix milliseconds, roughly; 0: never
	NeededSince int64                `json:"needed_since,omitempty"`                  // Unix milliseconds at which recording began; 0: not yet
	Needed      []tenants.Permission `json:"needed,omitempty"`                        // permissions that calls have needed since then
	Limits      rate.Pair            `json:"limits,omitzero"`                         // of the key; zero: the organization's for keys
	Visitors    rate.Pair            `json:"visitors,omitzero"`                       // of each address that presents a browser key; zero: the organization's
	ProofOfWork int                  `json:"proof_of_work,omitempty"`                 // bits of work that a browser key requires for a submission; 0: none
}

// Kinds are the record kinds of this package. They belong to the control workspace, partitioned by organization, and
// are not carried in bundles.
type Kinds struct {
	Keys   *record.Of[Key]
	Rights *record.Of[Rights]
}

// NewKinds declares the kinds.
func NewKinds() Kinds {
	return Kinds{record.Must(record.Options[Key]{
		Traits: record.Traits{Name: "key", Control: true, Rights: true},
		Spec: store.Spec{
			Name: "keys", Partition: true, Fields: []string{"last_used", "needed_since"},
			Indexes: []store.Index{
				{Fields: []string{"account_id"}}, {Fields: []string{"name"}},
				{Fields: []string{"created_at"}}, {Fields: []string{"older_hashes"}},
				{Fields: []string{"expires_at"}}, {Fields: []string{"needed_since", "created_at"}},
			},
			Access: []store.Access{
				{Where: []string{"account_id"}}, {Where: []string{"name"}},
				{Where: []string{"older_hashes"}}, {Sort: []string{"created_at"}},
				{Where: []string{"expires_at"}}, {Where: []string{"needed_since", "created_at"}},
				{Where: []string{"needed_since"}, Sort: []string{"created_at"}},
			},
		},
	}), record.Must(record.Options[Rights]{
		Traits: record.Traits{Name: "noted_rights", Control: true},
		Spec: store.Spec{
			Name: "noted_rights", Partition: true, Fields: []string{"since"},
			Indexes: []store.Index{{Fields: []string{"since"}}},
			Access:  []store.Access{{Where: []string{"since"}, Sort: []string{"since"}}},
		},
	})}
}

// Specs returns the specifications, for the store's list of control kinds.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Keys.Spec(), k.Rights.Spec()} }

// Options configure a Service. Directory, Kinds and People are required.
type Options struct {
	Directory *tenants.Directory
	Kinds     Kinds
	People    *identity.Service
	Redis     redisconn.Client   // nil: keys are looked up in the store
	Breaker   *redisconn.Breaker // of Redis; nil: the Service makes its own, which logs nothing
	Now       func() time.Time   // nil: time.Now
	// Grace is how much longer a cached key is accepted while neither Redis nor the store answers. 0: DefaultGrace;
	// below 0: none.
	Grace time.Duration
	// Kept is how many accepted keys are cached, 0: tenants.DefaultOrganizations.
	Kept int
}

// Service issues, manages and authenticates keys. It is safe for concurrent use.
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
		accepted: cache.New[presented, *entry](cmp.Or(o.Kept, tenants.DefaultOrganizations)),
		unknown:  cache.New[presented, absence](maxUnknown),
	}
	if s.now == nil {
		s.now = time.Now
	}
	if s.grace == 0 {
		s.grace = DefaultGrace
	}
	s.uses.pending, s.uses.flush = map[subject]use{}, make(chan struct{}, 1)
	s.index = index{dir: o.Directory, redis: o.Redis, breaker: o.Breaker, now: s.now}
	if s.index.breaker == nil {
		s.index.breaker = redisconn.NewBreaker(nil, s.now)
	}
	o.Directory.OnRemove(s.purgers)
	return s
}

// Kept returns how many accepted keys are cached.
func (s *Service) Kept() int { return s.accepted.Len() }

func (s *Service) purgers(people *store.Workspace) []store.Purger {
	return []store.Purger{s.kinds.Keys.In(people), s.kinds.Rights.In(people)}
}

// NewKey describes a key for Issue. Name and Kind are required.
type NewKey struct {
	Name string
	Kind tenants.KeyKind
	// Account is the ID or the name of the service account that owns the key. Empty: the account with the key's name,
	// which is created with Permissions if it does not exist.
	Account     string
	Permissions []tenants.Permission // narrow the account's; empty: all of the account's
	Teams       []string             // narrow the account's; empty: all of the account's
	AllowIPs    []string             // CIDRs or addresses
	Origins     []string             // of a browser key, such as "https://www.example.com"
	Lifetime    time.Duration        // 0: the key does not expire
	Limits      rate.Pair            // zero: those of the organization for keys
	Visitors    rate.Pair            // of each address that presents a browser key; zero: the organization's
	ProofOfWork int                  // bits of work that a browser key requires, up to MaxProofOfWork; 0: none
	// May, unless nil, gets the key before it is stored. It may refuse the key or narrow it.
	May func(*Key, *identity.Account) error
}

// Issued is a new key with its token, which cannot be retrieved later.
type Issued struct {
	Key     Key
	Token   secret.String
	Account identity.Account
	Late    error // why a rotation was not announced, in which case the caller is shown LateNote; nil if it was
	// TakeBack undoes the change that created the token, for callers that cannot deliver it. Errors: store.ErrConflict
	// if the key was changed since, store.ErrUnavailable.
	TakeBack func(context.Context) error
}

// LateNote is the note on a rotation that could not be announced: caches drop the former token only when it expires
// there.
const LateNote = "the former token may be accepted for a few more minutes"

const (
	maxEntries = 100
	// MaxProofOfWork is the maximum number of bits of work. Each bit doubles the work.
	MaxProofOfWork = 24
	// MaxLifetime is the maximum lifetime of a key.
	MaxLifetime = 10 * 366 * 24 * time.Hour
)

// Issue stores a new key and returns it with its token. Errors: *fault.Error with every fault, *store.DuplicateError,
// store.ErrUnavailable, that of n.May.
func (s *Service) Issue(ctx context.Context, t *tenants.Tenant, n NewKey) (*Issued, error) {
	var faults fault.List
	if n.Kind.Label() == "" {
		faults.Add("kind", fault.Unknown, "the kind of a key is one of %s, %s, %s",
			tenants.ServerFull, tenants.ServerRead, tenants.Browser)
	}
	if n.Lifetime < 0 || n.Lifetime > MaxLifetime {
		faults.Add("expires", fault.Range, "a key expires in the future, within %d hours", int(MaxLifetime.Hours()))
	}
	if n.ProofOfWork < 0 || n.ProofOfWork > MaxProofOfWork || n.ProofOfWork > 0 && n.Kind != tenants.Browser {
		faults.Add("proof_of_work", fault.Range, "only a browser key can require proof of work, of 1 to %d bits",
			MaxProofOfWork)
	}
	allow, origins := n.Places(&faults)
	wants := identity.Account{Name: n.Name, Permissions: n.Permissions, Teams: n.Teams} // the rules of accounts apply
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
			faults.Add("account", fault.Unknown, "unknown service account %q", texts.Clip(n.Account))
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

	k := Key{
		AccountID: account.ID, Name: n.Name, Kind: n.Kind, Permissions: permissions, Teams: teams, AllowIPs: allow,
		Origins: origins, Limits: n.Limits, Visitors: n.Visitors, ProofOfWork: n.ProofOfWork,
	}
	if own {
		k.Permissions = nil // the new account holds exactly these
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
		// No announcement is needed, because no cache can hold that the token is unknown.
		err = s.kinds.Keys.In(t.People()).Insert(ctx, &k)
	}
	if err != nil {
		return nil, fmt.Errorf("create a key: %w", err)
	}
	return &Issued{Key: k, Token: made.Text, Account: *account, TakeBack: func(ctx context.Context) error {
		return s.kinds.Keys.In(t.People()).Delete(ctx, &k)
	}}, nil
}

// checkHeld notes permissions and teams that the account lacks: a key can only narrow the rights of its account.
func checkHeld(faults *fault.List, a *identity.Account, permissions []tenants.Permission, teams []string) {
	lacking := slices.DeleteFunc(slices.Clone(permissions), func(p tenants.Permission) bool {
		return slices.Contains(a.Permissions, p)
	})
	if len(lacking) > 0 {
		has := "no permissions"
		if len(a.Permissions) > 0 {
			has = identity.JoinPermissions(a.Permissions)
		}
		faults.Add("permissions", fault.Forbidden, "the service account %q lacks %s; it has %s", a.Name,
			identity.JoinPermissions(lacking), has)
	}
	if len(a.Teams) == 0 {
		return
	}
	if slices.ContainsFunc(teams, func(team string) bool { return !slices.Contains(a.Teams, team) }) {
		faults.Add("teams", fault.Forbidden, "the service account %q is limited to the teams %s", a.Name,
			strings.Join(a.Teams, ", "))
	}
}

// account returns the owner of a new key, and whether it was created for the key.
func (s *Service) account(
	ctx context.Context, t *tenants.Tenant, n NewKey, permissions []tenants.Permission,
) (*identity.Account, bool, error) {
	if n.Account != "" {
		a, err := s.people.FindAccount(ctx, t, n.Account)
		return a, false, err
	}
	a, err := s.people.AccountByName(ctx, t, n.Name)
	if !errors.Is(err, store.ErrNotFound) {
		return a, false, err
	}
	a, err = s.people.CreateAccount(ctx, t, identity.Account{Name: n.Name, Permissions: permissions, Active: true})
	if _, dup := errors.AsType[*store.DuplicateError](err); dup { // another caller created it first
		a, err = s.people.AccountByName(ctx, t, n.Name)
		return a, false, err
	}
	return a, err == nil, err
}

// Places returns the address ranges and origins from which the key may be used, in their stored form, and notes faults
// in them.
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
			faults.Add("allow_ips", fault.Format, "%q is not an address range such as 192.0.2.0/24", text)
			continue
		}
		out = append(out, prefix.String())
	}
	return out
}

// parsePrefix parses a CIDR or a single address. IPv4-mapped IPv6 becomes IPv4.
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
			tenants.AddInvalidOrigin(faults, "origins", text)
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

// List returns one page of keys in order of creation, and the total number.
func (s *Service) List(ctx context.Context, t *tenants.Tenant, p identity.Page) ([]Key, int64, error) {
	return identity.List(ctx, s.kinds.Keys.In(t.People()), p, "id")
}

// Revoke revokes a key. When it returns, this process no longer accepts the key, and others stop within a second.
// Repeating it repeats the announcement. check, unless nil, gets the key as stored and may refuse. Errors:
// store.ErrNotFound, store.ErrUnavailable, that of check.
func (s *Service) Revoke(ctx context.Context, t *tenants.Tenant, id string, check func(*Key) error) (*Key, error) {
	k, err := s.change(ctx, t, id, func(k *Key) error {
		if check != nil {
			if err := check(k); err != nil {
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

// RevokeAccount revokes every key of an account and returns how many of them were active. Error: store.ErrUnavailable.
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

// SetLimits changes the key's limits, and those of each of its visitors, by alter. When it returns, they apply in this
// process, and in others within a second. Errors: store.ErrNotFound, store.ErrUnavailable.
func (s *Service) SetLimits(
	ctx context.Context, t *tenants.Tenant, id string, alter func(own, visitors *rate.Pair),
) (*Key, error) {
	k, err := s.change(ctx, t, id, func(k *Key) error {
		alter(&k.Limits, &k.Visitors)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("limit a key: %w", err)
	}
	return k, nil
}

// change stores a change of a key, invalidates cached identities, and removes the key from the indexes, whose entries
// could stay valid if the announcement failed. If it returns a key together with an error, the change is stored.
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
		err = fmt.Errorf("the change is stored but may not be effective everywhere yet; repeat it: %w", err)
	}
	for _, hash := range slices.Compact([]string{before, k.Hash}) {
		s.index.remove(ctx, t, hash)
	}
	return k, err
}

// Bound reports whether the key expires, or may be used from certain addresses only.
func (k *Key) Bound() bool { return k.ExpiresAt > 0 || len(k.AllowIPs) > 0 }

// Covers refuses another key, which a caller requests with this one, if it could do what this one cannot: be valid
// longer, be used from other addresses, or hold rights to which this one is not narrowed, whatever its account is given
// later. Error: *fault.Error.
func (k *Key) Covers(other *Key) error {
	var faults fault.List
	if k.ExpiresAt > 0 && (other.ExpiresAt == 0 || other.ExpiresAt > k.ExpiresAt) {
		faults.Add("expires_in", fault.Forbidden, "the calling key expires at %s, and the other key must not expire later",
			texts.Time(k.ExpiresAt))
	}
	if wider(k.Permissions, other.Permissions) {
		faults.Add("permissions", fault.Forbidden, "the calling key is narrowed to %s, and the other key must name some of these",
			identity.JoinPermissions(k.Permissions))
	}
	if wider(k.Teams, other.Teams) {
		faults.Add("teams", fault.Forbidden,
			"the calling key is narrowed to the teams %s, and the other key must name some of these", strings.Join(k.Teams, ", "))
	}
	own, err := prefixes(k.AllowIPs)
	wanted, otherErr := prefixes(other.AllowIPs)
	elsewhere := slices.ContainsFunc(wanted, func(p netip.Prefix) bool {
		return !slices.ContainsFunc(own, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
	})
	if len(k.AllowIPs) > 0 && (len(wanted) == 0 || elsewhere || err != nil || otherErr != nil) {
		faults.Add("allowed_ips", fault.Forbidden, "the calling key may be used from %s only, and so must the other key",
			strings.Join(k.AllowIPs, ", "))
	}
	return faults.Err()
}

// wider reports whether a key narrowed to the list wanted holds something that a key narrowed to own does not. An empty
// list narrows nothing.
func wider[T comparable](own, wanted []T) bool {
	return len(own) > 0 && (len(wanted) == 0 || slices.ContainsFunc(wanted,
		func(one T) bool { return !slices.Contains(own, one) }))
}

// State returns the state of the key: active, expired or revoked.
func (k *Key) State(now time.Time) string {
	switch {
	case k.RevokedAt != 0:
		return "revoked"
	case k.expired(now):
		return "expired"
	}
	return "active"
}

// InState returns a filter for keys that are active, expired or revoked at that time.
func InState(state string, now time.Time) store.Filter {
	switch state {
	case "active":
		return store.All(never("revoked_at"), store.AnyOf(never("expires_at"),
			store.Where(store.F("expires_at"), store.OpGt, now.UnixMilli())))
	case "expired":
		return Expiring(time.UnixMilli(0), now)
	}
	return store.Where(store.F("revoked_at"), store.OpGt, int64(0))
}

// Expiring returns a filter for keys that expire after one time and no later than the other, and are not revoked.
func Expiring(after, until time.Time) store.Filter {
	return store.All(never("revoked_at"), within("expires_at", after, until))
}

// Unused returns filters for keys that were created before that time and never used. No key matches two of them. They
// are not one filter, because an index serves each, but not their disjunction.
func Unused(before time.Time) []store.Filter {
	created := store.Where(store.F("created_at"), store.OpLt, before.UnixMilli())
	return []store.Filter{
		store.All(store.Eq("needed_since", int64(0)), never("last_used"), created),
		store.All(store.Has("needed_since", false), never("last_used"), created), // stored by an earlier version
	}
}

// RecordedBefore returns a filter for keys whose needed permissions have been recorded since before that time.
func RecordedBefore(before time.Time) store.Filter {
	return within("needed_since", time.UnixMilli(0), before)
}

// never matches keys without a time in the field. Those stored by an earlier version may lack the field.
func never(field string) store.Filter {
	return store.AnyOf(store.Eq(field, int64(0)), store.Has(field, false))
}

// within matches keys with a time in the field that is after one time and no later than the other.
func within(field string, after, until time.Time) store.Filter {
	return store.All(store.Where(store.F(field), store.OpGt, after.UnixMilli()),
		store.Where(store.F(field), store.OpLte, until.UnixMilli()))
}

// Owners returns the service accounts of the keys by ID. Deleted accounts are left out. Error: store.ErrUnavailable.
func (s *Service) Owners(ctx context.Context, t *tenants.Tenant, keys ...*Key) (map[string]*identity.Account, error) {
	var ids []string
	for _, k := range keys {
		ids = append(ids, k.AccountID)
	}
	slices.Sort(ids)
	return s.people.AccountsOf(ctx, t, slices.Compact(ids))
}

// RemoveAccount revokes every key of an account and deletes the account at the revision read. It returns how many keys
// were active. Errors: store.ErrNotFound, store.ErrConflict if the account was changed since, store.ErrUnavailable.
func (s *Service) RemoveAccount(ctx context.Context, t *tenants.Tenant, a *identity.Account) (n int, err error) {
	// Deactivating it first ends its use, prevents new keys, and detects changes since it was read.
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
