package transfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"tenantry/backends/schema"
	"tenantry/tenants"
)

// Formats of a file of rows.
const (
	CSV  = "csv"
	JSON = "json"
)

// RowOptions say what rows become.
type RowOptions struct {
	// As is "contacts", or "records:NAME" for records of a custom object.
	As string
	// Format is CSV or JSON. A CSV file has a header and commas, semicolons or tabs; a JSON
	// file is an array of flat objects, or one such object after the other.
	Format string
	// Map leads from columns to fields; other columns are left out, unless it leads from
	// "*" to "*". A column that leads to "" is left out. Nil: all columns are matched by
	// name, without regard to case, blanks and punctuation. A column may lead to several.
	Map map[string][]string
	// Key, where set, is the field by which a row is a stored record: one of every contact's
	// but the tags, external_id, or one that the organization defines, lists and encrypted ones
	// apart. A row that has the value of no record adds one, and so does a row without a value.
	// Of two rows with one value the later is refused, as is one whose value several records
	// share.
	Key string

	DryRun   bool
	Partial  bool
	Bad      io.Writer // with Partial: the bad rows, in the format of the file
	Progress func(Progress)
}

// Column is what an import of rows makes of one column.
type Column struct {
	Name  string `json:"name"`
	Field string `json:"field"`          // "" where the column is left out
	Type  string `json:"type,omitempty"` // of a field that the organization defines
	New   bool   `json:"new,omitempty"`  // the field is made by the import
}

// ErrRowOptions says that the options of an import of rows make no sense.
var ErrRowOptions = errors.New("these rows cannot be imported so")

// maxColumns bounds the columns of a file.
const maxColumns = 1000

// ImportRows takes rows as contacts or as records. Rows without any value are skipped. Fields that are missing are made, of
// the types that the data suggests; so is the custom object. A column `id` is taken for
// external_id, and `name` of a contact for last_name, where no other column is. Empty
// cells are missing values. A list becomes a MultiSelect, or one text where the field is
// one. The report says what became of each column, also after a dry run. Errors: those
// of Import, and ErrRowOptions.
func (s *Service) ImportRows(ctx context.Context, t *tenants.Tenant, src Source, o RowOptions) (Report, error) {
	f := &rowFeed{src: src, format: o.Format, mapping: o.Map, key: o.Key}
	name, isRecord := strings.CutPrefix(o.As, "records:")
	switch {
	case o.Format != CSV && o.Format != JSON:
		return newTally().report(), fmt.Errorf("%w: the format is csv or json", ErrRowOptions)
	case isRecord && !schema.ValidName(name):
		return newTally().report(), fmt.Errorf("%w: the name of a custom object has 1 to 64 lower-case letters, digits or _, a letter first", ErrRowOptions)
	case !isRecord && o.As != "contacts":
		return newTally().report(), fmt.Errorf("%w: rows become contacts or records:NAME", ErrRowOptions)
	}
	t, err := s.deps.Directory.BySlug(ctx, t.Org.Slug) // as it is now
	if err != nil {
		return newTally().report(), err
	}
	if isRecord {
		f.object = name
	}
	f.session = s.session(t, o.Progress)
	r, err := f.session.run(ctx, f, ImportOptions{DryRun: o.DryRun, Partial: o.Partial, Bad: o.Bad})
	r.Columns = f.columns()
	failed := r.Failed
	r.Counts = r.Kinds[f.kind()] // without the definitions, which are on no line
	r.Failed, r.Skipped = failed, f.blanks
	var refused *RefusedError
	if errors.As(err, &refused) {
		refused.Lines = r.Lines
	}
	for i := range r.Problems {
		if r.Problems[i].Line > f.last { // a definition, which is on no line
			r.Problems[i].Line = 0
		}
	}
	return r, err
}

// target is what one column becomes.
type target struct {
	at     int // of the column
	column string
	field  string // "" where it is left out
	custom bool   // the field is one that the organization defines
	list   bool   // the field is a list of every contact
	typ    string // of a custom field
	fresh  bool   // the field is to be made
	guess  guess
}

// guess narrows the type of a column down.
type guess struct {
	typ     string
	samples []string
	lists   bool
}

const guessBatch = 256

func (g *guess) add(sample string) {
	if strings.TrimSpace(sample) == "" {
		return
	}
	if g.samples = append(g.samples, sample); len(g.samples) >= guessBatch {
		g.fold()
	}
}

// fold joins what the samples suggest with what others suggested: where they differ, the
// column is text.
func (g *guess) fold() {
	if len(g.samples) == 0 {
		return
	}
	typ := schema.Guess(g.samples)
	g.samples = g.samples[:0]
	switch {
	case g.typ == "" || g.typ == typ:
		g.typ = typ
	case g.typ == schema.LongText || typ == schema.LongText:
		g.typ = schema.LongText
	default:
		g.typ = schema.Text
	}
}

func (g *guess) result() string {
	g.fold()
	switch {
	case g.lists && (g.typ == "" || g.typ == schema.Text):
		return schema.MultiSelect
	case g.typ == "":
		return schema.Text
	}
	return g.typ
}

// squash returns a name without what people spell differently.
func squash(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r == '_' || r == '-' || r == ' ' || r == '.' || r == '/' || r == '\t':
			return -1
		}
		return r
	}, strings.TrimSpace(name))
}

// keyFor returns an identifier for a new field: "Production Budget" is production_budget.
func keyFor(name string, position int) string {
	var b strings.Builder
	gap := false
	for _, r := range name {
		if r >= 'A' && r <= 'Z' {
			r += 'a' - 'A'
		}
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			gap = b.Len() > 0
			continue
		}
		if gap {
			b.WriteByte('_')
			gap = false
		}
		b.WriteRune(r)
		if b.Len() >= 56 { // leaves room for a number
			break
		}
	}
	if b.Len() == 0 {
		return fmt.Sprintf("column_%d", position)
	}
	return b.String()
}
