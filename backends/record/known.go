package record

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// Known holds the definitions and identities of an organization against which records are checked. The zero value is
// empty. It is not safe for concurrent use while something is added.
type Known struct {
	has    map[string]map[string]bool          // identities, by resource
	fields map[string]map[string]schema.Fields // defined fields, by resource of the definition and its name
	read   map[string]map[string]any           // records as they were added, by resource and identity
}

// Has reports whether the record of the resource is known.
func (k *Known) Has(resource, id string) bool { return k.has[resource][id] }

// Count returns how many records of the resource are known.
func (k *Known) Count(resource string) int { return len(k.has[resource]) }

// Fields returns the fields that definitions of the resource define under the name.
func (k *Known) Fields(resource, name string) (schema.Fields, bool) {
	f, ok := k.fields[resource][name]
	return f, ok
}

// Cover declares that all records of the resource will be added, so that a reference to any other one is a fault.
func (k *Known) Cover(resource string) {
	if k.has == nil {
		k.has = map[string]map[string]bool{}
		k.fields = map[string]map[string]schema.Fields{}
		k.read = map[string]map[string]any{}
	}
	if k.has[resource] == nil {
		k.has[resource] = map[string]bool{}
		k.fields[resource] = map[string]schema.Fields{}
		k.read[resource] = map[string]any{}
	}
}

// Covers reports whether all records of the resource are known.
func (k *Known) Covers(resource string) bool { return k.has[resource] != nil }

// Admit adds the identity of a record.
func (k *Known) Admit(resource, id string) {
	k.Cover(resource)
	k.has[resource][id] = true
}

// Note adds a record without the fields that it defines.
func (k *Known) Note(r *Resource, rec any) {
	id := r.Identity(rec)
	k.Admit(r.Name, id)
	k.read[r.Name][id] = rec
}

// Record returns the record that was added with that identity, nil if there is none.
func (k *Known) Record(resource, id string) any { return k.read[resource][id] }

// Learn adds a definition with the fields that it defines, under the name as unless that is empty. A record that does
// not give its fields does not replace fields that are known already.
func (k *Known) Learn(r *Resource, rec any, as string) {
	id := cmp.Or(as, r.Identity(rec))
	if id == "" {
		return
	}
	k.Admit(r.Name, id)
	if r.hooks.defines == nil {
		return
	}
	k.read[r.Name][id] = rec
	name, fields, given := r.hooks.defines(rec)
	if as != "" {
		name = as
	}
	known, there := k.fields[r.Name][name]
	switch {
	case r.Together:
		if known == nil {
			known = schema.Fields{}
		}
		maps.Copy(known, fields)
		k.fields[r.Name][name] = known
	case given || !there:
		k.fields[r.Name][name] = fields
	}
}

// Identity returns the value by which other records refer to this one, "" if it has none yet.
func (r *Resource) Identity(rec any) string {
	if _, ok := r.index[cmp.Or(r.Key, "id")]; !ok {
		return ""
	}
	if v := at(rec, r.KeyField().Index); v.Kind() == reflect.String {
		return v.String()
	} else if v.Int() != 0 {
		return strconv.FormatInt(v.Int(), 10)
	}
	return ""
}

// Full reports whether adding the record would exceed the number of records that the organization may have.
func (k *Known) Full(r *Resource, rec any) bool {
	return r.Most > 0 && k.Count(r.Name) >= r.Most && !k.Has(r.Name, r.Identity(rec))
}

// Checking is one check of a record.
type Checking struct {
	Errs  *fault.List
	Known *Known
	// Absent ends the message about a reference to a missing record.
	Absent string
	// Take removes the values of encrypted fields from values, and notes their faults. It returns the names of those
	// that are given. If Take is nil, the values stay, and are refused.
	Take func(values map[string]any, secret func(name string) bool) map[string]bool
	// Clear: null clears a field that is not required.
	Clear bool
	// IgnoreNull: null for a field that is not defined is ignored instead of refused.
	IgnoreNull bool
	// Define, when set, adds the definitions of the record's values to Known.
	Define func(rec any)

	changing   bool              // the record exists and is being changed
	oldValues  map[string]any    // the plain values of the record before the change
	oldSecrets map[string]string // the sealed values of the record before the change

	// Keep is set if the record is valid, but must not be stored.
	Keep bool
	// Never names fields whose faults are refused even in a record that is accepted as it was stored.
	Never []string
}

// Missing notes a reference to a record that does not exist.
func (c *Checking) Missing(field, what string) {
	c.Errs.Add(field, fault.Unknown, "%s names %s %s", field, texts.WithArticle(strings.ReplaceAll(what, "_", " ")), c.Absent)
}

