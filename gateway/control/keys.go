package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/internal/rate"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// Key is an API key as lists show it, without its token.
type Key struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Kind        string     `json:"kind"`
	Account     string     `json:"account"`               // its name; empty: the account was deleted
	Hint        string     `json:"hint"`                  // how the key begins
	State       string     `json:"state"`                 // active, expired or revoked
	Permissions []string   `json:"permissions,omitempty"` // that the key is limited to
	Effective   []string   `json:"effective_permissions"` // that the key has now
	Teams       []string   `json:"teams,omitempty"`       // that the key is limited to
	AllowIPs    []string   `json:"allow_ips,omitempty"`
	Origins     []string   `json:"origins,omitempty"`
	CreatedAt   time.Time  `json:"created_at"`
	ExpiresAt   *time.Time `json:"expires_at"`
	RevokedAt   *time.Time `json:"revoked_at,omitempty"`
	// LastUsedAt is when the key was last accepted, to about a minute; absent: never, or not since uses have been
	// recorded.
	LastUsedAt *time.Time `json:"last_used_at" from:"LastUsed"`
	// Rotated has the end of the overlap of each earlier token that still works, the latest rotation first.
	Rotated  []time.Time `json:"rotated,omitempty" from:"-"`
	Limits   rate.Pair   `json:"limits,omitzero"` // its own request limits
	Visitors rate.Pair   `json:"visitors,omitzero"`
	// ProofOfWork is how many bits of work a browser key requires for a submission.
	ProofOfWork int `json:"proof_of_work,omitempty"`
}

// NewKey is a key to be made.
type NewKey struct {
	Org         string        `json:"org" rule:"ref=organization"`
	Name        string        `json:"name" doc:"the key's <name>"`
	Kind        string        `json:"kind" doc:"the key's <kind>: server_full, server_read or browser"`
	Account     string        `json:"account,omitempty" doc:"the service <account> it belongs to (default the one with the key's name, which is created if it does not exist)"`
	Permissions []string      `json:"permissions,omitempty" flag:"permission" doc:"a <permission> of a new account, or one that the key of an existing account is limited to; may be repeated"`
	Teams       []string      `json:"teams,omitempty" flag:"team" doc:"the <id> of a team the key is limited to; may be repeated"`
	Expires     time.Duration `json:"expires,omitempty" least:"1s" doc:"how long it lasts, such as 720h (default until it is revoked)"`
	AllowIPs    []string      `json:"allow_ips,omitempty" flag:"allow-ip" doc:"a network it may be used from, such as 192.0.2.0/24; may be repeated"`
	Origins     []string      `json:"origins,omitempty" flag:"origin" doc:"a web <origin> a browser key may be used from; may be repeated"`
	Rate        string        `json:"rate,omitempty" doc:"the <limit> of its requests against bursts, such as 20/s (default the organization's for keys)"`
	Quota       string        `json:"quota,omitempty" doc:"the <limit> of its requests over a longer period, such as 100000/d (default the organization's for keys)"`
	ProofOfWork int           `json:"proof_of_work,omitempty" doc:"how many <bits> of work a browser key requires for a submission, up to 24 (default none)"`
}

// IssuedKey is a new key. Its token is shown only this once.
type IssuedKey struct {
	ID        string     `json:"id"`
	Token     string     `json:"token"`
	Kind      string     `json:"kind"`
	Account   string     `json:"account"`
	ExpiresAt *time.Time `json:"expires_at"`
}

// KeyRef names a key.
type KeyRef struct {
	Org string `json:"org" rule:"ref=organization"`
	ID  string `json:"id" arg:"the key's identifier"`
}

// Token is the token of a key that somebody has found.
type Token struct {
	Token string `json:"token" arg:"the key's text"`
}

// FoundKey is a key and its organization.
type FoundKey struct {
	Org string `json:"org"`
	// Token is the state of the given token: current; earlier, if it was rotated and works until TokenUntil; ended, if
	// TokenUntil has passed.
	Token      string     `json:"token"`
	TokenUntil *time.Time `json:"token_until"`
	Key
}

