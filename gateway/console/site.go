package console

import (
	"cmp"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"tenantry/backends/api"
	"tenantry/tenants"
)

// site is the pages that the rows make. The page of a call that reads has the path of its operation without
// /api, and the same query: /contacts?filters[city]=Bonn shows what /api/contacts?filters[city]=Bonn answers. Forms of operations that change
// something are at /do/ and the operation's name. What a row says is said nowhere else, so a new resource has its pages at once.
type site struct {
	api   http.Handler
	all   []api.Operation
	rows  map[string]*api.Operation // that sessions may call, by name
	pages []*page
}

// page is what is to be seen at one path.
type page struct {
	path     string // with {parameters}
	segments []string
	shows    *api.Operation // by GET
	list     bool
	create   *api.Operation // of a list
	update   *api.Operation // of a record
	remove   *api.Operation
	actions  []*api.Operation // what else can be done with it
	exports  []*api.Operation // what can be fetched as a file
	below    []*page          // pages about the record
	each     *page            // of a list: that of one record
}

// Serve makes the pages of the rows; handler serves them. It is called before the first request.
func (m *Module) Serve(rows []api.Operation, handler http.Handler) {
	s := site{api: handler, all: rows, rows: map[string]*api.Operation{}}
	at := map[string]*page{}
	for i := range rows {
		row := &rows[i]
		if row.Credentials&api.Session == 0 || !strings.HasPrefix(row.Path, "/api/") {
			continue
		}
		s.rows[row.Name] = row
		if row.Method == http.MethodGet && row.Streams == nil {
			p := &page{path: strings.TrimPrefix(row.Path, "/api"), shows: row, list: strings.HasSuffix(row.Name, ".list")}
			p.segments = strings.Split(p.path, "/")
			at[p.path] = p
			s.pages = append(s.pages, p)
		}
	}
	for i := range rows {
		if s.rows[rows[i].Name] == nil {
			continue
		}
		row, path := &rows[i], strings.TrimPrefix(rows[i].Path, "/api")
		p, parent := at[path], at[path[:strings.LastIndexByte(path, '/')]]
		switch {
		case row.Streams != nil:
			if parent != nil {
				parent.exports = append(parent.exports, row)
			}
		case row.Method == http.MethodGet:
			switch {
			case parent == nil:
			case parent.list && p.segments[len(p.segments)-1][0] == '{':
				parent.each = p
			default:
				parent.below = append(parent.below, p)
			}
		case p != nil && p.list && strings.HasSuffix(row.Name, ".create"):
			p.create = row
		case p != nil && row.Method == http.MethodPut:
			p.update = row
		case p != nil && row.Method == http.MethodDelete && !p.list:
			p.remove = row
		case p != nil && row.Method == http.MethodDelete:
			p.actions = append(p.actions, row)
		case parent != nil && !strings.HasSuffix(row.Name, ".bulk"):
			parent.actions = append(parent.actions, row)
		}
	}
	m.site = s
}

