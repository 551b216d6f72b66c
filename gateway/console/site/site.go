// Package site derives the pages of the console from the rows of operations: which pages there are, what each shows and
// lets people do, where it stands in the navigation, and how it is titled. It knows nothing of HTTP and calls no
// operation.
//
// The page of an operation that reads has the operation's path without /api, and takes the same query:
// /contacts?filters[city]=Bonn shows what /api/contacts?filters[city]=Bonn answers. A new resource has its pages as
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

// ListNamed returns the list of records that is called so, and lies beneath no other record.
func (s *Site) ListNamed(name string) *Page {
	for _, p := range s.Pages {
		if p.List && p.Each != nil && !strings.Contains(p.Path, "{") && p.Segments[len(p.Segments)-1] == name {
			return p
		}
	}
	return nil
}

// SubpageTitle returns what the page is called that lies beneath one of the navigation: Audit log: verification.
func (s *Site) SubpageTitle(p *Page) string {
	if above, _ := s.Find(strings.Join(p.Segments[:len(p.Segments)-1], "/")); above != nil && len(p.Segments) > 2 {
		return above.Title() + ": " + strings.ToLower(Label(p.Segments[len(p.Segments)-1]))
	}
	return ""
}

// ListOf returns the page that lists the records of a resource.
func (s *Site) ListOf(resource string) *Page {
	for _, p := range s.Pages {
		if resource != "" && p.List && p.Shows.Resource == resource && p.Shows.Lists == "" {
			return p
		}
	}
	return nil
}

// Site is the pages that the rows make. The page of a call that reads has the path of its operation without /api, and
// the same query: /contacts?filters[city]=Bonn shows what /api/contacts?filters[city]=Bonn answers. Forms of operations
// that change something are at /do/ and the operation's name. What a row says is said nowhere else, so a new resource
// has its pages at once.
type Site struct {
	All      []operation.Row
	Rows     map[string]*operation.Row // that sessions may call, by name
	Pages    []*Page
	declared map[string][]declare.Field // what answers declare of the fields of a record, by the operation's name
}

// New returns the pages of the rows.
func New(rows []operation.Row) *Site {
	s := &Site{All: rows, Rows: map[string]*operation.Row{}, declared: map[string][]declare.Field{}}
	at := map[string]*Page{}
	for i := range rows {
		row := &rows[i]
		if row.Credentials&operation.Session == 0 || !strings.HasPrefix(row.Path, "/api/") {
			continue
		}
		s.Rows[row.Name], s.declared[row.Name] = row, declared(reflect.TypeOf(row.Data))
		if row.Method == http.MethodGet && row.Streams == nil {
			p := &Page{Path: strings.TrimPrefix(row.Path, "/api"), Shows: row, List: row.Action == operation.ListAction || row.Lists != ""}
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
				parent.Each = p
			case p.Key() == "":
				parent.Below = append(parent.Below, p)
			}
		case p != nil && p.List && row.Action == operation.CreateAction:
			p.Create = row
		case p != nil && row.Method == http.MethodPut:
			p.Update = row
		case p != nil && row.Method == http.MethodDelete && !p.List:
			p.Remove = row
		case p != nil && row.Method == http.MethodDelete:
			p.Actions = append(p.Actions, row)
		case at[path+"s"] != nil: // it makes one of those that the page lists
			at[path+"s"].Actions = append(at[path+"s"].Actions, row)
		case parent != nil && row.Action != operation.BulkAction:
			parent.Actions = append(parent.Actions, row)
		}
	}
	s.settle()
	for _, p := range s.Pages {
		if p.Each != nil {
			p.Each.makes = p.Create
		}
		if p.Leads = p.Each; p.Shows.Lists != "" {
			p.Leads = s.ListOf(p.Shows.Lists).Each
		}
	}
	return s
}

// settle gives each page and file that lies at no other page's address one that leads to it. Of a record that is the
// record's page: /compliance/contacts/{id} is led to by /contacts/{id}. Others are led to by the first page of the
// navigation with their tag.
func (s *Site) settle() {
	for i := range s.All {
		row := &s.All[i]
		path := strings.TrimPrefix(row.Path, "/api")
		above := path[:strings.LastIndexByte(path, '/')]
		at := slices.IndexFunc(s.Pages, func(p *Page) bool { return p.Path == above })
		if s.Rows[row.Name] == nil || row.Method != http.MethodGet || at >= 0 && (s.Pages[at].List || !strings.HasSuffix(path, "}")) {
			continue
		}
		here := slices.IndexFunc(s.Pages, func(p *Page) bool { return p.Shows == row })
		switch home := s.Home(row); {
		case here < 0:
			if home != nil && !strings.Contains(path, "{") {
				home.Exports = append(home.Exports, row)
			}
		case strings.HasSuffix(path, "}"):
			if of := s.of(above); of != nil && of.Key() == s.Pages[here].Key() {
				of.Below = append(of.Below, s.Pages[here])
			}
		case home != nil && !strings.Contains(path, "{") && !s.Pages[here].List && s.Pages[here].Update == nil:
			home.Below = append(home.Below, s.Pages[here])
		}
	}
}

// Home returns the first page of the navigation that bears the row's tag.
func (s *Site) Home(row *operation.Row) *Page {
	for _, p := range s.Pages {
		if p.InNavigation() && p.Shows.Tag == row.Tag {
			return p
		}
	}
	return nil
}

// of returns the page of one record of those that the end of a path names, or of the list that is above it.
func (s *Site) of(path string) (each *Page) {
	for _, p := range s.Pages {
		if p.List && p.Each != nil && (strings.HasSuffix(path, p.Path) || each == nil && strings.HasPrefix(path, p.Path+"/")) {
			each = p.Each
		}
	}
	return each
}

// Find returns the page of a path and the parameters within it. A segment that is written out goes before a parameter.
func (s *Site) Find(escaped string) (*Page, map[string]string) {
	segments := strings.Split(escaped, "/")
	var best *Page
	for _, p := range s.Pages {
		if p.fits(segments) && (best == nil || slices.CompareFunc(p.Segments, best.Segments, writtenFirst) < 0) {
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

func writtenFirst(a, b string) int {
	parameter := func(s string) int { return map[bool]int{true: 1}[strings.HasPrefix(s, "{")] }
	return cmp.Compare(parameter(a), parameter(b))
}

// declared returns what an answer declares of its fields, of a list those of its records.
func declared(answer reflect.Type) []declare.Field {
	for answer != nil && (answer.Kind() == reflect.Pointer || answer.Kind() == reflect.Slice) {
		answer = answer.Elem()
	}
	if answer == nil || answer.Kind() != reflect.Struct {
		return nil
	}
	fields, err := declare.Of(answer)
	if err != nil {
		return nil // then nothing is known of them
	}
	for _, f := range fields {
		if f.Name == "results" {
			return declared(f.Type)
		}
	}
	return fields
}

// Declared returns what the answer of the page's operation declares of the field; the zero Field: nothing.
func (s *Site) Declared(p *Page, name string) (f declare.Field) {
	fields := s.declared[p.Shows.Name]
	if at := slices.IndexFunc(fields, func(f declare.Field) bool { return f.Name == name }); at >= 0 {
		f = fields[at]
	}
	return f
}
