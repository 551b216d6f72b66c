package tabular

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/modules/imports/bundle"
)

// Line makes a row into a line of a bundle; false for a row that is blank, or a definition.
func (f *feed) Line(p *strictjson.Parser, r bundle.Raw) (bundle.Line, bool) {
	if f.of.Definition {
		return bundle.Line{}, false
	}
	return f.line(p, r)
}

func (f *feed) line(p *strictjson.Parser, r bundle.Raw) (bundle.Line, bool) {
	l := bundle.Line{Number: r.Number, Kind: f.of.Name}
	// row holds the fields of one row.
	row := f.row(p, r, &l.Faults)
	switch {
	case row != nil:
		l.Value, l.Faults = row.line(), row.faults
		if f.key != nil {
			l.Key = f.keyOf(row)
		}
	case len(l.Faults) == 0:
		return l, false
	}
	return l, true
}

// row reads the fields of a row. If it cannot be read, row returns nil and notes the faults; a blank row has none.
func (f *feed) row(p *strictjson.Parser, r bundle.Raw, faults *fault.List) *row {
	v, err := f.cells(p, r)
	var broken strictjson.Error
	changed := f.o.Format == CSV && len(v.Members) != len(f.columns)
	switch {
	case f.blank(v):
		return nil
	case errors.As(err, &broken):
		faults.Add("row", "format", "the row %s", string(broken))
		return nil
	case err != nil:
		faults.Add("row", "format", "%s", err)
		return nil
	case v.Is != strictjson.Object:
		faults.Add("row", "format", "%s", errNoObject)
		return nil
	}
	out := &row{feed: f}
	for i, m := range v.Members {
		at := f.at(i, m.Name)
		if changed || at < 0 {
			faults.Add("row", "conflict", "the file was changed while it was imported")
			return nil
		}
		for _, t := range f.columns[at].targets {
			out.take(&f.columns[at], t, m.Value)
		}
	}
	return out
}

// row collects the fields of one row.
type row struct {
	feed   *feed
	own    []strictjson.Member
	custom []strictjson.Member
	faults fault.List
}

func (r *row) complain(c *column, what string) {
	name := texts.Clip(c.name)
	r.faults.Add(name, "type", "column %q: %s", name, what)
}

// take reads the value of a column for one of its fields.
func (r *row) take(c *column, t *target, v strictjson.Value) {
	switch {
	case v.Is != strictjson.Text:
	case !utf8.ValidString(v.Text):
		r.complain(c, "the text is not valid UTF-8; "+encodingAdvice)
		return
	case strings.IndexByte(v.Text, 0) >= 0:
		r.complain(c, "the text holds a NUL character, as UTF-16 does; "+encodingAdvice)
		return
	}
	if t.field == "" {
		return
	}
	switch {
	case v.Is == strictjson.Null:
	case t.field == r.feed.of.DefinitionField && !t.custom:
		if v.Text != r.feed.definition {
			r.complain(c, "the row belongs to another "+spaced(r.feed.of.DefinedBy))
		}
	case v.Is == strictjson.Number && t.typ == schema.Number && t.custom && !schema.Exact(v.Text):
		r.complain(c, "the number has more digits than can be stored exactly; quote it, and store it in a text field")
	case v.Is == strictjson.Number && t.typ == schema.Number, v.Is != strictjson.Text && t.typ == aValue, v.Is != strictjson.Text && r.asIs(t):
		r.put(t, v)
	case v.Is == strictjson.Text, v.Is == strictjson.Number:
		r.text(c, t, v.Text)
	case v.Is == strictjson.True, v.Is == strictjson.False:
		r.text(c, t, strconv.FormatBool(v.Is == strictjson.True))
	case v.Is == strictjson.Array:
		r.list(c, t, v)
	default:
		r.complain(c, "the value is an object; rows must be flat")
	}
}

