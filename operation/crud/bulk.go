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

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
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
	Index  int                    `json:"index" doc:"Where it is among those sent, from 0."`
	ID     string                 `json:"id,omitempty" doc:"Its identifier; left out where it was refused."`
	Errors []operation.FieldError `json:"errors,omitempty" doc:"Every problem of a record that was refused."`
}

func (s *handlers) bulk() operation.Row {
	row := s.row("bulk", http.MethodPost, s.Path+"/bulk", s.Things+" updated")
	things := strings.ToLower(s.Things)
	row.Summary, row.Weight, row.BodyLimit = "Create and change many "+things, operation.Heavy, operation.MaxBulkLimit
	row.Description = "Takes up to " + strconv.Itoa(most) + " records as they are created one by one, and stores those that are in order; each has a result of its own. "
	var by []string
	for _, u := range s.of.Identifying()[1:] {
		by = append(by, u.Shown)
	}
	row.Description += "A record with the " + strings.Join(append(by, "id"), " or ") + " of one that is there changes that one, and brings it back where it was deleted. Fields that it does not give stay as they are then. " + nothingDone
	one := strictjson.Value{Is: strictjson.Object}
	for _, f := range s.fields {
		if f.Example != "" && f.Rule.Ref == "" {
			one.Members = append(one.Members, strictjson.Member{Name: f.Name, Value: f.Literal(f.Example)})
		}
	}
	row.Body = []operation.Field{{
		Name: "records", Shape: operation.List, Required: true, Type: []map[string]any{}, Elements: most, Description: "The records.",
		Example: json.RawMessage("[" + string(one.Raw()) + "]"),
	}}
	row.Failures = append(row.Failures, operation.Failure{Code: http.StatusUnprocessableEntity, Message: "Validation failed: records must be a list of 1 to 1000 objects", When: "there are no records, or too many"})
	row.Failures = append(row.Failures, s.undone(Bulk{Failed: 1, Results: []BulkResult{{Errors: []operation.FieldError{{Field: s.fields[0].Name, Code: fault.Required, Message: s.fields[0].Name + " is required"}}}}}))
	row.Data, row.Example = Bulk{}, Bulk{Created: 1, Failed: 1, Results: []BulkResult{
		{Index: 0, ID: exampleID}, {Index: 1, Errors: []operation.FieldError{{Field: s.fields[0].Name, Code: fault.Required, Message: s.fields[0].Name + " is required"}}},
	}}
	row.Handler, row.Joins = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		return s.many(ctx, c, s.attempt)
	}, true
	return row
}

// nothingDone ends the description of a row that takes many records.
const nothingDone = "Where every one of them is refused, the status is failed; data is the same."

// undone documents the answer of a bulk in which nothing was done.
func (s *handlers) undone(data any) operation.Failure {
	return operation.Failure{Code: http.StatusOK, Message: s.unchanged(), When: "every record was refused, each for the reason in its result", Data: data}
}

func (s *handlers) unchanged() string {
	return "No " + s.Things + " were changed: every one of them was refused"
}

// many makes the attempts at a bulk: once more where somebody came between. One in which nothing was done is a failure.
func (s *handlers) many(ctx context.Context, c *operation.Call, attempt func(context.Context, *operation.Call, int) (operation.Result, error)) (result operation.Result, err error) {
	for n := range tries {
		if result, err = attempt(ctx, c, n); !errors.Is(err, errAgain) {
			break
		}
	}
	if done, ok := result.Data.(interface{ nothing() bool }); err == nil && ok && done.nothing() {
		return operation.Result{}, operation.Failed(s.unchanged(), result.Data)
	}
	return result, err
}

func (b Bulk) nothing() bool { return b.Created+b.Updated == 0 }

// errAgain ends an attempt that stored nothing, since somebody came between.
var errAgain = fmt.Errorf("once more: %w", store.ErrConflict)

// attempt is one of many, of which the last one refuses what somebody has changed meanwhile. Errors: errAgain.
func (s *handlers) attempt(ctx context.Context, c *operation.Call, n int) (operation.Result, error) {
	bodies, errs := slices.Collect(strictjson.Elements(c.Body.Raw("records"))), slices.Clone(c.Unknown)
	if n := len(bodies); n == 0 || n > most {
		errs.Add("records", fault.Length, "records must be a list of 1 to %d objects", most)
	}
	if err := errs.Err(); err != nil {
		return operation.Result{}, err
	}
	var known record.Known
	within, err := s.define(ctx, c, &known)
	if err != nil {
		return operation.Result{}, err
	}
	// One record at a time is a tree: those of all would take many times what was sent.
	var p strictjson.Parser
	entries, probes := make([]*entry, len(bodies)), make([]any, len(bodies))
	for i := range entries {
		entries[i] = &entry{}
		body, id := s.element(c, &p, bodies[i], &entries[i].errs)
		probes[i] = s.probe(body, id)
	}
	b := s.begin(c, n, entries, within, store.Either)
	b.finish, b.answer = s.complete, func(context.Context) (operation.Result, error) {
		out := became(s.of, entries, b.refused)
		note(c, map[string]int{"created": out.Created, "updated": out.Updated, "failed": out.Failed})
		return operation.Result{Data: out}, nil
	}
	return b.run(ctx, probes, func(part []*entry, from int) error {
		for i, e := range part {
			s.prepare(ctx, c, &p, e, bodies[from+i], &known)
		}
		return s.require(ctx, c, &b.need, &known, part)
	})
}

