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
)

// ImportOptions say how a bundle is taken.
type ImportOptions struct {
	// DryRun only checks; the report says what would have been done.
	DryRun bool
	// Partial stores the good lines where others are bad. Without it nothing is stored
	// unless all can be.
	Partial bool
	// Mirror makes the organization what the bundle says: a record becomes what its line says of it, and what was there
	// when the import began and no line is goes for good, once everything is stored. It does not go with Partial, nor
	// for a feed.
	Mirror bool
	// Bad, with Partial, receives the bad lines as they are.
	Bad io.Writer
	// OpenWith, where set, opens secrets that were sealed to its public half.
	OpenWith *sealing.PrivateKey
	// Bounded refuses limits of the organization other than those that the operator has set, files of more
	// than 5,000,000 lines, and those of which more would be kept in memory than an import may.
	Bounded bool
	// Allowed, where set, is asked before each batch that is stored; its error ends the import. It is called by several
	// goroutines at a time.
	Allowed func(context.Context) error
	// Progress is called at most ten times a second, from one goroutine at a time.
	Progress func(Progress)
	// Turn, where set, is called again and again, after every few hundred lines, from one goroutine at a time, and
	// returns when the import may go on. An error ends it.
	Turn func(context.Context) error
}

// Counts are numbers of lines. Created, Unchanged and Updated are, after a dry run, what
// would have been done; they are 0 where bad lines kept everything from being stored.
type Counts struct {
	Lines     int `json:"lines"`
	Created   int `json:"created"`
	Unchanged int `json:"unchanged"`
	Updated   int `json:"updated"`
	Skipped   int `json:"skipped,omitempty"` // blank rows, which are no lines
	Failed    int `json:"failed"`
	Removed   int `json:"removed,omitempty"` // records that no line is, by a mirror
}

// Removal is a record that a mirror removes.
type Removal struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`             // by which a bundle names it
	Name string `json:"name,omitempty"` // what people call it
}

func (r Removal) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", strings.ReplaceAll(r.Kind, "_", " "), r.ID, r.Name))
}

// maxRemovals bounds Report.Removals.
const maxRemovals = 100

// Report is what came of an import or export. Blank lines are not counted. Of rows,
// Counts are the rows'; Kinds also has the definitions that the import makes.
type Report struct {
	Counts
	DryRun   bool              `json:"dry_run,omitempty"`
	Kinds    map[string]Counts `json:"kinds"`
	Problems []LineProblem     `json:"problems"` // of the first bad lines, by line
	More     int               `json:"more_problems,omitempty"`
	// Warnings are what does not fit of lines that are taken as they were stored.
	Warnings     []LineProblem `json:"warnings,omitempty"` // of the first such lines
	MoreWarnings int           `json:"more_warnings,omitempty"`
	// Columns are those of an import of rows; MoreColumns is how many the report has no room for.
	Columns     []Column `json:"columns,omitempty"`
	MoreColumns int      `json:"more_columns,omitempty"`
	// Encoding and Delimiter are how the rows were read: the encoding as it is named over HTTP, and of CSV what stood
	// between the cells.
	Encoding  string `json:"encoding,omitempty"`
	Delimiter string `json:"delimiter,omitempty"`
	// Removals are the first records that a mirror removes; MoreRemovals is how many others it does.
	Removals     []Removal `json:"removals,omitempty"`
	MoreRemovals int       `json:"more_removals,omitempty"`
}

// Column is what an import of rows makes of one column.
type Column struct {
	Name  string `json:"name"`
	Field string `json:"field"`          // "" where the column is left out
	Type  string `json:"type,omitempty"` // of a field that the organization defines
	New   bool   `json:"new,omitempty"`  // the field is made by the import
	Note  string `json:"note,omitempty"` // what else the column could have been
	// Shown is what the first rows would have there, of a dry run.
	Shown []string `json:"shown,omitempty"`
}

// ExportReport is what an export wrote.
type ExportReport struct {
	Lines int            `json:"lines"`
	Kinds map[string]int `json:"kinds"` // lines by kind
	// AsIs is how many of them hold records that their definitions no longer allow.
	AsIs int `json:"as_is,omitempty"`
	// LeftOut are sentences about what the bundle does not take elsewhere.
	LeftOut []string `json:"left_out"`
	// Problems are lines that an import would refuse. There should be none.
	Problems []LineProblem `json:"problems,omitempty"`
}

// LineProblem says what is wrong with one line.
type LineProblem struct {
	// Line is the line from 1; of a JSON array the element from 1; 0 for a definition that
	// an import of rows makes.
	Line   int        `json:"line"`
	Kind   string     `json:"kind"` // "" where the line does not say
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

// maxWarnings bounds Report.Warnings: one field that was dropped makes as many as there are
// records.
const maxWarnings = 100

// RefusedError says that an import stored nothing because lines are bad; the report that
// comes with it names them.
type RefusedError struct {
	Failed, Lines int
	Mirror        bool // which leaves no line out
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("nothing was imported: %d of %d lines cannot be taken; mend them", e.Failed, e.Lines)
	if e.Mirror {
		return text
	}
	return text + ", or import the others alone with --partial"
}

// NoRoomError says that an import stored nothing, because the organization may not have so many records.
type NoRoomError struct {
	New int64 // records that the file would add
	Err *store.QuotaError
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("nothing was imported: the file adds %d records, and the organization has %d of the %d it may have; delete records for good, import less, or have the limit raised",
		e.New, e.Err.Used, e.Err.Allowed)
}

// Unwrap returns the quota.
func (e *NoRoomError) Unwrap() error { return e.Err }

// InterruptedError says that an import ended while it stored. Importing the same file
// again goes on where it ended: what is stored already is left as it is.
type InterruptedError struct {
	Stored int // lines
	Lines  int
	Err    error
}

func (e *InterruptedError) Error() string {
	return fmt.Sprintf("the import ended early, with %d of %d lines stored; import the same file again to go on: %v", e.Stored, e.Lines, e.Err)
}

// Unwrap returns the cause.
func (e *InterruptedError) Unwrap() error { return e.Err }

// tally collects a Report.
type tally struct {
	kinds    map[string]*Counts
	problems []LineProblem
	more     int
	warnings []LineProblem
	unwarned int // lines beyond those in warnings
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

// problem notes what is wrong with a line. The Report keeps the first lines only, so
// beyond twice its bound the last ones are dropped.
func (t *tally) problem(line int, kind string, errs fault.List) {
	t.problems = append(t.problems, LineProblem{line, kind, kept(errs)})
	if len(t.problems) >= 2*maxProblems {
		t.trim()
	}
}

// warn notes what does not fit of a line that is taken all the same.
func (t *tally) warn(line int, kind string, errs fault.List) {
	if len(t.warnings) >= maxWarnings {
		t.unwarned++
		return
	}
	t.warnings = append(t.warnings, LineProblem{line, kind, kept(errs)})
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
	r := Report{Kinds: map[string]Counts{}, Problems: t.problems, More: t.more, Warnings: t.warnings, MoreWarnings: t.unwarned}
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
