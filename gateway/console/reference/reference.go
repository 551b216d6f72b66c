// Package reference makes the API reference from the rows of operations, and a page for each on which a person can call
// it.
package reference

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
)

// reference is the page that lists the operations.
type reference struct {
	visit.Chrome
	Tags []taggedView
}

type taggedView struct {
	Title      string
	Operations []operationLink
}

type operationLink struct{ Name, Method, Path, Summary string }

// operationView is the page of an operation.
type operationView struct {
	visit.Chrome
	Operation   *operation.Row
	Who         []string
	Parameters  []paramView
	Body        []paramView
	Answer      string
	Failures    []operation.Failure
	Call        string
	Try         string
	Streams     string
	Description string
}

type paramView struct {
	Name, Where, Kind, Text, Example string
	Required                         bool
}

// ReferencePage answers with the list of operations. It is the same on every host and for everybody, as the OpenAPI
// document is.
func ReferencePage(m *visit.Console, w http.ResponseWriter, c visit.Chrome) {
	view := reference{Chrome: withTitle(c, "API reference")}
	for i := range m.Site.All {
		row := &m.Site.All[i]
		at := slices.IndexFunc(view.Tags, func(t taggedView) bool { return t.Title == row.Tag })
		if at < 0 {
			view.Tags, at = append(view.Tags, taggedView{Title: row.Tag}), len(view.Tags)
		}
		link := operationLink{row.Name, row.Method, row.Path, row.Summary}
		view.Tags[at].Operations = append(view.Tags[at].Operations, link)
	}
	m.Layout.Render(w, http.StatusOK, "reference", view)
}

// withTitle returns the chrome of a page of the reference. Visitors who are not signed in get a link back to the
// overview, because they have no navigation.
func withTitle(c visit.Chrome, title string, trail ...site.Link) visit.Chrome {
	if c.Title, c.Trail = title, trail; !c.SignedIn {
		c.Trail = append([]site.Link{{Title: "Overview", Address: "/"}}, trail...)
	}
	return c
}

// OperationPage answers with the page of one operation.
func OperationPage(m *visit.Console, w http.ResponseWriter, r *http.Request, c visit.Chrome) {
	at := slices.IndexFunc(m.Site.All, func(o operation.Row) bool { return o.Name == r.PathValue("operation") })
	if at < 0 {
		m.Layout.NotFound(w)
		return
	}
	row := &m.Site.All[at]
	view := operationView{
		Chrome:    withTitle(c, row.Summary, site.Link{Title: "API reference", Address: "/docs"}),
		Operation: row, Description: row.Description, Who: callers(row), Failures: row.Failures,
		Streams: strings.Join(slices.DeleteFunc(slices.Concat(row.Streams, row.Content, []string{row.Feeds}), func(s string) bool { return s == "" }), ", "),
	}
	q := ask.Call{Row: row, Path: map[string]string{}}
	for _, p := range row.Params {
		param := paramView{p.Name, string(p.In), string(p.Shape), p.Description, p.Example, p.Required}
		view.Parameters = append(view.Parameters, param)
		if p.In == operation.InPath {
			q.Path[p.Name] = p.Example
		}
	}
	q.Body = ask.SampleBody(row)
	for _, f := range row.Body {
		example := ""
		if f.Example != nil {
			raw, _ := json.Marshal(f.Example) // cannot fail: the OpenAPI document has it too
			example = string(raw)
		}
		view.Body = append(view.Body, paramView{f.Name, "body", string(f.Shape), f.Description, example, f.Required})
	}
	view.Call = m.Client.Curl("<organization>", q)
	answer := row.Example
	if row.Streams == nil {
		answer = operation.Envelope{Status: operation.StatusOK, Message: row.Message, Data: row.Example}
	}
	if raw, err := json.MarshalIndent(answer, "", "  "); err == nil && row.Plain() {
		view.Answer = string(raw)
	}
	switch {
	case m.Site.Rows[row.Name] == nil, row.Upload != nil && row.OnRecord: // the page of the record has the form
	case row.Upload != nil:
		view.Try = "/do/" + row.Name
	default:
		view.Try = tryAddress(row)
	}
	m.Layout.Render(w, http.StatusOK, "operation", view)
}

// callers returns who can call an operation, as lines of text.
func callers(row *operation.Row) (who []string) {
	kinds := []string{}
	names := map[operation.Kinds]string{
		operation.ServerFull: "server_full", operation.ServerRead: "server_read", operation.Browser: "browser",
	}
	for kind, name := range names {
		if row.Kinds&kind != 0 {
			kinds = append(kinds, name)
		}
	}
	slices.Sort(kinds)
	if row.Credentials == operation.Open {
		return []string{"anybody, without a key"}
	}
	if row.Credentials&operation.Key != 0 {
		who = append(who, "an API key of kind "+strings.Join(kinds, " or "))
	}
	if row.Credentials&operation.Session != 0 {
		who = append(who, "a person who is signed in")
	}
	var permissions []string
	for _, p := range row.Rule.Permissions() {
		permissions = append(permissions, string(p))
	}
	switch {
	case row.Rule.IsAdminOnly():
		who = append(who, "administrators alone")
	case len(permissions) > 0:
		who = append(who, "with the permission "+strings.Join(permissions, " or "))
	}
	return who
}
