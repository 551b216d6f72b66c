// Package tabular imports the rows of CSV and JSON files as records of any resource. Each row becomes a line of a
// bundle; fields that its columns need are defined first if the resource allows that.
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

// File formats.
const (
	CSV  = "csv"
	JSON = "json"
)

// Options say how rows are imported.
type Options struct {
	// As is the plural name of a resource, "contacts" or "folders". If each record belongs to one definition, it
	// includes that: "records:NAME" or "submissions:ID".
	As string
	// Format is CSV or JSON. A CSV file has a header; a JSON file is an array of flat objects, or a sequence of such
	// objects.
	Format string
	// Encoding is the encoding of the file by its WHATWG name, or GuessEncoding. A byte order mark takes precedence;
	// without both the file is UTF-8. Invalid text is refused.
	Encoding string
	// Delimiter separates the cells of a CSV file: comma, semicolon, tab, pipe or a character. If it is empty, a first
	// line such as "sep=;" determines it, otherwise it is detected.
	Delimiter string
	// Map maps columns to fields. Other columns are left out, unless "*" is mapped to "*". A column that is mapped to
	// "" is left out; one that is mapped to "*" is matched by name. Nil: all columns are matched by name, ignoring
	// case, blanks and punctuation. A column may be mapped to several fields. A format may follow a field after a
	// colon, see Formats: "birthday:dd.mm.yyyy".
	Map map[string][]string
	// Key, if set, is the field that identifies the stored record of a row: a field of every record, or one that the
	// organization defines, but not a list, an object or an encrypted field. A row whose value no record has, or that
	// has no value, adds a record. Of two rows with the same value the later is refused, and so is a row whose value
	// several records have.
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

// ErrOptions says that the options do not fit the file or the organization, or that the file is malformed.
var ErrOptions = errors.New("cannot import these rows")

// Load imports a bundle or, with As, rows as Import does. Errors are those of Import.
func Load(
	ctx context.Context, s *bundle.Service, t *tenants.Tenant, src bundle.Source, o Options,
) (bundle.Report, error) {
	if o.As != "" {
		return Import(ctx, s, t, src, o)
	}
	return s.Import(
		ctx, t, src,
		bundle.ImportOptions{
			DryRun: o.DryRun, Partial: o.Partial, Mirror: o.Mirror, Bad: o.Bad, OpenWith: o.OpenWith,
			Bounded: o.Bounded, Allowed: o.Allowed, Progress: o.Progress, Turn: o.Turn,
		},
	)
}

// maxColumns bounds the columns of a file, maxName the bytes of a column's name.
const maxColumns, maxName = 1000, 4 << 10

// maxCalled is how many characters of a column's name a report contains. maxReported bounds the bytes of all columns in
// a report, because stored reports do not count towards the quotas of an organization.
const maxCalled, maxReported = 200, 96 << 10

// Import imports rows as records of a resource. Rows without values are skipped. Columns are matched to fields by name
// or by an `alias` of the field, unless another column has the name. Missing fields, and the definition itself if it
// does not exist, are created with types guessed from the data if definitions have keys that people choose; otherwise
// a column without a field is an error. Empty cells are missing values. A list becomes a MultiSelect, or one text in a
// text field; a field that is an object is read from JSON. Rows that an export wrote, which is recognized by their
// identifiers, are restored exactly. The report describes each column, even after a dry run. Errors: those of
// bundle.Service.Import, and ErrOptions.
func Import(
	ctx context.Context, s *bundle.Service, t *tenants.Tenant, src bundle.Source, o Options,
) (bundle.Report, error) {
	if o.Format != CSV && o.Format != JSON {
		none := bundle.Report{Kinds: map[string]bundle.Counts{}, Problems: []bundle.LineProblem{}}
		return none, fmt.Errorf("%w: the format must be csv or json", ErrOptions)
	}
	f := &feed{src: src, o: o, of: &record.Resource{}}
	r, err := s.ImportFeed(ctx, t, f, bundle.ImportOptions{
		DryRun: o.DryRun, Partial: o.Partial, Bad: o.Bad, Bounded: o.Bounded, Allowed: o.Allowed, Progress: o.Progress,
		Turn: o.Turn,
	})
	r.Columns, r.MoreColumns = f.report()
	r.Encoding, r.Delimiter = f.text.encodingName(), f.delimiterName()
	failed := r.Failed
	r.Counts = r.Kinds[f.of.Name] // without the definitions, which have no line
	r.Failed, r.Skipped = failed, f.blanks
	if refused, is := errors.AsType[*bundle.RefusedError](err); is {
		refused.Lines = max(r.Lines, refused.Failed) // definitions have no line
	}
	columns := f.columnsByField()
	for _, list := range [][]bundle.LineProblem{r.Problems, r.Warnings} {
		for i := range list {
			if list[i].Line > f.last { // a definition, which has no line
				list[i].Line = 0
			} else {
				addColumns(list[i].Errors, columns)
			}
		}
	}
	return r, err
}

// columnsByField returns the columns with another name than their field, by the field as faults name it.
func (f *feed) columnsByField() map[string]string {
	names := map[string]string{}
	for _, c := range f.columns {
		for _, t := range c.targets {
			switch {
			case t.field == "" || c.name == t.field:
			case t.custom:
				names[f.of.ValuesName()+"."+t.field] = texts.Clip(c.name)
			default:
				names[t.field] = texts.Clip(c.name)
			}
		}
	}
	return names
}

// addColumns puts before the messages of faults the columns that they are about, unless they name them already.
func addColumns(faults fault.List, columns map[string]string) {
	for i := range faults {
		if name, ok := columns[faults[i].Field]; ok && !strings.HasPrefix(faults[i].Message, "column ") {
			faults[i].Message = fmt.Sprintf("column %q: %s", name, faults[i].Message)
		}
	}
}

// report returns a description of each column, up to maxReported bytes, and how many columns it leaves out.
func (f *feed) report() (columns []bundle.Column, more int) {
	held := 0
	for _, c := range f.columns {
		for _, t := range c.targets {
			column := bundle.Column{
				Name: clip(c.name, maxCalled), Field: t.field, New: t.fresh, Note: c.note, Shown: t.shown,
			}
			if t.custom {
				column.Type = t.typ
			}
			encoded, _ := json.Marshal(column) // cannot fail for texts and booleans
			if held += len(encoded); held > maxReported {
				more++
				continue
			}
			columns = append(columns, column)
		}
	}
	return columns, more
}

// delimiterName returns the name of the delimiter of a CSV file.
func (f *feed) delimiterName() string {
	for name, comma := range delimiters() {
		if comma == f.comma && f.comma != 0 && len(name) > 2 {
			return name
		}
	}
	return strings.Trim(string(f.comma), "\x00")
}

// feed makes rows into lines of a bundle.
type feed struct {
	src bundle.Source
	o   Options

	into       *bundle.Into
	of         *record.Resource        // the resource of the rows
	own        map[string]*field.Field // fields of every record, by squashed name
	defines    *record.Resource        // the resource whose records define further fields; nil: none
	definition string                  // the identity of the definition; "" if all define fields together
	existing   any                     // that definition, if it exists
	defined    schema.Fields           // fields of the definition, or of all together
	deleted    map[string]string       // deleted fields, if all define fields together, by squashed name
	columns    []column
	byName     map[string]int
	planned    bool
	foreign    bool  // a column with the name of the definition holds something else
	ours       bool  // an export wrote the file, so its columns and values are exact
	last       int   // number of the last row
	unread     error // error of the first unreadable row of a JSON file
	blanks     int
	key        *target // nil if rows have none
	keyed      map[digest]keyed
	text       decoded   // the encoding of the file
	comma      byte      // the delimiter of a CSV file
	first      string    // the header of a CSV file, unchanged
	header     sync.Once // written before the first bad row
}

// column is one column of the file, and its targets: at least one.
type column struct {
	name    string
	called  string // its unique title in the file
	note    string // a remark about its mapping, for the report
	byName  bool   // the map matches it by name
	format  string // the format of values in the map
	ids     bool   // it contains identifiers of records
	others  bool   // it contains other values
	guess   guess
	targets []*target
}

// target is a field that a column is mapped to.
type target struct {
	field  string   // "" if the column is left out
	custom bool     // the organization defines the field
	fresh  bool     // the field is to be created
	format string   // format of its values in the file, see Formats; "" if none is given
	shown  []string // values of the first rows, in a dry run
	typ    string   // type by which its values are read, of package schema or this one
}

func (f *feed) Size() int64 { return f.src.Size }

func (f *feed) Open() (bundle.Reader, error) { return open(f.src, &f.o) }

// Prepare reads all rows, maps the columns to fields and creates missing fields.
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
	if err := f.plan(); err != nil { // again, now that the content of the columns is known
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

// Bounds of the values that the report of a dry run shows: rows, and bytes of all cells together.
const maxShownRows, maxShownBytes = 3, 8 << 10

// show notes the values of the first rows. Values of encrypted fields are not shown.
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
			return nil // its faults are noted when rows are checked
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

// idColumn is the name of the column with identifiers in every export of rows.
const idColumn = "id"

// leads reports whether the column is mapped to the identifiers of records.
func (f *feed) leads(at int) bool {
	return slices.ContainsFunc(f.columns[at].targets, func(t *target) bool { return t.field == idColumn && !t.custom })
}

// find sets the resource and the definition that Options.As names.
func (f *feed) find() (err error) {
	f.of, f.definition, err = Find(f.into.Resources, f.o.As)
	return err
}

// Find returns the resource that as names, and the name of the definition if it gives one. Otherwise it returns
// ErrOptions, which lists the possible names.
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
	return &record.Resource{}, "", fmt.Errorf("%w: rows can be imported as %s, not as %q", ErrOptions,
		strings.Join(names, ", "), texts.Clip(as))
}

// readDefined reads the definition and its fields.
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
		return fmt.Errorf("read the definitions of fields: %w", err)
	case f.existing != nil && f.defines.Deleted(f.existing):
		return fmt.Errorf("%w: the %s %q is deleted; restore it first", ErrOptions, spaced(f.defines.Name), texts.Clip(given))
	case given != "" && f.existing == nil && !f.makes():
		return fmt.Errorf("%w: there is no %s %q", ErrOptions, spaced(f.defines.Name), texts.Clip(given))
	case given != "" && f.existing == nil:
		var errs fault.List
		n, _ := f.defines.Index(f.defines.Key)
		if f.defines.Fields[n].Read(text(given), f.defines.New(), &errs); len(errs) > 0 {
			return fmt.Errorf("%w: for the %s, the %s", ErrOptions, spaced(f.defines.Name), errs[0].Message)
		}
	}
	f.defined, _ = known.Fields(f.defines.Name, f.definition)
	return nil
}

