package crud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/api"
	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
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
		Name: "records", Shape: api.List, Required: true, Type: []map[string]any{}, Elements: most, Description: "The records.",
		Example: json.RawMessage("[" + string(one.Raw()) + "]"),
	}}
	row.Failures = append(row.Failures, api.Failure{Code: http.StatusUnprocessableEntity, Message: "Validation failed: records must be a list of 1 to 1000 objects", When: "there are no records, or too many"})
	row.Data, row.Example = Bulk{}, Bulk{Created: 1, Failed: 1, Results: []BulkResult{
		{Index: 0, ID: exampleID}, {Index: 1, Errors: []api.FieldError{{Field: s.fields[0].Name, Code: fault.Required, Message: s.fields[0].Name + " is required"}}},
	}}
	row.Handler, row.Joins = s.many, true
	return row
}

// many stores the records of the body that are in order, once more where somebody came between.
func (s *serves[T]) many(ctx context.Context, c *api.Call) (result api.Result, err error) {
	ctx = new(store.Basis).With(ctx)
	for n := range tries {
		if result, err = s.attempt(ctx, c, n); !errors.Is(err, errAgain) {
			break
		}
	}
	return result, err
}

// errAgain ends an attempt that stored nothing, since somebody came between.
var errAgain = fmt.Errorf("once more: %w", store.ErrConflict)

// attempt is one of many, of which the last one refuses what somebody has changed meanwhile. Errors: errAgain.
func (s *serves[T]) attempt(ctx context.Context, c *api.Call, n int) (api.Result, error) {
	store.Anew(ctx)
	bodies, errs := slices.Collect(strictjson.Elements(c.Body.Raw("records"))), slices.Clone(c.Unknown)
	if n := len(bodies); n == 0 || n > most {
		errs.Add("records", fault.Length, "records must be a list of 1 to %d objects", most)
	}
	if err := errs.Err(); err != nil {
		return api.Result{}, err
	}
	var known resource.Known
	if err := s.define(ctx, c, &known); err != nil {
		return api.Result{}, err
	}
	// One record at a time is a tree: those of all would take many times what was sent.
	var p strictjson.Parser
	entries, probes := make([]*entry[T], len(bodies)), make([]any, len(bodies))
	for i := range entries {
		entries[i] = &entry[T]{}
		probes[i] = s.probe(s.element(c, &p, bodies[i], &entries[i].errs))
	}
	if err := s.recognize(ctx, c, entries, probes); err != nil {
		return api.Result{}, err
	}
	for i, e := range entries {
		if e.rec == nil {
			e.rec = s.of.New().(*T)
			s.of.Meta(e.rec).ID = c.Workspace.NewID()
		} else {
			was := *e.rec
			e.was = &was
		}
		if body := s.element(c, &p, bodies[i], new(fault.List)); body.Is == strictjson.Object { // what is wrong with it was noted
			s.enter(ctx, c, e, body, &known)
			e.check.Take = nil // which holds the tree
		}
	}
	if err := s.stands(ctx, c, &known, entries); err != nil {
		return api.Result{}, err
	}
	return s.settle(ctx, c, entries, n)
}

// element reads a record of the body, with what callers may set of it; what else it has is wrong.
func (s *serves[T]) element(c *api.Call, p *strictjson.Parser, raw []byte, errs *fault.List) strictjson.Value {
	body, err := p.Parse(string(raw))
	var broken strictjson.Error
	switch {
	case errors.As(err, &broken): // the body was read already: there is too much of it
		errs.Add("records", fault.Length, "a record %s of it", string(broken))
		return body
	case body.Is != strictjson.Object:
		errs.Add("records", fault.Type, "a record must be an object")
		return body
	}
	body.Members = slices.DeleteFunc(body.Members, func(m strictjson.Member) bool {
		for i := range s.fields {
			if s.fields[i].Name == m.Name {
				return false
			}
		}
		api.Unknown(errs, m.Name)
		return true
	})
	return s.placed(c, body)
}

// probe returns a record with the values of a body that tell which record it means, and nothing else.
func (s *serves[T]) probe(body strictjson.Value) any {
	probe, ignored := s.of.Bare(), fault.List{}
	read := func(name string) {
		if at, ok := s.of.Index(name); ok {
			s.of.Fields[at].Read(body.Get(name), probe, &ignored)
		}
	}
	read(s.of.DefinitionField)
	for i := range s.of.Uniques {
		if u := &s.of.Uniques[i]; u.Identity != resource.Never {
			read(u.Shown)
		}
	}
	return probe
}

// recognize finds the records that the probes mean, live or not, by the values that tell them.
func (s *serves[T]) recognize(ctx context.Context, c *api.Call, entries []*entry[T], probes []any) error {
	for n := range s.of.Uniques {
		u := &s.of.Uniques[n]
		if u.Identity == resource.Never {
			continue
		}
		meant, number, group := map[string]*entry[T]{}, false, ""
		var values []string
		for i, e := range entries {
			probe := probes[i]
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
			e := meant[u.Value(&found[i])]
			if s.ending(c, &found[i]) {
				e.errs.Add(u.Shown, fault.Duplicate, "%s is that of a record that was deleted and is about to end: send it again in two hours", u.Shown)
				continue
			}
			e.rec = &found[i]
		}
	}
	return nil
}

