// Package idempotency keeps what requests with an Idempotency-Key were answered, so that one that is sent
// again is answered the same and not carried out again.
package idempotency

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/cache"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// Kept is how long an answer is kept.
const Kept = 24 * time.Hour

// record is one request. It is inserted before the request is carried out, marked Begun with the first
// thing that is written then, and completed with the answer: with the last thing that is written where the
// handler tells which one that is and the engine has transactions, else after it.
type record struct {
	store.Meta
	Request string   `json:"request"`         // SHA-256 of all that makes it the same request
	Begun   bool     `json:"begun"`           // something was written
	Busy    int64    `json:"busy"`            // Unix ms until which somebody may be carrying it out
	Expires int64    `json:"expires"`         // Unix ms
	About   []string `json:"about,omitempty"` // the records that the answer shows, or names
	Answer  []string `json:"answer,omitempty"`
}

// answer is what is answered again.
type answer struct {
	Problem  int               `json:"problem,omitempty"` // its code; 0: a success
	Message  string            `json:"message,omitempty"`
	Data     json.RawMessage   `json:"data"`
	Revision int64             `json:"revision,omitempty"`
	Header   http.Header       `json:"header,omitempty"`
	Ignored  []string          `json:"ignored,omitempty"`
	Note     map[string]string `json:"note,omitempty"`
}

// Log keeps the answers of every organization in its own workspace, sealed, because they hold what records
// hold; but those of rows that tell a secret Once, nowhere. Safe for concurrent use, by several replicas.
type Log struct {
	kind    *store.Kind[record]
	keys    secrets.Keys
	now     func() time.Time
	rations *cache.Map[int64, *ration] // by organization
}

// Kept answers are no records of the organization's quota. So those of a day are bounded, for each organization and
// process: the large ones to little of that, so that a few requests leave room for many.
const (
	smallAnswer = 8 << 10
	largePerDay = 64 << 20
	keptPerDay  = 1 << 30
	maxRations  = 65_536
)

// ration is what an organization has had kept of answers since it began. It begins anew when the first of them have
// gone.
type ration struct {
	mu         sync.Mutex
	began      time.Time
	all, large int // bytes
}

// take reports whether an answer of so many bytes may be kept, and counts it then.
func (r *ration) take(now time.Time, bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.began) >= Kept {
		r.began, r.all, r.large = now, 0, 0
	}
	large := 0
	if bytes > smallAnswer {
		large = bytes
	}
	if r.all+bytes > keptPerDay || r.large+large > largePerDay {
		return false
	}
	r.all, r.large = r.all+bytes, r.large+large
	return true
}

// New declares the record.
func New(keys secrets.Keys, now func() time.Time) *Log {
	return &Log{keys: keys, now: now, rations: cache.New[int64, *ration](maxRations), kind: store.Must[record](store.Spec{
		Name: collection, Aside: true, Fields: []string{"expires", "about"},
		Indexes: []store.Index{{Fields: []string{"expires"}}, {Fields: []string{"about"}}}, Access: []store.Access{{Where: []string{"expires"}}, {Where: []string{"about"}}},
	})}
}

const collection = "kept_answers"

// Spec returns the declaration, for the store.
func (l *Log) Spec() *store.Spec { return l.kind.Spec() }

// Request is what makes two requests the same.
type Request struct {
	Key    string // as the caller chose it
	Target string // path and query
	Body   []byte // SHA-256
}

// hash returns a SHA-256 over the texts, each with its length.
func hash(texts ...string) []byte {
	h := sha256.New()
	for _, text := range texts {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // a hash never fails
		_, _ = h.Write([]byte(text))
	}
	return h.Sum(nil)
}

