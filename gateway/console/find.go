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
	Q       string
	Found   []foundView
	Pending []linkView // lists that there was no time to look into
	Next    string     // leads to them
	Looked  string     // into how many lists, where some are pending
	Further bool       // other lists were looked into before
	Unasked []linkView // lists that nobody looks into
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

// findPage looks into one list after the other while there is time; the page says which are pending, and leads to them.
func findPage(v *visit) {
	query := v.r.URL.Query()
	view := findView{chrome: v.chrome("Find"), Q: strings.TrimSpace(query.Get("q"))}
	if list := v.site.listOf("contact"); list != nil && v.may(list.shows) { // one of the lists that are searched
		view.Curl = v.client.curl(v.t.Org.Slug, request{row: list.shows, query: url.Values{"q": {view.Q}}.Encode()})
	}
	if view.Q == "" {
		v.show(http.StatusOK, "find", view)
		return
	}
	lists := v.searched(&view)
	from, _ := strconv.Atoi(query.Get("from")) // anything else is the first
	from = min(max(from, 0), len(lists))
	if view.Further = from > 0; !view.Further {
		v.findPages(&view)
	}
	began := v.now()
	for i, list := range lists[from:] {
		if i > 0 && v.now().Sub(began) >= searchTime {
			view.Looked = v.whole(from+i) + " of " + v.whole(len(lists))
			view.Next = "/find?" + url.Values{"q": {view.Q}, "from": {strconv.Itoa(from + i)}}.Encode()
			for _, left := range lists[from+i:] {
				view.Pending = append(view.Pending, linkView{Title: left.title, Address: left.address(left.path) + "?" + url.Values{"q": {view.Q}}.Encode()})
			}
			break
		}
		v.search(&view, list)
	}
	v.show(http.StatusOK, "find", view)
}

// findPages notes the pages that are called so.
func (v *visit) findPages(view *findView) {
	var pages []linkView
	for _, p := range v.site.pages { // also those that the navigation does not have
		title := p.title()
		if !p.led() {
			title = cmp.Or(map[string]string{"/me": "Your profile"}[p.path], v.site.below(p), title)
		}
		if words := strings.ToLower(title + " " + label(p.segments[len(p.segments)-1])); !strings.Contains(p.path, "{") && v.may(p.shows) && strings.Contains(words, strings.ToLower(view.Q)) {
			pages = append(pages, linkView{Title: title, Address: p.path})
		}
	}
	if pages != nil {
		view.Found = append(view.Found, foundView{Title: "Pages", Links: pages})
	}
}

// below returns what the page is called that lies beneath one of the navigation: Audit log: verification.
func (s *site) below(p *page) string {
	if above, _ := s.find(strings.Join(p.segments[:len(p.segments)-1], "/")); above != nil && len(p.segments) > 2 {
		return above.title() + ": " + strings.ToLower(label(p.segments[len(p.segments)-1]))
	}
	return ""
}

// searchedList is a list that can be searched.
type searchedList struct {
	*page
	path  map[string]string
	title string
}

// searched returns the lists that the person can search: those of the navigation, and after each those that its records have, as custom
// objects have records.
func (v *visit) searched(view *findView) (lists []searchedList) {
	for _, part := range view.Navigation {
		for _, link := range part.Links {
			p, path := v.site.find(link.Address)
			if !p.list || p.each == nil {
				continue
			}
			if p.has("q") {
				lists = append(lists, searchedList{p, path, link.Title})
			}
			within := slices.DeleteFunc(slices.Clone(p.each.below), func(below *page) bool {
				return !below.list || below.each == nil || !below.has("q") || !v.may(below.shows)
			})
			if len(within) == 0 {
				continue
			}
			data, _ := v.named(p.shows.Name, "per_page="+strconv.Itoa(mostOptions))
			for _, record := range data.Get("results").Items {
				of := map[string]string{p.each.key(): keyOf(p.each, record)}
				for _, below := range within {
					lists = append(lists, searchedList{below, of, clip(cmp.Or(record.Get("label_plural").Text, nameOf(record, "")))})
				}
			}
			if count(data, "count") > mostOptions {
				view.Unasked = append(view.Unasked, linkView{Title: link.Title + ", all but the first " + v.whole(mostOptions), Address: link.Address})
			}
		}
	}
	return lists
}

// search notes the records of a list that have the words.
func (v *visit) search(view *findView, list searchedList) {
	p, words := list.page, url.Values{"q": {view.Q}}
	all := p.address(list.path) + "?" + words.Encode()
	words.Set("per_page", strconv.Itoa(perFound))
	a, err := v.read(p.shows, list.path, words.Encode())
	if err != nil || !a.ok() {
		view.Unasked = append(view.Unasked, linkView{Title: list.title, Address: all})
		return
	}
	records := a.data.Get("results").Items
	if len(records) == 0 {
		return
	}
	found := foundView{Title: list.title, All: all}
	name := v.namesOf(p.shows, list.path)
	for _, record := range records {
		at := maps.Clone(list.path)
		at[p.each.key()] = keyOf(p.each, record)
		found.Links = append(found.Links, linkView{Title: clip(name(record, "")), Address: p.each.address(at)})
	}
	view.Found = append(view.Found, found)
}
