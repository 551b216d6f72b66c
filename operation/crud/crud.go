// Package crud makes the rows of operations that records of most kinds have: list, get, create,
// update, delete, restore and purge. They follow from the description of the resource alone, whose
// fields, rules and uses are read, checked, filtered, answered and documented as they are declared.
package crud

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants/secrets"
)

// Options say how the records of a resource are served. Path, Things and the rules are required.
type Options struct {
	// Path is that of the list: "/api/files/folders". Where it has a parameter, that names the definition
	// of the records: "/api/custom/objects/{name}/records".
	Path   string
	Name   string // with which the names of the rows begin; empty: the last part of Path
	Things string // in messages: "Folders"
	Thing  string // one of them; empty: Things without its last letter
	Within string // what the path's parameter names, in messages: "Custom Object"
	Tag    string // empty: Things
	Read   operation.Rule
	Write  operation.Rule
	// Each says how all rows differ from what follows from the resource; the others, how the row of that action does
	// besides.
	Each                                       Action
	List, Get, Create, Update, Delete, Restore Action
	// Bulk adds a row that takes many records at once. Their number must not be limited, and no service keep them.
	Bulk bool
	// Export adds a row that writes all records of a list as CSV or NDJSON. No Show may make their answers.
	Export bool
	// Purge, if set, adds a row that ends a record for good, for resources whose row that deletes is not of this package.
	Purge *Action
	// Where, where set, says which records are listed.
	Where func(ctx context.Context, c *operation.Call) (store.Filter, error)
	// Sort is the order where the caller says none; empty: that of identifiers.
	Sort string
	// Few are fields that a list can be sorted by without an index: there are so few of the records.
	Few []string
	// BuiltIn, where set, returns records that are stored nowhere, and told by the field that the path names. They come
	// first, whatever the order, in a list that nothing narrows. Before refuses their change.
	BuiltIn func(c *operation.Call) []any
	// Search names the text fields in which q looks; that of the values of a definition, which the path then names,
	// stands for its text fields. Without any there is no q.
	Search []string
	// Also, where set, notes what else is wrong with a record that was sent, of which fields may be wrong already:
	// what it notes of those is not told.
	Also func(ctx context.Context, c *operation.Call, rec, was any, errs *fault.List) error
	// Before, where set, sees a record before it is stored, and the one that it was; it may complete
	// or refuse it, and require what it judges by to be unchanged when it is stored. Of a new record was is nil, of one
	// that is purged rec.
	Before func(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was any) error
	// Drop, where set, reports of a new record, as it is about to be stored, that it is answered as if it were, or
	// refused where there is no room for it, and is not.
	Drop func(ctx context.Context, c *operation.Call, rec any) bool
	// After, where set, sees a changed record once it is stored, when no commit requires any more what it was.
	// What it refuses is put back.
	After func(ctx context.Context, c *operation.Call, rec, was any) error
	// Keys seal the values of encrypted fields, which no answer shows. They are required where there can be some.
	Keys secrets.Keys
	// Refresh, where set, brings up to date what time alone changes of a record that is shown.
	Refresh func(rec any)
	// Keeper, where set, stores what was read and checked.
	Keeper *keeper
	// Show, where set, makes the answers of records, all in one go.
	Show func(ctx context.Context, c *operation.Call, recs []any) ([]any, error)
	// Example, where set, is an answer of a type that the module declares. Without Show its fields are those of the
	// record that are called alike, org_id the number of the organization, and its method Complete adds what else it
	// shows.
	Example any
}

// handlers are those of one resource.
type handlers struct {
	Options
	of     *record.Resource
	model  *model
	sorts  []string
	trash  bool
	fields []field.Field // that callers may set
	parent string        // the parameter of the path that names a definition; empty: there is none
	param  string        // that names the record
}

