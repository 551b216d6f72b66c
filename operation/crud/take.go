package crud

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/tenants/secrets"
)

// declareBody declares the fields of a body; there says that it changes an existing record.
func (s *handlers) declareBody(row *operation.Row, there bool) {
	for _, f := range s.fields {
		if there && (f.Use.Has(declare.Once) || f.Name == s.of.KeyField().Name && !s.of.Single) { // references use the key, so it never changes
			continue
		}
		required := f.Rule.Required
		f.Rule.Required = required && !there
		if row.Declare(&f); len(row.Body) > 0 {
			row.Body[len(row.Body)-1].Nullable = !required
		}
	}
	switch row.BodyLimit = bodyLimit; {
	case row.Upload != nil:
		row.BodyLimit = 0
	case s.of.DefinedBy != "":
		row.BodyLimit = operation.MaxBodyLimit
	}
	row.Joins, row.Failures = true, append(row.Failures, s.invalid()...)
}

// bodyLimit is enough for a thousand teams and the texts of a record.
const bodyLimit = 64 << 10

// entry is a record on its way into the store.
type entry struct {
	rec, was any // was is the former state; nil for a new record
	errs     fault.List
	check    record.Checking
	seal     func() error
	gives    []string // names of defined values that the body gives
}

// enter reads a body into the record and checks it as far as known definitions allow.
func (s *handlers) enter(ctx context.Context, c *operation.Call, e *entry, body strictjson.Value, known *record.Known) {
	e.check.Errs, e.check.Known, e.check.Absent, e.check.Clear = &e.errs, known, "that is not in this organization", true
	e.seal = s.sealing(ctx, c, e.rec, body, &e.check)
	for _, m := range body.Get(s.of.ValuesName()).Members {
		e.gives = append(e.gives, m.Name)
	}
	switch {
	case body.Is != strictjson.Object: // the handler has changed the record
		s.of.Hold(&e.check, e.rec, e.was)
	case e.was == nil:
		s.of.Read(&e.check, body, e.rec)
	default:
		s.of.Change(&e.check, body, e.rec)
	}
	for _, f := range c.Operation.Body { // fields that a module has redeclared are never null
		if !f.Nullable && has(body, f.Name) && body.Get(f.Name).Is == strictjson.Null && !field.HasFault(e.errs, f.Name) {
			e.errs.Add(f.Name, fault.Type, "%s must be %s", f.Name, map[bool]string{
				true: "an object", false: "given a value",
			}[f.Shape == operation.Object])
		}
	}
	s.scope(c, e.rec, e.was, &e.errs)
}

func has(object strictjson.Value, name string) bool {
	return slices.ContainsFunc(object.Members, func(m strictjson.Member) bool { return m.Name == name })
}

// complete makes the last checks of a record before it is stored, and seals its secrets.
func (s *handlers) complete(ctx context.Context, c *operation.Call, need *store.Preconditions, e *entry) error {
	if s.Check != nil && e.seal != nil {
		var more fault.List
		if err := s.Check(ctx, c, e.rec, e.was, &more); err != nil {
			return err
		}
		field.Join(&e.errs, more)
	}
	err := e.errs.Err()
	if err == nil {
		err = s.before(ctx, c, need, e.rec, e.was)
	}
	if err == nil {
		err = e.seal()
	}
	if err == nil {
		before := record.Measure{}
		if e.was != nil {
			before = s.of.Measure(e.was)
		}
		s.of.Fits(e.rec, before, 0, &e.errs)
		err = e.errs.Err()
	}
	return err
}

// take reads the body, if it is an object, into a record and checks the record and its references. It requires that
// these are unchanged when the record is stored.
func (s *handlers) take(
	ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was any, body strictjson.Value,
) error {
	c.Forget()
	known := &c.Known
	var failed error
	e := entry{rec: rec, was: was, errs: slices.Clone(c.Unknown)}
	if s.parent == "" {
		e.check.Define = func(rec any) { failed = s.of.Definitions(ctx, c.Workspace, rec, known) }
	} else if _, err := s.withinDefinition(ctx, c, known); err != nil {
		return err
	}
	if s.enter(ctx, c, &e, body, known); failed != nil {
		return failed
	}
	if err := s.require(ctx, c, need, known, []*entry{&e}); err != nil {
		return err
	}
	return s.complete(ctx, c, need, &e)
}

// require notes dangling references, and requires that the records which the entries refer to, and their definitions,
// are unchanged.
func (s *handlers) require(
	ctx context.Context, c *operation.Call, need *store.Preconditions, known *record.Known, entries []*entry,
) error {
	unchanged, err := s.refers(ctx, c, entries)
	names := map[string]bool{}
	for _, e := range entries {
		s.of.AddDefinitions(names, e.rec, slices.Values(e.gives))
		if err == nil {
			var used []store.Precondition
			used, err = s.of.Used(ctx, c.Tenant.Workspace(), e.rec)
			unchanged = append(unchanged, used...)
		}
	}
	need.Require(append(unchanged, known.Unchanged(c.Tenant.Workspace(), s.of, names)...)...)
	return err
}

// sent returns the body as one value, with the definition that the path names.
func (s *handlers) sent(c *operation.Call) strictjson.Value {
	body := strictjson.Value{Is: strictjson.Object}
	for i := range s.fields {
		if v, given := c.Sent(&s.fields[i]); given {
			body.Members = append(body.Members, strictjson.Member{Name: s.fields[i].Name, Value: v})
		}
	}
	return s.addDefinition(c, body)
}

