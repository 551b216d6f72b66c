package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/texts"
)

// maxPlaceholders is the longest list that gets one parameter for each value; longer ones travel as one JSON array. So
// do all in a statement that has maxParams by then: SQLite takes 32,766, and the time to prepare them grows with their
// square.
const (
	maxPlaceholders = 512
	maxParams       = 2 << 10
)

// statement builds one SQL statement. Its text consists of constants of this package
// and of checked names; everything else becomes a parameter.
type statement struct {
	t    *table
	sql  strings.Builder
	args []any
	keys []customKey
	// sought are the custom keys of conditions that an index could serve. By is the index whose entries are read, on
	// that field: without the documents where within is set, with them else. Nil: documents alone are read.
	sought []string
	by     *fieldIndex
	field  string
	within bool
	// kind is the value of the field that says which custom fields there are, where known says that the question is
	// about one.
	kind  string
	known bool
	// whole says that all documents are read for want of a better way; see reading.
	whole bool
	// side says whether element look-ups go through side tables; see indexed.
	side  bool
	ws    int64  // the workspace, where several share the table
	brief bool   // one document is looked up by a unique index: it waits in no lane, as one that is read by its id
	mark  string // of it, once it was written
	// began is when the snapshot was begun that it was asked of; zero: of none that was held.
	began time.Time
	take  func(*driver.Document) error // see driver.Query
}

type customKey struct{ name, param string }

// statement begins one that asks for what meets the predicate, in that order, and for the values of those fields.
func (w *workspace) statement(t *table, where driver.Predicate, sort []driver.Order, values ...driver.Ref) *statement {
	s := &statement{t: t, ws: w.space.id}
	s.kind, s.known = t.kindOf(where)
	s.sql.Grow(256)
	if have := w.file.fields.have.Load(); have != nil && len(*have) > 0 {
		s.enter(&w.file.fields, where, sort, values)
	}
	return s
}

func (s *statement) add(parts ...string) {
	for _, p := range parts {
		s.sql.WriteString(p)
	}
}

// param adds a parameter and returns its mark.
func (s *statement) param(v any) string {
	s.args = append(s.args, v)
	return "?" + strconv.Itoa(len(s.args))
}

// mine returns the condition that confines a shared table to the workspace.
func (s *statement) mine(and string) string {
	if s.mark == "" && s.t.shared {
		s.mark = s.param(s.ws)
	}
	return s.t.led("ws = " + s.mark + and)
}

// key returns the mark of a custom key. The key is bound as text, which the
// operator takes as the name of a member; names that it would take as a path are refused.
func (s *statement) key(name string) (string, error) {
	for _, k := range s.keys {
		if k.name == name {
			return k.param, nil
		}
	}
	if !texts.Plain(name, 64, "_-") {
		return "", fmt.Errorf("custom field %q: a name has 1 to 64 of letters, digits, _ and -", name)
	}
	k := customKey{name: name, param: s.param(name)}
	s.keys = append(s.keys, k)
	return k.param, nil
}

// operand is a value of the row as SQL.
type operand struct {
	// expr has the row's value, a bool as blob where typ is Any, and nothing for a list or an object; whole has these
	// too.
	expr, whole string
	typ         driver.Type
	side        string
	// json and text are the custom value as JSON and as SQL value. A comparison of text is
	// cheaper than one of expr and never misses what expr would match.
	json, text string
	// entry says that expr is of an entry, where noValue stands for NULL.
	entry bool
}

func (s *statement) operand(r driver.Ref) (operand, error) {
	if !r.Custom {
		f, ok := s.t.columns[r.Name]
		if !ok {
			return operand{}, fmt.Errorf("collection %s has no field %q", s.t.name, r.Name)
		}
		o := operand{expr: f.column, whole: f.column, typ: f.typ, side: f.side}
		if s.whole && f.typ == driver.Bool {
			o.expr = "+" + f.column // which no index serves
		}
		return o, nil
	}
	k, err := s.key(r.Name)
	if err != nil {
		return operand{}, err
	}
	o := customOperand("custom", k)
	if r.Type == driver.Strings {
		o.typ = driver.Strings
	}
	return o, nil
}

// compared returns the operand as it is compared, of the entry where that has it.
func (s *statement) compared(r driver.Ref) (operand, error) {
	if s.by != nil && r.Custom && r.Name == s.field && r.Type != driver.Strings {
		o := customOperand("custom", "'"+r.Name+"'") // that has passed key when the index was wanted
		o.expr, o.entry = "v", true
		return o, nil
	}
	return s.operand(r)
}

