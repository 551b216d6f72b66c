package contacts

import (
	"maps"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
)

// Contact is a person or organization that the organization deals with.
type Contact struct {
	store.Meta
	Email      string         `json:"email,omitempty" rule:"max=320 format=email" use:"filter" alias:"email address|email 1 value|primary email|email 1|mail" doc:"E-mail address." example:"ada@example.com" report:"E-mail"`
	FirstName  string         `json:"first_name,omitempty" rule:"max=200 format=line" use:"filter" alias:"given name|forename" doc:"First name." example:"Ada" report:"First name"`
	LastName   string         `json:"last_name,omitempty" rule:"max=200 format=line" use:"filter" alias:"name|family name|surname" doc:"Last name, or the name of an organization." ask:"Last name|Or the name of an organization." example:"Lovelace" report:"Last name"`
	Phone      string         `json:"phone,omitempty" rule:"max=64 format=line" use:"filter" alias:"phone number|telephone|phone 1 value|primary phone|mobile phone|mobile|business phone|work phone|home phone" doc:"Phone number, as entered." example:"+49 228 1234" report:"Phone"`
	Country    string         `json:"country,omitempty" rule:"max=200 format=line" use:"filter" alias:"address 1 country|country region|home country|home country region|business country|business country region|work country" doc:"Country, as the organization writes it." example:"DE" report:"Country"`
	City       string         `json:"city,omitempty" rule:"max=200 format=line" use:"filter" alias:"address 1 city|town|home city|business city|work city" doc:"City." example:"Bonn" report:"City"`
	Status     string         `json:"status,omitempty" rule:"max=200 format=line" use:"filter" doc:"Status that the organization gives the contact." example:"customer" report:"Status"`
	Tags       []string       `json:"tags,omitempty" rule:"max=200 each=100 format=line" use:"filter" alias:"labels|categories|group membership" doc:"Words that group contacts." example:"[\"press\"]" report:"Tags"`
	Fields     map[string]any `json:"fields,omitempty" store:"custom" doc:"Values of the fields that the organization defined, by key. Values of encrypted fields can be written, but only reveal shows them."`
	Teams      []string       `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Deleted    bool           `json:"deleted,omitempty" use:"scope"`
	ExternalID string         `json:"external_id,omitempty" rule:"max=200 format=line unique" use:"identity" alias:"id" doc:"Identifier of the contact in another system; unique." ask:"External ID|The identifier of the contact in another system. It must be unique." example:"crm-1815" report:"External id"`
	// Secrets are the sealed values of encrypted fields. They cannot be queried.
	Secrets map[string]string `json:"secrets,omitempty" use:"secret"`
}

// FieldDef is a contact field that the organization defined.
type FieldDef struct {
	store.Meta
	Key     string `json:"key" rule:"required max=64 format=key unique" use:"once identity" doc:"Name of the field in values and filters." ask:"Key|A short name for filters and files, such as birth_date." example:"plan"`
	Title   string `json:"title" rule:"required max=200 format=label" use:"filter" doc:"Title for people." example:"Plan"`
	Type    string `json:"type" rule:"required max=64" doc:"StudlyCase name of a type, for example Text, Number or Date; values of the type Encrypted are secret." ask:"Type|Values of encrypted fields are kept secret.|type" example:"Text"`
	Deleted bool   `json:"deleted,omitempty" use:"scope"`
}

// field returns the definition as a field of contacts.
func (def *FieldDef) field() schema.Field { return schema.Field{Title: def.Title, Type: def.Type} }

// Kinds are the records of this module.
type Kinds struct {
	Contacts *record.Of[Contact]
	Fields   *record.Of[FieldDef]
}

// NewKinds declares the records.
//
// Indexes end with deleted and teams, so that counts, even in a team's scope, are answered from the index alone.
func NewKinds() Kinds {
	contacts := record.Must(record.Options[Contact]{
		Traits: record.Traits{Name: "contact", DefinedBy: "contact_field"},
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
				{Where: []string{
					"last_name", "first_name",
				}}, {Where: []string{"phone"}}, {Where: []string{"country", "status"}},
				{Where: []string{"city", "country"}}, {Where: []string{
					"status", "created_at",
				}}, {Where: []string{"created_at"}},
				{Where: []string{"tags"}},
			}},
		Check: func(_ *record.Checking, c *Contact) {
			maps.DeleteFunc(c.Fields, func(_ string, value any) bool { return value == "" })
		},
	})
	fields := record.Must(record.Options[FieldDef]{
		Traits: record.Traits{
			Name: "contact_field", Key: "key", Definition: true, Together: true, Most: MaxFields, Travels: "created_at",
		},
		Spec:  store.Spec{Name: "contact_fields", Access: []store.Access{{Sort: []string{"key"}}}},
		Check: func(c *record.Checking, def *FieldDef) { Kinds{Contacts: contacts}.ValidateField(def, c.Errs) },
		Defines: func(def *FieldDef) (string, schema.Fields, bool) {
			return "", schema.Fields{def.Key: def.field()}, true
		},
	})
	return Kinds{contacts, fields}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Contacts, k.Fields} }
