// Package field reads and writes declared fields (see package declare): of a record, whether it
// comes in a bundle or in a call, and of the input of an operation. What a tag asks is checked
// here and nowhere else.
package field

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"mime"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// Field is one field of a struct, as callers know it. The same declaration reads it into a struct,
// writes it out of one and copies it from one to another. Structs are given as pointers. A Field is
// immutable and safe for concurrent use.
type Field struct {
	declare.Field
	read   func(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List)
	form   func(text string) (code, wrong string) // nil: every text is taken
	append func(dst []byte, from reflect.Value) []byte
	quiet  bool   // false says nothing
	inner  *Field // of a map: its values; of a pointer: what it points to
}

// New returns the field that is declared so. An error is a fault of the program.
func New(d declare.Field) (Field, error) {
	f := Field{Field: d}
	err := f.choose()
	return f, err
}

// Of returns the fields of a struct type. An error is a fault of the program.
func Of(t reflect.Type) ([]Field, error) {
	declared, err := declare.Of(t)
	fields := make([]Field, len(declared))
	for i := 0; i < len(declared) && err == nil; i++ {
		fields[i], err = New(declared[i])
	}
	return fields, err
}

// Value is a type of fields that reads itself. Faults are noted under name.
type Value interface {
	ReadValue(name string, v strictjson.Value, errs *fault.List)
}

// Stored is a Value that reads also what was stored before its checks became stricter.
type Stored interface {
	ReadStored(v strictjson.Value) error
}

// Merged is a Value that takes over what another one gives.
type Merged interface {
	MergeValue(from any)
}

// Limits of fields that state none of their own.
const (
	maxList   = 10_000    // elements
	maxNumber = 1<<53 - 1 // the largest whole number that every reader of JSON keeps
)

// choose finds how values of the field's type are read and written.
func (f *Field) choose() (err error) {
	t := f.Type
	f.append = appendAny
	f.quiet = t.Kind() == reflect.Bool && f.Use.Has(declare.Scope) && strings.Contains(f.Tag.Get("json"), ",omitempty")
	switch {
	case reflect.PointerTo(t).Implements(reflect.TypeFor[Value]()):
		f.read = readOwn
	case f.Rule.Format == "time" && t.Kind() == reflect.Int64:
		f.read, f.append = readTime, appendTime
	case t == reflect.TypeFor[json.RawMessage]():
		f.read = func(_ *Field, v strictjson.Value, into reflect.Value, _ *fault.List) { into.SetBytes(v.Raw()) }
	case t == reflect.TypeFor[map[string]any]():
		f.read = readTable
	case t.Kind() == reflect.Pointer:
		f.read, err = readPointer, f.within()
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		f.read, err = readMap, f.within()
	case t.Kind() == reflect.String:
		f.read, f.append = readText, appendString
	case t.Kind() == reflect.Bool:
		f.read = readFlag
	case reflect.Zero(t).CanInt():
		f.read = readNumber
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		f.read, f.append = readList, appendList
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Slice:
		f.read = readJSON
	default:
		return fmt.Errorf("field %s: values of %s cannot be read", f.Name, t)
	}
	var known bool
	if f.form, known = formats()[f.Rule.Format]; !known && f.Rule.Format != "" {
		return fmt.Errorf("field %s: there is no format %s", f.Name, f.Rule.Format)
	}
	return err
}

// within finds how values of the type that the field's is made of are read.
func (f *Field) within() error {
	inner := f.Field
	if inner.Type = f.Type.Elem(); f.Type.Kind() == reflect.Map {
		inner.Rule.Enum = nil // it says which names there are
	}
	one, err := New(inner)
	f.inner = &one
	return err
}

// Elements returns how many elements a list of texts may have, 0 where the field is none. Read refuses more.
func (f *Field) Elements() int {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.String || reflect.PointerTo(t).Implements(reflect.TypeFor[Value]()) {
		return 0
	}
	return int(cmp.Or(f.Rule.Max, maxList))
}

// Read sets the field of a struct. Faults are noted in errs, and nothing is set then.
func (f *Field) Read(v strictjson.Value, rec any, errs *fault.List) {
	f.read(f, v, at(rec, f.Index), errs)
}

// ReadStored is Read of what was stored before, by rules that may have been milder.
func (f *Field) ReadStored(v strictjson.Value, rec any, errs *fault.List) {
	if s, ok := at(rec, f.Index).Addr().Interface().(Stored); !ok {
		mild := *f
		if slices.Contains([]string{"line", "label", "media"}, f.Rule.Format) {
			mild.form = nil
		}
		mild.Read(v, rec, errs)
	} else if s.ReadStored(v) != nil {
		errs.Add(f.Name, fault.Format, "%s cannot be read", f.Name)
	}
}

