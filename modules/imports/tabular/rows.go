// Package tabular imports the rows of CSV and JSON files, as records of whichever resource. Each
// becomes a line of a bundle, and what its columns lack is defined first where that can be.
package tabular

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/modules/imports/bundle"
	"tenantry/operation/export"
	"tenantry/tenants"
)

// Formats of a file of rows.
const (
	CSV  = "csv"
	JSON = "json"
)

// Options say what rows become.
type Options struct {
	// As is the plural name of a resource, "contacts" or "folders"; where its records are each of one
	// definition, that too: "records:NAME" or "submissions:ID".
	As string
	// Format is CSV or JSON. A CSV file has a header; a JSON file is an array of flat objects, or one such object after
	// the other.
	Format string
	// Encoding is that of the file, as browsers name them, or GuessEncoding. A byte order mark goes before it; without
	// both the file is UTF-8. What is not valid is refused.
	Encoding string
	// Delimiter stands between the cells of a CSV file: comma, semicolon, tab, pipe or a sign. Where it is not given, a
	// first line such as "sep=;" says so, else the first records do.
	Delimiter string
	// Map leads from columns to fields; other columns are left out, unless it leads from "*" to "*". A column that
	// leads to "" is left out, one that leads to "*" is matched by name. Nil: all columns are matched by name, without
	// regard to case, blanks and punctuation. A column may lead to several. A colon and a format after the field say
	// how values are written, see Formats: "birthday:dd.mm.yyyy".
	Map map[string][]string
	// Key, where set, is the field by which a row is a stored record: one that every record has, or
	// one that the organization defines; lists, objects and encrypted ones apart.
	// A row that has the value of no record adds one, and so does a row without a value.
	// Of two rows with one value the later is refused, as is one whose value several records
	// share.
	Key string

	DryRun   bool
	Partial  bool
	Mirror   bool                // of a bundle; see bundle.ImportOptions
	Bad      io.Writer           // with Partial: the bad rows, in the format of the file
	OpenWith *sealing.PrivateKey // of a bundle: opens secrets that were sealed to its public half
	Bounded  bool                // as in bundle.ImportOptions
	Allowed  func(context.Context) error
	Progress func(bundle.Progress)
	Turn     func(context.Context) error // as in bundle.ImportOptions
}

// ErrOptions says that the options of an import of rows make no sense, or that the file is no such file.
var ErrOptions = errors.New("cannot import these rows")

// Load takes the lines of a bundle, or with As what Import takes. Errors are those of Import.
func Load(ctx context.Context, s *bundle.Service, t *tenants.Tenant, src bundle.Source, o Options) (bundle.Report, error) {
	if o.As != "" {
		return Import(ctx, s, t, src, o)
	}
	return s.Import(ctx, t, src, bundle.ImportOptions{DryRun: o.DryRun, Partial: o.Partial, Mirror: o.Mirror, Bad: o.Bad, OpenWith: o.OpenWith, Bounded: o.Bounded, Allowed: o.Allowed, Progress: o.Progress, Turn: o.Turn})
}

// maxColumns bounds the columns of a file, maxName the bytes of the name of one.
const maxColumns, maxName = 1000, 4 << 10

// maxCalled is how many characters of a column's name a report gives. maxReported bounds the bytes of all columns in
// it, since reports are stored and are not counted among what an organization may store.
const maxCalled, maxReported = 200, 96 << 10

// Import takes rows as records of a resource. Rows without any value are skipped. Fields that are missing are made, of
// the types that the data suggests, where what defines them is known by a name that people choose; so is that
// definition. Elsewhere a column without a field is an error. A column may also be called as the tag `alias` of a field
// says, where no other column is that field. Empty cells are missing values. A list becomes a MultiSelect, or one text
// where the field is one; a field that is an object is read from a JSON text. What an export of rows wrote, which the
// identifiers in it tell, comes back as it was. The report says what became of each column, also after a dry run.
// Errors: those of bundle.Service.Import, and ErrOptions.
func Import(ctx context.Context, s *bundle.Service, t *tenants.Tenant, src bundle.Source, o Options) (bundle.Report, error) {
	if o.Format != CSV && o.Format != JSON {
		none := bundle.Report{Kinds: map[string]bundle.Counts{}, Problems: []bundle.LineProblem{}}
		return none, fmt.Errorf("%w: the format is csv or json", ErrOptions)
	}
	f := &feed{src: src, o: o, of: &record.Resource{}}
	r, err := s.ImportFeed(ctx, t, f, bundle.ImportOptions{DryRun: o.DryRun, Partial: o.Partial, Bad: o.Bad, Bounded: o.Bounded, Allowed: o.Allowed, Progress: o.Progress, Turn: o.Turn})
	r.Columns, r.MoreColumns = f.report()
	r.Encoding, r.Delimiter = f.text.written(), f.separated()
	failed := r.Failed
	r.Counts = r.Kinds[f.of.Name] // without the definitions, which are on no line
	r.Failed, r.Skipped = failed, f.blanks
	if refused, is := errors.AsType[*bundle.RefusedError](err); is {
		refused.Lines = max(r.Lines, refused.Failed) // definitions are on no line
	}
	for _, list := range [][]bundle.LineProblem{r.Problems, r.Warnings} {
		for i := range list {
			if list[i].Line > f.last { // a definition, which is on no line
				list[i].Line = 0
			}
		}
	}
	return r, err
}

// report says what became of each column, up to maxReported, and how many columns it leaves out.
func (f *feed) report() (columns []bundle.Column, more int) {
	held := 0
	for _, c := range f.columns {
		for _, t := range c.targets {
			column := bundle.Column{Name: clip(c.name, maxCalled), Field: t.field, New: t.fresh, Note: c.note, Shown: t.shown}
			if t.custom {
				column.Type = t.typ
			}
			encoded, _ := json.Marshal(column) // texts and booleans alone
			if held += len(encoded); held > maxReported {
				more++
				continue
			}
			columns = append(columns, column)
		}
	}
	return columns, more
}

// separated names what stood between the cells of a CSV file.
func (f *feed) separated() string {
	for name, comma := range delimiters() {
		if comma == f.comma && f.comma != 0 && len(name) > 2 {
			return name
		}
	}
	return strings.Trim(string(f.comma), "\x00")
}

// feed makes lines of a bundle of rows.
type feed struct {
	src bundle.Source
	o   Options

	into       *bundle.Into
	of         *record.Resource        // of what the rows become
	own        map[string]*field.Field // that every record has, by squashed name
	defines    *record.Resource        // whose records define further fields; nil: none do
	definition string                  // the identity of that which does; "" where all do together
	existing   any                     // that definition, where there is one
	defined    schema.Fields           // by it, or by all together
	deleted    map[string]string       // fields that were defined together with others, by squashed name
	columns    []column
	byName     map[string]int
	planned    bool
	foreign    bool  // a column with the name of the definition holds something else
	ours       bool  // an export of rows wrote the file: its columns and values mean what they say
	last       int   // number of the last row
	unread     error // what is wrong with the first row of a JSON file that cannot be read
	blanks     int
	key        *target // nil where rows have none
	keyed      map[digest]keyed
	text       decoded   // how the file is written
	comma      byte      // what stands between the cells of a CSV file
	first      string    // the header of a CSV file as it stands there
	header     sync.Once // written before the first bad row
}

// column is one column of the file, and the fields that it leads to: one at least.
type column struct {
	name    string
	called  string // what no other column of the file is called
	note    string // what is to be said of where it leads
	byName  bool   // the map has it matched by name
	format  string // and says how its values are written
	ids     bool   // there are identifiers of records in it,
	others  bool   // and there is something else
	guess   guess
	targets []*target
}

// target is what a column becomes.
type target struct {
	field  string   // "" where it is left out
	custom bool     // the field is one that the organization defines
	fresh  bool     // the field is to be made
	format string   // how the file writes its values, see Formats; "" where nothing is said
	shown  []string // what the first rows have, of a dry run
	typ    string   // how its values are read: a type of package schema, or one of those beside it
}

func (f *feed) Size() int64 { return f.src.Size }

func (f *feed) Open() (bundle.Reader, error) { return open(f.src, &f.o) }

// Prepare looks at all rows, decides what the columns become and makes missing fields.
func (f *feed) Prepare(ctx context.Context, into *bundle.Into) ([]bundle.Line, error) {
	f.into, f.byName = into, map[string]int{}
	if err := errors.Join(f.find(), f.readDefined(ctx)); err != nil {
		return nil, err
	}
	r, err := f.Open()
	if err != nil {
		return nil, err
	}
	switch c := r.(type) {
	case *jsonReader:
		f.text = c.text
		if err := r.Close(); err != nil {
			return nil, err
		}
	case *csvReader:
		f.text, f.first, f.comma = c.text, c.first, c.records.comma
		header := c.header
		for _, name := range header[:min(len(header), maxColumns+1)] {
			if err == nil {
				_, err = f.addColumn(name)
			}
		}
		if err := errors.Join(r.Close(), err); err != nil {
			return nil, err
		}
		if err := f.plan(); err != nil {
			return nil, err
		}
	}
	if err := into.Each(ctx, f, f.scan); err != nil {
		return nil, err
	}
	at, known := f.byName[idColumn]
	f.ours = known && f.columns[at].ids && !f.columns[at].others && (f.o.Map[idColumn] == nil || slices.Equal(f.o.Map[idColumn], []string{idColumn}))
	if err := f.plan(); err != nil { // now that it is known what the columns hold
		return nil, err
	}
	if f.ours && f.o.Key == "" && f.leads(at) {
		f.o.Key = idColumn
	}
	if f.o.Key != "" {
		if err := f.findKeyed(ctx); err != nil {
			return nil, err
		}
	}
	if f.of.Definition {
		return into.Collect(ctx, f, f.line)
	}
	defined := f.definitions()
	if f.o.DryRun {
		return defined, f.show()
	}
	return defined, nil
}

