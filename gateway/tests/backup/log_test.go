package backup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/backup"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// logging lets a gateway log its changes in the folder.
func logging(folder string) gatewaytest.Option {
	return func(c *config.Config, _ *gateway.Options) {
		c.Backup = config.Backup{To: folder, At: []string{"03:00"}, Log: time.Hour}
	}
}

// moment is what organizations had in a second.
type moment struct {
	at   time.Time
	want map[string][]byte
}

// untilAfter sleeps until a time has passed.
func untilAfter(at time.Time) { time.Sleep(time.Until(at) + time.Millisecond) }

// base makes a backup that the log can complete, and returns after the second in which it ended.
func (s *site) base(t *testing.T) *backup.Manifest {
	t.Helper()
	untilAfter(time.Now().Add(3100 * time.Millisecond)) // after the log began, with the precision of names
	m := s.backUp(t, nil)
	untilAfter(m.Ended.Add(time.Second))
	return m
}

func (s *site) restoreAt(t *testing.T, at time.Time) (*gatewaytest.Gateway, error) {
	t.Helper()
	data := t.TempDir()
	if err := s.restoreInto(t, data, at); err != nil {
		return nil, err
	}
	return gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(data)}, s.options...)...), nil
}

func (s *site) restoreInto(t *testing.T, data string, at time.Time) error {
	t.Helper()
	identity := strings.NewReader(s.identity.String())
	_, err := gateway.Restore(t.Context(), s.settings(data), gateway.RestoreOptions{
		From: s.backups, At: at, Identity: identity, Files: true, Holder: "a test", Told: func(backup.Progress) {},
	})
	return err
}

// moments is how often TestLog notes what there is.
func moments() int {
	if isLong() {
		return 20
	}
	return 4
}

// TestLog restores organizations as they were at seconds in which a gateway served, while others write, are created and
// erased.
func TestLog(t *testing.T) {
	t.Parallel()
	for name, isolation := range fileIsolations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := loggedSite(t, isolation)
			m := s.base(t)
			var writing sync.RWMutex
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			orgs := map[string]*gatewaytest.Org{}
			var writers sync.WaitGroup
			for i := range 5 {
				o, key := s.organization(t, fmt.Sprint("org", i))
				orgs[o.Slug] = o
				writers.Go(func() {
					for n := 1; ctx.Err() == nil; n++ {
						writing.RLock()
						write(t, o, key, n)
						writing.RUnlock()
						time.Sleep(time.Duration(i*30) * time.Millisecond)
					}
				})
			}
			var noted []moment
			for n := range moments() {
				time.Sleep(time.Duration(n%3*300) * time.Millisecond)
				later, _ := s.organization(t, fmt.Sprint("later", n))
				orgs[later.Slug] = later
				if gone := fmt.Sprint("later", n-2); orgs[gone] != nil {
					erase(t, s, gone)
					delete(orgs, gone)
				}
				writing.Lock()
				one := moment{want: map[string][]byte{}}
				for slug, o := range orgs {
					one.want[slug] = exported(t, o)
				}
				one.at = time.Now().Truncate(time.Second).Add(time.Second)
				untilAfter(one.at.Add(time.Second)) // a cut of that second is made within it
				writing.Unlock()
				noted = append(noted, one)
			}
			cancel()
			writers.Wait()
			s.Stop(t)
			for _, one := range noted {
				s.checkMoment(t, one)
			}
			if _, err := s.restoreAt(t, m.Began.Add(-time.Hour)); !errors.Is(err, backup.ErrNoMoment) || !strings.Contains(err.Error(), "available are: 20") {
				t.Errorf("before the backup: got %v, want %v with the seconds that are available", err, backup.ErrNoMoment)
			}
			if _, err := s.restoreAt(t, time.Now().Add(time.Hour)); !errors.Is(err, backup.ErrNoMoment) {
				t.Errorf("in an hour: got %v, want %v", err, backup.ErrNoMoment)
			}
		})
	}
}

