// Package submit handles the forms that people send. It calls the operation, and then redirects, shows the form again
// with its faults, or shows a preview.
package submit

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/form"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/record"
	"tenantry/gateway/console/report"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// FormPage answers with the form of an operation on a page of its own.
func FormPage(v *visit.Visit) {
	row, path, ok := formOperation(v)
	if !ok {
		return
	}
	sent := v.R.URL.Query()
	form.PathValues(row, path, sent)
	if row.Method == http.MethodPut { // its form is on the record's page
		http.Redirect(v.W, v.R, parentAddress(v, row, path), http.StatusSeeOther)
		return
	}
	f := form.New(v, row, path, strictjson.Value{}, nil, nil)
	for i, c := range f.Controls { // values that the address has
		if value := strings.Join(sent[c.Name], "\n"); value != "" && strings.HasPrefix(c.Name, "query.") {
			f.Controls[i].Choose(value)
		}
	}
	q := ask.Call{Row: row, Path: path, Query: form.Query(row, sent).Encode(), Body: ask.SampleBody(row)}
	showForm(v, http.StatusOK, q, f)
}

// formOperation finds the operation of a form. If it does not exist or the person may not call it, it answers the
// request and returns false.
func formOperation(v *visit.Visit) (*operation.Row, map[string]string, bool) {
	row := v.Site.Rows[v.R.PathValue("operation")]
	switch {
	case row == nil || row.Method == http.MethodGet:
		v.NotFound()
	case !v.May(row):
		p := operation.ProblemOf(errors.Join(row.Admits(v.Person, ""), row.Rule.Check(v.Person, v.Tenant)))
		lacks, _ := p.Data.(map[string]string)
		reason := visit.LabelPermission(p.Message, lacks["permission"])
		v.Problem(http.StatusForbidden, "You may not do this",
			reason+". An administrator of "+v.Tenant.Org.Name+" can give you this right.")
	default:
		return row, map[string]string{}, true
	}
	return nil, nil, false
}

// showForm answers with a form and the curl command of the call that it makes.
func showForm(v *visit.Visit, code int, q ask.Call, f form.View) {
	view := record.View{Chrome: v.Chrome(q.Row.Summary), Form: &f, Note: q.Row.Ask}
	if f.Cancel = parentAddress(v, q.Row, q.Path); f.Submit == form.ForGood {
		f.Cancel += "?deleted=true"
	}
	view.Curl = v.Client.Curl(v.Tenant.Org.Slug, q)
	view.HasProblems = f.Error != "" || f.Problems != nil
	v.Show(code, "record", view)
}

// typedCall returns the call that a form makes with the values that were typed, without secrets.
func typedCall(v *visit.Visit, row *operation.Row, path map[string]string, sent url.Values) ask.Call {
	body, _ := form.Body(v, row, path, sent) // the form shows its faults already
	for name, kind := range sent {
		if name, found := strings.CutPrefix(name, "_has."); found && kind[0] == "secret" {
			delete(body, name)
			within, part, _ := strings.Cut(name, ".")
			if parts, ok := body[within].(map[string]any); ok {
				delete(parts, part)
			}
		}
	}
	return ask.Call{Row: row, Path: path, Query: form.Query(row, sent).Encode(), Body: body}
}

// parentAddress returns the address of the page that a form belongs to.
func parentAddress(v *visit.Visit, row *operation.Row, path map[string]string) string {
	if p := v.Site.PageOf(row.Page); p != nil && v.May(p.Shows) {
		return p.Address(path)
	}
	for at := strings.TrimPrefix(row.Path, "/api"); at != ""; at = at[:strings.LastIndexByte(at, '/')] {
		for _, p := range v.Site.Pages {
			if p.Path == at && v.May(p.Shows) {
				return p.Address(path)
			}
		}
	}
	return "/"
}

