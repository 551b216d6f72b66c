// Package site derives the pages of the console from the rows of operations: which pages exist, what each shows and
// offers, its place in the navigation, and its title. It does not serve HTTP and calls no operation.
//
// The page of an operation that reads has the operation's path without /api, and takes the same query:
// /contacts?filters[city]=Bonn shows the answer of /api/contacts?filters[city]=Bonn. A new resource has its pages as
// soon as it has rows.
package site

import (
	"cmp"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"tenantry/internal/declare"
	"tenantry/operation"
)

// ListNamed returns the list of records whose path ends in name, unless it is below a record; nil if there is none.
func (s *Site) ListNamed(name string) *Page {
	for _, p := range s.Pages {
		if p.List && p.Record != nil && !strings.Contains(p.Path, "{") && p.Segments[len(p.Segments)-1] == name {
			return p
		}
	}
	return nil
}

// SubpageTitle returns the title of a page below another, such as "Audit log: verification"; empty if p is not below
// one.
func (s *Site) SubpageTitle(p *Page) string {
	if above, _ := s.Find(strings.Join(p.Segments[:len(p.Segments)-1], "/")); above != nil && len(p.Segments) > 2 {
		return above.Title() + ": " + strings.ToLower(Label(p.Segments[len(p.Segments)-1]))
	}
	return ""
}

// ListOf returns the page that lists the records of a resource, or nil.
func (s *Site) ListOf(resource string) *Page {
	for _, p := range s.Pages {
		if resource != "" && p.List && p.Shows.Resource == resource && p.Shows.Lists == "" {
			return p
		}
	}
	return nil
}

// Logged returns the row that answers one of the records that the page shows if the event log tells of them, or nil.
func (s *Site) Logged(p *Page) *operation.Row {
	shows := p
	if p.List {
		shows = p.RowPage
	}
	if shows == nil || shows.Shows.Logged == nil {
		return nil
	}
	return shows.Shows
}

// PageOf returns the page that shows the answer of the named operation, or nil.
func (s *Site) PageOf(operation string) *Page {
	for _, p := range s.Pages {
		if p.Shows.Name == operation {
			return p
		}
	}
	return nil
}

// Site is the set of pages made from the rows. Forms of operations that change something are not pages; they are at
// /do/ and the operation's name.
type Site struct {
	All      []operation.Row
	Rows     map[string]*operation.Row // the rows that sessions may call, by name
	Pages    []*Page
	declared map[string][]declare.Field // the declared fields of the records in an answer, by the operation's name
}

// New makes the pages of the rows.
func New(rows []operation.Row) *Site {
	s := &Site{All: rows, Rows: map[string]*operation.Row{}, declared: map[string][]declare.Field{}}
	at := map[string]*Page{}
	for i := range rows {
		row := &rows[i]
		if row.Credentials&operation.Session == 0 || !strings.HasPrefix(row.Path, "/api/") || row.ForPrograms() {
			continue
		}
		s.Rows[row.Name], s.declared[row.Name] = row, declared(reflect.TypeOf(row.Data))
		if row.Method == http.MethodGet && row.Streams == nil {
			p := &Page{
				Path: strings.TrimPrefix(row.Path, "/api"), Shows: row,
				List: row.Action == operation.ListAction || row.Lists != "",
			}
			p.Segments = strings.Split(p.Path, "/")
			at[p.Path] = p
			s.Pages = append(s.Pages, p)
		}
	}
	for i := range rows {
		if s.Rows[rows[i].Name] == nil {
			continue
		}
		row, path := &rows[i], strings.TrimPrefix(rows[i].Path, "/api")
		p, parent := at[path], at[path[:strings.LastIndexByte(path, '/')]]
		switch {
		case row.Streams != nil:
			if parent != nil {
				parent.Exports = append(parent.Exports, row)
			}
		case row.Method == http.MethodGet:
			switch {
			case parent == nil:
			case parent.List && p.Segments[len(p.Segments)-1][0] == '{':
				parent.Record = p
			case p.Key() == "":
				parent.Subpages = append(parent.Subpages, p)
			}
		case p != nil && p.List && row.Action == operation.CreateAction:
			p.Create = row
		case p != nil && row.Method == http.MethodPut:
			p.Update = row
		case p != nil && row.Method == http.MethodDelete && !p.List:
			p.Remove = row
		case p != nil && row.Method == http.MethodDelete:
			p.Actions = append(p.Actions, row)
		case row.Page != "":
			if home := s.PageOf(row.Page); home != nil {
				home.Actions = append(home.Actions, row)
			}
		case parent != nil && row.Action != operation.BulkAction:
			parent.Actions = append(parent.Actions, row)
		}
	}
	s.attachRemaining()
	for _, p := range s.Pages {
		if p.Record != nil {
			p.Record.createRow = p.Create
		}
		if p.RowPage = p.Record; p.Shows.Lists != "" {
			p.RowPage = s.ListOf(p.Shows.Lists).Record
		}
	}
	return s
}

