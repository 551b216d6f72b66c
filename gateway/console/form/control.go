package form

import (
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
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
	"tenantry/reports"
	"tenantry/tenants"
)

// control makes the control of a field. now is the stored value, of the record current; sent has the values that were typed, or is nil.
func control(
	v *visit.Visit, row *operation.Row, f *operation.Field, path map[string]string,
	now, current strictjson.Value, sent url.Values, faults []fault.Fault,
) (c input.Control) {
	c = input.Control{
		Name: f.Name, ID: input.ID(row.Name, f.Name), Label: site.Title(f.Ask, f.Name), Hint: f.Ask.Hint,
		Required: f.Required, MaxLength: f.Bounds.MaxLength,
	}
	defer func() { c.ShowFaults(faults) }()
	if f.Shape == operation.List {
		now = show.Unnamed(now)
	}
	if now.Is == strictjson.Null && f.Default != nil && sent == nil {
		now = show.Parse(f.Default)
	}
	c.Value = now.Text
	switch f.Shape {
	case operation.Boolean:
		c.Kind, c.Value = "yes", map[bool]string{true: "true"}[now.Is == strictjson.True]
		if now.Is == strictjson.Null { // a choice can be left empty, a box cannot
			c.Kind, c.Options = "choice", layout.YesOrNo(c.Value)
		}
	case operation.Integer:
		if f.Ask.Kind == declare.Span {
			input.SpanControl(&c, f, sent)
			return c
		}
		c.Kind = "number"
		if f.Bounds.Least != 0 || f.Bounds.Most != 0 {
			c.Min, c.Max = strconv.FormatInt(f.Bounds.Least, 10), strconv.FormatInt(f.Bounds.Most, 10)
		}
	case operation.List:
		listControl(v, &c, f, now)
	case operation.Object, operation.Tree:
		objectControl(v, &c, row, f, path, now, current, sent)
	default:
		textControl(v, &c, f, sent)
		if f.Ref != "" && f.Ref == row.Resource { // a record cannot be its own parent
			c.Options = slices.DeleteFunc(c.Options, func(o layout.Option) bool {
				return slices.Contains(slices.Collect(maps.Values(path)), o.Value)
			})
		}
		if f.Name == row.Defined.Encrypted {
			c.Kind = "choice"
			for _, d := range show.Defined(v, row, path) {
				if d.Type == schema.Encrypted {
					c.Options = append(c.Options, layout.Option{Value: d.Key, Title: d.Title})
				}
			}
		}
	}
	if sent != nil && c.Kind != "parts" && c.Kind != "schema" && c.Grids == nil && c.Kind != "query" && c.Kind != "pick" {
		c.Value = sent.Get(f.Name)
		for i := range c.Options {
			c.Options[i].Chosen = slices.Contains(sent[f.Name], c.Options[i].Value)
		}
	}
	c.Fit(sent)
	return c
}

// searchControl makes a choice among the records of a resource that a search finds, because there are too many to list.
// It returns false if the records cannot be searched.
func searchControl(v *visit.Visit, c *input.Control, f *operation.Field, sent url.Values) bool {
	list := v.Site.ListOf(f.Ref)
	if list == nil || list.Record == nil || !list.Has("q") || strings.Contains(list.Path, "{") {
		return false
	}
	if sent != nil {
		c.Value, c.Q = sent.Get(f.Name), strings.TrimSpace(sent.Get("_find."+f.Name))
	}
	data, ok := v.ReadNamed(list.Shows.Name, url.Values{"q": {c.Q}, "per_page": {strconv.Itoa(maxFound)}}.Encode())
	if !ok {
		return false
	}
	records := data.Get("results").Items
	if c.Q != "" && len(records) == 1 && sent.Get("_more") == f.Name {
		c.Value = show.Key(list.Record, records[0])
	}
	name := show.NamesOf(v, list.Shows, nil)
	title := func(record strictjson.Value) string {
		title, mail := show.Clip(name(record, show.Key(list.Record, record))), record.Get("email").Text
		if mail != "" && mail != title {
			title += " (" + mail + ")"
		}
		return title
	}
	for _, record := range records {
		key := show.Key(list.Record, record)
		c.Options = append(c.Options, layout.Option{Value: key, Title: title(record), Chosen: key == c.Value})
	}
	if c.Value != "" && !slices.ContainsFunc(c.Options, func(o layout.Option) bool { return o.Chosen }) {
		chosen := layout.Option{Value: c.Value, Title: c.Value, Chosen: true}
		a, err := v.Read(list.Record.Shows, map[string]string{list.Record.Key(): c.Value}, "")
		if v.May(list.Record.Shows) && err == nil && a.OK() {
			chosen.Title = title(a.Data)
		}
		c.Options = append([]layout.Option{chosen}, c.Options...)
	}
	c.Kind, c.Hint = "pick", v.FormatInt(show.Count(data, "count"))+" to choose from. Search to find others."
	switch {
	case c.Q != "" && len(records) == 0:
		c.Hint = "Nothing has these words."
	case c.Q != "":
		c.Hint = v.FormatInt(show.Count(data, "count")) + " have these words."
	}
	return true
}

