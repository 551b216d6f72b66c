package console

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/api"
	"tenantry/backends/schema"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/reports"
	"tenantry/tenants"
)

// formView is the form of an operation.
type formView struct {
	Action   string
	Hidden   []hidden
	Once     string
	Controls []control
	More     []control // that are seldom needed
	Open     bool      // they are shown
	Error    string
	Submit   string
	Danger   bool
	Cancel   string
	Upload   string // what files it takes; empty: none
	Preview  string // where what is typed goes to be tried; empty: nowhere
	Try      string // the name of the button that tries it, where it goes to where it is stored, too
	Builds   bool   // it has buttons that add lines
	Asks     bool   // what is typed becomes part of the address
}

// control is one field of a form.
type control struct {
	Name, ID, Label, Hint, Error string
	Kind                         string // text, textarea, number, date, datetime, email, secret, span, yes, choice, checks, lines, json, schema, conditions, query, inputs, hidden or parts
	Value                        string
	Required                     bool
	Min, Max                     string
	MaxLength                    int
	Options                      []choiceView
	Rows                         []schemaRow
	Parts                        []control
	Types                        []string
	Grids                        []grid
	Again                        bool // other parts of the form depend on it
	Bare                         bool // what is not typed is not told from what is not there
}

// How much a form offers.
const (
	mostOptions = 200
	blankFields = 3
	maxForm     = 1 << 20 // bytes
)

// onceKey returns a key with which a form that is sent twice is carried out once.
func onceKey() string { return rand.Text() }

// form makes the form of an operation. current is the record, null for a new one; sent what was typed before.
func (v *visit) form(row *api.Operation, path map[string]string, current strictjson.Value, sent url.Values, faults []fault.Fault) formView {
	f := formView{Action: "/do/" + row.Name, Once: onceKey(), Submit: verb(row), Danger: row.Method == http.MethodDelete}
	if preview := v.previews(row); preview != nil {
		f.Preview = "/do/" + preview.Name
		f.Hidden = append(f.Hidden, hidden{"_for", row.Name})
	}
	f.Upload = strings.Join(extensions(row), ",")
	if sent != nil && sent.Get("_once") != "" {
		f.Once = sent.Get("_once")
	}
	for _, p := range row.Params {
		if value, ok := path[p.Name]; ok && p.In == api.InPath {
			f.Hidden = append(f.Hidden, hidden{"path." + p.Name, value})
		}
	}
	for _, q := range questions(row) {
		for i := range faults { // a call says force=true, a page has a box
			faults[i].Message = strings.ReplaceAll(faults[i].Message, q.Name+"=true", `"`+label(q.Name)+`"`)
		}
		c := question(q, sent)
		c.Name, c.ID = "query."+q.Name, idOf(row.Name, "query", q.Name)
		for _, wrong := range faults {
			if belongs(wrong.Field, q.Name) {
				c.Error = said(wrong)
			}
		}
		if sent != nil {
			c.Value = sent.Get(c.Name)
		}
		if len(row.Body) > 0 { // how it is done comes after what
			f.More = append(f.More, c)
		} else {
			f.Controls = append(f.Controls, c)
		}
	}
	described := v.described(row)
	for i := range row.Body {
		field := &row.Body[i]
		if isPermissions(field) && current.Is == strictjson.Object && current.Get(field.Name).Is == strictjson.Object {
			continue // what is held by roles too is not the person's own
		}
		there := slices.ContainsFunc(current.Members, func(m strictjson.Member) bool { return m.Name == field.Name })
		if row.Method == http.MethodPut && !there && !field.Secret && field.Name != row.Defined.Values {
			continue // what is not shown would be lost
		}
		if field.Name == "teams" && !v.t.Org.Feature(tenants.FeatureTeams) {
			continue
		}
		c := v.control(row, field, path, current.Get(field.Name), sent, faults)
		if field.Name == row.Defined.Values && c.Kind == "parts" && len(c.Parts) == 0 {
			continue
		}
		if d := described.Get(field.Name); d.Get("label").Text != "" {
			c.Label, c.Hint = d.Get("label").Text, d.Get("description").Text
		}
		f.Controls = append(f.Controls, c)
	}
	v.build(&f, current, sent)
	if row.Resource == "campaign" && slices.ContainsFunc(f.Controls, func(c control) bool { return c.Name == "filter" }) {
		f.Preview, f.Try = f.Action, "_try"
	}
	f.Builds = slices.ContainsFunc(f.Controls, func(c control) bool { return c.Kind == "schema" || c.Grids != nil })
	f.Open = len(faults) > 0 // what helps may be there
	for i := range faults {
		if !slices.ContainsFunc(slices.Concat(f.Controls, f.More), func(c control) bool { return belongs(faults[i].Field, strings.TrimPrefix(c.Name, "query.")) }) {
			f.Error = strings.TrimSpace(f.Error + " " + said(faults[i]))
		}
	}
	return f
}

