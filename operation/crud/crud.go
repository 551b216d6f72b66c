// Package crud makes the rows of operations that most kinds of records have: list, get, create, update, delete,
// restore and purge, and on request bulk and export. They follow from the description of the resource alone: its
// fields are read, checked, filtered, answered and documented as they are declared.
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
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants/secrets"
)

// Options say how the records of a resource are served. Path, Things, Read and Write are required.
type Options struct {
	// Path is the path of the list: "/api/files/folders". A parameter in it names the definition of the records:
	// "/api/custom/objects/{name}/records".
	Path   string
	Name   string // the first part of the names of the rows; empty: the last part of Path
	Things string // in messages: "Folders"
	Thing  string // the singular; empty: Things without its final s
	Within string // in messages, the definition that Path names: "Custom Object"
	Tag    string // empty: Things
	Read   operation.Rule
	Write  operation.Rule
	// Each says how all rows differ from those that follow from the resource; the others say how the row of that
	// action differs further.
	Each                                       Action
	List, Get, Create, Update, Delete, Restore Action
	// Bulk adds a row that takes many records at once. The resource must not limit the number of records or have a
	// Keeper.
	Bulk bool
	// Export adds a row that writes all records of a list as CSV or NDJSON. The resource must not have a Show.
	Export bool
	// Purge, if set, adds a row that deletes a record for good, for resources whose delete is not a row of this
	// package.
	Purge *Action
	// Sort is the default order; empty: by identifier.
	Sort string
	// Few are fields that a list can be sorted by without an index, because there are few records.
	Few []string
	// BuiltIn are records that every organization has from its beginning and that are not stored. They are found by
	// the key field. An unfiltered list begins with them in any order. Before must refuse to change them.
	BuiltIn []any
	// Search names the text fields that q searches. The field with the values of a definition stands for all text
	// fields of the definition that the path names. Empty: there is no q.
	Search []string
	// Keys seal the values of encrypted fields, which no answer shows. They are required if records can have such
	// fields.
	Keys secrets.Keys

	// The hooks do what the description of the resource cannot. The functions of hooks.go make them of functions for
	// the module's own type. All must be safe for concurrent use. Lists, exports and reads call only Show. What else a
	// module does at the beginning or the end of a call, it does in Action.Around; see also Only.

	// Check, if set, notes further faults of a record that was sent. It is called after the fields, the definition and
	// the references were checked. Fields may already have faults; faults noted for those are dropped. was is the
	// former state, nil for a new record. Check may read the store, and set fields of rec that callers cannot set. It
	// writes nothing.
	Check func(ctx context.Context, c *operation.Call, rec, was any, errs *fault.List) error
	// Before, if set, is called before a record is stored, when it has no faults, and before one is purged. was is nil
	// for a new record, rec for one that is purged. Before may complete or refuse the record, and add to need what must
	// be unchanged when the record is stored; a Keeper ignores that. It may write the records that depend on this one
	// and, before a purge, move this one to the trash. It is called again if the record was changed meanwhile.
	Before func(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was any) error
	// Stage, if set, is called with the batch that stores a record, after Before. It may refuse the record, complete a
	// new one, and add writes and preconditions to the batch. was is nil for a new record. It is called again if the
	// record or a precondition has changed. Bulks, restores, the first change of a record that is the only one of its
	// resource, and records with a Keeper do without it.
	Stage func(ctx context.Context, c *operation.Call, b *store.Batch, rec, was any) error
	// After, if set, is called once an update or deletion of one record is stored, when no later commit can require
	// its former state. It writes nothing. If it refuses the change, the former state is restored. ctx does not end
	// with the request. After is not called for purges, bulks and records with a Keeper.
	After func(ctx context.Context, c *operation.Call, rec, was any) error
	// Keeper, if set, stores records after they were read and checked.
	Keeper *keeper
	// Show, if set, makes the answers of records, in their order. A record may be about to be stored, so Show must not
	// change it. It may read the store, and writes nothing.
	Show func(ctx context.Context, c *operation.Call, recs []any) ([]any, error)

	// Example, if set, is an answer of a type that the module declares. Without Show, its fields are filled from those
	// of the record with the same name, and org_id with the number of the organization; its method Complete adds the
	// rest.
	Example any
}

// handlers are the handlers of one resource.
type handlers struct {
	Options
	of     *record.Resource
	model  *model
	sorts  []string
	trash  bool
	fields []field.Field // that callers may set
	parent string        // the parameter of Path that names a definition; empty: there is none
	param  string        // the parameter of the path that names the record
	alone  bool          // only one row of the resource is made
}