func (r *row) text(c *column, t *target, cell string) {
	if cell == "" || strings.TrimSpace(cell) == "" && !r.verbatim(t) {
		return
	}
	if r.feed.ours && (t.typ == aLine && !strings.ContainsFunc(cell, unicode.IsControl) || t.typ == aText) {
		r.put(t, text(cell))
		return
	}
	if t.format != "" {
		read, err := normalize(t.format, cell)
		if err != nil {
			r.complain(c, err.Error())
			return
		}
		cell = read
	}
	switch list := t.typ == schema.MultiSelect && !r.feed.ours; {
	case list && (!t.custom || t.format == formatList):
		cell = splitList(cell)
	case list && r.feed.o.Format == JSON: // JSON has lists of its own, so a text is one element
		r.put(t, valueOf([]string{strings.TrimSpace(cell)}))
		return
	}
	if v, err := r.exact(t, cell); err == nil {
		r.put(t, v)
		return
	}
	if r.verbatim(t) && strings.TrimSpace(cell) == "" {
		r.put(t, text(cell))
		return
	}
	if v, err := convert(t.typ, cell); err != nil && t.typ == typeOfFormat(t.format) {
		r.complain(c, unwritten(t.format).Error())
	} else if err != nil {
		r.complain(c, err.Error()+advice(t.typ))
	} else if v.Is != strictjson.Null {
		r.put(t, v)
	}
}

// advice returns a hint at formats for values in other notations.
func advice(typ string) string {
	switch typ {
	case schema.Number:
		return "; for other notations map the column with a format, for example COLUMN=FIELD:1.234,56"
	case schema.Date:
		return "; for other notations map the column with a format, for example COLUMN=FIELD:dd.mm.yyyy"
	}
	return ""
}

// verbatim reports whether values of the field can be any text, including blanks.
func (r *row) verbatim(t *target) bool {
	known := slices.Contains(schema.KnownTypes(), t.typ)
	return t.custom && (!known || t.typ == schema.Text || t.typ == schema.LongText || t.typ == schema.Select || t.typ == schema.Encrypted)
}

// asIs reports whether values are exactly as an export wrote them, because their type does not say whether they are
// texts or lists.
func (r *row) asIs(t *target) bool {
	return r.feed.ours && t.custom && (!slices.Contains(schema.KnownTypes(), t.typ) || t.typ == schema.File)
}

var errNoObject = errors.New("the row must be an object")

var errInexact = errors.New("the text may have another notation")

// exact reads a value of a defined field as an export wrote it.
func (r *row) exact(t *target, cell string) (v strictjson.Value, err error) {
	kind, _ := schema.StoreType(t.typ)
	var p strictjson.Parser
	switch {
	case r.asIs(t) && r.feed.o.Format == CSV:
		if v, err = p.Parse(cell); err != nil {
			v, err = text(cell), nil
		}
		return v, err
	case r.feed.ours && t.custom && t.typ == schema.Number:
		if v, err = p.Parse(cell); err == nil && v.Is != strictjson.Number {
			err = errInexact
		}
		return v, err
	case r.asIs(t):
		return text(cell), nil
	case r.feed.ours && t.custom && kind == store.TypeString:
		var wrong fault.List
		schema.CheckValue(&wrong, t.field, schema.Field{Type: t.typ}, cell)
		return text(cell), wrong.Err()
	}
	return v, errInexact
}

// convert reads a cell that is not blank; the result is null if it holds no value.
func convert(typ, cell string) (v strictjson.Value, err error) {
	switch {
	case typ == aLine:
		return text(oneLine(cell)), nil
	case typ == aText:
		return text(strings.TrimSpace(cell)), nil
	case typ == aValue:
		var p strictjson.Parser
		if v, err = p.Parse(cell); err != nil {
			err = fmt.Errorf("JSON is expected: %w", err)
		}
		return v, err
	case !slices.Contains(schema.KnownTypes(), typ): // values of unknown types are stored as texts
		typ = schema.Text
	}
	converted, err := schema.Convert(typ, cell)
	return valueOf(converted), err
}

// oneLine returns a text as one line, because files contain stray tabs and line feeds, and quotes and dashes of
// Windows-1252 that were decoded as Latin-1.
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

func (r *row) put(t *target, v strictjson.Value) {
	m := strictjson.Member{Name: t.field, Value: v}
	if t.custom {
		r.custom = append(r.custom, m)
	} else {
		r.own = append(r.own, m)
	}
}

