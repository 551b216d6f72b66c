package filters

import (
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// maxJSON bounds the text of one filter, in bytes.
const maxJSON = 256 << 10

// root is how errors name a filter that came as JSON.
const root = "filter"

// FromJSON reads a filter from a JSON object. Empty input has no conditions. A value is a string, number or boolean, a
// list of those, or {"input": "<name>"} for the value of an input.
//
// Faults are noted in errs; the Expr then matches nothing.
func FromJSON(raw []byte, errs *fault.List) Expr {
	if len(raw) == 0 {
		return Expr{}
	}
	var found fault.List
	defer report(&found, errs)
	if len(raw) > maxJSON {
		found.Add(root, "length", "%s is longer than %d bytes", root, maxJSON)
		return Expr{invalid: true}
	}
	var p strictjson.Parser
	v, err := p.Parse(string(raw))
	if err != nil {
		found.Add(root, "format", "%s must be valid JSON without duplicate names", root)
		return Expr{invalid: true}
	}
	r := jsonReader{&found}
	if v.Is != strictjson.Object {
		found.Add(root, "type", "%s must be a JSON object", root)
		return Expr{invalid: true}
	}
	var e Expr
	for _, m := range v.Members {
		if m.Name == orKey {
			e.alternatives = r.alternatives(m.Value)
			continue
		}
		e.conditions = append(e.conditions, r.field(root, m)...)
	}
	if e.size() > MaxConditions {
		found.Add(root, "length", "%s may have at most %d conditions", root, MaxConditions)
	}
	e.invalid = len(found) > 0
	return e
}

type jsonReader struct{ errs *fault.List }

func (r jsonReader) alternatives(list strictjson.Value) [][]condition {
	const label = root + ".or"
	if len(list.Items) == 0 {
		r.errs.Add(label, "type", "%s must be a list of at least one object", label)
		return nil
	}
	var out [][]condition
	for _, alternative := range list.Items {
		if len(alternative.Members) == 0 {
			r.errs.Add(label, "type", "%s: every alternative must be an object with at least one condition", label)
			return nil
		}
		var group []condition
		for _, m := range alternative.Members {
			if m.Name == orKey {
				r.errs.Add(label, "format", "%s: alternatives cannot hold alternatives", label)
				continue
			}
			group = append(group, r.field(label, m)...)
		}
		if out = append(out, group); len(out) > MaxConditions {
			return out // the caller reports it
		}
	}
	return out
}

// field reads the conditions of one field.
func (r jsonReader) field(path string, m strictjson.Member) []condition {
	label := path + "." + show(m.Name)
	if m.Name == "" {
		r.errs.Add(path, "format", "%s: a name must not be empty", path)
		return nil
	}
	if m.Value.Is == strictjson.Object && !isInput(m.Value) {
		if len(m.Value.Members) == 0 {
			r.errs.Add(label, "format", "%s must hold at least one operator", label)
		}
		var out []condition
		for _, o := range m.Value.Members {
			at := label + "." + show(o.Name)
			op, known := operatorOf(o.Name)
			if !known {
				noOperator(r.errs, at, o.Name)
				continue
			}
			c := condition{field: m.Name, op: op, label: at}
			if r.value(&c, o.Value) {
				out = append(out, c)
			}
		}
		return out
	}
	c := condition{field: m.Name, op: store.OpEq, label: label}
	if m.Value.Is == strictjson.Array {
		c.op = store.OpIn
	}
	if !r.value(&c, m.Value) {
		return nil
	}
	return []condition{c}
}

const inputKey = "input"

func isInput(v strictjson.Value) bool {
	return len(v.Members) == 1 && v.Members[0].Name == inputKey
}

func (r jsonReader) value(c *condition, v strictjson.Value) bool {
	if v.Is == strictjson.Object {
		name := v.Get(inputKey)
		if !isInput(v) || name.Is != strictjson.Text || name.Text == "" {
			r.errs.Add(c.label, "type", "%s must be a value, or {\"input\": \"<name>\"}", c.label)
			return false
		}
		c.input = name.Text
		return true
	}
	elements, list := v.Items, v.Is == strictjson.Array
	switch {
	case list != takesList(c.op):
		if list {
			r.errs.Add(c.label, "type", "%s: the operator %s takes one value", c.label, operatorName(c.op))
		} else {
			r.errs.Add(c.label, "type", "%s must be a list of values", c.label)
		}
		return false
	case !list:
		elements = []strictjson.Value{v}
	case len(elements) == 0 || len(elements) > MaxValues:
		r.errs.Add(c.label, "length", "%s must have 1 to %d values", c.label, MaxValues)
		return false
	}
	for _, element := range elements {
		l, ok := scalar(element)
		if !ok {
			r.errs.Add(c.label, "type", "%s must be a string, a number, true or false", c.label)
			return false
		}
		c.values = append(c.values, l)
	}
	return true
}

func scalar(v strictjson.Value) (literal, bool) {
	switch v.Is {
	case strictjson.Text:
		return literal{quoted, v.Text}, true
	case strictjson.True:
		return literal{truth, "true"}, true
	case strictjson.False:
		return literal{truth, "false"}, true
	case strictjson.Number:
		return literal{numeric, v.Text}, true
	}
	return literal{}, false
}
