// Package usage shows the requests of an organization over time, as charts and tables.
package usage

import (
	"strings"
	"time"

	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// View shows requests over time as a chart and as a table.
type View struct {
	Chart *chart.Chart
	Note  string
	Table *show.Table
}

// The length of the charts of the last day and the last hour.
const (
	shownHours = 24
	shownFives = 12 // intervals of five minutes
)

// Lately returns the views of the last hour and the last day. days are the records of usage, the latest first.
func Lately(v *visit.Visit, days []strictjson.Value, now time.Time) []View {
	draw := func(title, part, parts, layout string, n int, step time.Duration) (View, []strictjson.Value) {
		counted := map[string]strictjson.Value{}
		for _, day := range days[:min(len(days), 2)] {
			for _, one := range day.Get(parts).Items {
				counted[day.Get("day").Text+" "+one.Get(part).Text] = one
			}
		}
		var at []time.Time
		var records []strictjson.Value
		for i := range n {
			start := now.Truncate(step).Add(time.Duration(i+1-n) * step)
			at, records = append(at, start), append(records, counted[start.Format(time.DateOnly+" "+layout)])
		}
		return usage(v, title, chart.Axis{Title: part + " (UTC)", Times: at}, "15:04", records), records
	}
	hour, _ := draw("Requests of the last hour", "minute", "minutes", "15:04", shownFives, 5*time.Minute)
	day, hours := draw("Requests of the last day", "hour", "hours", "15", shownHours, time.Hour)
	last := hours[len(hours)-1]
	hour.Note = v.FormatInt(show.Count(last, "requests")) + " requests since " +
		now.Truncate(time.Hour).Format("15:04") + " UTC, " + v.FormatInt(show.Count(last, "refused")) +
		" of them refused. Requests are counted once a minute."
	if org, ok := v.ReadNamed("organization.get", ""); ok {
		limit := org.Get("request_limits").Get("organization")
		day.Note = "Limits of the organization: " + limitText(limit.Get("rate").Text, "no limit for bursts") + ", " +
			limitText(limit.Get("quota").Text, "no quota") + "."
	}
	return []View{hour, day}
}

// limitText returns a limit such as "100/s" in words; off if there is none.
func limitText(limit, off string) string {
	if limit == "off" || limit == "" {
		return off
	}
	count, unit, _ := strings.Cut(limit, "/")
	return count + " a " + map[string]string{"s": "second", "m": "minute", "h": "hour", "d": "day"}[unit]
}

// Days returns the view of records of days. field is the member with the day.
func Days(v *visit.Visit, title, field string, records []strictjson.Value) View {
	at := make([]time.Time, len(records))
	for i, r := range records {
		at[i], _ = time.Parse(time.DateOnly, r.Get(field).Text)
	}
	return usage(v, title, chart.Axis{Title: "day", Times: at, Step: chart.Day}, time.DateOnly, records)
}

// usage returns the view of records over time. The table has the times in the format.
func usage(v *visit.Visit, title string, over chart.Axis, format string, records []strictjson.Value) View {
	table := &show.Table{Columns: []layout.Cell{
		{Title: site.Capitalize(over.Title)},
		{Title: "Requests", Class: "number"},
		{Title: "Refused", Class: "number"},
	}}
	answered, refused := chart.Series{Name: "answered", Sums: true}, chart.Series{Name: "refused", Sums: true}
	for i, r := range records {
		all, failed := show.Count(r, "requests"), show.Count(r, "refused")
		answered.Values = append(answered.Values, float64(all-failed))
		refused.Values = append(refused.Values, float64(failed))
		table.Rows = append(table.Rows, []show.Value{
			{Text: over.Times[i].Format(format)},
			{Text: v.FormatInt(all), Class: "number"},
			{Text: v.FormatInt(failed), Class: "number"},
		})
	}
	c := &chart.Chart{
		Kind: chart.Bar, ID: site.KeyFrom(title) + "-", Measure: title, Over: over,
		Series: []chart.Series{answered, refused}, Parts: true, Formatter: v.Locale(),
	}
	c.Prepare()
	return View{Chart: c, Table: table}
}
