package console

import (
	"cmp"
	"net/http"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"tenantry/internal/declare"
	"tenantry/operation"
	"tenantry/tenants"
)

// site is the pages that the rows make. The page of a call that reads has the path of its operation without
// /api, and the same query: /contacts?filters[city]=Bonn shows what /api/contacts?filters[city]=Bonn answers. Forms of operations that change
// something are at /do/ and the operation's name. What a row says is said nowhere else, so a new resource has its pages at once.
type site struct {
	all   []operation.Row
	rows  map[string]*operation.Row // that sessions may call, by name
	pages []*page
	told  map[string][]declare.Field // what answers declare of the fields of a record, by the operation's name
}

// page is what is to be seen at one path.
type page struct {
	path     string // with {parameters}
	segments []string
	shows    *operation.Row // by GET
	list     bool
	create   *operation.Row // of a list
	update   *operation.Row // of a record
	remove   *operation.Row
	actions  []*operation.Row // what else can be done with it
	exports  []*operation.Row // what can be fetched as a file
	below    []*page          // pages about the record
	each     *page            // of a list: that of one record
	leads    *page            // the same, also where it is another list's
	makes    *operation.Row   // of the page of one record: what makes another
}

// newSite returns the pages of the rows.
func newSite(rows []operation.Row) *site {
	s := &site{all: rows, rows: map[string]*operation.Row{}, told: map[string][]declare.Field{}}
	at := map[string]*page{}
	for i := range rows {
		row := &rows[i]
		if row.Credentials&operation.Session == 0 || !strings.HasPrefix(row.Path, "/api/") {
			continue
		}
		s.rows[row.Name], s.told[row.Name] = row, declared(reflect.TypeOf(row.Data))
		if row.Method == http.MethodGet && row.Streams == nil {
			p := &page{path: strings.TrimPrefix(row.Path, "/api"), shows: row, list: strings.HasSuffix(row.Name, ".list") || row.Lists != ""}
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
			case p.key() == "":
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
		case at[path+"s"] != nil: // it makes one of those that the page lists
			at[path+"s"].actions = append(at[path+"s"].actions, row)
		case parent != nil && !strings.HasSuffix(row.Name, ".bulk"):
			parent.actions = append(parent.actions, row)
		}
	}
	s.settle()
	for _, p := range s.pages {
		if p.each != nil {
			p.each.makes = p.create
		}
		if p.leads = p.each; p.shows.Lists != "" {
			p.leads = s.listOf(p.shows.Lists).each
		}
	}
	return s
}

// settle gives each page and file that lies at no other page's address one that leads to it. Of a record that is the record's
// page: /compliance/contacts/{id} is led to by /contacts/{id}. Others are led to by the first page of the navigation with their tag.
func (s *site) settle() {
	for i := range s.all {
		row := &s.all[i]
		path := strings.TrimPrefix(row.Path, "/api")
		above := path[:strings.LastIndexByte(path, '/')]
		at := slices.IndexFunc(s.pages, func(p *page) bool { return p.path == above })
		if s.rows[row.Name] == nil || row.Method != http.MethodGet || at >= 0 && (s.pages[at].list || !strings.HasSuffix(path, "}")) {
			continue
		}
		here := slices.IndexFunc(s.pages, func(p *page) bool { return p.shows == row })
		switch home := s.home(row); {
		case here < 0:
			if home != nil && !strings.Contains(path, "{") {
				home.exports = append(home.exports, row)
			}
		case strings.HasSuffix(path, "}"):
			if of := s.of(above); of != nil && of.key() == s.pages[here].key() {
				of.below = append(of.below, s.pages[here])
			}
		case home != nil && !strings.Contains(path, "{") && !s.pages[here].list && s.pages[here].update == nil:
			home.below = append(home.below, s.pages[here])
		}
	}
}

// led reports whether the navigation leads to the page.
func (p *page) led() bool {
	return !strings.Contains(p.path, "{") && (p.list || p.update != nil) && p.path != "/me" && !strings.HasPrefix(p.path, "/me/")
}

// home returns the first page of the navigation that bears the row's tag.
func (s *site) home(row *operation.Row) *page {
	for _, p := range s.pages {
		if p.led() && p.shows.Tag == row.Tag {
			return p
		}
	}
	return nil
}

// of returns the page of one record of those that the end of a path names, or of the list that is above it.
func (s *site) of(path string) (each *page) {
	for _, p := range s.pages {
		if p.list && p.each != nil && (strings.HasSuffix(path, p.path) || each == nil && strings.HasPrefix(path, p.path+"/")) {
			each = p.each
		}
	}
	return each
}

