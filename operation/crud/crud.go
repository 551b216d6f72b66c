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
	"time"

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
type Options[T any] struct {
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
	// Without names actions that are left out: list, get, create, update, delete, restore.
	Without []string
	// Bulk adds a row that takes many records at once. Their number must not be limited, and no service keep them.
	Bulk bool
	// Export adds a row that writes all records of a list as CSV or NDJSON. No Show may make their answers.
	Export bool
	// Purges adds a row that ends a record for good, where the row that deletes is not of this package.
	Purges bool
	// Where, where set, says which records are listed.
	Where func(ctx context.Context, c *operation.Call) (store.Filter, error)
	// Sort is the order where the caller says none; empty: that of identifiers.
	Sort string
	// Few are fields that a list can be sorted by without an index: there are so few of the records.
	Few []string
	// BuiltIn, where set, returns records that are stored nowhere, and told by the field that the path names. They come
	// first, whatever the order, in a list that nothing narrows. Before refuses their change.
	BuiltIn func(c *operation.Call) []T
	// Search names the text fields in which q looks; that of the values of a definition, which the path then names, stands for
	// its text fields. Without any there is no q.
	Search []string
	// Also, where set, notes what else is wrong with a record that was sent, of which fields may be wrong already:
	// what it notes of those is not told.
	Also func(ctx context.Context, c *operation.Call, rec, was *T, errs *fault.List) error
	// Before, where set, sees a record before it is stored, and the one that it was; it may complete
	// or refuse it. Of a new record was is nil, of one that is purged rec.
	Before func(ctx context.Context, c *operation.Call, rec, was *T) error
	// Drop, where set, reports of a new record, as it is about to be stored, that it is answered as if it were, or refused where there is no room for it, and is not.
	Drop func(ctx context.Context, c *operation.Call, rec *T) bool
	// After, where set, sees a changed record once it is stored, when nothing is written any more that stands on what it was.
	// What it refuses is put back.
	After func(ctx context.Context, c *operation.Call, rec, was *T) error
	// Keys seal the values of encrypted fields, which no answer shows. They are required where there can be some.
	Keys secrets.Keys
	// Upload are the media types of files that records are made of; see operation.Row. The fields of a new
	// record come from the query then. UploadLimit is in bytes, UploadTime for the whole of one.
	Upload         []string
	UploadExamples []string
	UploadLimit    int64
	UploadTime     time.Duration
	// Refresh, where set, brings up to date what time alone changes of a record that is shown.
	Refresh func(rec *T)
	// Keeper, where set, stores what was read and checked.
	Keeper *Keeper[T]
	// Show, where set, makes the answers of records, all in one go.
	Show func(ctx context.Context, c *operation.Call, recs []*T) ([]any, error)
	// Example, where set, is an answer of a type that the module declares. Without Show its fields are those of the record
	// that are called alike, org_id the number of the organization, and its method Complete adds what else it shows.
	Example any
}

// Keeper is a service that does more than to store records. Errors are told as those of the store are.
type Keeper[T any] struct {
	Insert func(ctx context.Context, c *operation.Call, rec *T) (*T, error)
	// Update stores what change makes of the record, which it may be asked several times.
	Update func(ctx context.Context, c *operation.Call, rec *T, change func(*T) error) (*T, error)
	Delete func(ctx context.Context, c *operation.Call, rec *T) error
	// Refers, where set, notes what a record refers to that is not there, as Insert and Update do.
	Refers func(ctx context.Context, c *operation.Call, rec *T, errs *fault.List) error
}

// serves has the handlers of one resource.
type serves[T any] struct {
	Options[T]
	of     *record.Of[T]
	model  *model
	sorts  []string
	trash  bool
	fields []field.Field // that callers may set
	parent string        // the parameter of the path that names a definition; empty: there is none
	param  string        // that names the record
}

// Rows returns the rows of a resource, of the one record where it is Single, which a module may change before it serves them. What does not
// fit is a fault of the program, which ends it.
func Rows[T any](of *record.Of[T], o Options[T]) []operation.Row {
	s := serving(of, o)
	rows := []operation.Row{s.list(), s.get(), s.create(), s.update(), s.remove()}
	if s.of.Single {
		rows = []operation.Row{s.get(), s.update()}
	}
	if s.trash {
		rows = append(rows, s.restore())
	}
	if o.Bulk {
		rows = append(rows, s.bulk())
		if s.trash {
			rows = append(rows, s.bulkMark(true), s.bulkMark(false))
		}
	}
	if o.Export {
		rows = append(rows, s.export())
	}
	if o.Purges {
		rows = append(rows, s.purging())
	}
	return s.resolving(slices.DeleteFunc(rows, func(row operation.Row) bool {
		return slices.Contains(o.Without, row.Name[strings.LastIndexByte(row.Name, '.')+1:])
	})...)
}

