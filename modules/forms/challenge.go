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
	// challengePurpose is the purpose of the data keys that sign challenges.
	challengePurpose = "form-challenge"
	// challengeFor is how long a challenge is valid and its answer is remembered.
	challengeFor  = 10 * time.Minute
	maxProof      = 300
	proofParam    = "proof"
	honeypotParam = "honeypot"
)

// Spent remembers which challenges have been answered. Safe for concurrent use.
type Spent interface {
	// Begin starts to remember challenges, unless it has started already. It must be called before a challenge is
	// issued.
	Begin(ctx context.Context, t *tenants.Tenant) error
	// Spend remembers the challenge for keep, and reports whether it certainly has not been answered before, unless by
	// the same request, if by names one. It returns false for a challenge that was issued before the memory began, for
	// example before a restart that lost it. An error means that this cannot be determined now.
	Spend(ctx context.Context, t *tenants.Tenant, challenge, by string, issued time.Time, keep time.Duration) (first bool, err error)
}

// Challenge is the work that a page does for one submission.
type Challenge struct {
	Challenge string `json:"challenge" doc:"The challenge, valid for one submission of this form with this key."`
	Bits      int    `json:"bits" doc:"Number of zero bits with which the SHA-256 of the proof must begin; 0: the key needs no proof."`
	ExpiresAt string `json:"expires_at" doc:"When it expires; RFC 3339, UTC, milliseconds."`
}

func (m *Module) challengeRow() operation.Row {
	return operation.Typed(operation.Row{
		Name: "forms.challenge", Method: http.MethodGet, Path: "/api/form/collections/{id}/challenge",
		Policy: operation.Policy{
			Credentials: operation.Key, Kinds: operation.ServerKeys | operation.Browser,
			Rule: operation.Needs(tenants.CreateFormSubmissions),
		},
		Response: operation.Response{
			Message: "Challenge found",
			Example: Challenge{
				exampleID + ".665f1c2ab4d3e2f1a0b9c8d6.1717510000.18.Jx2mB0l4Zk6u1q9cVtYw8g.1.mJ1b3rVn0c5J0o2t7bXwqg",
				18, "2024-06-04T14:06:40.000Z",
			},
			Failures: []operation.Failure{{
				Code: http.StatusNotFound, Message: missing, When: "no such form in this organization",
			}},
		},
		Docs: operation.Docs{
			Tag:     tag,
			Summary: "Get a challenge for a submission",
			Description: "For keys of kind browser that require proof of work. A proof is the challenge, a colon and up to 64 letters, digits, _ or -, " +
				"chosen so that its SHA-256 begins with as many zero bits as bits says. It is valid for one submission.",
		},
	}, m.challenge)
}

type challengeInput struct {
	ID string `json:"id" doc:"Identifier of the form." example:"665f1c2ab4d3e2f1a0b9c8d7"`
}

func (m *Module) challenge(ctx context.Context, c *operation.Call, in challengeInput) (Challenge, error) {
	if _, err := m.Forms.In(c.Workspace).Get(ctx, in.ID); err != nil {
		return Challenge{}, operation.OrMissing(err, missing)
	}
	return m.issue(ctx, c, keyTerms(c))
}

// terms are what a challenge is for: submissions of a form by the caller that who names, with that many bits of work.
type terms struct {
	form, who string
	bits      int
}

// by names who requires the work.
func (t terms) by() string {
	if t.who == publicCaller {
		return "this form"
	}
	return "this key"
}

// keyTerms returns the terms of the form that the path names and the key of the caller.
func keyTerms(c *operation.Call) terms {
	return terms{c.Path("id"), c.Principal.KeyID, c.Principal.ProofOfWork}
}

// issue returns a challenge.
func (m *Module) issue(ctx context.Context, c *operation.Call, of terms) (Challenge, error) {
	keys, err := m.keys.DataKeys(ctx, c.Tenant, challengePurpose)
	if err != nil {
		return Challenge{}, err
	}
	if of.bits > 0 {
		if err := m.Spent.Begin(ctx, c.Tenant); err != nil {
			return Challenge{}, err
		}
	}
	key, expires := keys.Current(), time.Now().Add(challengeFor)
	signed := fmt.Sprintf("%s.%s.%d.%d.%s.%d", of.form, of.who, expires.Unix(), of.bits, rand.Text(), key.Version())
	return Challenge{signed + "." + sign(key.Bytes(), signed), of.bits, texts.Time(expires.Unix() * 1000)}, nil
}

