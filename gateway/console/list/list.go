// Package list makes the page of a list, with its columns, filters, order and exports, and the page that searches all
// lists.
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
	"tenantry/gateway/console/files"
	"tenantry/gateway/console/followers"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/usage"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// listView is the page of a list. Its addresses are empty if there is nothing to link to.
type listView struct {
	visit.Chrome
	Note      string
	Columns   []columnView
	Rows      []listRow
	Choices   []layout.Option // the columns to choose from
	Search    bool
	Q         string
	Kept      []layout.Hidden // parameters of the address that the forms of the page keep
	Filters   []filterView
	Fields    []layout.Option // the fields to filter by
	Words     []string        // suggestions for the value of a filter
	Chosen    bool            // the reader chose the columns
	New       string
	Actions   []*layout.Button
	Import    string      // the address of the form that imports a file of such records
	Links     []site.Link // pages about the list
	Exports   []site.Link
	Followers string // the address of those who follow the records
	Trash     string // the address of the deleted records
	Live      string // the address of the records that are not deleted, on the page of the deleted ones
	show.Pager
	Timed   bool        // a column has times
	Over    *usage.View // a chart of the rows over time
	Problem string      // what is wrong with the filters
	Clear   string      // the address of the list without filters and words
	Tree    []folderView
	Zone    *files.Zone
	Stored  string // the address of the form that adds a file that is stored elsewhere
	Move    string // the action of the form that moves a file
	Moves   string // the action of the form that moves a folder
}

// folderView is a folder in the tree, with its subfolders.
type folderView struct {
	site.Link
	Key    string
	Within []folderView
}

type columnView struct {
	Name, Title, Class string
	Sort               string // the address of the list sorted by the column; empty if that is not possible
	Order              string // ascending, descending, or empty
}

type listRow struct {
	Href    string
	Key     string // the identifier of a record that can be dragged
	Name    string
	Cells   []show.Value
	Buttons []*layout.Button
}

type filterView struct{ Text, Remove string }

// Operators returns the operators of filters for the template.
func (listView) Operators() []layout.Option { return show.Operators() }

// Page answers with the page of a list.
func Page(v *visit.Visit, p *site.Page, path map[string]string) {
	query, err := url.ParseQuery(v.R.URL.RawQuery)
	if err != nil {
		v.Problem(http.StatusBadRequest, "The address is not valid", "Choose the page from the navigation.")
		return
	}
	asked, own := show.Split(query)
	if field := own.Get("_field"); field != "" { // the form that adds a filter redirects to the address with the filter
		name := "filters[" + field + "]"
		if op := own.Get("_op"); op != "" {
			name += "[" + op + "]"
		}
		value := own.Get("_value")
		for _, c := range show.FilterValues(v, p, field, own.Get("_op"), show.Defined(v, p.Shows, path)) {
			if strings.EqualFold(c.Title, strings.TrimSpace(value)) { // the reader typed the title of a value
				value = c.Value
				break
			}
		}
		asked.Set(name, value)
		asked.Del("page")
		http.Redirect(v.W, v.R, p.AddressWith(path, asked, own["_columns"]), http.StatusSeeOther)
		return
	}
	if !asked.Has("per_page") && p.Has("per_page") {
		asked.Set("per_page", strconv.Itoa(show.PerPage))
	}
	if p.RowPage != nil && p.RowPage.Update == nil && !asked.Has("sort") &&
		slices.Contains(p.Parameter("sort").Names, "created_at") {
		asked.Set("sort", "-created_at") // records that never change are looked up by their time
	}
	follows := v.Follow(p)
	a, err := v.Open(p.Shows, path, asked.Encode())
	problem := filterProblem(a, err)
	if problem == "" && v.Refused(a, err) {
		return
	}
	if asked.Get("per_page") == strconv.Itoa(show.PerPage) {
		asked.Del("per_page")
	}
	view := layOutList(v, p, path, a.Data, asked, own)
	if view.Follows = follows; follows != nil && followers.May(v) {
		view.Followers = followers.Path + "#" + follows.Kinds
	}
	if view.Problem = problem; problem != "" {
		view.HasProblems = true
		view.Clear = p.Address(path)
	}
	view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: p.Shows, Path: path, Query: asked.Encode()})
	v.Show(a.Code, "list", view)
}

// filterProblem returns what is wrong with the filters or the order of a list, or "". The page of the list shows it,
// because the reader can remove the filters there.
func filterProblem(a ask.Reply, err error) string {
	if err != nil || a.Code != http.StatusUnprocessableEntity && a.Code != http.StatusBadRequest {
		return ""
	}
	text := ""
	for _, f := range a.Faults() {
		if filter, found := strings.CutPrefix(f.Field, "filters["); found {
			field, _, _ := strings.Cut(filter, "]")
			f.Message, f.Field = strings.Replace(f.Message, f.Field, field, 1), field
		}
		text = strings.TrimSpace(text + " " + input.FaultSentence(f))
	}
	return cmp.Or(text, site.Sentence(a.Message))
}

