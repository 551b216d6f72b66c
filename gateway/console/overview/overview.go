// Package overview makes the first page of an organization: counts of its records, its requests, what needs attention,
// and recent activity.
package overview

import (
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/usage"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
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

// Bounds of the overview.
const (
	recentRecords = 8
	shownDays     = 14
	maxAttention  = 12
)

// Page answers with the overview.
func Page(v *visit.Visit) {
	view := overview{Chrome: v.Chrome("Overview")}
	var counted []*site.Page
	for _, part := range view.Navigation[:min(len(view.Navigation), 2)] { // the groups Data and Insight
		for _, link := range part.Links {
			if p, _ := v.Site.Find(link.Address); p.List && p.Create != nil {
				counted = append(counted, p)
			}
		}
	}
	view.Follows = v.Follow(counted...)
	for _, part := range view.Navigation[:min(len(view.Navigation), 2)] { // the groups Data and Insight
		for _, link := range part.Links {
			p, _ := v.Site.Find(link.Address)
			if !p.List || p.Create == nil {
				continue
			}
			result, _ := v.Run(p.Shows, "per_page=1")
			if page, ok := result.Data.(operation.Part[any]); ok {
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

// isolate wraps a name in Unicode isolates, so that a name written from right to left does not reorder its sentence. It
// drops the controls of direction in the name, because they could end the isolate.
func isolate(name string) string {
	return "\u2068" + strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Bidi_Control, r) {
			return -1
		}
		return r
	}, name) + "\u2069"
}

// addAttention adds the records that somebody should check.
func addAttention(v *visit.Visit, view *overview) {
	for _, of := range []struct{ resource, noun string }{ // those of keys end by themselves, and come first
		{"key", "The key "}, {"user", ""}, {"custom_report", "The report "},
	} {
		list := v.Site.ListOf(of.resource)
		if list == nil || list.Record == nil || list.Shows.Concerns == nil {
			continue
		}
		found, _ := v.Concerns(list.Shows, maxAttention)
		shown := min(max(0, maxAttention-len(view.Attention)), len(found.First))
		for _, one := range found.First[:shown] {
			address := list.Record.Address(map[string]string{list.Record.Key(): one.ID})
			view.Attention = append(view.Attention, site.Link{Title: notice(of.noun, one), Address: address})
		}
		if more := found.Count - int64(shown); more > 0 {
			title := v.FormatInt(int(more)) + " more of the " + strings.ToLower(list.Title())
			if found.AtLeast {
				title = "At least " + title
			}
			view.Attention = append(view.Attention, site.Link{Title: title, Address: list.Address(nil)})
		}
	}
}

// notice returns the sentence about a record that somebody should check. The noun precedes its name.
func notice(noun string, one operation.Concern) string {
	name := noun + isolate(show.Clip(one.Name))
	switch one.Cause {
	case operation.ExpiresSoon:
		return name + " expires on " + one.Expires.UTC().Format(time.DateOnly)
	case operation.NeverUsed:
		return name + " has never been used"
	case operation.Halted:
		return name + " was paused"
	case operation.Failing:
		return name + " failed the last time"
	case operation.OpenToAll:
		return name + " is open to everybody who has its address"
	}
	rights := make([]string, len(one.Unused))
	for i, p := range one.Unused {
		rights[i] = site.Label(string(p))
	}
	return name + " never needed " + strings.Join(rights, ", ")
}
