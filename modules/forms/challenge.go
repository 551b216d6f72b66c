package forms

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"math/bits"
	"net/http"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

const (
	// challengePurpose names the data keys that sign challenges.
	challengePurpose = "form-challenge"
	// challengeFor is how long a challenge can be answered, and an answer is remembered.
	challengeFor  = 10 * time.Minute
	maxProof      = 300
	proofParam    = "proof"
	honeypotParam = "honeypot"
)

// Spent remembers which challenges have been answered. Safe for concurrent use.
type Spent interface {
	// Begin makes it remember from now on, unless it does already. It is called before a challenge is issued.
	Begin(ctx context.Context, t *tenants.Tenant) error
	// Spend reports whether the challenge is certain not to have been answered before, and remembers it for that long.
	// One that was issued before the memory began, as after a restart that lost it, may have been. An error says that
	// nobody can tell now.
	Spend(ctx context.Context, t *tenants.Tenant, challenge string, issued time.Time, keep time.Duration) (first bool, err error)
}

// Challenge is the work that a page does for one submission.
type Challenge struct {
	Challenge string `json:"challenge" doc:"The challenge, which is good for one submission of this form with this key."`
	Bits      int    `json:"bits" doc:"With how many zero bits the SHA-256 of the proof must begin; 0: the key asks for none."`
	ExpiresAt string `json:"expires_at" doc:"Until when it is good; RFC 3339, UTC, milliseconds."`
}

func (m *Module) challengeRow() operation.Row {
	return operation.Typed(operation.Row{
		Name: "forms.challenge", Method: http.MethodGet, Path: "/api/form/collections/{id}/challenge",
		Policy: operation.Policy{
			Credentials: operation.Key, Kinds: operation.ServerKeys | operation.Browser,
			Rule: operation.Needs(tenants.CreateFormSubmissions),
		},
		Response: operation.Response{
			Message:  "Challenge found",
			Example:  Challenge{exampleID + ".665f1c2ab4d3e2f1a0b9c8d6.1717510000.18.Jx2mB0l4Zk6u1q9cVtYw8g.1.mJ1b3rVn0c5J0o2t7bXwqg", 18, "2024-06-04T14:06:40.000Z"},
			Failures: []operation.Failure{{Code: http.StatusNotFound, Message: missing, When: "no such form in this organization"}},
		},
		Docs: operation.Docs{
			Tag:     tag,
			Summary: "Get a challenge for a submission",
			Description: "For keys of kind browser that ask for proof of work. A proof is the challenge, a colon and up to 64 letters, digits, _ or -, " +
				"chosen so that its SHA-256 begins with as many zero bits. It is sent with the submission, once.",
		},
	}, m.challenge)
}

type challenged struct {
	ID string `json:"id" doc:"Identifier of the form." example:"665f1c2ab4d3e2f1a0b9c8d7"`
}

func (m *Module) challenge(ctx context.Context, c *operation.Call, in challenged) (Challenge, error) {
	if _, err := m.Collections.In(c.Workspace).Get(ctx, in.ID); err != nil {
		return Challenge{}, operation.OrMissing(err, missing)
	}
	keys, err := m.keys.DataKeys(ctx, c.Tenant, challengePurpose)
	if err != nil {
		return Challenge{}, err
	}
	work := c.Principal.ProofOfWork
	if work > 0 {
		if err := m.Spent.Begin(ctx, c.Tenant); err != nil {
			return Challenge{}, err
		}
	}
	key, expires := keys.Current(), time.Now().Add(challengeFor)
	signed := fmt.Sprintf("%s.%s.%d.%d.%s.%d", in.ID, c.Principal.KeyID, expires.Unix(), work, rand.Text(), key.Version())
	return Challenge{signed + "." + sign(key.Bytes(), signed), work, texts.Time(expires.Unix() * 1000)}, nil
}

