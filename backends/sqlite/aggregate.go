package sqlite

import (
	"fmt"
	"strconv"
	"strings"

	"tenantry/backends/driver"
)

// compileAggregation returns the statement and the types of its columns. If wide is set, sums are floats, which cannot
// overflow.
func (w *workspace) compileAggregation(t *table, a driver.Aggregation, wide bool) (*statement, []driver.Type, error) {
	order, err := a.Ranks()
	if err != nil {
		return nil, nil, err
	}
	var values []driver.Ref
	for _, g := range a.Groups {
		values = append(values, g.Ref)
	}
	for _, m := range a.Measures {
		if m.Op != driver.Count {
			values = append(values, m.Ref)
		}
	}
	s := w.statement(t, a.Where, nil, values...)
	s.chooseScan(a.Where, values...)
	var columns, groups, ranks []string
	var types []driver.Type
	for i, g := range a.Groups {
		expr, typ, err := s.group(g)
		if err != nil {
			return nil, nil, err
		}
		columns, types, groups = append(columns, expr), append(types, typ), append(groups, strconv.Itoa(i+1))
	}
	for _, m := range a.Measures {
		expr, err := s.measure(m, wide)
		if err != nil {
			return nil, nil, err
		}
		columns, types = append(columns, expr), append(types, driver.Any)
	}
	for _, r := range order {
		rank := strconv.Itoa(r.Column + 1)
		if r.Desc {
			rank += " DESC"
		}
		ranks = append(ranks, rank)
	}
	s.add("SELECT ", strings.Join(columns, ", "))
	if err := s.from(a.Where); err != nil {
		return nil, nil, err
	}
	if len(groups) > 0 {
		s.add(" GROUP BY ", strings.Join(groups, ", "), " ORDER BY ", strings.Join(ranks, ", "))
	}
	if a.Limit > 0 {
		s.add(" LIMIT ", s.param(int64(a.Limit)))
	}
	return s, types, nil
}

// number returns the SQL of the operand if it is a number, and NULL otherwise.
func (o operand) number() string {
	switch {
	case numeric(o.typ):
		return o.expr
	case o.typ != driver.Any:
		return "NULL"
	}
	return "(CASE WHEN typeof(" + o.expr + ") IN ('integer', 'real') THEN " + o.expr + " END)"
}

// str returns the SQL of the operand if it is a string, and NULL otherwise.
func (o operand) str() string {
	switch o.typ {
	case driver.String, driver.Date:
		return o.expr
	case driver.Any:
		return "(CASE WHEN typeof(" + o.expr + ") = 'text' THEN " + o.expr + " END)"
	}
	return "NULL"
}

// group returns the SQL of a group and its type.
func (s *statement) group(g driver.Group) (string, driver.Type, error) {
	o, err := s.operand(g.Ref)
	if err != nil {
		return "", 0, err
	}
	if g.By == driver.NoBucket {
		return o.full, o.typ, nil
	}
	typ := o.typ
	if g.Ref.Custom {
		typ = g.Ref.Type
	}
	moment, guard := "", ""
	if typ == driver.Time {
		moment = o.number() + " / 1000.0, 'unixepoch'"
	} else {
		moment = "substr(" + o.str() + ", 1, 10)"
		// Anything else that SQLite accepts as a time ("now", a Julian day, the 31st of February) changes in date().
		guard = "CASE WHEN date(" + moment + ") = " + moment + " THEN "
	}
	var expr string
	switch g.By {
	case driver.Day:
		expr = "strftime('%Y-%m-%d', " + moment + ")"
	case driver.Week:
		expr = "strftime('%G-W%V', " + moment + ")"
	case driver.Month:
		expr = "strftime('%Y-%m', " + moment + ")"
	case driver.Quarter:
		expr = "strftime('%Y', " + moment + ") || '-Q' || ((CAST(strftime('%m', " + moment + ") AS INTEGER) + 2) / 3)"
	case driver.Year:
		expr = "strftime('%Y', " + moment + ")"
	default:
		return "", 0, fmt.Errorf("unknown bucket %d", g.By)
	}
	if guard != "" {
		expr = guard + expr + " END"
	}
	return expr, driver.String, nil
}

// measure returns the SQL of a measure.
func (s *statement) measure(m driver.Measure, wide bool) (string, error) {
	if m.Op == driver.Count {
		return "count(*)", nil
	}
	o, err := s.operand(m.Ref)
	if err != nil {
		return "", err
	}
	typ := o.typ
	if m.Ref.Custom {
		typ = m.Ref.Type
	}
	ordered := o.number()
	if typ == driver.String || typ == driver.Date {
		ordered = o.str()
	}
	switch m.Op {
	case driver.Sum:
		if wide {
			return "(CASE WHEN count(" + o.number() + ") > 0 THEN total(" + o.number() + ") END)", nil
		}
		return "sum(" + o.number() + ")", nil
	case driver.Avg:
		return "avg(" + o.number() + ")", nil
	case driver.Min:
		return "min(" + ordered + ")", nil
	case driver.Max:
		return "max(" + ordered + ")", nil
	case driver.Distinct:
		return "count(DISTINCT " + o.full + ")", nil
	}
	return "", fmt.Errorf("unknown measure %d", m.Op)
}
