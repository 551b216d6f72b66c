package sqlite

import (
	"slices"

	"tenantry/backends/driver"
)

// chooseIndex chooses the index on a custom field for the query, if one serves it: preferably for an equality, then for
// a range, then for the sort order. If a declared index is likely to select few documents, only an equality is better.
func (s *statement) chooseIndex(fields *fieldIndexes, where driver.Predicate, sort []driver.Order, values []driver.Ref) {
	best := 0
	if !s.kindKnown {
		return
	}
	where = s.t.withoutKind(s.kind, where)
	var look func(p driver.Predicate)
	use := func(r driver.Ref, worth int) {
		if !r.Custom || r.Type == driver.Strings || worth <= best {
			return
		}
		if x := fields.indexedBy(s.fieldKey(r.Name)); x != nil && x.tableSQL == s.t.entriesSQL {
			s.index, s.indexedField, best = x, r.Name, worth
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
		case indexServes(p.Op):
			use(p.Ref, 2)
		}
	}
	look(where)
	follows := s.seeksWithinKind(where)
	if len(sort) > 0 && !follows && !s.ranged(where) {
		use(sort[0].Ref, 1)
	}
	if best < 3 && (follows || s.indexed(where)) {
		s.index = nil
	}
	s.indexOnly = s.index != nil && s.covered(where)
	for _, r := range values {
		s.indexOnly = s.indexOnly && (s.index.coversCustom && r.Custom || s.inEntries(r))
	}
	for _, o := range sort {
		indexed := o.Ref.Custom && o.Ref.Name == s.indexedField
		s.indexOnly = s.indexOnly && (s.index.coversCustom && o.Ref.Custom || s.inEntries(o.Ref) || indexed)
	}
}

// chooseScan decides whether a query about all matching documents, and these values of them, reads the table from
// beginning to end. It does if documents must be read and no index selects few of them. SQLite assumes that any index
// selects fewer, even one on the deletion time, and would look up each document, which takes twice as long.
func (s *statement) chooseScan(where driver.Predicate, values ...driver.Ref) {
	custom := slices.ContainsFunc(values, func(r driver.Ref) bool { return r.Custom })
	s.fullScan = s.index == nil && (custom || hasCustom(where)) && !s.selective(where)
}

// hasCustom reports whether the predicate has a condition on a custom value.
func hasCustom(p driver.Predicate) bool {
	return p.Ref.Custom || slices.ContainsFunc(p.Kids, hasCustom)
}

// selective reports whether a declared index may select few documents for the predicate. An index on a bool does not.
func (s *statement) selective(p driver.Predicate) bool {
	switch p.Op {
	case driver.And:
		return slices.ContainsFunc(p.Kids, s.selective)
	case driver.Or:
		return len(p.Kids) > 0 && !slices.ContainsFunc(p.Kids, func(k driver.Predicate) bool { return !s.selective(k) })
	}
	return s.searchable(p) && s.t.columns[p.Ref.Name].typ != driver.Bool
}

// inEntries reports whether index entries include the declared field.
func (s *statement) inEntries(r driver.Ref) bool {
	return !r.Custom && (r.Name == "id" || slices.Contains(s.t.entryColumns, s.t.columns[r.Name].column))
}

// covered reports whether the entries of the chosen index include all values of the predicate.
func (s *statement) covered(p driver.Predicate) bool {
	switch {
	case p.Op == driver.And || p.Op == driver.Or:
		return !slices.ContainsFunc(p.Kids, func(k driver.Predicate) bool { return !s.covered(k) })
	case p.Ref.Custom:
		return s.index.coversCustom || p.Ref.Name == s.indexedField && p.Ref.Type != driver.Strings && p.Op != driver.Exists
	}
	return s.inEntries(p.Ref)
}

// fieldKey returns the key of a custom field. The kind must be known.
func (s *statement) fieldKey(name string) fieldKey {
	return fieldKey{s.ws, s.t.name, s.kind, name}
}

// indexed reports whether the predicate requires an equality that a declared index serves. Element look-ups then test
// each row found by it, instead of collecting the ids of all documents with the element.
func (s *statement) indexed(p driver.Predicate) bool {
	switch p.Op {
	case driver.And:
		return slices.ContainsFunc(p.Kids, s.indexed)
	case driver.Eq, driver.In:
		return !p.Ref.Custom && s.t.leading[p.Ref.Name]
	}
	return false
}

// matchesOne reports whether at most one document can match, because the predicate has a value for all fields of a
// unique index.
func (t *table) matchesOne(p driver.Predicate) bool {
	return slices.ContainsFunc(t.uniques, func(u uniqueIndex) bool { return p.Pins(u.fields...) })
}

// seeksWithinKind reports whether a declared index that begins with the kind serves another condition too.
func (s *statement) seeksWithinKind(p driver.Predicate) bool {
	if p.Op == driver.And {
		return slices.ContainsFunc(p.Kids, s.seeksWithinKind)
	}
	return !p.Ref.Custom && s.t.afterKind[p.Ref.Name] && indexServes(p.Op)
}

// searchable reports whether a declared index or a side table alone can find the documents that match.
func (s *statement) searchable(p driver.Predicate) bool {
	switch p.Op {
	case driver.Eq, driver.In, driver.Contains, driver.StartsWith, driver.StartsWithFold,
		driver.Gt, driver.Gte, driver.Lt, driver.Lte:
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

// indexServes reports whether an index on the value can serve the operator.
func indexServes(op driver.Op) bool {
	switch op {
	case driver.Eq, driver.In, driver.StartsWith, driver.StartsWithFold,
		driver.Gt, driver.Gte, driver.Lt, driver.Lte, driver.From:
		return true
	}
	return false
}

// ranged reports whether a declared index can find the documents that match, but only as a range, which is not in the
// order of ids.
func (s *statement) ranged(p driver.Predicate) bool {
	if p.Op == driver.And {
		return !s.indexed(p) && slices.ContainsFunc(p.Kids, s.ranged)
	}
	return !s.indexed(p) && s.searchable(p) && p.Ref.Name != "id"
}