// Rows returns the rows of a resource; of a resource that is Single, those of its one record. It panics if the options
// do not fit the resource.
func Rows(of *record.Resource, o Options) []operation.Row {
	s := handle(of, o)
	var rows []operation.Row
	add := func(row operation.Row, by *Action) {
		if by == nil || !by.absent {
			rows = append(rows, s.finish(row, by))
		}
	}
	if !s.of.Single {
		add(s.list(), &o.List)
	}
	add(s.get(), &o.Get)
	if !s.of.Single {
		add(s.create(), &o.Create)
	}
	add(s.update(), &o.Update)
	if !s.of.Single {
		add(s.remove(), &o.Delete)
	}
	if s.trash {
		add(s.restore(), &o.Restore)
	}
	if o.Bulk {
		add(s.bulk(), nil)
		if s.trash {
			add(s.bulkMark(true), nil)
			add(s.bulkMark(false), nil)
		}
	}
	if o.Export {
		add(s.export(), nil)
	}
	if o.Purge != nil {
		add(s.purging(), o.Purge)
	}
	return rows
}

// List returns the row that lists the records of a resource alone.
func List(of *record.Resource, o Options) operation.Row {
	s := handle(of, o)
	return s.finish(s.list(), &o.List)
}

// Create returns the row that makes a record of a resource alone.
func Create(of *record.Resource, o Options) operation.Row {
	s := handle(of, o)
	return s.finish(s.create(), &o.Create)
}

// finish makes a row differ as its action says, if it has one, and resolves the names in its path.
func (s *handlers) finish(row operation.Row, by *Action) operation.Row {
	if s.Each.shape(&row); by != nil {
		by.shape(&row)
	}
	s.resolve(&row)
	return row
}

func handle(of *record.Resource, o Options) *handlers {
	if o.Thing == "" {
		o.Thing = strings.TrimSuffix(o.Things, "s")
	}
	if o.Tag == "" {
		o.Tag = o.Things
	}
	if o.Name == "" {
		o.Name = strings.ReplaceAll(o.Path[strings.LastIndexByte(o.Path, '/')+1:], "-", "_")
	}
	if of.HasSecrets() && o.Keys == nil {
		panic("crud: records of " + of.Name + " have secrets, and there are no keys for them")
	}
	if n, ok := of.Index("teams"); of.Records.Spec().Teams && (!ok || of.Fields[n].Use.Has(declare.Once|declare.Computed)) {
		panic("crud: callers cannot set the teams of " + of.Name) // so nobody could keep who is limited to teams within them
	}
	if _, ok := of.Index("id"); o.Bulk && !ok {
		panic("crud: records of " + of.Name + " have no identifier that a bulk could give")
	}
	if o.Export && o.Example != nil {
		panic("crud: the columns of an export of " + of.Name + " are those of its records")
	}
	s := &handlers{Options: o, of: of, trash: of.Records.Spec().SoftDelete}
	s.model = newModel(o.Thing, of, o.Example)
	if found := regexp.MustCompile(`\{([a-z_]+)\}`).FindStringSubmatch(o.Path); found != nil {
		s.parent = found[1]
	}
	s.sorts = sortable(of, map[bool]string{true: of.Stored(of.DefinitionField)}[s.parent != ""], o.Few)
	if s.param = of.KeyField().Name; s.param == s.parent {
		s.param = strings.ReplaceAll(strings.ToLower(o.Thing), " ", "_") + "_" + s.param
	}
	for _, f := range of.Fields {
		if !f.Use.Has(declare.Computed) && f.Name != "id" && (s.parent == "" || f.Name != of.DefinitionField) {
			s.fields = append(s.fields, f)
		}
	}
	return s
}

