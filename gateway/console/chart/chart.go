// Package chart draws the rows of a report as SVG inside a page. The SVG has no style attributes, which the content
// security policy of pages forbids; its classes get their colours from the style sheet, in a light and a dark theme.
//
// A Chart is filled in, may be Split, and is Prepared once before its other methods are called.
package chart

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"time"
)

// Kind is the kind of a chart.
type Kind int

// The kinds of charts. Heat is a table of shaded cells.
const (
	Bar Kind = iota
	Line
	Area
	Pie
	Heat
)

func (k Kind) title() string {
	return [...]string{Bar: "Bar chart", Line: "Line chart", Area: "Area chart", Pie: "Pie chart", Heat: "Heat table"}[k]
}

// Step is the distance of points on a time axis. A missing point is a gap.
type Step int

// The steps. With Any, points have no fixed distance. Minute and Hour are for ticks only.
const (
	Any Step = iota
	Minute
	Hour
	Day
	Week
	Month
	Quarter
	Year
)

// Formatter formats values in the reader's language.
type Formatter interface {
	Number(v float64) string
	Percent(v float64) string // v is from 0 to 100
	// Time formats a time in full, at the precision of the step.
	Time(t time.Time, step Step) string
	// Tick formats a time for a tick, and separately the period that it is within: "5 Mar" and "2026".
	Tick(t time.Time, step Step) (text, within string)
}

// Axis has the points that values are drawn over. One of Labels, Times and Numbers is set.
type Axis struct {
	Title   string
	Labels  []string
	Times   []time.Time // a zero time is not drawn
	Step    Step        // the distance of Times
	Numbers []float64   // NaN is not drawn
}

// ordered reports whether the points have an order, as times and numbers do.
func (a *Axis) ordered() bool { return a.Times != nil || a.Numbers != nil }

func (a *Axis) len() int { return max(len(a.Labels), len(a.Times), len(a.Numbers)) }

// Series is one measure, or one part of a measure. It has a value for each point, NaN for none.
type Series struct {
	Name   string
	Values []float64
	Sums   bool // the values can be added up
	Rest   bool // it is the sum of several series
	// At has the point of each value if the series has values at some points only. There may be as many series as points,
	// with one value each, so a value for every point would take too much memory.
	At []int
}

// Chart is a chart. On a page with several charts, each needs an ID.
type Chart struct {
	Kind      Kind
	ID        string
	Measure   string // the title of the values
	Over      Axis
	Series    []Series
	Parts     bool // the series are parts of a whole, so they are stacked
	Formatter Formatter
	Cut       string // a note about the rows that the chart shows, if it does not show all

	notes  []string
	folded bool // the last point is the sum of several
}

// Bounds of a chart. What exceeds them is added up into one series or point, or shown only in the table.
const (
	MaxSeries  = 6  // including the rest; the style sheet has as many colours
	maxRows    = 24 // rows of a heat table
	maxColumns = 62 // columns of a heat table
	maxBars    = 42 // bars of all series together
	maxSlices  = MaxSeries
)

// Size is the size of a drawing.
type Size int

// The sizes. A page has both drawings and shows the one that fits.
const (
	Wide Size = iota
	Narrow
)

func (s Size) String() string { return [...]string{"wide", "narrow"}[s] }

func (s Size) width() float64 { return [...]float64{800, 330}[s] }

// Drawable reports whether there is anything to draw.
func (c *Chart) Drawable() bool {
	for _, s := range c.Series {
		for i, v := range s.Values {
			if !math.IsNaN(v) && c.hasPlace(i) && (c.Kind != Pie || v > 0) {
				return true
			}
		}
	}
	return false
}

// hasPlace reports whether a point has a place on the axis.
func (c *Chart) hasPlace(i int) bool {
	switch {
	case c.Over.Times != nil:
		return !c.Over.Times[i].IsZero()
	case c.Over.Numbers != nil:
		return !math.IsNaN(c.Over.Numbers[i])
	}
	return true
}

// Prepare converts the chart into the form that is drawn: it orders the points, adds up small series and points, and
// removes numbers that cannot be drawn. It must be called once, before all methods other than Split.
func (c *Chart) Prepare() {
	c.Over.Numbers = clampValues(c.Over.Numbers)
	for i := range c.Series {
		c.Series[i].Values = clampValues(c.Series[i].Values)
	}
	c.sortPoints()
	if c.Parts { // a part whose only points have no place is left without values
		c.Series = slices.DeleteFunc(c.Series, func(s Series) bool {
			return !slices.ContainsFunc(s.Values, func(v float64) bool { return !math.IsNaN(v) })
		})
	}
	if c.Kind == Pie {
		c.Series = c.Series[:min(len(c.Series), 1)]
		c.expandSeries()
		c.useLabels()
		c.prepareSlices()
		return
	}
	c.foldSeries()
	c.expandSeries()
	if c.Kind == Bar && c.Over.ordered() && c.hasDuplicates() || c.Kind == Heat && c.Over.Step == Any {
		c.useLabels()
	}
	switch {
	case c.Kind == Heat && c.Over.Times != nil:
		c.prepareColumns()
	case c.Kind == Heat:
		c.foldPoints(maxRows)
	case c.Kind == Bar && !c.Over.ordered():
		rows := max(maxBars/max(len(c.Series), 1), 6)
		if c.stacked() || len(c.Series) == 1 {
			rows = 16
		}
		c.foldPoints(rows)
	}
}

