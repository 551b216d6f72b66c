package crud

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// model is the form of a record in answers: a struct type made of the resource's fields, so that encoding/json and the
// OpenAPI document treat it as any other.
type model struct {
	of     *record.Resource
	typ    reflect.Type
	fields []field.Field // in the order of the struct, unless a module declares the type
	shows  []part
	unfit  int // index of the struct's field for values that do not fit; -1: none
	other  any // an example of the type that a module declares; nil: none
}

// part is a field of an answer and the field of the record that it shows; nil: the number of the organization.
type part struct {
	of *field.Field
	at []int
}

// completer is an answer that shows more than the fields of the record.
type completer interface {
	// Complete sets the other fields, after those of the record are set.
	Complete(rec any)
}

// As returns a function that shows a record as an Out, which is filled as Options.Example describes. With any for Out
// it shows the fields that the resource declares.
func As[Out any](of *record.Resource) func(any, *tenants.Tenant) Out {
	m := newModel("", of, *new(Out))
	return func(rec any, t *tenants.Tenant) Out { return m.show(rec, t).(Out) }
}

// newModel returns the form of a record. Every answer has the identifier first and the times last.
func newModel(name string, of *record.Resource, other any) *model {
	m := &model{of: of, other: other}
	for _, f := range of.Fields {
		if !f.Use.Has(declare.Hidden) {
			m.fields = append(m.fields, f)
		}
	}
	m.unfit = -1
	parts := []reflect.StructField{{Name: "_", PkgPath: "tenantry/operation/crud", Type: reflect.TypeFor[struct{}](), Tag: reflect.StructTag(`model:"` + name + `"`)}}
	for i := range m.fields {
		f := &m.fields[i]
		tag := `json:"` + f.Name
		if f.Name == "teams" {
			tag += ",omitempty" // for organizations without the feature
		}
		tag += `" doc:` + strconv.Quote(f.Doc)
		if len(f.Rule.Enum) > 0 && f.Type.Kind() == reflect.String {
			tag += ` enum:"` + strings.Join(f.Rule.Enum, ",") + `"`
		}
		parts = append(parts, reflect.StructField{
			Name: "F" + strconv.Itoa(i), Type: shownAs(f), Tag: reflect.StructTag(tag),
		})
	}
	if of.DefinedBy != "" && other == nil {
		m.unfit = len(parts)
		parts = append(parts, reflect.StructField{Name: "Unfit", Type: reflect.TypeFor[map[string]string](), Tag: reflect.StructTag(
			`json:"unfit,omitempty" doc:"For each value that does not fit its field, because the field was changed later: what it must be. Left out if all values fit."`)})
	}
	if m.typ = reflect.StructOf(parts); other != nil {
		m.typ = reflect.TypeOf(other)
	}
	if m.typ.Kind() != reflect.Struct { // the module makes the answers itself
		return m
	}
	for _, to := range reflect.VisibleFields(m.typ) {
		name, _, _ := strings.Cut(to.Tag.Get("json"), ",")
		switch n, known := of.Index(name); {
		case name == "org_id" && to.Type.Kind() == reflect.Int64:
			m.shows = append(m.shows, part{at: to.Index})
		case known && (shownAs(&of.Fields[n]) == to.Type || of.Fields[n].Type.AssignableTo(to.Type)): // other fields are set by Complete
			m.shows = append(m.shows, part{&of.Fields[n], to.Index})
		}
	}
	return m
}

// shownAs returns the type of a field in answers: times are texts, and a missing reference, time or positive number is
// null.
func shownAs(f *field.Field) reflect.Type {
	switch {
	case isTime(f) && (f.Name == "created_at" || f.Name == "updated_at"): // every record has them
		return reflect.TypeFor[string]()
	case isTime(f), (f.Rule.Ref != "" || len(f.Rule.Enum) > 0) && f.Type.Kind() == reflect.String && !f.Rule.Required:
		return reflect.TypeFor[*string]()
	case isNumber(f) && f.Rule.Min > 0 && !f.Rule.Required: // 0 means none
		return reflect.PointerTo(f.Type)
	case f.Name == "teams":
		return reflect.TypeFor[*[]string]()
	}
	return f.Type
}

func isNumber(f *field.Field) bool {
	return f.Type.Kind() != reflect.Pointer && reflect.Zero(f.Type).CanInt()
}

