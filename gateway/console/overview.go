package console

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tenantry/gateway/console/chart"
	"tenantry/internal/strictjson"
	"tenantry/tenants"
)

// overview is what an organization's people see first.
type overview struct {
	chrome
	Figures   []figureView
	Attention []linkView
	Usage     []usageView
	Recent    []recentView
	Records   string
}

type figureView struct {
	linkView
	Text string
}

// usageView is requests over time, as a picture and as a table.
type usageView struct {
	Chart *chart.Chart
	Note  string
	Table *tableView
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
	shownFives    = 12 // of five minutes
	expiresSoon   = 14 * 24 * time.Hour
	unusedAfter   = 7 * 24 * time.Hour
	rightsAfter   = 30 * 24 * time.Hour // some work is done once a month
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
		view.Usage = append(v.lately(days, v.Now().UTC()), v.days(days))
	}
	v.attention(&view)
	if data, ok := v.named("audit.list", "per_page="+strconv.Itoa(recentRecords)); ok {
		nobody := (&tenants.Principal{}).Subject()
		called := v.called(nobody)
		for _, r := range data.Get("results").Items {
			who := r.Get("subject").Text
			if in := r.Get("facts").Get("user").Text; who == nobody && in != "" && r.Get("outcome").Text == "ok" { // who signed in was nobody before
				who = "user:" + in
			}
			one := recentView{What: r.Get("operation").Text, Who: cmp.Or(called[who], who), When: present(r.Get("created_at"), 0), Failed: r.Get("outcome").Text != "ok", Href: "/audit/" + r.Get("id").Text}
			if row := cmp.Or(v.site.rows[one.What], v.own[one.What]); row != nil {
				one.What = row.Summary
			}
			view.Recent = append(view.Recent, one)
		}
	}
	v.show(http.StatusOK, "overview", view)
}

// called returns the names of subjects, as far as the person may see them.
func (v *visit) called(nobody string) map[string]string {
	names := map[string]string{nobody: "somebody who is not signed in"}
	lacked := v.lacked // without the names the page is whole
	users, _ := v.named("users.list", "per_page="+strconv.Itoa(mostOptions))
	keys, _ := v.named("keys.list", "per_page="+strconv.Itoa(mostOptions))
	v.lacked = lacked
	for _, one := range users.Get("results").Items {
		names["user:"+one.Get("id").Text] = clip(nameOf(one, ""))
	}
	for _, one := range keys.Get("results").Items { // who makes keys names them as they like
		names["key:"+one.Get("id").Text] = "Key " + clip(nameOf(one, ""))
	}
	return names
}

// isolated keeps the direction of a name from turning the sentence around it.
func isolated(name string) string { return "\u2068" + name + "\u2069" }

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
			name, address := isolated(clip(nameOf(key, ""))), "/keys/"+key.Get("id").Text
			at := func(field string) time.Time {
				t, _ := time.Parse(time.RFC3339, key.Get(field).Text) // the year 1 where there is none
				return t
			}
			ends, noted, unused := at("expires_at"), at("unused_since"), key.Get("unused_permissions").Items
			switch {
			case !ends.IsZero() && ends.Sub(now) < expiresSoon:
				add("The key "+name+" expires on "+ends.UTC().Format(time.DateOnly), address)
			case key.Get("last_used_at").Is == strictjson.Null && now.Sub(at("created_at")) > unusedAfter:
				add("The key "+name+" has never been used", address)
			case len(unused) > 0 && !noted.IsZero() && now.Sub(noted) > rightsAfter:
				var rights []string
				for _, u := range unused {
					rights = append(rights, label(u.Text))
				}
				add("The key "+name+" never needed "+strings.Join(rights, ", "), address)
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
				add("The report "+isolated(clip(nameOf(r, "")))+" is open to whoever has its address", p.each.address(map[string]string{p.each.key(): r.Get("id").Text}))
			}
		}
	}
}

// lately draws the last hour and the last day, by the parts that the days have.
func (v *visit) lately(days []strictjson.Value, now time.Time) []usageView {
	draw := func(title, part, parts, layout string, n int, step time.Duration) (usageView, []strictjson.Value) {
		counted := map[string]strictjson.Value{}
		for _, day := range days[:min(len(days), 2)] {
			for _, one := range day.Get(parts).Items {
				counted[day.Get("day").Text+" "+one.Get(part).Text] = one
			}
		}
		var at []time.Time
		var records []strictjson.Value
		for i := range n {
			began := now.Truncate(step).Add(time.Duration(i+1-n) * step)
			at, records = append(at, began), append(records, counted[began.Format(time.DateOnly+" "+layout)])
		}
		return v.usage(title, chart.Axis{Title: part + " (UTC)", Times: at}, "15:04", records), records
	}
	hour, _ := draw("Requests of the last hour", "minute", "minutes", "15:04", shownFives, 5*time.Minute)
	day, hours := draw("Requests of the last day", "hour", "hours", "15", shownHours, time.Hour)
	last := hours[len(hours)-1]
	hour.Note = v.whole(count(last, "requests")) + " requests since " + now.Truncate(time.Hour).Format("15:04") + " UTC, " + v.whole(count(last, "refused")) + " of them refused. It is counted once a minute."
	if org, ok := v.named("organization.get", ""); ok {
		limit := org.Get("request_limits").Get("organization")
		day.Note = "Limits of the organization: " + limitText(limit.Get("rate").Text, "no bound for bursts") + ", " + limitText(limit.Get("quota").Text, "no quota") + "."
	}
	return []usageView{hour, day}
}

// limitText writes "100/s" as people do.
func limitText(limit, off string) string {
	if limit == "off" || limit == "" {
		return off
	}
	count, unit, _ := strings.Cut(limit, "/")
	return count + " a " + map[string]string{"s": "second", "m": "minute", "h": "hour", "d": "day"}[unit]
}

// count returns a figure of a record; 0 where it has none.
func count(record strictjson.Value, name string) int {
	n, _ := strconv.Atoi(record.Get(name).Text)
	return n
}

// days draws days of usage.
func (v *visit) days(records []strictjson.Value) usageView {
	at := make([]time.Time, len(records))
	for i, r := range records {
		at[i], _ = time.Parse(time.DateOnly, r.Get("day").Text)
	}
	return v.usage("Requests of the last days", chart.Axis{Title: "day", Times: at, Step: chart.Day}, time.DateOnly, records)
}

// usage draws records over time, whose times the table writes in the layout.
func (v *visit) usage(title string, over chart.Axis, layout string, records []strictjson.Value) usageView {
	table := &tableView{Columns: []cellView{{Title: capital(over.Title)}, {Title: "Requests", Class: "number"}, {Title: "Refused", Class: "number"}}}
	answered, refused := chart.Series{Name: "answered", Sums: true}, chart.Series{Name: "refused", Sums: true}
	for i, r := range records {
		all, no := count(r, "requests"), count(r, "refused")
		answered.Values, refused.Values = append(answered.Values, float64(all-no)), append(refused.Values, float64(no))
		table.Rows = append(table.Rows, []shown{{Text: over.Times[i].Format(layout)}, {Text: v.whole(all), Class: "number"}, {Text: v.whole(no), Class: "number"}})
	}
	c := &chart.Chart{
		Kind: chart.Bar, ID: keyFrom(title) + "-", Measure: title, Over: over, Series: []chart.Series{answered, refused}, Parts: true,
		Words: v.pages.readers.of(v.r.Header.Get("Accept-Language")),
	}
	c.Prepare()
	return usageView{Chart: c, Table: table}
}