// Demand notes that a required field was not given, or is blank.
func (f *Field) Demand(given bool, rec any, errs *fault.List) {
	switch {
	case !f.Rule.Required:
	case !given:
		errs.Add(f.Name, fault.Required, "%s is required", f.Name)
	case !at(rec, f.Index).CanInt() && len(bytes.Trim(f.Append(nil, rec), " \t\"")) == 0 && !Told(*errs, f.Name):
		errs.Add(f.Name, fault.Required, "%s must not be empty", f.Name)
	}
}

// Told reports whether something is said of the field already, or of what it is part of.
func Told(errs fault.List, field string) bool {
	return slices.ContainsFunc(errs, func(e fault.Fault) bool {
		return e.Field == field || strings.HasPrefix(field, e.Field+".") || strings.HasPrefix(e.Field, field+".")
	})
}

// Join adds to what is said of fields what more says of others.
func Join(errs *fault.List, more fault.List) {
	said := *errs
	for _, f := range more {
		if !Told(said, f.Field) {
			errs.Add(f.Field, f.Code, "%s", f.Message)
		}
	}
}

// Append writes the record's value as JSON, or nothing where it is empty.
func (f *Field) Append(dst []byte, rec any) []byte {
	v := at(rec, f.Index)
	if !f.Use.Has(declare.Always) && (empty(v) || f.quiet && v.IsZero()) {
		return dst
	}
	return f.append(dst, v)
}

func at(rec any, index []int) reflect.Value { return reflect.ValueOf(rec).Elem().FieldByIndex(index) }

func empty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Bool:
		return false
	case reflect.Map, reflect.Slice:
		return v.Len() == 0
	}
	return v.IsZero()
}

// Quiet reports whether a record that says nothing of the field has it empty, since lines and answers name it only
// where it is not.
func (f *Field) Quiet() bool { return f.quiet }

// Clear takes the field away from a record.
func (f *Field) Clear(rec any) { at(rec, f.Index).SetZero() }

// Set gives a record the value that another one has.
func (f *Field) Set(to, from any) { at(to, f.Index).Set(at(from, f.Index)) }

// Value returns the record's value.
func (f *Field) Value(rec any) any { return at(rec, f.Index).Interface() }

// Copy takes the field over from another record.
func (f *Field) Copy(to, from any) {
	into, v := at(to, f.Index), at(from, f.Index)
	if m, ok := into.Addr().Interface().(Merged); ok {
		m.MergeValue(v.Interface())
		return
	}
	if !f.Use.Has(declare.Merge) {
		into.Set(v)
		return
	}
	merged := reflect.MakeMapWithSize(f.Type, into.Len()+v.Len())
	for _, m := range []reflect.Value{into, v} {
		for each := m.MapRange(); each.Next(); {
			merged.SetMapIndex(each.Key(), each.Value())
		}
	}
	into.Set(merged)
}

func wrongType(errs *fault.List, name, want string) {
	errs.Add(name, fault.Type, "%s must be %s", name, want)
}

