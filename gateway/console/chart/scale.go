package chart

import (
	"math"
	"strings"
	"time"
	"unicode"

	"github.com/rivo/uniseg"
)

// Text is measured by guess, since fonts are the reader's: a little too wide rather than too narrow.
const (
	fontSize = 13.0
	emWidth  = 0.62 // of a narrow character
)

func textWidth(text string) float64 {
	n := 0
	for g := uniseg.NewGraphemes(text); g.Next(); {
		n += cells(g.Str(), g.Width())
	}
	return float64(n) * emWidth * fontSize
}

// cells returns how many narrow characters a cluster is as wide as. One that fonts may not know how to join
// counts as its parts.
func cells(cluster string, width int) int { return width * (1 + strings.Count(cluster, "\u200d")) }

// clip cuts a text to a width, between the characters that people see, and makes one line of it.
func clip(text string, width float64) string {
	text = clean(text)
	room, end := int(width/(emWidth*fontSize)+1e-9), 0
	for g := uniseg.NewGraphemes(text); g.Next(); {
		room -= cells(g.Str(), g.Width())
		from, to := g.Positions()
		if room < 0 || to-from > maxCluster {
			return strings.TrimSpace(text[:end]) + "…"
		}
		if room >= 1 { // else there is no room for the sign that more follows
			end = to
		}
	}
	return text
}

// maxCluster bounds what piles up on one character, in bytes.
const maxCluster = 64

// clean leaves what is seen of a text, on one line: marks of direction go, since names are kept apart by isolate.
func clean(text string) string {
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

// isolate keeps the direction of a text from what surrounds it.
func isolate(text string) string { return "\u2068" + clean(text) + "\u2069" }

// scale leads from values to a length.
type scale struct {
	lo, hi   float64
	from, to float64
	ticks    []float64
}

func (s *scale) at(v float64) float64 {
	if s.hi == s.lo {
		return (s.from + s.to) / 2
	}
	return s.from + (v-s.lo)/(s.hi-s.lo)*(s.to-s.from)
}

// ticked returns a scale of about n steps of 1, 2 or 5 of a power of ten; zero says that it must begin
// there, whole that there is nothing between 1 and 2.
func ticked(lo, hi float64, n int, zero, whole bool) scale {
	if size := max(math.Abs(lo), math.Abs(hi)); zero || hi-lo < size/5 {
		lo, hi = min(lo, 0), max(hi, 0)
	}
	if hi-lo < 1e-290 {
		lo, hi = 0, 1
	}
	step := stepOf((hi - lo) / float64(n))
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

// inner returns about n ticks from lo to hi.
func inner(lo, hi float64, n int, whole bool) []float64 {
	step := stepOf((hi - lo) / float64(n))
	if whole {
		step = max(step, 1)
	}
	var ticks []float64
	for v := math.Ceil(lo/step-1e-9) * step; v <= hi && len(ticks) <= n; v += step {
		ticks = append(ticks, math.Round(v/step)*step)
	}
	return ticks
}

// stepOf returns the least of 1, 2 and 5 of a power of ten that is not below.
func stepOf(least float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, f := range []float64{1, 2, 5} {
		if f*power >= least*(1-1e-9) {
			return f * power
		}
	}
	return 10 * power
}

// unitOf returns what the ticks of a scale are divided by and how it is called.
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

// coordinate places a moment so that the points of the axis are 1 apart.
func (c *Chart) coordinate(t time.Time) float64 { return coordinate(t, c.Over.Step) }

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

// advance returns the moment n steps later.
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

// timeTicks returns at most so many moments that people count by, and which step they are of.
func timeTicks(from, to time.Time, least Step, most int) ([]time.Time, Step) {
	for _, try := range []struct {
		step  Step
		every int
	}{
		{Minute, 1}, {Minute, 2}, {Minute, 5}, {Minute, 10}, {Minute, 15}, {Minute, 30}, {Hour, 1}, {Hour, 3}, {Hour, 6}, {Hour, 12}, {Day, 1}, {Day, 2}, {Week, 1}, {Week, 2}, {Month, 1}, {Quarter, 1}, {Quarter, 2},
		{Year, 1}, {Year, 2}, {Year, 5}, {Year, 10}, {Year, 20}, {Year, 50}, {Year, 100}, {Year, 200}, {Year, 500}, {Year, 1000}, {Year, 5000},
	} {
		if try.step < least || coordinate(to, try.step)-coordinate(from, try.step) > float64(most*try.every) {
			continue
		}
		var ticks []time.Time
		for t := floor(from, try.step, try.every); !t.After(to) && len(ticks) <= most; t = advance(t, try.step, try.every) {
			if !t.Before(from) {
				ticks = append(ticks, t)
			}
		}
		return ticks, try.step
	}
	return nil, Year
}

// floor returns the last multiple of the step that is not after the moment.
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
