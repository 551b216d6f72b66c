package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/texts"
)

// maxPlaceholders is the length up to which a list of values gets one parameter each; longer lists are passed as one
// JSON array. So are all lists once the statement has maxParams parameters. SQLite's limit is 32,766, but the time to
// prepare a statement grows with the square of their number.
const (
	maxPlaceholders = 512
	maxParams       = 2 << 10
)

// statement builds one SQL statement. Its text consists of constants of this package and validated names; everything
// else becomes a parameter.
type statement struct {
	t    *table
	sql  strings.Builder
	args []any
	keys []customKey
	// indexable are the custom fields whose conditions or order an index could serve.
	indexable []string
	// index is the index on the custom field indexedField whose entries are read; nil if there is none. If indexOnly is
	// set, the entries alone are read, and otherwise the documents too.
	index        *fieldIndex
	indexedField string
	indexOnly    bool
	// kind is the value of table.kindField that the query requires, if kindKnown.
	kind      string
	kindKnown bool
	// fullScan: all documents are read; see chooseScan.
	fullScan bool
	// useSides: element look-ups use side tables; see indexed.
	useSides bool
	ws       int64  // the workspace, if the table is shared
	single   bool   // it looks up one document by a unique index, and so waits in no lane
	wsParam  string // the placeholder of ws, once it was written
	// snapshotAt is the time of the snapshot in which it was executed; zero if the reader kept none.
	snapshotAt time.Time
	take       func(*driver.Document) error // see driver.Query
}

type customKey struct{ name, param string }

// statement begins a statement for a predicate, a sort order and values that the statement returns or aggregates.
func (w *workspace) statement(t *table, where driver.Predicate, sort []driver.Order, values ...driver.Ref) *statement {
	s := &statement{t: t, ws: w.space.id}
	s.kind, s.kindKnown = t.requiredKind(where)
	s.sql.Grow(256)
	if have := w.file.indexes.ready.Load(); have != nil && len(*have) > 0 {
		s.chooseIndex(&w.file.indexes, where, sort, values)
	}
	return s
}

func (s *statement) add(parts ...string) {
	for _, p := range parts {
		s.sql.WriteString(p)
	}
}

// param adds a parameter and returns its placeholder.
func (s *statement) param(v any) string {
	s.args = append(s.args, v)
	return "?" + strconv.Itoa(len(s.args))
}

// inWorkspace returns the condition that limits a shared table to the workspace, with a suffix such as " AND ". It
// returns "" for a table that is not shared.
func (s *statement) inWorkspace(suffix string) string {
	if s.wsParam == "" && s.t.shared {
		s.wsParam = s.param(s.ws)
	}
	return s.t.ifShared("ws = " + s.wsParam + suffix)
}

// key returns the placeholder of a custom key. The key is bound as text, which the operators -> and ->> take as the
// name of a member. It returns an error for names that they would take as a path.
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

// operand is the SQL of a value of the row.
type operand struct {
	// expr is the value: a bool is a blob if typ is Any, and a list or object is NULL. full includes lists and objects.
	expr, full string
	typ        driver.Type
	side       string
	// json and text are a custom value as JSON and as an SQL value; empty for a declared field. A comparison with text is
	// cheaper than one with expr and, except for bools, true whenever that is.
	json, text string
	// inEntry: expr is the value of an index entry, in which noValue stands for NULL.
	inEntry bool
}