// Submit handles a form that was sent.
func Submit(v *visit.Visit) {
	row, path, ok := formOperation(v)
	if !ok {
		return
	}
	if row.Upload != nil {
		upload(v, row, path)
		return
	}
	sent, ok := Sent(v)
	if !ok {
		return
	}
	form.PathValues(storingOperation(v, row, sent), path, sent)
	query := form.Query(row, sent)
	if sent.Has("_more") { // the form is reloaded with another line, or with parts that depend on a value
		showAgain(v, http.StatusOK, storingOperation(v, row, sent), path, sent, nil, "")
		return
	}
	body, faults := form.Body(v, row, path, sent)
	if v.Unanswered != nil { // the definitions of fields could not be read, so the body may be wrong
		v.Refused(*v.Unanswered, nil)
		return
	}
	if faults != nil {
		showAgain(v, http.StatusUnprocessableEntity, storingOperation(v, row, sent), path, sent, faults, "")
		return
	}
	if sent.Has("_try") {
		previewMatches(v, row, path, sent, body)
		return
	}
	if row.Reads && sent.Has("_part") && body["title"] == "" {
		body["title"] = "Without a title" // a preview needs none
	}
	q := ask.Call{
		Row: row, Path: path, Query: query.Encode(), Body: body,
		IfMatch: sent.Get("_match"), IdempotencyKey: sent.Get("_once"),
	}
	carryOut(v, q, sent, query)
}

// Sent reads the form in the request. If it cannot, it answers the request and returns false.
func Sent(v *visit.Visit) (url.Values, bool) {
	var sent url.Values
	var err error
	encoded := strings.HasPrefix(v.R.Header.Get("Content-Type"), "application/x-www-form-urlencoded")
	if encoded {
		var body []byte
		if body, err = v.Visitor.Form(v.R, maxForm); err == nil {
			sent, err = url.ParseQuery(string(body))
		}
	}
	if full := (*operation.Problem)(nil); errors.As(err, &full) {
		v.Layout.TooMany(v.W, v.R, full)
		return nil, false
	}
	if err != nil || !encoded {
		v.Problem(http.StatusBadRequest, "The form did not arrive", "It may be too large. Go back and try again.")
		return nil, false
	}
	if input.TooManyLines(sent) {
		v.Problem(http.StatusBadRequest, "The form has too many lines", "Go back and remove some.")
		return nil, false
	}
	return sent, true
}

// storingOperation returns the operation that stores the form. It differs from row if row is only a preview.
func storingOperation(v *visit.Visit, row *operation.Row, sent url.Values) *operation.Row {
	stores := v.Site.Rows[sent.Get("_for")]
	if row.Reads && stores != nil && stores.Resource == row.Resource && stores.Body != nil && v.May(stores) {
		return stores
	}
	return row
}

// carryOut makes the call of a form. It redirects or shows a preview on success, and shows the form again otherwise.
func carryOut(v *visit.Visit, q ask.Call, sent, query url.Values) {
	row, path := q.Row, q.Path
	if q.Row.Reads && q.Row.Param(show.AllRows).Name != "" {
		query.Set(show.AllRows, "true") // charts need all rows
		q.Query = query.Encode()
	}
	a, err := v.Client.Ask(v.R.Context(), v.R, q)
	row = storingOperation(v, row, sent)
	switch {
	case err == nil && a.OK() && q.Row.Reads && !q.Row.Once:
		showPreview(v, q, row, sent, a)
	case err == nil && a.OK() && query.Get("preview") == "true":
		sent.Del("query.preview") // sending the form again carries it out
		t := record.Preview{Note: "These records would be affected. Nothing has been changed yet."}
		t.Facts, _ = show.Facts(v, &site.Page{Shows: q.Row}, path, a.Data.Get("touches"))
		renderPreview(v, q, row, path, sent, &t)
	case err == nil && a.OK():
		succeed(v, row, path, query, sent.Get("_back"), a)
	case err == nil && a.Code == http.StatusPreconditionFailed:
		showAgain(v, a.Code, row, path, sent, nil, "Somebody else has changed this in the meantime. "+
			"What you typed is below. Compare it with the current version, and save again to replace that.")
	case err == nil && slices.Contains([]int{
		http.StatusUnprocessableEntity, http.StatusBadRequest, http.StatusConflict, http.StatusRequestEntityTooLarge,
	}, a.Code):
		list := a.Faults()
		text := ""
		if len(list) == 0 {
			text = site.Sentence(a.Message)
		}
		showAgain(v, a.Code, row, path, sent, list, text)
	default:
		v.Refused(a, err)
	}
}

