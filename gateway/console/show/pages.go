package show

import (
	"net/url"
	"strconv"
	"strings"

	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// Pager shows the number of entries of a list, and links to the pages around the current one.
type Pager struct {
	Count    string
	Previous string // addresses, empty if there is no such page
	Next     string
	Beyond   string // the address of the last page, if the current one is past it
}

// PerPage is how many rows a page has unless its address says otherwise.
const PerPage = 50

// Split divides the query of a page into the query of its operation and the parameters of the page itself, which begin
// with an underscore.
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

// NewPager returns the pager of a list. with returns the address of the current page with its query changed.
func NewPager(v *visit.Visit, data strictjson.Value, with func(func(url.Values)) string) (view Pager) {
	count, _ := strconv.Atoi(data.Get("count").Text)
	page, _ := strconv.Atoi(data.Get("page").Text)
	pages, _ := strconv.Atoi(data.Get("pages").Text)
	view.Count = map[bool]string{true: "1 entry", false: v.FormatInt(count) + " entries"}[count == 1]
	last := func(q url.Values) { q.Set("page", strconv.Itoa(pages)) }
	switch {
	case page > pages && pages > 0:
		view.Beyond = with(last)
		view.Count += ". Page " + v.FormatInt(page) + " is past the last page, " + v.FormatInt(pages)
	case pages > 1:
		view.Count += ", page " + v.FormatInt(page) + " of " + v.FormatInt(pages)
	}
	if page > 1 {
		view.Previous = with(func(q url.Values) { q.Set("page", strconv.Itoa(min(page-1, max(pages, 1)))) })
	}
	if page < pages {
		view.Next = with(func(q url.Values) { q.Set("page", strconv.Itoa(page+1)) })
	}
	if next := data.Get("next").Text; next != "" { // the page is shorter than asked for, or follows one that was
		view.Next = with(func(q url.Values) {
			q.Del("page")
			q.Set("after", next)
		})
	}
	return view
}
