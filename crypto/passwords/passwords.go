// Package passwords hashes and checks passwords with Argon2id.
//
// Each computation takes 19 MiB for some tens of milliseconds, so a Hasher
// runs a bounded number of them at a time, lets a bounded number wait, and
// turns the rest away with ErrBusy. The parties that it works for, organizations,
// take turns.
package passwords

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
	"golang.org/x/text/unicode/norm"

	"tenantry/crypto/secret"
	"tenantry/internal/fairqueue"
)

// Bounds of a password.
const (
	MinCharacters = 12
	MaxBytes      = 1024
)

// Sentinel errors.
var (
	ErrTooShort = fmt.Errorf("the password is too short: at least %d characters are required", MinCharacters)
	ErrTooLong  = fmt.Errorf("the password is too long: at most %d bytes are allowed", MaxBytes)
	// ErrInvalidText: the password is not valid UTF-8.
	ErrInvalidText = errors.New("the password is not valid UTF-8 text")
	// ErrBusy: too many computations wait already. Answer 503 and try later.
	ErrBusy = errors.New("too many passwords are being checked at the moment; try again shortly")
	// ErrCorruptHash: the stored hash is not one of this package's, or asks
	// for more memory or time than is allowed.
	ErrCorruptHash = errors.New("the stored password hash is corrupt; set a new password")
)

// Options of a Hasher. The zero value gives the defaults.
type Options struct {
	// Concurrency is how many computations run at a time, of 19 MiB each; the
	// default is the number of CPUs.
	Concurrency int
	// Waiting is how many more may wait; the default is 16 for each running.
	Waiting int
	// Memory is that of a computation in KiB; the default is 19 MiB. Only tests take less.
	Memory uint32
}

// Hasher hashes and checks passwords. It is safe for concurrent use and holds
// nothing that must be closed.
type Hasher struct {
	params argon2id.Params
	queue  fairqueue.Queue[int64]
	dummy  string
}

const (
	maxConcurrency = 256
	maxWaiting     = 1 << 16
	memory         = 19 << 10 // KiB
	minMemory      = 8        // Argon2's own
	// What a stored hash may ask for.
	maxMemory     = 64 << 10 // KiB
	maxIterations = 10
	maxLanes      = 8
	maxPartLength = 64
)

// New returns a Hasher, or an error for an option out of bounds.
func New(options Options) (*Hasher, error) {
	if options.Concurrency == 0 {
		options.Concurrency = runtime.NumCPU()
	}
	if options.Waiting == 0 {
		options.Waiting = 16 * options.Concurrency
	}
	if options.Memory == 0 {
		options.Memory = memory
	}
	if options.Memory < minMemory || options.Memory > maxMemory {
		return nil, fmt.Errorf("memory of a password check: %d KiB given, %d to %d expected", options.Memory, minMemory, maxMemory)
	}
	if options.Concurrency < 1 || options.Concurrency > maxConcurrency {
		return nil, fmt.Errorf("password checks at a time: %d given, 1 to %d expected", options.Concurrency, maxConcurrency)
	}
	if options.Waiting < 1 || options.Waiting > maxWaiting {
		return nil, fmt.Errorf("waiting password checks: %d given, 1 to %d expected", options.Waiting, maxWaiting)
	}
	h := &Hasher{
		// The second of OWASP's equivalent choices for Argon2id.
		params: argon2id.Params{Memory: options.Memory, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32},
		queue:  fairqueue.Queue[int64]{Size: options.Concurrency, Places: options.Waiting},
	}
	h.dummy = dummyHash(h.params)
	return h, nil
}

// dummyHash is the hash of no known password. It is made up, not computed:
// that would add to every start.
func dummyHash(p argon2id.Params) string {
	random := make([]byte, p.SaltLength+p.KeyLength)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the process instead
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", p.Memory, p.Iterations, p.Parallelism,
		encode(random[:p.SaltLength]), encode(random[p.SaltLength:]))
}

