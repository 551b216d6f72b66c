// Package record makes the page of one record, or of another answer that is not a list: its facts, the form that
// changes it, its actions, and links to its subpages.
package record

import (
	"cmp"
	"html"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/builder"
	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/files"
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

// View is the page of a record, or of another answer that is not a list.
type View struct {
	visit.Chrome
	Note       string
	Problem    string          // why the job that the page shows failed
	Ask        []input.Control // the parameters of the operation, in a form
	Problems   []site.Link     // what is wrong with them
	Incomplete bool            // required parameters are missing
	Facts      []show.Pair
	Table      *show.Table
	Figures    []layout.Cell // in place of the table
	Charts     []*chart.Chart
	Form       *form.View
	Preview    *Preview
	Buttons    []*layout.Button
	Actions    []actionView
	Links      []site.Link
	Exports    []site.Link
	Deleted    bool
	Share      string      // the address of the page that shares the record; empty if it cannot be shared
	Pages      *show.Pager // the pages of its rows
	File       *files.View
	Folder     *files.Contents
	Zone       *files.Zone
	Embed      *embed   // the public page of a form; nil: it is not public
	laidOut    []string // the members that File and Folder show
}

// Preview is what a form would show or match, with the values that were typed.
type Preview struct {
	Note, Problem string
	Facts         []show.Pair
	Table         *show.Table
	Figures       []layout.Cell
	Charts        []*chart.Chart
}

// embed is the public page of a form, and how other pages show it.
type embed struct {
	Address, Snippet string
	Frames           bool // pages of some sites may show it
}

// embedOf returns the public page of a form; nil if it has none.
func embedOf(data strictjson.Value) *embed {
	address := data.Get("public_url").Text
	if address == "" {
		return nil
	}
	return &embed{
		Address: address, Frames: len(data.Get("frame_origins").Items) > 0,
		Snippet: `<iframe src="` + html.EscapeString(address) + `" title="` + html.EscapeString(data.Get("label").Text) +
			`" width="100%" height="700" style="border: 0"></iframe>`,
	}
}

// actionView is a form that is folded under its title.
type actionView struct {
	Title string
	Form  form.View
	Open  bool // it is unfolded, because the page lists what it creates
}

// Page answers with the page of a record, or of another answer that is not a list.
func Page(v *visit.Visit, p *site.Page, path map[string]string) {
	query, err := url.ParseQuery(v.R.URL.RawQuery)
	if err != nil {
		v.Problem(http.StatusBadRequest, "The address is not valid", "Choose the page from the navigation.")
		return
	}
	asked, _ := show.Split(query)
	view := View{Deleted: asked.Get("deleted") == "true"}
	for _, q := range p.Shows.Params {
		if q.In != operation.InQuery || q.Name == "teams[]" || q.Name == "deleted" || show.Paging(q.Name) ||
			p.Update != nil || p.Remove != nil {
			continue
		}
		if q.Ask.Kind == declare.Inputs {
			for _, in := range builder.ReportInputs(v, path, "") {
				name := q.Name + "[" + in.Name + "]"
				view.Ask = append(view.Ask, in.Control(name, input.ID("q", in.Name), asked.Get(name), asked.Has(name)))
			}
		}
		c := input.QueryControl(q, asked)
		if p.Shows.Name == explainOperation {
			subjectChoice(v, &c)
		}
		if c.Kind != "" {
			view.Ask = append(view.Ask, c)
			view.Incomplete = view.Incomplete || q.Required && c.Value == ""
		}
	}
	if p.Update != nil && p.Has("page") && p.Has("per_page") { // the record has a list with pages, as a folder has files
		for name, value := range map[string]string{"page": "1", "per_page": strconv.Itoa(show.PerPage)} {
			if !asked.Has(name) {
				asked.Set(name, value)
			}
		}
	}
	if _, drawn := report.Drawn(show.ParentRecord(v, p, path).Get("visual").Text); drawn && p.Has(show.AllRows) {
		asked.Set(show.AllRows, "true")
	}
	follows := v.Follow(p)
	var data strictjson.Value
	var tag string
	code, noLessons := http.StatusOK, false // noLessons: the organization has no lessons to check contacts by
	if !view.Incomplete {
		a, err := v.Open(p.Shows, path, asked.Encode())
		refused := a.Code == http.StatusUnprocessableEntity || a.Code == http.StatusBadRequest || a.Code == http.StatusNotFound
		if len(view.Ask) > 0 && err == nil && refused {
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
		} else {
			noLessons = err == nil && a.Code == http.StatusUnprocessableEntity && p.Shows.Tag == "Compliance"
			if !noLessons && v.Refused(a, err) {
				return
			}
		}
		if code == http.StatusOK && !noLessons {
			data, tag = a.Data, a.Header.Get("ETag")
		}
	}
	title := p.Title()
	if p.Key() != "" || p.Update != nil {
		name := show.NameOf(v, p.Shows, path, data, "")
		if name == data.Get("operation").Text {
			name = show.SubjectName(v, "operation", name)
		}
		if id := data.Get("id").Text; id != "" && name == id { // an identifier alone says nothing
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
	if data.Get("state").Text == "running" { // the page follows the progress of the job
		v.W.Header().Set("Refresh", "2")
	}
	if slices.Contains([]string{"refused", "failed", "interrupted"}, data.Get("state").Text) {
		view.Problem = site.Sentence(data.Get("message").Text)
	}
	above := show.ParentRecord(v, p, path)
	if above.Is == strictjson.Object { // such as "Contacts by country: run"
		title = show.Clip(show.Name(above, title)) + ": " + strings.ToLower(site.Label(p.Segments[len(p.Segments)-1]))
	}
	view.Chrome = v.Chrome(title)
	view.Problems = input.Problems(view.Ask)
	view.HasProblems = view.Problems != nil
	if view.Problem != "" {
		view.Done = ""
	}
	if follows != nil {
		follows.Record, view.Follows = data.Get("id").Text, follows
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
	if noLessons {
		view.Note = "Compliance is checked by the lessons of contacts, and your organization has no lessons yet. " +
			"To keep them, create a custom object with the short name lesson " +
			"and the fields contact (Text) and tags (MultiSelect)."
		if define := v.Site.Rows["objects.create"]; v.May(define) {
			view.Links = []site.Link{{Title: define.Summary, Address: "/do/" + define.Name}}
		}
	} else if code == http.StatusOK && !view.Incomplete {
		describeFiles(v, &view, p, path, data)
		layOutRecord(v, &view, p, path, data, tag)
		if view.Table != nil {
			view.Figures, view.Charts = report.Draw(v.Locale(), above, all, asked, view.Table)
		}
	}
	if rows := pagedRows(data); rows.Get("pages").Is == strictjson.Number {
		pages := show.NewPager(v, rows, func(change func(url.Values)) string {
			q := maps.Clone(asked)
			change(q)
			return p.AddressWith(path, q, nil)
		})
		view.Pages = &pages
		if data.Get("truncated").Is == strictjson.True {
			text := report.CutText(v.Locale(), show.Count(rows, "count"), show.Count(data, "total"))
			view.Pages.Count += ". There are more: these are " + text
		}
		if view.Folder != nil && pages.Previous == "" && pages.Next == "" { // the folder says how many there are
			view.Pages = nil
		}
	} else if next := data.Get("next").Text; next != "" && p.Has("after") {
		view.Pages = &show.Pager{
			Count: "There is more", Next: p.AddressWith(path, url.Values{"after": {next}}, nil),
		}
	}
	v.Show(code, "record", view)
}

// pagedRows returns the part of an answer that the pager of the page is for: the answer itself if it has pages, or else
// its member with the most pages.
func pagedRows(data strictjson.Value) (rows strictjson.Value) {
	most := -1
	for _, m := range append([]strictjson.Member{{Value: data}}, data.Members...) {
		if pages, err := strconv.Atoi(m.Value.Get("pages").Text); err == nil && pages > most {
			most, rows = pages, m.Value
		}
	}
	return rows
}

// layOutRecord adds the record, its forms and its links to the view. tag is its ETag.
func layOutRecord(
	v *visit.Visit, view *View, p *site.Page, path map[string]string, data strictjson.Value, tag string,
) {
	view.Note = cmp.Or(view.Note, show.CustomTypes(v.Site, p, data))
	inForm, builtIn := []string{}, data.Get("built_in").Is == strictjson.True // a built-in record cannot be changed
	if v.May(p.Update) && !view.Deleted && !builtIn {
		data = Completed(v, p, path, data)
		f := form.New(v, p.Update, path, data, nil, nil)
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
		view.Form = &f
		if view.File != nil && view.File.Save != "" { // another address would take the bytes away
			f.Controls = slices.DeleteFunc(f.Controls, func(c input.Control) bool { return c.Name == "url" })
		}
		for _, c := range slices.Concat(f.Controls, f.More) {
			if own := "own_" + c.Name; data.Get(own).Is != strictjson.Null {
				c.Name = own
			}
			inForm = append(inForm, c.Name)
		}
	}
	if !view.Deleted {
		view.Embed = embedOf(data)
		view.laidOut = append(view.laidOut, "public_url")
	}
	view.Facts, view.Table = show.Facts(v, p, path, show.Without(data, append(inForm, view.laidOut...)...))
	if count := v.Site.Rows["campaigns.count"]; p.Update != nil && p.Update.Resource == "campaign" && v.May(count) {
		if a, err := v.Read(count, path, ""); err == nil && a.OK() {
			matching := show.Pair{Name: "Contacts who match", Value: show.Present(a.Data.Get("count"), 0)}
			view.Facts = append([]show.Pair{matching}, view.Facts...)
		}
	}

	for _, row := range p.Actions {
		purges := row.Action == operation.PurgeAction
		if !v.May(row) || (purges || row.Action == operation.RestoreAction) != view.Deleted {
			continue
		}
		if purges {
			view.Actions = append(view.Actions, purgeAction(v, row, path))
			continue
		}
		active := data.Get("active").Is
		if active == strictjson.True && row.Action == operation.ReactivateAction ||
			active == strictjson.False && row.Action == operation.DeactivateAction {
			continue // the record is in that state already
		}
		if name := show.MissingParameter(row, path); name != "" {
			show.AddButtons(v, view.Table, row, path, name, data)
			continue
		}
		if len(row.Body) == 0 && len(input.QueryParams(row)) == 0 {
			b := v.Button(row, path, site.Verb(row))
			b.Danger = row.Method == http.MethodDelete
			view.Buttons = append(view.Buttons, b)
			continue
		}
		var current strictjson.Value
		if row.Method == http.MethodPut { // it changes a part of the record
			current = data
		}
		f := form.New(v, row, path, current, nil, nil)
		if row.Revised && (row.OnRecord || row.Method == http.MethodPut) {
			f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
		}
		view.Actions = append(view.Actions, actionView{row.Summary, f, row.Page != ""})
	}

	if v.May(p.Remove) && !builtIn {
		trash := p.Action(operation.RestoreAction) != nil
		b := v.Button(p.Remove, path, site.Verb(p.Remove))
		b.Danger = true
		switch {
		case view.Deleted && p.Remove.Param("purge").Name != "":
			view.Actions = append(view.Actions, purgeAction(v, p.Remove, path))
		case view.Deleted:
		case trash: // no confirmation, because it can be undone
			view.Buttons = append(view.Buttons, b)
		default:
			f := form.View{Action: b.Action, Hidden: b.Hidden, Once: b.Once, Submit: b.Title, Danger: true}
			view.Actions = append(view.Actions, actionView{site.Verb(p.Remove), f, false})
		}
	}
	if view.Deleted {
		return
	}
	view.Links = append(relatedLinks(v, p, path), p.LinksBelow(path, v.May)...)
	if p.Shows.Name == "imports.get" {
		describeImport(v, view, data)
	}
	for _, below := range p.Subpages {
		share := below.Action(operation.ShareAction)
		if v.May(share) && data.Get("shareable").Is != strictjson.False {
			view.Share = below.Address(path)
		}
	}
	for _, row := range p.Exports {
		if data.Get("exportable").Is == strictjson.False { // the operation would refuse it
			continue
		}
		for _, format := range row.Param("format").Enum {
			if v.May(row) {
				e := ask.Call{Row: row, Path: path, Query: url.Values{"format": {format}}.Encode()}
				title := row.Summary + " (" + strings.ToUpper(format) + ")"
				view.Exports = append(view.Exports, site.Link{Title: title, Address: e.Target()})
			}
		}
	}
}

// purgeAction returns the form that purges a deleted record. row is an operation that purges, or one that deletes with
// a parameter to purge.
func purgeAction(v *visit.Visit, row *operation.Row, path map[string]string) actionView {
	f := form.New(v, row, path, strictjson.Value{}, url.Values{form.Purge: {"true"}}, nil)
	return actionView{form.ForGood, f, false}
}

// Completed adds to a record the members that its form needs and only the list has.
func Completed(v *visit.Visit, p *site.Page, path map[string]string, data strictjson.Value) strictjson.Value {
	if p.Update == nil {
		return data
	}
	lacks := func(f operation.Field) bool { return data.Get(f.Name).Is == strictjson.Null && !f.Secret }
	for _, list := range v.Site.Pages {
		key := p.Key()
		if list.Record != p || !slices.Contains(list.Parameter("filters").Names, key) ||
			!slices.ContainsFunc(p.Update.Body, lacks) {
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
