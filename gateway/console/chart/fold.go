package chart

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// foldSeries reduces the series to those that can be drawn. It adds up the smallest if their values can be added up,
// and leaves them to the table otherwise.
func (c *Chart) foldSeries() {
	most := MaxSeries
	if c.Kind == Heat {
		most = maxRows
	}
	if len(c.Series) <= most {
		return
	}
	sums := c.Parts && !slices.ContainsFunc(c.Series, func(s Series) bool { return !s.Sums })
	ranked := rankDescending(len(c.Series), func(i int) float64 { return total(c.Series[i].Values) })
	if !c.Parts { // measures keep their order, because a larger one is not more important
		slices.Sort(ranked)
	}
	kept, rest := ranked[:most-1], ranked[most-1:]
	slices.Sort(kept)
	series := subset(c.Series, kept)
	if sums {
		folded := Series{
			Name: plural(len(rest), "other", "others"), Sums: true, Rest: true,
			Values: missingValues(c.Over.len()),
		}
		for _, i := range rest {
			c.Series[i].add(folded.Values)
		}
		series = append(series, folded)
	} else {
		c.addNote("%s only in the table.", plural(len(rest), "more is", "more are"))
	}
	c.Series = series
}

// foldPoints reduces the points to at most most. It adds up those with the smallest values if they can be added up, and
// leaves them to the table otherwise.
func (c *Chart) foldPoints(most int) {
	n := len(c.Over.Labels)
	if n <= most {
		return
	}
	ranked := rankDescending(n, func(i int) float64 {
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
	c.keepPoints(kept)
	if slices.ContainsFunc(c.Series, func(s Series) bool { return !s.Sums }) {
		c.addNote("The %s only in the table.", plural(len(rest), "smallest is", "smallest are"))
		return
	}
	c.folded = true
	c.Over.Labels = append(c.Over.Labels, plural(len(rest), "other", "others"))
	for i := range c.Series {
		sum := math.NaN()
		for _, j := range rest {
			sum = plus(sum, before[i].Values[j])
		}
		c.Series[i].Values = append(c.Series[i].Values, sum)
	}
}

// prepareSlices orders the slices of a pie, the largest first and the rest last. It removes values that are not
// positive.
func (c *Chart) prepareSlices() {
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
		c.addNote("%s without a value above zero %s only in the table.", plural(lost, "row", "rows"), isOrAre(lost))
	}
	c.keepPoints(order)
	c.keepPoints(rankDescending(len(order), func(i int) float64 { return c.Series[0].Values[i] }))
	c.foldPoints(maxSlices)
}

// prepareColumns gives a heat table a column for each time. If there is room, it adds columns for the times between
// that have no values.
func (c *Chart) prepareColumns() {
	times := c.Over.Times
	if len(times) == 0 {
		return
	}
	first, last := c.coordinate(times[0]), c.coordinate(times[len(times)-1])
	if len(times) > maxColumns {
		c.addNote("%s only in the table.", plural(len(times)-maxColumns, "earlier column is", "earlier columns are"))
		order := make([]int, maxColumns)
		for i := range order {
			order[i] = len(times) - maxColumns + i
		}
		c.keepPoints(order)
	}
	if n := int(math.Round(last-first)) + 1; last-first < maxColumns && !c.hasDuplicates() {
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
			values := missingValues(n)
			for j, k := range at {
				if k >= 0 {
					values[j] = c.Series[i].Values[k]
				}
			}
			c.Series[i].Values = values
		}
		c.Over.Times = all
	}
	c.useLabels()
}

// rankDescending returns the indexes below n in descending order of their size.
func rankDescending(n int, size func(int) float64) []int {
	order, sizes := make([]int, n), make([]float64, n)
	for i := range order {
		order[i], sizes[i] = i, size(i)
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(sizes[j], sizes[i]) })
	return order
}

// total returns the sum of the absolute values.
func total(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		if !math.IsNaN(v) {
			sum += math.Abs(v)
		}
	}
	return sum
}

// plus adds two values, either of which may be NaN for none.
func plus(a, b float64) float64 {
	switch {
	case math.IsNaN(a):
		return b
	case math.IsNaN(b):
		return a
	}
	return min(max(a+b, -1e300), 1e300)
}
