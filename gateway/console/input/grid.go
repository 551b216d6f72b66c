package input

import (
	"net/url"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/layout"
)

// Grid is a part of a form that has lines of cells. A line whose first cell is empty is none.
type Grid struct {
	Name, Title, Hint string
	For               string // what is shown for it to matter: rows or figures; empty: always
	Lines             [][]cell
}

// cell is a value of a line: one of its options, or a text where there are none.
type cell struct {
	Name, Label, Value, Above string
	Options                   []layout.Option
	Again                     bool // other parts of the form depend on it
}

// CellKind is what the cells of one place have in common.
type CellKind struct {
	Name, Title, Above string
	Options            []layout.Option
	Again              bool
}

// NewGrid lays out the lines that the values have, and so many free ones.
func NewGrid(name string, values url.Values, free int, kinds ...CellKind) Grid {
	g := Grid{Name: name}
	if values.Get("_more") == name {
		free++
	}
	n := CountLines(name, kinds[0].Name, values)
	for i := range n + free {
		line := make([]cell, len(kinds))
		for j, k := range kinds {
			c := cell{Name: name + "." + strconv.Itoa(i) + "." + k.Name, Label: k.Title + " " + strconv.Itoa(i+1), Above: k.Above, Again: k.Again}
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

// maxLines bounds the lines of a part, and maxSchema the fields of a schema: more than any operation takes, since each
// is shown with all its options.
const (
	maxLines  = 100
	maxSchema = schema.MaxFields + 100
)

// TooManyLines reports whether a part of the form has more lines than are read.
func TooManyLines(sent url.Values) bool {
	line, field := "."+strconv.Itoa(maxLines)+".", "schema."+strconv.Itoa(maxSchema)+"."
	for name := range sent {
		if strings.HasPrefix(name, field) || strings.Contains(name, line) && !strings.HasPrefix(name, "schema.") {
			return true
		}
	}
	return false
}

// CountLines returns how many lines the values have.
func CountLines(name, first string, values url.Values) (n int) {
	for n < maxLines && values.Has(name+"."+strconv.Itoa(n)+"."+first) {
		n++
	}
	return n
}
