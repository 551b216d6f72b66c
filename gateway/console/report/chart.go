package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/console/chart"
	"tenantry/gateway/console/locale"
	"tenantry/internal/fault"
	"tenantry/reports"
)

// missingName is the name of the group of records without a value, and emptyName that of records whose value is an
// empty text.
const missingName, emptyName = "none", "empty"

// shape is the role of each column of a report.
type shape struct {
	groups   []int                // the columns that name a row
	measures []int                // the columns of numbers
	by       map[int]store.Bucket // the periods of the groups
	sums     map[int]bool         // the measures whose values can be added up
	counted  bool                 // the rows are groups, not records
}

// shapeOf finds the groups and measures of a report. The answer of a provider that does not have the columns of the
// query is taken as a list of records.
func shapeOf(s *reports.Shared) shape {
	sh := shape{by: map[int]store.Bucket{}, sums: map[int]bool{}}
	columns := s.Data.Columns
	def := s.Asked.Definition(&fault.List{})
	if n := len(def.Groups); n+len(def.Measures) == len(columns) {
		for i, g := range def.Groups {
			sh.groups = append(sh.groups, i)
			sh.by[i] = g.By
		}
		for i, m := range def.Measures {
			if columns[n+i].Type == reports.TypeNumber {
				sh.measures = append(sh.measures, n+i)
				sh.sums[n+i] = m.Op == store.MeasureCount || m.Op == store.MeasureSum
			}
		}
		sh.counted = true
		return sh
	}
	first, dated := -1, -1
	for i, c := range columns {
		switch {
		case c.Type == reports.TypeNumber:
			sh.measures = append(sh.measures, i)
		case (c.Type == reports.TypeDate || c.Type == reports.TypeDatetime) && dated < 0:
			dated = i
		case first < 0:
			first = i
		}
	}
	if dated >= 0 && (first < 0 || s.Visual == "line" || s.Visual == "area") {
		first = dated
	}
	if first >= 0 {
		sh.groups = []int{first}
	}
	return sh
}

func (sh *shape) grouped(column int) bool { return sh.counted && slices.Contains(sh.groups, column) }

// Drawn returns the kind of chart of a visual. ok is false if the visual has no chart.
func Drawn(visual string) (kind chart.Kind, ok bool) {
	kind, ok = map[string]chart.Kind{
		"bar": chart.Bar, "line": chart.Line, "area": chart.Area, "pie": chart.Pie, "heat": chart.Heat,
	}[visual]
	return kind, ok
}

// drawCharts returns the charts of a report; none if it has nothing to draw.
func drawCharts(s *reports.Shared, sh *shape, l *locale.Locale) []*chart.Chart {
	kind, ok := Drawn(s.Visual)
	if !ok || len(sh.measures) == 0 {
		return nil
	}
	newDrawing := func(i int) *drawing {
		c := &chart.Chart{
			Kind: kind, ID: "picture-" + strconv.Itoa(i) + "-", Formatter: l,
			Measure: s.Data.Columns[sh.measures[i]].Title,
		}
		return &drawing{data: s.Data, shape: sh, l: l, c: c}
	}
	var all []*chart.Chart
	switch {
	case len(sh.groups) == 0 && len(s.Data.Rows) == 1:
		d := newDrawing(0)
		d.drawTotal()
		all = append(all, d.c)
	case len(sh.groups) > 1 && kind != chart.Pie:
		for i := range sh.measures[:min(len(sh.measures), maxPictures)] {
			d := newDrawing(i)
			d.pivot(sh.measures[i])
			all = append(all, d.c)
		}
	default:
		d := newDrawing(0)
		d.measures()
		all = d.c.Split()
	}
	return slices.DeleteFunc(all, func(c *chart.Chart) bool {
		if s.Data.Truncated {
			c.Cut = "The chart shows " + CutText(l, len(s.Data.Rows), s.Data.Total) + "."
		}
		c.Prepare()
		return !c.Drawable()
	})
}

// maxPictures bounds the charts of a report with several groups, which has one for each measure.
const maxPictures = 3

// drawing converts the data of a report into a chart.
type drawing struct {
	data *reports.Data
	*shape
	l *locale.Locale
	c *chart.Chart
}

func (d *drawing) number(row []any, column int) float64 {
	switch n := row[column].(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	}
	return math.NaN()
}

// drawTotal draws the measures of a report without groups side by side.
func (d *drawing) drawTotal() {
	one := chart.Series{Name: d.c.Measure}
	for _, m := range d.shape.measures {
		d.c.Over.Labels = append(d.c.Over.Labels, d.data.Columns[m].Title)
		one.Values = append(one.Values, d.number(d.data.Rows[0], m))
	}
	d.c.Series = []chart.Series{one}
}

// measures draws each measure as a series over the rows.
func (d *drawing) measures() {
	var titles []string
	for _, m := range d.shape.measures {
		column := chart.Series{Name: d.data.Columns[m].Title, Sums: d.sums[m]}
		for _, row := range d.data.Rows {
			column.Values = append(column.Values, d.number(row, m))
		}
		titles = append(titles, column.Name)
		d.c.Series = append(d.c.Series, column)
	}
	if d.c.Kind != chart.Pie {
		d.c.Measure = strings.Join(titles[:min(len(titles), chart.MaxSeries)], ", ")
	}
	d.axis(d.data.Rows, d.groups)
}

