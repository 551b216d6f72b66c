package chart

import (
	"fmt"
	"html"
	"html/template"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// drawing is a picture while it is drawn.
type drawing struct {
	c    *Chart
	size Size
	w, h float64
	foot float64 // the room for the ticks of points
	b    strings.Builder
}

// num writes a length with one decimal.
func num(v float64) string {
	text := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(strings.TrimSuffix(text, ".0"), "-0")
}

func (d *drawing) printf(format string, args ...any) {
	for i, a := range args {
		switch v := a.(type) {
		case float64:
			args[i] = num(v)
		case string:
			args[i] = html.EscapeString(v)
		}
	}
	fmt.Fprintf(&d.b, format, args...)
}

// done frames what was drawn. Sizes are said, so that nothing moves when the style sheet arrives.
func (d *drawing) done() template.HTML {
	id := d.c.ID + "chart-" + d.size.String()
	inner := d.b.String()
	d.b.Reset()
	class := d.size.String()
	if d.c.Kind == Pie {
		class = "round"
	}
	d.printf(`<svg class="chart %v" role="img" aria-labelledby="%v-title" aria-describedby="%v-desc" viewBox="0 0 %v %v" width="%v" height="%v">`,
		class, id, id, d.w, d.h, d.w, d.h)
	d.printf(`<title id="%v-title">%v</title><desc id="%v-desc">%v</desc>`, id, d.c.Title(), id, d.c.Describe())
	return template.HTML(d.b.String() + inner + "</svg>") //nolint:gosec // printf escapes every text
}

// text writes a text that is at most so wide, and in full where it is pointed at. What is cut stands in a
// frame of that width, in case the guess of its width is wrong.
func (d *drawing) text(x, y, width float64, class, anchor, text string) {
	short := clip(text, width)
	if strings.HasSuffix(short, "…") && short != text {
		switch anchor {
		case "middle":
			x -= width / 2
		case "end":
			x -= width
		}
		d.printf(`<svg x="%v" y="%v" width="%v" height="%v">`, x, y-fontSize-2, width, fontSize+7)
		defer d.b.WriteString("</svg>")
		x, y, anchor = 0, fontSize+2, ""
	}
	d.printf(`<text x="%v" y="%v"`, x, y)
	if class != "" {
		d.printf(` class="%v"`, class)
	}
	if anchor != "" {
		d.printf(` text-anchor="%v"`, anchor)
	}
	d.printf(`>%v`, short)
	if short != text {
		d.printf(`<title>%v</title>`, clip(text, descClip*4))
	}
	d.b.WriteString("</text>")
}

func (d *drawing) line(class string, x1, y1, x2, y2 float64) {
	d.printf(`<path class="%v" d="M%v %vL%v %v"/>`, class, x1, y1, x2, y2)
}

// rect draws a part of a bar that can be pointed at.
func (d *drawing) rect(class string, x, y, w, h float64, tip string) {
	d.printf(`<rect class="%v" x="%v" y="%v" width="%v" height="%v"`, class, x, y, w, h)
	if tip == "" {
		d.b.WriteString("/>")
		return
	}
	d.printf(`><title>%v</title></rect>`, tip)
}

func (d *drawing) tip(series, point int) string {
	s := d.c.Series[series]
	text := isolate(clip(d.c.label(point), descClip))
	if len(d.c.Series) > 1 {
		text += ", " + isolate(clip(s.Name, descClip))
	}
	return text + ": " + d.c.Words.Number(s.Values[point])
}

// values returns the scale of all values that are drawn; stacked ones reach as high as their sums.
func (d *drawing) values(n int, zero bool) scale {
	c := d.c
	lo, hi := c.extent(c.Series)
	if c.stacked() {
		lo = 0
		for i := range c.Over.len() {
			sum := 0.0
			for _, s := range c.Series {
				sum = plus(sum, s.Values[i])
			}
			hi = max(hi, sum)
		}
	}
	if lo > hi { // nothing is drawn
		lo, hi = 0, 0
	}
	whole := !slices.ContainsFunc(c.Series, func(s Series) bool {
		return slices.ContainsFunc(s.Values, func(v float64) bool { return !math.IsNaN(v) && v != math.Trunc(v) })
	})
	return ticked(lo, hi, n, zero, whole)
}

// bars draws categories: a bar beside each name, or beneath it where there is little room.
func (d *drawing) bars() {
	c := d.c
	stacked := c.stacked()
	lanes := len(c.Series)
	thick := max(18-2*float64(lanes), 7)
	if lanes == 1 || stacked {
		lanes, thick = 1, 20
	}
	left, above, labels := 0.0, 16.0, 0.0
	if d.size == Wide {
		above = 0
		for _, l := range c.Over.Labels {
			labels = max(labels, textWidth(l))
		}
		labels = min(labels+4, 220)
		left = labels + 10
	}
	s := d.values(map[Size]int{Wide: 6, Narrow: 4}[d.size], true)
	right, numbers := 14.0, lanes == 1
	if numbers {
		lo, hi := c.extent(c.Series)
		if stacked {
			hi = s.hi
		}
		room := max(textWidth(c.Words.Number(lo)), textWidth(c.Words.Number(hi))) + 8
		right = room
		if lo < 0 {
			left += room
		}
	}
	s.from, s.to = left, d.w-right
	group := above + float64(lanes)*thick
	gap := max(10, group*0.35)
	if d.size == Narrow {
		gap = 10
	}
	top := 22.0
	d.h = top + float64(c.Over.len())*(group+gap)
	d.valueTicks(&s, func(v float64, text string) {
		d.line("grid", s.at(v), top-4, s.at(v), d.h-2)
		anchor := "middle"
		if s.at(v)+textWidth(text)/2 > d.w {
			anchor = "end"
		} else if s.at(v)-textWidth(text)/2 < 0 {
			anchor = "start"
		}
		d.text(s.at(v), 12, 200, "", anchor, text)
	})
	for i, label := range c.Over.Labels {
		y := top + float64(i)*(group+gap) + gap/2
		if d.size == Wide {
			d.text(labels, y+group/2+4.5, labels, "name", "end", label)
		} else {
			d.text(0, y+11, d.w, "name", "", label)
		}
		y += above
		sum := 0.0
		for j, series := range c.Series {
			v := series.Values[i]
			if math.IsNaN(v) {
				continue
			}
			from, to := s.at(sum), s.at(sum+v)
			lane := y + float64(j)*thick
			if stacked {
				lane, sum = y, sum+v
			}
			if lanes == 1 {
				lane = y
			}
			class := c.colour(j)
			if c.folded && len(c.Series) == 1 && i == c.Over.len()-1 {
				class = "rest"
			}
			d.rect(class, min(from, to), lane+0.5, max(math.Abs(to-from), 1), thick-1, d.tip(j, i))
			if lanes == 1 && !stacked {
				d.barEnd(to, lane+thick/2+4.5, v)
			}
		}
		if stacked && sum > 0 {
			d.barEnd(s.at(sum), y+thick/2+4.5, sum)
		}
	}
	d.line("axis", s.at(0), top-4, s.at(0), d.h-2)
}

func (d *drawing) barEnd(x, y, v float64) {
	if v < 0 {
		d.text(x-5, y, 200, "name", "end", d.c.Words.Number(v))
		return
	}
	d.text(x+5, y, 200, "name", "", d.c.Words.Number(v))
}

// valueTicks writes the ticks of a scale, in a unit that keeps them short.
func (d *drawing) valueTicks(s *scale, draw func(v float64, text string)) {
	by, unit := unitOf(s)
	for i, v := range s.ticks {
		text := d.c.Words.Number(v / by)
		if unit != "" && i == len(s.ticks)-1 {
			text += " " + unit
		}
		draw(v, text)
	}
}

// plot draws lines, areas and columns over an axis.
func (d *drawing) plot() {
	c := d.c
	d.h = map[Size]float64{Wide: 340, Narrow: 280}[d.size]
	s := d.values(5, c.Kind != Line)
	left := 0.0
	by, unit := unitOf(&s)
	for _, v := range s.ticks {
		left = max(left, textWidth(c.Words.Number(v/by)))
	}
	left = min(left+8, d.w/3)
	top, right := 10.0, 14.0
	if d.foot = 28; c.Over.Times != nil {
		d.foot += 16
	}
	if unit != "" {
		d.text(0, 12, d.w, "", "", unit)
		top = 26
	}
	s.from, s.to = d.h-d.foot, top
	for _, v := range s.ticks {
		class := "grid"
		if v == 0 || v == s.lo && s.lo > 0 {
			class = "axis"
		}
		d.line(class, left, s.at(v), d.w-right, s.at(v))
		d.text(left-8, s.at(v)+4.5, left-8, "", "end", c.Words.Number(v/by))
	}
	x := d.across(left, d.w-right)
	switch {
	case c.Kind == Bar && x.slot >= 2*float64(len(c.Series)):
		d.columns(&s, &x)
	case c.Kind == Line:
		d.lines(&s, &x)
	default:
		d.areas(&s, &x)
	}
}

// across is where points are.
type across struct {
	at   []float64
	slot float64 // the room of one column
}

// across lays out the axis of points and writes its ticks.
func (d *drawing) across(from, to float64) across {
	c, n := d.c, d.c.Over.len()
	place := make([]float64, n)
	apart := 1.0
	for i := range place {
		switch {
		case c.Over.Times != nil:
			place[i] = c.coordinate(c.Over.Times[i])
		case c.Over.Numbers != nil:
			place[i] = c.Over.Numbers[i]
		default:
			place[i] = float64(i)
		}
	}
	if c.Over.Numbers != nil || c.Over.Times != nil && c.Over.Step == Any {
		apart = place[n-1] - place[0]
		for i := 1; i < n; i++ {
			if far := place[i] - place[i-1]; far > 0 {
				apart = min(apart, far)
			}
		}
	}
	span := place[n-1] - place[0]
	pad := apart / 2
	if c.Kind != Bar {
		pad = 0
	}
	if n == 1 || span <= 0 {
		pad, apart = 0.5, 1
	}
	reach := func(p float64) float64 { return from + (p-place[0]+pad)/(span+2*pad)*(to-from) }
	a := across{at: make([]float64, n), slot: min(apart/(span+2*pad)*(to-from), 64)}
	for i := range place {
		a.at[i] = reach(place[i])
	}
	y := d.h - d.foot
	switch {
	case c.Over.Times != nil:
		d.timeTicks(y, reach)
	case c.Over.Numbers != nil && n > 1 && span > 0:
		whole := !slices.ContainsFunc(place, func(v float64) bool { return v != math.Trunc(v) })
		for _, v := range inner(place[0], place[n-1], map[Size]int{Wide: 10, Narrow: 5}[d.size], whole) {
			d.tick(reach(v), y, c.Words.Number(v), "")
		}
	default:
		widest := 0.0
		for i := range min(n, 100) { // of many a few are written, and those are cut
			widest = max(widest, textWidth(c.label(i)))
		}
		widest = min(widest, map[Size]float64{Wide: 110, Narrow: 80}[d.size])
		every := max(int(math.Ceil(float64(n)*(widest+12)/(to-from))), 1)
		for i := 0; i < n; i += every {
			d.tick(a.at[i], y, clip(c.label(i), widest), "")
		}
	}
	return a
}

// tick writes what a place of the axis is called, and beneath what it is part of.
func (d *drawing) tick(x, y float64, text, within string) {
	d.line("axis", x, y, x, y+5)
	for i, t := range []string{text, within} {
		if t == "" {
			continue
		}
		at, half := x, textWidth(t)/2
		at = min(max(at, half), d.w-half)
		d.text(at, y+18+16*float64(i), d.w, "", "middle", t)
	}
}

func (d *drawing) timeTicks(y float64, reach func(float64) float64) {
	c := d.c
	times := c.Over.Times
	most := map[Size]int{Wide: 9, Narrow: 4}[d.size]
	ticks, step := timeTicks(times[0], times[len(times)-1], c.Over.Step, most)
	if len(times) == 1 || len(ticks) < 2 {
		ticks, step = []time.Time{times[0], times[len(times)-1]}, c.Over.Step
		if len(slices.Compact(ticks)) == 1 || times[0].Equal(times[len(times)-1]) {
			ticks = ticks[:1]
		}
	}
	before := ""
	for _, t := range ticks {
		text, within := c.Words.Tick(t, step)
		shown := within
		if within == before {
			shown = ""
		}
		before = within
		d.tick(reach(c.coordinate(t)), y, text, shown)
	}
}

// columns draws bars that stand on the axis.
func (d *drawing) columns(s *scale, x *across) {
	c := d.c
	stacked := c.stacked()
	lanes := float64(len(c.Series))
	if stacked {
		lanes = 1
	}
	room := x.slot * 0.8
	if x.slot < 6 {
		room = x.slot
	}
	each := room / lanes
	marks := c.Over.len() * len(c.Series)
	many := make([]strings.Builder, len(c.Series)) // what says no value is one path, which is shorter
	for i := range c.Over.len() {
		sum := 0.0
		for j, series := range c.Series {
			v := series.Values[i]
			if math.IsNaN(v) || stacked && v == 0 { // a line there would be one of another part
				continue
			}
			left := x.at[i] - room/2
			if !stacked {
				left += float64(j) * each
			}
			from, to := s.at(sum), s.at(sum+v)
			if stacked {
				sum += v
			}
			wide, high := each-min(1, each/5), max(math.Abs(to-from), 0.5)
			if marks <= maxTips {
				d.rect(c.colour(j), left, min(from, to), wide, high, d.tip(j, i))
				continue
			}
			many[j].WriteString("M" + num(left) + " " + num(min(from, to)) + "h" + num(wide) + "v" + num(high) + "h-" + num(wide) + "z")
		}
	}
	for j := range many {
		if many[j].Len() > 0 {
			d.printf(`<path class="columns %v" d="%v"/>`, c.colour(j), many[j].String())
		}
	}
}

// maxTips bounds the marks that say their value where they are pointed at.
const maxTips = 120

// maxDots bounds the points of a line that are marked; of more, those that stand alone.
const maxDots = 31

// lines draws each series as a line with gaps, and a dot where a value stands alone.
func (d *drawing) lines(s *scale, x *across) {
	c := d.c
	var dots drawing
	for j, series := range c.Series {
		var path, alone strings.Builder
		for _, run := range c.runs(series.Values) {
			for i, p := range d.thin(series.Values, run) {
				if len(run) == 1 { // dashes would swallow it
					alone.WriteString("M" + num(x.at[p]) + " " + num(s.at(series.Values[p])) + "h0")
					continue
				}
				command := "L"
				if i == 0 {
					command = "M"
				}
				path.WriteString(command + num(x.at[p]) + " " + num(s.at(series.Values[p])))
			}
			if c.Over.len() <= maxDots {
				for _, p := range run {
					dots.printf(`<circle class="dot %v" cx="%v" cy="%v" r="3.5"><title>%v</title></circle>`, c.colour(j), x.at[p], s.at(series.Values[p]), d.tip(j, p))
				}
			}
		}
		if alone.Len() > 0 {
			d.printf(`<path class="edge points %v" d="%v"/>`, c.colour(j), alone.String())
		}
		if path.Len() > 0 {
			d.printf(`<path class="line %v" d="%v"/>`, c.colour(j), path.String())
		}
	}
	d.b.WriteString(dots.b.String())
}

// areas draws the room beneath each series, on top of each other where they are parts of a whole.
func (d *drawing) areas(s *scale, x *across) {
	c := d.c
	stacked := c.stacked()
	base := make([]float64, c.Over.len())
	any := make([]float64, c.Over.len())
	for i := range any {
		any[i] = math.NaN()
		for _, series := range c.Series {
			any[i] = plus(any[i], series.Values[i])
		}
	}
	for j, series := range c.Series {
		values := series.Values
		tops := values
		if stacked { // what one part lacks is nothing; only where all lack is a gap
			values, tops = any, slices.Clone(base)
			for i, v := range series.Values {
				if !math.IsNaN(v) {
					tops[i] += v
				}
			}
		}
		var room, edge strings.Builder
		for _, run := range c.runs(values) {
			points := d.thin(tops, run)
			if len(points) == 1 { // a value that stands alone has no room beneath it
				p := points[0]
				room.WriteString("M" + num(x.at[p]-1.5) + " " + num(s.at(base[p])) + "V" + num(s.at(tops[p])) + "h3V" + num(s.at(base[p])) + "Z")
				continue
			}
			for i, p := range points {
				command := "L"
				if i == 0 {
					command = "M"
				}
				at := command + num(x.at[p]) + " " + num(s.at(tops[p]))
				room.WriteString(at)
				edge.WriteString(at)
			}
			for _, p := range slices.Backward(points) {
				if !stacked {
					break
				}
				room.WriteString("L" + num(x.at[p]) + " " + num(s.at(base[p])))
			}
			if !stacked {
				room.WriteString("V" + num(s.at(0)) + "H" + num(x.at[points[0]]))
			}
			room.WriteString("Z")
		}
		class := "area "
		if stacked {
			class, base = "area full ", tops
		}
		if room.Len() > 0 {
			d.printf(`<path class="%v" d="%v"/>`, class+c.colour(j), room.String())
		}
		if edge.Len() > 0 && !stacked {
			d.printf(`<path class="edge %v" d="%v"/>`, c.colour(j), edge.String())
		}
	}
}

// thin leaves of very many points those that can be told apart: the least and the most of every few.
func (d *drawing) thin(values []float64, run []int) []int {
	most := int(min(d.w/2, d.w/float64(len(d.c.Series))))
	if len(run) <= most {
		return run
	}
	kept := make([]int, 0, most)
	parts := most / 2
	for i := range parts {
		part := run[i*len(run)/parts : (i+1)*len(run)/parts]
		lo, hi := part[0], part[0]
		for _, p := range part {
			if values[p] < values[lo] {
				lo = p
			}
			if values[p] > values[hi] {
				hi = p
			}
		}
		if kept = append(kept, min(lo, hi)); lo != hi {
			kept = append(kept, max(lo, hi))
		}
	}
	if last := run[len(run)-1]; kept[len(kept)-1] != last {
		kept = append(kept, last)
	}
	return kept
}

// pie draws a ring. The shares of slices that are wide enough stand beside them.
func (d *drawing) pie() {
	c := d.c
	d.w, d.h = 360, 270
	const middleX, middleY, outer, inner = 180.0, 135.0, 105.0, 58.0
	values := c.Series[0].Values
	sum := total(values)
	all := values[0] > 0.9999*sum // an arc that ends where it begins would be none
	if all {
		d.printf(`<circle class="ring %v" cx="%v" cy="%v" r="%v" stroke-width="%v"><title>%v</title></circle>`,
			c.colour(0), middleX, middleY, (outer+inner)/2, outer-inner, d.tip(0, 0))
	}
	turned := 0.0
	at := func(turn, radius float64) string {
		return num(middleX+radius*math.Sin(turn)) + " " + num(middleY-radius*math.Cos(turn))
	}
	for i, v := range values {
		share := v / sum
		from, to := 2*math.Pi*turned, 2*math.Pi*(turned+share)
		turned += share
		large := "0"
		if share > 0.5 {
			large = "1"
		}
		if !all {
			d.printf(`<path class="slice %v" d="M%vA%v %v 0 `+large+` 1 %vL%vA%v %v 0 `+large+` 0 %vZ"><title>%v</title></path>`, c.colour(i),
				at(from, outer), outer, outer, at(to, outer), at(to, inner), inner, inner, at(from, inner), d.tip(0, i))
		}
		if share < 0.04 {
			continue
		}
		middle := (from + to) / 2
		x, y := middleX+(outer+10)*math.Sin(middle), middleY-(outer+10)*math.Cos(middle)
		anchor := "middle"
		switch side := math.Sin(middle); {
		case side > 0.3:
			anchor = "start"
		case side < -0.3:
			anchor = "end"
		}
		if all {
			anchor, x, y = "middle", middleX, middleY
		}
		d.text(x, y+4.5, 100, "name", anchor, c.share(i))
	}
}

// shades is how many of a heat table are told apart.
const shades = 7

// heat draws a table of shaded cells.
func (d *drawing) heat() {
	c := d.c
	n := c.Over.len()
	names := 0.0
	for _, s := range c.Series {
		names = max(names, textWidth(s.Name))
	}
	names = min(names+4, map[Size]float64{Wide: 170, Narrow: 92}[d.size])
	left := names + 8
	widest := 0.0
	for _, l := range c.Over.Labels {
		widest = max(widest, textWidth(l))
	}
	right, top, tilted := 0.0, 24.0, widest+8 > min((d.w-left)/float64(n), 90)
	if tilted { // names of columns that lean to the left, over the names of the rows
		widest = min(widest, 100)
		top, left, right = 18+widest*0.75, max(left, widest*0.75), 8
	}
	cell := min((d.w-left-right)/float64(n), 90)
	const height = 30.0
	d.h = top + float64(len(c.Series))*height + 2
	every := max(int(math.Ceil(18/cell)), 1)
	for i, label := range c.Over.Labels {
		x := left + (float64(i)+0.5)*cell
		switch {
		case !tilted:
			d.text(x, 16, cell, "", "middle", label)
		case i%every == 0:
			d.printf(`<g transform="translate(%v %v) rotate(45)">`, x, top-6)
			d.text(0, 4, widest, "", "end", label)
			d.b.WriteString("</g>")
		}
	}
	common := c.Series
	fit := !slices.ContainsFunc(c.Series, func(s Series) bool {
		return slices.ContainsFunc(s.Values, func(v float64) bool { return !math.IsNaN(v) && textWidth(c.Words.Number(v))+4 > cell })
	})
	marks := n * len(c.Series)
	many := map[string]*strings.Builder{} // by class, as in columns; cells are strokes
	var on drawing                        // what is written over cells
	for j, s := range c.Series {
		y := top + float64(j)*height
		d.text(names, y+height/2+4.5, names, "name", "end", s.Name)
		if !c.oneScale() {
			common = c.Series[j : j+1]
		}
		lo, hi := c.extent(common)
		for i, v := range s.Values {
			x := left + float64(i)*cell
			class, tip := "none", ""
			if !math.IsNaN(v) {
				shade := shades
				if hi > lo {
					shade = 1 + int(math.Round((v-lo)/(hi-lo)*(shades-1)))
				}
				class = "h" + strconv.Itoa(shade)
				if marks <= 3*maxTips {
					tip = d.tip(j, i)
				}
			}
			switch {
			case marks <= 3*maxTips:
				d.rect("cell "+class, x+0.5, y+0.5, max(cell-1, 1), height-1, tip)
			case class != "none":
				if many[class] == nil {
					many[class] = &strings.Builder{}
				}
				many[class].WriteString("M" + num(x+0.5) + " " + num(y+height/2) + "h" + num(max(cell-1, 1)))
			}
			if fit && !math.IsNaN(v) {
				on.text(x+cell/2, y+height/2+4.5, cell, "on "+class, "middle", c.Words.Number(v))
			}
		}
	}
	for _, class := range slices.Sorted(maps.Keys(many)) {
		d.printf(`<path class="%v" stroke-width="%v" d="%v"/>`, "cells "+class, height-1, many[class].String())
	}
	d.b.WriteString(on.b.String())
}
