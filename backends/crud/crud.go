// Package crud makes the rows of operations that records of most kinds have: list, get, create,
// update, delete, restore and purge. They follow from the description of the resource alone, whose
// fields, rules and uses are read, checked, filtered, answered and documented as they are declared.
package crud

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/api"
	"tenantry/backends/field"
	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// Options say how the records of a resource are served. Path, Things and the rules are required.
type Options[T any] struct {
	Path   string // of the list: "/api/files/folders"; its last part begins the names of the rows
	Things string // in messages: "Folders"
	Thing  string // one of them; empty: Things without its last letter
	Tag    string // empty: Things
	Read   api.Rule
	Write  api.Rule
	// Without names actions that are left out: list, get, create, update, delete, restore.
	Without []string
	// Search names the text fields in which q looks. Without any there is no q.
	Search []string
	// Before, where set, sees a record before it is stored, and the one that it was; it may complete
	// or refuse it. Of a new record was is nil, of one that is purged rec.
	Before func(ctx context.Context, c *api.Call, rec, was *T) error
}

// serves has the handlers of one resource.
type serves[T any] struct {
	Options[T]
	of     *resource.Of[T]
	model  *model
	sorts  []string
	trash  bool
	fields []field.Field // that callers may set
}

// Rows returns the rows of a resource, which a module may change before it serves them. What does not
// fit is a fault of the program, which ends it.
func Rows[T any](of *resource.Of[T], o Options[T]) []api.Operation {
	if o.Thing == "" {
		o.Thing = strings.TrimSuffix(o.Things, "s")
	}
	if o.Tag == "" {
		o.Tag = o.Things
	}
	if of.HasSecrets() {
		panic("crud: records of " + of.Name + " have secrets, which these rows cannot keep")
	}
	if n, ok := of.Index("teams"); of.Spec().Teams && (!ok || of.Fields[n].Use.Has(declare.Once|declare.Computed)) {
		panic("crud: callers cannot set the teams of " + of.Name) // so nobody could keep who is limited to teams within them
	}
	s := &serves[T]{Options: o, of: of, trash: of.Spec().SoftDelete, model: newModel(o.Thing, of.Resource), sorts: sortable(of)}
	for _, f := range of.Fields {
		if !f.Use.Has(declare.Computed) {
			s.fields = append(s.fields, f)
		}
	}
	rows := []api.Operation{s.list(), s.get(), s.create(), s.update(), s.remove()}
	if s.trash {
		rows = append(rows, s.restore())
	}
	return slices.DeleteFunc(rows, func(row api.Operation) bool {
		_, action, _ := strings.Cut(row.Name, ".")
		return slices.Contains(o.Without, action)
	})
}

// row is what the rows have in common.
func (s *serves[T]) row(action, method, path, message string) api.Operation {
	things := strings.ReplaceAll(s.Path[strings.LastIndexByte(s.Path, '/')+1:], "-", "_")
	o := api.Operation{
		Name: things + "." + action, Method: method, Path: path, Tag: s.Tag, Message: message, Teams: s.of.Spec().Teams,
		Credentials: api.Key | api.Session, Kinds: api.ServerKeys, Rule: s.Read, Resource: s.of.Name,
		Data: s.model.zero(), Example: s.model.example(),
	}
	if method != http.MethodGet {
		o.Kinds, o.Rule, o.Audit = api.ServerFull, s.Write, api.AuditAlways
	}
	if strings.Contains(path, "{id}") {
		o.Failures = append(o.Failures, api.Failure{Code: http.StatusNotFound, Message: s.missing(), When: "no such record in this organization, scope and state"})
	}
	return o
}

func (s *serves[T]) missing() string { return s.Thing + " not found" }

// one returns what a thing is called within a sentence.
func (s *serves[T]) one() string { return texts.One(strings.ToLower(s.Thing)) }

// invalid documents the refusal of a body.
func (s *serves[T]) invalid() []api.Failure {
	refusal := func(code int, when, field, wrong, text string) api.Failure {
		return api.Failure{Code: code, Message: "Validation failed: " + text, When: when, Data: map[string]any{"errors": []api.FieldError{{Field: field, Code: wrong, Message: text}}}}
	}
	first := s.fields[0].Name
	failures := []api.Failure{refusal(http.StatusUnprocessableEntity, "a field has an unacceptable value; every problem is named", first, fault.Type, first+" must be of another type")}
	if len(s.of.Uniques) > 0 {
		name := s.of.Uniques[0].Shown
		failures = append(failures, refusal(http.StatusConflict, "another record has a value that must be unique", name, fault.Duplicate, name+" is already in use"))
	}
	return failures
}