// described returns what describes settings that are one record: the answer of a schema beside them. Null: nothing does.
func (v *visit) described(row *api.Operation) strictjson.Value {
	for _, p := range v.site.pages {
		if p.shows.Tag == row.Tag && row.Method == http.MethodPut && strings.HasSuffix(p.path, "/schema") && path.Dir(row.Path) == path.Dir(p.shows.Path) && !strings.Contains(row.Path, "{") {
			data, _ := v.named(p.shows.Name, "")
			return data.Get("schema")
		}
	}
	return strictjson.Value{}
}

// idOf makes the id of a control, which is there once although a page may have several forms.
func idOf(parts ...string) string { return strings.ReplaceAll(strings.Join(parts, "-"), ".", "-") }

// previews returns the operation that tries what another would store, and stores nothing; nil: there is none.
func (v *visit) previews(row *api.Operation) *api.Operation {
	if row.Resource == "" || row.Body == nil || row.Reads {
		return nil
	}
	for _, other := range v.site.rows {
		if other.Reads && !other.Once && other.Method == http.MethodPost && other.Resource == row.Resource && may(other, v.who, v.t) {
			return other
		}
	}
	return nil
}

// sentence makes one of the words of a fault.
func sentence(text string) string {
	if text == "" {
		return text
	}
	return strings.TrimSuffix(capital(text), ".") + "."
}

// said is the sentence that a fault is, with its field named as the page names it.
func said(f fault.Fault) string {
	if rest, begins := strings.CutPrefix(f.Message, f.Field+" "); begins && f.Field != "" {
		return sentence(label(f.Field) + " " + rest)
	}
	return sentence(f.Message)
}

// belongs reports whether a fault is about that field, or a part of it.
func belongs(path, field string) bool {
	return path == field || strings.HasPrefix(path, field+".") || strings.HasPrefix(path, field+"[")
}

// hint returns what a description says beyond the name.
func hint(name, description string) string {
	if strings.EqualFold(strings.Trim(strings.ReplaceAll(description, "-", ""), ". "), label(name)) || strings.EqualFold(strings.Trim(description, ". "), label(name)) {
		return ""
	}
	return description
}

func isPermissions(f *api.Field) bool {
	return f.Shape == api.List && reflect.TypeOf(f.Type) == reflect.TypeFor[[]tenants.Permission]()
}

// verb returns what a button says that calls the operation.
func verb(row *api.Operation) string {
	_, action, _ := strings.Cut(row.Name, ".")
	if at := strings.LastIndexByte(row.Name, '.'); at >= 0 {
		action = row.Name[at+1:]
	}
	switch action {
	case "update":
		return "Save"
	case "delete":
		if strings.HasPrefix(row.Summary, "Revoke") {
			return "Revoke"
		}
	case "disclose":
		return "Reveal"
	case "end_others":
		return "Sign out everywhere else"
	}
	return capital(strings.ReplaceAll(action, "_", " "))
}

// control makes the control of a field.
func (v *visit) control(row *api.Operation, f *api.Field, path map[string]string, now strictjson.Value, sent url.Values, faults []fault.Fault) control {
	c := control{Name: f.Name, ID: idOf(row.Name, f.Name), Label: label(f.Name), Hint: hint(f.Name, f.Description), Required: f.Required, MaxLength: f.Bounds.MaxLength}
	for _, wrong := range faults {
		if belongs(wrong.Field, f.Name) {
			c.Error = strings.TrimSpace(c.Error + " " + said(wrong))
		}
	}
	if now.Is == strictjson.Object && f.Shape == api.List {
		now = now.Get("value")
	}
	if now.Is == strictjson.Null && f.Default != nil && sent == nil {
		now = parse(f.Default)
	}
	c.Value = now.Text
	switch f.Shape {
	case api.Boolean:
		c.Kind, c.Value = "yes", map[bool]string{true: "true"}[now.Is == strictjson.True]
		if now.Is == strictjson.Null { // nothing is said where nothing is chosen
			c.Kind, c.Options = "choice", yesOrNo(c.Value)
		}
	case api.Integer:
		if strings.HasSuffix(f.Name, "_in") {
			spanControl(&c, f, sent)
			return c
		}
		c.Kind = "number"
		if f.Bounds.Least != 0 || f.Bounds.Most != 0 {
			c.Min, c.Max = strconv.FormatInt(f.Bounds.Least, 10), strconv.FormatInt(f.Bounds.Most, 10)
		}
	case api.List:
		v.listControl(&c, f, now)
	case api.Object, api.Tree:
		v.objectControl(&c, row, f, path, now, sent)
	default:
		v.textControl(&c, f)
		if f.Name == row.Defined.Encrypted {
			c.Kind = "choice"
			for _, d := range v.defined(row, path) {
				if d.kind == schema.Encrypted {
					c.Options = append(c.Options, choiceView{Value: d.key, Title: d.title})
				}
			}
		}
	}
	if sent != nil && c.Kind != "parts" && c.Kind != "schema" && c.Grids == nil && c.Kind != "query" {
		c.Value = sent.Get(f.Name)
		for i := range c.Options {
			c.Options[i].Chosen = slices.Contains(sent[f.Name], c.Options[i].Value)
		}
	}
	c.fit(sent)
	return c
}

