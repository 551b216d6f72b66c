package sqlite

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

const (
	applicationID = 0x544e5259 // "TNRY" in the file's header
	// formatVersion is the version of the layout. It is incremented by changes that an older program cannot read.
	formatVersion = 1
	backfillBatch = 500
	logFormat     = 2 // the read and the write version in the header of a file in WAL mode
)

// checkFile returns an error for files of newer versions and other programs, before anything changes them. logged
// reports whether the file is a database of this program in WAL mode. Errors: driver.ErrNewer, *driver.DamagedError.
func (e *Engine) checkFile(path string) (logged bool, err error) {
	var header []byte
	if !e.sideConns.ifNone(path, func() { header, err = readHeader(path) }) {
		version, app, logged, err := readVersion(path)
		if err == nil {
			err = checkHeader(path, version, app)
		}
		return logged && app == applicationID, err
	}
	if err != nil || header == nil {
		return false, err
	}
	version, app := binary.BigEndian.Uint32(header[60:]), binary.BigEndian.Uint32(header[68:])
	if log, err := os.Stat(path + "-wal"); err == nil && log.Size() > 0 {
		// The log may have a newer header. A read-only connection changes neither.
		if version, app, _, err = readVersion(path); err != nil {
			return false, err
		}
	}
	if err := checkHeader(path, version, app); err != nil {
		return false, err
	}
	return header[18] == logFormat && header[19] == logFormat && app == applicationID, nil
}

// checkHeader returns an error unless this program, in this or an older version, wrote a file with such a header.
func checkHeader(path string, version, app uint32) error {
	switch {
	case version > formatVersion:
		return fmt.Errorf("%w: %s has format %d, and this program supports formats up to %d",
			driver.ErrNewer, path, version, formatVersion)
	case app != applicationID && app != 0:
		return fmt.Errorf("%s is the database of another program", path)
	}
	return nil
}

// readHeader returns the header of the database file, nil if the file does not exist or is empty.
func readHeader(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	defer func() { _ = f.Close() }()
	header := make([]byte, 100)
	switch _, err := io.ReadFull(f, header); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &driver.DamagedError{Reason: path + " is not a database; put it back from a backup"}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if string(header[:16]) != "SQLite format 3\x00" {
		return nil, &driver.DamagedError{Reason: path + " is not a database; put it back from a backup"}
	}
	return header, nil
}

// readVersion reads the format and application id of the file, and whether it is in WAL mode, over a read-only
// connection.
func readVersion(path string) (version, app uint32, logged bool, err error) {
	c, err := openConn(path, sqlite.OpenReadOnly)
	if err != nil {
		return 0, 0, false, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if version, app, err = c.version(); err == nil {
		err = c.each("PRAGMA journal_mode", nil, func(row *sqlite.Stmt) { logged = row.ColumnText(0) == "wal" })
	}
	return version, app, logged, err
}

// version returns the format and the application id of the file.
func (c *conn) version() (version, app uint32, err error) {
	v, err := c.number("PRAGMA user_version")
	if err != nil {
		return 0, 0, err
	}
	a, err := c.number("PRAGMA application_id")
	return uint32(v), uint32(a), err
}

// migrate creates missing tables, columns and indexes, drops undeclared indexes, and stores the owner of the file, all
// in one transaction. Error: driver.ErrForeign.
func (db *database) migrate(ctx context.Context, o *driver.Opening, s *schema) error {
	return db.transact(ctx, ctx, load{}, nil, func(c *conn) error {
		stored, err := storedSpecs(c)
		if err != nil {
			return err
		}
		claim, err := admit(c, o, db.path, stored)
		if err != nil {
			return err
		}
		var changed []*table
		for _, t := range s.tables {
			if stored[t.name] != t.spec {
				changed = append(changed, t)
			}
		}
		if stored != nil && len(changed) == 0 && !claim {
			return nil
		}
		slices.SortFunc(changed, func(a, b *table) int { return strings.Compare(a.name, b.name) })
		if err := c.script(fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;"+
			" CREATE TABLE IF NOT EXISTS collections (name TEXT NOT NULL PRIMARY KEY, spec TEXT NOT NULL) WITHOUT ROWID;"+
			"%s", applicationID, formatVersion, s.auxiliaryTables())); err != nil {
			return err
		}
		for _, t := range changed {
			if err := t.migrate(c, stored[t.name]); err != nil {
				return fmt.Errorf("prepare collection %s: %w", t.name, err)
			}
		}
		if s.shared {
			if err := c.equalize(); err != nil {
				return fmt.Errorf("prepare the statistics: %w", err)
			}
		}
		if claim {
			return c.exec("INSERT INTO collections (name, spec) VALUES (?1, ?2)", ownerRow, o.Owner)
		}
		return nil
	})
}