// one is the input of what concerns one record.
type one struct {
	ID string `json:"id" doc:"Identifier of the record." example:"665f1c2ab4d3e2f1a0b9c8d7"`
}

type read struct {
	one
	Deleted bool `json:"deleted" default:"false" doc:"Reads a record that was deleted instead of a live one."`
}

type removal struct {
	one
	Purge bool `json:"purge" default:"false" doc:"Ends the record for good, whether it was deleted before or not. Nobody can restore it."`
}

func (s *serves[T]) get() api.Operation {
	row := s.row("get", http.MethodGet, s.Path+"/{id}", s.Thing+" found")
	row.Summary, row.Description = "Get "+s.one(), "Answers one record."
	return as(s, row, func(ctx context.Context, c *api.Call, in read) (*T, error) {
		return s.find(ctx, c, in.ID, stateOf(in.Deleted))
	})
}

func stateOf(deleted bool) store.State {
	if deleted {
		return store.Deleted
	}
	return store.Live
}

// offered leaves out the parameters that make no sense of these records; what is left out holds its default.
func (s *serves[T]) offered(params []api.Param) []api.Param {
	return slices.DeleteFunc(params, func(p api.Param) bool {
		return !s.trash && (p.Name == "deleted" || p.Name == "purge") || len(s.Search) == 0 && p.Name == "q"
	})
}

// as completes a row that answers with a record.
func as[In, T any](s *serves[T], row api.Operation, do func(context.Context, *api.Call, In) (*T, error)) api.Operation {
	data := row.Data
	row = api.Typed(row, func(ctx context.Context, c *api.Call, in In) (any, error) {
		rec, err := do(ctx, c, in)
		if err != nil {
			return nil, err
		}
		if row.Method != http.MethodGet {
			c.Note(s.of.Name, s.of.Meta(rec).ID)
		}
		return s.model.show(rec, c.Tenant), nil
	})
	row.Data, row.Params = data, s.offered(row.Params)
	return row
}

func (s *serves[T]) find(ctx context.Context, c *api.Call, id string, state store.State) (*T, error) {
	if !store.ValidID(id) {
		return nil, api.NotFound(s.missing())
	}
	rec, err := s.of.In(c.Workspace).First(ctx, store.Query{Filter: store.Eq("id", id), State: state})
	return rec, s.told(err)
}

func (s *serves[T]) create() api.Operation {
	row := s.row("create", http.MethodPost, s.Path, s.Thing+" created")
	row.Summary, row.Description = "Create "+s.one(), "Answers the record as it is stored."
	s.takes(&row, false)
	return as(s, row, func(ctx context.Context, c *api.Call, _ struct{}) (*T, error) {
		rec := s.of.New().(*T)
		if err := s.take(ctx, c, rec, nil); err != nil {
			return nil, err
		}
		s.of.Fill(rec)
		if err := s.room(ctx, c); err != nil {
			return nil, err
		}
		if err := s.of.Number(ctx, c.Workspace, []any{rec}); err != nil {
			return nil, err
		}
		return rec, s.told(s.of.In(c.Workspace).Insert(ctx, rec))
	})
}

func (s *serves[T]) update() api.Operation {
	row := s.row("update", http.MethodPut, s.Path+"/{id}", s.Thing+" updated")
	row.Summary, row.Description = "Change "+s.one(), "Fields that are not given stay as they are; null takes away what need not be there. Answers the record as it is stored."
	s.takes(&row, true)
	return as(s, row, func(ctx context.Context, c *api.Call, in one) (*T, error) {
		rec, err := s.of.In(c.Workspace).Update(ctx, in.ID, func(rec *T) error {
			was := *rec
			return s.take(ctx, c, rec, &was)
		})
		return rec, s.told(err)
	})
}

// takes declares the fields of a body.
func (s *serves[T]) takes(row *api.Operation, there bool) {
	for _, f := range s.fields {
		if there && f.Use.Has(declare.Once) {
			continue
		}
		required := f.Rule.Required
		f.Rule.Required = required && !there
		row.Declare(&f)
		row.Body[len(row.Body)-1].Nullable = !required
	}
	row.BodyLimit = bodyLimit
	row.Failures = append(row.Failures, s.invalid()...)
}

// bodyLimit holds a thousand teams, and texts besides.
const bodyLimit = 64 << 10

