package crud

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/api"
	"tenantry/backends/resource"
	"tenantry/backends/secrets"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// takes declares the fields of a body.
func (s *serves[T]) takes(row *api.Operation, there bool) {
	for _, f := range s.fields {
		if there && (f.Use.Has(declare.Once) || f.Name == s.of.KeyField().Name) { // others refer to it by that
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
		row.BodyLimit = api.MaxBodyLimit
	}
	row.Failures = append(row.Failures, s.invalid()...)
}

// bodyLimit holds a thousand teams, and texts besides.
const bodyLimit = 64 << 10

// room refuses a record where the organization has as many as it may. Two at once may both pass.
func (s *serves[T]) room(ctx context.Context, c *api.Call) error {
	if s.of.Most == 0 {
		return nil
	}
	n, err := s.in(c).CountIn(ctx, store.Filter{}, store.Either)
	if err == nil && n >= int64(s.of.Most) {
		err = fault.One("id", fault.Length, "there are %d %s already, and there may be no more", n, strings.ToLower(s.Things))
	}
	return err
}

// take reads the body into a record and checks it, with what it refers to.
func (s *serves[T]) take(ctx context.Context, c *api.Call, rec, was *T) error {
	var errs fault.List
	var known resource.Known
	check := resource.Checking{Errs: &errs, Known: &known, Absent: "that is not in this organization", Clear: true}
	var failed error
	if s.parent == "" {
		check.Define = func(rec any) { failed = s.of.Definitions(ctx, c.Workspace, rec, &known) }
	} else {
		if _, err := s.within(ctx, c, &known); err != nil {
			return err
		}
	}
	body := s.sent(c)
	sealed := s.sealing(ctx, c, rec, body, &check)
	if was == nil {
		s.of.Read(&check, body, rec)
	} else {
		s.of.Change(&check, body, rec)
	}
	s.scope(c, rec, was, &errs)
	if failed != nil || len(errs) > 0 {
		return cmp.Or(failed, errs.Err())
	}
	if err := s.refers(ctx, c, rec, was, &check); err != nil {
		return err
	}
	if s.Before != nil {
		if err := s.Before(ctx, c, rec, was); err != nil {
			return err
		}
	}
	return sealed()
}

// sent returns the body as one value, with the definition that the path names.
func (s *serves[T]) sent(c *api.Call) strictjson.Value {
	body := strictjson.Value{Is: strictjson.Object}
	for i := range s.fields {
		if v, given := c.Sent(&s.fields[i]); given {
			body.Members = append(body.Members, strictjson.Member{Name: s.fields[i].Name, Value: v})
		}
	}
	if s.parent != "" {
		n, _ := s.of.Index(s.of.DefinitionField)
		body.Members = append(body.Members, strictjson.Member{Name: s.of.DefinitionField, Value: s.of.Fields[n].Literal(c.Path(s.parent))})
	}
	return body
}

// sealing moves the values of encrypted fields out of a record as it is checked; what it returns seals
// them, and takes away those that the body says are null.
func (s *serves[T]) sealing(ctx context.Context, c *api.Call, rec *T, body strictjson.Value, check *resource.Checking) func() error {
	if !s.of.HasSecrets() {
		return func() error { return nil }
	}
	vault := secrets.Vault{Keys: s.Keys, Tenant: c.Tenant}
	at := secrets.Place{Collection: s.of.Spec().Name, Record: s.of.Meta(rec).ID}
	kept := s.of.Secrets(rec)
	*kept = maps.Clone(*kept) // what it was is still looked at
	var given map[string]secrets.Value
	check.Take = func(values map[string]any, secret func(string) bool) map[string]bool {
		if c.Body.Has(s.of.ValuesName()) && body.Get(s.of.ValuesName()).Is == strictjson.Null {
			clear(*kept)
		}
		for _, m := range body.Get(s.of.ValuesName()).Members {
			if m.Value.Is == strictjson.Null && secret(m.Name) {
				delete(*kept, m.Name)
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

// refers refuses references that lead nowhere. What the record referred to before may be gone, or out
// of the caller's sight.
func (s *serves[T]) refers(ctx context.Context, c *api.Call, rec, was *T, check *resource.Checking) error {
	for _, ref := range s.of.References(rec) {
		if was != nil {
			for _, before := range s.of.References(was) {
				if before.Field == ref.Field {
					ref.IDs = without(ref.IDs, before.IDs)
				}
			}
		}
		if len(ref.IDs) == 0 || s.parent != "" && ref.Field == s.of.DefinitionField || s.Keeper != nil { // who keeps them looks
			continue
		}
		lacking, err := ref.Target.Lacks(ctx, c.Workspace, c.Tenant.People(), ref.IDs)
		if err != nil {
			return err
		}
		if len(lacking) > 0 {
			check.Missing(ref.Field, ref.Target.Name)
		}
	}
	return check.Errs.Err()
}

// scope keeps a caller who is limited to teams within them: what names none would be shown to all, and
// whether other teams see a record is not theirs to say.
func (s *serves[T]) scope(c *api.Call, rec, was *T, errs *fault.List) {
	own := c.Principal.Scope(c.Tenant, nil)
	if !s.of.Spec().Teams || own.All {
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
		errs.Add("teams", fault.Forbidden, "teams must be among those of the caller; others stay as they are")
	}
}

func (s *serves[T]) teams(rec *T) *[]string {
	n, _ := s.of.Index("teams")
	return reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).Addr().Interface().(*[]string)
}

func sorted(list []string) []string { slices.Sort(list); return list }

// without returns the elements that are not among the others.
func without(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(one string) bool { return slices.Contains(others, one) })
}
