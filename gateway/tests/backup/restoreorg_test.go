package backup

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

// quickly shortens the waits of a restoration.
func quickly(_ *config.Config, o *gateway.Options) {
	o.Leases = store.DefaultLeases()
	o.Leases.Settled, o.Leases.Copying = 3*time.Second, time.Second
}

// restoreOrg restores acme, or says what that would change.
func (s *site) restoreOrg(t *testing.T, change func(*control.OrganizationRestore)) (*control.OrganizationRestored, error) {
	t.Helper()
	in := control.OrganizationRestore{Slug: "acme", From: s.backups}
	change(&in)
	return control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in)
}

func dryRun(in *control.OrganizationRestore)    { in.DryRun = true }
func confirmed(in *control.OrganizationRestore) { in.Yes = true }
func withAccessOfThen(in *control.OrganizationRestore) {
	in.Yes, in.Access = true, control.AccessThen
}

// command carries out a command that must succeed.
func command[Out any](t *testing.T, g *gatewaytest.Gateway, name string, in any) Out {
	t.Helper()
	out, err := control.Call[Out](t.Context(), g.Commands, name, in)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return out
}

// verified fails the test unless the audit log of acme agrees with its seals and its tree.
func verified(t *testing.T, g *gatewaytest.Gateway, clock *fixture.Clock) {
	t.Helper()
	headOf(t, g, clock, "acme")
	if v := command[audit.Verification](t, g, "audit.verify", map[string]string{"org": "acme"}); !v.Intact {
		t.Errorf("got %+v, want the audit log intact", v)
	}
	if err := against(t, g, "acme", control.AuditHead{}); err != nil {
		t.Errorf("the tree of the audit log: %v", err)
	}
}

// doors are ways into acme, each of which is closed after the backup.
type doors struct {
	o              *gatewaytest.Org
	key            string // with all rights, and stays
	revoked, share string
	session        *http.Cookie // of a person who is suspended
	stays          *http.Cookie // of one who is not
	report         string
	invitation     string // token of the link of a person who has no password yet
}

func newDoors(t *testing.T, s *site) *doors {
	t.Helper()
	o, key := s.organization(t, "acme")
	d := &doors{o: o, key: key}
	d.revoked = o.KeyWith(t, func(k *control.NewKey) {
		k.Name, k.Permissions = "crm", fixture.PermissionNames(tenants.AllPermissions())
	}).Token
	_, d.session = o.Person(t, "ada@example.com", nil)
	_, d.stays = o.Person(t, "eve@example.com", func(n *control.NewUser) {
		n.Permissions = fixture.PermissionNames(tenants.AllPermissions())
	})
	guest := command[control.User](t, s.Gateway, "user.create", control.NewUser{Org: o.Slug, UserFields: control.UserFields{
		Name: "Guest", Email: "guest@example.com",
	}})
	_, d.invitation, _ = strings.Cut(guest.Link, "#")
	as := fixture.As(o, gatewaytest.WithKey(key))
	as.Create(t, "/api/custom-reports", `{"pid":"`+reportPID+`","title":"Contacts","class":"Contacts","query":{}}`)
	d.report = o.Get(t, key, "/api/custom-reports").Field("results").([]any)[0].(map[string]any)["id"].(string)
	a := o.Do(t, http.MethodPost, "/api/custom-reports/"+d.report+"/share", gatewaytest.WithKey(key), gatewaytest.JSON(map[string]any{}))
	if d.share, _ = a.Field("token").(string); d.share == "" {
		t.Fatalf("sharing: got %d %s", a.Code, a.Body)
	}
	return d
}

const reportPID = "contactsofthebackup"

// close closes the doors.
func (d *doors) close(t *testing.T) {
	t.Helper()
	for _, k := range command[[]control.Key](t, d.o.Gateway, "key.list", map[string]string{"org": "acme"}) {
		if k.Name == "crm" {
			command[control.Key](t, d.o.Gateway, "key.revoke", control.KeyRef{Org: "acme", ID: k.ID})
		}
	}
	command[control.User](t, d.o.Gateway, "user.deactivate", control.UserRef{Org: "acme", User: "ada@example.com"})
	if a := d.o.Do(t, http.MethodDelete, "/api/custom-reports/"+d.report+"/shares", gatewaytest.WithKey(d.key)); a.Status != "ok" {
		t.Fatalf("revoking the shares: got %d %s", a.Code, a.Body)
	}
}

