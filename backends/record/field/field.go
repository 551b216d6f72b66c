// Package field reads and writes declared fields (see package declare) of records, in calls and bundles, and of the
// inputs of operations. All rules in tags are checked here.
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

// Field is a field of a struct, as callers know it. It reads the field from JSON into a struct, writes it as JSON and
// copies it between structs. Structs are passed as pointers. A Field is immutable and safe for concurrent use.
type Field struct {
	declare.Field
	read   func(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List)
	form   func(text string) (code, wrong string) // checks the format of a text; nil: every text is valid
	append func(dst []byte, from reflect.Value) []byte
	quiet  bool   // false is not written
	inner  *Field // the values of a map, or the target of a pointer
}

// New returns the field for a declaration. An error is a bug in the program.
func New(d declare.Field) (Field, error) {
	f := Field{Field: d}
	err := f.choose()
	return f, err
}

// Of returns the fields of a struct type. An error is a bug in the program.
func Of(t reflect.Type) ([]Field, error) {
	declared, err := declare.Of(t)
	fields := make([]Field, len(declared))
	for i := 0; i < len(declared) && err == nil; i++ {
		fields[i], err = New(declared[i])
	}
	return fields, err
}

// Value is implemented by field types that read themselves. Faults are noted under name.
type Value interface {
	ReadValue(name string, v strictjson.Value, errs *fault.List)
}

// Stored is implemented by Values that can also read what was stored before their checks became stricter.
type Stored interface {
	ReadStored(v strictjson.Value) error
}

// Merged is implemented by Values that can be changed in part, by another Value.
type Merged interface {
	MergeValue(from any)
}

// Default limits of fields.
const (
	maxList   = 10_000    // elements
	maxNumber = 1<<53 - 1 // the largest integer that every JSON parser preserves
)

// choose sets the functions that read and write the field's type.
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
		f.read, err = readPointer, f.chooseInner()
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		f.read, err = readMap, f.chooseInner()
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
		return fmt.Errorf("field %s: unknown format %s", f.Name, f.Rule.Format)
	}
	return err
}

// chooseInner sets the field of the element type.
func (f *Field) chooseInner() error {
	inner := f.Field
	if inner.Type = f.Type.Elem(); f.Type.Kind() == reflect.Map {
		inner.Rule.Enum = nil // it lists the names, not the values
	}
	one, err := New(inner)
	f.inner = &one
	return err
}

// Elements returns how many elements a list of texts may have, 0 if the field is not such a list. Read refuses more.
func (f *Field) Elements() int {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Slice || t.Elem().Kind() != reflect.String ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[Value]()) {
		return 0
	}
	return int(cmp.Or(f.Rule.Max, maxList))
}

// Read sets the field of a struct from a JSON value. If it is invalid, Read notes the faults in errs and leaves the
// field unchanged.
func (f *Field) Read(v strictjson.Value, rec any, errs *fault.List) {
	f.read(f, v, at(rec, f.Index), errs)
}

// ReadStored is Read of a value that was stored by rules that may have been less strict.
func (f *Field) ReadStored(v strictjson.Value, rec any, errs *fault.List) {
	if s, ok := at(rec, f.Index).Addr().Interface().(Stored); !ok {
		lenient := *f
		if slices.Contains([]string{"line", "label", "media"}, f.Rule.Format) {
			lenient.form = nil
		}
		lenient.Read(v, rec, errs)
	} else if s.ReadStored(v) != nil {
		errs.Add(f.Name, fault.Format, "%s cannot be read", f.Name)
	}
}

// Demand notes a fault if a required field was not given, or is blank.
func (f *Field) Demand(given bool, rec any, errs *fault.List) {
	switch {
	case !f.Rule.Required:
	case !given:
		errs.Add(f.Name, fault.Required, "%s is required", f.Name)
	case !at(rec, f.Index).CanInt() && len(bytes.Trim(f.Append(nil, rec), " \t\"")) == 0 && !HasFault(*errs, f.Name):
		errs.Add(f.Name, fault.Required, "%s must not be empty", f.Name)
	}
}

// HasFault reports whether errs has a fault of the field, of a part of it or of a field that contains it.
func HasFault(errs fault.List, field string) bool {
	return slices.ContainsFunc(errs, func(e fault.Fault) bool {
		return e.Field == field || strings.HasPrefix(field, e.Field+".") || strings.HasPrefix(e.Field, field+".")
	})
}

// Join adds to errs the faults in more of fields that have none in errs.
func Join(errs *fault.List, more fault.List) {
	said := *errs
	for _, f := range more {
		if !HasFault(said, f.Field) {
			errs.Add(f.Field, f.Code, "%s", f.Message)
		}
	}
}

