// Package fields encrypts single values of records, each of which opens only in the place it was sealed for.
//
// A sealed value has the form
//
//	enc.v1.<key version>.<base64url of nonce, ciphertext and tag>
//
// Encryption is AES-256-GCM with a data key of the organization and a random 96-bit nonce. The associated data contain
// the
// organization, collection, record, field, purpose and key version in an unambiguous encoding, so that a value copied
// to
// another place does not open. A data key may seal 2^32 values; create its successor with keyring.NextDataKey long
// before.
package fields

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"tenantry/crypto/keyring"
	"tenantry/crypto/secret"
	"tenantry/internal/texts"
)

// MaxPlaintext is the size of the largest value that Seal encrypts, in bytes.
const MaxPlaintext = 64 << 10

const (
	prefix   = "enc.v1."
	overhead = 12 + 16 // nonce and tag
	// maxSealed bounds the work on untrusted texts.
	maxSealed = len(prefix) + len("999999999.") + (MaxPlaintext+overhead)*4/3 + 4
)

// Sentinel errors.
var (
	// ErrCorrupt: the value is malformed, was altered, was sealed with another key, or belongs to another place. The
	// error does not distinguish the cases.
	ErrCorrupt = errors.New("the encrypted value is corrupt or does not belong here")
	// ErrTooLong: the value is longer than MaxPlaintext.
	ErrTooLong = fmt.Errorf("the value is too long to encrypt: at most %d bytes are allowed", MaxPlaintext)
	// ErrLocation: the location is incomplete, or the key belongs to another organization. It shows a fault in the
	// calling code, not in the data.
	ErrLocation = errors.New("the value cannot be encrypted for this place")
)

// Location is the place a value belongs to. All parts are required. The identifier of a record must be final before its
// values are sealed.
type Location struct {
	Organization int64
	Collection   string
	Record       string
	Field        string
}

// Seal encrypts plaintext for one location. The key must belong to the organization of the location. The same plaintext
// gives a different text each time. Errors: ErrTooLong, ErrLocation. It is safe for concurrent use.
func Seal(key keyring.DataKey, at Location, plaintext string) (string, error) {
	if key.IsZero() {
		return "", fmt.Errorf("%w: there is no data key", ErrLocation)
	}
	if key.Organization() != at.Organization {
		return "", fmt.Errorf("%w: the key is organization %d's, the place organization %d's", ErrLocation,
			key.Organization(), at.Organization)
	}
	if at.Collection == "" || at.Record == "" || at.Field == "" {
		return "", fmt.Errorf("%w: collection, record and field are required", ErrLocation)
	}
	if len(plaintext) > MaxPlaintext {
		return "", ErrTooLong
	}
	sealed := key.AEAD().Seal(nil, nil, []byte(plaintext), associatedData(key, at)) //nolint:gosec // G407: the AEAD draws its own nonce
	return prefix + strconv.Itoa(key.Version()) + "." + base64.RawURLEncoding.EncodeToString(sealed), nil
}

// Open decrypts what Seal returned for the same location and key. For every other text it returns ErrCorrupt. If an
// organization has several data keys, KeyVersion says which one to use. It is safe for concurrent use.
func Open(key keyring.DataKey, at Location, sealed string) (secret.String, error) {
	version, body, ok := parse(sealed)
	if !ok || key.IsZero() || version != key.Version() || key.Organization() != at.Organization {
		return secret.String{}, ErrCorrupt
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return secret.String{}, ErrCorrupt
	}
	plaintext, err := key.AEAD().Open(raw[:0], nil, raw, associatedData(key, at))
	if err != nil {
		return secret.String{}, ErrCorrupt
	}
	return secret.New(string(plaintext)), nil
}

// KeyVersion returns the version of the data key that opens a sealed value, or ErrCorrupt. It does not authenticate the
// text.
func KeyVersion(sealed string) (int, error) {
	version, _, ok := parse(sealed)
	if !ok {
		return 0, ErrCorrupt
	}
	return version, nil
}

// parse accepts only one spelling of each value.
func parse(text string) (version int, body string, ok bool) {
	if len(text) > maxSealed {
		return 0, "", false
	}
	rest, ok := strings.CutPrefix(text, prefix)
	if !ok {
		return 0, "", false
	}
	number, body, ok := strings.Cut(rest, ".")
	if !ok || len(number) > 9 || number == "" || number[0] < '1' || number[0] > '9' {
		return 0, "", false
	}
	version, err := strconv.Atoi(number)
	if err != nil || base64.RawURLEncoding.DecodedLen(len(body)) < overhead || len(body)%4 == 1 {
		return 0, "", false
	}
	return version, body, texts.Plain(body, len(body), "-_")
}

func associatedData(key keyring.DataKey, at Location) []byte {
	dst := make([]byte, 0, 160)
	dst = appendText(dst, "tenantry/fields/v1")
	dst = binary.BigEndian.AppendUint64(dst, uint64(at.Organization))
	dst = binary.BigEndian.AppendUint64(dst, uint64(key.Version()))
	dst = appendText(dst, key.Purpose())
	dst = appendText(dst, at.Collection)
	dst = appendText(dst, at.Record)
	return appendText(dst, at.Field)
}

func appendText(dst []byte, text string) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(text)))
	return append(dst, text...)
}