// Rows returns the rows of a resource; for one that is Single, the rows of its only record. It panics if the options
// do not fit the resource.
func Rows(of *record.Resource, o Options) []operation.Row {
	s := newHandlers(of, o)
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

// List returns only the row that lists the records of a resource.
func List(of *record.Resource, o Options) operation.Row {
	s := newHandlers(of, o)
	s.alone = true
	return s.finish(s.list(), &o.List)
}

// Create returns only the row that creates a record of a resource.
func Create(of *record.Resource, o Options) operation.Row {
	s := newHandlers(of, o)
	s.alone = true
	return s.finish(s.create(), &o.Create)
}

// finish applies the action, if any, to a row, and resolves the names in its path.
func (s *handlers) finish(row operation.Row, by *Action) operation.Row {
	if s.Each.apply(&row); by != nil {
		by.apply(&row)
	}
	s.resolve(&row)
	return row
}

func newHandlers(of *record.Resource, o Options) *handlers {
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
		panic("crud: records of " + of.Name + " have encrypted fields but no keys")
	}
	if n, ok := of.Index("teams"); of.Records.Spec().Teams && (!ok || of.Fields[n].Use.Has(declare.Once|declare.Computed)) {
		panic("crud: callers cannot set the teams of " + of.Name) // so callers who are limited to teams could not be kept within them
	}
	if _, ok := of.Index("id"); o.Bulk && !ok {
		panic("crud: records of " + of.Name + " have no identifier for a bulk")
	}
	if o.Export && o.Example != nil {
		panic("crud: an export of " + of.Name + " cannot have an Example of its own")
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

// row returns what all rows have in common.
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
		o.Params = append(o.Params, operation.Param{
			Name: s.parent, In: operation.InPath, Shape: operation.Text, Required: true, Ref: s.of.DefinedBy,
			Description: s.Within + " of the records.", Example: s.model.parent(s.of.DefinitionField),
		})
		o.Failures = append(o.Failures, operation.Failure{
			Code: http.StatusNotFound, Message: s.Within + " not found",
			When: "this organization has none with that name or identifier",
		})
	}
	if strings.HasPrefix(path, s.recordPath()) && !s.of.Single {
		key := s.of.KeyField()
		o.Params = append(o.Params, operation.Param{
			Name: s.param, In: operation.InPath, Shape: operation.Text, Required: true,
			Description: cmp.Or(key.Doc, "Identifier of the record."), Example: s.model.named(key),
		})
		o.Failures = append(o.Failures, operation.Failure{
			Code: http.StatusNotFound, Message: s.missing(),
			When: "the organization has no such record in this state, or the caller may not see it",
		})
		if method != http.MethodGet && s.of.Carrying() {
			o.Failures = append(o.Failures, Limits())
		}
	}
	return o
}

// recordPath returns the path of one record.
func (s *handlers) recordPath() string {
	if s.of.Single {
		return s.Path
	}
	return s.Path + "/{" + s.param + "}"
}

func (s *handlers) missing() string { return s.Thing + " not found" }

// titled returns a name as the title of a page, with a capital only at its beginning.
func titled(name string) string { return name[:1] + strings.ToLower(name[1:]) }

// thing returns the name with its article, in lower case, for the middle of a sentence.
func (s *handlers) thing() string { return texts.WithArticle(strings.ToLower(s.Thing)) }

// workspace returns the workspace that holds the records.
func (s *handlers) workspace(c *operation.Call) *store.Workspace {
	if s.of.Control {
		return c.Tenant.People()
	}
	return c.Workspace
}

// invalid documents the refusals of a body.
func (s *handlers) invalid() []operation.Failure {
	first := s.fields[0].Name
	failures := []operation.Failure{operation.Refuses(http.StatusUnprocessableEntity, "a field has an unacceptable "+
		"value; every problem is named", first, fault.Type, first+" must be of another type")}
	if len(s.of.Uniques) > 0 && !s.of.Single {
		name := s.of.Uniques[0].Shown
		failures = append(failures, operation.Refuses(http.StatusConflict, "another record has a value that must be unique", name, fault.Duplicate, name+" is already in use"))
	}
	return failures
}

type getInput struct {
	Deleted bool `json:"deleted" default:"false" doc:"Answers a deleted record instead of a live one."`
}