func (r *row) list(c *column, t *target, v strictjson.Value) {
	if r.feed.ours && t.typ == schema.MultiSelect {
		r.put(t, v)
		return
	}
	var parts []string
	seen := map[string]bool{} // a row may have half a million of them
	for _, item := range v.Items {
		switch item.Is {
		case strictjson.Text, strictjson.Number:
			if s := strings.TrimSpace(item.Text); s != "" && !seen[s] {
				parts, seen[s] = append(parts, s), true
			}
		case strictjson.True, strictjson.False:
			s := strconv.FormatBool(item.Is == strictjson.True)
			parts, seen[s] = append(parts, s), true
		case strictjson.Null:
		default:
			r.complain(c, "the list holds lists or objects; rows must be flat")
			return
		}
	}
	switch {
	case len(parts) == 0:
	case t.typ == schema.MultiSelect:
		r.put(t, valueOf(parts))
	default:
		r.text(c, t, strings.Join(parts, "; "))
	}
}

// line returns the row as a line of a bundle.
func (r *row) line() strictjson.Value {
	members := r.own
	if r.feed.definition != "" {
		members = append(members, member(r.feed.of.DefinitionField, r.feed.definition)) // cells are never read as the definition
	}
	if len(r.custom) > 0 {
		members = append(members, strictjson.Member{Name: r.feed.of.ValuesName(), Value: object(r.custom...)})
	}
	return object(members...)
}

func object(members ...strictjson.Member) strictjson.Value {
	return strictjson.Value{Is: strictjson.Object, Members: members}
}

func text(s string) strictjson.Value { return strictjson.Value{Is: strictjson.Text, Text: s} }

func member(name, s string) strictjson.Member { return strictjson.Member{Name: name, Value: text(s)} }

// parsed returns the value of JSON that this program has written; null if it is empty.
func parsed(written []byte) strictjson.Value {
	var p strictjson.Parser
	v, _ := p.Parse(string(written)) // null if it cannot be read
	return v
}

// valueOf returns a stored value, or a result of schema.Convert, as a JSON value.
func valueOf(v any) strictjson.Value {
	switch x := v.(type) {
	case nil:
		return strictjson.Value{}
	case string:
		return text(x)
	case bool:
		return parsed(strconv.AppendBool(nil, x))
	case []string:
		v := strictjson.Value{Is: strictjson.Array, Items: make([]strictjson.Value, len(x))}
		for i, s := range x {
			v.Items[i] = text(s)
		}
		return v
	}
	written, _ := json.Marshal(v) // a number; stores hold only numbers that JSON can represent
	return strictjson.Value{Is: strictjson.Number, Text: string(written)}
}

// guess collects samples for guessing the type of a column.
type guess struct {
	schema.Guess
	lists bool
}

func (g *guess) result() string {
	if typ := g.Type(); !g.lists || typ != schema.Text {
		return typ
	}
	return schema.MultiSelect
}

// look takes a value as a sample. JSON has types of its own: a text is neither a number nor a boolean, and only a text
// can be a date.
func (g *guess) look(v strictjson.Value, format string) {
	switch v.Is {
	case strictjson.True, strictjson.False:
		g.Add(strconv.FormatBool(v.Is == strictjson.True))
	case strictjson.Number:
		if schema.Exact(v.Text) {
			g.Add("0")
		} else {
			g.Add(v.Text)
			g.Exclude(schema.Number)
		}
	case strictjson.Text:
		if g.Add(v.Text); format == JSON && strings.TrimSpace(v.Text) != "" {
			g.Exclude(schema.Number)
			g.Exclude(schema.Boolean)
		}
	case strictjson.Array:
		g.lists = true
	}
}

// separatorLine returns a first line that names the delimiter of a CSV file, unless the header or the options do,
// because the delimiter could be detected differently from only some of the rows.
func (f *feed) separatorLine() string {
	if f.o.Format != CSV || f.o.Delimiter != "" || f.comma == ',' || strings.HasPrefix(f.first, "sep=") {
		return ""
	}
	return "sep=" + string(f.comma) + "\n"
}

// Original returns a row as in the file; the first row of a CSV file follows the header.
func (f *feed) Original(r bundle.Raw) []byte {
	out := r.Text
	if !strings.HasSuffix(out, "\n") && !strings.HasSuffix(out, "\r") {
		out += "\n"
	}
	raw := f.text.encode(out)
	f.header.Do(func() { raw = slices.Concat([]byte(f.text.mark), f.text.encode(f.separatorLine()+f.first), raw) }) // for JSON, only the byte order mark
	return raw
}
