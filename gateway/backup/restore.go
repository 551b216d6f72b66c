package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
	"tenantry/internal/durable"
)

// Target is the place where an installation is restored. No process may use it.
type Target struct {
	// Dirs are the folders of databases, by backend. Control is the backend of the control data.
	Dirs    map[string]string
	Control string
	// Files is the bucket for the bytes of files; nil: they are left out.
	Files blobs.Bucket
	// WithFiles: Verify looks for them without a bucket.
	WithFiles bool
	// Keyring is its path. A keyring that is there stays.
	Keyring string
	// Then is the moment to which the backup is completed; nil: it is restored as it is. Verify checks a completed database.
	Then   *Moment
	Verify func(ctx context.Context, path string) error
	// Load takes the databases of some backends from a folder instead, by backend. Their Dirs are folders for that.
	Load map[string]func(ctx context.Context, dir string) error
	// Resumed: Load takes the control data, and an earlier restoration of them was interrupted.
	Resumed bool
	// Staging is a folder for copies of files; it is made, and removed in the end.
	Staging string
}

// ErrOccupied: there are data already in the place where a backup is to be restored.
var ErrOccupied = errors.New("there are data already")

// ErrKeyring: the keyring of a backup is missing, or cannot be opened.
var ErrKeyring = errors.New("the keyring cannot be restored")

const (
	restoringFolder = "restoring" // in that of a backend, while it is being filled
	restoringSuffix = ".restoring"
	momentFile      = "moment" // in restoringFolder of the control data: what is being restored
	databaseSuffix  = ".db"
	controlFile     = "control.db"
)

// Check returns an error if a backup cannot be restored in a place: ErrOccupied, ErrKeyring. It changes nothing.
func (t *Target) Check(m *Manifest, identity bool) error {
	for _, d := range m.Databases {
		if t.Dirs[d.Backend] == "" {
			return fmt.Errorf("the backup has databases of the backend %s, which the settings do not name", d.Backend)
		}
	}
	begun := t.Begun()
	if was, err := os.ReadFile(filepath.Join(Restoring(t.Dirs[t.Control]), momentFile)); begun && err == nil && string(was) != t.moment() {
		return fmt.Errorf("a restoration %s was interrupted in %s, and this one is %s: repeat that one, or remove the folder %s to begin another",
			was, t.Dirs[t.Control], t.moment(), Restoring(t.Dirs[t.Control]))
	}
	for backend, dir := range t.Dirs {
		if t.Load[backend] != nil {
			continue
		}
		found, err := databasesIn(dir)
		if err != nil {
			return err
		}
		if len(found) > 0 && !begun {
			return fmt.Errorf("%w in %s: a backup is restored into an empty place; move them away, or name another folder", ErrOccupied, dir)
		}
	}
	_, err := os.Stat(t.Keyring)
	switch {
	case err == nil || !errors.Is(err, fs.ErrNotExist):
		return err
	case m.Keyring == "":
		return fmt.Errorf("%w: the backup has none, so put the copy that you kept apart at %s first", ErrKeyring, t.Keyring)
	case !identity:
		return fmt.Errorf("%w: the backup has it encrypted, so name the file with the age identity that opens it: --identity FILE", ErrKeyring)
	}
	return nil
}

// moment says to which second the backup is completed.
func (t *Target) moment() string {
	if t.Then == nil {
		return "without --at"
	}
	return "with --at " + t.Then.At.Format(time.RFC3339)
}

// objects returns the objects that are restored; nil: the backup has none.
func (t *Target) objects(ctx context.Context, d *Depot, m *Manifest) (map[string]object, error) {
	if t.Then != nil {
		return t.Then.objects(ctx)
	}
	return d.objects(ctx, m)
}

// Restoring returns the folder with the databases of a backend until they are complete, in the folder of the backend.
func Restoring(dir string) string { return filepath.Join(dir, restoringFolder) }

// Begun reports whether an earlier call of Restore was interrupted before its databases were complete.
func (t *Target) Begun() bool {
	if t.Load[t.Control] != nil {
		return t.Resumed
	}
	dir := t.Dirs[t.Control]
	_, marked := os.Stat(filepath.Join(dir, restoringFolder))
	_, complete := os.Stat(filepath.Join(dir, controlFile))
	return marked == nil && errors.Is(complete, fs.ErrNotExist)
}

// databasesIn returns the names of databases in a folder, with their logs.
func databasesIn(dir string) (found []string, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), databaseSuffix) {
			found = append(found, e.Name())
		}
	}
	return found, err
}

