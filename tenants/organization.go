// Package tenants knows who calls: organizations, how a host name leads to one, and what
// a principal may do. Only this package opens an organization's data.
package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/rate"
)

// Names of features, settings and limits of an organization.
const (
	FeatureTeams                            = "teams"
	SettingRequirePublicEncryptionKey       = "require_public_encryption_key"
	SettingSignInNamesOrganization          = "sign_in_names_organization"
	LimitFolderChildren                     = "folder_children"
	LimitDocuments                          = "documents" // how many the organization may have
	LimitBytes                              = "bytes"     // how long these may be together
	DefaultFolderChildren             int64 = 1000
	// MaxQuota is the highest limit of documents and bytes.
	MaxQuota int64 = 1<<53 - 1
)

// State of an organization.
type State string

// The states. A suspended organization answers nobody, and its data stays; so it is with a deleted one, until that is
// erased.
const (
	Active    State = "active"
	Suspended State = "suspended"
	Deleted   State = "deleted"
	Removed   State = "removed" // or about to be; the slug stays taken for ever
)

// Errors of this package, wrapped. Test with errors.Is.
var (
	// ErrUnknownTenant: no active organization answers to that host name or slug.
	ErrUnknownTenant = errors.New("no such organization")
	// ErrDeleted: the organization is deleted, though not erased yet.
	ErrDeleted = errors.New("the organization has been deleted; tenantry org undelete restores it")
	// ErrNotDeleted: it is not.
	ErrNotDeleted = errors.New("the organization has not been deleted")
	// ErrNoSlug: the host name cannot be an organization's. It is an ErrUnknownTenant.
	ErrNoSlug = fmt.Errorf("%w: the host names none", ErrUnknownTenant)
	// ErrDenied: the credential is missing, malformed, unknown, expired, revoked or not for this organization.
	ErrDenied = errors.New("the credential is not accepted")
	// ErrUnavailable: it cannot be told now whether the credential is good.
	ErrUnavailable = errors.New("the credential cannot be checked now")
)

// Organization is one tenant.
type Organization struct {
	store.Meta
	OrgID     int64            `json:"org_id" use:"local"`
	Slug      string           `json:"slug" use:"local"`
	Name      string           `json:"name" rule:"max=200 format=label"`
	State     State            `json:"state" use:"local"`
	Features  map[string]bool  `json:"features,omitempty" use:"merge"`
	Settings  map[string]bool  `json:"settings,omitempty" use:"merge"`
	Limits    map[string]int64 `json:"limits,omitempty" rule:"min=0 max=9007199254740991" use:"merge"` // which the operator allows at most
	Lowered   map[string]int64 `json:"lowered,omitempty" use:"local"`                                  // limits as its administrators have lowered them
	AccessRev int64            `json:"access_rev" use:"local"`                                         // grows with every change to keys, accounts, roles: cached identities of another one are void
	// RequestLimits go before the defaults of the configuration, where they say something.
	RequestLimits rate.Set `json:"request_limits,omitzero"`
	// DataKeys are the organization's wrapped data keys by purpose, the newest last.
	DataKeys map[string][]string `json:"data_keys,omitempty" use:"local"`
	// Backend is where the documents are (empty: store.DefaultBackend), Former where an old
	// copy of them still is, Finisher who removes that now, Move how they get elsewhere.
	Backend  string `json:"backend,omitempty" use:"local"`
	Former   string `json:"former,omitempty" use:"local"`
	Finisher string `json:"finisher,omitempty" use:"local"`
	Move     *Move  `json:"move,omitempty" use:"local"`
	// Ending says when it was deleted and what was erased; nil while it is not deleted.
	Ending *Ending `json:"ending,omitempty" use:"local"`
	// Leaving are administrators whose rights are being taken away at this moment.
	Leaving []Leaving `json:"leaving,omitempty" use:"local"`
	// Providers are the names of the report providers a shared report may be asked from.
	Providers []string `json:"providers,omitempty" rule:"each=64"`
	// FrameOrigins are the origins whose pages may show its shared reports in a frame.
	FrameOrigins []string `json:"frame_origins,omitempty" rule:"each=300"`

	defaults map[string]int64 // limits where it has none of its own; the directory's
}

// Leaving is an administrator who is about to be none, until then (Unix milliseconds) at
// the latest.
type Leaving struct {
	ID    string `json:"id"` // of the change: several may be about one administrator, of which some fail
	UID   int64  `json:"uid"`
	Until int64  `json:"until"`
}

// Home returns the name of the backend where the documents are.
func (o *Organization) Home() string { return store.BackendName(o.Backend) }

// Feature reports whether the feature is on.
func (o *Organization) Feature(name string) bool { return o.Features[name] }

// Setting reports whether the setting is on.
func (o *Organization) Setting(name string) bool { return o.Settings[name] }

// Allowed returns what the operator allows a limit to be at most, 0 where there is no limit.
func (o *Organization) Allowed(name string) int64 {
	if n := o.Limits[name]; n > 0 {
		return n
	}
	if name == LimitFolderChildren {
		return DefaultFolderChildren
	}
	return o.defaults[name]
}

// Limit returns the limit that holds, 0 where there is none.
func (o *Organization) Limit(name string) int64 {
	n, own := o.Allowed(name), o.Lowered[name]
	if own > 0 && (n == 0 || own < n) {
		return own
	}
	return n
}

// quota returns how much the organization may store.
func (o *Organization) quota() store.Quota {
	return store.Quota{Documents: o.Limit(LimitDocuments), Bytes: o.Limit(LimitBytes)}
}

// Lower sets limits within what the operator allows; one that is set to as much follows the operator's.
func (o *Organization) Lower(wanted map[string]int64, faults *fault.List) {
	checkKnown(faults, "limits", "limit", slices.Sorted(maps.Keys(wanted)), AllLimits())
	lowered := maps.Clone(o.Lowered)
	if lowered == nil {
		lowered = map[string]int64{}
	}
	for name, n := range wanted {
		most := o.Allowed(name)
		if most == 0 {
			most = MaxQuota
		}
		switch {
		case !slices.Contains(AllLimits(), name): // said above
		case n < 1 || n > most:
			faults.Add("limits."+name, fault.Range, "the limit %s is from 1 to %d, which the operator allows", name, most)
		case n == most:
			delete(lowered, name)
		default:
			lowered[name] = n
		}
	}
	o.Lowered = lowered
}

// Tenant is an organization together with the way to its data. Only a Directory makes
// one. It is immutable: a changed organization is a new Tenant.
type Tenant struct {
	Org       Organization
	slug      *string // of all who know the organization
	workspace *store.Workspace
	people    *store.Workspace
	prefix    string                      // of names in Redis
	absent    func(context.Context) error // see Absent; nil: the organization has documents
}

// Through returns the tenant whose workspaces are those that bind makes of them.
func (t *Tenant) Through(bind func(*store.Workspace) *store.Workspace) *Tenant {
	c := *t
	if c.workspace != nil {
		c.workspace = bind(c.workspace)
	}
	if c.people != nil {
		c.people = bind(c.people)
	}
	return &c
}

// Workspace returns the organization's documents, unscoped.
func (t *Tenant) Workspace() *store.Workspace { return t.workspace }

// People returns the organization's part of the control workspace: users, roles, teams,
// service accounts and keys.
func (t *Tenant) People() *store.Workspace { return t.people }

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
