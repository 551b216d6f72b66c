package console

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// spanControl makes one of seconds, which people say in larger units.
func spanControl(c *control, f *operation.Field, sent url.Values) {
	seconds, _ := strconv.ParseInt(c.Value, 10, 64)
	unit := "86400"
	for _, u := range units() {
		n, _ := strconv.ParseInt(u.Value, 10, 64)
		if seconds > 0 && seconds%n == 0 {
			unit, c.Value = u.Value, strconv.FormatInt(seconds/n, 10)
		}
	}
	if c.Kind = "span"; f.Default == nil {
		c.Hint = "It does not end where nothing is given."
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

// units are those of a span, by their seconds.
func units() []layout.Option {
	return []layout.Option{{Value: "60", Title: "minutes"}, {Value: "3600", Title: "hours"}, {Value: "86400", Title: "days"}}
}

// definedControl makes the control of a field that the organization defined.
func definedControl(row *operation.Row, within string, d definedField, now strictjson.Value, sent url.Values) control {
	c := control{Name: within + "." + d.key, ID: idOf(row.Name, within, d.key), Label: d.title, Kind: "text", Value: now.Text}
	switch d.kind {
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
		c.Kind, c.Value = "datetime", onClock(c.Value)
	case "Email":
		c.Kind = "email"
	case "Encrypted":
		c.Kind, c.Hint = "secret", "Kept encrypted and never shown here. Leave it empty to keep what is stored."
	case "MultiSelect":
		c.Kind = "lines"
		var values []string
		for _, item := range now.Items {
			values = append(values, item.Text)
		}
		c.Value = strings.Join(values, "\n")
	}
	if now.Is == strictjson.Object || now.Is == strictjson.Array && !plainLines(now) || now.Is != strictjson.Null && now.Is != strictjson.Text && !slices.Contains(schema.KnownTypes(), d.kind) {
		c.Kind, c.Value = "json", pretty(now) // which no other control holds
	} else if misfits(d, now) {
		c.Hint = "What is stored is not of the type " + d.kind + ", which the field has now."
		if c.Kind = "text"; now.Is != strictjson.Text || slices.Contains([]string{schema.Number, schema.Boolean, schema.MultiSelect}, d.kind) {
			c.Kind, c.Value, c.Hint = "json", pretty(now), c.Hint+" It is written as JSON."
		}
	}
	if sent != nil && c.Kind != "secret" {
		c.Value = sent.Get(c.Name)
	}
	c.Required = d.required && row.Method == http.MethodPost // earlier records may lack it
	c.fit(sent)
	for i := range c.Options {
		c.Options[i].Chosen = c.Options[i].Value == c.Value
	}
	return c
}

// misfits reports whether a stored value is none of its field's type, which was another when it was stored. The control of the type
// would show nothing, and send that instead of the value.
func misfits(d definedField, now strictjson.Value) bool {
	if now.Is == strictjson.Null || d.kind == schema.Encrypted {
		return false
	}
	var faults fault.List
	schema.CheckValue(&faults, d.key, d.kind, now.Any())
	return len(faults) > 0
}

// plainLines reports whether a list is the same when it was written in lines and read again.
func plainLines(list strictjson.Value) bool {
	return !slices.ContainsFunc(list.Items, func(item strictjson.Value) bool {
		return item.Is != strictjson.Text || item.Text == "" || strings.TrimSpace(item.Text) != item.Text || strings.ContainsAny(item.Text, "\r\n")
	})
}

// definedField is a field that the organization defined.
type definedField struct {
	key, title, kind string
	required         bool
}

// titleOf returns what people call a field by which a list is filtered.
func titleOf(p *site.Page, name string, defined []definedField) string {
	for _, f := range defined {
		if f.key == name {
			return f.title
		}
	}
	return p.FieldTitle(name)
}

// maxDefined bounds the fields that a page shows.
const maxDefined = 200

// defined returns the fields that the organization defined of the records.
func (v *visit) defined(row *operation.Row, path map[string]string) (fields []definedField) {
	by := v.site.ListOf(row.Defined.By)
	if by == nil {
		return nil
	}
	for _, p := range row.Params {
		if p.In != operation.InPath || p.Ref != row.Defined.By || by.Each == nil {
			continue
		}
		a, err := v.read(by.Each.Shows, map[string]string{by.Each.Key(): path[p.Name]}, "")
		if err != nil || !a.Ok() {
			return nil
		}
		for _, m := range a.Data.Get("schema").Members {
			fields = append(fields, definedField{m.Name, m.Value.Get("title").Text, m.Value.Get("type").Text, m.Value.Get("required").Is == strictjson.True})
		}
		return fields
	}
	data, ok := v.named(by.Shows.Name, "per_page="+strconv.Itoa(maxDefined))
	if !ok {
		return nil
	}
	for _, r := range data.Get("results").Items {
		fields = append(fields, definedField{r.Get("key").Text, r.Get("title").Text, r.Get("type").Text, r.Get("required").Is == strictjson.True})
	}
	return fields
}
