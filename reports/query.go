package reports

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/filters"
)

// Limits of a report's query.
const (
	MaxGroups   = 8
	MaxMeasures = 16
	MaxFields   = 50
	MaxSorts    = 8
	MaxRows     = store.MaxLimit
	DefaultRows = 1_000
	// MaxBytes bounds the size of the rows of a run; further rows are cut, and the run says so.
	MaxBytes = operation.PageBytes
)

// Query is the query of a report. It keeps the JSON that it was written in, so that reading and writing a report needs
// no parsing; Definition parses it. The zero value is the empty query, which lists rows. It is immutable.
type Query struct{ raw json.RawMessage }

// Definition is a parsed query. Without groups and measures it lists rows.
type Definition struct {
	Filter   filters.Expr
	Groups   []Group
	Measures []Measure
	Sort     []Sort
	Fields   []string // of a list; empty: all columns
	Limit    int
	Limited  bool // the query sets the limit
}

// Group is one dimension. By is store.NoBucket if records are grouped by single values.
type Group struct {
	Field string
	By    store.Bucket
}

// Measure is one computed column. Count has no field.
type Measure struct {
	Op    store.MeasureOp
	Field string
}

// Column returns the name of the measure's column.
func (m Measure) Column() string {
	if m.Op == store.MeasureCount {
		return "count"
	}
	return m.label() + "_" + m.Field
}

func (m Measure) label() string {
	for name, op := range measureOps() {
		if op == m.Op {
			return name
		}
	}
	return ""
}

// Sort is one step of an order, by the name of a column.
type Sort struct {
	Column string
	Desc   bool
}

func measureOps() map[string]store.MeasureOp {
	return map[string]store.MeasureOp{
		"count": store.MeasureCount, "sum": store.MeasureSum, "avg": store.MeasureAvg,
		"min": store.MeasureMin, "max": store.MeasureMax, "distinct": store.MeasureDistinct,
	}
}

func buckets() map[string]store.Bucket {
	return map[string]store.Bucket{
		"day": store.Day, "week": store.Week, "month": store.Month, "quarter": store.Quarter, "year": store.Year,
	}
}

// ParseQuery checks the JSON of a query and returns it. Faults are noted in errs, under query. Whether the fields that
// it names exist depends on the class: see Check.
func ParseQuery(raw []byte, errs *fault.List) Query {
	q := Query{raw: compact(raw)}
	q.Definition(errs)
	return q
}

func compact(raw []byte) json.RawMessage {
	var buf bytes.Buffer
	if json.Compact(&buf, raw) != nil {
		return bytes.Clone(raw)
	}
	return buf.Bytes()
}

// ReadValue reads a query and checks its form.
func (q *Query) ReadValue(name string, v strictjson.Value, errs *fault.List) {
	if v.Is != strictjson.Object {
		errs.Add(name, fault.Type, "%s must be an object", name)
		return
	}
	*q = ParseQuery(v.Raw(), errs)
}

// ReadStored reads a stored query without checking it.
func (q *Query) ReadStored(v strictjson.Value) error { return q.UnmarshalJSON(v.Raw()) }

// MarshalJSON returns the query as written.
func (q Query) MarshalJSON() ([]byte, error) {
	if len(q.raw) == 0 {
		return []byte("{}"), nil
	}
	return q.raw, nil
}

// UnmarshalJSON keeps the JSON; null is the empty query. Definition checks it.
func (q *Query) UnmarshalJSON(raw []byte) error {
	q.raw = nil
	if string(raw) != "null" {
		q.raw = bytes.Clone(raw)
	}
	return nil
}

// OpenAPISchema describes the query.
func (q Query) OpenAPISchema() map[string]any {
	text := map[string]any{"type": "string"}
	list := func(most int, items map[string]any) map[string]any {
		return map[string]any{"type": "array", "maxItems": most, "items": items}
	}
	object := func(required string, properties map[string]any) map[string]any {
		return map[string]any{"type": "object", "required": []string{required}, "properties": properties}
	}
	return map[string]any{
		"type": "object",
		"properties": map[string]any{
			"filter": map[string]any{
				"type": "object", "additionalProperties": true,
				"description": `Conditions by field, as {"country": "DE", "age": {"gt": 30}}; a value may be {"input": "<name>"}.`,
			},
			"group_by": list(MaxGroups, object("field", map[string]any{
				"field": text, "by": map[string]any{"type": "string", "enum": Buckets()},
			})),
			"measures": list(MaxMeasures, object("op", map[string]any{
				"op": map[string]any{"type": "string", "enum": Measures()}, "field": text,
			})),
			"sort":   list(MaxSorts, text),
			"fields": list(MaxFields, text),
			"limit":  map[string]any{"type": "integer", "minimum": 1, "maximum": MaxRows, "default": DefaultRows},
		},
	}
}

// Definition parses the query and notes faults in errs.
func (q Query) Definition(errs *fault.List) Definition {
	def := Definition{Limit: DefaultRows}
	if len(q.raw) == 0 {
		return def
	}
	body, err := operation.ParseBody(q.raw)
	if err != nil {
		errs.Add("query", "format", "query is invalid: %s", strings.Replace(err.Error(), "The body", "it", 1))
		return def
	}
	for _, name := range body.Names() {
		switch name {
		case "filter":
			def.Filter = filters.FromJSON(body.Raw(name), errs)
		case "group_by":
			def.Groups = parseGroups(body.Raw(name), errs)
		case "measures":
			def.Measures = parseMeasures(body.Raw(name), errs)
		case "sort":
			def.Sort = parseSort(body.Raw(name), errs)
		case "fields":
			def.Fields = parseTexts(body.Raw(name), "query.fields", MaxFields, errs)
			noteRepeats(def.Fields, "query.fields", errs)
		case "limit":
			def.Limit, def.Limited = parseLimit(body.Raw(name), errs), true
		default:
			errs.Add("query", "unknown", "query has no member %q; there are: %s", texts.Clip(name),
				"filter, group_by, measures, sort, fields, limit")
		}
	}
	if len(def.Fields) > 0 && def.aggregates() {
		errs.Add(
			"query.fields", "forbidden",
			"query.fields applies to lists of rows; with group_by or measures these determine the columns",
		)
	}
	noteRepeats(def.columns(), "query", errs)
	return def
}

