package reports

import (
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation/filters"
)

// Plan is a query bound to a dataset: the query for the engine and the columns of the answer. It is immutable and safe
// for concurrent use.
type Plan struct {
	// Columns describes the answer, in order.
	Columns []Column

	table   store.Table
	where   store.Filter
	limit   int
	limited bool          // the report sets the limit
	list    []store.Field // of a list of rows; nil for an aggregation
	orders  []store.Order // of a list of rows
	groups  []store.Group
	measure []store.Measure
	ranks   []store.Rank
	instant []bool // by column: the engine answers Unix milliseconds

	// countAhead counts all rows of a list while the rows are read, instead of only if the list was cut.
	countAhead bool
	// whole: an unreadable record is an error. Otherwise a list leaves it out.
	whole bool
	window
}

// window is a part of a report's rows. The zero value is all rows.
type window struct{ from, most int }

// Bind binds the query to the dataset and the values of inputs. Faults are noted in errs: fields that do not exist,
// are secret or of the wrong type, and those of filters.Expr.Bind. A plan with faults must not be run.
func Bind(d *Dataset, def Definition, inputs func(name string) (filters.Input, bool), errs *fault.List) Plan {
	p := Plan{table: d.Table, limit: def.Limit, limited: def.Limited}
	p.where = store.All(d.Base, def.Filter.Bind(d, inputs, errs))
	if def.aggregates() {
		p.bindGroups(d, def, errs)
		p.bindMeasures(d, def, errs)
		p.bindRanks(def, errs)
		return p
	}
	p.bindList(d, def, errs)
	return p
}

// resolve finds a field that may appear in a report.
func resolve(d *Dataset, name, at string, errs *fault.List) (Field, bool) {
	f, ok := d.find(name)
	switch {
	case !ok:
		errs.Add(at, "unknown", "%s: there is no field %q", at, texts.Clip(name))
	case f.Secret:
		errs.Add(at, "forbidden", "%s: the field %q is encrypted and cannot be used in a report", at, texts.Clip(name))
		ok = false
	}
	return f, ok
}

func (p *Plan) add(c Column, instant bool) {
	p.Columns = append(p.Columns, c)
	p.instant = append(p.instant, instant)
}

func (f Field) instant() bool { return f.Ref.Type == store.TypeTime }

// groups reports whether records can be grouped and sorted by the field.
func (f Field) groups() bool { return f.Type != TypeList }

// dated reports whether the field's values are dates or times, which can be grouped by period.
func (f Field) dated() bool { return f.Type == TypeDate || f.Type == TypeDatetime }

func (p *Plan) bindList(d *Dataset, def Definition, errs *fault.List) {
	names := def.Fields
	if len(names) == 0 {
		for _, c := range d.Columns() {
			if len(names) < MaxFields {
				names = append(names, c.Name)
			}
		}
	}
	for _, name := range names {
		if f, ok := resolve(d, name, "query.fields", errs); ok {
			p.add(f.Column, f.instant())
			p.list = append(p.list, f.Ref)
		}
	}
	for _, s := range def.Sort {
		f, ok := resolve(d, s.Column, "query.sort", errs)
		if !ok {
			continue
		}
		if !f.groups() {
			errs.Add("query.sort", "forbidden", "query.sort: rows cannot be sorted by the list %q", s.Column)
			continue
		}
		p.orders = append(p.orders, store.Order{Field: f.Ref, Desc: s.Desc})
	}
}

func (p *Plan) bindGroups(d *Dataset, def Definition, errs *fault.List) {
	for _, g := range def.Groups {
		f, ok := resolve(d, g.Field, "query.group_by", errs)
		if !ok {
			continue
		}
		if !f.groups() {
			errs.Add("query.group_by", "forbidden", "query.group_by: records cannot be grouped by the list %q", g.Field)
			continue
		}
		column, instant := f.Column, f.instant()
		if g.By != store.NoBucket {
			if !f.dated() {
				errs.Add("query.group_by", "forbidden", "query.group_by: %q is not a date, so it cannot have by", g.Field)
				continue
			}
			instant = false
			column.Title += " (" + bucketName(g.By) + ")"
			if column.Type = TypeText; g.By == store.Day {
				column.Type = TypeDate
			}
		}
		p.add(column, instant)
		p.groups = append(p.groups, store.Group{Field: f.Ref, By: g.By})
	}
}

func bucketName(b store.Bucket) string {
	for name, bucket := range buckets() {
		if bucket == b {
			return name
		}
	}
	return ""
}

func (p *Plan) bindMeasures(d *Dataset, def Definition, errs *fault.List) {
	for _, m := range def.Measures {
		if m.Op == store.MeasureCount {
			p.add(Column{"count", "Count", TypeNumber}, false)
			p.measure = append(p.measure, store.Measure{Op: m.Op})
			continue
		}
		f, ok := resolve(d, m.Field, "query.measures", errs)
		if !ok {
			continue
		}
		column, fits := measured(m, f)
		if !fits {
			errs.Add(
				"query.measures", "forbidden", "query.measures: %s cannot be computed for %q, which has the type %s",
				m.label(), m.Field, f.Type,
			)
			continue
		}
		p.add(column, column.Type == TypeDatetime && f.instant())
		p.measure = append(p.measure, store.Measure{Op: m.Op, Field: f.Ref})
	}
}

// measured returns the column of a measure; false if the field's type does not allow it.
func measured(m Measure, f Field) (Column, bool) {
	column := Column{Name: m.Column(), Title: m.title() + " " + f.Title, Type: TypeNumber}
	switch m.Op {
	case store.MeasureSum, store.MeasureAvg:
		return column, f.Type == TypeNumber
	case store.MeasureMin, store.MeasureMax:
		column.Type = f.Type
		return column, f.Type != TypeBoolean && f.Type != TypeList
	}
	return column, f.Type != TypeList
}

func (m Measure) title() string {
	switch m.Op {
	case store.MeasureSum:
		return "Sum of"
	case store.MeasureAvg:
		return "Average"
	case store.MeasureMin:
		return "Lowest"
	case store.MeasureMax:
		return "Highest"
	}
	return "Different"
}

func (p *Plan) bindRanks(def Definition, errs *fault.List) {
	for _, s := range def.Sort {
		found := false
		for i, c := range p.Columns {
			if c.Name == s.Column {
				p.ranks = append(p.ranks, store.Rank{Column: i, Desc: s.Desc})
				found = true
			}
		}
		if !found {
			errs.Add("query.sort", "unknown", "query.sort: the report has no column %q", texts.Clip(s.Column))
		}
	}
}