// begin returns one attempt at the entries; within matches all that they can mean, in that state.
func (s *handlers) begin(c *operation.Call, attempt int, entries []*entry, within store.Filter, state store.State) *bulk {
	ways := s.of.Identifying()
	b := &bulk{
		s: s, c: c, attempt: attempt, entries: entries, ways: ways, within: within, state: state,
		meant: make([]map[string]*entry, len(ways)), means: map[string]*entry{}, refused: map[*entry][]operation.FieldError{},
	}
	for n := range b.meant {
		b.meant[n] = map[string]*entry{}
	}
	return b
}

// run recognizes the entries, has them prepared and stores them: all in one write, or in as many as they need.
func (b *bulk) run(ctx context.Context, probes []any, prepare func(part []*entry, from int) error) (operation.Result, error) {
	entries := b.entries
	for from, many := 0, len(entries); from < len(entries); {
		part, writes := entries[from:from+many], b.writes
		fits, err := many, b.late(ctx)
		if err == nil {
			fits, err = b.recognize(ctx, part, probes[from:from+many])
		}
		if err == nil && fits < many {
			many = fits
			continue
		}
		if err == nil {
			if err = prepare(part, from); err == nil {
				err = b.settle(ctx, part, from+many == len(entries))
			}
		}
		if err != nil && writes > 0 && b.writes == writes && ctx.Err() == nil && resendable(err) { // those before them are stored, and told of
			b.refuse(entries[from:], err)
			break
		}
		if err != nil {
			return operation.Result{}, err
		}
		from += many
		many = min(b.next(many), len(entries)-from)
	}
	if b.result == nil { // the last of them were refused
		return b.answer(ctx)
	}
	return *b.result, nil
}

// prepare makes what is stored of an entry that has been recognized, and checks it, as far as that is known already.
func (s *handlers) prepare(ctx context.Context, c *operation.Call, p *strictjson.Parser, e *entry, raw []byte, known *record.Known) {
	if e.rec == nil {
		e.rec = s.of.New()
		s.of.Meta(e.rec).ID = c.Workspace.NewID()
	} else {
		e.was = s.of.Clone(e.rec)
	}
	if body, _ := s.element(c, p, raw, new(fault.List)); body.Is == strictjson.Object { // what is wrong with it was noted
		s.enter(ctx, c, e, body, known)
		e.check.Take = nil // which holds the tree
	}
}

// bulkBytes is how many bytes of stored records a bulk changes together: those of large ones are not all in memory.
const bulkBytes = 4 * store.BatchBytes

// bulk is one attempt at many records.
type bulk struct {
	s       *handlers
	c       *operation.Call
	attempt int
	entries []*entry
	ways    []record.Unique     // by which an entry means a record, the identifier first
	within  store.Filter        // matches all that they can mean,
	state   store.State         // in that state
	meant   []map[string]*entry // by the values of each of the ways
	means   map[string]*entry   // by the identifier of what they mean
	need    store.Preconditions // of the part that is stored next
	finish  func(context.Context, *operation.Call, *store.Preconditions, *entry) error
	answer  func(context.Context) (operation.Result, error)
	refused map[*entry][]operation.FieldError
	result  *operation.Result // once a commit has stored it
	writes  int               // that stored some of them
	size    int64             // of the stored records that were recognized last
	roomed  int64             // bytes for which room was found
}

// refuse tells of entries that they are not stored, though others are.
func (b *bulk) refuse(entries []*entry, err error) {
	for _, e := range entries {
		b.refused[e] = operation.ErrorsOf(unstored(err))
	}
}

// late returns errTime where some are stored, and the rest of the time is for the answer.
func (b *bulk) late(ctx context.Context) error {
	if at, ends := ctx.Deadline(); b.writes > 0 && ends && time.Until(at) <= answerTime {
		return errTime
	}
	return nil
}

