package console

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// doPage shows the form of an operation by itself.
func doPage(v *visit) {
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
	f := v.form(row, path, strictjson.Value{}, nil, nil)
	for i, c := range f.Controls { // what the address says already
		if value := strings.Join(sent[c.Name], "\n"); value != "" && strings.HasPrefix(c.Name, "query.") {
			f.Controls[i].choose(value)
		}
	}
	v.showForm(http.StatusOK, ask.Call{Row: row, Path: path, Query: asked(row, sent).Encode(), Body: ask.SampleBody(row)}, f)
}

// doing finds the operation of a form, and says so where there is none for this person.
func (v *visit) doing() (*operation.Row, map[string]string, bool) {
	row := v.site.Rows[v.r.PathValue("operation")]
	switch {
	case row == nil || row.Method == http.MethodGet:
		v.missing()
	case !v.may(row):
		p := operation.ProblemOf(errors.Join(row.Admits(v.who, ""), row.Rule.Check(v.who, v.t)))
		lacks, _ := p.Data.(map[string]string)
		v.problem(http.StatusForbidden, "You may not do this", inWords(p.Message, lacks["permission"])+". An administrator of "+v.t.Org.Name+" can give you the right.")
	default:
		return row, map[string]string{}, true
	}
	return nil, nil, false
}

// showForm shows a form, and the call that it makes.
func (v *visit) showForm(code int, q ask.Call, f formView) {
	view := recordView{chrome: v.chrome(q.Row.Summary), Form: &f, Note: q.Row.Ask}
	if f.Cancel = v.back(q.Row, q.Path); f.Submit == forGood {
		f.Cancel += "?deleted=true"
	}
	view.Curl = v.client.Curl(v.t.Org.Slug, q)
	view.Faulty = f.Error != "" || f.Problems != nil
	v.show(code, "record", view)
}

// written returns the call that a form makes as it was typed, without what is secret.
func (v *visit) written(row *operation.Row, path map[string]string, sent url.Values) ask.Call {
	body, _ := v.body(row, path, sent) // what is wrong was told
	for name, kind := range sent {
		if name, is := strings.CutPrefix(name, "_has."); is && kind[0] == "secret" {
			delete(body, name)
			within, part, _ := strings.Cut(name, ".")
			if parts, is := body[within].(map[string]any); is {
				delete(parts, part)
			}
		}
	}
	return ask.Call{Row: row, Path: path, Query: asked(row, sent).Encode(), Body: body}
}

// back returns the page that a form belongs to.
func (v *visit) back(row *operation.Row, path map[string]string) string {
	whole := strings.TrimPrefix(row.Path, "/api")
	for at := whole; at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		for _, p := range v.site.Pages {
			if (p.Path == at || at == whole && p.Path == at+"s") && v.may(p.Shows) {
				return p.Address(path)
			}
		}
	}
	return "/"
}

// doIt carries a form out.
func doIt(v *visit) {
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
	query := asked(row, sent)
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
	v.carry(ask.Call{Row: row, Path: path, Query: query.Encode(), Body: body, IfMatch: sent.Get("_match"), OnceKey: sent.Get("_once")}, sent, query)
}

// sent reads a form, and says so where it cannot.
func (v *visit) sent() (url.Values, bool) {
	var sent url.Values
	var err error
	typed := strings.HasPrefix(v.r.Header.Get("Content-Type"), "application/x-www-form-urlencoded")
	if typed {
		var body []byte
		if body, err = v.arriving.Form(v.r, maxForm); err == nil {
			sent, err = url.ParseQuery(string(body))
		}
	}
	if full := (*operation.Problem)(nil); errors.As(err, &full) {
		v.pages.TooMany(v.w, v.r, full)
		return nil, false
	}
	if err != nil || !typed {
		v.problem(http.StatusBadRequest, "The form did not arrive", "It may be too large. Go back and try again.")
		return nil, false
	}
	if crowded(sent) {
		v.problem(http.StatusBadRequest, "The form has too many lines", "Go back and leave some out.")
		return nil, false
	}
	return sent, true
}

// typed returns the operation of the form that was sent: where that was only tried, the one which will store it.
func (v *visit) typed(row *operation.Row, sent url.Values) *operation.Row {
	if stores := v.site.Rows[sent.Get("_for")]; row.Reads && stores != nil && stores.Resource == row.Resource && stores.Body != nil && v.may(stores) {
		return stores
	}
	return row
}