// aggregates reports whether the query groups or measures records instead of listing rows.
func (d *Definition) aggregates() bool { return len(d.Groups)+len(d.Measures) > 0 }

// columns returns the names of an aggregation's columns.
func (d *Definition) columns() []string {
	var names []string
	for _, g := range d.Groups {
		names = append(names, g.Field)
	}
	for _, m := range d.Measures {
		names = append(names, m.Column())
	}
	return names
}

func parseLimit(raw json.RawMessage, errs *fault.List) int {
	n, err := strconv.Atoi(string(raw))
	if err != nil || n < 1 || n > MaxRows {
		errs.Add("query.limit", "range", "query.limit must be a whole number from 1 to %d", MaxRows)
		return DefaultRows
	}
	return n
}

// parseList returns the elements of an array with at most most elements.
func parseList(raw json.RawMessage, field string, most int, errs *fault.List) []json.RawMessage {
	var items []json.RawMessage
	if len(raw) == 0 || raw[0] != '[' || json.Unmarshal(raw, &items) != nil {
		errs.Add(field, "type", "%s must be an array", field)
		return nil
	}
	if len(items) > most {
		errs.Add(field, "length", "%s must have at most %d elements", field, most)
		return nil
	}
	return items
}

func parseTexts(raw json.RawMessage, field string, most int, errs *fault.List) []string {
	var texts []string
	for i, item := range parseList(raw, field, most, errs) {
		var text *string
		if json.Unmarshal(item, &text) != nil || text == nil || *text == "" {
			errs.Add(field, "type", "%s[%d] must be a non-empty string", field, i)
			continue
		}
		texts = append(texts, *text)
	}
	return texts
}

func parseSort(raw json.RawMessage, errs *fault.List) []Sort {
	var sorts []Sort
	var names []string
	for _, text := range parseTexts(raw, "query.sort", MaxSorts, errs) {
		column, desc := strings.CutPrefix(text, "-")
		sorts = append(sorts, Sort{Column: column, Desc: desc})
		names = append(names, column)
	}
	noteRepeats(names, "query.sort", errs)
	return sorts
}

func parseGroups(raw json.RawMessage, errs *fault.List) []Group {
	var groups []Group
	for i, item := range parseList(raw, "query.group_by", MaxGroups, errs) {
		at := "query.group_by[" + strconv.Itoa(i) + "]"
		body, ok := parseItem(item, at, errs, "field", "by")
		if !ok {
			continue
		}
		g := Group{Field: requiredField(body, at, errs)}
		if by, given := body.Text(&fault.List{}, "by"); given || body.Has("by") {
			bucket, known := buckets()[by]
			if !known {
				errs.Add(at+".by", "unknown", "%s.by must be day, week, month, quarter or year", at)
			}
			g.By = bucket
		}
		groups = append(groups, g)
	}
	return groups
}

func parseMeasures(raw json.RawMessage, errs *fault.List) []Measure {
	var measures []Measure
	for i, item := range parseList(raw, "query.measures", MaxMeasures, errs) {
		at := "query.measures[" + strconv.Itoa(i) + "]"
		body, ok := parseItem(item, at, errs, "op", "field")
		if !ok {
			continue
		}
		name, _ := body.Text(&fault.List{}, "op") // anything else is unknown below
		op, known := measureOps()[name]
		if !known {
			errs.Add(at+".op", "unknown", "%s.op must be count, sum, avg, min, max or distinct", at)
			continue
		}
		m := Measure{Op: op}
		switch {
		case op != store.MeasureCount:
			m.Field = requiredField(body, at, errs)
		case body.Has("field"):
			errs.Add(at+".field", "forbidden", "%s counts records and takes no field", at)
		}
		measures = append(measures, m)
	}
	return measures
}

// maxName is the longest name of a field or input.
const maxName = 64

// parseItem reads an object that may only have these members.
func parseItem(raw json.RawMessage, at string, errs *fault.List, members ...string) (operation.Body, bool) {
	if len(raw) == 0 || raw[0] != '{' {
		errs.Add(at, "type", "%s must be an object", at)
		return operation.Body{}, false
	}
	body, err := operation.ParseBody(raw)
	if err != nil {
		errs.Add(at, "format", "%s is not a valid JSON object", at)
		return operation.Body{}, false
	}
	for _, name := range body.Names() {
		if !slices.Contains(members, name) {
			errs.Add(at, "unknown", "%s has no member %q; there are: %s", at, texts.Clip(name), strings.Join(members, ", "))
		}
	}
	return body, true
}

// requiredField reads the member field of an item. Faults are noted under the item's name.
func requiredField(body operation.Body, at string, errs *fault.List) string {
	var own fault.List
	field := body.Required(&own, "field", maxName)
	for _, e := range own {
		errs.Add(at+"."+e.Field, e.Code, "%s.%s", at, e.Message)
	}
	return field
}

func noteRepeats(names []string, field string, errs *fault.List) {
	for i, name := range names {
		if slices.Index(names, name) < i {
			errs.Add(field, "duplicate", "%s names %q twice", field, texts.Clip(name))
		}
	}
}
