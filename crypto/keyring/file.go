package keyring

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gofrs/flock"

	"tenantry/internal/durable"
)

const (
	fileFormat  = 1
	maxFileSize = 1 << 20
	lockWait    = 5 * time.Second
)

// access is how strictly the permissions of a file are checked.
type access int

const (
	ownerOnly access = iota
	// groupMayRead allows reading by the group, as mounted secrets often need.
	groupMayRead
)

type fileRing struct {
	Format  int       `json:"format"`
	Primary int       `json:"primary"`
	Keys    []fileKey `json:"keys"`
}

type fileKey struct {
	Info
	Key string `json:"key"`
}

// Create creates a keyring with one key in a new file of mode 0600. If the file exists, it returns an error that wraps
// fs.ErrExist and does not change the file.
func Create(path string) (*Keyring, error) {
	unlock, err := lockFile(path)
	if err != nil {
		return nil, fmt.Errorf("create keyring %s: %w", path, err)
	}
	defer unlock()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		if err == nil {
			err = fs.ErrExist
		}
		return nil, fmt.Errorf("create keyring %s: %w", path, err)
	}
	first, _, err := (&ring{}).withNewPrimary(time.Now())
	if err != nil {
		return nil, fmt.Errorf("create keyring %s: %w", path, err)
	}
	if err := writeFile(path, first.encode()); err != nil {
		return nil, fmt.Errorf("create keyring %s: %w", path, err)
	}
	return newKeyring(first, source{path: path, writable: true}), nil
}

// Open reads a keyring from a file that only its owner can access. If others can, it returns an error that says how to
// change that. For a missing file the error wraps fs.ErrNotExist. Create a new keyring only if no data exist yet,
// because
// it cannot unwrap what another keyring wrapped.
func Open(path string) (*Keyring, error) {
	held, err := readFile(path, ownerOnly)
	if err != nil {
		return nil, err
	}
	return newKeyring(held, source{path: path, writable: true}), nil
}

// OpenReadOnly reads a keyring from a file that is maintained elsewhere, such as a mounted secret. The file's group may
// read it, others may not. Rotate, Retire and Reinstate return ErrReadOnly; Reload reads the file again.
func OpenReadOnly(path string) (*Keyring, error) {
	held, err := readFile(path, groupMayRead)
	if err != nil {
		return nil, err
	}
	return newKeyring(held, source{path: path}), nil
}

func newKeyring(held *ring, from source) *Keyring {
	k := &Keyring{source: from}
	k.held.Store(held)
	return k
}

// Rotate adds a key, makes it the primary and returns its version. It reads the file first, so that changes by other
// processes are kept. The new key is on disk before it is used.
func (k *Keyring) Rotate() (int, error) {
	version := 0
	err := k.update(func(held *ring) (next *ring, err error) {
		next, version, err = held.withNewPrimary(time.Now())
		return next, err
	})
	if err != nil {
		return 0, fmt.Errorf("rotate the keyring: %w", err)
	}
	return version, nil
}

// Retire takes a key out of use. Unwrapping what it wrapped then fails with ErrRetired, so rewrap everything first. The
// key stays in the file. Errors: ErrPrimary for the primary key, ErrUnknownVersion, ErrReadOnly.
func (k *Keyring) Retire(version int) error {
	err := k.update(func(held *ring) (*ring, error) { return held.without(version) })
	if err != nil {
		return fmt.Errorf("retire a key: %w", err)
	}
	return nil
}

// Reinstate makes a retired key active again, for example to read a backup from before it was retired. A key that is in
// use stays as it is. Errors: ErrUnknownVersion, ErrReadOnly.
func (k *Keyring) Reinstate(version int) error {
	err := k.update(func(held *ring) (*ring, error) { return held.reinstating(version) })
	if err != nil {
		return fmt.Errorf("reinstate a key: %w", err)
	}
	return nil
}

// Reload reads the file again, so that a rotation by another process takes effect. After an error the keyring is
// unchanged.
func (k *Keyring) Reload() error {
	k.change.Lock()
	defer k.change.Unlock()
	wanted := groupMayRead
	if k.source.writable {
		wanted = ownerOnly
	}
	held, err := readFile(k.source.path, wanted)
	if err != nil {
		return err
	}
	k.held.Store(held)
	return nil
}

