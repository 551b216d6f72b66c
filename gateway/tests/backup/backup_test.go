package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/gofrs/flock"

	"tenantry/backends/blobs/s3"
	"tenantry/backends/blobs/s3/s3test"
	"tenantry/backends/mongo/mongotest"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/backup"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// isolations are the ways in which organizations are stored.
func isolations(t *testing.T) map[string]gatewaytest.Option {
	t.Helper()
	all := map[string]gatewaytest.Option{
		"shared files": gatewaytest.SharedFiles, "own files": gatewaytest.OwnFiles,
		"two backends": func(c *config.Config, o *gateway.Options) {
			gatewaytest.OwnFiles(c, o)
			c.Backends = maps.Clone(c.Backends)
			c.Backends["apart"], c.Store = c.Backends[config.DefaultBackend], "apart"
		},
	}
	if uri := os.Getenv(mongotest.Variable); uri != "" {
		database := mongotest.Database(t)
		all["mongo"] = func(c *config.Config, o *gateway.Options) {
			o.Leases.Settled = 5 * time.Second // erasing waits for it
			if err := gatewaytest.UseMongo(c, uri, database); err != nil {
				t.Error(err)
			}
		}
	}
	return all
}

// inBucket keeps the backups of a site in a bucket, and not in a folder.
func (s *site) inBucket(t *testing.T) {
	t.Helper()
	o := s3test.Server(t)
	s.bucket = o
	s.backups = "s3://" + o.Bucket + "/" + o.Prefix
	s.options = append(s.options, func(c *config.Config, _ *gateway.Options) {
		c.Backup.S3 = config.BackupServer{
			Endpoint: o.Endpoint, Region: o.Region, AccessKey: o.AccessKey, SecretKey: o.SecretKey, PathStyle: o.PathStyle,
		}
	})
	s.Stop(t)
	s.Gateway = gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(s.data)}, s.options...)...)
}

// TestBucket backs up to a bucket, removes what is not kept, and restores one organization and all.
func TestBucket(t *testing.T) {
	t.Parallel()
	s3test.Server(t)
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.Embedded, clock.Option, quickly)
	s.inBucket(t)
	acme, key := s.organization(t, "acme")
	birch, birchKey := s.organization(t, "birch")
	s.backUp(t, nil)
	purgeFile(t, birch, birchKey)
	want := exported(t, acme)
	var m *backup.Manifest
	for range 3 {
		clock.Advance(time.Minute)
		m = s.backUp(t, func(in *control.BackupRequest) { in.Keep = 2 })
	}
	if m.Files.Objects != 2 || m.Files.Added != 0 {
		t.Errorf("got %+v, want a file and the mark, and nothing copied again", m.Files)
	}
	purgeFile(t, acme, key)
	in := control.OrganizationRestore{Slug: "acme", From: s.backups, Yes: true}
	if _, err := control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in); err != nil {
		t.Error(err)
	}
	if got := exported(t, acme); !bytes.Equal(got, want) {
		t.Errorf("one organization: got %d bytes of an export, want %d", len(got), len(want))
	}
	if got := exported(t, at(s.mustRestore(t, m.Name), acme)); !bytes.Equal(got, want) {
		t.Errorf("all: got %d bytes of an export, want %d", len(got), len(want))
	}
	depot, err := backup.Bucket(s.bucket, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if names, err := depot.List(t.Context()); err != nil || len(names) != 2 || names[0] != m.Name {
		t.Errorf("got %v %v, want the newest two backups", names, err)
	}
	if err := depot.Close(); err != nil {
		t.Error(err)
	}
}

// site is an installation with organizations, and a place of backups.
type site struct {
	*gatewaytest.Gateway
	data, backups string
	identity      *age.X25519Identity
	options       []gatewaytest.Option
	bucket        s3.Options // of inBucket
}

func newSite(t *testing.T, options ...gatewaytest.Option) *site {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if len(options) == 0 {
		options = []gatewaytest.Option{gatewaytest.Embedded}
	}
	s := &site{data: t.TempDir(), backups: t.TempDir(), identity: identity, options: options}
	s.Gateway = gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(s.data)}, options...)...)
	return s
}

// organization makes an organization with contacts, a file and an encrypted value, and returns it with a key.
func (s *site) organization(t *testing.T, slug string) (*gatewaytest.Org, string) {
	t.Helper()
	o := s.Org(t, slug)
	key := o.Key(t, tenants.AllPermissions()...)
	as := fixture.As(o, gatewaytest.WithKey(key))
	as.Create(t, "/api/contacts/fields", `{"key":"pin","title":"Pin","type":"Encrypted"}`)
	as.Create(t, "/api/contacts", `{"first_name":"Ada","fields":{"pin":"secret of `+slug+`"}}`)
	a := o.Do(t, http.MethodPost, "/api/files/upload?filename=a.txt", gatewaytest.WithKey(key), gatewaytest.Body("text/plain", "bytes of "+slug))
	if a.Status != "ok" {
		t.Fatalf("upload: got %d %s", a.Code, a.Body)
	}
	return o, key
}

// purgeFile purges the file of an organization.
func purgeFile(t *testing.T, o *gatewaytest.Org, key string) {
	t.Helper()
	id := o.Get(t, key, "/api/files").Field("results").([]any)[0].(map[string]any)["id"].(string)
	if a := o.Do(t, http.MethodDelete, "/api/files/"+id+"/purge", gatewaytest.WithKey(key)); a.Status != "ok" {
		t.Fatalf("got %d %s, want the file purged", a.Code, a.Body)
	}
}

// list returns the names of the backups in a folder.
func list(t *testing.T, folder string) ([]string, error) {
	t.Helper()
	d, err := backup.Folder(folder, false)
	if err != nil {
		return nil, err
	}
	return d.List(t.Context())
}

func (s *site) backUp(t *testing.T, change func(*control.BackupRequest)) *backup.Manifest {
	t.Helper()
	in := control.BackupRequest{To: s.backups, Recipient: s.identity.Recipient().String()}
	if change != nil {
		change(&in)
	}
	var m *backup.Manifest
	var err error
	fixture.Await(t, "that the gateway makes no backup by itself", func() bool {
		m, err = control.Call[*backup.Manifest](t.Context(), s.Commands, "backup", in)
		return err == nil || !strings.Contains(err.Error(), backup.ErrBusy.Error())
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// settings are those of a place in which a backup is restored: a folder, and on MongoDB a database of its own.
func (s *site) settings(data string) config.Config {
	cfg := s.Config
	cfg.Data = data
	if b := cfg.Backends["mongo"]; b.Engine == config.EngineMongo {
		b.Database += fmt.Sprintf("_%x", crc32.ChecksumIEEE([]byte(data)))
		cfg.Backends = map[string]config.Backend{"mongo": b}
	}
	return cfg
}

// start starts a gateway on a restored place.
func (s *site) start(t *testing.T, data string) *gatewaytest.Gateway {
	t.Helper()
	backends := s.settings(data).Backends
	on := func(c *config.Config, _ *gateway.Options) { c.Backends = backends }
	return gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(data)}, append(s.options, on)...)...)
}

func (s *site) restore(ctx context.Context, data, name string) (*gateway.Restored, error) {
	return s.restoreWith(ctx, data, name, s.identity)
}

// mustRestore restores a backup into a new place and starts a gateway there.
func (s *site) mustRestore(t *testing.T, name string) *gatewaytest.Gateway {
	t.Helper()
	data := t.TempDir()
	if _, err := s.restore(t.Context(), data, name); err != nil {
		t.Fatal(err)
	}
	return s.start(t, data)
}

// at returns the organization as a restored gateway serves it.
func at(g *gatewaytest.Gateway, o *gatewaytest.Org) *gatewaytest.Org {
	return &gatewaytest.Org{Gateway: g, Slug: o.Slug, Host: o.Host}
}

// exported returns all of an organization, with the bytes of files and its secrets in clear.
func exported(t *testing.T, o *gatewaytest.Org) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := o.App.Transfer().Export(t.Context(), o.Tenant(t), &out, bundle.ExportOptions{Files: true, RevealSecrets: true}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestBackup restores organizations as they were, with keys, encrypted values and bytes of files, whatever happened since.
func TestBackup(t *testing.T) {
	t.Parallel()
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, isolation)
			acme, key := s.organization(t, "acme")
			birch, _ := s.organization(t, "birch")
			want := map[string][]byte{"acme": exported(t, acme), "birch": exported(t, birch)}
			m := s.backUp(t, nil)
			if m.Organizations != 2 || m.Files.Objects != 3 || m.Keyring != "age" || m.Documents == 0 {
				t.Errorf("got %+v, want 2 organizations, 2 files with the mark of their place, and the keyring", m)
			}
			found, err := control.Call[[]control.AuditRecord](t.Context(), s.Commands, "audit", map[string]any{"limit": 1})
			if err != nil || len(found) != 1 || found[0].Operation != "backup" || found[0].Facts["backup"] != m.Name {
				t.Errorf("got %+v %v, want a record of the backup", found, err)
			}
			for _, o := range []*gatewaytest.Org{acme, birch} {
				o.Import(t, fixture.ContactsBundle(3)...)
			}
			if _, err := control.Call[control.Certificate](t.Context(), s.Commands, "org.delete", control.Deletion{Slug: "birch", Now: true}); err != nil {
				t.Fatal(err)
			}
			restored := s.mustRestore(t, "")
			for _, o := range []*gatewaytest.Org{acme, birch} {
				if got := exported(t, at(restored, o)); !bytes.Equal(got, want[o.Slug]) {
					t.Errorf("%s: got %d bytes of an export, want the %d of that before", o.Slug, len(got), len(want[o.Slug]))
				}
			}
			if a := at(restored, acme).Get(t, key, "/api/contacts"); a.Code != http.StatusOK || fmt.Sprint(a.Field("count")) != "1" {
				t.Errorf("got %d %s, want the one contact for the key of before", a.Code, a.Body)
			}
			if found := fixture.FileFindings(t, restored); strings.Contains(found, "missing") {
				t.Errorf("doctor: got %s, want all bytes", found)
			}
		})
	}
}

// TestBackup_WhileServing backs up while organizations write and others are created. Of each organization the backup has
// what was acknowledged before it began, and nothing without what was written before it.
func TestBackup_WhileServing(t *testing.T) {
	t.Parallel()
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, isolation)
			var written [4]atomic.Int64
			keys, orgs := [4]string{}, [4]*gatewaytest.Org{}
			for i := range orgs {
				orgs[i], keys[i] = s.organization(t, fmt.Sprint("org", i))
			}
			stop := make(chan struct{})
			var writers sync.WaitGroup
			for i := range orgs {
				writers.Go(func() {
					for n := 1; ; n++ {
						select {
						case <-stop:
							return
						default:
						}
						a := fixture.PostJSON(t, orgs[i], keys[i], "/api/contacts", fmt.Sprintf(`{"first_name":"n%d","email":"%d@example.com"}`, n, n))
						if a.Status != "ok" {
							t.Errorf("got %d %s, want it stored", a.Code, a.Body)
							return
						}
						written[i].Store(int64(n))
					}
				})
			}
			writers.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
						s.Org(t, fmt.Sprint("later", n))
						time.Sleep(time.Duration(n) * time.Millisecond) // to be overtaken
					}
				}
			})
			fixture.AwaitWithin(t, "writes", time.Minute, func() bool { return written[0].Load() > 20 && written[3].Load() > 20 })
			var before [4]int64
			for i := range before {
				before[i] = written[i].Load()
			}
			s.backUp(t, nil)
			close(stop)
			writers.Wait()
			restored := s.mustRestore(t, "")
			for i, o := range orgs {
				of := at(restored, o)
				found, err := of.Get(t, keys[i], "/api/contacts?per_page=1").Field("count").(json.Number).Int64()
				count := found - 1 // without Ada
				if err != nil || count < before[i] || count > written[i].Load() {
					t.Errorf("%s: got %v contacts, want between %d and %d", o.Slug, count, before[i], written[i].Load())
				}
				last := fmt.Sprintf("/api/contacts?filters[email]=%d@example.com", count)
				if a := of.Get(t, keys[i], last); fmt.Sprint(a.Field("count")) != "1" {
					t.Errorf("%s: got %s, want the contacts written first, without a gap", o.Slug, a.Body)
				}
			}
			for _, f := range fixture.Findings(t, restored, control.Examination{}) {
				if f.Verdict == control.Wrong && !strings.HasPrefix(f.What, "backend") { // the server of the test is a single one
					t.Errorf("doctor: %+v", f)
				}
			}
		})
	}
}

