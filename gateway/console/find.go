package console

import (
	"cmp"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// findView has what was found by a word: pages, and records of each list that can be searched.
type findView struct {
	chrome
	Q     string
	Found []foundView
	Left  []linkView // lists that there was no time to look into
}

type foundView struct {
	Title string
	All   string // the list with all of them
	Links []linkView
}

const (
	perFound   = 8 // records of a list that are shown
	searchTime = time.Second
)

func (m *Module) findPage(v *visit) {
	view := findView{chrome: v.chrome("Find"), Q: strings.TrimSpace(v.r.URL.Query().Get("q"))}
	if list := v.site.listOf("contact"); list != nil && may(list.shows, v.who, v.t) { // one of the lists that are searched
		view.Curl = v.curl(v.t.Org.Slug, request{row: list.shows, query: url.Values{"q": {view.Q}}.Encode()})
	}
	if view.Q != "" {
		var pages []linkView
		for _, p := range v.site.pages { // also those that the navigation does not have
			title := p.title()
			if !p.led() {
				title = cmp.Or(map[string]string{"/me": "Your profile"}[p.path], v.site.below(p), title)
			}
			if words := strings.ToLower(title + " " + label(p.segments[len(p.segments)-1])); !strings.Contains(p.path, "{") && may(p.shows, v.who, v.t) && strings.Contains(words, strings.ToLower(view.Q)) {
				pages = append(pages, linkView{Title: title, Address: p.path})
			}
		}
		if pages != nil {
			view.Found = append(view.Found, foundView{Title: "Pages", Links: pages})
		}
		began := time.Now()
		for _, part := range view.Navigation {
			for _, link := range part.Links {
				if p, path := v.site.find(link.Address); p.list {
					v.search(&view, p, path, link.Title)
					v.searchBelow(&view, p, began)
				}
			}
		}
	}
	v.show(http.StatusOK, "find", view)
}

// below returns what the page is called that lies beneath one of the navigation: Audit log: verification.
func (s *site) below(p *page) string {
	if above, _ := s.find(strings.Join(p.segments[:len(p.segments)-1], "/")); above != nil && len(p.segments) > 2 {
		return above.title() + ": " + strings.ToLower(label(p.segments[len(p.segments)-1]))
	}
	return ""
}

// search notes the records of a list that have the words.
func (v *visit) search(view *findView, p *page, path map[string]string, title string) {
	if !p.has("q") || p.each == nil {
		return
	}
	a, err := v.read(p.shows, path, url.Values{"q": {view.Q}, "per_page": {strconv.Itoa(perFound)}}.Encode())
	if err != nil || !a.ok() || len(a.data.Get("results").Items) == 0 {
		return
	}
	found := foundView{Title: title, All: p.address(path) + "?" + url.Values{"q": {view.Q}}.Encode()}
	name := v.namesOf(p.shows, path)
	for _, record := range a.data.Get("results").Items {
		at := maps.Clone(path)
		at[p.each.key()] = keyOf(p.each, record)
		found.Links = append(found.Links, linkView{Title: clip(name(record, "")), Address: p.each.address(at)})
	}
	view.Found = append(view.Found, found)
}

// searchBelow does so in the lists that each record of a list has, as custom objects have records, as long as there is time; the
// others it names.
func (v *visit) searchBelow(view *findView, p *page, began time.Time) {
	if p.each == nil || !slices.ContainsFunc(p.each.below, func(below *page) bool { return below.list && below.has("q") && may(below.shows, v.who, v.t) }) {
		return
	}
	data, _ := v.named(p.shows.Name, "per_page="+strconv.Itoa(mostOptions))
	for _, record := range data.Get("results").Items {
		path := map[string]string{p.each.key(): keyOf(p.each, record)}
		title := clip(cmp.Or(record.Get("label_plural").Text, nameOf(record, "")))
		for _, below := range p.each.below {
			switch {
			case !below.list || !may(below.shows, v.who, v.t):
			case time.Since(began) < searchTime:
				v.search(view, below, path, title)
			case below.has("q"):
				view.Left = append(view.Left, linkView{Title: title, Address: below.address(path) + "?" + url.Values{"q": {view.Q}}.Encode()})
			}
		}
	}
}