// span returns bounds in words.
func span(least, most int64) string {
	switch {
	case least == 0:
		return fmt.Sprintf("at most %d", most)
	case most == math.MaxInt64:
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

func readOwn(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	into.Addr().Interface().(Value).ReadValue(f.Name, v, errs)
}

// Literal returns the value that a tag, a path or a query writes as text: a text, a number or a
// boolean as it stands, anything else as JSON.
func (f *Field) Literal(text string) strictjson.Value {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case f.Rule.Format == "time" && t.Kind() == reflect.Int64, t.Kind() == reflect.String:
	case reflect.Zero(t).CanInt():
		return strictjson.Value{Is: strictjson.Number, Text: text}
	case t.Kind() == reflect.Bool:
		switch text {
		case "true", "1":
			return strictjson.Value{Is: strictjson.True}
		case "false", "0":
			return strictjson.Value{Is: strictjson.False}
		}
	case strings.HasPrefix(text, "{"), strings.HasPrefix(text, "["):
		var p strictjson.Parser
		if v, err := p.Parse(text); err == nil {
			return v
		}
	}
	return strictjson.Value{Is: strictjson.Text, Text: text}
}

// formats are the forms of texts by the names that tags use: what is wrong with one, "" for nothing.
func formats() map[string]func(text string) (code, wrong string) {
	when := func(is bool, wrong string) (string, string) {
		if is {
			return fault.Format, wrong
		}
		return "", ""
	}
	return map[string]func(string) (string, string){
		"id": func(s string) (string, string) {
			return when(!store.ValidID(s), "must be an identifier of 24 lower-case hexadecimal digits")
		},
		"time": nil,
		"email": func(s string) (string, string) {
			return when(!schema.ValidEmail(s), "must be a plain address such as name@example.com")
		},
		"key": func(s string) (string, string) {
			return when(!store.ValidKey(s) || store.ValidID(s), "must be 1 to 64 letters, digits, _ or -, and not look like an identifier")
		},
		"name": func(s string) (string, string) {
			return when(!schema.ValidName(s) || store.ValidID(s), `must have 1 to 64 lower-case letters, digits or "_", start with a letter, and not look like an identifier`)
		},
		"line": func(s string) (string, string) {
			return when(strings.ContainsFunc(s, unicode.IsControl), "must not hold control characters")
		},
		"media": func(s string) (string, string) {
			kind, _, err := mime.ParseMediaType(s)
			return when(err != nil || !strings.Contains(kind, "/") || strings.ContainsFunc(s, unicode.IsControl), "must be a media type such as application/pdf")
		},
		"label": func(s string) (string, string) {
			if texts.Trim(s) == "" {
				return fault.Required, "must not be empty"
			}
			return when(!utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl), "must not contain control characters")
		},
	}
}

// long reports whether the text has more characters than most, which is nothing where it is 0.
func long(text string, most int64) bool {
	return most > 0 && int64(len(text)) > most && int64(utf8.RuneCountInString(text)) > most
}

func readText(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	r := &f.Rule
	if r.Format == "label" && f.form != nil {
		v.Text = texts.Trim(v.Text)
	}
	switch {
	case r.Format == "id" && f.Name != "id" && (v.Is == strictjson.Null || v.Is == strictjson.Text && v.Text == "" && !r.Required): // as answers show what there is not
		into.SetString("")
		return
	case v.Is != strictjson.Text && r.Format == "id":
		errs.Add(f.Name, fault.Format, "%s must be an identifier of 24 lower-case hexadecimal digits", f.Name)
		return
	case v.Is != strictjson.Text:
		wrongType(errs, f.Name, "a string")
		return
	case r.Min > 0 && strings.TrimSpace(v.Text) == "":
		errs.Add(f.Name, fault.Required, "%s must not be empty", f.Name)
		return
	case long(v.Text, r.Max) || r.Min > 1 && int64(utf8.RuneCountInString(v.Text)) < r.Min:
		least := r.Min
		if least == 1 {
			least = 0 // which is that it is not blank
		}
		errs.Add(f.Name, fault.Length, "%s must have %s characters", f.Name, span(least, r.Most()))
		return
	case len(r.Enum) > 0 && !slices.Contains(r.Enum, v.Text):
		errs.Add(f.Name, fault.Format, "%s must be %s", f.Name, strings.Join(r.Enum, " or "))
		return
	}
	if f.form != nil && (v.Text != "" || r.Format == "id") {
		if code, wrong := f.form(v.Text); wrong != "" {
			errs.Add(f.Name, code, "%s %s", f.Name, wrong)
			return
		}
	}
	into.SetString(v.Text)
}

func readList(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	if v.Is != strictjson.Array {
		wrongType(errs, f.Name, "a list of strings")
		return
	}
	most := int64(f.Elements())
	if n := int64(len(v.Items)); n > most || n < f.Rule.Min {
		errs.Add(f.Name, fault.Length, "%s must have %s elements", f.Name, span(f.Rule.Min, most))
		return
	}
	list := reflect.MakeSlice(f.Type, len(v.Items), len(v.Items))
	seen := make([]string, 0, len(v.Items))
	for i := range v.Items {
		s := v.Items[i].Text
		switch {
		case v.Items[i].Is != strictjson.Text:
			wrongType(errs, f.Name, "a list of strings")
			return
		case long(s, f.Rule.Each):
			errs.Add(f.Name, fault.Length, "each element of %s must have at most %d characters", f.Name, f.Rule.Each)
			return
		case s == "":
			errs.Add(f.Name, fault.Required, "the elements of %s must not be empty", f.Name)
			return
		}
		if f.form != nil {
			if code, wrong := f.form(s); wrong != "" {
				errs.Add(f.Name, code, "each element of %s %s", f.Name, wrong)
				return
			}
		}
		list.Index(i).SetString(s)
		seen = append(seen, s)
	}
	if slices.Sort(seen); len(slices.Compact(seen)) != len(v.Items) {
		errs.Add(f.Name, fault.Duplicate, "%s names the same element twice", f.Name)
		return
	}
	into.Set(list)
}

