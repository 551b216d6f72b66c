// Package sealing encrypts values to a public key that the caller sends, so that only the holder of the private key can
// read them.
//
// Two kinds of keys are accepted: RSA keys of 2048 to 4096 bits, used with RSA-OAEP (SHA-256 for the hash and for MGF1,
// empty label), and X25519 keys, used with libsodium's sealed box (crypto_box_seal). There is no hybrid scheme: values
// that
// are too long for OAEP are refused.
package sealing

import (
	"crypto/ecdh"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/box"
)

// Names that Algorithm returns.
const (
	AlgorithmRSA    = "RSA-OAEP-256" // RFC 7518, section 4.3
	AlgorithmX25519 = "X25519-sealed-box"
)

// MaxPlaintext is the size of the largest value that any key can encrypt, in bytes. An RSA key encrypts far less: see
// PublicKey.MaxPlaintext.
const MaxPlaintext = 1 << 20

const (
	minModulusBits = 2048
	maxModulusBits = 4096
	maxExponent    = 1<<31 - 1 // the limit of crypto/rsa
	x25519Size     = 32
)

// ErrTooLong is wrapped by the error of Seal for a value that is too long for the key.
var ErrTooLong = errors.New("the value is too long for this public key")

// PublicKey is a checked public key. It is immutable and safe for concurrent
// use.
type PublicKey struct {
	rsa    *rsa.PublicKey // nil for X25519
	x25519 [x25519Size]byte
	id     string
}

// Algorithm returns AlgorithmRSA or AlgorithmX25519.
func (k *PublicKey) Algorithm() string {
	if k.rsa != nil {
		return AlgorithmRSA
	}
	return AlgorithmX25519
}

// KeyID returns the SHA-256 of the key in lower-case hex: of the DER
// SubjectPublicKeyInfo for RSA, of the 32 raw bytes for X25519.
func (k *PublicKey) KeyID() string { return k.id }

// MaxPlaintext returns the size of the largest value that Seal encrypts with this key, in bytes.
func (k *PublicKey) MaxPlaintext() int {
	if k.rsa != nil {
		return k.rsa.Size() - 2*sha256.Size - 2
	}
	return MaxPlaintext
}

// Seal encrypts plaintext and returns standard base64 with padding. If the value is too long for the key, the error
// wraps
// ErrTooLong.
func (k *PublicKey) Seal(plaintext []byte) (string, error) {
	if limit := k.MaxPlaintext(); len(plaintext) > limit {
		if k.rsa != nil {
			return "", fmt.Errorf("%w: %d bytes, but a %d-bit RSA key holds at most %d; send a longer RSA key or an X25519 key",
				ErrTooLong, len(plaintext), k.rsa.N.BitLen(), limit)
		}
		return "", fmt.Errorf("%w: %d bytes, at most %d are allowed", ErrTooLong, len(plaintext), limit)
	}
	var sealed []byte
	var err error
	if k.rsa != nil {
		sealed, err = rsa.EncryptOAEP(sha256.New(), rand.Reader, k.rsa, plaintext, nil)
	} else {
		sealed, err = box.SealAnonymous(nil, plaintext, &k.x25519, rand.Reader)
	}
	if err != nil {
		return "", fmt.Errorf("encrypt to the public key: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

func newRSA(key *rsa.PublicKey, der []byte) (*PublicKey, error) {
	bits := key.N.BitLen()
	switch {
	case bits < minModulusBits || bits > maxModulusBits:
		return nil, refuse(ReasonModulus, "the RSA key has %d bits; expected %d to %d", bits, minModulusBits, maxModulusBits)
	case key.N.Bit(0) == 0:
		return nil, refuse(ReasonModulus, "the RSA modulus is even; expected the product of two odd primes")
	case key.E < 3 || key.E > maxExponent || key.E%2 == 0:
		return nil, refuse(ReasonExponent,
			"the RSA public exponent is %d; expected an odd number from 3 to %d, such as 65537", key.E, maxExponent)
	}
	return &PublicKey{rsa: key, id: keyID(der)}, nil
}

func newX25519(raw []byte) (*PublicKey, error) {
	point, err := ecdh.X25519().NewPublicKey(raw)
	if err != nil {
		return nil, refuse(ReasonLowOrder, "the X25519 key cannot be used; expected 32 bytes of a Curve25519 public key")
	}
	probe, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("check the X25519 key: %w", err)
	}
	// A point of low order gives an all-zero secret with every private key, so anyone could decrypt the value. ECDH
	// reports it as an error.
	if _, err := probe.ECDH(point); err != nil {
		return nil, refuse(ReasonLowOrder, "the X25519 key is all zeros or another point of low order, which protects nothing; "+
			"expected a generated public key")
	}
	return &PublicKey{x25519: [x25519Size]byte(raw), id: keyID(raw)}, nil
}

func keyID(key []byte) string {
	sum := sha256.Sum256(key)
	return hex.EncodeToString(sum[:])
}