// Read reads an object into the record and checks it. It returns the set of given Fields: bit n is the n-th. All faults
// are noted in c. Members whose names are in skip are ignored.
func (r *Resource) Read(c *Checking, v strictjson.Value, rec any, skip ...string) (given uint64) {
	given = r.read(c, v, rec, skip...)
	r.finish(c, given, rec)
	return given
}

// Change is Read into an existing record: fields that v does not give keep their values, as do the members that it does
// not give of a merged object.
func (r *Resource) Change(c *Checking, v strictjson.Value, rec any) (given uint64) {
	change := r.Bare()
	given = r.read(c, v, change)
	c.changing = true
	if r.values != nil {
		c.oldValues = maps.Clone(*r.Values(rec))
	}
	if r.secrets != nil {
		c.oldSecrets = maps.Clone(*r.Secrets(rec))
	}
	for i := range r.Fields {
		switch f := &r.Fields[i]; {
		case given&(1<<i) == 0 || field.HasFault(*c.Errs, f.Name):
		case c.Clear && !f.Rule.Required && at(change, f.Index).IsZero():
			at(rec, f.Index).SetZero()
		default:
			f.Copy(rec, change)
		}
	}
	r.finish(c, math.MaxUint64, rec)
	return given
}

// Hold checks a record that the program has filled by the rules of Read. Fields with the same value as in was, the
// stored record, are not checked one by one, because earlier rules may have been less strict. For a new record was is
// nil.
func (r *Resource) Hold(c *Checking, rec, was any) {
	var p strictjson.Parser
	read := r.Bare()
	if c.changing = was != nil; c.changing && r.values != nil {
		c.oldValues = *r.Values(was)
		if r.secrets != nil {
			c.oldSecrets = *r.Secrets(was)
		}
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		text := f.Append(nil, rec)
		if len(text) == 0 || was != nil && bytes.Equal(text, f.Append(nil, was)) {
			continue
		}
		if v, err := p.Parse(string(text)); err != nil {
			c.Errs.Add(f.Name, fault.Format, "%s is invalid: %v", f.Name, err)
		} else {
			f.Read(v, read, c.Errs)
		}
	}
	r.finish(c, math.MaxUint64, rec)
}

func (r *Resource) read(c *Checking, v strictjson.Value, rec any, skip ...string) (given uint64) {
	for i := range v.Members {
		name := v.Members[i].Name
		if slices.Contains(skip, name) {
			continue
		}
		n, ok := r.index[name]
		if !ok {
			c.Errs.Add(texts.Clip(name), fault.Unknown, "a %s has no field %q", r.Name, texts.Clip(name))
			continue
		}
		given |= 1 << n
		if f := &r.Fields[n]; c.Clear && !f.Rule.Required && v.Members[i].Value.Is == strictjson.Null {
			at(rec, f.Index).Set(at(r.New(), f.Index)) // the default
		} else {
			f.Read(v.Members[i].Value, rec, c.Errs)
		}
	}
	if n, ok := r.index["deleted"]; ok && omitsLive(r.Fields[n].Field) {
		given |= 1 << n // without the member the record is live
	}
	return given
}

// finish derives fields and checks the record as a whole.
func (r *Resource) finish(c *Checking, given uint64, rec any) {
	r.Derive(rec)
	for i := range r.Fields {
		r.Fields[i].Demand(given&(1<<i) != 0, rec, c.Errs)
	}
	r.check(c, rec)
}

// Reference names the records to which a field refers.
type Reference struct {
	Field  string
	Target *Resource
	IDs    []string // identities in the target
}

// References returns the references of the record to resources that Link has named, without fields that are empty.
func (r *Resource) References(rec any) (found []Reference) {
	for i := range r.Fields {
		f := &r.Fields[i]
		if target := r.targets[f.Rule.Ref]; target != nil {
			if ids := referredIDs(f, rec); len(ids) > 0 {
				found = append(found, Reference{f.Name, target, ids})
			}
		}
	}
	return found
}

// Unchanged returns the preconditions that the definitions of these names, of the resource's values, are unchanged.
func (k *Known) Unchanged(ws *store.Workspace, r *Resource, names map[string]bool) (unchanged []store.Precondition) {
	by := r.targets[r.DefinedBy]
	if by == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if def, ok := k.read[by.Name][name]; ok {
			unchanged = append(unchanged, by.Records.Unchanged(ws, def))
		}
	}
	return unchanged
}

// AddDefinitions adds to names the definitions on which a record depends: its own definition, or else those of the
// given values.
func (r *Resource) AddDefinitions(names map[string]bool, rec any, given ...iter.Seq[string]) {
	if name, one := r.DefinitionOf(rec); one {
		given = []iter.Seq[string]{slices.Values([]string{name})}
	}
	for _, some := range given {
		for name := range some {
			names[name] = true
		}
	}
}

