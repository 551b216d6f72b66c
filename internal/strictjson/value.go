package strictjson

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Shape is the kind of a JSON value.
type Shape byte

// The shapes of JSON values.
const (
	Null Shape = iota
	True
	False
	Number
	Text
	Array
	Object
)

// Value is a JSON value as a tree; the zero value is null.
type Value struct {
	Is      Shape
	Text    string // of Text: decoded; of Number: as written
	Items   []Value
	Members []Member // in the order given
}

// Member is one member of an object.
type Member struct {
	Name  string
	Value Value
}

// Any returns the value as encoding/json decodes it, with numbers as json.Number.
func (v Value) Any() any {
	switch v.Is {
	case True, False:
		return v.Is == True
	case Number:
		return json.Number(v.Text)
	case Text:
		return v.Text
	case Array:
		list := make([]any, len(v.Items))
		for i := range v.Items {
			list[i] = v.Items[i].Any()
		}
		return list
	case Object:
		return v.Table()
	}
	return nil
}

// Table returns the members of an object as encoding/json decodes them.
func (v Value) Table() map[string]any {
	m := make(map[string]any, len(v.Members))
	for i := range v.Members {
		m[v.Members[i].Name] = v.Members[i].Value.Any()
	}
	return m
}

// Get returns the member with that name, or null.
func (v Value) Get(name string) Value {
	for i := range v.Members {
		if v.Members[i].Name == name {
			return v.Members[i].Value
		}
	}
	return Value{}
}

// AppendCanonical appends the value without blanks and with sorted names, so equal content always has equal bytes. It
// omits members for which omit returns true.
func (v Value) AppendCanonical(dst []byte, omit func(name string) bool) []byte {
	switch v.Is {
	case Null:
		return append(dst, "null"...)
	case True, False:
		return strconv.AppendBool(dst, v.Is == True)
	case Number:
		return append(dst, v.Text...)
	case Text:
		return AppendText(dst, v.Text)
	case Array:
		dst = append(dst, '[')
		for i := range v.Items {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.Items[i].AppendCanonical(dst, omit)
		}
		return append(dst, ']')
	}
	members := v.Members
	if !slices.IsSortedFunc(members, byName) {
		members = slices.Clone(members)
		slices.SortFunc(members, byName)
	}
	dst = append(dst, '{')
	first := true
	for i := range members {
		if omit != nil && omit(members[i].Name) {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = AppendText(dst, members[i].Name)
		dst = append(dst, ':')
		dst = members[i].Value.AppendCanonical(dst, omit)
	}
	return append(dst, '}')
}

func byName(a, b Member) int { return strings.Compare(a.Name, b.Name) }

// Raw returns the value as canonical JSON.
func (v Value) Raw() json.RawMessage { return v.AppendCanonical(nil, nil) }

const hexDigits = "0123456789abcdef"

// AppendText appends a JSON string, and escapes only the characters that require it.
func AppendText(dst []byte, s string) []byte {
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		start = i + 1
	}
	dst = append(dst, s[start:]...)
	return append(dst, '"')
}
