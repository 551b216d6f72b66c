package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// headPurpose is the purpose of the installation's data keys from which the signing keys of heads are derived.
const headPurpose = "audit_heads"

// HeadKeys has the keys that sign heads: those of the installation. A *tenants.Directory is one.
type HeadKeys interface {
	secrets.Keys
	NextDataKey(ctx context.Context, t *tenants.Tenant, purpose string) (*tenants.DataKeys, error)
	Own() *tenants.Tenant
	Installation() string
}

// headKey signs and verifies the heads of one log. It is a note.Signer.
type headKey struct {
	note.Verifier
	public  string // the key that verifies, in the format of note.NewVerifier
	private ed25519.PrivateKey
}

// Sign returns the signature of a text.
func (k *headKey) Sign(text []byte) ([]byte, error) { return ed25519.Sign(k.private, text), nil }

// newHeadKey derives the key of a log from a data key of the installation.
func newHeadKey(origin string, material []byte) (*headKey, error) {
	seed := hmac.New(sha256.New, material)
	seed.Write([]byte("tenantry audit head 1"))
	private := ed25519.NewKeyFromSeed(seed.Sum(nil))
	public, err := note.NewEd25519VerifierKey(origin, ed25519.PublicKey(private[ed25519.SeedSize:]))
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(public)
	return &headKey{verifier, public, private}, err
}

// origin returns the first line of a log's heads, which also is the name of its keys.
func (h *Heads) origin(t *tenants.Tenant) string {
	log := "installation"
	if t.Org.OrgID != h.keys.Own().Org.OrgID {
		log = strconv.FormatInt(t.Org.OrgID, 10)
	}
	return "tenantry/" + h.keys.Installation() + "/" + log
}

// keysOf returns the keys of a log, the newest first, and makes the first one if there is none. Errors: those of
// tenants.Directory.DataKeys.
func (h *Heads) keysOf(ctx context.Context, t *tenants.Tenant) ([]*headKey, error) {
	data, err := h.keys.DataKeys(ctx, h.keys.Own(), headPurpose)
	if err != nil {
		return nil, fmt.Errorf("the keys of heads: %w", err)
	}
	var all []*headKey
	for version := data.Current().Version(); version > 0; version-- {
		material, known := data.Version(version)
		if !known {
			continue
		}
		key, err := newHeadKey(h.origin(t), material.Bytes())
		if err != nil {
			return nil, fmt.Errorf("the keys of heads: %w", err)
		}
		all = append(all, key)
	}
	return all, nil
}

// Rotate makes a new key for the heads of all logs. Heads are signed with it and with the one before it from then on;
// those that were signed before stay valid. Errors: those of tenants.Directory.NextDataKey.
func (h *Heads) Rotate(ctx context.Context) error {
	_, err := h.keys.NextDataKey(ctx, h.keys.Own(), headPurpose)
	return err
}

// signHead returns the text of a head, a C2SP checkpoint, signed with the newest key and the one before it.
func signHead(origin string, tree tlog.Tree, keys []*headKey) (string, error) {
	var signers []note.Signer
	for _, key := range keys[:min(len(keys), 2)] {
		signers = append(signers, key)
	}
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n%d\n%s\n", origin, tree.N, tree.Hash)}, signers...)
	return string(signed), err
}

// errHead: a text is not a head of this log.
var errHead = errors.New("it is not a head that this installation signed for this log")

// openHead returns the tree that a head names, and whether the newest key has signed it. Error: errHead.
func openHead(text, origin string, keys []*headKey) (tree tlog.Tree, newest bool, err error) {
	verifiers := make([]note.Verifier, len(keys))
	for i, key := range keys {
		verifiers[i] = key
	}
	opened, err := note.Open([]byte(text), note.VerifierList(verifiers...))
	if err != nil {
		return tree, false, fmt.Errorf("%w: %w", errHead, err)
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != origin || lines[3] != "" {
		return tree, false, fmt.Errorf("%w: it begins with %q", errHead, lines[0])
	}
	if tree.N, err = strconv.ParseInt(lines[1], 10, 64); err == nil {
		tree.Hash, err = tlog.ParseHash(lines[2])
	}
	if err != nil || tree.N < 1 || strconv.FormatInt(tree.N, 10) != lines[1] {
		return tlog.Tree{}, false, fmt.Errorf("%w: its size or hash cannot be read", errHead)
	}
	for _, by := range opened.Sigs {
		newest = newest || by.Hash == keys[0].KeyHash()
	}
	return tree, newest, nil
}
