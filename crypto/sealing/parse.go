package sealing

import (
	"bytes"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/cryptobyte"
	"golang.org/x/crypto/cryptobyte/asn1"
)

// MaxKeyText is the longest text that ParsePublicKey looks at, in bytes.
const MaxKeyText = 8 << 10

// ErrPublicKey is wrapped by every refusal of ParsePublicKey.
var ErrPublicKey = errors.New("the public key is not accepted")

// Reason is why a key was refused.
type Reason string

// Reasons of a KeyError.
const (
	ReasonMissing     Reason = "missing"
	ReasonTooLarge    Reason = "too_large"
	ReasonEncoding    Reason = "encoding"
	ReasonFormat      Reason = "format"
	ReasonTrailing    Reason = "trailing_data"
	ReasonPrivateKey  Reason = "private_key"
	ReasonCertificate Reason = "certificate"
	ReasonAlgorithm   Reason = "algorithm"
	ReasonModulus     Reason = "modulus"
	ReasonExponent    Reason = "exponent"
	ReasonLowOrder    Reason = "low_order"
)

// KeyError says why a public key was refused and what was expected. It does not quote the input.
type KeyError struct {
	Reason Reason
	text   string
}

func (e *KeyError) Error() string { return e.text }

// Unwrap returns ErrPublicKey.
func (e *KeyError) Unwrap() error { return ErrPublicKey }

func refuse(reason Reason, format string, args ...any) error {
	return &KeyError{Reason: reason, text: fmt.Sprintf(format, args...)}
}

const expected = "expected an RSA public key (SubjectPublicKeyInfo, DER or PEM, 2048 to 4096 bits) " +
	"or 32 bytes X25519, in base64"

// ParsePublicKey parses a public key: an RSA SubjectPublicKeyInfo as PEM, or the base64 of its PEM, of its DER or of 32
// raw
// X25519 bytes. Base64 may be standard or URL-safe, padded or not, and may contain line ends. Blanks are read as '+',
// because decoding a query string turns '+' into blanks. Every error is a *KeyError.
func ParsePublicKey(text string) (*PublicKey, error) {
	if text == "" {
		return nil, refuse(ReasonMissing, "the public key is empty; %s", expected)
	}
	// Checked before any parsing, because the cost of a refusal must not grow with the input.
	if len(text) > MaxKeyText {
		return nil, refuse(ReasonTooLarge, "the public key has %d characters, at most %d are read; %s", len(text),
			MaxKeyText, expected)
	}
	if strings.Contains(text, pemBegin) {
		return parsePEM(text)
	}
	raw, ok := decodeBase64(text)
	if !ok {
		return nil, refuse(ReasonEncoding, "the public key is not base64; %s", expected)
	}
	switch {
	case len(raw) == x25519Size:
		return newX25519(raw)
	case bytes.Contains(raw, []byte(pemBegin)):
		return parsePEM(string(raw))
	case len(raw) > 0 && raw[0] == 0x30:
		return parseDER(raw)
	default:
		return nil, refuse(ReasonFormat, "the public key decodes to %d bytes of no known form; %s", len(raw), expected)
	}
}

// decodeBase64 accepts both alphabets, but not both in one text.
func decodeBase64(text string) ([]byte, bool) {
	standard, urlSafe := false, false
	clean := make([]byte, 0, len(text))
	for i := range len(text) {
		switch c := text[i]; c {
		case '\r', '\n':
			continue
		case ' ', '+':
			standard = true
			clean = append(clean, '+')
		case '/':
			standard = true
			clean = append(clean, c)
		case '-':
			urlSafe = true
			clean = append(clean, '+')
		case '_':
			urlSafe = true
			clean = append(clean, '/')
		default:
			clean = append(clean, c)
		}
	}
	if standard && urlSafe {
		return nil, false
	}
	encoding := base64.RawStdEncoding
	if bytes.IndexByte(clean, '=') >= 0 {
		encoding = base64.StdEncoding
	}
	raw, err := encoding.Strict().AppendDecode(nil, clean)
	return raw, err == nil
}

const (
	pemBegin = "-----BEGIN "
	pemEnd   = "-----END "
	pemDash  = "-----"
)

// parsePEM parses exactly one block. encoding/pem would skip text around it, and does not accept blanks for '+'.
func parsePEM(text string) (*PublicKey, error) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), pemBegin)
	if !ok {
		return nil, refuse(ReasonTrailing, "there is text before the PEM block; expected the block alone")
	}
	label, rest, ok := strings.Cut(rest, pemDash)
	if !ok {
		return nil, refuse(ReasonFormat, "the PEM block has no complete first line; %s", expected)
	}
	if err := checkLabel(label); err != nil {
		return nil, err
	}
	body, after, ok := strings.Cut(rest, pemEnd+label+pemDash)
	if !ok {
		return nil, refuse(ReasonFormat, "the PEM block has no last line; %s", expected)
	}
	if strings.TrimSpace(after) != "" {
		return nil, refuse(ReasonTrailing, "there is text after the PEM block; expected the block alone")
	}
	raw, ok := decodeBase64(strings.Trim(body, "\r\n"))
	if !ok {
		return nil, refuse(ReasonEncoding, "the PEM block is not base64; %s", expected)
	}
	return parseDER(raw)
}