// Once carries the call out by run, unless the same caller has had it carried out with the same key already: then it
// returns what was answered, with the header Idempotency-Replayed. What another attempt may change is not kept:
// failures of the service, and that others came between. Errors, besides those of run: a 409 while it is carried out,
// or where that ended without an answer that could be kept; a 422 where the key was used for another request; those of
// the store and the organization's data keys.
func (l *Log) Once(ctx context.Context, c *operation.Call, r Request, run func(context.Context) (operation.Result, error)) (operation.Result, error) {
	caller := "user:" + strconv.FormatInt(c.Principal.UserID, 10)
	if c.Principal.Kind == tenants.ServiceAccount {
		caller = "account:" + c.Principal.AccountID
	}
	in := l.kind.In(c.Tenant.Workspace())
	rec := &record{Request: base64.RawStdEncoding.EncodeToString(hash( // with the key, or whoever reads it could try what a body says, a password for one
		r.Key, c.Operation.Method, r.Target, string(r.Body), fmt.Sprint(c.Scope.All), strings.Join(c.Scope.Teams, " "), // another scope may see less
	))}
	rec.ID = hex.EncodeToString(hash(caller, c.Operation.Name, r.Key))[:24]
	known, err := l.claim(ctx, in, rec, c.Operation.Deadline())
	if err != nil {
		return operation.Result{}, err
	}
	if known != nil {
		return l.again(ctx, c, known)
	}
	rec.Begun = true
	a := attempt{}
	if a.claim, err = in.Claim(rec); err != nil {
		return operation.Result{}, err
	}
	journal := c.Journal
	c.Journal = func(ctx context.Context, b *store.Batch, result operation.Result) error {
		if journal != nil {
			if err := journal(ctx, b, result); err != nil {
				return err
			}
		}
		done := *rec
		l.complete(ctx, c, &a, &done, result, nil)
		return in.Conclude(b, a.claim, &done)
	}
	result, err := claimed(ctx, c, a.claim, run)
	l.keep(ctx, c, &a, in, rec, result, err)
	return result, err
}

// claimed carries a call out that is bound to the claim. What is recorded of it afterwards, or after a panic, is not.
func claimed(ctx context.Context, c *operation.Call, claim *store.Claim, run func(context.Context) (operation.Result, error)) (operation.Result, error) {
	defer c.Claim(claim)()
	return run(ctx)
}

// attempt is one attempt at carrying a request out.
type attempt struct {
	claim    *store.Claim
	rationed int // bytes that the organization's ration has been charged for its answer
}

// tries bounds how often a record is looked at anew that others change.
const tries = 10

// grace is for what a request may take beyond the time of its operation.
const grace = 5 * time.Second

// claim stores the record, or returns the one that has the answer already.
func (l *Log) claim(ctx context.Context, in store.Collection[record], rec *record, within time.Duration) (*record, error) {
	running := refusal("running", "A request with this "+Header+" is being carried out; repeat it later for its answer")
	running.RetryAfter = time.Second
	for range tries {
		now := l.now().UnixMilli()
		rec.Rev, rec.CreatedAt = 0, 0
		rec.Busy, rec.Expires = now+(within+grace).Milliseconds(), now+Kept.Milliseconds()
		var dup *store.DuplicateError
		if err := in.Insert(ctx, rec); !errors.As(err, &dup) {
			return nil, err
		}
		old, err := in.Get(ctx, rec.ID)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		left := old.Busy - now
		switch {
		case old.Expires <= now, old.Request == rec.Request && !old.Begun && old.Answer == nil && left <= 0:
			rec.Rev, rec.CreatedAt = old.Rev, old.CreatedAt
			if err := in.Replace(ctx, rec); !errors.Is(err, store.ErrConflict) {
				return nil, err
			}
		case old.Request != rec.Request:
			return nil, fault.One(Header, "reused", "the %s was used for another request in the last 24 hours, or what you may see has changed since; choose a new one", Header)
		case old.Answer != nil:
			return old, nil
		case left > 0:
			return nil, running
		default:
			return nil, refusal("lost", "A request with this "+Header+" may have been carried out, at least in part, and its answer is not kept: it was lost, is too large, tells a secret that is told once, or shows what was ended for good; read what is there before you send what is missing with a new one")
		}
	}
	return nil, running
}

