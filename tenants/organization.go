// Package tenants resolves host names to organizations and says what a principal may do. It is the only package that
// opens an organization's workspace.
package tenants

import (
	"cmp"
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
	SettingPublicFiles                      = "public_files" // everybody may read the files that have no teams
	LimitFolderChildren                     = "folder_children"
	LimitDocuments                          = "documents"  // number of documents the organization may store
	LimitBytes                              = "bytes"      // total size of these documents
	LimitFileSize                           = "file_size"  // bytes of one uploaded file
	LimitFileBytes                          = "file_bytes" // total size of uploaded files, each counted once
	DefaultFolderChildren             int64 = 1000
	// MaxQuota is the highest value of the limits of documents and bytes.
	MaxQuota int64 = 1<<53 - 1
)

// State of an organization.
type State string

// The states. Every request to a suspended organization is refused, and its data is kept. The same holds for a deleted
// organization until it is erased.
const (
	Active    State = "active"
	Suspended State = "suspended"
	Deleted   State = "deleted"
	Removed   State = "removed" // erased, or being erased; the slug is never free again
)

// Errors of this package, wrapped. Test with errors.Is.
var (
	// ErrUnknownTenant: no active organization has that host name or slug.
	ErrUnknownTenant = errors.New("no such organization")
	// ErrDeleted: the organization is deleted but not erased yet.
	ErrDeleted = errors.New("the organization has been deleted; tenantry org undelete restores it")
	// ErrNotDeleted: the organization is not deleted.
	ErrNotDeleted = errors.New("the organization has not been deleted")
	// ErrNoSlug: the host name cannot belong to an organization. It wraps ErrUnknownTenant.
	ErrNoSlug = fmt.Errorf("%w: the host name does not name one", ErrUnknownTenant)
	// ErrDenied: the credential is missing, malformed, unknown, expired, revoked or not for this organization.
	ErrDenied = errors.New("the credential is not accepted")
	// ErrUnavailable: the credential can be neither accepted nor refused at the moment.
	ErrUnavailable = errors.New("the credential cannot be checked now")
)

// Organization is one tenant.
type Organization struct {
	store.Meta
	OrgID    int64           `json:"org_id" use:"local"`
	Slug     string          `json:"slug" use:"local"`
	Name     string          `json:"name" rule:"max=200 format=label"`
	State    State           `json:"state" use:"local"`
	Features map[string]bool `json:"features,omitempty" use:"merge"`
	Settings map[string]bool `json:"settings,omitempty" use:"merge"`
	// Limits are set by the operator. Lowered are lower values that the organization's administrators have set.
	Limits  map[string]int64 `json:"limits,omitempty" rule:"min=0 max=9007199254740991" use:"merge"`
	Lowered map[string]int64 `json:"lowered,omitempty" use:"local"`
	// AccessRev grows with every change of keys, accounts, roles and rights. An identity cached under another revision
	// is void.
	AccessRev int64 `json:"access_rev" use:"local"`
	// RequestLimits take precedence over the defaults of the configuration, limit by limit.
	RequestLimits rate.Set `json:"request_limits,omitzero"`
	// DataKeys are the organization's wrapped data keys by purpose, newest last.
	DataKeys map[string][]string `json:"data_keys,omitempty" use:"local"`
	// Place is where the documents are, see store.PlaceName (empty: store.DefaultBackend). Former is the place that
	// still has an old copy of them, and Finisher identifies the call that is removing it. Move is set while the
	// organization is being moved or restored.
	Place    string `json:"backend,omitempty" use:"local"`
	Restores int64  `json:"restores,omitempty" use:"local"` // how often a restoration was begun, see restore.go
	// RestoredAt is when the documents became those of a backup, in Unix milliseconds; 0: never.
	RestoredAt int64  `json:"restored_at,omitempty" use:"local"`
	Former     string `json:"former,omitempty" use:"local"`
	Finisher   string `json:"finisher,omitempty" use:"local"`
	Move       *Move  `json:"move,omitempty" use:"local"`
	// EventLog says that events are logged; nil: nobody follows them.
	EventLog *EventLog `json:"event_log,omitempty" use:"local"`
	// Sends is set while the organization may have webhooks, which was noted at SendsSince (Unix milliseconds).
	Sends      string `json:"sends,omitempty" use:"local"`
	SendsSince int64  `json:"sends_since,omitempty" use:"local"`
	// DueAt is when work of the organization is due that is done on time, in Unix milliseconds; 0: there is none. It was
	// last made earlier, or as early, at DueSince.
	DueAt    int64 `json:"due_at,omitempty" use:"local"`
	DueSince int64 `json:"due_since,omitempty" use:"local"`
	// Edited is the time of the last change that somebody made (Unix milliseconds), and grows with each; 0: it is as it was
	// created. The revision of the record grows with what the gateway notes, too.
	Edited int64 `json:"edited,omitempty" use:"local"`
	// CopyOf is the slug of the organization of which a backup is being copied into this new one; empty: all is copied.
	CopyOf string `json:"copy_of,omitempty" use:"local"`
	// Ending says when the organization was deleted and what was erased. It is nil while the organization is not
	// deleted.
	Ending *Ending `json:"ending,omitempty" use:"local"`
	// Leaving lists administrators who are losing their rights at the moment.
	Leaving []Leaving `json:"leaving,omitempty" use:"local"`
	// Providers are the names of the report providers that may resolve a shared report.
	Providers []string `json:"providers,omitempty" rule:"each=64"`
	// FrameOrigins are the origins whose pages may show its shared reports in a frame.
	FrameOrigins []string `json:"frame_origins,omitempty" rule:"each=300"`
	// Color is that of buttons in its mails, such as #1f5fbf; empty: the usual one.
	Color string `json:"color,omitempty" rule:"max=7 format=line"`

	defaults map[string]int64 // the directory's limits, which apply if the organization has none of its own
}

