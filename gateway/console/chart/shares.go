package chart

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// pie draws a ring, with the percentages beside the slices that are wide enough.
func (d *drawing) pie() {
	c := d.c
	d.w, d.h = 360, 270
	const middleX, middleY, outer, inner = 180.0, 135.0, 105.0, 58.0
	values := c.Series[0].Values
	sum := total(values)
	all := values[0] > 0.9999*sum // a circle, because an arc that ends at its start is not drawn
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
			d.printf(`<path class="slice %v" d="M%vA%v %v 0 `+large+` 1 %vL%vA%v %v 0 `+large+` 0 %vZ">`+
				`<title>%v</title></path>`, c.colour(i), at(from, outer), outer, outer, at(to, outer),
				at(to, inner), inner, inner, at(from, inner), d.tip(0, i))
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

// shades is the number of shades of a heat table; the style sheet has as many.
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
	if tilted { // the names of columns lean to the left, above the names of the rows
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
		return slices.ContainsFunc(s.Values, func(v float64) bool {
			return !math.IsNaN(v) && textWidth(c.Formatter.Number(v))+4 > cell
		})
	})
	marks := n * len(c.Series)
	paths := map[string]*strings.Builder{} // by class; cells without tooltips are strokes of one path
	var texts drawing                      // the texts over the cells
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
				if paths[class] == nil {
					paths[class] = &strings.Builder{}
				}
				paths[class].WriteString("M" + num(x+0.5) + " " + num(y+height/2) + "h" + num(max(cell-1, 1)))
			}
			if fit && !math.IsNaN(v) {
				texts.text(x+cell/2, y+height/2+4.5, cell, "on "+class, "middle", c.Formatter.Number(v))
			}
		}
	}
	for _, class := range slices.Sorted(maps.Keys(paths)) {
		d.printf(`<path class="%v" stroke-width="%v" d="%v"/>`, "cells "+class, height-1, paths[class].String())
	}
	d.b.WriteString(texts.b.String())
}
