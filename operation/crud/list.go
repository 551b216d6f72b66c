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

// listInput is the input of a list.
type listInput struct {
	operation.Following
	selection
	changesInput
}

// selection says which records are meant, and in which order.
type selection struct {
	Sort    string `json:"sort" rule:"max=600" doc:"Order: fields separated by commas, each with - before it for descending order. Records with equal values are in the order of their ids, reversed if the last field descends."`
	Q       string `json:"q" rule:"max=200" doc:"Only records that contain each of these words in a searched text, in upper or lower case; after the fifth word, or earlier if many fields are searched, the rest is one text."`
	Deleted bool   `json:"deleted" default:"false" doc:"Lists deleted records instead of live ones."`
}

func (s *handlers) list() operation.Row {
	row := s.row("list", http.MethodGet, s.Path, s.Things+" found")
	row.Summary, row.Description = "List "+strings.ToLower(s.Things), "Fields to sort by: "+s.ordering()+". Filters are written like those of campaigns. Records are in the order of their identifiers unless sort says otherwise."
	row.Title = titled(s.Things)
	row.Weight, row.IDs = operation.Heavy, []string{"list" + strings.ReplaceAll(s.Things, " ", "")}
	s.declareFilters(&row)
	row = operation.Typed(row, func(ctx context.Context, c *operation.Call, in listInput) (any, error) {
		if in.ChangedAfter != "" {
			return s.changed(ctx, c, in)
		}
		return s.page(ctx, c, in)
	})
	if s.logged() {
		row.Failures = append(row.Failures, operation.CursorGone())
	}
	s.declareSort(&row)
	row.Data, row.Example = reflect.New(s.model.list()).Elem().Interface(), operation.OnePage(s.model.example())
	return row
}

