package people

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// Key is an API key without its text.
type Key struct {
	ID          string               `json:"id" doc:"Identifier of the key, which rotations keep."`
	Name        string               `json:"name" doc:"Name of the key."`
	Kind        string               `json:"kind" enum:"server_full,server_read,browser" doc:"Kind of the key."`
	Account     string               `json:"account" doc:"Identifier of the service account that owns the key."`
	AccountName string               `json:"account_name" doc:"Name of the service account; empty if it was deleted."`
	Begins      string               `json:"begins" doc:"The beginning of the text of the key."`
	State       string               `json:"state" enum:"active,expired,revoked" doc:"State of the key."`
	Permissions []tenants.Permission `json:"permissions" doc:"Permissions that the key is narrowed to; empty: not narrowed."`
	Effective   []tenants.Permission `json:"effective_permissions" doc:"The effective permissions: those of its account, narrowed."`
	May         string               `json:"may" doc:"What the key may do, in words."`
	Teams       []string             `json:"teams" doc:"Teams that the key is narrowed to; empty: not narrowed."`
	AllowedIPs  []string             `json:"allowed_ips" doc:"Networks that the key may be used from; empty: all."`
	Origins     []string             `json:"origins" doc:"Web origins that a browser key may be used from."`
	ProofOfWork int                  `json:"proof_of_work" doc:"Bits of work that a browser key requires for a submission; 0: none."`
	CreatedAt   string               `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	ExpiresAt   *string              `json:"expires_at" doc:"When the key expires; null: never."`
	RevokedAt   *string              `json:"revoked_at" doc:"When the key was revoked; null: not revoked."`
	LastUsedAt  *string              `json:"last_used_at" doc:"When the key was last accepted, to a minute or two; null: never."`
	Unused      []tenants.Permission `json:"unused_permissions" doc:"Permissions of the key that no call has needed since unused_since, to a minute or two."`
	UnusedSince *string              `json:"unused_since" doc:"When recording of needed permissions began; null: the key has not been used since."`
	OldUntil    *string              `json:"old_token_until" doc:"When the token from before the last rotation expires; null: it has expired."`
	Rotated     []string             `json:"rotated" doc:"When each of the tokens from before rotations expires that are still valid, the latest rotation first."`
}

// Issued is a key with its text.
type Issued struct {
	Key
	Token string `json:"token" doc:"The text of the key. It is shown only this once."`
}

func exampleKey() Key {
	return Key{
		ID: "665f1c2ab4d3e2f1a0b9c8d7", Name: "crm", Kind: "server_full", Account: "665f1c2ab4d3e2f1a0b9c8d6", AccountName: "CRM", Begins: "tnt_server_full_4dNq",
		State: "active", Permissions: []tenants.Permission{}, Effective: []tenants.Permission{tenants.Contacts}, Unused: []tenants.Permission{tenants.Contacts}, Teams: []string{}, AllowedIPs: []string{}, Origins: []string{}, Rotated: []string{},
		May: "Server-only, Full API: whatever needs contacts, and what needs no permission.", CreatedAt: "2024-06-04T13:52:42.000Z",
	}
}

func exampleIssued() Issued {
	return Issued{exampleKey(), "tnt_server_full_4dNq8Ww2ZyT6pLk0sVbXc1RfGhJm_a1B2c3"}
}

// showKeys returns keys as callers see them.
func (m *Module) showKeys(ctx context.Context, c *operation.Call, found []*keys.Key) ([]any, error) {
	owners, err := m.Keys.Owners(ctx, c.Tenant, found...)
	if err != nil {
		return nil, err
	}
	all, known := make([]any, len(found)), map[string]keyAccess{}
	for i, k := range found {
		all[i] = m.showKey(c.Tenant, k, cmp.Or(owners[k.AccountID], &identity.Account{}), known)
	}
	return all, nil
}

// showKey shows a key. known caches what keys can call, by everything that this depends on, because most keys of a
// list are alike and each check goes through all rows.
func (m *Module) showKey(t *tenants.Tenant, k *keys.Key, owner *identity.Account, known map[string]keyAccess) Key {
	now, effective := m.Now(), k.Effective(owner)
	one := Key{
		ID: k.ID, Name: k.Name, Kind: string(k.Kind), Account: k.AccountID, AccountName: owner.Name, Begins: k.Hint, State: k.State(now),
		Permissions: orEmpty(k.Permissions), Effective: orEmpty(effective), May: m.describe(t, k, owner, effective, k.State(now), known), Teams: orEmpty(k.Teams),
		AllowedIPs: orEmpty(k.AllowIPs), Origins: orEmpty(k.Origins), ProofOfWork: k.ProofOfWork, CreatedAt: texts.Time(k.CreatedAt),
		ExpiresAt: texts.TimeOrNull(k.ExpiresAt), RevokedAt: texts.TimeOrNull(k.RevokedAt), LastUsedAt: texts.TimeOrNull(k.LastUsed),
		Unused: orEmpty(keys.Unneeded(effective, k.Needed)), UnusedSince: texts.TimeOrNull(k.NeededSince), Rotated: []string{},
	}
	for _, older := range k.Rotated(now) {
		one.Rotated = append(one.Rotated, texts.Time(older.Until))
	}
	if k.OldUntil > now.UnixMilli() {
		one.OldUntil = texts.TimeOrNull(k.OldUntil)
	}
	return one
}

// keyAccess is what a key can call: the permissions that admit it to some operation, and whether there are operations
// that need none.
type keyAccess struct {
	by   []tenants.Permission
	bare bool
}

func (m *Module) accessOf(
	t *tenants.Tenant, k *keys.Key, owner *identity.Account, effective []tenants.Permission,
) (is keyAccess) {
	who := func(held ...tenants.Permission) *tenants.Principal {
		return &tenants.Principal{
			Kind: tenants.ServiceAccount, KeyKind: k.Kind, Origins: k.Origins, Teams: k.Narrowed(owner),
			Permissions: held,
		}
	}
	origin := ""
	if len(k.Origins) > 0 {
		origin = k.Origins[0]
	}
	opened := map[tenants.Permission]bool{}
	for _, op := range m.rows {
		if op.Credentials&operation.Key == 0 || op.Admits(who(), origin) != nil {
			continue
		}
		if op.Rule.Check(who(), t) == nil {
			is.bare = true
			continue
		}
		for _, one := range effective {
			opened[one] = opened[one] || op.Rule.Check(who(one), t) == nil
		}
	}
	is.by = slices.DeleteFunc(slices.Clone(effective), func(one tenants.Permission) bool { return !opened[one] })
	return is
}

// describe describes what a key may do, as the rows of all operations decide.
func (m *Module) describe(
	t *tenants.Tenant, k *keys.Key, owner *identity.Account, effective []tenants.Permission, state string,
	known map[string]keyAccess,
) string {
	switch {
	case state != "active":
		return "Nothing: the key is " + state + "."
	case owner.ID == "" || !owner.Active:
		return "Nothing: its service account is inactive or deleted."
	}
	alike := fmt.Sprintf("%q %#v %#v %q", k.Kind, k.Origins, k.Narrowed(owner), effective) // %#v distinguishes nil, for all teams, from no teams
	is, ok := known[alike]
	if !ok {
		is = m.accessOf(t, k, owner, effective)
		known[alike] = is
	}
	var what []string
	if len(is.by) > 0 {
		what = append(what, "what needs "+identity.JoinPermissions(is.by))
	}
	if is.bare {
		what = append(what, "what needs no permission")
	}
	if len(what) == 0 {
		return "Nothing: no operation for such keys needs a permission that it holds."
	}
	text := k.Kind.Label() + ": of the operations for such keys, " + strings.Join(what, ", and ")
	if teams := k.Narrowed(owner); teams != nil {
		text += "; records without teams and of the teams " + strings.Join(teams, ", ")
	}
	if len(k.AllowIPs) > 0 {
		text += "; from " + strings.Join(k.AllowIPs, ", ")
	}
	if len(k.Origins) > 0 {
		text += "; from pages of " + strings.Join(k.Origins, ", ")
	}
	if k.ExpiresAt > 0 {
		text += "; until " + texts.Time(k.ExpiresAt)
	}
	return text + "."
}

// keys returns the rows of keys.
func (m *Module) keys() []operation.Row {
	may := operation.Needs(tenants.ManageKeys)
	rows := crud.Rows(m.Stored.Keys.Resource, crud.Options{
		Path: "/api/keys", Things: "Keys", Read: may, Write: may, Search: []string{"name"},
		Show: crud.Show(m.showKeys), Example: exampleKey(),
		Before: crud.Before(guarded(m, func(ctx context.Context, c *operation.Call, k *keys.Key) (rights, error) {
			owners, err := m.Keys.Owners(ctx, c.Tenant, k)
			return held(k, cmp.Or(owners[k.AccountID], &identity.Account{})), err
		})),
		Keeper: crud.Keep(crud.Keeper[keys.Key]{Delete: func(ctx context.Context, c *operation.Call, k *keys.Key) error {
			revoked, err := m.Keys.Revoke(ctx, c.Tenant, k.ID, func(now *keys.Key) error {
				if now.Rev != k.Rev {
					return store.ErrConflict
				}
				return nil
			})
			if err == nil {
				*k = *revoked
			}
			return err
		}}),
		List: crud.Action{
			Request: operation.Request{Params: keyParams()}, Target: operation.Target{Concerns: m.keyConcerns},
			Around: crud.Only(m.keyFilter),
		},
		Create: crud.Absent(), Update: crud.Absent(),
		Delete: crud.Action{
			Docs: operation.Docs{
				Summary: "Revoke key", Verb: "Revoke",
				Description: "The key is refused from now on, on other servers within a second. It stays in the list. " +
					"Answers the key.",
			},
			Response: operation.Response{Message: "Key revoked", Failures: []operation.Failure{holdsMore()}},
		},
	})
	row := operation.Row{
		Method: http.MethodPost,
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull, Rule: may,
			Audit: operation.AuditAlways,
		},
		Response: operation.Response{
			Once: true, Example: exampleIssued(),
			Failures: []operation.Failure{operation.Refuses(http.StatusUnprocessableEntity, "a field has an unacceptable "+
				"value, or the caller lacks what the key would hold",
				"permissions", fault.Forbidden, "the caller lacks contacts, and cannot give permissions that they lack")},
		},
		Target: operation.Target{Resource: m.Stored.Keys.Name},
		Docs:   operation.Docs{Tag: "Keys"},
	}
	create, rotate := row, row
	create.Name, create.Path, create.Summary, create.Message = "keys.create", "/api/keys", "Create key", "Key created"
	create.Verb, rotate.Verb = "Create", "Rotate"
	create.Ask = "The key is shown only once. It has the permissions of its service account, or fewer."
	create.Description = "Answers the key with its text, which is shown only this once. The key has the permissions " +
		"and teams of its service account, narrowed by those given here, and never more than the caller, even if the " +
		"account gets more later: permissions and teams that are not given are set to those of the caller, unless the " +
		"caller has all. A key that is created with another key does not outlast it, cannot be used from other addresses " +
		"or origins, and is narrowed as that key is."
	create.BodyLimit, create.Action = 64<<10, operation.CreateAction
	rotate.Name, rotate.Path, rotate.Summary, rotate.Message = "keys.rotate", "/api/keys/{id}/rotate", "Rotate key", "Key rotated"
	rotate.Ask = "The new text is shown only once."
	rotate.Description = "Gives the key a new text, shown only this once, and restarts its lifetime. A key that is not " +
		"narrowed is narrowed to the permissions and teams of the caller, unless the caller has all. A key that names " +
		"permissions or teams that the caller lacks is refused, even if its service account lacks them, too. The old text " +
		"expires after the overlap, if any; texts from earlier rotations expire as rotated says. A revocation ends all of " +
		"them."
	rotate.Failures = append(slices.Clone(row.Failures), operation.Failure{
		Code: http.StatusNotFound, Message: "Key not found", When: "no such key in this organization",
	})
	return append([]operation.Row{
		operation.Typed(create, m.createKey), operation.Typed(rotate, m.rotateKey), m.explain(),
	}, rows...)
}

// keyParams returns the parameters of the list of keys, in addition to filters.
func keyParams() []operation.Param {
	return []operation.Param{
		{
			Name: "kind", In: operation.InQuery, Shape: operation.Text,
			Enum: []string{"server_full", "server_read", "browser"}, Description: "Only keys of this kind.",
			Example: "browser",
		},
		{
			Name: "state", In: operation.InQuery, Shape: operation.Text, Enum: []string{"active", "expired", "revoked"},
			Description: "Only keys in this state.", Example: "active",
		},
	}
}

// keyFilter returns the filter for these parameters.
func (m *Module) keyFilter(_ context.Context, c *operation.Call) (store.Filter, error) {
	var faults fault.List
	var all []store.Filter
	for _, p := range keyParams() {
		text := c.Query.Text(p.Name)
		switch {
		case !c.Query.Has(p.Name):
		case !slices.Contains(p.Enum, text):
			faults.Add(p.Name, fault.Format, "%s must be one of %s", p.Name, strings.Join(p.Enum, ", "))
		case p.Name == "kind":
			all = append(all, store.Eq("kind", text))
		default:
			all = append(all, keys.InState(text, m.Now()))
		}
	}
	return store.All(all...), faults.Err()
}

type newKey struct {
	Name        string               `json:"name" rule:"required max=200 format=label" doc:"Name of the key." example:"crm"`
	Kind        string               `json:"kind" rule:"required enum=server_full|server_read|browser" doc:"Kind of the key." example:"server_full"`
	Account     string               `json:"account" rule:"required format=id ref=service_account" doc:"Identifier of the service account that owns the key." ask:"Service account" example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Permissions []tenants.Permission `json:"permissions" rule:"each=64" doc:"Permissions that the key is narrowed to; not given: those of the account." ask:"Permissions|All of the service account if none is chosen." example:"[\"contacts\"]"`
	Teams       []string             `json:"teams" rule:"max=1000 format=id ref=team" doc:"Teams that the key is narrowed to; not given: those of the account." ask:"Teams|All of the service account if none is chosen."`
	AllowedIPs  []string             `json:"allowed_ips" rule:"max=100 each=64" doc:"Networks or addresses that the key may be used from; not given: all." ask:"Allowed addresses|Where the key may be used from; everywhere if empty." example:"[\"127.0.0.0/8\"]"`
	Origins     []string             `json:"origins" rule:"max=100 each=300" doc:"Web origins that a browser key may be used from; required for browser keys." ask:"Web sites|Sites whose pages use a browser key, such as https://www.example.com." example:"[]"`
	ProofOfWork int64                `json:"proof_of_work" rule:"max=24" doc:"Bits of work that a browser key requires for a submission; not given: none." ask:"Proof of work|Bits of work that a page does for a submission: 16 take a browser about a second, and each further bit doubles that." example:"0"`
	ExpiresIn   int64                `json:"expires_in" rule:"min=1 max=316224000" doc:"Seconds until the key expires; not given: never." ask:"Lasts||span" example:"86400"`
}

