// Package form makes the form of an operation from its row, New, and reads what was typed into the operation's body and
// query, Body and Query. What is wrong with a value is said by the operation; only what cannot be sent as JSON is
// refused here.
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
	Action   string
	Hidden   []layout.Hidden
	Once     string
	Controls []input.Control
	More     []input.Control // that are seldom needed
	Open     bool            // they are shown
	Error    string
	Problems []site.Link // what is wrong with which control, each leading there
	Submit   string
	Danger   bool
	Warn     string // what is to be known before it is sent
	Cancel   string
	Upload   string // what files it takes; empty: none
	Preview  string // where what is typed goes to be tried; empty: nowhere
	Try      string // the name of the button that tries it, where it goes to where it is stored, too
	Builds   bool   // it has buttons that add lines
	Asks     bool   // what is typed becomes part of the address
}

// New makes the form of an operation. current is the record, null for a new one; sent what was typed before.
func New(v *visit.Visit, row *operation.Row, path map[string]string, current strictjson.Value, sent url.Values, faults []fault.Fault) View {
	f := View{Action: "/do/" + row.Name, Once: ask.NewIdempotencyKey(), Submit: site.Verb(row), Danger: row.Method == http.MethodDelete}
	if preview := previews(v, row); preview != nil {
		f.Preview = "/do/" + preview.Name
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_for", Value: row.Name})
	}
	f.Upload = strings.Join(input.Extensions(row), ",")
	if sent != nil && sent.Get("_once") != "" {
		f.Once = sent.Get("_once")
	}
	for _, p := range row.Params {
		if value, ok := path[p.Name]; ok && p.In == operation.InPath {
			f.Hidden = append(f.Hidden, layout.Hidden{Name: "path." + p.Name, Value: value})
		}
	}
	asked := row.Param("purge").Name != "" && sent.Get(Purge) != ""
	if asked || row.Action == operation.PurgeAction {
		f.Submit, f.Warn = ForGood, "Nobody can bring it back."
	}
	if asked { // also where it was refused, and is tried again
		f.Hidden = append(f.Hidden, layout.Hidden{Name: Purge, Value: "true"})
	}
	for _, q := range input.Questions(row) {
		for i := range faults { // a call says force=true, a page has a box
			faults[i].Message = strings.ReplaceAll(faults[i].Message, q.Name+"=true", `"`+site.Title(q.Ask, q.Name)+`"`)
		}
		c := input.Question(q, sent)
		if q.Ask.Kind == declare.Rows {
			c.Kind, c.Options = "choice", show.Importable(v)
		}
		c.Name, c.ID = "query."+q.Name, input.ID(row.Name, "query", q.Name)
		for _, wrong := range faults {
			if input.Concerns(wrong.Field, q.Name) {
				c.Error = input.FaultText(wrong, q.Name, c.Label)
			}
		}
		if sent != nil {
			c.Choose(strings.Join(sent[c.Name], "\n"))
		}
		if len(row.Body) > 0 { // how it is done comes after what
			f.More = append(f.More, c)
		} else {
			f.Controls = append(f.Controls, c)
		}
	}
	described := show.SettingsSchema(v, row)
	for i := range row.Body {
		field := &row.Body[i]
		now := current.Get(field.Name)
		there := slices.ContainsFunc(current.Members, func(m strictjson.Member) bool { return m.Name == field.Name })
		if own := current.Get("own_" + field.Name); own.Is != strictjson.Null { // what comes from elsewhere, too, is not what is set here
			now, there = own, true
		} else if isPermissions(field) && now.Is == strictjson.Object {
			continue
		}
		if row.Method == http.MethodPut && !there && !field.Secret && field.Name != row.Defined.Values {
			continue // what is not shown would be lost
		}
		if field.Name == "teams" && !v.Tenant.Org.Feature(tenants.FeatureTeams) {
			continue
		}
		c := control(v, row, field, path, now, sent, faults)
		if c.Kind == "parts" && len(c.Parts) == 0 {
			continue
		}
		if d := described.Get(field.Name); d.Get("label").Text != "" {
			c.Label, c.Hint = d.Get("label").Text, d.Get("description").Text
		}
		f.Controls = append(f.Controls, c)
	}
	f.Controls, f.More = builder.Complete(v, f.Controls, f.More, current, sent)
	if row.Resource == "campaign" && slices.ContainsFunc(f.Controls, func(c input.Control) bool { return c.Name == "filter" }) {
		f.Preview, f.Try = f.Action, "_try"
	}
	f.Builds = slices.ContainsFunc(slices.Concat(f.Controls, f.More), func(c input.Control) bool { return c.Kind == "schema" || c.Kind == "pick" || c.Grids != nil })
	f.Open = len(faults) > 0 // what helps may be there
	for i := range faults {
		if !slices.ContainsFunc(slices.Concat(f.Controls, f.More), func(c input.Control) bool {
			return input.Concerns(faults[i].Field, strings.TrimPrefix(c.Name, "query."))
		}) {
			f.Error = strings.TrimSpace(f.Error + " " + input.FaultSentence(faults[i]))
		}
	}
	for _, c := range f.Controls { // which nobody sees
		if c.Kind == "hidden" {
			f.Error = strings.TrimSpace(f.Error + " " + c.Error)
		}
	}
	f.Problems = input.Problems(f.Controls, f.More)
	return f
}

// previews returns the operation that tries what another would store, and stores nothing; nil: there is none.
func previews(v *visit.Visit, row *operation.Row) *operation.Row {
	if row.Resource == "" || row.Body == nil || row.Reads {
		return nil
	}
	for _, other := range v.Site.Rows {
		if other.Reads && !other.Once && other.Method == http.MethodPost && other.Resource == row.Resource && v.May(other) {
			return other
		}
	}
	return nil
}

func isPermissions(f *operation.Field) bool {
	return f.Shape == operation.List && reflect.TypeOf(f.Type) == reflect.TypeFor[[]tenants.Permission]()
}

const (
	ForGood = "Delete for good"
	Purge   = "query.purge" // of a form
)