// storedSpecs returns the collections that the file was migrated to, as JSON by name, and the owner of the file under
// ownerRow; nil for a new file.
func storedSpecs(c *conn) (map[string]string, error) {
	names, err := c.texts("SELECT name FROM sqlite_schema")
	switch {
	case err != nil || len(names) == 0:
		return nil, err
	case !slices.Contains(names, "collections"):
		return nil, errors.New("the file is the database of another program")
	}
	return c.pairs("SELECT name, spec FROM collections")
}

// migrate migrates one table from the stored collection, "" if there is none.
func (t *table) migrate(c *conn, oldSpec string) error {
	var fill []int // positions of the fields whose columns must be computed
	if oldSpec == "" {
		if err := c.script(t.create()); err != nil {
			return err
		}
	} else {
		var err error
		if fill, err = t.addColumns(c, oldSpec); err != nil {
			return err
		}
	}
	added, err := t.syncIndexes(c)
	if err != nil {
		return err
	}
	if oldSpec != "" && len(fill)+len(added) > 0 {
		if err := t.backfill(c, fill, added); err != nil {
			return err
		}
	}
	// Unique indexes are created after the backfill of their values.
	if err := t.addIndexes(c); err != nil {
		return err
	}
	return c.exec("INSERT INTO collections (name, spec) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET spec = ?2",
		t.name, t.spec)
}

// addColumns adds missing columns, and returns the positions of the fields whose values must be backfilled.
func (t *table) addColumns(c *conn, oldSpec string) (fill []int, err error) {
	var old driver.Collection
	if err := json.Unmarshal([]byte(oldSpec), &old); err != nil {
		return nil, fmt.Errorf("the stored collection is not valid JSON: %w", err)
	}
	columns, err := c.texts("SELECT name FROM pragma_table_info(?1)", "c:"+t.name)
	if err != nil {
		return nil, err
	}
	for i, f := range t.fields {
		if !slices.Contains(columns, "f_"+f.Name) {
			if err := c.script("ALTER TABLE " + t.quoted + " ADD COLUMN f_" + f.Name); err != nil {
				return nil, err
			}
		}
		// A field that was undeclared for a while has a column with old values.
		if !slices.Contains(old.Fields, f) {
			fill = append(fill, i)
		}
	}
	return fill, nil
}

// syncIndexes drops indexes and side tables that are undeclared or differ from their declaration. It creates missing
// side tables and returns them.
func (t *table) syncIndexes(c *conn) ([]side, error) {
	have, err := t.schema(c)
	if err != nil {
		return nil, err
	}
	want := map[string]string{}
	for _, ix := range t.indexes {
		want[ix.name] = ix.create
	}
	for _, s := range t.sides {
		want[s.name] = s.create()
	}
	for name, sql := range have {
		if want[name] == sql {
			continue
		}
		kind := "INDEX "
		if strings.HasPrefix(name, "s:") {
			kind = "TABLE "
		}
		if err := c.script("DROP " + kind + quote(name)); err != nil {
			return nil, err
		}
		delete(have, name)
	}
	var added []side
	for _, s := range t.sides {
		if _, ok := have[s.name]; !ok {
			if err := c.script(s.create()); err != nil {
				return nil, err
			}
			added = append(added, s)
		}
	}
	return added, nil
}