// FindMissing returns the identities for which the workspace shows no record of the resource, and the preconditions
// that the records of the others are unchanged. People is the organization's part of the control workspace. Error:
// store.ErrUnavailable.
func (r *Resource) FindMissing(
	ctx context.Context, ws, people *store.Workspace, ids []string,
) (missing []string, unchanged []store.Precondition, err error) {
	if r.Control {
		ws = people
	}
	key := cmp.Or(r.Key, "id")
	stored := store.In(r.Stored(key), ids...)
	if n, ok := r.index[key]; ok && r.Fields[n].Type.Kind() != reflect.String {
		numbers := make([]int64, len(ids))
		for i, id := range ids {
			numbers[i], _ = strconv.ParseInt(id, 10, 64) // written by referredIDs
		}
		stored = store.In(r.Stored(key), numbers...)
	}
	found, err := r.Records.Find(ctx, ws, store.Query{Filter: stored, Limit: len(ids)})
	if err != nil {
		return nil, nil, err
	}
	there := map[string]bool{}
	for _, rec := range found {
		there[r.Identity(rec)] = true
		unchanged = append(unchanged, r.Records.Unchanged(ws, rec))
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return there[id] }), unchanged, nil
}

// Definitions adds to k the definitions against which the record's values, or its query, are checked: the one that it
// names, or all of them if it names none. Error: store.ErrUnavailable.
func (r *Resource) Definitions(ctx context.Context, ws *store.Workspace, rec any, k *Known) error {
	by, name := r.targets[r.DefinedBy], ""
	switch {
	case r.definition != nil:
		name = at(rec, r.definition).String()
	case r.hooks.asks != nil:
		what, named := r.hooks.asks(rec)
		by, name = r.targets[what], named
	}
	if by == nil {
		return nil
	}
	q := store.Query{Limit: cmp.Or(by.Most, store.MaxLimit), Shared: true}
	if r.definition != nil || name != "" {
		q.Filter = store.Eq(by.Stored(cmp.Or(by.Key, "id")), name)
	}
	found, err := by.Records.Find(ctx, ws, q)
	k.Cover(by.Name)
	for _, def := range found {
		k.Learn(by, def, "")
	}
	return err
}

// check checks a record as a whole: by the hooks of its resource, the values of defined fields, and references to known
// records. It adds no faults to fields that could not be read.
func (r *Resource) check(c *Checking, rec any) {
	errs, found := c.Errs, fault.List{}
	c.Errs = &found
	defer func() {
		field.Join(errs, found)
		c.Errs = errs
	}()
	r.hooks.check(c, rec)
	if c.Define != nil && (r.values != nil || r.hooks.asks != nil) {
		c.Define(rec)
	}
	if r.values != nil {
		r.checkValues(c, rec)
	}
	if r.Ask != nil && len(found) == 0 {
		r.Ask(c, rec)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		if c.Known.has[f.Rule.Ref] == nil || f.Rule.Ref == r.DefinedBy { // other references are checked in the store
			continue
		}
		for _, id := range referredIDs(f, rec) {
			if !c.Known.Has(f.Rule.Ref, id) {
				c.Missing(f.Name, f.Rule.Ref)
				break
			}
		}
	}
}

// referredIDs returns the identities to which a field refers, as texts.
func referredIDs(f *field.Field, rec any) []string {
	switch p := at(rec, f.Index).Addr().Interface().(type) {
	case *[]string:
		return *p
	case *string:
		if *p != "" {
			return []string{*p}
		}
	case *int64:
		if *p != 0 {
			return []string{strconv.FormatInt(*p, 10)}
		}
	}
	return nil
}

// errStop ends a walk over records.
var errStop = errors.New("stopped")

// HasValue reports whether a matching record, deleted or not, has a value of the defined field; for the type Encrypted
// also a sealed value. Queries cannot name sealed values, so records are read until one has it. Error:
// store.ErrUnavailable.
func (r *Resource) HasValue(
	ctx context.Context, ws *store.Workspace, where store.Filter, name, fieldType string,
) (has bool, err error) {
	plain := store.Where(store.Field{Name: name, Custom: true}, store.OpExists, true)
	found, err := r.Records.Find(ctx, ws, store.Query{Filter: store.All(where, plain), State: store.Either, Limit: 1})
	if err != nil || len(found) > 0 || fieldType != schema.Encrypted {
		return len(found) > 0, err
	}
	err = r.Records.Each(ctx, ws, where, func(rec any) error {
		if has = (*r.Secrets(rec))[name] != ""; has {
			return errStop
		}
		return nil
	})
	if has {
		err = nil
	}
	return has, err
}