// TestLog_Damaged: a log that is damaged before a second is found by a dry run too. The error says which second is whole,
// which is restored, and nothing is left of the attempt.
func TestLog_Damaged(t *testing.T) {
	t.Parallel()
	s := loggedSite(t, gatewaytest.SharedFiles)
	s.base(t)
	s.organization(t, "acme")
	untilAfter(time.Now().Truncate(time.Second).Add(2 * time.Second))
	path := logFiles(t, s.backups)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s.organization(t, "birch")
	second := time.Now().Truncate(time.Second).Add(time.Second)
	untilAfter(second.Add(time.Second))
	s.Stop(t)
	from := damageLog(t, s.backups, path, len(whole))
	data := t.TempDir()
	dry := gateway.RestoreOptions{
		From: s.backups, At: second, DryRun: true, Files: true, Identity: strings.NewReader(s.identity.String()), Told: func(backup.Progress) {},
	}
	_, err = gateway.Restore(t.Context(), s.settings(data), dry)
	for what, err := range map[string]error{"dry run": err, "restoration": s.restoreInto(t, data, second)} {
		if !errors.Is(err, backup.ErrDamaged) || !strings.Contains(err.Error(), from) || !strings.Contains(err.Error(), "restore that second") {
			t.Fatalf("%s: got %v, want an error that names %s and a second", what, err, from)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "db", "restoring")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that nothing is left", err)
	}
	_, text, _ := strings.Cut(err.Error(), " after ")
	text, _, _ = strings.Cut(text, ": ")
	last, err := backup.ParseMoment(text)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.restoreInto(t, data, last); err != nil {
		t.Errorf("%s: %v", last, err)
	}
}

// damageLog changes a byte of the first pages in a log after what a file of it had, and returns the path of their file.
func damageLog(t *testing.T, backups, path string, from int) string {
	t.Helper()
	if last := logFiles(t, backups)[0]; last != path { // an hour has begun
		path, from = last, 0
	}
	changeFile(t, path, func(b []byte) []byte {
		head := from + bytes.Index(b[from:], []byte(`{"pages":`))
		size := binary.BigEndian.Uint32(b[head-16:])
		b[head+int(size)+50] ^= 1
		return b
	})
	return path
}

// logFiles returns the paths of the files of a log, the newest first.
func logFiles(t *testing.T, backups string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(backups, "log", "*", "*.pages"))
	if err != nil || len(found) == 0 {
		t.Fatalf("got %v %v, want files of a log", found, err)
	}
	slices.Reverse(found)
	return found
}

