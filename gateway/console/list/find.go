package list

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
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
)

// findView has what was found by a word: pages, and records of each list that can be searched.
type findView struct {
	visit.Chrome
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

// Find looks into one list after the other while there is time; the page says which are pending, and leads to them.
func Find(v *visit.Visit) {
	query := v.R.URL.Query()
	view := findView{Chrome: v.Chrome("Find"), Q: strings.TrimSpace(query.Get("q"))}
	if list := v.Site.ListOf("contact"); list != nil && v.May(list.Shows) { // one of the lists that are searched
		view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: list.Shows, Query: url.Values{"q": {view.Q}}.Encode()})
	}
	if view.Q == "" {
		v.Show(http.StatusOK, "find", view)
		return
	}
	lists := searched(v, &view)
	from, _ := strconv.Atoi(query.Get("from")) // anything else is the first
	from = min(max(from, 0), len(lists))
	if view.Further = from > 0; !view.Further {
		findPages(v, &view)
	}
	began := v.Now()
	for i, list := range lists[from:] {
		if i > 0 && v.Now().Sub(began) >= searchTime {
			view.Looked = v.FormatInt(from+i) + " of " + v.FormatInt(len(lists))
			view.Next = "/find?" + url.Values{"q": {view.Q}, "from": {strconv.Itoa(from + i)}}.Encode()
			for _, left := range lists[from+i:] {
				view.Pending = append(view.Pending, site.Link{Title: left.title, Address: left.Address(left.path) + "?" + url.Values{"q": {view.Q}}.Encode()})
			}
			break
		}
		search(v, &view, list)
	}
	v.Show(http.StatusOK, "find", view)
}

// findPages notes the pages that are called so.
func findPages(v *visit.Visit, view *findView) {
	var pages []site.Link
	for _, p := range v.Site.Pages { // also those that the navigation does not have
		title := p.Title()
		if !p.InNavigation() {
			title = cmp.Or(map[string]string{"/me": "Your profile"}[p.Path], v.Site.SubpageTitle(p), title)
		}
		if words := strings.ToLower(title + " " + site.Label(p.Segments[len(p.Segments)-1])); !strings.Contains(p.Path, "{") && v.May(p.Shows) && strings.Contains(words, strings.ToLower(view.Q)) {
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

// searched returns the lists that the person can search: those of the navigation, and after each those that its records
// have, as custom objects have records.
func searched(v *visit.Visit, view *findView) (lists []searchedList) {
	for _, part := range view.Navigation {
		for _, link := range part.Links {
			p, path := v.Site.Find(link.Address)
			if !p.List || p.Record == nil {
				continue
			}
			if p.Has("q") {
				lists = append(lists, searchedList{p, path, link.Title})
			}
			within := slices.DeleteFunc(slices.Clone(p.Record.Subpages), func(below *site.Page) bool {
				return !below.List || below.Record == nil || !below.Has("q") || !v.May(below.Shows)
			})
			if len(within) == 0 {
				continue
			}
			data, _ := v.ReadNamed(p.Shows.Name, "per_page="+strconv.Itoa(show.MaxOptions))
			for _, record := range data.Get("results").Items {
				of := map[string]string{p.Record.Key(): show.Key(p.Record, record)}
				for _, below := range within {
					lists = append(lists, searchedList{below, of, show.Clip(cmp.Or(record.Get("label_plural").Text, show.Name(record, "")))})
				}
			}
			if show.Count(data, "count") > show.MaxOptions {
				view.Unasked = append(view.Unasked, site.Link{Title: link.Title + ", all but the first " + v.FormatInt(show.MaxOptions), Address: link.Address})
			}
		}
	}
	return lists
}

// search notes the records of a list that have the words.
func search(v *visit.Visit, view *findView, list searchedList) {
	p, words := list.Page, url.Values{"q": {view.Q}}
	all := p.Address(list.path) + "?" + words.Encode()
	words.Set("per_page", strconv.Itoa(perFound))
	a, err := v.Read(p.Shows, list.path, words.Encode())
	if err != nil || !a.OK() {
		view.Unasked = append(view.Unasked, site.Link{Title: list.title, Address: all})
		return
	}
	records := a.Data.Get("results").Items
	if len(records) == 0 {
		return
	}
	found := foundView{Title: list.title, All: all}
	name := show.NamesOf(v, p.Shows, list.path)
	for _, record := range records {
		at := maps.Clone(list.path)
		at[p.Record.Key()] = show.Key(p.Record, record)
		found.Links = append(found.Links, site.Link{Title: show.Clip(name(record, "")), Address: p.Record.Address(at)})
	}
	view.Found = append(view.Found, found)
}
