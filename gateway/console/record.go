package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/chart"
	"tenantry/internal/declare"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// recordView is a page about one record, or what else an operation answers.
type recordView struct {
	chrome
	Note    string
	Problem string     // why what the page is about did not succeed
	Ask     []control  // parameters of a question, which the page's form asks
	Wrong   []linkView // with them
	Missing bool       // the question lacks some
	Facts   []pair
	Table   *tableView
	Figures []cellView // in place of the table
	Charts  []*chart.Chart
	Form    *formView
	Tried   *triedView
	Buttons []*button
	Actions []actionView
	Links   []linkView
	Exports []linkView
	Deleted bool
	Share   string // leads to where links to it are made; empty: there are none
	Pages   *pager // which page of the rows this is
}

// triedView is what a form would show or reach, as it was typed.
type triedView struct {
	Note, Problem string
	Facts         []pair
	Table         *tableView
	Figures       []cellView
	Charts        []*chart.Chart
}

// actionView is a form behind its title.
type actionView struct {
	Title string
	Form  formView
	Open  bool // the page is about what it makes
}

// tableView is an answer with columns and rows.
type tableView struct {
	Columns []cellView
	Rows    [][]shown
}

func (v *visit) recordPage(p *page, path map[string]string) {
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		v.problem(http.StatusBadRequest, "The address is not complete", "Choose the page from the navigation.")
		return
	}
	asked, _ := split(query)
	view := recordView{Deleted: asked.Get("deleted") == "true"}
	for _, q := range p.shows.Params {
		if q.In != operation.InQuery || q.Name == "teams[]" || q.Name == "deleted" || paging(q.Name) || p.update != nil || p.remove != nil {
			continue
		}
		if q.Ask.Kind == declare.Inputs {
			for _, in := range v.inputs(path, "") {
				name := q.Name + "[" + in.name + "]"
				view.Ask = append(view.Ask, in.control(name, idOf("q", in.name), asked.Get(name), asked.Has(name)))
			}
		}
		c := question(q, asked)
		if p.shows.Name == explains {
			v.choose(&c)
		}
		if c.Kind != "" {
			view.Ask = append(view.Ask, c)
			view.Missing = view.Missing || q.Required && c.Value == ""
		}
	}
	if p.update != nil && p.has("page") && p.has("per_page") { // what lies in the record comes in pages
		for name, value := range map[string]string{"page": "1", "per_page": strconv.Itoa(perPage)} {
			if !asked.Has(name) {
				asked.Set(name, value)
			}
		}
	}
	if _, drawn := drawnAs(v.recordAbove(p, path).Get("visual").Text); drawn && p.has(whole) {
		asked.Set(whole, "true")
	}
	var data strictjson.Value
	var tag string
	code, lessons := http.StatusOK, false // lessons: there are none to check
	if !view.Missing {
		a, err := v.open(p.shows, path, asked.Encode())
		if len(view.Ask) > 0 && err == nil && (a.code == http.StatusUnprocessableEntity || a.code == http.StatusBadRequest || a.code == http.StatusNotFound) {
			code = a.code
			for i := range view.Ask {
				for _, f := range a.faults() {
					if belongs(f.Field, view.Ask[i].Name) {
						view.Ask[i].Error = said(f)
					}
				}
			}
			if !slices.ContainsFunc(view.Ask, func(c control) bool { return c.Error != "" }) {
				view.Ask[0].Error = sentence(a.message)
			}
		} else if lessons = err == nil && a.code == http.StatusUnprocessableEntity && p.shows.Tag == "Compliance"; !lessons && v.refused(a, err) {
			return
		}
		if code == http.StatusOK && !lessons {
			data, tag = a.data, a.header.Get("ETag")
		}
	}
	title := p.title()
	if p.key() != "" || p.update != nil {
		name := v.nameOf(p.shows, path, data, "")
		if name == data.Get("operation").Text {
			name = v.subject("operation", name)
		}
		if id := data.Get("id").Text; id != "" && name == id { // which says nothing by itself
			name = p.title() + " " + id
		}
		title = clip(cmp.Or(name, title))
	}
	if p.update != nil && p.key() == "" {
		title = p.title()
	}
	if p.key() == "" && len(view.Ask) > 0 {
		title = p.shows.Summary
	}
	if data.Get("state").Text == "running" { // it tells how far it has come
		v.w.Header().Set("Refresh", "2")
	}
	if slices.Contains([]string{"refused", "failed", "interrupted"}, data.Get("state").Text) {
		view.Problem = sentence(data.Get("message").Text)
	}
	above := v.recordAbove(p, path)
	if above.Is == strictjson.Object { // Contacts by country: run
		title = clip(nameOf(above, title)) + ": " + strings.ToLower(label(p.segments[len(p.segments)-1]))
	}
	view.chrome = v.chrome(title)
	view.Wrong = faulty(view.Ask)
	view.Faulty = view.Wrong != nil
	if view.Problem != "" {
		view.Done = ""
	}
	view.Trail = v.trail(p, path)
	if len(view.Ask) > 0 || p.key() == "" && p.update == nil && above.Is != strictjson.Object {
		view.Note = p.shows.Ask
	}
	view.Curl = v.client.curl(v.t.Org.Slug, request{row: p.shows, path: path, query: asked.Encode()})
	all := data
	if asked.Get(whole) == "true" && data.Is == strictjson.Object {
		data = portion(all, asked)
	}
	asked.Del(whole)
	if lessons {
		view.Note = "Contacts comply by their lessons, and your organization keeps none yet: they are the records of a custom object with the short name lesson and the fields contact (Text) and tags (MultiSelect)."
		if define := v.site.rows["objects.create"]; v.may(define) {
			view.Links = []linkView{{Title: define.Summary, Address: "/do/" + define.Name}}
		}
	} else if code == http.StatusOK && !view.Missing {
		v.layOutRecord(&view, p, path, data, tag)
		if view.Table != nil {
			view.Figures, view.Charts = draw(v.locale(), above, all, asked, view.Table)
		}
	}
	if rows := longest(data); rows.Get("pages").Is == strictjson.Number {
		pages := v.paged(rows, func(change func(url.Values)) string {
			q := maps.Clone(asked)
			change(q)
			return p.at(path, q, nil)
		})
		view.Pages = &pages
		if data.Get("truncated").Is == strictjson.True {
			view.Pages.Count += ". There are more: these are " + cutText(v.locale(), count(rows, "count"), count(data, "total"))
		}
	} else if next := data.Get("next").Text; next != "" && p.has("after") {
		view.Pages = &pager{Count: "There is more", Next: p.at(path, url.Values{"after": {next}}, nil)}
	}
	v.show(code, "record", view)
}

