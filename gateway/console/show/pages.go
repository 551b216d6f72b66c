package show

import (
	"net/url"
	"strconv"
	"strings"

	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// Pager says how many entries there are, and leads to the pages beside the one that is shown.
type Pager struct {
	Count    string
	Previous string
	Next     string
	Beyond   string // leads to the last page, where the one that was asked for is beyond it
}

// PerPage is how many rows a page has where its address says nothing else.
const PerPage = 50

// Split parts the query of a page into what the operation is asked and what is the page's own.
func Split(query url.Values) (asked, own url.Values) {
	asked, own = url.Values{}, url.Values{}
	for name, values := range query {
		if strings.HasPrefix(name, "_") {
			own[name] = values
		} else if len(values) > 0 && (values[0] != "" || len(values) > 1) {
			asked[name] = values
		}
	}
	return asked, own
}

// Paged says how many records there are, and leads to the pages beside.
func Paged(v *visit.Visit, data strictjson.Value, with func(func(url.Values)) string) (view Pager) {
	count, _ := strconv.Atoi(data.Get("count").Text)
	page, _ := strconv.Atoi(data.Get("page").Text)
	pages, _ := strconv.Atoi(data.Get("pages").Text)
	view.Count = map[bool]string{true: "1 entry", false: v.Whole(count) + " entries"}[count == 1]
	last := func(q url.Values) { q.Set("page", strconv.Itoa(pages)) }
	switch {
	case page > pages && pages > 0:
		view.Beyond = with(last)
		view.Count += ", and page " + v.Whole(page) + " is beyond the last, which is " + v.Whole(pages)
	case pages > 1:
		view.Count += ", page " + v.Whole(page) + " of " + v.Whole(pages)
	}
	if page > 1 {
		view.Previous = with(func(q url.Values) { q.Set("page", strconv.Itoa(min(page-1, max(pages, 1)))) })
	}
	if page < pages {
		view.Next = with(func(q url.Values) { q.Set("page", strconv.Itoa(page+1)) })
	}
	if next := data.Get("next").Text; next != "" { // the page ends early, or follows one that did
		view.Next = with(func(q url.Values) {
			q.Del("page")
			q.Set("after", next)
		})
	}
	return view
}
