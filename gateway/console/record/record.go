// Package record is the page of one record, and of whatever else an operation answers that is no list: its facts, the
// form that changes it, what can be done with it, and what lies beneath it.
package record

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/builder"
	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/form"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/report"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/declare"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// View is a page about one record, or what else an operation answers.
type View struct {
	visit.Chrome
	Note       string
	Problem    string          // why what the page is about did not succeed
	Ask        []input.Control // parameters of a question, which the page's form asks
	Wrong      []site.Link     // with them
	Incomplete bool            // required parameters are missing
	Facts      []show.Pair
	Table      *show.Table
	Figures    []layout.Cell // in place of the table
	Charts     []*chart.Chart
	Form       *form.View
	Tried      *Tried
	Buttons    []*layout.Button
	Actions    []actionView
	Links      []site.Link
	Exports    []site.Link
	Deleted    bool
	Share      string      // leads to where links to it are made; empty: there are none
	Pages      *show.Pager // which page of the rows this is
}

// Tried is what a form would show or reach, as it was typed.
type Tried struct {
	Note, Problem string
	Facts         []show.Pair
	Table         *show.Table
	Figures       []layout.Cell
	Charts        []*chart.Chart
}

// actionView is a form behind its title.
type actionView struct {
	Title string
	Form  form.View
	Open  bool // the page is about what it makes
}

