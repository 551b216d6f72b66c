package compliance

import (
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Settings are an organization's compliance settings. An organization has at most one record.
type Settings struct {
	store.Meta
	Key               string   `json:"key" rule:"unique" use:"local identity"` // always "settings"
	Enabled           bool     `json:"enabled" doc:"Whether contacts are checked." example:"true"`
	LessonTagsAll     []string `json:"lesson_tags_all,omitempty" rule:"each=200 format=line" doc:"A lesson counts only if it has every one of these tags, at most 100." example:"[\"safety\"]"`
	LessonTagsAny     []string `json:"lesson_tags_any,omitempty" rule:"each=200 format=line" doc:"A lesson counts only if it has at least one of these tags, at most 100." example:"[\"2026\",\"2027\"]"`
	SubmissionEnabled bool     `json:"submission_enabled" doc:"Whether submissions of the form lesson are lessons too." example:"true"`
}

// maxTags bounds the tags of each setting.
const maxTags = 100

// validateTags notes lists with too many tags for the check of contacts.
func (s *Settings) validateTags(errs *fault.List) {
	for name, tags := range map[string][]string{"lesson_tags_all": s.LessonTagsAll, "lesson_tags_any": s.LessonTagsAny} {
		if len(tags) > maxTags {
			errs.Add(name, fault.Length, "%s must have at most %d tags", name, maxTags)
		}
	}
}

// Kinds are the records of this module.
type Kinds struct {
	Settings *record.Of[Settings]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	settings := record.Must(record.Options[Settings]{
		Traits: record.Traits{Name: "compliance_settings", Single: true, Travels: "-"},
		Spec:   store.Spec{Name: "compliance_settings"},
		Preset: func(s *Settings) { s.Key = "settings" },
	})
	return Kinds{settings}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Settings} }
