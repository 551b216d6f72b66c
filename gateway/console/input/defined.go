package input

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// SpanControl makes c the control of a duration in seconds, which people enter in larger units.
func SpanControl(c *Control, f *operation.Field, sent url.Values) {
	seconds, _ := strconv.ParseInt(c.Value, 10, 64)
	unit := "86400"
	for _, u := range units() {
		n, _ := strconv.ParseInt(u.Value, 10, 64)
		if seconds > 0 && seconds%n == 0 {
			unit, c.Value = u.Value, strconv.FormatInt(seconds/n, 10)
		}
	}
	if c.Kind = "span"; f.Default == nil {
		c.Hint = "Leave it empty if it should never end."
	}
	if seconds == 0 {
		c.Value = ""
	}
	if sent != nil {
		c.Value, unit = sent.Get(f.Name), sent.Get("_unit."+f.Name)
	}
	for _, u := range units() {
		u.Chosen = u.Value == unit
		c.Options = append(c.Options, u)
	}
}

// units returns the units of a duration. Their values are seconds.
func units() []layout.Option {
	return []layout.Option{
		{Value: "60", Title: "minutes"},
		{Value: "3600", Title: "hours"},
		{Value: "86400", Title: "days"},
	}
}

// DefinedControl makes the control of a defined field, which is a member of the field within. now is the stored value.
func DefinedControl(
	row *operation.Row, within string, d show.DefinedField, now strictjson.Value, sent url.Values,
) Control {
	c := Control{
		Name: within + "." + d.Key, ID: ID(row.Name, within, d.Key), Label: d.Title, Kind: "text", Value: now.Text,
	}
	switch d.Type {
	case "LongText":
		c.Kind = "textarea"
	case "Number":
		c.Kind = "number"
	case "Boolean":
		c.Kind = "choice"
		if now.Is == strictjson.True || now.Is == strictjson.False {
			c.Value = strconv.FormatBool(now.Is == strictjson.True)
		}
		c.Options = layout.YesOrNo(c.Value)
	case "Date":
		c.Kind = "date"
	case "DateTime":
		c.Kind, c.Value = "datetime", ToDatetimeLocal(c.Value)
	case "Email":
		c.Kind = "email"
	case "Encrypted":
		c.Kind, c.Hint = "secret", "Kept encrypted and never shown here. Leave it empty to keep what is stored."
	case schema.File:
		if c.Hint = "The identifier of a file."; d.Most() > 1 {
			c.Hint = "Identifiers of at most " + strconv.Itoa(d.Most()) + " files, one a line."
			c.Kind, c.Value = "lines", linesOf(now)
		}
	case "MultiSelect":
		c.Kind, c.Value = "lines", linesOf(now)
	}
	if now.Is == strictjson.Object || now.Is == strictjson.Array && !PlainLines(now) ||
		now.Is != strictjson.Null && now.Is != strictjson.Text && !slices.Contains(schema.KnownTypes(), d.Type) {
		c.Kind, c.Value = "json", show.Pretty(now) // no other control can hold the value
	} else if mismatches(d, now) {
		c.Hint = "The stored value is not of the type " + d.Type + ", which the field has now."
		numeric := slices.Contains([]string{schema.Number, schema.Boolean, schema.MultiSelect}, d.Type)
		if c.Kind = "text"; now.Is != strictjson.Text || numeric {
			c.Kind, c.Value, c.Hint = "json", show.Pretty(now), c.Hint+" It is written as JSON."
		}
	}
	if sent != nil && c.Kind != "secret" {
		c.Value = sent.Get(c.Name)
	}
	c.Required = d.Required && row.Method == http.MethodPost // records from before the definition may lack it
	c.Fit(sent)
	for i := range c.Options {
		c.Options[i].Chosen = c.Options[i].Value == c.Value
	}
	return c
}

// linesOf returns the texts of a list, one a line.
func linesOf(list strictjson.Value) string {
	var values []string
	for _, item := range list.Items {
		values = append(values, item.Text)
	}
	return strings.Join(values, "\n")
}

// mismatches reports whether a stored value is not of its field's type, because the type was changed later. The control
// of the type would show nothing and delete the value.
func mismatches(d show.DefinedField, now strictjson.Value) bool {
	if now.Is == strictjson.Null || d.Type == schema.Encrypted {
		return false
	}
	var faults fault.List
	schema.CheckValue(&faults, d.Key, d.Field, now.Any())
	return len(faults) > 0
}

// PlainLines reports whether lines of text can represent a list.
func PlainLines(list strictjson.Value) bool {
	return !slices.ContainsFunc(list.Items, func(item strictjson.Value) bool {
		return item.Is != strictjson.Text || item.Text == "" || strings.TrimSpace(item.Text) != item.Text ||
			strings.ContainsAny(item.Text, "\r\n")
	})
}
