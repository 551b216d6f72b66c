package mongo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// maxRows is the batch size of an aggregation without a limit.
const maxRows = 10_000

// Aggregate implements driver.Workspace. The server groups and measures, and spills to disk if its memory does not
// suffice. Distinct measures of a single column may have any number of values. For several columns, the distinct values
// of a group must fit into a document of 16 MB; otherwise the server returns an error.
func (w *workspace) Aggregate(ctx context.Context, a driver.Aggregation) ([][]any, error) {
	k, err := w.kind(a.Collection)
	if err != nil {
		return nil, err
	}
	doing := "aggregate " + k.name
	filter, t, err := w.filter(k, a.Where)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	p, err := w.plan(k, a)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	var rows [][]any
	if t == never {
		err = w.idle(ctx, doing)
	} else {
		err = w.call(ctx, doing, func(ctx context.Context) (err error) {
			rows, err = p.run(ctx, w, k, append(matching(filter), p.stages(a)...), a)
			return err
		})
	}
	if err == nil && len(rows) == 0 && len(a.Groups) == 0 {
		rows = [][]any{p.empty(a)}
	}
	return rows, err
}

// plan is an aggregation that is being compiled to a pipeline.
type plan struct {
	before   bson.D      // dates that are computed before documents are grouped
	groups   bson.D      // g0, g1, ...
	distinct []any       // columns whose distinct values are counted
	first    bson.D      // accumulators, by name
	second   bson.D      // the same over groups that the first stage has split by the value of distinct[0]
	columns  bson.D      // r0, r1, ...: the columns of a row
	order    bson.D      // order of the rows, by columns
	prefixed map[int]int // length of the prefix to remove, by column
}

