package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// table is the results of a run.
type table struct {
	rows     []row
	facts    []fact
	failures []string // lines that could not be measured, with their errors
}

// row is a line compared with one reference.
type row struct {
	line
	reference
	own, other []result
}

// fact is a single figure without a reference.
type fact struct{ what, figure, goal string }

func (t *table) add(l line, results [][]result) {
	if len(l.references) == 0 {
		l.references, results = []reference{{}}, append(results, nil)
	}
	for i, r := range l.references {
		if r.connections == 0 {
			r.connections = l.connections
		}
		t.rows = append(t.rows, row{l, r, results[0], results[i+1]})
	}
}

// ratios returns the ratio of the rates for each turn.
func (r row) ratios() (ratios []float64) {
	for i := range min(len(r.own), len(r.other)) {
		ratios = append(ratios, r.own[i].rate()/r.other[i].rate())
	}
	return ratios
}

const (
	begin = "<!-- begin: what go run -C bench . printed -->\n"
	end   = "<!-- end -->\n"
)

// markdown returns the table as text, between the marks by which replace finds it.
func (t *table) markdown(machine, how string) string {
	var out strings.Builder
	out.WriteString(begin + how + "\n" + strings.ToUpper(machine[:1]) + machine[1:] + "\n\n")
	if len(t.rows) > 0 {
		write(&out, "line", "call", "connections", "requests/s", "median ms", "CPU µs", "compared with", "requests/s", "median ms", "CPU µs", "ratio", "lowest to highest", "goal")
		write(&out, slices.Repeat([]string{"---"}, 13)...)
	}
	for _, r := range t.rows {
		cells := []string{r.line.name, r.what, strconv.Itoa(r.line.connections)}
		if r.reference.connections != r.line.connections {
			cells[2] += " / " + strconv.Itoa(r.reference.connections)
		}
		cells = append(cells, figures(r.own)...)
		if r.from == nil {
			cells = append(cells, "", "", "", "", "", "")
		} else {
			ratios := r.ratios()
			cells = append(append(append(cells, r.reference.name), figures(r.other)...),
				fmt.Sprintf("**%.2f**", median(ratios)), fmt.Sprintf("%.2f to %.2f", slices.Min(ratios), slices.Max(ratios)))
		}
		write(&out, append(cells, r.goal)...)
	}
	if len(t.facts) > 0 {
		out.WriteString("\n")
		write(&out, "", "measured", "goal")
		write(&out, "---", "---", "---")
		for _, f := range t.facts {
			write(&out, f.what, f.figure, f.goal)
		}
	}
	for i, failure := range t.failures {
		if i == 0 {
			out.WriteString("\nNot measured:\n\n")
		}
		out.WriteString("- " + strings.Join(strings.Fields(failure), " ") + "\n")
	}
	out.WriteString(end)
	return out.String()
}

func write(out *strings.Builder, cells ...string) {
	for _, cell := range cells {
		out.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
	}
	out.WriteString("|\n")
}

// figures returns rate, latency and processor time, each the median of the turns.
func figures(results []result) []string {
	of := func(value func(result) float64) float64 {
		var all []float64
		for _, r := range results {
			all = append(all, value(r))
		}
		return median(all)
	}
	rate := number(of(result.rate))
	var wrong float64
	for _, r := range results {
		wrong += r.Refused + r.Broken
	}
	if wrong > 0 {
		rate += fmt.Sprintf(" (%.0f failed)", wrong)
	}
	cpu := ""
	if used := of(func(r result) float64 { return float64(r.cpu.Microseconds()) / r.Requests }); used > 0 {
		cpu = number(used)
	}
	return []string{rate, number(of(func(r result) float64 { return r.Median / 1000 })), cpu}
}

// number formats a figure with its significant digits.
func number(n float64) string {
	switch {
	case n >= 100:
		return withCommas(int(n + 0.5))
	case n >= 10:
		return strconv.FormatFloat(n, 'f', 1, 64)
	}
	return strconv.FormatFloat(n, 'f', 2, 64)
}

// withCommas formats a number with a comma before each three digits.
func withCommas(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// replace writes the text to a file, in place of the text between the marks. It creates the file if there is none.
func replace(path, text string) error {
	old, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return os.WriteFile(path, []byte(text), 0o644) //nolint:gosec // the file is public
	}
	if err != nil {
		return err
	}
	before, rest, found := strings.Cut(string(old), begin)
	_, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		return fmt.Errorf("%s has no %q to replace", path, strings.TrimSpace(begin))
	}
	return os.WriteFile(path, []byte(before+text+after), 0o644) //nolint:gosec // the file is public
}
