package chart

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// foldSeries makes one series of those that are too many, where their sum means something.
func (c *Chart) foldSeries() {
	most := MaxSeries
	if c.Kind == Heat {
		most = maxRows
	}
	if len(c.Series) <= most {
		return
	}
	sums := c.Parts && !slices.ContainsFunc(c.Series, func(s Series) bool { return !s.Sums })
	ranked := ranks(len(c.Series), func(i int) float64 { return total(c.Series[i].Values) })
	if !c.Parts { // measures are not better for being large
		slices.Sort(ranked)
	}
	kept, rest := ranked[:most-1], ranked[most-1:]
	slices.Sort(kept)
	series := picked(c.Series, kept)
	if sums {
		folded := Series{Name: count(len(rest), "other", "others"), Sums: true, Rest: true, Values: nothing(c.Over.len())}
		for _, i := range rest {
			c.Series[i].add(folded.Values)
		}
		series = append(series, folded)
	} else {
		c.note("%s in the table alone.", count(len(rest), "more is", "more are"))
	}
	c.Series = series
}

// foldPoints makes one point of those with the smallest values, where their sum means something.
func (c *Chart) foldPoints(most int) {
	n := len(c.Over.Labels)
	if n <= most {
		return
	}
	ranked := ranks(n, func(i int) float64 {
		sum := 0.0
		for _, s := range c.Series {
			if v := s.Values[i]; !math.IsNaN(v) {
				sum += math.Abs(v)
			}
		}
		return sum
	})
	kept, rest := ranked[:most-1], ranked[most-1:]
	slices.Sort(kept)
	before := c.Series
	c.Series = slices.Clone(c.Series)
	c.pick(kept)
	if slices.ContainsFunc(c.Series, func(s Series) bool { return !s.Sums }) {
		c.note("The %s in the table alone.", count(len(rest), "smallest is", "smallest are"))
		return
	}
	c.folded = true
	c.Over.Labels = append(c.Over.Labels, count(len(rest), "other", "others"))
	for i := range c.Series {
		sum := math.NaN()
		for _, j := range rest {
			sum = plus(sum, before[i].Values[j])
		}
		c.Series[i].Values = append(c.Series[i].Values, sum)
	}
}

// slices makes what a pie shows: what is more than nothing, the largest first, the rest last.
func (c *Chart) slices() {
	if len(c.Series) == 0 {
		return
	}
	var order []int
	for i, v := range c.Series[0].Values {
		if v > 0 {
			order = append(order, i)
		}
	}
	if lost := len(c.Over.Labels) - len(order); lost > 0 {
		c.note("%s without a value above zero %s in the table alone.", count(lost, "row", "rows"), are(lost))
	}
	c.pick(order)
	c.pick(ranks(len(order), func(i int) float64 { return c.Series[0].Values[i] }))
	c.foldPoints(maxSlices)
}

// columns gives a heat table a column for every point in time, the missing ones too, as long as they are few.
func (c *Chart) columns() {
	times := c.Over.Times
	if len(times) == 0 {
		return
	}
	first, last := c.coordinate(times[0]), c.coordinate(times[len(times)-1])
	if len(times) > maxColumns {
		c.note("%s in the table alone.", count(len(times)-maxColumns, "earlier column is", "earlier columns are"))
		order := make([]int, maxColumns)
		for i := range order {
			order[i] = len(times) - maxColumns + i
		}
		c.pick(order)
	}
	if n := int(math.Round(last-first)) + 1; last-first < maxColumns && !c.twice() {
		all, at := make([]time.Time, n), make([]int, n)
		for i := range all {
			all[i], at[i] = advance(times[0], c.Over.Step, i), -1
		}
		for i, t := range times {
			if j := int(math.Round(c.coordinate(t) - first)); j >= 0 && j < n {
				at[j] = i
			}
		}
		for i := range c.Series {
			values := nothing(n)
			for j, k := range at {
				if k >= 0 {
					values[j] = c.Series[i].Values[k]
				}
			}
			c.Series[i].Values = values
		}
		c.Over.Times = all
	}
	c.categories()
}

// ranks returns the indexes below n, those of the largest first.
func ranks(n int, size func(int) float64) []int {
	order, sizes := make([]int, n), make([]float64, n)
	for i := range order {
		order[i], sizes[i] = i, size(i)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(sizes[j], sizes[i]) })
	return order
}

func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			sum += math.Abs(v)
		}
	}
	return sum
}

// plus adds what may be missing.
func plus(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return min(max(a+b, -1e300), 1e300)
}
