// Package secret provides a string type for values that must not reach a log, an error text or a dump of the
// configuration. fmt, log/slog, encoding/json and text marshallers print a String as "[redacted]"; only Reveal returns
// the
// value.
package secret

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
)

// Redacted is the printed form of a String that is not empty.
const Redacted = "[redacted]"

// ErrPlaceholder is returned if the text Redacted is read as a secret, because it is printed output rather than a
// value.
var ErrPlaceholder = errors.New(`the value is the placeholder "[redacted]"; put the secret itself there`)

// String is a secret text. The zero value is the empty secret. It is immutable except by UnmarshalText, and otherwise
// safe
// for concurrent use.
//
// Compare with Equal: the == operator compares identity, not content.
type String struct {
	// fmt prints unexported fields of an enclosing struct by reflection, without calling Format. Of a pointer it prints
	// the address only.
	value *string
}

// New returns a String that holds value.
func New(value string) String {
	if value == "" {
		return String{}
	}
	return String{value: &value}
}

// Reveal returns the value in clear.
func (s String) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// IsZero reports whether the secret is empty.
func (s String) IsZero() bool { return s.value == nil }

// Len returns the length in bytes.
func (s String) Len() int { return len(s.Reveal()) }

// Equal reports whether both hold the same text. The time it takes depends only on the lengths.
func (s String) Equal(other String) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String returns Redacted, or "" for the empty secret, so that a printed configuration shows which secrets are set.
func (s String) String() string {
	if s.value == nil {
		return ""
	}
	return Redacted
}

// GoString returns what String returns.
func (s String) GoString() string { return s.String() }

// Format writes what String returns, for every verb and flag.
func (s String) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// LogValue returns what String returns.
func (s String) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns what String returns. JSON uses it too.
func (s String) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes text as the value. It refuses the placeholder with
// ErrPlaceholder.
func (s *String) UnmarshalText(text []byte) error {
	if string(text) == Redacted {
		return ErrPlaceholder
	}
	*s = New(string(text))
	return nil
}
