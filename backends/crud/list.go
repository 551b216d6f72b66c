package crud

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/api"
	"tenantry/backends/field"
	"tenantry/backends/filters"
	"tenantry/backends/resource"
	"tenantry/backends/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
)

// listing is what a list is asked for.
type listing struct {
	Page    int64  `json:"page" rule:"min=1 max=1000000000" default:"1" doc:"Page of the list, from 1."`
	PerPage int64  `json:"per_page" rule:"min=1 max=9223372036854775807" default:"50" doc:"Records on a page, from 1; cut to 1000."`
	After   string `json:"after" rule:"max=16000" doc:"Instead of page: what follows the records that an answer with this next ended with; empty for the beginning. No page costs more than the first then."`
	asking
}

// asking says which records are meant, and in which order.
type asking struct {
	Sort    string `json:"sort" rule:"max=200" doc:"Order: fields joined by commas, - before one that descends. Ties are broken by id."`
	Q       string `json:"q" rule:"max=200" doc:"Only records that have this text somewhere in what people read, with upper and lower case as it is written."`
	Deleted bool   `json:"deleted" default:"false" doc:"Lists records that were deleted instead of live ones."`
}

const maxPerPage = 1000

func (s *serves[T]) list() api.Operation {
	row := s.row("list", http.MethodGet, s.Path, s.Things+" found")
	row.Summary, row.Description = "List "+strings.ToLower(s.Things), "Fields to sort by: "+strings.Join(s.sorts, ", ")+". Filters are written as those of campaigns; records of one page are in the order of their identifiers unless sort says another."
	row.Weight, row.IDs = api.Heavy, []string{"list" + strings.ReplaceAll(s.Things, " ", "")}
	s.filtered(&row)
	typ := s.model.list()
	example := reflect.New(typ).Elem()
	pages := int64(1)
	set(example, map[string]any{
		"Page": pages, "Pages": &pages, "Count": pages,
		"Results": reflect.Append(example.FieldByName("Results"), reflect.ValueOf(s.model.example())).Interface(),
	})
	row = api.Typed(row, func(ctx context.Context, c *api.Call, in listing) (any, error) { return s.page(ctx, c, in, typ) })
	s.sorted(&row)
	row.Data, row.Example = reflect.New(typ).Elem().Interface(), example.Interface()
	return row
}

// filtered declares the filters of a row.
func (s *serves[T]) filtered(row *api.Operation) {
	key := s.of.KeyField()
	var names []string
	for i := range s.of.Fields {
		if f := &s.of.Fields[i]; asked(f) && notation(f) != 0 {
			names = append(names, f.Name)
		}
	}
	row.Params = append(row.Params, api.Param{Name: "filters", In: api.InQuery, Shape: api.Tree, Names: names, Description: "filters[<field>]=<value> or filters[<field>][<operator>]=<value>.", Example: "filters[" + key.Name + "]=" + s.model.named(key)})
	row.Failures = append(row.Failures, api.Failure{
		Code: http.StatusUnprocessableEntity, Message: "Validation failed: sort must name some of " + strings.Join(s.sorts, ", ") + ", each once, with - before one that descends", When: "a parameter has an unacceptable value",
	})
}

// sorted completes the parameters of a row that answers with several records.
func (s *serves[T]) sorted(row *api.Operation) {
	row.Params = s.offered(row.Params)
	for i := range row.Params {
		if row.Params[i].Name == "sort" {
			row.Params[i].Default, row.Params[i].Names = s.Sort, s.sorts
		}
	}
}

// query returns what is asked of the store, and of that where and order by themselves.
func (s *serves[T]) query(ctx context.Context, c *api.Call, in asking, errs *fault.List) (q store.Query, where store.Filter, order []step, err error) {
	where, err = s.where(ctx, c, in.Q, errs)
	order = s.order(cmp.Or(in.Sort, s.Sort), errs)
	q = store.Query{Filter: where, State: stateOf(in.Deleted)}
	for _, o := range order {
		q.Sort = append(q.Sort, o.Order)
	}
	return q, where, order, err
}

