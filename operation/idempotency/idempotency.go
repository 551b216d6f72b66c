// Package idempotency stores the answers to requests with an Idempotency-Key, so that a repeated request gets the same
// answer and is not carried out again.
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

// Kept is how long an answer is stored.
const Kept = 24 * time.Hour

// record is one request. It is inserted before the request is carried out, marked Begun with the first write of the
// request, and completed with the answer. The answer is stored in the commit of the last write if the engine has
// transactions and the handler calls Call.Commit, otherwise after it.
type record struct {
	store.Meta
	// Request identifies a request: two with the same members are the same.
	Request string   `json:"request"`         // SHA-256 of everything that identifies the request
	Begun   bool     `json:"begun"`           // the request has written something
	Busy    int64    `json:"busy"`            // Unix ms until which the request may still be running
	Expires int64    `json:"expires"`         // Unix ms
	About   []string `json:"about,omitempty"` // identifiers of the records that the answer shows or names
	Answer  []string `json:"answer,omitempty"`
}

// answer is the stored form of an answer.
type answer struct {
	Problem  int               `json:"problem,omitempty"` // HTTP code of a problem; 0: a success
	Message  string            `json:"message,omitempty"`
	Data     json.RawMessage   `json:"data"`
	Revision int64             `json:"revision,omitempty"`
	Header   http.Header       `json:"header,omitempty"`
	Ignored  []string          `json:"ignored,omitempty"`
	Note     map[string]string `json:"note,omitempty"`
}

// Log stores the answers of each organization in its workspace. They are encrypted, because they hold the contents of
// records. Answers of rows that tell a secret Once are not stored. Safe for concurrent use, by several replicas.
type Log struct {
	kind    *store.Kind[record]
	keys    secrets.Keys
	now     func() time.Time
	budgets *cache.Map[int64, *budget] // by organization
}

// Stored answers do not count towards the organization's quota, so the bytes per day are bounded for each organization
// and process. Large answers have a small share of that, so that few requests cannot use it up.
const (
	smallAnswer = 8 << 10
	largePerDay = 64 << 20
	keptPerDay  = 1 << 30
	maxBudgets  = 65_536
)

// budget counts the bytes of answers stored for an organization since began. It starts again once the first of them
// have expired.
type budget struct {
	mu         sync.Mutex
	began      time.Time
	all, large int // bytes
}

// take counts an answer of that size and reports whether it may be stored.
func (r *budget) take(now time.Time, bytes int) bool {
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
	return &Log{keys: keys, now: now, budgets: cache.New[int64, *budget](maxBudgets), kind: store.Must[record](store.Spec{
		Name: collection, Uncounted: true, Fields: []string{"expires", "about"},
		Indexes: []store.Index{
			{Fields: []string{"expires"}}, {Fields: []string{"about"}},
		}, Access: []store.Access{{Where: []string{"expires"}}, {Where: []string{"about"}}},
	})}
}

const collection = "kept_answers"

// Spec returns the declaration, for the store.
func (l *Log) Spec() *store.Spec { return l.kind.Spec() }

// Request is what makes two requests the same.
type Request struct {
	Key    string // chosen by the caller
	Target string // path and query
	Body   []byte // SHA-256
}

// hash returns a SHA-256 of the texts and their lengths.
func hash(texts ...string) []byte {
	h := sha256.New()
	for _, text := range texts {
		_, _ = h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(text)))) // hash.Hash never fails
		_, _ = h.Write([]byte(text))
	}
	return h.Sum(nil)
}

