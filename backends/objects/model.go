package objects

import (
	"tenantry/backends/schema"
	"tenantry/backends/store"
)

// Definition is a custom object: a kind of record that the organization made up.
type Definition struct {
	store.Meta
	Name        string        `json:"name"`
	Label       string        `json:"label"`
	LabelPlural string        `json:"label_plural"`
	Schema      schema.Fields `json:"schema,omitempty"`
}

// Record is one record of a custom object.
type Record struct {
	store.Meta
	Object     string            `json:"object"` // the definition's name
	ExternalID string            `json:"external_id,omitempty"`
	Values     map[string]any    `json:"values,omitempty" store:"custom"`
	Secrets    map[string]string `json:"secrets,omitempty"` // sealed values by field
}

// Kinds are the records of this module.
type Kinds struct {
	Definitions *store.Kind[Definition]
	Records     *store.Kind[Record]
}

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	definitions, err := store.Define[Definition](store.Spec{
		Name: "custom_objects", Fields: []string{"name", "label", "label_plural"},
		Indexes: []store.Index{
			{Fields: []string{"name"}, Unique: true},
			{Fields: []string{"label"}, Unique: true},
			{Fields: []string{"label_plural"}, Unique: true},
		},
		Access: []store.Access{{Where: []string{"name"}}, {Where: []string{"label"}}, {Where: []string{"label_plural"}}},
	})
	if err != nil {
		return Kinds{}, err
	}
	records, err := store.Define[Record](store.Spec{
		Name: "records", Fields: []string{"object", "external_id"}, Custom: true,
		Indexes: []store.Index{
			{Fields: []string{"object", "external_id"}, Unique: true},
			{Fields: []string{"object", "created_at"}},
		},
		Access: []store.Access{{Where: []string{"object", "external_id"}}, {Where: []string{"object", "created_at"}}},
	})
	return Kinds{definitions, records}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Definitions.Spec(), k.Records.Spec()} }
