// Package overview makes the first page of an organization: counts of its records, its requests, what needs attention,
// and recent activity.
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

// overview is the page that people see after they sign in.
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

// Bounds of the overview, and when it warns.
const (
	recentRecords = 8
	shownDays     = 14
	expiresSoon   = 14 * 24 * time.Hour
	unusedAfter   = 7 * 24 * time.Hour
	rightsAfter   = 30 * 24 * time.Hour // some work is done once a month
	maxAttention  = 12
	perRead       = 1000 // records in one read of a list
	maxPages      = 10   // reads of a list
)

// Page answers with the overview.
func Page(v *visit.Visit) {
	view := overview{Chrome: v.Chrome("Overview")}
	for _, part := range view.Navigation[:min(len(view.Navigation), 2)] { // the groups Data and Insight
		for _, link := range part.Links {
			p, _ := v.Site.Find(link.Address)
			if !p.List || p.Create == nil {
				continue
			}
			if page, ok := runList(v, p, "per_page=1"); ok {
				view.Figures = append(view.Figures, figureView{link, v.FormatInt(int(page.Count))})
			}
		}
	}

	query := "per_page=" + strconv.Itoa(shownDays) + "&sort=-day"
	if data, ok := v.ReadNamed("usage.list", query); ok && len(data.Get("results").Items) > 0 {
		view.Curl = v.Client.Curl(v.Tenant.Org.Slug, ask.Call{Row: v.Site.Rows["usage.list"], Query: query})
		days := data.Get("results").Items
		view.Usage = append(usage.Lately(v, days, v.Now().UTC()),
			usage.Days(v, "Requests of the last days", "day", days))
	}
	addAttention(v, &view)
	if data, ok := v.ReadNamed("audit.list", "per_page="+strconv.Itoa(recentRecords)); ok {
		for _, r := range data.Get("results").Items {
			view.Recent = append(view.Recent, recentView{
				What:   show.SubjectName(v, "operation", r.Get("operation").Text),
				Who:    show.SubjectName(v, "subject", show.Actor(r)),
				Href:   "/audit/" + r.Get("id").Text,
				When:   show.Present(r.Get("created_at"), 0),
				Failed: r.Get("outcome").Text != "ok",
			})
		}
	}
	v.Show(http.StatusOK, "overview", view)
}

// isolate wraps a name in Unicode isolates, so that a name written from right to left does not reorder its sentence.
func isolate(name string) string { return "\u2068" + name + "\u2069" }

// runList reads records of a list. ok is false if the person may not see the list, or the read fails.
func runList(v *visit.Visit, list *site.Page, query string) (operation.Part[any], bool) {
	result, ok := v.Run(list.Shows, query)
	page, listed := result.Data.(operation.Part[any])
	return page, ok && listed
}

// addAttention adds the records that somebody should check.
func addAttention(v *visit.Visit, view *overview) {
	now := v.Now()
	addNotices(v, view, "key", func(k people.Key) (id, text string) {
		if k.State != "active" {
			return "", ""
		}
		name := "The key " + isolate(show.Clip(k.Name))
		ends := moment(k.ExpiresAt)
		switch {
		case !ends.IsZero() && ends.Sub(now) < expiresSoon:
			return k.ID, name + " expires on " + ends.UTC().Format(time.DateOnly)
		case k.LastUsedAt == nil && now.Sub(moment(&k.CreatedAt)) > unusedAfter:
			return k.ID, name + " has never been used"
		}
		return k.ID, unusedRights(name, k.Unused, moment(k.UnusedSince), now)
	})
	addNotices(v, view, "user", func(p people.Person) (id, text string) {
		if !p.Active {
			return "", ""
		}
		return strconv.FormatInt(p.ID, 10), unusedRights(isolate(show.Clip(p.Name)), p.Unused, moment(p.UnusedSince), now)
	})
	addNotices(v, view, "custom_report", func(r reports.Configuration) (id, text string) {
		if !r.Shareable || r.Secure {
			return "", ""
		}
		return r.ID, "The report " + isolate(show.Clip(r.Title)) + " is open to everybody who has its address"
	})
}

// moment parses a time of an answer. It returns the zero time if there is none.
func moment(text *string) time.Time {
	if text == nil {
		return time.Time{}
	}
	t, _ := time.Parse(time.RFC3339, *text)
	return t
}

// unusedRights returns a notice about permissions that somebody holds and has never used since; empty if there are
// none, or if the time is too short to tell.
func unusedRights(who string, unused []tenants.Permission, since, now time.Time) string {
	if len(unused) == 0 || since.IsZero() || now.Sub(since) <= rightsAfter {
		return ""
	}
	rights := make([]string, len(unused))
	for i, p := range unused {
		rights[i] = site.Label(string(p))
	}
	return who + " never needed " + strings.Join(rights, ", ")
}

// addNotices adds the notices about the records of a resource, and how many more there are. notice returns the text for
// a record, or "" if there is nothing to say.
func addNotices[T any](v *visit.Visit, view *overview, resource string, notice func(T) (id, text string)) {
	list := v.Site.ListOf(resource)
	if list == nil || list.Record == nil {
		return
	}
	more := 0
	for n, at := 1, "page=1"; at != "" && n <= maxPages; n++ {
		page, ok := runList(v, list, "per_page="+strconv.Itoa(perRead)+"&"+at)
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
			switch id, text := notice(record); {
			case text == "":
			case len(view.Attention) < maxAttention:
				address := list.Record.Address(map[string]string{list.Record.Key(): id})
				view.Attention = append(view.Attention, site.Link{Title: text, Address: address})
			default:
				more++
			}
		}
	}
	if more > 0 {
		title := v.FormatInt(more) + " more of the " + strings.ToLower(list.Title())
		view.Attention = append(view.Attention, site.Link{Title: title, Address: list.Address(nil)})
	}
}
