package mongo

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// shape is derived from a collection's declaration. It is immutable and shared by all workspaces.
type shape struct {
	name      string
	fields    []driver.Field
	at        map[string]int // index in fields, by name
	nulls     []string       // the JSON value that null stands for, by field
	indexes   []definition
	signature string     // identifies name and indexes
	finding   string     // the name of a find call, for errors
	counting  string     // the name of a count call, for errors
	unique    [][]string // the fields of each unique index
}

// kind is a collection of a database, with its shape.
type kind struct {
	*shape
	coll *mongo.Collection
}

func newShape(c *driver.Collection) (*shape, error) {
	if c == nil || c.Name == "" {
		return nil, errors.New("a collection has no name")
	}
	s := &shape{
		name: c.Name, finding: "find in " + c.Name, counting: "count in " + c.Name, fields: c.Fields,
		at: make(map[string]int, len(c.Fields)),
	}
	for i, f := range c.Fields {
		if strings.Trim(f.Name, "abcdefghijklmnopqrstuvwxyz0123456789_") != "" || f.Name == "" {
			return nil, fmt.Errorf("collection %s: field %q: a name consists of a-z, 0-9 and _", c.Name, f.Name)
		}
		s.at[f.Name] = i
		s.nulls = append(s.nulls, emptyJSON(f.Type))
	}
	for _, x := range c.Indexes {
		for _, f := range x.Fields {
			if _, ok := s.at[f]; !ok {
				return nil, fmt.Errorf("collection %s: index %s names the undeclared field %q", c.Name, x.Name, f)
			}
		}
		// A unique index on a field of type Any holds only strings, so an equality does not imply it.
		isAny := func(f string) bool { return s.fields[s.at[f]].Type == driver.Any }
		if x.Unique && !slices.ContainsFunc(x.Fields, isAny) {
			s.unique = append(s.unique, x.Fields)
		}
	}
	s.indexes = definitions(c)
	sum := sha256.New()
	for _, d := range s.indexes {
		sum.Write([]byte(d.name + "\x00"))
	}
	s.signature = c.Name + " " + hex.EncodeToString(sum.Sum(nil)[:8])
	return s, nil
}

// maxShapes bounds the cached shapes. A program declares a few dozen collections.
const maxShapes = 4096

// kind returns the collection in a database.
func (e *Engine) kind(db *mongo.Database, c *driver.Collection) (*kind, error) {
	e.mu.Lock()
	s := e.shapes[c]
	e.mu.Unlock()
	if s == nil {
		var err error
		if s, err = newShape(c); err != nil {
			return nil, err
		}
		e.mu.Lock()
		if len(e.shapes) >= maxShapes {
			clear(e.shapes)
		}
		e.shapes[c] = s
		e.mu.Unlock()
	}
	return &kind{shape: s, coll: db.Collection(s.name)}, nil
}

// stored converts the value of a declared field for BSON. It returns nil for a missing value.
func stored(f driver.Field, v any) (any, error) {
	ok := false
	switch x := v.(type) {
	case nil:
		return nil, nil
	case string:
		ok = f.Type == driver.String || f.Type == driver.Date || f.Type == driver.Any
		v = strings.ToValidUTF8(x, "\uFFFD")
	case int64:
		if f.Type == driver.Time {
			return bson.DateTime(x), nil
		}
		ok = numeric(f.Type) || f.Type == driver.Any
	case float64:
		ok = numeric(f.Type) || f.Type == driver.Any
		if math.IsNaN(x) {
			v = nil
		}
	case bool:
		ok = f.Type == driver.Bool || f.Type == driver.Any
	case []string:
		if ok = f.Type == driver.Strings; !ok {
			break
		}
		if len(x) == 0 {
			return nil, nil
		}
		list := make([]string, len(x))
		for i, s := range x {
			list[i] = strings.ToValidUTF8(s, "\uFFFD")
		}
		v = list
	}
	if !ok {
		return nil, fmt.Errorf("field %s cannot hold a %T", f.Name, v)
	}
	return v, nil
}

// numeric reports whether values of the type are numbers. Times are not, because they are dates in BSON.
func numeric(t driver.Type) bool { return t == driver.Int || t == driver.Float }

// encodeKey turns a custom key into the name of a BSON field, which has no dot, dollar sign or NUL and is not empty. It
// is injective: percent signs are encoded as well, so that "%" on its own can stand for the empty key.
func encodeKey(key string) string {
	if key == "" {
		return "%"
	}
	const hexDigits = "0123456789ABCDEF"
	var b []byte
	for i := range len(key) {
		c := key[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			if b != nil {
				b = append(b, c)
			}
			continue
		}
		if b == nil {
			b = append(make([]byte, 0, 3*len(key)), key[:i]...)
		}
		b = append(b, '%', hexDigits[c>>4], hexDigits[c&15])
	}
	if b == nil {
		return key
	}
	return string(b)
}

// decodeKey reverses encodeKey. It returns names that encodeKey never makes unchanged.
func decodeKey(key string) string {
	if key == "%" {
		return ""
	}
	if strings.IndexByte(key, '%') < 0 {
		return key
	}
	b := make([]byte, 0, len(key))
	for i := 0; i < len(key); i++ {
		if key[i] == '%' && i+2 < len(key) {
			if n, err := strconv.ParseUint(key[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(n))
				i += 2
				continue
			}
		}
		b = append(b, key[i])
	}
	return string(b)
}
