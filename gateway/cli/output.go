package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"

	"tenantry/gateway/control"
	"tenantry/internal/declare"
)

// Values of --output.
const (
	outputJSON  = "json"
	outputTable = "table"
)

// terminal reports whether people read what is written there.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// grid is a table for people.
type grid [][]string

func (g *grid) add(cells ...string) { *g = append(*g, cells) }

// tables reports whether results are for people.
func (p *program) tables() bool {
	return p.output == outputTable || p.output == "" && terminal(p.stdout)
}

// print writes a result: v as JSON, or the table of it.
func (p *program) print(v any, table grid) error {
	if p.tables() {
		return p.printGrid(table)
	}
	enc := json.NewEncoder(p.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

func (p *program) printGrid(g grid) error {
	w := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	for _, row := range g {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = plain(cell)
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// tableOf shows the answer to a command as its row says.
func tableOf(c *control.Command, data []byte) (g grid, err error) {
	answer := reflect.New(reflect.TypeOf(c.Row.Data)).Elem()
	if err := json.Unmarshal(data, answer.Addr().Interface()); err != nil {
		return nil, fmt.Errorf("reading the result: %w", err)
	}
	if c.Table == "" {
		return reportGrid(answer.Interface()), nil
	}
	list, columns := answer, c.Wide || answer.Kind() == reflect.Slice
	if answer.Kind() != reflect.Slice {
		list = reflect.Append(reflect.MakeSlice(reflect.SliceOf(answer.Type()), 0, 1), answer)
	}
	fields, err := declare.Of(list.Type().Elem())
	entries := strings.Split(c.Table, ", ")
	if columns {
		header := make([]string, len(entries))
		for i, entry := range entries {
			title, _, _ := strings.Cut(entry, "=")
			header[i] = strings.ToUpper(title)
		}
		g.add(header...)
	}
	for i := range list.Len() {
		var line []string
		for _, entry := range entries {
			entry, optional := strings.CutSuffix(entry, "?")
			title, name, given := strings.Cut(entry, "=")
			if !given {
				name = title
			}
			f := &fields[slices.IndexFunc(fields, func(f declare.Field) bool { return f.Name == name })]
			v := list.Index(i).FieldByIndex(f.Index)
			cells := []string{cell(f, v)}
			if teller, ok := list.Index(i).Interface().(interface {
				Cells(field, text string) []string
			}); ok {
				cells = teller.Cells(name, cells[0])
			}
			if columns {
				line = append(line, cells...)
			} else if !optional || !v.IsZero() {
				g.add(append([]string{title}, cells...)...)
			}
		}
		if columns {
			g.add(line...)
		}
	}
	return g, err
}

// cell writes a value for people.
func cell(f *declare.Field, v reflect.Value) string {
	switch v := v.Interface().(type) {
	case time.Time:
		return v.Format(time.RFC3339)
	case *time.Time:
		if v == nil {
			return "never"
		}
		return v.Format(time.RFC3339)
	case fmt.Stringer:
		if f.Type.Kind() != reflect.Pointer || !reflect.ValueOf(v).IsNil() {
			return v.String()
		}
		return ""
	case []string:
		return words(v)
	case map[string]bool:
		return words(slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(name string) bool { return !v[name] }))
	case map[string]int64:
		return words(pairsOf(v))
	case map[string]string:
		return strings.Join(pairsOf(v), " ")
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case string:
		if v == "" && strings.Contains(f.Tag.Get("json"), ",omitempty") {
			return "-"
		}
	}
	return fmt.Sprint(v.Interface())
}

func pairsOf[T any](values map[string]T) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, fmt.Sprintf("%s=%v", name, values[name]))
	}
	return list
}

func words(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// plain keeps stored texts from steering the terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

func (p *program) note(format string, args ...any) {
	fmt.Fprintf(p.stderr, format+"\n", args...)
}
