package objects

import (
	"tenantry/backends/resource"
	"tenantry/backends/schema"
	"tenantry/backends/store"
)

// Definition is a custom object: a kind of record that the organization made up.
type Definition struct {
	store.Meta
	Name        string        `json:"name" rule:"required max=64 format=name unique" use:"named"`
	Label       string        `json:"label" rule:"required max=200 format=label unique"`
	LabelPlural string        `json:"label_plural" rule:"required max=200 format=label unique"`
	Schema      schema.Fields `json:"schema,omitempty" use:"always"`
	Deleted     bool          `json:"deleted,omitempty" use:"scope"`
}

// Record is one record of a custom object.
type Record struct {
	store.Meta
	Object     string            `json:"object" rule:"required max=64 ref=custom_object" use:"filter"` // the definition's name
	Values     map[string]any    `json:"values,omitempty" store:"custom"`
	ExternalID string            `json:"external_id,omitempty" rule:"max=200 unique within=object" use:"identity" alias:"id"`
	Secrets    map[string]string `json:"secrets,omitempty" use:"secret"` // sealed values by field
	Deleted    bool              `json:"deleted,omitempty" use:"scope"`
}

// Kinds are the records of this module.
type Kinds struct {
	Definitions *resource.Of[Definition]
	Records     *resource.Of[Record]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	definitions := resource.Must(resource.Options[Definition]{
		Traits:  resource.Traits{Name: "custom_object", Key: "name", Definition: true},
		Spec:    store.Spec{Name: "custom_objects"},
		Defines: func(d *Definition) (string, schema.Fields, bool) { return d.Name, d.Schema, d.Schema != nil },
	})
	records := resource.Must(resource.Options[Record]{
		Traits: resource.Traits{Name: "record", DefinedBy: "custom_object"},
		Spec: store.Spec{
			Name:    "records",
			Indexes: []store.Index{{Fields: []string{"object", "created_at"}}},
			Access:  []store.Access{{Where: []string{"object", "created_at"}}},
		},
	})
	return Kinds{definitions, records}
}

// Kept returns all that is kept.
func (k Kinds) Kept() []resource.Kept { return []resource.Kept{k.Definitions, k.Records} }
