package console

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// condition is one row of a filter: all rows of one must hold.
type condition struct{ Number, Field, Op, Value string }

// blankConditions is how many rows are free.
const blankConditions = 3

// comparisons are the operators of filters in the words of people, also those that take several values.
func comparisons() []choiceView {
	return append(operators(), choiceView{Value: "in", Title: "is one of (separated by commas)"}, choiceView{Value: "nin", Title: "is none of (separated by commas)"})
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
		if value, plain := text(m.Value); plain && m.Value.Is != strictjson.Array {
			rows = append(rows, condition{Field: m.Name, Value: value})
			continue
		}
		for _, op := range m.Value.Members {
			value, plain := text(op.Value)
			known := slices.ContainsFunc(comparisons(), func(c choiceView) bool { return c.Value == op.Name })
			if !plain || !known && op.Name != "eq" {
				return nil, false
			}
			rows = append(rows, condition{Field: m.Name, Op: strings.TrimPrefix(op.Name, "eq"), Value: value})
		}
		if m.Value.Is != strictjson.Object {
			return nil, false
		}
	}
	return rows, true
}

// conditionRows returns the rows of a control: those that were typed, else those of the filter, and free ones.
func conditionRows(name string, rows []condition, sent url.Values) []condition {
	if sent != nil {
		rows = nil
		for i := 0; ; i++ { // the form is bounded
			n := name + "." + strconv.Itoa(i)
			if !sent.Has(n + ".field") {
				break
			}
			rows = append(rows, condition{Field: sent.Get(n + ".field"), Op: sent.Get(n + ".op"), Value: sent.Get(n + ".value")})
		}
	} else {
		rows = append(rows, make([]condition, blankConditions)...)
	}
	for i := range rows {
		rows[i].Number = strconv.Itoa(i)
	}
	return rows
}

// filterOf reads the rows that were typed into a filter. Values are what the field's type takes, or texts, of which the
// operation says what is wrong.
func (v *visit) filterOf(name string, sent url.Values, faults *fault.List) map[string]any {
	kinds := map[string]string{}
	for _, f := range v.filterable() {
		kinds[f.key] = f.kind
	}
	filter := map[string]any{}
	for _, row := range conditionRows(name, nil, sent) {
		if row.Field == "" {
			continue
		}
		typed := func(text string) any {
			text = strings.TrimSpace(text)
			switch {
			case row.Op == "exists", kinds[row.Field] == "Boolean":
				if text == "true" || text == "false" {
					return json.RawMessage(text)
				}
			case kinds[row.Field] == "Number":
				return number(text)
			}
			return text
		}
		value := typed(row.Value)
		if row.Op == "in" || row.Op == "nin" {
			list := []any{}
			for part := range strings.SplitSeq(row.Value, ",") {
				list = append(list, typed(part))
			}
			value = list
		}
		ops, _ := filter[row.Field].(map[string]any)
		if ops == nil {
			ops = map[string]any{}
		}
		op := row.Op
		if op == "" {
			op = "eq"
		}
		if _, twice := ops[op]; twice {
			faults.Add(name, fault.Duplicate, "two conditions compare %s in the same way", label(row.Field))
		}
		ops[op] = value
		filter[row.Field] = ops
	}
	for field, ops := range filter {
		if of, _ := ops.(map[string]any); len(of) == 1 && of["eq"] != nil {
			filter[field] = of["eq"] // as people write it
		}
	}
	return filter
}

// filterable are the fields of contacts that filters can name.
func (v *visit) filterable() (fields []definedField) {
	list := v.site.listOf("contact")
	if list == nil {
		return nil
	}
	for _, name := range list.parameter("filters").Names {
		fields = append(fields, definedField{key: name, title: label(name)})
	}
	for _, f := range v.defined(list.shows, nil) {
		if f.kind != "Encrypted" {
			fields = append(fields, f)
		}
	}
	return fields
}