// room refuses a record where the organization has as many as it may. Two at once may both pass.
func (s *serves[T]) room(ctx context.Context, c *api.Call) error {
	if s.of.Most == 0 {
		return nil
	}
	n, err := s.of.Resource.Records.Count(ctx, c.Workspace)
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
	body := strictjson.Value{Is: strictjson.Object}
	for _, f := range c.Operation.Body {
		name := f.Name
		if !c.Body.Has(name) {
			continue
		}
		body.Members = append(body.Members, strictjson.Member{Name: name, Value: c.Body.Value(name)})
	}
	var failed error
	check.Define = func(rec any) { failed = s.of.Definitions(ctx, c.Workspace, rec, &known) }
	if was == nil {
		s.of.Read(&check, body, rec)
	} else {
		s.of.Change(&check, body, rec)
	}
	s.scope(c, rec, was, &errs)
	if failed != nil || len(errs) > 0 {
		return cmp.Or(failed, errs.Err())
	}
	for _, ref := range s.of.References(rec) {
		if was != nil { // what it referred to before may be gone, or out of the caller's sight
			for _, before := range s.of.References(was) {
				if before.Field == ref.Field {
					ref.IDs = without(ref.IDs, before.IDs)
				}
			}
		}
		if len(ref.IDs) == 0 {
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
	if len(errs) > 0 || s.Before == nil {
		return errs.Err()
	}
	return s.Before(ctx, c, rec, was)
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

func (s *serves[T]) remove() api.Operation {
	row := s.row("delete", http.MethodDelete, s.Path+"/{id}", s.Thing+" deleted")
	row.Summary, row.Description = "Delete "+s.one(), "The record is gone for good. Answers it as it was."
	if s.trash {
		row.Description = "The record leaves every list and count, and can be restored; with purge it is gone for good. Answers it."
	}
	return as(s, row, func(ctx context.Context, c *api.Call, in removal) (*T, error) {
		if in.Purge || !s.trash {
			return s.purge(ctx, c, in.ID)
		}
		rec, err := s.of.In(c.Workspace).Update(ctx, in.ID, func(rec *T) error { return s.mark(ctx, c, rec, true) })
		return rec, s.told(err)
	})
}

// purge ends a record for good.
func (s *serves[T]) purge(ctx context.Context, c *api.Call, id string) (*T, error) {
	return s.again(ctx, c, id, store.Either, func(rec *T) error {
		if s.Before != nil {
			if err := s.Before(ctx, c, nil, rec); err != nil {
				return err
			}
		}
		return s.of.In(c.Workspace).Delete(ctx, rec)
	})
}

func (s *serves[T]) restore() api.Operation {
	row := s.row("restore", http.MethodPost, s.Path+"/{id}/restore", s.Thing+" restored")
	row.Summary, row.Description = "Restore "+s.one(), "Brings back a record that was deleted. Answers it."
	return as(s, row, func(ctx context.Context, c *api.Call, in one) (*T, error) {
		return s.again(ctx, c, in.ID, store.Deleted, func(rec *T) error {
			if err := s.mark(ctx, c, rec, false); err != nil {
				return err
			}
			return s.of.In(c.Workspace).Replace(ctx, rec)
		})
	})
}

const tries = 10

// again finds a record in that state and changes it, anew where somebody else came between.
func (s *serves[T]) again(ctx context.Context, c *api.Call, id string, state store.State, change func(rec *T) error) (rec *T, err error) {
	for range tries {
		if rec, err = s.find(ctx, c, id, state); err != nil {
			return nil, err
		}
		if err = change(rec); !errors.Is(err, store.ErrConflict) {
			break
		}
	}
	return rec, s.told(err)
}

// mark says of a record whether it is deleted.
func (s *serves[T]) mark(ctx context.Context, c *api.Call, rec *T, deleted bool) error {
	was := *rec
	n, _ := s.of.Index("deleted")
	reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).SetBool(deleted)
	if s.Before == nil {
		return nil
	}
	return s.Before(ctx, c, rec, &was)
}

// told returns an error as callers hear of it.
func (s *serves[T]) told(err error) error {
	var dup *store.DuplicateError
	switch {
	case errors.Is(err, store.ErrNotFound):
		return api.NotFound(s.missing())
	case errors.As(err, &dup):
		var fields []string
		for _, u := range s.of.Uniques {
			if slices.Contains(dup.Fields, u.Field) {
				fields = append(fields, u.Shown)
			}
		}
		if len(fields) > 0 {
			return api.Duplicate(fields...)
		}
	}
	return err
}
