package passwords_test

import (
	"context"
	"encoding/base64"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/alexedwards/argon2id"

	"tenantry/crypto/passwords"
	"tenantry/crypto/secret"
)

const good = "correct horse battery"

func newHasher(t testing.TB, options passwords.Options) *passwords.Hasher {
	t.Helper()
	h, err := passwords.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHashThenVerify(t *testing.T) {
	t.Parallel()
	h := newHasher(t, passwords.Options{})
	ctx := t.Context()
	hash, err := h.Hash(ctx, 1, secret.New(good))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("hash %q", hash)
	}
	if again, err := h.Hash(ctx, 1, secret.New(good)); err != nil || again == hash {
		t.Fatalf("two hashes are equal, %v", err)
	}
	for text, want := range map[string]bool{good: true, good + " ": false, "": false, strings.ToUpper(good): false, strings.Repeat("x", 2000): false} {
		if ok, _, err := h.Verify(ctx, 1, hash, secret.New(text)); err != nil || ok != want {
			t.Errorf("%q: got %v, %v, want no error and ok = %v", text, ok, err, want)
		}
	}
	if ok, _, err := h.Verify(ctx, 1, "", secret.New(good)); ok || err != nil {
		t.Errorf("unknown user: %v, %v", ok, err)
	}
	if _, again, err := h.Verify(ctx, 1, hash, secret.New(good)); again || err != nil {
		t.Errorf("a hash of today: %v, %v", again, err)
	}
}

// TestUnicodeFormsAreEquivalent checks that a password matches in both Unicode forms that keyboards send, and that
// hashes of the form that was typed still match.
func TestUnicodeFormsAreEquivalent(t *testing.T) {
	t.Parallel()
	h := newHasher(t, passwords.Options{})
	const nfc, nfd = "Zwölf Größen é", "Zwo\u0308lf Gro\u0308ßen e\u0301"
	hashes := map[string]string{}
	for name, text := range map[string]string{"nfc": nfc, "nfd": nfd} {
		hash, err := h.Hash(t.Context(), 1, secret.New(text))
		if err != nil {
			t.Fatal(err)
		}
		hashes[name] = hash
	}
	typed, err := argon2id.CreateHash(nfd, &argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32})
	if err != nil {
		t.Fatal(err)
	}
	hashes["as it was typed"] = typed
	for name, hash := range hashes {
		for _, text := range []string{nfc, nfd} {
			ok, again, err := h.Verify(t.Context(), 1, hash, secret.New(text))
			earlier := name == "as it was typed"
			if want := !earlier || text == nfd; err != nil || ok != want || again != (earlier && text == nfd) {
				t.Errorf("hashed %s, typed %+q: %v, again %v, %v", name, text, ok, again, err)
			}
		}
	}
	// Twelve characters count as people see them.
	if err := passwords.CheckPolicy(secret.New(strings.Repeat("e\u0301", 11))); !errors.Is(err, passwords.ErrTooShort) {
		t.Errorf("eleven letters: %v", err)
	}
}

// A vector of the reference implementation (phc-winner-argon2, test.c:
// version 0x13, t=2, m=2^8, p=1).
func TestReferenceVector(t *testing.T) {
	t.Parallel()
	h := newHasher(t, passwords.Options{})
	const hash = "$argon2id$v=19$m=256,t=2,p=1$c29tZXNhbHQ$nf65EOgLrQMR/uIPnA4rEsF5h7TKyQwu9U1bMCHGi/4"
	if ok, again, err := h.Verify(t.Context(), 1, hash, secret.New("password")); !ok || !again || err != nil {
		t.Fatalf("%v, to be made anew %v, %v", ok, again, err)
	}
}

func TestPolicy(t *testing.T) {
	t.Parallel()
	h := newHasher(t, passwords.Options{})
	for name, tt := range map[string]struct {
		text string
		want error
	}{
		"empty": {"", passwords.ErrTooShort}, "11 characters": {"12345678901", passwords.ErrTooShort},
		"11 characters of 2 bytes": {strings.Repeat("é", 11), passwords.ErrTooShort}, "12 characters": {"123456789012", nil},
		"longest": {strings.Repeat("x", 1024), nil}, "too long": {strings.Repeat("x", 1025), passwords.ErrTooLong},
		"not UTF-8": {strings.Repeat("\xff", 20), passwords.ErrInvalidText},
	} {
		if err := passwords.CheckPolicy(secret.New(tt.text)); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want the error %v", name, err, tt.want)
		}
		if tt.want != nil {
			if _, err := h.Hash(t.Context(), 1, secret.New(tt.text)); !errors.Is(err, tt.want) {
				t.Errorf("%s: hashed: %v", name, err)
			}
		}
	}
}

