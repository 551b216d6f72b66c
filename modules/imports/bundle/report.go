package bundle

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// ImportOptions say how a bundle is imported.
type ImportOptions struct {
	// DryRun only checks; the report says what would have been done.
	DryRun bool
	// Partial stores the good lines even if others are bad. Otherwise bad lines keep everything from being stored.
	Partial bool
	// Mirror makes the organization equal to the bundle: a record becomes exactly what its line says, and records that
	// existed when the import began but have no line are deleted for good once everything is stored. It excludes
	// Partial and does not apply to a feed.
	Mirror bool
	// Bad, with Partial, receives the bad lines unchanged.
	Bad io.Writer
	// OpenWith, if set, opens secrets that were sealed to its public half.
	OpenWith *sealing.PrivateKey
	// Bounded refuses limits of the organization that differ from those of the operator, files with more than
	// 5,000,000 lines, and files that would take more memory than an import may.
	Bounded bool
	// Allowed, if set, is called before each batch is stored, concurrently. Its error ends the import.
	Allowed func(context.Context) error
	// Progress is called at most ten times a second, from one goroutine at a time.
	Progress func(Progress)
	// Turn, if set, is called after every few hundred lines, from one goroutine at a time. It returns when the import
	// may continue; its error ends the import.
	Turn func(context.Context) error
}

// Counts are numbers of lines. After a dry run, Created, Unchanged and Updated say what would have been done. They are
// 0 if bad lines kept everything from being stored.
type Counts struct {
	Lines     int `json:"lines"`
	Created   int `json:"created"`
	Unchanged int `json:"unchanged"`
	Updated   int `json:"updated"`
	Skipped   int `json:"skipped,omitempty"` // blank rows, which do not count as lines
	Failed    int `json:"failed"`
	Removed   int `json:"removed,omitempty"` // records without a line that a mirror removes
}

