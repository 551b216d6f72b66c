package compliance

import "tenantry/backends/store"

// Settings are an organization's compliance settings. There is at most one record.
type Settings struct {
	store.Meta
	Key               string   `json:"key"` // always "settings"
	Enabled           bool     `json:"enabled"`
	LessonTagsAll     []string `json:"lesson_tags_all,omitempty"`
	LessonTagsAny     []string `json:"lesson_tags_any,omitempty"`
	SubmissionEnabled bool     `json:"submission_enabled"`
}

// Kinds are the records of this module.
type Kinds struct {
	Settings *store.Kind[Settings]
}

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	settings, err := store.Define[Settings](store.Spec{
		Name: "compliance_settings", Fields: []string{"key"},
		Indexes: []store.Index{{Fields: []string{"key"}, Unique: true}},
		Access:  []store.Access{{Where: []string{"key"}}},
	})
	return Kinds{settings}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Settings.Spec()} }
