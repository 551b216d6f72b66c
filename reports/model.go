package reports

import (
	"encoding/json"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// Report is a custom report: the class of records, the query, and how the result is shown.
type Report struct {
	store.Meta
	PID           string         `json:"pid" rule:"max=200 format=line unique" use:"named once hidden" doc:"Public identifier, 16 to 64 of letters, digits, _ and -; generated if not given." ask:"End of its address|Generated if you leave it empty."`
	Title         string         `json:"title" rule:"required max=200 format=label" use:"filter" doc:"Title of the report." example:"Contacts by country"`
	Desc          string         `json:"desc,omitempty" rule:"max=5000" doc:"Description." ask:"Description"`
	Class         string         `json:"class" rule:"required max=64 format=line" use:"filter" doc:"Contacts, Records, Submissions, Files or Campaigns." ask:"About" example:"Contacts"`
	Source        string         `json:"source,omitempty" rule:"max=200 format=line" doc:"The custom object (by name) or form (by id), if the class needs one." ask:"Which one|The custom object or form whose entries it shows."`
	Query         Query          `json:"query" use:"always" doc:"The query of the report." ask:"Contents" example:"{}"`
	Input         Inputs         `json:"input,omitempty" doc:"Inputs by name." ask:"Inputs|What readers can choose, or what a link fixes." example:"{}"`
	Secure        bool           `json:"secure" doc:"Whether the shared report needs a token. Default: true." ask:"Opens with a share link only|Otherwise anyone with the address can read it." example:"true"`
	PortalVisible bool           `json:"portal_visible" doc:"Whether portals list it." ask:"Listed in portals"`
	Shareable     *bool          `json:"shareable,omitempty" doc:"Whether it can be read as shared." ask:"Can be shared"` // nil: yes
	Exportable    bool           `json:"exportable" doc:"Whether its rows can be exported." ask:"Rows can be downloaded"`
	Visual        string         `json:"visual,omitempty" rule:"max=64 format=line" doc:"table, number, bar, line, area, pie or heat." ask:"Picture||visual"`
	VisualProps   map[string]any `json:"visual_props,omitempty" doc:"How it is drawn." ask:"Details of the picture|In JSON."`
	Folder        string         `json:"folder,omitempty" rule:"max=200 format=line" doc:"Folder of the report." ask:"Folder|The folder in which people find the report."`
	Parent        string         `json:"parent,omitempty" rule:"max=200 format=line" doc:"What it belongs to." ask:"Belongs to"`
	RowKey        string         `json:"row_key,omitempty" rule:"max=64 format=line" doc:"Field that identifies a row." ask:"Key of its rows|The field that identifies a row."`
	Actions       map[string]any `json:"actions,omitempty" doc:"What people can do with a row." ask:"Actions on a row|In JSON."`
	ChildReports  []string       `json:"child_reports,omitempty" rule:"max=100 format=id ref=custom_report" doc:"Identifiers of further reports of the bundle." ask:"Tabs|Reports shown at the same address."`
	Teams         []string       `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Deleted       bool           `json:"deleted,omitempty" use:"scope"`
}

// CanShare reports whether the report can be shared.
func (r *Report) CanShare() bool { return r.Shareable == nil || *r.Shareable }

// Input is a parameter of a report. Rule says who sets it: a locked input only has values of share tokens, an editable
// one is set by readers.
type Input struct {
	Rule  string `json:"rule"`
	Value string `json:"value"`
	Label string `json:"label,omitempty"`
	Type  string `json:"type,omitempty"` // a type of columns other than list; empty: text
	// Choices are the allowed values, in addition to none; if empty, any value of the type is allowed.
	Choices []string `json:"choices,omitempty"`
}

// Inputs are the parameters of a report by name.
type Inputs map[string]Input

// ReadValue reads the inputs; Module.Validate checks them.
func (in *Inputs) ReadValue(name string, v strictjson.Value, errs *fault.List) {
	if v.Is != strictjson.Object || json.Unmarshal(v.Raw(), in) != nil {
		errs.Add(name, fault.Type, "%s must be an object of {rule, value, label, type, choices} by name", name)
	}
}

// The rules of an input.
const (
	Locked   = "locked"
	Editable = "editable"
)

// Revocation voids share tokens of one report: one token, or all tokens of earlier generations.
type Revocation struct {
	store.Meta
	PID        string `json:"pid"`
	TokenID    string `json:"token_id,omitempty"`   // empty: every token of a generation below Generation
	Generation int64  `json:"generation,omitempty"` // a counter, because the clocks of replicas differ
	Expires    int64  `json:"expires,omitempty"`    // Unix seconds after which the one token is void by itself
}

// Issued is a record of an issued share token, without the token itself. It is used for lists and revocations only;
// whether a token is valid depends on its signature and the revocations.
type Issued struct {
	store.Meta
	Report     string `json:"report"` // id
	PID        string `json:"pid"`
	TokenID    string `json:"token_id"`
	By         string `json:"by"`         // the subject who issued it
	Key        int64  `json:"key"`        // version of the key that signed it
	Generation int64  `json:"generation"` // see Revocation
	Expires    int64  `json:"expires"`    // Unix seconds

	Params map[string]any `json:"params,omitempty"` // the locked values, which can be personal; nil for tokens of earlier versions
}

// Kinds are the records of this module.
type Kinds struct {
	Reports     *record.Of[Report]
	Revocations *store.Kind[Revocation]
	Issued      *store.Kind[Issued]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	reports := record.Must(record.Options[Report]{
		Traits: record.Traits{Name: "custom_report", Carries: true},
		Spec: store.Spec{
			Name: "custom_reports", Fields: []string{"secure", "shareable"},
			Indexes: []store.Index{
				{Fields: []string{"title"}}, {Fields: []string{"created_at"}},
				{Fields: []string{"secure"}, Rides: []string{"shareable", "deleted"}},
			},
			Access: []store.Access{
				{Where: []string{"title"}}, {Where: []string{"created_at"}}, {Where: []string{"secure"}},
			},
		},
		Preset: func(r *Report) { r.Secure = true },
		Fill: func(r *Report) {
			if r.PID == "" {
				r.PID = record.NewPID()
			}
		},
		Uses: (*Report).uses,
		Refers: func(r *Report, visit record.Visitor) {
			if r.Class == "Submissions" {
				visit("source", "form_collection", &r.Source)
			}
		},
	})
	revocations := store.Must[Revocation](store.Spec{
		Name: "share_revocations", Uncounted: true, Fields: []string{"pid", "token_id"},
		Indexes: []store.Index{{Fields: []string{"pid", "token_id"}}},
		Access:  []store.Access{{Where: []string{"pid"}}, {Where: []string{"pid", "token_id"}}},
	})
	issued := store.Must[Issued](store.Spec{
		Name: "shares", Fields: []string{"report", "pid", "token_id", "key", "generation", "expires"},
		Indexes: []store.Index{{Fields: []string{"report", "created_at"}}, {Fields: []string{"report", "token_id"}}},
		Access: []store.Access{
			{Where: []string{"report"}, Sort: []string{"created_at"}}, {Where: []string{"report", "token_id"}},
		},
	})
	return Kinds{reports, revocations, issued}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Reports, k.Revocations, k.Issued} }