// carry makes the call of a form, and leads on or shows the form again.
func (v *visit) carry(q ask.Call, sent, query url.Values) {
	row, path := q.Row, q.Path
	if q.Row.Reads && q.Row.Param(whole).Name != "" {
		query.Set(whole, "true") // what is drawn is drawn of all
		q.Query = query.Encode()
	}
	a, err := v.client.Ask(v.r.Context(), v.r, q)
	row = v.typed(row, sent)
	switch {
	case err == nil && a.Ok() && q.Row.Reads && !q.Row.Once:
		v.tried(q, row, sent, a)
	case err == nil && a.Ok() && query.Get("preview") == "true":
		sent.Del("query.preview") // what follows is meant
		t := triedView{Note: "This is what it would touch. Nothing has been changed yet."}
		t.Facts, _ = v.facts(&site.Page{Shows: q.Row}, path, a.Data.Get("touches"))
		v.showTried(q, row, path, sent, &t)
	case err == nil && a.Ok():
		v.done(row, path, query, a)
	case err == nil && a.Code == http.StatusPreconditionFailed:
		v.again(a.Code, row, path, sent, nil, "Somebody else has changed this meanwhile. What you typed is below; compare it with how it is now, and save again to replace it.")
	case err == nil && (a.Code == http.StatusUnprocessableEntity || a.Code == http.StatusBadRequest || a.Code == http.StatusConflict || a.Code == http.StatusRequestEntityTooLarge):
		list := a.Faults()
		text := ""
		if len(list) == 0 {
			text = site.Sentence(a.Message)
		}
		v.again(a.Code, row, path, sent, list, text)
	default:
		v.refused(a, err)
	}
}

// again shows the form as it was typed, and what is wrong with it.
func (v *visit) again(code int, row *operation.Row, path map[string]string, sent url.Values, faults []fault.Fault, text string) {
	if sent.Has("_part") {
		t := triedView{}
		for _, f := range faults {
			top := slices.IndexFunc(row.Body, func(b operation.Field) bool { return b.Name == f.Field })
			switch {
			case top < 0:
				text += " " + site.Sentence(f.Message)
			case f.Code == fault.Required: // what nobody came to yet is not wrong
				t.Note = "It is shown here once you have filled in what is required."
			default:
				text += " " + told(f, f.Field, site.Title(row.Body[top].Ask, f.Field))
			}
		}
		t.Problem = strings.TrimSpace(text)
		v.pages.Render(v.w, http.StatusOK, "tried", t) // a browser would report each other code as a fault of the page
		return
	}
	sent.Set("_once", ask.NewOnceKey()) // what was refused is another request when it is sent again
	current, tag := v.current(row, path)
	f := v.form(row, path, current, sent, faults)
	if code != http.StatusPreconditionFailed {
		tag = sent.Get("_match") // of what the form was made from
	}
	if tag != "" {
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
	}
	if f.Error == "" {
		f.Error = text
	}
	q := v.written(row, path, sent)
	q.IfMatch = tag
	v.showForm(code, q, f)
}

// current returns the record that a form changes, and its tag; null where it makes one.
func (v *visit) current(row *operation.Row, path map[string]string) (strictjson.Value, string) {
	p, _ := v.site.Find(strings.TrimPrefix((&ask.Call{Row: row, Path: path}).Target(), "/api"))
	if p == nil || row.Method != http.MethodPut {
		return strictjson.Value{}, ""
	}
	a, err := v.read(p.Shows, path, "")
	if err != nil || !a.Ok() {
		return strictjson.Value{}, ""
	}
	return v.completed(p, path, a.Data), a.Header.Get("ETag")
}

// tried shows what an operation answered that stores nothing, beside the form as it was typed.
func (v *visit) tried(q ask.Call, row *operation.Row, sent url.Values, a ask.Reply) {
	const first = "This is what it would show"
	last := ". Nothing has been stored yet."
	if row.Method == http.MethodPut {
		last = ". It is stored when you save it."
	}
	t := triedView{Note: first + last}
	asked := url.Values{}
	if t.Facts, t.Table = v.facts(&site.Page{Shows: q.Row}, q.Path, portion(a.Data, asked)); t.Table != nil {
		t.Figures, t.Charts = draw(v.locale(), parse(q.Body), a.Data, asked, t.Table)
		t.Facts, t.Note = nil, first+" ("+v.counted(a.Data)+")"+last
		if all := a.Data.Get("results").Items; len(all) > len(t.Table.Rows) {
			t.Note += " The table has the first " + v.whole(len(t.Table.Rows)) + " of them."
		}
	}
	v.showTried(q, row, q.Path, sent, &t)
}