// TestRestore_InterruptedMoment: what was begun for a second is not continued for another.
func TestRestore_InterruptedMoment(t *testing.T) {
	t.Parallel()
	s := loggedSite(t, gatewaytest.SharedFiles)
	s.base(t)
	second := time.Now().Truncate(time.Second)
	untilAfter(second.Add(2 * time.Second))
	s.Stop(t)
	data := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := gateway.Restore(ctx, s.settings(data), gateway.RestoreOptions{
		From: s.backups, At: second, Identity: strings.NewReader(s.identity.String()), Holder: "a test", Told: func(backup.Progress) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want an interruption", err)
	}
	if _, err := s.restore(t.Context(), data, ""); err == nil || !strings.Contains(err.Error(), "with --at "+second.UTC().Format(time.RFC3339)) {
		t.Errorf("without the second: got %v, want that it is named", err)
	}
	if err := s.restoreInto(t, data, second); err != nil {
		t.Errorf("with the second: %v", err)
	}
}

func erase(t *testing.T, s *site, slug string) {
	t.Helper()
	if _, err := control.Call[control.Certificate](t.Context(), s.Commands, "org.delete", control.Deletion{Slug: slug, Now: true}); err != nil {
		t.Fatal(err)
	}
}

// write stores, changes and removes something of an organization.
func write(t *testing.T, o *gatewaytest.Org, key string, n int) {
	t.Helper()
	a := fixture.PostJSON(t, o, key, "/api/contacts", fmt.Sprintf(`{"first_name":"n%d","email":"%d@example.com"}`, n, n))
	if a.Status != "ok" {
		t.Errorf("got %d %s, want it stored", a.Code, a.Body)
		return
	}
	id, _ := a.Field("id").(string)
	switch {
	case n%4 == 3:
		a = o.Do(t, http.MethodDelete, "/api/contacts/"+id, gatewaytest.WithKey(key))
	case n%10 == 5:
		a = o.Do(t, http.MethodPost, fmt.Sprintf("/api/files/upload?filename=%d.txt", n), gatewaytest.WithKey(key),
			gatewaytest.Body("text/plain", strings.Repeat(fmt.Sprint(n), 1000)))
	}
	if a.Status != "ok" {
		t.Errorf("got %d %s, want it done", a.Code, a.Body)
	}
}

// checkMoment restores a moment and compares what is there.
func (s *site) checkMoment(t *testing.T, one moment) {
	t.Helper()
	g, err := s.restoreAt(t, one.at)
	if err != nil {
		t.Fatalf("%s: %v", one.at, err)
	}
	defer g.Stop(t)
	for slug, want := range one.want {
		o := &gatewaytest.Org{Gateway: g, Slug: slug, Host: slug + ".example.com"}
		if got := exported(t, o); !bytes.Equal(got, want) {
			t.Errorf("%s: %s: got %d bytes of an export, want the %d of that second", one.at, slug, len(got), len(want))
		}
	}
	list, err := control.Call[[]control.Organization](t.Context(), g.Commands, "org.list", map[string]any{})
	list = slices.DeleteFunc(list, func(o control.Organization) bool { return o.State == string(tenants.Removed) })
	if err != nil || len(list) != len(one.want) {
		t.Errorf("%s: got %d organizations, %v, want %d", one.at, len(list), err, len(one.want))
	}
	if found := fixture.FileFindings(t, g); strings.Contains(found, "missing") {
		t.Errorf("doctor: got %s, want all bytes", found)
	}
}

// TestLog_Killed kills gateways that log their changes, and restorations, at random moments. Each second before and after
// is restored with what was acknowledged until then, and nothing without what was written before it.
func TestLog_Killed(t *testing.T) {
	t.Parallel()
	if what, data, ok := strings.Cut(os.Getenv(killedVariable), " "); ok {
		serveLogKilled(t, what, data, os.Getenv(sourceVariable))
		return
	}
	for name, isolation := range fileIsolations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := loggedSite(t, isolation)
			acme, key := s.organization(t, "acme")
			s.base(t)
			s.Stop(t)
			var steps []killedStep
			var exact []moment
			for round := range 3 {
				steps = append(steps, s.killLogging(t, key, name, time.Duration(500+rand.IntN(2500))*time.Millisecond)...)
				s.Gateway = gatewaytest.Start(t, fixture.InFolder(s.data), isolation, logging(s.backups))
				one := moment{at: time.Now().Truncate(time.Second).Add(time.Second), want: map[string][]byte{}}
				one.want["acme"] = exported(t, at(s.Gateway, acme))
				untilAfter(one.at.Add(time.Second))
				s.Stop(t)
				exact = append(exact, one)
				t.Logf("round %d: %d contacts", round, len(steps))
			}
			if len(steps) < 10 {
				t.Fatalf("%d contacts were acknowledged, want more", len(steps))
			}
			for _, one := range exact {
				s.checkMoment(t, one)
			}
			for range 3 {
				s.killRestore(t, exact[0], time.Duration(rand.IntN(120))*time.Millisecond)
			}
			compared := 0
			for i := range steps {
				if i%max(1, len(steps)/8) != 0 {
					continue
				}
				second := steps[i].at.Truncate(time.Second)
				g, err := s.restoreAt(t, second)
				if errors.Is(err, backup.ErrNoMoment) { // in it the gateway was killed
					t.Log(err)
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				checkSteps(t, at(g, acme), key, steps, second)
				g.Stop(t)
				compared++
			}
			if compared == 0 {
				t.Error("no second could be restored, want most")
			}
		})
	}
}

