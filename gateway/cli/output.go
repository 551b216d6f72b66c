package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
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

func (p *program) wantsTable() bool {
	if p.output == "" {
		return terminal(p.stdout)
	}
	return p.output == outputTable
}

// grid is a table for people.
type grid struct {
	header []string
	rows   [][]string
}

func (g *grid) add(cells ...string) { g.rows = append(g.rows, cells) }

// print writes a result: v as JSON, or what table makes of it.
func (p *program) print(v any, table func() grid) error {
	if p.wantsTable() {
		return p.printGrid(table())
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
	rows := g.rows
	if g.header != nil {
		rows = append([][]string{g.header}, rows...)
	}
	for _, row := range rows {
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

// plain keeps stored texts from steering the terminal.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Cf, r) {
			return '\uFFFD'
		}
		return r
	}, text)
}

// notes are what a command has to say beside its result.
func (p *program) notes(notes []string) {
	for _, n := range notes {
		p.note("Note: %s", n)
	}
}

func (p *program) note(format string, args ...any) {
	fmt.Fprintf(p.stderr, format+"\n", args...)
}

func words(list []string) string {
	if len(list) == 0 {
		return "-"
	}
	return strings.Join(list, ", ")
}

func moment(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.Format(time.RFC3339)
}

func yesNo(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
