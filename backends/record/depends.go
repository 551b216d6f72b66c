package record

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
)

// Use is what a record asks of a definition that its description does not refer to.
type Use struct {
	Resource string   // the resource of the definition; empty: the record uses none
	Name     string   // the identity of the definition; empty where all definitions are one, see Together
	Fields   []string // of definitions that are one: those that the record names
	All      bool     // of definitions that are one: the record asks for every field there is
}

// of reports whether the definition is one of those that are used.
func (u *Use) of(r *Resource, def any) bool {
	switch identity := r.Identity(def); {
	case u.Resource != r.Name:
		return false
	case r.Together:
		return u.All || slices.Contains(u.Fields, identity)
	default:
		return u.Name == identity
	}
}

// Used returns the preconditions that the definitions which the record uses are unchanged, as far as they exist.
// Errors: store.ErrUnavailable.
func (r *Resource) Used(ctx context.Context, ws *store.Workspace, rec any) ([]store.Precondition, error) {
	if r.hooks.uses == nil {
		return nil, nil
	}
	use := r.hooks.uses(rec)
	names, by := use.Fields, r.targets[use.Resource]
	if by == nil {
		return nil, nil
	}
	if !by.Together {
		names = []string{use.Name}
	}
	var unchanged []store.Precondition
	for some := range slices.Chunk(names, dependsAtOnce) {
		_, there, err := by.Lacks(ctx, ws, ws, some)
		if err != nil {
			return nil, err
		}
		unchanged = append(unchanged, there...)
	}
	return unchanged, nil
}

// Carrying reports whether a change of a record of the resource can be one of others: of those that it defines,
// that lie in it or that show it. Records of the control workspace are not among these, because rights decide who
// changes them.
func (r *Resource) Carrying() bool { return !r.Control && (r.Definition || r.Carries) }

// Extends reports whether rec is was with, at most, further fields that it defines and that no record must have.
func (r *Resource) Extends(rec, was any) bool {
	for i := range r.Fields {
		f := &r.Fields[i]
		switch {
		case f.Use.Has(declare.Silent):
		case f.Type == reflect.TypeFor[schema.Fields]():
			before, after := at(was, f.Index).Interface().(schema.Fields), at(rec, f.Index).Interface().(schema.Fields)
			for name := range before.With(after) {
				is, has := before[name]
				if has && !is.Locked && after[name] != is || !has && after[name].Required { // a locked one stays, whatever was sent
					return false
				}
			}
		case !bytes.Equal(f.Append(nil, rec), f.Append(nil, was)):
			return false
		}
	}
	return true
}

// dependsAtOnce is how many identities one question names.
const dependsAtOnce = 100

// DependedOn reports whether a record that the scope does not show, deleted or not, depends on rec: it has values of
// what rec defines or asks for them, or it refers to rec or to a record that lies in rec at any depth. The answer is
// always no where the resource is not Carrying. Errors: store.ErrUnavailable.
func (r *Resource) DependedOn(ctx context.Context, ws *store.Workspace, scope store.Scope, rec any) (bool, error) {
	if scope.All || !r.Carrying() {
		return false, nil
	}
	inside, err := r.inside(ctx, ws, rec)
	if err != nil {
		return false, err
	}
	hidden := scope.Hidden()
	for _, name := range slices.Sorted(maps.Keys(r.targets)) {
		other := r.targets[name]
		if other.Control || !other.Records.Spec().Teams { // every scope shows its records
			continue
		}
		if depends, err := other.dependsOn(ctx, ws, hidden, r, rec, inside); depends || err != nil {
			return depends, err
		}
	}
	return false, nil
}

// inside returns the identities of rec and of all records of its resource that lie in it.
func (r *Resource) inside(ctx context.Context, ws *store.Workspace, rec any) ([]string, error) {
	all := []string{r.Identity(rec)}
	known := map[string]bool{all[0]: true}
	for _, in := range r.askable(r) {
		for done := 0; done < len(all); {
			some := all[done:min(done+dependsAtOnce, len(all))]
			done += len(some)
			err := r.Records.Each(ctx, ws, store.In(in, some...), func(rec any) error {
				if id := r.Identity(rec); !known[id] {
					known[id] = true
					all = append(all, id)
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// askable returns the stored names of fields that refer to the other resource and that questions can name.
func (r *Resource) askable(other *Resource) (names []string) {
	for i := range r.Fields {
		f := &r.Fields[i]
		// A hidden field says the same as another one.
		if f.Rule.Ref == other.Name && f.Use.Has(declare.Filter) && !f.Use.Has(declare.Hidden) {
			names = append(names, r.Stored(f.Name))
		}
	}
	return names
}

// dependsOn reports whether a record of the resource that matches depends on def, a record of by, or refers to one of
// those inside.
func (r *Resource) dependsOn(
	ctx context.Context, ws *store.Workspace, where store.Filter, by *Resource, def any, inside []string,
) (bool, error) {
	if r.DefinedBy == by.Name && r.DefinitionField == "" {
		_, fields := by.Defines(def)
		for _, name := range fields.Names() {
			if has, err := r.Holds(ctx, ws, where, name, fields[name].Type); has || err != nil {
				return has, err
			}
		}
	}
	for _, field := range r.askable(by) {
		for some := range slices.Chunk(inside, dependsAtOnce) {
			refers := store.All(store.In(field, some...), where)
			found, err := r.Records.Find(ctx, ws, store.Query{Filter: refers, State: store.Either, Limit: 1})
			if len(found) > 0 || err != nil {
				return len(found) > 0, err
			}
		}
	}
	names := func(rec any) bool { // which no question tells
		return slices.ContainsFunc(r.References(rec), func(ref Reference) bool {
			return ref.Target == by && slices.Contains(ref.IDs, inside[0])
		})
	}
	refers := slices.ContainsFunc(r.Fields, func(f field.Field) bool {
		return f.Rule.Ref == by.Name && !f.Use.Has(declare.Filter)
	})
	if !refers && r.hooks.uses == nil {
		return false, nil
	}
	err := r.Records.Each(ctx, ws, where, func(rec any) error {
		use := Use{}
		if r.hooks.uses != nil {
			use = r.hooks.uses(rec)
		}
		if use.of(by, def) || refers && names(rec) {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		return true, nil
	}
	return false, err
}