// addIndexes creates missing indexes.
func (t *table) addIndexes(c *conn) error {
	have, err := t.schema(c)
	if err != nil {
		return err
	}
	for _, ix := range t.indexes {
		if _, ok := have[ix.name]; ok {
			continue
		}
		if err := c.script(ix.create); err != nil {
			return fmt.Errorf("index %s: %w", ix.name, err)
		}
	}
	return nil
}

// schema returns the SQL of the collection's indexes and side tables by name.
func (t *table) schema(c *conn) (map[string]string, error) {
	return c.pairs("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND (name GLOB ?1 OR name GLOB ?2)",
		"i:"+t.name+":*", "s:"+t.name+":*")
}

// backfill computes columns and side tables from the bodies, in batches.
func (t *table) backfill(c *conn, fill []int, added []side) error {
	type row struct {
		ws     int64
		id     string
		values map[string]json.RawMessage
	}
	next := "SELECT id, body, 0 FROM " + t.quoted + " WHERE id > ?1 ORDER BY id LIMIT ?2"
	if t.shared {
		next = "SELECT id, body, ws FROM " + t.quoted + " WHERE (ws, id) > (?3, ?1) ORDER BY ws, id LIMIT ?2"
	}
	for last := (row{}); ; {
		var batch []row
		if err := c.rows(next, t.args(last.ws, last.id, backfillBatch), func(s *sqlite.Stmt) error {
			r := row{id: s.ColumnText(0), ws: s.ColumnInt64(2)}
			if err := json.Unmarshal(columnBytes(s, 1), &r.values); err != nil {
				return fmt.Errorf("document %s: %w", r.id, err)
			}
			batch = append(batch, r)
			return nil
		}); err != nil {
			return err
		}
		for _, r := range batch {
			for _, i := range fill {
				f := t.fields[i]
				v, err := column(f, fromJSON(f.Type, r.values[f.Name]))
				if err != nil {
					return err
				}
				update := "UPDATE " + t.quoted + " SET f_" + f.Name + " = ?2 WHERE " + t.ifShared("ws = ?3 AND ") + "id = ?1"
				if err := c.exec(update, t.args(r.ws, r.id, v)...); err != nil {
					return err
				}
			}
			for _, s := range added {
				list, _ := fromJSON(driver.Strings, r.values[t.fields[s.position].Name]).([]string)
				for _, element := range list {
					if err := c.exec(s.insert, t.args(r.ws, element, r.id)...); err != nil {
						return err
					}
				}
			}
		}
		if len(batch) < backfillBatch {
			return nil
		}
		last = batch[len(batch)-1]
	}
}

// fromJSON returns the value of a field in a body. It returns nil if the value has another type, or is one that writes
// leave out: an empty text or a zero time.
func fromJSON(t driver.Type, raw json.RawMessage) any {
	v := valueOf(t, raw)
	if v == "" || t == driver.Time && v == int64(0) {
		return nil
	}
	return v
}

// valueOf returns the value of a field in a body, nil if it has another type.
func valueOf(t driver.Type, raw json.RawMessage) any {
	switch t {
	case driver.Strings:
		var list []string
		if json.Unmarshal(raw, &list) == nil && len(list) > 0 {
			return list
		}
		return nil
	case driver.Time:
		var at time.Time
		if json.Unmarshal(raw, &at) == nil && len(raw) > 0 && raw[0] == '"' {
			return at.UnixMilli()
		}
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var v any
	if len(raw) == 0 || d.Decode(&v) != nil {
		return nil
	}
	switch x := v.(type) {
	case json.Number:
		if t != driver.Any && !numeric(t) {
			return nil
		}
		if n, err := x.Int64(); err == nil {
			return n
		}
		if n, err := x.Float64(); err == nil {
			return n
		}
	case string:
		if t == driver.Any || t == driver.String || t == driver.Date {
			return x
		}
	case bool:
		if t == driver.Any || t == driver.Bool {
			return x
		}
	}
	return nil
}