// set sets fields of a struct by name.
func set(v reflect.Value, values map[string]any) {
	for name, value := range values {
		v.FieldByName(name).Set(reflect.ValueOf(value))
	}
}

func (s *serves[T]) page(ctx context.Context, c *api.Call, in listing, typ reflect.Type) (any, error) {
	var errs fault.List
	q, where, order, err := s.query(ctx, c, in.asking, &errs)
	if err != nil {
		return nil, err
	}
	limit, follows := int(min(in.PerPage, maxPerPage)), c.Query.Has("after")
	if q.Limit = limit; follows {
		q.Limit++         // one more says that there is more
		if in.Page != 1 { // which generated clients send though nobody gave it
			errs.Add("after", fault.Duplicate, "after and page exclude each other")
		}
		if in.After != "" {
			q.Filter = store.All(where, s.beyond(in.After, order, &errs))
		}
	} else {
		q.Offset = int(in.Page-1) * limit
	}
	if err := errs.Err(); err != nil {
		return nil, err
	}
	found, left, count, err := s.in(c).Page(ctx, q, where)
	if err != nil {
		return nil, err
	}
	next := ""
	if follows && len(found)+left > limit {
		if len(found) == 0 { // nothing says where to go on
			return nil, &store.UnreadableError{Kind: s.of.Name, Reason: "it is one of a whole page"}
		}
		found = found[:min(limit, len(found))]
		next = s.cursor(&found[len(found)-1], order)
	}
	out := reflect.New(typ).Elem()
	results, err := s.results(ctx, c, found)
	if err != nil {
		return nil, err
	}
	set(out, map[string]any{"Count": count, "Results": results.Interface()})
	if follows {
		set(out, map[string]any{"Next": &next})
		return out.Interface(), nil
	}
	pages := (count + int64(limit) - 1) / int64(limit)
	set(out, map[string]any{"Page": in.Page, "Pages": &pages})
	return out.Interface(), nil
}

// where returns what is listed: within the definition of the path, as the module narrows it, by the
// filters and by the words looked for. What is wrong with them is noted.
func (s *serves[T]) where(ctx context.Context, c *api.Call, words string, errs *fault.List) (_ store.Filter, err error) {
	var known resource.Known
	where := make([]store.Filter, 4)
	if where[0], err = s.within(ctx, c, &known); err != nil {
		return store.Filter{}, err
	}
	if s.Where != nil {
		if where[1], err = s.Where(ctx, c); err != nil {
			return store.Filter{}, err
		}
	}
	expr, _ := filters.FromQuery(c.Query.Tree("filters"), errs)
	fields, err := s.catalog(ctx, c, expr, &known)
	if err != nil {
		return store.Filter{}, err
	}
	where[2] = expr.Bind(fields, nil, errs)
	if words != "" {
		var somewhere []store.Filter
		for _, ref := range s.searched(c, &known) {
			somewhere = append(somewhere, store.Where(ref, store.OpContains, words))
		}
		where[3] = store.AnyOf(somewhere...)
	}
	return store.All(where...), nil
}

// mostSearched bounds the fields of one definition that are looked into: each is read of every record.
const mostSearched = 20

// searched returns where q looks. Of the values of a definition those are text fields, the required ones first.
func (s *serves[T]) searched(c *api.Call, known *resource.Known) (refs []store.Field) {
	for _, name := range s.Search {
		if name != s.of.ValuesName() {
			refs = append(refs, store.F(s.of.Stored(name)))
			continue
		}
		defined, _ := known.Fields(s.of.DefinedBy, c.Path(s.parent))
		keys := slices.SortedFunc(maps.Keys(defined), func(a, b string) int {
			return cmp.Or(cmp.Compare(rank(defined[a]), rank(defined[b])), cmp.Compare(a, b))
		})
		for _, key := range keys {
			if f := filters.Defined(key, defined[key].Type); f.Notation == filters.Text && len(refs) < mostSearched {
				refs = append(refs, f.Ref)
			}
		}
	}
	return refs
}

