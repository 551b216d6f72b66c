package forms

import "tenantry/backends/record/schema"

// FormName is the field that every form has.
const FormName = "form_name"

// Common returns the fields that every form has. They cannot be changed or removed.
func Common() schema.Fields {
	return schema.Fields{FormName: {Title: "Form Name", Type: schema.Text, Required: true, Locked: true}}
}

// Fields returns all fields of the form: its own and those that every form has.
func (f *Form) Fields() schema.Fields { return f.Schema.With(Common()) }

// Answer is a form as the contract has it, without the settings of its public form.
type Answer struct {
	ID                string        `json:"id" doc:"Identifier of the form."`
	OrgID             int64         `json:"org_id" doc:"Organization that owns the form."`
	UserID            int64         `json:"user_id" doc:"User who created the form."`
	Name              string        `json:"name" doc:"Singular identifier."`
	Label             string        `json:"label" doc:"Singular label."`
	LabelPlural       string        `json:"label_plural" doc:"Plural label."`
	Schema            schema.Fields `json:"schema" doc:"Fields by identifier; form_name is always among them."`
	EmailAlerts       Alerts        `json:"email_alerts" doc:"Alerts about submissions. Empty for callers who may not manage forms."`
	ExternalID        string        `json:"external_id" doc:"Identifier in another system; empty if there is none."`
	ExternalCreatedAt string        `json:"external_created_at" doc:"Creation time in that system; empty if there is none."`
	ExternalUpdatedAt string        `json:"external_updated_at" doc:"Time of the last update in that system; empty if there is none."`
	CreatedAt         string        `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	UpdatedAt         string        `json:"updated_at" doc:"RFC 3339, UTC, milliseconds."`
}

// FullAnswer is a form with the settings of its public form.
type FullAnswer struct {
	Answer

	PID          string   `json:"pid" doc:"Public identifier; empty if the form was never public."`
	Public       bool     `json:"public" doc:"Whether everybody may fill in the form at its public address."`
	PublicURL    string   `json:"public_url" doc:"Its public address; empty if it is not public."`
	Origins      []string `json:"origins" doc:"Origins whose pages may read the public form and send submissions."`
	FrameOrigins []string `json:"frame_origins" doc:"Origins whose pages may show the public form in a frame."`
	Thanks       string   `json:"thanks" doc:"What visitors read once they have sent the public form."`
	ThanksURL    string   `json:"thanks_url" doc:"Address to which visitors are sent instead; empty if there is none."`
	ProofOfWork  int64    `json:"proof_of_work" doc:"Bits of work for a submission of the public form; 0: none."`
	FieldOrder   []string `json:"field_order" doc:"Identifiers of fields in the order in which the public form has them; others follow."`
}

// Schema holds field definitions.
type Schema struct {
	Schema schema.Fields `json:"schema" doc:"Fields by identifier."`
}

// Refused says why an update was refused.
type Refused struct {
	Detail string `json:"detail"`
}

// Complete adds the fields that every form has.
func (a *Answer) Complete(rec any) { a.Schema = rec.(*Form).Fields() }