// Append appends the record's value as JSON, or nothing if it is empty.
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

// OmitsFalse reports whether lines and answers leave out the field when it is false.
func (f *Field) OmitsFalse() bool { return f.quiet }

// Clear sets the field of a record to its zero value.
func (f *Field) Clear(rec any) { at(rec, f.Index).SetZero() }

// Set sets the field of a record to the value of another record.
func (f *Field) Set(to, from any) { at(to, f.Index).Set(at(from, f.Index)) }

// Value returns the record's value.
func (f *Field) Value(rec any) any { return at(rec, f.Index).Interface() }

// Copy copies the field from another record. Fields that are merged keep the members that from does not have.
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

// span describes bounds, such as "1 to 5".
func span(least, most int64) string {
	switch {
	case least == 0:
		return fmt.Sprintf("at most %d", most)
	case most == math.MaxInt64:
		return fmt.Sprintf("at least %d", least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

// readOwn reads a field whose type implements Value.
func readOwn(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	into.Addr().Interface().(Value).ReadValue(f.Name, v, errs)
}

// Literal returns the JSON value for the text of a tag, a path or a query. Strings, numbers and booleans are written
// plainly, all other values as JSON.
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

// formats returns the checks of text formats by their names in tags. A check returns the code and the message of the
// fault, or "" for a valid text.
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
			return when(!store.ValidKey(s) || store.ValidID(s),
				"must be 1 to 64 of A-Z, a-z, 0-9, _ and -, and not look like an identifier")
		},
		"name": func(s string) (string, string) {
			return when(!schema.ValidName(s) || store.ValidID(s), `must have 1 to 64 of a-z, 0-9 and "_", `+
				"start with a letter, and not look like an identifier")
		},
		"line": func(s string) (string, string) {
			return when(strings.ContainsFunc(s, unicode.IsControl), "must not hold control characters")
		},
		"media": func(s string) (string, string) {
			kind, _, err := mime.ParseMediaType(s)
			return when(err != nil || !strings.Contains(kind, "/") || strings.ContainsFunc(s, unicode.IsControl),
				"must be a media type such as application/pdf")
		},
		"label": func(s string) (string, string) {
			if texts.Trim(s) == "" {
				return fault.Required, "must not be empty"
			}
			return when(!utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl),
				"must not contain control characters")
		},
	}
}

// tooLong reports whether the text has more than most characters; 0 means no limit.
func tooLong(text string, most int64) bool {
	return most > 0 && int64(len(text)) > most && int64(utf8.RuneCountInString(text)) > most
}

func readText(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	r := &f.Rule
	if r.Format == "label" && f.form != nil {
		v.Text = texts.Trim(v.Text)
	}
	switch {
	case r.Format == "id" && f.Name != "id" &&
		(v.Is == strictjson.Null || v.Is == strictjson.Text && v.Text == "" && !r.Required):
		into.SetString("") // answers show a missing reference as null or ""
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
	case tooLong(v.Text, r.Max) || r.Min > 1 && int64(utf8.RuneCountInString(v.Text)) < r.Min:
		least := r.Min
		if least == 1 {
			least = 0 // it means only that the text is not blank
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
		case tooLong(s, f.Rule.Each):
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

// readJSON reads a struct or a slice with encoding/json.
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
		if (f.Rule.Max == 0 || f.Rule.Max == math.MaxInt64) && n < most {
			bounds = fmt.Sprintf(", at least %d", f.Rule.Min)
		}
		unit := ""
		if f.Ask.Kind == declare.Span {
			unit = " of seconds"
		}
		errs.Add(f.Name, fault.Range, "%s must be a whole number%s%s", f.Name, unit, bounds)
		return
	}
	into.SetInt(n)
}

// readTime reads a time in RFC 3339, or an integer of Unix seconds.
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
	errs.Add(f.Name, fault.Format, "%s must be a time like 2024-05-17T08:30:00.000Z%s", f.Name, texts.NoSuchTime(v.Text))
}

func readTable(f *Field, v strictjson.Value, into reflect.Value, errs *fault.List) {
	if v.Is != strictjson.Object {
		wrongType(errs, f.Name, "an object")
		return
	}
	into.Set(reflect.ValueOf(v.Table()))
}

// readMap reads an object whose values have one type. An enumeration restricts the names.
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

// AppendJSON appends v as encoding/json encodes it, without escaping HTML. It appends nothing for a value that JSON
// cannot represent; stored values always can.
func AppendJSON(dst []byte, v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return dst
	}
	return append(dst, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...)
}
