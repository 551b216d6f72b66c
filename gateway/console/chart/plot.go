package chart

import (
	"math"
	"slices"
	"strings"
	"time"
)

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

// tick writes what a place of the axis is called, and beneath what it is part of. It reports false, and writes nothing,
// where that would touch what stands before it.
func (d *drawing) tick(x, y float64, text, within string) bool {
	said := [2]string{text, within}
	var at [2]float64
	for i, t := range said {
		half := min(textWidth(t), d.w) / 2
		if at[i] = min(max(x, half), d.w-half); t != "" && d.ends[i] > 0 && at[i]-half < d.ends[i]+tickGap {
			return false
		}
	}
	d.line("axis", x, y, x, y+5)
	for i, t := range said {
		if t != "" {
			d.ends[i] = at[i] + textWidth(t)/2
			d.text(at[i], y+18+16*float64(i), d.w, "", "middle", t)
		}
	}
	return true
}

// tickGap is how far the texts of ticks are apart at least.
const tickGap = 4

func (d *drawing) timeTicks(y float64, reach func(float64) float64) {
	c := d.c
	times := c.Over.Times
	most := map[Size]int{Wide: 9, Narrow: 4}[d.size]
	ticks, step := timeTicks(times[0], times[len(times)-1], c.Over.Step, most)
	if len(times) == 1 || len(ticks) < 2 {
		ticks, step = []time.Time{times[0], times[len(times)-1]}, c.Over.Step
		if times[0].Equal(times[len(times)-1]) {
			ticks = ticks[:1]
		} else if step == Any && coordinate(ticks[1], Day)-coordinate(ticks[0], Day) < 1 {
			step = Minute
		}
	}
	before := ""
	for _, t := range ticks {
		text, within := c.Words.Tick(t, step)
		shown := within
		if within == before {
			shown = ""
		}
		if d.tick(reach(c.coordinate(t)), y, text, shown) {
			before = within
		}
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
