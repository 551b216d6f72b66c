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

// schema is a list of collections with their tables. It is immutable.
type schema struct {
	collections  []*driver.Collection
	shared       bool // see table.shared
	tables       map[string]*table
	byCollection map[*driver.Collection]*table
}

func newSchema(collections []*driver.Collection, shared bool) (*schema, error) {
	s := &schema{
		collections:  slices.Clone(collections),
		shared:       shared,
		tables:       make(map[string]*table, len(collections)),
		byCollection: make(map[*driver.Collection]*table, len(collections)),
	}
	for _, c := range collections {
		t, err := newTable(c, shared)
		if err != nil {
			return nil, err
		}
		s.tables[c.Name], s.byCollection[c] = t, t
	}
	return s, nil
}

// merge returns a schema with the tables of both; those of o take precedence. Either may be nil.
func (s *schema) merge(o *schema) *schema {
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

// preparedIn reports whether the connection's file belongs to the owner and matches the schema. It is the only read
// when an up-to-date file is opened.
func (s *schema) preparedIn(c *conn, o *driver.Opening) (bool, error) {
	stored, _, err := c.raw.PrepareTransient("SELECT name, spec FROM collections")
	if err != nil {
		if sqlite.ErrCode(err) == sqlite.ResultError {
			return false, nil // there is no such table
		}
		return false, err
	}
	defer func() { _ = stored.Finalize() }()
	matching, owner := 0, ""
	for {
		more, err := stored.Step()
		if err != nil || !more {
			// A file without an owner is examined by migrate.
			return matching == len(s.tables) && owner == o.Owner && (owner != "" || !o.New), err
		}
		if stored.ColumnText(0) == ownerRow {
			owner = stored.ColumnText(1)
		}
		if t := s.tables[stored.ColumnText(0)]; t != nil && t.spec == stored.ColumnText(1) {
			matching++
		}
	}
}

// table is the SQL of a collection. Every name in its statements has passed validName.
type table struct {
	name                string
	spec                string // the collection as JSON, stored in the file
	quoted              string
	shared              bool // by several workspaces: column ws leads the key and every index
	fields              []driver.Field
	columns             map[string]field
	leading             map[string]bool // fields with which an index begins
	afterKind           map[string]bool // fields that follow kindField in an index
	sides               []side
	indexes             []index
	uniques             []uniqueIndex
	kindField           string   // see driver.Collection.Of
	entryColumns        []string // declared fields that index entries include
	entries, entriesSQL string   // the table of entries, quoted, and the statement that creates it

	selectByID, selectRev, selectSize, insert, replace, remove, put string

	uncounted bool
}

type field struct {
	column string
	typ    driver.Type
	side   string // the side table, quoted; empty if there is none
}

// side is the side table of an index on a list: it has a row for each element.
type side struct {
	name, quoted      string
	shared            bool
	position          int // of the field in the document's values
	insert, removeOld string
}

// index is a declared index with the statement that creates it.
type index struct{ name, create string }

type uniqueIndex struct {
	columns, index string
	fields         []string
}

// validName reports whether a name matches [a-z][a-z0-9_]*.
func validName(name string) bool { return texts.PlainLower(name, len(name), "_") && name[0] >= 'a' }

func quote(name string) string { return `"` + name + `"` }

// newTable validates the collection and returns its table.
func newTable(c *driver.Collection, shared bool) (*table, error) {
	if !validName(c.Name) {
		return nil, fmt.Errorf("collection %q: the name must match [a-z][a-z0-9_]*", c.Name)
	}
	spec, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("collection %s: %w", c.Name, err)
	}
	t := &table{
		name: c.Name, spec: string(spec), quoted: quote("c:" + c.Name), shared: shared, fields: c.Fields, uncounted: c.Uncounted,
		columns: map[string]field{}, leading: map[string]bool{"id": true}, afterKind: map[string]bool{},
	}
	t.addUnique("id", []string{"id"}, "id")
	for _, f := range c.Fields {
		if !validName(f.Name) {
			return nil, fmt.Errorf("collection %s: field %q: the name must match [a-z][a-z0-9_]*", c.Name, f.Name)
		}
		if _, twice := t.columns[f.Name]; twice {
			return nil, fmt.Errorf("collection %s: field %s is declared twice", c.Name, f.Name)
		}
		t.columns[f.Name] = field{column: "f_" + f.Name, typ: f.Type}
	}
	for _, name := range c.Rides {
		t.entryColumns = append(t.entryColumns, t.columns[name].column)
	}
	if t.kindField = c.Of; t.kindField != "" && t.columns[t.kindField].typ != driver.String {
		return nil, fmt.Errorf("collection %s: field %q, which determines the custom fields, must be a declared string",
			c.Name, t.kindField)
	}
	t.entries = quote("e:" + c.Name)
	t.entriesSQL = t.createEntries()
	t.columns["id"] = field{column: "id", typ: driver.String}
	for _, ix := range c.Indexes {
		if !validName(ix.Name) || len(ix.Fields) == 0 {
			return nil, fmt.Errorf("collection %s: index %q: the name must match [a-z][a-z0-9_]* and a field is required",
				c.Name, ix.Name)
		}
		if err := t.addIndex(ix); err != nil {
			return nil, fmt.Errorf("collection %s: index %s: %w", c.Name, ix.Name, err)
		}
	}
	t.prepareStatements()
	return t, nil
}

