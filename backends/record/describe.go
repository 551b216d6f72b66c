package record

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/record/field"
	"tenantry/backends/store"
	"tenantry/internal/declare"
)

// Describe returns the resource of records that are not kept in a collection. An error is a bug in the program.
func Describe(typ reflect.Type, t Traits, kept Records, check func(*Checking, any)) (*Resource, error) {
	r, err := describe(typ, t, &store.Spec{})
	if err != nil {
		return nil, fmt.Errorf("resource %s: %w", t.Name, err)
	}
	none := func(any) {}
	r.hooks = hooks{preset: none, derive: none, fill: none, check: check, refers: func(any, Visitor) {}}
	r.Records = kept
	return r, nil
}

// describe reads the fields of the struct, and adds the fields, indexes and scopes that they declare to spec.
func describe(typ reflect.Type, t Traits, spec *store.Spec) (*Resource, error) {
	declared, err := declare.Of(typ)
	if err != nil {
		return nil, err
	}
	meta, ok := typ.FieldByName("Meta")
	if !ok {
		return nil, errors.New("the record embeds no store.Meta")
	}
	if t.Travels == "" {
		t.Travels = "id created_at updated_at"
	}
	r := &Resource{Traits: t, typ: typ, index: map[string]int{}}
	places := map[string][]int{}
	for _, d := range declared {
		places[d.Name] = d.Index
	}
	travels := strings.Fields(t.Travels)
	id, _ := meta.Type.FieldByName("ID")
	if slices.Contains(travels, "id") {
		own := declare.Field{
			Name: "id", Index: append(meta.Index, id.Index...), Type: id.Type, Rule: declare.Rule{Format: "id"},
			Use: declare.Computed | declare.Filter, Doc: "Identifier of the record.",
		}
		if err := r.add(own, "id"); err != nil {
			return nil, err
		}
	}
	for _, d := range declared {
		if d.Name == "created_at" || d.Name == "updated_at" {
			continue
		}
		if err := r.field(d, places, spec); err != nil {
			return nil, err
		}
	}
	for _, name := range []string{"created_at", "updated_at"} {
		if slices.Contains(travels, name) {
			stamp := declare.Field{
				Name: name, Index: places[name], Type: reflect.TypeFor[int64](), Rule: declare.Rule{Format: "time"},
				Use: declare.Computed | declare.Filter, Doc: "RFC 3339, UTC, milliseconds.",
			}
			if name == "updated_at" {
				stamp.Use |= declare.Silent // the store sets it with every change
			}
			if err := r.add(stamp, name); err != nil {
				return nil, err
			}
		}
	}
	return r, nil
}

// field adds a declared field to the resource and to spec.
func (r *Resource) field(d declare.Field, places map[string][]int, spec *store.Spec) error {
	name := d.Name
	if as := d.Tag.Get("as"); as != "" {
		name = as
	}
	if d.Tag.Get("store") == "custom" {
		r.values, r.valuesName, spec.Custom = d.Index, name, true
		d.Use |= declare.Merge
	}
	if d.Use.Has(declare.Secret) {
		r.secrets = d.Index
		return nil
	}
	if r.DefinedBy != "" && d.Rule.Ref == r.DefinedBy {
		r.definition, r.DefinitionField = d.Index, name
	}
	if timed := d.Rule.Format == "time" && d.Use.Has(declare.Filter); timed && d.Tag.Get("store") != "time" {
		return fmt.Errorf(`field %s: a time that can be filtered needs the tag store:"time"`, name)
	}
	if d.Use.Has(declare.Filter) || d.Rule.Unique {
		if name == r.DefinitionField && name != "" {
			spec.Of = d.Name
		}
		spec.Fields = append(spec.Fields, d.Name)
	}
	switch scope := d.Use.Has(declare.Scope); {
	case scope && d.Name == "teams":
		spec.Teams = true
		d.Doc = cmp.Or(d.Doc, "Teams that see the record, all where empty.")
		d.Ask = cmp.Or(d.Ask, declare.AskOf("Teams|Who sees it; everybody where none is chosen."))
	case scope && d.Name == "deleted":
		spec.SoftDelete = true
		spec.Indexes = append(spec.Indexes, store.Index{Fields: []string{"deleted", "updated_at"}})
		spec.Access = append(spec.Access, store.Access{Where: []string{"deleted"}, Sort: []string{"updated_at"}})
		d.Use |= declare.Computed | declare.Hidden // only delete, restore and purge set it
	}
	if d.Rule.Unique {
		u := Unique{
			Field: d.Name, Shown: name, within: d.Rule.Within, sparse: omitsEmpty(d), index: d.Index,
			group: places[d.Rule.Within],
		}
		switch {
		case d.Use.Has(declare.Identity):
			u.Identity = Always
		case d.Use.Has(declare.Named):
			u.Identity = Named
		}
		r.Uniques = append(r.Uniques, u)
		key := []string{d.Name}
		if u.within != "" {
			key = []string{u.within, d.Name}
		}
		spec.Indexes = append(spec.Indexes, store.Index{Fields: key, Unique: true, Sparse: omitsEmpty(d)})
		spec.Access = append(spec.Access, store.Access{Where: key})
	}
	if d.Use.Has(declare.Local) {
		return nil
	}
	return r.add(d, name)
}

// omitsLive reports whether the field is deleted, and is left out of live records.
func omitsLive(d declare.Field) bool {
	return d.Name == "deleted" && omitsEmpty(d)
}

// omitsEmpty reports whether the field is left out of records in which it is empty.
func omitsEmpty(d declare.Field) bool { return strings.Contains(d.Tag.Get("json"), ",omitempty") }

// maxFields is the number of bits in the set of fields that an input gives.
const maxFields = 64

// add appends a field to those of the resource.
func (r *Resource) add(d declare.Field, name string) error {
	d.Name = name
	f, err := field.New(d)
	if err != nil {
		return err
	}
	if len(r.Fields) == maxFields {
		return fmt.Errorf("more than %d fields", maxFields)
	}
	if name == "kind" {
		return errors.New("a field is named kind, which lines of bundles use for the kind of the record")
	}
	if _, twice := r.index[name]; twice {
		return fmt.Errorf("two fields are named %s", name)
	}
	r.index[name] = len(r.Fields)
	r.Fields = append(r.Fields, f)
	return nil
}
