package export_test

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"strings"
	"testing"

	"tenantry/operation"
	"tenantry/operation/export"
)

// TestCSV_NoCellIsRun writes every kind of value that a record can hold, beginning with every character from which a
// spreadsheet makes a formula, and reads back what an import would.
func TestCSV_NoCellIsRun(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"=", "+", "-", "@", "\t", "\r", "\n", "'=", "''@"} {
		text := begin + "1+1"
		for name, value := range map[string]any{
			"text": text, "list of texts": []string{text}, "list of values": []any{text, 2}, "value of no type": export.Any{Value: text},
		} {
			cell := written(t, value)
			if strings.ContainsAny(cell[:1], "=+-@\t\r\n") {
				t.Errorf("%s %q: the cell %q would be run", name, text, cell)
			}
			if original := export.Original(cell); name == "text" && original != text {
				t.Errorf("%s %q: an import reads %q", name, text, original)
			}
		}
	}
	for want, value := range map[string]any{
		"a=b": "a=b", "'": "'", "'a": "'a", "'1": "'1", "": "", // texts that nothing runs stay as they are
		"-2.5": json.Number("-2.5"), "-7": int64(-7), // a number is one
	} {
		if cell := written(t, value); cell != want {
			t.Errorf("%v: the cell %q, want %q", value, cell, want)
		}
		if original := export.Original(want); original != want {
			t.Errorf("%q: an import reads %q", want, original)
		}
	}
}

// written returns the cell that a CSV export writes for the value.
func written(t *testing.T, value any) string {
	t.Helper()
	c := operation.NewCall(&operation.Row{}, func(string) string { return "" })
	answer, err := export.Answer(c, export.Input{Format: export.CSV}, "rows", []string{"a", "b"}, func(_ context.Context, w *export.Writer) error {
		return w.Row(nil, func() []any { return []any{value, "end"} })
	})
	if err != nil {
		t.Fatal(err)
	}
	var file strings.Builder
	if err := answer.Stream(t.Context(), &file); err != nil {
		t.Fatal(err)
	}
	// The reader of package csv makes one line break of two characters, which no cell here has.
	rows, err := csv.NewReader(strings.NewReader(file.String())).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%q: got %v, want no error and len(rows) = 2", file.String(), err)
	}
	return rows[1][0]
}