// killRestore kills a restoration, and checks that the same one makes the place whole.
func (s *site) killRestore(t *testing.T, one moment, after time.Duration) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	data := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), killedVariable+"=restore,"+s.identity.String()+","+one.at.Format(time.RFC3339)+" "+data,
		sourceVariable+"="+s.backups, "TMPDIR="+t.TempDir())
	ready, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = ready.Read(make([]byte, 1)) // it is about to begin
	time.Sleep(after)
	_ = cmd.Process.Kill() // it may have ended
	_ = cmd.Wait()
	if err := s.restoreInto(t, data, one.at); err != nil && !errors.Is(err, backup.ErrOccupied) {
		t.Errorf("restored again: got %v, want success, or that there is one", err)
	}
	g := gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(data)}, s.options...)...)
	defer g.Stop(t)
	for slug, want := range one.want {
		if got := exported(t, &gatewaytest.Org{Gateway: g, Slug: slug, Host: slug + ".example.com"}); !bytes.Equal(got, want) {
			t.Errorf("%s: got %d bytes of an export, want %d", slug, len(got), len(want))
		}
	}
}

// killedStep is a contact that was acknowledged.
type killedStep struct{ begun, at time.Time }

// checkSteps checks that a restored organization has the contacts of the writer up to a second.
func checkSteps(t *testing.T, o *gatewaytest.Org, key string, steps []killedStep, second time.Time) {
	t.Helper()
	least, most := 0, 0
	for _, step := range steps {
		if step.at.Before(second) {
			least++
		}
		if step.begun.Before(second.Add(time.Second)) {
			most++
		}
	}
	found, err := o.Get(t, key, "/api/contacts?per_page=1").Field("count").(json.Number).Int64()
	count := int(found) - 1                            // without Ada
	if err != nil || count < least || count > most+1 { // the last one before a kill may be stored and not acknowledged
		t.Errorf("%s: got %d contacts, %v, want from %d to %d", second, count, err, least, most)
	}
	last := fmt.Sprintf("/api/contacts?filters[email]=%d@example.com", count-1)
	if a := o.Get(t, key, last); count > 0 && fmt.Sprint(a.Field("count")) != "1" {
		t.Errorf("got %s, want the contacts written first, without a gap", a.Body)
	}
}

// killLogging runs a gateway that logs while contacts are created, kills it, and returns those that were acknowledged.
func (s *site) killLogging(t *testing.T, key, isolation string, after time.Duration) (steps []killedStep) {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+test+"$", "-test.timeout=3m")
	cmd.Env = append(os.Environ(), killedVariable+"="+fmt.Sprintf("%s,%s %s", strings.ReplaceAll(isolation, " ", "_"), key, s.data),
		sourceVariable+"="+s.backups, "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	for lines := bufio.NewScanner(out); lines.Scan(); {
		var begun, ended int64
		if _, err := fmt.Sscanf(lines.Text(), "step %d %d", &begun, &ended); err == nil {
			steps = append(steps, killedStep{time.Unix(0, begun), time.Unix(0, ended)})
			once.Do(func() { time.AfterFunc(after, func() { _ = cmd.Process.Kill() }) })
		} else if strings.Contains(lines.Text(), "_test.go") {
			t.Error(lines.Text())
		}
	}
	if cmd.Wait() == nil {
		t.Error("the gateway ended before it was killed")
	}
	return steps
}

// serveLogKilled is a gateway or a restoration that is killed.
func serveLogKilled(t *testing.T, what, data, backups string) {
	t.Helper()
	parts := strings.Split(what, ",")
	if parts[0] == "restore" {
		moment, err := time.Parse(time.RFC3339, parts[2])
		if err != nil {
			t.Fatal(err)
		}
		cfg := config.Default()
		cfg.Data = data
		fmt.Print("!")
		if _, err := gateway.Restore(t.Context(), cfg, gateway.RestoreOptions{
			From: backups, At: moment, Identity: strings.NewReader(parts[1]), Files: true, Holder: "a test", Told: func(backup.Progress) {},
		}); err != nil {
			t.Fatal(err)
		}
		return
	}
	isolation, key := fileIsolations()[strings.ReplaceAll(parts[0], "_", " ")], parts[1]
	g := gatewaytest.Start(t, fixture.InFolder(data), isolation, logging(backups))
	o := &gatewaytest.Org{Gateway: g, Slug: "acme", Host: "acme.example.com"}
	found, err := o.Get(t, key, "/api/contacts?per_page=1").Field("count").(json.Number).Int64()
	if err != nil {
		t.Fatal(err)
	}
	for n := int(found) - 1; ; n++ {
		begun := time.Now()
		if a := fixture.PostJSON(t, o, key, "/api/contacts", fmt.Sprintf(`{"first_name":"n","email":"%d@example.com"}`, n)); a.Status != "ok" {
			t.Fatal(a.Body)
		}
		fmt.Printf("step %d %d\n", begun.UnixNano(), time.Now().UnixNano())
	}
}

