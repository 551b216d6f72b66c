package transfer

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"tenantry/backends/objects"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// rowFeed is the feed of rows.
type rowFeed struct {
	session  *session
	src      Source
	format   string
	object   string // the custom object's name; "" for contacts
	mapping  map[string][]string
	key      string // the field by which a row is a stored record; "" where there is none
	existing *objects.Definition

	scanned bool
	targets []target // by column
	first   []int    // of each column, its first target; and how many targets there are
	last    int      // number of the last row
	blanks  int
	byName  map[string]int // columns
	keyed   map[key]keyed  // of records that share a row's value of the key
	keyAt   int            // of the target that is the key
	header  sync.Once      // written before the first bad row
}

func (f *rowFeed) size() int64 { return f.src.Size }

func (f *rowFeed) open() (reader, error) {
	in, err := f.src.Open()
	if err != nil {
		return nil, fmt.Errorf("opening the rows: %w", err)
	}
	if f.format == CSV {
		return openCSV(in)
	}
	return openJSON(in)
}

func (f *rowFeed) columns() []Column {
	out := make([]Column, len(f.targets))
	for i, t := range f.targets {
		out[i] = Column{Name: t.column, Field: t.field, Type: t.typ, New: t.fresh && t.field != ""}
	}
	return out
}

// prepare looks at all rows, decides what the columns become and makes missing fields.
func (f *rowFeed) prepare(ctx context.Context, refused map[int]*entry) ([]*entry, error) {
	if !f.scanned {
		if err := f.scan(ctx); err != nil {
			return nil, err
		}
		f.scanned = true
	}
	entries := f.definitions(ctx)
	for i, e := range entries {
		if old := refused[e.line]; old != nil {
			entries[i] = old
			continue
		}
		if len(e.errs) == 0 {
			f.session.limitFields(e)
		}
		if len(e.errs) == 0 {
			f.session.view.learn(e)
		}
	}
	return entries, nil
}

func (f *rowFeed) scan(ctx context.Context) error {
	if f.object != "" {
		def, err := f.session.deps.Objects.Definitions.In(f.session.tenant.Workspace()).First(ctx, store.Query{Filter: store.Eq("name", f.object)})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("reading the custom object: %w", err)
		}
		f.existing = def
	}
	columns, err := f.head(ctx)
	if err != nil {
		return err
	}
	if len(columns) == 0 {
		return fmt.Errorf("%w: the file has no columns", ErrRowOptions)
	}
	if len(columns) > maxColumns {
		return fmt.Errorf("%w: the file has more than %d columns", ErrRowOptions, maxColumns)
	}
	if err := f.plan(columns); err != nil {
		return err
	}
	f.byName, f.first = map[string]int{}, make([]int, len(columns)+1)
	for at, name := range columns {
		if _, twice := f.byName[name]; !twice {
			f.byName[name] = at
		}
	}
	for _, t := range f.targets {
		f.first[t.at+1]++
	}
	for at := range columns {
		f.first[at+1] += f.first[at]
	}
	err = f.each(ctx, func(p *strictjson.Parser, l rawLine) error {
		f.last = max(f.last, l.number)
		if f.format == CSV {
			if blankCells(l.cells) {
				f.blanks++
			}
			for at, cell := range l.cells {
				for i := range f.of(at) {
					if f.targets[i].fresh {
						f.targets[i].guess.add(cell)
					}
				}
			}
			return nil
		}
		if v, err := p.Parse(l.text); err == nil {
			if blankRow(v) {
				f.blanks++
			}
			for _, m := range v.Members {
				for i := range f.of(f.byName[m.Name]) {
					if f.targets[i].fresh && f.targets[i].column == m.Name {
						f.targets[i].guess.look(m.Value)
					}
				}
			}
		}
		return nil
	})
	if err != nil || f.key == "" {
		return err
	}
	return f.findKeyed(ctx)
}