// Restore puts a backup back. The database of the control data appears last, when all else is in place: after an
// interruption there is either the installation, or a place that no gateway serves and into which a further call
// restores it. identity has the age identities that open the keyring; nil: none. Errors: those of Check, ErrDamaged,
// those of blobs.Bucket, the context's own.
func (d *Depot) Restore(ctx context.Context, m *Manifest, t Target, identity io.Reader, told func(Progress)) (err error) {
	if err := t.Check(m, identity != nil); err != nil {
		return err
	}
	ring, err := d.openKeyring(ctx, m, &t, identity) // first, so that a wrong identity is known at once
	if err != nil {
		return err
	}
	if err := errors.Join(os.RemoveAll(t.Staging), os.MkdirAll(t.Staging, folderMode)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(t.Staging)) }()
	order := slices.Sorted(maps.Keys(t.Dirs))
	slices.SortStableFunc(order, func(a, b string) int { return last(a == t.Control) - last(b == t.Control) })
	for _, backend := range order {
		if err := clearDir(t.Dirs[backend]); err != nil {
			return fmt.Errorf("the folder of backend %s: %w", backend, err)
		}
	}
	if err := d.fill(ctx, m, t, ring, told); err != nil {
		if ctx.Err() == nil { // otherwise the same command goes on
			err = errors.Join(err, t.clear())
		}
		return err
	}
	for _, backend := range order {
		dir := t.Dirs[backend]
		err := error(nil)
		if load := t.Load[backend]; load != nil {
			err = load(ctx, Restoring(dir))
		} else {
			err = place(dir)
		}
		if err != nil {
			return fmt.Errorf("the databases of backend %s: %w", backend, err)
		}
	}
	return nil
}

// fill restores everything but the places of the databases.
func (d *Depot) fill(ctx context.Context, m *Manifest, t Target, ring []byte, told func(Progress)) error {
	if err := durable.WriteFile(filepath.Join(Restoring(t.Dirs[t.Control]), momentFile), []byte(t.moment())); err != nil {
		return err
	}
	if err := d.restoreDatabases(ctx, m, t, told); err != nil {
		return err
	}
	if t.Then != nil {
		if err := t.complete(ctx, told); err != nil {
			return err
		}
	}
	if err := d.restoreFiles(ctx, m, t, told); err != nil {
		return err
	}
	return restoreKeyring(&t, ring)
}

// clear removes the databases that are not in their places yet.
func (t *Target) clear() error {
	var errs []error
	for backend, dir := range t.Dirs {
		if t.Load[backend] == nil { // others are in the staging folder
			errs = append(errs, os.RemoveAll(Restoring(dir)))
		}
	}
	return errors.Join(errs...)
}

// last orders what is last behind the rest.
func last(is bool) int {
	if is {
		return 1
	}
	return 0
}

// clearDir makes the folder of a backend ready: it removes what an interrupted call has left.
func clearDir(dir string) error {
	found, err := databasesIn(dir)
	if err != nil {
		return err
	}
	for _, name := range append(found, restoringFolder) { // Check found them to be of an interrupted call
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, restoringFolder), folderMode); err != nil {
		return err
	}
	return durable.SyncDir(dir)
}

// place moves the restored databases of a backend to their places, that of the control data last.
func place(dir string) error {
	from := filepath.Join(dir, restoringFolder)
	found, err := databasesIn(from)
	if err != nil {
		return err
	}
	slices.SortStableFunc(found, func(a, b string) int { return last(a == controlFile) - last(b == controlFile) })
	for _, name := range found {
		if err := durable.Rename(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return errors.Join(remove(filepath.Join(from, momentFile)), os.Remove(from))
}

func (d *Depot) restoreDatabases(ctx context.Context, m *Manifest, t Target, told func(Progress)) error {
	var done int64
	for _, one := range m.Databases {
		if err := d.extract(ctx, m, one, filepath.Join(t.Dirs[one.Backend], restoringFolder)); err != nil {
			return err
		}
		done += one.Bytes
		told(Progress{"restoring databases", one.File, done, m.Bytes})
	}
	return nil
}

// Extract copies some databases of a backup into the folders of their backends, which are made. Errors: ErrDamaged, those
// of blobs.Bucket.
func (d *Depot) Extract(ctx context.Context, m *Manifest, some []Database, dir func(backend string) string) error {
	for _, one := range some {
		if err := os.MkdirAll(dir(one.Backend), folderMode); err != nil {
			return err
		}
		if err := d.extract(ctx, m, one, dir(one.Backend)); err != nil {
			return err
		}
	}
	return nil
}

// extract copies a database of a backup into a folder, and checks the copy.
func (d *Depot) extract(ctx context.Context, m *Manifest, db Database, dir string) error {
	name, to := db.Backend+"/"+db.File, filepath.Join(dir, db.File)
	src, err := d.openPart(ctx, m, name)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }() // it was only read
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, untilDone{ctx, src})
	if err == nil {
		err = dst.Sync()
	}
	if err = errors.Join(err, dst.Close()); err != nil {
		return fmt.Errorf("restoring %s: %w", to, err)
	}
	sum, size, err := sumOf(ctx, to)
	if err == nil {
		err = db.compare(name, size, sum)
	}
	return err
}

