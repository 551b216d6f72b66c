package layout

import (
	"slices"
)

// Choose returns the options with those chosen, each of which becomes one where it is none.
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

// Options returns values as options that are called like them, one of them chosen.
func Options(values []string, value string) []Option {
	all := make([]Option, len(values))
	for i, one := range values {
		all[i] = Option{Value: one, Title: one}
	}
	return Choose(all, value)
}

// Blank is the option of a cell that is empty.
func Blank(title string, options ...Option) []Option {
	return append([]Option{{Title: title}}, options...)
}

// YesOrNo returns the options of a truth value, one of them chosen.
func YesOrNo(value string) []Option {
	return []Option{{Value: "true", Title: "Yes", Chosen: value == "true"}, {Value: "false", Title: "No", Chosen: value == "false"}}
}

// Option is a value to choose, under its title.
type Option struct {
	Value, Title string
	Chosen       bool
}

// Cell is a cell or a column of a table.
type Cell struct{ Title, Text, Class string }

// Button is a form without fields.
type Button struct {
	Title, Action string
	Hidden        []Hidden
	Once          string
	Danger        bool
}

// Hidden is a value that a form sends and does not show.
type Hidden struct{ Name, Value string }