// row is what the rows have in common.
func (s *handlers) row(action, method, path, message string) operation.Row {
	o := operation.Row{
		Name: s.Name + "." + action, Method: method, Path: path,
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys, Rule: s.Read,
		},
		Request: operation.Request{Teams: s.of.Records.Spec().Teams},
		Response: operation.Response{
			Message: message,
			Data:    s.model.zero(), Example: s.model.example(),
		},
		Target: operation.Target{
			Resource: s.of.Name, Action: actions()[action],
			Defined: operation.Defined{By: s.of.DefinedBy, Values: s.of.ValuesName()},
		},
		Docs: operation.Docs{Tag: s.Tag},
	}
	if method != http.MethodGet {
		o.Kinds, o.Rule, o.Audit = operation.ServerFull, s.Write, operation.AuditAlways
	}
	if s.parent != "" {
		o.Params = append(o.Params, operation.Param{Name: s.parent, In: operation.InPath, Shape: operation.Text, Required: true, Ref: s.of.DefinedBy, Description: s.Within + " of the records.", Example: s.model.parent(s.of.DefinitionField)})
		o.Failures = append(o.Failures, operation.Failure{Code: http.StatusNotFound, Message: s.Within + " not found", When: "there is none of that name or identifier in this organization"})
	}
	if strings.HasPrefix(path, s.each()) && !s.of.Single {
		key := s.of.KeyField()
		o.Params = append(o.Params, operation.Param{Name: s.param, In: operation.InPath, Shape: operation.Text, Required: true, Description: cmp.Or(key.Doc, "Identifier of the record."), Example: s.model.named(key)})
		o.Failures = append(o.Failures, operation.Failure{Code: http.StatusNotFound, Message: s.missing(), When: "no such record in this organization, scope and state"})
		if method != http.MethodGet && s.of.Carrying() {
			o.Failures = append(o.Failures, Limits())
		}
	}
	return o
}

// each is the path of one record.
func (s *handlers) each() string {
	if s.of.Single {
		return s.Path
	}
	return s.Path + "/{" + s.param + "}"
}

func (s *handlers) missing() string { return s.Thing + " not found" }

// one returns what a thing is called within a sentence.
func (s *handlers) one() string { return texts.WithArticle(strings.ToLower(s.Thing)) }

// in returns where the records are.
func (s *handlers) in(c *operation.Call) *store.Workspace {
	if s.of.Control {
		return c.Tenant.People()
	}
	return c.Workspace
}

// invalid documents the refusal of a body.
func (s *handlers) invalid() []operation.Failure {
	first := s.fields[0].Name
	failures := []operation.Failure{operation.Refuses(http.StatusUnprocessableEntity, "a field has an unacceptable value; every problem is named", first, fault.Type, first+" must be of another type")}
	if len(s.of.Uniques) > 0 && !s.of.Single {
		name := s.of.Uniques[0].Shown
		failures = append(failures, operation.Refuses(http.StatusConflict, "another record has a value that must be unique", name, fault.Duplicate, name+" is already in use"))
	}
	return failures
}

type read struct {
	Deleted bool `json:"deleted" default:"false" doc:"Reads a record that was deleted instead of a live one."`
}

func (s *handlers) get() operation.Row {
	row := s.row("get", http.MethodGet, s.each(), s.Thing+" found")
	row.Summary, row.Description = "Get "+s.one(), "Answers one record."
	return as(s, row, func(ctx context.Context, c *operation.Call, in read) (operation.Result, error) {
		rec, err := s.find(ctx, c, stateOf(in.Deleted))
		if err != nil {
			return operation.Result{}, err
		}
		return s.answer(c, rec)(ctx)
	})
}

func stateOf(deleted bool) store.State {
	if deleted {
		return store.Deleted
	}
	return store.Live
}

// offered leaves out the parameters that make no sense of these records; what is left out holds its default.
func (s *handlers) offered(params []operation.Param) []operation.Param {
	return slices.DeleteFunc(params, func(p operation.Param) bool {
		return !s.trash && (p.Name == "deleted" || p.Name == "purge") || len(s.Search) == 0 && p.Name == "q"
	})
}

// as completes a row that answers with a record.
func as[In any](s *handlers, row operation.Row, do func(context.Context, *operation.Call, In) (operation.Result, error)) operation.Row {
	data := row.Data
	row.Revised = true
	row = operation.Typed(row, do)
	row.Data, row.Params = data, s.offered(row.Params)
	return row
}

// answer returns how a call answers with a record that is there, as it is or is about to be stored.
func (s *handlers) answer(c *operation.Call, rec any) func(context.Context) (operation.Result, error) {
	return s.answers(c, rec, c.Operation.Method != http.MethodDelete || s.Keeper == nil)
}

// lastAnswer returns how a call answers with a record that is gone, or about to end, for good.
func (s *handlers) lastAnswer(c *operation.Call, rec any) func(context.Context) (operation.Result, error) {
	return s.answers(c, rec, false)
}