// Removal is a record that a mirror removes.
type Removal struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`             // as in a bundle
	Name string `json:"name,omitempty"` // for people
}

func (r Removal) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", strings.ReplaceAll(r.Kind, "_", " "), r.ID, r.Name))
}

// maxRemovals bounds Report.Removals.
const maxRemovals = 100

// Report is the result of an import. Blank lines are not counted. For an import of rows, Counts are those of the rows;
// Kinds also counts the definitions that the import creates.
type Report struct {
	Counts
	DryRun   bool              `json:"dry_run,omitempty"`
	Kinds    map[string]Counts `json:"kinds"`
	Problems []LineProblem     `json:"problems"` // of the first bad lines, by line
	More     int               `json:"more_problems,omitempty"`
	// Warnings are the problems of lines that are accepted as stored.
	Warnings     []LineProblem `json:"warnings,omitempty"` // of the first such lines
	MoreWarnings int           `json:"more_warnings,omitempty"`
	// Columns are those of an import of rows; MoreColumns is how many more there are.
	Columns     []Column `json:"columns,omitempty"`
	MoreColumns int      `json:"more_columns,omitempty"`
	// Encoding and Delimiter are how the rows were read: the IANA name of the encoding and, for CSV, the delimiter.
	Encoding  string `json:"encoding,omitempty"`
	Delimiter string `json:"delimiter,omitempty"`
	// Removals are the first records that a mirror removes; MoreRemovals is how many more there are.
	Removals     []Removal `json:"removals,omitempty"`
	MoreRemovals int       `json:"more_removals,omitempty"`
	// FilesWithout is the number of lines of files that came without the bytes that they have where they were exported.
	FilesWithout int `json:"files_without,omitempty"`
}

// Column is one column of an import of rows.
type Column struct {
	Name  string `json:"name"`
	Field string `json:"field"`          // "" if the column is left out
	Type  string `json:"type,omitempty"` // type of a field that the organization defines
	New   bool   `json:"new,omitempty"`  // the import creates the field
	Note  string `json:"note,omitempty"` // other possible meanings of the column
	// Shown are the values of the first rows, of a dry run.
	Shown []string `json:"shown,omitempty"`
}

// ExportReport is the result of an export.
type ExportReport struct {
	Lines int            `json:"lines"`
	Kinds map[string]int `json:"kinds"` // lines by kind
	// AsIs is how many lines hold records that their definitions no longer allow.
	AsIs int `json:"as_is,omitempty"`
	// Files and Bytes are the number and the size of the contents of files in an archive. Missing is how many were left
	// out, and MissingFiles are the first files that have them.
	Files        int      `json:"files,omitempty"`
	Bytes        int64    `json:"bytes,omitempty"`
	Missing      int      `json:"missing,omitempty"`
	MissingFiles []string `json:"missing_files,omitempty"`
	// LeftOut are sentences about what the bundle does not carry to another organization.
	LeftOut []string `json:"left_out"`
	// Problems are lines that an import would refuse. There should be none.
	Problems []LineProblem `json:"problems,omitempty"`
}

// LineProblem holds the problems of one line.
type LineProblem struct {
	// Line is the line from 1; in a JSON array the element from 1; 0 for a definition that an import of rows creates.
	Line   int        `json:"line"`
	Kind   string     `json:"kind"` // "" if the line does not give it
	Errors fault.List `json:"errors"`
}

func (p LineProblem) String() string {
	words := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		words[i] = e.Message
	}
	kind := p.Kind
	if kind == "" {
		kind = "unreadable"
	}
	return fmt.Sprintf("line %d (%s): %s", p.Line, kind, strings.Join(words, "; "))
}

// maxProblems bounds Report.Problems.
const maxProblems = 1000

// maxWarnings bounds Report.Warnings, because one dropped field can cause a warning for every record.
const maxWarnings = 100

// RefusedError says that an import stored nothing because lines are bad. The report that comes with it names them.
type RefusedError struct {
	Failed, Lines int
	Mirror        bool // cannot skip lines
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("nothing was imported: %d of %d lines are bad; correct them", e.Failed, e.Lines)
	if e.Mirror {
		return text
	}
	return text + ", or import only the others with --partial"
}

// NoRoomError says that an import stored nothing because of a quota.
type NoRoomError struct {
	New int64 // records, or bytes of files, that the file would add
	Err *store.QuotaError
}

func (e *NoRoomError) Error() string {
	if e.Err.Limit == tenants.LimitFileBytes {
		return fmt.Sprintf("nothing was imported: the archive adds files of %d bytes or more, and the organization has %d of the %d "+
			"bytes it may have; purge files, or ask the operator for a higher limit file_bytes", e.New, e.Err.Used, e.Err.Allowed)
	}
	return fmt.Sprintf("nothing was imported: the file adds %d records, and the organization has %d of the %d it may "+
		"have; delete records for good, import fewer, or ask the operator for a higher limit",
		e.New, e.Err.Used, e.Err.Allowed)
}

// Unwrap returns the quota.
func (e *NoRoomError) Unwrap() error { return e.Err }

// InterruptedError says that an import ended while it was storing. Importing the same file again continues it: lines
// that are stored are left unchanged.
type InterruptedError struct {
	Stored int // lines
	Lines  int
	Err    error
}

func (e *InterruptedError) Error() string {
	return fmt.Sprintf(
		"the import ended early, with %d of %d lines stored; import the same file again to continue: %v", e.Stored,
		e.Lines, e.Err,
	)
}

// Unwrap returns the cause.
func (e *InterruptedError) Unwrap() error { return e.Err }

// tally collects a Report.
type tally struct {
	kinds    map[string]*Counts
	problems []LineProblem
	more     int
	warnings []LineProblem
	unlisted int // lines beyond those in warnings
	removed  []Removal
}

func newTally() *tally { return &tally{kinds: map[string]*Counts{}} }

func (t *tally) of(kind string) *Counts {
	c := t.kinds[kind]
	if c == nil {
		c = &Counts{}
		t.kinds[kind] = c
	}
	return c
}

// problem notes the problems of a line. The report has only the first lines, so the last ones are dropped when there
// are twice as many.
func (t *tally) problem(line int, kind string, errs fault.List) {
	t.problems = append(t.problems, LineProblem{line, kind, cloneFaults(errs)})
	if len(t.problems) >= 2*maxProblems {
		t.trim()
	}
}

// warn notes the problems of a line that is accepted nevertheless.
func (t *tally) warn(line int, kind string, errs fault.List) {
	if len(t.warnings) >= maxWarnings {
		t.unlisted++
		return
	}
	t.warnings = append(t.warnings, LineProblem{line, kind, cloneFaults(errs)})
}

func (t *tally) trim() {
	slices.SortStableFunc(t.problems, func(a, b LineProblem) int { return a.Line - b.Line })
	if n := len(t.problems); n > maxProblems {
		t.more += n - maxProblems
		t.problems = t.problems[:maxProblems:maxProblems]
	}
}

func (t *tally) report() Report {
	t.trim()
	r := Report{
		Kinds: map[string]Counts{}, Problems: t.problems, More: t.more, Warnings: t.warnings, MoreWarnings: t.unlisted,
	}
	if r.Problems == nil {
		r.Problems = []LineProblem{}
	}
	for name, c := range t.kinds {
		if name != "" {
			r.Kinds[name] = *c
		}
		r.Lines += c.Lines
		r.Created += c.Created
		r.Unchanged += c.Unchanged
		r.Updated += c.Updated
		r.Failed += c.Failed
		r.Removed += c.Removed
	}
	if r.Removals = t.removed[:min(len(t.removed), r.Removed)]; len(r.Removals) > 0 {
		r.MoreRemovals = r.Removed - len(r.Removals)
	}
	return r
}