// Leaving notes that an administrator is losing that right. The note expires at Until (Unix milliseconds).
type Leaving struct {
	ID    string `json:"id"` // of the change, because several changes of one administrator may be under way
	UID   int64  `json:"uid"`
	Until int64  `json:"until"`
}

// EditedAt returns when somebody changed the organization last, in Unix milliseconds. It differs after each change.
func (o *Organization) EditedAt() int64 { return cmp.Or(o.Edited, o.CreatedAt) }

// Home returns the name of the backend where the documents are.
func (o *Organization) Home() string {
	backend, _ := store.SplitPlace(o.Place)
	return backend
}

// Restoring reports whether the documents are about to become those of a backup. Until then bytes of files that none of
// them uses are kept.
func (o *Organization) Restoring() bool { return o.Move != nil && o.Move.Restores }

// Feature reports whether the feature is on.
func (o *Organization) Feature(name string) bool { return o.Features[name] }

// Setting reports whether the setting is on.
func (o *Organization) Setting(name string) bool { return o.Settings[name] }

// Allowed returns the highest value that the operator allows for a limit, or 0 if there is no limit.
func (o *Organization) Allowed(name string) int64 {
	if n := o.Limits[name]; n > 0 {
		return n
	}
	if name == LimitFolderChildren {
		return DefaultFolderChildren
	}
	return o.defaults[name]
}

// Limit returns the limit that applies, or 0 if there is none.
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

// Lower sets limits within the values that the operator allows. A limit set to the operator's value follows it from
// then on. Invalid values are noted in faults.
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
		case !slices.Contains(AllLimits(), name): // noted by checkKnown
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

// Tenant is an organization with access to its data. Only a Directory creates one. It is immutable: a changed
// organization is a new Tenant.
type Tenant struct {
	Org       Organization
	slug      *string // shared by all tenants of the organization; keeps the slug in Directory.slugs
	workspace *store.Workspace
	people    *store.Workspace
	prefix    string                      // of keys in Redis
	absent    func(context.Context) error // see Absent; nil if the organization has documents
	directory *Directory                  // nil if it has none
}

// Through returns a copy of the tenant whose workspaces are replaced by the results of bind.
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

// People returns the organization's partition of the control workspace: users, roles, teams, service accounts and keys.
func (t *Tenant) People() *store.Workspace { return t.people }

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }
