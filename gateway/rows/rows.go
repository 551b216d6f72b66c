// Package rows imports the rows of CSV and JSON files, as contacts or as records of a custom
// object. Each becomes a line of a bundle, and what its columns lack is defined first.
package rows

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"tenantry/backends/objects"
	"tenantry/backends/resource"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/gateway/transfer"
	"tenantry/internal/strictjson"
	"tenantry/tenants"
)

// Formats of a file of rows.
const (
	CSV  = "csv"
	JSON = "json"
)

// Options say what rows become.
type Options struct {
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
	Progress func(transfer.Progress)
}

// ErrOptions says that the options of an import of rows make no sense.
var ErrOptions = errors.New("these rows cannot be imported so")

// maxColumns bounds the columns of a file.
const maxColumns = 1000

// Import takes rows as contacts or as records. Rows without any value are skipped. Fields that
// are missing are made, of the types that the data suggests; so is the custom object. A column
// `id` is taken for external_id, and `name` of a contact for last_name, where no other column
// is. Empty cells are missing values. A list becomes a MultiSelect, or one text where the field
// is one. The report says what became of each column, also after a dry run. Errors: those of
// transfer.Service.Import, and ErrOptions.
func Import(ctx context.Context, s *transfer.Service, t *tenants.Tenant, src transfer.Source, o Options) (transfer.Report, error) {
	f := &feed{src: src, o: o, kind: "contact", values: "fields"}
	name, isRecord := strings.CutPrefix(o.As, "records:")
	none := transfer.Report{Kinds: map[string]transfer.Counts{}, Problems: []transfer.LineProblem{}}
	switch {
	case o.Format != CSV && o.Format != JSON:
		return none, fmt.Errorf("%w: the format is csv or json", ErrOptions)
	case isRecord && !schema.ValidName(name):
		return none, fmt.Errorf("%w: the name of a custom object has 1 to 64 lower-case letters, digits or _, a letter first", ErrOptions)
	case !isRecord && o.As != "contacts":
		return none, fmt.Errorf("%w: rows become contacts or records:NAME", ErrOptions)
	case isRecord:
		f.object, f.kind, f.values = name, "record", "values"
	}
	r, err := s.ImportFeed(ctx, t, f, transfer.ImportOptions{DryRun: o.DryRun, Partial: o.Partial, Bad: o.Bad, Progress: o.Progress})
	for _, c := range f.columns {
		for _, t := range c.targets {
			r.Columns = append(r.Columns, transfer.Column{Name: c.name, Field: t.field, Type: t.typ, New: t.fresh})
		}
	}
	failed := r.Failed
	r.Counts = r.Kinds[f.kind] // without the definitions, which are on no line
	r.Failed, r.Skipped = failed, f.blanks
	var refused *transfer.RefusedError
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

// feed makes lines of a bundle of rows.
type feed struct {
	src    transfer.Source
	o      Options
	object string // the custom object's name; "" for contacts
	kind   string // of the lines
	values string // what they call the values of fields that the organization defined

	into     *transfer.Into
	existing *objects.Definition // of the custom object, where there is one
	defined  map[string]string   // the types of the fields that the organization defined
	columns  []column
	byName   map[string]int
	planned  bool
	last     int // number of the last row
	blanks   int
	key      *target // nil where rows have none
	keyed    map[digest]keyed
	header   sync.Once // written before the first bad row
}

// column is one column of the file, and the fields that it leads to: one at least.
type column struct {
	name    string
	guess   guess
	targets []*target
}

// target is what a column becomes.
type target struct {
	field  string // "" where it is left out
	custom bool   // the field is one that the organization defines
	list   bool   // the field is a list of every contact
	typ    string // of a custom field
	fresh  bool   // the field is to be made
}

func (f *feed) Size() int64 { return f.src.Size }

func (f *feed) Open() (transfer.Reader, error) { return open(f.src, f.o.Format) }

// Prepare looks at all rows, decides what the columns become and makes missing fields.
func (f *feed) Prepare(ctx context.Context, into *transfer.Into) ([]transfer.Line, error) {
	f.into, f.byName = into, map[string]int{}
	if err := f.readDefined(ctx); err != nil {
		return nil, err
	}
	if f.o.Format == CSV {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		for _, name := range r.(*csvReader).header {
			f.addColumn(name)
		}
		if err := errors.Join(r.Close(), f.plan()); err != nil {
			return nil, err
		}
	}
	if err := into.Each(ctx, f, f.scan); err != nil {
		return nil, err
	}
	if f.o.Format == JSON {
		if err := f.plan(); err != nil {
			return nil, err
		}
	}
	lines := f.definitions()
	if f.o.Key != "" {
		return lines, f.findKeyed(ctx)
	}
	return lines, nil
}

func (f *feed) readDefined(ctx context.Context) error {
	f.defined = map[string]string{}
	defines := f.into.Named(f.into.Named(f.kind).DefinedBy)
	var known resource.Known
	only := store.Filter{}
	if f.object != "" {
		only = store.Eq("name", f.object)
	}
	err := defines.Records.Each(ctx, f.into.Tenant.Workspace(), only, func(rec any) error {
		known.Learn(defines, rec, "")
		f.existing, _ = rec.(*objects.Definition)
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading which fields are defined: %w", err)
	}
	fields, _ := known.Fields(defines.Name, f.object)
	for key, field := range fields {
		f.defined[key] = field.Type
	}
	return nil
}

func (f *feed) addColumn(name string) int {
	at := len(f.columns)
	f.columns = append(f.columns, column{name: name})
	if _, twice := f.byName[name]; !twice {
		f.byName[name] = at
	}
	return at
}

// scan takes a row as a sample of its columns.
func (f *feed) scan(p *strictjson.Parser, r transfer.Raw) error {
	f.last = max(f.last, r.Number)
	v, err := f.cells(p, r)
	if err != nil && f.o.Format == JSON {
		return nil // noted when rows are checked
	}
	if f.blank(v) {
		f.blanks++
	}
	for i, m := range v.Members {
		at := f.at(i, m.Name)
		if at < 0 && !f.planned && len(f.columns) <= maxColumns {
			at = f.addColumn(m.Name)
		}
		if at < 0 {
			continue
		}
		if c := &f.columns[at]; !f.planned || slices.ContainsFunc(c.targets, func(t *target) bool { return t.fresh }) {
			c.guess.look(m.Value)
		}
	}
	return nil
}

// cells returns a row as an object. The members of a CSV row have no names.
func (f *feed) cells(p *strictjson.Parser, r transfer.Raw) (strictjson.Value, error) {
	if f.o.Format == JSON {
		return p.Parse(r.Text)
	}
	v := strictjson.Value{Is: strictjson.Object, Members: make([]strictjson.Member, len(r.Cells))}
	for i, cell := range r.Cells {
		v.Members[i].Value = text(cell)
	}
	return v, r.Err
}

// at returns the column of the i-th member of a row; -1 where there is none.
func (f *feed) at(i int, name string) int {
	if f.o.Format == JSON {
		at, known := f.byName[name]
		if !known {
			return -1
		}
		return at
	}
	if i >= len(f.columns) {
		return -1
	}
	return i
}

// blank reports whether a row has no value at all.
func (f *feed) blank(v strictjson.Value) bool {
	if v.Is != strictjson.Object || f.o.Format == CSV && len(v.Members) == 0 {
		return false
	}
	return !slices.ContainsFunc(v.Members, func(m strictjson.Member) bool {
		switch m.Value.Is {
		case strictjson.Null:
			return false
		case strictjson.Text:
			return strings.TrimSpace(m.Value.Text) != ""
		case strictjson.Array:
			return len(m.Value.Items) > 0
		}
		return true
	})
}
