// Package export answers with rows as CSV or NDJSON, which are written while they are read.
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

// Asked is what every export is asked for.
type Asked struct {
	Format  string `json:"format" rule:"enum=csv|ndjson" default:"ndjson" doc:"ndjson, where each line is a JSON object, or csv, where the first row names the columns."`
	Columns string `json:"columns" rule:"max=16000" doc:"Of csv: the names of the columns that are written, in that order, separated by commas; empty: all."`
	BOM     bool   `json:"bom" default:"false" doc:"Begins a csv file with a byte order mark. Excel takes a file without one for text in the code page of its computer."`
}

// CSV is a format.
const CSV = "csv"

const mediaCSV = "text/csv"

// bom is the byte order mark, in UTF-8.
const bom = "\ufeff"

// Row completes the row of an operation that exports, which takes Asked.
func Row(o *operation.Row) {
	o.Method, o.Audit, o.Weight, o.Timeout, o.Streams = http.MethodGet, operation.AuditAlways, operation.Heavy, time.Hour, []string{operation.NDJSON, mediaCSV}
	o.Description += " Rows are written while they are read, so what changes meanwhile may be in them or not; a connection that breaks off before its end says that some are missing. " +
		"A text of a CSV file that a spreadsheet could take for a formula, because it begins with =, +, -, @, a tab or a line break, after any apostrophes, has an apostrophe before it, which an import takes off."
}

// mostWrong bounds the columns that are told to be wrong.
const mostWrong = 20

// chosen returns which of the columns a CSV file has. Errors name columns that are asked for and are not there, or
// twice.
func (in Asked) chosen(columns []string) (at []int, err error) {
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
	for name := range strings.SplitSeq(in.Columns, ",") {
		i := slices.Index(columns, name)
		switch {
		case i < 0:
			errs.Add("columns", fault.Unknown, "columns: unknown column %q", texts.Clip(name))
		case slices.Contains(at, i):
			errs.Add("columns", fault.Duplicate, "columns: %q is given twice", texts.Clip(name))
		}
		if at = append(at, i); len(errs) >= mostWrong {
			break // of however many
		}
	}
	return at, errs.Err()
}

// Answer returns an answer with the rows that rows writes, as a file of that name without its suffix. Errors are what
// is wrong with what was asked for.
func Answer(c *operation.Call, in Asked, name string, columns []string, rows func(context.Context, *Writer) error) (operation.Result, error) {
	at, err := in.chosen(columns)
	if err != nil {
		return operation.Result{}, err
	}
	c.Header.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": name + "." + in.Format}))
	names := make([]any, len(columns))
	for i := range columns {
		names[i] = columns[i]
	}
	out := operation.Result{Media: map[bool]string{true: mediaCSV + "; charset=utf-8", false: operation.NDJSON}[in.Format == CSV]}
	out.Stream = func(ctx context.Context, to io.Writer) error {
		w := &Writer{json: json.NewEncoder(to), columns: at}
		w.json.SetEscapeHTML(false)
		if in.Format == CSV {
			if in.BOM {
				if _, err := io.WriteString(to, bom); err != nil {
					return err
				}
			}
			w.csv = csv.NewWriter(to)
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
	return out, nil
}

// Writer writes rows in the format that was asked for. It is for one goroutine.
type Writer struct {
	csv  *csv.Writer // nil: lines of JSON
	json *json.Encoder
	row  []string
	// columns are those that are written, by their places in a row.
	columns []int
}

// Row writes a row: as CSV what cells returns, a value for each column, else the line.
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

// Any is a value of no type that is known: its cell is JSON, unless it is a text that is none.
type Any struct{ Value any }

// text returns a value as a cell has it.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return harmless(v)
	case []string:
		return harmless(joined(v))
	case []any:
		parts := make([]string, len(v))
		for i := range v {
			parts[i] = fmt.Sprint(v[i])
		}
		return harmless(joined(parts))
	case Any:
		if s, is := v.Value.(string); is && !json.Valid([]byte(s)) || v.Value == nil {
			return harmless(s)
		}
		return harmless(string(field.AppendJSON(nil, v.Value)))
	case bool, int64, json.Number:
		return fmt.Sprint(v)
	}
	return string(field.AppendJSON(nil, v)) // what JSON cannot hold is in no record
}

// joined returns a list as one text: as JSON where its elements could not be told apart otherwise.
func joined(list []string) string {
	if slices.ContainsFunc(list, func(one string) bool {
		return strings.ContainsAny(one, ";|,") || strings.Contains(one, ":::") || strings.HasPrefix(one, "* ") || strings.HasPrefix(one, "[") || strings.TrimSpace(one) != one || one == ""
	}) {
		return string(field.AppendJSON(nil, list))
	}
	return strings.Join(list, "; ")
}

// harmless returns a text that no spreadsheet takes for a formula. Original undoes it.
func harmless(text string) string {
	if dangerous(strings.TrimLeft(text, "'")) {
		return "'" + text
	}
	return text
}

// Original returns the text of which a CSV file has that cell.
func Original(cell string) string {
	if rest, marked := strings.CutPrefix(cell, "'"); marked && dangerous(strings.TrimLeft(rest, "'")) {
		return rest
	}
	return cell
}

func dangerous(text string) bool {
	return text != "" && strings.IndexByte("=+-@\t\r\n", text[0]) >= 0
}
