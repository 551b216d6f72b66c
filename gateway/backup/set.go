// Package backup writes the data of an installation to a place for backups while it serves, and puts them back.
//
// The place is a folder, or a bucket of an S3-compatible server. It has a manifest for each backup, named by the time at
// which it began, what the manifest names, and the bytes of files, each once for all backups:
//
//	manifests/20261127T154500Z.json               what the backup has; written last
//	sets/20261127T154500Z/default/control.db      the databases, by backend
//	sets/20261127T154500Z/objects                 names and sizes of the bytes of files, one a line
//	sets/20261127T154500Z/keyring.age             the keyring, encrypted, if a recipient was named
//	files/1/a8/…                                  bytes of files
//	installation/…                                names the installation whose backups these are
//
// A backup is there when its manifest is: complete and durable. Sets without a manifest are removed by the next backup.
package backup

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/blobs"
)

const (
	format        = 1
	nameLayout    = "20060102T150405Z"
	manifests     = "manifests/"
	manifestExt   = ".json"
	sets          = "sets/"
	marks         = "installation/"
	stagingFolder = "staging" // for what is being written
	objectsFile   = "objects"
	keyringFile   = "keyring.age"
	filesFolder   = "files"
	lockFile      = "backups.lock"
	folderMode    = 0o700
)

// Manifest says what a backup has.
type Manifest struct {
	Format       int       `json:"format"`
	Name         string    `json:"name"`
	Version      string    `json:"version"` // of the program that wrote it
	Installation string    `json:"installation"`
	Began        time.Time `json:"began"`
	Ended        time.Time `json:"ended"`
	// Cut is the number of the last cut in the log of changes when the backup began: it has all of that. 0: it is not known,
	// and the backup is not completed from the log.
	Cut           uint64     `json:"cut,omitempty"`
	Databases     []Database `json:"databases"`
	Organizations int        `json:"organizations"` // workspaces in the databases, without the control data
	Documents     int64      `json:"documents"`
	Bytes         int64      `json:"bytes"` // of the databases
	// Damaged says which databases of organizations are damaged. Their copies are as damaged, or missing.
	Damaged []string `json:"damaged"`
	// Unsettled are the databases of organizations that changed all the time, on a database server that cannot read as of
	// one moment: they may have records of different moments.
	Unsettled []string `json:"unsettled,omitempty"`
	// Files are the bytes of files; nil: the backup has none, because they are kept elsewhere.
	Files *Files `json:"files"`
	// Keyring is "age" if the backup has the keyring, encrypted to an age recipient, and empty otherwise.
	Keyring string `json:"keyring"`
	// Notes say what an operator should know of the place.
	Notes []string `json:"-"`
}

// object is what a backup says of the bytes of a file.
type object struct {
	size int64
	sum  string // SHA-256, hexadecimal
}

// Files are the bytes of files that a backup names.
type Files struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Added   int64 `json:"added"` // objects that no earlier backup in the folder had
	// List is the SHA-256 of the list of objects, hexadecimal.
	List string `json:"list"`
}

// Database is the copy of a database.
type Database struct {
	Backend   string `json:"backend"`
	File      string `json:"file"`
	Bytes     int64  `json:"bytes"`
	SHA256    string `json:"sha256"`
	Documents int64  `json:"documents"`
}

// Own reports whether the database is that of one organization.
func (d *Database) Own() bool { return strings.HasPrefix(d.File, "org-") }

// FilesFolder returns the folder with the bytes of files of all backups in a folder.
func FilesFolder(folder string) string { return filepath.Join(folder, filesFolder) }

// Errors of a place for backups.
var (
	// ErrNone: it has no complete backup, or none of that name.
	ErrNone = errors.New("no backup")
	// ErrDamaged: a backup is not what its manifest says.
	ErrDamaged = errors.New("the backup is damaged")
)