// operand returns the operand of a reference, read from the document.
func (s *statement) operand(r driver.Ref) (operand, error) {
	if !r.Custom {
		f, ok := s.t.columns[r.Name]
		if !ok {
			return operand{}, fmt.Errorf("collection %s has no field %q", s.t.name, r.Name)
		}
		o := operand{expr: f.column, full: f.column, typ: f.typ, side: f.side}
		if s.fullScan && f.typ == driver.Bool {
			o.expr = "+" + f.column // the plus keeps SQLite from using an index
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

// entryOperand is operand, but returns the value of the index entry if the chosen index is on that field.
func (s *statement) entryOperand(r driver.Ref) (operand, error) {
	if s.index != nil && r.Custom && r.Name == s.indexedField && r.Type != driver.Strings {
		o := customOperand("custom", "'"+r.Name+"'") // the name was validated by key before the index was built
		o.expr, o.inEntry = "v", true
		return o, nil
	}
	return s.operand(r)
}

// customOperand returns the operand of a key in the given column of custom values. The key is SQL: a placeholder, a
// column or a quoted text.
func customOperand(column, key string) operand {
	o := operand{typ: driver.Any, json: "(" + column + " -> " + key + ")", text: "(" + column + " ->> " + key + ")"}
	value := func(list string) string {
		return "(CASE substr(" + o.json + ", 1, 1) WHEN 't' THEN x'01' WHEN 'f' THEN x'00'" +
			" WHEN '{' THEN " + list + " WHEN '[' THEN " + list + " ELSE " + o.text + " END)"
	}
	o.expr, o.full = value("NULL"), value("CAST("+o.json+" AS BLOB)")
	return o
}

// literal returns the value as an operand of this type stores it, and whether it can occur there.
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

// from writes the FROM and WHERE clauses, which limit the statement to the workspace's own rows.
func (s *statement) from(p driver.Predicate) error {
	if s.index != nil {
		p = s.t.withoutKind(s.kind, p)
	}
	all := p.Op == driver.And && len(p.Kids) == 0
	s.useSides = s.index == nil && !s.indexed(p)
	switch {
	case s.index == nil:
		s.add(" FROM ", s.t.quoted)
		if s.t.shared || s.fullScan || !all {
			s.add(" WHERE ", s.inWorkspace(""))
		}
		if s.fullScan {
			s.add(s.t.ifShared(" AND "), "id > ''")
		}
	case s.indexOnly:
		s.add(" FROM ", s.t.entries, " WHERE ", s.inWorkspace(" AND "), "number = ", s.param(s.index.number))
	default: // the planner merges the subquery
		s.add(" FROM (SELECT v, id AS entry FROM ", s.t.entries, " WHERE ", s.inWorkspace(" AND "),
			"number = ", s.param(s.index.number), ") JOIN ", s.t.quoted, " ON ", s.inWorkspace(" AND "), "id = entry")
	}
	if all {
		return nil
	}
	if s.t.shared || s.fullScan || s.index != nil {
		s.add(" AND ")
	}
	return s.predicate(p, true)
}

// id returns the name of the column with the document's id.
func (s *statement) id() string {
	if s.index != nil && !s.indexOnly {
		return "entry"
	}
	return "id"
}

// predicate writes p. top says that every row of the result must meet it.
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
	o, err := s.entryOperand(p.Ref)
	if err != nil {
		return err
	}
	if p.Ref.Custom && top && s.kindKnown && o.typ == driver.Any && indexServes(p.Op) {
		s.indexable = append(s.indexable, p.Ref.Name)
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
		s.elements(o, p, top && s.useSides)
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
		return s.compareOrder(o, p)
	default:
		return fmt.Errorf("unknown operator %d", p.Op)
	}
	return nil
}

// join writes the kids connected by AND or OR, or the constant for none.
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

// list returns the table of a custom list's elements. A string counts as a list of one.
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

// inList writes a comparison with the values. The number of parameters is rounded up to a power of two, so that few
// distinct statements serve all lengths.
func (s *statement) inList(values []any) {
	if s.asJSON(values) {
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
	b, err := json.Marshal(append([]any{}, values...)) // nil would be null
	if err != nil {
		return "[]"
	}
	return string(b)
}

// asJSON reports whether the list is passed as one parameter.
func (s *statement) asJSON(values []any) bool {
	return len(values) > maxPlaceholders || len(values) > 1 && len(s.args) > maxParams
}

// split separates the bools that are stored as blobs, which a JSON array cannot contain.
func (s *statement) split(values []any) (plain, blobs []any) {
	if !s.asJSON(values) {
		return values, nil
	}
	for _, v := range values {
		if _, isBool := v.(boolBlob); !isBool {
			plain = append(plain, v)
		} else if !slices.Contains(blobs, v) {
			blobs = append(blobs, v)
		}
	}
	return plain, blobs
}

// in writes the condition that the operand is one of the values or, if negative, none of them.
func (s *statement) in(o operand, values []any, negative bool) {
	plain, blobs := s.split(o.usable(values))
	if len(plain)+len(blobs) == 0 {
		s.add(map[bool]string{false: "0", true: "1"}[negative])
		return
	}
	if all := append(plain, blobs...); negative && len(all) == 1 {
		s.add("(", o.expr, " IS NOT ", s.param(all[0]), ")") // one comparison instead of two
		return
	}
	s.add("(")
	if negative {
		s.add(o.expr, " IS NULL OR NOT (")
	}
	if len(plain) > 0 {
		if _, isBool := plain[0].(boolBlob); !negative && len(plain) == 1 && o.text != "" && !o.inEntry && !isBool {
			s.add(o.text, " = ", s.param(plain[0]), " AND ")
		}
		s.add(o.expr)
		s.inList(plain)
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

// compare writes a comparison within the type of the value. In SQLite every text is greater than every number, and
// every blob greater than every text, so a second bound may be needed.
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
		case boolBlob:
			bound = map[bool]string{true: " <= x'01'", false: " >= x''"}[up]
		default:
			if up {
				bound = " < ''"
			} else if o.inEntry {
				bound = " > " + noValue
			}
		}
	}
	placeholder := s.param(v)
	s.add("(")
	if _, isBool := v.(boolBlob); o.text != "" && !o.inEntry && !isBool {
		s.add(o.text, sign, placeholder, " AND ")
	}
	s.add(o.expr, sign, placeholder)
	if bound != "" {
		s.add(" AND ", o.expr, bound)
	}
	s.add(")")
}

// compareOrder writes a From or Before, whose order is SQLite's own.
func (s *statement) compareOrder(o operand, p driver.Predicate) error {
	v, ok := o.literal(p.Values[0])
	if !ok || o.json == "" {
		return fmt.Errorf("a %T cannot be compared in the order of %s", p.Values[0], p.Ref.Name)
	}
	least := o.inEntry && v == math.Inf(-1) // it equals noValue, so no entry with a value equals it
	switch {
	case p.Op == driver.From && !least:
		s.add("(", o.expr, " >= ", s.param(v), ")")
	case p.Op == driver.From:
		s.add("(", o.expr, " > ", s.param(v), ")")
	case least:
		s.add("(", o.expr, " <= ", s.param(v), ")")
	case o.inEntry:
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
	switch placeholder := s.param(text); {
	case o.text != "" && !o.inEntry:
		s.add("(", in, o.text, ", ", placeholder, ") > 0 AND substr(", o.json, ", 1, 1) = '\"')")
	case o.typ == driver.Any:
		s.add("(typeof(", o.expr, ") = 'text' AND ", in, o.expr, ", ", placeholder, ") > 0)")
	default:
		s.add(in, o.expr, ", ", placeholder, ") > 0")
	}
}

// startsWith writes a range of strings, which an index can serve.
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

// maxPrefixes bounds the ranges of a case-insensitive prefix search.
const maxPrefixes = 4

// startsWithFold writes ranges for the case variants of the first letters, which an index can serve, and within them a
// comparison of the whole prefix.
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
	compared := o.expr
	if o.text != "" && !o.inEntry {
		compared = o.text // equal to expr, because values in the ranges are texts
	}
	s.add(") AND ", beginsFold, "(", compared, ", ", s.param(text), "))")
}

// afterPrefix returns the smallest string greater than all that begin with prefix, and false if there is none.
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