// TestLog_Organization makes one organization what it was in a second, also one that is younger than the backup.
func TestLog_Organization(t *testing.T) {
	t.Parallel()
	for name, isolation := range fileIsolations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := loggedSite(t, isolation, fixture.ShortLeases)
			old, oldKey := s.organization(t, "acme")
			s.base(t)
			young, youngKey := s.organization(t, "birch")
			write(t, old, oldKey, 5) // with a file
			one := moment{at: time.Now().Truncate(time.Second).Add(time.Second), want: map[string][]byte{
				"acme": exported(t, old), "birch": exported(t, young),
			}}
			untilAfter(one.at.Add(time.Second))
			for o, key := range map[*gatewaytest.Org]string{old: oldKey, young: youngKey} {
				purgeFile(t, o, key)
				write(t, o, key, 15)
				write(t, o, key, 17)
			}
			time.Sleep(2 * time.Second) // the log goes on
			for slug, want := range one.want {
				o := &gatewaytest.Org{Gateway: s.Gateway, Slug: slug, Host: slug + ".example.com"}
				in := control.OrganizationRestore{Slug: slug, From: s.backups, At: one.at.Format(time.RFC3339), Yes: true}
				got, err := control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in)
				if err != nil || got.At == nil || !got.At.Equal(one.at) {
					t.Fatalf("%s: got %+v %v, want it restored", slug, got, err)
				}
				if now := exported(t, o); !bytes.Equal(now, want) {
					t.Errorf("%s: got %d bytes of an export, want the %d of that second", slug, len(now), len(want))
				}
			}
			in := control.OrganizationRestore{Slug: "acme", From: s.backups, At: "yesterday", Yes: true}
			if _, err := control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in); err == nil ||
				!strings.Contains(err.Error(), "2026-11-27T15:45:07Z") {
				t.Errorf("got %v, want an error that says how to write it", err)
			}
		})
	}
}

// TestLog_FirstBackup: the first backup of a new installation is one that the log completes.
func TestLog_FirstBackup(t *testing.T) {
	t.Parallel()
	s := loggedSite(t, gatewaytest.SharedFiles)
	acme, key := s.organization(t, "acme")
	fixture.Await(t, "the first backup of a new gateway", func() bool {
		names, err := list(t, s.backups)
		return err == nil && len(names) == 1
	})
	untilAfter(time.Now().Add(2 * time.Second))
	at := time.Now().Truncate(time.Second)
	write(t, acme, key, 1)
	untilAfter(at.Add(2 * time.Second)) // a cut of that write is made within it
	in := control.OrganizationRestore{Slug: "acme", As: "then", From: s.backups, At: at.Format(time.RFC3339)}
	if _, err := control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in); err != nil {
		t.Errorf("got %v, want the second restored", err)
	}
	if names, err := list(t, s.backups); err != nil || len(names) != 1 {
		t.Errorf("got %v %v, want one backup", names, err)
	}
}

