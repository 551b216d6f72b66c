package input

import (
	"net/url"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/layout"
)

// Grid is a part of a form that has lines of cells. A line whose first cell is empty is ignored.
type Grid struct {
	Name, Title, Hint string
	For               string // "rows" or "figures" if the grid applies only when the report shows those
	Lines             [][]cell
}

// cell is a value of a line: one of its options, or a text if it has none. Above is its visible label.
type cell struct {
	Name, Label, Value, Above string
	Options                   []layout.Option
	Reloads                   bool // a change reloads the form, because other parts depend on the value
}

// CellKind describes the cells of one column of a grid.
type CellKind struct {
	Name, Title, Above string
	Options            []layout.Option
	Reloads            bool
}

// NewGrid makes a grid with the lines in the values and the given number of blank ones. It has one more blank line if
// the button of the grid was pressed.
func NewGrid(name string, values url.Values, free int, kinds ...CellKind) Grid {
	g := Grid{Name: name}
	if values.Get("_more") == name {
		free++
	}
	n := CountLines(name, kinds[0].Name, values)
	for i := range n + free {
		line := make([]cell, len(kinds))
		for j, k := range kinds {
			c := cell{
				Name:  name + "." + strconv.Itoa(i) + "." + k.Name,
				Label: k.Title + " " + strconv.Itoa(i+1), Above: k.Above, Reloads: k.Reloads,
			}
			c.Value = values.Get(c.Name)
			if k.Options != nil {
				c.Options = layout.Choose(k.Options, c.Value)
			}
			line[j] = c
		}
		g.Lines = append(g.Lines, line)
	}
	return g
}

// maxGridLines bounds the lines of a grid, and maxSchema the fields of a schema. Both exceed what any operation takes.
// They bound the size of a page, because each line is shown with all its options.
const (
	maxGridLines = 100
	maxSchema    = schema.MaxFields + 100
)

// TooManyLines reports whether a form has more lines than are read.
func TooManyLines(sent url.Values) bool {
	line, field := "."+strconv.Itoa(maxGridLines)+".", "schema."+strconv.Itoa(maxSchema)+"."
	for name := range sent {
		if strings.HasPrefix(name, field) || strings.Contains(name, line) && !strings.HasPrefix(name, "schema.") {
			return true
		}
	}
	return false
}

// CountLines returns how many lines of a grid are in the values. first is the name of a line's first cell.
func CountLines(name, first string, values url.Values) (n int) {
	for n < maxGridLines && values.Has(name+"."+strconv.Itoa(n)+"."+first) {
		n++
	}
	return n
}