// TestBackup_Refused: a backup does not begin where it cannot be.
func TestBackup_Refused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.organization(t, "acme")
	links, taken := t.TempDir(), t.TempDir()
	err := os.Symlink(filepath.Join(s.data, "db"), filepath.Join(links, "db"))
	for _, name := range []string{"sets/mine", "staging/x", "files/photos", "holiday pictures"} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(taken, name), 0o700), os.WriteFile(filepath.Join(taken, name, "mine"), nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	for what, in := range map[string]control.BackupRequest{
		"among the databases":           {To: filepath.Join(s.data, "db", "backups")},
		"the databases, by a link":      {To: filepath.Join(links, "db", "backups")},
		"among the files":               {To: filepath.Join(s.data, "files")},
		"around the files":              {To: s.data},
		"around the data":               {To: filepath.Dir(s.data)},
		"a place with something else":   {To: taken},
		"a relative path":               {To: "backups"},
		"no recipient":                  {To: s.backups, Recipient: "age1nobody"},
		"the secret half as recipient":  {To: s.backups, Recipient: s.identity.String()},
		"a file in place of the folder": {To: s.Config.KeyringPath()},
	} {
		if m, err := control.Call[*backup.Manifest](t.Context(), s.Commands, "backup", in); err == nil || strings.Contains(err.Error(), s.identity.String()) {
			t.Errorf("%s: got %+v %v, want a refusal without secrets", what, m, err)
		}
	}
	for _, name := range []string{"sets/mine/mine", "staging/x/mine", "files/photos/mine", "holiday pictures/mine"} {
		if _, err := os.Stat(filepath.Join(taken, name)); err != nil {
			t.Errorf("got %v, want what was there", err)
		}
	}
	lock := flock.New(filepath.Join(s.backups, "backups.lock"))
	if _, err := lock.TryLock(); err != nil {
		t.Fatal(err)
	}
	_, err = control.Call[*backup.Manifest](t.Context(), s.Commands, "backup", control.BackupRequest{To: s.backups})
	if err == nil || !strings.Contains(err.Error(), backup.ErrBusy.Error()) {
		t.Errorf("beside another: got %v, want %v", err, backup.ErrBusy)
	}
	if names, err := list(t, s.backups); err != nil || len(names) != 0 {
		t.Errorf("got %v %v, want no backup", names, err)
	}
	if err := lock.Unlock(); err != nil {
		t.Error(err)
	}
	m := s.backUp(t, nil)
	mark := filepath.Join(s.backups, "installation", m.Installation)
	if err := os.Rename(mark, filepath.Join(filepath.Dir(mark), "another")); err != nil {
		t.Fatal(err)
	}
	_, err = control.Call[*backup.Manifest](t.Context(), s.Commands, "backup", control.BackupRequest{To: s.backups, Keep: 1})
	if err == nil || !strings.Contains(err.Error(), "another installation") {
		t.Errorf("beside those of another installation: got %v, want a refusal", err)
	}
}

// TestBackup_Damaged: a damaged database of one organization keeps no other from being backed up, and no older backup from
// being kept.
func TestBackup_Damaged(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	for how, change := range map[string]func([]byte) []byte{
		"pages": func(b []byte) []byte { return append(b[:len(b)/2], make([]byte, len(b)-len(b)/2)...) },
		"cut":   func(b []byte) []byte { return b[:len(b)/2] },
		"other": func([]byte) []byte { return bytes.Repeat([]byte("no database "), 1000) },
		"empty": func([]byte) []byte { return nil },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, gatewaytest.OwnFiles, clock.Option)
			s.organization(t, "acme")
			birch, _ := s.organization(t, "birch")
			want := exported(t, birch)
			whole := s.backUp(t, nil)
			s.Stop(t)
			changeFile(t, filepath.Join(s.data, "db", "org-1.db"), change)
			clock.Advance(time.Minute)
			s.Gateway = gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(s.data)}, s.options...)...)
			var m backup.Manifest
			in := control.BackupRequest{To: s.backups, Recipient: s.identity.Recipient().String(), Keep: 1}
			answer, err := s.Commands.Do(t.Context(), "backup", in, control.Streams{Progress: func(control.Progress) {}})
			if err == nil || !strings.Contains(err.Error(), "org-1") || answer == nil || json.Unmarshal(answer.Data, &m) != nil || len(m.Damaged) != 1 {
				t.Fatalf("got %v and %+v, want an error about org-1.db, and the backup", err, m)
			}
			if names, err := list(t, s.backups); err != nil || !slices.Equal(names, []string{m.Name, whole.Name}) {
				t.Errorf("got %v %v, want the whole one kept", names, err)
			}
			if got := exported(t, at(s.mustRestore(t, ""), birch)); !bytes.Equal(got, want) {
				t.Errorf("got %d bytes of an export of the other organization, want %d", len(got), len(want))
			}
		})
	}
}

