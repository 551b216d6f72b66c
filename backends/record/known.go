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

// Known is what records are checked against: which definitions an organization has. The zero
// value knows nothing. It is not safe for concurrent use while it learns.
type Known struct {
	has    map[string]map[string]bool          // identities by resource
	fields map[string]map[string]schema.Fields // by resource of the values, and definition
	read   map[string]map[string]any           // definitions as they were learned, likewise
}

// Has reports whether there is that record of a resource.
func (k *Known) Has(resource, id string) bool { return k.has[resource][id] }

// Count returns how many records of the resource are known.
func (k *Known) Count(resource string) int { return len(k.has[resource]) }

// Fields returns the fields that records of the resource defined under the name.
func (k *Known) Fields(resource, name string) (schema.Fields, bool) {
	f, ok := k.fields[resource][name]
	return f, ok
}

// Cover makes known that all records of the resource will be: what refers to another one is wrong.
func (k *Known) Cover(resource string) {
	if k.has == nil {
		k.has, k.fields, k.read = map[string]map[string]bool{}, map[string]map[string]schema.Fields{}, map[string]map[string]any{}
	}
	if k.has[resource] == nil {
		k.has[resource], k.fields[resource], k.read[resource] = map[string]bool{}, map[string]schema.Fields{}, map[string]any{}
	}
}

// Covers reports whether what there is of the resource is known.
func (k *Known) Covers(resource string) bool { return k.has[resource] != nil }

// Admit makes known that there is such a record.
func (k *Known) Admit(resource, id string) {
	k.Cover(resource)
	k.has[resource][id] = true
}

// Note makes known that there is the record, which defines nothing by that.
func (k *Known) Note(r *Resource, rec any) {
	id := r.Identity(rec)
	k.Admit(r.Name, id)
	k.read[r.Name][id] = rec
}

// Record returns the definition that is known by that identity; nil: none is.
func (k *Known) Record(resource, id string) any { return k.read[resource][id] }

// Learn makes a definition known, under another name than its own where as is given. Where it was
// known already, a record that does not say which fields it defines changes nothing.
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

// Identity returns by what other records refer to this one, "" where it has none yet.
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

// Full reports whether an organization that has what is known may not have the record besides.
func (k *Known) Full(r *Resource, rec any) bool {
	return r.Most > 0 && k.Count(r.Name) >= r.Most && !k.Has(r.Name, r.Identity(rec))
}

// Checking is one check of a record.
type Checking struct {
	Errs  *fault.List
	Known *Known
	// Absent ends the sentence about a reference that leads nowhere.
	Absent string
	// Take moves the values of encrypted fields out of values, and notes what is wrong with them.
	// It returns the names of those that are there. Nil: they stay, and are refused.
	Take func(values map[string]any, secret func(name string) bool) map[string]bool
	// Clear: null takes away what need not be there.
	Clear bool
	// Spare: null of a field that nobody defined takes nothing away, and is not refused.
	Spare bool
	// Define, where set, makes known what the record's values are checked against.
	Define func(rec any)
	there  bool              // the record was there before, and is changed:
	kept   map[string]any    // the values of a record before it was changed,
	sealed map[string]string // and its secrets

	// Keep is set where the record is good, and nothing is to be stored of it.
	Keep bool
	// Never are fields of which what is wrong is refused also of a record that is taken as it was stored.
	Never []string
}

// Missing notes a reference to something that there is not.
func (c *Checking) Missing(field, what string) {
	c.Errs.Add(field, fault.Unknown, "%s names %s %s", field, texts.WithArticle(strings.ReplaceAll(what, "_", " ")), c.Absent)
}

// Read reads an object into the record and checks it, and returns which Fields were given: bit n is
// the n-th. Every fault is noted in c, also of what could not be read. Of the names that skip has
// nothing is read.
func (r *Resource) Read(c *Checking, v strictjson.Value, rec any, skip ...string) (given uint64) {
	given = r.read(c, v, rec, skip...)
	r.finish(c, given, rec)
	return given
}

// Change is Read into a record that is there: what v does not give stays as it is, and so does what
// it does not give of an object that is merged.
func (r *Resource) Change(c *Checking, v strictjson.Value, rec any) (given uint64) {
	change := r.Bare()
	given = r.read(c, v, change)
	c.there = true
	if r.values != nil {
		c.kept = maps.Clone(*r.Values(rec))
	}
	if r.secrets != nil {
		c.sealed = maps.Clone(*r.Secrets(rec))
	}
	for i := range r.Fields {
		switch f := &r.Fields[i]; {
		case given&(1<<i) == 0 || field.Told(*c.Errs, f.Name):
		case c.Clear && !f.Rule.Required && at(change, f.Index).IsZero():
			at(rec, f.Index).SetZero()
		default:
			f.Copy(rec, change)
		}
	}
	r.finish(c, math.MaxUint64, rec)
	return given
}