// customOperand returns the value of a custom key in the column of custom values. The key is a mark, a column or
// quoted.
func customOperand(column, key string) operand {
	o := operand{typ: driver.Any, json: "(" + column + " -> " + key + ")", text: "(" + column + " ->> " + key + ")"}
	value := func(list string) string {
		return "(CASE substr(" + o.json + ", 1, 1) WHEN 't' THEN x'01' WHEN 'f' THEN x'00' WHEN '{' THEN " + list + " WHEN '[' THEN " + list + " ELSE " + o.text + " END)"
	}
	o.expr, o.whole = value("NULL"), value("CAST("+o.json+" AS BLOB)")
	return o
}

// literal returns the value as it is stored in an operand of that type, and whether it can occur there.
func (o operand) literal(v any) (any, bool) {
	switch x := v.(type) {
	case string:
		return v, o.typ == driver.Any || o.typ == driver.String || o.typ == driver.Date || o.typ == driver.Strings
	case int64:
		return v, o.typ == driver.Any || numeric(o.typ)
	case float64:
		return v, (o.typ == driver.Any || numeric(o.typ)) && !math.IsNaN(x)
	case bool:
		if o.typ == driver.Any {
			return boolBlob(x), true
		}
		return v, o.typ == driver.Bool
	}
	return nil, false
}

// from writes what is read, and which of it: nothing but the workspace's own.
func (s *statement) from(p driver.Predicate) error {
	if s.by != nil {
		p = s.t.ofKind(s.kind, p)
	}
	all := p.Op == driver.And && len(p.Kids) == 0
	s.side = s.by == nil && !s.indexed(p)
	switch {
	case s.by == nil:
		s.add(" FROM ", s.t.quoted)
		if s.t.shared || s.whole || !all {
			s.add(" WHERE ", s.mine(""))
		}
		if s.whole {
			s.add(s.t.led(" AND "), "id > ''")
		}
	case s.within:
		s.add(" FROM ", s.t.entries, " WHERE ", s.mine(" AND "), "number = ", s.param(s.by.number))
	default: // the planner makes one question of both
		s.add(" FROM (SELECT v, id AS entry FROM ", s.t.entries, " WHERE ", s.mine(" AND "), "number = ", s.param(s.by.number), ") JOIN ", s.t.quoted, " ON ", s.mine(" AND "), "id = entry")
	}
	if all {
		return nil
	}
	if s.t.shared || s.whole || s.by != nil {
		s.add(" AND ")
	}
	return s.predicate(p, true)
}

// id is the column that has the id of what is read.
func (s *statement) id() string {
	if s.by != nil && !s.within {
		return "entry"
	}
	return "id"
}

// predicate writes p; top says that the row must meet it.
func (s *statement) predicate(p driver.Predicate, top bool) error {
	switch p.Op {
	case driver.And:
		return s.join(p.Kids, " AND ", "1", top)
	case driver.Or:
		for _, k := range p.Kids {
			top = top && s.searchable(k)
		}
		return s.join(p.Kids, " OR ", "0", top)
	}
	o, err := s.compared(p.Ref)
	if err != nil {
		return err
	}
	if p.Ref.Custom && top && s.known && o.typ == driver.Any && seeks(p.Op) {
		s.sought = append(s.sought, p.Ref.Name)
	}
	if p.Op != driver.In && p.Op != driver.Nin && len(p.Values) != 1 {
		return fmt.Errorf("a condition on %s needs one value, has %d", p.Ref.Name, len(p.Values))
	}
	if p.Op == driver.Exists {
		want, ok := p.Values[0].(bool)
		if !ok {
			return fmt.Errorf("exists on %s needs true or false", p.Ref.Name)
		}
		s.exists(o, want)
		return nil
	}
	if o.typ == driver.Strings {
		s.elements(o, p, top && s.side)
		return nil
	}
	switch p.Op {
	case driver.Eq, driver.In, driver.Ne, driver.Nin:
		s.in(o, p.Values, p.Op == driver.Ne || p.Op == driver.Nin)
	case driver.Gt, driver.Gte, driver.Lt, driver.Lte:
		s.compare(o, p.Op, p.Values[0])
	case driver.Contains, driver.ContainsFold:
		s.contains(o, p.Op, p.Values[0])
	case driver.StartsWith:
		s.startsWith(o, p.Values[0])
	case driver.StartsWithFold:
		s.startsWithFold(o, p.Values[0])
	case driver.From, driver.Before:
		return s.placed(o, p)
	default:
		return fmt.Errorf("unknown operator %d", p.Op)
	}
	return nil
}