// Once carries the call out by run, unless the same caller has already sent the same key: then it returns the stored
// answer with the header Idempotency-Replayed. Answers that another attempt may change are not stored: failures of the
// service and conflicts. Errors, besides those of run: a 409 while the request is running, or if it ended without an
// answer that could be stored; a 422 if the key was used for another request; errors of the store and of the
// organization's data keys.
func (l *Log) Once(
	ctx context.Context, c *operation.Call, r Request, run func(context.Context) (operation.Result, error),
) (operation.Result, error) {
	caller := "user:" + strconv.FormatInt(c.Principal.UserID, 10)
	if c.Principal.Kind == tenants.ServiceAccount {
		caller = "account:" + c.Principal.AccountID
	}
	in := l.kind.In(c.Tenant.Workspace())
	rec := &record{Request: base64.RawStdEncoding.EncodeToString(hash( // with the key, because otherwise a reader of the store could guess bodies, such as passwords
		r.Key, c.Operation.Method, r.Target, string(r.Body), fmt.Sprint(c.Scope.All), strings.Join(c.Scope.Teams, " "), // another scope may see other records
	))}
	rec.ID = hex.EncodeToString(hash(caller, c.Operation.Name, r.Key))[:24]
	known, err := l.claim(ctx, in, rec, c.Operation.Deadline())
	if err != nil {
		return operation.Result{}, err
	}
	if known != nil {
		return l.replay(ctx, c, known)
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
	result, err := runClaimed(ctx, c, a.claim, run)
	l.keep(ctx, c, &a, in, rec, result, err)
	return result, err
}

// runClaimed carries out a call that is bound to the claim. Writes after it returns or panics are not bound.
func runClaimed(
	ctx context.Context, c *operation.Call, claim *store.Claim, run func(context.Context) (operation.Result, error),
) (operation.Result, error) {
	defer c.Claim(claim)()
	return run(ctx)
}

// attempt is one attempt at carrying a request out.
type attempt struct {
	claim   *store.Claim
	charged int // bytes charged to the organization's budget for the answer
}

// tries bounds how often a record is read again because others change it.
const tries = 10

// grace is how long a request may run beyond the timeout of its operation.
const grace = 5 * time.Second

// claim inserts the record, or returns the existing one if it has the answer.
func (l *Log) claim(
	ctx context.Context, in store.Collection[record], rec *record, limit time.Duration,
) (*record, error) {
	running := refusal("running", "A request with this "+Header+" is still running; repeat it later to get its answer")
	running.RetryAfter = time.Second
	for range tries {
		now := l.now().UnixMilli()
		rec.Rev, rec.CreatedAt = 0, 0
		rec.Busy, rec.Expires = now+(limit+grace).Milliseconds(), now+Kept.Milliseconds()
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
			return nil, fault.One(
				Header, "reused",
				"the %s was used for another request in the last 24 hours, or your access has changed since; choose a new one",
				Header,
			)
		case old.Answer != nil:
			return old, nil
		case left > 0:
			return nil, running
		default:
			return nil, refusal(
				"lost",
				"A request with this "+Header+" may have been carried out, at least in part, but its answer is not available: "+
					"it was lost, is too large, holds a secret that is shown only once, or shows a record that was deleted for "+
					"good; check the current state before you repeat what is missing with a new key",
			)
		}
	}
	return nil, running
}

// Header is the request header that holds the key.
const Header = "Idempotency-Key"

func refusal(code, message string) *operation.Problem {
	return operation.Refusal(http.StatusConflict, Header, code, message)
}

// keepTimeout bounds storing an answer whose caller may be gone.
const keepTimeout = 3 * time.Second

// keep stores the answer unless a commit has, or frees the key if nothing was written. If it fails, a repetition is
// refused as lost.
func (l *Log) keep(
	ctx context.Context, c *operation.Call, a *attempt, in store.Collection[record], rec *record,
	result operation.Result, err error,
) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Tenant.Workspace().Hold()+keepTimeout)
	defer cancel()
	if rec.ID[0] == '0' { // for one request in sixteen
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
		// The change was undone, or that cannot be told: the answer kept with it is not the one that the caller gets.
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
		_ = in.Delete(ctx, rec) // fails if the request has written something after all
		return
	}
	_ = in.Replace(ctx, rec)
}

// complete adds the answer to the record, unless it must not be stored.
func (l *Log) complete(
	ctx context.Context, c *operation.Call, a *attempt, rec *record, result operation.Result,
	problem *operation.Problem,
) {
	rec.Busy = 0
	passing := problem != nil && (problem.Code >= http.StatusInternalServerError || problem.RetryAfter > 0 || problem.Code == http.StatusPreconditionFailed || errors.Is(problem.Err, store.ErrConflict))
	if !passing && (problem != nil || !c.Operation.Once && result.Stream == nil) {
		rec.Answer, rec.About = l.seal(ctx, c, a, rec, result, problem)
	}
}

