package forms

import (
	"maps"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
)

// Form is the definition of a form.
type Form struct {
	store.Meta
	UserID            int64         `json:"user_id" rule:"ref=user" use:"computed" doc:"User who created the form."`
	Name              string        `json:"name" rule:"required max=64 format=name unique" use:"named" doc:"Singular identifier: 1 to 64 lower-case letters, digits or _, a letter first." ask:"Short name|For addresses and files: lower-case letters, digits and _, such as application." example:"application"`
	Label             string        `json:"label" rule:"required max=200 format=label unique" doc:"Singular label." ask:"Name|Such as Application." example:"Application"`
	LabelPlural       string        `json:"label_plural" rule:"required max=200 format=label unique" doc:"Plural label." ask:"Name of several|Such as Applications." example:"Applications"`
	Schema            schema.Fields `json:"schema,omitempty" use:"always" doc:"Fields by identifier; form_name is always among them." ask:"Fields" example:"{\"motivation\":{\"title\":\"Motivation\",\"type\":\"LongText\"}}"` // the form's own fields; Fields adds those of every form
	EmailAlerts       Alerts        `json:"email_alerts,omitempty" doc:"enabled (boolean), recipients (at most 1000 e-mail addresses), subject (one line, at most 200 characters), reply_to_field (the field with the address for answers) and fields (the fields whose values are told); other members are kept." ask:"E-mail alerts|Recipients of alerts about submissions, in JSON." example:"{\"enabled\":true}"`
	Standalone        bool          `json:"standalone,omitempty" use:"computed"`
	ExternalID        string        `json:"external_id,omitempty" rule:"max=200 format=line unique" use:"identity" doc:"Identifier in another system." ask:"External ID|Identifier of the form in another system." example:"F-1"`
	ExternalCreatedAt string        `json:"external_created_at,omitempty" rule:"max=200 format=line" doc:"Creation time in that system." ask:"Created there|When the other system created it." example:"2024-05-17"`
	ExternalUpdatedAt string        `json:"external_updated_at,omitempty" rule:"max=200 format=line" doc:"Time of the last update in that system." ask:"Changed there|When the other system last changed it." example:"2024-05-17"`
	Deleted           bool          `json:"deleted,omitempty" use:"scope"`
}

// Submission is one completed form.
type Submission struct {
	store.Meta
	Form    string            `json:"form" rule:"required format=id ref=form_collection" use:"filter" doc:"Identifier of the form."`
	Values  map[string]any    `json:"values,omitempty" store:"custom" doc:"Values by field of the form." example:"{\"form_name\":\"Application\"}"`
	Secrets map[string]string `json:"secrets,omitempty" use:"secret"` // sealed values by field
	Deleted bool              `json:"deleted,omitempty" use:"scope"`
}

// Kinds are the records of this module.
type Kinds struct {
	Forms       *record.Of[Form]
	Submissions *record.Of[Submission]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	forms := record.Must(record.Options[Form]{
		Traits: record.Traits{Name: "form_collection", Called: "name", Definition: true},
		Spec: store.Spec{
			Name: "form_collections", Indexes: []store.Index{{Fields: []string{"created_at"}}},
			Access: []store.Access{{Where: []string{"created_at"}}},
		},
		Check: func(_ *record.Checking, f *Form) { // fields of every form are not stored
			maps.DeleteFunc(f.Schema, func(name string, _ schema.Field) bool { _, common := Common()[name]; return common })
		},
		Defines: func(f *Form) (string, schema.Fields, bool) { return f.ID, f.Fields(), f.Schema != nil },
	})
	submissions := record.Must(record.Options[Submission]{
		Traits: record.Traits{Name: "submission", DefinedBy: "form_collection"},
		Spec: store.Spec{
			Name: "form_submissions",
			Indexes: []store.Index{
				{Fields: []string{"form"}, Rides: []string{"deleted"}},
				{Fields: []string{"form", "created_at"}, Rides: []string{"deleted"}},
			},
			Access: []store.Access{{Where: []string{"form"}}, {Where: []string{"form", "created_at"}}},
		},
	})
	return Kinds{forms, submissions}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Forms, k.Submissions} }