// CheckPolicy returns ErrTooShort, ErrTooLong or ErrInvalidText for a password
// that may not be set.
func CheckPolicy(password secret.String) error {
	text := composed(password)
	switch {
	case len(text) > MaxBytes:
		return ErrTooLong
	case !utf8.ValidString(text):
		return ErrInvalidText
	case utf8.RuneCountInString(text) < MinCharacters:
		return ErrTooShort
	}
	return nil
}

// composed returns a password in Unicode's form NFC. Some keyboards make an accented letter of two characters where
// others make one, and people do not see which.
func composed(password secret.String) string { return norm.NFC.String(password.Reveal()) }

// Hash returns the hash of a new password, in Unicode's form NFC, in the PHC format, for storage; party is
// whose turn it takes. It
// returns the errors of CheckPolicy, ErrBusy, or the error of ctx when that
// ends while waiting.
func (h *Hasher) Hash(ctx context.Context, party int64, password secret.String) (string, error) {
	if err := CheckPolicy(password); err != nil {
		return "", err
	}
	if err := h.enter(ctx, party); err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	defer h.queue.Leave(party)
	return argon2id.CreateHash(composed(password), &h.params)
}

// Verify reports whether password is the one that was hashed; party is whose turn
// it takes. For a user who
// is unknown or has no password, pass an empty hash: the same work is done and
// the answer is false, so that the time does not tell who exists.
//
// A password is compared in the form NFC and, where that is another and did not match, as it was typed: so it was
// hashed by earlier versions. Again says that the hash is to be made anew, since it was made of that, or with other
// parameters than today's.
//
// It returns ErrBusy, ErrCorruptHash, or the error of ctx when that ends while
// waiting; none of these means that the password is wrong.
func (h *Hasher) Verify(ctx context.Context, party int64, hash string, password secret.String) (ok, again bool, err error) {
	typed, nfc := password.Reveal(), composed(password)
	if len(nfc) > MaxBytes {
		return false, false, nil
	}
	known := hash != ""
	if !known {
		hash = h.dummy
	}
	if err := checkHash(hash); err != nil {
		return false, false, err
	}
	if err := h.enter(ctx, party); err != nil {
		return false, false, fmt.Errorf("check a password: %w", err)
	}
	defer h.queue.Leave(party)
	match, err := argon2id.ComparePasswordAndHash(nfc, hash)
	if err == nil && !match && typed != nfc {
		match, err = argon2id.ComparePasswordAndHash(typed, hash)
		again = match
	}
	if err != nil {
		return false, false, ErrCorruptHash
	}
	return match && known, match && known && (again || h.needsRehash(hash)), nil
}

// enter waits for a turn of the party. Errors: ErrBusy, that of ctx.
func (h *Hasher) enter(ctx context.Context, party int64) error {
	err := h.queue.Enter(ctx, party)
	if errors.Is(err, fairqueue.ErrFull) {
		return ErrBusy
	}
	return err
}

// needsRehash reports whether a stored hash was made with other parameters than today's.
func (h *Hasher) needsRehash(hash string) bool {
	params, _, _, err := argon2id.DecodeHash(hash)
	return err != nil || *params != h.params
}

// checkHash keeps a hash from outside, such as an imported one, from taking
// memory without bound, or from panicking inside Argon2.
func checkHash(hash string) error {
	if len(hash) > 512 {
		return ErrCorruptHash
	}
	p, _, _, err := argon2id.DecodeHash(hash)
	if err != nil ||
		p.Memory < 8*uint32(p.Parallelism) || p.Memory > maxMemory ||
		p.Iterations < 1 || p.Iterations > maxIterations ||
		p.Parallelism < 1 || p.Parallelism > maxLanes ||
		p.SaltLength < 8 || p.SaltLength > maxPartLength ||
		p.KeyLength < 16 || p.KeyLength > maxPartLength {
		return ErrCorruptHash
	}
	return nil
}