// End removes the answers about records that are about to be deleted for good. A repetition is then told that the
// answer is not available. Errors: store.ErrUnavailable.
func (l *Log) End(ctx context.Context, ws *store.Workspace, ids []string) error {
	in := l.kind.In(ws)
	for {
		found, err := in.Find(ctx, store.Query{Filter: store.In("about", ids...), Limit: sweepBatch, LeaveOut: true})
		if err != nil || len(found) == 0 {
			return err
		}
		recs := make([]*record, len(found))
		for i := range found {
			recs[i] = &found[i]
			recs[i].Begun, recs[i].About, recs[i].Answer = true, nil, nil
		}
		if err = in.Replace(ctx, recs...); !errors.Is(err, store.ErrConflict) && (err != nil || len(found) < sweepBatch) {
			return err
		}
	}
}

// about returns the records that an answer is about: the identifiers among its top-level members, which are that of
// its record and those of records that it refers to. A bulk has none, because its answer holds only identifiers,
// deeper down.
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

// sweepBatch is how many expired records one sweep removes. It is more than are added between two sweeps.
const sweepBatch = 64

// Forget removes all expired records of an organization. Errors: store.ErrUnavailable.
func (l *Log) Forget(ctx context.Context, ws *store.Workspace) error {
	for {
		if left, err := l.sweep(ctx, l.kind.In(ws)); err != nil || !left {
			return err
		}
	}
}

// sweep removes a batch of expired records, and reports whether more may be left. Records that are changed or removed
// at the same time are left.
func (l *Log) sweep(ctx context.Context, in store.Collection[record]) (left bool, err error) {
	found, err := in.Find(ctx, store.Query{
		Filter: store.Where(store.F("expires"), store.OpLt, l.now().UnixMilli()),
		Sort:   []store.Order{store.Asc("expires")}, Limit: sweepBatch, LeaveOut: true,
	})
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
	return len(found) == sweepBatch, err
}

// An answer is encrypted in pieces, because the size of a sealed value is bounded.
const (
	pieceSize = 48 << 10
	maxPieces = 16
)

func (l *Log) vault(c *operation.Call) (*secrets.Vault, func(*record) secrets.Place) {
	return &secrets.Vault{Keys: l.keys, Tenant: c.Tenant}, func(rec *record) secrets.Place {
		return secrets.Place{
			Collection: collection, Record: rec.ID,
		}
	}
}

// seal returns the encrypted answer and the records that it is about. It returns nil if the answer cannot be encrypted
// now, is too large for itself or for the budget, or shows a record that the request has deleted for good.
func (l *Log) seal(
	ctx context.Context, c *operation.Call, a *attempt, rec *record, result operation.Result,
	problem *operation.Problem,
) (sealed, shows []string) {
	told := answer{
		Message: result.Message, Revision: c.Revision, Header: c.Header.Clone(), Ignored: c.Ignored(),
		Note: c.AuditNote,
	}
	data := result.Data
	if problem != nil {
		told.Problem, told.Message, data = problem.Code, problem.Message, problem.Envelope().Data
	}
	for _, name := range []string{"Vary", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"} {
		told.Header.Del(name) // they depend on the repeated request
	}
	told.Data = encode(data)
	text := encode(told)
	if problem == nil {
		shows = about(told.Data)
	}
	if len(text) > pieceSize*maxPieces || slices.ContainsFunc(shows, a.claim.Ended) {
		return nil, nil
	}
	if len(text) > a.charged { // charge only once for several attempts
		of := l.budgets.GetOrPut(c.Tenant.Org.OrgID, func() *budget { return &budget{} })
		if !of.take(l.now(), len(text)) {
			return nil, nil
		}
		a.charged = len(text)
	}
	vault, at := l.vault(c)
	for n := 0; len(text) > 0; n++ {
		size := min(pieceSize, len(text))
		one, err := vault.Seal(ctx, at(rec), strconv.Itoa(n), string(text[:size]))
		if err != nil {
			return nil, nil
		}
		sealed, text = append(sealed, one), text[size:]
	}
	return sealed, shows
}

// encode encodes JSON as answers have it, so that a replayed answer is equal byte for byte. It returns nothing if v
// cannot be encoded; encoding the answer itself reports that.
func encode(v any) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}

// replay answers a repetition with the stored answer.
func (l *Log) replay(ctx context.Context, c *operation.Call, rec *record) (operation.Result, error) {
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
		return operation.Result{}, fmt.Errorf("decode a stored answer: %w", err)
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
