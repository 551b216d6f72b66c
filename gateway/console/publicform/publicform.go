// Package publicform makes the pages of public forms, which are open to everybody who has their address. They work
// without scripts, unless a form requires proof of work, and in frames on other sites, because they need no cookies.
package publicform

import (
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/modules/forms"
	"tenantry/operation"
)

// Pages serves the pages of public forms. Safe for concurrent use.
type Pages struct {
	Forms  *forms.Module
	Layout *layout.Renderer
	Client *ask.Client
	Log    *slog.Logger

	fill, attach *operation.Row
}

// Serve takes the operations that the pages call from the rows. It must be called before the first request.
func (p *Pages) Serve(rows []operation.Row) {
	for i := range rows {
		switch rows[i].Name {
		case "forms.fill":
			p.fill = &rows[i]
		case "forms.public_attach":
			p.attach = &rows[i]
		}
	}
}

// Timeout returns how long a request for a page may take: as long as a file, if it may have one.
func (p *Pages) Timeout(r *http.Request) time.Duration {
	if r.Method == http.MethodPost && p.attach != nil && strings.HasPrefix(r.URL.Path, operation.FormPath) {
		return p.attach.Deadline()
	}
	return 0
}

// Names of the values that the form of a page sends besides those of its fields.
const (
	onceName  = "_once"
	proofName = "_proof" // one for each file, and one for the submission
	keptName  = "_kept"  // a file that has arrived: its field, token and name
	trapName  = "_website"
	within    = "values"
)

// view is the page of a public form.
type view struct {
	layout.Frame
	Action   string
	Controls []input.Control
	Problems []site.Link
	Error    string
	Once     string
	Work     string // the address of challenges; empty: the form requires no work
	Files    bool
	Kept     []layout.Hidden // the files that have arrived: value and name
}

// Page answers with the page of a form, or takes what a page sends.
func (p *Pages) Page(w http.ResponseWriter, r *http.Request, v visit.Visitor) {
	form, err := p.find(w, r, v)
	if err != nil {
		p.refuse(w, r, err)
		return
	}
	if r.Method != http.MethodPost {
		p.render(w, http.StatusOK, r, v, form, nil, nil, "")
		return
	}
	s := &submission{p: p, w: w, r: r, v: v, form: form, sent: url.Values{}}
	s.take()
}

// find returns the form that the path names, and sets the headers of its page.
func (p *Pages) find(w http.ResponseWriter, r *http.Request, v visit.Visitor) (*forms.Form, error) {
	form, err := p.Forms.Public(r.Context(), v.Tenant, r.PathValue("pid"))
	if err != nil {
		return nil, err
	}
	target := ""
	if u, err := url.Parse(form.ThanksURL); err == nil && u.Host != "" {
		target = u.Scheme + "://" + u.Host
	}
	h := w.Header()
	h.Set("Content-Security-Policy", layout.FormPolicy(target, form.FrameOrigins...))
	h.Set("Referrer-Policy", "same-origin") // so that browsers tell the origin of what the page sends
	return form, nil
}

// render answers with the form. sent has the values that were typed and faults what is wrong with them; both are nil for
// a fresh form.
func (p *Pages) render(
	w http.ResponseWriter, code int, r *http.Request, v visit.Visitor, form *forms.Form,
	sent url.Values, faults []fault.Fault, text string,
) {
	view := view{
		Frame:  layout.Frame{Title: form.Label, Organization: v.Tenant.Org.Name},
		Action: r.URL.EscapedPath(), Once: ask.NewIdempotencyKey(), Error: text,
	}
	if form.ProofOfWork > 0 {
		view.Work = view.Action + "/challenge"
	}
	for _, kept := range sent[keptName] {
		_, _, name := splitKept(kept)
		view.Kept = append(view.Kept, layout.Hidden{Name: name, Value: kept})
	}
	view.Controls = p.controls(form, sent)
	for i := range view.Controls {
		view.Controls[i].ShowFaults(faults)
		view.Files = view.Files || view.Controls[i].Kind == "file"
	}
	for _, f := range faults {
		if !slices.ContainsFunc(view.Controls, func(c input.Control) bool { return input.Concerns(f.Field, c.Name) }) {
			view.Error = strings.TrimSpace(view.Error + " " + generalFault(f))
		}
	}
	view.Problems = input.Problems(view.Controls)
	view.HasProblems = view.Error != "" || view.Problems != nil
	p.Layout.Render(w, code, "public-form", view)
}