// counted says how many rows there are of a report.
func (v *visit) counted(answer strictjson.Value) string {
	switch rows := len(answer.Get("results").Items); {
	case answer.Get("truncated").Is == strictjson.True:
		return cutText(v.locale(), rows, count(answer, "total"))
	case rows == 1:
		return "1 row"
	default:
		return v.whole(rows) + " rows"
	}
}

// showTried shows that beside the form as it was typed, or alone where that is what is asked for.
func (v *visit) showTried(q ask.Call, row *operation.Row, path map[string]string, sent url.Values, t *triedView) {
	if sent.Has("_part") {
		v.show(http.StatusOK, "tried", t)
		return
	}
	view := recordView{chrome: v.chrome(row.Summary), Tried: t}
	current, _ := v.current(row, path)
	f := v.form(row, path, current, sent, nil)
	f.Cancel = v.back(row, path)
	if tag := sent.Get("_match"); tag != "" {
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
	}
	view.Form = &f
	view.Curl = v.client.Curl(v.t.Org.Slug, q)
	v.show(http.StatusOK, "record", view)
}

// done leads on where something was done. A secret that is told once is shown at once.
func (v *visit) done(row *operation.Row, path map[string]string, query url.Values, a ask.Reply) {
	ask.PassOn(v.w, a.Header)
	if row.Once && len(a.Data.Members) > 0 {
		view := recordView{chrome: v.chrome(row.Message), Note: "This is shown once. Copy it now, and keep it where nobody else can read it."}
		first := []string{"link", "url", "token", "field_value"} // what is to be copied
		slices.SortStableFunc(a.Data.Members, func(a, b strictjson.Member) int {
			return cmp.Compare(uint(slices.Index(first, a.Name)), uint(slices.Index(first, b.Name)))
		})
		view.Facts, _ = v.facts(&site.Page{Shows: row}, path, a.Data)
		for i := range view.Facts {
			view.Facts[i].Value.Copy = slices.Contains(first, a.Data.Members[i].Name)
		}
		view.Links = []site.Link{{Title: "Go on", Address: v.back(row, path)}}
		v.pages.Render(v.w, http.StatusOK, "record", view)
		return
	}
	q := url.Values{"_done": {row.Name}}
	var target string
	at, purged := strings.CutSuffix((&ask.Call{Row: row, Path: path}).Target(), "/purge")
	purged = purged || query.Get("purge") != ""
	p, _ := v.site.Find(strings.TrimPrefix(at, "/api"))
	switch {
	case p != nil && p.List && p.Each != nil && a.Data.Is == strictjson.Object:
		target = p.Each.Address(site.WithParameter(path, p.Each.Key(), keyOf(p.Each, a.Data)))
	case row.Method == http.MethodDelete && p != nil && p.Key() != "":
		target = v.above(p, path)
		if purged {
			q.Set("deleted", "true")
		} else if p.Action("restore") != nil {
			q.Set("_undo", path[p.Key()])
		}
	case strings.HasSuffix(row.Name, ".duplicate") && p == nil:
		target = v.back(row, path)
		if parent, _ := v.site.Find(target); parent != nil && parent.Key() != "" {
			target = parent.Address(site.WithParameter(path, parent.Key(), keyOf(parent, a.Data)))
		}
	default:
		target = v.back(row, path)
	}
	session, _ := v.r.Cookie(v.cookie) // else nobody would be signed in
	for _, begun := range (&http.Response{Header: a.Header}).Cookies() {
		if begun.Name == v.cookie { // the session goes on under another name
			session = begun
		}
	}
	if session != nil {
		q.Set("_told", v.mark(session.Value, strconv.FormatInt(v.now().Unix(), 10), q))
	}
	http.Redirect(v.w, v.r, target+"?"+q.Encode(), http.StatusSeeOther)
}

// above returns the address of the list that a record is in.
func (v *visit) above(p *site.Page, path map[string]string) string {
	for _, list := range v.site.Pages {
		if list.Each == p {
			return list.Address(path)
		}
	}
	return "/"
}
