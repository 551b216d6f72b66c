package tenants

import (
	"context"
	"slices"
	"sync/atomic"

	"tenantry/backends/store"
	"tenantry/crypto/tokens"
	"tenantry/internal/rate"
)

// Permission is a right that a role, a user or a service account can hold.
type Permission string

// The permissions.
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
	ManageWebhooks        Permission = "manage_webhooks"
	ViewAudit             Permission = "view_audit"
)

// AllPermissions returns every permission in a fixed order. The role admin holds all of them.
func AllPermissions() []Permission {
	return []Permission{
		Contacts, ManageCustomObjects, ManageForms, ViewFormSubmissions, CreateFormSubmissions, ManageFiles,
		ManageReports, ViewUsers, ManageUsers, ManageCampaigns, ManageKeys, ManageWebhooks, ViewAudit,
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

// PrincipalKind is how a caller was authenticated.
type PrincipalKind int

// The kinds of principals. Anonymous, the zero value, may only call open operations.
const (
	Anonymous PrincipalKind = iota
	ServiceAccount
	Person
	Operator // runs commands for the installation, and belongs to no organization
	System   // the program itself, such as when it purges expired records from the trash
)

// Principal is an authenticated caller. It is immutable.
type Principal struct {
	Kind        PrincipalKind
	UserID      int64    // of a Person
	AccountID   string   // of a ServiceAccount
	KeyID       string   // of a ServiceAccount
	KeyKind     KeyKind  // of a ServiceAccount
	Origins     []string // web origins from which a Browser key may be used
	Admin       bool     // true only for a Person
	Permissions []Permission
	Teams       []string  // nil: not limited to teams; empty: limited to records without teams
	Limits      rate.Pair // of the key itself; the organization's apply where these are unset
	Visitors    rate.Pair // of each address that presents a Browser key; the organization's apply where these are unset
	ProofOfWork int       // bits of work that a Browser key requires for a submission; 0: none
	Needs       *Needs    // records the permissions that calls need; nil: nothing is recorded
}

// Public reports whether anyone can act as this principal: it has no credential, or a browser key, which anyone can
// read in the source of a page. Such callers are limited by their network address.
func (p *Principal) Public() bool { return p.Kind == Anonymous || p.KeyKind == Browser }

// Needs calls Note once for each permission that a principal holds and that its calls needed. It is safe for
// concurrent use.
type Needs struct {
	Note  func(Permission)
	noted atomic.Uint64 // a bit for each of the principal's permissions, in their order
}

// May reports whether the principal holds the permission. It records in Needs that the call needs it.
func (p *Principal) May(permission Permission) bool {
	i := slices.Index(p.Permissions, permission)
	if i >= 0 && p.Needs != nil {
		bit := uint64(1) << i
		if p.Needs.noted.Load()&bit == 0 && p.Needs.noted.Or(bit)&bit == 0 { // Load first, since it does not write
			p.Needs.Note(permission)
		}
	}
	return i >= 0 || p.IsAdmin()
}

// WithIncidental marks calls that the program makes on a person's behalf, such as those for the frame of a page. The
// permissions that such calls need are not recorded as needed by the person.
func WithIncidental(ctx context.Context) context.Context {
	return context.WithValue(ctx, incidentalKey{}, true)
}

// Incidental reports whether ctx was marked by WithIncidental.
func Incidental(ctx context.Context) bool { return ctx.Value(incidentalKey{}) != nil }

type incidentalKey struct{}

// IsAdmin reports whether the principal is an administrator. A service account never is.
func (p *Principal) IsAdmin() bool { return p.Kind == Person && p.Admin }

// HoldsAll reports whether the principal holds every permission that the other one holds. It records no need.
func (p *Principal) HoldsAll(other *Principal) bool {
	return p.IsAdmin() || !other.IsAdmin() && !slices.ContainsFunc(other.Permissions, func(permission Permission) bool {
		return !slices.Contains(p.Permissions, permission)
	})
}

// Subject identifies the principal in logs and the audit trail, without personal data.
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

// Scope returns the records the principal may see, narrowed to the requested teams if there are any. A request never
// widens it. Without the teams feature nothing is scoped.
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
