// Package contents keeps the bytes of files: what an organization has stored, under which name, and how much. Bytes that
// are stored twice are kept once within an organization, because their name is a keyed hash of them; the key is the
// organization's, so that names tell nothing across organizations.
//
// Bytes arrive in a temporary file (Receive). Store makes them an object in a bucket and then commits, in one batch, the
// Blob that names the object and the records that use it. So a record never lacks its bytes. An object without a Blob is
// garbage: the name of an object is never used again, so Sweep can remove it without looking at what others do.
package contents

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/fault"
	"tenantry/internal/picture"
	"tenantry/operation"
	"tenantry/tenants"
)

// Blob says where an organization has some bytes. Records refer to it by Hash.
type Blob struct {
	store.Meta
	Hash   string `json:"hash"`   // keyed; unique
	Object string `json:"object"` // its name in the bucket
	Size   int64  `json:"size"`
	Sum    string `json:"sum"`   // SHA-256, hexadecimal
	Media  string `json:"media"` // that the bytes show
	// Plain are the parts of a picture without its metadata, which is all that the public gets; nil: all of it.
	Plain picture.Pieces `json:"plain,omitempty"`
	// Thumbnail is the small picture; nil: not made yet.
	Thumbnail *Thumbnail `json:"thumbnail,omitempty"`
}

// Thumbnail is a small picture of a blob. Failed says why there is none, until then (Unix milliseconds; 0: for ever).
type Thumbnail struct {
	Until  int64  `json:"until,omitempty"`
	Object string `json:"object,omitempty"`
	Media  string `json:"media,omitempty"`
	Failed string `json:"failed,omitempty"`
}

// Small returns the small picture of the blob, or why there is none; nil: it has to be made.
func (b *Blob) Small(now time.Time) *Thumbnail {
	if b.Thumbnail != nil && b.Thumbnail.Until > 0 && b.Thumbnail.Until <= now.UnixMilli() {
		return nil
	}
	return b.Thumbnail
}

// Storage is how much an organization has stored: its only record.
type Storage struct {
	store.Meta
	Files int64 `json:"files"` // different ones
	Bytes int64 `json:"bytes"`
	// Swept is the last blob that Sweep has looked at; empty: a round ended at SweptAt (Unix milliseconds).
	Swept   string `json:"swept,omitempty"`
	SweptAt int64  `json:"swept_at,omitempty"`
}

// storageID identifies the only Storage of an organization.
const storageID = "000000000000000000000001"

// KeySet are an organization's data keys for one purpose, from version 1 to that of Current.
type KeySet interface {
	Current() keyring.DataKey
	Version(n int) (keyring.DataKey, bool)
}

// NamePurpose is the purpose of the data keys that name bytes.
const NamePurpose = "file-names"

// Options are the dependencies of a Keeper. All but Scan and Reserve are required.
type Options struct {
	Bucket blobs.Bucket
	// Keys returns the organization's data keys for a purpose.
	Keys func(ctx context.Context, t *tenants.Tenant, purpose string) (KeySet, error)
	// Incoming is the folder for bytes while they arrive. What is in it when the process starts is garbage.
	Incoming string
	// Reserve is how many bytes of the disk of Incoming uploads leave free.
	Reserve int64
	// Scan, if set, judges bytes before they are stored. Errors: ErrRefused, store.ErrUnavailable.
	Scan func(ctx context.Context, t *tenants.Tenant, a *Arrival) error
	Now  func() time.Time
	Log  *slog.Logger
}

// Keeper keeps the bytes of all organizations. Safe for concurrent use, by several replicas with one bucket.
type Keeper struct {
	Options
	blobs    *store.Kind[Blob]
	storage  *store.Kind[Storage]
	arriving arriving
}

// New returns a Keeper.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o,
		blobs: store.Must[Blob](store.Spec{
			Name: "blobs", Uncounted: true, Fields: []string{"hash"},
			Indexes: []store.Index{{Fields: []string{"hash"}, Unique: true}},
			Access:  []store.Access{{Where: []string{"hash"}}},
		}),
		storage: store.Must[Storage](store.Spec{Name: "storage", Uncounted: true}),
	}
}

// Kept returns the kinds.
func (k *Keeper) Kept() []record.Kept { return []record.Kept{k.blobs, k.storage} }

// Errors of this package.
var (
	// ErrRefused: the scanner refuses the bytes. It is the problem to answer with.
	ErrRefused error = operation.Refusal(http.StatusUnprocessableEntity, "file", fault.Forbidden, RefusedMessage)
	// ErrNone: the organization has no such bytes.
	ErrNone = errors.New("no such bytes")
)

// RefusedMessage is told if the scanner refuses a file.
const RefusedMessage = "The file was refused by the scanner, so nothing of it was stored"

// Arrival is bytes that have arrived and are not stored yet. The caller must Close it.
type Arrival struct {
	Size  int64
	Sum   [sha256.Size]byte
	Media string // that the bytes show

	file  *os.File
	count *count // of what is arriving; nil: it counts for no organization
	plain picture.Pieces
	put   string // the object that has the bytes; empty: none yet
	mends string // the object that put replaces, because it is missing; empty: none
	hash  string // under the current key
}

