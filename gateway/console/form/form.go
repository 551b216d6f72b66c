// Package form makes the form of an operation from its row (New), and converts what was typed into the operation's body
// and query (Body, Query). The operation validates the values; this package refuses only what cannot be sent as JSON.
package form

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/builder"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/tenants"
)

// View is the form of an operation.
type View struct {
	Action    string
	Hidden    []layout.Hidden
	Once      string
	Controls  []input.Control
	More      []input.Control // controls that are seldom needed, which are folded away
	Open      bool            // More is unfolded
	Error     string
	Problems  []site.Link // the errors of the controls, with links to them
	Submit    string      // the text of the button
	Danger    bool        // it deletes something
	Warn      string      // a warning before the form is sent
	Cancel    string      // the address of the page to return to
	Upload    string      // the files it takes, as in the attribute accept; empty for none
	Several   bool        // it takes more than one file
	Preview   string      // the address that previews what is typed; empty for none
	Try       string      // the name of the preview's button, if Preview is the same address as Action
	AddsLines bool        // it has buttons that add lines
	Asks      bool        // it is sent by GET, so the values become part of the address
}

// New makes the form of an operation. current is the record, null for a new one. sent has the values that were typed
// before, and faults what is wrong with them; both are nil for a fresh form.
func New(
	v *visit.Visit, row *operation.Row, path map[string]string,
	current strictjson.Value, sent url.Values, faults []fault.Fault,
) View {
	f := View{
		Action: "/do/" + row.Name, Once: ask.NewIdempotencyKey(),
		Submit: site.Verb(row), Danger: row.Method == http.MethodDelete,
	}
	if preview := previewOf(v, row); preview != nil {
		f.Preview = "/do/" + preview.Name
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_for", Value: row.Name})
	}
	f.Upload, f.Several = input.Accepted(row), input.TakesSeveral(row)
	if sent != nil && sent.Get("_once") != "" {
		f.Once = sent.Get("_once")
	}
	for _, p := range row.Params {
		if value, ok := path[p.Name]; ok && p.In == operation.InPath {
			f.Hidden = append(f.Hidden, layout.Hidden{Name: "path." + p.Name, Value: value})
		}
	}
	purges := row.Param("purge").Name != "" && sent.Get(Purge) != ""
	if purges || row.Action == operation.PurgeAction {
		f.Submit, f.Warn = ForGood, "You cannot undo this."
	}
	if purges {
		f.Hidden = append(f.Hidden, layout.Hidden{Name: Purge, Value: "true"})
	}
	for _, q := range input.QueryParams(row) {
		if input.FromFile(row, q.Name) || q.Name == "teams" && !v.Tenant.Org.Feature(tenants.FeatureTeams) {
			continue
		}
		for i := range faults { // messages for API callers say force=true; the page has a box with a title
			title := `"` + site.Title(q.Ask, q.Name) + `"`
			faults[i].Message = strings.ReplaceAll(faults[i].Message, q.Name+"=true", title)
		}
		c := queryControl(v, row, q, path, sent)
		if q.Ask.Kind == declare.Rows {
			c.Kind, c.Options = "choice", show.Importable(v)
		}
		c.Name, c.ID = "query."+q.Name, input.ID(row.Name, "query", q.Name)
		for _, fault := range faults {
			if input.Concerns(fault.Field, q.Name) {
				c.Error = input.FaultText(fault, q.Name, c.Label)
			}
		}
		if sent != nil {
			c.Choose(strings.Join(sent[c.Name], "\n"))
			for i := range c.Options {
				c.Options[i].Chosen = slices.Contains(sent[c.Name], c.Options[i].Value)
			}
		}
		if len(row.Body) > 0 { // options come after the fields of the body
			f.More = append(f.More, c)
		} else {
			f.Controls = append(f.Controls, c)
		}
	}

	settings := show.SettingsSchema(v, row)
	for i := range row.Body {
		field := &row.Body[i]
		now := current.Get(field.Name)
		known := slices.ContainsFunc(current.Members, func(m strictjson.Member) bool { return m.Name == field.Name })
		// A field may include inherited values. The form changes only the record's own, which are in own_<field>.
		if own := current.Get("own_" + field.Name); own.Is != strictjson.Null {
			now, known = own, true
		} else if isPermissions(field) && now.Is == strictjson.Object {
			continue
		}
		if row.Method == http.MethodPut && !known && !field.Secret && field.Name != row.Defined.Values {
			continue // an empty control would delete a value that the answer does not show
		}
		if field.Name == "teams" && !v.Tenant.Org.Feature(tenants.FeatureTeams) {
			continue
		}
		c := control(v, row, field, path, now, current, sent, faults)
		if c.Kind == "parts" && len(c.Parts) == 0 {
			continue
		}
		if d := settings.Get(field.Name); d.Get("label").Text != "" {
			c.Label, c.Hint = d.Get("label").Text, d.Get("description").Text
		}
		f.Controls = append(f.Controls, c)
	}
	f.Controls, f.More = builder.Complete(v, f.Controls, f.More, current, sent)
	hasFilter := slices.ContainsFunc(f.Controls, func(c input.Control) bool { return c.Name == "filter" })
	if row.Resource == "campaign" && hasFilter {
		f.Preview, f.Try = f.Action, "_try"
	}
	f.AddsLines = slices.ContainsFunc(slices.Concat(f.Controls, f.More), func(c input.Control) bool {
		return c.Kind == "schema" || c.Kind == "pick" || c.Grids != nil
	})
	f.Open = len(faults) > 0 // More may have the control that solves the problem
	for i := range faults {
		if !slices.ContainsFunc(slices.Concat(f.Controls, f.More), func(c input.Control) bool {
			return input.Concerns(faults[i].Field, strings.TrimPrefix(c.Name, "query."))
		}) {
			f.Error = strings.TrimSpace(f.Error + " " + input.FaultSentence(faults[i]))
		}
	}
	for _, c := range f.Controls { // hidden controls cannot show their errors
		if c.Kind == "hidden" {
			f.Error = strings.TrimSpace(f.Error + " " + c.Error)
		}
	}
	f.Problems = input.Problems(f.Controls, f.More)
	return f
}

// queryControl makes the control of a parameter of the query. References are chosen among records.
func queryControl(
	v *visit.Visit, row *operation.Row, q operation.Param, path map[string]string, sent url.Values,
) input.Control {
	c := input.QueryControl(q, sent)
	if q.Ref == "" {
		return c
	}
	field := operation.Field{Name: q.Name, Shape: q.Shape, Ref: q.Ref, Ask: q.Ask, Required: q.Required}
	of := control(v, row, &field, path, strictjson.Value{}, strictjson.Value{}, nil, nil)
	if of.Kind == "choice" || of.Kind == "checks" {
		c.Kind, c.Options, c.Hint = of.Kind, of.Options, of.Hint
	}
	return c
}

// previewOf returns the operation that previews what an operation would store, or nil.
func previewOf(v *visit.Visit, row *operation.Row) *operation.Row {
	if row.Resource == "" || row.Body == nil || row.Reads {
		return nil
	}
	for _, other := range v.Site.Rows {
		if other.Reads && !other.Once && other.Method == http.MethodPost &&
			other.Resource == row.Resource && v.May(other) {
			return other
		}
	}
	return nil
}

func isPermissions(f *operation.Field) bool {
	return f.Shape == operation.List && reflect.TypeOf(f.Type) == reflect.TypeFor[[]tenants.Permission]()
}

const (
	// ForGood is the text of the button that purges a record.
	ForGood = "Delete for good"
	// Purge is the value of a form that makes a deletion purge the record.
	Purge = "query.purge"
)
