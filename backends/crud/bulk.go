package crud

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/api"
	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// most is how many records a bulk takes.
const most = 1000

// Bulk is what became of many records.
type Bulk struct {
	Created int          `json:"created" doc:"How many records are new."`
	Updated int          `json:"updated" doc:"How many records were there, and were changed."`
	Failed  int          `json:"failed" doc:"How many records were refused, of which nothing is stored."`
	Results []BulkResult `json:"results" doc:"What became of each record, in the order in which they were sent."`
}

// BulkResult is what became of one record.
type BulkResult struct {
	Index  int              `json:"index" doc:"Where it is among those sent, from 0."`
	ID     string           `json:"id,omitempty" doc:"Its identifier; left out where it was refused."`
	Errors []api.FieldError `json:"errors,omitempty" doc:"Every problem of a record that was refused."`
}

func (s *serves[T]) bulk() api.Operation {
	row := s.row("bulk", http.MethodPost, s.Path+"/bulk", s.Things+" updated")
	things := strings.ToLower(s.Things)
	row.Summary, row.Weight, row.BodyLimit = "Create and change many "+things, api.Heavy, api.MaxBulkLimit
	row.Description = "Takes up to " + strconv.Itoa(most) + " records as they are created one by one, and stores those that are in order; each has a result of its own. "
	var by []string
	for _, u := range s.of.Uniques {
		if u.Identity != resource.Never {
			by = append(by, u.Shown)
		}
	}
	if len(by) > 0 {
		row.Description += "A record with the " + strings.Join(by, " or ") + " of one that is there changes that one, and brings it back where it was deleted. Fields that it does not give stay as they are then."
	}
	one := strictjson.Value{Is: strictjson.Object}
	for _, f := range s.fields {
		if f.Example != "" && f.Rule.Ref == "" {
			one.Members = append(one.Members, strictjson.Member{Name: f.Name, Value: f.Literal(f.Example)})
		}
	}
	row.Body = []api.Field{{
		Name: "records", Shape: api.List, Required: true, Type: []map[string]any{}, Description: "The records.",
		Example: json.RawMessage("[" + string(one.Raw()) + "]"),
	}}
	row.Failures = append(row.Failures, api.Failure{Code: http.StatusUnprocessableEntity, Message: "Validation failed: records must be a list of 1 to 1000 objects", When: "there are no records, or too many"})
	row.Data, row.Example = Bulk{}, Bulk{Created: 1, Failed: 1, Results: []BulkResult{
		{Index: 0, ID: exampleID}, {Index: 1, Errors: []api.FieldError{{Field: s.fields[0].Name, Code: fault.Required, Message: s.fields[0].Name + " is required"}}},
	}}
	row.Handler = func(ctx context.Context, c *api.Call) (api.Result, error) {
		out, err := s.many(ctx, c)
		return api.Result{Data: out}, err
	}
	return row
}

// many stores the records of the body that are in order.
func (s *serves[T]) many(ctx context.Context, c *api.Call) (Bulk, error) {
	bodies := c.Body.Value("records")
	if n := len(bodies.Items); bodies.Is != strictjson.Array || n == 0 || n > most {
		return Bulk{}, fault.One("records", fault.Length, "records must be a list of 1 to %d objects", most)
	}
	var known resource.Known
	if err := s.define(ctx, c, &known); err != nil {
		return Bulk{}, err
	}
	entries := make([]*entry[T], len(bodies.Items))
	for i := range entries {
		entries[i] = &entry[T]{}
		bodies.Items[i] = s.settable(c, bodies.Items[i], &entries[i].errs)
	}
	if err := s.recognize(ctx, c, entries, bodies.Items); err != nil {
		return Bulk{}, err
	}
	for i, e := range entries {
		if e.rec == nil {
			e.rec = s.of.New().(*T)
			s.of.Meta(e.rec).ID = c.Workspace.NewID()
		} else {
			was := *e.rec
			e.was = &was
		}
		if len(e.errs) == 0 {
			s.enter(ctx, c, e, bodies.Items[i], &known)
		}
	}
	if err := s.refers(ctx, c, entries); err != nil {
		return Bulk{}, err
	}
	return s.settle(ctx, c, entries)
}

// settable returns an object with what callers may set of a record; what else it has is wrong.
func (s *serves[T]) settable(c *api.Call, body strictjson.Value, errs *fault.List) strictjson.Value {
	if body.Is != strictjson.Object {
		errs.Add("records", fault.Type, "a record must be an object")
		return body
	}
	body.Members = slices.DeleteFunc(slices.Clone(body.Members), func(m strictjson.Member) bool {
		for i := range s.fields {
			if s.fields[i].Name == m.Name {
				return false
			}
		}
		errs.Add(texts.Clip(m.Name), fault.Unknown, "%q is no field that can be set here", texts.Clip(m.Name))
		return true
	})
	return s.placed(c, body)
}