// File returns the temporary file, positioned at its beginning.
func (a *Arrival) File() (*os.File, error) {
	_, err := a.file.Seek(0, io.SeekStart)
	return a.file, err
}

// Close removes the temporary file, if there is one.
func (a *Arrival) Close() error {
	if a.file == nil {
		return nil
	}
	a.count.end()
	err := a.file.Close()
	if gone := os.Remove(a.file.Name()); !errors.Is(gone, os.ErrNotExist) { // the bucket may have moved it
		err = cmp.Or(err, gone)
	}
	return err
}

// CheckDigest returns a fault unless a Content-Digest (RFC 9530) names these bytes. An empty header names any.
func (a *Arrival) CheckDigest(header string) error {
	if header == "" {
		return nil
	}
	sum, err := parseDigest(header)
	if err == nil && !hmac.Equal(sum, a.Sum[:]) {
		err = fault.One("Content-Digest", fault.Mismatch, "Content-Digest does not match the bytes that arrived: send the file again")
	}
	return err
}

// Storage returns how much the organization has stored.
func (k *Keeper) Storage(ctx context.Context, t *tenants.Tenant) (Storage, error) {
	s, err := k.storage.In(t.Workspace()).Get(ctx, storageID)
	if errors.Is(err, store.ErrNotFound) {
		return Storage{}, nil
	}
	if err != nil {
		return Storage{}, err
	}
	return *s, nil
}

// Admit returns a *store.QuotaError if the organization may not store that many bytes more.
func (k *Keeper) Admit(ctx context.Context, t *tenants.Tenant, more int64) error {
	s, err := k.Storage(ctx, t)
	if err != nil {
		return err
	}
	return admit(t, s, more)
}

func admit(t *tenants.Tenant, s Storage, more int64) error {
	if most := t.Org.Limit(tenants.LimitFileBytes); most > 0 && more > 0 && s.Bytes+more > most {
		return &store.QuotaError{Limit: tenants.LimitFileBytes, Used: s.Bytes, Allowed: most}
	}
	return nil
}

// Find returns the blob of a hash. Errors: ErrNone, store.ErrUnavailable.
func (k *Keeper) Find(ctx context.Context, t *tenants.Tenant, hash string) (*Blob, error) {
	blob, err := k.blobs.In(t.Workspace()).First(ctx, store.Query{Filter: store.Eq("hash", hash)})
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrNone
	}
	return blob, err
}

// Open returns the bytes of a blob. Errors: blobs.ErrNotFound, blobs.ErrUnavailable.
func (k *Keeper) Open(ctx context.Context, blob *Blob) (blobs.Object, error) {
	return k.Bucket.Open(ctx, blob.Object)
}

// prefix begins the names of an organization's objects.
func prefix(t *tenants.Tenant) string { return prefixOf(t.Org.OrgID) }

func prefixOf(org int64) string { return strconv.FormatInt(org, 10) + "/" }

// Erase removes all objects of an organization.
func (k *Keeper) Erase(ctx context.Context, org int64) error {
	return k.Bucket.DeleteAll(ctx, prefixOf(org))
}

// newObject returns a new name for an object of an organization. Objects lie in 256 folders.
func newObject(t *tenants.Tenant, hash string) string {
	var unique [6]byte
	_, _ = rand.Read(unique[:])
	return prefix(t) + hash[:2] + "/" + hash + "." + hex.EncodeToString(unique[:])
}

// hashOf returns the hash in the name of an object.
func hashOf(object string) string {
	name := object[strings.LastIndexByte(object, '/')+1:]
	hash, _, _ := strings.Cut(name, ".")
	return hash
}

// hashLen is the length of a hash in bytes; its text has twice as many characters.
const hashLen = 20

// name returns the hash of the bytes under a key.
func name(key keyring.DataKey, sum [sha256.Size]byte) string {
	mac := hmac.New(sha256.New, key.Bytes())
	mac.Write(sum[:])
	return hex.EncodeToString(mac.Sum(nil)[:hashLen])
}

// Pseudonym returns a text by which a value of a person can be recognized within the organization, but not be read.
func (k *Keeper) Pseudonym(ctx context.Context, t *tenants.Tenant, value string) (string, error) {
	keys, err := k.Keys(ctx, t, NamePurpose)
	if err != nil {
		return "", fmt.Errorf("keys that name files: %w", err)
	}
	return name(keys.Current(), sha256.Sum256([]byte("pseudonym\x00"+value))), nil
}

// names returns the hashes of the bytes under every key, that of the current one first.
func (k *Keeper) names(ctx context.Context, t *tenants.Tenant, a *Arrival) ([]string, error) {
	keys, err := k.Keys(ctx, t, NamePurpose)
	if err != nil {
		return nil, fmt.Errorf("keys that name files: %w", err)
	}
	var all []string
	for n := keys.Current().Version(); n > 0; n-- {
		if key, ok := keys.Version(n); ok {
			all = append(all, name(key, a.Sum))
		}
	}
	return all, nil
}
