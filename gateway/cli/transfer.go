package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"tenantry/gateway/control"
	"tenantry/gateway/rows"
	"tenantry/gateway/transfer"
)

func (p *program) importWork(cmd *cobra.Command, c *control.Command, w *work) {
	cmd.Args = oneArg("the file, or - for standard input")
	w.check = checkImport
	w.do = func(ctx context.Context, client *control.Client, args []string, in values) error {
		return p.importFile(ctx, client, c, args[0], in)
	}
}

// checkImport finds what does not go together, and takes the format from the name of the file.
func checkImport(args []string, in values) error {
	text := func(name string) string {
		s, _ := in[name].(string)
		return s
	}
	suffix := strings.ToLower(filepath.Ext(args[0]))
	object, isRecords := strings.CutPrefix(text("as"), "records:")
	switch {
	case text("as") == "" && (in["map"] != nil || text("format") != "" || text("key") != ""):
		return usagef("--map, --key and --format are for rows; say with --as what a row is")
	case text("as") == "" && suffix == ".csv":
		return usagef("%s holds rows; say what a row is with --as contacts or --as records:NAME", args[0])
	case text("as") == "":
		return nil
	case text("secrets") != "":
		return usagef("--secrets is for bundles; rows hold no encrypted values")
	case text("as") != "contacts" && (!isRecords || object == ""):
		return usagef("--as %s: it is contacts, or records: and the name of a custom object", text("as"))
	case text("format") == "":
		in["format"] = strings.TrimPrefix(suffix, ".")
	}
	if text("format") != rows.CSV && text("format") != rows.JSON {
		return usagef("the format of %s is not known; say --format csv or --format json", args[0])
	}
	return nil
}

// maxTransferKey bounds the file of a key.
const maxTransferKey = 4096

// transferKey reads the file of one half of a transfer key; whether it is one, the command finds out.
func transferKey(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("--secrets: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxTransferKey))
	if err != nil {
		return "", fmt.Errorf("--secrets: %w", err)
	}
	text := strings.TrimSpace(string(raw))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return "", fmt.Errorf("--secrets: %s holds no transfer key; tenantry keyring transfer-key makes one", path)
	}
	return text, nil
}

func (p *program) importFile(ctx context.Context, client *control.Client, c *control.Command, path string, in values) error {
	input, size, name := p.stdin, int64(0), "stdin"
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		input, size, name = f, info.Size(), path
	}
	bad := &lateFile{path: name + ".bad.ndjson"}
	if format, ok := in["format"].(string); ok {
		bad.path = name + ".bad." + format
	}
	if in["partial"] == true && in["dry_run"] != true {
		if _, err := os.Lstat(bad.path); err == nil {
			return fmt.Errorf("the file %s is there already, perhaps of an earlier import; move it away or delete it first", bad.path)
		}
	}
	bar := p.newBar()
	sent := &counter{bar, control.Progress{Step: "sending", Total: size, Bytes: true}}
	answer, err := client.Do(ctx, c.Name, in, control.Streams{Input: io.TeeReader(input, sent), Output: bad, Progress: bar.at})
	bar.end()
	err = errors.Join(err, bad.close())
	if answer != nil && answer.Data != nil {
		var report transfer.Report
		if e := json.Unmarshal(answer.Data, &report); e != nil {
			return errors.Join(err, e)
		}
		p.problems(&report)
		if bad.file != nil {
			p.note("The lines that could not be taken are in %s", bad.path)
		}
	}
	return p.show(c, answer, err)
}

// lateFile is a file that is made when something is written, and never in place of another.
type lateFile struct {
	path string
	file *os.File
}

func (l *lateFile) Write(b []byte) (int, error) {
	if l.file == nil {
		f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return 0, err
		}
		l.file = f
	}
	return l.file.Write(b)
}

func (l *lateFile) close() error {
	if l.file == nil {
		return nil
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("writing the bad lines: %w", err)
	}
	return nil
}

// maxShown bounds the problems that are told to people; the JSON result has more.
const maxShown = 20

func (p *program) problems(r *transfer.Report) {
	tell := func(prefix string, list []transfer.LineProblem, more int, rest string) {
		for _, problem := range list[:min(len(list), maxShown)] {
			p.note("%s%s", prefix, plain(problem.String()))
		}
		if n := len(list) + more - maxShown; n > 0 {
			p.note("... and %d more lines %s", n, rest)
		}
	}
	tell("", r.Problems, r.More, "with problems")
	tell("taken as it was stored: ", r.Warnings, r.MoreWarnings, "taken as they were stored")
}

// reportGrid shows what came of a stream.
func reportGrid(report any) (g grid) {
	switch r := report.(type) {
	case *transfer.Report:
		g.add("KIND", "LINES", "CREATED", "UPDATED", "UNCHANGED", "SKIPPED", "FAILED")
		row := func(name string, c transfer.Counts) {
			g.add(append([]string{name}, strings.Fields(fmt.Sprint(c.Lines, c.Created, c.Updated, c.Unchanged, c.Skipped, c.Failed))...)...)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Kinds)) {
			row(name, r.Kinds[name])
		}
		row("total", r.Counts)
		for i, c := range r.Columns {
			if i == 0 {
				g.add()
				g.add("COLUMN", "FIELD", "TYPE", "")
			}
			field, made := c.Field, ""
			if field == "" {
				field = "(left out)"
			}
			if c.New {
				made = "new"
			}
			g.add(c.Name, field, c.Type, made)
		}
	case *transfer.ExportReport:
		g.add("KIND", "LINES")
		for _, name := range slices.Sorted(maps.Keys(r.Kinds)) {
			g.add(name, fmt.Sprint(r.Kinds[name]))
		}
		g.add("total", fmt.Sprint(r.Lines))
	case *control.MoveReport:
		g.add("KIND", "DOCUMENTS", "CHECKSUM")
		for _, s := range r.Sums {
			if s.Documents > 0 {
				g.add(s.Kind, fmt.Sprint(s.Documents), s.Checksum[:16])
			}
		}
	}
	return g
}

func (p *program) exportWork(cmd *cobra.Command, c *control.Command, w *work) {
	var path string
	cmd.Flags().StringVarP(&path, "out", "o", "", "the `file` to write, replaced when the export is complete (default standard output)")
	cmd.MarkFlagsMutuallyExclusive("reveal-secrets", "secrets")
	w.do = func(ctx context.Context, client *control.Client, _ []string, in values) error {
		if path != "" && path != "-" {
			return p.exportFile(ctx, client, c, path, in)
		}
		answer, err := client.Do(ctx, c.Name, in, control.Streams{Output: p.stdout})
		if err == nil {
			answer.Data = nil // standard output holds the bundle
		}
		return p.show(c, answer, err)
	}
}

func (p *program) exportFile(ctx context.Context, client *control.Client, c *control.Command, path string, in values) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer os.Remove(f.Name()) // gone already where the export is complete
	bar := p.newBar()
	answer, err := client.Do(ctx, c.Name, in, control.Streams{Output: io.MultiWriter(f, &counter{bar, control.Progress{Step: transfer.PhaseWriting, Bytes: true}})})
	bar.end()
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return p.show(c, nil, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return p.show(c, answer, nil)
}