// layOutList makes the view of a list. asked is the query of its operation, and own the parameters of the page.
func layOutList(
	v *visit.Visit, p *site.Page, path map[string]string, data strictjson.Value, asked, own url.Values,
) listView {
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
		if f.Type != schema.Encrypted { // encrypted values cannot be compared
			names = append(slices.Clone(names), f.Key)
		}
	}
	chosen := own["_columns"]
	if p.Path == files.ListPath && len(chosen) == 0 {
		chosen = files.Columns()
	}
	columns, choices := show.Columns(v, p, path, data.Get("results").Items, defined, chosen)
	if len(own["_columns"]) == 0 && len(chosen) > 0 {
		slices.SortFunc(columns, func(a, b show.Column) int {
			return cmp.Compare(slices.Index(chosen, a.Name), slices.Index(chosen, b.Name))
		})
	}
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
			if i == 0 && cell.Class == "none" { // the link to the record needs a text
				cell.Text = row.Name
			}
			if len(cell.List) > 6 {
				cell.List = append(cell.List[:6:6], "…")
			}
			switch number := view.Columns[i].Class == "number"; { // by the type of the column, not by the value
			case number && cell.Class == "none":
				cell.Class = "number none"
			case !number && cell.Class == "number":
				cell.Class = ""
			}
			view.Timed = view.Timed || cell.Time != ""
			if i == 0 {
				if cell.Href = row.Href; p.Path == files.ListPath {
					cell.Thumb = files.Thumb(record)
				}
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
				without := with(func(q url.Values) { q.Del(name); q.Del("page") })
				view.Filters = append(view.Filters, filterView{filterText(v, p, rest, value, defined), without})
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
				names := show.ColumnNames(columns, data.Get("results").Items)
				if row.Param("columns").Name != "" && format == "csv" && view.Chosen && len(names) > 0 {
					q.Set("columns", strings.Join(names, ","))
				}
				e := ask.Call{Row: row, Path: path, Query: q.Encode()}
				view.Exports = append(view.Exports, site.Link{Title: strings.ToUpper(format), Address: e.Target()})
			}
		}
	}
	if p.Has("deleted") {
		if deleted {
			view.Title = "Deleted " + site.Lower(title)
			view.Live = with(func(q url.Values) { q.Del("deleted"); q.Del("page") })
		} else {
			view.Trash = with(func(q url.Values) { q.Set("deleted", "true"); q.Del("page") })
		}
	}
	if p.Path == files.ListPath {
		files.Permit(v)
		if !deleted {
			addFolders(v, &view, asked, with)
			folder := asked.Get("filters[folder_id]")
			if view.Zone = files.NewZone(v, folder, with(func(q url.Values) { q.Del("page") })); view.Zone != nil {
				view.New, view.Stored, view.TakesFiles = "", view.New, true
			}
			view.Trail = append(view.Trail, files.Above(v, folder)...)
		}
	}
	view.Pager = show.NewPager(v, data, with)
	return view
}

// addFolders adds the tree of folders to the list of files.
func addFolders(v *visit.Visit, view *listView, asked url.Values, with func(func(url.Values)) string) {
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
				break // the page of folders lists the others
			}
			key := f.Get("id").Text
			link := site.Link{Title: show.Clip(f.Get("name").Text), Address: address(key), Current: asked.Get(name) == key}
			all = append(all, folderView{link, key, within(f.Get("folders").Items)})
		}
		return all
	}
	if folders := within(tree.Get("results").Items); folders != nil {
		root := site.Link{Title: "All files", Address: address(""), Current: !asked.Has(name)}
		view.Tree = append([]folderView{{Link: root}}, folders...)
	}
	if update := v.Site.Rows["files.update"]; v.May(update) {
		view.Move = "/do/" + update.Name
	}
	if update := v.Site.Rows["folders.update"]; v.May(update) {
		view.Moves = "/do/" + update.Name
	}
}

// filterText returns a filter in words.
func filterText(v *visit.Visit, p *site.Page, bracketed, value string, defined []show.DefinedField) string {
	field, rest, _ := strings.Cut(bracketed, "]")
	op := strings.Trim(rest, "[]")
	comparison := op
	for _, o := range show.Operators() {
		if o.Value == op {
			comparison = o.Title
		}
	}
	title := show.TitleOf(p, field, defined)
	if op == "exists" {
		return title + map[string]string{"true": " has a value", "false": " has no value"}[value]
	}
	for _, c := range show.FilterValues(v, p, field, op, defined) {
		if c.Value == value {
			return title + " " + comparison + " " + c.Title
		}
	}
	text := show.Field(v, p, field, strictjson.Value{Is: strictjson.Text, Text: value}, 0).Text
	return title + " " + comparison + " " + text
}

// rootOf returns the name of a parameter without its brackets.
func rootOf(name string) string {
	root, _, _ := strings.Cut(name, "[")
	return root
}
