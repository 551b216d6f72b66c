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
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"tenantry/backends/blobs"
	"tenantry/backends/store"
	"tenantry/internal/durable"
	"tenantry/tenants"
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
	// Homes returns where organizations are, by their slugs.
	Homes func(ctx context.Context) (map[string]tenants.Home, error)
	// Missing returns why a home, named as in tenants.Home, has no database; nil: it is not known.
	Missing func(home string) error
	// Files has the bytes of files; nil: they are not copied.
	Files blobs.Bucket
	// Keyring is the path of the keyring.
	Keyring string
	Now     func() time.Time
	// Cut returns the number of the last cut in the log of changes of the place; nil: there is none, or it is not known.
	Cut func() uint64
}

// Options say how a backup is written.
type Options struct {
	// Recipient is the age recipient that the keyring is encrypted to; empty: the backup has no keyring.
	Recipient string
	// Keep is how many backups remain in the place; the oldest are removed. 0: all.
	Keep int
	// Since is the first second that must remain available from the log of changes of the place, whatever Keep is; zero:
	// there is no log. The newest whole backup from before it remains, and all that are newer, because a log that had gaps
	// may need each of them.
	Since time.Time
	// Told, if set, is called with the progress.
	Told func(Progress)
}

// Progress says how far a step of a backup or a restoration is.
type Progress struct {
	Step        string
	Detail      string
	Done, Total int64 // bytes
}

// ErrBusy: another process writes a backup to the place.
var ErrBusy = errors.New("another backup is being written to")

// writer writes one backup.
type writer struct {
	Source
	Options
	*Depot

	m *Manifest
}

// Write writes a backup and returns its manifest. What an interrupted call has left is removed by the next, and the
// bytes of files that it copied are not copied again. The databases are consistent as driver.Archiver says; bytes are
// copied after them, because a record is stored after its bytes. Errors: ErrBusy; those of Source and blobs.Bucket; the
// context's own.
func (d *Depot) Write(ctx context.Context, src Source, o Options) (m *Manifest, err error) {
	if o.Told == nil {
		o.Told = func(Progress) {}
	}
	recipients, err := parseRecipient(o.Recipient)
	if err != nil {
		return nil, err
	}
	unlock, err := d.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	began := src.Now().UTC().Truncate(time.Second)
	w := &writer{Source: src, Options: o, Depot: d, m: src.begun(began.Format(nameLayout), began)}
	if err := w.prepare(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.staging)) }()
	for _, step := range []func(context.Context) error{
		w.databases, w.copyFiles, func(ctx context.Context) error { return w.keyring(ctx, recipients) }, w.manifest,
	} {
		if err := step(ctx); err != nil {
			return nil, errors.Join(err, w.removeSet(context.WithoutCancel(ctx), w.m.Name))
		}
	}
	return w.m, w.prune(ctx)
}

// begun returns the manifest of a backup that has nothing yet.
func (s *Source) begun(name string, at time.Time) *Manifest {
	return &Manifest{
		Format: format, Name: name, Version: s.Version, Installation: s.Installation, Began: at,
		Databases: []Database{}, Damaged: []string{},
	}
}