// showAgain answers with the form as it was typed, and with its faults.
func showAgain(
	v *visit.Visit, code int, row *operation.Row, path map[string]string,
	sent url.Values, faults []fault.Fault, text string,
) {
	if sent.Has("_part") {
		t := record.Preview{}
		for _, f := range faults {
			top := slices.IndexFunc(row.Body, func(b operation.Field) bool { return b.Name == f.Field })
			switch {
			case top < 0:
				text += " " + site.Sentence(f.Message)
			case f.Code == fault.Required: // the person may not have come to it yet
				t.Note = "The preview appears here once you have filled in the required fields."
			default:
				text += " " + input.FaultText(f, f.Field, site.Title(row.Body[top].Ask, f.Field))
			}
		}
		t.Problem = strings.TrimSpace(text)
		v.Layout.Render(v.W, http.StatusOK, "preview", t) // 200, because browsers log other codes as errors of the page
		return
	}
	sent.Set("_once", ask.NewIdempotencyKey()) // the corrected form is another request
	current, tag := current(v, row, path)
	f := form.New(v, row, path, current, sent, faults)
	if code != http.StatusPreconditionFailed {
		tag = sent.Get("_match") // the version that the form was made from
	}
	if tag != "" {
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
	}
	if f.Error == "" {
		f.Error = text
	}
	if back := sent.Get("_back"); back != "" {
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_back", Value: back})
	}
	q := typedCall(v, row, path, sent)
	q.IfMatch = tag
	showForm(v, code, q, f)
}

// current returns the record that a form changes, and its ETag; null if the form creates one.
func current(v *visit.Visit, row *operation.Row, path map[string]string) (strictjson.Value, string) {
	at := strings.TrimPrefix((&ask.Call{Row: row, Path: path}).Target(), "/api")
	p, _ := v.Site.Find(at)
	if p == nil { // it changes a part of the record above
		p, _ = v.Site.Find(at[:strings.LastIndexByte(at, '/')])
	}
	if p == nil || row.Method != http.MethodPut {
		return strictjson.Value{}, ""
	}
	a, err := v.Read(p.Shows, path, "")
	if err != nil || !a.OK() {
		return strictjson.Value{}, ""
	}
	return record.Completed(v, p, path, a.Data), a.Header.Get("ETag")
}

// showPreview answers with the result of an operation that stores nothing, beside the form.
func showPreview(v *visit.Visit, q ask.Call, row *operation.Row, sent url.Values, a ask.Reply) {
	const first = "This is what it would show"
	last := ". Nothing has been stored yet."
	if row.Method == http.MethodPut {
		last = ". It is stored when you save it."
	}
	t := record.Preview{Note: first + last}
	asked := url.Values{}
	if t.Facts, t.Table = show.Facts(v, &site.Page{Shows: q.Row}, q.Path, report.PageOf(a.Data, asked)); t.Table != nil {
		t.Figures, t.Charts = report.Draw(v.Locale(), show.Parse(q.Body), a.Data, asked, t.Table)
		t.Facts, t.Note = nil, first+" ("+countText(v, a.Data)+")"+last
		if all := a.Data.Get("results").Items; len(all) > len(t.Table.Rows) {
			t.Note += " The table has the first " + v.FormatInt(len(t.Table.Rows)) + " of them."
		}
	}
	renderPreview(v, q, row, q.Path, sent, &t)
}

// countText returns the number of rows of a report in words.
func countText(v *visit.Visit, answer strictjson.Value) string {
	switch rows := len(answer.Get("results").Items); {
	case answer.Get("truncated").Is == strictjson.True:
		return report.CutText(v.Locale(), rows, show.Count(answer, "total"))
	case rows == 1:
		return "1 row"
	default:
		return v.FormatInt(rows) + " rows"
	}
}

