package crud

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/declare"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/filters"
)

// listing is what a list is asked for.
type listing struct {
	operation.Following
	asking
}

// asking says which records are meant, and in which order.
type asking struct {
	Sort    string `json:"sort" rule:"max=600" doc:"Order: fields joined by commas, - before one that descends. Ties are in the order of ids, the reverse one where the last field descends."`
	Q       string `json:"q" rule:"max=200" doc:"Only records that have each of these words somewhere in what people read, in upper or lower case; after the fifth, or earlier where many fields are searched, the rest is one text."`
	Deleted bool   `json:"deleted" default:"false" doc:"Lists records that were deleted instead of live ones."`
}

func (s *handlers) list() operation.Row {
	row := s.row("list", http.MethodGet, s.Path, s.Things+" found")
	row.Summary, row.Description = "List "+strings.ToLower(s.Things), "Fields to sort by: "+s.ordering()+". Filters are written as those of campaigns; records of one page are in the order of their identifiers unless sort says another."
	row.Weight, row.IDs = operation.Heavy, []string{"list" + strings.ReplaceAll(s.Things, " ", "")}
	s.filtered(&row)
	row = operation.Typed(row, func(ctx context.Context, c *operation.Call, in listing) (any, error) { return s.page(ctx, c, in) })
	s.sorted(&row)
	row.Data, row.Example = reflect.New(s.model.list()).Elem().Interface(), operation.OnePage(s.model.example())
	return row
}

// filtered declares the filters of a row.
func (s *handlers) filtered(row *operation.Row) {
	key := s.of.KeyField()
	var names, told []string
	for i := range s.of.Fields {
		if f := &s.of.Fields[i]; asked(f) {
			names, told = append(names, f.Name), append(told, f.Name+" ("+notation(f).String()+")")
		}
	}
	defined := map[bool]string{true: ", and those that the organization defines"}[s.of.DefinedBy != ""]
	row.Params = append(row.Params, operation.Param{
		Name: "filters", In: operation.InQuery, Shape: operation.Tree, Names: names, Defined: defined != "", Example: "filters[" + key.Name + "]=" + s.model.named(key),
		Description: "filters[<field>]=<value> or filters[<field>][<operator>]=<value>. Fields are " + strings.Join(told, ", ") + defined + ".",
	})
	row.Failures = append(row.Failures, operation.Failure{
		Code: http.StatusUnprocessableEntity, Message: "Validation failed: " + s.wrongSort(), When: "a parameter has an unacceptable value",
	})
}

// sorted completes the parameters of a row that answers with several records.
func (s *handlers) sorted(row *operation.Row) {
	row.Params = s.offered(row.Params)
	for i := range row.Params {
		if row.Params[i].Name == "sort" {
			row.Params[i].Default, row.Params[i].Names = s.Sort, s.sorts
		}
	}
}

// query returns what is asked of the store, and of that where and order by themselves.
func (s *handlers) query(ctx context.Context, c *operation.Call, in asking, errs *fault.List) (q store.Query, where store.Filter, order []step, err error) {
	where, fields, err := s.where(ctx, c, in, errs)
	if err != nil { // of a definition that is missing there are no fields
		return q, where, nil, err
	}
	order = s.order(cmp.Or(in.Sort, s.Sort), fields, errs)
	q = store.Query{Filter: where, State: stateOf(in.Deleted)}
	for _, o := range order {
		q.Sort = append(q.Sort, o.Order)
	}
	if descends(order) {
		q.Sort = append(q.Sort, store.Desc("id"))
	}
	return q, where, order, err
}

func (s *handlers) page(ctx context.Context, c *operation.Call, in listing) (any, error) {
	var errs fault.List
	q, where, order, err := s.query(ctx, c, in.asking, &errs)
	if err != nil {
		return nil, err
	}
	if len(errs) == 0 {
		if in.After, err = s.whole(ctx, c, in.After, order, where); err != nil {
			return nil, err
		}
	}
	follows := in.Span(c, &q, &errs, func(place string) (store.Filter, bool) {
		if place == stored && s.BuiltIn != nil {
			return store.Filter{}, true
		}
		return s.beyond(place, order)
	})
	lead, builtIn := s.leading(c, in)
	q.Limit, q.Offset = max(1, q.Limit-len(lead)), max(0, q.Offset-builtIn)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	page, count, err := s.of.Collection.Page(ctx, s.in(c), q, where)
	if err != nil {
		return nil, err
	}
	found := append(lead, page.Records...)
	part, err := operation.PartOf(c, in.Following, follows, count+int64(builtIn), found, page.Left, page.Cut, func(last int) string {
		if last < len(lead) {
			return stored
		}
		next := s.cursor(found[last], order)
		if len(next) > longest {
			next = cursor{ID: s.of.Meta(found[last]).ID}.in(order)
		}
		return next
	})
	if err != nil {
		return nil, err
	}
	results, err := s.results(ctx, c, part.Results)
	return operation.Part[any]{Page: part.Page, Pages: part.Pages, Next: part.Next, Count: part.Count, Results: results}, err
}

