package contacts

import "tenantry/backends/store"

// Contact is a person or organization that the organization deals with.
type Contact struct {
	store.Meta
	Email      string         `json:"email,omitempty"`
	FirstName  string         `json:"first_name,omitempty"`
	LastName   string         `json:"last_name,omitempty"`
	Phone      string         `json:"phone,omitempty"`
	Country    string         `json:"country,omitempty"`
	City       string         `json:"city,omitempty"`
	Status     string         `json:"status,omitempty"`
	Tags       []string       `json:"tags,omitempty"`
	Teams      []string       `json:"teams,omitempty"`
	ExternalID string         `json:"external_id,omitempty"`
	Fields     map[string]any `json:"fields,omitempty" store:"custom"`
	// Secrets are the sealed values of encrypted fields. No question can name them.
	Secrets map[string]string `json:"secrets,omitempty"`
}

// FieldDef is a contact field that the organization defined.
type FieldDef struct {
	store.Meta
	Key   string `json:"key"`
	Title string `json:"title"`
	Type  string `json:"type"` // a type of package schema; Encrypted makes the values secret
}

// Kinds are the records of this module.
type Kinds struct {
	Contacts *store.Kind[Contact]
	Fields   *store.Kind[FieldDef]
}

// NewKinds declares the records. An error is a fault of the program.
//
// teams rides along at the end of the indexes, so that a count in a team's scope need
// not leave them.
func NewKinds() (Kinds, error) {
	contacts, err := store.Define[Contact](store.Spec{
		Name: "contacts", Custom: true, Teams: true,
		Fields: []string{"email", "first_name", "last_name", "phone", "country", "city", "status", "tags", "external_id"},
		Indexes: []store.Index{
			{Fields: []string{"external_id"}, Unique: true},
			{Fields: []string{"email", "teams"}},
			{Fields: []string{"first_name", "teams"}},
			{Fields: []string{"last_name", "first_name", "teams"}},
			{Fields: []string{"phone", "teams"}},
			{Fields: []string{"country", "status", "teams"}},
			{Fields: []string{"city", "country", "teams"}},
			{Fields: []string{"status", "created_at", "teams"}},
			{Fields: []string{"created_at", "teams"}},
			{Fields: []string{"tags"}},
		},
		Access: []store.Access{
			{Where: []string{"external_id"}}, {Where: []string{"email"}}, {Where: []string{"first_name"}},
			{Where: []string{"last_name", "first_name"}}, {Where: []string{"phone"}}, {Where: []string{"country", "status"}},
			{Where: []string{"city", "country"}}, {Where: []string{"status", "created_at"}}, {Where: []string{"created_at"}},
			{Where: []string{"tags"}},
		},
	})
	if err != nil {
		return Kinds{}, err
	}
	fields, err := store.Define[FieldDef](store.Spec{
		Name: "contact_fields", Fields: []string{"key"},
		Indexes: []store.Index{{Fields: []string{"key"}, Unique: true}},
		Access:  []store.Access{{Where: []string{"key"}}},
	})
	return Kinds{contacts, fields}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Contacts.Spec(), k.Fields.Spec()} }
