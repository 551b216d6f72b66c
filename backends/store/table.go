package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"tenantry/backends/driver"
)

// Group is one dimension of an Aggregation.
type Group struct {
	Field Field
	By    Bucket
}

// Measure is one computed column. Count needs no field.
type Measure struct {
	Op    MeasureOp
	Field Field
}

// Rank orders an Aggregation by one of its columns: groups first, then measures.
type Rank = driver.Rank

// Aggregation groups the matching live records and measures each group. The engine computes it.
type Aggregation struct {
	Filter   Filter
	Groups   []Group
	Measures []Measure
	Sort     []Rank
	Limit    int
	Bytes    int64 // budget of the rows, see Query
}

// RowSize returns the approximate size of a row in bytes.
func RowSize(row []any) int64 { return driver.RowSize(row) }

// Table queries a kind without its record type. Reports are built on it.
type Table interface {
	// Select returns the named fields of the matching live records. Missing values are nil, numbers int64 or float64,
	// times of declared fields int64 in Unix milliseconds. With LeaveOut the row of a record that cannot be read is nil.
	// Bytes is the budget of the rows, not of their records; cut reports whether it ended the answer.
	Select(ctx context.Context, fields []Field, q Query) (rows [][]any, cut bool, err error)
	// Aggregate returns one row for each group: the group values, then the measures. Cut is as for Select.
	Aggregate(ctx context.Context, a Aggregation) (rows [][]any, cut bool, err error)
	// Count returns how many live records match.
	Count(ctx context.Context, f Filter) (int64, error)
}

// Table returns the kind as a Table, opened in a workspace.
func (k *Kind[T]) Table(w *Workspace) Table { return table{k.spec, w} }

type table struct {
	spec *Spec
	ws   *Workspace
}

func (t table) Count(ctx context.Context, f Filter) (int64, error) {
	return t.ws.count(ctx, t.spec, f, Live)
}