// clampValues returns numbers that can be added and subtracted without overflow. Infinite ones become NaN.
func clampValues(values []float64) []float64 {
	values = slices.Clone(values)
	for i, v := range values {
		if values[i] = min(max(v, -1e300), 1e300); math.IsInf(v, 0) {
			values[i] = math.NaN()
		}
	}
	return values
}

// Split returns the chart, or several charts if its measures do not fit on one scale. A pie has one measure; in other
// charts, the largest measure is at most 20 times the smallest.
func (c *Chart) Split() []*Chart {
	if c.Parts || c.Kind == Heat || len(c.Series) < 2 {
		return []*Chart{c}
	}
	const maxRatio = 20
	var all []*Chart
	var sizes [][]float64 // the sizes of the measures in each chart, without measures that have no values
next:
	for _, s := range c.Series {
		var size []float64
		if lo, hi := c.extent([]Series{{Values: clampValues(s.Values)}}); lo < 0 || hi > 0 && lo <= hi {
			size = []float64{max(-lo, hi)}
		}
		for i := range all {
			both := append(size, sizes[i]...)
			if c.Kind != Pie && (len(both) == 0 || slices.Max(both) <= maxRatio*slices.Min(both)) {
				all[i].Series, all[i].Measure = append(all[i].Series, s), all[i].Measure+", "+s.Name
				sizes[i] = both
				continue next
			}
		}
		if len(all) == MaxSeries {
			all[0].addNote("%s is only in the table.", s.Name)
			continue
		}
		one := *c
		one.ID, one.Measure, one.Series = fmt.Sprintf("%s%d-", c.ID, len(all)), s.Name, []Series{s}
		all, sizes = append(all, &one), append(sizes, size)
	}
	return all
}

// sortPoints removes the points that have no place on an ordered axis, and sorts the others.
func (c *Chart) sortPoints() {
	if !c.Over.ordered() {
		return
	}
	var order []int
	for i := range c.Over.len() {
		if c.hasPlace(i) {
			order = append(order, i)
		}
	}
	if lost := c.Over.len() - len(order); lost > 0 && c.Over.Title != "" {
		c.addNote("%s without %s %s only in the table.", plural(lost, "row", "rows"), c.Over.Title, isOrAre(lost))
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if c.Over.Times != nil {
			return c.Over.Times[i].Compare(c.Over.Times[j])
		}
		return cmp.Compare(c.Over.Numbers[i], c.Over.Numbers[j])
	})
	c.keepPoints(order)
}

// keepPoints keeps the points with these indexes, in this order.
func (c *Chart) keepPoints(order []int) {
	c.Over.Labels = subset(c.Over.Labels, order)
	c.Over.Times = subset(c.Over.Times, order)
	c.Over.Numbers = subset(c.Over.Numbers, order)
	to := make(map[int]int, len(order))
	for i, j := range order {
		to[j] = i
	}
	for i := range c.Series {
		s := &c.Series[i]
		if s.At == nil {
			s.Values = subset(s.Values, order)
			continue
		}
		at, values := []int{}, []float64{}
		for k, j := range s.At {
			if position, ok := to[j]; ok {
				at, values = append(at, position), append(values, s.Values[k])
			}
		}
		s.At, s.Values = at, values
	}
}

// expandSeries gives every series a value for each point. Its cost is bounded, because foldSeries has run before.
func (c *Chart) expandSeries() {
	for i := range c.Series {
		if s := &c.Series[i]; s.At != nil {
			all := missingValues(c.Over.len())
			s.add(all)
			s.At, s.Values = nil, all
		}
	}
}

// add adds the values of the series to those in to, which has one for each point.
func (s *Series) add(to []float64) {
	for i, v := range s.Values {
		at := i
		if s.At != nil {
			at = s.At[i]
		}
		to[at] = plus(to[at], v)
	}
}

// missingValues returns n times NaN.
func missingValues(n int) []float64 { return slices.Repeat([]float64{math.NaN()}, n) }

// subset returns the elements with these indexes, or nil if there are no elements at all.
func subset[T any](all []T, order []int) []T {
	if all == nil {
		return nil
	}
	some := make([]T, len(order))
	for i, j := range order {
		some[i] = all[j]
	}
	return some
}

// hasDuplicates reports whether two points are at the same place. The points are sorted.
func (c *Chart) hasDuplicates() bool {
	for i := 1; i < c.Over.len(); i++ {
		if c.Over.Times != nil && c.Over.Times[i].Equal(c.Over.Times[i-1]) ||
			c.Over.Numbers != nil && c.Over.Numbers[i] == c.Over.Numbers[i-1] {
			return true
		}
	}
	return false
}

