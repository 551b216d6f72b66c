package console

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/api"
	"tenantry/gateway/console/chart"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// recordView is a page about one record, or what else an operation answers.
type recordView struct {
	chrome
	Note    string
	Problem string    // why what the page is about did not succeed
	Ask     []control // parameters of a question, which the page's form asks
	Missing bool      // the question lacks some
	Facts   []pair
	Table   *tableView
	Charts  []*chart.Chart
	Form    *formView
	Tried   *triedView
	Buttons []*button
	Actions []actionView
	Links   []linkView
	Exports []linkView
	Deleted bool
	Pages   *listView // which page of the rows this is
}

// triedView is what a form would show or reach, as it was typed.
type triedView struct {
	Note, Problem string
	Facts         []pair
	Table         *tableView
	Charts        []*chart.Chart
}

// actionView is a form behind its title.
type actionView struct {
	Title string
	Form  formView
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
		if q.In != api.InQuery || q.Name == "teams[]" || q.Name == "deleted" || paging(q.Name) || p.update != nil || p.remove != nil {
			continue
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
	var data strictjson.Value
	var tag string
	code := http.StatusOK
	if !view.Missing {
		a, err := v.read(p.shows, path, asked.Encode())
		if len(view.Ask) > 0 && err == nil && (a.code == http.StatusUnprocessableEntity || a.code == http.StatusBadRequest || a.code == http.StatusNotFound) {
			code = a.code
			for i := range view.Ask {
				for _, f := range a.faults() {
					if belongs(f.Field, rootOf(view.Ask[i].Name)) {
						view.Ask[i].Error = said(f)
					}
				}
			}
			if !slices.ContainsFunc(view.Ask, func(c control) bool { return c.Error != "" }) {
				view.Ask[0].Error = sentence(a.message)
			}
		} else if v.refused(a, err) {
			return
		}
		if code == http.StatusOK {
			data, tag = a.data, a.header.Get("ETag")
		}
	}
	title := p.title()
	if p.key() != "" || p.update != nil {
		name := v.nameOf(p.shows, path, data, "")
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
	if view.Problem != "" {
		view.Done = ""
	}
	view.Trail = v.trail(p, path)
	if len(view.Ask) > 0 || p.key() == "" && p.update == nil && above.Is != strictjson.Object {
		view.Note = p.shows.Description
	}
	view.Curl = v.curl(v.t.Org.Slug, request{row: p.shows, path: path, query: asked.Encode()})
	if code == http.StatusOK && !view.Missing {
		v.layOutRecord(&view, p, path, data, tag)
	}
	if rows := longest(data); rows.Get("pages").Is == strictjson.Number {
		view.Pages = &listView{}
		v.paged(view.Pages, rows, func(change func(url.Values)) string {
			q := maps.Clone(asked)
			change(q)
			return p.at(path, q, nil)
		})
	} else if next := data.Get("next").Text; next != "" && p.has("after") {
		view.Pages = &listView{Count: "There is more", Next: p.at(path, url.Values{"after": {next}}, nil)}
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
	inForm := []string{}
	if may(p.update, v.who, v.t) && !view.Deleted {
		data = v.completed(p, path, data)
		form := v.form(p.update, path, data, nil, nil)
		form.Hidden = append(form.Hidden, hidden{"_match", tag})
		view.Form = &form
		for _, c := range slices.Concat(form.Controls, form.More) {
			inForm = append(inForm, c.Name)
		}
	}
	if view.Facts, view.Table = v.facts(p, without(data, inForm...)); view.Table != nil {
		view.Charts = v.pictures(v.recordAbove(p, path), data)
	}
	if count := v.site.rows["campaigns.count"]; p.update != nil && p.update.Resource == "campaign" && may(count, v.who, v.t) {
		if a, err := v.read(count, path, ""); err == nil && a.ok() {
			view.Facts = append([]pair{{"Contacts who match", present(a.data.Get("count"), 0)}}, view.Facts...)
		}
	}
	for _, row := range p.actions {
		if !may(row, v.who, v.t) || strings.HasSuffix(row.Name, ".restore") != view.Deleted {
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
		view.Actions = append(view.Actions, actionView{row.Summary, v.form(row, path, strictjson.Value{}, nil, nil)})
	}
	if may(p.remove, v.who, v.t) {
		trash := p.action("restore") != nil
		b := v.button(p.remove, path, verb(p.remove))
		b.Danger = true
		switch {
		case view.Deleted && p.remove.Param("purge").Name != "":
			b.Title = "Delete for good"
			view.Actions = append(view.Actions, actionView{"Delete for good", formView{Action: b.Action, Hidden: append(b.Hidden, hidden{"query.purge", "true"}), Once: b.Once, Submit: b.Title, Danger: true}})
		case view.Deleted:
		case trash: // it can be undone, so nothing is asked
			view.Buttons = append(view.Buttons, b)
		default:
			view.Actions = append(view.Actions, actionView{verb(p.remove), formView{Action: b.Action, Hidden: b.Hidden, Once: b.Once, Submit: b.Title, Danger: true}})
		}
	}
	if view.Deleted {
		return
	}
	view.Links = append(v.elsewhere(p, path), v.leadsTo(p, path)...)
	for _, row := range p.exports {
		for _, format := range row.Param("format").Enum {
			if may(row, v.who, v.t) {
				e := request{row: row, path: path, query: url.Values{"format": {format}}.Encode()}
				view.Exports = append(view.Exports, linkView{Title: row.Summary + " (" + strings.ToUpper(format) + ")", Address: e.target()})
			}
		}
	}
}

// completed adds to a record what only the list shows of it, where the form wants that.
func (v *visit) completed(p *page, path map[string]string, data strictjson.Value) strictjson.Value {
	for _, list := range v.site.pages {
		key := p.key()
		if list.each != p || !slices.Contains(list.parameter("filters").Names, key) || !slices.ContainsFunc(p.update.Body, func(f api.Field) bool { return data.Get(f.Name).Is == strictjson.Null && !f.Secret }) {
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
func questions(row *api.Operation) (asked []api.Param) {
	for _, q := range row.Params {
		if q.In == api.InQuery && q.Name != "teams[]" && q.Name != "purge" && q.Shape != api.Tree {
			asked = append(asked, q)
		}
	}
	return asked
}

// question makes the control of a parameter of a query.
func question(q api.Param, asked url.Values) control {
	c := control{Name: q.Name, ID: "q-" + q.Name, Label: label(q.Name), Hint: q.Description, Kind: "text", Required: q.Required, Value: asked.Get(q.Name), MaxLength: q.Bounds.MaxLength}
	switch {
	case q.Shape == api.Tree || q.Shape == api.List:
		return control{}
	case len(q.Enum) > 0:
		c.Kind = "choice"
		for _, value := range q.Enum {
			c.Options = append(c.Options, choiceView{Value: value, Title: label(value), Chosen: value == c.Value})
		}
	case q.Shape == api.Boolean:
		c.Kind = "yes"
	case q.Shape == api.Integer:
		c.Kind = "number"
	}
	return c
}

// doPage shows the form of an operation by itself.
func (m *Module) doPage(v *visit) {
	row, path, ok := v.doing()
	if !ok {
		return
	}
	sent := v.r.URL.Query()
	fromForm(row, path, sent)
	if row.Method == http.MethodPut { // whose form is on the record's page
		http.Redirect(v.w, v.r, v.back(row, path), http.StatusSeeOther)
		return
	}
	form := v.form(row, path, strictjson.Value{}, nil, nil)
	for i, c := range form.Controls { // what the address says already
		if value := sent.Get(c.Name); value != "" && strings.HasPrefix(c.Name, "query.") {
			form.Controls[i].Value = value
		}
	}
	v.showForm(http.StatusOK, row, path, form)
}

// doing finds the operation of a form, and says so where there is none for this person.
func (v *visit) doing() (*api.Operation, map[string]string, bool) {
	row := v.site.rows[v.r.PathValue("operation")]
	switch {
	case row == nil || row.Method == http.MethodGet:
		v.missing()
	case !may(row, v.who, v.t):
		p := api.ProblemOf(errors.Join(row.Admits(v.who, ""), row.Rule.Check(v.who, v.t)))
		v.problem(http.StatusForbidden, "You may not do this", p.Message+". An administrator of "+v.t.Org.Name+" can give you the right.")
	default:
		return row, map[string]string{}, true
	}
	return nil, nil, false
}

func (v *visit) showForm(code int, row *api.Operation, path map[string]string, form formView) {
	view := recordView{chrome: v.chrome(row.Summary), Form: &form, Note: row.Description}
	form.Cancel = v.back(row, path)
	view.Curl = v.curl(v.t.Org.Slug, request{row: row, path: path, body: sample(row)})
	v.show(code, "record", view)
}

// back returns the page that a form belongs to.
func (v *visit) back(row *api.Operation, path map[string]string) string {
	for at := strings.TrimPrefix(row.Path, "/api"); at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		for _, p := range v.site.pages {
			if p.path == at && may(p.shows, v.who, v.t) {
				return p.address(path)
			}
		}
	}
	return "/"
}

// doIt carries a form out.
func (m *Module) doIt(v *visit) {
	row, path, ok := v.doing()
	if !ok {
		return
	}
	if row.Upload != nil {
		v.takeFile(row, path)
		return
	}
	sent, ok := v.sent()
	if !ok {
		return
	}
	fromForm(v.typed(row, sent), path, sent)
	query := asked(sent)
	if sent.Has("_more") { // a part of the form depends on what was typed, or a line more is wanted
		v.again(http.StatusOK, v.typed(row, sent), path, sent, nil, "")
		return
	}
	body, faults := v.body(row, path, sent)
	if v.lacked != nil { // of which fields there are
		v.refused(*v.lacked, nil)
		return
	}
	if faults != nil {
		v.again(http.StatusUnprocessableEntity, v.typed(row, sent), path, sent, faults, "")
		return
	}
	if sent.Has("_try") {
		v.matching(row, path, sent, body)
		return
	}
	if row.Reads && sent.Has("_part") && body["title"] == "" {
		body["title"] = "Without a title" // which matters when it is stored
	}
	v.carry(request{row: row, path: path, query: query.Encode(), body: body, match: sent.Get("_match"), once: sent.Get("_once")}, sent, query)
}

// sent reads a form, and says so where it cannot.
func (v *visit) sent() (url.Values, bool) {
	v.r.Body = http.MaxBytesReader(v.w, v.r.Body, maxForm)
	if err := v.r.ParseForm(); err != nil || !strings.HasPrefix(v.r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		v.problem(http.StatusBadRequest, "The form did not arrive", "It may be too large. Go back and try again.")
		return nil, false
	}
	if crowded(v.r.PostForm) {
		v.problem(http.StatusBadRequest, "The form has too many lines", "Go back and leave some out.")
		return nil, false
	}
	return v.r.PostForm, true
}

// asked returns what a form gives of the operation's query.
func asked(sent url.Values) url.Values {
	query := url.Values{}
	for name, values := range sent {
		if key, is := strings.CutPrefix(name, "query."); is && values[0] != "" {
			query[key] = values
		}
	}
	return query
}

// typed returns the operation of the form that was sent: where that was only tried, the one which will store it.
func (v *visit) typed(row *api.Operation, sent url.Values) *api.Operation {
	if stores := v.site.rows[sent.Get("_for")]; row.Reads && stores != nil && stores.Resource == row.Resource && stores.Body != nil && may(stores, v.who, v.t) {
		return stores
	}
	return row
}

// fromForm notes the parameters of the operation's path that a form gives, and no others: they would make another path of it.
func fromForm(row *api.Operation, path map[string]string, sent url.Values) {
	for _, p := range row.Params {
		if name := "path." + p.Name; p.In == api.InPath && sent.Has(name) {
			path[p.Name] = sent.Get(name)
		}
	}
}

// carry makes the call of a form, and leads on or shows the form again.
func (v *visit) carry(q request, sent, query url.Values) {
	row, path := q.row, q.path
	a, err := v.ask(v.r.Context(), v.r, q)
	row = v.typed(row, sent)
	switch {
	case err == nil && a.ok() && q.row.Reads && !q.row.Once:
		v.tried(q, row, sent, a)
	case err == nil && a.ok() && query.Get("preview") == "true":
		sent.Del("query.preview") // what follows is meant
		t := triedView{Note: "This is what it would touch. Nothing has been changed yet."}
		t.Facts, _ = v.facts(&page{shows: q.row}, a.data.Get("touches"))
		v.showTried(q, row, path, sent, &t)
	case err == nil && a.ok():
		v.done(row, path, query, a)
	case err == nil && a.code == http.StatusPreconditionFailed:
		v.again(a.code, row, path, sent, nil, "Somebody else has changed this meanwhile. What you typed is below; compare it with how it is now, and save again to replace it.")
	case err == nil && (a.code == http.StatusUnprocessableEntity || a.code == http.StatusBadRequest || a.code == http.StatusConflict || a.code == http.StatusRequestEntityTooLarge):
		list := a.faults()
		text := ""
		if len(list) == 0 {
			text = sentence(a.message)
		}
		v.again(a.code, row, path, sent, list, text)
	default:
		v.refused(a, err)
	}
}

// again shows the form as it was typed, and what is wrong with it.
func (v *visit) again(code int, row *api.Operation, path map[string]string, sent url.Values, faults []fault.Fault, text string) {
	if sent.Has("_part") {
		for i := range faults {
			text = strings.TrimSpace(text + " " + sentence(faults[i].Message))
		}
		v.render(v.w, http.StatusOK, "tried", triedView{Problem: text}) // a browser would report each other code as a fault of the page
		return
	}
	sent.Set("_once", onceKey()) // what was refused is another request when it is sent again
	current, tag := v.current(row, path)
	form := v.form(row, path, current, sent, faults)
	if code != http.StatusPreconditionFailed {
		tag = sent.Get("_match") // of what the form was made from
	}
	if tag != "" {
		form.Hidden = append(form.Hidden, hidden{"_match", tag})
	}
	if form.Error == "" {
		form.Error = text
	}
	v.showForm(code, row, path, form)
}

// current returns the record that a form changes, and its tag; null where it makes one.
func (v *visit) current(row *api.Operation, path map[string]string) (strictjson.Value, string) {
	p, _ := v.site.find(strings.TrimPrefix((&request{row: row, path: path}).target(), "/api"))
	if p == nil || row.Method != http.MethodPut {
		return strictjson.Value{}, ""
	}
	a, err := v.read(p.shows, path, "")
	if err != nil || !a.ok() {
		return strictjson.Value{}, ""
	}
	return v.completed(p, path, a.data), a.header.Get("ETag")
}

// tried shows what an operation answered that stores nothing, beside the form as it was typed.
func (v *visit) tried(q request, row *api.Operation, sent url.Values, a reply) {
	const first, last = "This is what it would show", ". Nothing has been stored yet."
	t := triedView{Note: first + last}
	if t.Facts, t.Table = v.facts(&page{shows: q.row}, a.data); t.Table != nil {
		t.Charts = v.pictures(parse(q.body), a.data)
		t.Facts, t.Note = nil, first+" ("+counted(a.data)+")"+last
	}
	v.showTried(q, row, q.path, sent, &t)
}

// counted says how many rows there are of a report.
func counted(answer strictjson.Value) string {
	switch count := answer.Get("count").Text; {
	case answer.Get("truncated").Is == strictjson.True:
		return "the first " + count + " rows of more"
	case count == "1":
		return "1 row"
	default:
		return count + " rows"
	}
}

// showTried shows that beside the form as it was typed, or alone where that is what is asked for.
func (v *visit) showTried(q request, row *api.Operation, path map[string]string, sent url.Values, t *triedView) {
	if sent.Has("_part") {
		v.show(http.StatusOK, "tried", t)
		return
	}
	view := recordView{chrome: v.chrome(row.Summary), Tried: t}
	current, _ := v.current(row, path)
	form := v.form(row, path, current, sent, nil)
	form.Cancel = v.back(row, path)
	if tag := sent.Get("_match"); tag != "" {
		form.Hidden = append(form.Hidden, hidden{"_match", tag})
	}
	view.Form = &form
	view.Curl = v.curl(v.t.Org.Slug, q)
	v.show(http.StatusOK, "record", view)
}

// done leads on where something was done. A secret that is told once is shown at once.
func (v *visit) done(row *api.Operation, path map[string]string, query url.Values, a reply) {
	handOn(v.w, a.header)
	if row.Once && len(a.data.Members) > 0 {
		view := recordView{chrome: v.chrome(row.Message), Note: "This is shown once. Copy it now, and keep it where nobody else can read it."}
		first := []string{"link", "url", "token", "value"} // what is to be copied
		slices.SortStableFunc(a.data.Members, func(a, b strictjson.Member) int {
			return cmp.Compare(uint(slices.Index(first, a.Name)), uint(slices.Index(first, b.Name)))
		})
		view.Facts, _ = v.facts(&page{shows: row}, a.data)
		view.Links = []linkView{{Title: "Go on", Address: v.back(row, path)}}
		v.render(v.w, http.StatusOK, "record", view)
		return
	}
	q := url.Values{"_done": {row.Name}}
	var target string
	p, _ := v.site.find(strings.TrimPrefix((&request{row: row, path: path}).target(), "/api"))
	switch {
	case p != nil && p.list && p.each != nil && a.data.Is == strictjson.Object:
		target = p.each.address(merged(path, p.each.key(), keyOf(p.each, a.data)))
	case row.Method == http.MethodDelete && p != nil && p.key() != "":
		target = v.above(p, path)
		if query.Get("purge") != "" {
			q.Set("deleted", "true")
		} else if p.action("restore") != nil {
			q.Set("_undo", path[p.key()])
		}
	case strings.HasSuffix(row.Name, ".duplicate") && p == nil:
		target = v.back(row, path)
		if parent, _ := v.site.find(target); parent != nil && parent.key() != "" {
			target = parent.address(merged(path, parent.key(), keyOf(parent, a.data)))
		}
	default:
		target = v.back(row, path)
	}
	http.Redirect(v.w, v.r, target+"?"+q.Encode(), http.StatusSeeOther)
}

// above returns the address of the list that a record is in.
func (v *visit) above(p *page, path map[string]string) string {
	for _, list := range v.site.pages {
		if list.each == p {
			return list.address(path)
		}
	}
	return "/"
}
