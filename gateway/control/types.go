package control

import (
	"time"

	"tenantry/tenants/limits"
)

// Organization is an organization as commands show it.
type Organization struct {
	ID        int64            `json:"id"`
	Slug      string           `json:"slug"`
	Name      string           `json:"name"`
	State     string           `json:"state"`
	Features  map[string]bool  `json:"features"`
	Settings  map[string]bool  `json:"settings"`
	Limits    map[string]int64 `json:"limits"`
	Providers []string         `json:"providers"`
	// RequestLimits are those that are the organization's own.
	RequestLimits limits.Set `json:"request_limits,omitzero"`
	// Backend is where the documents are, OldCopy a backend that still has a copy which
	// nobody uses.
	Backend   string    `json:"backend"`
	OldCopy   string    `json:"old_copy,omitempty"`
	Move      *Moving   `json:"move,omitempty"`
	URL       string    `json:"url"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// OrganizationChange says what an organization shall be; what is absent stays as it is.
// The values of the maps are set one by one.
type OrganizationChange struct {
	Slug     string           `json:"slug"`
	Name     *string          `json:"name,omitempty"`
	Features map[string]bool  `json:"features,omitempty"`
	Settings map[string]bool  `json:"settings,omitempty"`
	Limits   map[string]int64 `json:"limits,omitempty"`
	// Providers replaces the list.
	Providers *[]string `json:"providers,omitempty"`
	// Backend, of a new organization, is where its documents will be.
	Backend string `json:"backend,omitempty"`
}

// Slug names an organization.
type Slug struct {
	Slug string `json:"slug"`
}

// OrganizationPage asks for organizations after a slug.
type OrganizationPage struct {
	After string `json:"after,omitempty"`
	Limit int    `json:"limit,omitempty"`
}

// List is a part of a list.
type List[T any] struct {
	Items []T `json:"items"`
	// More: there are others after these.
	More bool `json:"more,omitempty"`
}

// User is a person as commands show it.
type User struct {
	ID          int64     `json:"id"`
	Name        string    `json:"name"`
	Email       string    `json:"email"`
	Roles       []string  `json:"roles"`
	Permissions []string  `json:"permissions"` // besides those of the roles
	Teams       []string  `json:"teams"`
	Active      bool      `json:"active"`
	CreatedAt   time.Time `json:"created_at"`
}

// NewUser is a person to be made.
type NewUser struct {
	Org         string   `json:"org"`
	Name        string   `json:"name"`
	Email       string   `json:"email"`
	Roles       []string `json:"roles,omitempty"`
	Permissions []string `json:"permissions,omitempty"`
	Teams       []string `json:"teams,omitempty"`
	// Password: without one a link is made.
	Password string `json:"password,omitempty"`
}

// Invited is a person and, where one was made, the single-use link with which the person
// chooses a password.
type Invited struct {
	User
	Link          string     `json:"link,omitempty"`
	LinkExpiresAt *time.Time `json:"link_expires_at,omitempty"`
	Notes         []string   `json:"notes,omitempty"` // what whoever asked for it should know
}

// UserRef names a person by number or e-mail address.
type UserRef struct {
	Org  string `json:"org"`
	User string `json:"user"`
}

// UserChange says what a person shall be; what is absent stays as it is.
type UserChange struct {
	UserRef
	Name        *string   `json:"name,omitempty"`
	Email       *string   `json:"email,omitempty"`
	Roles       *[]string `json:"roles,omitempty"`
	Permissions *[]string `json:"permissions,omitempty"`
	Teams       *[]string `json:"teams,omitempty"`
	Active      *bool     `json:"active,omitempty"`
	Password    string    `json:"password,omitempty"`
	// Invite makes a new link.
	Invite bool `json:"invite,omitempty"`
}

// Page asks for a part of an organization's list.
type Page struct {
	Org    string `json:"org"`
	Limit  int    `json:"limit,omitempty"`
	Offset int    `json:"offset,omitempty"`
}

// Key is an API key as lists show it, without its text.
type Key struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Kind        string   `json:"kind"`
	Account     string   `json:"account"`
	Hint        string   `json:"hint"` // how the key begins
	State       string   `json:"state"`
	Permissions []string `json:"permissions,omitempty"` // what the key is narrowed to
	// Effective is what the key may do: what its account holds, narrowed.
	Effective []string   `json:"effective_permissions"`
	Teams     []string   `json:"teams,omitempty"` // what the key is narrowed to
	AllowIPs  []string   `json:"allow_ips,omitempty"`
	Origins   []string   `json:"origins,omitempty"`
	CreatedAt time.Time  `json:"created_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at,omitempty"`
	// LastUsedAt is when the key was last accepted, to a minute or so; absent: never, or not
	// since that is recorded.
	LastUsedAt *time.Time `json:"last_used_at"`
	// Limits on its requests that are its own.
	Limits limits.Pair `json:"limits,omitzero"`
}

// NewKey is a key to be made.
type NewKey struct {
	Org  string `json:"org"`
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Account is the ID or name of the service account the key belongs to. Empty: the one
	// of the key's name, made with Permissions where there is none.
	Account     string   `json:"account,omitempty"`
	Permissions []string `json:"permissions,omitempty"` // what an account that exists is narrowed to
	Teams       []string `json:"teams,omitempty"`
	// Expires is how long the key lasts; 0: until it is revoked.
	Expires  time.Duration `json:"expires,omitempty"`
	AllowIPs []string      `json:"allow_ips,omitempty"` // CIDRs or addresses
	Origins  []string      `json:"origins,omitempty"`   // of a browser key
	// Rate and Quota are limits on its requests, like 100/s; empty: the organization's for keys.
	Rate  string `json:"rate,omitempty"`
	Quota string `json:"quota,omitempty"`
}

// Issued is a new key with what whoever asked for it should know.
type Issued struct {
	Key   IssuedKey `json:"key"`
	Notes []string  `json:"notes,omitempty"`
}

// IssuedKey is a new key. This is the only time its token is told.
type IssuedKey struct {
	ID        string     `json:"id"`
	Token     string     `json:"token"`
	Kind      string     `json:"kind"`
	Account   string     `json:"account"`
	ExpiresAt *time.Time `json:"expires_at"`
	Notes     []string   `json:"notes,omitempty"` // of a rotation; those of a new key are beside it
}

// KeyRef names a key.
type KeyRef struct {
	Org string `json:"org"`
	ID  string `json:"id"`
	// Overlap, of a rotation, is how long the old key goes on.
	Overlap time.Duration `json:"overlap,omitempty"`
}

// EncryptionKey is a key of the keyring, without its bytes.
type EncryptionKey struct {
	Version   int       `json:"version"`
	State     string    `json:"state"`
	CreatedAt time.Time `json:"created_at"`
}

// Rotation is what came of a rotation of the keyring.
type Rotation struct {
	Version   int `json:"version"`
	Rewrapped int `json:"rewrapped"` // data keys now under the new version
}

// Version names a key of the keyring.
type Version struct {
	Version int `json:"version"`
}

// None is a request or answer without content.
type None struct{}
