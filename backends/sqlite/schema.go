package sqlite

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/driver"
	"tenantry/internal/texts"
	"zombiezen.com/go/sqlite"
)

// schema is a list of collections as tables. It is immutable.
type schema struct {
	collections []*driver.Collection
	shared      bool // see table.shared
	tables      map[string]*table
	known       map[*driver.Collection]*table
}

func newSchema(collections []*driver.Collection, shared bool) (*schema, error) {
	s := &schema{collections: slices.Clone(collections), shared: shared, tables: make(map[string]*table, len(collections)), known: make(map[*driver.Collection]*table, len(collections))}
	for _, c := range collections {
		t, err := newTable(c, shared)
		if err != nil {
			return nil, err
		}
		s.tables[c.Name], s.known[c] = t, t
	}
	return s, nil
}

// with returns the tables of both, those of o where both have one. Either may be nil.
func (s *schema) with(o *schema) *schema {
	if s == nil || o == nil || s == o {
		return cmp.Or(s, o)
	}
	more := false
	for name, t := range o.tables {
		more = more || s.tables[name] == nil || s.tables[name].spec != t.spec
	}
	if !more {
		return s
	}
	all := &schema{tables: maps.Clone(s.tables), shared: s.shared}
	maps.Copy(all.tables, o.tables)
	return all
}

// isIn reports whether the connection's file is the owner's and has been prepared for the tables.
// It is the one read that the opening of an up-to-date file costs.
func (s *schema) isIn(c *conn, o *driver.Opening) (bool, error) {
	stored, _, err := c.raw.PrepareTransient("SELECT name, spec FROM collections")
	if err != nil {
		if sqlite.ErrCode(err) == sqlite.ResultError {
			return false, nil // there is no such table
		}
		return false, err
	}
	defer func() { _ = stored.Finalize() }()
	same, owner := 0, ""
	for {
		more, err := stored.Step()
		if err != nil || !more {
			// What is nobody's is looked at by who migrates it.
			return same == len(s.tables) && owner == o.Owner && (owner != "" || !o.New), err
		}
		if stored.ColumnText(0) == ownerRow {
			owner = stored.ColumnText(1)
		}
		if t := s.tables[stored.ColumnText(0)]; t != nil && t.spec == stored.ColumnText(1) {
			same++
		}
	}
}

// table is a collection as SQL. Every name in its statements has passed declared.
type table struct {
	name                 string
	spec                 string // the collection as JSON, kept in the file
	quoted               string
	shared               bool // by several workspaces: column ws leads the key and every index
	fields               []driver.Field
	columns              map[string]field
	leading              map[string]bool // fields that some index starts with
	next                 map[string]bool // and those that follow the field of in one
	sides                []side
	indexes              []index
	uniques              []unique
	of                   string   // the field that says which custom fields a document has, empty: all have the same
	riders               []string // columns that entries of indexes on custom values have too
	entries, entriesMade string   // the table of these, quoted, and the statement that makes it

	selectByID, selectRev, selectSize, insert, replace, remove, put string

	uncounted bool
}

type field struct {
	column string
	typ    driver.Type
	side   string // quoted side table, where one is declared
}

// side is the look-up table of a Strings index: one row for each element.
type side struct {
	name, quoted       string
	shared             bool
	position           int // of the field in the document's values
	insert, dropOldOne string
}

type index struct{ name, create string }

type unique struct {
	columns, index string
	fields         []string
}

// declared reports whether a name of the program is [a-z][a-z0-9_]*.
func declared(name string) bool { return texts.PlainLower(name, len(name), "_") && name[0] >= 'a' }

func quote(name string) string { return `"` + name + `"` }

