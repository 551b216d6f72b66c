package sqlite

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"tenantry/backends/driver"
	"zombiezen.com/go/sqlite"
)

// boolBlob is a bool in a column of any type. It is bound as a blob of one byte, so that it does not compare with
// numbers: columns have no declared type, so values keep the type that they were bound with, and SQLite sorts NULL
// before numbers, these before texts, and texts before blobs.
type boolBlob bool

// bindAll binds the arguments. The statement may lack placeholders for the last ones, because the name of a custom
// field is a parameter even if the condition becomes a constant.
func bindAll(s *sqlite.Stmt, args []any) error {
	for i, v := range args[:min(len(args), s.BindParamCount())] {
		if err := bind(s, i+1, v); err != nil {
			return err
		}
	}
	return nil
}

func bind(s *sqlite.Stmt, i int, v any) error {
	switch v := v.(type) {
	case nil:
		s.BindNull(i)
	case string:
		s.BindText(i, v)
	case int64:
		s.BindInt64(i, v)
	case int:
		s.BindInt64(i, int64(v))
	case float64:
		s.BindFloat(i, v)
	case bool:
		s.BindBool(i, v)
	case boolBlob:
		blob := []byte{0}
		if v {
			blob[0] = 1
		}
		s.BindBytes(i, blob)
	case []byte:
		s.BindBytes(i, v)
	default:
		return fmt.Errorf("cannot bind a %T", v)
	}
	return nil
}

// column returns the stored form of the value of a declared field. It returns an error if the type does not fit.
func column(f driver.Field, v any) (any, error) {
	ok := false
	switch x := v.(type) {
	case nil:
		return nil, nil
	case string:
		ok = f.Type == driver.String || f.Type == driver.Date || f.Type == driver.Any
	case int64:
		ok = numeric(f.Type) || f.Type == driver.Any
	case float64:
		ok = numeric(f.Type) || f.Type == driver.Any
		if math.IsNaN(x) {
			return nil, nil
		}
	case bool:
		if f.Type == driver.Any {
			return boolBlob(x), nil
		}
		ok = f.Type == driver.Bool
	case []string:
		if f.Type == driver.Strings {
			return encodeStrings(x), nil
		}
	}
	if !ok {
		return nil, fmt.Errorf("field %s cannot hold a %T", f.Name, v)
	}
	return v, nil
}

func numeric(t driver.Type) bool {
	return t == driver.Int || t == driver.Float || t == driver.Time
}

// encodeStrings returns a list as JSON text, nil if it is empty. Quotes and commas in elements are escaped, so that an
// encoded element occurs in the text exactly if it is in the list, and instr finds it, which is many times faster than
// json_each.
func encodeStrings(list []string) any {
	if len(list) == 0 {
		return nil
	}
	b := make([]byte, 0, 16*len(list))
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendElement(b, s)
	}
	return string(append(b, ']'))
}

func appendElement(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '\\':
			b = append(b, '\\', '\\')
		case c < 0x20 || c == '"' || c == ',':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// decode returns column i of the row as a portable value of the type.
func decode(s *sqlite.Stmt, i int, t driver.Type) any {
	switch s.ColumnType(i) {
	case sqlite.TypeInteger:
		if t == driver.Bool {
			return s.ColumnBool(i)
		}
		return s.ColumnInt64(i)
	case sqlite.TypeFloat:
		return s.ColumnFloat(i)
	case sqlite.TypeText:
		text := s.ColumnText(i)
		if t == driver.Strings {
			var list []string
			if json.Unmarshal([]byte(text), &list) == nil {
				return list
			}
		}
		return text
	case sqlite.TypeBlob:
		b := columnBytes(s, i)
		if len(b) == 1 && b[0] <= 1 {
			return b[0] == 1
		}
		return string(b)
	}
	return nil
}

func columnBytes(s *sqlite.Stmt, i int) []byte {
	n := s.ColumnLen(i)
	if n == 0 {
		return nil
	}
	b := make([]byte, n)
	s.ColumnBytes(i, b)
	return b
}
