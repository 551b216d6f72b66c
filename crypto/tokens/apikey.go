// Package tokens makes and checks the texts that callers authenticate with:
// API keys, tokens for shared reports, and opaque tokens for sessions and
// sign-in links.
//
// API keys and opaque tokens are random; their SHA-256 is what may be stored.
// A slow hash would add nothing, since there is nothing to guess. Share tokens
// are JWTs under HS256.
package tokens

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"

	"tenantry/crypto/secret"
	"tenantry/internal/texts"
)

// KeyKind says what an API key may be used for.
type KeyKind string

// The kinds of API key.
const (
	ServerFull KeyKind = "server_full"
	ServerRead KeyKind = "server_read"
	Browser    KeyKind = "browser"
)

// KeyKinds returns all kinds.
func KeyKinds() []KeyKind { return []KeyKind{ServerFull, ServerRead, Browser} }

// Valid reports whether k is a known kind.
func (k KeyKind) Valid() bool { return k == ServerFull || k == ServerRead || k == Browser }

// Label returns the name people know the kind by.
func (k KeyKind) Label() string {
	switch k {
	case ServerFull:
		return "Server-only, Full API"
	case ServerRead:
		return "Server-only, Read API"
	case Browser:
		return "Browser, Limited API"
	}
	return ""
}

const (
	keyPrefix    = "tnt_"
	keyRandom    = 32 // characters, 190 bits
	keyChecksum  = 6
	hintRandom   = 4
	alphabet     = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	opaqueRandom = 43 // characters, 256 bits
)

// ErrMalformedKey is returned for every text that is not an API key. It needs
// no look-up to know.
var ErrMalformedKey = errors.New("this is not an API key: expected tnt_<kind>_<random>_<checksum>")

// APIKey is a new API key. Text is shown to its owner once; Hash is stored.
type APIKey struct {
	Kind KeyKind
	Text secret.String
	Hash string
	// Hint is the beginning of the key, for lists. It leaves 166 random bits
	// unknown.
	Hint string
}

// NewAPIKey makes a random key. It returns an error only for an unknown kind.
func NewAPIKey(kind KeyKind) (APIKey, error) {
	if !kind.Valid() {
		return APIKey{}, fmt.Errorf("make an API key: the kind %q is unknown; expected one of %v", string(kind), KeyKinds())
	}
	random := randomBase62(keyRandom)
	body := keyPrefix + string(kind) + "_" + random
	sum := checksum(body)
	text := body + "_" + string(sum[:])
	return APIKey{
		Kind: kind,
		Text: secret.New(text),
		Hash: HashAPIKey(text),
		Hint: keyPrefix + string(kind) + "_" + random[:hintRandom],
	}, nil
}

// ParseAPIKey checks the form and checksum of a key and returns its kind, or
// ErrMalformedKey. It says nothing about whether the key was ever issued. It
// does not allocate, and looks at no text longer than a key.
func ParseAPIKey(text string) (KeyKind, error) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return "", ErrMalformedKey
	}
	// A kind holds underscores itself, so it is taken from the list.
	for _, kind := range [...]KeyKind{ServerFull, ServerRead, Browser} {
		tail, ok := strings.CutPrefix(rest, string(kind))
		if !ok || len(tail) != 1+keyRandom+1+keyChecksum || tail[0] != '_' || tail[1+keyRandom] != '_' {
			continue
		}
		if !isBase62(tail[1 : 1+keyRandom]) {
			return "", ErrMalformedKey
		}
		sum := checksum(text[:len(text)-keyChecksum-1])
		if text[len(text)-keyChecksum:] != string(sum[:]) {
			return "", ErrMalformedKey
		}
		return kind, nil
	}
	return "", ErrMalformedKey
}

// HashAPIKey returns the SHA-256 of the text in lower-case hex.
func HashAPIKey(text string) string { return hashHex(text) }

// NewOpaque makes a random token of 256 bits, "<prefix>_<random>", and returns
// it with the hash to store. The prefix says where a token found by chance
// comes from.
func NewOpaque(prefix string) (token secret.String, hash string) {
	text := prefix + "_" + randomBase62(opaqueRandom)
	return secret.New(text), hashHex(text)
}

// HashOpaque returns the hash of a token in the form NewOpaque made with this
// prefix, and false for any other text, which then needs no look-up.
func HashOpaque(prefix, text string) (hash string, ok bool) {
	if len(text) != len(prefix)+1+opaqueRandom || text[:len(prefix)] != prefix || text[len(prefix)] != '_' ||
		!isBase62(text[len(prefix)+1:]) {
		return "", false
	}
	return hashHex(text), true
}

func hashHex(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// checksum is CRC-32 (IEEE) in base 62, padded with zeros.
func checksum(text string) [keyChecksum]byte {
	// By hand: crc32.ChecksumIEEE takes a []byte, which would be allocated for
	// every request.
	crc := ^uint32(0)
	for i := range len(text) {
		crc = crc32.IEEETable[byte(crc)^text[i]] ^ crc>>8
	}
	crc = ^crc
	var out [keyChecksum]byte
	for i := keyChecksum - 1; i >= 0; i-- {
		out[i] = alphabet[crc%62]
		crc /= 62
	}
	return out
}

func isBase62(text string) bool { return texts.Plain(text, len(text), "") }

func randomBase62(n int) string {
	out := make([]byte, 0, n)
	var buffer [64]byte
	for len(out) < n {
		_, _ = rand.Read(buffer[:]) // never fails: crypto/rand ends the process instead
		for _, b := range buffer {
			// 248 is the largest multiple of 62 in a byte; using the rest would
			// favour the first characters.
			if b < 248 && len(out) < n {
				out = append(out, alphabet[b%62])
			}
		}
	}
	return string(out)
}