// addDefinition adds to a body the definition that the path names.
func (s *handlers) addDefinition(c *operation.Call, body strictjson.Value) strictjson.Value {
	if s.parent != "" {
		n, _ := s.of.Index(s.of.DefinitionField)
		body.Members = append(body.Members, strictjson.Member{
			Name: s.of.DefinitionField, Value: s.of.Fields[n].Literal(c.Path(s.parent)),
		})
	}
	return body
}

// sealing takes the values of encrypted fields out of a record when it is checked. The function that it returns seals
// them, and removes those that the body sets to null.
func (s *handlers) sealing(
	ctx context.Context, c *operation.Call, rec any, body strictjson.Value, check *record.Checking,
) func() error {
	if !s.of.HasSecrets() {
		return func() error { return nil }
	}
	vault := secrets.Vault{Keys: s.Keys, Tenant: c.Tenant}
	at := secrets.Place{Collection: s.of.Records.Spec().Name, Record: s.of.Meta(rec).ID}
	kept := s.of.Secrets(rec)
	*kept = maps.Clone(*kept) // the former state is still used
	var given map[string]secrets.Value
	check.Take = func(values map[string]any, secret func(string) bool) map[string]bool {
		if has(body, s.of.ValuesName()) && body.Get(s.of.ValuesName()).Is == strictjson.Null {
			clear(*kept)
		}
		for _, m := range body.Get(s.of.ValuesName()).Members {
			if m.Value.Is == strictjson.Null {
				delete(*kept, m.Name) // even if the field no longer exists
			}
		}
		given = vault.Take(ctx, at, s.of.ValuesName(), values, secret, check.Errs)
		there := make(map[string]bool, len(given)+len(*kept))
		for name := range given {
			there[name] = true
		}
		for name := range *kept {
			there[name] = true
		}
		return there
	}
	return func() error {
		_, err := vault.Put(ctx, at, kept, given)
		return err
	}
}

// refers notes dangling references. References that the record already had are not checked: their target may be gone,
// or hidden from the caller. Each resource is queried once for all entries. It returns the preconditions that the
// targets are unchanged.
func (s *handlers) refers(
	ctx context.Context, c *operation.Call, entries []*entry,
) (unchanged []store.Precondition, err error) {
	type reference struct {
		record.Reference
		of *entry
	}
	var all []reference
	asked := map[*record.Resource]map[string]bool{}
	for _, e := range entries {
		if s.Keeper != nil && s.of.Control { // the Keeper checks references itself when it stores the record
			if len(e.errs) > 0 && s.Keeper.refers != nil {
				var more fault.List
				if err := s.Keeper.refers(ctx, c, e.rec, &more); err != nil {
					return nil, err
				}
				field.Join(&e.errs, more)
			}
			continue
		}
		for _, ref := range s.of.References(e.rec) {
			if field.HasFault(e.errs, ref.Field) {
				continue
			}
			if e.was != nil {
				for _, before := range s.of.References(e.was) {
					if before.Field == ref.Field {
						ref.IDs = without(ref.IDs, before.IDs)
					}
				}
			}
			if len(ref.IDs) == 0 || s.parent != "" && ref.Field == s.of.DefinitionField {
				continue
			}
			all = append(all, reference{ref, e})
			if asked[ref.Target] == nil {
				asked[ref.Target] = map[string]bool{}
			}
			for _, id := range ref.IDs {
				asked[ref.Target][id] = false
			}
		}
	}
	for target, ids := range asked {
		for some := range slices.Chunk(slices.Sorted(maps.Keys(ids)), maxBulk) {
			lacking, there, err := target.FindMissing(ctx, c.Workspace, c.Tenant.People(), some)
			if err != nil {
				return nil, err
			}
			if target.Control == s.of.Control { // the others are in another store
				unchanged = append(unchanged, there...)
			}
			for _, id := range lacking {
				ids[id] = true
			}
		}
	}
	for _, ref := range all {
		if slices.ContainsFunc(ref.IDs, func(id string) bool { return asked[ref.Target][id] }) {
			ref.of.check.Missing(ref.Field, ref.Target.Name)
		}
	}
	return unchanged, nil
}

// scope keeps a caller who is limited to teams within these: a record without teams would be visible to all, and the
// caller must not add or remove other teams.
func (s *handlers) scope(c *operation.Call, rec, was any, errs *fault.List) {
	own := c.Principal.Scope(c.Tenant, nil)
	if !s.of.Records.Spec().Teams || own.All {
		return
	}
	teams, before, wasCommon := s.teams(rec), []string(nil), false
	switch {
	case was != nil:
		before = *s.teams(was)
		wasCommon = len(before) == 0
	case len(*teams) == 0:
		*teams = slices.Clone(own.Teams)
	}
	if isCommon := len(*teams) == 0; isCommon != wasCommon || !slices.Equal(sorted(without(*teams, own.Teams)), sorted(without(before, own.Teams))) {
		errs.Add("teams", fault.Forbidden, "teams must be among those of the caller; other teams stay unchanged")
	}
}

func (s *handlers) teams(rec any) *[]string {
	n, _ := s.of.Index("teams")
	return reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).Addr().Interface().(*[]string)
}

func sorted(list []string) []string { slices.Sort(list); return list }

// without returns the elements that are not among the others.
func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return slices.Contains(others, one) })
}
