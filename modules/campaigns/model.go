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
	Name    string          `json:"name" rule:"required max=200 format=label" use:"filter" doc:"What people call it." example:"Spring in Bonn" report:"Name"`
	Filter  json.RawMessage `json:"filter,omitempty" doc:"Which contacts it addresses, all of them without one: {\"country\": \"DE\", \"age\": {\"gt\": 30}} is what the brackets of filters[...] spell." ask:"Who it addresses|All contacts where no condition is given." example:"{\"country\":\"DE\"}"`
	Teams   []string        `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Deleted bool            `json:"deleted,omitempty" use:"scope"`
}

// definer is the resource that defines what filters of campaigns name.
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

// Kept returns all that is kept.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Campaigns} }