func serving[T any](of *record.Of[T], o Options[T]) *serves[T] {
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
	if n, ok := of.Index("teams"); of.Spec().Teams && (!ok || of.Fields[n].Use.Has(declare.Once|declare.Computed)) {
		panic("crud: callers cannot set the teams of " + of.Name) // so nobody could keep who is limited to teams within them
	}
	if _, ok := of.Index("id"); o.Bulk && !ok {
		panic("crud: records of " + of.Name + " have no identifier that a bulk could give")
	}
	if o.Export && o.Example != nil {
		panic("crud: the columns of an export of " + of.Name + " are those of its records")
	}
	s := &serves[T]{Options: o, of: of, trash: of.Spec().SoftDelete}
	s.model = newModel(o.Thing, of.Resource, o.Example)
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
func (s *serves[T]) row(action, method, path, message string) operation.Row {
	o := operation.Row{
		Name: s.Name + "." + action, Method: method, Path: path, Tag: s.Tag, Message: message, Teams: s.of.Spec().Teams,
		Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys, Rule: s.Read, Resource: s.of.Name, Action: actions()[action],
		Data: s.model.zero(), Example: s.model.example(), Defined: operation.Defined{By: s.of.DefinedBy, Values: s.of.ValuesName()},
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
func (s *serves[T]) each() string {
	if s.of.Single {
		return s.Path
	}
	return s.Path + "/{" + s.param + "}"
}

func (s *serves[T]) missing() string { return s.Thing + " not found" }

// one returns what a thing is called within a sentence.
func (s *serves[T]) one() string { return texts.One(strings.ToLower(s.Thing)) }

// in returns where the records are.
func (s *serves[T]) in(c *operation.Call) store.Collection[T] {
	if s.of.Control {
		return s.of.In(c.Tenant.People())
	}
	return s.of.In(c.Workspace)
}

// invalid documents the refusal of a body.
func (s *serves[T]) invalid() []operation.Failure {
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

func (s *serves[T]) get() operation.Row {
	row := s.row("get", http.MethodGet, s.each(), s.Thing+" found")
	row.Summary, row.Description = "Get "+s.one(), "Answers one record."
	return as(s, row, func(ctx context.Context, c *operation.Call, in read) (*T, error) {
		return s.find(ctx, c, stateOf(in.Deleted))
	})
}

func stateOf(deleted bool) store.State {
	if deleted {
		return store.Deleted
	}
	return store.Live
}

// offered leaves out the parameters that make no sense of these records; what is left out holds its default.
func (s *serves[T]) offered(params []operation.Param) []operation.Param {
	return slices.DeleteFunc(params, func(p operation.Param) bool {
		return !s.trash && (p.Name == "deleted" || p.Name == "purge") || len(s.Search) == 0 && p.Name == "q"
	})
}

// as completes a row that answers with a record.
func as[In, T any](s *serves[T], row operation.Row, do func(context.Context, *operation.Call, In) (*T, error)) operation.Row {
	data := row.Data
	row.Revised = true
	row = operation.Typed(row, func(ctx context.Context, c *operation.Call, in In) (any, error) {
		ctx = knowing(new(store.Basis).With(ctx))
		rec, err := do(ctx, c, in)
		if err != nil {
			return nil, err
		}
		if row.Method == http.MethodGet || s.Keeper != nil {
			s.closes(c, rec)
		}
		return c.Answer(ctx)
	})
	row.Data, row.Params = data, s.offered(row.Params)
	return row
}

type knownKey struct{}

// knowing returns the context of a call that reads no definition twice.
func knowing(ctx context.Context) context.Context {
	return context.WithValue(ctx, knownKey{}, new(record.Known))
}

// known returns what the call has read of definitions.
func known(ctx context.Context) *record.Known {
	if k, ok := ctx.Value(knownKey{}).(*record.Known); ok {
		return k
	}
	return new(record.Known)
}

// afresh begins once more, where what was read may have changed.
func afresh(ctx context.Context) {
	store.Anew(ctx)
	*known(ctx) = record.Known{}
}

// closes says that the record is about to be stored as it is, and answered.
func (s *serves[T]) closes(c *operation.Call, rec *T) {
	s.answers(c, rec, c.Operation.Method != http.MethodDelete || s.Keeper == nil)
}

// ends says that the record is about to end for good, and answered.
func (s *serves[T]) ends(c *operation.Call, rec *T) { s.answers(c, rec, false) }

// answers says that the record is answered with the write that follows, and whether it is there then.
func (s *serves[T]) answers(c *operation.Call, rec *T, there bool) {
	c.Closes(func(ctx context.Context) (operation.Result, error) {
		if noted := s.noted(rec); c.Operation.Method != http.MethodGet && noted != "" {
			c.Note(s.of.Name, noted)
		}
		if there {
			c.Revision = s.of.Revision(rec)
		}
		shown, err := s.show(ctx, c, []*T{rec})
		if err != nil {
			return operation.Result{}, err
		}
		return operation.Result{Data: shown[0]}, nil
	})
}

// noted returns what audit logs call a record: people, roles and accounts as commands call them.
func (s *serves[T]) noted(rec *T) string {
	if s.of.Control {
		return s.of.Identity(rec)
	}
	return s.of.Meta(rec).ID
}

// show makes the answers of records.
func (s *serves[T]) show(ctx context.Context, c *operation.Call, recs []*T) ([]any, error) {
	for _, rec := range recs {
		if s.Refresh != nil {
			s.Refresh(rec)
		}
	}
	if s.Show != nil {
		return s.Show(ctx, c, recs)
	}
	shown, known := make([]any, len(recs)), known(ctx)
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

// hide returns a record as it may be shown: without what was stored before its field became Encrypted, or was dropped or deleted.
// Unfit are the values that do not fit; exports, which are read in again, do not tell them.
func (s *serves[T]) hide(ctx context.Context, c *operation.Call, rec *T, known *record.Known) (_ *T, unfit map[string]string, _ error) {
	if !known.Covers(s.of.DefinedBy) { // those of a list have one definition
		if err := s.of.Definitions(ctx, c.Workspace, rec, known); err != nil {
			return nil, nil, err
		}
	}
	shown := *rec // which may be about to be stored
	values := s.of.Values(&shown)
	*values = maps.Clone(*values)
	fields, defined := s.of.Defined(known, rec)
	maps.DeleteFunc(*values, func(name string, _ any) bool {
		field, there := fields[name]
		return field.Type == schema.Encrypted || defined && !there
	})
	if c.Operation.Streams == nil {
		unfit = fields.Unfit(*values)
	}
	return &shown, unfit, nil
}

// find returns the record that the path names.
func (s *serves[T]) find(ctx context.Context, c *operation.Call, state store.State) (*T, error) {
	within, err := s.within(ctx, c, known(ctx))
	if err != nil {
		return nil, err
	}
	if s.of.Single {
		rec, err := s.in(c).First(ctx, store.Query{})
		if errors.Is(err, store.ErrNotFound) {
			return s.of.New().(*T), nil
		}
		return rec, err
	}
	for _, rec := range s.builtIn(c) {
		if s.of.Identity(&rec) == c.Path(s.param) && state != store.Deleted {
			return &rec, nil
		}
	}
	which, ok := s.named(c.Path(s.param))
	if !ok {
		return nil, operation.NotFound(s.missing())
	}
	rec, err := s.in(c).First(ctx, store.Query{Filter: store.All(which, within), State: state})
	return rec, s.told(err)
}

func (s *serves[T]) builtIn(c *operation.Call) []T {
	if s.BuiltIn == nil {
		return nil
	}
	return s.BuiltIn(c)
}

// named matches the record that a text names. There is one way to write a number.
func (s *serves[T]) named(text string) (store.Filter, bool) {
	key := s.of.KeyField()
	stored := s.of.Stored(key.Name)
	if key.Type.Kind() != reflect.String {
		n, err := strconv.ParseInt(text, 10, 64)
		return store.Eq(stored, n), err == nil && strconv.FormatInt(n, 10) == text
	}
	return store.Eq(stored, text), text != "" && (key.Rule.Format != "id" || store.ValidID(text))
}

// within matches the records of the definition that the path names, which it makes known.
func (s *serves[T]) within(ctx context.Context, c *operation.Call, known *record.Known) (store.Filter, error) {
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
func (s *serves[T]) define(ctx context.Context, c *operation.Call, known *record.Known) (store.Filter, error) {
	within, err := s.within(ctx, c, known)
	if err == nil && s.parent == "" {
		err = s.of.Definitions(ctx, c.Workspace, s.of.Bare(), known)
	}
	return within, err
}

func (s *serves[T]) create() operation.Row {
	row := s.row("create", http.MethodPost, s.Path, s.Thing+" created")
	row.Summary = "Create " + s.one()
	row.Upload, row.UploadExamples, row.UploadLimit, row.Timeout = s.Upload, s.UploadExamples, s.UploadLimit, s.UploadTime
	s.takes(&row, false)
	return as(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (rec *T, err error) {
		for range tries {
			if rec, err = s.add(ctx, c); s.Keeper != nil || !errors.Is(err, store.ErrConflict) {
				break
			}
		}
		return rec, s.told(err)
	})
}

func (s *serves[T]) update() operation.Row {
	row := s.row("update", http.MethodPut, s.each(), s.Thing+" updated")
	row.Summary, row.Description = "Change "+s.one(), "Fields that are not given stay as they are; null takes away what need not be there."
	s.takes(&row, true)
	return as(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (*T, error) {
		return s.change(ctx, c, func(rec, was *T) error { return s.take(ctx, c, rec, was, s.sent(c)) })
	})
}

// change stores what edit makes of the live record that the path names, if it is the one that the
// caller means.
func (s *serves[T]) change(ctx context.Context, c *operation.Call, change func(rec, was *T) error) (*T, error) {
	var wanted *T
	var was T
	edit := func(rec *T) error {
		wanted, was = rec, *rec
		c.Closes(nil) // it was to be stored before, and somebody else came between
		afresh(ctx)
		if err := c.Current(s.of.Revision(rec)); err != nil {
			return err
		}
		if err := change(rec, &was); err != nil {
			return err
		}
		if s.Keeper == nil { // which may store more
			s.closes(c, rec)
		}
		return nil
	}
	id := c.Path(s.param)
	if s.of.KeyField().Rule.Format == "id" && s.parent == "" && s.Keeper == nil && !s.of.Single {
		rec, err := s.in(c).Update(ctx, id, edit)
		return rec, s.told(s.stored(ctx, c, rec, wanted, &was, err))
	}
	rec, err := s.find(ctx, c, store.Live)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Keeper != nil:
		rec, err = s.Keeper.Update(ctx, c, rec, edit)
	case s.of.Meta(rec).Rev == 0: // the one record there is, once it is stored
		if err = edit(rec); err == nil {
			err = s.in(c).Insert(ctx, rec)
		}
		if first := new(store.DuplicateError); errors.As(err, &first) { // somebody else stored it meanwhile
			if rec, err = s.find(ctx, c, store.Live); err == nil {
				rec, err = s.in(c).Update(ctx, s.of.Meta(rec).ID, edit)
			}
		}
	default:
		rec, err = s.in(c).Update(ctx, s.of.Meta(rec).ID, edit)
		err = s.stored(ctx, c, rec, wanted, &was, err)
	}
	return rec, s.told(err)
}

// stored returns what became of a write: rec was stored, or wanted was refused.
func (s *serves[T]) stored(ctx context.Context, c *operation.Call, rec, wanted, was *T, err error) error {
	if err != nil {
		return s.of.Taken(ctx, s.in(c), wanted, err)
	}
	err = RefuseLimited(ctx, c, s.of, rec, was) // for what others stored before they could know of the change
	if err == nil && s.After != nil {
		err = s.After(ctx, c, rec, was)
	}
	return Settle(ctx, c, s.of, rec, was, err)
}

// Settle returns err, with which a record of the organization that was stored is refused afterwards, and puts back what it was, unless
// somebody has changed it since. Without an error it does nothing.
func Settle[T any](ctx context.Context, c *operation.Call, of *record.Of[T], rec, was *T, err error) error {
	if err == nil {
		return nil
	}
	store.Anew(ctx)
	back := *was
	*of.Meta(&back) = *of.Meta(rec)
	return cmp.Or(of.In(c.Workspace).Replace(ctx, &back), err)
}

// Act returns a row that does something of its own to a live record, which is held to its description
// before it is stored. The row's Path is what follows that of the record.
func Act[In, T any](of *record.Of[T], o Options[T], row operation.Row, action string, do func(rec *T, in In)) operation.Row {
	s := serving(of, o)
	made := s.row(action, row.Method, s.each()+"/"+row.Path, s.Thing+" updated")
	made.Summary, made.Description, made.OnRecord = row.Summary, row.Description, true
	made.Failures = append(made.Failures, s.invalid()[0])
	return s.resolving(as(s, made, func(ctx context.Context, c *operation.Call, in In) (*T, error) {
		return s.change(ctx, c, func(rec, was *T) error {
			do(rec, in)
			return s.take(ctx, c, rec, was, strictjson.Value{})
		})
	}))[0]
}

// told returns an error as callers hear of it.
func (s *serves[T]) told(err error) error {
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