// generalFault returns the text of a fault that concerns no field.
func generalFault(f fault.Fault) string {
	if f.Field == "proof" {
		return "Your browser has not done the work that this form asks for, or it took too long. " +
			"Allow scripts on this page, and send it again."
	}
	return site.Sentence(f.Message)
}

// controls returns the controls of the fields in the order of the form, and those of files last, so that all other values
// arrive before them.
func (p *Pages) controls(form *forms.Form, sent url.Values) []input.Control {
	var all, files []input.Control
	fields := form.Visible()
	for _, key := range form.Order() {
		f := fields[key]
		c := input.DefinedControl(p.fill, within, show.DefinedField{Key: key, Field: f}, strictjson.Value{}, sent)
		c.Unmarked = true
		switch f.Type {
		case schema.File:
			c.Kind, c.Accept, c.Several, c.Hint = "file", strings.Join(f.Accept.List(), ","), f.Most() > 1, ""
			if c.Several {
				c.Hint = "At most " + strconv.Itoa(f.Most()) + " files."
			}
			c.Value, c.Required = "", c.Required && !slices.ContainsFunc(sent[keptName], func(kept string) bool {
				of, _, _ := splitKept(kept)
				return of == key
			})
			files = append(files, c)
			continue
		case schema.Encrypted:
			c.Kind, c.Value, c.Hint = "text", sent.Get(c.Name), "Kept encrypted."
		}
		all = append(all, c)
	}
	return append(all, files...)
}

// values returns what was typed as the values of a submission, and what was sent for fields that there are not.
func values(form *forms.Form, sent url.Values) map[string]any {
	out := map[string]any{}
	visible := form.Visible()
	for name := range sent { // the operation refuses what is none of its fields
		key, of := strings.CutPrefix(name, within+".")
		if _, known := visible[key]; of && !known {
			out[key] = sent.Get(name)
		}
	}
	for key, f := range visible {
		name := within + "." + key
		text := strings.ReplaceAll(sent.Get(name), "\r\n", "\n")
		switch {
		case f.Type == schema.File:
			if tokens := keptOf(key, sent); len(tokens) > 0 && f.Most() > 1 {
				out[key] = tokens
			} else if len(tokens) > 0 {
				out[key] = tokens[len(tokens)-1] // a newer one replaces it
			}
		case strings.TrimSpace(text) == "":
		case f.Type == schema.Number:
			out[key] = input.Number(text)
		case f.Type == schema.Boolean:
			out[key] = text == "true"
		case f.Type == schema.DateTime:
			out[key] = input.FromDatetimeLocal(text)
		case f.Type == schema.MultiSelect:
			out[key] = input.SplitLines(sent[name])
		default:
			out[key] = text
		}
	}
	return out
}

// splitKept returns the parts of a file that has arrived.
func splitKept(kept string) (field, token, name string) {
	field, rest, _ := strings.Cut(kept, "|")
	token, name, _ = strings.Cut(rest, "|")
	return field, token, name
}

// keptOf returns the tokens of the files of a field that have arrived.
func keptOf(key string, sent url.Values) (tokens []string) {
	for _, kept := range sent[keptName] {
		if field, token, _ := splitKept(kept); field == key && token != "" {
			tokens = append(tokens, token)
		}
	}
	return tokens
}

// refuse answers with the reason why a form cannot be shown or taken.
func (p *Pages) refuse(w http.ResponseWriter, r *http.Request, err error) {
	problem := operation.ProblemOf(err)
	switch {
	case problem.Code == http.StatusNotFound:
		p.missing(w)
	case problem.Code == http.StatusTooManyRequests:
		p.Layout.TooMany(w, r, problem)
	case problem.Code == http.StatusServiceUnavailable, errors.Is(err, r.Context().Err()):
		p.Log.WarnContext(r.Context(), "a public form is unavailable", "error", err)
		p.Layout.Unavailable(w, "")
	default:
		p.Log.ErrorContext(r.Context(), "a public form failed", "error", err)
		p.Layout.Message(w, http.StatusInternalServerError, "", "Something went wrong", "Please try again.")
	}
}

// missing answers that there is no such form.
func (p *Pages) missing(w http.ResponseWriter) {
	p.Layout.Message(w, http.StatusNotFound, "", "There is no such form",
		"Check the address, or ask the person who gave it to you. The form may have been closed.")
}