// useLabels replaces the times or numbers of the axis with labels.
func (c *Chart) useLabels() {
	if !c.Over.ordered() {
		return
	}
	labels := make([]string, c.Over.len())
	for i := range labels {
		labels[i] = c.label(i)
	}
	c.Over.Labels, c.Over.Times, c.Over.Numbers = labels, nil, nil
}

// label returns the full name of a point.
func (c *Chart) label(i int) string {
	switch {
	case c.Over.Times != nil:
		return c.Formatter.Time(c.Over.Times[i], c.Over.Step)
	case c.Over.Numbers != nil:
		return c.Formatter.Number(c.Over.Numbers[i])
	}
	return c.Over.Labels[i]
}

func (c *Chart) addNote(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Notes returns sentences about what the chart does not show.
func (c *Chart) Notes() []string {
	if c.Cut == "" {
		return c.notes
	}
	return append([]string{c.Cut}, c.notes...)
}

func isOrAre(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// plural returns a number with the right form of a noun.
func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// stacked reports whether the series are drawn on top of each other.
func (c *Chart) stacked() bool {
	if !c.Parts || len(c.Series) < 2 || c.Kind == Line || c.Kind == Heat {
		return false
	}
	for _, s := range c.Series {
		if !s.Sums || slices.ContainsFunc(s.Values, func(v float64) bool { return v < 0 }) {
			return false
		}
	}
	return true
}

// Key is an entry of a legend.
type Key struct {
	Kind               Kind
	Class, Name, Value string
}

// Legend returns the legend of the chart; empty if it needs none.
func (c *Chart) Legend() []Key {
	var keys []Key
	switch c.Kind {
	case Pie:
		for i, label := range c.Over.Labels {
			v := c.Series[0].Values[i]
			keys = append(keys, Key{c.Kind, c.colour(i), label, c.Formatter.Number(v) + " (" + c.share(i) + ")"})
		}
	case Heat:
		if lo, hi := c.extent(c.Series); c.oneScale() && lo < hi {
			return []Key{
				{c.Kind, "h1", c.Formatter.Number(lo), ""},
				{c.Kind, "h" + fmt.Sprint(shades), c.Formatter.Number(hi), ""},
			}
		}
	default:
		if len(c.Series) < 2 && !c.Parts { // the caption names a single series
			return nil
		}
		for i, s := range c.Series {
			keys = append(keys, Key{Kind: c.Kind, Class: c.colour(i), Name: s.Name})
		}
	}
	return keys
}

// share returns the percentage of a slice.
func (c *Chart) share(i int) string {
	return c.Formatter.Percent(100 * c.Series[0].Values[i] / total(c.Series[0].Values))
}

// colour returns the class of a series, or of a slice.
func (c *Chart) colour(i int) string {
	if c.Kind == Pie && c.folded && i == len(c.Over.Labels)-1 || c.Kind != Pie && c.Series[i].Rest {
		return "rest"
	}
	return fmt.Sprintf("s%d", i%MaxSeries+1)
}

// extent returns the least and the greatest value. Without values, lo is greater than hi.
func (c *Chart) extent(series []Series) (lo, hi float64) {
	lo, hi = math.Inf(1), math.Inf(-1)
	for _, s := range series {
		for _, v := range s.Values {
			if !math.IsNaN(v) {
				lo, hi = min(lo, v), max(hi, v)
			}
		}
	}
	return lo, hi
}

// oneScale reports whether all rows of a heat table share one scale of shades.
func (c *Chart) oneScale() bool { return c.Parts || len(c.Series) == 1 }

// gaps returns the number of gaps in a series on a time axis.
func (c *Chart) gaps(series int) int {
	if c.Over.Times == nil || c.Over.Step == Any {
		return 0
	}
	return max(len(c.runs(c.Series[series].Values))-1, 0)
}

// runs divides a series at its gaps, into lists of the indexes of points.
func (c *Chart) runs(values []float64) [][]int {
	var all [][]int
	var run []int
	end := func() {
		if len(run) > 0 {
			all = append(all, run)
		}
		run = nil
	}
	for i, v := range values {
		if math.IsNaN(v) {
			end()
			continue
		}
		if len(run) > 0 && c.Over.Times != nil && c.Over.Step != Any {
			last := run[len(run)-1]
			if c.coordinate(c.Over.Times[i])-c.coordinate(c.Over.Times[last]) > 1.5 {
				end()
			}
		}
		run = append(run, i)
	}
	end()
	return all
}

// Pictures draws the chart in all its sizes. A pie has only one.
func (c *Chart) Pictures() []template.HTML {
	if c.Kind == Pie {
		return []template.HTML{c.SVG(Wide)}
	}
	return []template.HTML{c.SVG(Wide), c.SVG(Narrow)}
}

// SVG draws the chart.
func (c *Chart) SVG(size Size) template.HTML {
	d := &drawing{c: c, size: size, w: size.width()}
	switch {
	case c.Kind == Pie:
		d.pie()
	case c.Kind == Heat:
		d.heat()
	case c.Kind == Bar && !c.Over.ordered():
		d.bars()
	default:
		d.plot()
	}
	return d.done()
}
