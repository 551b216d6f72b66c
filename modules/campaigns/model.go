package campaigns

import (
	"encoding/json"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Campaign addresses the contacts that its filter matches.
type Campaign struct {
	store.Meta
	Name    string          `json:"name" rule:"required max=200 format=label" use:"filter" doc:"Name of the campaign." example:"Spring in Bonn" report:"Name"`
	Filter  json.RawMessage `json:"filter,omitempty" doc:"Which contacts it addresses; without a filter, all: {\"country\": \"DE\", \"age\": {\"gt\": 30}} is the JSON form of filters[...]." ask:"Who it addresses|All contacts if there is no condition." example:"{\"country\":\"DE\"}"`
	Teams   []string        `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Deleted bool            `json:"deleted,omitempty" use:"scope"`
}

// definer is the resource that defines the fields of contacts, which filters of campaigns name.
const definer = "contact_field"

// Kinds are the records of this module.
type Kinds struct {
	Campaigns *record.Of[Campaign]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	campaigns := record.Must(record.Options[Campaign]{
		Traits: record.Traits{Name: "campaign"},
		Spec: store.Spec{
			Name:    "campaigns",
			Indexes: []store.Index{{Fields: []string{"name"}}, {Fields: []string{"created_at"}}},
			Access:  []store.Access{{Where: []string{"name"}}, {Where: []string{"created_at"}}},
		},
		Asks: func(*Campaign) (string, string) { return definer, "" },
		Uses: func(c *Campaign) record.Use {
			return record.Use{Resource: definer, Fields: c.expr(&fault.List{}).Fields()}
		},
	})
	return Kinds{campaigns}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Campaigns} }
