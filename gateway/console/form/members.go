package form

import (
	"cmp"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/internal/declare"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// memberControls makes the controls of an object's declared members, and of its other members as JSON, so that sending
// the form keeps them. now is the stored object, of the record current. It returns nil if the controls could not hold it.
func memberControls(
	row *operation.Row, f *operation.Field, now, current strictjson.Value, sent url.Values,
) (parts []input.Control) {
	declared, err := declare.Of(reflect.TypeOf(f.Members))
	if err != nil || now.Is != strictjson.Object && now.Is != strictjson.Null || sent.Get("_has."+f.Name) == "json" {
		return nil
	}
	fields := ownFields(current, sent)
	names := make([]string, len(declared))
	for i, d := range declared {
		names[i] = d.Name
		parts = append(parts, memberControl(row, f, d, now.Get(d.Name), fields, sent))
	}
	others := show.Without(now, names...).Members
	for name := range sent {
		key, found := strings.CutPrefix(name, "_has."+f.Name+".")
		known := slices.Contains(names, key) || now.Get(key).Is != strictjson.Null
		if found && !known {
			others = append(others, strictjson.Member{Name: key})
		}
	}
	for _, m := range others {
		part := input.Control{
			Name: f.Name + "." + m.Name, ID: input.ID(row.Name, f.Name, m.Name), Label: site.Label(m.Name),
			Kind: "json", Value: show.Pretty(m.Value), Hint: "In JSON.",
		}
		if sent != nil {
			part.Value = sent.Get(part.Name)
		}
		parts = append(parts, part)
	}
	present := input.Control{Name: "_present." + f.Name, Kind: "hidden", Value: sent.Get("_present." + f.Name)}
	for _, m := range now.Members {
		if sent == nil {
			present.Value += m.Name + " "
		}
	}
	return append(parts, present)
}

// keepEmpty gives declared members that are empty the value that they had: the empty one, or none. The form says which
// members the object had.
func keepEmpty(f *operation.Field, values map[string]any, sent url.Values) {
	declared, _ := declare.Of(reflect.TypeOf(f.Members)) // its controls could not have been made with an error
	present := strings.Fields(sent.Get("_present." + f.Name))
	for _, d := range declared {
		value, given := values[d.Name]
		switch had := slices.Contains(present, d.Name); {
		case had && !given && d.Type.Kind() == reflect.Slice:
			values[d.Name] = []string{}
		case had && !given:
			values[d.Name] = reflect.Zero(d.Type).Interface()
		case !had && value == false:
			delete(values, d.Name)
		}
	}
}

// memberControl makes the control of a declared member. fields are those that the record defines.
func memberControl(
	row *operation.Row, f *operation.Field, d declare.Field, now strictjson.Value, fields []show.DefinedField, sent url.Values,
) input.Control {
	c := input.Control{
		Name: f.Name + "." + d.Name, ID: input.ID(row.Name, f.Name, d.Name), Label: site.Title(d.Ask, d.Name), Hint: d.Ask.Hint,
	}
	values, fits := []string{now.Text}, now.Is == strictjson.Text
	switch d.Type.Kind() {
	case reflect.Bool:
		c.Kind, c.Value = "yes", map[bool]string{true: "true"}[now.Is == strictjson.True]
		fits = now.Is == strictjson.True || now.Is == strictjson.False
	case reflect.Slice:
		values = nil
		for _, item := range now.Items {
			values = append(values, item.Text)
		}
		c.Kind, c.Value = "lines", strings.Join(values, "\n")
		fits = now.Is == strictjson.Array && input.PlainLines(now)
	default:
		c.Kind, c.Value, c.MaxLength = "text", now.Text, int(d.Rule.Max)
	}
	if sent != nil {
		values, c.Value = sent[c.Name], sent.Get(c.Name)
	}
	if options := keyOptions(d, fields); options != nil {
		c.Kind = map[bool]string{true: "checks", false: "choice"}[c.Kind == "lines"]
		c.Options = layout.Choose(options, values...)
		order := func(o layout.Option) int { // the chosen ones as they are stored, then the others
			if at := slices.Index(values, o.Value); at >= 0 {
				return at
			}
			return len(values)
		}
		if c.Kind == "checks" {
			slices.SortStableFunc(c.Options, func(a, b layout.Option) int { return cmp.Compare(order(a), order(b)) })
			fits = fits && len(slices.Compact(slices.Sorted(slices.Values(values)))) == len(values)
		}
	}
	if !fits && now.Is != strictjson.Null && sent == nil {
		c.Kind, c.Value = "json", show.Pretty(now)
	}
	c.Fit(sent)
	return c
}

// keyOptions returns the fields that a member can name; nil if it names none, or the record defines none that it can.
func keyOptions(d declare.Field, fields []show.DefinedField) (options []layout.Option) {
	if d.Ask.Kind != declare.Key {
		return nil
	}
	one := []string{schema.Text, schema.Email} // types that can hold what a single field is named for, an address
	for _, of := range fields {
		if of.Type != schema.Encrypted && (d.Type.Kind() == reflect.Slice || slices.Contains(one, of.Type)) {
			options = append(options, layout.Option{Value: of.Key, Title: of.Title})
		}
	}
	return options
}

// ownFields returns the fields that a record defines, as they were typed or else as they are stored.
func ownFields(current strictjson.Value, sent url.Values) (fields []show.DefinedField) {
	typed := sent
	if !sent.Has("schema.0.key") {
		typed = nil
	}
	for _, r := range input.SchemaRows(current.Get("schema"), typed) {
		if key := cmp.Or(r.Key, site.KeyFrom(r.Title)); key != "" {
			of := schema.Field{Title: cmp.Or(r.Title, key), Type: r.Type}
			fields = append(fields, show.DefinedField{Key: key, Field: of})
		}
	}
	return fields
}