// longest returns which rows a page is of: those of the answer, else the part of it that has most pages.
func longest(data strictjson.Value) (rows strictjson.Value) {
	most := -1
	for _, m := range append([]strictjson.Member{{Value: data}}, data.Members...) {
		if pages, err := strconv.Atoi(m.Value.Get("pages").Text); err == nil && pages > most {
			most, rows = pages, m.Value
		}
	}
	return rows
}

func (v *visit) layOutRecord(view *recordView, p *page, path map[string]string, data strictjson.Value, tag string) {
	view.Note = cmp.Or(view.Note, v.site.ownTypes(p, data))
	inForm, builtIn := []string{}, data.Get("built_in").Is == strictjson.True // which nobody changes
	if v.may(p.update) && !view.Deleted && !builtIn {
		data = v.completed(p, path, data)
		f := v.form(p.update, path, data, nil, nil)
		f.Hidden = append(f.Hidden, hidden{"_match", tag})
		view.Form = &f
		for _, c := range slices.Concat(f.Controls, f.More) {
			if own := "own_" + c.Name; data.Get(own).Is != strictjson.Null {
				c.Name = own
			}
			inForm = append(inForm, c.Name)
		}
	}
	view.Facts, view.Table = v.facts(p, path, without(data, inForm...))
	if count := v.site.rows["campaigns.count"]; p.update != nil && p.update.Resource == "campaign" && v.may(count) {
		if a, err := v.read(count, path, ""); err == nil && a.ok() {
			view.Facts = append([]pair{{"Contacts who match", present(a.data.Get("count"), 0)}}, view.Facts...)
		}
	}
	for _, row := range p.actions {
		ends := strings.HasSuffix(row.Name, ".purge")
		if !v.may(row) || (ends || strings.HasSuffix(row.Name, ".restore")) != view.Deleted {
			continue
		}
		if ends {
			view.Actions = append(view.Actions, v.purging(row, path))
			continue
		}
		if active := data.Get("active").Is; active == strictjson.True && strings.HasSuffix(row.Name, ".reactivate") || active == strictjson.False && strings.HasSuffix(row.Name, ".deactivate") {
			continue // it is so already
		}
		if name := lacking(row, path); name != "" {
			v.offer(view.Table, row, path, name, data)
			continue
		}
		if len(row.Body) == 0 && len(questions(row)) == 0 {
			b := v.button(row, path, verb(row))
			b.Danger = row.Method == http.MethodDelete
			view.Buttons = append(view.Buttons, b)
			continue
		}
		view.Actions = append(view.Actions, actionView{row.Summary, v.form(row, path, strictjson.Value{}, nil, nil), strings.HasPrefix(p.shows.Path, row.Path)})
	}
	if v.may(p.remove) && !builtIn {
		trash := p.action("restore") != nil
		b := v.button(p.remove, path, verb(p.remove))
		b.Danger = true
		switch {
		case view.Deleted && p.remove.Param("purge").Name != "":
			view.Actions = append(view.Actions, v.purging(p.remove, path))
		case view.Deleted:
		case trash: // it can be undone, so nothing is asked
			view.Buttons = append(view.Buttons, b)
		default:
			view.Actions = append(view.Actions, actionView{verb(p.remove), formView{Action: b.Action, Hidden: b.Hidden, Once: b.Once, Submit: b.Title, Danger: true}, false})
		}
	}
	if view.Deleted {
		return
	}
	view.Links = append(v.elsewhere(p, path), p.leadsTo(path, v.may)...)
	if p.shows.Name == "imports.get" {
		v.imported(view, data)
	}
	for _, below := range p.below {
		if share := below.action("share"); v.may(share) && data.Get("shareable").Is != strictjson.False {
			view.Share = below.address(path)
		}
	}
	for _, row := range p.exports {
		if data.Get("exportable").Is == strictjson.False { // which its operation would refuse
			continue
		}
		for _, format := range row.Param("format").Enum {
			if v.may(row) {
				e := request{row: row, path: path, query: url.Values{"format": {format}}.Encode()}
				view.Exports = append(view.Exports, linkView{Title: row.Summary + " (" + strings.ToUpper(format) + ")", Address: e.target()})
			}
		}
	}
}

