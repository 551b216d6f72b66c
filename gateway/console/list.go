package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// listView is a page with records.
type listView struct {
	chrome
	Note    string
	Columns []columnView
	Rows    []listRow
	Choices []choiceView // which columns there are
	Search  bool
	Q       string
	Kept    []hidden // what the forms of the page keep of its address
	Filters []filterView
	Fields  []choiceView // to filter by
	Words   []string     // that stand for values of theirs
	Chosen  bool         // not all columns, or those of the start
	New     string
	Actions []*button
	Import  string     // leads to the form that takes a file of such records
	Links   []linkView // to pages about all of them
	Exports []linkView
	Trash   string // leads to what was deleted
	Live    string // leads back
	pager
	Timed   bool // a column has times
	Over    *usageView
	Problem string       // what is wrong with the filters
	Clear   string       // leads to the list without filters and words; empty: there are none
	Tree    []folderView // into which the records are sorted
	Move    string       // where the form goes that moves one; empty: none is moved
	Moves   string       // where that goes which moves a folder
}

// pager says how many entries there are, and leads to the pages beside the one that is shown.
type pager struct {
	Count    string
	Previous string
	Next     string
	Beyond   string // leads to the last page, where the one that was asked for is beyond it
}

// folderView is a folder, with those within it.
type folderView struct {
	linkView
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
	Cells   []shown
	Buttons []*button
}

type choiceView struct {
	Value, Title string
	Chosen       bool
}

type filterView struct{ Text, Remove string }

const perPage = 50

// operators are the comparisons of filters in the words of people.
func operators() []choiceView {
	return []choiceView{
		{Value: "", Title: "is"}, {Value: "ne", Title: "is not"}, {Value: "contains", Title: "contains"}, {Value: "starts_with", Title: "begins with"},
		{Value: "contains_exact", Title: "contains, case as written"}, {Value: "starts_with_exact", Title: "begins with, case as written"},
		{Value: "gt", Title: "is more than"}, {Value: "gte", Title: "is at least"}, {Value: "lt", Title: "is less than"}, {Value: "lte", Title: "is at most"},
		{Value: "exists", Title: "is there (yes or no)"},
	}
}

// Operators are what a filter can compare by.
func (listView) Operators() []choiceView { return operators() }

// split parts the query of a page into what the operation is asked and what is the page's own.
func split(query url.Values) (asked, own url.Values) {
	asked, own = url.Values{}, url.Values{}
	for name, values := range query {
		if strings.HasPrefix(name, "_") {
			own[name] = values
		} else if len(values) > 0 && (values[0] != "" || len(values) > 1) {
			asked[name] = values
		}
	}
	return asked, own
}

func (v *visit) listPage(p *page, path map[string]string) {
	query, err := url.ParseQuery(v.r.URL.RawQuery)
	if err != nil {
		v.problem(http.StatusBadRequest, "The address is not complete", "Choose the page from the navigation.")
		return
	}
	asked, own := split(query)
	if field := own.Get("_field"); field != "" { // the form of filters was sent: its address is that of the list it asks for
		name := "filters[" + field + "]"
		if op := own.Get("_op"); op != "" {
			name += "[" + op + "]"
		}
		value := own.Get("_value")
		for _, c := range v.words(p, field, own.Get("_op"), v.defined(p.shows, path)) {
			if strings.EqualFold(c.Title, strings.TrimSpace(value)) { // as the list shows it
				value = c.Value
				break
			}
		}
		asked.Set(name, value)
		asked.Del("page")
		http.Redirect(v.w, v.r, p.at(path, asked, own["_columns"]), http.StatusSeeOther)
		return
	}
	if !asked.Has("per_page") && slices.ContainsFunc(p.shows.Params, func(q operation.Param) bool { return q.Name == "per_page" }) {
		asked.Set("per_page", strconv.Itoa(perPage))
	}
	if p.leads != nil && p.leads.update == nil && !asked.Has("sort") && slices.Contains(p.parameter("sort").Names, "created_at") {
		// What nobody changes is looked for by when it was.
		asked.Set("sort", "-created_at")
	}
	a, err := v.open(p.shows, path, asked.Encode())
	problem := wrongQuestion(a, err)
	if problem == "" && v.refused(a, err) {
		return
	}
	if asked.Get("per_page") == strconv.Itoa(perPage) {
		asked.Del("per_page")
	}
	view := v.layOutList(p, path, a.data, asked, own)
	if view.Problem = problem; problem != "" {
		view.Faulty = true
		view.Clear = p.address(path)
	}
	view.Curl = v.client.curl(v.t.Org.Slug, request{row: p.shows, path: path, query: asked.Encode()})
	v.show(a.code, "list", view)
}