// Page answers with the page of a record, or of another answer that is no list.
func Page(v *visit.Visit, p *site.Page, path map[string]string) {
	query, err := url.ParseQuery(v.R.URL.RawQuery)
	if err != nil {
		v.Problem(http.StatusBadRequest, "The address is not complete", "Choose the page from the navigation.")
		return
	}
	asked, _ := show.Split(query)
	view := View{Deleted: asked.Get("deleted") == "true"}
	for _, q := range p.Shows.Params {
		if q.In != operation.InQuery || q.Name == "teams[]" || q.Name == "deleted" || show.Paging(q.Name) || p.Update != nil || p.Remove != nil {
			continue
		}
		if q.Ask.Kind == declare.Inputs {
			for _, in := range builder.ReportInputs(v, path, "") {
				name := q.Name + "[" + in.Name + "]"
				view.Ask = append(view.Ask, in.Control(name, input.ID("q", in.Name), asked.Get(name), asked.Has(name)))
			}
		}
		c := input.Question(q, asked)
		if p.Shows.Name == explains {
			choose(v, &c)
		}
		if c.Kind != "" {
			view.Ask = append(view.Ask, c)
			view.Incomplete = view.Incomplete || q.Required && c.Value == ""
		}
	}
	if p.Update != nil && p.Has("page") && p.Has("per_page") { // what lies in the record comes in pages
		for name, value := range map[string]string{"page": "1", "per_page": strconv.Itoa(show.PerPage)} {
			if !asked.Has(name) {
				asked.Set(name, value)
			}
		}
	}
	if _, drawn := report.Drawn(show.ParentRecord(v, p, path).Get("visual").Text); drawn && p.Has(show.AllRows) {
		asked.Set(show.AllRows, "true")
	}
	var data strictjson.Value
	var tag string
	code, lessons := http.StatusOK, false // lessons: there are none to check
	if !view.Incomplete {
		a, err := v.Open(p.Shows, path, asked.Encode())
		if len(view.Ask) > 0 && err == nil && (a.Code == http.StatusUnprocessableEntity || a.Code == http.StatusBadRequest || a.Code == http.StatusNotFound) {
			code = a.Code
			for i := range view.Ask {
				for _, f := range a.Faults() {
					if input.Concerns(f.Field, view.Ask[i].Name) {
						view.Ask[i].Error = input.FaultSentence(f)
					}
				}
			}
			if !slices.ContainsFunc(view.Ask, func(c input.Control) bool { return c.Error != "" }) {
				view.Ask[0].Error = site.Sentence(a.Message)
			}
		} else if lessons = err == nil && a.Code == http.StatusUnprocessableEntity && p.Shows.Tag == "Compliance"; !lessons && v.Refused(a, err) {
			return
		}
		if code == http.StatusOK && !lessons {
			data, tag = a.Data, a.Header.Get("ETag")
		}
	}
	title := p.Title()
	if p.Key() != "" || p.Update != nil {
		name := show.NameOf(v, p.Shows, path, data, "")
		if name == data.Get("operation").Text {
			name = show.SubjectName(v, "operation", name)
		}
		if id := data.Get("id").Text; id != "" && name == id { // which says nothing by itself
			name = p.Title() + " " + id
		}
		title = show.Clip(cmp.Or(name, title))
	}
	if p.Update != nil && p.Key() == "" {
		title = p.Title()
	}
	if p.Key() == "" && len(view.Ask) > 0 {
		title = p.Shows.Summary
	}
	if data.Get("state").Text == "running" { // it tells how far it has come
		v.W.Header().Set("Refresh", "2")
	}
	if slices.Contains([]string{"refused", "failed", "interrupted"}, data.Get("state").Text) {
		view.Problem = site.Sentence(data.Get("message").Text)
	}
	above := show.ParentRecord(v, p, path)
	if above.Is == strictjson.Object { // Contacts by country: run
		title = show.Clip(show.Name(above, title)) + ": " + strings.ToLower(site.Label(p.Segments[len(p.Segments)-1]))
	}
	view.Chrome = v.Chrome(title)
	view.Wrong = input.Problems(view.Ask)
	view.HasProblems = view.Wrong != nil
	if view.Problem != "" {
		view.Done = ""
	}
	view.Trail = show.Trail(v, p, path)
	if len(view.Ask) > 0 || p.Key() == "" && p.Update == nil && above.Is != strictjson.Object {
		view.Note = p.Shows.Ask
	}
	view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: p.Shows, Path: path, Query: asked.Encode()})
	all := data
	if asked.Get(show.AllRows) == "true" && data.Is == strictjson.Object {
		data = report.PageOf(all, asked)
	}
	asked.Del(show.AllRows)
	if lessons {
		view.Note = "Contacts comply by their lessons, and your organization keeps none yet: they are the records of a custom object with the short name lesson and the fields contact (Text) and tags (MultiSelect)."
		if define := v.Site.Rows["objects.create"]; v.May(define) {
			view.Links = []site.Link{{Title: define.Summary, Address: "/do/" + define.Name}}
		}
	} else if code == http.StatusOK && !view.Incomplete {
		layOutRecord(v, &view, p, path, data, tag)
		if view.Table != nil {
			view.Figures, view.Charts = report.Draw(v.Locale(), above, all, asked, view.Table)
		}
	}
	if rows := longest(data); rows.Get("pages").Is == strictjson.Number {
		pages := show.NewPager(v, rows, func(change func(url.Values)) string {
			q := maps.Clone(asked)
			change(q)
			return p.AddressWith(path, q, nil)
		})
		view.Pages = &pages
		if data.Get("truncated").Is == strictjson.True {
			view.Pages.Count += ". There are more: these are " + report.CutText(v.Locale(), show.Count(rows, "count"), show.Count(data, "total"))
		}
	} else if next := data.Get("next").Text; next != "" && p.Has("after") {
		view.Pages = &show.Pager{Count: "There is more", Next: p.AddressWith(path, url.Values{"after": {next}}, nil)}
	}
	v.Show(code, "record", view)
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