func TestCorruptHashIsRefusedWithoutWork(t *testing.T) {
	t.Parallel()
	h := newHasher(t, passwords.Options{})
	tail := "$c29tZXNhbHRzb21lc2FsdA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for name, hash := range map[string]string{
		"text": "x", "bcrypt": "$2a$10$abcdefghijklmnopqrstuv", "variant": "$argon2i$v=19$m=19456,t=2,p=1" + tail,
		"4 GiB": "$argon2id$v=19$m=4194304,t=2,p=1" + tail, "no memory": "$argon2id$v=19$m=0,t=2,p=1" + tail,
		"no time": "$argon2id$v=19$m=19456,t=0,p=1" + tail, "long time": "$argon2id$v=19$m=19456,t=1000000,p=1" + tail,
		"no lanes": "$argon2id$v=19$m=19456,t=2,p=0" + tail, "many lanes": "$argon2id$v=19$m=19456,t=2,p=255" + tail,
		"long salt": "$argon2id$v=19$m=19456,t=2,p=1$" + base64.RawStdEncoding.EncodeToString(make([]byte, 65)) + "$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		"long key":  "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$" + base64.RawStdEncoding.EncodeToString(make([]byte, 65)), "no key": "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$",
		"no salt": "$argon2id$v=19$m=19456,t=2,p=1$$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "long": "$argon2id$" + strings.Repeat("a", 1000),
	} {
		start := time.Now()
		ok, _, err := h.Verify(t.Context(), 1, hash, secret.New(good))
		if ok || !errors.Is(err, passwords.ErrCorruptHash) {
			t.Errorf("%s: got %v, %v, want not ok and the error passwords.ErrCorruptHash", name, ok, err)
		}
		if d := time.Since(start); d > 30*time.Second {
			t.Errorf("%s: took %v", name, d)
		}
	}
}

// TestUnknownUserCostsTheSameWork compares by the memory that Argon2id fills, not by time. It is not parallel, so
// that nobody else allocates meanwhile.
func TestUnknownUserCostsTheSameWork(t *testing.T) {
	h := newHasher(t, passwords.Options{})
	hash, err := h.Hash(t.Context(), 1, secret.New(good))
	if err != nil {
		t.Fatal(err)
	}
	filled := func(hash string) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if ok, _, err := h.Verify(t.Context(), 1, hash, secret.New("wrong password")); ok || err != nil {
			t.Fatalf("got %v, %v, want not ok and no error", ok, err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	const need = 19 << 20
	if known, unknown := filled(hash), filled(""); known < need || unknown < need {
		t.Fatalf("known fills %d bytes, unknown %d, at least %d expected", known, unknown, need)
	}
}

func TestCancelledCallerDoesNoWork(t *testing.T) {
	t.Parallel()
	h := newHasher(t, passwords.Options{Concurrency: 1, Waiting: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 { // more than there are capacity: each must be given back
		if _, _, err := h.Verify(ctx, 1, "", secret.New(good)); !errors.Is(err, context.Canceled) {
			t.Fatalf("verify: %v", err)
		}
		if _, err := h.Hash(ctx, 1, secret.New(good)); !errors.Is(err, context.Canceled) {
			t.Fatalf("hash: %v", err)
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	for _, options := range []passwords.Options{{Concurrency: -1}, {Concurrency: -1, Waiting: 1}, {Waiting: -1}, {Concurrency: 1000}, {Waiting: 1 << 20}, {Memory: 4}, {Memory: 1 << 20}} {
		if _, err := passwords.New(options); err == nil {
			t.Errorf("%+v was accepted", options)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	h := newHasher(b, passwords.Options{})
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := h.Verify(b.Context(), 1, "", secret.New(good)); err != nil {
			b.Fatal(err)
		}
	}
}
