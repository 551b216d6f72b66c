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
	s := &serves[T]{Options: o, of: of, trash: of.Spec().SoftDelete, model: newModel(o.Thing, of.Resource), sorts: sortable(of)}
	for i := range of.Fields {
		if f := of.Fields[i]; settable(&f) {
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

// settable reports whether callers set the field. What every record has, and what says that it is
// deleted, they do not.
func settable(f *field.Field) bool {
	return !f.Use.Has(declare.Computed) && !slices.Contains([]string{"id", "created_at", "updated_at", "deleted"}, f.Name)
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

// lower returns what a thing is called within a sentence.
func (s *serves[T]) lower() string { return strings.ToLower(s.Thing) }

// invalid documents the refusal of a body.
func (s *serves[T]) invalid() []api.Failure {
	failures := []api.Failure{{Code: http.StatusUnprocessableEntity, Message: "Validation failed: name must be a string", When: "a field has an unacceptable value; every problem is named"}}
	if len(s.of.Uniques) > 0 {
		failures = append(failures, api.Failure{
			Code: http.StatusConflict, Message: "Validation failed: " + s.of.Uniques[0].Shown + " is already in use", When: "another record has a value that must be unique",
		})
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
	row.Summary, row.Description = "Get a "+s.lower(), "Answers one record."
	if !s.trash {
		return as(s, row, func(ctx context.Context, c *api.Call, in one) (*T, error) { return s.find(ctx, c, in.ID, store.Live) })
	}
	return as(s, row, func(ctx context.Context, c *api.Call, in read) (*T, error) {
		return s.find(ctx, c, in.ID, map[bool]store.State{true: store.Deleted}[in.Deleted])
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
	row.Data = data
	return row
}

func (s *serves[T]) find(ctx context.Context, c *api.Call, id string, state store.State) (*T, error) {
	if !store.ValidID(id) {
		return nil, api.NotFound(s.missing())
	}
	rec, err := s.of.In(c.Workspace).First(ctx, store.Query{Filter: store.Eq("id", id), State: state})
	return rec, s.orMissing(err)
}

func (s *serves[T]) create() api.Operation {
	row := s.row("create", http.MethodPost, s.Path, s.Thing+" created")
	row.Summary, row.Description = "Create a "+s.lower(), "Answers the record as it is stored."
	for i := range s.fields {
		row.Declare(&s.fields[i])
	}
	row.Failures = append(row.Failures, s.invalid()...)
	return as(s, row, func(ctx context.Context, c *api.Call, _ struct{}) (*T, error) {
		rec := s.of.New().(*T)
		if err := s.take(ctx, c, rec, nil); err != nil {
			return nil, err
		}
		s.of.Fill(rec)
		if err := s.of.Number(ctx, c.Workspace, []any{rec}); err != nil {
			return nil, err
		}
		return rec, s.of.In(c.Workspace).Insert(ctx, rec)
	})
}

func (s *serves[T]) update() api.Operation {
	row := s.row("update", http.MethodPut, s.Path+"/{id}", s.Thing+" updated")
	row.Summary, row.Description = "Change a "+s.lower(), "Fields that are not given stay as they are. Answers the record as it is stored."
	for i := range s.fields {
		if f := s.fields[i]; !f.Use.Has(declare.Once) {
			f.Rule.Required = false // it is there already
			row.Declare(&f)
		}
	}
	row.Failures = append(row.Failures, s.invalid()...)
	return as(s, row, func(ctx context.Context, c *api.Call, in one) (*T, error) {
		rec, err := s.of.In(c.Workspace).Update(ctx, in.ID, func(rec *T) error {
			was := *rec
			return s.take(ctx, c, rec, &was)
		})
		return rec, s.orMissing(err)
	})
}

// take reads the body into a record and checks it, with what it refers to.
func (s *serves[T]) take(ctx context.Context, c *api.Call, rec, was *T) error {
	var errs fault.List
	var known resource.Known
	check := resource.Checking{Errs: &errs, Known: &known, Absent: "that is not in this organization"}
	body := strictjson.Value{Is: strictjson.Object}
	for _, name := range c.Body.Names() {
		body.Members = append(body.Members, strictjson.Member{Name: name, Value: c.Body.Value(name)})
	}
	var failed error
	check.Define = func(rec any) { failed = s.of.Definitions(ctx, c.Workspace, rec, &known) }
	if was == nil {
		s.of.Read(&check, body, rec)
	} else {
		s.of.Change(&check, body, rec)
	}
	s.scope(c, rec, &errs)
	if failed != nil || len(errs) > 0 {
		return cmp.Or(failed, errs.Err())
	}
	for _, ref := range s.of.References(rec) {
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

// scope keeps a caller who is limited to teams within them: what names none would be shown to all.
func (s *serves[T]) scope(c *api.Call, rec *T, errs *fault.List) {
	n, ok := s.of.Index("teams")
	if !ok || !s.of.Spec().Teams || c.Scope.All {
		return
	}
	teams := reflect.ValueOf(rec).Elem().FieldByIndex(s.of.Fields[n].Index).Addr().Interface().(*[]string)
	if len(*teams) == 0 {
		*teams = slices.Clone(c.Scope.Teams)
	}
	if len(*teams) == 0 || slices.ContainsFunc(*teams, func(team string) bool { return !slices.Contains(c.Scope.Teams, team) }) {
		errs.Add("teams", fault.Forbidden, "teams must be among those of the caller")
	}
}

func (s *serves[T]) remove() api.Operation {
	row := s.row("delete", http.MethodDelete, s.Path+"/{id}", s.Thing+" deleted")
	row.Summary = "Delete a " + s.lower()
	if !s.trash {
		row.Description = "The record is gone for good. Answers it as it was."
		return as(s, row, func(ctx context.Context, c *api.Call, in one) (*T, error) { return s.purge(ctx, c, in.ID) })
	}
	row.Description = "The record leaves every list and count, and can be restored; with purge it is gone for good. Answers it."
	return as(s, row, func(ctx context.Context, c *api.Call, in removal) (*T, error) {
		if in.Purge {
			return s.purge(ctx, c, in.ID)
		}
		rec, err := s.of.In(c.Workspace).Update(ctx, in.ID, func(rec *T) error { return s.mark(ctx, c, rec, true) })
		return rec, s.orMissing(err)
	})
}

func (s *serves[T]) purge(ctx context.Context, c *api.Call, id string) (*T, error) {
	rec, err := s.find(ctx, c, id, store.Either)
	if err == nil && s.Before != nil {
		err = s.Before(ctx, c, nil, rec)
	}
	if err != nil {
		return nil, err
	}
	return rec, s.of.In(c.Workspace).Delete(ctx, rec)
}

func (s *serves[T]) restore() api.Operation {
	row := s.row("restore", http.MethodPost, s.Path+"/{id}/restore", s.Thing+" restored")
	row.Summary, row.Description = "Restore a "+s.lower(), "Brings back a record that was deleted. Answers it."
	row.Failures = append(row.Failures, s.invalid()...)
	return as(s, row, func(ctx context.Context, c *api.Call, in one) (*T, error) {
		rec, err := s.find(ctx, c, in.ID, store.Deleted)
		if err == nil {
			err = s.mark(ctx, c, rec, false)
		}
		if err != nil {
			return nil, err
		}
		return rec, s.of.In(c.Workspace).Replace(ctx, rec)
	})
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

func (s *serves[T]) orMissing(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return api.NotFound(s.missing())
	}
	return err
}