// addIndex adds a declared index, or the side table of an index on a list.
func (t *table) addIndex(ix driver.Index) error {
	var columns []string
	list := ""
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
			// The list is only included to spare reads of documents. It follows the id, so that it does not affect the order.
			list = f.column
			continue
		}
		columns = append(columns, f.column)
	}
	t.leading[ix.Fields[0]] = true
	if len(ix.Fields) > 1 && ix.Fields[0] == t.kindField {
		t.afterKind[ix.Fields[1]] = true
	}
	kind := "INDEX"
	if ix.Unique {
		kind = "UNIQUE INDEX"
		t.addUnique(ix.Name, ix.Fields, columns...)
	} else if columns[len(columns)-1] != "id" {
		columns = append(columns, "id")
	}
	if list != "" {
		columns = append(columns, list)
	}
	for _, name := range ix.Rides {
		columns = append(columns, t.columns[name].column)
	}
	name, where := "i:"+t.name+":"+ix.Name, ""
	if ix.Sparse {
		where = " WHERE " + columns[len(ix.Fields)-1] + " IS NOT NULL"
	}
	t.indexes = append(t.indexes, index{
		name: name,
		create: "CREATE " + kind + " " + quote(name) + " ON " + t.quoted +
			" (" + t.ifShared("ws, ") + strings.Join(columns, ", ") + ")" + where,
	})
	return nil
}

// addUnique adds a unique index, with its columns as SQLite names them in errors.
func (t *table) addUnique(index string, fields []string, columns ...string) {
	full := make([]string, 0, len(columns)+1)
	if t.shared {
		full = append(full, "c:"+t.name+".ws")
	}
	for _, column := range columns {
		full = append(full, "c:"+t.name+"."+column)
	}
	t.uniques = append(t.uniques, uniqueIndex{columns: strings.Join(full, ", "), index: index, fields: fields})
}

// ifShared returns a part of a statement that only a shared table needs, "" for others.
func (t *table) ifShared(part string) string { return ifShared(t.shared, part) }

// ifShared returns the part if shared is set.
func ifShared(shared bool, part string) string {
	if shared {
		return part
	}
	return ""
}

// requiredKind returns the value of kindField that the predicate requires, if it requires one. If the table has no
// kindField, the kind is empty and known.
func (t *table) requiredKind(p driver.Predicate) (kind string, known bool) {
	switch {
	case t.kindField == "":
		return "", true
	case p.Op == driver.And:
		for _, kid := range p.Kids {
			if kind, known = t.requiredKind(kid); known {
				return kind, true
			}
		}
	case p.Op == driver.Eq && !p.Ref.Custom && p.Ref.Name == t.kindField && len(p.Values) == 1:
		kind, known = p.Values[0].(string)
	}
	return kind, known
}