// TestLog_MissingBytes restores a second whose bytes of files the log does not name: those that the place has are
// restored, as after a process was killed before it noted them, and the others are named.
func TestLog_MissingBytes(t *testing.T) {
	t.Parallel()
	s := loggedSite(t, gatewaytest.SharedFiles, func(c *config.Config, _ *gateway.Options) { c.Backup.WithoutFiles = true })
	acme, key := s.organization(t, "acme")
	s.base(t)
	upload := func(name string) {
		t.Helper()
		if a := acme.Do(t, http.MethodPost, "/api/files/upload?filename="+name, gatewaytest.WithKey(key),
			gatewaytest.Body("text/plain", name)); a.Status != "ok" {
			t.Fatalf("got %d %s, want it stored", a.Code, a.Body)
		}
	}
	upload("noted-by-nobody.txt")
	if err := os.CopyFS(backup.FilesFolder(s.backups), onlyNew{os.DirFS(s.Config.FilesDir()), backup.FilesFolder(s.backups)}); err != nil {
		t.Fatal(err)
	}
	upload("lost.txt")
	at := time.Now().Truncate(time.Second).Add(time.Second)
	untilAfter(at.Add(time.Second))
	write(t, acme, key, 1) // so that there is a cut after that second
	untilAfter(time.Now().Add(2 * time.Second))
	in := control.OrganizationRestore{Slug: "acme", As: "then", From: s.backups, At: at.Format(time.RFC3339)}
	if got, err := control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in); err != nil || got.FilesWithout != 1 {
		t.Errorf("--as: got %+v %v, want one content without bytes", got, err)
	}
	s.Stop(t)
	data := t.TempDir()
	restored, err := gateway.Restore(t.Context(), s.settings(data), gateway.RestoreOptions{
		From: s.backups, At: at, Identity: strings.NewReader(s.identity.String()), Files: true, Holder: "a test", Told: func(backup.Progress) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(restored.Lacking) != 1 || !strings.HasPrefix(restored.Lacking[0], "acme: ") || !strings.Contains(restored.Lacking[0], `"lost.txt"`) {
		t.Errorf("got %q, want the file without bytes", restored.Lacking)
	}
	g := gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(data)}, s.options...)...)
	if found := fixture.FileFindings(t, g); !strings.Contains(found, "lost.txt") || strings.Contains(found, "noted-by-nobody.txt") {
		t.Errorf("doctor: got %s, want the one file named", found)
	}
}

// onlyNew is a folder without the files that another one has.
type onlyNew struct {
	fs.FS
	than string
}

func (o onlyNew) ReadDir(name string) (entries []fs.DirEntry, err error) {
	entries, err = fs.ReadDir(o.FS, name)
	return slices.DeleteFunc(entries, func(e fs.DirEntry) bool {
		_, err := os.Stat(filepath.Join(o.than, name, e.Name()))
		return err == nil && !e.IsDir()
	}), err
}

// fileIsolations are the ways in which organizations are in the files of one engine, whose changes are logged.
func fileIsolations() map[string]gatewaytest.Option {
	return map[string]gatewaytest.Option{"shared files": gatewaytest.SharedFiles, "own files": gatewaytest.OwnFiles}
}

// loggedSite returns a site that logs its changes in its folder of backups.
func loggedSite(t *testing.T, isolation gatewaytest.Option, more ...gatewaytest.Option) *site {
	t.Helper()
	backups := t.TempDir()
	s := newSite(t, append([]gatewaytest.Option{isolation, logging(backups)}, more...)...)
	s.backups, s.options = backups, []gatewaytest.Option{isolation}
	return s
}

// TestLog_KeepsBytes: bytes that no backup names any more stay while the log needs them, and new ones that it does not
// name yet.
func TestLog_KeepsBytes(t *testing.T) {
	t.Parallel()
	s := loggedSite(t, gatewaytest.SharedFiles)
	fixture.Await(t, "the first backup of a new gateway", func() bool {
		names, err := list(t, s.backups)
		return err == nil && len(names) == 1
	})
	s.base(t)
	acme, key := s.organization(t, "acme")
	one := moment{at: time.Now().Truncate(time.Second).Add(time.Second), want: map[string][]byte{"acme": exported(t, acme)}}
	untilAfter(one.at.Add(time.Second))
	old := time.Now().Add(-2 * time.Hour)
	for _, path := range objectsIn(t, s.backups) {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(s.backups, "files", "unnamed"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	purgeFile(t, acme, key)
	s.backUp(t, func(in *control.BackupRequest) { in.Keep = 2 })
	if names, err := list(t, s.backups); err != nil || len(names) != 3 {
		t.Fatalf("got %v %v, want all three, which seconds of the log begin with", names, err)
	}
	if _, err := os.Stat(filepath.Join(s.backups, "files", "unnamed")); err != nil {
		t.Errorf("got %v, want an object that is too young to be in the log", err)
	}
	s.Stop(t)
	s.checkMoment(t, one)
}