// TestBackup_Missing: a shared file that is missing is named, by backups and by doctor.
func TestBackup_Missing(t *testing.T) {
	t.Parallel()
	s := newSite(t, gatewaytest.SharedFiles)
	s.organization(t, "acme")
	files, err := filepath.Glob(filepath.Join(s.data, "db", "_shared-*.db"))
	if err != nil || len(files) != 1 {
		t.Fatalf("got %v, %v, want the file of the organization", files, err)
	}
	path := files[0]
	s.organization(t, "birch") // in another file
	s.Stop(t)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	s.Gateway = gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(s.data)}, s.options...)...)
	_, err = control.Call[*backup.Manifest](t.Context(), s.Commands, "backup", control.BackupRequest{To: s.backups})
	if err == nil || !strings.Contains(err.Error(), "organization acme") || !strings.Contains(err.Error(), "there is no file "+path) {
		t.Errorf("got %v, want an error that names %s", err, path)
	}
	if !slices.ContainsFunc(fixture.Findings(t, s.Gateway, control.Examination{}), func(f control.Finding) bool {
		return f.What == "organization acme" && strings.Contains(f.Says, "there is no file "+path)
	}) {
		t.Errorf("doctor does not name %s", path)
	}
}

// TestBackup_Keep removes old backups with the bytes that only they name.
func TestBackup_Keep(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.Embedded, clock.Option)
	acme, key := s.organization(t, "acme")
	first := s.backUp(t, nil)
	purgeFile(t, acme, key)
	for range 3 {
		clock.Advance(time.Minute)
		m := s.backUp(t, func(in *control.BackupRequest) { in.Keep = 2 })
		if m.Files.Added != 0 || m.Files.Objects != 1 {
			t.Errorf("got %+v, want no object but the mark, and none copied again", m.Files)
		}
	}
	names, err := list(t, s.backups)
	if err != nil || len(names) != 2 || slices.Contains(names, first.Name) {
		t.Errorf("got %v %v, want the newest two", names, err)
	}
	if left := objectsIn(t, s.backups); len(left) != 1 {
		t.Errorf("got %v, want the mark alone", left)
	}
}

// TestBackup_KeepsWhatIsNeeded: backups that cannot be restored and those of the future do not count, and the bytes that a
// damaged one may need stay.
func TestBackup_KeepsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.Embedded, clock.Option)
	acme, key := s.organization(t, "acme")
	good := s.backUp(t, nil)
	clock.Advance(time.Minute)
	damaged := s.backUp(t, nil)
	if err := os.Remove(filepath.Join(s.backups, "sets", damaged.Name, "objects")); err != nil {
		t.Fatal(err)
	}
	clock.Advance(48 * time.Hour)
	future := s.backUp(t, nil)
	clock.Advance(-47 * time.Hour)
	purgeFile(t, acme, key)
	next := s.backUp(t, func(in *control.BackupRequest) { in.Keep = 2 })
	names, err := list(t, s.backups)
	if want := []string{future.Name, next.Name, damaged.Name, good.Name}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v %v, want %v", names, err, want)
	}
	clock.Advance(time.Minute)
	last := s.backUp(t, func(in *control.BackupRequest) { in.Keep = 1 })
	names, err = list(t, s.backups)
	if want := []string{future.Name, last.Name, damaged.Name}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %v %v, want %v", names, err, want)
	}
	if left := objectsIn(t, s.backups); len(left) != 2 {
		t.Errorf("got %v, want the mark and the file that the damaged one may name", left)
	}
}

// TestBackup_KeepsWhatTheLogNeeds: in the place of the settings the backups remain that seconds of the log begin with,
// and the keyring is encrypted to the recipient of the settings.
func TestBackup_KeepsWhatTheLogNeeds(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.Embedded, clock.Option)
	s.organization(t, "acme")
	s.Stop(t)
	cfg, o := config.Default(), gateway.Options{}
	for _, option := range append([]gatewaytest.Option{fixture.InFolder(s.data)}, s.options...) {
		option(&cfg, &o)
	}
	cfg.Backup = config.Backup{To: s.backups, At: []string{"03:00"}, Log: 2 * time.Hour, Recipient: s.identity.Recipient().String()}
	services, err := gateway.OpenServices(t.Context(), cfg, o) // it makes no backups by itself
	if err != nil {
		t.Fatal(err)
	}
	defer services.Close()
	commands := services.Commands()
	for place, want := range map[string]int{s.backups: 4, t.TempDir(): 1} { // of now, and of 50, 100 and 150 minutes ago
		for range 6 {
			clock.Advance(50 * time.Minute)
			m, err := control.Call[*backup.Manifest](t.Context(), commands, "backup", control.BackupRequest{To: place, Keep: 1})
			if err != nil {
				t.Fatal(err)
			}
			if (m.Keyring != "") != (place == s.backups) {
				t.Errorf("the backup in %s has the keyring %q", place, m.Keyring)
			}
		}
		if names, err := list(t, place); err != nil || len(names) != want {
			t.Errorf("got %v %v, want the newest %d", names, err, want)
		}
	}
}

// TestBackup_KeepIncomplete: a backup that lacks what was damaged counts as none.
func TestBackup_KeepIncomplete(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.Embedded, clock.Option)
	good := s.backUp(t, nil)
	clock.Advance(time.Minute)
	incomplete := s.backUp(t, nil)
	changeFile(t, filepath.Join(s.backups, "manifests", incomplete.Name+".json"), func(b []byte) []byte {
		return bytes.Replace(b, []byte(`"damaged": []`), []byte(`"damaged": ["org-1"]`), 1)
	})
	for _, want := range [][]string{{incomplete.Name, good.Name}, {}} {
		clock.Advance(time.Minute)
		last := s.backUp(t, func(in *control.BackupRequest) { in.Keep = 2 })
		names, err := list(t, s.backups)
		if err != nil || names[0] != last.Name || len(want) > 0 && !slices.Equal(names[1:], want) || len(want) == 0 && slices.Contains(names, incomplete.Name) {
			t.Errorf("got %v %v, want %s and %v", names, err, last.Name, want)
		}
	}
}