// settle stores what is in order and answers what became of everything. Nobody comes between: what was changed meanwhile
// is errAgain, and in the last attempt a record that was is refused.
func (s *serves[T]) settle(ctx context.Context, c *api.Call, entries []*entry[T], attempt int) (api.Result, error) {
	var fresh, changed []*entry[T]
	refused := make(map[*entry[T]][]api.FieldError, len(entries))
	for _, e := range entries {
		err := s.complete(ctx, c, e)
		switch {
		case err != nil:
			if refused[e] = api.ErrorsOf(s.told(err)); len(refused[e]) == 0 {
				return api.Result{}, err
			}
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
		return api.Result{}, err
	}
	answer := func(context.Context) (api.Result, error) {
		return api.Result{Data: became(s.of, c, entries, refused)}, nil
	}
	if err := s.put(ctx, c, append(fresh, changed...), refused, attempt, answer); err != nil {
		for name := range (Bulk{}).counts() { // they are not known
			delete(c.AuditNote, name)
		}
		return api.Result{}, err
	}
	return c.Answer(ctx)
}

// became returns what becomes of the records where no more than these are refused, and notes how many that are.
func became[T any](of *resource.Of[T], c *api.Call, entries []*entry[T], refused map[*entry[T]][]api.FieldError) Bulk {
	out := Bulk{Results: make([]BulkResult, len(entries))}
	for i, e := range entries {
		out.Results[i] = BulkResult{Index: i, Errors: refused[e]}
		if len(refused[e]) > 0 {
			out.Failed++
			continue
		}
		out.Results[i].ID = of.Meta(e.rec).ID
		if e.was == nil {
			out.Created++
		} else {
			out.Updated++
		}
	}
	for name, n := range out.counts() {
		c.Note(name, strconv.Itoa(n))
	}
	return out
}

// counts are what the audit log tells of it.
func (b Bulk) counts() map[string]int {
	return map[string]int{"created": b.Created, "updated": b.Updated, "failed": b.Failed}
}

// anew is how many records of a bulk may be refused by the store while all others are tried anew, together.
const anew = 16

// put stores records in one write, without those that are refused, so that they are there with the answer or not at
// all. Where they are more rows than one write should have, or more of them are refused than are tried anew, it takes
// several writes, of which the last has the answer; what is in the way of one of these then is told of its records.
func (s *serves[T]) put(ctx context.Context, c *api.Call, entries []*entry[T], refused map[*entry[T]][]api.FieldError, attempt int, answer func(context.Context) (api.Result, error)) error {
	recs := make([]*T, len(entries))
	for i, e := range entries {
		recs[i] = e.rec
	}
	stored := false
	for tried := 0; len(recs) > 0; tried++ {
		n := s.in(c).Portion(recs)
		if n == len(recs) {
			c.Closes(answer)
		}
		err := errTime
		if at, ends := ctx.Deadline(); !stored || !ends || time.Until(at) > answerTime {
			err = s.in(c).Save(ctx, recs[:n]...)
		}
		if err == nil {
			if n == len(recs) {
				return nil
			}
			recs, entries, stored, tried = recs[n:], entries[n:], true, -1
			continue
		}
		c.Closes(nil)
		bad := meant(err, n)
		if !stored && s.passed(err, bad, attempt) {
			return errAgain
		}
		if stored && bad < 0 && ctx.Err() == nil && resendable(err) { // those before them are stored, and told of
			for _, e := range entries {
				refused[e] = api.ErrorsOf(unstored(err))
			}
			break
		}
		if bad < 0 {
			return err
		}
		if refused[entries[bad]] = api.ErrorsOf(s.told(apart(err))); len(refused[entries[bad]]) == 0 {
			return err
		}
		if tried >= anew && bad > 1 { // the one before it stays, for the answer to be stored with
			switch err := s.in(c).Save(ctx, recs[:bad-1]...); {
			case err == nil:
				recs, entries, bad, stored = recs[bad-1:], entries[bad-1:], 1, true
			case meant(err, bad) < 0:
				return err
			}
		}
		recs, entries = slices.Delete(recs, bad, bad+1), slices.Delete(entries, bad, bad+1)
	}
	c.Closes(answer)
	return nil
}

// meant returns which of n records a write was refused for; -1: for none of them.
func meant(err error, n int) int {
	var dup *store.DuplicateError
	var conflict *store.ConflictError
	at := -1
	switch {
	case errors.As(err, &dup):
		at = dup.Position
	case errors.As(err, &conflict):
		at = conflict.Position
	}
	if at >= n {
		return -1
	}
	return at
}

// passed reports whether somebody else came between, and another attempt would see what they did: it may change the record of
// theirs that is in the way, or not stand on what is gone. A record that is not shown to the caller is in the way again.
func (s *serves[T]) passed(err error, bad, attempt int) bool {
	const mostHidden = 3
	var dup *store.DuplicateError
	if errors.As(err, &dup) {
		return bad >= 0 && attempt < mostHidden && slices.ContainsFunc(s.of.Uniques, func(u resource.Unique) bool {
			return u.Identity != resource.Never && slices.Contains(dup.Fields, u.Field)
		})
	}
	return errors.Is(err, store.ErrConflict) && attempt < tries-1
}

// answerTime is what a bulk that has stored some of its records leaves of its time for its answer.
const answerTime = 2 * time.Second

var errTime = fmt.Errorf("%w: the time of the call is over", store.ErrSlow)

// resendable reports whether records that a write was refused for may be stored when they are sent again.
func resendable(err error) bool {
	return errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrSlow)
}

// unstored returns the error of a record that was not stored, though others of the bulk were.
func unstored(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return apart(err)
	}
	return fault.One("id", "unavailable", "the record was not stored, for there was no time or no way to do so: send it again")
}

// apart returns the error of one record among others, whose answer is no conflict for that.
func apart(err error) error {
	if errors.Is(err, store.ErrConflict) {
		return fault.One("id", fault.Duplicate, "the record was changed by somebody else at the same time: send it again")
	}
	return err
}