// stored is the cursor where records begin that are not built in.
const stored = "stored"

// leading returns the built-in records of a page, and how many the list has.
func (s *handlers) leading(c *operation.Call, in listing) (lead []any, count int) {
	if in.Q != "" || in.Deleted || len(c.Query.Tree("filters")) > 0 {
		return nil, 0
	}
	all := s.builtIn(c)
	if in.After != "" {
		return nil, len(all)
	}
	return all[min(in.Offset(), len(all)):min(in.Offset()+in.Limit(), len(all))], len(all)
}

// where returns what is listed: within the definition of the path, as the module narrows it, by the
// filters and by the words looked for; and the fields that there are. What is wrong with the filters is noted.
func (s *handlers) where(ctx context.Context, c *operation.Call, in asking, errs *fault.List) (_ store.Filter, fields catalog, err error) {
	known := &c.Known
	where := make([]store.Filter, 3)
	if where[0], err = s.within(ctx, c, known); err != nil {
		return store.Filter{}, fields, err
	}
	if s.Where != nil {
		if where[1], err = s.Where(ctx, c); err != nil {
			return store.Filter{}, fields, err
		}
	}
	expr, _ := filters.FromQuery(c.Query.Tree("filters"), errs)
	names := expr.Fields()
	for name := range sorting(in.Sort) {
		names = append(names, name)
	}
	if fields, err = s.catalog(ctx, c, names, known); err != nil {
		return store.Filter{}, fields, err
	}
	where[2] = expr.Bind(fields, nil, errs)
	refs := s.searched(c, known)
	for _, word := range wordsOf(in.Q, min(mostWords, mostConditions/max(1, len(refs)))) {
		var somewhere []store.Filter
		for _, ref := range refs {
			somewhere = append(somewhere, store.Where(ref, store.OpContainsFold, word))
		}
		where = append(where, store.AnyOf(somewhere...))
	}
	return store.All(where...), fields, nil
}

// Each word is a condition on every field that is searched. With filters and a place in an order a question has room
// for them.
const (
	mostWords      = 6
	mostConditions = 80
)

// wordsOf returns the words of a text, at most so many: those of the end stay together.
func wordsOf(text string, most int) (words []string) {
	text = strings.TrimSpace(text)
	for text != "" {
		word := text
		if end := strings.IndexFunc(text, unicode.IsSpace); end > 0 && len(words)+1 < most {
			word = text[:end]
		}
		words, text = append(words, word), strings.TrimSpace(text[len(word):])
	}
	return words
}

// mostSearched bounds the fields of one definition that are looked into: each is read of every record.
const mostSearched = 20

// searched returns where q looks. Of the values of a definition those are text fields, the required ones first.
func (s *handlers) searched(c *operation.Call, known *record.Known) (refs []store.Field) {
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

// results returns the answers of records; of none an empty list.
func (s *handlers) results(ctx context.Context, c *operation.Call, found []any) ([]any, error) {
	answers, err := s.show(ctx, c, found)
	return append([]any{}, answers...), err
}

// catalog has the fields that callers filter and sort by; those of the record go before defined ones.
type catalog struct {
	of      *record.Resource
	defined schema.Fields
	seconds func(name string) bool // whether answers show a time as Unix seconds; nil: none
}

// Catalog returns the fields that filters on records may name where the organization has defined those.
func Catalog(of *record.Resource, defined schema.Fields) filters.Catalog {
	return catalog{of: of, defined: defined}
}

// catalog returns the fields that a filter or an order may name. Definitions that the path does not name are read
// where one of the names is none of every record.
func (s *handlers) catalog(ctx context.Context, c *operation.Call, names []string, known *record.Known) (catalog, error) {
	all := catalog{of: s.of, seconds: s.model.seconds}
	if s.of.DefinedBy == "" || !slices.ContainsFunc(names, func(name string) bool { _, own := all.Field(name); return !own }) {
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
	if n, ok := c.of.Index(name); ok && asked(&c.of.Fields[n]) {
		out := filters.Field{Name: name, Ref: store.F(c.of.Stored(name)), Notation: notation(&c.of.Fields[n])}
		out.Seconds = out.Notation == filters.Time && c.seconds != nil && c.seconds(name)
		return out, true
	}
	f, defined := c.defined[name]
	return filters.Defined(name, f.Type), defined
}

// asked reports whether callers filter by the field.
func asked(f *field.Field) bool {
	return !f.Use.Has(declare.Hidden) && (f.Use.Has(declare.Filter) || f.Rule.Unique) && notation(f) != 0
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
