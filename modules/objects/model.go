package objects

import (
	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
)

// Definition is a custom object: a kind of record that the organization defines.
type Definition struct {
	store.Meta
	Name        string        `json:"name" rule:"required max=64 format=name unique" use:"named" doc:"Singular identifier, by which records and reports refer to the object. It never changes." ask:"Short name|For addresses and files: lower-case letters, digits and _, such as bike. It never changes." example:"tree"`
	Label       string        `json:"label" rule:"required max=200 format=label unique" doc:"Singular label." ask:"Name|Such as Bike." example:"Tree"`
	LabelPlural string        `json:"label_plural" rule:"required max=200 format=label unique" doc:"Plural label." ask:"Name of several|Such as Bikes." example:"Trees"`
	Schema      schema.Fields `json:"schema,omitempty" use:"always" doc:"Fields by identifier; given fields replace all." ask:"Fields" example:"{\"species\":{\"title\":\"Species\",\"type\":\"Text\"}}"`
	Deleted     bool          `json:"deleted,omitempty" use:"scope"`
}

// Record is one record of a custom object.
type Record struct {
	store.Meta
	Object     string            `json:"object" rule:"required max=64 ref=custom_object" use:"filter" doc:"Name of the custom object." example:"tree"`
	Values     map[string]any    `json:"values,omitempty" store:"custom" doc:"Values by field of the custom object." example:"{\"species\":\"oak\"}"`
	ExternalID string            `json:"external_id,omitempty" rule:"max=200 format=line unique within=object" use:"identity" alias:"id" doc:"Identifier in another system, unique among the object's records." ask:"External ID|The identifier of the record in another system. It must be unique." example:"T-1" report:"External id"`
	Secrets    map[string]string `json:"secrets,omitempty" use:"secret"` // sealed values by field
	Deleted    bool              `json:"deleted,omitempty" use:"scope"`
}

// Kinds are the records of this module.
type Kinds struct {
	Definitions *record.Of[Definition]
	Records     *record.Of[Record]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	definitions := record.Must(record.Options[Definition]{
		Traits: record.Traits{Name: "custom_object", Key: "name", Definition: true},
		Spec: store.Spec{
			Name: "custom_objects", Indexes: []store.Index{{Fields: []string{"created_at"}}},
			Access: []store.Access{{Where: []string{"created_at"}}},
		},
		Defines: func(d *Definition) (string, schema.Fields, bool) { return d.Name, d.Schema, d.Schema != nil },
	})
	records := record.Must(record.Options[Record]{
		Traits: record.Traits{Name: "record", DefinedBy: "custom_object"},
		Spec: store.Spec{
			Name: "records",
			Indexes: []store.Index{
				{Fields: []string{"object"}, Rides: []string{"deleted"}},
				{Fields: []string{"object", "created_at"}, Rides: []string{"deleted"}},
			},
			Access: []store.Access{{Where: []string{"object"}}, {Where: []string{"object", "created_at"}}},
		},
	})
	return Kinds{definitions, records}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Definitions, k.Records} }
