// Package list is the page of a list, with its columns, filters, order and files, and the search in all lists.
package list

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/usage"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// listView is a page with records.
type listView struct {
	visit.Chrome
	Note    string
	Columns []columnView
	Rows    []listRow
	Choices []layout.Option // which columns there are
	Search  bool
	Q       string
	Kept    []layout.Hidden // what the forms of the page keep of its address
	Filters []filterView
	Fields  []layout.Option // to filter by
	Words   []string        // that stand for values of theirs
	Chosen  bool            // not all columns, or those of the start
	New     string
	Actions []*layout.Button
	Import  string      // leads to the form that takes a file of such records
	Links   []site.Link // to pages about all of them
	Exports []site.Link
	Trash   string // leads to what was deleted
	Live    string // leads back
	show.Pager
	Timed   bool // a column has times
	Over    *usage.View
	Problem string       // what is wrong with the filters
	Clear   string       // leads to the list without filters and words; empty: there are none
	Tree    []folderView // into which the records are sorted
	Move    string       // where the form goes that moves one; empty: none is moved
	Moves   string       // where that goes which moves a folder
}

// folderView is a folder, with those within it.
type folderView struct {
	site.Link
	Key    string
	Within []folderView
}

type columnView struct {
	Name, Title, Class string
	Sort               string // the address of the list in that order; empty: it cannot be sorted so
	Order              string // ascending, descending, or empty
}

type listRow struct {
	Href    string
	Key     string // of what can be moved
	Name    string
	Cells   []show.Value
	Buttons []*layout.Button
}

type filterView struct{ Text, Remove string }

// Operators are what a filter can compare by.
func (listView) Operators() []layout.Option { return show.Operators() }

// Page answers with the page of a list.
func Page(v *visit.Visit, p *site.Page, path map[string]string) {
	query, err := url.ParseQuery(v.R.URL.RawQuery)
	if err != nil {
		v.Problem(http.StatusBadRequest, "The address is not complete", "Choose the page from the navigation.")
		return
	}
	asked, own := show.Split(query)
	if field := own.Get("_field"); field != "" { // the form of filters was sent: its address is that of the list it asks for
		name := "filters[" + field + "]"
		if op := own.Get("_op"); op != "" {
			name += "[" + op + "]"
		}
		value := own.Get("_value")
		for _, c := range show.FilterValues(v, p, field, own.Get("_op"), show.Defined(v, p.Shows, path)) {
			if strings.EqualFold(c.Title, strings.TrimSpace(value)) { // as the list shows it
				value = c.Value
				break
			}
		}
		asked.Set(name, value)
		asked.Del("page")
		http.Redirect(v.W, v.R, p.AddressWith(path, asked, own["_columns"]), http.StatusSeeOther)
		return
	}
	if !asked.Has("per_page") && slices.ContainsFunc(p.Shows.Params, func(q operation.Param) bool { return q.Name == "per_page" }) {
		asked.Set("per_page", strconv.Itoa(show.PerPage))
	}
	if p.RowPage != nil && p.RowPage.Update == nil && !asked.Has("sort") && slices.Contains(p.Parameter("sort").Names, "created_at") {
		// What nobody changes is looked for by when it was.
		asked.Set("sort", "-created_at")
	}
	a, err := v.Open(p.Shows, path, asked.Encode())
	problem := wrongQuestion(a, err)
	if problem == "" && v.Refused(a, err) {
		return
	}
	if asked.Get("per_page") == strconv.Itoa(show.PerPage) {
		asked.Del("per_page")
	}
	view := layOutList(v, p, path, a.Data, asked, own)
	if view.Problem = problem; problem != "" {
		view.HasProblems = true
		view.Clear = p.Address(path)
	}
	view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: p.Shows, Path: path, Query: asked.Encode()})
	v.Show(a.Code, "list", view)
}

// wrongQuestion says what is wrong with the filters or the order that a list was asked for; it is shown where they can
// be taken away. Empty: nothing is, or it is no question of those.
func wrongQuestion(a ask.Reply, err error) string {
	if err != nil || a.Code != http.StatusUnprocessableEntity && a.Code != http.StatusBadRequest {
		return ""
	}
	text := ""
	for _, f := range a.Faults() {
		if filter, is := strings.CutPrefix(f.Field, "filters["); is {
			field, _, _ := strings.Cut(filter, "]")
			f.Message, f.Field = strings.Replace(f.Message, f.Field, field, 1), field
		}
		text = strings.TrimSpace(text + " " + input.FaultSentence(f))
	}
	return cmp.Or(text, site.Sentence(a.Message))
}