// Check notes faults of the addresses and origins.
func (in *newKey) Check(_ *operation.Call, errs *fault.List) {
	n := keys.NewKey{Kind: tenants.KeyKind(in.Kind), AllowIPs: in.AllowedIPs, Origins: in.Origins}
	n.Places(errs)
	callerNames(*errs)
}

// callerNames renames fields in faults to the names that callers use.
func callerNames(errs fault.List) {
	for i, f := range errs {
		errs[i].Field = cmp.Or(map[string]string{"allow_ips": "allowed_ips", "expires": "expires_in"}[f.Field], f.Field)
	}
}

func (m *Module) createKey(ctx context.Context, c *operation.Call, in newKey) (Issued, error) {
	made, err := m.Keys.Issue(ctx, c.Tenant, keys.NewKey{
		Name: in.Name, Kind: tenants.KeyKind(in.Kind), Account: in.Account, Permissions: in.Permissions, Teams: in.Teams, AllowIPs: in.AllowedIPs, Origins: in.Origins,
		ProofOfWork: int(in.ProofOfWork), Lifetime: time.Duration(in.ExpiresIn) * time.Second, Limits: c.Principal.Limits, May: m.mayHave(ctx, c),
	})
	if refused := (*fault.Error)(nil); errors.As(err, &refused) {
		callerNames(refused.Faults)
	}
	return m.issued(c, made, err)
}

