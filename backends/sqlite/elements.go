package sqlite

import "tenantry/backends/driver"

// maxNeedles is the largest number of values that are searched for with instr, one by one.
const maxNeedles = 16

// elements writes a condition on a list. Operators that have no meaning for elements match nothing.
func (s *statement) elements(o operand, p driver.Predicate, side bool) {
	values := make([]any, 0, len(p.Values))
	for _, v := range p.Values {
		if text, ok := v.(string); ok {
			values = append(values, text)
		}
	}
	negative := p.Op == driver.Ne || p.Op == driver.Nin
	switch {
	case !negative && p.Op != driver.Eq && p.Op != driver.In && p.Op != driver.Contains:
		s.add("0")
	case len(values) == 0 && negative:
		s.add("1")
	case len(values) == 0:
		s.add("0")
	case o.json != "":
		if negative {
			s.add("NOT ")
		}
		s.add("EXISTS (SELECT 1 FROM ", o.list(), " AS j WHERE j.type = 'text' AND j.value")
		s.inList(values)
		s.add(")")
	case side && o.side != "" && !negative:
		s.add("id IN (SELECT s.id FROM ", o.side, " AS s WHERE ", s.t.ifShared("s."), s.inWorkspace(" AND "), "s.value")
		s.inList(values)
		s.add(")")
	case len(values) > maxNeedles:
		if negative {
			s.add("(", o.expr, " IS NULL OR NOT ")
		}
		s.add("EXISTS (SELECT 1 FROM json_each(", o.expr, ") AS j WHERE j.value")
		s.inList(values)
		s.add(")")
		if negative {
			s.add(")")
		}
	default:
		s.needles(o, values, negative)
	}
}

// needles writes a search for each value in the encoded list; see encodeStrings.
func (s *statement) needles(o operand, values []any, negative bool) {
	n := 1
	for n < len(values) {
		n *= 2
	}
	s.add("(")
	if negative {
		s.add(o.expr, " IS NULL OR (")
	}
	for i := range n {
		text, _ := values[min(i, len(values)-1)].(string)
		placeholder := s.param(string(appendElement(nil, text)))
		switch {
		case i > 0 && negative:
			s.add(" AND ")
		case i > 0:
			s.add(" OR ")
		}
		s.add("instr(", o.expr, ", ", placeholder, ")")
		if negative {
			s.add(" = 0")
		} else {
			s.add(" > 0")
		}
	}
	if negative {
		s.add(")")
	}
	s.add(")")
}
