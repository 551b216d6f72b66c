// Package backup writes the data of an installation into a folder of backups while it serves, and puts them back.
//
// A folder of backups has a folder for each of them, named by the time at which it began, and one with the bytes of
// files, of which each is there once:
//
//	20261127T154500Z/manifest.json       what the backup has; written last
//	20261127T154500Z/default/control.db  the databases, by backend
//	20261127T154500Z/objects             names and sizes of the bytes of files, one a line
//	20261127T154500Z/keyring.age         the keyring, encrypted, if a recipient was named
//	files/1/a8/…                         bytes of files
//
// A backup appears under its name when it is complete and durable.
package backup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	partialSuffix = ".partial" // of backups that are being written
	manifestFile  = "manifest.json"
	objectsFile   = "objects"
	keyringFile   = "keyring.age"
	filesFolder   = "files"
	lockFile      = "backups.lock"
	folderMode    = 0o700
)

// Manifest says what a backup has.
type Manifest struct {
	Format        int        `json:"format"`
	Name          string     `json:"name"`
	Version       string     `json:"version"` // of the program that wrote it
	Installation  string     `json:"installation"`
	Began         time.Time  `json:"began"`
	Ended         time.Time  `json:"ended"`
	Databases     []Database `json:"databases"`
	Organizations int        `json:"organizations"` // workspaces in the databases, without the control data
	Documents     int64      `json:"documents"`
	Bytes         int64      `json:"bytes"` // of the databases
	// Damaged says which databases of organizations are damaged. Their copies are as damaged, or missing.
	Damaged []string `json:"damaged"`
	// Files are the bytes of files; nil: the backup has none, because they are kept elsewhere.
	Files *Files `json:"files"`
	// Keyring is "age" if the backup has the keyring, encrypted to an age recipient, and empty otherwise.
	Keyring string `json:"keyring"`
}

// Files are the bytes of files that a backup names.
type Files struct {
	Objects int64 `json:"objects"`
	Bytes   int64 `json:"bytes"`
	Added   int64 `json:"added"` // objects that no earlier backup in the folder had
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

// Errors of a folder of backups.
var (
	// ErrNone: the folder has no complete backup, or none of that name.
	ErrNone = errors.New("there is no such backup")
	// ErrDamaged: a backup is not what its manifest says.
	ErrDamaged = errors.New("the backup is damaged")
)

// List returns the names of the complete backups in a folder, the newest first. Error: that of reading the folder.
func List(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if _, err := time.Parse(nameLayout, e.Name()); err == nil && e.IsDir() {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	slices.Reverse(names)
	return names, nil
}

// Began returns when the backup of a name began.
func Began(name string) (time.Time, error) { return time.Parse(nameLayout, name) }

// Read returns the manifest of a backup. An empty name means the newest. Errors: ErrNone, ErrDamaged.
func Read(folder, name string) (*Manifest, error) {
	names, err := List(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	switch {
	case len(names) == 0:
		return nil, fmt.Errorf("%w: %s has none that is complete", ErrNone, folder)
	case name == "":
		name = names[0]
	case !slices.Contains(names, name):
		return nil, fmt.Errorf("%w: %s has no %q; the newest is %s", ErrNone, folder, name, names[0])
	}
	raw, err := os.ReadFile(filepath.Join(folder, name, manifestFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	m := &Manifest{}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, manifestFile, err)
	}
	if m.Format > format {
		return nil, fmt.Errorf("the backup %s was written by a newer version of tenantry (%s); restore it with that one", name, m.Version)
	}
	for _, d := range m.Databases {
		if !plain(d.Backend) || !plain(d.File) {
			return nil, fmt.Errorf("%w: %s names a database %q of a backend %q", ErrDamaged, manifestFile, d.File, d.Backend)
		}
	}
	m.Name = name
	return m, nil
}

// plain reports whether a name leads to nothing but an entry of its folder.
func plain(name string) bool {
	return filepath.IsLocal(name) && filepath.Base(name) == name && name != "."
}

// objects returns the sizes of the objects that a backup names.
func objects(folder string, m *Manifest) (map[string]int64, error) {
	if m.Files == nil {
		return nil, nil
	}
	f, err := os.Open(filepath.Join(folder, m.Name, objectsFile))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	defer func() { _ = f.Close() }() // it was only read
	all := map[string]int64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		text, object, _ := strings.Cut(lines.Text(), " ")
		size, err := strconv.ParseInt(text, 10, 64)
		if err != nil || blobs.CheckName(object) != nil {
			return nil, fmt.Errorf("%w: %s has the line %.100q", ErrDamaged, objectsFile, lines.Text())
		}
		all[object] = size
	}
	return all, lines.Err()
}
