package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tenantry/crypto/secret"
	"tenantry/gateway/control"
	"tenantry/gateway/transfer"
)

type importFlags struct {
	org             string
	dryRun, partial bool
	as, format, key string
	mapping         []string
	secrets         string
}

func (p *program) importCommand() *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use: "import --org SLUG FILE|-", Short: "Load a bundle, or rows of a CSV or JSON file", Args: oneArg("the file, or - for standard input"),
		Long: "Load a bundle (lines of JSON), or with --as the rows of a CSV file or a JSON array.\n" +
			"Nothing is stored unless every line can be; --partial stores the good lines and writes the bad ones to a file beside the input.\n" +
			"With --key, a row that has a stored record's value of that field changes the record: the columns given, where their cells are not empty.\n" +
			"Importing the same file again changes nothing.",
		Example: "  tenantry import --org acme bundle.ndjson --dry-run\n" +
			"  tenantry import --org acme --as contacts --map Mail=email,Town=city people.csv\n" +
			"  tenantry import --org acme --as contacts --key email corrected.csv\n" +
			"  tenantry import --org acme --as records:movie movies.json\n" +
			"  tenantry import --org acme --secrets transfer.key bundle.ndjson",
	}
	orgFlag(cmd, &f.org)
	flags := cmd.Flags()
	flags.BoolVar(&f.dryRun, "dry-run", false, "check only, and show what would be done")
	flags.BoolVar(&f.partial, "partial", false, "store the good lines where others are bad")
	flags.StringVar(&f.as, "as", "", "take rows as `contacts or records:NAME`")
	flags.StringSliceVar(&f.mapping, "map", nil, "fields by column, `COLUMN=FIELD`; may be repeated, for one column too, and * for all others by *=* (default all by name; missing fields are made)")
	flags.StringVar(&f.key, "key", "", "rows that share this `field` with a stored record change it instead of adding one")
	flags.StringVar(&f.secrets, "secrets", "", "the `file` with the private half of the key that encrypted values of the bundle were sealed to")
	flags.StringVar(&f.format, "format", "", "the format of rows, `csv or json` (default by the name of the file)")
	cmd.RunE = run(func(ctx context.Context, args []string) error {
		request, err := f.request(args[0])
		if err != nil {
			return err
		}
		return p.withOrg(ctx, how{command: name(cmd)}, f.org, func(ctx context.Context, c *control.Client) error {
			return p.importFile(ctx, c, request, args[0])
		})
	})
	return cmd
}

func (f *importFlags) request(path string) (control.ImportRequest, error) {
	r := control.ImportRequest{Org: f.org, DryRun: f.dryRun, Partial: f.partial}
	if f.as == "" {
		if len(f.mapping) > 0 || f.format != "" || f.key != "" {
			return r, usagef("--map, --key and --format are for rows; say with --as what a row is")
		}
		if strings.EqualFold(filepath.Ext(path), ".csv") {
			return r, usagef("%s holds rows; say what a row is with --as contacts or --as records:NAME", path)
		}
		if f.secrets == "" {
			return r, nil
		}
		text, err := transferKey(f.secrets)
		r.Secrets = secret.New(text)
		return r, err
	}
	if f.secrets != "" {
		return r, usagef("--secrets is for bundles; rows hold no encrypted values")
	}
	object, isRecords := strings.CutPrefix(f.as, "records:")
	if f.as != "contacts" && (!isRecords || object == "") {
		return r, usagef("--as %s: it is contacts, or records: and the name of a custom object", f.as)
	}
	rows := &control.Rows{As: f.as, Format: f.format, Key: f.key}
	if len(f.mapping) > 0 {
		rows.Map = map[string][]string{}
	}
	for _, text := range f.mapping {
		column, field, ok := strings.Cut(text, "=")
		if !ok || column == "" {
			return r, usagef("--map %s: write COLUMN=FIELD, or COLUMN= to leave a column out", text)
		}
		rows.Map[column] = append(rows.Map[column], field)
	}
	if rows.Format == "" {
		rows.Format = strings.TrimPrefix(strings.ToLower(filepath.Ext(path)), ".")
	}
	if rows.Format != transfer.CSV && rows.Format != transfer.JSON {
		return r, usagef("the format of %s is not known; say --format csv or --format json", path)
	}
	r.Rows = rows
	return r, nil
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

func (p *program) importFile(ctx context.Context, c *control.Client, r control.ImportRequest, path string) error {
	input, size := p.stdin, int64(0)
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
		input, size = f, info.Size()
	}
	bad := &lateFile{path: badPath(path, r)}
	if r.Partial && !r.DryRun {
		if err := bad.check(); err != nil {
			return err
		}
	}
	bar := p.newBar(size)
	report, err := c.Import(ctx, r, input, control.ImportFeedback{Sent: bar.sent, Progress: bar.at, Bad: bad})
	bar.end()
	err = errors.Join(err, bad.close())
	if report == nil {
		return err
	}
	p.problems(report)
	if bad.file != nil {
		p.note("The lines that could not be taken are in %s", bad.path)
	}
	return errors.Join(err, p.print(report, func() grid { return reportGrid(report) }))
}

