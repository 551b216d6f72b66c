package sqlite

import (
	"slices"

	"tenantry/backends/driver"
)

// enter chooses the index on a custom value that the question is answered by, if any: one on a value that is asked for,
// before one on a range of them, before one in the order of which the answer is. Where an index of the collection's own
// leads to a few documents, no range does better.
func (s *statement) enter(fields *fields, where driver.Predicate, sort []driver.Order, values []driver.Ref) {
	best := 0
	if !s.known {
		return
	}
	where = s.t.ofKind(s.kind, where)
	var look func(p driver.Predicate)
	use := func(r driver.Ref, worth int) {
		if !r.Custom || r.Type == driver.Strings || worth <= best {
			return
		}
		if x := fields.indexedBy(s.fieldKey(r.Name)); x != nil && x.made == s.t.entriesMade {
			s.by, s.field, best = x, r.Name, worth
		}
	}
	look = func(p driver.Predicate) {
		switch {
		case p.Op == driver.And:
			for _, k := range p.Kids {
				look(k)
			}
		case p.Op == driver.Eq || p.Op == driver.In:
			use(p.Ref, 3)
		case seeks(p.Op):
			use(p.Ref, 2)
		}
	}
	look(where)
	follows := s.follows(where)
	if len(sort) > 0 && !follows && !s.ranged(where) {
		use(sort[0].Ref, 1)
	}
	if best < 3 && (follows || s.indexed(where)) {
		s.by = nil
	}
	s.within = s.by != nil && s.has(where)
	for _, r := range values {
		s.within = s.within && (s.by.rides && r.Custom || s.carried(r))
	}
	for _, o := range sort {
		s.within = s.within && (s.by.rides && o.Ref.Custom || s.carried(o.Ref) || o.Ref.Custom && o.Ref.Name == s.field)
	}
}

// reading says that the question is about all that meets the predicate, and about those values of it. Where that is to
// be read from documents, and no index leads to a few of them, they are read in the order in which they lie: SQLite
// takes any index to lead to fewer, one on what was deleted too, and looks each up by itself, which takes twice as
// long.
func (s *statement) reading(where driver.Predicate, values ...driver.Ref) {
	custom := slices.ContainsFunc(values, func(r driver.Ref) bool { return r.Custom })
	s.whole = s.by == nil && (custom || speaks(where)) && !s.leads(where)
}

// speaks reports whether the predicate speaks of custom values.
func speaks(p driver.Predicate) bool {
	return p.Ref.Custom || slices.ContainsFunc(p.Kids, speaks)
}

// leads reports whether an index can lead to a few documents that the predicate admits.
func (s *statement) leads(p driver.Predicate) bool {
	switch p.Op {
	case driver.And:
		return slices.ContainsFunc(p.Kids, s.leads)
	case driver.Or:
		return len(p.Kids) > 0 && !slices.ContainsFunc(p.Kids, func(k driver.Predicate) bool { return !s.leads(k) })
	}
	return s.searchable(p) && s.t.columns[p.Ref.Name].typ != driver.Bool
}

// carried reports whether entries have the declared field.
func (s *statement) carried(r driver.Ref) bool {
	return !r.Custom && (r.Name == "id" || slices.Contains(s.t.riders, s.t.columns[r.Name].column))
}

// has reports whether entries have all that the predicate speaks of.
func (s *statement) has(p driver.Predicate) bool {
	switch {
	case p.Op == driver.And || p.Op == driver.Or:
		return !slices.ContainsFunc(p.Kids, func(k driver.Predicate) bool { return !s.has(k) })
	case p.Ref.Custom:
		return s.by.rides || p.Ref.Name == s.field && p.Ref.Type != driver.Strings && p.Op != driver.Exists
	}
	return s.carried(p.Ref)
}

// fieldKey returns what tells the custom field from others, where the kind is known.
func (s *statement) fieldKey(name string) fieldKey {
	return fieldKey{s.ws, s.t.name, s.kind, name}
}

// indexed reports whether the predicate, all of which must hold, has an equality that an index
// can start from. Element look-ups then test the row at hand instead of
// collecting the ids of every document with that element.
func (s *statement) indexed(p driver.Predicate) bool {
	switch p.Op {
	case driver.And:
		return slices.ContainsFunc(p.Kids, s.indexed)
	case driver.Eq, driver.In:
		return !p.Ref.Custom && s.t.leading[p.Ref.Name]
	}
	return false
}

// one reports whether the predicate admits one document at most, by all fields of a unique index.
func (t *table) one(p driver.Predicate) bool {
	return slices.ContainsFunc(t.uniques, func(u unique) bool { return p.Pins(u.fields...) })
}

// follows reports whether an index that begins with the kind can go on from there.
func (s *statement) follows(p driver.Predicate) bool {
	if p.Op == driver.And {
		return slices.ContainsFunc(p.Kids, s.follows)
	}
	return !p.Ref.Custom && s.t.next[p.Ref.Name] && seeks(p.Op)
}

// searchable reports whether an index or side table can answer the predicate alone.
func (s *statement) searchable(p driver.Predicate) bool {
	switch p.Op {
	case driver.Eq, driver.In, driver.Contains, driver.StartsWith, driver.StartsWithFold, driver.Gt, driver.Gte, driver.Lt, driver.Lte:
		if p.Ref.Custom {
			return false
		}
		f := s.t.columns[p.Ref.Name]
		if f.typ == driver.Strings {
			return f.side != ""
		}
		return s.t.leading[p.Ref.Name] && p.Op != driver.Contains
	}
	return false
}

// seeks reports whether an index on the value serves the operator.
func seeks(op driver.Op) bool {
	switch op {
	case driver.Eq, driver.In, driver.StartsWith, driver.StartsWithFold, driver.Gt, driver.Gte, driver.Lt, driver.Lte, driver.From:
		return true
	}
	return false
}

// ranged reports whether an index can answer p, but only as a range, which is not in the order of ids.
func (s *statement) ranged(p driver.Predicate) bool {
	if p.Op == driver.And {
		return !s.indexed(p) && slices.ContainsFunc(p.Kids, s.ranged)
	}
	return !s.indexed(p) && s.searchable(p) && p.Ref.Name != "id"
}