// Hold checks a record that was filled by the program as Read would one that says the same. Fields that
// are as in was, the record as it is stored, are not looked at one by one: earlier rules may have been
// milder. Without one was is nil.
func (r *Resource) Hold(c *Checking, rec, was any) {
	var p strictjson.Parser
	read := r.Bare()
	if c.there = was != nil; c.there && r.values != nil {
		c.kept = *r.Values(was)
		if r.secrets != nil {
			c.sealed = *r.Secrets(was)
		}
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		text := f.Append(nil, rec)
		if len(text) == 0 || was != nil && bytes.Equal(text, f.Append(nil, was)) {
			continue
		}
		if v, err := p.Parse(string(text)); err != nil {
			c.Errs.Add(f.Name, fault.Format, "%s cannot be taken: %v", f.Name, err)
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
			at(rec, f.Index).Set(at(r.New(), f.Index)) // what holds where nothing is said
		} else {
			f.Read(v.Members[i].Value, rec, c.Errs)
		}
	}
	if n, ok := r.index["deleted"]; ok && quiet(r.Fields[n].Field) {
		given |= 1 << n // what does not say that it is deleted is live
	}
	return given
}

// finish looks at the record as a whole.
func (r *Resource) finish(c *Checking, given uint64, rec any) {
	r.Derive(rec)
	for i := range r.Fields {
		r.Fields[i].Demand(given&(1<<i) != 0, rec, c.Errs)
	}
	r.check(c, rec)
}

// Reference is what one field of a record refers to.
type Reference struct {
	Field  string
	Target *Resource
	IDs    []string // identities in the target
}

// References returns what the record's fields refer to, of those resources that Link knew. Fields that
// refer to nothing are left out.
func (r *Resource) References(rec any) (found []Reference) {
	for i := range r.Fields {
		f := &r.Fields[i]
		if target := r.targets[f.Rule.Ref]; target != nil {
			if ids := referred(f, rec); len(ids) > 0 {
				found = append(found, Reference{f.Name, target, ids})
			}
		}
	}
	return found
}

// Unchanged returns the preconditions that a resource's definitions of these names are as they were read.
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

// Named notes the names of the definitions that a record stands on: the one that it is of, or else those of the values
// it is given.
func (r *Resource) Named(names map[string]bool, rec any, given ...iter.Seq[string]) {
	if name, one := r.DefinitionOf(rec); one {
		given = []iter.Seq[string]{slices.Values([]string{name})}
	}
	for _, some := range given {
		for name := range some {
			names[name] = true
		}
	}
}

