package cli

import (
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

// checkImport finds what does not go together, and takes the format from the name of the file.
func checkImport(args []string, in values) error {
	text := func(name string) string {
		s, _ := in[name].(string)
		return s
	}
	suffix := strings.ToLower(filepath.Ext(args[0]))
	plural, definition, defined := strings.Cut(text("as"), ":")
	switch {
	case text("as") == "" && (in["map"] != nil || text("format") != "" || text("key") != ""):
		return usagef("--map, --key and --format are for rows; say with --as what a row is")
	case text("as") == "" && suffix == ".csv":
		return usagef("%s holds rows; say what a row is, such as --as contacts or --as records:NAME", args[0])
	case text("as") == "":
		return nil
	case in["secrets"] != nil:
		return usagef("--secrets is for bundles; rows hold no encrypted values")
	case !strings.HasSuffix(plural, "s") || defined && definition == "": // which there are, the gateway says
		return usagef("--as %s: it is contacts, records:NAME or another resource in the plural", text("as"))
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

// importStreams opens the file, and in the end tells what became of its lines.
func (p *program) importStreams(args []string, in values, b *bar) (s control.Streams, end func(*control.Answer, error) error, err error) {
	name := args[0]
	if name == "-" {
		name = "stdin"
	}
	bad := &lateFile{path: name + ".bad.ndjson"}
	if format, ok := in["format"].(string); ok {
		bad.path = name + ".bad." + format
	}
	if in["partial"] == true && in["dry_run"] != true {
		if _, err := os.Lstat(bad.path); err == nil {
			return s, nil, fmt.Errorf("the file %s is there already, perhaps of an earlier import; move it away or delete it first", bad.path)
		}
	}
	s, told, err := p.readStreams(args[0])(args, in, b)
	s.Output = bad
	return s, func(answer *control.Answer, err error) error {
		err = told(answer, errors.Join(err, bad.close()))
		if bad.file != nil {
			p.note("The lines that could not be taken are in %s", bad.path)
		}
		return err
	}, err
}

// readStreams opens a file, or standard input, and in the end tells what became of its lines.
func (p *program) readStreams(path string) func([]string, values, *bar) (control.Streams, func(*control.Answer, error) error, error) {
	return func(_ []string, _ values, b *bar) (s control.Streams, end func(*control.Answer, error) error, err error) {
		input, sent := io.NopCloser(p.stdin), &counter{b, control.Progress{Step: "sending", Bytes: true}}
		if path != "-" {
			f, err := os.Open(path)
			if err != nil {
				return s, nil, fmt.Errorf("reading the input: %w", err)
			}
			if info, err := f.Stat(); err == nil {
				sent.now.Total = info.Size()
			}
			input = f
		}
		return control.Streams{Input: io.TeeReader(input, sent)}, func(answer *control.Answer, err error) error {
			defer input.Close()
			if answer == nil || answer.Data == nil {
				return err
			}
			var report transfer.Report
			if e := json.Unmarshal(answer.Data, &report); e != nil {
				return errors.Join(err, e)
			}
			p.problems(&report)
			return err
		}, nil
	}
}

// lateFile is a file that is made when something is written, and never in place of another.
type lateFile struct {
	path string
	file *os.File
}

func (l *lateFile) Write(b []byte) (_ int, err error) {
	if l.file == nil {
		if l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return 0, err
		}
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

// exportWork gives an export its file, which is there once it is complete.
func (p *program) exportWork(cmd *cobra.Command, w *work) {
	path := cmd.Flags().StringP("out", "o", "", "the `file` to write, replaced when the export is complete (default standard output)")
	cmd.MarkFlagsMutuallyExclusive("reveal-secrets", "secrets")
	w.open = func(_ []string, _ values, b *bar) (control.Streams, func(*control.Answer, error) error, error) {
		if *path == "" || *path == "-" {
			return control.Streams{Output: p.stdout}, func(answer *control.Answer, err error) error {
				if answer != nil {
					answer.Data = nil // standard output holds the bundle
				}
				return err
			}, nil
		}
		f, err := os.CreateTemp(filepath.Dir(*path), "."+filepath.Base(*path)+"-*") // mode 0600
		if err != nil {
			return control.Streams{}, nil, fmt.Errorf("export: %w", err)
		}
		written := &counter{b, control.Progress{Step: transfer.PhaseWriting, Bytes: true}}
		return control.Streams{Output: io.MultiWriter(f, written)}, func(answer *control.Answer, err error) error {
			defer os.Remove(f.Name()) // gone already where the export is complete
			if err == nil {
				err = f.Sync()
			}
			if err = errors.Join(err, f.Close()); err == nil {
				err = os.Rename(f.Name(), *path)
			}
			if err != nil && answer != nil {
				answer.Data = nil // tells of a file that is not there
			}
			return err
		}, nil
	}
}
