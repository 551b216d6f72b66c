package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// findView has what was found by a word: pages, and records of each list that can be searched.
type findView struct {
	chrome
	Q     string
	Found []foundView
}

type foundView struct {
	Title string
	All   string // the list with all of them
	Links []linkView
}

// perFound is how many records of a list are shown.
const perFound = 8

func (m *Module) findPage(v *visit) {
	view := findView{chrome: v.chrome("Find"), Q: strings.TrimSpace(v.r.URL.Query().Get("q"))}
	if view.Q != "" {
		var pages []linkView
		for _, part := range view.Navigation {
			for _, link := range part.Links {
				if strings.Contains(strings.ToLower(link.Title), strings.ToLower(view.Q)) {
					pages = append(pages, linkView{Title: link.Title, Address: link.Address})
				}
			}
		}
		if pages != nil {
			view.Found = append(view.Found, foundView{Title: "Pages", Links: pages})
		}
		for _, part := range view.Navigation {
			for _, link := range part.Links {
				v.search(&view, link)
			}
		}
	}
	v.show(http.StatusOK, "find", view)
}

// search notes the records of a list that have the words.
func (v *visit) search(view *findView, link linkView) {
	p, path := v.site.find(link.Address)
	if !p.list || !p.has("q") || p.each == nil {
		return
	}
	a, err := v.read(p.shows, path, url.Values{"q": {view.Q}, "per_page": {strconv.Itoa(perFound)}}.Encode())
	if err != nil || !a.ok() || len(a.data.Get("results").Items) == 0 {
		return
	}
	found := foundView{Title: link.Title, All: link.Address + "?" + url.Values{"q": {view.Q}}.Encode()}
	for _, record := range a.data.Get("results").Items {
		found.Links = append(found.Links, linkView{Title: clip(nameOf(record, "")), Address: p.each.address(map[string]string{p.each.key(): keyOf(p.each, record)})})
	}
	view.Found = append(view.Found, found)
}
