package campaigns

import (
	"encoding/json"

	"tenantry/backends/store"
)

// Campaign addresses the contacts that its filter matches.
type Campaign struct {
	store.Meta
	Name   string          `json:"name"`
	Filter json.RawMessage `json:"filter,omitempty"` // as package filters reads it
	Teams  []string        `json:"teams,omitempty"`
}

// Kinds are the records of this module.
type Kinds struct {
	Campaigns *store.Kind[Campaign]
}

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	campaigns, err := store.Define[Campaign](store.Spec{
		Name: "campaigns", Fields: []string{"name"}, Teams: true,
		Indexes: []store.Index{{Fields: []string{"name"}}, {Fields: []string{"created_at"}}},
		Access:  []store.Access{{Where: []string{"name"}}, {Where: []string{"created_at"}}},
	})
	return Kinds{campaigns}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Campaigns.Spec()} }