// answers returns how a call answers with a record, which has a revision to tell where it is there.
func (s *handlers) answers(c *operation.Call, rec any, there bool) func(context.Context) (operation.Result, error) {
	return func(ctx context.Context) (operation.Result, error) {
		if noted := s.noted(rec); c.Operation.Method != http.MethodGet && noted != "" {
			c.Note(s.of.Name, noted)
		}
		if there {
			c.Revision = s.of.Revision(rec)
		}
		shown, err := s.show(ctx, c, []any{rec})
		if err != nil {
			return operation.Result{}, err
		}
		return operation.Result{Data: shown[0]}, nil
	}
}

// noted returns what audit logs call a record: people, roles and accounts as commands call them.
func (s *handlers) noted(rec any) string {
	if s.of.Control {
		return s.of.Identity(rec)
	}
	return s.of.Meta(rec).ID
}

// show makes the answers of records.
func (s *handlers) show(ctx context.Context, c *operation.Call, recs []any) ([]any, error) {
	for _, rec := range recs {
		if s.Refresh != nil {
			s.Refresh(rec)
		}
	}
	if s.Show != nil {
		return s.Show(ctx, c, recs)
	}
	shown, known := make([]any, len(recs)), &c.Known
	for i, rec := range recs {
		var unfit map[string]string
		if s.of.DefinedBy != "" && len(*s.of.Values(rec)) > 0 {
			var err error
			if rec, unfit, err = s.hide(ctx, c, rec, known); err != nil {
				return nil, err
			}
		}
		shown[i] = s.model.shown(rec, c.Tenant, unfit)
	}
	return shown, nil
}

// hide returns a record as it may be shown: without what was stored before its field became Encrypted, or was dropped
// or deleted. Unfit are the values that do not fit; exports, which are read in again, do not tell them.
func (s *handlers) hide(ctx context.Context, c *operation.Call, rec any, known *record.Known) (_ any, unfit map[string]string, _ error) {
	if !known.Covers(s.of.DefinedBy) { // those of a list have one definition
		if err := s.of.Definitions(ctx, c.Workspace, rec, known); err != nil {
			return nil, nil, err
		}
	}
	shown := s.of.Clone(rec) // which may be about to be stored
	values := s.of.Values(shown)
	*values = maps.Clone(*values)
	fields, defined := s.of.Defined(known, rec)
	maps.DeleteFunc(*values, func(name string, _ any) bool {
		field, there := fields[name]
		return field.Type == schema.Encrypted || defined && !there
	})
	if c.Operation.Streams == nil {
		unfit = fields.Invalid(*values)
	}
	return shown, unfit, nil
}

// find returns the record that the path names.
func (s *handlers) find(ctx context.Context, c *operation.Call, state store.State) (any, error) {
	within, err := s.within(ctx, c, &c.Known)
	if err != nil {
		return nil, err
	}
	if s.of.Single {
		rec, err := s.of.Collection.First(ctx, s.in(c), store.Query{})
		if errors.Is(err, store.ErrNotFound) {
			return s.of.New(), nil
		}
		return rec, err
	}
	for _, rec := range s.builtIn(c) {
		if s.of.Identity(rec) == c.Path(s.param) && state != store.Deleted {
			return rec, nil
		}
	}
	which, ok := s.named(c.Path(s.param))
	if !ok {
		return nil, operation.NotFound(s.missing())
	}
	rec, err := s.of.Collection.First(ctx, s.in(c), store.Query{Filter: store.All(which, within), State: state})
	return rec, s.told(err)
}

func (s *handlers) builtIn(c *operation.Call) []any {
	if s.BuiltIn == nil {
		return nil
	}
	return s.BuiltIn(c)
}

// named matches the record that a text names. There is one way to write a number.
func (s *handlers) named(text string) (store.Filter, bool) {
	key := s.of.KeyField()
	stored := s.of.Stored(key.Name)
	if key.Type.Kind() != reflect.String {
		n, err := strconv.ParseInt(text, 10, 64)
		return store.Eq(stored, n), err == nil && strconv.FormatInt(n, 10) == text
	}
	return store.Eq(stored, text), text != "" && (key.Rule.Format != "id" || store.ValidID(text))
}

