package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"tenantry/crypto/sealing"
	"tenantry/modules/audit"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
	"tenantry/operation"
)

// ImportRequest says what an import does with its input: a bundle, or rows of a file if As is set.
type ImportRequest struct {
	Org     string `json:"org" rule:"ref=organization"`
	DryRun  bool   `json:"dry_run,omitempty" doc:"only check, and show what would be done"`
	Partial bool   `json:"partial,omitempty" doc:"store the good lines even if others are bad"`
	// Mirror is as in bundle.ImportOptions. Without Yes it is refused after a dry run.
	Mirror bool `json:"mirror,omitempty" without:"partial" doc:"make the organization match the bundle: records that the bundle lacks are removed for good"`
	Yes    bool `json:"yes,omitempty" doc:"confirm the removals of --mirror"`
	// As is the resource that rows become, see tabular.Options.
	As string `json:"as,omitempty" doc:"take rows as <contacts or records:NAME>, or as any other resource: folders, submissions:FORM"`
	// Map has the fields of each column. Empty: columns are matched by name, and missing fields are report.
	Map map[string][]string `json:"map,omitempty" write:"COLUMN=FIELD, or COLUMN= to leave a column out" doc:"map a column to a field, <COLUMN=FIELD>, or COLUMN=FIELD:FORMAT to say how values are written (dd.mm.yyyy, 1.234,56, text, list and others); may be repeated, also for one column. Other columns are skipped unless *=* is given (default: all are matched by name, and missing fields are created)"`
	// Key is the field that identifies the stored record of a row; empty: see tabular.Options.
	Key string `json:"key,omitempty" doc:"rows that share this <field> with a stored record change it instead of adding one"`
	// Secrets is the private half of the transfer key to which an export sealed encrypted values.
	Secrets string `json:"secrets,omitempty" use:"secret" read:"file" doc:"the <file> with the private half of the key that encrypted values of the bundle were sealed to"`
	// Format is tabular.CSV or tabular.JSON.
	Format string `json:"format,omitempty" doc:"the format of rows, <csv or json> (default by the name of the file)"`
	// Encoding and Delimiter are as in tabular.Options.
	Encoding  string `json:"encoding,omitempty" doc:"the <encoding> of the file, such as windows-1252, or guess to detect it (default utf-8, or the byte order mark's)"`
	Delimiter string `json:"delimiter,omitempty" doc:"the <delimiter> of CSV: comma, semicolon, tab, pipe or another character (default detected)"`
}

// ExportRequest says what an export contains.
type ExportRequest struct {
	Org           string `json:"org" rule:"ref=organization"`
	RevealSecrets bool   `json:"reveal_secrets,omitempty" doc:"write secrets in clear"`
	// Secrets is the public half of a transfer key, to which encrypted values are sealed.
	Secrets     string `json:"secrets,omitempty" read:"file" without:"reveal-secrets" doc:"the <file> with the public half of a key (see tenantry keyring transfer-key) to seal encrypted values to"`
	WithFiles   bool   `json:"with_files,omitempty" doc:"write a zip archive of the bundle and the bytes of its files"`
	SkipMissing bool   `json:"skip_missing,omitempty" doc:"with --with-files: leave out files whose bytes are missing or damaged (default: the export fails and names the first)"`
}

func (s *Server) importCommand() Command {
	return command(Command{
		Line: "import --org SLUG FILE|-", Short: "Import a bundle, or rows of a CSV or JSON file", Reads: true, Audit: operation.AuditNoted,
		Long: "Import a bundle (lines of JSON, or an archive of them with the bytes of files), or with --as the rows of a CSV file or a JSON array.\n" +
			"Nothing is stored unless every line can be; --partial stores the good lines and writes the bad ones to a file beside the input.\n" +
			"With --key, a row changes the stored record that has the same value of that field: the columns given, if their cells are not empty.\n" +
			"Importing the same file again changes nothing.\n" +
			"With --mirror the organization is made to match the bundle of an export: each record gets the values of its line and no others, and\n" +
			"records, definitions, people, roles, teams and service accounts that the bundle lacks are removed for good. Without --yes it\n" +
			"shows what would be removed, and changes nothing.",
		Example: "  tenantry import --org acme bundle.ndjson --dry-run\n" +
			"  tenantry import --org acme --as contacts --map Mail=email,Town=city people.csv\n" +
			"  tenantry import --org acme --as contacts --key email corrected.csv\n" +
			"  tenantry import --org acme --as records:movie movies.json\n" +
			"  tenantry import --org acme --secrets transfer.key bundle.ndjson\n" +
			"  tenantry import --org acme --mirror --dry-run bundle.ndjson",
		Hint: "import the same file again to go on",
	}, s.importBundle)
}

func (s *Server) exportCommand() Command {
	return command(Command{
		Line: "export --org SLUG [-o FILE]", Short: "Export an organization as a bundle", Writes: true,
		Long: "Export an organization as a bundle, to standard output or a file that only you can read.\n" +
			"Encrypted values then import into this organization alone. --secrets seals them to a key, under which they import anywhere;\n" +
			"--reveal-secrets writes them in clear. Both are audited. At the end it says what the bundle does not contain.\n" +
			"--with-files writes a zip archive instead: bundle.ndjson, and the bytes of each file below files/. It needs no room on the disk\n" +
			"besides that of the archive itself.",
		Example: "  tenantry export --org acme -o acme.ndjson\n" +
			"  tenantry export --org acme --with-files -o acme.zip",
		Hint: "the export is not complete",
	}, s.export)
}

