package transfer

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// field is one name of a line. The same row reads it into a record, writes it out of one,
// and copies it from one to another, so that what was exported can be imported.
type field[T any] struct {
	name     string
	required bool
	// silent fields do not make two records different.
	silent bool
	read   func(rec *T, v strictjson.Value, errs *fault.List)
	// stored, where set, reads in place of read what an export wrote as it was stored: read
	// may have become stricter since then.
	stored func(rec *T, v strictjson.Value) error
	// write appends the value, or nothing where there is none to write.
	write func(dst []byte, rec *T) []byte
	copy  func(to, from *T)
}

func (f field[T]) must() field[T] { f.required = true; return f }

func wrongType(errs *fault.List, name, want string) {
	errs.Add(name, "type", "%s must be %s", name, want)
}

// textField is a string of at most most characters.
func textField[T any](name string, most int, at func(*T) *string) field[T] {
	return field[T]{
		name: name,
		read: func(rec *T, v strictjson.Value, errs *fault.List) {
			switch {
			case v.Is != strictjson.Text:
				wrongType(errs, name, "a string")
			case len(v.Text) > most && utf8.RuneCountInString(v.Text) > most:
				errs.Add(name, "length", "%s must have at most %d characters", name, most)
			default:
				*at(rec) = v.Text
			}
		},
		write: func(dst []byte, rec *T) []byte {
			if s := *at(rec); s != "" {
				return strictjson.AppendText(dst, s)
			}
			return dst
		},
		copy: func(to, from *T) { *at(to) = *at(from) },
	}
}

// idField is the identifier of another document; null means none.
func idField[T any](name string, at func(*T) *string) field[T] {
	f := textField(name, 24, at)
	f.read = func(rec *T, v strictjson.Value, errs *fault.List) {
		switch {
		case v.Is == strictjson.Null:
			*at(rec) = ""
		case v.Is == strictjson.Text && store.ValidID(v.Text):
			*at(rec) = v.Text
		default:
			errs.Add(name, "format", "%s must be an identifier of 24 lower-case hexadecimal digits", name)
		}
	}
	return f
}

// maxList bounds the lists of a record.
const maxList = 10_000

// textsField is a list of different strings, of at most most characters each.
func textsField[T any, S ~string](name string, most int, at func(*T) *[]S) field[T] {
	return listField(name, most, maxList, at)
}

// listField is a textsField of at most so many elements.
func listField[T any, S ~string](name string, most, elements int, at func(*T) *[]S) field[T] {
	return field[T]{
		name: name,
		read: func(rec *T, v strictjson.Value, errs *fault.List) {
			if v.Is != strictjson.Array {
				wrongType(errs, name, "a list of strings")
				return
			}
			if len(v.Items) > elements {
				errs.Add(name, "length", "%s must have at most %d elements", name, elements)
				return
			}
			list := make([]S, 0, len(v.Items))
			for i := range v.Items {
				s := v.Items[i].Text
				switch {
				case v.Items[i].Is != strictjson.Text:
					wrongType(errs, name, "a list of strings")
					return
				case len(s) > most && utf8.RuneCountInString(s) > most:
					errs.Add(name, "length", "each element of %s must have at most %d characters", name, most)
					return
				case s == "":
					errs.Add(name, "required", "the elements of %s must not be empty", name)
					return
				}
				list = append(list, S(s))
			}
			if repeats(list) {
				errs.Add(name, "duplicate", "%s names the same element twice", name)
				return
			}
			*at(rec) = list
		},
		write: func(dst []byte, rec *T) []byte {
			list := *at(rec)
			if len(list) == 0 {
				return dst
			}
			for i, s := range list {
				dst = strictjson.AppendText(append(dst, "[,"[min(i, 1)]), string(s))
			}
			return append(dst, ']')
		},
		copy: func(to, from *T) { *at(to) = *at(from) },
	}
}

func repeats[S ~string](list []S) bool {
	if len(list) < 2 {
		return false
	}
	sorted := slices.Sorted(slices.Values(list))
	return len(slices.Compact(sorted)) != len(list)
}

// idsField is a list of identifiers of other documents.
func idsField[T any](name string, elements int, at func(*T) *[]string) field[T] {
	f := listField(name, 24, elements, at)
	read := f.read
	f.read = func(rec *T, v strictjson.Value, errs *fault.List) {
		before := len(*errs)
		if read(rec, v, errs); len(*errs) > before {
			return
		}
		if slices.ContainsFunc(*at(rec), func(id string) bool { return !store.ValidID(id) }) {
			errs.Add(name, "format", "%s must hold identifiers of 24 lower-case hexadecimal digits", name)
		}
	}
	return f
}

// teamsField is the teams that see the record.
func teamsField[T any](at func(*T) *[]string) field[T] { return idsField("teams", store.MaxTeams, at) }

