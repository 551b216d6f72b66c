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
	EmailAlerts       Alerts        `json:"email_alerts,omitempty" doc:"enabled (boolean), recipients (at most 1000 e-mail addresses), subject (one line, at most 200 characters), reply_to_field (the field with the address for answers) and fields (the fields whose values are told); other members are kept." ask:"E-mail alerts|Mails about each submission, to these addresses." example:"{\"enabled\":true}"`
	PID               string        `json:"pid,omitempty" rule:"max=64 format=line unique" doc:"Public identifier, 16 to 64 of letters, digits, _ and -; generated when the form is first made public, if not given." ask:"End of its public address|Generated if you leave it empty."`
	Public            bool          `json:"public,omitempty" doc:"Whether everybody may fill in the form at its public address." ask:"Open to everybody|Whoever has its public address can fill it in, without signing in."`
	Origins           []string      `json:"origins,omitempty" rule:"max=50 each=300" doc:"Origins, such as https://www.example.com, whose pages may read the public form and send submissions." ask:"Web sites that may send it|Sites with a form of their own, such as https://www.example.com. The public page needs none." example:"[]"`
	FrameOrigins      []string      `json:"frame_origins,omitempty" rule:"max=50 each=300" doc:"Origins, such as https://www.example.com, whose pages may show the public form in a frame." ask:"Web sites that may show it|Sites that show the public page in a frame, such as https://www.example.com." example:"[]"`
	Thanks            string        `json:"thanks,omitempty" rule:"max=2000" doc:"What visitors read once they have sent the public form, at most 2000 characters." ask:"Thank-you text|What visitors read once they have sent it." example:"We will answer within two days."`
	ThanksURL         string        `json:"thanks_url,omitempty" rule:"max=1000 format=line" doc:"Address with https to which visitors are sent instead." ask:"Thank-you page|Visitors are sent to this address instead, such as https://www.example.com/thanks."`
	ProofOfWork       int64         `json:"proof_of_work,omitempty" rule:"max=24" doc:"Bits of work that a visitor's browser does for a submission of the public form; 0: none." ask:"Proof of work|Bits of work that a browser does before it sends the form: 16 take about a second, and each further bit doubles that." example:"0"`
	FieldOrder        []string      `json:"field_order,omitempty" rule:"max=500 each=64 format=line" doc:"Identifiers of fields in the order in which the public form has them. Others follow: required ones first, then by identifier." ask:"Order of its fields|The short names of fields, such as email. Others follow." example:"[\"motivation\"]"`
	Standalone        bool          `json:"standalone,omitempty" use:"computed"`
	ExternalID        string        `json:"external_id,omitempty" rule:"max=200 format=line unique" use:"identity" doc:"Identifier in another system." ask:"External ID|Identifier of the form in another system." example:"F-1"`
	ExternalCreatedAt string        `json:"external_created_at,omitempty" rule:"max=200 format=line" doc:"Creation time in that system." ask:"Created there|When the other system created it." example:"2024-05-17"`
	ExternalUpdatedAt string        `json:"external_updated_at,omitempty" rule:"max=200 format=line" doc:"Time of the last update in that system." ask:"Changed there|When the other system last changed it." example:"2024-05-17"`
	Deleted           bool          `json:"deleted,omitempty" use:"scope"`
	// AlertsBlind: who changed the alerts last may not view submissions, so the alerts tell nothing of them.
	AlertsBlind bool `json:"alerts_blind,omitempty" use:"computed hidden local"`
}

// Submission is one completed form.
type Submission struct {
	store.Meta
	Form    string            `json:"form" rule:"required format=id ref=form_collection" use:"filter" doc:"Identifier of the form."`
	Values  map[string]any    `json:"values,omitempty" store:"custom" doc:"Values by field of the form." example:"{\"form_name\":\"Application\"}"`
	Secrets map[string]string `json:"secrets,omitempty" use:"secret"` // sealed values by field
	// Once identifies the request that sent the submission of a visitor, so that a repeated one stores no second.
	Once    string `json:"once,omitempty" use:"local computed hidden"`
	Deleted bool   `json:"deleted,omitempty" use:"scope"`
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
		Check: func(c *record.Checking, f *Form) { // fields of every form are not stored
			maps.DeleteFunc(f.Schema, func(name string, _ schema.Field) bool { _, common := Common()[name]; return common })
			f.checkPublic(c.Errs)
		},
		Fill:    (*Form).fillPublic,
		Defines: func(f *Form) (string, schema.Fields, bool) { return f.ID, f.Fields(), f.Schema != nil },
	})
	submissions := record.Must(record.Options[Submission]{
		Traits: record.Traits{Name: "submission", DefinedBy: "form_collection"},
		Spec: store.Spec{
			Name: "form_submissions", Fields: []string{"once"},
			Indexes: []store.Index{
				{Fields: []string{"form"}, Rides: []string{"deleted"}},
				{Fields: []string{"form", "created_at"}, Rides: []string{"deleted"}},
				{Fields: []string{"once"}, Unique: true},
			},
			Access: []store.Access{
				{Where: []string{"form"}}, {Where: []string{"form", "created_at"}}, {Where: []string{"once"}},
			},
		},
	})
	return Kinds{forms, submissions}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Forms, k.Submissions} }
