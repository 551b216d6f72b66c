package compliance

import (
	"tenantry/backends/resource"
	"tenantry/backends/store"
)

// Settings are an organization's compliance settings. There is at most one record.
type Settings struct {
	store.Meta
	Key               string   `json:"key" rule:"unique" use:"local identity"` // always "settings"
	Enabled           bool     `json:"enabled"`
	LessonTagsAll     []string `json:"lesson_tags_all,omitempty" rule:"each=200"`
	LessonTagsAny     []string `json:"lesson_tags_any,omitempty" rule:"each=200"`
	SubmissionEnabled bool     `json:"submission_enabled"`
}

// Kinds are the records of this module.
type Kinds struct {
	Settings *resource.Of[Settings]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	settings := resource.Must(resource.Options[Settings]{
		Traits: resource.Traits{Name: "compliance_settings", Single: true, Travels: "-"},
		Spec:   store.Spec{Name: "compliance_settings"},
		Preset: func(s *Settings) { s.Key = "settings" },
	})
	return Kinds{settings}
}

// Kept returns all that is kept.
func (k Kinds) Kept() []resource.Kept { return []resource.Kept{k.Settings} }
