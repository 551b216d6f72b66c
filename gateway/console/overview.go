package console

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"tenantry/internal/strictjson"
)

// overview is what an organization's people see first.
type overview struct {
	chrome
	Figures   []figureView
	Attention []linkView
	Days      []dayView
	Recent    []recentView
	Records   string
}

type figureView struct {
	linkView
	Text string
}

// dayView is one day of usage, drawn as a bar.
type dayView struct {
	Day, Requests, Refused string
	X, Y, Height           string
}

type recentView struct {
	What, Who, Href string
	When            shown
	Failed          bool
}

// How much the overview shows, and what it warns of.
const (
	recentRecords = 8
	shownDays     = 14
	expiresSoon   = 14 * 24 * time.Hour
	unusedAfter   = 7 * 24 * time.Hour
	mostAttention = 12
)

func (m *Module) overviewPage(v *visit) {
	view := overview{chrome: v.chrome("Overview")}
	for _, part := range view.Navigation[:min(len(view.Navigation), 2)] { // what the organization keeps, and what it makes of it
		for _, link := range part.Links {
			p, _ := v.site.find(link.Address)
			if data, ok := v.named(p.shows.Name, "per_page=1"); ok && p.list && p.create != nil {
				n, _ := strconv.Atoi(data.Get("count").Text)
				view.Figures = append(view.Figures, figureView{link, v.whole(n)})
			}
		}
	}
	v.attention(&view)
	if data, ok := v.named("audit.list", "per_page="+strconv.Itoa(recentRecords)); ok {
		for _, r := range data.Get("results").Items {
			one := recentView{What: r.Get("operation").Text, Who: r.Get("subject").Text, When: present(r.Get("created_at"), 0), Failed: r.Get("outcome").Text != "ok", Href: "/audit/" + r.Get("id").Text}
			if row := cmp.Or(v.site.rows[one.What], v.own[one.What]); row != nil {
				one.What = row.Summary
			}
			view.Recent = append(view.Recent, one)
		}
	}
	if data, ok := v.named("usage.list", "per_page="+strconv.Itoa(shownDays)+"&sort=-day"); ok {
		view.Days = v.days(data.Get("results").Items)
	}
	v.show(http.StatusOK, "overview", view)
}

// attention notes what somebody should look at.
func (v *visit) attention(view *overview) {
	now := time.Now()
	add := func(title, address string) {
		if len(view.Attention) < mostAttention {
			view.Attention = append(view.Attention, linkView{Title: title, Address: address})
		}
	}
	if data, ok := v.named("keys.list", "per_page="+strconv.Itoa(mostOptions)); ok {
		for _, key := range data.Get("results").Items {
			if key.Get("state").Text != "active" {
				continue
			}
			name, address := clip(nameOf(key, "")), "/keys/"+key.Get("id").Text
			made, _ := time.Parse(time.RFC3339, key.Get("created_at").Text)
			ends, err := time.Parse(time.RFC3339, key.Get("expires_at").Text)
			switch {
			case err == nil && ends.Sub(now) < expiresSoon:
				add("The key "+name+" expires on "+ends.UTC().Format(time.DateOnly), address)
			case key.Get("last_used_at").Is == strictjson.Null && now.Sub(made) > unusedAfter:
				add("The key "+name+" has never been used", address)
			}
		}
	}
	for _, p := range v.site.pages {
		if p.shows.Tag != "Reports" || !p.list || p.each == nil {
			continue
		}
		data, ok := v.named(p.shows.Name, "per_page="+strconv.Itoa(mostOptions))
		if !ok {
			continue
		}
		for _, r := range data.Get("results").Items {
			if r.Get("shareable").Is == strictjson.True && r.Get("secure").Is == strictjson.False {
				add("The report "+clip(nameOf(r, ""))+" is open to whoever has its address", p.each.address(map[string]string{p.each.key(): r.Get("id").Text}))
			}
		}
	}
}

// days draws days of usage, the oldest first.
func (v *visit) days(records []strictjson.Value) (all []dayView) {
	const width, height = 10, 60
	most := 1
	for _, r := range records {
		n, _ := strconv.Atoi(r.Get("requests").Text)
		most = max(most, n)
	}
	for i := range records {
		r := records[len(records)-1-i]
		n, _ := strconv.Atoi(r.Get("requests").Text)
		h := n * height / most
		all = append(all, dayView{Day: r.Get("day").Text, Requests: v.whole(n), Refused: r.Get("refused").Text, X: strconv.Itoa(i * width), Y: strconv.Itoa(height - h), Height: strconv.Itoa(h)})
	}
	return all
}