// renderPreview answers with a preview beside the form as it was typed, or alone if a script asks for it.
func renderPreview(
	v *visit.Visit, q ask.Call, row *operation.Row, path map[string]string, sent url.Values, t *record.Preview,
) {
	if sent.Has("_part") {
		v.Show(http.StatusOK, "preview", t)
		return
	}
	view := record.View{Chrome: v.Chrome(row.Summary), Preview: t}
	current, _ := current(v, row, path)
	f := form.New(v, row, path, current, sent, nil)
	f.Cancel = parentAddress(v, row, path)
	if tag := sent.Get("_match"); tag != "" {
		f.Hidden = append(f.Hidden, layout.Hidden{Name: "_match", Value: tag})
	}
	view.Form = &f
	view.Curl = v.Client.Curl(v.Tenant.Org.Slug, q)
	v.Show(http.StatusOK, "record", view)
}

// succeed redirects to the page of what was done, or back to the page of the form, with a notice. An answer with a
// secret is shown instead, because it cannot be read again.
func succeed(v *visit.Visit, row *operation.Row, path map[string]string, query url.Values, back string, a ask.Reply) {
	ask.ForwardHeaders(v.W, a.Header)
	if row.Once && len(a.Data.Members) > 0 {
		view := record.View{
			Chrome: v.Chrome(row.Message),
			Note:   "This is shown once. Copy it now, and keep it where nobody else can read it.",
		}
		first := []string{"link", "url", "token", "field_value"} // the values with a button that copies them
		slices.SortStableFunc(a.Data.Members, func(a, b strictjson.Member) int {
			return cmp.Compare(uint(slices.Index(first, a.Name)), uint(slices.Index(first, b.Name)))
		})
		view.Facts, _ = show.Facts(v, &site.Page{Shows: row}, path, a.Data)
		for i := range view.Facts {
			view.Facts[i].Value.Copy = slices.Contains(first, a.Data.Members[i].Name)
		}
		view.Links = []site.Link{{Title: "Continue", Address: parentAddress(v, row, path)}}
		v.Layout.Render(v.W, http.StatusOK, "record", view)
		return
	}
	q := url.Values{"_done": {row.Name}}
	var target string
	at, purged := strings.CutSuffix((&ask.Call{Row: row, Path: path}).Target(), "/purge")
	purged = purged || query.Get("purge") != ""
	p, _ := v.Site.Find(strings.TrimPrefix(at, "/api"))
	switch {
	case back != "":
		target = visit.LocalAddress(back)
	case p != nil && p.List && p.Record != nil && a.Data.Is == strictjson.Object:
		target = p.Record.Address(site.WithParameter(path, p.Record.Key(), show.Key(p.Record, a.Data)))
	case row.Method == http.MethodDelete && p != nil && p.Key() != "":
		target = listAddress(v, p, path)
		if purged {
			q.Set("deleted", "true")
		} else if p.Action(operation.RestoreAction) != nil {
			q.Set("_undo", path[p.Key()])
		}
	case row.Action == operation.DuplicateAction && p == nil:
		target = parentAddress(v, row, path)
		if parent, _ := v.Site.Find(target); parent != nil && parent.Key() != "" {
			target = parent.Address(site.WithParameter(path, parent.Key(), show.Key(parent, a.Data)))
		}
	default:
		target = parentAddress(v, row, path)
	}
	session, _ := v.R.Cookie(v.Cookie) // cannot fail: the person is signed in
	for _, cookie := range (&http.Response{Header: a.Header}).Cookies() {
		if cookie.Name == v.Cookie { // the operation has started a new session
			session = cookie
		}
	}
	if session != nil {
		q.Set("_told", v.SignNotice(session.Value, strconv.FormatInt(v.Now().Unix(), 10), q))
	}
	separator := "?"
	if strings.Contains(target, "?") {
		separator = "&"
	}
	http.Redirect(v.W, v.R, target+separator+q.Encode(), http.StatusSeeOther)
}

// listAddress returns the address of the list that a record is in.
func listAddress(v *visit.Visit, p *site.Page, path map[string]string) string {
	for _, list := range v.Site.Pages {
		if list.Record == p {
			return list.Address(path)
		}
	}
	return "/"
}

// maxForm bounds a form, in bytes.
const maxForm = 1 << 20