// withoutKind returns the predicate without the condition on the kind, which all entries of an index meet.
func (t *table) withoutKind(kind string, p driver.Predicate) driver.Predicate {
	if t.kindField == "" {
		return p
	}
	if is, known := t.requiredKind(p); !known || is != kind {
		return p
	}
	rest := driver.Predicate{Op: driver.And}
	if p.Op == driver.And {
		for _, kid := range p.Kids {
			if kid = t.withoutKind(kind, kid); kid.Op != driver.And || len(kid.Kids) > 0 {
				rest.Kids = append(rest.Kids, kid)
			}
		}
	}
	return rest
}

// addSide adds the side table of an index on a list.
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
	s.insert = "INSERT OR IGNORE INTO " + f.side + " (value, id" + t.ifShared(", ws") +
		") VALUES (?1, ?2" + t.ifShared(", ?3") + ")"
	s.removeOld = "DELETE FROM " + f.side + " WHERE " + t.ifShared("ws = ?3 AND ") +
		"id = ?1 AND value IN (SELECT value FROM json_each((SELECT " +
		f.column + " FROM " + t.quoted + " WHERE " + t.ifShared("ws = ?3 AND ") + "id = ?1 AND rev = coalesce(?2, rev))))"
	t.sides = append(t.sides, s)
}

// prepareStatements sets the statements of the table. The workspace is their last parameter if the table is shared.
func (t *table) prepareStatements() {
	var names, params, sets, over strings.Builder
	for i, f := range t.fields {
		fmt.Fprintf(&names, "f_%s, ", f.Name)
		fmt.Fprintf(&params, "?%d, ", i+5)
		fmt.Fprintf(&sets, "f_%s = ?%d, ", f.Name, i+5)
		fmt.Fprintf(&over, "f_%[1]s = excluded.f_%[1]s, ", f.Name)
	}
	last := "?" + strconv.Itoa(len(t.fields)+5)
	t.selectByID = "SELECT id, rev, body, custom FROM " + t.quoted + " WHERE " + t.ifShared("ws = ?2 AND ") + "id = ?1"
	t.insert = "INSERT INTO " + t.quoted + " (id, rev, " + names.String() + "body, custom" + t.ifShared(", ws") +
		") VALUES (?1, ?2, " + params.String() + "?3, ?4" + t.ifShared(", "+last) + ")"
	t.replace = "UPDATE " + t.quoted + " SET rev = ?2 + 1, " + sets.String() + "body = ?3, custom = ?4" +
		" WHERE " + t.ifShared("ws = "+last+" AND ") + "id = ?1 AND rev = ?2"
	t.put = t.insert + " ON CONFLICT (" + t.ifShared("ws, ") + "id) DO UPDATE SET rev = excluded.rev, " +
		over.String() + "body = excluded.body, custom = excluded.custom"
	t.selectSize = "SELECT " + sizeExpr + " FROM " + t.quoted + " WHERE " + t.ifShared("ws = ?2 AND ") + "id = ?1"
	t.selectRev = "SELECT rev FROM " + t.quoted + " WHERE " + t.ifShared("ws = ?2 AND ") + "id = ?1"
	t.remove = "DELETE FROM " + t.quoted + " WHERE " + t.ifShared("ws = ?3 AND ") + "id = ?1 AND rev = ?2"
}

// create returns the statement that creates the table. WITHOUT ROWID stores the document in the b-tree of its key: a
// read by id descends once, an insert writes one tree less, and every index ends in the id, which breaks ties. The
// declared fields precede the body, so that a condition on them does not read the body's overflow pages.
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
	b.WriteString("body TEXT NOT NULL, custom TEXT" + t.ifShared(", PRIMARY KEY (ws, id)") + ") WITHOUT ROWID")
	return b.String()
}

// create returns the statement that creates the side table.
func (s side) create() string {
	return "CREATE TABLE " + s.quoted + " (" + ifShared(s.shared, "ws INTEGER NOT NULL, ") +
		"value TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (" + ifShared(s.shared, "ws, ") + "value, id)) WITHOUT ROWID"
}