// next returns how many entries may be recognized next, when so many were before.
func (b *bulk) next(before int) int {
	return int(max(min(int64(before)*bulkBytes/max(b.size, 1), most), 1))
}

// element reads a record of the body, with what callers may set of it, and the identifier that it gives, "" where it
// gives none; what else it has is wrong.
func (s *handlers) element(c *operation.Call, p *strictjson.Parser, raw []byte, errs *fault.List) (read strictjson.Value, id string) {
	body, err := p.Parse(string(raw))
	var broken strictjson.Error
	switch {
	case errors.As(err, &broken): // the body was read already: there is too much of it
		errs.Add("records", fault.Length, "a record %s of it", string(broken))
		return body, ""
	case body.Is != strictjson.Object:
		errs.Add("records", fault.Type, "a record must be an object")
		return body, ""
	}
	body.Members = slices.DeleteFunc(body.Members, func(m strictjson.Member) bool {
		for i := range s.fields {
			if s.fields[i].Name == m.Name {
				return false
			}
		}
		switch {
		case m.Name != "id":
			operation.Unknown(errs, m.Name)
		case m.Value.Is != strictjson.Text || !store.ValidID(m.Value.Text):
			errs.Add("id", fault.Format, "id must be an identifier of 24 lower-case hexadecimal digits")
		default:
			id = m.Value.Text
		}
		return true
	})
	return s.placed(c, body), id
}

// probe returns a record with the identifier, and the values of a body that tell which record it means, and nothing
// else.
func (s *handlers) probe(body strictjson.Value, id string) any {
	probe, ignored := s.of.Bare(), fault.List{}
	read := func(name string) {
		if at, ok := s.of.Index(name); ok {
			s.of.Fields[at].Read(body.Get(name), probe, &ignored)
		}
	}
	read(s.of.DefinitionField)
	for _, u := range s.of.Identifying()[1:] {
		read(u.Shown)
	}
	s.of.Meta(probe).ID = id
	return probe
}

// recognize finds the records that the probes mean, live or not, by the values that tell them. Where they are more than
// a bulk changes together, it returns how many of the entries to try instead, and has recognized none.
func (b *bulk) recognize(ctx context.Context, entries []*entry, probes []any) (fits int, err error) {
	s, c := b.s, b.c
	b.need.Reset()
	b.size = 0
	wrong := make([]int, len(entries))
	for i, e := range entries {
		wrong[i] = len(e.errs)
	}
	for n := range b.ways {
		u, meant, number, group := &b.ways[n], b.meant[n], false, ""
		var values []string
		for i, e := range entries {
			probe := probes[i]
			value := u.Value(probe)
			switch {
			case value == "" || e.rec != nil || n > 0 && s.of.Meta(probe).ID != "": // what gives an identifier means that one
			case meant[value] != nil && meant[value] != e:
				e.errs.Add(u.Shown, fault.Duplicate, "%s is that of an earlier record of the list", u.Shown)
			default:
				meant[value], number, group = e, u.Number(probe), u.Group(probe)
				values = append(values, value)
			}
		}
		if len(values) == 0 {
			continue
		}
		which := u.Filter(group, values, number)
		if n == 0 {
			which = store.All(which, b.within)
		}
		found, err := s.of.Collection.FindPart(ctx, s.in(c), store.Query{
			Filter: which, State: b.state, Limit: len(values), Bytes: bulkBytes, Reserved: b.roomed,
		})
		if err != nil {
			return 0, err
		}
		b.roomed, b.size = max(b.roomed, found.Size), b.size+found.Size
		if found.Cut && len(entries) > 1 {
			for i, e := range entries {
				e.rec, e.errs = nil, e.errs[:wrong[i]]
			}
			return max(min(len(found.Records), len(entries)-1), 1), nil
		}
		for i := range found.Records {
			rec := found.Records[i]
			b.recognized(meant[u.Value(rec)], u.Shown, rec)
		}
		for _, value := range values {
			if e := meant[value]; n == 0 && e.rec == nil && len(e.errs) == 0 {
				e.errs.Add("id", fault.Unknown, "%s", s.missing())
			}
		}
	}
	return len(entries), nil
}

// recognized notes that an entry means the record, which it names by that field.
func (b *bulk) recognized(e *entry, by string, rec any) {
	id := b.s.of.Meta(rec).ID
	switch {
	case b.s.ending(b.c, rec) && b.state == store.Deleted:
		e.errs.Add(by, fault.Unknown, "%s", b.s.missing())
	case b.s.ending(b.c, rec):
		e.errs.Add(by, fault.Duplicate, "%s is that of a record that was deleted and is about to end: send it again in two hours", by)
	case b.means[id] != nil && b.means[id] != e:
		e.errs.Add(by, fault.Duplicate, "%s is that of a record that another one of the list means", by)
	default:
		b.means[id], e.rec = e, rec
	}
}