// of returns the indexes of the targets of a column.
func (f *rowFeed) of(at int) iter.Seq[int] {
	return func(yield func(int) bool) {
		if at+1 >= len(f.first) {
			return
		}
		for i := f.first[at]; i < f.first[at+1]; i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// blankCells reports whether a row has no value at all.
func blankCells(cells []string) bool {
	return len(cells) > 0 && !slices.ContainsFunc(cells, func(cell string) bool { return strings.TrimSpace(cell) != "" })
}

func blankRow(v strictjson.Value) bool {
	return v.Is == strictjson.Object && !slices.ContainsFunc(v.Members, func(m strictjson.Member) bool {
		return m.Value.Is != strictjson.Null && (m.Value.Is != strictjson.Text || strings.TrimSpace(m.Value.Text) != "") && (m.Value.Is != strictjson.Array || len(m.Value.Items) > 0)
	})
}

// look takes a JSON value as a sample.
func (g *guess) look(v strictjson.Value) {
	switch v.Is {
	case strictjson.True:
		g.add("true")
	case strictjson.False:
		g.add("false")
	case strictjson.Number, strictjson.Text:
		g.add(v.Text)
	case strictjson.Array:
		g.lists = true
	}
}

// head returns the names of the columns: of the header, or of all objects.
func (f *rowFeed) head(ctx context.Context) ([]string, error) {
	if f.format == CSV {
		r, err := f.open()
		if err != nil {
			return nil, err
		}
		defer func() { _ = r.Close() }() // it was only read
		return r.(*csvReader).header, nil
	}
	var columns []string
	seen := map[string]bool{}
	err := f.each(ctx, func(p *strictjson.Parser, l rawLine) error {
		v, err := p.Parse(l.text)
		if err != nil {
			return nil // noted when rows are checked
		}
		for _, m := range v.Members {
			if !seen[m.Name] && len(columns) <= maxColumns {
				seen[m.Name] = true
				columns = append(columns, m.Name)
			}
		}
		return nil
	})
	return columns, err
}

func (f *rowFeed) each(ctx context.Context, visit func(*strictjson.Parser, rawLine) error) error {
	r, err := f.open()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	f.session.meter.start(PhaseReading, f.src.Size)
	var p strictjson.Parser
	for n := 0; ; n++ {
		l, err := r.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if n%500 == 0 {
			f.session.meter.at(r.offset(), n)
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if err := visit(&p, l); err != nil {
			return err
		}
	}
	f.session.meter.end()
	return nil
}

func (f *rowFeed) original(l rawLine) []byte {
	if f.format == JSON || l.cells == nil {
		return append([]byte(l.text), '\n')
	}
	var buf bytes.Buffer
	w := csv.NewWriter(&buf)
	f.header.Do(func() {
		names := make([]string, len(f.first)-1)
		for i := range f.targets {
			names[f.targets[i].at] = f.targets[i].column
		}
		_ = w.Write(names) // to memory
	})
	_ = w.Write(l.cells)
	w.Flush()
	return buf.Bytes()
}

// kind returns what rows become.
func (f *rowFeed) kind() string {
	if f.object != "" {
		return kindRecord
	}
	return kindContact
}

// decode makes a line of a bundle of a row, nil of one that is blank.
func (f *rowFeed) decode(ctx context.Context, p *strictjson.Parser, l rawLine) *entry {
	row, bad := f.row(p, l)
	if row == nil {
		return bad
	}
	e := f.session.named[f.kind()].decode(ctx, f.session.view, row.line(), l.number)
	e.errs = append(row.errs.errs, e.errs...)
	e.raw = l
	if f.key != "" {
		f.identify(e, row)
	}
	return e
}

// row reads the fields of a row. Where that cannot be done it returns an entry that says
// why, and neither for a row that is blank.
func (f *rowFeed) row(p *strictjson.Parser, l rawLine) (*rowLine, *entry) {
	k := f.session.named[f.kind()]
	row := &rowLine{feed: f}
	bad := &entry{line: l.number, kind: k, raw: l}
	switch {
	case f.format == CSV && blankCells(l.cells):
		return nil, nil
	case l.err != nil:
		bad.errs.Add("row", "format", "%s", l.err)
		return nil, bad
	case f.format == CSV && len(l.cells) != len(f.first)-1:
		bad.errs.Add("row", "conflict", "the file was changed while it was imported")
		return nil, bad
	case f.format == CSV:
		for at, cell := range l.cells {
			valid := utf8.ValidString(cell) && strings.IndexByte(cell, 0) < 0
			for i := range f.of(at) {
				if valid {
					row.text(i, cell)
				} else {
					row.complain(i, "the text is not valid UTF-8, or holds a NUL character")
				}
			}
		}
	default:
		v, err := p.Parse(l.text)
		if err != nil {
			bad.errs.Add("row", "format", "%s", strings.Replace(lineMessage(err), "the line", "the row", 1))
			return nil, bad
		}
		if v.Is != strictjson.Object {
			bad.errs.Add("row", "format", "the row must be an object")
			return nil, bad
		}
		if blankRow(v) {
			return nil, nil
		}
		for _, m := range v.Members {
			at, known := f.byName[m.Name]
			if !known {
				bad.errs.Add("row", "conflict", "the file was changed while it was imported")
				return nil, bad
			}
			for i := range f.of(at) {
				row.json(i, m.Value)
			}
		}
	}
	return row, nil
}

// rowLine collects the fields of one row.
type rowLine struct {
	feed   *rowFeed
	own    []strictjson.Member
	custom []strictjson.Member
	errs   entry
}

func (r *rowLine) complain(i int, what string) {
	column := texts.Clip(r.feed.targets[i].column)
	r.errs.errs.Add(column, "type", "column %q: %s", column, what)
}

func (r *rowLine) text(i int, cell string) {
	t := &r.feed.targets[i]
	if t.field == "" || strings.TrimSpace(cell) == "" {
		return
	}
	typ := t.typ
	switch {
	case t.list:
		typ = schema.MultiSelect
	case !t.custom:
		r.own = append(r.own, textMember(t.field, oneLine(cell)))
		return
	}
	if !slices.Contains(schema.KnownTypes(), typ) { // values of other types are taken as they are
		typ = schema.Text
	}
	converted, err := schema.Convert(typ, cell)
	if err != nil {
		r.complain(i, err.Error())
		return
	}
	if converted != nil {
		r.put(t, valueOf(converted))
	}
}

// oneLine returns a text of one line: files of rows hold tabs and line feeds where none
// are meant, and quotes and dashes of Windows-1252 that were once taken for Latin-1.
func oneLine(s string) string {
	if strings.ContainsFunc(s, unicode.IsControl) {
		s = strings.Map(func(r rune) rune {
			if r >= 0x80 && r <= 0x9f {
				r = charmap.Windows1252.DecodeByte(byte(r))
			}
			if unicode.IsControl(r) || r == utf8.RuneError {
				return ' '
			}
			return r
		}, s)
		return strings.Join(strings.Fields(s), " ")
	}
	return strings.TrimSpace(s)
}

func (r *rowLine) put(t *target, v strictjson.Value) {
	if t.custom {
		r.custom = append(r.custom, strictjson.Member{Name: t.field, Value: v})
	} else {
		r.own = append(r.own, strictjson.Member{Name: t.field, Value: v})
	}
}

func (r *rowLine) json(i int, v strictjson.Value) {
	t := &r.feed.targets[i]
	if t.field == "" {
		return
	}
	switch v.Is {
	case strictjson.Null:
	case strictjson.Text:
		r.text(i, v.Text)
	case strictjson.Number:
		if t.custom && t.typ == schema.Number {
			r.put(t, v)
			return
		}
		r.text(i, v.Text)
	case strictjson.True, strictjson.False:
		r.text(i, strconv.FormatBool(v.Is == strictjson.True))
	case strictjson.Array:
		r.list(i, t, v)
	default:
		r.complain(i, "the value is an object; rows must be flat")
	}
}

func (r *rowLine) list(i int, t *target, v strictjson.Value) {
	var parts []string
	for _, item := range v.Items {
		switch item.Is {
		case strictjson.Text, strictjson.Number:
			if s := strings.TrimSpace(item.Text); s != "" && !slices.Contains(parts, s) {
				parts = append(parts, s)
			}
		case strictjson.True, strictjson.False:
			parts = append(parts, strconv.FormatBool(item.Is == strictjson.True))
		case strictjson.Null:
		default:
			r.complain(i, "the list holds lists or objects; rows must be flat")
			return
		}
	}
	switch {
	case len(parts) == 0:
	case t.list, t.custom && t.typ == schema.MultiSelect:
		r.put(t, valueOf(parts))
	default:
		r.text(i, strings.Join(parts, "; "))
	}
}

// line returns the row as a line of a bundle.
func (r *rowLine) line() strictjson.Value {
	members := r.own
	values := "fields"
	if r.feed.object != "" {
		values = "values"
		members = append(members, textMember("object", r.feed.object))
	}
	if len(r.custom) > 0 {
		members = append(members, strictjson.Member{Name: values, Value: strictjson.Value{Is: strictjson.Object, Members: r.custom}})
	}
	return strictjson.Value{Is: strictjson.Object, Members: members}
}

// valueOf returns what schema.Convert returned as a JSON value.
func valueOf(converted any) strictjson.Value {
	switch x := converted.(type) {
	case string:
		return strictjson.Value{Is: strictjson.Text, Text: x}
	case bool:
		if x {
			return strictjson.Value{Is: strictjson.True}
		}
		return strictjson.Value{Is: strictjson.False}
	case int64:
		return strictjson.Value{Is: strictjson.Number, Text: strconv.FormatInt(x, 10)}
	case []string:
		v := strictjson.Value{Is: strictjson.Array, Items: make([]strictjson.Value, len(x))}
		for i, s := range x {
			v.Items[i] = strictjson.Value{Is: strictjson.Text, Text: s}
		}
		return v
	}
	written, err := json.Marshal(converted)
	if err != nil {
		return strictjson.Value{}
	}
	return strictjson.Value{Is: strictjson.Number, Text: string(written)}
}