// find returns the page of a path and the parameters within it. A segment that is written out goes before a parameter.
func (s *site) find(escaped string) (*page, map[string]string) {
	segments := strings.Split(escaped, "/")
	var best *page
	for _, p := range s.pages {
		if p.fits(segments) && (best == nil || slices.CompareFunc(p.segments, best.segments, writtenFirst) < 0) {
			best = p
		}
	}
	if best == nil {
		return nil, nil
	}
	path := map[string]string{}
	for i, segment := range best.segments {
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

func (p *page) fits(segments []string) bool {
	if len(segments) != len(p.segments) {
		return false
	}
	for i, s := range p.segments {
		if s != segments[i] && (s == "" || s[0] != '{' || segments[i] == "") {
			return false
		}
	}
	return true
}

// key returns the parameter of the path that names the record of the page; empty: there is none.
func (p *page) key() string {
	if last := p.segments[len(p.segments)-1]; last != "" && last[0] == '{' {
		return strings.Trim(last, "{}")
	}
	return ""
}

// action returns what can be done with the record by that verb.
func (p *page) action(verb string) *api.Operation {
	for _, row := range p.actions {
		if strings.HasSuffix(row.Name, "."+verb) {
			return row
		}
	}
	return nil
}

// address returns the address of the page for these parameters of the path.
func (p *page) address(path map[string]string) string {
	q := request{row: p.shows, path: path}
	return strings.TrimPrefix(q.target(), "/api")
}

// may reports whether the person can call the operation at all; what depends on the record is told by the call.
func may(row *api.Operation, who *tenants.Principal, t *tenants.Tenant) bool {
	return row != nil && row.Admits(who, "") == nil && row.Rule.Check(who, t) == nil
}

// groups are the parts of the navigation, by the tags of the rows; those of no group come last.
func groups() []group {
	return []group{
		{"Data", []string{"Contacts", "Custom objects", "Forms", "Files"}},
		{"Insight", []string{"Reports", "Campaigns"}},
		{"Access", []string{"Users", "Roles", "Teams", "Service Accounts", "Keys"}},
		{"Organization", []string{"Organization", "Compliance", "Audit", "Usage", "Bundles"}},
	}
}

type group struct {
	Title string
	tags  []string
}

type navigation struct {
	Title string
	Links []linkView
}

// navigation returns where the person can go from anywhere; current is the path of the page that is shown.
func (s *site) navigation(who *tenants.Principal, t *tenants.Tenant, current string) []navigation {
	all := groups()
	shown := make([]navigation, len(all)+1)
	for i := range all {
		shown[i].Title = all[i].Title
	}
	shown[len(all)].Title = "More"
	for _, p := range s.pages {
		if strings.Contains(p.path, "{") || !may(p.shows, who, t) || !p.list && p.update == nil && len(p.shows.Params) == 0 || p.path == "/me" || strings.HasPrefix(p.path, "/me/") {
			continue
		}
		if !p.list && p.update == nil {
			continue
		}
		at := slices.IndexFunc(all, func(g group) bool { return slices.Contains(g.tags, p.shows.Tag) })
		if at < 0 {
			at = len(all)
		}
		shown[at].Links = append(shown[at].Links, linkView{Title: p.title(), Address: p.path, Current: current == p.path || p.list && strings.HasPrefix(current, p.path+"/") && p.each != nil && !s.listed(current, p)})
	}
	for i := range all { // in the order of the tags
		slices.SortStableFunc(shown[i].Links, func(a, b linkView) int {
			order := func(l linkView) int {
				p, _ := s.find(l.Address)
				return slices.Index(all[i].tags, p.shows.Tag)
			}
			return cmp.Compare(order(a), order(b))
		})
	}
	return slices.DeleteFunc(shown, func(n navigation) bool { return len(n.Links) == 0 })
}

// listed reports whether a page in the navigation other than p is nearer to the current one.
func (s *site) listed(current string, p *page) bool {
	return slices.ContainsFunc(s.pages, func(other *page) bool {
		return other != p && other.list && len(other.path) > len(p.path) && (current == other.path || strings.HasPrefix(current, other.path+"/"))
	})
}

var firstWord = regexp.MustCompile(`^(List|Get|Change|Update|Create|Delete|Restore) (an? |the |all )?`)

// title returns what the page shows: "Contacts" of one that lists contacts.
func (p *page) title() string {
	if title := firstWord.ReplaceAllString(p.shows.Summary, ""); len(title) <= longTitle || p.key() != "" {
		return capital(title)
	}
	return p.shows.Tag
}

// longTitle is too long for the navigation.
const longTitle = 28

func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// label writes the name of a field as people do: last_used_at is Last used at.
func label(name string) string {
	switch name {
	case "id", "pid", "url":
		return strings.ToUpper(name)
	}
	return capital(strings.ReplaceAll(strings.TrimSuffix(name, "_id"), "_", " "))
}
