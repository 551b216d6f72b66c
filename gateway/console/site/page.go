package site

import (
	"cmp"
	"maps"
	"net/url"
	"strings"

	"tenantry/operation"
	"tenantry/tenants"
)

// FieldTitle returns the title of a field in the forms of the page.
func (p *Page) FieldTitle(name string) string {
	if f := p.Field(name); f != nil {
		return Title(f.Ask, name)
	}
	return Label(name)
}

// Field returns the field of that name in the first form of the page that asks for it, or nil if none does.
func (p *Page) Field(name string) *operation.Field {
	rows := append([]*operation.Row{p.Update, p.Create, p.createRow, p.Shows}, p.Actions...)
	if p.RowPage != nil {
		rows = append(rows, p.RowPage.Update)
	}
	for _, row := range rows {
		if row == nil {
			continue
		}
		for i := range row.Body {
			if row.Body[i].Name == name {
				return &row.Body[i]
			}
		}
		if q := row.Param(name); q.In == operation.InQuery && row.Upload != nil { // options of an upload are in the query
			return &operation.Field{Name: q.Name, Shape: q.Shape, Enum: q.Enum, Ref: q.Ref, Ask: q.Ask}
		}
	}
	return nil
}

// AddressWith returns the address of the page with a query and the columns to show.
func (p *Page) AddressWith(path map[string]string, asked url.Values, columns []string) string {
	q := url.Values{}
	maps.Copy(q, asked)
	if len(columns) > 0 {
		q["_columns"] = columns
	}
	address := p.Address(path)
	if len(q) > 0 {
		address += "?" + q.Encode()
	}
	return address
}

// Parameter returns the parameter of that name, or the zero Param.
func (p *Page) Parameter(name string) operation.Param { return p.Shows.Param(name) }

// Has reports whether the operation of the page has a parameter of that name.
func (p *Page) Has(name string) bool { return p.Shows.Param(name).Name != "" }

// WithParameter returns a copy of the parameters of a path with one more.
func WithParameter(path map[string]string, name, value string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, path)
	all[name] = value
	return all
}

// PathQuery returns the query, with its question mark, that carries the parameters of a path in the address of a form.
func PathQuery(path map[string]string) string {
	if len(path) == 0 {
		return ""
	}
	q := url.Values{}
	for name, value := range path {
		q.Set("path."+name, value)
	}
	return "?" + q.Encode()
}

// Link is a link of a page.
type Link struct {
	Title, Address string
	Icon           string // an SVG path in a square of 16 by 16; empty for none
	Current        bool   // leads to the page that is shown
}

// Page is the page at one path, with the operations that it offers. Operations that it does not offer are nil.
type Page struct {
	Path      string // with {parameters}
	Segments  []string
	Shows     *operation.Row   // the GET whose answer the page shows
	List      bool             // it shows a list
	Create    *operation.Row   // adds to the list
	Update    *operation.Row   // changes the record
	Remove    *operation.Row   // deletes the record
	Actions   []*operation.Row // the other operations on the record or the list
	Exports   []*operation.Row // answer a file
	Subpages  []*Page          // pages about the record
	Record    *Page            // the page of one record of the list
	RowPage   *Page            // the page that a row of the list leads to: Record, or the page of another list's record
	createRow *operation.Row   // on the page of one record: creates another
}

// InNavigation reports whether the navigation leads to the page.
func (p *Page) InNavigation() bool {
	return !strings.Contains(p.Path, "{") && (p.List || p.Update != nil) &&
		p.Path != "/me" && !strings.HasPrefix(p.Path, "/me/")
}

// LinksBelow returns links to the subpages that are not in the navigation and whose operations may permits.
func (p *Page) LinksBelow(path map[string]string, may func(*operation.Row) bool) (links []Link) {
	for _, below := range p.Subpages {
		if !may(below.Shows) || below.InNavigation() || below.Shows.Aside {
			continue
		}
		title := below.Shows.Summary
		if last := below.Segments[len(below.Segments)-1]; below.Path == p.Path+"/"+last && below.Key() == "" {
			title = Label(last)
		}
		links = append(links, Link{Title: title, Address: below.Address(path)})
	}
	return links
}

// matches reports whether the segments of a path are an instance of the page's path.
func (p *Page) matches(segments []string) bool {
	if len(segments) != len(p.Segments) {
		return false
	}
	for i, s := range p.Segments {
		if s != segments[i] && (s == "" || s[0] != '{' || segments[i] == "") {
			return false
		}
	}
	return true
}

// Key returns the name of the parameter that the path ends in, which identifies the record of the page; empty if it ends
// in none.
func (p *Page) Key() string {
	if last := p.Segments[len(p.Segments)-1]; last != "" && last[0] == '{' {
		return strings.Trim(last, "{}")
	}
	return ""
}

// Action returns the operation of the page with that action, or nil.
func (p *Page) Action(action operation.Action) *operation.Row {
	for _, row := range p.Actions {
		if row.Action == action {
			return row
		}
	}
	return nil
}

// Address returns the address of the page for these parameters of the path.
func (p *Page) Address(path map[string]string) string {
	return strings.TrimPrefix(Path(p.Shows, path), "/api")
}

// Path returns the path of an operation with the parameters filled in.
func Path(row *operation.Row, path map[string]string) string {
	to := row.Path
	for name, value := range path {
		to = strings.ReplaceAll(to, "{"+name+"}", url.PathEscape(value))
	}
	return to
}

// May reports whether the person may call the operation at all. Rights that depend on the record are checked by the
// call.
func May(row *operation.Row, who *tenants.Principal, t *tenants.Tenant) bool {
	return row != nil && row.Admits(who, "") == nil && row.Rule.Check(who, t) == nil
}

// Title returns the title of the page, such as "Contacts" for a list of contacts.
func (p *Page) Title() string { return cmp.Or(p.Shows.Docs.Title, p.Shows.Summary) }
