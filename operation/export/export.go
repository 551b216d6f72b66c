// Package export answers rows as CSV or NDJSON, written while they are read.
package export

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/backends/record/field"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
)

// Input is the input of every export.
type Input struct {
	Format  string `json:"format" rule:"enum=csv|ndjson" default:"ndjson" doc:"ndjson, with a JSON object on each line, or csv, with the names of the columns in the first row."`
	Columns string `json:"columns" rule:"max=16000" doc:"For csv: the names of the columns to write, in order, separated by commas; empty: all."`
	BOM     bool   `json:"bom" default:"false" doc:"Begins a csv file with a byte order mark. Without one, Excel reads the file in the code page of its computer."`
}

// CSV is the format of comma-separated values.
const CSV = "csv"

const mediaCSV = "text/csv"

// bom is the byte order mark in UTF-8.
const bom = "\ufeff"

// Row completes the row of an operation that exports and takes Input.
func Row(o *operation.Row) {
	o.Method, o.Audit, o.Weight, o.Timeout, o.Streams = http.MethodGet, operation.AuditAlways, operation.Heavy, time.Hour, []string{
		operation.NDJSON, mediaCSV,
	}
	o.Description += " Rows are written while they are read, so changes made meanwhile may or may not be included; if " +
		"the connection breaks off, some are missing. " +
		"A text in a CSV file that a spreadsheet could take for a formula, because it begins with =, +, -, @, a tab or a " +
		"line break, after any apostrophes, is preceded by an apostrophe, which an import removes."
}

// maxFaults bounds how many faults of columns are reported.
const maxFaults = 20

// columnIndexes returns the indexes of the columns to write. Errors name columns that are unknown or given twice.
func (in Input) columnIndexes(columns []string) (at []int, err error) {
	var errs fault.List
	for field, given := range map[string]bool{"columns": in.Columns != "", "bom": in.BOM} {
		if given && in.Format != CSV {
			errs.Add(field, fault.Forbidden, "%s applies to CSV only; add format=csv", field)
		}
	}
	if in.Format != CSV || in.Columns == "" {
		for i := range columns {
			at = append(at, i)
		}
		return at, errs.Err()
	}
	known := "; there are: " + strings.Join(columns, ", ")
	for name := range strings.SplitSeq(in.Columns, ",") {
		i := slices.Index(columns, name)
		switch {
		case i < 0:
			errs.Add("columns", fault.Unknown, "columns: unknown column %q%s", texts.Clip(name), known)
			known = "" // once is enough
		case slices.Contains(at, i):
			errs.Add("columns", fault.Duplicate, "columns: %q is given twice", texts.Clip(name))
		}
		if at = append(at, i); len(errs) >= maxFaults {
			break // further faults would not help
		}
	}
	return at, errs.Err()
}

// Answer returns the rows that rows writes as a file with that name; the suffix is added. Errors are faults of the
// input.
func Answer(
	c *operation.Call, in Input, name string, columns []string, rows func(context.Context, *Writer) error,
) (operation.Result, error) {
	at, err := in.columnIndexes(columns)
	if err != nil {
		return operation.Result{}, err
	}
	c.Header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + "." + in.Format}))
	out := operation.Result{Media: map[bool]string{
		true: mediaCSV + "; charset=utf-8", false: operation.NDJSON,
	}[in.Format == CSV]}
	out.Stream = func(ctx context.Context, to io.Writer) error { return in.write(ctx, to, columns, at, rows) }
	return out, nil
}

// WriteCSV writes what an export of rows answers as CSV with all columns. Errors: those of rows and of to.
func WriteCSV(ctx context.Context, to io.Writer, columns []string, rows func(context.Context, *Writer) error) error {
	in := Input{Format: CSV, BOM: true}
	at, err := in.columnIndexes(columns)
	if err != nil {
		return err
	}
	return in.write(ctx, to, columns, at, rows)
}

// write writes a file with the columns with those indexes.
func (in Input) write(
	ctx context.Context, to io.Writer, columns []string, at []int, rows func(context.Context, *Writer) error,
) error {
	w := &Writer{json: json.NewEncoder(to), columns: at}
	w.json.SetEscapeHTML(false)
	if in.Format == CSV {
		if in.BOM {
			if _, err := io.WriteString(to, bom); err != nil {
				return err
			}
		}
		w.csv = csv.NewWriter(to)
		names := make([]any, len(columns))
		for i := range columns {
			names[i] = columns[i]
		}
		if err := w.Row(nil, func() []any { return names }); err != nil {
			return err
		}
	}
	if err := rows(ctx, w); err != nil || w.csv == nil {
		return err
	}
	w.csv.Flush()
	return w.csv.Error()
}

// Writer writes rows in the requested format. It is not safe for concurrent use.
type Writer struct {
	csv  *csv.Writer // nil: lines of JSON
	json *json.Encoder
	row  []string
	// columns are the indexes of the columns to write.
	columns []int
}

// Row writes a row: for CSV the values of cells, one for each column, otherwise line.
func (w *Writer) Row(line any, cells func() []any) error {
	if w.csv == nil {
		return w.json.Encode(line)
	}
	w.row = w.row[:0]
	all := cells()
	for _, i := range w.columns {
		w.row = append(w.row, text(all[i]))
	}
	return w.csv.Write(w.row)
}

// Any is a value of unknown type. Its cell is JSON, except that a text that is not valid JSON is written unchanged.
type Any struct{ Value any }

// text returns a value as the text of a cell.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return escapeFormula(v)
	case []string:
		return escapeFormula(joinList(v))
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = fmt.Sprint(v[i])
		}
		return escapeFormula(joinList(parts))
	case Any:
		if s, is := v.Value.(string); is && !json.Valid([]byte(s)) || v.Value == nil {
			return escapeFormula(s)
		}
		return escapeFormula(string(field.AppendJSON(nil, v.Value)))
	case bool, int64, json.Number:
		return fmt.Sprint(v)
	}
	return string(field.AppendJSON(nil, v)) // records hold only values that JSON can represent
}

// joinList returns a list as one text: as JSON if its elements could not be separated otherwise.
func joinList(list []string) string {
	if slices.ContainsFunc(list, func(one string) bool {
		return strings.ContainsAny(
			one, ";|,",
		) || strings.Contains(one, ":::") || strings.HasPrefix(one, "* ") || strings.HasPrefix(one, "[") || strings.TrimSpace(one) != one || one == ""
	}) {
		return string(field.AppendJSON(nil, list))
	}
	return strings.Join(list, "; ")
}

// escapeFormula returns a text that no spreadsheet takes for a formula. Original undoes it.
func escapeFormula(text string) string {
	if isFormula(strings.TrimLeft(text, "'")) {
		return "'" + text
	}
	return text
}

// Original returns the text of a cell without the apostrophe of escapeFormula.
func Original(cell string) string {
	if rest, marked := strings.CutPrefix(cell, "'"); marked && isFormula(strings.TrimLeft(rest, "'")) {
		return rest
	}
	return cell
}

func isFormula(text string) bool {
	return text != "" && strings.IndexByte("=+-@\t\r\n", text[0]) >= 0
}
