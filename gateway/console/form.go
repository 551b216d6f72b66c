package console

import (
	"cmp"
	"crypto/rand"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"

	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
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
	Problems []linkView // what is wrong with which control, each leading there
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

// control is one field of a form.
type control struct {
	Name, ID, Label, Hint, Error string
	Kind                         string // text, textarea, number, date, datetime, email, secret, span, yes, choice, pick, checks, lines, json, schema, conditions, query, inputs, hidden or parts
	Value, Q                     string // Q: the words that were searched for
	Required                     bool
	Min, Max                     string
	MaxLength                    int
	Options                      []choiceView
	Rows                         []schemaRow
	Parts                        []control
	Types                        []string
	Grids                        []grid
	Again                        bool // other parts of the form depend on it
	Focus                        bool // it is the first that is wrong
	Bare                         bool // what is not typed is not told from what is not there
}

// mostOptions is how many records a choice offers.
const mostOptions = 200

// blankFields is how many rows are free.
const blankFields = 3

// maxForm bounds what a form sends, in bytes.
const maxForm = 1 << 20

// onceKey returns a key with which a form that is sent twice is carried out once.
func onceKey() string { return rand.Text() }

// form makes the form of an operation. current is the record, null for a new one; sent what was typed before.
func (v *visit) form(row *operation.Row, path map[string]string, current strictjson.Value, sent url.Values, faults []fault.Fault) formView {
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
		if value, ok := path[p.Name]; ok && p.In == operation.InPath {
			f.Hidden = append(f.Hidden, hidden{"path." + p.Name, value})
		}
	}
	asked := row.Param("purge").Name != "" && sent.Get(purge) != ""
	if asked || strings.HasSuffix(row.Name, ".purge") {
		f.Submit, f.Warn = forGood, "Nobody can bring it back."
	}
	if asked { // also where it was refused, and is tried again
		f.Hidden = append(f.Hidden, hidden{purge, "true"})
	}
	for _, q := range questions(row) {
		for i := range faults { // a call says force=true, a page has a box
			faults[i].Message = strings.ReplaceAll(faults[i].Message, q.Name+"=true", `"`+called(q.Ask, q.Name)+`"`)
		}
		c := question(q, sent)
		if q.Ask.Kind == declare.Rows {
			c.Kind, c.Options = "choice", v.importable()
		}
		c.Name, c.ID = "query."+q.Name, idOf(row.Name, "query", q.Name)
		for _, wrong := range faults {
			if belongs(wrong.Field, q.Name) {
				c.Error = told(wrong, q.Name, c.Label)
			}
		}
		if sent != nil {
			c.choose(strings.Join(sent[c.Name], "\n"))
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
		if field.Name == "teams" && !v.t.Org.Feature(tenants.FeatureTeams) {
			continue
		}
		c := v.control(row, field, path, now, sent, faults)
		if c.Kind == "parts" && len(c.Parts) == 0 {
			continue
		}
		if d := described.Get(field.Name); d.Get("label").Text != "" {
			c.Label, c.Hint = d.Get("label").Text, d.Get("description").Text
		}
		f.Controls = append(f.Controls, c)
	}
	f.Controls, f.More = v.build(f.Controls, f.More, current, sent)
	if row.Resource == "campaign" && slices.ContainsFunc(f.Controls, func(c control) bool { return c.Name == "filter" }) {
		f.Preview, f.Try = f.Action, "_try"
	}
	f.Builds = slices.ContainsFunc(slices.Concat(f.Controls, f.More), func(c control) bool { return c.Kind == "schema" || c.Kind == "pick" || c.Grids != nil })
	f.Open = len(faults) > 0 // what helps may be there
	for i := range faults {
		if !slices.ContainsFunc(slices.Concat(f.Controls, f.More), func(c control) bool { return belongs(faults[i].Field, strings.TrimPrefix(c.Name, "query.")) }) {
			f.Error = strings.TrimSpace(f.Error + " " + said(faults[i]))
		}
	}
	for _, c := range f.Controls { // which nobody sees
		if c.Kind == "hidden" {
			f.Error = strings.TrimSpace(f.Error + " " + c.Error)
		}
	}
	f.Problems = faulty(f.Controls, f.More)
	return f
}

// faulty returns what is wrong with the controls in their order, each leading there, and gives the first the focus.
func faulty(parts ...[]control) (links []linkView) {
	point := func(id, title, text string, focus *bool) {
		if text == "" {
			return
		}
		if *focus = len(links) == 0; !strings.HasPrefix(text, title) {
			text = title + ": " + text
		}
		links = append(links, linkView{Title: text, Address: "#" + id})
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

// described returns what describes settings that are one record: the answer of a schema beside them. Null: nothing does.
func (v *visit) described(row *operation.Row) strictjson.Value {
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
func (v *visit) previews(row *operation.Row) *operation.Row {
	if row.Resource == "" || row.Body == nil || row.Reads {
		return nil
	}
	for _, other := range v.site.rows {
		if other.Reads && !other.Once && other.Method == http.MethodPost && other.Resource == row.Resource && v.may(other) {
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
func said(f fault.Fault) string { return told(f, f.Field, label(f.Field)) }

// told is that sentence where the field at the path has the title.
func told(f fault.Fault, path, title string) string {
	rest, begins := strings.CutPrefix(f.Message, path)
	if !begins || path == "" || rest == "" || !strings.ContainsRune(" :.[", rune(rest[0])) {
		return sentence(f.Message)
	}
	if within, is := strings.CutPrefix(rest, "."); is {
		rest = ": " + within
	}
	return sentence(title + rest)
}

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
		text = sentence(c.Label + " must be chosen")
	}
	c.Error = strings.TrimSpace(text + " " + c.Error)
}

// belongs reports whether a fault is about that field, or a part of it.
func belongs(path, field string) bool {
	return path == field || strings.HasPrefix(path, field+".") || strings.HasPrefix(path, field+"[")
}

// called returns what a form calls a field or parameter of that name. Descriptions are for those who write calls.
func called(a operation.Ask, name string) string { return cmp.Or(a.Label, label(name)) }

// called returns what the forms of the page call a field.
func (p *page) called(name string) string {
	if f := p.field(name); f != nil {
		return called(f.Ask, name)
	}
	return label(name)
}

// field returns the field of that name as the forms of the page ask for it; nil: none does.
func (p *page) field(name string) *operation.Field {
	rows := append([]*operation.Row{p.update, p.create, p.makes, p.shows}, p.actions...)
	if p.leads != nil {
		rows = append(rows, p.leads.update)
	}
	for _, row := range rows {
		if row == nil {
			continue
		}
		for i := range row.Body {
			if row.Body[i].Name == name {
				return &row.Body[i]
			}
		}
		if q := row.Param(name); q.In == operation.InQuery && row.Upload != nil { // what is said of a file is in the query
			return &operation.Field{Name: q.Name, Shape: q.Shape, Enum: q.Enum, Ref: q.Ref, Ask: q.Ask}
		}
	}
	return nil
}

func isPermissions(f *operation.Field) bool {
	return f.Shape == operation.List && reflect.TypeOf(f.Type) == reflect.TypeFor[[]tenants.Permission]()
}

// verb returns what a button says that calls the operation.
func verb(row *operation.Row) string {
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