// leadsTo returns the links to the pages below that the navigation does not have, as far as the person may open them.
func (p *page) leadsTo(path map[string]string, may func(*operation.Row) bool) (links []linkView) {
	for _, below := range p.below {
		if !may(below.shows) || below.led() || below.shows.Aside {
			continue
		}
		title := below.shows.Summary
		if last := below.segments[len(below.segments)-1]; below.path == p.path+"/"+last && below.key() == "" {
			title = label(last)
		}
		links = append(links, linkView{Title: title, Address: below.address(path)})
	}
	return links
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
func (p *page) action(verb string) *operation.Row {
	for _, row := range p.actions {
		if strings.HasSuffix(row.Name, "."+verb) {
			return row
		}
	}
	return nil
}

// address returns the address of the page for these parameters of the path.
func (p *page) address(path map[string]string) string {
	return strings.TrimPrefix(pathOf(p.shows, path), "/api")
}

// pathOf returns the path of an operation with its parameters.
func pathOf(row *operation.Row, path map[string]string) string {
	to := row.Path
	for name, value := range path {
		to = strings.ReplaceAll(to, "{"+name+"}", url.PathEscape(value))
	}
	return to
}

// may reports whether the person can call the operation at all; what depends on the record is told by the call.
func may(row *operation.Row, who *tenants.Principal, t *tenants.Tenant) bool {
	return row != nil && row.Admits(who, "") == nil && row.Rule.Check(who, t) == nil
}

// groups are the parts of the navigation, by the tags of the rows, each with its picture: a path in a square of 16. Those of no
// group come last.
func groups() []group {
	return []group{
		{"Data", []tagged{
			{"Contacts", "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14a5.5 5.5 0 0 1 11 0"},
			{"Custom objects", "M8 1.5 14 5v6l-6 3.5L2 11V5zM2 5l6 3.5L14 5M8 8.5v6"},
			{"Forms", "M3 2h10v12H3zM5.5 5.5h5M5.5 8h5M5.5 10.5h3"},
			{"Files", "M1.5 3.5H6L7.5 5h7v8.5h-13z"},
		}},
		{"Insight", []tagged{
			{"Reports", "M2 14h12M4 14V8M8 14V3M12 14V6"},
			{"Campaigns", "M2 6v4h3l6 3V3L5 6zM13 6a3 3 0 0 1 0 4"},
		}},
		{"Access", []tagged{
			{"Users", "M6 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 13.5a4.5 4.5 0 0 1 9 0M10.5 3.2a2.5 2.5 0 0 1 0 4.6M12 9.3a4.5 4.5 0 0 1 2.5 4.2"},
			{"Roles", "M8 1.5 13.5 3.5V8c0 3.5-2.5 5.5-5.5 6.5C5 13.5 2.5 11.5 2.5 8V3.5z"},
			{"Teams", "M8 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM4 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM12 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4z"},
			{"Service Accounts", "M2.5 6h11v7h-11zM8 6V3M5.5 8.5v1M10.5 8.5v1M6 11.2h4"},
			{"Keys", "M10.5 9a3.5 3.5 0 1 0-3.2-2.1L2 12.2V14h2.5v-1.5H6V11h1.5l1.6-2.2M11 5.5v0"},
		}},
		{"Organization", []tagged{
			{"Organization", "M3 14V2h7v12M10 6h3v8M1.5 14h13M5.5 5h2M5.5 8h2M5.5 11h2"},
			{"Compliance", "M2 2h12v12H2zM5 8l2 2 4-4"},
			{"Audit", "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3l2 1.5"},
			{"Usage", "M1.5 9H4l2-5 3 8 2-5 1 2h2.5"},
			{"Bundles", "M5 2v9M2.5 8.5 5 11l2.5-2.5M11 14V5M8.5 7.5 11 5l2.5 2.5"},
		}},
	}
}

type group struct {
	Title string
	tags  []tagged
}

type tagged struct{ tag, icon string }

// at returns where in the group a tag is, -1 where it is not.
func (g *group) at(tag string) int {
	return slices.IndexFunc(g.tags, func(t tagged) bool { return t.tag == tag })
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
		if !p.led() || !may(p.shows, who, t) {
			continue
		}
		at, icon := slices.IndexFunc(all, func(g group) bool { return g.at(p.shows.Tag) >= 0 }), ""
		if at < 0 {
			at = len(all)
		} else {
			icon = all[at].tags[all[at].at(p.shows.Tag)].icon
		}
		shown[at].Links = append(shown[at].Links, linkView{Title: p.title(), Address: p.path, Icon: icon, Current: current == p.path || p.list && strings.HasPrefix(current, p.path+"/") && p.each != nil && !s.listed(current, p)})
	}
	for i := range all { // in the order of the tags
		slices.SortStableFunc(shown[i].Links, func(a, b linkView) int {
			order := func(l linkView) int {
				p, _ := s.find(l.Address)
				return all[i].at(p.shows.Tag)
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
	if title := firstWord.ReplaceAllString(p.shows.Summary, ""); len(title) <= longTitle || !p.led() {
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

// label writes the name of a field as people do: last_used_at is Last used at, allowed_ips Allowed IPs.
func label(name string) string {
	if name == "q" {
		return "Search"
	}
	words := strings.Split(name, "_")
	if last := len(words) - 1; last > 0 && slices.Contains([]string{"id", "bytes", "us", "ms"}, words[last]) { // a unit stands with the figure
		words = words[:last]
	}
	if strings.HasSuffix(name, "_ms") {
		words = append(words, "time")
	}
	return spaced(words)
}

// spaced writes words in a line, those that are short for others in capitals.
func spaced(words []string) string {
	for i, word := range words {
		switch word {
		case "id", "ip", "ids", "ips", "pid", "url", "urls", "cdn", "ok", "csv", "json", "ndjson":
			words[i] = strings.ToUpper(strings.TrimSuffix(word, "s")) + strings.TrimPrefix(word, strings.TrimSuffix(word, "s"))
		}
	}
	return capital(strings.Join(words, " "))
}