// spanControl makes one of seconds, which people say in larger units.
func spanControl(c *control, f *api.Field, sent url.Values) {
	seconds, _ := strconv.ParseInt(c.Value, 10, 64)
	unit := "86400"
	for _, u := range units() {
		n, _ := strconv.ParseInt(u.Value, 10, 64)
		if seconds > 0 && seconds%n == 0 {
			unit, c.Value = u.Value, strconv.FormatInt(seconds/n, 10)
		}
	}
	if c.Kind, c.Hint = "span", "Never where nothing is said."; f.Default != nil {
		c.Hint = ""
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

func (v *visit) textControl(c *control, f *api.Field) {
	switch {
	case f.Secret:
		c.Kind = "secret"
	case len(f.Enum) > 0:
		c.Kind = "choice"
		for _, value := range f.Enum {
			c.Options = append(c.Options, choiceView{Value: value, Title: capital(strings.ReplaceAll(value, "_", " ")), Chosen: value == c.Value})
		}
	case f.Ref != "":
		c.Kind = "text"
		if options, all := v.options(f.Ref); all {
			c.Kind = "choice"
			if c.Value != "" && !slices.ContainsFunc(options, func(o choiceView) bool { return o.Value == c.Value }) {
				options = append(options, choiceView{Value: c.Value, Title: c.Value})
			}
			for i := range options {
				options[i].Chosen = options[i].Value == c.Value
			}
			c.Options = options
		}
	case f.Name == "visual":
		c.Kind, c.Hint = "choice", ""
		for _, name := range reports.Visuals() {
			c.Options = append(c.Options, choiceView{Value: name, Title: capital(name), Chosen: name == c.Value})
		}
	case f.Name == "type" && f.Shape == api.Text && strings.Contains(f.Description, "StudlyCase"):
		c.Kind = "choice"
		for _, name := range schema.KnownTypes() {
			c.Options = append(c.Options, choiceView{Value: name, Title: name, Chosen: name == c.Value})
		}
	case f.Bounds.MaxLength > 1000 && !strings.HasPrefix(f.Name, "url"):
		c.Kind = "textarea"
	case f.Name == "email":
		c.Kind = "email"
	default:
		c.Kind = "text"
	}
}

func (v *visit) listControl(c *control, f *api.Field, now strictjson.Value) {
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
		for _, value := range f.Enum {
			options = append(options, choiceView{Value: value, Title: label(value)})
		}
		all = true
	case f.Ref != "":
		options, all = v.options(f.Ref)
	case f.Name == "teams":
		options, all = v.options("team")
	case f.Name == "roles":
		options, all = v.options("role")
		options = append(options, choiceView{Value: "admin", Title: "Administrator"})
	}
	if !all {
		return
	}
	c.Kind = "checks"
	for _, value := range values {
		if !slices.ContainsFunc(options, func(o choiceView) bool { return o.Value == value }) {
			options = append(options, choiceView{Value: value, Title: value})
		}
	}
	for i := range options {
		options[i].Chosen = slices.Contains(values, options[i].Value)
	}
	c.Options = options
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

func (v *visit) objectControl(c *control, row *api.Operation, f *api.Field, path map[string]string, now strictjson.Value, sent url.Values) {
	kind := reflect.TypeOf(f.Type)
	switch {
	case f.Name == row.Defined.Values && row.Defined.By != "":
		c.Kind = "parts"
		for _, d := range v.defined(row, path) {
			c.Parts = append(c.Parts, definedControl(row, f.Name, d, now.Get(d.key), sent))
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
func definedControl(row *api.Operation, within string, d definedField, now strictjson.Value, sent url.Values) control {
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