// List returns the names of the complete backups, the newest first. Errors: those of blobs.Bucket.
func (d *Depot) List(ctx context.Context) (names []string, err error) {
	for info, err := range d.sets.List(ctx, manifests) {
		if err != nil {
			return nil, fmt.Errorf("listing the backups in %s: %w", d, err)
		}
		name, is := strings.CutSuffix(strings.TrimPrefix(info.Name, manifests), manifestExt)
		if _, err := Began(name); err == nil && is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// Began returns when the backup of a name began.
func Began(name string) (time.Time, error) { return time.Parse(nameLayout, name) }

// maxManifest bounds the size of a manifest in bytes: about 250 of each database.
const maxManifest = 64 << 20

// list returns the names of the complete backups, the newest first. Errors: ErrNone; those of blobs.Bucket.
func (d *Depot) list(ctx context.Context) ([]string, error) {
	names, err := d.List(ctx)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%w in %s: name the place that tenantry backup --to named", ErrNone, d)
	}
	return names, err
}

// Read returns the manifest of a backup. An empty name means the newest. Errors: ErrNone, ErrDamaged, those of
// blobs.Bucket.
func (d *Depot) Read(ctx context.Context, name string) (*Manifest, error) {
	names, err := d.list(ctx)
	switch {
	case err != nil:
		return nil, err
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		return nil, fmt.Errorf("%w %q in %s: the newest is %s", ErrNone, name, d, names[0])
	}
	return d.read(ctx, name)
}

// read returns the manifest of a backup that was listed.
func (d *Depot) read(ctx context.Context, name string) (*Manifest, error) {
	object := manifests + name + manifestExt
	f, err := d.sets.Open(ctx, object)
	if err != nil {
		return nil, fmt.Errorf("reading the backup %s: %w", name, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	raw, err := io.ReadAll(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("reading the backup %s: %w", name, err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, object, err)
	}
	if m.Format > format {
		return nil, fmt.Errorf("the backup %s was written by a newer version of tenantry (%s); restore it with that one", name, m.Version)
	}
	for _, d := range m.Databases {
		if !plain(d.Backend) || !plain(d.File) {
			return nil, fmt.Errorf("%w: %s names a database %q of a backend %q", ErrDamaged, object, d.File, d.Backend)
		}
	}
	if m.Format < 1 || !slices.ContainsFunc(m.Databases, func(d Database) bool { return d.File == controlFile }) {
		return nil, fmt.Errorf("%w: %s names no control data", ErrDamaged, object)
	}
	m.Name = name
	return m, nil
}

// plain reports whether a name leads to nothing but an entry of its folder.
func plain(name string) bool {
	return filepath.IsLocal(name) && filepath.Base(name) == name && name != "."
}

// objects returns the objects that a backup names. Error: ErrDamaged, also if it is not the list of the manifest.
func (d *Depot) objects(ctx context.Context, m *Manifest) (map[string]object, error) {
	if m.Files == nil {
		return nil, nil
	}
	f, err := d.openPart(ctx, m, objectsFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	all, sum := map[string]object{}, sha256.New()
	lines := bufio.NewScanner(io.TeeReader(f, sum))
	for lines.Scan() {
		parts := strings.SplitN(lines.Text(), " ", 3)
		if len(parts) < 3 {
			return nil, fmt.Errorf("%w: %s has the line %.100q", ErrDamaged, objectsFile, lines.Text())
		}
		size, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || blobs.CheckName(parts[2]) != nil {
			return nil, fmt.Errorf("%w: %s has the line %.100q", ErrDamaged, objectsFile, lines.Text())
		}
		all[parts[2]] = object{size, parts[1]}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, objectsFile, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != m.Files.List || int64(len(all)) != m.Files.Objects {
		return nil, fmt.Errorf("%w: %s names %d objects and has the SHA-256 %s, and the manifest says %d and %s",
			ErrDamaged, objectsFile, len(all), got, m.Files.Objects, m.Files.List)
	}
	return all, nil
}

// openPart opens a part of a backup. Errors: ErrDamaged if it is missing, those of blobs.Bucket.
func (d *Depot) openPart(ctx context.Context, m *Manifest, name string) (blobs.Object, error) {
	object, err := d.sets.Open(ctx, sets+m.Name+"/"+name)
	if errors.Is(err, blobs.ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the backup %s: %w", m.Name, err)
	}
	return object, nil
}
