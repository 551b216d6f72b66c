package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/gofrs/flock"

	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/internal/durable"
)

// Source is the installation that is backed up.
type Source struct {
	Installation string
	Version      string
	// Backends are the names of all backends. That of the control data is the last.
	Backends []string
	// Archive copies the databases of a backend, and Still calls do while no organization is created; see
	// store.Archiving.
	Archive func(ctx context.Context, backend string, o store.Archiving) ([]store.Archived, error)
	Still   func(ctx context.Context, do func() error) error
	// Files has the bytes of files; nil: they are not copied.
	Files blobs.Bucket
	// Keyring is the path of the keyring.
	Keyring string
	Now     func() time.Time
}

// Options say where a backup is written, and how.
type Options struct {
	Folder string
	// Recipient is the age recipient that the keyring is encrypted to; empty: the backup has no keyring.
	Recipient string
	// Keep is how many backups remain in the folder; the oldest are removed. 0: all.
	Keep int
	// Told, if set, is called with the progress.
	Told func(Progress)
}

// Progress says how far a step of a backup or a restoration is.
type Progress struct {
	Step        string
	Detail      string
	Done, Total int64 // bytes
}

// ErrBusy: another process writes a backup into the folder.
var ErrBusy = errors.New("another backup is being written to the folder")

// writer writes one backup.
type writer struct {
	Source
	Options
	m    *Manifest
	path string // of the backup while it is written
}

// Write writes a backup and returns its manifest. What an interrupted call has left is removed by the next, and the
// bytes of files that it copied are not copied again. The databases are consistent as driver.Archiver says; bytes are
// copied after them, because a record is stored after its bytes. Errors: ErrBusy; those of Source; the context's own.
func Write(ctx context.Context, src Source, o Options) (*Manifest, error) {
	if o.Told == nil {
		o.Told = func(Progress) {}
	}
	recipients, err := parseRecipient(o.Recipient)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(o.Folder, filesFolder), folderMode); err != nil {
		return nil, fmt.Errorf("the folder of backups: %w", err)
	}
	lock := flock.New(filepath.Join(o.Folder, lockFile), flock.SetPermissions(0o600))
	if locked, err := lock.TryLock(); err != nil {
		return nil, fmt.Errorf("the folder of backups: %w", err)
	} else if !locked {
		return nil, fmt.Errorf("%w %s", ErrBusy, o.Folder)
	}
	defer func() { _ = lock.Unlock() }() // it ends with the process at the latest
	if err := removePartial(o.Folder); err != nil {
		return nil, err
	}
	began := src.Now().UTC().Truncate(time.Second)
	w := &writer{Source: src, Options: o, m: &Manifest{
		Format: format, Name: began.Format(nameLayout), Version: src.Version, Installation: src.Installation, Began: began,
		Databases: []Database{}, Damaged: []string{},
	}}
	done := filepath.Join(o.Folder, w.m.Name)
	if _, err := os.Lstat(done); err == nil {
		return nil, fmt.Errorf("%w: %s began in this second", ErrBusy, w.m.Name)
	}
	w.path = done + partialSuffix
	if err := os.Mkdir(w.path, folderMode); err != nil {
		return nil, fmt.Errorf("the folder of backups: %w", err)
	}
	for _, step := range []func(context.Context) error{
		w.databases, w.files, func(context.Context) error { return w.keyring(recipients) }, w.manifest,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, os.RemoveAll(w.path))
		}
	}
	if err := durable.Rename(w.path, done); err != nil {
		return nil, fmt.Errorf("the folder of backups: %w", err)
	}
	return w.m, w.prune(ctx)
}

func parseRecipient(text string) ([]age.Recipient, error) {
	if text == "" {
		return nil, nil
	}
	all, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the recipient of the keyring: %w; age-keygen makes a key, whose public half (age1…) is one", err)
	}
	return all, nil
}

// removePartial removes what interrupted calls have left.
func removePartial(folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("the folder of backups: %w", err)
	}
	for _, e := range entries {
		if name, is := strings.CutSuffix(e.Name(), partialSuffix); is {
			if _, err := time.Parse(nameLayout, name); err == nil {
				if err := os.RemoveAll(filepath.Join(folder, e.Name())); err != nil {
					return fmt.Errorf("the folder of backups: %w", err)
				}
			}
		}
	}
	return nil
}

func (w *writer) databases(ctx context.Context) error {
	for _, backend := range w.Backends {
		dir := filepath.Join(w.path, backend)
		if err := os.Mkdir(dir, folderMode); err != nil {
			return fmt.Errorf("the folder of backups: %w", err)
		}
		copies, err := w.Archive(ctx, backend, store.Archiving{
			Dir: dir, Still: w.Still,
			Told: func(file string, done, _ int64) {
				w.Told(Progress{Step: "copying databases", Detail: file, Done: w.m.Bytes + done})
			},
		})
		if err != nil {
			return err
		}
		for _, one := range copies {
			if one.Damage != "" {
				w.m.Damaged = append(w.m.Damaged, one.Damage)
			}
			sum, size, err := sumOf(ctx, filepath.Join(dir, one.File))
			if errors.Is(err, fs.ErrNotExist) && one.Damage != "" {
				continue
			}
			if err != nil {
				return err
			}
			w.m.Databases = append(w.m.Databases, Database{backend, one.File, size, sum, one.Documents})
			w.m.Documents += one.Documents
			w.m.Bytes += size
			w.m.Organizations += len(one.Workspaces)
		}
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
	}
	w.m.Organizations-- // the workspace of the control data
	return nil
}

