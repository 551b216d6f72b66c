package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/record/schema"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// control makes the control of a field.
func (v *visit) control(row *operation.Row, f *operation.Field, path map[string]string, now strictjson.Value, sent url.Values, faults []fault.Fault) (c control) {
	c = control{Name: f.Name, ID: idOf(row.Name, f.Name), Label: called(f.Ask, f.Name), Hint: f.Ask.Hint, Required: f.Required, MaxLength: f.Bounds.MaxLength}
	defer func() { c.blame(faults) }()
	if f.Shape == operation.List {
		now = unnamed(now)
	}
	if now.Is == strictjson.Null && f.Default != nil && sent == nil {
		now = parse(f.Default)
	}
	c.Value = now.Text
	switch f.Shape {
	case operation.Boolean:
		c.Kind, c.Value = "yes", map[bool]string{true: "true"}[now.Is == strictjson.True]
		if now.Is == strictjson.Null { // nothing is said where nothing is chosen
			c.Kind, c.Options = "choice", yesOrNo(c.Value)
		}
	case operation.Integer:
		if f.Ask.Kind == declare.Span {
			spanControl(&c, f, sent)
			return c
		}
		c.Kind = "number"
		if f.Bounds.Least != 0 || f.Bounds.Most != 0 {
			c.Min, c.Max = strconv.FormatInt(f.Bounds.Least, 10), strconv.FormatInt(f.Bounds.Most, 10)
		}
	case operation.List:
		v.listControl(&c, f, now)
	case operation.Object, operation.Tree:
		v.objectControl(&c, row, f, path, now, sent)
	default:
		v.textControl(&c, f, sent)
		if f.Ref != "" && f.Ref == row.Resource { // nothing lies within itself
			c.Options = slices.DeleteFunc(c.Options, func(o choiceView) bool { return slices.Contains(slices.Collect(maps.Values(path)), o.Value) })
		}
		if f.Name == row.Defined.Encrypted {
			c.Kind = "choice"
			for _, d := range v.defined(row, path) {
				if d.kind == schema.Encrypted {
					c.Options = append(c.Options, choiceView{Value: d.key, Title: d.title})
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
	c.fit(sent)
	return c
}

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
func units() []choiceView {
	return []choiceView{{Value: "60", Title: "minutes"}, {Value: "3600", Title: "hours"}, {Value: "86400", Title: "days"}}
}

// pick makes a choice among so many records that they are searched for. Not ok where they cannot be.
func (v *visit) pick(c *control, f *operation.Field, sent url.Values) bool {
	list := v.site.listOf(f.Ref)
	if list == nil || list.each == nil || !list.has("q") || strings.Contains(list.path, "{") {
		return false
	}
	if sent != nil {
		c.Value, c.Q = sent.Get(f.Name), strings.TrimSpace(sent.Get("_find."+f.Name))
	}
	data, ok := v.named(list.shows.Name, url.Values{"q": {c.Q}, "per_page": {strconv.Itoa(found)}}.Encode())
	if !ok {
		return false
	}
	records := data.Get("results").Items
	if c.Q != "" && len(records) == 1 && sent.Get("_more") == f.Name {
		c.Value = keyOf(list.each, records[0])
	}
	name := v.namesOf(list.shows, nil)
	title := func(record strictjson.Value) string {
		called, mail := clip(name(record, keyOf(list.each, record))), record.Get("email").Text
		if mail != "" && mail != called {
			called += " (" + mail + ")"
		}
		return called
	}
	for _, record := range records {
		key := keyOf(list.each, record)
		c.Options = append(c.Options, choiceView{Value: key, Title: title(record), Chosen: key == c.Value})
	}
	if c.Value != "" && !slices.ContainsFunc(c.Options, func(o choiceView) bool { return o.Chosen }) {
		one := choiceView{Value: c.Value, Title: c.Value, Chosen: true}
		if a, err := v.read(list.each.shows, map[string]string{list.each.key(): c.Value}, ""); v.may(list.each.shows) && err == nil && a.ok() {
			one.Title = title(a.data)
		}
		c.Options = append([]choiceView{one}, c.Options...)
	}
	c.Kind, c.Hint = "pick", v.whole(count(data, "count"))+" to choose from, of which a search finds others."
	switch {
	case c.Q != "" && len(records) == 0:
		c.Hint = "Nothing has these words."
	case c.Q != "":
		c.Hint = v.whole(count(data, "count")) + " have these words."
	}
	return true
}

// found is how many records of a search are offered.
const found = 50

func (v *visit) textControl(c *control, f *operation.Field, sent url.Values) {
	switch {
	case f.Secret:
		c.Kind = "secret"
	case taken(f) != nil:
		c.Kind, c.Options = "choice", worded(taken(f), c.Value)
	case f.Ref != "":
		c.Kind = "text"
		if options, all := v.options(f.Ref); all {
			c.Kind, c.Options = "choice", chosen(options, c.Value)
		} else {
			v.pick(c, f, sent)
		}
	case f.Ask.Kind == declare.Kind:
		c.Kind, c.Options = "choice", asOptions(schema.KnownTypes(), c.Value)
	case f.Bounds.MaxLength > 1000 && !strings.HasPrefix(f.Name, "url"):
		c.Kind = "textarea"
	case f.Name == "email":
		c.Kind = "email"
	default:
		c.Kind = "text"
	}
}

func (v *visit) listControl(c *control, f *operation.Field, now strictjson.Value) {
	if elem := reflect.TypeOf(f.Type); elem != nil && elem.Kind() == reflect.Slice && elem.Elem().Kind() != reflect.String {
		c.Kind = "json"
		c.Value = pretty(now)
		return
	}
	var values []string
	for _, item := range now.Items {
		values = append(values, item.Text)
	}
	if c.Kind, c.Value = "lines", strings.Join(values, "\n"); !plainLines(now) {
		c.Kind, c.Value = "json", pretty(now)
		return
	}
	var options []choiceView
	all := false
	switch {
	case isPermissions(f):
		for _, p := range tenants.AllPermissions() {
			options = append(options, choiceView{Value: string(p), Title: label(string(p))})
		}
		all = true
	case len(f.Enum) > 0:
		options, all = worded(f.Enum, ""), true
	case f.Ref != "":
		options, all = v.options(f.Ref)
	case f.Name == "teams":
		options, all = v.options("team")
	}
	if !all {
		return
	}
	c.Kind, c.Options = "checks", chosen(options, values...)
}

// options returns the records that a field can refer to, and whether these are all.
func (v *visit) options(resource string) (options []choiceView, all bool) {
	list := v.site.listOf(resource)
	if list == nil || list.each == nil || strings.Contains(list.path, "{") {
		return nil, false
	}
	data, ok := v.named(list.shows.Name, "per_page="+strconv.Itoa(mostOptions))
	if !ok {
		return nil, false
	}
	for _, record := range data.Get("results").Items {
		options = append(options, choiceView{Value: keyOf(list.each, record), Title: clip(nameOf(record, ""))})
	}
	count, err := strconv.Atoi(data.Get("count").Text)
	return options, err == nil && count <= mostOptions
}

func (v *visit) objectControl(c *control, row *operation.Row, f *operation.Field, path map[string]string, now strictjson.Value, sent url.Values) {
	kind := reflect.TypeOf(f.Type)
	switch {
	case f.Name == row.Defined.Values && row.Defined.By != "":
		c.Kind = "parts"
		for _, d := range v.defined(row, path) {
			c.Parts = append(c.Parts, definedControl(row, f.Name, d, now.Get(d.key), sent))
		}
	case f.Ask.Kind == declare.Locked:
		c.Kind = "parts"
		for _, in := range v.inputs(path, reports.Locked) {
			c.Parts = append(c.Parts, in.control(f.Name+"."+in.name, idOf(row.Name, f.Name, in.name), sent.Get(f.Name+"."+in.name), sent != nil))
		}
	case f.Name == "filter":
		v.filterControl(c, now, sent)
	case isQuery(f):
		if c.Kind, c.Value = "json", pretty(now); sent == nil || sent.Get("_has."+f.Name) == "query" {
			c.Kind = "query" // see build
		}
	case isInputs(f):
		if c.Kind, c.Value = "json", pretty(now); sent == nil || sent.Get("_has."+f.Name) == "inputs" {
			inputsControl(c, now, sent)
		}
	case f.Name == "schema":
		c.Kind, c.Types = "schema", schema.KnownTypes()
		c.Rows = schemaRows(now, sent)
	case kind != nil && kind.Kind() == reflect.Map && (kind.Elem().Kind() == reflect.Bool || kind.Elem().Kind() == reflect.Int64 || kind.Elem().Kind() == reflect.Int):
		c.Kind = "parts"
		for _, m := range now.Members {
			part := control{Name: f.Name + "." + m.Name, ID: idOf(row.Name, f.Name, m.Name), Label: label(m.Name), Kind: "number", Value: m.Value.Text}
			if m.Value.Is == strictjson.True || m.Value.Is == strictjson.False {
				part.Kind, part.Value = "yes", map[bool]string{true: "true"}[m.Value.Is == strictjson.True]
			}
			if sent != nil {
				part.Value = sent.Get(part.Name)
			}
			c.Parts = append(c.Parts, part)
		}
	default:
		c.Kind, c.Value = "json", pretty(now)
	}
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
		c.Options = yesOrNo(c.Value)
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

// wallClock is how browsers write a moment, and add seconds where there are any.
const wallClock = "2006-01-02T15:04"

// onClock returns a moment as such a control takes it, in UTC; another text as it is.
func onClock(text string) string {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return strings.TrimSuffix(t.UTC().Format(wallClock+":05.999"), ":00")
	}
	return text
}

// clocked reports whether such a control shows the text: a moment on the clock, or none.
func clocked(text string) bool { return text == "" || inUTC(text) != text }

// inUTC returns what such a control says, whose time is in UTC, as calls take it; another text as it is.
func inUTC(text string) string {
	for _, layout := range []string{wallClock, wallClock + ":05"} { // which takes parts of seconds, too
		if t, err := time.Parse(layout, text); err == nil {
			return t.Format(time.RFC3339Nano)
		}
	}
	return text
}

func yesOrNo(value string) []choiceView {
	return []choiceView{{Value: "true", Title: "Yes", Chosen: value == "true"}, {Value: "false", Title: "No", Chosen: value == "false"}}
}

func pretty(v strictjson.Value) string {
	if v.Is == strictjson.Null {
		return ""
	}
	out, err := json.MarshalIndent(v.Any(), "", "  ")
	if err != nil {
		return ""
	}
	return string(out)
}

// parse reads what the program declares as JSON.
func parse(declared any) strictjson.Value {
	raw, err := json.Marshal(declared)
	if err != nil {
		return strictjson.Value{}
	}
	var p strictjson.Parser
	v, _ := p.Parse(string(raw)) // the program wrote it
	return v
}