// Of how many rows a dry run shows what they would become, and how much of each cell.
const maxShownRows, maxShownBytes = 3, 8 << 10

// show notes what the first rows would become. Values of encrypted fields are not shown.
func (f *feed) show() error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	room := maxShownBytes
	for range maxShownRows {
		raw, err := r.Next()
		if err != nil {
			return nil // what is wrong is noted when rows are checked
		}
		var p strictjson.Parser
		var faults fault.List
		row := f.row(&p, raw, &faults)
		for i := range f.columns {
			for _, t := range f.columns[i].targets {
				members := []strictjson.Member(nil)
				switch {
				case row == nil || t.field == "" || t.typ == schema.Encrypted:
				case t.custom:
					members = row.custom
				default:
					members = row.own
				}
				v, cell := object(members...).Get(t.field), ""
				if v.Is == strictjson.Text {
					cell = texts.Clip(v.Text)
				} else if v.Is != strictjson.Null {
					cell = texts.Clip(string(v.Raw()))
				}
				if room -= len(cell); room < 0 {
					return nil
				}
				t.shown = append(t.shown, cell)
			}
		}
	}
	return nil
}

// idColumn is what every export of rows calls the identifiers of its records.
const idColumn = "id"

// leads reports whether the column leads to the identifiers of records.
func (f *feed) leads(at int) bool {
	return slices.ContainsFunc(f.columns[at].targets, func(t *target) bool { return t.field == idColumn && !t.custom })
}

// find finds the resource that Options.As names, and splits the definition off.
func (f *feed) find() (err error) {
	f.of, f.definition, err = Find(f.into.Resources, f.o.As)
	return err
}

// Find returns the resource that rows become, and the name of what defines them where that is said. Another text is
// ErrOptions, which names what they can become.
func Find(resources []*record.Resource, as string) (*record.Resource, string, error) {
	plural, definition, defined := strings.Cut(as, ":")
	names := make([]string, len(resources))
	for i, r := range resources {
		names[i] = r.Plural()
		field := r.DefinitionField
		if names[i] == plural && defined == (field != "") && defined == (definition != "") {
			return r, definition, nil
		}
		if field != "" {
			names[i] += ":" + strings.ToUpper(field)
		}
	}
	return &record.Resource{}, "", fmt.Errorf("%w: rows become %s", ErrOptions, strings.Join(names, ", "))
}