func sign(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// prove refuses a submission by a key that asks for proof of work, unless it comes with one that is good, and good for
// the first time.
func (m *Module) prove(ctx context.Context, c *operation.Call) error {
	work := c.Principal.ProofOfWork
	if work == 0 {
		return nil
	}
	again := "; ask for another challenge"
	proof := c.Query.Text(proofParam)
	challenge, _, found := strings.Cut(proof, ":")
	end := strings.LastIndexByte(challenge, '.')
	switch {
	case proof == "":
		return fault.One(proofParam, fault.Required, "this key asks for proof of work: get a challenge first, and send its proof")
	case !found || end < 0:
		return fault.One(proofParam, fault.Format, "the proof is the challenge, a colon and what was found for it%s", again)
	}
	keys, err := m.keys.DataKeys(ctx, c.Tenant, challengePurpose)
	if err != nil {
		return err
	}
	parts := strings.Split(challenge[:end], ".")
	var numbers [3]int64 // when it expires, its bits, the version of its key
	good := len(parts) == 6
	for i, at := range []int{2, 3, 5} {
		if good {
			numbers[i], err = strconv.ParseInt(parts[at], 10, 64)
			good = err == nil
		}
	}
	key, known := keys.Version(int(numbers[2]))
	if !good || !known || !hmac.Equal([]byte(sign(key.Bytes(), challenge[:end])), []byte(challenge[end+1:])) {
		return fault.One(proofParam, fault.Format, "the proof is of no challenge of this organization%s", again)
	}
	expires := time.Unix(numbers[0], 0)
	left := time.Until(expires)
	switch {
	case parts[0] != c.Path("id") || parts[1] != c.Principal.KeyID || numbers[1] < int64(work):
		return fault.One(proofParam, fault.Format, "the proof is of a challenge for another form or key%s", again)
	case left <= 0:
		return fault.One(proofParam, fault.Range, "the challenge has expired%s", again)
	case zeros(sha256.Sum256([]byte(proof))) < work:
		return fault.One(proofParam, fault.Range, "the SHA-256 of the proof must begin with %d zero bits", work)
	}
	first, err := m.Spent.Spend(ctx, c.Tenant, parts[4], expires.Add(-challengeFor), left)
	if err == nil && !first {
		err = fault.One(proofParam, fault.Duplicate, "the challenge has been used, or was issued before a restart%s", again)
	}
	return err
}

// zeros returns with how many zero bits the sum begins.
func zeros(sum [sha256.Size]byte) (n int) {
	for _, b := range sum {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n
}

const noRoom = "The organization takes no more submissions for now"

// submit describes the row of new submissions, which pages send with keys of kind browser.
func (m *Module) submit() crud.Action {
	return crud.Action{
		Policy: operation.Policy{
			Kinds: operation.ServerFull | operation.Browser, Rule: operation.Needs(tenants.CreateFormSubmissions),
		},
		Request: operation.Request{Params: []operation.Param{
			{
				Name: proofParam, In: operation.InQuery, Shape: operation.Text, Bounds: operation.Bounds{MaxLength: maxProof},
				Example:     "665f1c2a.665f1c2a.1717510000.18.Jx2mB0l4Zk6u1q9c.1.mJ1b3rVn:1a2b",
				Description: "Of keys of kind browser that ask for proof of work: the challenge, a colon and what was found for it.",
			},
			{
				Name: honeypotParam, In: operation.InQuery, Shape: operation.Text, Example: "https://spam.example",
				Description: "Of keys of kind browser: what the page's form has in a field that people do not see. Where there is anything, the submission is answered as if it were stored, and is not.",
			},
		}},
		Response: operation.Response{Failures: []operation.Failure{{
			Code: http.StatusInsufficientStorage, Message: noRoom, When: "a browser's key is used, and the organization has as much as it may store",
		}}},
		Around: m.guard,
	}
}

// guard makes the handler of new submissions ask keys of kind browser for the proof of work.
func (m *Module) guard(create operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		if len(c.Query.Text(proofParam)) > maxProof {
			return operation.Result{}, fault.One(proofParam, fault.Length, "the proof has at most %d characters", maxProof)
		}
		if c.Principal.KeyKind != tenants.Browser {
			return create(ctx, c)
		}
		if err := m.prove(ctx, c); err != nil {
			return operation.Result{}, err
		}

		result, err := create(ctx, c)
		if full, ok := errors.AsType[*store.QuotaError](err); ok { // visitors of a page are not told how much is stored
			err = &operation.Problem{Code: http.StatusInsufficientStorage, Message: noRoom, Reason: "limit " + full.Limit, Err: err}
		}
		return result, err
	}
}

// trapped reports whether a submission was made by a program that fills in what people do not see.
func trapped(_ context.Context, c *operation.Call, _ *Submission) bool {
	if c.Principal.KeyKind != tenants.Browser || c.Query.Text(honeypotParam) == "" {
		return false
	}
	c.Note(honeypotParam, "filled in")
	return true
}