func sign(key []byte, text string) string {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// prove checks the proof of work of a submission if the terms require one. A proof is accepted once, or again for the
// same request, if by names one.
func (m *Module) prove(ctx context.Context, c *operation.Call, of terms, by string) error {
	if of.bits == 0 {
		return nil
	}
	again := "; ask for another challenge"
	proof := c.Query.Text(proofParam)
	challenge, _, found := strings.Cut(proof, ":")
	end := strings.LastIndexByte(challenge, '.')
	switch {
	case proof == "":
		return fault.One(proofParam, fault.Required, "%s requires proof of work: get a challenge first and send its proof", of.by())
	case !found || end < 0:
		return fault.One(proofParam, fault.Format, "the proof must be the challenge, a colon and the solution%s", again)
	}
	keys, err := m.keys.DataKeys(ctx, c.Tenant, challengePurpose)
	if err != nil {
		return err
	}
	parts := strings.Split(challenge[:end], ".")
	var numbers [3]int64 // its expiry, its bits, the version of its key
	good := len(parts) == 6
	for i, at := range []int{2, 3, 5} {
		if good {
			numbers[i], err = strconv.ParseInt(parts[at], 10, 64)
			good = err == nil
		}
	}
	key, known := keys.Version(int(numbers[2]))
	if !good || !known || !hmac.Equal([]byte(sign(key.Bytes(), challenge[:end])), []byte(challenge[end+1:])) {
		return fault.One(proofParam, fault.Format, "the proof is not for a challenge of this organization%s", again)
	}
	expires := time.Unix(numbers[0], 0)
	left := time.Until(expires)
	switch {
	case parts[0] != of.form || parts[1] != of.who || numbers[1] < int64(of.bits):
		return fault.One(proofParam, fault.Format, "the proof is for a challenge of another form or key%s", again)
	case left <= 0:
		return fault.One(proofParam, fault.Range, "the challenge has expired%s", again)
	case zeros(sha256.Sum256([]byte(proof))) < of.bits:
		return fault.One(proofParam, fault.Range, "the SHA-256 of the proof must begin with %d zero bits", of.bits)
	}
	first, err := m.Spent.Spend(ctx, c.Tenant, parts[4], by, expires.Add(-challengeFor), left)
	if err == nil && !first {
		err = fault.One(proofParam, fault.Duplicate, "the challenge has been used, or was issued before a restart%s", again)
	}
	return err
}

// zeros returns the number of leading zero bits.
func zeros(sum [sha256.Size]byte) (n int) {
	for _, b := range sum {
		n += bits.LeadingZeros8(b)
		if b != 0 {
			break
		}
	}
	return n
}

const noRoom = "The organization cannot accept submissions at the moment"

// submit describes the row that creates submissions, which pages send with keys of kind browser.
func (m *Module) submit() crud.Action {
	return crud.Action{
		Policy: operation.Policy{
			Kinds: operation.ServerFull | operation.Browser, Rule: operation.Needs(tenants.CreateFormSubmissions),
		},
		Request: operation.Request{Params: []operation.Param{
			{
				Name: proofParam, In: operation.InQuery, Shape: operation.Text, Bounds: operation.Bounds{MaxLength: maxProof},
				Example:     "665f1c2a.665f1c2a.1717510000.18.Jx2mB0l4Zk6u1q9c.1.mJ1b3rVn:1a2b",
				Description: "For keys of kind browser that require proof of work: the challenge, a colon and the solution.",
			},
			{
				Name: honeypotParam, In: operation.InQuery, Shape: operation.Text, Example: "https://spam.example",
				Description: "For keys of kind browser: the value of a field of the page's form that is hidden from people. If " +
					"it is not empty, the submission is answered as if it were stored, but is not stored.",
			},
		}},
		Response: operation.Response{Failures: []operation.Failure{{
			Code: http.StatusInsufficientStorage, Message: noRoom, When: "a browser key is used, and the organization has reached a quota",
		}}},
		Around: m.guard,
	}
}

// checkProof refuses a proof that is too long.
func checkProof(c *operation.Call) error {
	if len(c.Query.Text(proofParam)) > maxProof {
		return fault.One(proofParam, fault.Length, "the proof must have at most %d characters", maxProof)
	}
	return nil
}

// guard makes the handler that creates submissions check the proof of work of browser keys.
func (m *Module) guard(create operation.Handler) operation.Handler {
	create = m.wakeAfter(create)
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		if err := checkProof(c); err != nil {
			return operation.Result{}, err
		}
		if c.Principal.KeyKind != tenants.Browser {
			return create(ctx, c)
		}
		if err := m.prove(ctx, c, keyTerms(c), ""); err != nil {
			return operation.Result{}, err
		}

		c.Discard = c.Query.Text(honeypotParam) != "" // a program has filled in the hidden field
		result, err := create(ctx, c)
		if _, isFull := errors.AsType[*store.QuotaError](err); c.Discard && (err == nil || isFull) {
			c.Note(honeypotParam, "filled in")
		}
		return result, hideQuota(err)
	}
}
