// Package keyring manages key-encryption keys and the data keys that they wrap.
//
// A Keyring holds versioned 256-bit keys. New values are wrapped under the primary key; the other keys only unwrap.
// Data
// keys are random, belong to one organization and purpose, and are stored wrapped. A rotation of the keyring therefore
// changes neither the data nor the signatures made with them: see DataKey.
//
// Encryption is AES-256-GCM with random 96-bit nonces from the standard library (cipher.NewGCMWithRandomNonce). It is
// part
// of Go's FIPS 140-3 module, leaves no nonce for a caller to repeat, and adds no dependency. Its bound of 2^32 messages
// per
// key is far above the number of data keys; for the values under one data key see package fields.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Sentinel errors. Returned errors wrap them and say what to do.
var (
	// ErrUnknownVersion: the value needs a key that the keyring does not
	// have, or has retired.
	ErrUnknownVersion = errors.New("the key version is not in the keyring")
	// ErrRetired: the keyring has the key but does not use it unless it is reinstated. It wraps ErrUnknownVersion.
	ErrRetired = fmt.Errorf("%w, which was retired", ErrUnknownVersion)
	// ErrCorrupt: the value is malformed, was altered, or belongs elsewhere.
	ErrCorrupt = errors.New("the wrapped value is corrupt or does not belong here")
	// ErrReadOnly: the keyring was not opened from a file that may be written.
	ErrReadOnly = errors.New("the keyring comes from configuration and cannot be changed here; change it at its source")
	// ErrPrimary: the primary key cannot be retired.
	ErrPrimary = errors.New("the key is the primary; rotate before retiring it")
)

// State says what a key is used for.
type State string

const (
	// Primary wraps and unwraps. There is exactly one.
	Primary State = "primary"
	// Active unwraps only.
	Active State = "active"
	// Retired keys are kept in the file but not used unless they are reinstated.
	Retired State = "retired"
)

const (
	keySize    = 32
	maxKeys    = 1000
	wrapPrefix = "kek.v1."
	// maxWrapped is the maximum size of what Wrap takes: keys and other small secrets.
	maxWrapped = 4096
)

// Info describes a key without its bytes.
type Info struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	State   State     `json:"state"`
}

// Keyring wraps and unwraps data keys. It is safe for concurrent use, and changes by Rotate, Retire, Reinstate and
// Reload
// are atomic. It prints without its keys.
type Keyring struct {
	// held is a pointer, because printing by reflection then shows an address only.
	held   atomic.Pointer[ring]
	change sync.Mutex // serializes changes of held
	source source
}

// source is the file that a keyring was read from.
type source struct {
	path     string
	writable bool
}

type ring struct {
	primary int
	keys    map[int]*key
}

type key struct {
	Info
	material [keySize]byte
	aead     cipher.AEAD
}

func newKey(info Info, material []byte) (*key, error) {
	k := &key{Info: info}
	copy(k.material[:], material)
	var err error
	k.aead, err = newAEAD(material)
	return k, err
}