// maxFound bounds the records of a search that are offered.
const maxFound = 50

// textControl completes the control of a text.
func textControl(v *visit.Visit, c *input.Control, f *operation.Field, sent url.Values) {
	switch {
	case f.Secret:
		c.Kind = "secret"
	case show.AllowedValues(f) != nil:
		c.Kind, c.Options = "choice", show.ValueOptions(show.AllowedValues(f), c.Value)
	case f.Ref != "":
		c.Kind = "text"
		if options, all := show.RecordOptions(v, f.Ref); all {
			c.Kind, c.Options = "choice", layout.Choose(options, c.Value)
		} else {
			searchControl(v, c, f, sent)
		}
	case f.Ask.Kind == declare.Kind:
		c.Kind, c.Options = "choice", layout.Options(schema.KnownTypes(), c.Value)
	case f.Bounds.MaxLength > 1000 && !strings.HasPrefix(f.Name, "url"):
		c.Kind = "textarea"
	case f.Name == "email":
		c.Kind = "email"
	default:
		c.Kind = "text"
	}
}

// listControl completes the control of a list.
func listControl(v *visit.Visit, c *input.Control, f *operation.Field, now strictjson.Value) {
	list := reflect.TypeOf(f.Type)
	if list != nil && list.Kind() == reflect.Slice && list.Elem().Kind() != reflect.String {
		c.Kind = "json"
		c.Value = show.Pretty(now)
		return
	}
	var values []string
	for _, item := range now.Items {
		values = append(values, item.Text)
	}
	if c.Kind, c.Value = "lines", strings.Join(values, "\n"); !input.PlainLines(now) {
		c.Kind, c.Value = "json", show.Pretty(now)
		return
	}
	var options []layout.Option
	all := false
	switch {
	case isPermissions(f):
		for _, p := range tenants.AllPermissions() {
			options = append(options, layout.Option{Value: string(p), Title: site.Label(string(p))})
		}
		all = true
	case len(f.Enum) > 0:
		options, all = show.ValueOptions(f.Enum, ""), true
	case f.Ref != "":
		options, all = show.RecordOptions(v, f.Ref)
	case f.Name == "teams":
		options, all = show.RecordOptions(v, "team")
	}
	if !all {
		return
	}
	c.Kind, c.Options = "checks", layout.Choose(options, values...)
}

// objectControl completes the control of an object.
func objectControl(
	v *visit.Visit, c *input.Control, row *operation.Row, f *operation.Field, path map[string]string,
	now, current strictjson.Value, sent url.Values,
) {
	switch {
	case f.Name == row.Defined.Values && row.Defined.By != "":
		c.Kind = "parts"
		for _, d := range show.Defined(v, row, path) {
			c.Parts = append(c.Parts, input.DefinedControl(row, f.Name, d, now.Get(d.Key), sent))
		}
	case f.Ask.Kind == declare.Locked:
		c.Kind = "parts"
		for _, in := range builder.ReportInputs(v, path, reports.Locked) {
			name := f.Name + "." + in.Name
			c.Parts = append(c.Parts, in.Control(name, input.ID(row.Name, f.Name, in.Name), sent.Get(name), sent != nil))
		}
	case f.Name == "filter":
		filterControl(v, c, now, sent)
	case builder.IsQuery(f):
		if c.Kind, c.Value = "json", show.Pretty(now); sent == nil || sent.Get("_has."+f.Name) == "query" {
			c.Kind = "query" // see builder.Complete
		}
	case builder.IsInputs(f):
		if c.Kind, c.Value = "json", show.Pretty(now); sent == nil || sent.Get("_has."+f.Name) == "inputs" {
			builder.InputsControl(c, now, sent)
		}
	case f.Name == "schema":
		c.Kind, c.Types = "schema", schema.KnownTypes()
		c.Rows = input.SchemaRows(now, sent)
	case f.Members != nil:
		c.Kind = "parts"
		if c.Parts = memberControls(row, f, now, current, sent); c.Parts == nil {
			c.Kind, c.Value = "json", show.Pretty(now)
		}
	case isScalarMap(reflect.TypeOf(f.Type)):
		c.Kind = "parts"
		for _, m := range now.Members {
			part := input.Control{
				Name: f.Name + "." + m.Name, ID: input.ID(row.Name, f.Name, m.Name), Label: site.Label(m.Name),
				Kind: "number", Value: m.Value.Text,
			}
			if m.Value.Is == strictjson.True || m.Value.Is == strictjson.False {
				part.Kind, part.Value = "yes", map[bool]string{true: "true"}[m.Value.Is == strictjson.True]
			}
			if sent != nil {
				part.Value = sent.Get(part.Name)
			}
			c.Parts = append(c.Parts, part)
		}
	default:
		c.Kind, c.Value = "json", show.Pretty(now)
	}
}

// isScalarMap reports whether t is a map of booleans or whole numbers.
func isScalarMap(t reflect.Type) bool {
	if t == nil || t.Kind() != reflect.Map {
		return false
	}
	elem := t.Elem().Kind()
	return elem == reflect.Bool || elem == reflect.Int64 || elem == reflect.Int
}