func (w *workspace) plan(k *kind, a driver.Aggregation) (*plan, error) {
	order, err := a.Ranks()
	if err != nil {
		return nil, err
	}
	p := &plan{prefixed: map[int]int{}}
	for _, r := range order {
		direction := int32(1)
		if r.Desc {
			direction = -1
		}
		p.order = append(p.order, bson.E{Key: "r" + strconv.Itoa(r.Column), Value: direction})
	}
	for i, g := range a.Groups {
		o, err := w.operand(k, g.Ref)
		if err != nil {
			return nil, err
		}
		expr, err := p.group(i, o, g)
		if err != nil {
			return nil, err
		}
		name := "g" + strconv.Itoa(i)
		p.groups = append(p.groups, bson.E{Key: name, Value: expr})
		if len(a.Groups) == 1 {
			p.column("$_id")
		} else {
			p.column("$_id." + name)
		}
		if g.By == driver.NoBucket {
			p.strip(o)
		}
	}
	for i, m := range a.Measures {
		if err := w.measure(k, p, i, m); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plan) column(expr any) {
	p.columns = append(p.columns, bson.E{Key: "r" + strconv.Itoa(len(p.columns)), Value: expr})
}

// strip notes that the values of the last column begin with the operand's prefix, which rows must not show.
func (p *plan) strip(o operand) {
	if o.prefix != "" {
		p.prefixed[len(p.columns)-1] = len(o.prefix)
	}
}

func (o operand) expr() string { return "$" + o.path }

func op(name string, args ...any) bson.D {
	if len(args) == 1 {
		return bson.D{{Key: name, Value: args[0]}}
	}
	return bson.D{{Key: name, Value: bson.A(args)}}
}

func when(cond, then any) bson.D { return op("$cond", cond, then, nil) }

// number returns the expression of the operand if it is a number, else null. It uses the order of types in MongoDB:
// null and missing, numbers, text, objects.
func (o operand) number() any {
	switch {
	case o.typ == driver.Time: // another program may have stored a value that is not a date; it must not fail the query
		first, last := bson.DateTime(math.MinInt64), bson.DateTime(math.MaxInt64)
		return when(op("$and", op("$gte", o.expr(), first), op("$lte", o.expr(), last)), op("$toLong", o.expr()))
	case o.typ != driver.Any && !numeric(o.typ):
		return nil
	}
	return when(op("$and", op("$gt", o.expr(), nil), op("$lt", o.expr(), "")), o.expr())
}

// words returns the expression of the operand if it is text, else null.
func (o operand) words() any {
	switch o.typ {
	case driver.String, driver.Date, driver.Any:
		return when(op("$and", op("$gte", o.expr(), ""), op("$lt", o.expr(), op("$literal", bson.D{}))), o.expr())
	}
	return nil
}

// group returns the expression of a dimension. A bucket needs a date, which is computed in a stage before.
func (p *plan) group(i int, o operand, g driver.Group) (any, error) {
	if g.By == driver.NoBucket {
		return o.expr(), nil
	}
	typ := o.typ
	if g.Ref.Custom {
		typ = g.Ref.Type
	}
	name := "b" + strconv.Itoa(i)
	date := "$" + name
	text, err := bucketText(g.By, date)
	if err != nil {
		return nil, err
	}
	year1 := time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	year9999 := time.Date(9999, 12, 31, 23, 59, 59, 999e6, time.UTC).UnixMilli()
	if typ == driver.Time {
		var n any
		switch n = o.number(); {
		case o.typ == driver.Time:
			first, last := bson.DateTime(year1), bson.DateTime(year9999)
			n = when(op("$and", op("$gte", o.expr(), first), op("$lte", o.expr(), last)), o.expr())
		case n != nil:
			n = when(op("$and", op("$gte", n, year1), op("$lte", n, year9999)), op("$toDate", o.expr()))
		}
		p.before = append(p.before, bson.E{Key: name, Value: op("$ifNull", n, nil)})
		return when(op("$gt", date, nil), text), nil
	}
	day := o.words()
	if day == nil {
		return op("$ifNull", nil, nil), nil
	}
	first10 := op("$substrCP", op("$ifNull", day, ""), 0, 10)
	p.before = append(p.before, bson.E{Key: name, Value: op("$convert", bson.D{
		{Key: "input", Value: op("$concat", first10, "T00:00:00Z")}, {Key: "to", Value: "date"},
		{Key: "onError", Value: nil}, {Key: "onNull", Value: nil},
	})})
	// The server accepts days such as 31 February. They are recognized because they are written back differently.
	inRange := op("$and", op("$gte", date, bson.DateTime(year1)), op("$lte", date, bson.DateTime(year9999)))
	return when(inRange, when(op("$eq", dateText("%Y-%m-%d", date), first10), text)), nil
}

func dateText(format string, date any) bson.D {
	return op("$dateToString", bson.D{{Key: "format", Value: format}, {Key: "date", Value: date}})
}

func bucketText(by driver.Bucket, date string) (any, error) {
	switch by {
	case driver.Day:
		return dateText("%Y-%m-%d", date), nil
	case driver.Week:
		// The Thursday of an ISO week has the week's year and number, and day 0 of Unix time was a Thursday.
		const day = int64(24 * time.Hour / time.Millisecond)
		weeks := op("$floor", op("$divide", op("$add", op("$toLong", date), 3*day), 7*day))
		return dateText("%Y-W%V", op("$toDate", op("$multiply", weeks, 7*day))), nil
	case driver.Month:
		return dateText("%Y-%m", date), nil
	case driver.Quarter:
		return op("$concat", dateText("%Y-Q", date), op("$substrCP", "0111222333444", op("$month", date), 1)), nil
	case driver.Year:
		return dateText("%Y", date), nil
	}
	return nil, fmt.Errorf("unknown bucket %d", by)
}

// measure adds a measure's accumulators and its column.
func (w *workspace) measure(k *kind, p *plan, i int, m driver.Measure) error {
	n := strconv.Itoa(i)
	if m.Op == driver.Count {
		p.sum("n"+n, int32(1))
		p.column("$n" + n)
		return nil
	}
	o, err := w.operand(k, m.Ref)
	if err != nil {
		return err
	}
	typ := o.typ
	if m.Ref.Custom {
		typ = m.Ref.Type
	}
	ordered := o.number()
	if typ == driver.String || typ == driver.Date {
		ordered = o.words()
	}
	switch m.Op {
	case driver.Sum, driver.Avg:
		x := o.number()
		p.sum("s"+n, op("$ifNull", x, int64(0)))
		p.sum("n"+n, op("$cond", op("$gt", x, nil), int32(1), int32(0)))
		var result any = "$s" + n
		if m.Op == driver.Avg {
			result = op("$divide", "$s"+n, "$n"+n)
		}
		p.column(when(op("$gt", "$n"+n, 0), result))
	case driver.Min:
		p.accumulate("m"+n, "$min", ordered)
		p.column("$m" + n)
		p.strip(o)
	case driver.Max:
		p.accumulate("m"+n, "$max", ordered)
		p.column("$m" + n)
		p.strip(o)
	case driver.Distinct:
		at := slices.Index(p.distinct, any(o.expr()))
		if at < 0 {
			at = len(p.distinct)
			p.distinct = append(p.distinct, o.expr())
		}
		p.column("$d" + strconv.Itoa(at))
	default:
		return fmt.Errorf("unknown measure %d", m.Op)
	}
	return nil
}

func (p *plan) sum(name string, expr any) { p.accumulate(name, "$sum", expr) }

// accumulate adds an accumulator whose results can be accumulated again.
func (p *plan) accumulate(name, operator string, expr any) {
	p.first = append(p.first, bson.E{Key: name, Value: op(operator, expr)})
	p.second = append(p.second, bson.E{Key: name, Value: op(operator, "$"+name)})
}

// stages returns the pipeline after its $match.
func (p *plan) stages(a driver.Aggregation) bson.A {
	var all bson.A
	stage := func(name string, value any) { all = append(all, bson.D{{Key: name, Value: value}}) }
	if len(p.before) > 0 {
		stage("$addFields", p.before)
	}
	var id any
	switch len(p.groups) {
	case 0:
	case 1:
		id = p.groups[0].Value
	default:
		id = p.groups
	}
	switch len(p.distinct) {
	case 0:
		stage("$group", append(bson.D{{Key: "_id", Value: id}}, p.first...))
	case 1:
		// The first stage makes a group for each value, so that no set of values has to fit into a document.
		split := append(slices.Clone(p.groups), bson.E{Key: "d", Value: p.distinct[0]})
		stage("$group", append(bson.D{{Key: "_id", Value: split}}, p.first...))
		var regroup any
		switch len(p.groups) {
		case 0:
		case 1:
			regroup = "$_id.g0"
		default:
			back := make(bson.D, 0, len(p.groups))
			for _, g := range p.groups {
				back = append(back, bson.E{Key: g.Key, Value: "$_id." + g.Key})
			}
			regroup = back
		}
		second := append(bson.D{{Key: "_id", Value: regroup}}, p.second...)
		hasValue := op("$cond", op("$gt", "$_id.d", nil), int32(1), int32(0))
		stage("$group", append(second, bson.E{Key: "d0", Value: op("$sum", hasValue)}))
	default:
		group := append(bson.D{{Key: "_id", Value: id}}, p.first...)
		sizes := bson.D{}
		for i, d := range p.distinct {
			name := "d" + strconv.Itoa(i)
			group = append(group, bson.E{Key: name, Value: op("$addToSet", d)})
			sizes = append(sizes, bson.E{Key: name, Value: op("$size", op("$setDifference", "$"+name, bson.A{nil}))})
		}
		stage("$group", group)
		stage("$addFields", sizes)
	}
	stage("$project", append(bson.D{{Key: "_id", Value: int32(0)}}, p.columns...))
	if len(p.order) > 0 {
		stage("$sort", p.order)
	}
	if a.Limit > 0 {
		stage("$limit", int64(a.Limit))
	}
	return all
}

// run runs the pipeline and reads its rows, up to the budget of the aggregation.
func (p *plan) run(ctx context.Context, w *workspace, k *kind, pipeline bson.A, a driver.Aggregation) ([][]any, error) {
	limit := a.Limit
	if limit <= 0 || limit > maxRows {
		limit = maxRows
	}
	cursor, err := k.coll.Aggregate(ctx, pipeline,
		options.Aggregate().SetAllowDiskUse(true).SetBatchSize(int32(limit)+1))
	if err != nil {
		return nil, err
	}
	defer func() { _ = cursor.Close(ctx) }()
	var rows [][]any
	size := int64(0)
rows:
	for cursor.Next(ctx) {
		row := make([]any, len(p.columns))
		for i, c := range p.columns {
			if row[i], err = portable(cursor.Current.Lookup(c.Key)); err != nil {
				w.engine.opts.Log.WarnContext(ctx, "a group of damaged records is left out",
					"workspace", w.name, "collection", k.name, "reason", err)
				continue rows
			}
			if s, ok := row[i].(string); ok {
				row[i] = s[min(p.prefixed[i], len(s)):]
			}
		}
		rows = append(rows, row)
		if size += driver.RowSize(row); a.Bytes > 0 && size > a.Bytes && len(rows) > 1 {
			break
		}
	}
	return rows, cursor.Err()
}

// empty returns the row of an aggregation without matching documents.
func (p *plan) empty(a driver.Aggregation) []any {
	row := make([]any, len(a.Measures))
	for i, m := range a.Measures {
		if m.Op == driver.Count || m.Op == driver.Distinct {
			row[i] = int64(0)
		}
	}
	return row
}

// portable converts a value of a row to that of package driver.
func portable(v bson.RawValue) (any, error) {
	switch v.Type {
	case 0, bson.TypeNull:
		return nil, nil
	case bson.TypeInt32, bson.TypeInt64:
		return v.AsInt64(), nil
	case bson.TypeDouble:
		return v.Double(), nil
	case bson.TypeBoolean:
		return v.Boolean(), nil
	case bson.TypeString:
		return strings.Clone(v.StringValue()), nil
	case bson.TypeDateTime:
		return v.DateTime(), nil
	case bson.TypeBinary, bson.TypeArray, bson.TypeEmbeddedDocument: // a custom value
		b, err := appendValue(nil, v, "null")
		if err != nil {
			return nil, fault{err}
		}
		return string(b), nil
	}
	return nil, fault{fmt.Errorf("a value of the type %s is not this program's", v.Type)}
}
