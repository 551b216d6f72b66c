package chart

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// drawing is an SVG that is being drawn.
type drawing struct {
	c    *Chart
	size Size
	w, h float64
	foot float64    // the height of the ticks at the bottom
	ends [2]float64 // the right ends of the last texts in the two lines of ticks
	b    strings.Builder
}

// num formats a length with at most one decimal.
func num(v float64) string {
	text := strconv.FormatFloat(v, 'f', 1, 64)
	return strings.TrimSuffix(strings.TrimSuffix(text, ".0"), "-0")
}

// printf writes to the SVG. It formats floats as lengths and escapes strings.
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

// done returns the complete SVG. It has explicit sizes, so that the page does not move when the style sheet arrives.
func (d *drawing) done() template.HTML {
	id := d.c.ID + "chart-" + d.size.String()
	inner := d.b.String()
	d.b.Reset()
	class := d.size.String()
	if d.c.Kind == Pie {
		class = "round"
	}
	d.printf(`<svg class="chart %v" role="img" aria-labelledby="%v-title" aria-describedby="%v-desc" `+
		`viewBox="0 0 %v %v" width="%v" height="%v">`, class, id, id, d.w, d.h, d.w, d.h)
	d.printf(`<title id="%v-title">%v</title><desc id="%v-desc">%v</desc>`, id, d.c.Title(), id, d.c.Describe())
	return template.HTML(d.b.String() + inner + "</svg>") //nolint:gosec // printf escapes every text
}

// text writes a text of at most the given width, with the full text as its tooltip. A text that is cut is put into a
// frame of that width, because its width is only estimated.
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

// rect draws a rectangle with a tooltip.
func (d *drawing) rect(class string, x, y, w, h float64, tip string) {
	d.printf(`<rect class="%v" x="%v" y="%v" width="%v" height="%v"`, class, x, y, w, h)
	if tip == "" {
		d.b.WriteString("/>")
		return
	}
	d.printf(`><title>%v</title></rect>`, tip)
}

// tip returns the tooltip of a value.
func (d *drawing) tip(series, point int) string {
	s := d.c.Series[series]
	text := isolate(clip(d.c.label(point), descClip))
	if len(d.c.Series) > 1 {
		text += ", " + isolate(clip(s.Name, descClip))
	}
	return text + ": " + d.c.Formatter.Number(s.Values[point])
}

// values returns the scale of the values, with about n steps. The scale of stacked series covers their sums.
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
	if lo > hi { // there are no values
		lo, hi = 0, 0
	}
	whole := !slices.ContainsFunc(c.Series, func(s Series) bool {
		return slices.ContainsFunc(s.Values, func(v float64) bool { return !math.IsNaN(v) && v != math.Trunc(v) })
	})
	return newScale(lo, hi, n, zero, whole)
}

// bars draws a bar for each category, beside its name or, in a narrow drawing, below it.
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
		room := max(textWidth(c.Formatter.Number(lo)), textWidth(c.Formatter.Number(hi))) + 8
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

// barEnd writes a value at the end of its bar.
func (d *drawing) barEnd(x, y, v float64) {
	if v < 0 {
		d.text(x-5, y, 200, "name", "end", d.c.Formatter.Number(v))
		return
	}
	d.text(x+5, y, 200, "name", "", d.c.Formatter.Number(v))
}

// valueTicks calls draw for each tick of a scale, with a text in a unit that keeps it short.
func (d *drawing) valueTicks(s *scale, draw func(v float64, text string)) {
	by, unit := unitOf(s)
	for i, v := range s.ticks {
		text := d.c.Formatter.Number(v / by)
		if unit != "" && i == len(s.ticks)-1 {
			text += " " + unit
		}
		draw(v, text)
	}
}