// purging is the form that ends for good what lies in the trash, by whichever operation.
func (v *visit) purging(row *operation.Row, path map[string]string) actionView {
	return actionView{forGood, v.form(row, path, strictjson.Value{}, url.Values{purge: {"true"}}, nil), false}
}

const (
	forGood = "Delete for good"
	purge   = "query.purge" // of a form
)

// completed adds to a record what only the list shows of it, where the form wants that.
func (v *visit) completed(p *page, path map[string]string, data strictjson.Value) strictjson.Value {
	for _, list := range v.site.pages {
		key := p.key()
		if list.each != p || !slices.Contains(list.parameter("filters").Names, key) || !slices.ContainsFunc(p.update.Body, func(f operation.Field) bool { return data.Get(f.Name).Is == strictjson.Null && !f.Secret }) {
			continue
		}
		a, err := v.read(list.shows, path, url.Values{"filters[" + key + "]": {path[key]}, "per_page": {"1"}}.Encode())
		if found := a.data.Get("results").Items; err == nil && a.ok() && len(found) == 1 {
			data.Members = slices.Clone(data.Members)
			for _, m := range found[0].Members {
				if data.Get(m.Name).Is == strictjson.Null {
					data.Members = append(without(data, m.Name).Members, m)
				}
			}
		}
	}
	return data
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
	c := control{Name: q.Name, ID: "q-" + q.Name, Label: called(q.Ask, q.Name), Hint: q.Ask.Hint, Kind: "text", Required: q.Required, Value: asked.Get(q.Name), MaxLength: q.Bounds.MaxLength}
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