func (s *handlers) get() operation.Row {
	row := s.row("get", http.MethodGet, s.recordPath(), s.Thing+" found")
	row.Summary, row.Description, row.Title = "Get "+s.thing(), "Answers one record.", titled(s.Thing)
	if s.logged() {
		row.Logged = &operation.Logged{Resource: s.of.Name, See: s.see}
	}
	return typedRow(s, row, func(ctx context.Context, c *operation.Call, in getInput) (operation.Result, error) {
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

// applicable drops the parameters that do not apply to the resource; their fields hold the defaults.
func (s *handlers) applicable(params []operation.Param) []operation.Param {
	return slices.DeleteFunc(params, func(p operation.Param) bool {
		return !s.trash && (p.Name == "deleted" || p.Name == "purge") || len(s.Search) == 0 && p.Name == "q" ||
			!s.logged() && p.Name == "changed_after"
	})
}

// typedRow completes a row that answers a record.
func typedRow[In any](
	s *handlers, row operation.Row, do func(context.Context, *operation.Call, In) (operation.Result, error),
) operation.Row {
	data := row.Data
	row.Revised = true
	row = operation.Typed(row, do)
	row.Data, row.Params = data, s.applicable(row.Params)
	return row
}

// answer returns the function that answers a record as it is stored or about to be stored.
func (s *handlers) answer(c *operation.Call, rec any) func(context.Context) (operation.Result, error) {
	return s.answerRecord(c, rec, c.Operation.Method != http.MethodDelete || s.Keeper == nil)
}

// lastAnswer returns the function that answers a record that is deleted, or about to be deleted, for good.
func (s *handlers) lastAnswer(c *operation.Call, rec any) func(context.Context) (operation.Result, error) {
	return s.answerRecord(c, rec, false)
}

// answerRecord returns the function that answers a record. The answer has the record's revision if there remains a record.
func (s *handlers) answerRecord(
	c *operation.Call, rec any, there bool,
) func(context.Context) (operation.Result, error) {
	return func(ctx context.Context) (operation.Result, error) {
		if noted := s.auditName(rec); c.Operation.Method != http.MethodGet && noted != "" {
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

// auditName returns what audit records call a record: people, roles and accounts by the name that commands use, others
// by identifier.
func (s *handlers) auditName(rec any) string {
	if s.of.Control {
		return s.of.Identity(rec)
	}
	return s.of.Meta(rec).ID
}

// show makes the answers of records.
func (s *handlers) show(ctx context.Context, c *operation.Call, recs []any) ([]any, error) {
	if s.Show != nil {
		return s.Show(ctx, c, recs)
	}
	shown, known := make([]any, len(recs)), &c.Known
	for i, rec := range recs {
		var unfit map[string]string
		if s.of.DefinedBy != "" && len(*s.of.Values(rec)) > 0 {
			var err error
			if rec, unfit, err = s.redact(ctx, c, rec, known); err != nil {
				return nil, err
			}
		}
		shown[i] = s.model.shown(rec, c.Tenant, unfit)
	}
	return shown, nil
}

// redact returns the record without values that must not be shown: those stored before their field became Encrypted,
// was dropped or was deleted. unfit says of values that do not fit their field what they must be; exports omit it,
// because they are read in again.
func (s *handlers) redact(
	ctx context.Context, c *operation.Call, rec any, known *record.Known,
) (_ any, unfit map[string]string, _ error) {
	if !known.Covers(s.of.DefinedBy) { // the records of a list have one definition
		if err := s.of.Definitions(ctx, c.Workspace, rec, known); err != nil {
			return nil, nil, err
		}
	}
	shown := s.of.Clone(rec) // rec may be about to be stored
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
	within, err := s.withinDefinition(ctx, c, &c.Known)
	if err != nil {
		return nil, err
	}
	if s.of.Single {
		rec, err := s.of.Collection.First(ctx, s.workspace(c), store.Query{})
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
	rec, err := s.of.Collection.First(ctx, s.workspace(c), store.Query{Filter: store.All(which, within), State: state})
	return rec, s.problem(err)
}

// builtIn returns the built-in records of the organization.
func (s *handlers) builtIn(c *operation.Call) []any {
	recs := make([]any, len(s.BuiltIn))
	for i, rec := range s.BuiltIn {
		recs[i] = s.of.Clone(rec)
		s.of.Meta(recs[i]).CreatedAt = c.Tenant.Org.CreatedAt
	}
	return recs
}

// named matches the record that a key names. Numbers are accepted in their canonical form only.
func (s *handlers) named(text string) (store.Filter, bool) {
	key := s.of.KeyField()
	stored := s.of.Stored(key.Name)
	if key.Type.Kind() != reflect.String {
		n, err := strconv.ParseInt(text, 10, 64)
		return store.Eq(stored, n), err == nil && strconv.FormatInt(n, 10) == text
	}
	return store.Eq(stored, text), text != "" && (key.Rule.Format != "id" || store.ValidID(text))
}

// withinDefinition matches the records of the definition that the path names, and adds the definition to known.
func (s *handlers) withinDefinition(ctx context.Context, c *operation.Call, known *record.Known) (store.Filter, error) {
	if s.parent == "" {
		return store.Filter{}, nil
	}
	by, name := s.of.Definer(), c.Path(s.parent)
	key := by.KeyField()
	var found []any
	var err error
	if key.Rule.Format != "id" || store.ValidID(name) {
		found, err = by.Records.Find(ctx, c.Workspace, store.Query{
			Filter: store.Eq(by.Stored(key.Name), name), Limit: 1, Shared: true,
		})
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

// loadDefinitions adds to known all definitions that the records of the path are read and checked by. It returns the
// filter of withinDefinition.
func (s *handlers) loadDefinitions(ctx context.Context, c *operation.Call, known *record.Known) (store.Filter, error) {
	within, err := s.withinDefinition(ctx, c, known)
	if err == nil && s.parent == "" {
		err = s.of.Definitions(ctx, c.Workspace, s.of.Bare(), known)
	}
	return within, err
}

// problem translates an error of the store for callers.
func (s *handlers) problem(err error) error {
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