// want fails the test unless the doors are open, or closed. No session is ever open.
func (d *doors) want(t *testing.T, what string, open bool) {
	t.Helper()
	signIn := d.o.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{
		"email": "ada@example.com", "password": gatewaytest.Password,
	}))
	for name, got := range map[string]int{
		"the key":      d.o.Get(t, d.revoked, "/api/contacts").Code,
		"the share":    d.o.Get(t, "", fixture.SharedPath+reportPID+"?token="+d.share).Code,
		"the password": signIn.Code,
	} {
		if (got == http.StatusOK) != open {
			t.Errorf("%s: %s answers %d, want it open: %v", what, name, got, open)
		}
	}
	if a := d.o.Do(t, http.MethodGet, "/api/contacts", gatewaytest.Cookie(d.session)); a.Code == http.StatusOK {
		t.Errorf("%s: a session of the backup is open", what)
	}
	if open {
		a := d.o.Do(t, http.MethodPost, "/auth/password", gatewaytest.JSON(map[string]string{
			"token": d.invitation, "password": "correct horse battery staple",
		}))
		if d.invitation == "" || a.Code == http.StatusOK {
			t.Errorf("%s: a link of the backup to choose a password is open", what)
		}
	}
	d.o.Get(t, d.key, "/api/contacts") // the key that nobody revoked
}

// TestRestoreOrganization_Access: what was revoked since the backup works again only if that is asked for. The dry run
// names it, and no session comes back.
func TestRestoreOrganization_Access(t *testing.T) {
	t.Parallel()
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := new(fixture.Clock)
			s := newSite(t, isolation, quickly, clock.Option)
			d := newDoors(t, s)
			s.backUp(t, nil)
			clock.Advance(time.Second)
			d.close(t)
			d.want(t, "closed", false)
			d.o.KeyWith(t, func(k *control.NewKey) { k.Name, k.Permissions = "late", []string{"contacts"} })
			d.o.Person(t, "late@example.com", nil)
			found, err := s.restoreOrg(t, dryRun)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, r := range found.Revived {
				names = append(names, r.Kind+" "+r.Since)
			}
			want := []string{"key revoked since", "share ended since", "user suspended since"}
			if !slices.Equal(names, want) {
				t.Errorf("got %v, want what would work again: %v", found.Revived, want)
			}
			stopped := fmt.Sprint(found.Stopped)
			if stopped != "[{key late added since} {service account late added since} {user late@example.com added since}]" {
				t.Errorf("got %s, want what would stop working", stopped)
			}
			if _, err := s.restoreOrg(t, confirmed); err != nil {
				t.Fatal(err)
			}
			d.want(t, "as now", false)
			if a := d.o.Do(t, http.MethodGet, "/api/contacts", gatewaytest.Cookie(d.stays)); a.Code != http.StatusOK {
				t.Errorf("as now: the session of a person answers %d, want it to go on", a.Code)
			}
			if _, err := s.restoreOrg(t, withAccessOfThen); err != nil {
				t.Fatal(err)
			}
			d.want(t, "as then", true)
			if a := d.o.Do(t, http.MethodGet, "/api/contacts", gatewaytest.Cookie(d.stays)); a.Code == http.StatusOK {
				t.Error("as then: a session of the backup is open")
			}
			verified(t, s.Gateway, clock)
			log := d.o.Get(t, d.key, "/api/audit?per_page=100").Text()
			for _, want := range []string{`"dry_run"`, "org.restore", "reports.revoke"} {
				if !strings.Contains(log, want) {
					t.Errorf("got %s, want the log to go on, with %s", log, want)
				}
			}
			found, err = s.restoreOrg(t, dryRun)
			if err != nil || found.Records != (control.RestoredCounts{}) || len(found.Revived) > 0 {
				t.Errorf("got %+v %v, want nothing left to restore, document by document", found, err)
			}
		})
	}
}

