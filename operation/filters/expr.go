// Package filters reads the conditions that callers write, as brackets of a query string
// or as JSON, and binds them to the fields that may be asked about.
//
// Both spellings have one shape:
//
//	filters[country]=DE&filters[age][gt]=30       {"country": "DE", "age": {"gt": 30}}
//	filters[tags][]=a&filters[tags][]=b           {"tags": ["a", "b"]}
//	filters[or][0][city]=Bonn&filters[or][1]...   {"or": [{"city": "Bonn"}, ...]}
//
// Conditions are joined by AND; so are those of one alternative, and alternatives by OR.
// Alternatives do not nest. A field named "or" cannot be asked about.
//
// Nothing of what a caller wrote reaches an engine except as a bound value: names are
// looked up in a Catalog, operators in a fixed list, values become typed literals.
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
	// MaxConditions is how many conditions one filter may have, alternatives included. A
	// list of dates counts as one condition for each date.
	MaxConditions = 50
	// MaxValues is how many values one list may have.
	MaxValues = 1000
)

// Expr is a filter as it was written, not yet bound to fields. The zero value has no
// condition. It is immutable and safe for concurrent use.
type Expr struct {
	conditions   []condition
	alternatives [][]condition
	// invalid marks what could not be read: it is not empty and matches nothing, so that
	// a caller who overlooks the errors does not get an unfiltered answer.
	invalid bool
}

type condition struct {
	field  string
	op     store.Op
	values []literal
	input  string // the name of the input whose value is meant; then there are no values
	label  string // how the caller wrote it, for errors
}

type literal struct {
	form form
	text string
}

// form is what a value was written as.
type form int

const (
	loose   form = iota // text of a query string, which can stand for any type
	quoted              // a JSON string
	numeric             // a JSON number
	truth               // a JSON boolean
)

var operators = [...]struct {
	name string
	op   store.Op
}{
	{"eq", store.OpEq}, {"ne", store.OpNe}, {"gt", store.OpGt}, {"gte", store.OpGte}, {"lt", store.OpLt}, {"lte", store.OpLte},
	{"in", store.OpIn}, {"nin", store.OpNin}, {"contains", store.OpContainsFold}, {"contains_exact", store.OpContains},
	{"starts_with", store.OpStartsWithFold}, {"starts_with_exact", store.OpStartsWith}, {"exists", store.OpExists},
}

// Operators returns the names of all operators.
func Operators() []string {
	names := make([]string, len(operators))
	for i, o := range operators {
		names[i] = o.name
	}
	return names
}

func operatorOf(name string) (store.Op, bool) {
	for _, o := range operators {
		if o.name == name {
			return o.op, true
		}
	}
	return 0, false
}

func operatorName(op store.Op) string {
	for _, o := range operators {
		if o.op == op {
			return o.name
		}
	}
	return ""
}

func takesList(op store.Op) bool { return op == store.OpIn || op == store.OpNin }

// orKey is the name under which alternatives stand.
const orKey = "or"

// IsEmpty reports whether there is no condition.
func (e Expr) IsEmpty() bool {
	return !e.invalid && len(e.conditions) == 0 && len(e.alternatives) == 0
}

// Inputs returns the names of the inputs that values refer to, sorted.
func (e Expr) Inputs() []string {
	return e.collect(func(c condition) string { return c.input })
}

// Fields returns the names of the fields that conditions are on, sorted.
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

// show makes a name from outside fit for an error: printable and short.
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

// report hands problems to the caller's list. They are gathered apart because that list
// is bounded: whether there were any must not depend on how full it is.
func report(found, errs *fault.List) {
	for _, e := range *found {
		errs.Add(e.Field, e.Code, "%s", e.Message)
	}
}