func rank(f schema.Field) int { return map[bool]int{true: -1}[f.Required] }

// results returns a slice of the answers of records.
func (s *serves[T]) results(ctx context.Context, c *api.Call, found []T) (reflect.Value, error) {
	shown := make([]*T, len(found))
	for i := range found {
		shown[i] = &found[i]
	}
	answers, err := s.show(ctx, c, shown)
	if err != nil {
		return reflect.Value{}, err
	}
	results := reflect.MakeSlice(reflect.SliceOf(s.model.typ), len(found), len(found))
	for i := range answers {
		results.Index(i).Set(reflect.ValueOf(answers[i]))
	}
	return results, nil
}

// catalog has the fields that callers filter by; those of the record go before defined ones.
type catalog struct {
	of      *resource.Resource
	defined schema.Fields
}

// catalog returns the fields that a filter may name. Definitions that the path does not name are read
// where the filter names one.
func (s *serves[T]) catalog(ctx context.Context, c *api.Call, expr filters.Expr, known *resource.Known) (catalog, error) {
	all := catalog{of: s.of.Resource}
	if s.of.DefinedBy == "" || !slices.ContainsFunc(expr.Fields(), func(name string) bool { _, own := all.Field(name); return !own }) {
		return all, nil
	}
	if s.parent == "" {
		if err := s.of.Definitions(ctx, c.Workspace, s.of.Bare(), known); err != nil {
			return all, err
		}
	}
	name := ""
	if s.parent != "" {
		name = c.Path(s.parent)
	}
	all.defined, _ = known.Fields(s.of.DefinedBy, name)
	return all, nil
}

// Field returns what there is to compare of a field.
func (c catalog) Field(name string) (filters.Field, bool) {
	n, ok := c.of.Index(name)
	if !ok {
		f, defined := c.defined[name]
		return filters.Defined(name, f.Type), defined
	}
	f := &c.of.Fields[n]
	out := filters.Field{Name: name, Ref: store.F(c.of.Stored(name)), Notation: notation(f)}
	return out, out.Notation != 0 && asked(f)
}

// asked reports whether callers filter and sort by the field.
func asked(f *field.Field) bool {
	return !f.Use.Has(declare.Hidden) && (f.Use.Has(declare.Filter) || f.Rule.Unique)
}

func notation(f *field.Field) filters.Notation {
	t := f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isTime(f):
		return filters.Time
	case t.Kind() == reflect.String:
		return filters.Text
	case t.Kind() == reflect.Bool:
		return filters.Boolean
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String:
		return filters.List
	case reflect.Zero(t).CanInt():
		return filters.Number
	}
	return 0
}

// sortable returns the fields that a list can be sorted by: the identifier, and those with an index
// that begins with them, whether it tells deleted records apart, and those of a definition that is named, or not.
func sortable[T any](of *resource.Of[T], definition string) []string {
	names := []string{"id"}
	for i := range of.Fields {
		name := of.Stored(of.Fields[i].Name)
		if n := notation(&of.Fields[i]); !asked(&of.Fields[i]) || n == 0 || n == filters.List {
			continue
		}
		for _, index := range of.Spec().Indexes {
			fields := slices.DeleteFunc(slices.Clone(index.Fields), func(f string) bool { return f == "deleted" || f == definition })
			if len(fields) > 0 && fields[0] == name && !slices.Contains(names, of.Fields[i].Name) {
				names = append(names, of.Fields[i].Name)
			}
		}
	}
	return names
}

// step is one field of an order.
type step struct {
	*field.Field
	store.Order
}

// order reads the parameter sort.
func (s *serves[T]) order(text string, errs *fault.List) (order []step) {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, desc := strings.CutPrefix(strings.TrimSpace(part), "-")
		if !slices.Contains(s.sorts, name) || slices.ContainsFunc(order, func(o step) bool { return o.Name == name }) {
			errs.Add("sort", fault.Unknown, "sort must name some of %s, each once, with - before one that descends", strings.Join(s.sorts, ", "))
			return nil
		}
		n, _ := s.of.Index(name)
		order = append(order, step{&s.of.Fields[n], store.Order{Field: store.F(s.of.Stored(name)), Desc: desc}})
	}
	return order
}