// Header is the request header with the key.
const Header = "Idempotency-Key"

func refusal(code, message string) *operation.Problem {
	return operation.Refusal(http.StatusConflict, Header, code, message)
}

// keepTimeout bounds what is kept for a caller who may be gone already.
const keepTimeout = 3 * time.Second

// keep stores the answer where that has not been done, or lets the key be used again where nothing was
// carried out. What it cannot store, a repetition is told of.
func (l *Log) keep(ctx context.Context, c *operation.Call, a *attempt, in store.Collection[record], rec *record, result operation.Result, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Tenant.Workspace().Hold()+keepTimeout)
	defer cancel()
	if rec.ID[0] == '0' { // one in sixteen
		defer func() { _, _ = l.sweep(ctx, in) }()
	}
	var problem *operation.Problem
	if err != nil {
		problem = operation.ProblemOf(err)
	}
	switch {
	case a.claim.Concluded():
		if problem == nil {
			return
		}
		// What was committed has been taken back, or nobody can tell: the answer that was kept with it is not this one.
		stored, err := in.Get(ctx, rec.ID)
		if err != nil {
			return
		}
		rec = stored
		rec.Begun, rec.About, rec.Answer = true, nil, nil
	case a.claim.Begun():
		rec.Rev++
	}
	l.complete(ctx, c, a, rec, result, problem)
	if !a.claim.Begun() && rec.Answer == nil {
		_ = in.Delete(ctx, rec) // it stays where something was written after all
		return
	}
	_ = in.Replace(ctx, rec)
}

// complete adds the answer, unless it is one that may not be kept.
func (l *Log) complete(ctx context.Context, c *operation.Call, a *attempt, rec *record, result operation.Result, problem *operation.Problem) {
	rec.Busy = 0
	passing := problem != nil && (problem.Code >= http.StatusInternalServerError || problem.RetryAfter > 0 || problem.Code == http.StatusPreconditionFailed || errors.Is(problem.Err, store.ErrConflict))
	if !passing && (problem != nil || !c.Operation.Once && result.Stream == nil) {
		rec.Answer, rec.About = l.seal(ctx, c, a, rec, result, problem)
	}
}

// End takes away the answers about records that are about to end for good. Who repeats a request is told that its
// answer is gone. Errors: store.ErrUnavailable.
func (l *Log) End(ctx context.Context, ws *store.Workspace, ids []string) error {
	in := l.kind.In(ws)
	for {
		found, err := in.Find(ctx, store.Query{Filter: store.In("about", ids...), Limit: swept, LeaveOut: true})
		if err != nil || len(found) == 0 {
			return err
		}
		recs := make([]*record, len(found))
		for i := range found {
			recs[i] = &found[i]
			recs[i].Begun, recs[i].About, recs[i].Answer = true, nil, nil
		}
		if err = in.Replace(ctx, recs...); !errors.Is(err, store.ErrConflict) && (err != nil || len(found) < swept) {
			return err
		}
	}
}

