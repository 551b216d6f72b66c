package contacts

import (
	"maps"

	"tenantry/backends/resource"
	"tenantry/backends/schema"
	"tenantry/backends/store"
)

// Contact is a person or organization that the organization deals with.
type Contact struct {
	store.Meta
	Email      string         `json:"email,omitempty" rule:"max=320 format=email" use:"filter"`
	FirstName  string         `json:"first_name,omitempty" rule:"max=200 format=line" use:"filter"`
	LastName   string         `json:"last_name,omitempty" rule:"max=200 format=line" use:"filter" alias:"name"`
	Phone      string         `json:"phone,omitempty" rule:"max=64 format=line" use:"filter"`
	Country    string         `json:"country,omitempty" rule:"max=200 format=line" use:"filter"`
	City       string         `json:"city,omitempty" rule:"max=200 format=line" use:"filter"`
	Status     string         `json:"status,omitempty" rule:"max=200 format=line" use:"filter"`
	Tags       []string       `json:"tags,omitempty" rule:"max=200 each=100 format=line" use:"filter"`
	Fields     map[string]any `json:"fields,omitempty" store:"custom"`
	Teams      []string       `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Deleted    bool           `json:"deleted,omitempty" use:"scope"`
	ExternalID string         `json:"external_id,omitempty" rule:"max=200 format=line unique" use:"identity" alias:"id"`
	// Secrets are the sealed values of encrypted fields. No question can name them.
	Secrets map[string]string `json:"secrets,omitempty" use:"secret"`
}

// FieldDef is a contact field that the organization defined.
type FieldDef struct {
	store.Meta
	Key     string `json:"key" rule:"required max=64 format=key unique" use:"identity"`
	Title   string `json:"title" rule:"required max=200 format=line"`
	Type    string `json:"type" rule:"required max=64"` // a type of package schema; Encrypted makes the values secret
	Deleted bool   `json:"deleted,omitempty" use:"scope"`
}

// Kinds are the records of this module.
type Kinds struct {
	Contacts *resource.Of[Contact]
	Fields   *resource.Of[FieldDef]
}

// NewKinds declares the records.
//
// deleted and teams ride along at the end of the indexes, so that a count, also in a team's
// scope, need not leave them.
func NewKinds() Kinds {
	contacts := resource.Must(resource.Options[Contact]{
		Traits: resource.Traits{Name: "contact", DefinedBy: "contact_field"},
		Spec: store.Spec{Name: "contacts", Indexes: []store.Index{
			{Fields: []string{"email", "deleted", "teams"}},
			{Fields: []string{"first_name", "deleted", "teams"}},
			{Fields: []string{"last_name", "first_name", "deleted", "teams"}},
			{Fields: []string{"phone", "deleted", "teams"}},
			{Fields: []string{"country", "status", "deleted", "teams"}},
			{Fields: []string{"city", "country", "deleted", "teams"}},
			{Fields: []string{"status", "created_at", "deleted", "teams"}},
			{Fields: []string{"created_at", "deleted", "teams"}},
			{Fields: []string{"tags"}},
		},
			Access: []store.Access{
				{Where: []string{"email"}}, {Where: []string{"first_name"}},
				{Where: []string{"last_name", "first_name"}}, {Where: []string{"phone"}}, {Where: []string{"country", "status"}},
				{Where: []string{"city", "country"}}, {Where: []string{"status", "created_at"}}, {Where: []string{"created_at"}},
				{Where: []string{"tags"}},
			}},
		Check: func(_ *resource.Checking, c *Contact) {
			maps.DeleteFunc(c.Fields, func(_ string, value any) bool { return value == "" })
		},
	})
	fields := resource.Must(resource.Options[FieldDef]{
		Traits: resource.Traits{Name: "contact_field", Key: "key", Definition: true, Together: true, Most: MaxFields, Travels: "created_at"},
		Spec:   store.Spec{Name: "contact_fields"},
		Check:  func(c *resource.Checking, def *FieldDef) { ValidateField(def, c.Errs) },
		Defines: func(def *FieldDef) (string, schema.Fields, bool) {
			return "", schema.Fields{def.Key: {Title: def.Title, Type: def.Type}}, true
		},
	})
	return Kinds{contacts, fields}
}

// Kept returns all that is kept.
func (k Kinds) Kept() []resource.Kept { return []resource.Kept{k.Contacts, k.Fields} }