// pivot draws a measure over one group, with a series for each value of the other groups.
func (d *drawing) pivot(m int) {
	over := d.groups[0]
	for _, g := range d.groups {
		if d.by[g] != store.NoBucket || d.data.Columns[g].Type == reports.TypeDate {
			over = g
			break
		}
	}
	others := slices.DeleteFunc(slices.Clone(d.groups), func(g int) bool { return g == over })
	points, parts, cells := map[string]int{}, map[string]int{}, map[[2]int]int{}
	var firsts [][]any
	for _, row := range d.data.Rows {
		at, name, value := d.rowName(row, []int{over}), d.rowName(row, others), d.number(row, m)
		if !hasKey(points, at) {
			points[at] = len(firsts)
			firsts = append(firsts, row)
		}
		if !hasKey(parts, name) {
			parts[name] = len(d.c.Series)
			d.c.Series = append(d.c.Series, chart.Series{Name: name, Sums: d.sums[m]})
		}
		cell, s := [2]int{parts[name], points[at]}, &d.c.Series[parts[name]]
		if i, duplicate := cells[cell]; duplicate { // the last of several rows with the same names counts
			s.Values[i] = value
			continue
		}
		cells[cell] = len(s.Values)
		s.At, s.Values = append(s.At, points[at]), append(s.Values, value)
	}
	d.c.Parts = true
	d.axis(firsts, []int{over})
	var titles []string
	for _, g := range others {
		titles = append(titles, d.data.Columns[g].Title)
	}
	d.c.Measure += " for each " + strings.Join(titles, ", ")
}

func hasKey(m map[string]int, key string) bool {
	_, ok := m[key]
	return ok
}

// rowName returns the name of a row, made from its columns.
func (d *drawing) rowName(row []any, columns []int) string {
	words := make([]string, len(columns))
	for i, c := range columns {
		words[i], _ = d.cell(d.l, d.data, c, row[c])
	}
	return strings.Join(words, " · ")
}

// axis sets the axis of the chart: times, numbers, or a label for each row.
func (d *drawing) axis(rows [][]any, columns []int) {
	a := &d.c.Over
	var titles []string
	for _, c := range columns {
		titles = append(titles, d.data.Columns[c].Title)
	}
	a.Title = strings.Join(titles, ", ")
	if len(columns) == 1 && d.c.Kind != chart.Pie && d.orderedAxis(rows, columns[0]) {
		return
	}
	a.Labels = make([]string, len(rows))
	for i, row := range rows {
		if a.Labels[i] = d.rowName(row, columns); len(columns) == 0 {
			a.Labels[i] = strconv.Itoa(i + 1)
		}
	}
}

// orderedAxis sets an axis of times or numbers if all values of a column, other than missing ones, are times or
// numbers. Otherwise, it returns false.
func (d *drawing) orderedAxis(rows [][]any, column int) bool {
	a, by := &d.c.Over, d.by[column]
	switch columnType := d.data.Columns[column].Type; {
	case columnType == reports.TypeNumber:
		for _, row := range rows {
			a.Numbers = append(a.Numbers, d.number(row, column))
		}
		return len(rows) > 0
	case by == store.NoBucket && columnType != reports.TypeDate && columnType != reports.TypeDatetime:
		return false
	}
	times := make([]time.Time, len(rows))
	for i, row := range rows {
		text, ok := row[column].(string)
		if !ok {
			continue
		}
		if times[i], ok = parseTime(text, by); !ok {
			return false
		}
	}
	a.Times, a.Step = times, steps()[by]
	return len(rows) > 0
}

func steps() map[store.Bucket]chart.Step {
	return map[store.Bucket]chart.Step{
		store.Day: chart.Day, store.Week: chart.Week, store.Month: chart.Month,
		store.Quarter: chart.Quarter, store.Year: chart.Year,
	}
}

// parseTime parses a time, a date, or a period as engines write it, and returns its start.
func parseTime(text string, by store.Bucket) (time.Time, bool) {
	number := func(from int) int { n, _ := strconv.Atoi(text[from:]); return n }
	layout := map[store.Bucket]string{store.Month: "2006-01", store.Year: "2006", store.Day: time.DateOnly}[by]
	switch {
	case by == store.Week && len(text) == 8 && text[4:6] == "-W",
		by == store.Quarter && len(text) == 7 && text[4:6] == "-Q":
		year, err := time.Parse("2006", text[:4])
		n := number(6)
		if err != nil || n < 1 || n > 53 || by == store.Quarter && n > 4 {
			return time.Time{}, false
		}
		if by == store.Quarter {
			return year.AddDate(0, 3*(n-1), 0), true
		}
		fourth := year.AddDate(0, 0, 3) // January 4 is always in the first week
		return fourth.AddDate(0, 0, 7*(n-1)-(int(fourth.Weekday())+6)%7), true
	case layout != "":
		t, err := time.Parse(layout, text)
		return t, err == nil
	case by != store.NoBucket:
		return time.Time{}, false
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}
