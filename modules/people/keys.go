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
	AccountName string               `json:"account_name" doc:"Name of the service account; empty where it was deleted."`
	Begins      string               `json:"begins" doc:"How the text of the key begins."`
	State       string               `json:"state" enum:"active,expired,revoked" doc:"What has become of the key."`
	Permissions []tenants.Permission `json:"permissions" doc:"What the key is narrowed to; empty: not narrowed."`
	Effective   []tenants.Permission `json:"effective_permissions" doc:"What the key holds: the permissions of its account, narrowed."`
	May         string               `json:"may" doc:"What the key may do, in words."`
	Teams       []string             `json:"teams" doc:"Teams that the key is narrowed to; empty: not narrowed."`
	AllowedIPs  []string             `json:"allowed_ips" doc:"Networks that the key may be used from; empty: all."`
	Origins     []string             `json:"origins" doc:"Web origins that a browser key may be used from."`
	ProofOfWork int                  `json:"proof_of_work" doc:"Bits of work that a browser key asks for a submission; 0: none."`
	CreatedAt   string               `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	ExpiresAt   *string              `json:"expires_at" doc:"When the key ends by itself; null: never."`
	RevokedAt   *string              `json:"revoked_at" doc:"When the key was revoked; null: it was not."`
	LastUsedAt  *string              `json:"last_used_at" doc:"When the key was last accepted, to a minute or two; null: never."`
	Unused      []tenants.Permission `json:"unused_permissions" doc:"What the key holds and no call needed since unused_since, to a minute or two."`
	UnusedSince *string              `json:"unused_since" doc:"Since when it is noted what the key is used for; null: the key was not used since."`
	OldUntil    *string              `json:"old_token_until" doc:"Until when the token before the last rotation goes on; null: it has ended."`
	Rotated     []string             `json:"rotated" doc:"Until when each of the tokens from before rotations goes on that still do, the latest rotation first."`
}

// Issued is a key with its text.
type Issued struct {
	Key
	Token string `json:"token" doc:"The text of the key, which is told this once."`
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
	all, known := make([]any, len(found)), map[string]opening{}
	for i, k := range found {
		all[i] = m.showKey(c.Tenant, k, cmp.Or(owners[k.AccountID], &identity.Account{}), known)
	}
	return all, nil
}

// showKey shows a key. Known is what keys of the same list open, by all that this depends on: most keys are alike, and
// each asks every row.
func (m *Module) showKey(t *tenants.Tenant, k *keys.Key, owner *identity.Account, known map[string]opening) Key {
	now, effective := m.Now(), k.Effective(owner)
	one := Key{
		ID: k.ID, Name: k.Name, Kind: string(k.Kind), Account: k.AccountID, AccountName: owner.Name, Begins: k.Hint, State: k.State(now),
		Permissions: orEmpty(k.Permissions), Effective: orEmpty(effective), May: m.words(t, k, owner, effective, k.State(now), known), Teams: orEmpty(k.Teams),
		AllowedIPs: orEmpty(k.AllowIPs), Origins: orEmpty(k.Origins), ProofOfWork: k.ProofOfWork, CreatedAt: texts.Time(k.CreatedAt),
		ExpiresAt: when(k.ExpiresAt), RevokedAt: when(k.RevokedAt), LastUsedAt: when(k.LastUsed), Unused: orEmpty(keys.Unneeded(effective, k.Needed)), UnusedSince: when(k.NeededSince), Rotated: []string{},
	}
	for _, older := range k.Rotated(now) {
		one.Rotated = append(one.Rotated, texts.Time(older.Until))
	}
	if k.OldUntil > now.UnixMilli() {
		one.OldUntil = when(k.OldUntil)
	}
	return one
}

// when shows a time that there may not be.
func when(ms int64) *string {
	if ms == 0 {
		return nil
	}
	text := texts.Time(ms)
	return &text
}

// opening is what a key can call: by which of its permissions, and whether others without any.
type opening struct {
	by   []tenants.Permission
	bare bool
}

func (m *Module) opens(t *tenants.Tenant, k *keys.Key, owner *identity.Account, effective []tenants.Permission) (is opening) {
	who := func(held ...tenants.Permission) *tenants.Principal {
		return &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: k.Kind, Origins: k.Origins, Teams: k.Narrowed(owner), Permissions: held}
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

// words says what a key may do, of which the rows of all operations decide.
func (m *Module) words(t *tenants.Tenant, k *keys.Key, owner *identity.Account, effective []tenants.Permission, state string, known map[string]opening) string {
	switch {
	case state != "active":
		return "Nothing: the key is " + state + "."
	case owner.ID == "" || !owner.Active:
		return "Nothing: its service account is not active, or was deleted."
	}
	alike := fmt.Sprintf("%q %#v %#v %q", k.Kind, k.Origins, k.Narrowed(owner), effective) // no teams are not all of them
	is, ok := known[alike]
	if !ok {
		is = m.opens(t, k, owner, effective)
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
		return "Nothing: no operation that takes such a key goes with what it holds."
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
		Path: "/api/keys", Things: "Keys", Read: may, Write: may, Search: []string{"name"}, Show: crud.Show(m.showKeys), Example: exampleKey(), Where: m.ofKeys,
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
		List: crud.Action{Request: operation.Request{Params: asksKeys()}}, Create: crud.Absent(), Update: crud.Absent(),
		Delete: crud.Action{
			Docs: operation.Docs{
				Summary: "Revoke key", Description: "The key is accepted no more, from now on here and within a second everywhere. It stays in the list. Answers it.",
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
			Failures: []operation.Failure{operation.Refuses(http.StatusUnprocessableEntity, "something is not acceptable, or more than the caller may give",
				"permissions", fault.Forbidden, "the caller lacks contacts, and nobody gives what they lack")},
		},
		Target: operation.Target{Resource: m.Stored.Keys.Name},
		Docs:   operation.Docs{Tag: "Keys"},
	}
	create, rotate := row, row
	create.Name, create.Path, create.Summary, create.Message = "keys.create", "/api/keys", "Create key", "Key created"
	create.Ask = "You are shown the key once. It may do what its service account may, or less."
	create.Description = "Answers the key, and its text this once. It holds what its service account holds, narrowed by what is given here, and never more than the caller, also where the account is given more later: what is not given is what the caller holds, unless that is everything. One that a key asks for neither outlasts that nor is used from elsewhere, and is narrowed where that is."
	create.BodyLimit, create.Action = 64<<10, operation.CreateAction
	rotate.Name, rotate.Path, rotate.Summary, rotate.Message = "keys.rotate", "/api/keys/{id}/rotate", "Rotate key", "Key rotated"
	rotate.Ask = "You are shown the new text once."
	rotate.Description = "Gives the key another text, answered this once, and the lifetime anew with which it was made. A key that was not narrowed is narrowed to what the caller holds, unless that is everything; one that names what the caller lacks is refused, also where its service account lacks that by now. The old text ends, after the overlap where there is one; those from rotations before go on to the ends of theirs, as rotated says. A revocation ends all of them."
	rotate.Failures = append(slices.Clone(row.Failures), operation.Failure{Code: http.StatusNotFound, Message: "Key not found", When: "no such key in this organization"})
	return append([]operation.Row{operation.Typed(create, m.createKey), operation.Typed(rotate, m.rotateKey), m.explain()}, rows...)
}

// asksKeys returns the parameters that say which keys are listed, besides filters.
func asksKeys() []operation.Param {
	return []operation.Param{
		{Name: "kind", In: operation.InQuery, Shape: operation.Text, Enum: []string{"server_full", "server_read", "browser"}, Description: "Only keys of this kind.", Example: "browser"},
		{Name: "state", In: operation.InQuery, Shape: operation.Text, Enum: []string{"active", "expired", "revoked"}, Description: "Only keys of which this has become by now.", Example: "active"},
	}
}

// ofKeys says which keys are asked for.
func (m *Module) ofKeys(_ context.Context, c *operation.Call) (store.Filter, error) {
	var faults fault.List
	var all []store.Filter
	for _, p := range asksKeys() {
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
	Permissions []tenants.Permission `json:"permissions" rule:"each=64" doc:"What the key is narrowed to; all of the account's where it is not given." ask:"Permissions|All of the service account where none is chosen." example:"[\"contacts\"]"`
	Teams       []string             `json:"teams" rule:"max=1000 format=id ref=team" doc:"Teams that the key is narrowed to; all of the account's where it is not given." ask:"Teams|All of the service account where none is chosen."`
	AllowedIPs  []string             `json:"allowed_ips" rule:"max=100 each=64" doc:"Networks or addresses that the key may be used from; everywhere where it is not given." ask:"Allowed addresses|From which the key may be used; everywhere where none is given." example:"[\"127.0.0.0/8\"]"`
	Origins     []string             `json:"origins" rule:"max=100 each=300" doc:"Web origins that a browser key may be used from, which it needs." ask:"Web sites|Whose pages use a browser key, such as https://www.example.com." example:"[]"`
	ProofOfWork int64                `json:"proof_of_work" rule:"max=24" doc:"Bits of work that a browser key asks for a submission; none where it is not given." ask:"Proof of work|Bits of work that a page does for a submission: 16 take a browser about a second, each more twice as long." example:"0"`
	ExpiresIn   int64                `json:"expires_in" rule:"min=1 max=316224000" doc:"Seconds until the key ends; never where it is not given." ask:"Lasts||span" example:"86400"`
}

// Check notes what is wrong with the places.
func (in *newKey) Check(_ *operation.Call, errs *fault.List) {
	n := keys.NewKey{Kind: tenants.KeyKind(in.Kind), AllowIPs: in.AllowedIPs, Origins: in.Origins}
	n.Places(errs)
	asSent(*errs)
}

// asSent gives fields the names that callers know.
func asSent(errs fault.List) {
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
		asSent(refused.Faults)
	}
	return m.issued(c, made, err)
}

type rotation struct {
	ID      string `json:"id" doc:"Identifier of the key." example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Overlap int64  `json:"overlap" rule:"max=316224000" default:"0" doc:"Seconds that the old text goes on." ask:"The old text goes on for|It ends at once where nothing is given.|span" example:"3600"`
}