// prepare removes what interrupted calls have left, and makes the staging folder.
func (w *writer) prepare(ctx context.Context) error {
	if err := w.mark(ctx, w.Installation); err != nil {
		return err
	}
	names, err := w.List(ctx)
	if err != nil {
		return err
	}
	for at := w.m.Began; slices.Contains(names, w.m.Name); { // one began in this second
		at = at.Add(time.Second)
		w.m.Name = at.Format(nameLayout)
	}
	incomplete := map[string]bool{}
	for info, err := range w.sets.List(ctx, sets) {
		if err != nil {
			return fmt.Errorf("listing the backups in %s: %w", w, err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(info.Name, sets), "/")
		if _, err := Began(name); err == nil && !slices.Contains(names, name) {
			incomplete[name] = true
		}
	}
	for name := range incomplete {
		if err := w.removeSet(ctx, name); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(w.staging); err != nil {
		return err
	}
	return os.MkdirAll(w.staging, folderMode)
}

// removeSet removes the parts of a backup without a manifest.
func (w *writer) removeSet(ctx context.Context, name string) error {
	if err := w.sets.DeleteAll(ctx, sets+name+"/"); err != nil {
		return fmt.Errorf("removing the backup %s: %w", name, err)
	}
	return nil
}

// put moves a file to its place in the backup.
func (w *writer) put(ctx context.Context, name, path string) error {
	if err := w.Depot.put(ctx, sets+w.m.Name+"/"+name, path); err != nil {
		return fmt.Errorf("writing the backup to %s: %w", w, err)
	}
	return nil
}

// putBytes stores a small part of the backup.
func (w *writer) putBytes(ctx context.Context, name string, content []byte) error {
	path := filepath.Join(w.staging, "part")
	if err := durable.WriteFile(path, content); err != nil {
		return fmt.Errorf("writing the backup to %s: %w", w, err)
	}
	return w.put(ctx, name, path)
}

func parseRecipient(text string) ([]age.Recipient, error) {
	switch {
	case text == "":
		return nil, nil
	case strings.HasPrefix(strings.ToUpper(text), "AGE-SECRET-KEY-"):
		return nil, errors.New("the recipient of the keyring is the secret half of an age key, which nobody else should see: " +
			"name the public half (age1…)")
	}
	all, err := age.ParseRecipients(strings.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the recipient of the keyring: %w; age-keygen makes a key, whose public half (age1…) is one", err)
	}
	return all, nil
}

// maxCopies bounds how often the databases are copied because organizations were moved meanwhile.
const maxCopies = 3

// databases copies the databases of all backends. What organizations had before must be in the copies. One that was
// moved or restored meanwhile may be in none of them as a whole, so all are copied again.
func (w *writer) databases(ctx context.Context) error {
	for try := 1; ; try++ {
		moved, err := w.copyDatabases(ctx)
		if err != nil || len(moved) == 0 {
			return err
		}
		if try == maxCopies {
			return fmt.Errorf("organizations were moved or restored while their databases were copied (%s); make the backup again",
				strings.Join(moved, ", "))
		}
		w.m = w.begun(w.m.Name, w.m.Began)
		if err := errors.Join(w.removeSet(ctx, w.m.Name), os.RemoveAll(w.staging), os.MkdirAll(w.staging, folderMode)); err != nil {
			return err
		}
	}
}

// copyDatabases is databases without tries. It returns the organizations that have got another home meanwhile.
func (w *writer) copyDatabases(ctx context.Context) (moved []string, err error) {
	if w.Cut != nil {
		w.m.Cut = w.Cut()
	}
	before, err := w.Homes(ctx)
	if err != nil {
		return nil, err
	}
	copied := map[string]bool{} // by tenants.Home.At
	if err := w.archive(ctx, w.Backends, copied, w.Still); err != nil {
		return nil, err
	}
	after, err := w.Homes(ctx)
	if err != nil {
		return nil, err
	}
	for _, slug := range slices.Sorted(maps.Keys(before)) {
		was, is := before[slug], after[slug]
		switch {
		case is.At == "": // it was erased
		case was.At != is.At || was.Arrived != is.Arrived:
			moved = append(moved, slug)
		case !was.Moving && !copied[was.At]:
			says := fmt.Sprintf("the database of the organization %s (%s) is missing", slug, was.At)
			if why := w.Missing(was.At); why != nil {
				says += ": " + why.Error()
			}
			w.m.Damaged = append(w.m.Damaged, says)
		}
	}
	w.m.Organizations-- // the workspace of the control data
	return moved, nil
}

// archive copies the databases of backends. Each waits for the others before the last of its workspaces are copied, so
// that one pause in the creation of organizations is for all.
func (w *writer) archive(
	ctx context.Context, backends []string, copied map[string]bool, still func(context.Context, func() error) error,
) error {
	if len(backends) == 0 {
		return nil
	}
	backend, rest := backends[0], backends[1:]
	dir := filepath.Join(w.staging, backend)
	if err := os.Mkdir(dir, folderMode); err != nil {
		return err
	}
	o := store.Archiving{Dir: dir, Still: still, Told: func(file string, done, _ int64) {
		w.Told(Progress{Step: "copying databases", Detail: file, Done: w.m.Bytes + done})
	}}
	if len(rest) > 0 {
		o.Still = func(ctx context.Context, do func() error) error {
			return w.archive(ctx, rest, copied, func(ctx context.Context, last func() error) error {
				return still(ctx, func() error { return errors.Join(do(), last()) }) // the control data last: they have the keys
			})
		}
	}
	copies, err := w.Archive(ctx, backend, o)
	if err != nil {
		return err
	}
	for _, one := range copies {
		if err := w.database(ctx, backend, dir, one); err != nil {
			return err
		}
		for _, workspace := range one.Workspaces {
			copied[backend+"/"+workspace] = true
		}
		if one.Damage != "" {
			copied[backend+"/"+strings.TrimSuffix(one.File, databaseSuffix)] = true // it is named already
		}
	}
	return nil
}

// database puts the copy of a database into the backup.
func (w *writer) database(ctx context.Context, backend, dir string, one store.Archived) error {
	if one.Damage != "" {
		w.m.Damaged = append(w.m.Damaged, one.Damage)
	}
	path := filepath.Join(dir, one.File)
	sum, size, err := sumOf(ctx, path)
	if errors.Is(err, fs.ErrNotExist) && one.Damage != "" {
		return nil
	}
	if err == nil {
		err = w.put(ctx, backend+"/"+one.File, path)
	}
	if err != nil {
		return err
	}
	if one.Unsettled {
		w.m.Unsettled = append(w.m.Unsettled, one.File)
	}
	w.m.Databases = append(w.m.Databases, Database{backend, one.File, size, sum, one.Documents})
	w.m.Documents += one.Documents
	w.m.Bytes += size
	w.m.Organizations += len(one.Workspaces)
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

// copyFiles copies the bytes of files that the place lacks, and lists all.
func (w *writer) copyFiles(ctx context.Context) error {
	if w.Files == nil {
		return nil
	}
	have := map[string]int64{}
	for info, err := range w.files.List(ctx, "") {
		if err != nil {
			return err
		}
		have[info.Name] = info.Size
	}
	known := w.knownObjects(ctx)
	var list bytes.Buffer
	w.m.Files = &Files{}
	for info, err := range w.Files.List(ctx, "") {
		if err != nil {
			return fmt.Errorf("listing the bytes of files: %w", err)
		}
		one, named := known[info.Name]
		if size, there := have[info.Name]; !named || !there || size != info.Size || one.size != info.Size {
			one = object{size: info.Size}
			one.sum, err = copyObject(ctx, w.Files, w.files, info.Name, w.staging, one)
			switch {
			case errors.Is(err, blobs.ErrNotFound): // it was purged meanwhile
				continue
			case err != nil:
				return fmt.Errorf("copying the bytes of a file: %w", err)
			}
			if !there {
				w.m.Files.Added++
			}
		}
		w.m.Files.Objects++
		w.m.Files.Bytes += info.Size
		fmt.Fprintf(&list, "%d %s %s\n", info.Size, one.sum, info.Name)
		w.Told(Progress{Step: "copying files", Done: w.m.Files.Bytes})
	}
	sum := sha256.Sum256(list.Bytes())
	w.m.Files.List = hex.EncodeToString(sum[:])
	return w.putBytes(ctx, objectsFile, list.Bytes())
}

// knownObjects returns the objects of the newest backup that is whole. Objects that it does not name are copied anew,
// because their checksums are not known.
func (w *writer) knownObjects(ctx context.Context) map[string]object {
	names, err := w.List(ctx)
	if err != nil {
		return nil
	}
	for _, name := range names {
		m, err := w.read(ctx, name)
		if err != nil || m.Files == nil {
			continue
		}
		if all, err := w.objects(ctx, m); err == nil {
			return all
		}
	}
	return nil
}

// copyObject copies an object from one bucket to another, by way of a file in the folder, and returns its SHA-256,
// hexadecimal. Errors: those of the buckets; ErrDamaged if it has another size, or another checksum than a given one.
func copyObject(ctx context.Context, from, to blobs.Bucket, name, by string, want object) (sum string, err error) {
	src, err := from.Open(ctx, name)
	if err != nil {
		return "", err
	}
	defer func() { _ = src.Close() }() // it was only read
	f, err := os.CreateTemp(by, "object-*")
	if err != nil {
		return "", err
	}
	defer func() {
		_ = f.Close()
		_ = os.Remove(f.Name()) // the bucket may have moved it
	}()
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, h), untilDone{ctx, src})
	if err != nil {
		return "", err
	}
	sum = hex.EncodeToString(h.Sum(nil))
	if n != want.size || want.sum != "" && sum != want.sum {
		return "", fmt.Errorf("%w: the bytes %s are %d with the SHA-256 %s, and should be %d %s", ErrDamaged, name, n, sum, want.size, want.sum)
	}
	return sum, to.Put(ctx, name, f)
}

// keyring encrypts the keyring.
func (w *writer) keyring(ctx context.Context, to []age.Recipient) error {
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
	return w.putBytes(ctx, keyringFile, sealed.Bytes())
}

// manifest stores the manifest, which makes the backup complete.
func (w *writer) manifest(ctx context.Context) error {
	w.m.Ended = w.Now().UTC().Truncate(time.Second)
	raw, err := json.MarshalIndent(w.m, "", "  ")
	path := filepath.Join(w.staging, "manifest")
	if err == nil {
		err = durable.WriteFile(path, append(raw, '\n'))
	}
	if err == nil {
		err = w.Depot.put(ctx, manifests+w.m.Name+manifestExt, path)
	}
	if err != nil {
		return fmt.Errorf("writing the backup to %s: %w", w, err)
	}
	return nil
}

// prune removes all but the newest backups, and the bytes of files that none of these names. Those that are damaged, or
// were made while the clock was ahead, neither count nor are removed. Those that lack what was damaged do not count.
func (w *writer) prune(ctx context.Context) error {
	names, err := w.List(ctx)
	if err != nil || w.Keep <= 0 || len(w.m.Damaged) > 0 { // older ones may have what is damaged now
		return err
	}
	var old []string
	kept, named, whole := 0, map[string]object{}, true
	based := w.Since.IsZero() // a backup from before Since was found
	for _, name := range names {
		m, err := w.read(ctx, name)
		var all map[string]object
		if err == nil {
			all, err = w.objects(ctx, m)
		}
		switch {
		case errors.Is(err, ErrDamaged):
			whole = false
			w.m.Notes = append(w.m.Notes, fmt.Sprintf("the backup %s cannot be restored and is left alone (%s); to have it removed, "+
				"remove its manifest", name, err))
		case err != nil:
			return err
		case name <= w.m.Name && kept >= w.Keep && based:
			old = append(old, name)
		default:
			if name <= w.m.Name && len(m.Damaged) == 0 {
				kept++
			}
			maps.Copy(named, all)
			based = based || len(m.Damaged) == 0 && !m.Ended.After(w.Since)
		}
	}
	for _, name := range old {
		// The manifest first, so that a backup that is removed in part does not look complete.
		if err := w.sets.Delete(ctx, manifests+name+manifestExt); err != nil {
			return fmt.Errorf("removing the backup %s: %w", name, err)
		}
		if err := w.removeSet(ctx, name); err != nil {
			return err
		}
	}
	if !whole { // nobody knows which bytes the damaged ones name
		return nil
	}
	logged, isLogged, err := loggedObjects(w.folder)
	if err != nil {
		return err
	}
	maps.Copy(named, logged)
	return w.removeUnnamed(ctx, named, isLogged)
}

// removeUnnamed removes the bytes of files that no backup names. If there is a log of changes, those that are new stay.
func (w *writer) removeUnnamed(ctx context.Context, named map[string]object, isLogged bool) error {
	var unnamed []string
	for info, err := range w.files.List(ctx, "") {
		if err != nil {
			return err
		}
		if _, is := named[info.Name]; !is && !(isLogged && w.Now().Sub(info.Stored) < unnamedAge) {
			unnamed = append(unnamed, info.Name)
		}
	}
	for _, name := range unnamed {
		if err := w.files.Delete(ctx, name); err != nil {
			return err
		}
	}
	return nil
}
