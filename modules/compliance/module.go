// Package compliance keeps the compliance settings of an organization, and checks contacts against them.
package compliance

import (
	"context"
	"net/http"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
)

// Module serves the settings and checks contacts against them. It is immutable and safe for concurrent use.
type Module struct {
	Kinds
	deps Deps
}

// New returns the module.
func New(deps Deps) *Module { return &Module{NewKinds(), deps} }

// Descriptor describes one setting.
type Descriptor struct {
	Type        string `json:"type" doc:"boolean or array."`
	Label       string `json:"label" doc:"Label for people."`
	Description string `json:"description,omitempty" doc:"Help text."`
	Default     *bool  `json:"default,omitempty" doc:"Value if nothing was set; left out if there is none."`
}

// Descriptors describe every setting.
type Descriptors struct {
	Enabled           Descriptor `json:"enabled"`
	LessonTagsAll     Descriptor `json:"lesson_tags_all"`
	LessonTagsAny     Descriptor `json:"lesson_tags_any"`
	SubmissionEnabled Descriptor `json:"submission_enabled"`
}

// Schema holds the descriptions.
type Schema struct {
	Schema Descriptors `json:"schema" doc:"Descriptions by setting."`
}

// permission is the label in refusals of callers who are not administrators.
const permission = "Manage Compliance"

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	return append(append(m.settingsRows(), m.checkRows()...), operation.Typed(operation.Row{
		Name: "compliance.schema", Method: http.MethodGet, Path: "/api/compliance/schema",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys | operation.Browser,
			Rule: operation.AdminOnly(permission),
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
		},
		Response: operation.Response{
			Message: "Compliance configuration schema", Example: describe(),
			Failures: []operation.Failure{{
				Code: http.StatusForbidden, Message: permission, When: "the caller is no administrator, or an API key",
				Data: map[string]string{"permission": permission},
			}},
		},
		Docs: operation.Docs{
			Aside: true, IDs: []string{"getComplianceSchema"}, Tag: "Compliance",
			Summary: "Get the definitions of the compliance settings", Title: "Definitions of the compliance settings",
			Defines: "compliance.update",
			Description: "For building a settings page. Only a signed-in administrator may call it; API keys cannot, because " +
				"service accounts are never administrators.",
		},
	}, func(context.Context, *operation.Call, struct{}) (Schema, error) { return describe(), nil }))
}

// Chosen are the settings as answers show them.
type Chosen struct {
	Enabled           bool     `json:"enabled" doc:"Whether contacts are checked."`
	LessonTagsAll     []string `json:"lesson_tags_all" doc:"A lesson counts only if it has every one of these tags."`
	LessonTagsAny     []string `json:"lesson_tags_any" doc:"A lesson counts only if it has at least one of these tags."`
	SubmissionEnabled bool     `json:"submission_enabled" doc:"Whether submissions of the form lesson are lessons too."`
}

func (m *Module) settingsRows() []operation.Row {
	return crud.Rows(m.Settings.Resource, crud.Options{
		Path: "/api/compliance/settings", Name: "compliance", Things: "Compliance Settings", Thing: "Compliance Settings", Tag: "Compliance",
		Read: operation.AdminOnly(permission), Write: operation.AdminOnly(permission),
		Before: crud.Before(func(_ context.Context, _ *operation.Call, _ *store.Preconditions, rec, _ *Settings) error {
			var errs fault.List
			rec.validateTags(&errs)
			return errs.Err()
		}),
		Example: Chosen{true, []string{"safety"}, []string{"2026", "2027"}, true},
	})
}

func describe() Schema {
	off := false
	return Schema{Descriptors{
		Enabled: Descriptor{Type: "boolean", Label: "Enable compliance", Default: &off},
		LessonTagsAll: Descriptor{
			Type: "array", Label: "Lesson tags (all)", Description: "A lesson counts only if it has every one of these tags.",
		},
		LessonTagsAny: Descriptor{
			Type: "array", Label: "Lesson tags (any)", Description: "A lesson counts only if it has at least one of these tags.",
		},
		SubmissionEnabled: Descriptor{Type: "boolean", Label: "Include form submissions", Default: &off},
	}}
}
