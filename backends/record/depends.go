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

// Use names the definition that a record uses although none of its fields refers to it, as a report does. Fields and
// All are for definitions that are Together.
type Use struct {
	Resource string   // the resource of the definition; empty if the record uses none
	Name     string   // the identity of the definition; empty if its definitions are Together
	Fields   []string // the fields that the record names
	All      bool     // the record uses every field
}

// of reports whether def, a definition of r, is used.
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

// Used returns preconditions for the existing definitions that the record uses. Error: store.ErrUnavailable.
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
	for some := range slices.Chunk(names, dependsChunk) {
		_, there, err := by.FindMissing(ctx, ws, ws, some)
		if err != nil {
			return nil, err
		}
		unchanged = append(unchanged, there...)
	}
	return unchanged, nil
}

// Carrying reports whether a change of a record of the resource can affect other records: those that it defines, those
// that lie in it or those that show it. It is false for records of the control workspace, because permissions decide
// who may change those.
func (r *Resource) Carrying() bool { return !r.Control && (r.Definition || r.Carries) }

// Extends reports whether rec differs from was only in defining further fields that are not required.
func (r *Resource) Extends(rec, was any) bool {
	for i := range r.Fields {
		f := &r.Fields[i]
		switch {
		case f.Use.Has(declare.Silent):
		case f.Type == reflect.TypeFor[schema.Fields]():
			before := at(was, f.Index).Interface().(schema.Fields)
			after := at(rec, f.Index).Interface().(schema.Fields)
			for name := range before.With(after) {
				is, has := before[name] // a locked field never changes
				if has && !is.Locked && after[name] != is || !has && after[name].Required {
					return false
				}
			}
		case !bytes.Equal(f.Append(nil, rec), f.Append(nil, was)):
			return false
		}
	}
	return true
}

// dependsChunk is the number of identities that one query names.
const dependsChunk = 100

// DependedOn reports whether a record that the scope does not show, deleted or not, depends on rec: it has or uses
// values of fields that rec defines, or refers to rec or to a record that lies in rec at any depth. It returns false if
// the resource is not Carrying. Error: store.ErrUnavailable.
func (r *Resource) DependedOn(ctx context.Context, ws *store.Workspace, scope store.Scope, rec any) (bool, error) {
	if scope.All || !r.Carrying() {
		return false, nil
	}
	inside, err := r.subtree(ctx, ws, rec)
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

// subtree returns the identities of rec and of all records of its resource that lie in it at any depth.
func (r *Resource) subtree(ctx context.Context, ws *store.Workspace, rec any) ([]string, error) {
	all := []string{r.Identity(rec)}
	known := map[string]bool{all[0]: true}
	for _, in := range r.filterableRefs(r) {
		for done := 0; done < len(all); {
			some := all[done:min(done+dependsChunk, len(all))]
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

// filterableRefs returns the stored names of the fields that refer to the other resource and can be filtered.
func (r *Resource) filterableRefs(other *Resource) (names []string) {
	for i := range r.Fields {
		f := &r.Fields[i]
		// A hidden field repeats another one.
		if f.Rule.Ref == other.Name && f.Use.Has(declare.Filter) && !f.Use.Has(declare.Hidden) {
			names = append(names, r.Stored(f.Name))
		}
	}
	return names
}

// dependsOn reports whether a matching record of the resource depends on def, a record of by, or refers to one of the
// identities inside.
func (r *Resource) dependsOn(
	ctx context.Context, ws *store.Workspace, where store.Filter, by *Resource, def any, inside []string,
) (bool, error) {
	if r.DefinedBy == by.Name && r.DefinitionField == "" {
		_, fields := by.Defines(def)
		for _, name := range fields.Names() {
			if has, err := r.HasValue(ctx, ws, where, name, fields[name].Type); has || err != nil {
				return has, err
			}
		}
	}
	for _, field := range r.filterableRefs(by) {
		for some := range slices.Chunk(inside, dependsChunk) {
			refers := store.All(store.In(field, some...), where)
			found, err := r.Records.Find(ctx, ws, store.Query{Filter: refers, State: store.Either, Limit: 1})
			if len(found) > 0 || err != nil {
				return len(found) > 0, err
			}
		}
	}
	names := func(rec any) bool { // for references that cannot be filtered
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
			return errStop
		}
		return nil
	})
	if errors.Is(err, errStop) {
		return true, nil
	}
	return false, err
}