// sumOf returns the SHA-256 of a file, hexadecimal, and its size.
func sumOf(ctx context.Context, path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }() // it was only read
	h := sha256.New()
	size, err = io.Copy(h, untilDone{ctx, f})
	return hex.EncodeToString(h.Sum(nil)), size, err
}

// untilDone reads until the context ends.
type untilDone struct {
	ctx context.Context
	io.Reader
}

func (r untilDone) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// files copies the bytes of files that the folder lacks, and lists all.
func (w *writer) files(ctx context.Context) error {
	if w.Files == nil {
		return nil
	}
	to, err := blobs.Folder(filepath.Join(w.Folder, filesFolder))
	if err != nil {
		return err
	}
	have := map[string]int64{}
	for info, err := range to.List(ctx, "") {
		if err != nil {
			return err
		}
		have[info.Name] = info.Size
	}
	var list bytes.Buffer
	w.m.Files = &Files{}
	for info, err := range w.Files.List(ctx, "") {
		if err != nil {
			return fmt.Errorf("listing the bytes of files: %w", err)
		}
		if size, there := have[info.Name]; !there || size != info.Size {
			switch err := copyObject(ctx, w.Files, to, info.Name, w.path); {
			case errors.Is(err, blobs.ErrNotFound): // it was purged meanwhile
				continue
			case err != nil:
				return fmt.Errorf("copying the bytes of a file: %w", err)
			}
			w.m.Files.Added++
		}
		w.m.Files.Objects++
		w.m.Files.Bytes += info.Size
		fmt.Fprintf(&list, "%d %s\n", info.Size, info.Name)
		w.Told(Progress{Step: "copying files", Done: w.m.Files.Bytes})
	}
	return durable.WriteFile(filepath.Join(w.path, objectsFile), list.Bytes())
}

// copyObject copies an object from one bucket to another, by way of a file in the folder. Errors: those of the buckets.
func copyObject(ctx context.Context, from, to blobs.Bucket, name, by string) error {
	object, err := from.Open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { _ = object.Close() }() // it was only read
	f, err := os.CreateTemp(by, "object-*")
	if err != nil {
		return err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // the bucket may have moved it
	}()
	if n, err := io.Copy(f, untilDone{ctx, object}); err != nil {
		return err
	} else if n != object.Size() {
		return fmt.Errorf("%s: %d of %d bytes: %w", name, n, object.Size(), io.ErrUnexpectedEOF)
	}
	return to.Put(ctx, name, f)
}

// keyring encrypts the keyring.
func (w *writer) keyring(to []age.Recipient) error {
	if len(to) == 0 {
		return nil
	}
	raw, err := os.ReadFile(w.Keyring)
	if err != nil {
		return fmt.Errorf("the keyring: %w", err)
	}
	var sealed bytes.Buffer
	in, err := age.Encrypt(&sealed, to...)
	if err == nil {
		_, err = in.Write(raw)
	}
	if err == nil {
		err = in.Close()
	}
	if err != nil {
		return fmt.Errorf("the keyring: %w", err)
	}
	w.m.Keyring = "age"
	return durable.WriteFile(filepath.Join(w.path, keyringFile), sealed.Bytes())
}

func (w *writer) manifest(context.Context) error {
	w.m.Ended = w.Now().UTC().Truncate(time.Second)
	raw, err := json.MarshalIndent(w.m, "", "  ")
	if err == nil {
		err = durable.WriteFile(filepath.Join(w.path, manifestFile), append(raw, '\n'))
	}
	if err == nil {
		err = durable.SyncDir(w.path)
	}
	return err
}

// prune removes all but the newest backups, and the bytes of files that none of these names.
func (w *writer) prune(ctx context.Context) error {
	names, err := List(w.Folder)
	if err != nil || w.Keep <= 0 || len(names) <= w.Keep || len(w.m.Damaged) > 0 { // older ones may have what is damaged now
		return err
	}
	for _, old := range names[w.Keep:] {
		// Renamed first, so that one that is removed in part does not look complete.
		partial := filepath.Join(w.Folder, old) + partialSuffix
		if err := durable.Rename(filepath.Join(w.Folder, old), partial); err != nil {
			return fmt.Errorf("removing the backup %s: %w", old, err)
		}
		if err := os.RemoveAll(partial); err != nil {
			return fmt.Errorf("removing the backup %s: %w", old, err)
		}
	}
	named := map[string]int64{}
	for _, kept := range names[:w.Keep] {
		m, err := Read(w.Folder, kept)
		var all map[string]int64
		if err == nil {
			all, err = objects(w.Folder, m)
		}
		if err != nil {
			return err // bytes that it names could be removed
		}
		maps.Copy(named, all)
	}
	bucket, err := blobs.Folder(filepath.Join(w.Folder, filesFolder))
	if err != nil {
		return err
	}
	var unnamed []string
	for info, err := range bucket.List(ctx, "") {
		if err != nil {
			return err
		}
		if _, is := named[info.Name]; !is {
			unnamed = append(unnamed, info.Name)
		}
	}
	for _, name := range unnamed {
		if err := bucket.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
