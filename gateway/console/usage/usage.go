// Package usage draws the requests of an organization over time, as charts and as the tables beside them.
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

// View is requests over time, as a picture and as a table.
type View struct {
	Chart *chart.Chart
	Note  string
	Table *show.Table
}

// How much of the last day and of the last hour is drawn.
const (
	shownHours = 24
	shownFives = 12 // of five minutes
)

// Lately draws the last hour and the last day, by the parts that the days have.
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
			began := now.Truncate(step).Add(time.Duration(i+1-n) * step)
			at, records = append(at, began), append(records, counted[began.Format(time.DateOnly+" "+layout)])
		}
		return usage(v, title, chart.Axis{Title: part + " (UTC)", Times: at}, "15:04", records), records
	}
	hour, _ := draw("Requests of the last hour", "minute", "minutes", "15:04", shownFives, 5*time.Minute)
	day, hours := draw("Requests of the last day", "hour", "hours", "15", shownHours, time.Hour)
	last := hours[len(hours)-1]
	hour.Note = v.FormatInt(show.Count(last, "requests")) + " requests since " + now.Truncate(time.Hour).Format("15:04") + " UTC, " + v.FormatInt(show.Count(last, "refused")) + " of them refused. It is counted once a minute."
	if org, ok := v.ReadNamed("organization.get", ""); ok {
		limit := org.Get("request_limits").Get("organization")
		day.Note = "Limits of the organization: " + limitText(limit.Get("rate").Text, "no bound for bursts") + ", " + limitText(limit.Get("quota").Text, "no quota") + "."
	}
	return []View{hour, day}
}

// limitText writes "100/s" as people do.
func limitText(limit, off string) string {
	if limit == "off" || limit == "" {
		return off
	}
	count, unit, _ := strings.Cut(limit, "/")
	return count + " a " + map[string]string{"s": "second", "m": "minute", "h": "hour", "d": "day"}[unit]
}

// Days draws days of usage, which the field says.
func Days(v *visit.Visit, title, field string, records []strictjson.Value) View {
	at := make([]time.Time, len(records))
	for i, r := range records {
		at[i], _ = time.Parse(time.DateOnly, r.Get(field).Text)
	}
	return usage(v, title, chart.Axis{Title: "day", Times: at, Step: chart.Day}, time.DateOnly, records)
}

// usage draws records over time, whose times the table writes in the format.
func usage(v *visit.Visit, title string, over chart.Axis, format string, records []strictjson.Value) View {
	table := &show.Table{Columns: []layout.Cell{{Title: site.Capitalize(over.Title)}, {Title: "Requests", Class: "number"}, {Title: "Refused", Class: "number"}}}
	answered, refused := chart.Series{Name: "answered", Sums: true}, chart.Series{Name: "refused", Sums: true}
	for i, r := range records {
		all, no := show.Count(r, "requests"), show.Count(r, "refused")
		answered.Values, refused.Values = append(answered.Values, float64(all-no)), append(refused.Values, float64(no))
		table.Rows = append(table.Rows, []show.Value{{Text: over.Times[i].Format(format)}, {Text: v.FormatInt(all), Class: "number"}, {Text: v.FormatInt(no), Class: "number"}})
	}
	c := &chart.Chart{
		Kind: chart.Bar, ID: site.KeyFrom(title) + "-", Measure: title, Over: over, Series: []chart.Series{answered, refused}, Parts: true,
		Words: v.Locale(),
	}
	c.Prepare()
	return View{Chart: c, Table: table}
}
