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

// maxBulk is the largest number of records in a bulk.
const maxBulk = 1000

// Bulk is the result of a bulk.
type Bulk struct {
	Created int          `json:"created" doc:"Number of records created."`
	Updated int          `json:"updated" doc:"Number of existing records changed."`
	Failed  int          `json:"failed" doc:"Number of records refused; nothing of them is stored."`
	Results []BulkResult `json:"results" doc:"The result of each record, in the order in which they were sent."`
}

// BulkResult is the result of one record.
type BulkResult struct {
	Index  int                    `json:"index" doc:"Position among the records sent, from 0."`
	ID     string                 `json:"id,omitempty" doc:"Identifier of the record; left out if it was refused."`
	Errors []operation.FieldError `json:"errors,omitempty" doc:"Every problem of a record that was refused."`
}

func (s *handlers) bulk() operation.Row {
	row := s.row("bulk", http.MethodPost, s.Path+"/bulk", s.Things+" updated")
	things := strings.ToLower(s.Things)
	row.Summary, row.Weight, row.BodyLimit = "Create and change many "+things, operation.Heavy, operation.MaxBulkLimit
	row.Verb = "Bulk"
	row.Description = "Takes up to " + strconv.Itoa(maxBulk) + " records, each with the fields of a single create, and " +
		"stores those that are valid; each has a result of its own. "
	var by []string
	for _, u := range s.of.Identifying()[1:] {
		by = append(by, u.Shown)
	}
	row.Description += "A record with the " + strings.Join(append(by, "id"), " or ") + " of an existing one changes " +
		"that one, and restores it if it was deleted. Fields that are not given then stay unchanged. " + nothingDone
	one := strictjson.Value{Is: strictjson.Object}
	for _, f := range s.fields {
		if f.Example != "" && f.Rule.Ref == "" {
			one.Members = append(one.Members, strictjson.Member{Name: f.Name, Value: f.Literal(f.Example)})
		}
	}
	row.Body = []operation.Field{{
		Name: "records", Shape: operation.List, Required: true, Type: []map[string]any{}, Elements: maxBulk, Description: "The records.",
		Example: json.RawMessage("[" + string(one.Raw()) + "]"),
	}}
	row.Failures = append(row.Failures, operation.Failure{
		Code: http.StatusUnprocessableEntity, Message: "Validation failed: records must be a list of 1 to 1000 objects",
		When: "there are no records, or too many",
	})
	row.Failures = append(row.Failures, s.undone(Bulk{
		Failed: 1,
		Results: []BulkResult{{Errors: []operation.FieldError{{
			Field: s.fields[0].Name, Code: fault.Required, Message: s.fields[0].Name + " is required",
		}}}},
	}))
	row.Data, row.Example = Bulk{}, Bulk{Created: 1, Failed: 1, Results: []BulkResult{
		{Index: 0, ID: exampleID}, {
			Index: 1,
			Errors: []operation.FieldError{{
				Field: s.fields[0].Name, Code: fault.Required, Message: s.fields[0].Name + " is required",
			}},
		},
	}}
	row.Handler, row.Joins = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		return s.runBulk(ctx, c, s.attemptBulk)
	}, true
	return row
}

// nothingDone ends the description of every bulk row.
const nothingDone = "If every record is refused, the status is failed; data has the same form."

// undone documents the answer of a bulk that refuses every record.
func (s *handlers) undone(data any) operation.Failure {
	return operation.Failure{
		Code: http.StatusOK, Message: s.unchanged(),
		When: "every record was refused, each for the reason in its result", Data: data,
	}
}

func (s *handlers) unchanged() string {
	return "No " + s.Things + " were changed: every one of them was refused"
}

// runBulk makes attempts at a bulk until none is overtaken by another change, at most tries. A bulk that refuses every
// record is a failure.
func (s *handlers) runBulk(
	ctx context.Context, c *operation.Call,
	attempt func(context.Context, *operation.Call, int) (operation.Result, error),
) (result operation.Result, err error) {
	for n := range tries {
		if result, err = attempt(ctx, c, n); !errors.Is(err, errRetry) {
			break
		}
	}
	if done, ok := result.Data.(interface{ nothing() bool }); err == nil && ok && done.nothing() {
		return operation.Result{}, operation.Failed(s.unchanged(), result.Data)
	}
	return result, err
}

