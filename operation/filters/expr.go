// Package filters reads conditions that callers write as brackets of a query string or as JSON, and binds them to the
// fields that may be filtered.
//
// Both notations have the same shape:
//
//	filters[country]=DE&filters[age][gt]=30       {"country": "DE", "age": {"gt": 30}}
//	filters[tags][]=a&filters[tags][]=b           {"tags": ["a", "b"]}
//	filters[or][0][city]=Bonn&filters[or][1]...   {"or": [{"city": "Bonn"}, ...]}
//
// Conditions are joined by AND, as are those within an alternative; alternatives are joined by OR. Alternatives do not
// nest. A field named "or" cannot be filtered.
//
// Input of callers reaches an engine only as bound values: names are looked up in a Catalog, operators in a fixed list,
// and values become typed literals.
package filters

import (
	"slices"
	"strings"
	"unicode"

	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// Limits of one filter.
const (
	// MaxConditions is the largest number of conditions in a filter, including those of alternatives. A list of dates
	// counts as one condition for each date.
	MaxConditions = 50
	// MaxValues is the largest number of values in a list.
	MaxValues = 1000
)

// Expr is a filter as written, not yet bound to fields. The zero value has no conditions. It is immutable and safe for
// concurrent use.
type Expr struct {
	conditions   []condition
	alternatives [][]condition
	// invalid marks a filter with faults. It is not empty and matches nothing, so that a caller who overlooks the
	// errors does not get an unfiltered answer.
	invalid bool
}

type condition struct {
	field  string
	op     store.Op
	values []literal
	input  string // name of the input that gives the value; values is then empty
	label  string // the condition as written, for errors
}

type literal struct {
	form form
	text string
}

// form is how a value was written.
type form int

const (
	loose   form = iota // text of a query string, which can be of any type
	quoted              // a JSON string
	numeric             // a JSON number
	truth               // a JSON boolean
)

// operator is an operator of conditions, and its name.
type operator struct {
	name string
	op   store.Op
}

// operators returns all operators, in the order of documents.
func operators() [13]operator {
	return [...]operator{
		{"eq", store.OpEq}, {"ne", store.OpNe}, {"gt", store.OpGt}, {"gte", store.OpGte}, {"lt", store.OpLt},
		{"lte", store.OpLte}, {"in", store.OpIn}, {"nin", store.OpNin}, {"contains", store.OpContainsFold},
		{"contains_exact", store.OpContains}, {"starts_with", store.OpStartsWithFold},
		{"starts_with_exact", store.OpStartsWith}, {"exists", store.OpExists},
	}
}

// Operators returns the names of all operators.
func Operators() []string {
	all := operators()
	names := make([]string, len(all))
	for i, o := range all {
		names[i] = o.name
	}
	return names
}

func operatorOf(name string) (store.Op, bool) {
	for _, o := range operators() {
		if o.name == name {
			return o.op, true
		}
	}
	return 0, false
}

// noOperator notes that the condition at names an unknown operator.
func noOperator(errs *fault.List, at, name string) {
	errs.Add(at, fault.Unknown, "%s: there is no operator %q; there are: %s", at, show(name),
		strings.Join(Operators(), ", "))
}

func operatorName(op store.Op) string {
	for _, o := range operators() {
		if o.op == op {
			return o.name
		}
	}
	return ""
}

func takesList(op store.Op) bool { return op == store.OpIn || op == store.OpNin }

// orKey is the name that holds alternatives.
const orKey = "or"

// IsEmpty reports whether there is no condition.
func (e Expr) IsEmpty() bool {
	return !e.invalid && len(e.conditions) == 0 && len(e.alternatives) == 0
}

// Inputs returns the names of the inputs that values refer to, sorted.
func (e Expr) Inputs() []string {
	return e.collect(func(c condition) string { return c.input })
}

// Fields returns the names of the fields with conditions, sorted.
func (e Expr) Fields() []string {
	return e.collect(func(c condition) string { return c.field })
}

func (e Expr) collect(name func(condition) string) []string {
	var names []string
	for _, group := range append([][]condition{e.conditions}, e.alternatives...) {
		for _, c := range group {
			if n := name(c); n != "" {
				names = append(names, n)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (e Expr) size() int {
	n := len(e.conditions)
	for _, group := range e.alternatives {
		n += len(group)
	}
	return n
}

const maxShown = 64

// show makes a caller's name printable and short for an error.
func show(name string) string {
	clean := strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	if runes := []rune(clean); len(runes) > maxShown {
		return string(runes[:maxShown]) + "..."
	}
	return clean
}

// report moves faults to the caller's list. They are collected separately because that list is bounded, and whether
// there are faults must not depend on its length.
func report(found, errs *fault.List) {
	for _, e := range *found {
		errs.Add(e.Field, e.Code, "%s", e.Message)
	}
}