func (t table) Select(ctx context.Context, fields []Field, q Query) (rows [][]any, cut bool, err error) {
	for _, f := range fields {
		if _, err := t.spec.ref(f); err != nil {
			return nil, false, err
		}
	}
	left := 0
	cut, err = q.readWithin(ctx, func(r *reading) error {
		_, err := t.ws.documents(ctx, t.spec, q, func(d *driver.Document) error {
			if d == nil {
				rows, left = [][]any{}, 0
				r.restart()
				return nil
			}
			row, err := t.pick(d, fields)
			keep, full := r.keep(driver.RowSize(row))
			if !keep {
				if r.full {
					rows, left = nil, 0
				}
				return full
			}
			if rows = append(rows, row); err == nil {
				return nil
			}
			if err = t.ws.unreadable(ctx, t.spec, d, err); !q.LeaveOut {
				return err
			}
			left++
			return nil
		})
		if errors.Is(err, errBudget) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, false, err
	}
	countOmitted(ctx, left)
	return rows, cut, nil
}

func (t table) pick(doc *driver.Document, fields []Field) ([]any, error) {
	if doc.Damage != nil {
		return nil, &damage{doc.Damage}
	}
	var body, custom map[string]json.RawMessage
	if err := json.Unmarshal(doc.Body, &body); err != nil {
		return nil, err
	}
	if len(doc.Custom) > 0 {
		if err := json.Unmarshal(doc.Custom, &custom); err != nil {
			return nil, err
		}
	}
	row := make([]any, len(fields))
	for i, f := range fields {
		from := body
		if f.Custom {
			from = custom
		} else if f.Name == "id" {
			row[i] = doc.ID
			continue
		}
		row[i] = scalar(from[f.Name])
		if !f.Custom {
			row[i] = t.spec.declaredValue(f.Name, row[i])
		}
	}
	return row, nil
}

// declaredValue converts a value of the body to the value that conditions and groups see: an empty value becomes nil,
// and a number or bool that omitempty removed becomes 0 or false.
func (s *Spec) declaredValue(name string, v any) any {
	switch x := v.(type) {
	case nil:
		return s.zeros[name]
	case string:
		if x == "" {
			return nil
		}
	case []any:
		if len(x) == 0 {
			return nil
		}
	case int64:
		if x != 0 {
			break
		}
		if ref, err := s.ref(F(name)); err == nil && ref.Type == driver.Time {
			return nil
		}
	}
	return v
}

// scalar decodes a JSON value. Integers that fit become int64.
func scalar(raw json.RawMessage) any {
	if len(raw) == 0 {
		return nil
	}
	var n int64
	if json.Unmarshal(raw, &n) == nil && string(raw) != "null" {
		return n
	}
	var v any
	if json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

func (t table) Aggregate(ctx context.Context, a Aggregation) (rows [][]any, cut bool, err error) {
	out, err := t.aggregation(a)
	if err != nil {
		return nil, false, err
	}
	q := Query{Bytes: a.Bytes}
	cut, err = q.readWithin(ctx, func(r *reading) error {
		drv, err := t.ws.reader(ctx)
		if err != nil {
			return translate(t.spec, err)
		}
		r.restart()
		if out.Bytes = r.keepMax; a.Bytes <= 0 {
			out.Bytes, r.keepMax = 0, r.budget // without a budget all rows are kept: their number is limited
		}
		if rows, err = drv.Aggregate(ctx, out); err != nil {
			return translate(t.spec, err)
		}
		for i := range rows {
			if keep, _ := r.keep(driver.RowSize(rows[i])); keep {
				continue
			}
			if rows = rows[:i]; r.full { // the engine stopped at r.keepMax, so the size of the rest is unknown
				rows, r.size = nil, r.budget
			}
			break
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	t.unqualifyIDs(out, rows)
	return rows, cut, nil
}

// aggregation checks an Aggregation and translates it for an engine.
func (t table) aggregation(a Aggregation) (out driver.Aggregation, err error) {
	where, err := t.ws.where(t.spec, a.Filter, Live)
	if err != nil {
		return out, err
	}
	if len(a.Groups)+len(a.Measures) == 0 {
		return out, fmt.Errorf("%w: an aggregation of %s needs a group or a measure", ErrQuery, t.spec.Name)
	}
	out = driver.Aggregation{Collection: t.spec.collection, Where: where, Sort: a.Sort, Limit: a.Limit}
	if out.Limit <= 0 || out.Limit > MaxLimit {
		out.Limit = MaxLimit
	}
	for _, g := range a.Groups {
		ref, err := t.spec.ref(g.Field)
		if err != nil {
			return out, err
		}
		if ref.Type == driver.Strings {
			return out, fmt.Errorf("%w: cannot group by the list %s", ErrQuery, ref.Name)
		}
		if g.By < driver.NoBucket || g.By > driver.Year {
			return out, fmt.Errorf("%w: unknown bucket %d of %s", ErrQuery, g.By, ref.Name)
		}
		out.Groups = append(out.Groups, driver.Group{Ref: ref, By: g.By})
	}
	for _, m := range a.Measures {
		if m.Op < driver.Count || m.Op > driver.Distinct {
			return out, fmt.Errorf("%w: unknown measure %d", ErrQuery, m.Op)
		}
		measure := driver.Measure{Op: m.Op}
		if m.Op != driver.Count {
			if measure.Ref, err = t.spec.ref(m.Field); err != nil {
				return out, err
			}
		}
		out.Measures = append(out.Measures, measure)
	}
	for _, r := range a.Sort {
		if r.Column < 0 || r.Column >= len(a.Groups)+len(a.Measures) {
			return out, fmt.Errorf("%w: no column %d to sort by", ErrQuery, r.Column)
		}
	}
	return out, nil
}

// unqualifyIDs removes the partition from the identifiers in the rows of an aggregation.
func (t table) unqualifyIDs(a driver.Aggregation, rows [][]any) {
	part := t.ws.part(t.spec)
	if part == 0 {
		return
	}
	refs := make([]driver.Ref, 0, len(a.Groups)+len(a.Measures))
	for _, g := range a.Groups {
		refs = append(refs, g.Ref)
	}
	for _, m := range a.Measures {
		refs = append(refs, m.Ref)
	}
	for i, ref := range refs {
		if ref.Custom || ref.Name != "id" {
			continue
		}
		for _, row := range rows {
			if id, ok := row[i].(string); ok {
				row[i] = part.unqualify(id)
			}
		}
	}
}
