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

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	settings, err := resource.Define(resource.Options[Settings]{
		Traits: resource.Traits{Name: "compliance_settings", Single: true, Travels: "-"},
		Spec:   store.Spec{Name: "compliance_settings"},
		Preset: func(s *Settings) { s.Key = "settings" },
	})
	return Kinds{settings}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Settings.Spec()} }
