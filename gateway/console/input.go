package console

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"time"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// number is a number where the text is one; else the operation says that it is none.
func number(text string) any {
	text = strings.TrimSpace(text)
	if strictjson.Check([]byte(text)) == nil && strings.Trim(text, "0123456789.eE+-") == "" {
		return json.Number(text)
	}
	return text
}

// lines returns the values of a list, of which each stands in a line or a control of its own.
func lines(values []string) []string {
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

// fit makes a control one that holds its value: browsers take line breaks out of others, and what is no date out of one of dates. JSON
// that was sent stays JSON, and a secret is asked for again.
func (c *control) fit(sent url.Values) {
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
func (c control) Type() string {
	kind, shows := c.Kind, true
	switch c.Kind {
	case "number", "span", "query":
		_, shows = number(c.Value).(json.Number)
		kind = "number"
	case "date":
		_, err := time.Parse(time.DateOnly, c.Value)
		shows = err == nil
	case "datetime":
		kind, shows = "datetime-local", clocked(c.Value)
	}
	if c.Value != "" && !shows {
		return "text"
	}
	return kind
}

// control is one field of a form.
type control struct {
	Name, ID, Label, Hint, Error string
	Kind                         string // text, textarea, number, date, datetime, email, secret, span, yes, choice, pick, checks, lines, json, schema, conditions, query, inputs, hidden or parts
	Value, Q                     string // Q: the words that were searched for
	Required                     bool
	Min, Max                     string
	MaxLength                    int
	Options                      []layout.Option
	Rows                         []schemaRow
	Parts                        []control
	Types                        []string
	Grids                        []grid
	Again                        bool // other parts of the form depend on it
	Focus                        bool // it is the first that is wrong
	Bare                         bool // what is not typed is not told from what is not there
}

// faulty returns what is wrong with the controls in their order, each leading there, and gives the first the focus.
func faulty(parts ...[]control) (links []site.Link) {
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
			within := faulty(c.Parts)
			for j := range c.Parts {
				c.Parts[j].Focus = c.Parts[j].Focus && len(links) == 0
			}
			links = append(links, within...)
		}
	}
	return links
}

// Target is the id of what gets the focus for the control.
func (c control) Target() string {
	if c.Framed() {
		return c.ID + "-all"
	}
	return c.ID
}

// Framed reports whether the control is made of several.
func (c control) Framed() bool {
	return c.Grids != nil || c.Kind == "parts" || c.Kind == "checks" || c.Kind == "schema"
}

// idOf makes the id of a control, which is there once although a page may have several forms.
func idOf(parts ...string) string { return strings.ReplaceAll(strings.Join(parts, "-"), ".", "-") }

// blame says what is wrong beside the control that it is about: a part, a line, or the whole.
func (c *control) blame(faults []fault.Fault) {
	text := ""
	for i, f := range faults {
		if !belongs(f.Field, c.Name) {
			continue
		}
		part := slices.IndexFunc(c.Parts, func(p control) bool { return belongs(f.Field, p.Name) })
		row := slices.IndexFunc(c.Rows, func(r schemaRow) bool { return !r.Locked && belongs(f.Field, c.Name+"."+r.key()) })
		switch {
		case part >= 0:
			c.Parts[part].blame(faults[i : i+1])
		case row >= 0:
			r := &c.Rows[row]
			r.Error = strings.TrimSpace(r.Error + " " + told(f, c.Name+"."+r.key(), cmp.Or(r.Title, r.Key)))
		default:
			text += " " + told(f, c.Name, c.Label)
		}
	}
	if text != "" && c.Required && c.Value == "" && (c.Kind == "choice" || c.Kind == "pick") { // how another value looks helps nobody who chooses
		text = site.Sentence(c.Label + " must be chosen")
	}
	c.Error = strings.TrimSpace(text + " " + c.Error)
}

// choose sets the value of a control, also one that its options lack.
func (c *control) choose(value string) {
	if c.Value = value; c.Kind == "choice" {
		c.Options = layout.Choose(c.Options, value)
	}
}

// questions returns the parameters of a query that the form of an operation asks for.
func questions(row *operation.Row) (asked []operation.Param) {
	for _, q := range row.Params {
		if q.In == operation.InQuery && q.Name != "teams[]" && q.Name != "purge" && !paging(q.Name) && q.Shape != operation.Tree {
			asked = append(asked, q)
		}
	}
	return asked
}

// question makes the control of a parameter of a query.
func question(q operation.Param, asked url.Values) control {
	c := control{Name: q.Name, ID: "q-" + q.Name, Label: site.Title(q.Ask, q.Name), Hint: q.Ask.Hint, Kind: "text", Required: q.Required, Value: asked.Get(q.Name), MaxLength: q.Bounds.MaxLength}
	switch {
	case q.Shape == operation.Tree:
		return control{}
	case q.Shape == operation.List:
		c.Kind, c.Value = "lines", strings.Join(asked[q.Name], "\n")
	case len(q.Enum) > 0:
		c.Kind, c.Options = "choice", worded(q.Enum, c.Value)
	case q.Shape == operation.Boolean:
		c.Kind = "yes"
	case q.Shape == operation.Integer:
		c.Kind = "number"
	}
	return c
}
