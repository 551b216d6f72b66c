package filters

import (
	"cmp"
	"slices"
	"strconv"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
)

// FromQuery reads a filter from the pairs of one root parameter (operation.Query.Tree) and reports whether the
// parameter is present. A parameter without brackets and with a falsy value (empty, 0, false, null, [] or {}) is
// present but has no conditions. A value that repeats, or is written with [], is a list: the field must have one of
// its values.
//
// Faults are noted in errs; the Expr then matches nothing.
func FromQuery(pairs []operation.Pair, errs *fault.List) (Expr, bool) {
	if len(pairs) == 0 {
		return Expr{}, false
	}
	var found fault.List
	defer report(&found, errs)
	r := queryReader{errs: &found, alternatives: map[int]*queryGroup{}}
	for _, p := range pairs {
		if len(p.Path) == 1 {
			return r.bare(pairs), true
		}
		r.pair(p)
	}
	e := r.expr()
	if e.size() > MaxConditions {
		found.Add(show(pairs[0].Path[0]), "length", "%s may have at most %d conditions", show(pairs[0].Path[0]), MaxConditions)
	}
	e.invalid = len(found) > 0
	return e, true
}

type queryReader struct {
	errs         *fault.List
	top          queryGroup
	alternatives map[int]*queryGroup
}

// queryGroup collects the conditions of one AND, in the order of their first appearance.
type queryGroup struct{ conditions []*queryCondition }

type queryCondition struct {
	field, label string
	op           store.Op
	values       []literal
	list         bool // written with []
}

// bare reads a parameter without brackets, which must be falsy.
func (r *queryReader) bare(pairs []operation.Pair) Expr {
	root := show(pairs[0].Path[0])
	if len(pairs) > 1 {
		r.errs.Add(root, "format", "%s is given more than once, and not always with brackets", root)
		return Expr{invalid: true}
	}
	switch pairs[0].Value {
	case "", "0", "false", "null", "[]", "{}":
		return Expr{}
	}
	r.errs.Add(root, "format", "%s needs a field in brackets: %s[<field>]=<value>", root, root)
	return Expr{invalid: true}
}

func (r *queryReader) pair(p operation.Pair) {
	label, path, group := show(p.Name), p.Path[1:], &r.top
	if path[0] == orKey {
		if len(path) < 3 {
			r.errs.Add(label, "format", "%s: alternatives are written %s[or][<number>][<field>]=<value>", label, show(p.Path[0]))
			return
		}
		n, ok := alternativeNumber(path[1])
		if !ok {
			r.errs.Add(label, "format", "%s: an alternative is numbered from 0 to %d", label, maxAlternative)
			return
		}
		if r.alternatives[n] == nil {
			r.alternatives[n] = &queryGroup{}
		}
		group, path = r.alternatives[n], path[2:]
		if path[0] == orKey {
			r.errs.Add(label, "format", "%s: alternatives cannot hold alternatives", label)
			return
		}
	}
	field, rest := path[0], path[1:]
	if field == "" {
		r.errs.Add(label, "format", "%s: the brackets must name a field", label)
		return
	}
	op := store.OpEq
	if len(rest) > 0 && rest[0] != "" {
		var known bool
		if op, known = operatorOf(rest[0]); !known {
			noOperator(r.errs, label, rest[0])
			return
		}
		rest = rest[1:]
	}
	list := len(rest) > 0
	if len(rest) > 1 || (list && rest[0] != "") {
		r.errs.Add(label, "format", "%s has unexpected brackets after the operator", label)
		return
	}
	if list && op != store.OpEq && !takesList(op) {
		r.errs.Add(label, "format", "%s: the operator %s takes one value", label, operatorName(op))
		return
	}
	r.add(group, &queryCondition{field: field, label: label, op: op, list: list, values: []literal{{loose, p.Value}}})
}

func (r *queryReader) add(group *queryGroup, c *queryCondition) {
	for _, other := range group.conditions {
		if other.field != c.field || other.op != c.op {
			continue
		}
		if c.op != store.OpEq && !takesList(c.op) {
			r.errs.Add(c.label, "duplicate", "%s is given twice; the operator %s takes one value", c.label, operatorName(c.op))
			return
		}
		other.values = append(other.values, c.values...)
		other.list = other.list || c.list
		return
	}
	group.conditions = append(group.conditions, c)
}

func (r *queryReader) expr() Expr {
	e := Expr{conditions: r.group(&r.top)}
	numbers := make([]int, 0, len(r.alternatives))
	for n := range r.alternatives {
		numbers = append(numbers, n)
	}
	slices.SortFunc(numbers, cmp.Compare)
	for _, n := range numbers {
		e.alternatives = append(e.alternatives, r.group(r.alternatives[n]))
	}
	return e
}

func (r *queryReader) group(g *queryGroup) []condition {
	var out []condition
	lists := map[string]bool{}
	for _, c := range g.conditions {
		if c.op == store.OpEq && (c.list || len(c.values) > 1) {
			c.op = store.OpIn
		}
		if c.op == store.OpIn {
			if lists[c.field] {
				r.errs.Add(c.label, "duplicate", "%s gives a second list for the same field; write one", c.label)
			}
			lists[c.field] = true
		}
		if len(c.values) > MaxValues {
			r.errs.Add(c.label, "length", "%s may have at most %d values", c.label, MaxValues)
		}
		out = append(out, condition{field: c.field, op: c.op, values: c.values, label: c.label})
	}
	return out
}

const maxAlternative = 999

func alternativeNumber(digits string) (int, bool) {
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 0 && n <= maxAlternative && strconv.Itoa(n) == digits
}
