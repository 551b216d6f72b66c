// Package schema is the vocabulary of fields that an organization defines itself: of
// custom objects, forms and contacts.
package schema

// Field is one defined field.
type Field struct {
	Title    string `json:"title"`
	Type     string `json:"type"` // StudlyCase
	Required bool   `json:"required,omitempty"`
	Locked   bool   `json:"locked,omitempty"`
}

// Fields are defined fields by identifier.
type Fields map[string]Field
