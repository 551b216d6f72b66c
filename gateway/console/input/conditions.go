package input

import (
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// Condition is one row of a filter. All rows must hold.
type Condition struct {
	Field, Op, Value string
	Input            string // the input whose value is compared with; empty to compare with Value
}

// BlankConditions is how many blank rows a new form has.
const BlankConditions = 3

// comparisons returns the operators of filters with their titles, including those that take several values.
func comparisons() []layout.Option {
	return append(show.Operators(),
		layout.Option{Value: "in", Title: "is one of (separated by commas)"},
		layout.Option{Value: "nin", Title: "is none of (separated by commas)"})
}

// ConditionsOf converts a filter into rows. ok is false if rows cannot represent it.
func ConditionsOf(filter strictjson.Value) (rows []Condition, ok bool) {
	text := func(v strictjson.Value) (string, bool) {
		switch v.Is {
		case strictjson.Text, strictjson.Number:
			return v.Text, strings.TrimSpace(v.Text) == v.Text && !strings.ContainsAny(v.Text, "\r\n")
		case strictjson.True, strictjson.False:
			return strconv.FormatBool(v.Is == strictjson.True), true
		case strictjson.Array:
			var values []string
			for _, item := range v.Items {
				if item.Is != strictjson.Text && item.Is != strictjson.Number || item.Text == "" ||
					strings.TrimSpace(item.Text) != item.Text || strings.ContainsAny(item.Text, ",\r\n") {
					return "", false
				}
				values = append(values, item.Text)
			}
			return strings.Join(values, ", "), len(values) > 0
		}
		return "", false
	}
	for _, m := range filter.Members {
		if slices.Contains([]string{"and", "or", "not"}, m.Name) {
			return nil, false
		}
		if name, is := inputIn(m.Value); is {
			rows = append(rows, Condition{Field: m.Name, Input: name})
			continue
		}
		if value, plain := text(m.Value); plain && m.Value.Is != strictjson.Array {
			rows = append(rows, Condition{Field: m.Name, Value: value})
			continue
		}
		for _, op := range m.Value.Members {
			value, plain := text(op.Value)
			name, input := inputIn(op.Value)
			plain = plain || input
			known := slices.ContainsFunc(comparisons(), func(c layout.Option) bool { return c.Value == op.Name })
			if !plain || !known && op.Name != "eq" {
				return nil, false
			}
			rows = append(rows, Condition{Field: m.Name, Op: strings.TrimPrefix(op.Name, "eq"), Value: value, Input: name})
		}
		if m.Value.Is != strictjson.Object {
			return nil, false
		}
	}
	return rows, true
}

// inputIn returns the name of the input in the value of a condition, {"input": name}.
func inputIn(v strictjson.Value) (name string, found bool) {
	name = v.Get("input").Text
	return name, v.Is == strictjson.Object && len(v.Members) == 1 && name != ""
}

// SetConditions sets the values of a form to the rows.
func SetConditions(values url.Values, name string, rows []Condition) {
	for i, row := range rows {
		n := name + "." + strconv.Itoa(i)
		values.Set(n+".field", row.Field)
		values.Set(n+".op", row.Op)
		values.Set(n+".value", row.Value)
		values.Set(n+".input", row.Input)
	}
}

// ConditionGrid makes the grid of a filter. inputs are the inputs of a report that conditions can compare with; nil for
// a filter without inputs.
func ConditionGrid(
	name string, values url.Values, free int, fields []show.DefinedField, inputs []layout.Option,
) Grid {
	options := layout.Blank("–")
	for _, f := range fields {
		options = append(options, layout.Option{Value: f.Key, Title: f.Title})
	}
	kinds := []CellKind{
		{Name: "field", Title: "Field of condition", Options: options},
		{Name: "op", Title: "Comparison of condition", Options: comparisons()},
		{Name: "value", Title: "Value of condition"},
	}
	if inputs != nil {
		inputs = layout.Blank("this value", inputs...)
		kinds = append(kinds, CellKind{Name: "input", Title: "Input of condition", Options: inputs})
	}
	return NewGrid(name, values, free, kinds...)
}

// FilterOf converts the rows of a form into a filter. A value that is not of its field's type stays a text, which the
// operation refuses.
func FilterOf(name string, sent url.Values, fields []show.DefinedField, faults *fault.List) map[string]any {
	kinds := map[string]string{}
	for _, f := range fields {
		kinds[f.Key] = f.Type
	}
	filter := map[string]any{}
	for i := range CountLines(name, "field", sent) {
		get := func(part string) string { return sent.Get(name + "." + strconv.Itoa(i) + "." + part) }
		row := Condition{get("field"), get("op"), get("value"), get("input")}
		if row.Field == "" {
			continue
		}
		ops, _ := filter[row.Field].(map[string]any)
		if ops == nil {
			ops = map[string]any{}
		}
		op := cmp.Or(row.Op, "eq")
		if _, duplicate := ops[op]; duplicate {
			faults.Add(name, fault.Duplicate, "two conditions compare %s in the same way", site.Label(row.Field))
		}
		ops[op], filter[row.Field] = row.typed(kinds[row.Field]), ops
	}
	for field, ops := range filter {
		if of, _ := ops.(map[string]any); len(of) == 1 && of["eq"] != nil {
			filter[field] = of["eq"] // the short notation
		}
	}
	return filter
}

// typed returns the value of a condition in the type of its field.
func (c *Condition) typed(kind string) any {
	one := func(text string) any {
		text = strings.TrimSpace(text)
		switch {
		case c.Op == "exists", kind == "Boolean":
			for _, choice := range layout.YesOrNo("") {
				if strings.EqualFold(text, choice.Title) || text == choice.Value {
					return json.RawMessage(choice.Value)
				}
			}
		case kind == "Number":
			return Number(text)
		}
		return text
	}
	switch {
	case c.Input != "":
		return map[string]any{"input": c.Input}
	case c.Op == "in" || c.Op == "nin":
		list := []any{}
		for part := range strings.SplitSeq(c.Value, ",") {
			list = append(list, one(part))
		}
		return list
	}
	return one(c.Value)
}