// importBundle runs an import. It returns no report if the import did not begin.
func (s *Server) importBundle(ctx context.Context, c *call, in ImportRequest) (_ *bundle.Report, err error) {
	switch {
	case in.Mirror && (in.As != "" || in.Partial):
		other := map[bool]string{true: "--as", false: "--partial"}[in.As != ""]
		return nil, fail(CodeInvalid, "--mirror cannot be combined with %s", other)
	case in.Yes && !in.Mirror:
		return nil, fail(CodeInvalid, "--yes confirms what --mirror removes")
	}
	unconfirmed := in.Mirror && !in.Yes && !in.DryRun
	in.DryRun = in.DryRun || unconfirmed
	options := tabular.Options{
		As: in.As, Mirror: in.Mirror, Format: in.Format, Map: in.Map, Key: in.Key,
		Encoding: in.Encoding, Delimiter: in.Delimiter, DryRun: in.DryRun, Partial: in.Partial,
		Progress: func(p bundle.Progress) {
			c.Progress(Progress{Step: p.Phase, Done: p.Bytes, Total: p.Total, Bytes: true})
		},
	}
	if in.Secrets != "" {
		if options.OpenWith, err = sealing.ParseTransferKey(in.Secrets); err != nil {
			return nil, fail(CodeInvalid, "%v", err)
		}
	}
	src, remove, err := s.spool(ctx, c.Input)
	if err != nil {
		return nil, err
	}
	defer remove()
	if in.Partial && !in.DryRun {
		options.Bad = c.Output
	}
	report, err := tabular.Load(ctx, s.Transfer, c.Tenant, src, options)
	if !in.DryRun && report.Created+report.Updated+report.Removed > 0 {
		c.AuditNote = map[string]string{
			"created": strconv.Itoa(report.Created), "updated": strconv.Itoa(report.Updated),
			"failed": strconv.Itoa(report.Failed),
		}
		if in.Mirror {
			c.AuditNote["removed"] = strconv.Itoa(report.Removed)
		}
	}
	if n := report.FilesWithout; n > 0 {
		c.addNote(fmt.Sprintf("%d files came without their bytes: their records say that the bytes are not here. "+
			"An archive made by export --with-files has them.", n))
	}
	if err == nil && unconfirmed {
		err = fail(CodeInvalid, "nothing was imported yet: --mirror would create %d records, update %d and remove %d for good; confirm with --yes",
			report.Created, report.Updated, report.Removed)
	}
	s.Log.InfoContext(ctx, "an import ended",
		"organization", in.Org, "lines", report.Lines, "failed", report.Failed, "ok", err == nil)
	return &report, err
}

// spool copies the input of a command to a file. The caller must call remove, which deletes the file.
func (s *Server) spool(ctx context.Context, input io.Reader) (src bundle.Source, remove func(), err error) {
	if input == nil {
		return src, nil, fail(CodeInvalid, "there is nothing to read")
	}
	if err := os.MkdirAll(s.TempDir, 0o700); err != nil {
		return src, nil, fmt.Errorf("the folder for imports: %w", err)
	}
	src, done, err := bundle.Spool(ctx, input, s.TempDir, s.Reserve)
	return src, func() {
		if err := done(); err != nil {
			s.Log.WarnContext(ctx, "the copy of an import could not be removed", "error", err)
		}
	}, err
}

func (s *Server) export(ctx context.Context, c *call, in ExportRequest) (*bundle.ExportReport, error) {
	c.Note("reveal_secrets", strconv.FormatBool(in.RevealSecrets))
	if in.SkipMissing && !in.WithFiles {
		return nil, fail(CodeInvalid, "--skip-missing is for exports --with-files")
	}
	if in.WithFiles {
		c.Note("with_files", "true")
	}
	options := bundle.ExportOptions{RevealSecrets: in.RevealSecrets, Files: in.WithFiles, SkipMissing: in.SkipMissing}
	if in.Secrets != "" {
		var err error
		if options.SealTo, err = sealing.ParseTransferPublicKey(in.Secrets); err == nil && in.RevealSecrets {
			err = errors.New("encrypted values are written in clear or sealed to a key, not both")
		}
		if err != nil {
			return nil, fail(CodeInvalid, "%v", err)
		}
		c.Note("secrets_sealed_to", options.SealTo.KeyID())
	}
	rec := audit.Record{
		Operation: "export", Subject: c.Principal.Subject(), Outcome: audit.OK, Facts: c.AuditNote,
	}
	// The record is written first, because an export that is not recorded must not happen.
	if err := s.Audit.Write(ctx, c.Tenant.Workspace(), rec); err != nil {
		return nil, fmt.Errorf("nothing was exported, because the audit log cannot be written: %w", err)
	}
	buffered := bufio.NewWriterSize(c.Output, 64<<10)
	report, err := s.Transfer.Export(ctx, c.Tenant, buffered, options)
	if err == nil {
		err = buffered.Flush()
	}
	s.Log.InfoContext(ctx, "an export ended",
		"organization", in.Org, "lines", report.Lines, "reveal_secrets", in.RevealSecrets, "ok", err == nil)
	if err != nil {
		return nil, err
	}
	for _, text := range report.LeftOut {
		c.addNote("Note: " + text)
	}
	if report.AsIs > 0 {
		c.addNote(fmt.Sprintf("%d lines hold records that their definitions no longer allow; "+
			"they are marked and import as they are.", report.AsIs))
	}
	for _, problem := range report.Problems {
		c.addNote("An import would refuse a line: " + problem.String())
	}
	return &report, nil
}