// objectsIn returns the paths of the bytes of files below a folder of backups.
func objectsIn(t *testing.T, folder string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(folder, "files"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestBackup_Private: nobody else reads a backup, and it has no secret in clear.
func TestBackup_Private(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.organization(t, "acme")
	m := s.backUp(t, nil)
	ring, err := os.ReadFile(s.Config.KeyringPath())
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(s.backups, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == s.backups {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v, want it readable by its owner alone", path, info.Mode())
		}
		if d.IsDir() {
			return nil
		}
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte("secret of acme")) || bytes.Contains(content, ring[:40]) {
			t.Errorf("%s has a secret in clear", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := s.restoreWith(t.Context(), t.TempDir(), "", nil); !errors.Is(err, backup.ErrKeyring) {
		t.Errorf("without an identity: got %v, want ErrKeyring", err)
	}
	other, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.restoreWith(t.Context(), t.TempDir(), m.Name, other); err == nil || !strings.Contains(err.Error(), "does not open") {
		t.Errorf("with another identity: got %v, want that it does not open the keyring", err)
	}
}

func (s *site) restoreWith(ctx context.Context, data, name string, identity *age.X25519Identity) (*gateway.Restored, error) {
	o := gateway.RestoreOptions{From: s.backups, Name: name, Files: true, Holder: "a test", Operator: "root", Told: func(backup.Progress) {}}
	if identity != nil {
		o.Identity = strings.NewReader(identity.String())
	}
	return gateway.Restore(ctx, s.settings(data), o)
}

// TestRestore_Refused: what is damaged is not restored, and nothing is overwritten.
func TestRestore_Refused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.organization(t, "acme")
	m := s.backUp(t, nil)
	manifest := filepath.Join("manifests", m.Name+".json")
	database := filepath.Join("sets", m.Name, m.Databases[0].Backend, m.Databases[0].File)
	change := func(file string, with func([]byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, folder string) {
			t.Helper()
			changeFile(t, filepath.Join(folder, file), with)
		}
	}
	replace := func(old, by string) func([]byte) []byte {
		return func(content []byte) []byte { return bytes.Replace(content, []byte(old), []byte(by), 1) }
	}
	for name, tt := range map[string]struct {
		change func(t *testing.T, folder string)
		name   string
		want   error
		says   string
	}{
		"a changed database":   {change: change(database, func(b []byte) []byte { b[len(b)/2] ^= 1; return b }), want: backup.ErrDamaged, says: "the manifest says"},
		"a cut database":       {change: change(database, func(b []byte) []byte { return b[:len(b)-1] }), want: backup.ErrDamaged, says: "the manifest says"},
		"no database":          {change: remove(database), want: backup.ErrDamaged, says: "no such object"},
		"no manifest":          {change: remove(manifest), want: backup.ErrNone},
		"a cut manifest":       {change: change(manifest, func(b []byte) []byte { return b[:len(b)/2] }), want: backup.ErrDamaged},
		"a newer manifest":     {change: change(manifest, replace(`"format": 1`, `"format": 2`)), says: "newer version"},
		"a database elsewhere": {change: change(manifest, replace(`"control.db"`, `"../control.db"`)), want: backup.ErrDamaged, says: "names a database"},
		"no bytes":             {change: removeObjects, want: backup.ErrDamaged, says: "are missing"},
		"no list of objects":   {change: remove(filepath.Join("sets", m.Name, "objects")), want: backup.ErrDamaged},
		"an object elsewhere":  {change: change(filepath.Join("sets", m.Name, "objects"), func([]byte) []byte { return []byte("1 ../../x\n") }), want: backup.ErrDamaged},
		"a cut keyring":        {change: change(filepath.Join("sets", m.Name, "keyring.age"), func(b []byte) []byte { return b[:len(b)-5] })},
		"another list":         {change: change(filepath.Join("sets", m.Name, "objects"), func([]byte) []byte { return nil }), want: backup.ErrDamaged},
		"changed bytes":        {change: changeObjects, want: backup.ErrDamaged, says: "and should be"},
		"an empty manifest":    {change: change(manifest, func([]byte) []byte { return []byte("null") }), want: backup.ErrDamaged},
		"another name":         {change: func(*testing.T, string) {}, name: "20000101T000000Z", want: backup.ErrNone, says: m.Name},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of := *s
			of.backups = filepath.Join(t.TempDir(), "copy")
			if err := os.CopyFS(of.backups, os.DirFS(s.backups)); err != nil {
				t.Fatal(err)
			}
			tt.change(t, of.backups)
			data := t.TempDir()
			dry := gateway.RestoreOptions{
				From: of.backups, Name: tt.name, Files: true, DryRun: true, Identity: strings.NewReader(s.identity.String()), Told: func(backup.Progress) {},
			}
			if _, err := gateway.Restore(t.Context(), s.settings(data), dry); name != "changed bytes" && err == nil {
				t.Error("dry run: got no error")
			}
			_, err := of.restore(t.Context(), data, tt.name)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.says)
			}
			if _, err := os.Stat(filepath.Join(data, "db", "control.db")); err == nil {
				t.Error("got control data, want nothing that a gateway serves")
			}
			if _, err := os.Stat(filepath.Join(data, "db", "restoring")); err == nil {
				t.Error("databases are left that are of no use")
			}
			// A whole backup can be restored into the same place afterwards.
			if restored, err := s.restore(t.Context(), data, ""); err != nil || restored.Organizations != 1 {
				t.Errorf("again, from a whole one: got %+v %v, want one organization", restored, err)
			}
			if _, err := s.restore(t.Context(), data, ""); !errors.Is(err, backup.ErrOccupied) {
				t.Errorf("over it: got %v, want ErrOccupied", err)
			}
		})
	}
	var inUse *gateway.InUseError
	if _, err := s.restore(t.Context(), s.data, ""); !errors.As(err, &inUse) {
		t.Errorf("over the running gateway: got %v, want that it uses the folder", err)
	}
}

