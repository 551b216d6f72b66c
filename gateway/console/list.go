package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/api"
	"tenantry/backends/schema"
	"tenantry/internal/strictjson"
)

// listView is a page with records.
type listView struct {
	chrome
	Note     string
	Columns  []columnView
	Rows     []listRow
	Choices  []choiceView // which columns there are
	Search   bool
	Q        string
	Kept     []hidden // what the forms of the page keep of its address
	Filters  []filterView
	Fields   []choiceView // to filter by
	Words    []string     // that stand for values of theirs
	Chosen   bool         // not all columns, or those of the start
	New      string
	Actions  []*button
	Import   string     // leads to the form that takes a file of such records
	Links    []linkView // to pages about all of them
	Exports  []linkView
	Trash    string // leads to what was deleted
	Live     string // leads back
	Count    string
	Timed    bool // a column has times
	Over     *usageView
	Previous string
	Next     string
	Beyond   string       // leads to the last page, where the one that was asked for is beyond it
	Problem  string       // what is wrong with the filters
	Clear    string       // leads to the list without filters and words; empty: there are none
	Tree     []folderView // into which the records are sorted
	Move     string       // where the form goes that moves one; empty: none is moved
	Moves    string       // where that goes which moves a folder
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
	if !asked.Has("per_page") && slices.ContainsFunc(p.shows.Params, func(q api.Param) bool { return q.Name == "per_page" }) {
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
	view.Curl = v.curl(v.t.Org.Slug, request{row: p.shows, path: path, query: asked.Encode()})
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
	columns := v.columns(p, path, data.Get("results").Items, defined, own["_columns"], &view)
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
		if p.leads != nil && may(p.leads.shows, v.who, v.t) {
			to := merged(path, p.leads.key(), keyOf(p.leads, record))
			if row.Href = p.leads.address(to); deleted {
				row.Href += "?deleted=true"
			}
			if restore := p.leads.action("restore"); deleted && may(restore, v.who, v.t) {
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
	if may(p.create, v.who, v.t) && !deleted {
		view.New = "/do/" + p.create.Name + pathQuery(path)
	}
	if row := v.site.rows[imports]; p.shows.Defined.Values != "" && !deleted && may(p.create, v.who, v.t) && may(row, v.who, v.t) {
		as := p.shows.Resource + "s"
		for _, of := range path {
			as += ":" + of
		}
		view.Import = "/do/" + imports + "?" + url.Values{"query.as": {as}}.Encode()
	}
	view.Links = v.leadsTo(p, path)
	for _, row := range p.exports {
		if may(row, v.who, v.t) {
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
	v.paged(&view, data, with)
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
	if update := v.site.rows["files.update"]; may(update, v.who, v.t) {
		view.Move = "/do/" + update.Name
	}
	if update := v.site.rows["folders.update"]; may(update, v.who, v.t) {
		view.Moves = "/do/" + update.Name
	}
}

// paged says how many records there are, and leads to the pages beside.
func (v *visit) paged(view *listView, data strictjson.Value, with func(func(url.Values)) string) {
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
func (p *page) parameter(name string) api.Param { return p.shows.Param(name) }

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

// column is a field of the records, or one that the organization defined.
type column struct {
	name, title string
	kind        string // of a field that the organization defined
	within      string // the field that has it
	sorts       bool   // a list can have the order of it, though it is defined
}

func (c column) of(record strictjson.Value) strictjson.Value {
	if c.within != "" {
		record = record.Get(c.within)
	}
	return record.Get(c.name)
}

// named returns what files of the records call the columns: one that an organization defined comes with what holds it, where a field of
// all records is called so.
func named(columns []column, records []strictjson.Value) (names []string) {
	for _, c := range columns {
		own := c.within != "" && slices.ContainsFunc(records, func(r strictjson.Value) bool {
			return slices.ContainsFunc(r.Members, func(m strictjson.Member) bool { return m.Name == c.name })
		})
		if own {
			c.name = c.within + "." + c.name
		}
		names = append(names, c.name)
	}
	return names
}

// numeric reports whether the type of a column is one of numbers, but those that name something.
func (v *visit) numeric(p *page, c column) bool {
	if c.within != "" {
		return c.kind == schema.Number
	}
	told := v.site.declared(p, c.name).Type
	for told != nil && told.Kind() == reflect.Pointer {
		told = told.Elem()
	}
	return told != nil && told.Kind() >= reflect.Int && told.Kind() <= reflect.Float64 && !strings.HasSuffix(c.name, "_at")
}

// cell shows what a record has in a column.
func (v *visit) cell(p *page, c column, record strictjson.Value) shown {
	if c.within != "" {
		return v.ownValue(c.kind, c.of(record), deepest)
	}
	value := c.of(record)
	if c.name == "subject" && value.Is == strictjson.Text {
		value.Text = doer(record)
	}
	return v.field(p, c.name, value, deepest)
}

// few is how many columns a list begins with.
const few = 6

// columns returns the columns that are shown, and notes which there are. Those of the start are the ones people
// know a record by, and then those that come first, but for identifiers and for what has parts.
func (v *visit) columns(p *page, path map[string]string, records []strictjson.Value, defined []definedField, chosen []string, view *listView) (all []column) {
	var there []column
	if len(records) > 0 {
		for _, m := range records[0].Members {
			if m.Name == p.shows.Defined.Values && len(defined) > 0 {
				continue
			}
			there = append(there, column{name: m.Name, title: p.called(m.Name)})
		}
	}
	for _, f := range defined {
		if f.kind != "Encrypted" {
			own := slices.ContainsFunc(there, func(c column) bool { return c.within == "" && c.name == f.key }) // which its name means
			there = append(there, column{name: f.key, title: f.title, kind: f.kind, within: p.shows.Defined.Values, sorts: f.kind != "MultiSelect" && !own})
		}
	}
	plain := func(c column) bool {
		if slices.Contains([]string{"id", "pid", "org_id", "user_id", "teams", "account", "begins", "may"}, c.name) || strings.HasPrefix(c.name, "external_") || strings.HasPrefix(c.name, "unused_") || strings.HasSuffix(c.name, "_at") && c.name != "created_at" && c.name != "last_used_at" {
			return false
		}
		if thing := strings.TrimSuffix(c.name, "_id"); slices.ContainsFunc(there, func(other column) bool { return other.name == thing+"_name" }) {
			return false // it is there by its name
		}
		for _, key := range path {
			if c.within == "" && !slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != key }) {
				return false // the address says it already
			}
		}
		return !slices.ContainsFunc(records, func(r strictjson.Value) bool {
			return c.of(r).Is == strictjson.Object || c.within == "" && webAddress(c.of(r).Text) != "" // which says nothing to people
		})
	}
	if len(chosen) == 0 {
		for _, name := range naming() {
			for _, c := range there {
				if c.name == name && name != "id" && c.within == "" && len(all) < 2 && slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != "" }) {
					all = append(all, c)
				}
			}
		}
		for _, name := range []string{"last_name", "first_name", "phone"} {
			for _, c := range there {
				if c.name == name && c.within == "" && len(all) == 0 && slices.ContainsFunc(records, func(r strictjson.Value) bool { return c.of(r).Text != "" }) {
					all = append(all, c)
				}
			}
		}
		name := namingField(defined)
		if i := slices.IndexFunc(there, func(c column) bool { return c.within != "" && c.name == name }); i >= 0 && len(all) == 0 {
			all = append(all, there[i])
		}
		for _, name := range []string{"visual", "state"} { // how it is goes before how it was made
			if i := slices.IndexFunc(there, func(c column) bool { return c.name == name }); i > 2 {
				said := there[i]
				there = slices.Insert(slices.Delete(there, i, i+1), 2, said)
			}
		}
		most := few
		if p.leads != nil && p.leads.update == nil && slices.ContainsFunc(there, func(c column) bool { return c.name == "created_at" }) {
			most-- // what nobody changes is known by when it was
		}
		for _, c := range there {
			if len(all) < most && plain(c) && !slices.Contains(all, c) && c.name != "created_at" {
				all = append(all, c)
			}
		}
		for _, c := range there {
			if c.name == "created_at" && len(all) < few {
				all = append(all, c)
			}
		}
		if len(all) == 0 {
			all = there[:min(len(there), few)]
		}
	} else {
		for _, c := range there {
			if slices.Contains(chosen, c.name) {
				all = append(all, c)
			}
		}
	}
	for _, c := range there {
		view.Choices = append(view.Choices, choiceView{Value: c.name, Title: c.title, Chosen: slices.Contains(all, c)})
	}
	return all
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
		if ref = v.site.declared(p, name).Rule.Ref; f != nil && f.Shape != api.List && f.Ref != "" {
			ref = f.Ref
		}
	}
	list := v.site.listOf(ref)
	if list == nil || list.each == nil || strings.Contains(list.path, "{") || !may(list.each.shows, v.who, v.t) {
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
			if other.path == above && may(other.shows, v.who, v.t) {
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
