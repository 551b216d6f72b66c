package forms

import (
	"tenantry/backends/schema"
	"tenantry/backends/store"
)

// Collection is the definition of a form.
type Collection struct {
	store.Meta
	UserID            int64         `json:"user_id"`
	Name              string        `json:"name"`
	Label             string        `json:"label"`
	LabelPlural       string        `json:"label_plural"`
	Schema            schema.Fields `json:"schema,omitempty"` // the form's own fields; the ones every form has are added on reading
	EmailAlerts       Alerts        `json:"email_alerts,omitempty"`
	Standalone        bool          `json:"standalone,omitempty"`
	ExternalID        string        `json:"external_id,omitempty"`
	ExternalCreatedAt string        `json:"external_created_at,omitempty"`
	ExternalUpdatedAt string        `json:"external_updated_at,omitempty"`
}

// Submission is one filled-in form.
type Submission struct {
	store.Meta
	Form    string            `json:"form"` // the collection's id
	Values  map[string]any    `json:"values,omitempty" store:"custom"`
	Secrets map[string]string `json:"secrets,omitempty"` // sealed values by field
}

// Kinds are the records of this module.
type Kinds struct {
	Collections *store.Kind[Collection]
	Submissions *store.Kind[Submission]
}

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	collections, err := store.Define[Collection](store.Spec{
		Name: "form_collections", Fields: []string{"name", "label", "label_plural", "external_id"},
		Indexes: []store.Index{
			{Fields: []string{"name"}, Unique: true},
			{Fields: []string{"label"}, Unique: true},
			{Fields: []string{"label_plural"}, Unique: true},
			{Fields: []string{"external_id"}, Unique: true},
		},
		Access: []store.Access{{Where: []string{"name"}}, {Where: []string{"external_id"}}},
	})
	if err != nil {
		return Kinds{}, err
	}
	submissions, err := store.Define[Submission](store.Spec{
		Name: "form_submissions", Fields: []string{"form"}, Custom: true,
		Indexes: []store.Index{{Fields: []string{"form", "created_at"}}},
		Access:  []store.Access{{Where: []string{"form", "created_at"}}},
	})
	return Kinds{collections, submissions}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec {
	return []*store.Spec{k.Collections.Spec(), k.Submissions.Spec()}
}
