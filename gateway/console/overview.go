package console

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/internal/strictjson"
)

// overview is what an organization's people see first.
type overview struct {
	chrome
	Figures   []figureView
	Attention []linkView
	Charts    []barsView
	Recent    []recentView
	Records   string
}

type figureView struct {
	linkView
	Text string
}

// barsView is requests over time, a bar for each hour or day, of which the upper part was refused.
type barsView struct {
	Title, Unit, Text string
	Width             string
	Bars              []barView
}

type barView struct {
	When, Requests, Refused     string
	X, Y, Height, RefusedHeight string
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
	shownHours    = 24
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
	if data, ok := v.named("usage.list", "per_page="+strconv.Itoa(shownDays)+"&sort=-day"); ok && len(data.Get("results").Items) > 0 {
		days := data.Get("results").Items
		view.Charts = []barsView{v.hours(days, v.Now().UTC()), v.days(days)}
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
	v.show(http.StatusOK, "overview", view)
}

// attention notes what somebody should look at.
func (v *visit) attention(view *overview) {
	now := v.Now()
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

// hours draws the last hours, the present one last.
func (v *visit) hours(days []strictjson.Value, now time.Time) barsView {
	counted := map[string]strictjson.Value{}
	for _, day := range days[:min(len(days), 2)] {
		for _, hour := range day.Get("hours").Items {
			counted[day.Get("day").Text+" "+hour.Get("hour").Text] = hour
		}
	}
	var records []strictjson.Value
	var names []string
	for i := shownHours - 1; i >= 0; i-- {
		at := now.Add(-time.Duration(i) * time.Hour)
		records = append(records, counted[at.Format("2006-01-02 15")])
		names = append(names, at.Format("15:00"))
	}
	view := v.bars("Requests of the last day", "Hour (UTC)", names, records)
	last := records[len(records)-1]
	view.Text = v.count(last, "requests") + " requests in this hour, " + v.count(last, "refused") + " of them refused. It is counted once a minute."
	if org, ok := v.named("organization.get", ""); ok {
		limit := org.Get("request_limits").Get("organization")
		view.Text += " Limits of the organization: " + limitText(limit.Get("rate").Text, "no bound for bursts") + ", " + limitText(limit.Get("quota").Text, "no quota") + "."
	}
	return view
}

// limitText writes "100/s" as people do.
func limitText(limit, off string) string {
	if limit == "off" || limit == "" {
		return off
	}
	count, unit, _ := strings.Cut(limit, "/")
	return count + " a " + map[string]string{"s": "second", "m": "minute", "h": "hour", "d": "day"}[unit]
}

// count writes a figure of a record; 0 where it has none.
func (v *visit) count(record strictjson.Value, name string) string {
	n, _ := strconv.Atoi(record.Get(name).Text)
	return v.whole(n)
}

// days draws days of usage, the oldest first.
func (v *visit) days(records []strictjson.Value) barsView {
	oldestFirst := slices.Clone(records)
	slices.Reverse(oldestFirst)
	var names []string
	for _, r := range oldestFirst {
		names = append(names, r.Get("day").Text)
	}
	return v.bars("Requests of the last days", "Day", names, oldestFirst)
}

func (v *visit) bars(title, unit string, names []string, records []strictjson.Value) barsView {
	const width, height = 10, 60
	figure := func(r strictjson.Value, name string) int {
		n, _ := strconv.Atoi(r.Get(name).Text)
		return n
	}
	most := 1
	for _, r := range records {
		most = max(most, figure(r, "requests"))
	}
	view := barsView{Title: title, Unit: unit, Width: strconv.Itoa(max(len(records), shownDays) * width)}
	for i, r := range records {
		h, refused := figure(r, "requests")*height/most, figure(r, "refused")*height/most
		view.Bars = append(view.Bars, barView{
			When: names[i], Requests: v.count(r, "requests"), Refused: v.count(r, "refused"),
			X: strconv.Itoa(i * width), Y: strconv.Itoa(height - h), Height: strconv.Itoa(h), RefusedHeight: strconv.Itoa(refused),
		})
	}
	return view
}
