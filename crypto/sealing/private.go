package sealing

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/nacl/box"

	"tenantry/crypto/secret"
)

// ErrOpen: the value was not sealed to this key for this context, or was altered. The error does not distinguish the
// cases.
var ErrOpen = errors.New("the value was not sealed to this key for this place")

// ErrTransferKey is wrapped by every refusal of ParseTransferKey and ParseTransferPublicKey.
var ErrTransferKey = errors.New("this is not a transfer key")

// Prefixes of the text forms of the two halves, so that neither is mistaken for the other.
const (
	privatePrefix = "tenantry-transfer-private-1:"
	publicPrefix  = "tenantry-transfer-public-1:"
)

// PrivateKey opens values that were sealed to its public half, an X25519 key. It is immutable and safe for concurrent
// use.
type PrivateKey struct {
	private [x25519Size]byte
	public  *PublicKey
}

// NewPrivateKey generates a key.
func NewPrivateKey() (*PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a transfer key: %w", err)
	}
	return newPrivateKey(key)
}

func newPrivateKey(key *ecdh.PrivateKey) (*PrivateKey, error) {
	public, err := newX25519(key.PublicKey().Bytes())
	if err != nil {
		return nil, err
	}
	return &PrivateKey{[x25519Size]byte(key.Bytes()), public}, nil
}

// Public returns the public half, to which values are sealed.
func (k *PrivateKey) Public() *PublicKey { return k.public }

// Text returns the text form of the key, which ParseTransferKey parses.
func (k *PrivateKey) Text() secret.String {
	return secret.New(privatePrefix + base64.StdEncoding.EncodeToString(k.private[:]))
}

// TransferText returns the text form of an X25519 key, which ParseTransferPublicKey parses.
func (k *PublicKey) TransferText() string {
	return publicPrefix + base64.StdEncoding.EncodeToString(k.x25519[:])
}

// ParseTransferKey parses the private half of a transfer key. Blanks around it are ignored. Errors wrap ErrTransferKey
// and
// do not quote the text.
func ParseTransferKey(text string) (*PrivateKey, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, publicPrefix) {
		return nil, fmt.Errorf("%w for opening values: it is the public half; give the file of the private half",
			ErrTransferKey)
	}
	raw, ok := transferBytes(text, privatePrefix)
	if !ok {
		return nil, fmt.Errorf("%w: make one with tenantry keyring transfer-key", ErrTransferKey)
	}
	key, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: make one with tenantry keyring transfer-key", ErrTransferKey)
	}
	return newPrivateKey(key)
}

// ParseTransferPublicKey parses the public half of a transfer key; see ParseTransferKey.
func ParseTransferPublicKey(text string) (*PublicKey, error) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, privatePrefix) {
		return nil, fmt.Errorf("%w for sealing values: it is the private half, which must stay where values are opened; "+
			"give the file of the public half", ErrTransferKey)
	}
	raw, ok := transferBytes(text, publicPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: make one with tenantry keyring transfer-key", ErrTransferKey)
	}
	key, err := newX25519(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTransferKey, err)
	}
	return key, nil
}

func transferBytes(text, prefix string) ([]byte, bool) {
	body, ok := strings.CutPrefix(text, prefix)
	if !ok || len(body) > 64 {
		return nil, false
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(body)
	return raw, err == nil && len(raw) == x25519Size
}

// SealFor is Seal bound to a context: the result opens only with the same context. An RSA key can seal a short value
// only.
func (k *PublicKey) SealFor(context []string, plaintext []byte) (string, error) {
	return k.Seal(append(prefixed(context), plaintext...))
}

// OpenFor opens what SealFor returned for the same context. For every other text it returns ErrOpen.
func (k *PrivateKey) OpenFor(context []string, sealed string) ([]byte, error) {
	raw, err := base64.StdEncoding.Strict().DecodeString(sealed)
	if err != nil {
		return nil, ErrOpen
	}
	plain, ok := box.OpenAnonymous(nil, raw, &k.public.x25519, &k.private)
	if !ok {
		return nil, ErrOpen
	}
	plain, ok = bytes.CutPrefix(plain, prefixed(context))
	if !ok {
		return nil, ErrOpen
	}
	return plain, nil
}

// prefixed encodes the parts, each after its length, so that different lists of parts give different bytes.
func prefixed(parts []string) []byte {
	out := binary.BigEndian.AppendUint32(nil, uint32(len(parts)))
	for _, part := range parts {
		out = binary.BigEndian.AppendUint32(out, uint32(len(part)))
		out = append(out, part...)
	}
	return out
}
