package chart

import (
	"fmt"
	"math"
	"strings"
)

// Title returns the title of the drawing for screen readers.
func (c *Chart) Title() string {
	return c.Kind.title() + " of " + c.Caption()
}

// Caption returns the caption: the values, and what they are drawn over.
func (c *Chart) Caption() string {
	if c.Over.Title == "" {
		return isolate(c.Measure)
	}
	return isolate(c.Measure) + " by " + isolate(c.Over.Title)
}

// Describe describes the chart in words for screen readers: its range, and the extreme values of each series.
func (c *Chart) Describe() string {
	var words []string
	if n := c.Over.len(); c.Over.ordered() && n > 1 {
		words = append(words, fmt.Sprintf("From %s to %s.", isolate(c.label(0)), isolate(c.label(n-1))))
	}
	for i, s := range c.Series[:min(len(c.Series), MaxSeries)] {
		least, most, n := -1, -1, 0
		for j, v := range s.Values {
			if math.IsNaN(v) {
				continue
			}
			if n++; least < 0 || v < s.Values[least] {
				least = j
			}
			if most < 0 || v > s.Values[most] {
				most = j
			}
		}
		name := ""
		if len(c.Series) > 1 || c.Parts {
			name = isolate(clip(s.Name, descClip)) + ": "
		}
		value := func(at int) string {
			if c.Kind == Pie {
				return isolate(clip(c.label(at), descClip)) + " " + c.Formatter.Number(s.Values[at]) + " (" + c.share(at) + ")"
			}
			return c.Formatter.Number(s.Values[at]) + " (" + isolate(clip(c.label(at), descClip)) + ")"
		}
		switch {
		case n == 0:
			words = append(words, name+"no values.")
		case n == 1:
			words = append(words, name+"only "+value(most)+".")
		case c.Kind == Pie:
			all := make([]string, n)
			for j := range all {
				all[j] = value(j)
			}
			words = append(words, strings.Join(all, ", ")+".")
		case s.Values[least] == s.Values[most]:
			words = append(words, name+fmt.Sprintf("%d values, all %s.", n, c.Formatter.Number(s.Values[most])))
		default:
			words = append(words, name+fmt.Sprintf("%d values, most %s, least %s.", n, value(most), value(least)))
		}
		if gaps := c.gaps(i); gaps > 0 {
			words = append(words, plural(gaps, "gap", "gaps")+" without values.")
		}
	}
	return strings.Join(words, " ")
}

// descClip bounds the width of a name in a description.
const descClip = 60 * emWidth * fontSize