// newTable checks the collection and prepares its statements.
func newTable(c *driver.Collection, shared bool) (*table, error) {
	if !declared(c.Name) {
		return nil, fmt.Errorf("collection %q: the name must match [a-z][a-z0-9_]*", c.Name)
	}
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("collection %s: %w", c.Name, err)
	}
	t := &table{
		name: c.Name, spec: string(spec), quoted: quote("c:" + c.Name), shared: shared, fields: c.Fields, uncounted: c.Uncounted,
		columns: map[string]field{}, leading: map[string]bool{"id": true}, next: map[string]bool{},
	}
	t.addUnique("id", []string{"id"}, "id")
	for _, f := range c.Fields {
		if !declared(f.Name) {
			return nil, fmt.Errorf("collection %s: field %q: the name must match [a-z][a-z0-9_]*", c.Name, f.Name)
		}
		if _, twice := t.columns[f.Name]; twice {
			return nil, fmt.Errorf("collection %s: field %s is declared twice", c.Name, f.Name)
		}
		t.columns[f.Name] = field{column: "f_" + f.Name, typ: f.Type}
	}
	for _, name := range c.Rides {
		t.riders = append(t.riders, t.columns[name].column)
	}
	if t.of = c.Of; t.of != "" && t.columns[t.of].typ != driver.String {
		return nil, fmt.Errorf("collection %s: %q does not say which fields a document has", c.Name, t.of)
	}
	t.entries = quote("e:" + c.Name)
	t.entriesMade = t.entriesCreate()
	t.columns["id"] = field{column: "id", typ: driver.String}
	for _, ix := range c.Indexes {
		if !declared(ix.Name) || len(ix.Fields) == 0 {
			return nil, fmt.Errorf("collection %s: index %q: the name must match [a-z][a-z0-9_]* and it needs a field", c.Name, ix.Name)
		}
		if err := t.addIndex(ix); err != nil {
			return nil, fmt.Errorf("collection %s: index %s: %w", c.Name, ix.Name, err)
		}
	}
	t.statements()
	return t, nil
}

func (t *table) addIndex(ix driver.Index) error {
	var columns []string
	rider := ""
	for i, name := range ix.Fields {
		f, ok := t.columns[name]
		if !ok {
			return fmt.Errorf("field %s is not declared", name)
		}
		if f.typ == driver.Strings {
			if ix.Unique {
				return fmt.Errorf("a list (%s) cannot be unique", name)
			}
			if len(ix.Fields) == 1 {
				t.addSide(ix.Name, name)
				return nil
			}
			if i < len(ix.Fields)-1 {
				return fmt.Errorf("a list (%s) can only be the last field", name)
			}
			// A list only rides along, to spare reads of the document; after the id it does not disturb the order.
			rider = f.column
			continue
		}
		columns = append(columns, f.column)
	}
	t.leading[ix.Fields[0]] = true
	if len(ix.Fields) > 1 && ix.Fields[0] == t.of {
		t.next[ix.Fields[1]] = true
	}
	kind := "INDEX"
	if ix.Unique {
		kind = "UNIQUE INDEX"
		t.addUnique(ix.Name, ix.Fields, columns...)
	} else if columns[len(columns)-1] != "id" {
		columns = append(columns, "id")
	}
	if rider != "" {
		columns = append(columns, rider)
	}
	for _, name := range ix.Rides {
		columns = append(columns, t.columns[name].column)
	}
	name, some := "i:"+t.name+":"+ix.Name, ""
	if ix.Sparse {
		some = " WHERE " + columns[len(ix.Fields)-1] + " IS NOT NULL"
	}
	t.indexes = append(t.indexes, index{name: name,
		create: "CREATE " + kind + " " + quote(name) + " ON " + t.quoted + " (" + t.led("ws, ") + strings.Join(columns, ", ") + ")" + some})
	return nil
}

// addUnique notes how SQLite names the columns of a unique index.
func (t *table) addUnique(index string, fields []string, columns ...string) {
	full := make([]string, 0, len(columns)+1)
	if t.shared {
		full = append(full, "c:"+t.name+".ws")
	}
	for _, column := range columns {
		full = append(full, "c:"+t.name+"."+column)
	}
	t.uniques = append(t.uniques, unique{columns: strings.Join(full, ", "), index: index, fields: fields})
}

// led returns a part of a statement that only tables of several workspaces need.
func (t *table) led(part string) string { return led(t.shared, part) }

func led(shared bool, part string) string {
	if shared {
		return part
	}
	return ""
}

// kindOf returns the value of the field that says which custom fields a document has, where all that meets the
// predicate has one. It is empty, and known, where all documents have the same.
func (t *table) kindOf(p driver.Predicate) (kind string, known bool) {
	switch {
	case t.of == "":
		return "", true
	case p.Op == driver.And:
		for _, kid := range p.Kids {
			if kind, known = t.kindOf(kid); known {
				return kind, true
			}
		}
	case p.Op == driver.Eq && !p.Ref.Custom && p.Ref.Name == t.of && len(p.Values) == 1:
		kind, known = p.Values[0].(string)
	}
	return kind, known
}

