package keyring

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"tenantry/internal/texts"
)

const dataKeyPrefix = "data.v1."

// DataKey is a random 256-bit key of one organization for one purpose. Its version distinguishes it from the
// organization's other keys for that purpose. It is immutable, safe for concurrent use, cheap to copy, and prints
// without
// its bytes. The zero value holds no key.
type DataKey struct {
	organization int64
	purpose      string
	version      int
	// fmt prints unexported fields by reflection, and for some verbs follows one pointer to a struct. With two pointers
	// it prints an address only.
	held **heldKey
}

type heldKey struct {
	material [keySize]byte
	aead     cipher.AEAD
}

// NewDataKey creates the first data key (version 1) of an organization for a purpose. It returns the key and its
// wrapped
// text for storage. A purpose consists of 1 to 64 characters of a-z, 0-9, '-', '_' and '.'. organization must be
// positive.
func NewDataKey(kr *Keyring, organization int64, purpose string) (DataKey, string, error) {
	return makeDataKey(kr, organization, purpose, 1)
}

// NextDataKey creates the successor of a data key, with the same organization and purpose and the next version. Keep
// the
// former one as long as anything is encrypted or signed with it.
func NextDataKey(kr *Keyring, previous DataKey) (DataKey, string, error) {
	if previous.IsZero() {
		return DataKey{}, "", errors.New("make the next data key: there is no previous key; use NewDataKey")
	}
	return makeDataKey(kr, previous.organization, previous.purpose, previous.version+1)
}

func makeDataKey(kr *Keyring, organization int64, purpose string, version int) (DataKey, string, error) {
	if err := checkBinding(organization, purpose); err != nil {
		return DataKey{}, "", fmt.Errorf("make a data key: %w", err)
	}
	material := randomKey()
	k, err := bindDataKey(organization, purpose, version, material)
	if err != nil {
		return DataKey{}, "", err
	}
	wrapped, err := k.wrap(kr)
	return k, wrapped, err
}

// OpenDataKey returns the data key in a stored text. It returns ErrUnknownVersion if the keyring lacks or has retired
// the
// key that wrapped it, and ErrCorrupt if the text was altered or belongs to another organization or purpose.
func OpenDataKey(kr *Keyring, organization int64, purpose, wrapped string) (DataKey, error) {
	if err := checkBinding(organization, purpose); err != nil {
		return DataKey{}, fmt.Errorf("open a data key: %w", err)
	}
	version, inner, err := parseDataKey(wrapped)
	if err != nil {
		return DataKey{}, err
	}
	material, err := kr.Unwrap(inner, dataKeyAAD(organization, purpose, version))
	if err != nil {
		return DataKey{}, fmt.Errorf("open data key %q version %d of organization %d: %w", purpose, version, organization,
			err)
	}
	if len(material) != keySize {
		return DataKey{}, fmt.Errorf("open data key %q of organization %d: %w", purpose, organization, ErrCorrupt)
	}
	return bindDataKey(organization, purpose, version, material)
}

// RewrapDataKey returns the stored text of the same data key under the present primary key, and false if that already
// wraps it. Once every stored text is rewrapped, the former versions can be retired. Errors: as OpenDataKey.
func RewrapDataKey(kr *Keyring, organization int64, purpose, wrapped string) (string, bool, error) {
	k, err := OpenDataKey(kr, organization, purpose, wrapped)
	if err != nil {
		return "", false, err
	}
	used, err := DataKeyWrappedBy(wrapped)
	if err != nil {
		return "", false, err
	}
	if used == kr.PrimaryVersion() {
		return wrapped, false, nil
	}
	again, err := k.wrap(kr)
	return again, err == nil, err
}

// DataKeyWrappedBy returns the keyring version that a stored data key needs, or ErrCorrupt. It does not authenticate
// the
// text.
func DataKeyWrappedBy(wrapped string) (int, error) {
	_, inner, err := parseDataKey(wrapped)
	if err != nil {
		return 0, err
	}
	return WrappedVersion(inner)
}

// Organization returns the organization the key belongs to.
func (k DataKey) Organization() int64 { return k.organization }

// Purpose returns the purpose of the key.
func (k DataKey) Purpose() string { return k.purpose }

// Version returns the key's version, 1 or more.
func (k DataKey) Version() int { return k.version }

// IsZero reports whether the DataKey holds no key.
func (k DataKey) IsZero() bool { return k.held == nil }

// Bytes returns a copy of the 32 key bytes, for use as a MAC key. It returns nil for the zero DataKey.
func (k DataKey) Bytes() []byte {
	if k.held == nil {
		return nil
	}
	return append([]byte(nil), (*k.held).material[:]...)
}

// AEAD returns AES-256-GCM with this key. It draws its own random nonces, so its NonceSize is 0. It returns nil for the
// zero DataKey.
func (k DataKey) AEAD() cipher.AEAD {
	if k.held == nil {
		return nil
	}
	return (*k.held).aead
}

// String names the key without its bytes.
func (k DataKey) String() string {
	return fmt.Sprintf("data key %q version %d of organization %d", k.purpose, k.version, k.organization)
}

// Format writes what String returns, for every verb.
func (k DataKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, k.String()) }

// MarshalText returns what String returns. slog and JSON use it.
func (k DataKey) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

func (k DataKey) wrap(kr *Keyring) (string, error) {
	inner, err := kr.Wrap((*k.held).material[:], dataKeyAAD(k.organization, k.purpose, k.version))
	if err != nil {
		return "", err
	}
	return dataKeyPrefix + strconv.Itoa(k.version) + "." + inner, nil
}

func bindDataKey(organization int64, purpose string, version int, material []byte) (DataKey, error) {
	held := &heldKey{}
	copy(held.material[:], material)
	var err error
	if held.aead, err = newAEAD(material); err != nil {
		return DataKey{}, err
	}
	return DataKey{organization: organization, purpose: purpose, version: version, held: &held}, nil
}

func parseDataKey(wrapped string) (version int, inner string, err error) {
	rest, ok := strings.CutPrefix(wrapped, dataKeyPrefix)
	if !ok {
		return 0, "", fmt.Errorf("open a data key: %w", ErrCorrupt)
	}
	number, inner, _ := strings.Cut(rest, ".")
	if version, ok = parseVersion(number); !ok {
		return 0, "", fmt.Errorf("open a data key: %w", ErrCorrupt)
	}
	return version, inner, nil
}

func checkBinding(organization int64, purpose string) error {
	if organization <= 0 {
		return fmt.Errorf("%d is not the number of an organization", organization)
	}
	if len(purpose) == 0 || len(purpose) > 64 {
		return errors.New("the purpose must have 1 to 64 characters")
	}
	if !texts.PlainLower(purpose, 64, "-_.") {
		return fmt.Errorf("purpose %q: only a-z, 0-9, '-', '_' and '.' are allowed", purpose)
	}
	return nil
}

func dataKeyAAD(organization int64, purpose string, version int) []byte {
	return appendFields(nil,
		[]byte("tenantry/data-key/v1"),
		[]byte(strconv.FormatInt(organization, 10)),
		[]byte(purpose),
		[]byte(strconv.Itoa(version)))
}

// appendFields appends each field after its length in 8 bytes, so that no two lists of fields have the same encoding.
func appendFields(dst []byte, fields ...[]byte) []byte {
	for _, field := range fields {
		dst = binary.BigEndian.AppendUint64(dst, uint64(len(field)))
		dst = append(dst, field...)
	}
	return dst
}
