package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"tenantry/gateway/control"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
)

// checkImport refuses options of an import that contradict each other, and sets the format by the name of the file.
// Errors: wrong usage.
func checkImport(path string, in values) error {
	text := func(name string) string {
		s, _ := in[name].(string)
		return s
	}
	suffix := strings.ToLower(filepath.Ext(path))
	plural, definition, defined := strings.Cut(text("as"), ":")
	switch {
	case in["yes"] == true && in["mirror"] != true:
		return usagef("--yes confirms what --mirror removes")
	case in["mirror"] == true && text("as") != "":
		return usagef("--mirror is for bundles, not for rows")
	case text("as") == "" && (in["map"] != nil || text("format") != "" || text("key") != "" ||
		text("encoding") != "" || text("delimiter") != ""):
		return usagef("--map, --key, --format, --encoding and --delimiter are for rows; say with --as what a row is")
	case text("as") == "" && (suffix == ".csv" || suffix == ".tsv"):
		return usagef("%s holds rows; say what a row is, such as --as contacts or --as records:NAME", path)
	case text("as") == "":
		return nil
	case in["secrets"] != nil:
		return usagef("--secrets is for bundles; rows hold no encrypted values")
	case !strings.HasSuffix(plural, "s") || defined && definition == "": // the gateway checks whether the resource exists
		return usagef("--as %s: must be contacts, records:NAME or another resource in the plural", text("as"))
	case text("format") == "" && suffix == ".tsv":
		in["format"] = tabular.CSV
		if text("delimiter") == "" {
			in["delimiter"] = "tab"
		}
	case text("format") == "":
		in["format"] = strings.TrimPrefix(suffix, ".")
	}
	if text("format") != tabular.CSV && text("format") != tabular.JSON {
		return usagef("the format of %s is not known; say --format csv or --format json", path)
	}
	return nil
}

// maxTransferKey bounds what is read of the file of a key, in bytes.
const maxTransferKey = 4096

// transferKey reads the file of one half of a transfer key. It returns the text unparsed; the command that takes it
// validates it.
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
		return "", fmt.Errorf("--secrets: %s is not a transfer key; tenantry keyring transfer-key creates one", path)
	}
	return text, nil
}

// finishFunc closes the streams of a command that has ended with the given answer and error, and returns that error
// joined with its own.
type finishFunc = func(*control.Answer, error) error

// open opens the streams that a command reads and writes besides its request and its answer.
func (p *program) open(
	l *rowCommand, row *control.Command, args []string, in values, b *bar,
) (control.Streams, finishFunc, error) {
	switch {
	case row.Reads && row.Flag == "":
		return p.openInput(args[0], in, b)
	case row.Reads:
		return p.openInput(l.Flag(row.Flag).Value.String(), in, b)
	case row.Writes:
		return p.openOutput(l.Flag("out").Value.String(), b)
	}
	return control.Streams{}, func(_ *control.Answer, err error) error { return err }, nil
}

// openInput opens a file, or standard input for "-", and prepares a second file for lines that are rejected. The
// returned function reports the problems of the lines.
func (p *program) openInput(path string, in values, b *bar) (s control.Streams, end finishFunc, err error) {
	input, name := io.NopCloser(p.stdin), "stdin"
	sent := &counter{b, control.Progress{Step: "sending", Bytes: true}}
	if path != "-" {
		name = path
	}
	format, _ := in["format"].(string)
	rejected := &lazyFile{path: name + ".bad." + cmp.Or(format, "ndjson")}
	if in["partial"] == true && in["dry_run"] != true {
		if _, err := os.Lstat(rejected.path); err == nil {
			return s, nil, fmt.Errorf("the file %s exists already, perhaps from an earlier import; "+
				"move it away or delete it first", rejected.path)
		}
	}
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return s, nil, fmt.Errorf("reading the input: %w", err)
		}
		if info, err := f.Stat(); err == nil {
			if sent.now.Total = info.Size(); info.IsDir() {
				return s, nil, errors.Join(fmt.Errorf("reading the input: %s is a folder, not a file", path), f.Close())
			}
		}
		input = f
	}
	return control.Streams{Input: io.TeeReader(input, sent), Output: rejected}, func(answer *control.Answer, err error) error {
		defer input.Close()
		err = errors.Join(err, rejected.close())
		var report bundle.Report
		if answer != nil && answer.Data != nil {
			if e := json.Unmarshal(answer.Data, &report); e != nil {
				return errors.Join(err, e)
			}
		}
		p.problems(&report)
		if rejected.file != nil {
			p.note("The lines that could not be imported are in %s", rejected.path)
		}
		return err
	}, nil
}

// openOutput opens the output of a command. It writes to a temporary file that takes the place of path when the command
// succeeds; without a path it writes to standard output.
func (p *program) openOutput(path string, b *bar) (control.Streams, finishFunc, error) {
	if path == "" || path == "-" {
		return control.Streams{Output: p.stdout}, func(answer *control.Answer, err error) error {
			if answer != nil {
				answer.Data = nil // standard output holds the bundle
			}
			return err
		}, nil
	}
	// A pipe or a device such as /dev/null is written to, never replaced.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return control.Streams{}, nil, fmt.Errorf("export: %w", err)
		}
		finish := func(_ *control.Answer, err error) error { return errors.Join(err, f.Close()) }
		return control.Streams{Output: f}, finish, nil
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return control.Streams{}, nil, fmt.Errorf("export: %w", err)
	}
	written := &counter{b, control.Progress{Step: bundle.PhaseWriting, Bytes: true}}
	return control.Streams{Output: io.MultiWriter(f, written)}, func(answer *control.Answer, err error) error {
		defer os.Remove(f.Name()) // after a successful export the name no longer exists
		if err == nil {
			err = f.Sync()
		}
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), path)
		}
		if err != nil && answer != nil {
			answer.Data = nil // it reports on a file that does not exist
		}
		return err
	}, nil
}

// lazyFile is a file that is created by the first write to it. The write fails if the file exists.
type lazyFile struct {
	path string
	file *os.File
}

func (l *lazyFile) Write(b []byte) (_ int, err error) {
	if l.file == nil {
		if l.file, err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return 0, err
		}
	}
	return l.file.Write(b)
}

func (l *lazyFile) close() error {
	if l.file == nil {
		return nil
	}
	if err := l.file.Close(); err != nil {
		return fmt.Errorf("writing the bad lines: %w", err)
	}
	return nil
}

// maxShown bounds the problems that are printed for people; the JSON result has more.
const maxShown = 20

// problems prints the problems, warnings and removals of an import.
func (p *program) problems(r *bundle.Report) {
	list := func(prefix string, list []bundle.LineProblem, more int, rest string) {
		for _, problem := range list[:min(len(list), maxShown)] {
			p.note("%s%s", prefix, plain(problem.String()))
		}
		if n := len(list) + more - maxShown; n > 0 {
			p.note("... and %d more lines %s", n, rest)
		}
	}
	list("", r.Problems, r.More, "with problems")
	list("taken as it was stored: ", r.Warnings, r.MoreWarnings, "taken as they were stored")
	verb := map[bool]string{true: "would be removed", false: "removed"}[r.DryRun]
	for _, removal := range r.Removals {
		p.note("%s: %s", verb, plain(removal.String()))
	}
	if r.MoreRemovals > 0 {
		p.note("... and %d more records %s", r.MoreRemovals, verb)
	}
}