func layOutRecord(v *visit.Visit, view *View, p *site.Page, path map[string]string, data strictjson.Value, tag string) {
	view.Note = cmp.Or(view.Note, show.CustomTypes(v.Site, p, data))
	inForm, builtIn := []string{}, data.Get("built_in").Is == strictjson.True // which nobody changes
	if v.May(p.Update) && !view.Deleted && !builtIn {
		data = Completed(v, p, path, data)
		f := form.New(v, p.Update, path, data, nil, nil)
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
		view.Form = &f
		for _, c := range slices.Concat(f.Controls, f.More) {
			if own := "own_" + c.Name; data.Get(own).Is != strictjson.Null {
				c.Name = own
			}
			inForm = append(inForm, c.Name)
		}
	}
	view.Facts, view.Table = show.Facts(v, p, path, show.Without(data, inForm...))
	if count := v.Site.Rows["campaigns.count"]; p.Update != nil && p.Update.Resource == "campaign" && v.May(count) {
		if a, err := v.Read(count, path, ""); err == nil && a.OK() {
			view.Facts = append([]show.Pair{{Name: "Contacts who match", Value: show.Present(a.Data.Get("count"), 0)}}, view.Facts...)
		}
	}
	for _, row := range p.Actions {
		ends := row.Action == operation.PurgeAction
		if !v.May(row) || (ends || row.Action == operation.RestoreAction) != view.Deleted {
			continue
		}
		if ends {
			view.Actions = append(view.Actions, purging(v, row, path))
			continue
		}
		if active := data.Get("active").Is; active == strictjson.True && row.Action == operation.ReactivateAction || active == strictjson.False && row.Action == operation.DeactivateAction {
			continue // it is so already
		}
		if name := show.MissingParameter(row, path); name != "" {
			show.AddButtons(v, view.Table, row, path, name, data)
			continue
		}
		if len(row.Body) == 0 && len(input.Questions(row)) == 0 {
			b := v.Button(row, path, site.Verb(row))
			b.Danger = row.Method == http.MethodDelete
			view.Buttons = append(view.Buttons, b)
			continue
		}
		view.Actions = append(view.Actions, actionView{row.Summary, form.New(v, row, path, strictjson.Value{}, nil, nil), strings.HasPrefix(p.Shows.Path, row.Path)})
	}
	if v.May(p.Remove) && !builtIn {
		trash := p.Action(operation.RestoreAction) != nil
		b := v.Button(p.Remove, path, site.Verb(p.Remove))
		b.Danger = true
		switch {
		case view.Deleted && p.Remove.Param("purge").Name != "":
			view.Actions = append(view.Actions, purging(v, p.Remove, path))
		case view.Deleted:
		case trash: // it can be undone, so nothing is asked
			view.Buttons = append(view.Buttons, b)
		default:
			view.Actions = append(view.Actions, actionView{site.Verb(p.Remove), form.View{Action: b.Action, Hidden: b.Hidden, Once: b.Once, Submit: b.Title, Danger: true}, false})
		}
	}
	if view.Deleted {
		return
	}
	view.Links = append(elsewhere(v, p, path), p.LinksBelow(path, v.May)...)
	if p.Shows.Name == "imports.get" {
		imported(v, view, data)
	}
	for _, below := range p.Subpages {
		if share := below.Action(operation.ShareAction); v.May(share) && data.Get("shareable").Is != strictjson.False {
			view.Share = below.Address(path)
		}
	}
	for _, row := range p.Exports {
		if data.Get("exportable").Is == strictjson.False { // which its operation would refuse
			continue
		}
		for _, format := range row.Param("format").Enum {
			if v.May(row) {
				e := ask.Call{Row: row, Path: path, Query: url.Values{"format": {format}}.Encode()}
				view.Exports = append(view.Exports, site.Link{Title: row.Summary + " (" + strings.ToUpper(format) + ")", Address: e.Target()})
			}
		}
	}
}

// purging is the form that ends for good what lies in the trash, by whichever operation.
func purging(v *visit.Visit, row *operation.Row, path map[string]string) actionView {
	return actionView{form.ForGood, form.New(v, row, path, strictjson.Value{}, url.Values{form.Purge: {"true"}}, nil), false}
}

// Completed adds to a record what only the list shows of it, where the form wants that.
func Completed(v *visit.Visit, p *site.Page, path map[string]string, data strictjson.Value) strictjson.Value {
	for _, list := range v.Site.Pages {
		key := p.Key()
		if list.Record != p || !slices.Contains(list.Parameter("filters").Names, key) || !slices.ContainsFunc(p.Update.Body, func(f operation.Field) bool { return data.Get(f.Name).Is == strictjson.Null && !f.Secret }) {
			continue
		}
		a, err := v.Read(list.Shows, path, url.Values{"filters[" + key + "]": {path[key]}, "per_page": {"1"}}.Encode())
		if found := a.Data.Get("results").Items; err == nil && a.OK() && len(found) == 1 {
			data.Members = slices.Clone(data.Members)
			for _, m := range found[0].Members {
				if data.Get(m.Name).Is == strictjson.Null {
					data.Members = append(show.Without(data, m.Name).Members, m)
				}
			}
		}
	}
	return data
}