// TestRestoreOrganization_Reports: a report that was deleted or closed since the backup does not open to links, or to
// everybody, by a restoration with the access of now.
func TestRestoreOrganization_Reports(t *testing.T) {
	t.Parallel()
	s := newSite(t, gatewaytest.SharedFiles, quickly)
	d := newDoors(t, s)
	as := fixture.As(d.o, gatewaytest.WithKey(d.key))
	open := as.Create(t, "/api/custom-reports", `{"pid":"openreportofbackup","title":"Open","class":"Contacts","query":{},"secure":false}`)
	gone := as.Create(t, "/api/custom-reports", `{"pid":"deletedopenreport","title":"Gone","class":"Contacts","query":{},"secure":false}`)
	s.backUp(t, nil)
	as.Want(t, http.MethodDelete, "/api/custom-reports/"+gone+"?purge=true", "", 200, "")
	as.Want(t, http.MethodDelete, "/api/custom-reports/"+d.report, "", 200, "") // into the trash
	as.Want(t, http.MethodPut, "/api/custom-reports/"+open, `{"secure":true}`, 200, "")
	if _, err := s.restoreOrg(t, confirmed); err != nil {
		t.Fatal(err)
	}
	as.Want(t, http.MethodGet, "/api/custom-reports/"+d.report, "", 200, "")
	beside, err := s.restoreOrg(t, func(in *control.OrganizationRestore) { in.As = "acme-then" })
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range fixture.Findings(t, s.Gateway, control.Examination{}) {
		if strings.Contains(f.Says, "unfinished copy") {
			t.Errorf("doctor found %+v, but the copy is complete", f)
		}
	}
	then := &gatewaytest.Org{Gateway: s.Gateway, Slug: beside.Slug, Host: beside.Slug + ".example.com"}
	for _, path := range []string{reportPID + "?token=" + d.share, "openreportofbackup", "deletedopenreport"} {
		for _, o := range []*gatewaytest.Org{d.o, then} {
			if a := o.Get(t, "", fixture.SharedPath+path); a.Code == http.StatusOK {
				t.Errorf("%s of %s is open", path, o.Slug)
			}
		}
	}
}

// TestRestoreOrganization_Erased brings an organization back that was erased, with keys, people, shares and history,
// also after the keyring was rotated, and erases it again. If the key that wrapped its data keys was retired, that is
// said.
func TestRestoreOrganization_Erased(t *testing.T) {
	t.Parallel()
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := new(fixture.Clock)
			s := newSite(t, isolation, quickly, clock.Option)
			d := newDoors(t, s)
			head := headOf(t, s.Gateway, clock, "acme")
			want := exported(t, d.o)
			s.backUp(t, nil)
			erase := func() {
				t.Helper()
				clock.Advance(time.Minute)
				command[control.Certificate](t, s.Gateway, "org.delete", control.Deletion{Slug: "acme", Now: true})
			}
			erase()
			command[control.Rotation](t, s.Gateway, "keyring.rotate", struct{}{})
			if _, err := s.restoreOrg(t, func(in *control.OrganizationRestore) { in.Yes, in.Access = true, control.AccessNow }); err == nil {
				t.Error("with the access of now: got no error")
			}
			found, err := s.restoreOrg(t, dryRun)
			if err != nil || !found.Erased || len(found.Revived) < 3 || found.Records.Returned == 0 {
				t.Fatalf("got %+v %v, want what would come back", found, err)
			}
			for range 2 { // and once more after it was erased again
				if _, err := s.restoreOrg(t, confirmed); err != nil {
					t.Fatal(err)
				}
				d.want(t, "restored", true)
				if got := exported(t, d.o); !bytes.Equal(got, want) {
					t.Errorf("got an export of %d bytes, want the %d of before", len(got), len(want))
				}
				verified(t, s.Gateway, clock)
				if err := against(t, s.Gateway, "acme", head); err != nil {
					t.Errorf("the log does not continue the one of then: %v", err)
				}
				erase()
			}
			command[control.Retired](t, s.Gateway, "keyring.retire", control.Version{Version: 1})
			if _, err := s.restoreOrg(t, confirmed); !says(err, "retired", "keyring reinstate 1") {
				t.Errorf("got %v, want how to bring the key back", err)
			}
		})
	}
}

