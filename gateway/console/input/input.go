// Package input has the controls of forms: their values, the conversion of what was typed, and the faults beside them.
// A button that sends the form adds lines of cells (Grid) and rows of a schema, so forms work without scripts.
//
// A control preserves its value: if one kind of control would lose a part of it, another kind is used, JSON at last.
package input

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// Number returns the text as a number if it is one, and unchanged otherwise, so that the operation refuses it.
func Number(text string) any {
	text = strings.TrimSpace(text)
	if strictjson.Check([]byte(text)) == nil && strings.Trim(text, "0123456789.eE+-") == "" {
		return json.Number(text)
	}
	return text
}

// SplitLines returns the values of a list. Each is in its own line or its own control.
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

// Fit changes the kind of a control to one that can hold its value, because browsers remove line breaks from inputs of
// one line, and invalid dates from inputs of dates. JSON that was sent stays JSON. A secret must be typed again.
func (c *Control) Fit(sent url.Values) {
	switch {
	case c.Kind == "secret":
		if c.Value = ""; sent.Get(c.Name) != "" {
			c.Error = strings.TrimSpace(c.Error + " Type it again: secret values are not repeated here.")
		}
	case sent.Get("_has."+c.Name) == "json":
		c.Kind = "json"
	case c.Kind == "date" && strings.HasPrefix(sent.Get("_has."+c.Name), "text"):
		c.Kind = "textarea"
	case (c.Kind == "text" || c.Kind == "email") && strings.ContainsAny(c.Value, "\r\n"):
		c.Kind = "textarea"
	}
}

// Type returns the type of the input element. It is text if a browser could not show the value in the type of the
// control.
func (c Control) Type() string {
	kind, valid := c.Kind, true
	switch c.Kind {
	case "number", "span", "query":
		_, valid = Number(c.Value).(json.Number)
		kind = "number"
	case "date":
		_, err := time.Parse(time.DateOnly, c.Value)
		valid = err == nil
	case "datetime":
		kind, valid = "datetime-local", IsDatetimeLocal(c.Value)
	}
	if c.Value != "" && !valid {
		return "text"
	}
	return kind
}

// Control is one field of a form.
type Control struct {
	Name, ID, Label, Hint, Error string
	// Kind is text, textarea, number, date, datetime, email, secret, span, yes, choice, pick, checks, lines, json, schema,
	// conditions, query, inputs, hidden, file or parts.
	Kind      string
	Value, Q  string // Q has the words of the search in a pick
	Required  bool
	Min, Max  string
	MaxLength int
	Options   []layout.Option
	Rows      []SchemaRow
	Parts     []Control
	Types     []string
	Grids     []Grid
	Accept    string // the media types of a file, separated by commas; empty: all
	Several   bool   // several files can be chosen
	Reloads   bool   // a change reloads the form, because other parts depend on the value
	Focus     bool   // it is the first with an error
	Unmarked  bool   // the form does not say that it has the control, so empty means absent
}

// Problems returns links to the controls with errors, in their order, and gives the focus to the first.
func Problems(parts ...[]Control) (links []site.Link) {
	add := func(id, title, text string, focus *bool) {
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
			add(c.Target(), c.Label, c.Error, &c.Focus)
			for j := range c.Rows {
				r := &c.Rows[j]
				add(r.ID(), cmp.Or(r.Title, r.Key), r.Error, &r.Focus)
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

// Target returns the id of the element that gets the focus for the control.
func (c Control) Target() string {
	if c.Framed() {
		return c.ID + "-all"
	}
	return c.ID
}

// Framed reports whether the control consists of several elements in a frame.
func (c Control) Framed() bool {
	return c.Grids != nil || c.Kind == "parts" || c.Kind == "checks" || c.Kind == "schema"
}

// ID makes the id of a control. It includes the operation, because a page may have several forms.
func ID(parts ...string) string { return strings.ReplaceAll(strings.Join(parts, "-"), ".", "-") }

// ShowFaults adds the faults that concern the control to its errors, or to those of its parts and rows.
func (c *Control) ShowFaults(faults []fault.Fault) {
	text := ""
	for i, f := range faults {
		if !Concerns(f.Field, c.Name) {
			continue
		}
		part := slices.IndexFunc(c.Parts, func(p Control) bool { return Concerns(f.Field, p.Name) })
		row := slices.IndexFunc(c.Rows, func(r SchemaRow) bool {
			return !r.Locked && Concerns(f.Field, c.Name+"."+r.key())
		})
		switch {
		case part >= 0:
			c.Parts[part].ShowFaults(faults[i : i+1])
		case row >= 0:
			r := &c.Rows[row]
			r.Error = strings.TrimSpace(r.Error + " " + FaultText(f, c.Name+"."+r.key(), cmp.Or(r.Title, r.Key)))
		default:
			path, title := c.Name, c.Label
			if at, line := c.line(f.Field); line != "" {
				path, title = at, line
			}
			text += " " + FaultText(f, path, title)
		}
	}
	if text != "" && c.Required && c.Value == "" && (c.Kind == "choice" || c.Kind == "pick") {
		// The fault may describe the format of a value, which does not help in a choice.
		text = site.Sentence(c.Label + " must be chosen")
	}
	c.Error = strings.TrimSpace(text + " " + c.Error)
}

// line returns the path of the element that a fault is about, and the line of the control that holds it; empty if the
// fault is about none.
func (c *Control) line(path string) (element, line string) {
	index, within := strings.CutPrefix(path, c.Name+"[")
	index, _, _ = strings.Cut(index, "]")
	at, err := strconv.Atoi(index)
	if lines := SplitLines([]string{c.Value}); within && err == nil && c.Kind == "lines" && at >= 0 && at < len(lines) {
		return c.Name + "[" + index + "]", "“" + show.Clip(lines[at]) + "”"
	}
	return "", ""
}

// Choose sets the value of a control. A value that is not among its options is added to them.
func (c *Control) Choose(value string) {
	if c.Value = value; c.Kind == "choice" {
		c.Options = layout.Choose(c.Options, value)
	}
}

// QueryParams returns the parameters of the query that the form of an operation has controls for.
func QueryParams(row *operation.Row) (params []operation.Param) {
	for _, q := range row.Params {
		if q.In == operation.InQuery && q.Name != "teams[]" && q.Name != "purge" &&
			!show.Paging(q.Name) && q.Shape != operation.Tree {
			params = append(params, q)
		}
	}
	return params
}

// QueryControl makes the control of a parameter of the query; the zero Control for a tree of filters.
func QueryControl(q operation.Param, asked url.Values) Control {
	c := Control{
		Name: q.Name, ID: "q-" + q.Name, Label: site.Title(q.Ask, q.Name), Hint: q.Ask.Hint, Kind: "text",
		Required: q.Required, Value: asked.Get(q.Name), MaxLength: q.Bounds.MaxLength,
	}
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