func layOutList(v *visit.Visit, p *site.Page, path map[string]string, data strictjson.Value, asked, own url.Values) listView {
	title := cmp.Or(show.Clip(show.ParentRecord(v, p, path).Get("label_plural").Text), p.Title())
	view := listView{Chrome: v.Chrome(title), Q: asked.Get("q")}
	view.Trail = show.Trail(v, p, path)
	defined := show.Defined(v, p.Shows, path)
	with := func(change func(url.Values)) string {
		q := url.Values{}
		maps.Copy(q, asked)
		change(q)
		return p.AddressWith(path, q, own["_columns"])
	}
	sorts, names := p.Parameter("sort").Names, p.Parameter("filters").Names
	for _, f := range defined {
		if f.Kind != schema.Encrypted { // whose values nobody compares
			names = append(slices.Clone(names), f.Key)
		}
	}
	columns, choices := show.Columns(v, p, path, data.Get("results").Items, defined, own["_columns"])
	view.Choices = choices
	view.Chosen = own.Has("_columns")
	order := asked.Get("sort")
	if order == "" {
		order = p.Parameter("sort").Default
	}
	for _, c := range columns {
		col := columnView{Name: c.Name, Title: c.Title}
		if show.Numeric(v, p, c) {
			col.Class = "number"
		}
		if slices.Contains(sorts, c.Name) && c.Within == "" || len(sorts) > 0 && c.Sorts {
			next := c.Name
			switch order {
			case c.Name:
				next, col.Order = "-"+c.Name, "ascending"
			case "-" + c.Name:
				col.Order = "descending"
			}
			col.Sort = with(func(q url.Values) { q.Set("sort", next); q.Del("page") })
		}
		view.Columns = append(view.Columns, col)
	}
	deleted := asked.Get("deleted") == "true"
	for _, record := range data.Get("results").Items {
		row := listRow{Name: show.Name(record, ""), Key: record.Get("id").Text}
		if p.RowPage != nil && v.May(p.RowPage.Shows) {
			to := site.WithParameter(path, p.RowPage.Key(), show.Key(p.RowPage, record))
			if row.Href = p.RowPage.Address(to); deleted {
				row.Href += "?deleted=true"
			}
			if restore := p.RowPage.Action(operation.RestoreAction); deleted && v.May(restore) {
				row.Buttons = append(row.Buttons, v.Button(restore, to, "Restore"))
			}
		}
		for i, c := range columns {
			cell := show.CellOf(v, p, c, record)
			cell.Text = show.Clip(cell.Text)
			if i == 0 && cell.Class == "none" { // what leads to it needs a name
				cell.Text = row.Name
			}
			if len(cell.List) > 6 {
				cell.List = append(cell.List[:6:6], "…")
			}
			switch number := view.Columns[i].Class == "number"; { // as its type says, whichever values the page has
			case number && cell.Class == "none":
				cell.Class = "number none"
			case !number && cell.Class == "number":
				cell.Class = ""
			}
			view.Timed = view.Timed || cell.Time != ""
			if i == 0 {
				cell.Href = row.Href
			}
			row.Cells = append(row.Cells, cell)
		}
		view.Rows = append(view.Rows, row)
	}
	if days := data.Get("results").Items; p.Shows.Over != "" && len(days) > 0 {
		over := usage.Days(v, "Requests", p.Shows.Over, days)
		view.Over = &over
	}
	for name, values := range asked {
		if name == "page" || name == "after" {
			continue
		}
		for _, value := range values {
			if name != "q" {
				view.Kept = append(view.Kept, layout.Hidden{Name: name, Value: value})
			}
			if rest, found := strings.CutPrefix(name, "filters["); found {
				view.Filters = append(view.Filters, filterView{filterText(v, p, rest, value, defined), with(func(q url.Values) { q.Del(name); q.Del("page") })})
			}
		}
	}
	for _, name := range own["_columns"] {
		view.Kept = append(view.Kept, layout.Hidden{Name: "_columns", Value: name})
	}
	slices.SortFunc(view.Kept, func(a, b layout.Hidden) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(view.Filters, func(a, b filterView) int { return strings.Compare(a.Text, b.Text) })
	if len(view.Filters) > 0 || view.Q != "" {
		view.Clear = with(func(q url.Values) {
			maps.DeleteFunc(q, func(name string, _ []string) bool {
				return name == "q" || name == "page" || strings.HasPrefix(name, "filters[")
			})
		})
	}
	view.Search = p.Has("q")
	for _, name := range names {
		for _, c := range show.FilterValues(v, p, name, "", defined) {
			if !slices.Contains(view.Words, c.Title) {
				view.Words = append(view.Words, c.Title)
			}
		}
		view.Fields = append(view.Fields, layout.Option{Value: name, Title: show.TitleOf(p, name, defined)})
	}
	if v.May(p.Create) && !deleted {
		view.New = "/do/" + p.Create.Name + site.PathQuery(path)
	}
	if row := v.Site.Rows[show.Imports]; p.Shows.Defined.Values != "" && !deleted && v.May(p.Create) && v.May(row) {
		as := p.Shows.Resource + "s"
		for _, of := range path {
			as += ":" + of
		}
		view.Import = "/do/" + show.Imports + "?" + url.Values{"query.as": {as}}.Encode()
	}
	view.Links = p.LinksBelow(path, v.May)
	for _, row := range p.Exports {
		if v.May(row) {
			if row.Param("format").Name == "" {
				view.Exports = append(view.Exports, site.Link{Title: row.Summary, Address: row.Path})
			}
			for _, format := range row.Param("format").Enum {
				q := url.Values{"format": {format}}
				for name, values := range asked {
					if row.Param(rootOf(name)).Name != "" && name != "page" && name != "per_page" {
						q[name] = values
					}
				}
				if names := show.ColumnNames(columns, data.Get("results").Items); row.Param("columns").Name != "" && format == "csv" && view.Chosen && len(names) > 0 {
					q.Set("columns", strings.Join(names, ","))
				}
				e := ask.Call{Row: row, Path: path, Query: q.Encode()}
				view.Exports = append(view.Exports, site.Link{Title: strings.ToUpper(format), Address: e.Target()})
			}
		}
	}
	if p.Has("deleted") {
		if deleted {
			view.Title, view.Live = "Deleted "+strings.ToLower(title[:1])+title[1:], with(func(q url.Values) { q.Del("deleted"); q.Del("page") })
		} else {
			view.Trash = with(func(q url.Values) { q.Set("deleted", "true"); q.Del("page") })
		}
	}
	if p.Path == "/files" && !deleted {
		sorted(v, &view, asked, with)
	}
	view.Pager = show.NewPager(v, data, with)
	return view
}

// sorted adds the folders that files are in.
func sorted(v *visit.Visit, view *listView, asked url.Values, with func(func(url.Values)) string) {
	tree, ok := v.ReadNamed("folders.tree", "")
	if !ok {
		return
	}
	const name = "filters[folder_id]"
	address := func(key string) string {
		return with(func(q url.Values) {
			if q.Del("page"); key == "" {
				q.Del(name)
			} else {
				q.Set(name, key)
			}
		})
	}
	left := show.MaxDefined
	var within func(folders []strictjson.Value) []folderView
	within = func(folders []strictjson.Value) (all []folderView) {
		for _, f := range folders {
			if left--; left < 0 {
				break // the list of folders has the others
			}
			key := f.Get("id").Text
			all = append(all, folderView{site.Link{Title: show.Clip(f.Get("name").Text), Address: address(key), Current: asked.Get(name) == key}, key, within(f.Get("folders").Items)})
		}
		return all
	}
	if folders := within(tree.Get("results").Items); folders != nil {
		view.Tree = append([]folderView{{Link: site.Link{Title: "All files", Address: address(""), Current: !asked.Has(name)}}}, folders...)
	}
	if update := v.Site.Rows["files.update"]; v.May(update) {
		view.Move = "/do/" + update.Name
	}
	if update := v.Site.Rows["folders.update"]; v.May(update) {
		view.Moves = "/do/" + update.Name
	}
}

// filterText says what a filter asks for, in the words of the list.
func filterText(v *visit.Visit, p *site.Page, bracketed, value string, defined []show.DefinedField) string {
	field, rest, _ := strings.Cut(bracketed, "]")
	op := strings.Trim(rest, "[]")
	words := op
	for _, o := range show.Operators() {
		if o.Value == op {
			words = o.Title
		}
	}
	title := show.TitleOf(p, field, defined)
	if op == "exists" {
		return title + map[string]string{"true": " is there", "false": " is not there"}[value]
	}
	for _, c := range show.FilterValues(v, p, field, op, defined) {
		if c.Value == value {
			return title + " " + words + " " + c.Title
		}
	}
	return title + " " + words + " " + show.Field(v, p, field, strictjson.Value{Is: strictjson.Text, Text: value}, 0).Text
}

func rootOf(name string) string {
	root, _, _ := strings.Cut(name, "[")
	return root
}
