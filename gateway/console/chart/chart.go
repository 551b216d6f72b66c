// Package chart draws the rows of a report as SVG that lives in a page: no style attributes, which
// the policy of pages forbids, but classes that the page's style sheet gives colours in both themes.
package chart

import (
	"cmp"
	"fmt"
	"html/template"
	"math"
	"slices"
	"time"
)

// Kind is how values are drawn.
type Kind int

// The kinds.
const (
	Bar Kind = iota
	Line
	Area
	Pie
	Heat
)

// Step is how far the points of a time axis are apart. A point that is missing is a gap.
type Step int

// The steps. Any says nothing of the distance; Minute and Hour are of ticks alone.
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

// Words writes values in the reader's language.
type Words interface {
	Number(v float64) string
	Percent(v float64) string // of 100
	// Time writes a moment of which the step matters, all of it.
	Time(t time.Time, step Step) string
	// Tick writes it shortly, and apart what it is part of: "5 Mar" of "2026".
	Tick(t time.Time, step Step) (text, within string)
}

// Axis is what values are drawn over. One of Labels, Times and Numbers has the points.
type Axis struct {
	Title   string
	Labels  []string
	Times   []time.Time // a zero one has no place
	Step    Step        // of Times
	Numbers []float64   // NaN has no place
}

func (a *Axis) ordered() bool { return a.Times != nil || a.Numbers != nil }

func (a *Axis) len() int { return max(len(a.Labels), len(a.Times), len(a.Numbers)) }

// Series is one measure, or one part of a measure: a value for each point, NaN for none.
type Series struct {
	Name   string
	Values []float64
	Sums   bool // the sum of values means something
	Rest   bool // what was folded together
	// At are the points, each once, that Values are of, where they are not of all: parts may be as many as points, and
	// have a value at one of them each.
	At []int
}

// Chart is what is drawn. The zero ID is for a page with one chart.
type Chart struct {
	Kind    Kind
	ID      string
	Measure string // what the values are
	Over    Axis
	Series  []Series
	Parts   bool // the series are parts of a whole, so they are stacked
	Words   Words
	Cut     string // says of which rows it is, where it is not of all

	notes  []string
	folded bool // the last point is others
}

// Bounds of a picture. What is beyond is folded, and in the table beneath.
const (
	MaxSeries  = 6  // one of them may be the rest; the style sheet has as many colours
	maxRows    = 24 // of a heat table
	maxColumns = 62 // of a heat table
	maxBars    = 42 // of all series together
	maxSlices  = MaxSeries
)

// Size is what a picture is drawn for.
type Size int

// The sizes. A page has both and shows one.
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
			if !math.IsNaN(v) && c.placed(i) && (c.Kind != Pie || v > 0) {
				return true
			}
		}
	}
	return false
}

// placed reports whether a point has a place on the axis.
func (c *Chart) placed(i int) bool {
	switch {
	case c.Over.Times != nil:
		return !c.Over.Times[i].IsZero()
	case c.Over.Numbers != nil:
		return !math.IsNaN(c.Over.Numbers[i])
	}
	return true
}