// KeyRotation names a key that gets a new token.
type KeyRotation struct {
	KeyRef
	Overlap time.Duration `json:"overlap,omitempty" doc:"how long the old token still works, such as 24h (default not at all)"`
}

func (s *Server) keys() Group {
	const issued = "id, token, kind, account, expires=expires_at"
	return Group{Name: "key", Short: "Create and revoke API keys", Commands: []Command{
		command(Command{
			Line: "key create --org SLUG --name NAME --kind KIND", Short: "Create an API key; its token is printed only this once",
			Long: "Create an API key and print {\"id\", \"token\", \"kind\", \"account\", \"expires_at\"}. The token cannot be shown again.\n\n" +
				"Kinds: server_full (server only, full API), server_read (server only, reading), browser (from its origins, marked operations).",
			Example: "  tenantry key create --org acme --name crm --kind server_full --permission contacts,manage_forms --expires 720h",
			Audit:   operation.AuditAlways, Once: true, Table: issued,
		}, s.createKey),
		command(Command{
			Line: "key list --org SLUG", Short: "List API keys, oldest first",
			Table: "id, name, kind, account, begins=hint, state, permissions=effective_permissions, " +
				"expires=expires_at, last used=last_used_at, earlier tokens until=rotated?",
		}, s.listKeys),
		command(Command{
			Line: "key find TOKEN", Short: "Find an API key by its text",
			Long: "Find an API key by its text, for example one found in a log or a repository: its organization and account, its\n" +
				"permissions, and whether it still works. The text is not stored; your shell history may keep it.",
			Table: "org, id, name, kind, account, token, token until=token_until?, state, " +
				"permissions=effective_permissions, expires=expires_at, last used=last_used_at",
		}, s.findKey),
		s.keyLimits(),
		command(Command{
			Line: "key revoke ID --org SLUG", Short: "Revoke an API key at once",
			Audit: operation.AuditAlways, Table: "id, name, state, revoked=revoked_at",
		}, func(ctx context.Context, c *call, in KeyRef) (Key, error) {
			k, err := s.Keys.Revoke(ctx, c.Tenant, in.ID, nil)
			if err != nil {
				return Key{}, keyNotFound(err, in)
			}
			c.Note("key", k.ID)
			out, err := s.shownKeys(ctx, c, k)
			if err != nil {
				return Key{}, err
			}
			return out[0], nil
		}),
		command(Command{
			Line: "key rotate ID --org SLUG", Short: "Rotate an API key: it gets a new token; the old one expires now, or after --overlap",
			Audit: operation.AuditAlways, Once: true, Table: issued,
		}, func(ctx context.Context, c *call, in KeyRotation) (IssuedKey, error) {
			next, err := s.Keys.Rotate(ctx, c.Tenant, in.ID, in.Overlap, nil)
			if err != nil {
				return IssuedKey{}, keyNotFound(err, in.KeyRef)
			}
			if next.Late != nil {
				c.addNote("Note: " + keys.LateNote)
			}
			for _, o := range next.Key.Rotated(s.Now()) {
				c.addNote("The previous token works until " + texts.Time(o.Until) + ".")
			}
			c.AuditNote = map[string]string{"key": in.ID, "overlap": in.Overlap.String()}
			return issuedKey(next), nil
		}),
	}}
}

// shownKeys returns keys as lists show them.
func (s *Server) shownKeys(ctx context.Context, c *call, found ...*keys.Key) ([]Key, error) {
	owners, err := s.Keys.Owners(ctx, c.Tenant, found...)
	if err != nil {
		return nil, err
	}
	out := make([]Key, len(found))
	for i, k := range found {
		owner := cmp.Or(owners[k.AccountID], &identity.Account{})
		out[i] = viewOf[Key](k)
		out[i].Account, out[i].State, out[i].Effective = owner.Name, k.State(s.Now()), []string{}
		for _, o := range k.Rotated(s.Now()) {
			out[i].Rotated = append(out[i].Rotated, timeOf(o.Until))
		}
		for _, p := range k.Effective(owner) {
			out[i].Effective = append(out[i].Effective, string(p))
		}
	}
	return out, nil
}

