// Package input has the controls of forms: what they hold, how what was typed is read back, and which faults stand
// beside them. Lines of cells (Grid) and rows of a schema grow by a button that sends the form, so that forms work
// without scripts.
//
// A control holds its value as it is: where its kind would lose a part of it, another kind is taken, JSON in the end.
package input

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// Number is a number where the text is one; else the operation says that it is none.
func Number(text string) any {
	text = strings.TrimSpace(text)
	if strictjson.Check([]byte(text)) == nil && strings.Trim(text, "0123456789.eE+-") == "" {
		return json.Number(text)
	}
	return text
}

// SplitLines returns the values of a list, of which each stands in a line or a control of its own.
func SplitLines(values []string) []string {
	all := []string{}
	for _, value := range values {
		for line := range strings.SplitSeq(value, "\n") {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, line)
			}
		}
	}
	return all
}

// Fit makes a control one that holds its value: browsers take line breaks out of others, and what is no date out of one
// of dates. JSON that was sent stays JSON, and a secret is asked for again.
func (c *Control) Fit(sent url.Values) {
	switch {
	case c.Kind == "secret":
		if c.Value = ""; sent.Get(c.Name) != "" {
			c.Error = strings.TrimSpace(c.Error + " Type it once more: what is kept secret is not repeated here.")
		}
	case sent.Get("_has."+c.Name) == "json":
		c.Kind = "json"
	case c.Kind == "date" && strings.HasPrefix(sent.Get("_has."+c.Name), "text"):
		c.Kind = "textarea"
	case (c.Kind == "text" || c.Kind == "email") && strings.ContainsAny(c.Value, "\r\n"):
		c.Kind = "textarea"
	}
}

// Type is that of the input: text where a browser would show nothing of the value in one of its own kind.
func (c Control) Type() string {
	kind, shows := c.Kind, true
	switch c.Kind {
	case "number", "span", "query":
		_, shows = Number(c.Value).(json.Number)
		kind = "number"
	case "date":
		_, err := time.Parse(time.DateOnly, c.Value)
		shows = err == nil
	case "datetime":
		kind, shows = "datetime-local", Clocked(c.Value)
	}
	if c.Value != "" && !shows {
		return "text"
	}
	return kind
}

// Control is one field of a form.
type Control struct {
	Name, ID, Label, Hint, Error string
	Kind                         string // text, textarea, number, date, datetime, email, secret, span, yes, choice, pick, checks, lines, json, schema, conditions, query, inputs, hidden or parts
	Value, Q                     string // Q: the words that were searched for
	Required                     bool
	Min, Max                     string
	MaxLength                    int
	Options                      []layout.Option
	Rows                         []SchemaRow
	Parts                        []Control
	Types                        []string
	Grids                        []Grid
	Again                        bool // other parts of the form depend on it
	Focus                        bool // it is the first that is wrong
	Bare                         bool // what is not typed is not told from what is not there
}

// Problems returns what is wrong with the controls in their order, each leading there, and gives the first the focus.
func Problems(parts ...[]Control) (links []site.Link) {
	point := func(id, title, text string, focus *bool) {
		if text == "" {
			return
		}
		if *focus = len(links) == 0; !strings.HasPrefix(text, title) {
			text = title + ": " + text
		}
		links = append(links, site.Link{Title: text, Address: "#" + id})
	}
	for _, part := range parts {
		for i := range part {
			c := &part[i]
			if c.Kind == "hidden" {
				continue
			}
			point(c.Target(), c.Label, c.Error, &c.Focus)
			for j := range c.Rows {
				r := &c.Rows[j]
				point(r.ID(), cmp.Or(r.Title, r.Key), r.Error, &r.Focus)
			}
			within := Problems(c.Parts)
			for j := range c.Parts {
				c.Parts[j].Focus = c.Parts[j].Focus && len(links) == 0
			}
			links = append(links, within...)
		}
	}
	return links
}

// Target is the id of what gets the focus for the control.
func (c Control) Target() string {
	if c.Framed() {
		return c.ID + "-all"
	}
	return c.ID
}

// Framed reports whether the control is made of several.
func (c Control) Framed() bool {
	return c.Grids != nil || c.Kind == "parts" || c.Kind == "checks" || c.Kind == "schema"
}

// ID makes the id of a control, which is there once although a page may have several forms.
func ID(parts ...string) string { return strings.ReplaceAll(strings.Join(parts, "-"), ".", "-") }

// ShowFaults says what is wrong beside the control that it is about: a part, a line, or the whole.
func (c *Control) ShowFaults(faults []fault.Fault) {
	text := ""
	for i, f := range faults {
		if !Concerns(f.Field, c.Name) {
			continue
		}
		part := slices.IndexFunc(c.Parts, func(p Control) bool { return Concerns(f.Field, p.Name) })
		row := slices.IndexFunc(c.Rows, func(r SchemaRow) bool { return !r.Locked && Concerns(f.Field, c.Name+"."+r.key()) })
		switch {
		case part >= 0:
			c.Parts[part].ShowFaults(faults[i : i+1])
		case row >= 0:
			r := &c.Rows[row]
			r.Error = strings.TrimSpace(r.Error + " " + FaultText(f, c.Name+"."+r.key(), cmp.Or(r.Title, r.Key)))
		default:
			text += " " + FaultText(f, c.Name, c.Label)
		}
	}
	if text != "" && c.Required && c.Value == "" && (c.Kind == "choice" || c.Kind == "pick") { // how another value looks helps nobody who chooses
		text = site.Sentence(c.Label + " must be chosen")
	}
	c.Error = strings.TrimSpace(text + " " + c.Error)
}

// Choose sets the value of a control, also one that its options lack.
func (c *Control) Choose(value string) {
	if c.Value = value; c.Kind == "choice" {
		c.Options = layout.Choose(c.Options, value)
	}
}

// Questions returns the parameters of a query that the form of an operation asks for.
func Questions(row *operation.Row) (asked []operation.Param) {
	for _, q := range row.Params {
		if q.In == operation.InQuery && q.Name != "teams[]" && q.Name != "purge" && !show.Paging(q.Name) && q.Shape != operation.Tree {
			asked = append(asked, q)
		}
	}
	return asked
}

// Question makes the control of a parameter of a query.
func Question(q operation.Param, asked url.Values) Control {
	c := Control{Name: q.Name, ID: "q-" + q.Name, Label: site.Title(q.Ask, q.Name), Hint: q.Ask.Hint, Kind: "text", Required: q.Required, Value: asked.Get(q.Name), MaxLength: q.Bounds.MaxLength}
	switch {
	case q.Shape == operation.Tree:
		return Control{}
	case q.Shape == operation.List:
		c.Kind, c.Value = "lines", strings.Join(asked[q.Name], "\n")
	case len(q.Enum) > 0:
		c.Kind, c.Options = "choice", show.ValueOptions(q.Enum, c.Value)
	case q.Shape == operation.Boolean:
		c.Kind = "yes"
	case q.Shape == operation.Integer:
		c.Kind = "number"
	}
	return c
}
