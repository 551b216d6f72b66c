package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store/driver"
	"tenantry/internal/texts"
)

// maxPlaceholders is the longest list that gets one parameter for each value; longer ones travel as one JSON array.
// So do all in a statement that has maxParams by then: SQLite takes 32,766, and the time to prepare them grows with their square.
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
	// fields has the indexes on custom values. Sought are the keys of conditions that such an index could serve.
	fields *fields
	sought []string
	// side says whether element look-ups go through side tables; see indexed.
	side  bool
	ws    int64  // the workspace, where several share the table
	brief bool   // one document is looked up by a unique index: it waits in no lane, as one that is read by its id
	mark  string // of it, once it was written, or a number; see statement
	// began is when the snapshot was begun that it was asked of; zero: of none that was held.
	began time.Time
}

type customKey struct{ name, param string }

// statement begins one that asks for what meets the predicate, in that order. Where an index on a custom value serves that, the
// workspace is a number in it, since a parameter would not tell the planner that the index is its own.
func (w *workspace) statement(t *table, where driver.Predicate, sort ...driver.Order) *statement {
	s := &statement{t: t, fields: &w.file.fields, ws: w.space.id}
	s.sql.Grow(256)
	if s.served(where) || len(sort) > 0 && s.hasIndex(sort[0].Ref) {
		s.mark = strconv.FormatInt(s.ws, 10)
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
	// expr has the row's value, a bool as blob where typ is Any, and nothing for a list or an object; whole has these too.
	expr, whole string
	typ         driver.Type
	side        string
	// json and text are the custom value as JSON and as SQL value. A comparison of text is
	// cheaper than one of expr and never misses what expr would match.
	json, text string
	// indexed says that an index has expr.
	indexed bool
}

func (s *statement) operand(r driver.Ref) (operand, error) {
	if !r.Custom {
		f, ok := s.t.columns[r.Name]
		if !ok {
			return operand{}, fmt.Errorf("collection %s has no field %q", s.t.name, r.Name)
		}
		return operand{expr: f.column, whole: f.column, typ: f.typ, side: f.side}, nil
	}
	if s.hasIndex(r) {
		o := customOperand("'" + r.Name + "'") // that has passed validKey when the index was wanted
		o.indexed = true
		return o, nil
	}
	k, err := s.key(r.Name)
	if err != nil {
		return operand{}, err
	}
	o := customOperand(k)
	if r.Type == driver.Strings {
		o.typ = driver.Strings
	}
	return o, nil
}

// customOperand returns the value of a custom key, which is a mark or, as indexes have it, quoted.
func customOperand(key string) operand {
	o := operand{typ: driver.Any, json: "(custom -> " + key + ")", text: "(custom ->> " + key + ")"}
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
	s.add(" FROM ", s.t.quoted)
	if p.Op == driver.And && len(p.Kids) == 0 {
		if s.t.shared {
			s.add(" WHERE ", s.mine(""))
		}
		return nil
	}
	s.side = !s.indexed(p)
	s.add(" WHERE ", s.mine(" AND "))
	return s.predicate(p, true)
}

// indexed reports whether the predicate, all of which must hold, has an equality that an index
// can start from. Element look-ups then test the row at hand instead of
// collecting the ids of every document with that element.
func (s *statement) indexed(p driver.Predicate) bool {
	switch p.Op {
	case driver.And:
		return slices.ContainsFunc(p.Kids, s.indexed)
	case driver.Eq, driver.In:
		return !p.Ref.Custom && s.t.leading[p.Ref.Name]
	}
	return false
}

// one reports whether the predicate admits one document at most, by all fields of a unique index.
func (t *table) one(p driver.Predicate) bool {
	return slices.ContainsFunc(t.uniques, func(u unique) bool { return p.Pins(u.fields...) })
}

// searchable reports whether an index or side table can answer the predicate alone.
func (s *statement) searchable(p driver.Predicate) bool {
	switch p.Op {
	case driver.Eq, driver.In, driver.Contains, driver.StartsWith, driver.Gt, driver.Gte, driver.Lt, driver.Lte:
		if p.Ref.Custom {
			return false
		}
		f := s.t.columns[p.Ref.Name]
		if f.typ == driver.Strings {
			return f.side != ""
		}
		return s.t.leading[p.Ref.Name] && p.Op != driver.Contains
	}
	return false
}

// seeks reports whether an index on the value serves the operator.
func seeks(op driver.Op) bool {
	switch op {
	case driver.Eq, driver.In, driver.StartsWith, driver.Gt, driver.Gte, driver.Lt, driver.Lte, driver.From:
		return true
	}
	return false
}

// hasIndex reports whether there is an index on a custom value.
func (s *statement) hasIndex(r driver.Ref) bool {
	return r.Custom && r.Type != driver.Strings && s.fields.indexedBy(fieldKey{s.ws, s.t.name, r.Name}) != nil
}

// served reports whether an index on a custom value serves a condition of the predicate.
func (s *statement) served(p driver.Predicate) bool {
	if p.Op == driver.And || p.Op == driver.Or {
		return slices.ContainsFunc(p.Kids, s.served)
	}
	return seeks(p.Op) && s.hasIndex(p.Ref)
}

// ranged reports whether an index can answer p, but only as a range, which is not in the order of ids.
func (s *statement) ranged(p driver.Predicate) bool {
	if p.Op == driver.And {
		return !s.indexed(p) && slices.ContainsFunc(p.Kids, s.ranged)
	}
	return !s.indexed(p) && s.searchable(p) && p.Ref.Name != "id"
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
	o, err := s.operand(p.Ref)
	if err != nil {
		return err
	}
	if p.Ref.Custom && top && o.typ == driver.Any && seeks(p.Op) {
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
		if _, isBool := plain[0].([]byte); !negative && len(plain) == 1 && o.text != "" && !o.indexed && !isBool {
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
			}
		}
	}
	mark := s.param(v)
	s.add("(")
	if _, isBool := v.([]byte); o.text != "" && !o.indexed && !isBool {
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
	if p.Op == driver.From {
		s.add("(", o.expr, " >= ", s.param(v), ")")
	} else {
		s.add("(", o.expr, " IS NULL OR ", o.expr, " < ", s.param(v), ")")
	}
	return nil
}

func (s *statement) contains(o operand, op driver.Op, value any) {
	v, isText := value.(string)
	if _, ok := o.literal(value); !ok || !isText {
		s.add("0")
		return
	}
	in := map[driver.Op]string{driver.Contains: "instr(", driver.ContainsFold: instrFold + "("}[op]
	switch mark := s.param(v); {
	case o.text != "":
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