// A cursor is where a page ended: the values that its last record is sorted by, null for one that it
// has not, and its identifier.
type cursor struct {
	Sort   []string `json:"s"`
	Values []any    `json:"v"`
	ID     string   `json:"id"`
}

// sorted notes an order in a cursor.
func (c *cursor) sorted(order []step) {
	for _, o := range order {
		c.Sort = append(c.Sort, map[bool]string{true: "-"}[o.Desc]+o.Name)
	}
}

func (s *serves[T]) cursor(last *T, order []step) string {
	at := cursor{ID: s.of.Meta(last).ID}
	at.sorted(order)
	for _, o := range order {
		at.Values = append(at.Values, o.value(last))
	}
	text, _ := json.Marshal(at) // texts, numbers and booleans
	return base64.RawURLEncoding.EncodeToString(text)
}

// value returns what the store sorts a record by; nil where it has no such value.
func (o *step) value(rec any) any {
	v := reflect.ValueOf(rec).Elem().FieldByIndex(o.Index)
	if v.IsZero() && (v.Kind() == reflect.String || v.Kind() == reflect.Pointer || isTime(o.Field)) {
		return nil // missing, as the store has it
	}
	return reflect.Indirect(v).Interface()
}

// beyond matches what follows a cursor. A cursor of another order, or one that was made up, is refused.
func (s *serves[T]) beyond(text string, order []step, errs *fault.List) store.Filter {
	var at, wanted cursor
	refuse := func() store.Filter {
		errs.Add("after", fault.Format, "after must be what an answer with the same sort gave as next")
		return store.AnyOf()
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	wanted.sorted(order)
	if err != nil || d.Decode(&at) != nil || !store.ValidID(at.ID) || !slices.Equal(at.Sort, wanted.Sort) || len(at.Values) != len(order) {
		return refuse()
	}
	var same, steps []store.Filter
	for i, o := range order {
		value, ok := o.typed(at.Values[i])
		if !ok {
			return refuse()
		}
		there, absent := store.Where(o.Order.Field, store.OpExists, true), store.Where(o.Order.Field, store.OpExists, false)
		equal, next := absent, there // what is missing comes first
		switch {
		case value == nil && o.Desc:
			next = store.AnyOf()
		case value != nil:
			equal = store.Where(o.Order.Field, store.OpEq, value)
			if next = store.Where(o.Order.Field, store.OpGt, value); o.Desc {
				next = store.AnyOf(store.Where(o.Order.Field, store.OpLt, value), absent)
			}
		}
		steps = append(steps, store.All(append(slices.Clone(same), next)...))
		same = append(same, equal)
	}
	after := store.AnyOf(append(steps, store.All(append(same, store.Where(store.F("id"), store.OpGt, at.ID))...))...)
	return store.All(after, bound(order, at.Values))
}

// bound says again where a range of an index begins, which engines do not see in alternatives.
func bound(order []step, values []any) store.Filter {
	if len(order) == 0 {
		return store.Filter{}
	}
	first := order[0]
	value, _ := first.typed(values[0])
	if _, isBool := value.(bool); value == nil || isBool {
		return store.Filter{}
	}
	if !first.Desc {
		return store.Where(first.Order.Field, store.OpGte, value)
	}
	if first.Rule.Required || first.Name == "created_at" || first.Name == "updated_at" { // else what is missing follows
		return store.Where(first.Order.Field, store.OpLte, value)
	}
	return store.Filter{}
}

// typed returns a value of a cursor as the store compares it.
func (o *step) typed(v any) (any, bool) {
	switch n := notation(o.Field); v := v.(type) {
	case string:
		return v, n == filters.Text
	case bool:
		return v, n == filters.Boolean
	case json.Number:
		whole, err := v.Int64()
		return whole, err == nil && (n == filters.Number || n == filters.Time)
	}
	return nil, v == nil
}