// TestRestore_Interrupted: a restoration that was interrupted while databases appeared in their places is begun again.
func TestRestore_Interrupted(t *testing.T) {
	t.Parallel()
	s := newSite(t, gatewaytest.OwnFiles)
	acme, _ := s.organization(t, "acme")
	want := exported(t, acme)
	s.backUp(t, nil)
	data := t.TempDir()
	if _, err := s.restore(t.Context(), data, ""); err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(data, "db")
	err := os.Mkdir(filepath.Join(db, "restoring"), 0o700)
	if err == nil {
		err = os.Rename(filepath.Join(db, "control.db"), filepath.Join(db, "restoring", "control.db"))
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := s.Config
	cfg.Data = data
	for _, init := range []bool{false, true} {
		o := gateway.Options{Init: init, Version: "test"}
		if services, err := gateway.OpenServices(t.Context(), cfg, o); !errors.Is(err, gateway.ErrNoInstallation) || !strings.Contains(err.Error(), "tenantry restore") {
			t.Errorf("init %v: got %v %v, want that a restored part is not served", init, services, err)
		}
	}
	if _, err := s.restore(t.Context(), data, ""); err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(data)}, s.options...)...)
	if got := exported(t, at(g, acme)); !bytes.Equal(got, want) {
		t.Errorf("got %d bytes of an export, want the %d of before", len(got), len(want))
	}
}