type rotateInput struct {
	ID      string `json:"id" doc:"Identifier of the key." example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Overlap int64  `json:"overlap" rule:"max=316224000" default:"0" doc:"Seconds until the old text expires." ask:"The old text stays valid for|It expires at once if this is empty.|span" example:"3600"`
}

func (m *Module) rotateKey(ctx context.Context, c *operation.Call, in rotateInput) (Issued, error) {
	made, err := m.Keys.Rotate(ctx, c.Tenant, in.ID, time.Duration(in.Overlap)*time.Second, m.mayHave(ctx, c))
	return m.issued(c, made, operation.OrMissing(err, "Key not found"))
}

// held returns the rights of a key of that account.
func held(k *keys.Key, owner *identity.Account) rights {
	return rights{permissions: k.Effective(owner), teams: k.Narrowed(owner)}
}

// potential returns the most rights that a key can get without being changed, including permissions and teams that it
// names but its account lacks for now.
func potential(k *keys.Key, owner *identity.Account) rights {
	r := held(k, owner)
	if len(k.Permissions) > 0 {
		r.permissions = k.Permissions
	}
	if len(k.Teams) > 0 {
		r.teams = k.Teams
	}
	return r
}

// own returns the key of the call; nil if the caller is a person.
func (m *Module) own(ctx context.Context, c *operation.Call) (*keys.Key, error) {
	if c.Principal.Kind != tenants.ServiceAccount {
		return nil, nil //nolint:nilnil // persons have none
	}
	return m.Keys.Get(ctx, c.Tenant, c.Principal.KeyID)
}

// mayHave returns the check of a new or rotated key: it must not get more rights than the caller, even once its
// account is given more, and not be stronger than the key that creates it. A key that names no permissions or teams is
// narrowed to those of the caller, unless the caller has all, because it must not gain what its creator lacks when its
// account is given more.
func (m *Module) mayHave(ctx context.Context, c *operation.Call) func(*keys.Key, *identity.Account) error {
	return func(k *keys.Key, owner *identity.Account) error {
		r := potential(k, owner)
		if err := checkGrant(c.Principal, nil, &r); err != nil {
			return err
		}
		own, err := m.own(ctx, c)
		if err == nil && own != nil {
			err = own.Covers(k)
		}
		if p := c.Principal; err == nil && !p.IsAdmin() {
			lacks := func(one tenants.Permission) bool { return !slices.Contains(p.Permissions, one) }
			if len(k.Permissions) == 0 && slices.ContainsFunc(tenants.AllPermissions(), lacks) {
				k.Permissions = slices.Clone(p.Permissions)
			}
			if len(k.Teams) == 0 {
				k.Teams = slices.Clone(p.Teams)
			}
		}
		return err
	}
}

func (m *Module) issued(c *operation.Call, made *keys.Issued, err error) (Issued, error) {
	if err != nil {
		return Issued{}, err
	}
	if c.Undo = made.TakeBack; made.Late != nil {
		c.Header.Set("X-Warning", keys.LateNote)
	}
	c.Note("key", made.Key.ID)
	c.Note("account", made.Account.ID)
	return Issued{m.showKey(c.Tenant, &made.Key, &made.Account, map[string]keyAccess{}), made.Token.Reveal()}, nil
}
