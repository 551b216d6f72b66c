// Package passwords hashes and checks passwords with Argon2id.
//
// Each computation takes 19 MiB for some tens of milliseconds. A Hasher therefore runs a bounded number of them at a
// time, lets a bounded number wait, and refuses the rest with ErrBusy. The parties that it works for, which are
// organizations, take turns.
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
	// ErrBusy: too many computations are waiting. Callers should get a 503 and try again later.
	ErrBusy = errors.New("too many passwords are being checked at the moment; try again shortly")
	// ErrCorruptHash: the stored hash was not made by this package, or requires more memory or time than is allowed.
	ErrCorruptHash = errors.New("the stored password hash is corrupt; set a new password")
)

// Options of a Hasher. The zero value gives the defaults.
type Options struct {
	// Concurrency is how many computations run at a time; the default is the number of CPUs.
	Concurrency int
	// Waiting is how many more may wait; the default is 16 times Concurrency.
	Waiting int
	// Memory is the memory of a computation in KiB; the default is 19 MiB. Only tests use less.
	Memory uint32
}

// Hasher hashes and checks passwords. It is safe for concurrent use and need not be closed.
type Hasher struct {
	params argon2id.Params
	queue  fairqueue.Queue[int64]
	dummy  string // hash that stands in for unknown users
}

const (
	maxConcurrency = 256
	maxWaiting     = 1 << 16
	memory         = 19 << 10 // KiB
	minMemory      = 8        // of Argon2 itself
	// Bounds on the parameters of a stored hash.
	maxMemory     = 64 << 10 // KiB
	maxIterations = 10
	maxLanes      = 8
	maxPartLength = 64
)

// New returns a Hasher. It returns an error if an option is out of bounds.
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
		return nil, fmt.Errorf("memory of a password check: %d KiB given, %d to %d expected", options.Memory, minMemory,
			maxMemory)
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

// dummyHash returns a hash that no known password matches. It is random rather than computed, because computing it
// would slow every start.
func dummyHash(p argon2id.Params) string {
	random := make([]byte, p.SaltLength+p.KeyLength)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the process instead
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", p.Memory, p.Iterations, p.Parallelism,
		encode(random[:p.SaltLength]), encode(random[p.SaltLength:]))
}

// CheckPolicy returns ErrTooShort, ErrTooLong or ErrInvalidText for a password that may not be set.
func CheckPolicy(password secret.String) error {
	text := normalized(password)
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

// normalized returns a password in Unicode form NFC, because keyboards differ in whether they enter an accented letter
// as one character or two, and people cannot see which.
func normalized(password secret.String) string { return norm.NFC.String(password.Reveal()) }

// Hash returns the hash of a new password, in Unicode form NFC, in the PHC format for storage. The computation takes a
// turn of the party. Errors: those of CheckPolicy, ErrBusy, that of ctx if it ends while waiting.
func (h *Hasher) Hash(ctx context.Context, party int64, password secret.String) (string, error) {
	if err := CheckPolicy(password); err != nil {
		return "", err
	}
	if err := h.enter(ctx, party); err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	defer h.queue.Leave(party)
	return argon2id.CreateHash(normalized(password), &h.params)
}

// Verify reports whether password is the one that was hashed. The computation takes a turn of the party. For a user who
// is unknown or has no password, pass an empty hash: the same work is done and ok is false, so that the time does not
// reveal which users exist.
//
// The password is compared in Unicode form NFC and, if that differs and does not match, as it was typed, because
// earlier versions hashed it like that. rehash reports that the password matches but should be hashed again, because
// the hash was made from that form or with other parameters than the current ones.
//
// Errors: ErrBusy, ErrCorruptHash, that of ctx if it ends while waiting. None of them means that the password is wrong.
func (h *Hasher) Verify(
	ctx context.Context, party int64, hash string, password secret.String,
) (ok, rehash bool, err error) {
	typed, nfc := password.Reveal(), normalized(password)
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
		rehash = match
	}
	if err != nil {
		return false, false, ErrCorruptHash
	}
	return match && known, match && known && (rehash || h.needsRehash(hash)), nil
}

// enter waits for a turn of the party. Unless it fails, h.queue.Leave must follow. Errors: ErrBusy, that of ctx.
func (h *Hasher) enter(ctx context.Context, party int64) error {
	err := h.queue.Enter(ctx, party)
	if errors.Is(err, fairqueue.ErrFull) {
		return ErrBusy
	}
	return err
}

// needsRehash reports whether a stored hash was made with other parameters than the current ones.
func (h *Hasher) needsRehash(hash string) bool {
	params, _, _, err := argon2id.DecodeHash(hash)
	return err != nil || *params != h.params
}

// checkHash refuses hashes, such as imported ones, that would take excessive memory or make Argon2 panic.
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
