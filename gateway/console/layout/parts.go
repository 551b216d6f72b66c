package layout

import "slices"

// Choose returns the options with the values chosen. A value that is not among the options is added.
func Choose(options []Option, values ...string) []Option {
	all := slices.Clone(options)
	for _, value := range values {
		if value != "" && !slices.ContainsFunc(all, func(o Option) bool { return o.Value == value }) {
			all = append(all, Option{Value: value, Title: value})
		}
	}
	for i := range all {
		all[i].Chosen = slices.Contains(values, all[i].Value)
	}
	return all
}

// Options returns an option for each value, with the value as its title. value is chosen.
func Options(values []string, value string) []Option {
	all := make([]Option, len(values))
	for i, one := range values {
		all[i] = Option{Value: one, Title: one}
	}
	return Choose(all, value)
}

// Blank puts an option with an empty value before the others.
func Blank(title string, options ...Option) []Option {
	return append([]Option{{Title: title}}, options...)
}

// YesOrNo returns the options of a boolean. value, "true" or "false", is chosen.
func YesOrNo(value string) []Option {
	return []Option{
		{Value: "true", Title: "Yes", Chosen: value == "true"},
		{Value: "false", Title: "No", Chosen: value == "false"},
	}
}

// Option is a value that can be chosen, with its title.
type Option struct {
	Value, Title string
	Chosen       bool
}

// Cell is a cell of a table, or the head of a column.
type Cell struct{ Title, Text, Class string }

// Button is a form that shows only its button.
type Button struct {
	Title, Action string
	Hidden        []Hidden
	Once          string // the idempotency key
	Danger        bool   // it deletes something
}

// Hidden is a value that a form sends and does not show.
type Hidden struct{ Name, Value string }