// TestRestoreOrganization_AtOnce: callers see all documents as they were or all as they are restored, writes are
// answered, and a neighbour in the same file is served, while an organization is restored.
func TestRestoreOrganization_AtOnce(t *testing.T) {
	t.Parallel()
	const n = 400
	s := newSite(t, gatewaytest.SharedFiles, quickly)
	acme, key := s.organization(t, "acme")
	birch, birchKey := s.organization(t, "birch")
	acme.Import(t, fixture.ContactsBundle(n)...)
	s.backUp(t, nil)
	lines := fixture.ContactsBundle(n)
	for i := range lines {
		lines[i] = strings.Replace(lines[i], `"country":"DE"`, `"country":"IT"`, 1)
	}
	acme.Import(t, lines...)
	var done atomic.Bool
	var tasks sync.WaitGroup
	seen := map[string]int{}
	tasks.Go(func() {
		for !done.Load() {
			a := acme.Get(t, key, "/api/contacts?per_page=1&filters[country]=DE")
			if seen[fmt.Sprint(a.Field("count"))]++; a.Code != http.StatusOK {
				t.Errorf("got %d %s", a.Code, a.Body)
				return
			}
		}
	})
	var written, neighbour int
	tasks.Go(func() {
		as := fixture.As(acme, gatewaytest.WithKey(key))
		for ; !done.Load(); written++ {
			as.Create(t, "/api/contacts", `{"first_name":"Meanwhile"}`)
		}
	})
	tasks.Go(func() {
		as := fixture.As(birch, gatewaytest.WithKey(birchKey))
		for ; !done.Load(); neighbour++ {
			as.Create(t, "/api/contacts", `{"first_name":"Neighbour"}`)
		}
	})
	_, err := s.restoreOrg(t, confirmed)
	done.Store(true)
	tasks.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if delete(seen, "0"); len(seen) > 1 || seen[strconv.Itoa(n/2)] == 0 {
		t.Errorf("got counts of contacts %v beside 0, want only %d", seen, n/2)
	}
	if a := birch.Get(t, birchKey, "/api/contacts?per_page=1"); fmt.Sprint(a.Field("count")) != strconv.Itoa(neighbour+1) || neighbour == 0 || written == 0 {
		t.Errorf("got %s, want the %d contacts of the neighbour; %d of acme meanwhile", a.Body, neighbour+1, written)
	}
}

// TestRestoreOrganization_Uploads: an upload under way goes on as it is now, and does not come back with an organization
// that was erased, because its bytes do not.
func TestRestoreOrganization_Uploads(t *testing.T) {
	t.Parallel()
	s := newSite(t, gatewaytest.SharedFiles, quickly)
	acme, key := s.organization(t, "acme")
	tus := func(method, path, body string, headers ...string) *gatewaytest.Answer {
		t.Helper()
		all := []gatewaytest.Request{gatewaytest.WithKey(key), gatewaytest.Header("Tus-Resumable", "1.0.0")}
		for i := 0; i < len(headers); i += 2 {
			all = append(all, gatewaytest.Header(headers[i], headers[i+1]))
		}
		if body != "" {
			all = append(all, gatewaytest.Body("application/offset+octet-stream", body))
		}
		return acme.Do(t, method, path, all...)
	}
	begun := tus(http.MethodPost, "/api/files/tus", "", "Upload-Length", "15", "Upload-Metadata", "filename YS5iaW4=")
	at, err := url.Parse(begun.Header.Get("Location"))
	if err != nil || begun.Code != http.StatusCreated {
		t.Fatalf("got %d %s %v, want an upload", begun.Code, begun.Text(), err)
	}
	send := func(offset, body string) {
		t.Helper()
		if a := tus(http.MethodPatch, at.Path, body, "Upload-Offset", offset); a.Code != http.StatusNoContent {
			t.Fatalf("at %s: got %d %s, want 204", offset, a.Code, a.Text())
		}
	}
	send("0", "01234")
	s.backUp(t, nil)
	send("5", "56789")
	if _, err := s.restoreOrg(t, confirmed); err != nil {
		t.Fatal(err)
	}
	send("10", "abcde")
	command[control.Certificate](t, s.Gateway, "org.delete", control.Deletion{Slug: "acme", Now: true})
	if _, err := s.restoreOrg(t, confirmed); err != nil {
		t.Fatal(err)
	}
	if a := tus(http.MethodHead, at.Path, ""); a.Code != http.StatusNotFound {
		t.Errorf("after it was erased: got %d, want 404", a.Code)
	}
}