func (k *Keyring) update(change func(*ring) (*ring, error)) error {
	if !k.source.writable {
		return ErrReadOnly
	}
	k.change.Lock()
	defer k.change.Unlock()
	unlock, err := lockFile(k.source.path)
	if err != nil {
		return err
	}
	defer unlock()
	onDisk, err := readFile(k.source.path, ownerOnly)
	if err != nil {
		return err
	}
	next, err := change(onDisk)
	if err != nil {
		return err
	}
	if err := writeFile(k.source.path, next.encode()); err != nil {
		return fmt.Errorf("write %s: %w", k.source.path, err)
	}
	k.held.Store(next)
	return nil
}

func lockFile(path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	lock := flock.New(path+".lock", flock.SetPermissions(0o600))
	if _, err := lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("another process is changing the keyring (it holds %s.lock); try again", path)
		}
		return nil, fmt.Errorf("lock the keyring: %w", err)
	}
	return func() { _ = lock.Unlock() }, nil
}

func readFile(path string, allowed access) (*ring, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the keyring: %w", err)
	}
	defer f.Close()
	// Stat the open file, because the path could lead to another file by now.
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open the keyring: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("open the keyring: %s is not a regular file", path)
	}
	if err := checkPermissions(path, info.Mode(), allowed); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("read the keyring: %w", err)
	}
	held, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("read keyring %s: %w", path, err)
	}
	return held, nil
}

// writeFile replaces the file atomically: after a crash it has the old content or the new.
func writeFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = os.Rename(f.Name(), path); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// decode parses a keyring file. Its errors name positions and fields but no content, which is secret.
func decode(data []byte) (*ring, error) {
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("it is larger than %d bytes", maxFileSize)
	}
	var file fileRing
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&file); err != nil {
		return nil, describeJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is data after the JSON value")
	}
	if file.Format != fileFormat {
		return nil, fmt.Errorf("its format is %d; this version reads format %d", file.Format, fileFormat)
	}
	if len(file.Keys) == 0 || len(file.Keys) > maxKeys {
		return nil, fmt.Errorf("it has %d keys; 1 to %d are expected", len(file.Keys), maxKeys)
	}
	held := &ring{primary: file.Primary, keys: make(map[int]*key, len(file.Keys))}
	for i, entry := range file.Keys {
		if err := held.add(entry); err != nil {
			return nil, fmt.Errorf("key %d of %d: %w", i+1, len(file.Keys), err)
		}
	}
	if held.keys[held.primary] == nil {
		return nil, fmt.Errorf("its primary is version %d, which is not among its keys", held.primary)
	}
	return held, nil
}

func (r *ring) add(entry fileKey) error {
	if entry.Version < 1 || entry.Version > 999_999_999 {
		return errors.New("its version must be from 1 to 999999999")
	}
	if r.keys[entry.Version] != nil {
		return fmt.Errorf("version %d occurs twice", entry.Version)
	}
	switch entry.State {
	case Primary, Active, Retired:
	default:
		return fmt.Errorf("its state must be %q, %q or %q", Primary, Active, Retired)
	}
	if (entry.State == Primary) != (entry.Version == r.primary) {
		return fmt.Errorf("version %d has state %q, but the primary is version %d", entry.Version, entry.State, r.primary)
	}
	material, err := base64.StdEncoding.Strict().DecodeString(entry.Key)
	if err != nil || len(material) != keySize {
		return fmt.Errorf("its key must be %d bytes in base64", keySize)
	}
	if [keySize]byte(material) == [keySize]byte{} {
		return errors.New("its key is all zeros")
	}
	k, err := newKey(entry.Info, material)
	if err != nil {
		return err
	}
	r.keys[entry.Version] = k
	return nil
}

// describeJSON returns an error without content of the file, which the decoder's own errors can quote.
func describeJSON(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("it is not valid JSON at byte %d", syntax.Offset)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("field %q is not of the expected type %s", wrong.Field, wrong.Type)
	}
	return errors.New(`it is not a keyring: expected JSON {"format", "primary", "keys": [{"version", "created", "state", "key"}]}`)
}

func (r *ring) encode() []byte {
	file := fileRing{Format: fileFormat, Primary: r.primary, Keys: make([]fileKey, 0, len(r.keys))}
	for _, info := range r.list() {
		material := r.keys[info.Version].material
		file.Keys = append(file.Keys, fileKey{Info: info, Key: base64.StdEncoding.EncodeToString(material[:])})
	}
	data, _ := json.MarshalIndent(file, "", "  ") // cannot fail: strings, integers and one time
	return append(data, '\n')
}

func (r *ring) list() []Info {
	infos := make([]Info, 0, len(r.keys))
	for _, k := range r.keys {
		infos = append(infos, k.Info)
	}
	slices.SortFunc(infos, func(a, b Info) int { return cmp.Compare(a.Version, b.Version) })
	return infos
}
