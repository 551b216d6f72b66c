package site

import (
	"maps"
	"net/url"
	"strings"

	"tenantry/operation"
	"tenantry/tenants"
)

// FieldTitle returns what the forms of the page call a field.
func (p *Page) FieldTitle(name string) string {
	if f := p.Field(name); f != nil {
		return Title(f.Ask, name)
	}
	return Label(name)
}

// Field returns the field of that name as the forms of the page ask for it; nil: none does.
func (p *Page) Field(name string) *operation.Field {
	rows := append([]*operation.Row{p.Update, p.Create, p.makes, p.Shows}, p.Actions...)
	if p.Leads != nil {
		rows = append(rows, p.Leads.Update)
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
		if q := row.Param(name); q.In == operation.InQuery && row.Upload != nil { // what is said of a file is in the query
			return &operation.Field{Name: q.Name, Shape: q.Shape, Enum: q.Enum, Ref: q.Ref, Ask: q.Ask}
		}
	}
	return nil
}

// AddressWith returns the address of the page with that query.
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

// Parameter returns the parameter of that name, or one without a name.
func (p *Page) Parameter(name string) operation.Param { return p.Shows.Param(name) }

// Has reports whether the operation of the page has a parameter of that name.
func (p *Page) Has(name string) bool { return p.Shows.Param(name).Name != "" }

// WithParameter returns the parameters of a path with one more.
func WithParameter(path map[string]string, name, value string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, path)
	all[name] = value
	return all
}

// PathQuery returns the query by which the address of a form gives the parameters of a path.
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

// Link leads to an address.
type Link struct {
	Title, Address string
	Icon           string // a path in a square of 16; empty: none
	Current        bool
}

// Page is what is to be seen at one path.
type Page struct {
	Path     string // with {parameters}
	Segments []string
	Shows    *operation.Row // by GET
	List     bool
	Create   *operation.Row // of a list
	Update   *operation.Row // of a record
	Remove   *operation.Row
	Actions  []*operation.Row // what else can be done with it
	Exports  []*operation.Row // what can be fetched as a file
	Below    []*Page          // pages about the record
	Each     *Page            // of a list: that of one record
	Leads    *Page            // the same, also where it is another list's
	makes    *operation.Row   // of the page of one record: what makes another
}

// InNavigation reports whether the navigation leads to the page.
func (p *Page) InNavigation() bool {
	return !strings.Contains(p.Path, "{") && (p.List || p.Update != nil) && p.Path != "/me" && !strings.HasPrefix(p.Path, "/me/")
}

// LinksBelow returns the links to the pages below that the navigation does not have, as far as the person may open
// them.
func (p *Page) LinksBelow(path map[string]string, may func(*operation.Row) bool) (links []Link) {
	for _, below := range p.Below {
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

func (p *Page) fits(segments []string) bool {
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

// Key returns the parameter of the path that names the record of the page; empty: there is none.
func (p *Page) Key() string {
	if last := p.Segments[len(p.Segments)-1]; last != "" && last[0] == '{' {
		return strings.Trim(last, "{}")
	}
	return ""
}

// Action returns the operation that does this with the record of the page; nil: there is none.
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

// Path returns the path of an operation with its parameters.
func Path(row *operation.Row, path map[string]string) string {
	to := row.Path
	for name, value := range path {
		to = strings.ReplaceAll(to, "{"+name+"}", url.PathEscape(value))
	}
	return to
}

// May reports whether the person can call the operation at all; what depends on the record is told by the call.
func May(row *operation.Row, who *tenants.Principal, t *tenants.Tenant) bool {
	return row != nil && row.Admits(who, "") == nil && row.Rule.Check(who, t) == nil
}

// Title returns what the page shows: "Contacts" of one that lists contacts.
func (p *Page) Title() string {
	if title := firstWord.ReplaceAllString(p.Shows.Summary, ""); len(title) <= longTitle || !p.InNavigation() {
		return Capital(title)
	}
	return p.Shows.Tag
}