// Prepare brings the chart into the form that is drawn: points in order, tails folded, numbers that
// cannot be drawn taken out. It is called once, before all others but Split.
func (c *Chart) Prepare() {
	c.Over.Numbers = bounded(c.Over.Numbers)
	for i := range c.Series {
		c.Series[i].Values = bounded(c.Series[i].Values)
	}
	c.place()
	if c.Parts { // a part may have been at no place alone
		c.Series = slices.DeleteFunc(c.Series, func(s Series) bool {
			return !slices.ContainsFunc(s.Values, func(v float64) bool { return !math.IsNaN(v) })
		})
	}
	if c.Kind == Pie {
		c.Series = c.Series[:min(len(c.Series), 1)]
		c.spread()
		c.categories()
		c.slices()
		return
	}
	c.foldSeries()
	c.spread()
	if c.Kind == Bar && c.Over.ordered() && c.twice() || c.Kind == Heat && c.Over.Step == Any {
		c.categories()
	}
	switch {
	case c.Kind == Heat && c.Over.Times != nil:
		c.columns()
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

// bounded returns numbers that can be added and subtracted; infinite ones are none.
func bounded(values []float64) []float64 {
	values = slices.Clone(values)
	for i, v := range values {
		if values[i] = min(max(v, -1e300), 1e300); math.IsInf(v, 0) {
			values[i] = math.NaN()
		}
	}
	return values
}

// Split returns the chart, or several of it where its measures cannot be drawn on one scale: each pie has one
// measure, and of others the largest is at most so many times the smallest.
func (c *Chart) Split() []*Chart {
	if c.Parts || c.Kind == Heat || len(c.Series) < 2 {
		return []*Chart{c}
	}
	const times = 20
	var all []*Chart
	var sizes [][]float64 // of the measures of each chart, without those that are nothing
next:
	for _, s := range c.Series {
		var size []float64
		if lo, hi := c.extent([]Series{{Values: bounded(s.Values)}}); lo < 0 || hi > 0 && lo <= hi {
			size = []float64{max(-lo, hi)}
		}
		for i := range all {
			if both := append(size, sizes[i]...); c.Kind != Pie && (len(both) == 0 || slices.Max(both) <= times*slices.Min(both)) {
				all[i].Series, all[i].Measure = append(all[i].Series, s), all[i].Measure+", "+s.Name
				sizes[i] = both
				continue next
			}
		}
		if len(all) == MaxSeries {
			all[0].note("%s is in the table alone.", s.Name)
			continue
		}
		one := *c
		one.ID, one.Measure, one.Series = fmt.Sprintf("%s%d-", c.ID, len(all)), s.Name, []Series{s}
		all, sizes = append(all, &one), append(sizes, size)
	}
	return all
}

// place drops the points that have no place on an ordered axis, and puts the others in order.
func (c *Chart) place() {
	if !c.Over.ordered() {
		return
	}
	var order []int
	for i := range c.Over.len() {
		if c.placed(i) {
			order = append(order, i)
		}
	}
	if lost := c.Over.len() - len(order); lost > 0 && c.Over.Title != "" {
		c.note("%s without %s %s in the table alone.", count(lost, "row", "rows"), c.Over.Title, are(lost))
	}
	slices.SortStableFunc(order, func(i, j int) int {
		if c.Over.Times != nil {
			return c.Over.Times[i].Compare(c.Over.Times[j])
		}
		return cmp.Compare(c.Over.Numbers[i], c.Over.Numbers[j])
	})
	c.pick(order)
}

// pick keeps these points in this order.
func (c *Chart) pick(order []int) {
	c.Over.Labels, c.Over.Times, c.Over.Numbers = picked(c.Over.Labels, order), picked(c.Over.Times, order), picked(c.Over.Numbers, order)
	to := make(map[int]int, len(order))
	for i, j := range order {
		to[j] = i
	}
	for i := range c.Series {
		s := &c.Series[i]
		if s.At == nil {
			s.Values = picked(s.Values, order)
			continue
		}
		at, values := []int{}, []float64{}
		for k, j := range s.At {
			if place, ok := to[j]; ok {
				at, values = append(at, place), append(values, s.Values[k])
			}
		}
		s.At, s.Values = at, values
	}
}

// spread gives every series a value for each point. They are few by then.
func (c *Chart) spread() {
	for i := range c.Series {
		if s := &c.Series[i]; s.At != nil {
			all := nothing(c.Over.len())
			s.add(all)
			s.At, s.Values = nil, all
		}
	}
}

// add adds the series to a value for each point.
func (s *Series) add(to []float64) {
	for i, v := range s.Values {
		at := i
		if s.At != nil {
			at = s.At[i]
		}
		to[at] = plus(to[at], v)
	}
}

func nothing(n int) []float64 { return slices.Repeat([]float64{math.NaN()}, n) }

func picked[T any](all []T, order []int) []T {
	if all == nil {
		return nil
	}
	some := make([]T, len(order))
	for i, j := range order {
		some[i] = all[j]
	}
	return some
}

// twice reports whether two points are at the same place.
func (c *Chart) twice() bool {
	for i := 1; i < c.Over.len(); i++ {
		if c.Over.Times != nil && c.Over.Times[i].Equal(c.Over.Times[i-1]) || c.Over.Numbers != nil && c.Over.Numbers[i] == c.Over.Numbers[i-1] {
			return true
		}
	}
	return false
}

// categories makes the points of an ordered axis labels.
func (c *Chart) categories() {
	if !c.Over.ordered() {
		return
	}
	labels := make([]string, c.Over.len())
	for i := range labels {
		labels[i] = c.label(i)
	}
	c.Over.Labels, c.Over.Times, c.Over.Numbers = labels, nil, nil
}

// label names a point in full.
func (c *Chart) label(i int) string {
	switch {
	case c.Over.Times != nil:
		return c.Words.Time(c.Over.Times[i], c.Over.Step)
	case c.Over.Numbers != nil:
		return c.Words.Number(c.Over.Numbers[i])
	}
	return c.Over.Labels[i]
}

func (c *Chart) note(format string, args ...any) {
	c.notes = append(c.notes, fmt.Sprintf(format, args...))
}

// Notes say what the picture does not show.
func (c *Chart) Notes() []string {
	if c.Cut == "" {
		return c.notes
	}
	return append([]string{c.Cut}, c.notes...)
}

func are(n int) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

func count(n int, one, more string) string {
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

// Key explains one colour.
type Key struct {
	Kind               Kind
	Class, Name, Value string
}

// Legend returns the keys of the picture.
func (c *Chart) Legend() []Key {
	var keys []Key
	switch c.Kind {
	case Pie:
		for i, label := range c.Over.Labels {
			v := c.Series[0].Values[i]
			keys = append(keys, Key{c.Kind, c.colour(i), label, c.Words.Number(v) + " (" + c.share(i) + ")"})
		}
	case Heat:
		if lo, hi := c.extent(c.Series); c.oneScale() && lo < hi {
			return []Key{{c.Kind, "h1", c.Words.Number(lo), ""}, {c.Kind, "h" + fmt.Sprint(shades), c.Words.Number(hi), ""}}
		}
	default:
		if len(c.Series) < 2 && !c.Parts { // the caption names it
			return nil
		}
		for i, s := range c.Series {
			keys = append(keys, Key{Kind: c.Kind, Class: c.colour(i), Name: s.Name})
		}
	}
	return keys
}

func (c *Chart) share(i int) string {
	return c.Words.Percent(100 * c.Series[0].Values[i] / total(c.Series[0].Values))
}

// colour returns the class of a series, or of a slice.
func (c *Chart) colour(i int) string {
	if c.Kind == Pie && c.folded && i == len(c.Over.Labels)-1 || c.Kind != Pie && c.Series[i].Rest {
		return "rest"
	}
	return fmt.Sprintf("s%d", i%MaxSeries+1)
}

// extent returns the least and the most of all values.
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

// oneScale reports whether the rows of a heat table can be compared with each other.
func (c *Chart) oneScale() bool { return c.Parts || len(c.Series) == 1 }

// gaps counts where a series on a time axis has no values in between.
func (c *Chart) gaps(series int) int {
	if c.Over.Times == nil || c.Over.Step == Any {
		return 0
	}
	return max(len(c.runs(c.Series[series].Values))-1, 0)
}

// runs takes a series apart where it has gaps, into the indexes of points.
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
		if len(run) > 0 && c.Over.Times != nil && c.Over.Step != Any && c.coordinate(c.Over.Times[i])-c.coordinate(c.Over.Times[run[len(run)-1]]) > 1.5 {
			end()
		}
		run = append(run, i)
	}
	end()
	return all
}

// Pictures draws the chart in all its sizes. A pie has one.
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
