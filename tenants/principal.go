package tenants

import (
	"context"
	"slices"
	"sync/atomic"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/internal/rate"
)

// Permission is what a role or a service account may do.
type Permission string

// The permissions there are.
const (
	Contacts              Permission = "contacts"
	ManageCustomObjects   Permission = "manage_custom_objects"
	ManageForms           Permission = "manage_forms"
	ViewFormSubmissions   Permission = "view_form_submissions"
	CreateFormSubmissions Permission = "create_form_submissions"
	ManageFiles           Permission = "manage_files"
	ManageReports         Permission = "manage_reports"
	ViewUsers             Permission = "view_users"
	ManageUsers           Permission = "manage_users"
	ManageCampaigns       Permission = "manage_campaigns"
	ManageKeys            Permission = "manage_keys"
	ViewAudit             Permission = "view_audit"
)

// AllPermissions returns every permission, in a fixed order. The role admin holds them all.
func AllPermissions() []Permission {
	return []Permission{
		Contacts, ManageCustomObjects, ManageForms, ViewFormSubmissions, CreateFormSubmissions, ManageFiles,
		ManageReports, ViewUsers, ManageUsers, ManageCampaigns, ManageKeys, ViewAudit,
	}
}

// KeyKind is the kind of an API key. The zero value is no kind.
type KeyKind = tokens.KeyKind

// The kinds of API keys.
const (
	ServerFull = tokens.ServerFull
	ServerRead = tokens.ServerRead
	Browser    = tokens.Browser
)

// PrincipalKind tells how a caller proved who they are.
type PrincipalKind int

// The kinds of principals. Anonymous, the zero value, may call open operations only.
const (
	Anonymous PrincipalKind = iota
	ServiceAccount
	Person
	Operator // of the installation, who runs commands; in no organization
	System   // the program itself, which ends what nobody has restored in time
)

// Principal is an authenticated caller. It is immutable once made.
type Principal struct {
	Kind        PrincipalKind
	UserID      int64    // of a Person
	AccountID   string   // of a ServiceAccount
	KeyID       string   // of a ServiceAccount
	KeyKind     KeyKind  // of a ServiceAccount
	Origins     []string // web origins that a Browser key may be used from
	Admin       bool     // only ever of a Person
	Permissions []Permission
	Teams       []string  // nil: not limited to teams; empty: limited to records without teams
	Limits      rate.Pair // of the key itself; those of the organization fill the gaps
	Visitors    rate.Pair // of each address that presents a Browser key, likewise
	ProofOfWork int       // bits of work that a Browser key asks for a submission; 0: none
	Needs       *Needs    // is told of permissions that calls need; nil: nobody is
}

// Public reports whether anybody can be this caller: it has no credential, or a browser key, which is in the source of
// a page. Such callers are bounded by their address.
func (p *Principal) Public() bool { return p.Kind == Anonymous || p.KeyKind == Browser }

// Needs is told once of each permission that calls of a principal needed and that it holds. Safe for concurrent use.
type Needs struct {
	Note func(Permission)
	told atomic.Uint64 // a bit for each of the principal's permissions, in their order
}

// May reports whether the principal holds the permission, which the call needs.
func (p *Principal) May(permission Permission) bool {
	i := slices.Index(p.Permissions, permission)
	if bit := uint64(1) << max(i, 0); i >= 0 && p.Needs != nil && p.Needs.told.Load()&bit == 0 && p.Needs.told.Or(bit)&bit == 0 {
		p.Needs.Note(permission)
	}
	return i >= 0 || p.IsAdmin()
}

// Incidentally marks calls that somebody else makes for a person, such as a page for what stands around what it shows:
// that they need a permission does not say that the person does.
func Incidentally(ctx context.Context) context.Context {
	return context.WithValue(ctx, incidentally{}, true)
}

// Incidental reports whether a call is one of those.
func Incidental(ctx context.Context) bool { return ctx.Value(incidentally{}) != nil }

type incidentally struct{}

// IsAdmin reports whether the principal is an administrator. A service account never is.
func (p *Principal) IsAdmin() bool { return p.Kind == Person && p.Admin }

// HoldsAll reports whether the principal holds whatever the other one does. It notes no need.
func (p *Principal) HoldsAll(other *Principal) bool {
	return p.IsAdmin() || !other.IsAdmin() && !slices.ContainsFunc(other.Permissions, func(permission Permission) bool {
		return !slices.Contains(p.Permissions, permission)
	})
}

// Subject names the principal in logs and the audit trail, without personal values.
func (p *Principal) Subject() string {
	switch p.Kind {
	case ServiceAccount:
		return "key:" + p.KeyID
	case Person:
		return "user:" + formatInt(p.UserID)
	case Operator:
		return "command"
	case System:
		return "system"
	}
	return "anonymous"
}

// Scope returns what the principal may see, narrowed to the requested teams where there
// are any. A request never widens it. Without the teams feature nothing is scoped.
func (p *Principal) Scope(t *Tenant, requested []string) store.Scope {
	if !t.Org.Feature(FeatureTeams) {
		return store.Scope{All: true}
	}
	switch {
	case p.Teams == nil && len(requested) == 0:
		return store.Scope{All: true}
	case p.Teams == nil:
		return store.Scope{Teams: requested}
	case len(requested) == 0:
		return store.Scope{Teams: p.Teams}
	}
	return store.Scope{Teams: slices.DeleteFunc(slices.Clone(p.Teams), func(team string) bool {
		return !slices.Contains(requested, team)
	})}
}
