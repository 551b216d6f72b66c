package cli

import (
	"cmp"
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
	"tenantry/modules/imports/bundle"
)

// Values of --output.
const (
	outputJSON  = "json"
	outputTable = "table"
)

// terminal reports whether w is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// tables reports whether results are written as tables, for people.
func (p *program) tables() bool {
	return p.output == outputTable || p.output == "" && terminal(p.stdout)
}

// print writes a result as JSON, or as a table with the given columns; see Table and Wide of control.Command.
func (p *program) print(v any, entries string, wide bool) (err error) {
	if p.tables() {
		t := table{tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)}
		if entries == "" {
			t.report(v)
		} else {
			t.records(reflect.Indirect(reflect.ValueOf(v)), strings.Split(entries, ", "), wide)
		}
		err = t.Flush()
	} else {
		enc := json.NewEncoder(p.stdout)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		err = enc.Encode(v)
	}
	if err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// table writes results for people. Flush returns the errors of writing.
type table struct{ *tabwriter.Writer }

func (t table) row(cells ...any) {
	texts := make([]string, len(cells))
	for i, cell := range cells {
		texts[i] = plain(fmt.Sprint(cell))
	}
	fmt.Fprintln(t, strings.TrimRight(strings.Join(texts, "\t"), "\t"))
}

// records writes a list in columns, and a single record either field by field or, if wide is set, as a list of one.
func (t table) records(list reflect.Value, entries []string, wide bool) {
	if list.Kind() == reflect.Slice {
		wide = true
	} else {
		list = reflect.Append(reflect.MakeSlice(reflect.SliceOf(list.Type()), 0, 1), list)
	}
	fields, _ := declare.Of(list.Type().Elem()) // an error would be a fault of the command's row
	header, rows := []any{}, make([][]any, list.Len())
	for _, entry := range entries {
		entry, optional := strings.CutSuffix(entry, "?")
		title, name, given := strings.Cut(entry, "=")
		if !given {
			name = title
		}
		header = append(header, strings.ToUpper(title))
		f := &fields[slices.IndexFunc(fields, func(f declare.Field) bool { return f.Name == name })]
		for i := range rows {
			rec := list.Index(i)
			v := rec.FieldByIndex(f.Index)
			if optional && v.IsZero() {
				continue
			}
			cells := []any{cell(f, v)}
			if record, ok := rec.Interface().(interface {
				Cells(field string, shown any) []any
			}); ok {
				cells = record.Cells(name, cells[0])
			}
			if wide {
				rows[i] = append(rows[i], cells...)
			} else {
				t.row(append([]any{title}, cells...)...)
			}
		}
	}
	if wide {
		for _, cells := range append([][]any{header}, rows...) {
			t.row(cells...)
		}
	}
}

// report writes the report of an import, an export or a move.
func (t table) report(report any) {
	switch r := report.(type) {
	case *bundle.Report:
		head := []any{"KIND", "LINES", "CREATED", "UPDATED", "UNCHANGED", "SKIPPED", "FAILED", "REMOVED"}
		shown := len(head)
		if r.Removed == 0 {
			shown--
		}
		t.row(head[:shown]...)
		counts := func(name string, c bundle.Counts) {
			t.row([]any{name, c.Lines, c.Created, c.Updated, c.Unchanged, c.Skipped, c.Failed, c.Removed}[:shown]...)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Kinds)) {
			counts(name, r.Kinds[name])
		}
		counts("total", r.Counts)
		if len(r.Columns) > 0 {
			t.row()
			t.row("COLUMN", "FIELD", "TYPE")
		}
		for _, c := range r.Columns {
			t.row(c.Name, cmp.Or(c.Field, "(left out)"), c.Type, map[bool]string{true: "new"}[c.New], c.Note)
		}
		if r.MoreColumns > 0 {
			t.row(fmt.Sprintf("and %d more columns", r.MoreColumns))
		}
	case *bundle.ExportReport:
		t.row("KIND", "LINES")
		for _, name := range slices.Sorted(maps.Keys(r.Kinds)) {
			t.row(name, r.Kinds[name])
		}
		t.row("total", r.Lines)
	case *control.OrganizationRestored:
		t.row("KIND", "RETURNED", "CHANGED", "REMOVED")
		counts := func(name string, c control.RestoredCounts) { t.row(name, c.Returned, c.Changed, c.Removed) }
		for _, name := range slices.Sorted(maps.Keys(r.Kinds)) {
			counts(name, r.Kinds[name])
		}
		counts("total", r.Records)
		t.row()
		for i, list := range [][]string{r.Returned, r.Changed, r.Removed} {
			for _, name := range list {
				t.row([]string{"returned", "changed", "removed"}[i], name)
			}
		}
	case *control.MoveReport:
		t.row("KIND", "DOCUMENTS", "CHECKSUM")
		for _, s := range r.Sums {
			if s.Documents > 0 {
				t.row(s.Kind, s.Documents, s.Checksum[:16])
			}
		}
	}
}

// cell formats a value for people.
func cell(f *declare.Field, v reflect.Value) string {
	switch v := v.Interface().(type) {
	case time.Time:
		return v.Format(time.RFC3339)
	case *time.Time:
		if v == nil {
			return "never"
		}
		return v.Format(time.RFC3339)
	case []string:
		return commaList(v)
	case map[string]bool:
		return commaList(slices.DeleteFunc(slices.Sorted(maps.Keys(v)), func(name string) bool { return !v[name] }))
	case map[string]int64:
		return commaList(formatMap(v))
	case map[string]string:
		return strings.Join(formatMap(v), " ")
	case bool:
		return map[bool]string{true: "yes", false: "no"}[v]
	case string:
		if v == "" && strings.Contains(f.Tag.Get("json"), ",omitempty") {
			return "-"
		}
	}
	return fmt.Sprint(v.Interface())
}

func formatMap[T any](values map[string]T) (list []string) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		list = append(list, fmt.Sprintf("%s=%v", name, values[name]))
	}
	return list
}

func commaList(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

// plain replaces control and format characters, with which a stored text could control the terminal.
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
