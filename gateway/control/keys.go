package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"tenantry/backends/store"
	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/people"
)

// States of a key.
const (
	KeyActive  = "active"
	KeyExpired = "expired"
	KeyRevoked = "revoked"
)

// key returns a key as lists show it; account is nil where it was deleted.
func (h *handler) key(k *keys.Key, account *people.Account) Key {
	name := ""
	if account == nil {
		account = &people.Account{}
	} else {
		name = account.Name
	}
	state := KeyActive
	switch {
	case k.RevokedAt != 0:
		state = KeyRevoked
	case k.ExpiresAt != 0 && h.Now().UnixMilli() >= k.ExpiresAt:
		state = KeyExpired
	}
	return Key{
		ID: k.ID, Name: k.Name, Kind: string(k.Kind), Account: name, Hint: k.Hint, State: state,
		Permissions: words(k.Permissions), Effective: words(k.Effective(account)), Teams: k.Teams, AllowIPs: k.AllowIPs, Origins: k.Origins,
		CreatedAt: when(k.CreatedAt), ExpiresAt: whenSet(k.ExpiresAt), RevokedAt: whenSet(k.RevokedAt), LastUsedAt: whenSet(k.LastUsed), Limits: k.Limits,
	}
}

func issued(i *keys.Issued) IssuedKey {
	return IssuedKey{
		ID: i.Key.ID, Token: i.Token.Reveal(), Kind: string(i.Key.Kind), Account: i.Account.Name, ExpiresAt: whenSet(i.Key.ExpiresAt),
	}
}

func (h *handler) createKey(ctx context.Context, r *NewKey) (Issued, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return Issued{}, err
	}
	limited, err := newKeyLimits(r)
	if err != nil {
		return Issued{}, err
	}
	made, err := h.Keys.Issue(ctx, t, keys.NewKey{
		Name: r.Name, Kind: tenants.KeyKind(r.Kind), Account: r.Account, Permissions: permissions(r.Permissions),
		Teams: r.Teams, AllowIPs: r.AllowIPs, Origins: r.Origins, Lifetime: r.Expires, Limits: limited,
	})
	if err != nil {
		return Issued{}, err
	}
	unrecorded := h.noteRecord(ctx, t, "key.create", map[string]string{"key": made.Key.ID, "kind": string(made.Key.Kind), "account": made.Account.ID})
	return Issued{Key: issued(made), Notes: append(notes(made), unrecorded...)}, nil
}

// notes tells where a key can do less than its maker may think.
func notes(made *keys.Issued) []string {
	var out []string
	held := made.Account.Permissions
	if len(held) == 0 {
		out = append(out, fmt.Sprintf("the service account %q holds no permissions, so the key can only be used where none is needed", made.Account.Name))
	}
	return out
}

func (h *handler) listKeys(ctx context.Context, r *Page) (List[Key], error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return List[Key]{}, err
	}
	limit := min(pageLimit(r.Limit), people.MaxLimit)
	h.Keys.FlushUses(ctx) // what cannot be stored now is told later
	found, total, err := h.Keys.List(ctx, t, people.Page{Limit: limit, Offset: r.Offset})
	if err != nil {
		return List[Key]{}, err
	}
	out := List[Key]{Items: []Key{}, More: total > int64(r.Offset)+int64(len(found))}
	// Identifiers made by several processes follow time only roughly.
	slices.SortStableFunc(found, func(a, b keys.Key) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	owners := map[string]*people.Account{}
	for i := range found {
		owner, err := h.owner(ctx, t, owners, found[i].AccountID)
		if err != nil {
			return List[Key]{}, err
		}
		out.Items = append(out.Items, h.key(&found[i], owner))
	}
	return out, nil
}

// owner returns a key's service account, nil where it was deleted.
func (h *handler) owner(ctx context.Context, t *tenants.Tenant, known map[string]*people.Account, id string) (*people.Account, error) {
	if a, ok := known[id]; ok {
		return a, nil
	}
	a, err := h.People.Account(ctx, t, id)
	if errors.Is(err, store.ErrNotFound) {
		a, err = nil, nil
	}
	if err == nil {
		known[id] = a
	}
	return a, err
}

func (h *handler) revokeKey(ctx context.Context, r *KeyRef) (Key, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return Key{}, err
	}
	k, err := h.Keys.Revoke(ctx, t, r.ID)
	if err != nil {
		return Key{}, noKey(err, r)
	}
	if err := h.record(ctx, t, "key.revoke", map[string]string{"key": k.ID}); err != nil {
		return Key{}, err
	}
	owner, err := h.owner(ctx, t, map[string]*people.Account{}, k.AccountID)
	return h.key(k, owner), err
}

func (h *handler) rotateKey(ctx context.Context, r *KeyRef) (IssuedKey, error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return IssuedKey{}, err
	}
	next, err := h.Keys.Rotate(ctx, t, r.ID, r.Overlap)
	if err != nil {
		return IssuedKey{}, noKey(err, r)
	}
	out := issued(next)
	out.Notes = h.noteRecord(ctx, t, "key.rotate", map[string]string{"key": r.ID, "successor": next.Key.ID, "overlap": r.Overlap.String()})
	return out, nil
}

// noKey says which key was not found, and that a key's text is not its identifier. The
// text itself is not repeated.
func noKey(err error, r *KeyRef) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if !store.ValidID(r.ID) {
		return &Error{Code: CodeNotFound, Message: fmt.Sprintf("a key is named by its identifier of 24 hexadecimal digits, not by its text; tenantry key list --org %s shows it", r.Org)}
	}
	return &Error{Code: CodeNotFound, Message: fmt.Sprintf("organization %s has no key %s; tenantry key list --org %s shows those there are", r.Org, r.ID, r.Org)}
}
