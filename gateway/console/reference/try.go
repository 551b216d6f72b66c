package reference

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/form"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/submit"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
)

// tryView is the page on which a person calls an operation with their own rights.
type tryView struct {
	visit.Chrome
	Operation *operation.Row
	Form      form.View
	Answer    *answerView
}

// answerView is the answer of an operation as a client receives it.
type answerView struct {
	Status string
	Header []layout.Hidden
	Body   string
	Cut    bool // the body is longer than what is shown
}

// maxShown bounds what is shown of an answer, in bytes.
const maxShown = 64 << 10

func tryAddress(row *operation.Row) string { return "/docs/" + row.Name + "/try" }

// TryPage makes a call and shows its answer. A GET is made by the address of the page, which can be bookmarked. Other
// calls are made only by a form, which other sites cannot send and no link can replace.
func TryPage(v *visit.Visit) {
	row := v.Site.Rows[v.R.PathValue("operation")]
	reads := row != nil && row.Method == http.MethodGet
	if row == nil || row.Upload != nil || reads && v.R.Method == http.MethodPost {
		v.NotFound()
		return
	}
	sent, send := url.Values{}, false
	switch {
	case v.R.Method == http.MethodPost:
		if sent, send = submit.Sent(v); !send {
			return
		}
	case reads:
		sent = v.R.URL.Query()
		send = sent.Has("_send")
	}
	q := ask.Call{Row: row, Path: map[string]string{}, IfMatch: sent.Get("match"), IdempotencyKey: sent.Get("_once")}
	form.PathValues(row, q.Path, sent)
	query := form.Query(row, sent)
	more, err := url.ParseQuery(strings.TrimPrefix(strings.TrimSpace(sent.Get("more")), "?"))
	maps.Copy(query, more)
	q.Query = query.Encode()
	if row.Body != nil {
		q.Raw = []byte(sent.Get("body"))
	}
	view := tryView{Chrome: v.Chrome(row.Summary), Operation: row, Form: tryForm(row, sent)}
	view.Trail = []site.Link{
		{Title: "API reference", Address: "/docs"},
		{Title: row.Summary, Address: "/docs/" + row.Name},
	}
	code := http.StatusOK
	switch {
	case !send:
		q.Raw, q.Body = nil, ask.SampleBody(row)
	case err != nil: // without the rest of the query, the call could answer more than the person asked for
		view.Form.Error = "The rest of the query cannot be parsed: " + err.Error() + "."
		code = http.StatusBadRequest
	case row.Streams != nil:
		http.Redirect(v.W, v.R, q.Target(), http.StatusSeeOther) // the browser saves it as a file
		return
	default:
		w, err := v.Client.Send(v.R.Context(), v.R, q)
		if err != nil {
			v.Refused(ask.Reply{}, err)
			return
		}
		ask.ForwardHeaders(v.W, w.Head)
		// The call has just checked the person's rights, and may have started a new session.
		view.Answer, v.Started = shownAnswer(w), time.Now()
		if w.Code >= http.StatusBadRequest {
			code = w.Code
		}
	}
	if mayHoldSecret(row) {
		q.Raw, q.Body = nil, ask.SampleBody(row)
	}
	view.Curl = v.Client.Curl(v.Tenant.Org.Slug, q)
	v.Show(code, "attempt", view)
}

// mayHoldSecret reports whether the body of the operation may have a secret. Pages do not repeat secrets.
func mayHoldSecret(row *operation.Row) bool {
	return row.Defined.By != "" || slices.ContainsFunc(row.Body, func(f operation.Field) bool { return f.Secret })
}

// tryForm makes the form: a control for each parameter, one for the rest of the query, and one for the body as JSON.
func tryForm(row *operation.Row, sent url.Values) form.View {
	f := form.View{
		Action: tryAddress(row) + "#answer", Submit: "Send",
		Asks: row.Method == http.MethodGet, Danger: row.Method == http.MethodDelete,
	}
	if f.Asks {
		f.Hidden = []layout.Hidden{{Name: "_send", Value: "true"}}
	} else {
		f.Once = ask.NewIdempotencyKey()
	}
	add := func(c input.Control, name string) {
		c.Name, c.ID, c.Unmarked = name, input.ID("try", name), true
		f.Controls = append(f.Controls, c)
	}
	free := ""
	for _, p := range row.Params {
		name := string(p.In) + "." + p.Name
		c := input.QueryControl(p, url.Values{p.Name: sent[name]})
		switch {
		case p.In == operation.InHeader:
		case c.Kind == "":
			free += " " + p.Name + ": " + p.Description
		default:
			c.Label, c.Hint = p.Name, p.Description
			add(c, name)
		}
	}
	if free != "" {
		add(input.Control{
			Label: "Rest of the query", Kind: "text", Value: sent.Get("more"), Hint: "As in an address." + free,
		}, "more")
	}
	if row.Conditional() && !f.Asks {
		add(input.Control{
			Label: "If-Match", Kind: "text", Value: sent.Get("match"),
			Hint: "The ETag of the record as you saw it. The call changes nothing if the record has changed since.",
		}, "match")
	}
	if row.Body != nil {
		c := input.Control{Label: "Body", Kind: "json", Value: sent.Get("body")}
		if !sent.Has("body") || mayHoldSecret(row) {
			raw, _ := json.MarshalIndent(ask.SampleBody(row), "", "  ") // cannot fail: the OpenAPI document has it too
			c.Value = string(raw)
		}
		add(c, "body")
	}
	return f
}

// shownAnswer returns the view of an answer, without its cookies.
func shownAnswer(w *ask.Recorder) *answerView {
	a := &answerView{Status: strings.TrimSpace(strconv.Itoa(w.Code) + " " + http.StatusText(w.Code))}
	for _, name := range slices.Sorted(maps.Keys(w.Head)) {
		if name != "Set-Cookie" { // scripts on the page must not read the session
			a.Header = append(a.Header, layout.Hidden{Name: name, Value: strings.Join(w.Head[name], ", ")})
		}
	}
	var readable bytes.Buffer
	if json.Indent(&readable, w.Body.Bytes(), "", "  ") != nil {
		readable = w.Body
	}
	a.Body, a.Cut = readable.String(), readable.Len() > maxShown
	if a.Cut {
		a.Body = strings.ToValidUTF8(a.Body[:maxShown], "")
	}
	return a
}
