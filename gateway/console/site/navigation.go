package site

import (
	"cmp"
	"slices"
	"strings"

	"tenantry/tenants"
)

// groups returns the groups of the navigation: the tags of the rows in each, and an icon for every tag. Pages with
// other tags come last.
func groups() []group {
	return []group{
		{"Data", []navEntry{
			{"Contacts", "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14a5.5 5.5 0 0 1 11 0"},
			{"Custom objects", "M8 1.5 14 5v6l-6 3.5L2 11V5zM2 5l6 3.5L14 5M8 8.5v6"},
			{"Forms", "M3 2h10v12H3zM5.5 5.5h5M5.5 8h5M5.5 10.5h3"},
			{"Files", "M1.5 3.5H6L7.5 5h7v8.5h-13z"},
		}},
		{"Insight", []navEntry{
			{"Reports", "M2 14h12M4 14V8M8 14V3M12 14V6"},
			{"Campaigns", "M2 6v4h3l6 3V3L5 6zM13 6a3 3 0 0 1 0 4"},
		}},
		{"Access", []navEntry{
			{"Users", "M6 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM1.5 13.5a4.5 4.5 0 0 1 9 0M10.5 3.2a2.5 2.5 0 0 1 0 4.6M12 9.3a4.5 4.5 0 0 1 2.5 4.2"},
			{"Roles", "M8 1.5 13.5 3.5V8c0 3.5-2.5 5.5-5.5 6.5C5 13.5 2.5 11.5 2.5 8V3.5z"},
			{"Teams", "M8 6.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM4 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4zM12 13.5a2 2 0 1 0 0-4 2 2 0 0 0 0 4z"},
			{"Service Accounts", "M2.5 6h11v7h-11zM8 6V3M5.5 8.5v1M10.5 8.5v1M6 11.2h4"},
			{"Keys", "M10.5 9a3.5 3.5 0 1 0-3.2-2.1L2 12.2V14h2.5v-1.5H6V11h1.5l1.6-2.2M11 5.5v0"},
		}},
		{"Organization", []navEntry{
			{"Organization", "M3 14V2h7v12M10 6h3v8M1.5 14h13M5.5 5h2M5.5 8h2M5.5 11h2"},
			{"Compliance", "M2 2h12v12H2zM5 8l2 2 4-4"},
			{"Webhooks", "M8 2v6M5 5l3-3 3 3M3 9v4.5h10V9M6 11h4"},
			{"Audit", "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 5v3l2 1.5"},
			{"Mails", "M1.5 3.5h13v9h-13zM2 4l6 5 6-5"},
			{"Usage", "M1.5 9H4l2-5 3 8 2-5 1 2h2.5"},
			{"Bundles", "M5 2v9M2.5 8.5 5 11l2.5-2.5M11 14V5M8.5 7.5 11 5l2.5 2.5"},
		}},
	}
}

type group struct {
	Title string
	tags  []navEntry
}

// navEntry is a tag and its icon, an SVG path in a square of 16 by 16.
type navEntry struct{ tag, icon string }

// index returns the position of a tag in the group, or -1.
func (g *group) index(tag string) int {
	return slices.IndexFunc(g.tags, func(t navEntry) bool { return t.tag == tag })
}

// Navigation is a group of links in the navigation.
type Navigation struct {
	Title string
	Links []Link
}

// Navigation returns the links that every page shows to the person. current is the path of the page that is shown.
func (s *Site) Navigation(who *tenants.Principal, t *tenants.Tenant, current string) []Navigation {
	all := groups()
	shown := make([]Navigation, len(all)+1)
	for i := range all {
		shown[i].Title = all[i].Title
	}
	shown[len(all)].Title = "More"
	for _, p := range s.Pages {
		if !p.InNavigation() || !May(p.Shows, who, t) {
			continue
		}
		at, icon := slices.IndexFunc(all, func(g group) bool { return g.index(p.Shows.Tag) >= 0 }), ""
		if at < 0 {
			at = len(all)
		} else {
			icon = all[at].tags[all[at].index(p.Shows.Tag)].icon
		}

		below := p.List && p.Record != nil && strings.HasPrefix(current, p.Path+"/") && !s.hasNearerList(current, p)
		link := Link{Title: p.Title(), Address: p.Path, Icon: icon, Current: current == p.Path || below}
		shown[at].Links = append(shown[at].Links, link)
	}

	for i := range all { // in the order of the tags
		slices.SortStableFunc(shown[i].Links, func(a, b Link) int {
			order := func(l Link) int {
				p, _ := s.Find(l.Address)
				return all[i].index(p.Shows.Tag)
			}
			return cmp.Compare(order(a), order(b))
		})
	}
	return slices.DeleteFunc(shown, func(n Navigation) bool { return len(n.Links) == 0 })
}

// hasNearerList reports whether a list below p contains the current page.
func (s *Site) hasNearerList(current string, p *Page) bool {
	return slices.ContainsFunc(s.Pages, func(other *Page) bool {
		return other != p && other.List && len(other.Path) > len(p.Path) &&
			(current == other.Path || strings.HasPrefix(current, other.Path+"/"))
	})
}
