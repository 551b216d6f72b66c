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

// findView shows the results of a search for words: pages, and records of each list that can be searched.
type findView struct {
	visit.Chrome
	Q       string
	Found   []foundView
	Pending []site.Link // lists that were not searched in time
	Next    string      // the address that searches them
	Looked  string      // how many lists were searched, if some are pending
	Further bool        // the page continues a search
	Unasked []site.Link // lists that are not searched
}

// foundView shows the results in one list.
type foundView struct {
	Title string
	All   string // the address of the list with all results
	Links []site.Link
}

const (
	perFound   = 8           // results that are shown of a list
	searchTime = time.Second // no search of a list begins after it
)

// Find answers with the page that finds pages and records. It searches the lists in turn until searchTime has passed,
// and links to a page that continues with the others.
func Find(v *visit.Visit) {
	query := v.R.URL.Query()
	view := findView{Chrome: v.Chrome("Find"), Q: strings.TrimSpace(query.Get("q"))}
	if list := v.Site.ListOf("contact"); list != nil && v.May(list.Shows) { // an example of the calls of the page
		words := url.Values{"q": {view.Q}}
		view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: list.Shows, Query: words.Encode()})
	}
	if view.Q == "" {
		v.Show(http.StatusOK, "find", view)
		return
	}
	lists := searchableLists(v, &view)
	from, _ := strconv.Atoi(query.Get("from")) // 0 if it is not a number
	from = min(max(from, 0), len(lists))
	if view.Further = from > 0; !view.Further {
		findPages(v, &view)
	}
	start := v.Now()
	for i, list := range lists[from:] {
		if i > 0 && v.Now().Sub(start) >= searchTime {
			view.Looked = v.FormatInt(from+i) + " of " + v.FormatInt(len(lists))
			view.Next = "/find?" + url.Values{"q": {view.Q}, "from": {strconv.Itoa(from + i)}}.Encode()
			for _, pending := range lists[from+i:] {
				address := pending.Address(pending.path) + "?" + url.Values{"q": {view.Q}}.Encode()
				view.Pending = append(view.Pending, site.Link{Title: pending.title, Address: address})
			}
			break
		}
		search(v, &view, list)
	}
	v.Show(http.StatusOK, "find", view)
}

// findPages adds the pages whose titles have the words, including pages that are not in the navigation.
func findPages(v *visit.Visit, view *findView) {
	var pages []site.Link
	for _, p := range v.Site.Pages {
		title := p.Title()
		if !p.InNavigation() {
			title = cmp.Or(map[string]string{"/me": "Your profile"}[p.Path], v.Site.SubpageTitle(p), title)
		}
		text := strings.ToLower(title + " " + site.Label(p.Segments[len(p.Segments)-1]))
		if !strings.Contains(p.Path, "{") && v.May(p.Shows) && strings.Contains(text, strings.ToLower(view.Q)) {
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

// searchableLists returns the lists that the person can search: those of the navigation, each followed by the lists
// below its records, such as the records of custom objects.
func searchableLists(v *visit.Visit, view *findView) (lists []searchedList) {
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
				path := map[string]string{p.Record.Key(): show.Key(p.Record, record)}
				title := show.Clip(cmp.Or(record.Get("label_plural").Text, show.Name(record, "")))
				for _, below := range within {
					lists = append(lists, searchedList{below, path, title})
				}
			}
			if show.Count(data, "count") > show.MaxOptions {
				title := link.Title + ", all but the first " + v.FormatInt(show.MaxOptions)
				view.Unasked = append(view.Unasked, site.Link{Title: title, Address: link.Address})
			}
		}
	}
	return lists
}

// search adds the records of a list that have the words.
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
		path := maps.Clone(list.path)
		path[p.Record.Key()] = show.Key(p.Record, record)
		found.Links = append(found.Links, site.Link{Title: show.Clip(name(record, "")), Address: p.Record.Address(path)})
	}
	view.Found = append(view.Found, found)
}
