package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/declare"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// recordView is a page about one record, or what else an operation answers.
type recordView struct {
	chrome
	Note    string
	Problem string      // why what the page is about did not succeed
	Ask     []control   // parameters of a question, which the page's form asks
	Wrong   []site.Link // with them
	Missing bool        // the question lacks some
	Facts   []pair
	Table   *tableView
	Figures []layout.Cell // in place of the table
	Charts  []*chart.Chart
	Form    *formView
	Tried   *triedView
	Buttons []*layout.Button
	Actions []actionView
	Links   []site.Link
	Exports []site.Link
	Deleted bool
	Share   string // leads to where links to it are made; empty: there are none
	Pages   *pager // which page of the rows this is
}

// triedView is what a form would show or reach, as it was typed.
type triedView struct {
	Note, Problem string
	Facts         []pair
	Table         *tableView
	Figures       []layout.Cell
	Charts        []*chart.Chart
}

// actionView is a form behind its title.
type actionView struct {
	Title string
	Form  formView
	Open  bool // the page is about what it makes
}

func (v *visit) recordPage(p *site.Page, path map[string]string) {
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		v.problem(http.StatusBadRequest, "The address is not complete", "Choose the page from the navigation.")
		return
	}
	asked, _ := split(query)
	view := recordView{Deleted: asked.Get("deleted") == "true"}
	for _, q := range p.Shows.Params {
		if q.In != operation.InQuery || q.Name == "teams[]" || q.Name == "deleted" || paging(q.Name) || p.Update != nil || p.Remove != nil {
			continue
		}
		if q.Ask.Kind == declare.Inputs {
			for _, in := range v.inputs(path, "") {
				name := q.Name + "[" + in.name + "]"
				view.Ask = append(view.Ask, in.control(name, idOf("q", in.name), asked.Get(name), asked.Has(name)))
			}
		}
		c := question(q, asked)
		if p.Shows.Name == explains {
			v.choose(&c)
		}
		if c.Kind != "" {
			view.Ask = append(view.Ask, c)
			view.Missing = view.Missing || q.Required && c.Value == ""
		}
	}
	if p.Update != nil && p.Has("page") && p.Has("per_page") { // what lies in the record comes in pages
		for name, value := range map[string]string{"page": "1", "per_page": strconv.Itoa(perPage)} {
			if !asked.Has(name) {
				asked.Set(name, value)
			}
		}
	}
	if _, drawn := drawnAs(v.recordAbove(p, path).Get("visual").Text); drawn && p.Has(whole) {
		asked.Set(whole, "true")
	}
	var data strictjson.Value
	var tag string
	code, lessons := http.StatusOK, false // lessons: there are none to check
	if !view.Missing {
		a, err := v.open(p.Shows, path, asked.Encode())
		if len(view.Ask) > 0 && err == nil && (a.Code == http.StatusUnprocessableEntity || a.Code == http.StatusBadRequest || a.Code == http.StatusNotFound) {
			code = a.Code
			for i := range view.Ask {
				for _, f := range a.Faults() {
					if belongs(f.Field, view.Ask[i].Name) {
						view.Ask[i].Error = said(f)
					}
				}
			}
			if !slices.ContainsFunc(view.Ask, func(c control) bool { return c.Error != "" }) {
				view.Ask[0].Error = site.Sentence(a.Message)
			}
		} else if lessons = err == nil && a.Code == http.StatusUnprocessableEntity && p.Shows.Tag == "Compliance"; !lessons && v.refused(a, err) {
			return
		}
		if code == http.StatusOK && !lessons {
			data, tag = a.Data, a.Header.Get("ETag")
		}
	}
	title := p.Title()
	if p.Key() != "" || p.Update != nil {
		name := v.nameOf(p.Shows, path, data, "")
		if name == data.Get("operation").Text {
			name = v.subject("operation", name)
		}
		if id := data.Get("id").Text; id != "" && name == id { // which says nothing by itself
			name = p.Title() + " " + id
		}
		title = clip(cmp.Or(name, title))
	}
	if p.Update != nil && p.Key() == "" {
		title = p.Title()
	}
	if p.Key() == "" && len(view.Ask) > 0 {
		title = p.Shows.Summary
	}
	if data.Get("state").Text == "running" { // it tells how far it has come
		v.w.Header().Set("Refresh", "2")
	}
	if slices.Contains([]string{"refused", "failed", "interrupted"}, data.Get("state").Text) {
		view.Problem = site.Sentence(data.Get("message").Text)
	}
	above := v.recordAbove(p, path)
	if above.Is == strictjson.Object { // Contacts by country: run
		title = clip(nameOf(above, title)) + ": " + strings.ToLower(site.Label(p.Segments[len(p.Segments)-1]))
	}
	view.chrome = v.chrome(title)
	view.Wrong = faulty(view.Ask)
	view.Faulty = view.Wrong != nil
	if view.Problem != "" {
		view.Done = ""
	}
	view.Trail = v.trail(p, path)
	if len(view.Ask) > 0 || p.Key() == "" && p.Update == nil && above.Is != strictjson.Object {
		view.Note = p.Shows.Ask
	}
	view.Curl = v.client.Curl(v.t.Org.Slug, ask.Call{Row: p.Shows, Path: path, Query: asked.Encode()})
	all := data
	if asked.Get(whole) == "true" && data.Is == strictjson.Object {
		data = portion(all, asked)
	}
	asked.Del(whole)
	if lessons {
		view.Note = "Contacts comply by their lessons, and your organization keeps none yet: they are the records of a custom object with the short name lesson and the fields contact (Text) and tags (MultiSelect)."
		if define := v.site.Rows["objects.create"]; v.may(define) {
			view.Links = []site.Link{{Title: define.Summary, Address: "/do/" + define.Name}}
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
			return p.AddressWith(path, q, nil)
		})
		view.Pages = &pages
		if data.Get("truncated").Is == strictjson.True {
			view.Pages.Count += ". There are more: these are " + cutText(v.locale(), count(rows, "count"), count(data, "total"))
		}
	} else if next := data.Get("next").Text; next != "" && p.Has("after") {
		view.Pages = &pager{Count: "There is more", Next: p.AddressWith(path, url.Values{"after": {next}}, nil)}
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

func (v *visit) layOutRecord(view *recordView, p *site.Page, path map[string]string, data strictjson.Value, tag string) {
	view.Note = cmp.Or(view.Note, ownTypes(v.site, p, data))
	inForm, builtIn := []string{}, data.Get("built_in").Is == strictjson.True // which nobody changes
	if v.may(p.Update) && !view.Deleted && !builtIn {
		data = v.completed(p, path, data)
		f := v.form(p.Update, path, data, nil, nil)
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
		view.Form = &f
		for _, c := range slices.Concat(f.Controls, f.More) {
			if own := "own_" + c.Name; data.Get(own).Is != strictjson.Null {
				c.Name = own
			}
			inForm = append(inForm, c.Name)
		}
	}
	view.Facts, view.Table = v.facts(p, path, without(data, inForm...))
	if count := v.site.Rows["campaigns.count"]; p.Update != nil && p.Update.Resource == "campaign" && v.may(count) {
		if a, err := v.read(count, path, ""); err == nil && a.Ok() {
			view.Facts = append([]pair{{"Contacts who match", present(a.Data.Get("count"), 0)}}, view.Facts...)
		}
	}
	for _, row := range p.Actions {
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
			b := v.button(row, path, site.Verb(row))
			b.Danger = row.Method == http.MethodDelete
			view.Buttons = append(view.Buttons, b)
			continue
		}
		view.Actions = append(view.Actions, actionView{row.Summary, v.form(row, path, strictjson.Value{}, nil, nil), strings.HasPrefix(p.Shows.Path, row.Path)})
	}
	if v.may(p.Remove) && !builtIn {
		trash := p.Action("restore") != nil
		b := v.button(p.Remove, path, site.Verb(p.Remove))
		b.Danger = true
		switch {
		case view.Deleted && p.Remove.Param("purge").Name != "":
			view.Actions = append(view.Actions, v.purging(p.Remove, path))
		case view.Deleted:
		case trash: // it can be undone, so nothing is asked
			view.Buttons = append(view.Buttons, b)
		default:
			view.Actions = append(view.Actions, actionView{site.Verb(p.Remove), formView{Action: b.Action, Hidden: b.Hidden, Once: b.Once, Submit: b.Title, Danger: true}, false})
		}
	}
	if view.Deleted {
		return
	}
	view.Links = append(v.elsewhere(p, path), p.LinksBelow(path, v.may)...)
	if p.Shows.Name == "imports.get" {
		v.imported(view, data)
	}
	for _, below := range p.Below {
		if share := below.Action("share"); v.may(share) && data.Get("shareable").Is != strictjson.False {
			view.Share = below.Address(path)
		}
	}
	for _, row := range p.Exports {
		if data.Get("exportable").Is == strictjson.False { // which its operation would refuse
			continue
		}
		for _, format := range row.Param("format").Enum {
			if v.may(row) {
				e := ask.Call{Row: row, Path: path, Query: url.Values{"format": {format}}.Encode()}
				view.Exports = append(view.Exports, site.Link{Title: row.Summary + " (" + strings.ToUpper(format) + ")", Address: e.Target()})
			}
		}
	}
}

// purging is the form that ends for good what lies in the trash, by whichever operation.
func (v *visit) purging(row *operation.Row, path map[string]string) actionView {
	return actionView{forGood, v.form(row, path, strictjson.Value{}, url.Values{purge: {"true"}}, nil), false}
}

// completed adds to a record what only the list shows of it, where the form wants that.
func (v *visit) completed(p *site.Page, path map[string]string, data strictjson.Value) strictjson.Value {
	for _, list := range v.site.Pages {
		key := p.Key()
		if list.Each != p || !slices.Contains(list.Parameter("filters").Names, key) || !slices.ContainsFunc(p.Update.Body, func(f operation.Field) bool { return data.Get(f.Name).Is == strictjson.Null && !f.Secret }) {
			continue
		}
		a, err := v.read(list.Shows, path, url.Values{"filters[" + key + "]": {path[key]}, "per_page": {"1"}}.Encode())
		if found := a.Data.Get("results").Items; err == nil && a.Ok() && len(found) == 1 {
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
