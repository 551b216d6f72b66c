package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// condition is one row of a filter: all rows of one must hold.
type condition struct {
	Field, Op, Value string
	Input            string // whose value is meant; empty: the value
}

// blankConditions is how many rows are free.
const blankConditions = 3

// comparisons are the operators of filters in the words of people, also those that take several values.
func comparisons() []layout.Option {
	return append(operators(), layout.Option{Value: "in", Title: "is one of (separated by commas)"}, layout.Option{Value: "nin", Title: "is none of (separated by commas)"})
}

// conditionsOf writes a filter as rows; not ok where it says more than rows can.
func conditionsOf(filter strictjson.Value) (rows []condition, ok bool) {
	text := func(v strictjson.Value) (string, bool) {
		switch v.Is {
		case strictjson.Text, strictjson.Number:
			return v.Text, strings.TrimSpace(v.Text) == v.Text && !strings.ContainsAny(v.Text, "\r\n")
		case strictjson.True, strictjson.False:
			return strconv.FormatBool(v.Is == strictjson.True), true
		case strictjson.Array:
			var values []string
			for _, item := range v.Items {
				if item.Is != strictjson.Text && item.Is != strictjson.Number || item.Text == "" || strings.TrimSpace(item.Text) != item.Text || strings.ContainsAny(item.Text, ",\r\n") {
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
			rows = append(rows, condition{Field: m.Name, Input: name})
			continue
		}
		if value, plain := text(m.Value); plain && m.Value.Is != strictjson.Array {
			rows = append(rows, condition{Field: m.Name, Value: value})
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
			rows = append(rows, condition{Field: m.Name, Op: strings.TrimPrefix(op.Name, "eq"), Value: value, Input: name})
		}
		if m.Value.Is != strictjson.Object {
			return nil, false
		}
	}
	return rows, true
}

// inputIn returns the name of the input whose value is meant.
func inputIn(v strictjson.Value) (name string, is bool) {
	name = v.Get("input").Text
	return name, v.Is == strictjson.Object && len(v.Members) == 1 && name != ""
}

// setConditions writes the rows as the form does.
func setConditions(values url.Values, name string, rows []condition) {
	for i, row := range rows {
		n := name + "." + strconv.Itoa(i)
		values.Set(n+".field", row.Field)
		values.Set(n+".op", row.Op)
		values.Set(n+".value", row.Value)
		values.Set(n+".input", row.Input)
	}
}

// conditionGrid lays out the rows of a filter. inputs are whose values conditions can take; nil: there are none.
func conditionGrid(name string, values url.Values, free int, fields []definedField, inputs []layout.Option) grid {
	options := layout.Blank("–")
	for _, f := range fields {
		options = append(options, layout.Option{Value: f.key, Title: f.title})
	}
	kinds := []cellKind{{name: "field", title: "Field of condition", options: options}, {name: "op", title: "Comparison of condition", options: comparisons()}, {name: "value", title: "Value of condition"}}
	if inputs != nil {
		kinds = append(kinds, cellKind{name: "input", title: "Input of condition", options: layout.Blank("this value", inputs...)})
	}
	return newGrid(name, values, free, kinds...)
}

// filterOf reads the rows that were typed into a filter. Values are what the field's type takes, or texts, of which the
// operation says what is wrong.
func filterOf(name string, sent url.Values, fields []definedField, faults *fault.List) map[string]any {
	kinds := map[string]string{}
	for _, f := range fields {
		kinds[f.key] = f.kind
	}
	filter := map[string]any{}
	for i := range gridLines(name, "field", sent) {
		get := func(part string) string { return sent.Get(name + "." + strconv.Itoa(i) + "." + part) }
		row := condition{get("field"), get("op"), get("value"), get("input")}
		if row.Field == "" {
			continue
		}
		ops, _ := filter[row.Field].(map[string]any)
		if ops == nil {
			ops = map[string]any{}
		}
		op := cmp.Or(row.Op, "eq")
		if _, twice := ops[op]; twice {
			faults.Add(name, fault.Duplicate, "two conditions compare %s in the same way", site.Label(row.Field))
		}
		ops[op], filter[row.Field] = row.typed(kinds[row.Field]), ops
	}
	for field, ops := range filter {
		if of, _ := ops.(map[string]any); len(of) == 1 && of["eq"] != nil {
			filter[field] = of["eq"] // as people write it
		}
	}
	return filter
}

// typed returns the value as it is compared with a field of the type.
func (c *condition) typed(kind string) any {
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
			return number(text)
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

// filterControl makes the control of a campaign's filter.
func (v *visit) filterControl(c *control, now strictjson.Value, sent url.Values) {
	rows, simple := conditionsOf(now)
	values, fields, free := sent, v.filterable(), 0
	if c.Kind, c.Value = "json", pretty(now); sent == nil {
		values, free = url.Values{}, blankConditions
		setConditions(values, c.Name, rows)
		var faults fault.List
		simple = simple && (now.Is == strictjson.Null || bytes.Equal(parse(filterOf(c.Name, values, fields, &faults)).Raw(), now.Raw()) && faults == nil)
	} else {
		simple = sent.Get("_has."+c.Name) == "conditions"
	}
	if simple {
		c.Kind, c.Hint, c.Grids = "conditions", "All of these must hold. Without any, all contacts are meant.", []grid{conditionGrid(c.Name, values, free, fields, nil)}
	}
}

// filterable are the fields of contacts that filters can name.
func (v *visit) filterable() (fields []definedField) {
	list := v.site.ListOf("contact")
	if list == nil {
		return nil
	}
	for _, name := range list.Parameter("filters").Names {
		fields = append(fields, definedField{key: name, title: site.Label(name)})
	}
	for _, f := range v.defined(list.Shows, nil) {
		if f.kind != "Encrypted" {
			fields = append(fields, f)
		}
	}
	return fields
}