// makes reports whether missing fields are created, which requires that definitions have keys that people choose.
func (f *feed) makes() bool { return f.defines != nil && f.defines.Key != "" }

func spaced(name string) string { return strings.ReplaceAll(name, "_", " ") }

// addColumn adds a column and returns its index. Error: ErrOptions if the name is too long.
func (f *feed) addColumn(name string) (int, error) {
	if len(name) > maxName {
		return 0, fmt.Errorf("%w: the name of column %d has more than %d bytes", ErrOptions, len(f.columns)+1, maxName)
	}
	at, name := len(f.columns), strings.Clone(name) // the row must not be held
	f.columns = append(f.columns, column{name: name})
	if _, twice := f.byName[name]; !twice {
		f.byName[name] = at
	}
	return at, nil
}

// scan examines a row as a sample for the types of its columns.
func (f *feed) scan(p *strictjson.Parser, r bundle.Raw) error {
	f.last = max(f.last, r.Number)
	v, err := f.cells(p, r)
	if f.o.Format == JSON && (err != nil || v.Is != strictjson.Object) {
		if f.unread == nil {
			f.unread = fmt.Errorf("row %d is the first unreadable one: %w", r.Number, cmp.Or(err, errNoObject))
		}
		return nil // its faults are noted when rows are checked
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

// cells returns a row as a flat object, with the values of defined fields next to the others. The members of a CSV row
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

// at returns the column of the i-th member of a row; -1 if there is none.
func (f *feed) at(i int, name string) int {
	if at, known := f.byName[name]; f.o.Format == JSON && known {
		return at
	}
	if f.o.Format == JSON || i >= len(f.columns) {
		return -1
	}
	return i
}

// blank reports whether a row has no values.
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