func (m *Module) rotateKey(ctx context.Context, c *operation.Call, in rotation) (Issued, error) {
	made, err := m.Keys.Rotate(ctx, c.Tenant, in.ID, time.Duration(in.Overlap)*time.Second, m.mayHave(ctx, c))
	return m.issued(c, made, operation.OrMissing(err, "Key not found"))
}

// held are the rights of a key of that account.
func held(k *keys.Key, owner *identity.Account) rights {
	return rights{permissions: k.Effective(owner), teams: k.Narrowed(owner)}
}

// mayCome are the most that a key may come to hold without being changed: also what it names and its account lacks for
// now.
func mayCome(k *keys.Key, owner *identity.Account) rights {
	r := held(k, owner)
	if len(k.Permissions) > 0 {
		r.permissions = k.Permissions
	}
	if len(k.Teams) > 0 {
		r.teams = k.Teams
	}
	return r
}

// own returns the key that asks; nil where it is a person.
func (m *Module) own(ctx context.Context, c *operation.Call) (*keys.Key, error) {
	if c.Principal.Kind != tenants.ServiceAccount {
		return nil, nil //nolint:nilnil // nobody's
	}
	return m.Keys.Get(ctx, c.Tenant, c.Principal.KeyID)
}

// mayHave holds a key as it would be, and may come to be once its account is given more, to the one rule, and to the
// key that asks for it: none makes a stronger one. A key that names no permissions or teams is narrowed to those of the
// caller, unless they are all there are: it must not gain what its maker lacks when its account is given more.
func (m *Module) mayHave(ctx context.Context, c *operation.Call) func(*keys.Key, *identity.Account) error {
	return func(k *keys.Key, owner *identity.Account) error {
		r := mayCome(k, owner)
		if err := gives(c.Principal, nil, &r); err != nil {
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
	return Issued{m.showKey(c.Tenant, &made.Key, &made.Account, map[string]opening{}), made.Token.Reveal()}, nil
}
