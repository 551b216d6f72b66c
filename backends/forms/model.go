package forms

import (
	"maps"

	"tenantry/backends/resource"
	"tenantry/backends/schema"
	"tenantry/backends/store"
)

// Collection is the definition of a form.
type Collection struct {
	store.Meta
	UserID            int64         `json:"user_id" rule:"ref=user"`
	Name              string        `json:"name" rule:"required max=64 format=name unique" use:"named"`
	Label             string        `json:"label" rule:"required max=200 format=label unique"`
	LabelPlural       string        `json:"label_plural" rule:"required max=200 format=label unique"`
	Schema            schema.Fields `json:"schema,omitempty" use:"always"` // the form's own fields; the ones every form has are added on reading
	EmailAlerts       Alerts        `json:"email_alerts,omitempty"`
	Standalone        bool          `json:"standalone,omitempty"`
	ExternalID        string        `json:"external_id,omitempty" rule:"max=200 unique" use:"identity"`
	ExternalCreatedAt string        `json:"external_created_at,omitempty" rule:"max=200"`
	ExternalUpdatedAt string        `json:"external_updated_at,omitempty" rule:"max=200"`
	Deleted           bool          `json:"deleted,omitempty" use:"scope"`
}

// Submission is one filled-in form.
type Submission struct {
	store.Meta
	Form    string            `json:"form" rule:"required format=id ref=form_collection" use:"filter"` // the collection's id
	Values  map[string]any    `json:"values,omitempty" store:"custom"`
	Secrets map[string]string `json:"secrets,omitempty" use:"secret"` // sealed values by field
	Deleted bool              `json:"deleted,omitempty" use:"scope"`
}

// Kinds are the records of this module.
type Kinds struct {
	Collections *resource.Of[Collection]
	Submissions *resource.Of[Submission]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	collections := resource.Must(resource.Options[Collection]{
		Traits: resource.Traits{Name: "form_collection", Definition: true},
		Spec:   store.Spec{Name: "form_collections"},
		Check: func(_ *resource.Checking, f *Collection) { // every form has these; they are not stored
			maps.DeleteFunc(f.Schema, func(name string, _ schema.Field) bool { _, common := Common()[name]; return common })
		},
		Defines: func(f *Collection) (string, schema.Fields, bool) { return f.ID, f.Fields(), f.Schema != nil },
	})
	submissions := resource.Must(resource.Options[Submission]{
		Traits: resource.Traits{Name: "submission", DefinedBy: "form_collection"},
		Spec: store.Spec{
			Name:    "form_submissions",
			Indexes: []store.Index{{Fields: []string{"form", "created_at"}}},
			Access:  []store.Access{{Where: []string{"form", "created_at"}}},
		},
	})
	return Kinds{collections, submissions}
}

// Kept returns all that is kept.
func (k Kinds) Kept() []resource.Kept { return []resource.Kept{k.Collections, k.Submissions} }