func issuedKey(i *keys.Issued) IssuedKey {
	out := viewOf[IssuedKey](&i.Key)
	out.Token, out.Account = i.Token.Reveal(), i.Account.Name
	return out
}

func (s *Server) createKey(ctx context.Context, c *call, in NewKey) (IssuedKey, error) {
	n := keys.NewKey{Lifetime: in.Expires}
	apply(c, &n, &in)
	change, err := parseChange(true, keyLimitNames(), notEmpty(in.Rate), notEmpty(in.Quota))
	if err != nil {
		return IssuedKey{}, err
	}
	change(&n.Limits.Rate, &n.Limits.Quota)
	made, err := s.Keys.Issue(ctx, c.Tenant, n)
	if err != nil {
		return IssuedKey{}, err
	}
	if len(made.Account.Permissions) == 0 {
		c.addNote(fmt.Sprintf("Note: the service account %q holds no permissions, "+
			"so the key can only call operations that need none", made.Account.Name))
	}
	c.AuditNote = map[string]string{
		"key": made.Key.ID, "kind": string(made.Key.Kind), "account": made.Account.ID,
	}
	return issuedKey(made), nil
}

func notEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// flushTimeout bounds how long a list of keys waits until their last uses are stored.
const flushTimeout = 5 * time.Second

func (s *Server) listKeys(ctx context.Context, c *call, in Page) ([]Key, error) {
	flushCtx, cancel := context.WithTimeout(ctx, flushTimeout)
	s.Keys.FlushUses(flushCtx) // uses that cannot be stored now are stored later
	cancel()
	found, err := pageOf(ctx, c, in, s.Keys.List)
	if err != nil {
		return nil, err
	}
	// Sort by time, because the order of identifiers made by several processes follows it only roughly.
	slices.SortStableFunc(found, func(a, b keys.Key) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
	all := make([]*keys.Key, len(found))
	for i := range found {
		all[i] = &found[i]
	}
	return s.shownKeys(ctx, c, all...)
}

// findKey looks for a key in all organizations, including suspended ones.
func (s *Server) findKey(ctx context.Context, c *call, in Token) (FoundKey, error) {
	k, slug, err := s.Keys.Find(ctx, in.Token)
	switch {
	case errors.Is(err, tokens.ErrMalformedKey):
		return FoundKey{}, fail(CodeInvalid, "not an API key: check for a missing or wrong character")
	case errors.Is(err, store.ErrNotFound):
		return FoundKey{}, fail(CodeNotFound,
			"no organization has this key. The text of a rotated key is found until its overlap ends")
	case err == nil:
		err = s.setTenant(ctx, c, slug)
	}
	if err != nil {
		return FoundKey{}, err
	}
	shown, err := s.shownKeys(ctx, c, k)
	if err != nil {
		return FoundKey{}, err
	}
	out := FoundKey{Org: slug, Token: "current", TokenUntil: shown[0].ExpiresAt, Key: shown[0]}
	if hash := tokens.HashAPIKey(in.Token); hash != k.Hash {
		until, works := timeOf(k.Until(hash)), "works until "
		out.Token, out.TokenUntil, out.Hint = "earlier", &until, in.Token[:len(k.Hint)]
		if !until.After(s.Now()) {
			out.Token, works = "ended", "stopped working at "
		}
		if shown[0].State != "active" {
			works = "would work until "
		}
		c.addNote("Note: the key has since been rotated; this token " + works + texts.Time(until.UnixMilli()))
	}
	if c.Tenant.Org.State != tenants.Active {
		c.addNote(fmt.Sprintf("Note: organization %s is %s; none of its keys work at present", slug, c.Tenant.Org.State))
	}
	return out, nil
}

// keyNotFound names the key that was not found. It does not repeat a reference that is not an identifier, because it
// may be the token of a key.
func keyNotFound(err error, r KeyRef) error {
	if !store.ValidID(r.ID) {
		return withMessage(err, CodeNotFound, "a key is named by its identifier of 24 hexadecimal digits, not by its text; "+
			"tenantry key list --org %s shows it", r.Org)
	}
	return withMessage(err, CodeNotFound,
		"organization %[1]s has no key %[2]s; tenantry key list --org %[1]s shows all of them", r.Org, r.ID)
}