// about returns the records that an answer is about: the identifiers among its own members, that of its record and of
// those that it names, a file's contact for one. A bulk tells identifiers alone, and is about none.
func about(data json.RawMessage) (ids []string) {
	var members map[string]json.RawMessage
	if json.Unmarshal(data, &members) != nil {
		return nil
	}
	for _, raw := range members {
		var id string
		if json.Unmarshal(raw, &id) == nil && store.ValidID(id) && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// swept is how many records are removed at a time, which are more than have come since.
const swept = 64

// Forget removes all that has expired of an organization. Errors: store.ErrUnavailable.
func (l *Log) Forget(ctx context.Context, ws *store.Workspace) error {
	for {
		if left, err := l.sweep(ctx, l.kind.In(ws)); err != nil || !left {
			return err
		}
	}
}

// sweep removes some of what has expired, and reports whether more of it may be left. What somebody else changes or
// removes at the same time stays.
func (l *Log) sweep(ctx context.Context, in store.Collection[record]) (left bool, err error) {
	found, err := in.Find(ctx, store.Query{Filter: store.Where(store.F("expires"), store.OpLt, l.now().UnixMilli()), Sort: []store.Order{store.Asc("expires")}, Limit: swept, LeaveOut: true})
	if err != nil || len(found) == 0 {
		return false, err
	}
	old := make([]*record, len(found))
	for i := range found {
		old[i] = &found[i]
	}
	if err = in.Delete(ctx, old...); errors.Is(err, store.ErrConflict) {
		return false, nil
	}
	return len(found) == swept, err
}

// An answer is sealed in pieces as large as one may be.
const (
	piece  = 48 << 10
	pieces = 16
)

func (l *Log) vault(c *operation.Call) (*secrets.Vault, func(*record) secrets.Place) {
	return &secrets.Vault{Keys: l.keys, Tenant: c.Tenant}, func(rec *record) secrets.Place { return secrets.Place{Collection: collection, Record: rec.ID} }
}

// seal returns what is kept of an answer and which records it is about, nil where it cannot be sealed now, is too
// large, by itself or with others of the day, or shows one that this request has ended.
func (l *Log) seal(ctx context.Context, c *operation.Call, a *attempt, rec *record, result operation.Result, problem *operation.Problem) (sealed, shows []string) {
	told := answer{Message: result.Message, Revision: c.Revision, Header: c.Header.Clone(), Ignored: c.Ignored(), Note: c.AuditNote}
	data := result.Data
	if problem != nil {
		told.Problem, told.Message, data = problem.Code, problem.Message, problem.Envelope().Data
	}
	for _, name := range []string{"Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"} {
		told.Header.Del(name) // of the request at hand
	}
	told.Data = encode(data)
	text := encode(told)
	if problem == nil {
		shows = about(told.Data)
	}
	if len(text) > piece*pieces || slices.ContainsFunc(shows, a.claim.Ended) {
		return nil, nil
	}
	if len(text) > a.rationed { // not once more for another attempt
		of := l.rations.GetOrPut(c.Tenant.Org.OrgID, func() *ration { return &ration{} })
		if !of.take(l.now(), len(text)) {
			return nil, nil
		}
		a.rationed = len(text)
	}
	vault, at := l.vault(c)
	for n := 0; len(text) > 0; n++ {
		size := min(piece, len(text))
		one, err := vault.Seal(ctx, at(rec), strconv.Itoa(n), string(text[:size]))
		if err != nil {
			return nil, nil
		}
		sealed, text = append(sealed, one), text[size:]
	}
	return sealed, shows
}

// encode writes JSON as answers have it, so that it is the same when it is written again; nothing
// where it cannot be written, which the answer itself has to say.
func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// again answers what was answered before.
func (l *Log) again(ctx context.Context, c *operation.Call, rec *record) (operation.Result, error) {
	vault, at := l.vault(c)
	var text []byte
	for n, sealed := range rec.Answer {
		one, err := vault.Open(ctx, at(rec), strconv.Itoa(n), sealed)
		if err != nil {
			return operation.Result{}, err
		}
		text = append(text, one.Reveal()...)
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return operation.Result{}, fmt.Errorf("a kept answer: %w", err)
	}
	maps.Copy(c.Header, a.Header)
	c.Header.Set("Idempotency-Replayed", "true")
	for _, name := range a.Ignored {
		c.Ignore(name)
	}
	for name, value := range a.Note {
		c.Note(name, value)
	}
	c.Note("replayed", "true")
	if a.Problem != 0 {
		return operation.Result{}, &operation.Problem{Code: a.Problem, Message: a.Message, Data: a.Data}
	}
	c.Revision = a.Revision
	return operation.Result{Message: a.Message, Data: a.Data}, nil
}
