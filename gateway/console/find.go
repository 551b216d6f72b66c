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

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/site"
)

// findView has what was found by a word: pages, and records of each list that can be searched.
type findView struct {
	chrome
	Q       string
	Found   []foundView
	Pending []site.Link // lists that there was no time to look into
	Next    string      // leads to them
	Looked  string      // into how many lists, where some are pending
	Further bool        // other lists were looked into before
	Unasked []site.Link // lists that nobody looks into
}

type foundView struct {
	Title string
	All   string // the list with all of them
	Links []site.Link
}

const (
	perFound   = 8 // records of a list that are shown
	searchTime = time.Second
)

// findPage looks into one list after the other while there is time; the page says which are pending, and leads to them.
func findPage(v *visit) {
	query := v.r.URL.Query()
	view := findView{chrome: v.chrome("Find"), Q: strings.TrimSpace(query.Get("q"))}
	if list := v.site.ListOf("contact"); list != nil && v.may(list.Shows) { // one of the lists that are searched
		view.Curl = v.client.Curl(v.t.Org.Slug, ask.Call{Row: list.Shows, Query: url.Values{"q": {view.Q}}.Encode()})
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
				view.Pending = append(view.Pending, site.Link{Title: left.title, Address: left.Address(left.path) + "?" + url.Values{"q": {view.Q}}.Encode()})
			}
			break
		}
		v.search(&view, list)
	}
	v.show(http.StatusOK, "find", view)
}

// findPages notes the pages that are called so.
func (v *visit) findPages(view *findView) {
	var pages []site.Link
	for _, p := range v.site.Pages { // also those that the navigation does not have
		title := p.Title()
		if !p.InNavigation() {
			title = cmp.Or(map[string]string{"/me": "Your profile"}[p.Path], v.site.SubpageTitle(p), title)
		}
		if words := strings.ToLower(title + " " + site.Label(p.Segments[len(p.Segments)-1])); !strings.Contains(p.Path, "{") && v.may(p.Shows) && strings.Contains(words, strings.ToLower(view.Q)) {
			pages = append(pages, site.Link{Title: title, Address: p.Path})
		}
	}
	if pages != nil {
		view.Found = append(view.Found, foundView{Title: "Pages", Links: pages})
	}
}

// searchedList is a list that can be searched.
type searchedList struct {
	*site.Page
	path  map[string]string
	title string
}

// searched returns the lists that the person can search: those of the navigation, and after each those that its records have, as custom
// objects have records.
func (v *visit) searched(view *findView) (lists []searchedList) {
	for _, part := range view.Navigation {
		for _, link := range part.Links {
			p, path := v.site.Find(link.Address)
			if !p.List || p.Each == nil {
				continue
			}
			if p.Has("q") {
				lists = append(lists, searchedList{p, path, link.Title})
			}
			within := slices.DeleteFunc(slices.Clone(p.Each.Below), func(below *site.Page) bool {
				return !below.List || below.Each == nil || !below.Has("q") || !v.may(below.Shows)
			})
			if len(within) == 0 {
				continue
			}
			data, _ := v.named(p.Shows.Name, "per_page="+strconv.Itoa(mostOptions))
			for _, record := range data.Get("results").Items {
				of := map[string]string{p.Each.Key(): keyOf(p.Each, record)}
				for _, below := range within {
					lists = append(lists, searchedList{below, of, clip(cmp.Or(record.Get("label_plural").Text, nameOf(record, "")))})
				}
			}
			if count(data, "count") > mostOptions {
				view.Unasked = append(view.Unasked, site.Link{Title: link.Title + ", all but the first " + v.whole(mostOptions), Address: link.Address})
			}
		}
	}
	return lists
}

// search notes the records of a list that have the words.
func (v *visit) search(view *findView, list searchedList) {
	p, words := list.Page, url.Values{"q": {view.Q}}
	all := p.Address(list.path) + "?" + words.Encode()
	words.Set("per_page", strconv.Itoa(perFound))
	a, err := v.read(p.Shows, list.path, words.Encode())
	if err != nil || !a.Ok() {
		view.Unasked = append(view.Unasked, site.Link{Title: list.title, Address: all})
		return
	}
	records := a.Data.Get("results").Items
	if len(records) == 0 {
		return
	}
	found := foundView{Title: list.title, All: all}
	name := v.namesOf(p.Shows, list.path)
	for _, record := range records {
		at := maps.Clone(list.path)
		at[p.Each.Key()] = keyOf(p.Each, record)
		found.Links = append(found.Links, site.Link{Title: clip(name(record, "")), Address: p.Each.Address(at)})
	}
	view.Found = append(view.Found, found)
}