// wrongQuestion says what is wrong with the filters or the order that a list was asked for; it is shown where they can be
// taken away. Empty: nothing is, or it is no question of those.
func wrongQuestion(a reply, err error) string {
	if err != nil || a.code != http.StatusUnprocessableEntity && a.code != http.StatusBadRequest {
		return ""
	}
	text := ""
	for _, f := range a.faults() {
		if filter, is := strings.CutPrefix(f.Field, "filters["); is {
			field, _, _ := strings.Cut(filter, "]")
			f.Message, f.Field = strings.Replace(f.Message, f.Field, field, 1), field
		}
		text = strings.TrimSpace(text + " " + said(f))
	}
	return cmp.Or(text, sentence(a.message))
}

// at returns the address of the page with that query.
func (p *page) at(path map[string]string, asked url.Values, columns []string) string {
	q := url.Values{}
	maps.Copy(q, asked)
	if len(columns) > 0 {
		q["_columns"] = columns
	}
	address := p.address(path)
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	return address
}

func (v *visit) layOutList(p *page, path map[string]string, data strictjson.Value, asked, own url.Values) listView {
	title := cmp.Or(clip(v.recordAbove(p, path).Get("label_plural").Text), p.title())
	view := listView{chrome: v.chrome(title), Q: asked.Get("q")}
	view.Trail = v.trail(p, path)
	defined := v.defined(p.shows, path)
	with := func(change func(url.Values)) string {
		q := url.Values{}
		maps.Copy(q, asked)
		change(q)
		return p.at(path, q, own["_columns"])
	}
	sorts, names := p.parameter("sort").Names, p.parameter("filters").Names
	for _, f := range defined {
		if f.kind != schema.Encrypted { // whose values nobody compares
			names = append(slices.Clone(names), f.key)
		}
	}
	columns, choices := v.columns(p, path, data.Get("results").Items, defined, own["_columns"])
	view.Choices = choices
	view.Chosen = own.Has("_columns")
	order := asked.Get("sort")
	if order == "" {
		order = p.parameter("sort").Default
	}
	for _, c := range columns {
		col := columnView{Name: c.name, Title: c.title}
		if v.numeric(p, c) {
			col.Class = "number"
		}
		if slices.Contains(sorts, c.name) && c.within == "" || len(sorts) > 0 && c.sorts {
			next := c.name
			switch order {
			case c.name:
				next, col.Order = "-"+c.name, "ascending"
			case "-" + c.name:
				col.Order = "descending"
			}
			col.Sort = with(func(q url.Values) { q.Set("sort", next); q.Del("page") })
		}
		view.Columns = append(view.Columns, col)
	}
	deleted := asked.Get("deleted") == "true"
	for _, record := range data.Get("results").Items {
		row := listRow{Name: nameOf(record, ""), Key: record.Get("id").Text}
		if p.leads != nil && v.may(p.leads.shows) {
			to := merged(path, p.leads.key(), keyOf(p.leads, record))
			if row.Href = p.leads.address(to); deleted {
				row.Href += "?deleted=true"
			}
			if restore := p.leads.action("restore"); deleted && v.may(restore) {
				row.Buttons = append(row.Buttons, v.button(restore, to, "Restore"))
			}
		}
		for i, c := range columns {
			cell := v.cell(p, c, record)
			cell.Text = clip(cell.Text)
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
	if days := data.Get("results").Items; p.shows.Over != "" && len(days) > 0 {
		over := v.days("Requests", p.shows.Over, days)
		view.Over = &over
	}
	for name, values := range asked {
		if name == "page" || name == "after" {
			continue
		}
		for _, value := range values {
			if name != "q" {
				view.Kept = append(view.Kept, hidden{name, value})
			}
			if rest, found := strings.CutPrefix(name, "filters["); found {
				view.Filters = append(view.Filters, filterView{v.filterText(p, rest, value, defined), with(func(q url.Values) { q.Del(name); q.Del("page") })})
			}
		}
	}
	for _, name := range own["_columns"] {
		view.Kept = append(view.Kept, hidden{"_columns", name})
	}
	slices.SortFunc(view.Kept, func(a, b hidden) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(view.Filters, func(a, b filterView) int { return strings.Compare(a.Text, b.Text) })
	if len(view.Filters) > 0 || view.Q != "" {
		view.Clear = with(func(q url.Values) {
			maps.DeleteFunc(q, func(name string, _ []string) bool {
				return name == "q" || name == "page" || strings.HasPrefix(name, "filters[")
			})
		})
	}
	view.Search = p.has("q")
	for _, name := range names {
		for _, c := range v.words(p, name, "", defined) {
			if !slices.Contains(view.Words, c.Title) {
				view.Words = append(view.Words, c.Title)
			}
		}
		view.Fields = append(view.Fields, choiceView{Value: name, Title: p.titleOf(name, defined)})
	}
	if v.may(p.create) && !deleted {
		view.New = "/do/" + p.create.Name + pathQuery(path)
	}
	if row := v.site.rows[imports]; p.shows.Defined.Values != "" && !deleted && v.may(p.create) && v.may(row) {
		as := p.shows.Resource + "s"
		for _, of := range path {
			as += ":" + of
		}
		view.Import = "/do/" + imports + "?" + url.Values{"query.as": {as}}.Encode()
	}
	view.Links = p.leadsTo(path, v.may)
	for _, row := range p.exports {
		if v.may(row) {
			if row.Param("format").Name == "" {
				view.Exports = append(view.Exports, linkView{Title: row.Summary, Address: row.Path})
			}
			for _, format := range row.Param("format").Enum {
				q := url.Values{"format": {format}}
				for name, values := range asked {
					if row.Param(rootOf(name)).Name != "" && name != "page" && name != "per_page" {
						q[name] = values
					}
				}
				if names := named(columns, data.Get("results").Items); row.Param("columns").Name != "" && format == "csv" && view.Chosen && len(names) > 0 {
					q.Set("columns", strings.Join(names, ","))
				}
				e := request{row: row, path: path, query: q.Encode()}
				view.Exports = append(view.Exports, linkView{Title: strings.ToUpper(format), Address: e.target()})
			}
		}
	}
	if p.has("deleted") {
		if deleted {
			view.Title, view.Live = "Deleted "+strings.ToLower(title[:1])+title[1:], with(func(q url.Values) { q.Del("deleted"); q.Del("page") })
		} else {
			view.Trash = with(func(q url.Values) { q.Set("deleted", "true"); q.Del("page") })
		}
	}
	if p.path == "/files" && !deleted {
		v.sorted(&view, asked, with)
	}
	view.pager = v.paged(data, with)
	return view
}

// sorted adds the folders that files are in.
func (v *visit) sorted(view *listView, asked url.Values, with func(func(url.Values)) string) {
	tree, ok := v.named("folders.tree", "")
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
	left := maxDefined
	var within func(folders []strictjson.Value) []folderView
	within = func(folders []strictjson.Value) (all []folderView) {
		for _, f := range folders {
			if left--; left < 0 {
				break // the list of folders has the others
			}
			key := f.Get("id").Text
			all = append(all, folderView{linkView{Title: clip(f.Get("name").Text), Address: address(key), Current: asked.Get(name) == key}, key, within(f.Get("folders").Items)})
		}
		return all
	}
	if folders := within(tree.Get("results").Items); folders != nil {
		view.Tree = append([]folderView{{linkView: linkView{Title: "All files", Address: address(""), Current: !asked.Has(name)}}}, folders...)
	}
	if update := v.site.rows["files.update"]; v.may(update) {
		view.Move = "/do/" + update.Name
	}
	if update := v.site.rows["folders.update"]; v.may(update) {
		view.Moves = "/do/" + update.Name
	}
}

// paged says how many records there are, and leads to the pages beside.
func (v *visit) paged(data strictjson.Value, with func(func(url.Values)) string) (view pager) {
	count, _ := strconv.Atoi(data.Get("count").Text)
	page, _ := strconv.Atoi(data.Get("page").Text)
	pages, _ := strconv.Atoi(data.Get("pages").Text)
	view.Count = map[bool]string{true: "1 entry", false: v.whole(count) + " entries"}[count == 1]
	last := func(q url.Values) { q.Set("page", strconv.Itoa(pages)) }
	switch {
	case page > pages && pages > 0:
		view.Beyond = with(last)
		view.Count += ", and page " + v.whole(page) + " is beyond the last, which is " + v.whole(pages)
	case pages > 1:
		view.Count += ", page " + v.whole(page) + " of " + v.whole(pages)
	}
	if page > 1 {
		view.Previous = with(func(q url.Values) { q.Set("page", strconv.Itoa(min(page-1, max(pages, 1)))) })
	}
	if page < pages {
		view.Next = with(func(q url.Values) { q.Set("page", strconv.Itoa(page+1)) })
	}
	if next := data.Get("next").Text; next != "" { // the page ends early, or follows one that did
		view.Next = with(func(q url.Values) {
			q.Del("page")
			q.Set("after", next)
		})
	}
	return view
}

// filterText says what a filter asks for, in the words of the list.
func (v *visit) filterText(p *page, bracketed, value string, defined []definedField) string {
	field, rest, _ := strings.Cut(bracketed, "]")
	op := strings.Trim(rest, "[]")
	words := op
	for _, o := range operators() {
		if o.Value == op {
			words = o.Title
		}
	}
	title := p.titleOf(field, defined)
	if op == "exists" {
		return title + map[string]string{"true": " is there", "false": " is not there"}[value]
	}
	for _, c := range v.words(p, field, op, defined) {
		if c.Value == value {
			return title + " " + words + " " + c.Title
		}
	}
	return title + " " + words + " " + v.field(p, field, strictjson.Value{Is: strictjson.Text, Text: value}, 0).Text
}

func rootOf(name string) string {
	root, _, _ := strings.Cut(name, "[")
	return root
}

// parameter returns the parameter of that name, or one without a name.
func (p *page) parameter(name string) operation.Param { return p.shows.Param(name) }

func (p *page) has(name string) bool { return p.shows.Param(name).Name != "" }

func merged(path map[string]string, name, value string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, path)
	all[name] = value
	return all
}

// keyOf returns what names the record in the path of its page.
func keyOf(each *page, record strictjson.Value) string {
	key := each.key()
	if value := record.Get(key); value.Is == strictjson.Text || value.Is == strictjson.Number {
		return value.Text
	}
	return record.Get("id").Text
}

func pathQuery(path map[string]string) string {
	if len(path) == 0 {
		return ""
	}
	q := url.Values{}
	for name, value := range path {
		q.Set("path."+name, value)
	}
	return "?" + q.Encode()
}

// leads returns the address of the record that a field refers to, and its resource.
func (v *visit) leads(p *page, name string, value strictjson.Value) (address, ref string) {
	if value.Is != strictjson.Text && value.Is != strictjson.Number || value.Text == "" {
		return "", ""
	}
	if name == "user_id" && v.whoIs("user:"+value.Text) != "" {
		ref = "user"
	}
	if f := p.field(name); ref == "" {
		if ref = v.site.declared(p, name).Rule.Ref; f != nil && f.Shape != operation.List && f.Ref != "" {
			ref = f.Ref
		}
	}
	list := v.site.listOf(ref)
	if list == nil || list.each == nil || strings.Contains(list.path, "{") || !v.may(list.each.shows) {
		return "", ""
	}
	return list.each.address(map[string]string{list.each.key(): value.Text}), ref
}

// listOf returns the page that lists the records of a resource.
func (s *site) listOf(resource string) *page {
	for _, p := range s.pages {
		if resource != "" && p.list && p.shows.Resource == resource && p.shows.Lists == "" {
			return p
		}
	}
	return nil
}

// trail leads back to where a page belongs.
func (v *visit) trail(p *page, path map[string]string) (links []linkView) {
	for i := 2; i < len(p.segments); i++ {
		above := strings.Join(p.segments[:i], "/")
		for _, other := range v.site.pages {
			if other.path == above && v.may(other.shows) {
				title := other.title()
				if key := other.key(); key != "" {
					title = clip(path[key])
					if a, err := v.read(other.shows, path, ""); err == nil && a.ok() {
						title = clip(v.nameOf(other.shows, path, a.data, title))
					}
				}
				links = append(links, linkView{Title: title, Address: other.address(path)})
			}
		}
	}
	return links
}

func itoa(n int) string { return strconv.Itoa(n) }