func newAEAD(material []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(material)
	if err != nil {
		return nil, fmt.Errorf("set up AES-256: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func randomKey() []byte {
	material := make([]byte, keySize)
	_, _ = rand.Read(material) // never fails: crypto/rand ends the process instead
	return material
}

// withNewPrimary returns a copy of r with one more key, which is its primary, and the version of that key.
func (r *ring) withNewPrimary(now time.Time) (*ring, int, error) {
	if len(r.keys) >= maxKeys {
		return nil, 0, fmt.Errorf("the keyring holds %d keys, the maximum; remove retired keys from its file", len(r.keys))
	}
	next := &ring{keys: make(map[int]*key, len(r.keys)+1)}
	for version, k := range r.keys {
		copied := *k
		if copied.State == Primary {
			copied.State = Active
		}
		next.keys[version] = &copied
		next.primary = max(next.primary, version)
	}
	next.primary++
	info := Info{Version: next.primary, Created: now.UTC().Truncate(time.Millisecond), State: Primary}
	k, err := newKey(info, randomKey())
	if err != nil {
		return nil, 0, err
	}
	next.keys[next.primary] = k
	return next, next.primary, nil
}

// without returns a copy of r in which the key with that version is retired.
func (r *ring) without(version int) (*ring, error) {
	k, ok := r.keys[version]
	if !ok {
		return nil, fmt.Errorf("key version %d: %w", version, ErrUnknownVersion)
	}
	if version == r.primary {
		return nil, fmt.Errorf("key version %d: %w", version, ErrPrimary)
	}
	next := &ring{primary: r.primary, keys: maps.Clone(r.keys)}
	changed := *k
	changed.State = Retired
	next.keys[version] = &changed
	return next, nil
}

// reinstating returns a copy of r in which the key with that version is active again.
func (r *ring) reinstating(version int) (*ring, error) {
	k, ok := r.keys[version]
	if !ok {
		return nil, fmt.Errorf("key version %d: %w", version, ErrUnknownVersion)
	}
	if k.State != Retired {
		return r, nil
	}
	next := &ring{primary: r.primary, keys: maps.Clone(r.keys)}
	changed := *k
	changed.State = Active
	next.keys[version] = &changed
	return next, nil
}

// PrimaryVersion returns the version of the key that Wrap uses now.
func (k *Keyring) PrimaryVersion() int { return k.held.Load().primary }

// List returns all keys by ascending version, without their bytes.
func (k *Keyring) List() []Info {
	return k.held.Load().list()
}

// String names the source and the primary.
func (k *Keyring) String() string {
	return fmt.Sprintf("keyring from %s, primary version %d", k.source.path, k.PrimaryVersion())
}

// Format writes what String returns, for every verb.
func (k *Keyring) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// LogValue returns what String returns.
func (k *Keyring) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Wrap encrypts a data key of 1 to 4096 bytes under the primary and binds it
// to aad. The text carries the version of the primary.
func (k *Keyring) Wrap(dataKey, aad []byte) (string, error) {
	if len(dataKey) == 0 || len(dataKey) > maxWrapped {
		return "", fmt.Errorf("wrap a data key: %d bytes given, 1 to %d expected", len(dataKey), maxWrapped)
	}
	held := k.held.Load()
	primary := held.keys[held.primary]
	sealed := primary.aead.Seal(nil, nil, dataKey, wrapAAD(primary.Version, aad)) //nolint:gosec // G407: the AEAD draws its own nonce
	return wrapPrefix + strconv.Itoa(primary.Version) + "." + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Unwrap returns the data key that Wrap was given. It returns ErrUnknownVersion if the keyring lacks the key or has
// retired it, and ErrCorrupt if the text is malformed, was altered or was wrapped with another aad.
func (k *Keyring) Unwrap(wrapped string, aad []byte) ([]byte, error) {
	version, sealed, err := parseWrapped(wrapped)
	if err != nil {
		return nil, err
	}
	used, ok := k.held.Load().keys[version]
	if !ok {
		return nil, fmt.Errorf("unwrap: %w: version %d; load the keyring that holds it", ErrUnknownVersion, version)
	}
	if used.State == Retired {
		return nil, fmt.Errorf("unwrap: %w: tenantry keyring reinstate %d brings it back", ErrRetired, version)
	}
	dataKey, err := used.aead.Open(nil, nil, sealed, wrapAAD(version, aad))
	if err != nil {
		return nil, fmt.Errorf("unwrap: %w", ErrCorrupt)
	}
	return dataKey, nil
}

// WrappedVersion returns the keyring version that a wrapped value needs, or
// ErrCorrupt. It does not authenticate the text.
func WrappedVersion(wrapped string) (int, error) {
	version, _, err := parseWrapped(wrapped)
	return version, err
}

func parseWrapped(wrapped string) (version int, sealed []byte, err error) {
	rest, ok := strings.CutPrefix(wrapped, wrapPrefix)
	if !ok || len(wrapped) > 2*maxWrapped {
		return 0, nil, fmt.Errorf("unwrap: %w", ErrCorrupt)
	}
	number, encoded, _ := strings.Cut(rest, ".")
	version, ok = parseVersion(number)
	// The decoder ignores line ends, so one value would have many spellings.
	if !ok || strings.ContainsAny(encoded, "\r\n") {
		return 0, nil, fmt.Errorf("unwrap: %w", ErrCorrupt)
	}
	sealed, err = base64.RawURLEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return 0, nil, fmt.Errorf("unwrap: %w", ErrCorrupt)
	}
	return version, sealed, nil
}

// parseVersion accepts only the canonical spelling of 1 to 999,999,999.
func parseVersion(text string) (int, bool) {
	if len(text) == 0 || len(text) > 9 || text[0] == '0' {
		return 0, false
	}
	version := 0
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return 0, false
		}
		version = version*10 + int(text[i]-'0')
	}
	return version, true
}

func wrapAAD(version int, aad []byte) []byte {
	return appendFields(nil, []byte("tenantry/keyring/v1"), []byte(strconv.Itoa(version)), aad)
}
