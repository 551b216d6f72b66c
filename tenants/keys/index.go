package keys

import (
	"context"
	"encoding/json"
	"time"

	"tenantry/internal/rate"
	"tenantry/tenants"
	"tenantry/tenants/redisconn"
)

const (
	indexVersion = 3
	// indexedFor is the longest lifetime of an entry in Redis.
	indexedFor = 5 * time.Minute
)

// index is the index in Redis, shared by all replicas. Only speed depends on it: an entry that is missing, unreadable
// or void is read from the store instead.
type index struct {
	dir     *tenants.Directory
	redis   redisconn.Client   // nil: there is no index
	breaker *redisconn.Breaker // because the timeout of a failed Redis would slow every look-up
	now     func() time.Time
}

// indexed is an entry in Redis. It is sealed together with its name, which exposes replies to another command and
// entries that the organization did not write.
type indexed struct {
	Version     int                  `json:"v"`
	Rev         int64                `json:"r"`
	KeyID       string               `json:"k"`
	AccountID   string               `json:"a"`
	Kind        tenants.KeyKind      `json:"t"`
	Permissions []tenants.Permission `json:"p"`
	Limited     bool                 `json:"l"`
	Teams       []string             `json:"s"`
	Origins     []string             `json:"g,omitempty"`
	AllowIPs    []string             `json:"c,omitempty"`
	ExpiresAt   int64                `json:"e,omitempty"`
	Limits      rate.Pair            `json:"m,omitzero"`
	Visitors    rate.Pair            `json:"w,omitzero"`
	ProofOfWork int                  `json:"q,omitempty"`
}

func indexKey(t *tenants.Tenant, hash string) string { return t.RedisPrefix() + "key:" + hash }

func (x *index) get(ctx context.Context, t *tenants.Tenant, hash string) (*entry, bool) {
	if x.redis == nil {
		return nil, false
	}
	name := indexKey(t, hash)
	var raw []byte
	err := x.breaker.Do(ctx, func() (err error) {
		raw, err = x.redis.Get(ctx, name)
		return err
	})
	if err != nil {
		return nil, false
	}
	if raw, err = x.dir.Unseal(ctx, t, name, raw); err != nil {
		return nil, false
	}
	var v indexed
	if json.Unmarshal(raw, &v) != nil || v.Version != indexVersion ||
		v.Rev != t.Org.AccessRev || v.KeyID == "" || v.Kind.Label() == "" {
		return nil, false
	}
	allow, err := prefixes(v.AllowIPs)
	if err != nil {
		return nil, false
	}
	p := &tenants.Principal{
		Kind: tenants.ServiceAccount, AccountID: v.AccountID, KeyID: v.KeyID, KeyKind: v.Kind,
		Permissions: v.Permissions, Origins: v.Origins, Limits: v.Limits, Visitors: v.Visitors, ProofOfWork: v.ProofOfWork,
	}
	if v.Limited {
		p.Teams = append([]string{}, v.Teams...)
	}
	return &entry{principal: p, rev: v.Rev, expiresAt: v.ExpiresAt, allow: allow}, true
}

// put stores an entry. Errors are ignored: later look-ups read the store.
func (x *index) put(ctx context.Context, t *tenants.Tenant, hash string, e *entry) {
	if x.redis == nil || x.breaker.Paused() {
		return
	}
	lifetime := indexedFor
	if e.expiresAt > 0 {
		lifetime = min(lifetime, time.UnixMilli(e.expiresAt).Sub(x.now()))
	}
	if lifetime < time.Millisecond {
		return
	}
	p := e.principal
	v := indexed{
		Version: indexVersion, Rev: e.rev, KeyID: p.KeyID, AccountID: p.AccountID, Kind: p.KeyKind,
		Permissions: p.Permissions, Limited: p.Teams != nil, Teams: p.Teams, Origins: p.Origins, ExpiresAt: e.expiresAt,
		Limits: p.Limits, Visitors: p.Visitors, ProofOfWork: p.ProofOfWork,
	}
	for _, prefix := range e.allow {
		v.AllowIPs = append(v.AllowIPs, prefix.String())
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return
	}
	name := indexKey(t, hash)
	if raw, err = x.dir.Seal(ctx, t, name, raw); err != nil {
		return
	}
	_ = x.breaker.Do(ctx, func() error { return x.redis.Set(ctx, name, raw, lifetime) })
}

func (x *index) remove(ctx context.Context, t *tenants.Tenant, hash string) {
	if x.redis == nil {
		return
	}
	_ = x.breaker.Do(ctx, func() error { return x.redis.Del(ctx, indexKey(t, hash)) })
}
