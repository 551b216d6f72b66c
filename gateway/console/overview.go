package console

import (
	"net/http"
	"net/url"
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
	expiresSoon   = 14 * 24 * time.Hour
	unusedAfter   = 7 * 24 * time.Hour
	rightsAfter   = 30 * 24 * time.Hour // some work is done once a month
	mostAttention = 12
	atOnce        = 1000 // records of a list, of which so many pages are looked through
	mostPages     = 10
)

// How much of the last day and of the last hour is drawn.
const (
	shownHours = 24
	shownFives = 12 // of five minutes
)

func overviewPage(v *visit) {
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
		view.Curl = v.client.curl(v.t.Org.Slug, request{row: v.site.rows["usage.list"], query: "per_page=" + strconv.Itoa(shownDays) + "&sort=-day"})
		days := data.Get("results").Items
		view.Usage = append(v.lately(days, v.now().UTC()), v.days("Requests of the last days", "day", days))
	}
	v.attention(&view)
	if data, ok := v.named("audit.list", "per_page="+strconv.Itoa(recentRecords)); ok {
		for _, r := range data.Get("results").Items {
			one := recentView{What: r.Get("operation").Text, Who: v.subject("subject", doer(r)), When: present(r.Get("created_at"), 0), Failed: r.Get("outcome").Text != "ok", Href: "/audit/" + r.Get("id").Text}
			one.What = v.subject("operation", one.What)
			view.Recent = append(view.Recent, one)
		}
	}
	v.show(http.StatusOK, "overview", view)
}

// doer returns the subject of a record of the audit: who signed in was nobody before.
func doer(record strictjson.Value) string {
	who := record.Get("subject").Text
	if in := record.Get("facts").Get("user").Text; who == (&tenants.Principal{}).Subject() && in != "" && record.Get("outcome").Text == "ok" {
		return "user:" + in
	}
	return who
}

// subjectKind is a resource of those who do something. before goes before their names, where who makes them names them as they like.
type subjectKind struct{ resource, before string }

// subjects are the kinds of those who do something, by how the audit calls them.
func subjects() map[string]subjectKind {
	return map[string]subjectKind{"user": {"user", ""}, "key": {"key", "Key "}}
}

// whoIs returns the name of a subject, empty where the person may not see it, or there is none.
func (v *visit) whoIs(subject string) string {
	kind, id, _ := strings.Cut(subject, ":")
	s, known := subjects()[kind]
	if !known || id == "" {
		return ""
	}
	if name := v.calledBy(s.resource, id); name != "" {
		return s.before + name
	}
	return ""
}

// isolated keeps the direction of a name from turning the sentence around it.
func isolated(name string) string { return "\u2068" + name + "\u2069" }

// attention notes what somebody should look at.
func (v *visit) attention(view *overview) {
	now := v.now()
	at := func(record strictjson.Value, field string) time.Time {
		t, _ := time.Parse(time.RFC3339, record.Get(field).Text) // the year 1 where there is none
		return t
	}
	unneeded := func(who string, record strictjson.Value) string {
		var rights []string
		for _, u := range record.Get("unused_permissions").Items {
			rights = append(rights, label(u.Text))
		}
		if noted := at(record, "unused_since"); rights != nil && !noted.IsZero() && now.Sub(noted) > rightsAfter {
			return who + " never needed " + strings.Join(rights, ", ")
		}
		return ""
	}
	v.attend(view, v.site.listOf("key"), func(key strictjson.Value) string {
		if key.Get("state").Text != "active" {
			return ""
		}
		name := "The key " + isolated(clip(nameOf(key, "")))
		ends := at(key, "expires_at")
		switch {
		case !ends.IsZero() && ends.Sub(now) < expiresSoon:
			return name + " expires on " + ends.UTC().Format(time.DateOnly)
		case key.Get("last_used_at").Is == strictjson.Null && now.Sub(at(key, "created_at")) > unusedAfter:
			return name + " has never been used"
		}
		return unneeded(name, key)
	})
	v.attend(view, v.site.listOf("user"), func(one strictjson.Value) string {
		if one.Get("active").Is != strictjson.True {
			return ""
		}
		return unneeded(isolated(clip(nameOf(one, ""))), one)
	})
	v.attend(view, v.site.listOf("custom_report"), func(r strictjson.Value) string {
		if r.Get("shareable").Is == strictjson.True && r.Get("secure").Is == strictjson.False {
			return "The report " + isolated(clip(nameOf(r, ""))) + " is open to whoever has its address"
		}
		return ""
	})
}

// attend notes the records of a list of which something is to be said, and how many more there are.
func (v *visit) attend(view *overview, list *page, says func(strictjson.Value) string) {
	if list == nil || list.each == nil {
		return
	}
	more := 0
	for n, at := 1, "page=1"; at != "" && n <= mostPages; n++ {
		data, ok := v.named(list.shows.Name, "per_page="+strconv.Itoa(atOnce)+"&"+at)
		if !ok {
			return
		}
		next := data.Get("next").Text
		switch at = ""; {
		case next != "":
			at = "after=" + url.QueryEscape(next)
		case n < count(data, "pages"):
			at = "page=" + strconv.Itoa(n+1)
		}
		for _, r := range data.Get("results").Items {
			switch text := says(r); {
			case text == "":
			case len(view.Attention) < mostAttention:
				view.Attention = append(view.Attention, linkView{Title: text, Address: list.each.address(map[string]string{list.each.key(): keyOf(list.each, r)})})
			default:
				more++
			}
		}
	}
	if more > 0 {
		view.Attention = append(view.Attention, linkView{Title: v.whole(more) + " more of the " + strings.ToLower(list.title()), Address: list.address(nil)})
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

// days draws days of usage, which the field says.
func (v *visit) days(title, field string, records []strictjson.Value) usageView {
	at := make([]time.Time, len(records))
	for i, r := range records {
		at[i], _ = time.Parse(time.DateOnly, r.Get(field).Text)
	}
	return v.usage(title, chart.Axis{Title: "day", Times: at, Step: chart.Day}, time.DateOnly, records)
}

// usage draws records over time, whose times the table writes in the format.
func (v *visit) usage(title string, over chart.Axis, format string, records []strictjson.Value) usageView {
	table := &tableView{Columns: []cellView{{Title: capital(over.Title)}, {Title: "Requests", Class: "number"}, {Title: "Refused", Class: "number"}}}
	answered, refused := chart.Series{Name: "answered", Sums: true}, chart.Series{Name: "refused", Sums: true}
	for i, r := range records {
		all, no := count(r, "requests"), count(r, "refused")
		answered.Values, refused.Values = append(answered.Values, float64(all-no)), append(refused.Values, float64(no))
		table.Rows = append(table.Rows, []shown{{Text: over.Times[i].Format(format)}, {Text: v.whole(all), Class: "number"}, {Text: v.whole(no), Class: "number"}})
	}
	c := &chart.Chart{
		Kind: chart.Bar, ID: keyFrom(title) + "-", Measure: title, Over: over, Series: []chart.Series{answered, refused}, Parts: true,
		Words: v.locale(),
	}
	c.Prepare()
	return usageView{Chart: c, Table: table}
}