// within matches the records of the definition that the path names, which it makes known.
func (s *handlers) within(ctx context.Context, c *operation.Call, known *record.Known) (store.Filter, error) {
	if s.parent == "" {
		return store.Filter{}, nil
	}
	by, name := s.of.Definer(), c.Path(s.parent)
	key := by.KeyField()
	var found []any
	var err error
	if key.Rule.Format != "id" || store.ValidID(name) {
		found, err = by.Records.Find(ctx, c.Workspace, store.Query{Filter: store.Eq(by.Stored(key.Name), name), Limit: 1, Shared: true})
	}
	if err == nil && len(found) == 0 {
		err = operation.NotFound(s.Within + " not found")
	}
	if err != nil {
		return store.Filter{}, err
	}
	known.Cover(by.Name)
	known.Learn(by, found[0], "")
	return store.Eq(s.of.Stored(s.of.DefinitionField), name), nil
}

// define makes all definitions known by which the records of the path can be read and checked.
// It returns what matches them.
func (s *handlers) define(ctx context.Context, c *operation.Call, known *record.Known) (store.Filter, error) {
	within, err := s.within(ctx, c, known)
	if err == nil && s.parent == "" {
		err = s.of.Definitions(ctx, c.Workspace, s.of.Bare(), known)
	}
	return within, err
}

func (s *handlers) create() operation.Row {
	row := s.row("create", http.MethodPost, s.Path, s.Thing+" created")
	row.Summary = "Create " + s.one()
	row.Upload = s.Create.Upload // before the fields are declared: those of a record made of a file are in the query
	s.takes(&row, false)
	return as(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (result operation.Result, err error) {
		for range tries {
			if result, err = s.add(ctx, c); s.Keeper != nil || !errors.Is(err, store.ErrConflict) {
				break
			}
		}
		return result, s.told(err)
	})
}

func (s *handlers) update() operation.Row {
	row := s.row("update", http.MethodPut, s.each(), s.Thing+" updated")
	row.Summary, row.Description = "Change "+s.one(), "Fields that are not given stay as they are; null takes away what need not be there."
	s.takes(&row, true)
	return as(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (operation.Result, error) {
		return s.change(ctx, c, func(need *store.Preconditions, rec, was any) error {
			return s.take(ctx, c, need, rec, was, s.sent(c))
		})
	})
}

// change stores what edit makes of the live record that the path names, if it is the one that the
// caller means.
func (s *handlers) change(ctx context.Context, c *operation.Call, change func(need *store.Preconditions, rec, was any) error) (operation.Result, error) {
	id := c.Path(s.param)
	if s.of.KeyField().Rule.Format != "id" || s.parent != "" || s.Keeper != nil || s.of.Single {
		rec, err := s.find(ctx, c, store.Live)
		if err != nil {
			return operation.Result{}, err
		}
		if id = s.of.Meta(rec).ID; s.Keeper != nil {
			return s.keep(ctx, c, rec, change)
		}
		if s.of.Meta(rec).Rev == 0 { // the only record of the resource, before it is stored
			result, err := s.first(ctx, c, rec, change)
			taken := new(store.DuplicateError)
			if !errors.As(err, &taken) {
				return result, s.told(err)
			}
			if rec, err = s.find(ctx, c, store.Live); err != nil { // somebody else stored it meanwhile
				return operation.Result{}, s.told(err)
			}
			id = s.of.Meta(rec).ID
		}
	}
	var wanted, was any
	var result operation.Result
	rec, err := s.of.Collection.Revise(ctx, s.in(c), id, func(need *store.Preconditions, rec any) error {
		wanted, was = rec, s.of.Clone(rec)
		return s.edit(c, need, rec, was, change)
	}, func(ctx context.Context, b *store.Batch, rec any) (err error) {
		result, err = c.Commit(ctx, b, s.answer(c, rec))
		return err
	})
	return result, s.told(s.stored(ctx, c, rec, wanted, was, err))
}

// edit makes one attempt at a change of the record that the caller means.
func (s *handlers) edit(c *operation.Call, need *store.Preconditions, rec, was any, change func(need *store.Preconditions, rec, was any) error) error {
	c.Forget()
	if err := c.Current(s.of.Revision(rec)); err != nil {
		return err
	}
	return change(need, rec, was)
}