// ofKind returns the predicate among documents of the kind.
func (t *table) ofKind(kind string, p driver.Predicate) driver.Predicate {
	if t.of == "" {
		return p
	}
	if is, known := t.kindOf(p); !known || is != kind {
		return p
	}
	rest := driver.Predicate{Op: driver.And}
	if p.Op == driver.And {
		for _, kid := range p.Kids {
			if kid = t.ofKind(kind, kid); kid.Op != driver.And || len(kid.Kids) > 0 {
				rest.Kids = append(rest.Kids, kid)
			}
		}
	}
	return rest
}

func (t *table) addSide(indexName, fieldName string) {
	f := t.columns[fieldName]
	name := "s:" + t.name + ":" + indexName
	f.side = quote(name)
	t.columns[fieldName] = f
	s := side{name: name, quoted: f.side, shared: t.shared}
	for i, d := range t.fields {
		if d.Name == fieldName {
			s.position = i
		}
	}
	s.insert = "INSERT OR IGNORE INTO " + f.side + " (value, id" + t.led(", ws") + ") VALUES (?1, ?2" + t.led(", ?3") + ")"
	s.dropOldOne = "DELETE FROM " + f.side + " WHERE " + t.led("ws = ?3 AND ") + "id = ?1 AND value IN (SELECT value FROM json_each((SELECT " +
		f.column + " FROM " + t.quoted + " WHERE " + t.led("ws = ?3 AND ") + "id = ?1 AND rev = coalesce(?2, rev))))"
	t.sides = append(t.sides, s)
}

// statements are with the workspace as their last parameter where several share the table. Fields come before
// the body, so that a condition on them does not read its overflow pages.
func (t *table) statements() {
	var names, marks, sets, over strings.Builder
	for i, f := range t.fields {
		fmt.Fprintf(&names, "f_%s, ", f.Name)
		fmt.Fprintf(&marks, "?%d, ", i+5)
		fmt.Fprintf(&sets, "f_%s = ?%d, ", f.Name, i+5)
		fmt.Fprintf(&over, "f_%[1]s = excluded.f_%[1]s, ", f.Name)
	}
	last := "?" + strconv.Itoa(len(t.fields)+5)
	t.selectByID = "SELECT id, rev, body, custom FROM " + t.quoted + " WHERE " + t.led("ws = ?2 AND ") + "id = ?1"
	t.insert = "INSERT INTO " + t.quoted + " (id, rev, " + names.String() + "body, custom" + t.led(", ws") + ") VALUES (?1, ?2, " + marks.String() + "?3, ?4" + t.led(", "+last) + ")"
	t.replace = "UPDATE " + t.quoted + " SET rev = ?2 + 1, " + sets.String() + "body = ?3, custom = ?4 WHERE " + t.led("ws = "+last+" AND ") + "id = ?1 AND rev = ?2"
	t.put = t.insert + " ON CONFLICT (" + t.led("ws, ") + "id) DO UPDATE SET rev = excluded.rev, " + over.String() + "body = excluded.body, custom = excluded.custom"
	t.selectSize = "SELECT " + sizeOf + " FROM " + t.quoted + " WHERE " + t.led("ws = ?2 AND ") + "id = ?1"
	t.selectRev = "SELECT rev FROM " + t.quoted + " WHERE " + t.led("ws = ?2 AND ") + "id = ?1"
	t.remove = "DELETE FROM " + t.quoted + " WHERE " + t.led("ws = ?3 AND ") + "id = ?1 AND rev = ?2"
}

// create returns the statement that makes the table. WITHOUT ROWID keeps the document
// in the b-tree of its key: a read by id descends once, an insert writes one tree less, and
// every index ends in the id, which is what ties are broken by.
func (t *table) create() string {
	var b strings.Builder
	key := "id TEXT NOT NULL PRIMARY KEY, "
	if t.shared {
		key = "ws INTEGER NOT NULL, id TEXT NOT NULL, "
	}
	b.WriteString("CREATE TABLE " + t.quoted + " (" + key + "rev INTEGER NOT NULL, ")
	for _, f := range t.fields {
		b.WriteString("f_" + f.Name + ", ")
	}
	b.WriteString("body TEXT NOT NULL, custom TEXT" + t.led(", PRIMARY KEY (ws, id)") + ") WITHOUT ROWID")
	return b.String()
}

func (s side) create() string {
	if s.shared {
		return "CREATE TABLE " + s.quoted + " (ws INTEGER NOT NULL, value TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (ws, value, id)) WITHOUT ROWID"
	}
	return "CREATE TABLE " + s.quoted + " (value TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (value, id)) WITHOUT ROWID"
}
