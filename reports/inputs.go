package reports

import (
	"encoding/json"
	"errors"
	"slices"
	"time"

	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/filters"
)

// Limits of inputs.
const (
	MaxInputs     = 50
	MaxChoices    = 200
	maxInputValue = 1_000 // bytes
	maxParams     = 4_000 // bytes of a token's locked values, as JSON
)

// notSettable notes a parameter that readers may not set. Locked and unknown inputs get the same message, because
// readers must not learn the names of locked inputs.
func notSettable(errs *fault.List, name string) {
	at := "params[" + texts.Clip(name) + "]"
	errs.Add(at, "unknown", "%s is not an input that readers of this report may set", at)
}

// readerParams reads params[<name>]=<value>.
func readerParams(pairs []operation.Pair, errs *fault.List) map[string]string {
	values := map[string]string{}
	for _, p := range pairs {
		if len(p.Path) != 2 || p.Path[1] == "" {
			errs.Add("params", "format", "params must be written params[<name>]=<value>")
			continue
		}
		name := p.Path[1]
		if _, twice := values[name]; twice {
			errs.Add("params", "duplicate", "params[%s] is given twice", texts.Clip(name))
		}
		values[name] = p.Value
	}
	return values
}

// inputValues are the values with which one report is read.
type inputValues struct {
	rules  map[string]Input  // as they apply in this read
	locked map[string]string // from the token
	given  map[string]string // by the reader
}

// inputAt returns a report's input as it applies at the address of a root.
func inputAt(root, r *Report, name string) Input {
	in := r.Input[name]
	if root.Input[name].Rule == Locked {
		in.Rule = Locked
	}
	return in
}

// resolveInputs combines the report's inputs, the token's values and the reader's. An input that the root of the
// bundle locks is locked in its children, too. Errors: a 422 if the reader sets an input that readers may not set, a
// denial if the token lacks a locked value.
func resolveInputs(root, selected *Report, locked, given map[string]string) (*inputValues, error) {
	v := &inputValues{rules: map[string]Input{}, locked: locked, given: given}
	for name := range selected.Input {
		v.rules[name] = inputAt(root, selected, name)
	}
	var errs fault.List
	for name, value := range given {
		in, declared := v.rules[name]
		if !declared || in.Rule != Editable {
			notSettable(&errs, name)
			continue
		}
		checkInput(&errs, "params["+name+"]", in, value)
	}
	slices.SortFunc(errs, byField)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	for name, in := range v.rules {
		if _, ok := locked[name]; !ok && in.Rule != Editable {
			return nil, operation.Denied("the token lacks a locked value of the report")
		}
	}
	return v, nil
}

func byField(a, b fault.Fault) int {
	switch {
	case a.Field < b.Field:
		return -1
	case a.Field > b.Field:
		return 1
	}
	return 0
}

// value returns an input for a filter.
func (v *inputValues) value(name string) (filters.Input, bool) {
	in, ok := v.rules[name]
	if !ok {
		return filters.Input{}, false
	}
	if in.Rule != Editable {
		value, set := v.locked[name]
		return filters.Input{Value: value, Set: set, Locked: true, Type: in.Type}, true
	}
	value := v.effective(name)
	return filters.Input{Value: value, Set: value != "", Type: in.Type}, true
}

// effective returns the value of an editable input: the reader's, otherwise the report's.
func (v *inputValues) effective(name string) string {
	if value, ok := v.given[name]; ok {
		return value
	}
	return v.rules[name].Value
}

// all returns the values of the inputs that have one.
func (v *inputValues) all() map[string]string {
	values := map[string]string{}
	for name := range v.rules {
		if in, _ := v.value(name); in.Set {
			values[name] = in.Value
		}
	}
	return values
}

// checkInput notes a value that does not fit the input's type or is not one of its choices. The empty value always
// fits.
func checkInput(errs *fault.List, at string, in Input, value string) {
	if value == "" {
		return
	}
	if len(in.Choices) > 0 && !slices.Contains(in.Choices, value) {
		errs.Add(at, "unknown", "%s must be one of the choices of the input", at)
		return
	}
	if len(value) > maxInputValue {
		errs.Add(at, "length", "%s must have at most %d bytes", at, maxInputValue)
		return
	}
	switch in.Type {
	case TypeNumber:
		var n float64
		if value == "null" || json.Unmarshal([]byte(value), &n) != nil {
			errs.Add(at, "type", "%s must be a number", at)
		}
	case TypeBoolean:
		if value != "true" && value != "false" {
			errs.Add(at, "type", "%s must be true or false", at)
		}
	case TypeDate, TypeDatetime:
		_, date := time.Parse(time.DateOnly, value)
		_, moment := time.Parse(time.RFC3339, value)
		if date != nil && moment != nil {
			errs.Add(at, "type", "%s must be a date (2024-05-17) or an RFC 3339 time (2024-05-17T10:00:00Z)%s", at,
				texts.NoSuchTime(value))
		}
	}
}

var errNotScalar = errors.New("not a string, number or boolean")

// scalarText returns the text of a JSON scalar as operation.Decode gives it.
func scalarText(v any) (string, error) {
	switch x := v.(type) {
	case string:
		return x, nil
	case json.Number:
		return x.String(), nil
	case bool:
		if x {
			return "true", nil
		}
		return "false", nil
	}
	return "", errNotScalar
}