// declareFilters declares the filters of a row.
func (s *handlers) declareFilters(row *operation.Row) {
	key := s.of.KeyField()
	var names, told []string
	for i := range s.of.Fields {
		f := &s.of.Fields[i]
		if ref, ok := filterable(s.of, f); ok {
			names, told = append(names, f.Name), append(told, f.Name+" ("+filters.Values(ref.Type)+")")
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

// declareSort completes the parameters of a row that answers several records.
func (s *handlers) declareSort(row *operation.Row) {
	row.Params = s.applicable(row.Params)
	for i := range row.Params {
		if row.Params[i].Name == "sort" {
			row.Params[i].Default, row.Params[i].Names = s.Sort, s.sorts
		}
	}
}

// query returns the query of a list, and its filter and order separately.
func (s *handlers) query(
	ctx context.Context, c *operation.Call, in selection, errs *fault.List,
) (q store.Query, where store.Filter, order []sortStep, err error) {
	where, fields, err := s.where(ctx, c, in, errs)
	if err != nil { // without the definition no fields are known
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

func (s *handlers) page(ctx context.Context, c *operation.Call, in listInput) (any, error) {
	var errs fault.List
	q, where, order, err := s.query(ctx, c, in.selection, &errs)
	if err != nil {
		return nil, err
	}
	if len(errs) == 0 {
		if in.After, err = s.completeCursor(ctx, c, in.After, order, where); err != nil {
			return nil, err
		}
	}
	follows := in.Span(c, &q, &errs, func(position string) (store.Filter, bool) {
		if position == afterBuiltIn && s.BuiltIn != nil {
			return store.Filter{}, true
		}
		return s.afterCursor(position, order)
	})
	lead, builtIn := s.builtInPage(c, in)
	q.Limit, q.Offset = max(1, q.Limit-len(lead)), max(0, q.Offset-builtIn)
	if err := errs.Err(); err != nil {
		return nil, err
	}
	page, count, err := s.of.Collection.Page(ctx, s.workspace(c), q, where)
	if err != nil {
		return nil, err
	}
	found := append(lead, page.Records...)
	part, err := operation.PartOf(c, in.Following, follows, count+int64(builtIn), found, page.Left, page.Cut, func(last int) string {
		if last < len(lead) {
			return afterBuiltIn
		}
		next := s.cursor(found[last], order)
		if len(next) > maxCursor {
			next = cursor{ID: s.of.Meta(found[last]).ID}.encode(order)
		}
		return next
	})
	if err != nil {
		return nil, err
	}
	results, err := s.results(ctx, c, part.Results)
	return operation.Part[any]{
		Page: part.Page, Pages: part.Pages, Next: part.Next, Count: part.Count, Results: results,
	}, err
}

// afterBuiltIn is the cursor after the built-in records of a list.
const afterBuiltIn = "stored"

// builtInPage returns the built-in records of a page, and how many the list has.
func (s *handlers) builtInPage(c *operation.Call, in listInput) (lead []any, count int) {
	if in.Q != "" || in.Deleted || len(c.Query.Tree("filters")) > 0 {
		return nil, 0
	}
	all := s.builtIn(c)
	if in.After != "" {
		return nil, len(all)
	}
	return all[min(in.Offset(), len(all)):min(in.Offset()+in.Limit(), len(all))], len(all)
}

// where returns the filter of a list: the definition that the path names, Call.Narrow, the filters and the words of
// the caller; and the catalog of fields. Faults of the filters are noted in errs.
func (s *handlers) where(
	ctx context.Context, c *operation.Call, in selection, errs *fault.List,
) (_ store.Filter, fields catalog, err error) {
	known := &c.Known
	within, err := s.withinDefinition(ctx, c, known)
	if err != nil {
		return store.Filter{}, fields, err
	}
	where := []store.Filter{within}
	for _, narrow := range c.Narrow {
		filter, err := narrow(ctx, c)
		if err != nil {
			return store.Filter{}, fields, err
		}
		where = append(where, filter)
	}
	expr, _ := filters.FromQuery(c.Query.Tree("filters"), errs)
	names := expr.Fields()
	for name := range parseSort(in.Sort) {
		names = append(names, name)
	}
	if fields, err = s.catalog(ctx, c, names, known); err != nil {
		return store.Filter{}, fields, err
	}
	where = append(where, expr.Bind(fields, nil, errs))
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

// Each word is a condition on every searched field. Together with the filters and a cursor, these bounds keep a query
// within the conditions that the store allows.
const (
	mostWords      = 6
	mostConditions = 80
)

// wordsOf splits a text into at most most words; the last one holds the rest of the text.
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

// mostSearched bounds how many fields of a definition are searched, because each is read from every record.
const mostSearched = 20

// searched returns the fields that q searches. Of a definition these are its text fields, required ones first.
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
			if f := filters.Defined(key, defined[key].Type); f.Texts() && len(refs) < mostSearched {
				refs = append(refs, f.Ref)
			}
		}
	}
	return refs
}

// rank orders required fields before others.
func rank(f schema.Field) int { return map[bool]int{true: -1}[f.Required] }

// results returns the answers of records, never nil.
func (s *handlers) results(ctx context.Context, c *operation.Call, found []any) ([]any, error) {
	answers, err := s.show(ctx, c, found)
	return append([]any{}, answers...), err
}

// catalog is the catalog of fields that callers filter and sort by. Fields of the record take precedence over defined
// ones.
type catalog struct {
	of      *record.Resource
	defined schema.Fields
	seconds func(name string) bool // whether answers show a time as Unix seconds; nil: never
}

// Catalog returns the fields that filters on the records of an organization may name.
func Catalog(of *record.Resource, defined schema.Fields) filters.Catalog {
	return catalog{of: of, defined: defined}
}

// catalog returns the fields that a filter or an order may name. If the path names no definition, all definitions are
// read, but only if a name is not a field of the record.
func (s *handlers) catalog(
	ctx context.Context, c *operation.Call, names []string, known *record.Known,
) (catalog, error) {
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

// Field returns how to compare a field.
func (c catalog) Field(name string) (filters.Field, bool) {
	if n, own := c.of.Index(name); own {
		if ref, ok := filterable(c.of, &c.of.Fields[n]); ok {
			seconds := ref.Type == store.TypeTime && c.seconds != nil && c.seconds(name)
			return filters.Field{Name: name, Ref: ref, Seconds: seconds}, true
		}
	}
	f, defined := c.defined[name]
	return filters.Defined(name, f.Type), defined
}

// filterable returns how queries name and compare the field; false if callers may not filter by it.
func filterable(of *record.Resource, f *field.Field) (store.Field, bool) {
	ref, ok := of.Ref(f.Name)
	return ref, ok && !f.Use.Has(declare.Hidden) && (f.Use.Has(declare.Filter) || f.Rule.Unique)
}