// first stores the only record of a resource for the first time, as a change of the one that holds until then.
func (s *handlers) first(ctx context.Context, c *operation.Call, rec any, change func(need *store.Preconditions, rec, was any) error) (operation.Result, error) {
	b, was := s.in(c).Batch(), s.of.Clone(rec)
	err := s.edit(c, &b.Preconditions, rec, was, change)
	if err == nil {
		err = s.of.Collection.StageInsert(s.in(c), b, rec)
	}
	if err != nil {
		return operation.Result{}, err
	}
	return c.Commit(ctx, b, s.answer(c, rec))
}

// keep has the service that keeps the records change one, which may store more.
func (s *handlers) keep(ctx context.Context, c *operation.Call, rec any, change func(need *store.Preconditions, rec, was any) error) (operation.Result, error) {
	rec, err := s.Keeper.update(ctx, c, rec, func(rec any) error {
		return s.edit(c, &store.Preconditions{}, rec, s.of.Clone(rec), change)
	})
	if err != nil {
		return operation.Result{}, s.told(err)
	}
	return s.answer(c, rec)(ctx)
}

// stored returns what became of a write: rec was stored, or wanted was refused.
func (s *handlers) stored(ctx context.Context, c *operation.Call, rec, wanted, was any, err error) error {
	if err != nil {
		return s.of.Taken(ctx, s.in(c), wanted, err)
	}
	return Settle(ctx, c, s.of, rec, was, func(ctx context.Context) error {
		err := RefuseLimited(ctx, c, s.of, rec, was) // for what others stored before they could know of the change
		if err == nil && s.After != nil {
			err = s.After(ctx, c, rec, was)
		}
		return err
	})
}

// Settle checks a change of a record of the organization after it was stored. If the check fails, Settle restores the
// record as it was, unless it has been changed since, and returns the error of the check. A caller who hangs up ends
// neither the check nor the restoration, because the change is already stored; they have the time of the operation
// anew. Errors, besides those of the check: store.ErrConflict, store.ErrUnavailable.
func Settle(ctx context.Context, c *operation.Call, of *record.Resource, rec, was any, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Operation.Deadline())
	defer cancel()
	err := check(ctx)
	if err == nil {
		return nil
	}

	back := of.Clone(was)
	*of.Meta(back) = *of.Meta(rec)
	return cmp.Or(of.Records.Replace(ctx, c.Workspace, store.Preconditions{}, back, nil), err)
}

// Act returns a row that does something of its own to a live record, which is held to its description
// before it is stored. The row's Path is what follows that of the record.
func Act[In, T any](resource *record.Of[T], o Options, row operation.Row, action string, do func(rec *T, in In)) operation.Row {
	s := handle(resource.Resource, o)
	made := s.row(action, row.Method, s.each()+"/"+row.Path, s.Thing+" updated")
	made.Summary, made.Description, made.OnRecord = row.Summary, row.Description, true
	made.Failures = append(made.Failures, s.invalid()[0])
	return s.finish(as(s, made, func(ctx context.Context, c *operation.Call, in In) (operation.Result, error) {
		return s.change(ctx, c, func(need *store.Preconditions, rec, was any) error {
			do(of[T](rec), in)
			return s.take(ctx, c, need, rec, was, strictjson.Value{})
		})
	}), nil)
}

// told returns an error as callers hear of it.
func (s *handlers) told(err error) error {
	var dup *store.DuplicateError
	switch {
	case errors.Is(err, store.ErrNotFound):
		return operation.NotFound(s.missing())
	case errors.As(err, &dup):
		shown := &store.DuplicateError{Trashed: map[string]string{}}
		for _, u := range s.of.Uniques {
			if slices.Contains(dup.Fields, u.Field) || slices.Contains(dup.Fields, u.Shown) {
				shown.Fields = append(shown.Fields, u.Shown)
				shown.Trashed[u.Shown] = dup.Trashed[u.Field]
			}
		}
		if len(shown.Fields) > 0 {
			return operation.Taken(shown)
		}
	}
	return err
}