func (s *statement) join(kids []driver.Predicate, with, empty string, top bool) error {
	if len(kids) == 0 {
		s.add(empty)
		return nil
	}
	s.add("(")
	for i, k := range kids {
		if i > 0 {
			s.add(with)
		}
		if err := s.predicate(k, top); err != nil {
			return err
		}
	}
	s.add(")")
	return nil
}

func (s *statement) exists(o operand, want bool) {
	is := " IS NULL"
	if want {
		is = " IS NOT NULL"
	}
	switch {
	case o.json == "":
		s.add(o.expr, is)
	case o.typ != driver.Strings:
		s.add(o.text, is)
	case want:
		s.add("EXISTS (SELECT 1 FROM ", o.list(), " AS j WHERE j.value IS NOT NULL)")
	default:
		s.add("NOT EXISTS (SELECT 1 FROM ", o.list(), " AS j WHERE j.value IS NOT NULL)")
	}
}

// list is the table of a custom list's elements; a single string counts as a list of one.
func (o operand) list() string {
	return "json_each(CASE WHEN substr(" + o.json + ", 1, 1) IN ('[', '\"') THEN " + o.json + " END)"
}

// usable returns the values that can occur in the operand, as stored.
func (o operand) usable(values []any) []any {
	out := make([]any, 0, len(values))
	for _, v := range values {
		if x, ok := o.literal(v); ok {
			out = append(out, x)
		}
	}
	return out
}

// marks writes the list after IN. The number of parameters is a power of two, so that
// few statements serve every length.
func (s *statement) marks(values []any) {
	if s.packed(values) {
		s.add(" IN (SELECT value FROM json_each(", s.param(jsonList(values)), "))")
		return
	}
	if len(values) == 1 {
		s.add(" = ", s.param(values[0]))
		return
	}
	n := 2
	for n < len(values) {
		n *= 2
	}
	s.add(" IN (")
	for i := range n {
		if i > 0 {
			s.add(", ")
		}
		s.add(s.param(values[min(i, len(values)-1)]))
	}
	s.add(")")
}

func jsonList(values []any) string {
	plain := make([]any, 0, len(values))
	for _, v := range values {
		if b, ok := v.([]byte); ok {
			v = b[0] == 1
		}
		plain = append(plain, v)
	}
	b, err := json.Marshal(plain)
	if err != nil {
		return "[]"
	}
	return string(b)
}

// packed reports whether the list travels as one parameter.
func (s *statement) packed(values []any) bool {
	return len(values) > maxPlaceholders || len(values) > 1 && len(s.args) > maxParams
}

// split separates the bools that are stored as blobs, which a JSON array cannot carry.
func (s *statement) split(values []any) (plain, blobs []any) {
	if !s.packed(values) {
		return values, nil
	}
	seen := [2]bool{}
	for _, v := range values {
		if b, ok := v.([]byte); !ok {
			plain = append(plain, v)
		} else if !seen[b[0]] {
			seen[b[0]] = true
			blobs = append(blobs, v)
		}
	}
	return plain, blobs
}

// in writes that the operand is one of the values, or that it is none of them.
func (s *statement) in(o operand, values []any, negative bool) {
	plain, blobs := s.split(o.usable(values))
	if len(plain)+len(blobs) == 0 {
		s.add(map[bool]string{false: "0", true: "1"}[negative])
		return
	}
	if all := append(plain, blobs...); negative && len(all) == 1 {
		s.add("(", o.expr, " IS NOT ", s.param(all[0]), ")") // one comparison for each row instead of two
		return
	}
	s.add("(")
	if negative {
		s.add(o.expr, " IS NULL OR NOT (")
	}
	if len(plain) > 0 {
		if _, isBool := plain[0].([]byte); !negative && len(plain) == 1 && o.text != "" && !o.entry && !isBool {
			s.add(o.text, " = ", s.param(plain[0]), " AND ")
		}
		s.add(o.expr)
		s.marks(plain)
	}
	for i, b := range blobs {
		if i > 0 || len(plain) > 0 {
			s.add(" OR ")
		}
		s.add(o.expr, " = ", s.param(b))
	}
	if negative {
		s.add(")")
	}
	s.add(")")
}