// badPath names the file of the lines that cannot be taken.
func badPath(path string, r control.ImportRequest) string {
	ext := ".ndjson"
	if r.Rows != nil {
		ext = "." + r.Rows.Format
	}
	if path == "-" {
		path = "stdin"
	}
	return path + ".bad" + ext
}

// lateFile is a file that is made when something is written, and never in place of another.
type lateFile struct {
	path string
	file *os.File
}

func (l *lateFile) check() error {
	if _, err := os.Lstat(l.path); err == nil {
		return fmt.Errorf("the file %s is there already, perhaps of an earlier import; move it away or delete it first", l.path)
	}
	return nil
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
	for _, problem := range r.Problems[:min(len(r.Problems), maxShown)] {
		p.note("%s", plain(problem.String()))
	}
	if n := len(r.Problems) + r.More - maxShown; n > 0 {
		p.note("... and %d more lines with problems", n)
	}
	for _, w := range r.Warnings[:min(len(r.Warnings), maxShown)] {
		p.note("taken as it was stored: %s", plain(w.String()))
	}
	if n := len(r.Warnings) + r.MoreWarnings - maxShown; n > 0 {
		p.note("... and %d more lines taken as they were stored", n)
	}
}

func reportGrid(r *transfer.Report) grid {
	g := grid{header: []string{"KIND", "LINES", "CREATED", "UPDATED", "UNCHANGED", "SKIPPED", "FAILED"}}
	row := func(name string, c transfer.Counts) {
		g.add(name, strconv.Itoa(c.Lines), strconv.Itoa(c.Created), strconv.Itoa(c.Updated), strconv.Itoa(c.Unchanged), strconv.Itoa(c.Skipped), strconv.Itoa(c.Failed))
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
		made := ""
		if c.New {
			made = "new"
		}
		field := c.Field
		if field == "" {
			field = "(left out)"
		}
		g.add(c.Name, field, c.Type, made)
	}
	return g
}

func (p *program) exportCommand() *cobra.Command {
	var r control.ExportRequest
	var path string
	cmd := &cobra.Command{
		Use: "export --org SLUG [-o FILE]", Short: "Write an organization as a bundle", Args: cobra.NoArgs,
		Long: "Write an organization as a bundle, to standard output or a file that only you can read.\n" +
			"Encrypted values then import into this organization alone. --secrets seals them to a key, under which they import anywhere;\n" +
			"--reveal-secrets writes them in clear. Both are audited. At the end it says what the bundle does not take elsewhere.",
	}
	var secrets string
	orgFlag(cmd, &r.Org)
	cmd.Flags().StringVarP(&path, "out", "o", "", "the `file` to write, replaced when the export is complete (default standard output)")
	cmd.Flags().BoolVar(&r.RevealSecrets, "reveal-secrets", false, "write secrets in clear")
	cmd.Flags().StringVar(&secrets, "secrets", "", "the `file` with the public half of a key (see tenantry keyring transfer-key) to seal encrypted values to")
	cmd.MarkFlagsMutuallyExclusive("reveal-secrets", "secrets")
	cmd.RunE = run(func(ctx context.Context, _ []string) (err error) {
		if secrets != "" {
			if r.Secrets, err = transferKey(secrets); err != nil {
				return err
			}
		}
		return p.withOrg(ctx, how{command: name(cmd)}, r.Org, func(ctx context.Context, c *control.Client) error {
			if path == "" || path == "-" {
				report, err := c.Export(ctx, r, p.stdout)
				if err == nil {
					p.exported(report)
				}
				return err
			}
			return p.exportFile(ctx, c, r, path)
		})
	})
	return cmd
}

func (p *program) exportFile(ctx context.Context, c *control.Client, r control.ExportRequest, path string) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	defer os.Remove(f.Name()) // gone already where the export is complete
	bar := p.newBar(0)
	report, err := c.Export(ctx, r, io.MultiWriter(f, bar))
	bar.end()
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	p.exported(report)
	return p.print(report, func() grid {
		g := grid{header: []string{"KIND", "LINES"}}
		for _, name := range slices.Sorted(maps.Keys(report.Kinds)) {
			g.add(name, strconv.Itoa(report.Kinds[name]))
		}
		g.add("total", strconv.Itoa(report.Lines))
		return g
	})
}

// exported says what the bundle does not take elsewhere, and what is odd about it.
func (p *program) exported(r *transfer.ExportReport) {
	p.notes(r.LeftOut)
	if r.AsIs > 0 {
		p.note("%d lines hold records that their definitions no longer allow; they are marked and import as they are.", r.AsIs)
	}
	for _, problem := range r.Problems {
		p.note("An import would refuse a line: %s", plain(problem.String()))
	}
}
