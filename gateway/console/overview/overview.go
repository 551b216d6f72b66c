// Package overview is the first page of an organization: how much it keeps, its requests, what needs attention and what
// was done last.
package overview

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/usage"
	"tenantry/gateway/console/visit"
	"tenantry/modules/people"
	"tenantry/operation"
	"tenantry/reports"
	"tenantry/tenants"
)

// overview is what an organization's people see first.
type overview struct {
	visit.Chrome
	Figures   []figureView
	Attention []site.Link
	Usage     []usage.View
	Recent    []recentView
	Records   string
}

type figureView struct {
	site.Link
	Text string
}

type recentView struct {
	What, Who, Href string
	When            show.Value
	Failed          bool
}

// How much the overview shows, and what it warns of.
const (
	recentRecords = 8
	shownDays     = 14
	expiresSoon   = 14 * 24 * time.Hour
	unusedAfter   = 7 * 24 * time.Hour
	rightsAfter   = 30 * 24 * time.Hour // some work is done once a month
	mostAttention = 12
	atOnce        = 1000 // records of a list, of which so many pages are looked through
	mostPages     = 10
)

// Page answers with the overview.
func Page(v *visit.Visit) {
	view := overview{Chrome: v.Chrome("Overview")}
	for _, part := range view.Navigation[:min(len(view.Navigation), 2)] { // what the organization keeps, and what it makes of it
		for _, link := range part.Links {
			p, _ := v.Site.Find(link.Address)
			if !p.List || p.Create == nil {
				continue
			}
			if page, ok := partOf(v, p, "per_page=1"); ok {
				view.Figures = append(view.Figures, figureView{link, v.FormatInt(int(page.Count))})
			}
		}
	}
	if data, ok := v.ReadNamed("usage.list", "per_page="+strconv.Itoa(shownDays)+"&sort=-day"); ok && len(data.Get("results").Items) > 0 {
		view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: v.Site.Rows["usage.list"], Query: "per_page=" + strconv.Itoa(shownDays) + "&sort=-day"})
		days := data.Get("results").Items
		view.Usage = append(usage.Lately(v, days, v.Now().UTC()), usage.Days(v, "Requests of the last days", "day", days))
	}
	attention(v, &view)
	if data, ok := v.ReadNamed("audit.list", "per_page="+strconv.Itoa(recentRecords)); ok {
		for _, r := range data.Get("results").Items {
			one := recentView{What: r.Get("operation").Text, Who: show.SubjectName(v, "subject", show.Actor(r)), When: show.Present(r.Get("created_at"), 0), Failed: r.Get("outcome").Text != "ok", Href: "/audit/" + r.Get("id").Text}
			one.What = show.SubjectName(v, "operation", one.What)
			view.Recent = append(view.Recent, one)
		}
	}
	v.Show(http.StatusOK, "overview", view)
}

// isolated keeps the direction of a name from turning the sentence around it.
func isolated(name string) string { return "\u2068" + name + "\u2069" }

// partOf asks for records of a list. Not ok where the person may not see it, or there is no answer.
func partOf(v *visit.Visit, list *site.Page, query string) (operation.Part[any], bool) {
	result, ok := v.Run(list.Shows, query)
	page, listed := result.Data.(operation.Part[any])
	return page, ok && listed
}

// attention notes what somebody should look at.
func attention(v *visit.Visit, view *overview) {
	now := v.Now()
	attend(v, view, "key", func(k people.Key) (id, text string) {
		if k.State != "active" {
			return "", ""
		}
		name := "The key " + isolated(show.Clip(k.Name))
		ends := moment(k.ExpiresAt)
		switch {
		case !ends.IsZero() && ends.Sub(now) < expiresSoon:
			return k.ID, name + " expires on " + ends.UTC().Format(time.DateOnly)
		case k.LastUsedAt == nil && now.Sub(moment(&k.CreatedAt)) > unusedAfter:
			return k.ID, name + " has never been used"
		}
		return k.ID, unneeded(name, k.Unused, moment(k.UnusedSince), now)
	})
	attend(v, view, "user", func(p people.Person) (id, text string) {
		if !p.Active {
			return "", ""
		}
		return strconv.FormatInt(p.ID, 10), unneeded(isolated(show.Clip(p.Name)), p.Unused, moment(p.UnusedSince), now)
	})
	attend(v, view, "custom_report", func(r reports.Configuration) (id, text string) {
		if !r.Shareable || r.Secure {
			return "", ""
		}
		return r.ID, "The report " + isolated(show.Clip(r.Title)) + " is open to whoever has its address"
	})
}

// moment reads a time as answers write it; the year 1 where there is none.
func moment(text *string) time.Time {
	if text == nil {
		return time.Time{}
	}
	t, _ := time.Parse(time.RFC3339, *text)
	return t
}

// unneeded says which permissions somebody holds and never needed; empty: it is too early to say, or there are none.
func unneeded(who string, unused []tenants.Permission, since, now time.Time) string {
	if len(unused) == 0 || since.IsZero() || now.Sub(since) <= rightsAfter {
		return ""
	}
	rights := make([]string, len(unused))
	for i, p := range unused {
		rights[i] = site.Label(string(p))
	}
	return who + " never needed " + strings.Join(rights, ", ")
}

// attend notes the records of a resource of which something is to be said, and how many more there are.
func attend[T any](v *visit.Visit, view *overview, resource string, says func(T) (id, text string)) {
	list := v.Site.ListOf(resource)
	if list == nil || list.Record == nil {
		return
	}
	more := 0
	for n, at := 1, "page=1"; at != "" && n <= mostPages; n++ {
		page, ok := partOf(v, list, "per_page="+strconv.Itoa(atOnce)+"&"+at)
		if !ok {
			return
		}
		switch at = ""; {
		case page.Next != nil && *page.Next != "":
			at = "after=" + url.QueryEscape(*page.Next)
		case page.Pages != nil && int64(n) < *page.Pages:
			at = "page=" + strconv.Itoa(n+1)
		}
		for _, r := range page.Results {
			record, known := r.(T)
			if !known {
				continue
			}
			switch id, text := says(record); {
			case text == "":
			case len(view.Attention) < mostAttention:
				view.Attention = append(view.Attention, site.Link{Title: text, Address: list.Record.Address(map[string]string{list.Record.Key(): id})})
			default:
				more++
			}
		}
	}
	if more > 0 {
		view.Attention = append(view.Attention, site.Link{Title: v.FormatInt(more) + " more of the " + strings.ToLower(list.Title()), Address: list.Address(nil)})
	}
}