// Lacks returns those of the identities that no record of the resource has which the workspace shows, and the
// preconditions that the others are unchanged; people is the organization's part of the control workspace. Errors:
// store.ErrUnavailable.
func (r *Resource) Lacks(ctx context.Context, ws, people *store.Workspace, ids []string) (lacking []string, unchanged []store.Precondition, err error) {
	if r.Control {
		ws = people
	}
	key := cmp.Or(r.Key, "id")
	stored := store.In(r.Stored(key), ids...)
	if n, ok := r.index[key]; ok && r.Fields[n].Type.Kind() != reflect.String {
		numbers := make([]int64, len(ids))
		for i, id := range ids {
			numbers[i], _ = strconv.ParseInt(id, 10, 64) // written by referred
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

// Definitions makes known what the record's values, or what it asks, are checked against: the definition
// that it names, or all of them where it names none. Errors: store.ErrUnavailable.
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

// check checks a record as a whole: what its resource asks, the values of defined fields, and what
// it refers to among definitions. Of a field that could not be read that much is said.
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
		if c.Known.has[f.Rule.Ref] == nil || f.Rule.Ref == r.DefinedBy { // documents are looked for in the store
			continue
		}
		for _, id := range referred(f, rec) {
			if !c.Known.Has(f.Rule.Ref, id) {
				c.Missing(f.Name, f.Rule.Ref)
				break
			}
		}
	}
}

// referred returns what a field refers to, as texts.
func referred(f *field.Field, rec any) []string {
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

var errEnough = errors.New("enough was read")

// Holds reports whether some of the records that match, deleted or not, has a value of a defined field, also a
// sealed one where it is of the type Encrypted. No question can name those, so records are read until there is
// one. Errors: store.ErrUnavailable.
func (r *Resource) Holds(ctx context.Context, ws *store.Workspace, where store.Filter, name, fieldType string) (has bool, err error) {
	plain := store.Where(store.Field{Name: name, Custom: true}, store.OpExists, true)
	found, err := r.Records.Find(ctx, ws, store.Query{Filter: store.All(where, plain), State: store.Either, Limit: 1})
	if err != nil || len(found) > 0 || fieldType != schema.Encrypted {
		return len(found) > 0, err
	}
	err = r.Records.Each(ctx, ws, where, func(rec any) error {
		if has = (*r.Secrets(rec))[name] != ""; has {
			return errEnough
		}
		return nil
	})
	if has {
		err = nil
	}
	return has, err
}

// Defines returns what a definition defines, and the name under which it does; nothing where the records define no
// fields.
func (r *Resource) Defines(rec any) (name string, fields schema.Fields) {
	if r.hooks.defines != nil {
		name, fields, _ = r.hooks.defines(rec)
	}
	return name, fields
}

// Resealed notes of a change of a definition which fields it would make secret, or no longer, also by dropping them,
// while records have values of them, which would be left in clear or sealed for ever. r is the resource of the records,
// name that of the definition, and before are its fields until now. Errors: store.ErrUnavailable.
func (r *Resource) Resealed(ctx context.Context, ws *store.Workspace, name string, before, after schema.Fields, errs *fault.List) error {
	var of store.Filter
	shown := func(string) string { return "type" } // the definition is of one field
	if r.DefinitionField != "" {
		of = store.Eq(r.Stored(r.DefinitionField), name)
		shown = func(field string) string { return "schema." + field + ".type" }
	}
	for _, f := range before.With(after).Names() {
		was := before[f].Type
		if !schema.Reseals(was, after[f].Type) {
			continue // where it is not there any more, plain values of it stay as they are
		}
		has, err := r.Holds(ctx, ws, of, f, was)
		if err != nil {
			return err
		}
		if _, stays := after[f]; has && !stays && r.DefinitionField != "" {
			at := strings.TrimSuffix(shown(f), ".type")
			errs.Add(shown(f), fault.Forbidden, "%s is %s and cannot be dropped while %s have values of the field: they would be sealed for ever", at, schema.Encrypted, r.Plural())
		} else if has {
			errs.Add(shown(f), fault.Forbidden, "%s cannot become or stop being %s while %s have values of the field", shown(f), schema.Encrypted, r.Plural())
		}
	}
	return nil
}

// DefinitionOf returns the name of the one definition that a record is of, and false where each of its values has its
// own.
func (r *Resource) DefinitionOf(rec any) (name string, one bool) {
	if r.definition == nil {
		return "", false
	}
	return at(rec, r.definition).String(), true
}

// Defined returns the fields that are defined for the record's values.
func (r *Resource) Defined(k *Known, rec any) (schema.Fields, bool) {
	name, _ := r.DefinitionOf(rec)
	fields, ok := k.Fields(r.DefinedBy, name)
	return fields, ok || name == "" // that there is none is said of the field, where one is required
}

// SecretIn reports which values of the record are encrypted.
func (r *Resource) SecretIn(k *Known, rec any) func(name string) bool {
	fields, _ := r.Defined(k, rec)
	return func(name string) bool { return fields[name].Type == schema.Encrypted }
}

// same reports whether two values of a defined field are written alike.
func same(a, b any) bool {
	return reflect.DeepEqual(a, b) || a != nil && b != nil && bytes.Equal(field.AppendJSON(nil, a), field.AppendJSON(nil, b))
}

// checkValues holds a record's values against its definition and moves the secret ones out.
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
		} else if path := r.valuesName + "." + name; f.Required && !taken[name] && (!c.there || c.sealed[name] != "") && !field.Told(*c.Errs, path) {
			c.Errs.Add(path, fault.Required, "%s is required", path)
		}
	}
	clean, unknown := plain.CheckChanged(c.Errs, r.valuesName, *values, func(name string) bool {
		return !c.there || !same(c.kept[name], (*values)[name])
	})
	for _, name := range unknown {
		if value, was := c.kept[name]; was && same(value, (*values)[name]) { // its definition went after it
			if clean == nil {
				clean = map[string]any{}
			}
			clean[name] = value
			continue
		} else if (*values)[name] == nil && (was || c.sealed[name] != "" || c.Spare) { // null takes it away, or an import elsewhere has nothing to take
			continue
		}
		path := r.valuesName + "." + schema.Printable(name)
		c.Errs.Add(path, fault.Unknown, "%s is not a field that is defined", path)
	}
	if len(clean) == 0 {
		clean = nil
	}
	*values = clean
}