// readDefined finds the definition, and the fields that are defined.
func (f *feed) readDefined(ctx context.Context) error {
	if f.of.DefinedBy == "" {
		return nil
	}
	f.defines = f.into.Named(f.of.DefinedBy)
	given := f.definition
	f.deleted = map[string]string{}
	var known record.Known
	err := f.defines.Records.Each(ctx, f.into.Workspace(f.defines), store.Filter{}, func(rec any) error {
		id := f.defines.Identity(rec)
		switch gone := f.defines.Deleted(rec); {
		case !gone:
			known.Learn(f.defines, rec, "")
		case f.defines.Together:
			f.deleted[squash(id)] = id
		}
		if id == given || f.existing == nil && slices.ContainsFunc(f.defines.Uniques, func(u record.Unique) bool {
			return u.Identity == record.Named && u.Value(rec) == given
		}) {
			f.existing, f.definition = rec, id
		}
		return nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("reading which fields are defined: %w", err)
	case f.existing != nil && f.defines.Deleted(f.existing):
		return fmt.Errorf("%w: the %s %q is deleted; restore it first", ErrOptions, spaced(f.defines.Name), texts.Clip(given))
	case given != "" && f.existing == nil && !f.makes():
		return fmt.Errorf("%w: there is no %s %q", ErrOptions, spaced(f.defines.Name), texts.Clip(given))
	case given != "" && f.existing == nil:
		var errs fault.List
		n, _ := f.defines.Index(f.defines.Key)
		if f.defines.Fields[n].Read(text(given), f.defines.New(), &errs); len(errs) > 0 {
			return fmt.Errorf("%w: of the %s, the %s", ErrOptions, spaced(f.defines.Name), errs[0].Message)
		}
	}
	f.defined, _ = known.Fields(f.defines.Name, f.definition)
	return nil
}

// makes reports whether missing fields are made: by what is known by a name that people choose.
func (f *feed) makes() bool { return f.defines != nil && f.defines.Key != "" }

func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// addColumn returns where the column is then. A name that is too long is ErrOptions.
func (f *feed) addColumn(name string) (int, error) {
	if len(name) > maxName {
		return 0, fmt.Errorf("%w: the name of column %d has more than %d bytes", ErrOptions, len(f.columns)+1, maxName)
	}
	at, name := len(f.columns), strings.Clone(name) // it is part of a row
	f.columns = append(f.columns, column{name: name})
	if _, twice := f.byName[name]; !twice {
		f.byName[name] = at
	}
	return at, nil
}

// scan takes a row as a sample of its columns.
func (f *feed) scan(p *strictjson.Parser, r bundle.Raw) error {
	f.last = max(f.last, r.Number)
	v, err := f.cells(p, r)
	if f.o.Format == JSON && (err != nil || v.Is != strictjson.Object) {
		if f.unread == nil {
			f.unread = fmt.Errorf("row %d is the first that cannot be read: %w", r.Number, cmp.Or(err, errNoObject))
		}
		return nil // noted when rows are checked
	}
	if f.blank(v) {
		f.blanks++
	}
	for i, m := range v.Members {
		at := f.at(i, m.Name)
		if at < 0 && !f.planned && len(f.columns) <= maxColumns {
			if at, err = f.addColumn(m.Name); err != nil {
				return err
			}
		}
		if at < 0 {
			continue
		}
		c := &f.columns[at]
		names := c.name == f.of.DefinitionField
		f.foreign = f.foreign || names && m.Value.Is != strictjson.Null && strings.TrimSpace(m.Value.Text) != "" && m.Value.Text != f.definition
		if !f.planned || names || slices.ContainsFunc(c.targets, func(t *target) bool { return t.fresh }) {
			c.guess.look(m.Value, f.o.Format)
		}
		if c.name == idColumn && m.Value.Is != strictjson.Null && (m.Value.Is != strictjson.Text || strings.TrimSpace(m.Value.Text) != "") {
			is := m.Value.Is == strictjson.Text && store.ValidID(m.Value.Text)
			c.ids, c.others = c.ids || is, c.others || !is
		}
	}
	return nil
}

// cells returns a row as an object, whose values of defined fields stand beside the others. The members of a CSV row
// have no names.
func (f *feed) cells(p *strictjson.Parser, r bundle.Raw) (strictjson.Value, error) {
	if f.o.Format == JSON {
		v, err := p.Parse(r.Text)
		if err == nil {
			err = r.Err
		}
		within := f.of.ValuesName()
		at := slices.IndexFunc(v.Members, func(m strictjson.Member) bool { return m.Name == within && m.Value.Is == strictjson.Object })
		if within == "" || at < 0 {
			return v, err
		}
		flat, given := slices.Clone(v.Members[:at]), map[string]bool{}
		for _, m := range v.Members {
			given[m.Name] = true
		}
		for _, m := range v.Members[at].Value.Members {
			name := within + "." + m.Name
			if given[name] && err == nil {
				err = fmt.Errorf("duplicate value %q: given at the top level and within %s", texts.Clip(name), within)
			}
			flat = append(flat, strictjson.Member{Name: name, Value: m.Value})
		}
		v.Members = append(flat, v.Members[at+1:]...)
		return v, err
	}
	v := strictjson.Value{Is: strictjson.Object, Members: make([]strictjson.Member, len(r.Cells))}
	for i, cell := range r.Cells {
		v.Members[i].Value = text(export.Original(cell))
	}
	return v, r.Err
}

// at returns the column of the i-th member of a row; -1 where there is none.
func (f *feed) at(i int, name string) int {
	if at, known := f.byName[name]; f.o.Format == JSON && known {
		return at
	}
	if f.o.Format == JSON || i >= len(f.columns) {
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
		case strictjson.Null, strictjson.Text, strictjson.Array:
			return strings.TrimSpace(m.Value.Text) != "" || len(m.Value.Items) > 0
		}
		return true
	})
}
