// Package tokens creates and checks the tokens that callers authenticate with: API keys, tokens for shared reports, and
// opaque tokens for sessions and links.
//
// API keys and opaque tokens are random, and only their SHA-256 is stored. A slow hash would gain nothing, because
// random
// tokens cannot be guessed. Share tokens are JWTs signed with HS256.
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

// ErrMalformedKey is returned for every text that does not have the form of an API key, which needs no look-up.
var ErrMalformedKey = errors.New("this is not an API key: expected tnt_<kind>_<random>_<checksum>")

// APIKey is a new API key. Text is shown to its owner once; Hash is stored.
type APIKey struct {
	Kind KeyKind
	Text secret.String
	Hash string
	// Hint is the beginning of the key, for lists. It does not reveal the other 166 random bits.
	Hint string
}

// NewAPIKey generates a key. It returns an error only for an unknown kind.
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

// ParseAPIKey checks the form and checksum of a key and returns its kind, or ErrMalformedKey. It does not know whether
// the
// key was issued. It does not allocate, and refuses texts of another length without reading them.
func ParseAPIKey(text string) (KeyKind, error) {
	rest, ok := strings.CutPrefix(text, keyPrefix)
	if !ok {
		return "", ErrMalformedKey
	}
	// Kinds contain underscores, so they are matched rather than split off.
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

// NewOpaque generates a token of 256 random bits, "<prefix>_<random>", and returns it with the hash to store. The
// prefix
// shows where a leaked token comes from.
func NewOpaque(prefix string) (token secret.String, hash string) {
	text := prefix + "_" + randomBase62(opaqueRandom)
	return secret.New(text), hashHex(text)
}

// HashOpaque returns the hash of a token in the form that NewOpaque gives it with this prefix, and false for any other
// text, which needs no look-up.
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
	// Computed here, because the []byte that crc32.ChecksumIEEE takes would be allocated for every request.
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
			// 248 is the largest multiple of 62 in a byte. Using higher values would favour the first characters.
			if b < 248 && len(out) < n {
				out = append(out, alphabet[b%62])
			}
		}
	}
	return string(out)
}