// settle stores what is in order, the last of it with the answer. Nobody comes between: what was changed meanwhile
// is errAgain, and in the last attempt, or where others are stored, a record that was is refused.
func (b *bulk) settle(ctx context.Context, entries []*entry, last bool) error {
	s, c := b.s, b.c
	var fresh, changed []*entry
	for _, e := range entries {
		err := b.finish(ctx, c, &b.need, e)
		switch {
		case err != nil:
			if b.refused[e] = operation.ErrorsOf(s.told(err)); len(b.refused[e]) == 0 {
				return err
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
		return err
	}
	if err := b.put(ctx, append(fresh, changed...), last); err != nil {
		for _, name := range []string{"created", "updated", "done", "failed"} { // they are not known
			delete(c.AuditNote, name)
		}
		return err
	}
	if !last { // of what is done, the answer tells the id
		for _, e := range entries {
			done := entry{rec: s.of.Bare()}
			s.of.Meta(done.rec).ID = s.of.Meta(e.rec).ID
			if e.was != nil {
				done.was = done.rec
			}
			*e = done
		}
	}
	return nil
}

// became returns what becomes of the records where no more than these are refused.
func became(of *record.Resource, entries []*entry, refused map[*entry][]operation.FieldError) Bulk {
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
	return out
}

// note has the audit log tell how many records that are.
func note(c *operation.Call, counts map[string]int) {
	for name, n := range counts {
		c.Note(name, strconv.Itoa(n))
	}
}

// anew is how many records of a bulk may be refused by the store while all others are tried anew, together.
const anew = 16

// put stores records in one write, without those that are refused, so that they are there with the answer or not at
// all. Where they are more rows than one write should have, or more of them are refused than are tried anew, it takes
// several writes, of which the last has the answer; what is in the way of one of these then is told of its records.
func (b *bulk) put(ctx context.Context, entries []*entry, last bool) error {
	s, c := b.s, b.c
	recs := make([]any, len(entries))
	for i, e := range entries {
		recs[i] = e.rec
	}
	for tried := 0; len(recs) > 0; tried++ {
		n := s.of.Records.Portion(s.in(c), recs)
		err := b.late(ctx)
		if err == nil {
			err = b.save(ctx, recs[:n], last && n == len(recs))
		}
		if err == nil {
			b.writes++
			if n == len(recs) {
				return nil
			}
			recs, entries, tried = recs[n:], entries[n:], -1
			continue
		}
		bad := meant(err, n)
		if b.writes == 0 && s.passed(err, bad, b.attempt) {
			return errAgain
		}
		if b.writes > 0 && bad < 0 && ctx.Err() == nil && resendable(err) { // those before them are stored, and told of
			b.refuse(entries, err)
			break
		}
		if bad < 0 {
			return err
		}
		if b.refused[entries[bad]] = operation.ErrorsOf(s.told(s.of.Taken(ctx, s.in(c), entries[bad].rec, apart(err)))); len(b.refused[entries[bad]]) == 0 {
			return err
		}
		if tried >= anew && bad > 1 { // the one before it stays, for the answer to be stored with
			switch err := b.save(ctx, recs[:bad-1], false); {
			case err == nil:
				recs, entries, bad = recs[bad-1:], entries[bad-1:], 1
				b.writes++
			case meant(err, bad) < 0:
				return err
			}
		}
		recs, entries = slices.Delete(recs, bad, bad+1), slices.Delete(entries, bad, bad+1)
	}
	return nil
}

// save stores records in one commit; the last one is that of the answer.
func (b *bulk) save(ctx context.Context, recs []any, last bool) error {
	batch := b.s.in(b.c).Batch()
	batch.Preconditions = b.need
	err := b.s.of.Collection.StageSave(ctx, b.s.in(b.c), batch, recs...)
	switch {
	case err != nil:
		return err
	case !last:
		return batch.Commit(ctx)
	}
	result, err := b.c.Commit(ctx, batch, b.answer)
	if err == nil {
		b.result = &result
	}
	return err
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

// passed reports whether somebody else came between, and another attempt would see what they did: it may change the
// record of theirs that is in the way, or not stand on what is gone. A record that is not shown to the caller is in the
// way again.
func (s *handlers) passed(err error, bad, attempt int) bool {
	const mostHidden = 3
	var dup *store.DuplicateError
	if errors.As(err, &dup) {
		return bad >= 0 && attempt < mostHidden && slices.ContainsFunc(s.of.Uniques, func(u record.Unique) bool {
			return u.Identity != record.Never && slices.Contains(dup.Fields, u.Field)
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