func checkLabel(label string) error {
	switch {
	case label == "PUBLIC KEY":
		return nil
	case strings.HasSuffix(label, "PRIVATE KEY"):
		return refusePrivate()
	case strings.Contains(label, "CERTIFICATE"):
		return refuseCertificate()
	case label == "RSA PUBLIC KEY":
		return refusePKCS1()
	default:
		return refuse(ReasonFormat, "the PEM block is not labelled PUBLIC KEY; %s", expected)
	}
}

func refusePrivate() error {
	return refuse(ReasonPrivateKey,
		"this is a private key, which must not be sent to anyone and should now be replaced; %s", expected)
}

func refuseCertificate() error {
	return refuse(ReasonCertificate, "this is a certificate or a certificate request; send only its public key: %s",
		expected)
}

func refusePKCS1() error {
	return refuse(ReasonFormat, "this is a PKCS #1 RSA key; send it as SubjectPublicKeyInfo (PUBLIC KEY): %s", expected)
}

func parseDER(der []byte) (*PublicKey, error) {
	if err := checkOutline(der); err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, refuse(ReasonFormat, "the public key cannot be read as a SubjectPublicKeyInfo of RSA; %s", expected)
	}
	key, ok := parsed.(*rsa.PublicKey)
	if !ok {
		return nil, refuse(ReasonAlgorithm, "the key is not RSA; %s", expected)
	}
	public, err := newRSA(key, der)
	if err != nil {
		return nil, err
	}
	// The parser ignores some bytes inside the structure. Each key must have one form only, and so one KeyID.
	again, err := x509.MarshalPKIXPublicKey(key)
	if err != nil || !bytes.Equal(again, der) {
		return nil, refuse(ReasonTrailing, "the RSA key has trailing bytes or is not encoded in DER; %s", expected)
	}
	return public, nil
}

// checkOutline recognizes other kinds of keys by their outer structure. Parsing them would cost far more, and would
// handle
// private numbers.
func checkOutline(der []byte) error {
	input := cryptobyte.String(der)
	var outer cryptobyte.String
	if !input.ReadASN1(&outer, asn1.SEQUENCE) {
		return refuse(ReasonFormat, "the public key is not complete DER; %s", expected)
	}
	if !input.Empty() {
		return refuse(ReasonTrailing, "there are %d bytes after the key; expected the key alone", len(input))
	}
	if outer.PeekASN1Tag(asn1.INTEGER) {
		return refuseLeadingInteger(outer)
	}
	var first cryptobyte.String
	if !outer.ReadASN1(&first, asn1.SEQUENCE) {
		return refuse(ReasonFormat, "the public key is not a SubjectPublicKeyInfo; %s", expected)
	}
	switch {
	case outer.PeekASN1Tag(asn1.OCTET_STRING):
		return refusePrivate() // encrypted PKCS #8
	case outer.PeekASN1Tag(asn1.SEQUENCE):
		return refuseCertificate()
	case !outer.SkipASN1(asn1.BIT_STRING):
		return refuse(ReasonFormat, "the public key is not a SubjectPublicKeyInfo; %s", expected)
	case !outer.Empty():
		return refuse(ReasonTrailing, "there are bytes after the key inside its structure; expected the key alone")
	}
	return checkAlgorithm(first)
}

// refuseLeadingInteger refuses the forms that begin with a number: private keys in PKCS #8, PKCS #1 and SEC 1, and
// public
// keys in PKCS #1, which are the only ones with exactly two numbers.
func refuseLeadingInteger(outer cryptobyte.String) error {
	numbers := 0
	for outer.SkipASN1(asn1.INTEGER) {
		numbers++
	}
	if numbers == 2 && outer.Empty() {
		return refusePKCS1()
	}
	return refusePrivate()
}

func checkAlgorithm(algorithm cryptobyte.String) error {
	// 1.2.840.113549.1.1.1, rsaEncryption.
	rsaEncryption := []byte{0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01}
	// 1.3.101.110, id-X25519.
	x25519 := []byte{0x2b, 0x65, 0x6e}
	var oid cryptobyte.String
	switch {
	case !algorithm.ReadASN1(&oid, asn1.OBJECT_IDENTIFIER):
		return refuse(ReasonFormat, "the public key names no algorithm; %s", expected)
	case bytes.Equal(oid, x25519):
		return refuse(ReasonAlgorithm, "this X25519 key is wrapped in a structure; send only its last 32 bytes, in base64")
	case !bytes.Equal(oid, rsaEncryption):
		return refuse(ReasonAlgorithm, "the key is not RSA (rsaEncryption); %s", expected)
	}
	return nil
}