// restoreFiles stores the bytes of files that the bucket lacks. Of a moment it leaves out those that the place lacks.
func (d *Depot) restoreFiles(ctx context.Context, m *Manifest, t Target, told func(Progress)) error {
	named, err := t.objects(ctx, d, m)
	if err != nil || t.Files == nil || len(named) == 0 {
		return err
	}
	for info, err := range t.Files.List(ctx, "") {
		if err != nil {
			return err
		}
		if one, is := named[info.Name]; is && one.size == info.Size {
			delete(named, info.Name)
		}
	}
	var done int64
	for _, name := range slices.Sorted(maps.Keys(named)) {
		switch _, err := copyObject(ctx, d.files, t.Files, name, t.Staging, named[name]); {
		case t.Then != nil && (errors.Is(err, blobs.ErrNotFound) || errors.Is(err, ErrDamaged)):
			continue // the restored records say whether it is needed
		case errors.Is(err, blobs.ErrNotFound):
			return fmt.Errorf("%w: the bytes files/%s are missing", ErrDamaged, name)
		case err != nil:
			return fmt.Errorf("restoring the bytes files/%s: %w", name, err)
		}
		done += named[name].size
		told(Progress{Step: "restoring files", Done: done, Total: m.Files.Bytes})
	}
	return nil
}

// maxKeyring bounds the size of a keyring in bytes.
const maxKeyring = 16 << 20

// openKeyring returns the keyring of a backup; nil if there is one in its place. Errors: ErrDamaged, ErrKeyring.
func (d *Depot) openKeyring(ctx context.Context, m *Manifest, t *Target, identity io.Reader) ([]byte, error) {
	if _, err := os.Stat(t.Keyring); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ids, err := age.ParseIdentities(identity)
	if err != nil {
		return nil, fmt.Errorf("%w: the file has no age identity (a line AGE-SECRET-KEY-…)", ErrKeyring)
	}
	sealed, err := d.openPart(ctx, m, keyringFile)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sealed.Close() }() // it was only read
	plain, err := age.Decrypt(sealed, ids...)
	if none := new(age.NoIdentityMatchError); errors.As(err, &none) {
		return nil, fmt.Errorf("%w: that age identity does not open the one of %s, which was encrypted to another recipient",
			ErrKeyring, m.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the keyring of %s cannot be opened: %w", ErrDamaged, m.Name, err)
	}
	raw, err := io.ReadAll(io.LimitReader(plain, maxKeyring))
	if err != nil {
		return nil, fmt.Errorf("%w: the keyring: %w", ErrDamaged, err)
	}
	return raw, nil
}

// restoreKeyring puts a keyring into its place, unless there is one.
func restoreKeyring(t *Target, raw []byte) error {
	if raw == nil {
		return nil
	}
	part := t.Keyring + restoringSuffix
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := durable.WriteFile(part, raw); err != nil {
		return err
	}
	return durable.Rename(part, t.Keyring)
}

// Verify reads all of a backup that Restore needs, but for the content of the bytes of files, of which it compares the
// sizes. It changes nothing. Errors: those of Target.Check, ErrDamaged, those of blobs.Bucket.
func (d *Depot) Verify(ctx context.Context, m *Manifest, t Target, identity io.Reader, told func(Progress)) error {
	if err := t.Check(m, identity != nil); err != nil {
		return err
	}
	if _, err := d.openKeyring(ctx, m, &t, identity); err != nil {
		return err
	}
	var done int64
	for _, one := range m.Databases {
		name := one.Backend + "/" + one.File
		object, err := d.openPart(ctx, m, name)
		if err != nil {
			return err
		}
		h := sha256.New()
		size, err := io.Copy(h, untilDone{ctx, object})
		err = errors.Join(err, object.Close())
		if err == nil {
			err = one.compare(name, size, hex.EncodeToString(h.Sum(nil)))
		}
		if err != nil {
			return err
		}
		done += size
		told(Progress{"checking databases", one.File, done, m.Bytes})
	}
	if t.Then != nil {
		told(Progress{Step: "reading the log"})
		if err := t.Then.read(ctx, func(*logRecord) error { return nil }); err != nil {
			return err
		}
	}
	named, err := t.objects(ctx, d, m)
	if err != nil || t.Files == nil && !t.WithFiles {
		return err
	}
	for info, err := range d.files.List(ctx, "") {
		if err != nil {
			return err
		}
		if one, is := named[info.Name]; is && one.size == info.Size {
			delete(named, info.Name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		return fmt.Errorf("%w: the bytes files/%s are missing, or not %d", ErrDamaged, name, named[name].size)
	}
	return nil
}

// compare returns ErrDamaged unless what was read is the database.
func (d *Database) compare(name string, size int64, sum string) error {
	if size == d.Bytes && sum == d.SHA256 {
		return nil
	}
	return fmt.Errorf("%w: %s has %d bytes with the SHA-256 %s, and the manifest says %d and %s",
		ErrDamaged, name, size, sum, d.Bytes, d.SHA256)
}