// compare keeps to the type of the value: every text is greater than every number
// to SQLite, and every blob greater than every text, so a bound closes the range.
func (s *statement) compare(o operand, op driver.Op, value any) {
	v, ok := o.literal(value)
	if !ok {
		s.add("0")
		return
	}
	sign := map[driver.Op]string{driver.Gt: " > ", driver.Gte: " >= ", driver.Lt: " < ", driver.Lte: " <= "}[op]
	up := op == driver.Gt || op == driver.Gte
	bound := ""
	if o.typ == driver.Any {
		switch v.(type) {
		case string:
			bound = map[bool]string{true: " < x''", false: " >= ''"}[up]
		case []byte:
			bound = map[bool]string{true: " <= x'01'", false: " >= x''"}[up]
		default:
			if up {
				bound = " < ''"
			} else if o.entry {
				bound = " > " + noValue
			}
		}
	}
	mark := s.param(v)
	s.add("(")
	if _, isBool := v.([]byte); o.text != "" && !o.entry && !isBool {
		s.add(o.text, sign, mark, " AND ")
	}
	s.add(o.expr, sign, mark)
	if bound != "" {
		s.add(" AND ", o.expr, bound)
	}
	s.add(")")
}

// placed compares in the order of a sort, which is SQLite's own.
func (s *statement) placed(o operand, p driver.Predicate) error {
	v, ok := o.literal(p.Values[0])
	if !ok || o.json == "" {
		return fmt.Errorf("%s has no place for a %T", p.Ref.Name, p.Values[0])
	}
	least := o.entry && v == math.Inf(-1) // which is noValue there: nothing that has a value is
	switch {
	case p.Op == driver.From && !least:
		s.add("(", o.expr, " >= ", s.param(v), ")")
	case p.Op == driver.From:
		s.add("(", o.expr, " > ", s.param(v), ")")
	case least:
		s.add("(", o.expr, " <= ", s.param(v), ")")
	case o.entry:
		s.add("(", o.expr, " < ", s.param(v), ")")
	default:
		s.add("(", o.expr, " IS NULL OR ", o.expr, " < ", s.param(v), ")")
	}
	return nil
}

func (s *statement) contains(o operand, op driver.Op, value any) {
	text, isText := value.(string)
	if _, ok := o.literal(value); !ok || !isText {
		s.add("0")
		return
	}
	in := "instr("
	if op == driver.ContainsFold && !driver.Fold(text).Caseless() {
		in = instrFold + "("
	}
	switch mark := s.param(text); {
	case o.text != "" && !o.entry:
		s.add("(", in, o.text, ", ", mark, ") > 0 AND substr(", o.json, ", 1, 1) = '\"')")
	case o.typ == driver.Any:
		s.add("(typeof(", o.expr, ") = 'text' AND ", in, o.expr, ", ", mark, ") > 0)")
	default:
		s.add(in, o.expr, ", ", mark, ") > 0")
	}
}

// startsWith is a range of bytes, which an index can serve.
func (s *statement) startsWith(o operand, value any) {
	prefix, isText := value.(string)
	if _, ok := o.literal(value); !ok || !isText {
		s.add("0")
		return
	}
	s.add("(", o.expr, " >= ", s.param(prefix))
	if end, ok := afterPrefix(prefix); ok {
		s.add(" AND ", o.expr, " < ", s.param(end))
	} else if o.typ == driver.Any {
		s.add(" AND ", o.expr, " < x''")
	}
	s.add(")")
}

// maxPrefixes bounds the ranges in which texts lie that begin with one whatever its case.
const maxPrefixes = 4

// startsWithFold is some ranges, which an index can serve, and all of the beginning is compared within them.
func (s *statement) startsWithFold(o operand, value any) {
	text, isText := value.(string)
	prefix := driver.Fold(text)
	switch _, ok := o.literal(value); {
	case !ok || !isText || prefix == nil:
		s.add("0")
		return
	case prefix.Caseless():
		s.startsWith(o, value)
		return
	}
	s.add("((")
	for i, part := range prefix.Prefixes(maxPrefixes) {
		if i > 0 {
			s.add(" OR ")
		}
		s.startsWith(o, part)
	}
	whole := o.expr
	if o.text != "" && !o.entry {
		whole = o.text // it is a text where it is in one of the ranges
	}
	s.add(") AND ", beginsFold, "(", whole, ", ", s.param(text), "))")
}

// afterPrefix returns the smallest string greater than all that start with prefix.
func afterPrefix(prefix string) (string, bool) {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1]), true
		}
	}
	return "", false
}
