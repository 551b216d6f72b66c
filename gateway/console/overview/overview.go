// Package overview is the first page of an organization: how much it keeps, its requests, what needs attention and what was done last.
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
	"tenantry/internal/strictjson"
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
			if data, ok := v.Named(p.Shows.Name, "per_page=1"); ok && p.List && p.Create != nil {
				n, _ := strconv.Atoi(data.Get("count").Text)
				view.Figures = append(view.Figures, figureView{link, v.Whole(n)})
			}
		}
	}
	if data, ok := v.Named("usage.list", "per_page="+strconv.Itoa(shownDays)+"&sort=-day"); ok && len(data.Get("results").Items) > 0 {
		view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: v.Site.Rows["usage.list"], Query: "per_page=" + strconv.Itoa(shownDays) + "&sort=-day"})
		days := data.Get("results").Items
		view.Usage = append(usage.Lately(v, days, v.Now().UTC()), usage.Days(v, "Requests of the last days", "day", days))
	}
	attention(v, &view)
	if data, ok := v.Named("audit.list", "per_page="+strconv.Itoa(recentRecords)); ok {
		for _, r := range data.Get("results").Items {
			one := recentView{What: r.Get("operation").Text, Who: show.SubjectName(v, "subject", show.Doer(r)), When: show.Present(r.Get("created_at"), 0), Failed: r.Get("outcome").Text != "ok", Href: "/audit/" + r.Get("id").Text}
			one.What = show.SubjectName(v, "operation", one.What)
			view.Recent = append(view.Recent, one)
		}
	}
	v.Show(http.StatusOK, "overview", view)
}

// isolated keeps the direction of a name from turning the sentence around it.
func isolated(name string) string { return "\u2068" + name + "\u2069" }

// attention notes what somebody should look at.
func attention(v *visit.Visit, view *overview) {
	now := v.Now()
	at := func(record strictjson.Value, field string) time.Time {
		t, _ := time.Parse(time.RFC3339, record.Get(field).Text) // the year 1 where there is none
		return t
	}
	unneeded := func(who string, record strictjson.Value) string {
		var rights []string
		for _, u := range record.Get("unused_permissions").Items {
			rights = append(rights, site.Label(u.Text))
		}
		if noted := at(record, "unused_since"); rights != nil && !noted.IsZero() && now.Sub(noted) > rightsAfter {
			return who + " never needed " + strings.Join(rights, ", ")
		}
		return ""
	}
	attend(v, view, v.Site.ListOf("key"), func(key strictjson.Value) string {
		if key.Get("state").Text != "active" {
			return ""
		}
		name := "The key " + isolated(show.Clip(show.Name(key, "")))
		ends := at(key, "expires_at")
		switch {
		case !ends.IsZero() && ends.Sub(now) < expiresSoon:
			return name + " expires on " + ends.UTC().Format(time.DateOnly)
		case key.Get("last_used_at").Is == strictjson.Null && now.Sub(at(key, "created_at")) > unusedAfter:
			return name + " has never been used"
		}
		return unneeded(name, key)
	})
	attend(v, view, v.Site.ListOf("user"), func(one strictjson.Value) string {
		if one.Get("active").Is != strictjson.True {
			return ""
		}
		return unneeded(isolated(show.Clip(show.Name(one, ""))), one)
	})
	attend(v, view, v.Site.ListOf("custom_report"), func(r strictjson.Value) string {
		if r.Get("shareable").Is == strictjson.True && r.Get("secure").Is == strictjson.False {
			return "The report " + isolated(show.Clip(show.Name(r, ""))) + " is open to whoever has its address"
		}
		return ""
	})
}

// attend notes the records of a list of which something is to be said, and how many more there are.
func attend(v *visit.Visit, view *overview, list *site.Page, says func(strictjson.Value) string) {
	if list == nil || list.Each == nil {
		return
	}
	more := 0
	for n, at := 1, "page=1"; at != "" && n <= mostPages; n++ {
		data, ok := v.Named(list.Shows.Name, "per_page="+strconv.Itoa(atOnce)+"&"+at)
		if !ok {
			return
		}
		next := data.Get("next").Text
		switch at = ""; {
		case next != "":
			at = "after=" + url.QueryEscape(next)
		case n < show.Count(data, "pages"):
			at = "page=" + strconv.Itoa(n+1)
		}
		for _, r := range data.Get("results").Items {
			switch text := says(r); {
			case text == "":
			case len(view.Attention) < mostAttention:
				view.Attention = append(view.Attention, site.Link{Title: text, Address: list.Each.Address(map[string]string{list.Each.Key(): show.Key(list.Each, r)})})
			default:
				more++
			}
		}
	}
	if more > 0 {
		view.Attention = append(view.Attention, site.Link{Title: v.Whole(more) + " more of the " + strings.ToLower(list.Title()), Address: list.Address(nil)})
	}
}
