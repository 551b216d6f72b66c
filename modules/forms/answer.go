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

// Answer is a form as callers see it.
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
