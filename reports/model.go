package reports

import (
	"crypto/rand"
	"encoding/base64"

	"tenantry/backends/store"
)

// Report is a custom report: which class of records it asks, what, and how it is shown.
type Report struct {
	store.Meta
	PID           string           `json:"pid"`
	Title         string           `json:"title"`
	Desc          string           `json:"desc,omitempty"`
	Class         string           `json:"class"`
	Source        string           `json:"source,omitempty"`
	Query         Query            `json:"query"`
	Input         map[string]Input `json:"input,omitempty"`
	Secure        bool             `json:"secure"`
	PortalVisible bool             `json:"portal_visible"`
	Shareable     *bool            `json:"shareable,omitempty"` // nil: yes
	Exportable    bool             `json:"exportable"`
	Visual        string           `json:"visual,omitempty"`
	VisualProps   map[string]any   `json:"visual_props,omitempty"`
	Folder        string           `json:"folder,omitempty"`
	Parent        string           `json:"parent,omitempty"`
	RowKey        string           `json:"row_key,omitempty"`
	Actions       map[string]any   `json:"actions,omitempty"`
	ChildReports  []string         `json:"child_reports,omitempty"`
	Teams         []string         `json:"teams,omitempty"`
}

// CanShare reports whether the report can be read as shared at all.
func (r *Report) CanShare() bool { return r.Shareable == nil || *r.Shareable }

// NewPID returns a new public identifier: 128 random bits, URL-safe.
func NewPID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Input is a parameter of a report. Rule says who sets it: a locked one comes from a
// share token alone, an editable one from whoever opens the report.
type Input struct {
	Rule  string `json:"rule"`
	Value string `json:"value"`
	Label string `json:"label,omitempty"`
	Type  string `json:"type,omitempty"` // a type of columns other than list; empty: text
}

// The rules of an input.
const (
	Locked   = "locked"
	Editable = "editable"
)

// Revocation voids share tokens of one report: one token, or all of earlier generations.
type Revocation struct {
	store.Meta
	PID        string `json:"pid"`
	TokenID    string `json:"token_id,omitempty"`   // empty: every token of a generation below Generation
	Generation int64  `json:"generation,omitempty"` // a count, because clocks of replicas disagree
	Expires    int64  `json:"expires,omitempty"`    // Unix seconds after which the one token is void by itself
}

// Issued is a share token that was issued, without the token and its locked values, which can be
// personal. It is there for lists and for revoking; what is good is said by the token's
// signature and by revocations.
type Issued struct {
	store.Meta
	Report     string `json:"report"` // id
	PID        string `json:"pid"`
	TokenID    string `json:"token_id"`
	By         string `json:"by"`         // the subject who issued it
	Key        int64  `json:"key"`        // version of the key that signed it
	Generation int64  `json:"generation"` // see Revocation
	Expires    int64  `json:"expires"`    // Unix seconds
}

// Kinds are the records of this module.
type Kinds struct {
	Reports     *store.Kind[Report]
	Revocations *store.Kind[Revocation]
	Issued      *store.Kind[Issued]
}

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	reports, err := store.Define[Report](store.Spec{
		Name: "custom_reports", Fields: []string{"pid", "title", "class"}, Teams: true,
		Indexes: []store.Index{{Fields: []string{"pid"}, Unique: true}, {Fields: []string{"title"}}},
		Access:  []store.Access{{Where: []string{"pid"}}, {Where: []string{"title"}}},
	})
	if err != nil {
		return Kinds{}, err
	}
	revocations, err := store.Define[Revocation](store.Spec{
		Name: "share_revocations", Fields: []string{"pid", "token_id"},
		Indexes: []store.Index{{Fields: []string{"pid", "token_id"}}},
		Access:  []store.Access{{Where: []string{"pid"}}, {Where: []string{"pid", "token_id"}}},
	})
	if err != nil {
		return Kinds{}, err
	}
	issued, err := store.Define[Issued](store.Spec{
		Name: "shares", Fields: []string{"report", "pid", "token_id", "key", "generation", "expires"},
		Indexes: []store.Index{{Fields: []string{"report", "created_at"}}, {Fields: []string{"report", "token_id"}}},
		Access:  []store.Access{{Where: []string{"report"}, Sort: []string{"created_at"}}, {Where: []string{"report", "token_id"}}},
	})
	return Kinds{reports, revocations, issued}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec {
	return []*store.Spec{k.Reports.Spec(), k.Revocations.Spec(), k.Issued.Spec()}
}
