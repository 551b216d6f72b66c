package chart

import (
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/rivo/uniseg"
)

// The width of text is estimated, because the reader's fonts are unknown. The estimate is rather too wide than too
// narrow.
const (
	fontSize = 13.0
	emWidth  = 0.62 // the width of a narrow character, in ems
)

// textWidth returns the estimated width of a text.
func textWidth(text string) float64 {
	n := 0
	for g := uniseg.NewGraphemes(text); g.Next(); {
		n += cellWidth(g.Str(), g.Width())
	}
	return float64(n) * emWidth * fontSize
}

// cellWidth returns the width of a grapheme cluster in narrow characters. A joined cluster counts as its parts, because
// fonts may not be able to join them.
func cellWidth(cluster string, width int) int { return width * (1 + strings.Count(cluster, "\u200d")) }

// clip cuts a text to a width, between grapheme clusters, and makes it one line.
func clip(text string, width float64) string {
	text = sanitize(text)
	room, end := int(width/(emWidth*fontSize)+1e-9), 0
	for g := uniseg.NewGraphemes(text); g.Next(); {
		room -= cellWidth(g.Str(), g.Width())
		from, to := g.Positions()
		if room < 0 || to-from > maxCluster {
			return strings.TrimSpace(text[:end]) + "…"
		}
		if room >= 1 { // leaves room for the ellipsis
			end = to
		}
	}
	return text
}

// maxCluster bounds a grapheme cluster, in bytes, because marks can be piled up on one character without end.
const maxCluster = 64

// sanitize makes a text one line, and removes invalid characters and marks of direction; isolate sets those.
func sanitize(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsControl(r), r == '\u2028', r == '\u2029', r == '\uFFFE', r == '\uFFFF':
			return ' '
		case r >= '\u202A' && r <= '\u202E', r >= '\u2066' && r <= '\u2069':
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
}

// isolate wraps a text in Unicode isolates, so that its direction does not affect the text around it.
func isolate(text string) string { return "\u2068" + sanitize(text) + "\u2069" }

// scale maps the values from lo to hi to the positions from from to to.
type scale struct {
	lo, hi   float64
	from, to float64
	ticks    []float64
}

// at returns the position of a value.
func (s *scale) at(v float64) float64 {
	if s.hi == s.lo {
		return (s.from + s.to) / 2
	}
	return s.from + (v-s.lo)/(s.hi-s.lo)*(s.to-s.from)
}

// newScale returns a scale with about n steps of 1, 2 or 5 times a power of ten. zero says that it must include zero,
// whole that its ticks must be whole numbers.
func newScale(lo, hi float64, n int, zero, whole bool) scale {
	if size := max(math.Abs(lo), math.Abs(hi)); zero || hi-lo < size/5 {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	if hi-lo < 1e-290 {
		lo, hi = 0, 1
	}
	step := roundStep((hi - lo) / float64(n))
	if whole {
		step = max(step, 1)
	}
	first, last := math.Floor(lo/step+1e-9), math.Ceil(hi/step-1e-9)
	s := scale{lo: first * step, hi: last * step}
	for i := first; i <= last; i++ {
		s.ticks = append(s.ticks, i*step)
	}
	return s
}

// ticksWithin returns about n ticks from lo to hi.
func ticksWithin(lo, hi float64, n int, whole bool) []float64 {
	step := roundStep((hi - lo) / float64(n))
	if whole {
		step = max(step, 1)
	}
	var ticks []float64
	for v := math.Ceil(lo/step-1e-9) * step; v <= hi && len(ticks) <= n; v += step {
		ticks = append(ticks, math.Round(v/step)*step)
	}
	return ticks
}

// roundStep returns the least number of 1, 2 or 5 times a power of ten that is not below least.
func roundStep(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= least*(1-1e-9) {
			return f * power
		}
	}
	return 10 * power
}

// unitOf returns the divisor of the ticks of a scale, and its name.
func unitOf(s *scale) (by float64, name string) {
	switch size := max(math.Abs(s.lo), math.Abs(s.hi)); {
	case size >= 1e15, size < 1e6:
		return 1, ""
	case size < 1e9:
		return 1e6, "millions"
	case size < 1e12:
		return 1e9, "billions"
	}
	return 1e12, "trillions"
}

// coordinate returns the position of a time in steps of the axis.
func (c *Chart) coordinate(t time.Time) float64 { return coordinate(t, c.Over.Step) }

// coordinate returns the position of a time in steps.
func coordinate(t time.Time, step Step) float64 {
	days := float64(t.Unix()) / (24 * 60 * 60)
	months := float64(t.Year()*12+int(t.Month())-1) + float64(t.Day()-1)/31
	switch step {
	case Minute:
		return days * 24 * 60
	case Day:
		return days
	case Week:
		return (days + 3) / 7 // weeks begin on Monday; the first day was a Thursday
	case Month:
		return months
	case Quarter:
		return months / 3
	case Year:
		return months / 12
	}
	return days * 24
}

// advance returns the time n steps later.
func advance(t time.Time, step Step, n int) time.Time {
	switch step {
	case Minute:
		return t.Add(time.Duration(n) * time.Minute)
	case Day:
		return t.AddDate(0, 0, n)
	case Week:
		return t.AddDate(0, 0, 7*n)
	case Month:
		return t.AddDate(0, n, 0)
	case Quarter:
		return t.AddDate(0, 3*n, 0)
	case Year:
		return t.AddDate(n, 0, 0)
	}
	return t.Add(time.Duration(n) * time.Hour)
}

// timeTicks returns about most round times between from and to, and their step, which is at least least.
func timeTicks(from, to time.Time, least Step, most int) ([]time.Time, Step) {
	for _, try := range []struct {
		step  Step
		every int
	}{
		{Minute, 1}, {Minute, 2}, {Minute, 5}, {Minute, 10}, {Minute, 15}, {Minute, 30},
		{Hour, 1}, {Hour, 3}, {Hour, 6}, {Hour, 12}, {Day, 1}, {Day, 2}, {Week, 1}, {Week, 2},
		{Month, 1}, {Quarter, 1}, {Quarter, 2},
		{Year, 1}, {Year, 2}, {Year, 5}, {Year, 10}, {Year, 20}, {Year, 50}, {Year, 100},
		{Year, 200}, {Year, 500}, {Year, 1000}, {Year, 5000},
	} {
		if try.step < least || coordinate(to, try.step)-coordinate(from, try.step) > float64(most*try.every) {
			continue
		}
		var ticks []time.Time
		t := floor(from, try.step, try.every)
		for ; !t.After(to) && len(ticks) <= most; t = advance(t, try.step, try.every) {
			if !t.Before(from) {
				ticks = append(ticks, t)
			}
		}
		return ticks, try.step
	}
	return nil, Year
}

// floor returns the last multiple of the step that is not after t.
func floor(t time.Time, step Step, every int) time.Time {
	y, m, d := t.Date()
	switch step {
	case Minute:
		return time.Date(y, m, d, t.Hour(), t.Minute()/every*every, 0, 0, time.UTC)
	case Hour:
		return time.Date(y, m, d, t.Hour()/every*every, 0, 0, 0, time.UTC)
	case Day:
		return time.Date(y, m, (d-1)/every*every+1, 0, 0, 0, 0, time.UTC)
	case Week:
		return time.Date(y, m, d-(int(t.Weekday())+6)%7, 0, 0, 0, 0, time.UTC)
	case Month:
		return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	case Quarter:
		return time.Date(y, time.Month((int(m)-1)/(3*every)*3*every+1), 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y/every*every, 1, 1, 0, 0, 0, 0, time.UTC)
}