// flagField is true or false.
func flagField[T any](name string, at func(*T) *bool) field[T] {
	return field[T]{
		name: name,
		read: func(rec *T, v strictjson.Value, errs *fault.List) {
			if v.Is != strictjson.True && v.Is != strictjson.False {
				wrongType(errs, name, "true or false")
				return
			}
			*at(rec) = v.Is == strictjson.True
		},
		write: func(dst []byte, rec *T) []byte { return strconv.AppendBool(dst, *at(rec)) },
		copy:  func(to, from *T) { *at(to) = *at(from) },
	}
}

// numberField is a whole number that is not negative; 0 is not written.
func numberField[T any](name string, at func(*T) *int64) field[T] {
	return field[T]{
		name: name,
		read: func(rec *T, v strictjson.Value, errs *fault.List) {
			n, err := strconv.ParseInt(v.Text, 10, 64)
			if v.Is != strictjson.Number || err != nil || n < 0 || n > maxNumber {
				errs.Add(name, "range", "%s must be a whole number from 0 to %d", name, int64(maxNumber))
				return
			}
			*at(rec) = n
		},
		write: func(dst []byte, rec *T) []byte {
			if n := *at(rec); n != 0 {
				return strconv.AppendInt(dst, n, 10)
			}
			return dst
		},
		copy: func(to, from *T) { *at(to) = *at(from) },
	}
}

// maxNumber is the largest whole number that every reader of JSON keeps.
const maxNumber = 1<<53 - 1

// timeField is a moment: RFC 3339, or a whole number of Unix seconds.
func timeField[T any](name string, at func(*T) *int64) field[T] {
	return field[T]{
		name: name,
		read: func(rec *T, v strictjson.Value, errs *fault.List) {
			if v.Is == strictjson.Number {
				if n, err := strconv.ParseInt(v.Text, 10, 64); err == nil && n > 0 && n < 253402300800 {
					*at(rec) = n * 1000
					return
				}
			}
			if v.Is == strictjson.Text && len(v.Text) <= 40 {
				if t, err := time.Parse(time.RFC3339Nano, v.Text); err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
					*at(rec) = t.UnixMilli()
					return
				}
			}
			errs.Add(name, "format", "%s must be a time like 2024-05-17T08:30:00.000Z", name)
		},
		write: func(dst []byte, rec *T) []byte {
			if ms := *at(rec); ms != 0 {
				return strictjson.AppendText(dst, texts.Time(ms))
			}
			return dst
		},
		copy: func(to, from *T) { *at(to) = *at(from) },
	}
}

// tableField is an object of any shape.
func tableField[T any](name string, at func(*T) *map[string]any) field[T] {
	return jsonField(name, func(rec *T, v strictjson.Value, errs *fault.List) {
		if v.Is != strictjson.Object {
			wrongType(errs, name, "an object")
			return
		}
		*at(rec) = v.Table()
	}, func(rec *T) any {
		if len(*at(rec)) == 0 {
			return nil
		}
		return *at(rec)
	}, func(to, from *T) { *at(to) = *at(from) })
}

// mapField is an object of flags or numbers that a line adds to what is there.
func mapField[T, V any](name, want string, read func(strictjson.Value) (V, bool), at func(*T) *map[string]V) field[T] {
	return jsonField(name, func(rec *T, v strictjson.Value, errs *fault.List) {
		if v.Is != strictjson.Object {
			wrongType(errs, name, "an object")
			return
		}
		m := make(map[string]V, len(v.Members))
		for i := range v.Members {
			one, ok := read(v.Members[i].Value)
			if !ok {
				path := name + "." + texts.Clip(v.Members[i].Name)
				errs.Add(path, "type", "%s must be %s", path, want)
			}
			m[v.Members[i].Name] = one
		}
		*at(rec) = m
	}, func(rec *T) any {
		if len(*at(rec)) == 0 {
			return nil
		}
		return *at(rec)
	}, func(to, from *T) {
		merged := maps.Clone(*at(to))
		if merged == nil {
			merged = map[string]V{}
		}
		maps.Copy(merged, *at(from))
		*at(to) = merged
	})
}

// jsonField is a value that encoding/json writes; nil of get is not written.
func jsonField[T any](name string, read func(*T, strictjson.Value, *fault.List), get func(*T) any, copyTo func(to, from *T)) field[T] {
	return field[T]{
		name: name, read: read, copy: copyTo,
		write: func(dst []byte, rec *T) []byte {
			v := get(rec)
			if v == nil {
				return dst
			}
			return appendJSON(dst, v)
		},
	}
}

// appendJSON writes what encoding/json writes, without escaping HTML. Nothing is
// appended for what JSON cannot hold, which no stored value is.
func appendJSON(dst []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return dst
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}

// key is an identifier in 12 bytes: that of a document, or part of a digest.
type key [12]byte

func keyOf(id string) key {
	var k key
	_, _ = hex.Decode(k[:], []byte(id)) // checked by store.ValidID before
	return k
}

func (k key) id() string { return hex.EncodeToString(k[:]) }