// attachRemaining links pages and exports that have no parent page by their path. A page about a record is linked from
// the record's page: /compliance/contacts/{id} from /contacts/{id}. Others are linked from the first page of the
// navigation with their tag.
func (s *Site) attachRemaining() {
	for i := range s.All {
		row := &s.All[i]
		path := strings.TrimPrefix(row.Path, "/api")
		above := path[:strings.LastIndexByte(path, '/')]
		at := slices.IndexFunc(s.Pages, func(p *Page) bool { return p.Path == above })
		if s.Rows[row.Name] == nil || row.Method != http.MethodGet ||
			at >= 0 && (s.Pages[at].List || !strings.HasSuffix(path, "}")) {
			continue
		}
		here := slices.IndexFunc(s.Pages, func(p *Page) bool { return p.Shows == row })
		switch home := s.Home(row); {
		case here < 0:
			if home != nil && !strings.Contains(path, "{") {
				home.Exports = append(home.Exports, row)
			}
		case strings.HasSuffix(path, "}"):
			if recordPage := s.recordPage(above); recordPage != nil && recordPage.Key() == s.Pages[here].Key() {
				recordPage.Subpages = append(recordPage.Subpages, s.Pages[here])
			}
		case home != nil && !strings.Contains(path, "{") && !s.Pages[here].List && s.Pages[here].Update == nil:
			home.Subpages = append(home.Subpages, s.Pages[here])
		}
	}
}

// Home returns the first page of the navigation that has the row's tag, or nil.
func (s *Site) Home(row *operation.Row) *Page {
	for _, p := range s.Pages {
		if p.InNavigation() && p.Shows.Tag == row.Tag {
			return p
		}
	}
	return nil
}

// recordPage returns the page of one record of the list that a path ends in, or else of a list above the path; nil if
// there is none.
func (s *Site) recordPage(path string) (page *Page) {
	for _, p := range s.Pages {
		if p.List && p.Record != nil &&
			(strings.HasSuffix(path, p.Path) || page == nil && strings.HasPrefix(path, p.Path+"/")) {
			page = p.Record
		}
	}
	return page
}

// Find returns the page of an escaped path and the values of its parameters, or nil. A literal segment is preferred to
// a parameter.
func (s *Site) Find(escaped string) (*Page, map[string]string) {
	segments := strings.Split(escaped, "/")
	var best *Page
	for _, p := range s.Pages {
		if p.matches(segments) && (best == nil || slices.CompareFunc(p.Segments, best.Segments, literalFirst) < 0) {
			best = p
		}
	}
	if best == nil {
		return nil, nil
	}
	path := map[string]string{}
	for i, segment := range best.Segments {
		if segment != "" && segment[0] == '{' {
			value, err := url.PathUnescape(segments[i])
			if err != nil || value == "" {
				return nil, nil
			}
			path[strings.Trim(segment, "{}")] = value
		}
	}
	return best, path
}

func literalFirst(a, b string) int {
	parameter := func(s string) int { return map[bool]int{true: 1}[strings.HasPrefix(s, "{")] }
	return cmp.Compare(parameter(a), parameter(b))
}

// declared returns the declared fields of an answer; for a list, those of its records.
func declared(answer reflect.Type) []declare.Field {
	for answer != nil && (answer.Kind() == reflect.Pointer || answer.Kind() == reflect.Slice) {
		answer = answer.Elem()
	}
	if answer == nil || answer.Kind() != reflect.Struct {
		return nil
	}
	fields, err := declare.Of(answer)
	if err != nil {
		return nil // pages then show the fields without titles and types
	}
	for _, f := range fields {
		if f.Name == "results" {
			return declared(f.Type)
		}
	}
	return fields
}

// Declared returns the declaration of a field in the answer of the page's operation, or the zero Field.
func (s *Site) Declared(p *Page, name string) (f declare.Field) {
	fields := s.declared[p.Shows.Name]
	if at := slices.IndexFunc(fields, func(f declare.Field) bool { return f.Name == name }); at >= 0 {
		f = fields[at]
	}
	return f
}