func readFlag(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	if v.Is != strictjson.True && v.Is != strictjson.False {
		wrongType(errs, f.Name, "true or false")
		return
	}
	into.SetBool(v.Is == strictjson.True)
}

func readPointer(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	one, before := reflect.New(f.Type.Elem()), len(*errs)
	if f.inner.read(f.inner, v, one.Elem(), errs); len(*errs) == before {
		into.Set(one)
	}
}

// readJSON reads what encoding/json reads into the type.
func readJSON(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	one, want := reflect.New(f.Type), "an object"
	if f.Type.Kind() == reflect.Slice {
		want = "a list"
	}
	d := json.NewDecoder(bytes.NewReader(v.Raw()))
	d.DisallowUnknownFields()
	if v.Is == strictjson.Null || d.Decode(one.Interface()) != nil {
		wrongType(errs, f.Name, want)
		return
	}
	into.Set(one.Elem())
}

func readNumber(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	most := int64(maxNumber)
	if f.Rule.Max > 0 {
		most = f.Rule.Max
	}
	n, err := strconv.ParseInt(v.Text, 10, 64)
	if v.Is != strictjson.Number || err != nil || n < f.Rule.Min || n > most || into.OverflowInt(n) {
		bounds := fmt.Sprintf(" from %d to %d", f.Rule.Min, most)
		if f.Rule.Max == 0 && n <= most {
			bounds = fmt.Sprintf(", at least %d", f.Rule.Min)
		}
		errs.Add(f.Name, fault.Range, "%s must be a whole number%s", f.Name, bounds)
		return
	}
	into.SetInt(n)
}

// readTime reads RFC 3339, or a whole number of Unix seconds.
func readTime(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	if v.Is == strictjson.Number {
		if n, err := strconv.ParseInt(v.Text, 10, 64); err == nil && n > 0 && n < 253402300800 {
			into.SetInt(n * 1000)
			return
		}
	}
	if v.Is == strictjson.Text && len(v.Text) <= 40 {
		if t, err := time.Parse(time.RFC3339Nano, v.Text); err == nil && t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 {
			into.SetInt(t.UnixMilli())
			return
		}
	}
	errs.Add(f.Name, fault.Format, "%s must be a time like 2024-05-17T08:30:00.000Z", f.Name)
}

func readTable(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	if v.Is != strictjson.Object {
		wrongType(errs, f.Name, "an object")
		return
	}
	into.Set(reflect.ValueOf(v.Table()))
}

// readMap reads an object whose values are alike. An enumeration says which names there are.
func readMap(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	if v.Is != strictjson.Object {
		wrongType(errs, f.Name, "an object")
		return
	}
	m := reflect.MakeMapWithSize(f.Type, len(v.Members))
	for i := range v.Members {
		name, one := v.Members[i].Name, *f.inner
		one.Name = f.Name + "." + texts.Clip(name)
		if len(f.Rule.Enum) > 0 && !slices.Contains(f.Rule.Enum, name) {
			errs.Add(one.Name, fault.Unknown, "%s is not known; there are: %v", one.Name, f.Rule.Enum)
			continue
		}
		value := reflect.New(f.Type.Elem()).Elem()
		var faults fault.List
		one.read(&one, v.Members[i].Value, value, &faults)
		for _, wrong := range faults {
			errs.Add(wrong.Field, fault.Type, "%s", wrong.Message)
		}
		m.SetMapIndex(reflect.ValueOf(name).Convert(f.Type.Key()), value)
	}
	into.Set(m)
}

func appendString(dst []byte, v reflect.Value) []byte { return strictjson.AppendText(dst, v.String()) }

func appendTime(dst []byte, v reflect.Value) []byte {
	return strictjson.AppendText(dst, texts.Time(v.Int()))
}

func appendList(dst []byte, v reflect.Value) []byte {
	for i := range v.Len() {
		dst = strictjson.AppendText(append(dst, "[,"[min(i, 1)]), v.Index(i).String())
	}
	return append(dst, ']')
}

func appendAny(dst []byte, v reflect.Value) []byte {
	if v.Kind() == reflect.Map && v.IsNil() {
		return append(dst, "{}"...)
	}
	return AppendJSON(dst, v.Interface())
}

// AppendJSON writes what encoding/json writes, without escaping HTML. Nothing is appended for what
// JSON cannot hold, which no stored value is.
func AppendJSON(dst []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return dst
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