// Defines returns the fields that a definition defines, and the name under which it defines them; nothing if records of
// the resource define no fields.
func (r *Resource) Defines(rec any) (name string, fields schema.Fields) {
	if r.hooks.defines != nil {
		name, fields, _ = r.hooks.defines(rec)
	}
	return name, fields
}

// Resealed notes the fields that a change of a definition would start or stop encrypting, or drop while encrypted,
// although records have values of them. Those values would stay in plain text, or sealed for ever. r is the resource of
// the records, name the definition, before its current fields. Error: store.ErrUnavailable.
func (r *Resource) Resealed(
	ctx context.Context, ws *store.Workspace, name string, before, after schema.Fields, errs *fault.List,
) error {
	var of store.Filter
	shown := func(string) string { return "type" } // the definition has a single field
	if r.DefinitionField != "" {
		of = store.Eq(r.Stored(r.DefinitionField), name)
		shown = func(field string) string { return "schema." + field + ".type" }
	}
	for _, f := range before.With(after).Names() {
		was := before[f].Type
		if !schema.Reseals(was, after[f].Type) {
			continue // plain values of a dropped field stay as they are
		}
		has, err := r.HasValue(ctx, ws, of, f, was)
		if err != nil {
			return err
		}
		if _, stays := after[f]; has && !stays && r.DefinitionField != "" {
			at := strings.TrimSuffix(shown(f), ".type")
			errs.Add(shown(f), fault.Forbidden,
				"%s is %s and cannot be dropped while %s have values of the field: they would be sealed for ever",
				at, schema.Encrypted, r.Plural())
		} else if has {
			errs.Add(shown(f), fault.Forbidden, "%s cannot become or stop being %s while %s have values of the field",
				shown(f), schema.Encrypted, r.Plural())
		}
	}
	return nil
}

// DefinitionOf returns the name of the definition of a record, and false if each of its values has its own definition.
func (r *Resource) DefinitionOf(rec any) (name string, one bool) {
	if r.definition == nil {
		return "", false
	}
	return at(rec, r.definition).String(), true
}

// Defined returns the fields that are defined for the record's values, and false if their definition is not known.
func (r *Resource) Defined(k *Known, rec any) (schema.Fields, bool) {
	name, _ := r.DefinitionOf(rec)
	fields, ok := k.Fields(r.DefinedBy, name)
	return fields, ok || name == "" // a missing name is a fault of the field, if it is required
}

// SecretIn returns a function that reports whether the value of that name is encrypted in the record.
func (r *Resource) SecretIn(k *Known, rec any) func(name string) bool {
	fields, _ := r.Defined(k, rec)
	return func(name string) bool { return fields[name].Type == schema.Encrypted }
}

// equalJSON reports whether two values of a defined field are the same as JSON.
func equalJSON(a, b any) bool {
	return reflect.DeepEqual(a, b) ||
		a != nil && b != nil && bytes.Equal(field.AppendJSON(nil, a), field.AppendJSON(nil, b))
}

// checkValues checks a record's values against its definition, and has Take remove the encrypted ones.
func (r *Resource) checkValues(c *Checking, rec any) {
	fields, ok := r.Defined(c.Known, rec)
	if !ok {
		c.Missing(r.DefinitionField, r.DefinedBy)
		return
	}
	values := r.Values(rec)
	secret := r.SecretIn(c.Known, rec)
	var taken map[string]bool
	if c.Take != nil {
		taken = c.Take(*values, secret)
	}
	plain := make(schema.Fields, len(fields))
	for name, f := range fields {
		if !secret(name) {
			plain[name] = f
			continue
		}
		path := r.valuesName + "." + name
		missing := f.Required && !taken[name] && (!c.changing || c.oldSecrets[name] != "")
		if missing && !field.HasFault(*c.Errs, path) {
			c.Errs.Add(path, fault.Required, "%s is required", path)
		}
	}
	clean, unknown := plain.CheckChanged(c.Errs, r.valuesName, *values, func(name string) bool {
		return !c.changing || !equalJSON(c.oldValues[name], (*values)[name])
	})
	for _, name := range unknown {
		value, was := c.oldValues[name]
		if was && equalJSON(value, (*values)[name]) { // its definition was dropped later
			if clean == nil {
				clean = map[string]any{}
			}
			clean[name] = value
			continue
		}
		if (*values)[name] == nil && (was || c.oldSecrets[name] != "" || c.IgnoreNull) {
			continue // null removes the value, or there is none to remove
		}
		path := r.valuesName + "." + schema.Printable(name)
		c.Errs.Add(path, fault.Unknown, "%s is not a field that is defined", path)
	}
	if len(clean) == 0 {
		clean = nil
	}
	*values = clean
}