// recognize finds the records that bodies mean, live or not, by the values that tell them.
func (s *serves[T]) recognize(ctx context.Context, c *api.Call, entries []*entry[T], bodies []strictjson.Value) error {
	for n := range s.of.Uniques {
		u := &s.of.Uniques[n]
		if u.Identity == resource.Never {
			continue
		}
		meant, number, group := map[string]*entry[T]{}, false, ""
		var values []string
		for i, e := range entries {
			probe, ignored := s.of.Bare(), fault.List{}
			for _, name := range []string{u.Shown, s.of.DefinitionField} {
				if at, ok := s.of.Index(name); ok {
					s.of.Fields[at].Read(bodies[i].Get(name), probe, &ignored)
				}
			}
			value := u.Value(probe)
			switch {
			case value == "" || e.rec != nil:
			case meant[value] != nil:
				e.errs.Add(u.Shown, fault.Duplicate, "%s is that of an earlier record of the list", u.Shown)
			default:
				meant[value], number, group = e, u.Number(probe), u.Group(probe)
				values = append(values, value)
			}
		}
		if len(values) == 0 {
			continue
		}
		found, err := s.in(c).Find(ctx, store.Query{Filter: u.Filter(group, values, number), State: store.Either, Limit: len(values)})
		if err != nil {
			return err
		}
		for i := range found {
			meant[u.Value(&found[i])].rec = &found[i]
		}
	}
	return nil
}

// settle stores what is in order and returns what became of everything. Nobody comes between: a record
// that was changed meanwhile is refused.
func (s *serves[T]) settle(ctx context.Context, c *api.Call, entries []*entry[T]) (Bulk, error) {
	var fresh, changed []*entry[T]
	errs := make(map[*entry[T]]error, len(entries))
	for _, e := range entries {
		switch err := s.complete(ctx, c, e); {
		case err != nil:
			errs[e] = err
		case e.was == nil:
			fresh = append(fresh, e)
		default:
			changed = append(changed, e)
		}
	}
	added := make([]any, len(fresh))
	for i, e := range fresh {
		s.of.Fill(e.rec)
		added[i] = e.rec
	}
	if err := s.of.Number(ctx, c.Workspace, added); err != nil {
		return Bulk{}, err
	}
	s.put(fresh, errs, func(recs []*T) error { return s.in(c).Insert(ctx, recs...) })
	s.put(changed, errs, func(recs []*T) error { return s.in(c).Replace(ctx, recs...) })
	out := Bulk{Results: make([]BulkResult, len(entries))}
	for i, e := range entries {
		result := BulkResult{Index: i, ID: s.of.Meta(e.rec).ID}
		if err := errs[e]; err != nil {
			if result.ID, result.Errors = "", api.ErrorsOf(s.told(err)); len(result.Errors) == 0 {
				return Bulk{}, err
			}
			out.Failed++
		} else if e.was == nil {
			out.Created++
		} else {
			out.Updated++
		}
		out.Results[i] = result
	}
	for name, n := range map[string]int{"created": out.Created, "updated": out.Updated, "failed": out.Failed} {
		c.Note(name, strconv.Itoa(n))
	}
	return out, nil
}

// put writes records together, and those around one that is refused without it, each at most twice.
func (s *serves[T]) put(entries []*entry[T], errs map[*entry[T]]error, write func([]*T) error) {
	recs := make([]*T, len(entries))
	for i, e := range entries {
		recs[i] = e.rec
	}
	for start := 0; start < len(recs); {
		err := write(recs[start:])
		var dup *store.DuplicateError
		switch {
		case err == nil:
			return
		case errors.As(err, &dup) && dup.Position < len(recs)-start:
			bad := start + dup.Position
			if bad > start && write(recs[start:bad]) != nil {
				s.alone(entries[start:bad], errs, write)
			}
			errs[entries[bad]] = dup
			start = bad + 1
		default:
			s.alone(entries[start:], errs, write)
			return
		}
	}
}

// alone writes records one by one.
func (s *serves[T]) alone(entries []*entry[T], errs map[*entry[T]]error, write func([]*T) error) {
	for _, e := range entries {
		switch err := write([]*T{e.rec}); {
		case errors.Is(err, store.ErrConflict):
			errs[e] = fault.One("id", fault.Duplicate, "the record was changed by somebody else at the same time: send it again")
		case err != nil:
			errs[e] = err
		}
	}
}
