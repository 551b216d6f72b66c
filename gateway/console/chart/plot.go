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
		left = max(left, textWidth(c.Formatter.Number(v/by)))
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
		d.text(left-8, s.at(v)+4.5, left-8, "", "end", c.Formatter.Number(v/by))
	}
	x := d.layOutPoints(left, d.w-right)
	switch {
	case c.Kind == Bar && x.slot >= 2*float64(len(c.Series)):
		d.columns(&s, &x)
	case c.Kind == Line:
		d.lines(&s, &x)
	default:
		d.areas(&s, &x)
	}
}

// pointAxis has the positions of the points on the horizontal axis.
type pointAxis struct {
	at   []float64
	slot float64 // the room of one column
}

// layOutPoints lays out the horizontal axis and draws its ticks.
func (d *drawing) layOutPoints(from, to float64) pointAxis {
	c, n := d.c, d.c.Over.len()
	positions := make([]float64, n)
	distance := 1.0 // the least distance of two points
	for i := range positions {
		switch {
		case c.Over.Times != nil:
			positions[i] = c.coordinate(c.Over.Times[i])
		case c.Over.Numbers != nil:
			positions[i] = c.Over.Numbers[i]
		default:
			positions[i] = float64(i)
		}
	}
	if c.Over.Numbers != nil || c.Over.Times != nil && c.Over.Step == Any {
		distance = positions[n-1] - positions[0]
		for i := 1; i < n; i++ {
			if gap := positions[i] - positions[i-1]; gap > 0 {
				distance = min(distance, gap)
			}
		}
	}
	span := positions[n-1] - positions[0]
	pad := distance / 2
	if c.Kind != Bar {
		pad = 0
	}
	if n == 1 || span <= 0 {
		pad, distance = 0.5, 1
	}
	reach := func(p float64) float64 { return from + (p-positions[0]+pad)/(span+2*pad)*(to-from) }
	a := pointAxis{at: make([]float64, n), slot: min(distance/(span+2*pad)*(to-from), 64)}
	for i := range positions {
		a.at[i] = reach(positions[i])
	}
	y := d.h - d.foot
	switch {
	case c.Over.Times != nil:
		d.timeTicks(y, reach)
	case c.Over.Numbers != nil && n > 1 && span > 0:
		whole := !slices.ContainsFunc(positions, func(v float64) bool { return v != math.Trunc(v) })
		for _, v := range ticksWithin(positions[0], positions[n-1], map[Size]int{Wide: 10, Narrow: 5}[d.size], whole) {
			d.tick(reach(v), y, c.Formatter.Number(v), "")
		}
	default:
		widest := 0.0
		for i := range min(n, 100) { // enough to estimate, because few of many labels are written
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

// tick draws a tick with its text and, on a second line, the period that it is within. It draws nothing and returns
// false if a text would touch the one before.
func (d *drawing) tick(x, y float64, text, within string) bool {
	texts := [2]string{text, within}
	var at [2]float64
	for i, t := range texts {
		half := min(textWidth(t), d.w) / 2
		if at[i] = min(max(x, half), d.w-half); t != "" && d.ends[i] > 0 && at[i]-half < d.ends[i]+tickGap {
			return false
		}
	}
	d.line("axis", x, y, x, y+5)
	for i, t := range texts {
		if t != "" {
			d.ends[i] = at[i] + textWidth(t)/2
			d.text(at[i], y+18+16*float64(i), d.w, "", "middle", t)
		}
	}
	return true
}

// tickGap is the least distance between the texts of ticks.
const tickGap = 4

// timeTicks draws the ticks of a time axis.
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
		text, within := c.Formatter.Tick(t, step)
		shown := within
		if within == before {
			shown = ""
		}
		if d.tick(reach(c.coordinate(t)), y, text, shown) {
			before = within
		}
	}
}

// columns draws vertical bars.
func (d *drawing) columns(s *scale, x *pointAxis) {
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
	paths := make([]strings.Builder, len(c.Series)) // bars without tooltips are one path for each series, which is shorter
	for i := range c.Over.len() {
		sum := 0.0
		for j, series := range c.Series {
			v := series.Values[i]
			if math.IsNaN(v) || stacked && v == 0 { // a line of no height would look like a part of its neighbour
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
			paths[j].WriteString("M" + num(left) + " " + num(min(from, to)) +
				"h" + num(wide) + "v" + num(high) + "h-" + num(wide) + "z")
		}
	}
	for j := range paths {
		if paths[j].Len() > 0 {
			d.printf(`<path class="columns %v" d="%v"/>`, c.colour(j), paths[j].String())
		}
	}
}

// maxTips is the number of marks above which a chart has no tooltips.
const maxTips = 120

// maxDots is the number of points above which a line has dots only for isolated values.
const maxDots = 31

// lines draws each series as a line with gaps. A value between two gaps is a dot.
func (d *drawing) lines(s *scale, x *pointAxis) {
	c := d.c
	var dots drawing
	for j, series := range c.Series {
		var path, isolated strings.Builder
		for _, run := range c.runs(series.Values) {
			for i, p := range d.downsample(series.Values, run) {
				if len(run) == 1 { // as a part of a dashed line, it could fall between two dashes
					isolated.WriteString("M" + num(x.at[p]) + " " + num(s.at(series.Values[p])) + "h0")
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
					dots.printf(`<circle class="dot %v" cx="%v" cy="%v" r="3.5"><title>%v</title></circle>`,
						c.colour(j), x.at[p], s.at(series.Values[p]), d.tip(j, p))
				}
			}
		}
		if isolated.Len() > 0 {
			d.printf(`<path class="edge points %v" d="%v"/>`, c.colour(j), isolated.String())
		}
		if path.Len() > 0 {
			d.printf(`<path class="line %v" d="%v"/>`, c.colour(j), path.String())
		}
	}
	d.b.WriteString(dots.b.String())
}

// areas draws the area below each series. The areas of parts are stacked.
func (d *drawing) areas(s *scale, x *pointAxis) {
	c := d.c
	stacked := c.stacked()
	base := make([]float64, c.Over.len())
	totals := make([]float64, c.Over.len())
	for i := range totals {
		totals[i] = math.NaN()
		for _, series := range c.Series {
			totals[i] = plus(totals[i], series.Values[i])
		}
	}
	for j, series := range c.Series {
		values := series.Values
		tops := values
		if stacked { // a part without a value counts as zero; a gap is where no part has a value
			values, tops = totals, slices.Clone(base)
			for i, v := range series.Values {
				if !math.IsNaN(v) {
					tops[i] += v
				}
			}
		}
		var room, edge strings.Builder
		for _, run := range c.runs(values) {
			points := d.downsample(tops, run)
			if len(points) == 1 { // an isolated value is a thin bar, because it has no area
				p := points[0]
				bottom := num(s.at(base[p]))
				room.WriteString("M" + num(x.at[p]-1.5) + " " + bottom + "V" + num(s.at(tops[p])) + "h3V" + bottom + "Z")
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

// downsample reduces very many points to those that can be distinguished: the least and the greatest of every few.
func (d *drawing) downsample(values []float64, run []int) []int {
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