func isTime(f *field.Field) bool { return f.Rule.Format == "time" && f.Type.Kind() == reflect.Int64 }

// show returns the record in the form of answers.
func (m *model) show(rec any, t *tenants.Tenant) any { return m.shown(rec, t, nil) }

// shown is show for a record with values that do not fit; unfit says what these must be.
func (m *model) shown(rec any, t *tenants.Tenant, unfit map[string]string) any {
	out := reflect.New(m.typ).Elem()
	if m.unfit >= 0 && unfit != nil {
		out.Field(m.unfit).Set(reflect.ValueOf(unfit))
	}
	from := reflect.ValueOf(rec).Elem()
	for _, shown := range m.shows {
		f, to := shown.of, out.FieldByIndex(shown.at)
		if f == nil {
			to.SetInt(t.Org.OrgID)
			continue
		}
		v := from.FieldByIndex(f.Index)
		switch {
		case f.Name == "teams":
			if t == nil || t.Org.Feature(tenants.FeatureTeams) {
				teams := append([]string{}, v.Interface().([]string)...)
				to.Set(reflect.ValueOf(&teams))
			}
		case to.Kind() == reflect.String && isTime(f):
			to.SetString(texts.Time(v.Int()))
		case to.Type() == f.Type && f.Type.Kind() != reflect.Slice && f.Type.Kind() != reflect.Map:
			to.Set(v)
		case v.IsZero() && f.Type == reflect.TypeFor[json.RawMessage]():
			to.SetBytes([]byte("null"))
		case v.IsZero() && to.Kind() == reflect.Slice:
			to.Set(reflect.MakeSlice(to.Type(), 0, 0))
		case v.IsZero() && to.Kind() == reflect.Map:
			to.Set(reflect.MakeMap(to.Type()))
		case v.IsZero(): // null
		case isTime(f):
			text := texts.Time(v.Int())
			to.Set(reflect.ValueOf(&text))
		case to.Kind() == reflect.Pointer:
			one := reflect.New(f.Type)
			one.Elem().Set(v)
			to.Set(one)
		default:
			to.Set(v)
		}
	}
	if whole, more := out.Addr().Interface().(completer); more {
		whole.Complete(rec)
	}
	return out.Interface()
}

// seconds reports whether answers show the time of that name as a number of Unix seconds.
func (m *model) seconds(name string) bool {
	return slices.ContainsFunc(reflect.VisibleFields(m.typ), func(f reflect.StructField) bool {
		shown, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		return shown == name && f.Type.Kind() == reflect.Int64
	})
}

// zero returns the zero value of the type.
func (m *model) zero() any { return reflect.New(m.typ).Elem().Interface() }

// example returns an answer made of the examples that the fields declare.
func (m *model) example() any {
	if m.other != nil {
		return m.other
	}
	rec := m.exampleRecord()
	meta := m.of.Meta(rec)
	meta.ID, meta.CreatedAt, meta.UpdatedAt = exampleID, exampleTime, exampleTime
	return m.show(rec, nil)
}

const exampleID, exampleTime = "665f1c2ab4d3e2f1a0b9c8d7", 1717509162000

// exampleRecord returns a record made of the examples that the fields declare.
func (m *model) exampleRecord() any {
	rec := m.of.New()
	var errs fault.List
	for i := range m.of.Fields {
		if f := &m.of.Fields[i]; f.Example != "" {
			f.Read(f.Literal(f.Example), rec, &errs)
		}
	}
	if err := errs.Err(); err != nil {
		panic("crud: the examples of " + m.of.Name + ": " + err.Error())
	}
	return rec
}

// named returns the value of the field in the example record.
func (m *model) named(f *field.Field) string {
	if f.Example == "" {
		return exampleID
	}
	return f.Example
}

// parent returns the name of the definition of the example record.
func (m *model) parent(definitionField string) string {
	n, _ := m.of.Index(definitionField)
	return m.named(&m.of.Fields[n])
}

// list returns the type of a page of records, as an operation.Part is answered.
func (m *model) list() reflect.Type {
	fields := reflect.VisibleFields(reflect.TypeFor[operation.Part[any]]())
	fields[len(fields)-1].Type = reflect.SliceOf(m.typ)
	return reflect.StructOf(fields)
}