// TestRestoreOrganization_Killed kills processes that restore an organization, at random moments. It is what it was, or
// restored, and the same command completes the restoration or its undoing undoes it.
func TestRestoreOrganization_Killed(t *testing.T) {
	t.Parallel()
	soon := func(_ *config.Config, o *gateway.Options) {
		o.Leases = store.Leases{
			Fresh: 200 * time.Millisecond, Settled: 2 * time.Second, Copying: time.Second, Hold: 4 * time.Second,
		}
	}
	if what, data, ok := strings.Cut(os.Getenv(killedVariable), " "); ok {
		g := gatewaytest.Start(t, fixture.InFolder(data), gatewaytest.SharedFiles, soon)
		s := &site{Gateway: g, data: data, backups: os.Getenv(sourceVariable)}
		fmt.Print("!")
		_, _ = s.restoreOrg(t, func(in *control.OrganizationRestore) { in.Yes, in.Access = true, what })
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newSite(t, gatewaytest.SharedFiles, soon)
	acme, key := s.organization(t, "acme")
	acme.Import(t, fixture.ContactsBundle(3000)...)
	want := exported(t, acme)
	s.backUp(t, nil)
	as := fixture.As(acme, gatewaytest.WithKey(key))
	killed, ends := 0, map[string]int{}
	for i := range kills() {
		erased := i%3 == 2
		access := []string{control.AccessNow, control.AccessThen, control.AccessThen}[i%3]
		purgeFile(t, acme, key)
		as.Create(t, "/api/contacts", `{"first_name":"Added"}`)
		before := exported(t, acme)
		if erased {
			command[control.Certificate](t, s.Gateway, "org.delete", control.Deletion{Slug: "acme", Now: true})
		}
		s.Stop(t)
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=3m")
		cmd.Env = append(os.Environ(), killedVariable+"="+access+" "+s.data, sourceVariable+"="+s.backups, "TMPDIR="+t.TempDir())
		ready, err := cmd.StdoutPipe()
		if err = errors.Join(err, cmd.Start()); err != nil {
			t.Fatal(err)
		}
		one := make([]byte, 1)
		_, _ = ready.Read(one) // it is about to begin
		time.Sleep(time.Duration(random.IntN(5000)) * time.Millisecond)
		_ = cmd.Process.Kill() // it may have ended
		if cmd.Wait() != nil {
			killed++
		}
		s.Gateway = gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(s.data)}, s.options...)...)
		acme = at(s.Gateway, acme)
		as = fixture.As(acme, gatewaytest.WithKey(key))
		if _, err := control.Call[control.Certificate](t.Context(), s.Commands, "org.certificate", control.Ended{Slug: "acme"}); err == nil && erased {
			ends["erased"]++
		} else if got := exported(t, acme); bytes.Equal(got, want) {
			ends["restored"]++
		} else if bytes.Equal(got, before) && !erased {
			ends["as before"]++
		} else {
			t.Errorf("round %d: got an export of %d bytes, want the %d of before or the %d of the backup", i, len(got), len(before), len(want))
		}
		if !erased && random.IntN(2) == 0 { // it is undone, unless it is complete
			_, _ = control.Call[any](t.Context(), s.Commands, "org.move.rollback", map[string]string{"slug": "acme"})
		}
		if _, err := s.restoreOrg(t, func(in *control.OrganizationRestore) { in.Yes = true }); err != nil {
			t.Fatalf("round %d, again: %v", i, err)
		}
		if got := exported(t, acme); !bytes.Equal(got, want) {
			t.Errorf("round %d, again: got an export of %d bytes, want the %d of the backup", i, len(got), len(want))
		}
	}
	t.Logf("%d killed: %v", killed, ends)
	if killed == 0 {
		t.Error("no process was killed in time, want some")
	}
	for _, f := range fixture.Findings(t, s.Gateway, control.Examination{}) {
		if strings.Contains(f.Says, "copy of organization") || strings.Contains(f.Says, "is left from") || strings.Contains(f.Says, "being moved") {
			t.Errorf("doctor found %+v, want nothing left", f)
		}
	}
}

// TestRestoreOrganization_Many measures how long an organization with TENANTRY_TEST_RESTORE contacts takes.
func TestRestoreOrganization_Many(t *testing.T) {
	t.Parallel()
	n, _ := strconv.Atoi(os.Getenv("TENANTRY_TEST_RESTORE"))
	if n == 0 {
		t.Skip("TENANTRY_TEST_RESTORE is not set")
	}
	s := newSite(t, gatewaytest.SharedFiles, func(_ *config.Config, o *gateway.Options) { o.Leases = store.DefaultLeases() })
	acme, _ := s.organization(t, "acme")
	acme.Import(t, fixture.ContactsBundle(n)...)
	s.backUp(t, nil)
	began := time.Now()
	found, err := s.restoreOrg(t, confirmed)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d contacts in %s, writes waited %.1f s", n, time.Since(began).Round(time.Millisecond), found.HeldSeconds)
	command[control.Certificate](t, s.Gateway, "org.delete", control.Deletion{Slug: "acme", Now: true})
	began = time.Now()
	if _, err = s.restoreOrg(t, confirmed); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d contacts of an erased organization in %s", n, time.Since(began).Round(time.Millisecond))
}