// TestRestore_OtherEngine moves an installation to another engine and back by backups. On a database server nothing is
// overwritten, and nothing is served that was restored in part.
func TestRestore_OtherEngine(t *testing.T) {
	t.Parallel()
	uri := os.Getenv(mongotest.Variable)
	if uri == "" {
		t.Skip(mongotest.Variable + " names no server")
	}
	s := newSite(t, gatewaytest.Embedded)
	acme, key := s.organization(t, "acme")
	birch, _ := s.organization(t, "birch")
	want := map[string][]byte{"acme": exported(t, acme), "birch": exported(t, birch)}
	s.backUp(t, nil)
	server := config.Backend{Engine: config.EngineMongo, Database: mongotest.Database(t), Isolation: config.IsolationShared}
	if err := server.URI.UnmarshalText([]byte(uri)); err != nil {
		t.Fatal(err)
	}
	restore := func(ctx context.Context, data string, b config.Backend) error {
		cfg := s.Config
		cfg.Data, cfg.Backends = data, map[string]config.Backend{config.DefaultBackend: b}
		_, err := gateway.Restore(ctx, cfg, gateway.RestoreOptions{
			From: s.backups, Identity: strings.NewReader(s.identity.String()), Files: true, Holder: "a test", Told: func(backup.Progress) {},
		})
		return err
	}
	options := func(data string, b config.Backend) []gatewaytest.Option {
		return []gatewaytest.Option{gatewaytest.Embedded, fixture.InFolder(data), func(c *config.Config, _ *gateway.Options) {
			c.Backends = map[string]config.Backend{config.DefaultBackend: b}
		}}
	}
	check := func(g *gatewaytest.Gateway) {
		t.Helper()
		for _, o := range []*gatewaytest.Org{acme, birch} {
			if got := exported(t, at(g, o)); !bytes.Equal(got, want[o.Slug]) {
				t.Errorf("%s: got %d bytes of an export, want the %d of that before", o.Slug, len(got), len(want[o.Slug]))
			}
		}
		if a := at(g, acme).Get(t, key, "/api/contacts"); a.Code != http.StatusOK {
			t.Errorf("got %d %s, want an answer for the key of before", a.Code, a.Body)
		}
	}
	data := t.TempDir()
	ring, err := os.ReadFile(s.Config.KeyringPath())
	if err == nil {
		err = os.WriteFile(filepath.Join(data, "keyring.json"), ring, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Interrupted when the first organization is there.
	ctx, interrupt := context.WithCancel(t.Context())
	cfg := s.Config
	cfg.Data, cfg.Backends = data, map[string]config.Backend{config.DefaultBackend: server}
	_, err = gateway.Restore(ctx, cfg, gateway.RestoreOptions{From: s.backups, Files: true, Holder: "a test", Told: func(p backup.Progress) {
		if p.Step == "loading databases" && p.Detail == "org-2" {
			interrupt()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the restoration interrupted", err)
	}
	o := gateway.Options{Init: true, Version: "test"}
	if services, err := gateway.OpenServices(t.Context(), cfg, o); !errors.Is(err, gateway.ErrNoInstallation) || !strings.Contains(err.Error(), "tenantry restore") {
		t.Errorf("got %v %v, want that a restored part is not served", services, err)
	}
	if err := restore(t.Context(), data, server); err != nil {
		t.Fatal(err)
	}
	if err := restore(t.Context(), t.TempDir(), server); !errors.Is(err, backup.ErrOccupied) {
		t.Errorf("over it: got %v, want ErrOccupied", err)
	}
	g := gatewaytest.Start(t, options(data, server)...)
	check(g)
	g.Org(t, "cedar") // its number is free
	for _, f := range fixture.Findings(t, g, control.Examination{}) {
		if f.Verdict == control.Wrong && !strings.HasPrefix(f.What, "backend") { // the server of the test is a single one
			t.Errorf("doctor: %+v", f)
		}
	}
	// And back.
	s.backups = t.TempDir()
	in := control.BackupRequest{To: s.backups, Recipient: s.identity.Recipient().String()}
	if _, err := control.Call[*backup.Manifest](t.Context(), g.Commands, "backup", in); err != nil {
		t.Fatal(err)
	}
	back, embedded := t.TempDir(), config.Default().Backends[config.DefaultBackend]
	if err := restore(t.Context(), back, embedded); err != nil {
		t.Fatal(err)
	}
	check(gatewaytest.Start(t, options(back, embedded)...))
}

// changeFile rewrites a file.
func changeFile(t *testing.T, path string, with func([]byte) []byte) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, with(content), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(file string) func(*testing.T, string) {
	return func(t *testing.T, folder string) {
		t.Helper()
		if err := os.Remove(filepath.Join(folder, file)); err != nil {
			t.Fatal(err)
		}
	}
}

func removeObjects(t *testing.T, folder string) {
	t.Helper()
	for _, path := range objectsIn(t, folder) {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

func changeObjects(t *testing.T, folder string) {
	t.Helper()
	for _, path := range objectsIn(t, folder) {
		changeFile(t, path, func(b []byte) []byte {
			if len(b) > 0 {
				b[0] ^= 1
			}
			return b
		})
	}
}

const (
	killedVariable = "TENANTRY_TEST_KILLED"
	sourceVariable = "TENANTRY_TEST_SOURCE"
)

// TestBackup_Killed kills processes that back up and that restore, at random moments. Backups that are listed are whole,
// and a place is empty, whole, or made whole by the same call again.
func TestBackup_Killed(t *testing.T) {
	t.Parallel()
	if what, data, ok := strings.Cut(os.Getenv(killedVariable), " "); ok {
		serveKilled(t, what, data, os.Getenv(sourceVariable))
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newSite(t)
	acme, _ := s.organization(t, "acme")
	acme.Import(t, fixture.ContactsBundle(500)...)
	want := exported(t, acme)
	s.Stop(t)
	killed := 0
	run := func(what, data string, within time.Duration) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=3m")
		cmd.Env = append(os.Environ(), killedVariable+"="+what+" "+data, sourceVariable+"="+s.backups, "TMPDIR="+t.TempDir())
		ready, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		_, _ = ready.Read(one) // it is about to begin
		time.Sleep(within)
		_ = cmd.Process.Kill() // it may have ended
		if cmd.Wait() != nil {
			killed++
		}
	}
	for range kills() {
		run("backup", s.data, time.Duration(random.IntN(120))*time.Millisecond)
	}
	s.Gateway = gatewaytest.Start(t, fixture.InFolder(s.data))
	// One that was certainly interrupted.
	left := filepath.Join(s.backups, "sets", "20200101T000000Z", "default")
	if err := errors.Join(os.MkdirAll(left, 0o700), os.WriteFile(filepath.Join(left, "control.db"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	s.backUp(t, func(in *control.BackupRequest) { in.Recipient = "" })
	names, err := list(t, s.backups)
	if err != nil || len(names) == 0 {
		t.Fatalf("got %v %v, want backups", names, err)
	}
	sets, err := os.ReadDir(filepath.Join(s.backups, "sets"))
	if err != nil || len(sets) != len(names) {
		t.Errorf("got %v %v, want nothing left of killed backups", sets, err)
	}
	if _, err := os.Stat(filepath.Join(s.backups, "staging")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want no staging folder left", err)
	}
	ring, err := os.ReadFile(s.Config.KeyringPath())
	if err != nil {
		t.Fatal(err)
	}
	for i := range kills() {
		data := t.TempDir()
		if err := os.WriteFile(filepath.Join(data, "keyring.json"), ring, 0o600); err != nil {
			t.Fatal(err)
		}
		run("restore", data, time.Duration(random.IntN(60))*time.Millisecond)
		_, err := s.restoreWith(t.Context(), data, names[i%len(names)], nil)
		if err != nil && !errors.Is(err, backup.ErrOccupied) {
			t.Errorf("restored again: got %v, want success, or that there is one", err)
		}
		g := gatewaytest.Start(t, fixture.InFolder(data))
		if got := exported(t, at(g, acme)); !bytes.Equal(got, want) {
			t.Errorf("got %d bytes of an export, want the %d of before", len(got), len(want))
		}
		g.Stop(t)
	}
	if killed == 0 {
		t.Error("no process was killed in time, want some")
	}
}

// serveKilled is a process that is killed.
func serveKilled(t *testing.T, what, data, backups string) {
	t.Helper()
	if what == "restore" {
		cfg := config.Default()
		cfg.Data = data
		fmt.Print("!")
		if _, err := gateway.Restore(t.Context(), cfg, gateway.RestoreOptions{From: backups, Files: true, Holder: "a test", Told: func(backup.Progress) {}}); err != nil {
			t.Fatal(err)
		}
		return
	}
	g := gatewaytest.Start(t, fixture.InFolder(data))
	fmt.Print("!")
	for range 100 {
		_, _ = control.Call[*backup.Manifest](t.Context(), g.Commands, "backup", control.BackupRequest{To: backups})
	}
}

// TestBackup_OnTime: a gateway backs itself up when a backup is due, also one that was due while none ran.
func TestBackup_OnTime(t *testing.T) {
	t.Parallel()
	clock, data, folder := new(fixture.Clock), t.TempDir(), filepath.Join(t.TempDir(), "backups")
	for day, want := range []int{1, 1, 2, 2} { // after starts on one day, and on later ones
		g := gatewaytest.Start(t, fixture.InFolder(data), clock.Option, func(c *config.Config, _ *gateway.Options) {
			c.Backup = config.Backup{To: folder, At: []string{"03:00"}, Keep: 2}
		})
		fixture.Await(t, "doctor says that there is a backup of the day", func() bool {
			names, _ := list(t, folder) // older ones are removed after the new one is there
			return len(names) == want && slices.ContainsFunc(fixture.Findings(t, g, control.Examination{Quick: true}), func(f control.Finding) bool {
				return f.What == "backups" && f.Verdict == control.Good
			})
		})
		fixture.Await(t, "a record of the backup", func() bool {
			records, err := control.Call[[]control.AuditRecord](t.Context(), g.Commands, "audit", map[string]any{"limit": 50})
			return err == nil && slices.ContainsFunc(records, func(r control.AuditRecord) bool {
				return r.Operation == "backup" && r.Facts["to"] == folder
			})
		})
		g.Stop(t)
		if names, _ := list(t, folder); len(names) != want {
			t.Errorf("day %d: got %v, want %d backups", day, names, want)
		}
		if day > 0 {
			clock.Advance(24 * time.Hour)
		}
	}
}

// TestRestoreOrganization makes one organization what it was, and a copy of it beside it, while another one goes on.
func TestRestoreOrganization(t *testing.T) {
	t.Parallel()
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, isolation, quickly)
			acme, key := s.organization(t, "acme")
			birch, birchKey := s.organization(t, "birch")
			want := exported(t, acme)
			m := s.backUp(t, nil)
			as := fixture.As(acme, gatewaytest.WithKey(key))
			purgeFile(t, acme, key)
			as.Create(t, "/api/contacts", `{"first_name":"Added"}`)
			fixture.As(birch, gatewaytest.WithKey(birchKey)).Create(t, "/api/contacts", `{"first_name":"Stays"}`)
			restore := func(change func(*control.OrganizationRestore)) (*control.OrganizationRestored, error) {
				in := control.OrganizationRestore{Slug: "acme", From: s.backups}
				change(&in)
				return control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in)
			}
			if _, err := restore(func(in *control.OrganizationRestore) { in.As = "birch" }); err == nil ||
				!strings.Contains(err.Error(), "--as birch: this slug is or was that of another organization") {
				t.Errorf("as another organization: got %v", err)
			}
			changed := exported(t, acme)
			for what, change := range map[string]func(*control.OrganizationRestore){
				"unconfirmed": func(*control.OrganizationRestore) {}, "dry run": func(in *control.OrganizationRestore) { in.DryRun = true },
			} {
				if _, err := restore(change); (err != nil) != (what == "unconfirmed") || err != nil && !strings.Contains(err.Error(), "1 records would return, 0 would be changed back, and 1 would be removed") {
					t.Errorf("%s: got %v", what, err)
				}
				if !bytes.Equal(exported(t, acme), changed) {
					t.Errorf("%s: something was changed", what)
				}
			}
			if r, err := restore(func(in *control.OrganizationRestore) { in.As = "acme-then" }); err != nil || r.Backup != m.Name || r.Slug != "acme-then" {
				t.Fatalf("beside: got %+v %v, want a new organization", r, err)
			}
			records, err := control.Call[[]control.AuditRecord](t.Context(), s.Commands, "audit", map[string]any{"org": "acme-then", "limit": 1})
			if err != nil || len(records) != 1 || records[0].Facts["from"] != "acme" {
				t.Errorf("got %+v %v, want the record to name whose data they are", records, err)
			}
			then := &gatewaytest.Org{Gateway: s.Gateway, Slug: "acme-then", Host: "acme-then.localhost"}
			look := then.Key(t, tenants.AllPermissions()...)
			if a := then.Get(t, look, "/api/contacts"); fmt.Sprint(a.Field("count")) != "1" || !bytes.Contains(exported(t, then), []byte("secret of acme")) {
				t.Errorf("beside: got %s, want the contact with its secret", a.Body)
			}
			if !bytes.Equal(exported(t, acme), changed) {
				t.Error("the living organization was changed")
			}
			if _, err := restore(func(in *control.OrganizationRestore) { in.Yes = true }); err != nil {
				t.Fatal(err)
			}
			if got := exported(t, acme); !bytes.Equal(got, want) {
				t.Errorf("got an export of %d bytes, want the %d of before", len(got), len(want))
			}
			as.Want(t, http.MethodGet, "/api/contacts", "", 200, "")
			if a := birch.Get(t, birchKey, "/api/contacts"); fmt.Sprint(a.Field("count")) != "2" {
				t.Errorf("a neighbour: got %s, want it as it was", a.Body)
			}
			if left, err := os.ReadDir(filepath.Join(s.data, "imports")); err != nil || len(left) > 0 {
				t.Errorf("got %v %v, want no copies left", left, err)
			}
			other := filepath.Join(t.TempDir(), "other")
			if err := os.CopyFS(other, os.DirFS(s.backups)); err != nil {
				t.Fatal(err)
			}
			changeFile(t, filepath.Join(other, "manifests", m.Name+".json"), func(b []byte) []byte {
				return bytes.Replace(b, []byte(m.Installation), []byte(strings.Repeat("0", len(m.Installation))), 1)
			})
			for what, change := range map[string]func(*control.OrganizationRestore){
				"no such organization": func(in *control.OrganizationRestore) { in.Slug = "cedar" },
				"no such backup":       func(in *control.OrganizationRestore) { in.Backup = "20000101T000000Z" },
				"a slug that is taken": func(in *control.OrganizationRestore) { in.As = "birch" },
				"a backup of another":  func(in *control.OrganizationRestore) { in.From = other },
				"no folder":            func(in *control.OrganizationRestore) { in.From = filepath.Join(s.backups, "none") },
			} {
				dry := func(in *control.OrganizationRestore) {
					in.DryRun = true // without it an error would say that it is unconfirmed
					change(in)
					in.DryRun = in.As == ""
				}
				_, err := restore(dry)
				if err == nil {
					t.Errorf("%s: got no error", what)
				}
				if none := fmt.Sprintf("the backup %s has no organization %q", m.Name, "cedar"); what == "no such organization" &&
					(err == nil || err.Error() != none) {
					t.Errorf("%s: got %v, want %s", what, err, none)
				}
			}
		})
	}
}
