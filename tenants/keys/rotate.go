package keys

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// Older is a token that a rotation has replaced and that is still valid.
type Older struct {
	Hash  string `json:"hash"`
	Until int64  `json:"until"` // Unix milliseconds
}

// maxOlder is the maximum number of replaced tokens of a key that are valid.
const maxOlder = 8

// Rotated returns the replaced tokens that are valid at that time, latest first.
func (k *Key) Rotated(now time.Time) []Older {
	all := append([]Older{{k.OldHash, k.OldUntil}}, k.Older...)
	return slices.DeleteFunc(all, func(o Older) bool { return now.UnixMilli() >= o.Until })
}

// setRotated sets what Rotated returns.
func (k *Key) setRotated(all []Older) {
	k.OldHash, k.OldUntil, k.Older, k.OlderHashes = "", 0, nil, nil
	for i, o := range all {
		if i == 0 {
			k.OldHash, k.OldUntil = o.Hash, o.Until
			continue
		}
		k.Older, k.OlderHashes = append(k.Older, o), append(k.OlderHashes, o.Hash)
	}
}

// Until returns when the token with that hash expires, in Unix milliseconds, or 0 if it never does.
func (k *Key) Until(hash string) int64 {
	if hash == k.Hash {
		return k.ExpiresAt
	}
	for _, o := range append([]Older{{k.OldHash, k.OldUntil}}, k.Older...) {
		if o.Hash == hash {
			return o.Until
		}
	}
	return 1 // it has expired
}

// Rotate gives the key a new token and restarts its lifetime. The former token stays valid for the overlap (0: it ends
// now), and tokens replaced earlier until their own ends. check, unless nil, gets the key before it is stored. It may
// refuse the key or narrow it. Errors: as Issue, store.ErrNotFound.
func (s *Service) Rotate(
	ctx context.Context, t *tenants.Tenant, id string, overlap time.Duration, check func(*Key, *identity.Account) error,
) (*Issued, error) {
	k, err := s.Get(ctx, t, id)
	if err != nil {
		return nil, fmt.Errorf("rotate a key: %w", err)
	}
	account, err := s.people.Account(ctx, t, k.AccountID)
	if err != nil {
		return nil, fmt.Errorf("rotate a key: %w", err)
	}
	made, err := tokens.NewAPIKey(k.Kind)
	if err != nil {
		return nil, fmt.Errorf("rotate a key: %w", err)
	}
	var was Key
	k, err = s.change(ctx, t, id, func(k *Key) error {
		was = *k
		now := s.now()
		var faults fault.List
		if k.RevokedAt != 0 || k.expired(now) {
			faults.Add("id", fault.Forbidden, "the key is revoked or expired; issue a new one")
		}
		if overlap < 0 || overlap > MaxLifetime {
			faults.Add("overlap", fault.Range, "the overlap is from 0 to %d hours", int(MaxLifetime.Hours()))
		}
		if !account.Active {
			faults.Add("account", fault.Forbidden, "the service account %q is not active", account.Name)
		}
		rotated := k.Rotated(now)
		if overlap > 0 {
			last := Older{k.Hash, now.Add(overlap).UnixMilli()}
			if k.ExpiresAt > 0 {
				last.Until = min(last.Until, k.ExpiresAt)
			}
			rotated = slices.Insert(rotated, 0, last)
		}
		if len(rotated) > maxOlder {
			faults.Add("overlap", fault.Length, "the key has %d earlier tokens that are still valid, the most allowed: "+
				"wait until one expires, rotate without an overlap, or issue another key", maxOlder)
		}
		if len(faults) > 0 {
			return faults.Err()
		}
		k.setRotated(rotated)
		k.Hash, k.Hint = made.Hash, made.Hint
		if k.Lifetime > 0 {
			k.ExpiresAt = now.UnixMilli() + k.Lifetime
		}
		if check != nil {
			return check(k, account)
		}
		return nil
	})
	if k == nil {
		return nil, fmt.Errorf("rotate a key: %w", err)
	}
	return &Issued{Key: *k, Token: made.Text, Account: *account, Late: err, TakeBack: func(ctx context.Context) error {
		_, err := s.change(ctx, t, id, func(k *Key) error {
			if k.Hash != made.Hash {
				return store.ErrConflict
			}
			k.Hash, k.Hint, k.OldHash, k.OldUntil, k.ExpiresAt = was.Hash, was.Hint, was.OldHash, was.OldUntil, was.ExpiresAt
			k.Older, k.OlderHashes = was.Older, was.OlderHashes
			k.Permissions, k.Teams = was.Permissions, was.Teams
			return nil
		})
		return err
	}}, nil
}