// nothing reports whether every record was refused.
func (b Bulk) nothing() bool { return b.Created+b.Updated == 0 }

// errRetry ends an attempt that stored nothing because another change came first.
var errRetry = fmt.Errorf("overtaken: %w", store.ErrConflict)

// attemptBulk is attempt n at a bulk. The last attempt refuses records that were changed meanwhile. Errors: errRetry.
func (s *handlers) attemptBulk(ctx context.Context, c *operation.Call, n int) (operation.Result, error) {
	bodies, errs := slices.Collect(strictjson.Elements(c.Body.Raw("records"))), slices.Clone(c.Unknown)
	if n := len(bodies); n == 0 || n > maxBulk {
		errs.Add("records", fault.Length, "records must be a list of 1 to %d objects", maxBulk)
	}
	if err := errs.Err(); err != nil {
		return operation.Result{}, err
	}
	var known record.Known
	within, err := s.loadDefinitions(ctx, c, &known)
	if err != nil {
		return operation.Result{}, err
	}
	// Only one record at a time is parsed into a tree: the trees of all would take many times the memory of the body.
	var p strictjson.Parser
	entries, probes := make([]*entry, len(bodies)), make([]any, len(bodies))
	for i := range entries {
		entries[i] = &entry{}
		body, id := s.element(c, &p, bodies[i], &entries[i].errs)
		probes[i] = s.probe(body, id)
	}
	b := s.newBulk(c, n, entries, within, store.Either)
	b.finish, b.answer = s.complete, func(context.Context) (operation.Result, error) {
		out := bulkResult(s.of, entries, b.refused)
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

// newBulk returns one attempt at the entries. within matches all records that the entries can name, in that state.
func (s *handlers) newBulk(
	c *operation.Call, attempt int, entries []*entry, within store.Filter, state store.State,
) *bulk {
	ways := s.of.Identifying()
	b := &bulk{
		s: s, c: c, attempt: attempt, entries: entries, ways: ways, within: within, state: state,
		byValue: make([]map[string]*entry, len(ways)), byID: map[string]*entry{}, refused: map[*entry][]operation.FieldError{},
	}
	for n := range b.byValue {
		b.byValue[n] = map[string]*entry{}
	}
	return b
}

// run finds the records of the entries, prepares the entries and stores them: in one write, or in as many as they
// need.
func (b *bulk) run(
	ctx context.Context, probes []any, prepare func(part []*entry, from int) error,
) (operation.Result, error) {
	entries := b.entries
	for from, many := 0, len(entries); from < len(entries); {
		part, writes := entries[from:from+many], b.writes
		fits, err := many, b.checkTime(ctx)
		if err == nil {
			fits, err = b.recognize(ctx, part, probes[from:from+many])
		}
		if err == nil && fits < many {
			many = fits
			continue
		}
		if err == nil {
			if err = prepare(part, from); err == nil {
				err = b.storeValid(ctx, part, from+many == len(entries))
			}
		}
		if err != nil && writes > 0 && b.writes == writes && ctx.Err() == nil && resendable(err) { // the earlier ones are stored and reported
			b.refuse(entries[from:], err)
			break
		}
		if err != nil {
			return operation.Result{}, err
		}
		from += many
		many = min(b.next(many), len(entries)-from)
	}
	if b.result == nil { // the last records were refused
		return b.answer(ctx)
	}
	return *b.result, nil
}

// prepare makes the record to store of an entry whose existing record has been looked up, and checks it as far as
// known definitions allow.
func (s *handlers) prepare(
	ctx context.Context, c *operation.Call, p *strictjson.Parser, e *entry, raw []byte, known *record.Known,
) {
	if e.rec == nil {
		e.rec = s.of.New()
		s.of.Meta(e.rec).ID = c.Workspace.NewID()
	} else {
		e.was = s.of.Clone(e.rec)
	}
	if body, _ := s.element(c, p, raw, new(fault.List)); body.Is == strictjson.Object { // its faults were noted by the first reading
		s.enter(ctx, c, e, body, known)
		e.check.Take = nil // releases the tree
	}
}

// bulkBytes bounds the bytes of existing records that a bulk changes in one step, so that large ones are not all in
// memory.
const bulkBytes = 4 * store.BatchBytes

// bulk is one attempt at many records.
type bulk struct {
	s       *handlers
	c       *operation.Call
	attempt int
	entries []*entry
	ways    []record.Unique     // by which an entry can name a record, the identifier first
	within  store.Filter        // matches all records that entries can name,
	state   store.State         // in that state
	byValue []map[string]*entry // entries by value, for each of ways
	byID    map[string]*entry   // entries by the identifier of their existing record
	need    store.Preconditions // of the part that is stored next
	finish  func(context.Context, *operation.Call, *store.Preconditions, *entry) error
	answer  func(context.Context) (operation.Result, error)
	refused map[*entry][]operation.FieldError
	result  *operation.Result // once a commit has stored it
	writes  int               // commits so far
	size    int64             // bytes of the existing records found last
	roomed  int64             // bytes that the call has claimed
}

// refuse reports entries as not stored in a bulk that has stored others.
func (b *bulk) refuse(entries []*entry, err error) {
	for _, e := range entries {
		b.refused[e] = operation.ErrorsOf(unstored(err))
	}
}

// checkTime returns errTime if some records are stored and the remaining time is needed for the answer.
func (b *bulk) checkTime(ctx context.Context) error {
	if at, ends := ctx.Deadline(); b.writes > 0 && ends && time.Until(at) <= answerTime {
		return errTime
	}
	return nil
}

// next returns how many entries to take in the next step, after a step of before entries.
func (b *bulk) next(before int) int {
	return int(max(min(int64(before)*bulkBytes/max(b.size, 1), maxBulk), 1))
}

// element reads a record of the body. It returns the fields that callers may set, and the identifier that the record
// gives, or "". Other fields are noted in errs.
func (s *handlers) element(
	c *operation.Call, p *strictjson.Parser, raw []byte, errs *fault.List,
) (read strictjson.Value, id string) {
	body, err := p.Parse(string(raw))
	var broken strictjson.Error
	switch {
	case errors.As(err, &broken): // the body is well-formed, so it exceeds a bound
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
	return s.addDefinition(c, body), id
}

// probe returns a record that has only the identifier and the values of a body by which the record can be found.
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

// recognize looks up the existing records, live or deleted, that the probes name. If they are larger than bulkBytes,
// it looks up none and returns the smaller number of entries to try.
func (b *bulk) recognize(ctx context.Context, entries []*entry, probes []any) (fits int, err error) {
	s, c := b.s, b.c
	b.need.Reset()
	b.size = 0
	wrong := make([]int, len(entries))
	for i, e := range entries {
		wrong[i] = len(e.errs)
	}
	for n := range b.ways {
		u, meant, number, group := &b.ways[n], b.byValue[n], false, ""
		var values []string
		for i, e := range entries {
			probe := probes[i]
			value := u.Value(probe)
			switch {
			case value == "" || e.rec != nil || n > 0 && s.of.Meta(probe).ID != "": // an identifier takes precedence
			case meant[value] != nil && meant[value] != e:
				e.errs.Add(u.Shown, fault.Duplicate, "%s is the same as in an earlier record of the list", u.Shown)
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
		found, err := s.of.Collection.FindPart(ctx, s.workspace(c), store.Query{
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

// recognized sets the existing record of an entry, which names it by the field by.
func (b *bulk) recognized(e *entry, by string, rec any) {
	id := b.s.of.Meta(rec).ID
	switch {
	case b.s.expired(b.c, rec) && b.state == store.Deleted:
		e.errs.Add(by, fault.Unknown, "%s", b.s.missing())
	case b.s.expired(b.c, rec):
		e.errs.Add(by, fault.Duplicate, "%s is in use by a deleted record that is being removed for good: send it again in two hours", by)
	case b.byID[id] != nil && b.byID[id] != e:
		e.errs.Add(by, fault.Duplicate, "%s names a record that another one of the list names, too", by)
	default:
		b.byID[id], e.rec = e, rec
	}
}

// bulkResult returns the result of a bulk that refuses these records and stores the others.
func bulkResult(of *record.Resource, entries []*entry, refused map[*entry][]operation.FieldError) Bulk {
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

// note adds the counts to the audit record.
func note(c *operation.Call, counts map[string]int) {
	for name, n := range counts {
		c.Note(name, strconv.Itoa(n))
	}
}
