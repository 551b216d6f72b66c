package transfer

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

var lastChange = regexp.MustCompile(`"updated_at":"[^"]*"`)

// timeless returns the lines of a bundle without the times of the last change, which the store sets.
func timeless(lines []byte) []string {
	return strings.Split(lastChange.ReplaceAllString(string(lines), `"updated_at":""`), "\n")
}

// purge deletes or purges something.
func (s *sequence) purge() {
	how, n := s.pick("?purge=true&force=true&contents=true", "?purge=true", "?force=true", ""), s.pick("1", "2", "3")
	form := fixture.FormsPath + fmt.Sprintf("%021xf0%s", 0, n)
	path := s.pick("/api/contacts/"+s.id("ddd"), "/api/contacts/fields/"+s.field(), "/api/custom/objects/object"+n, "/api/custom/objects/object"+n+"/records/"+s.id("bbb"),
		form, form+"/submissions/"+s.id("ccc"), "/api/campaigns/"+s.id("cab"), "/api/custom-reports/"+s.id("cce"), "/api/files/folders/"+s.id("fff"), "/api/files/"+s.id("eee")+"/purge")
	s.call("purge", http.MethodDelete, path+how, nil)
}

// TestRandom_MirrorsRestore checks that a mirror of an export makes the next export equal, removes what a dry run has
// named, and leaves other organizations unchanged.
func TestRandom_MirrorsRestore(t *testing.T) {
	t.Parallel()
	count := 12
	if n, err := strconv.Atoi(os.Getenv(sequencesVariable)); err == nil {
		count = n
	}
	first := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64); err == nil {
		first = n
	}
	g, done, orgs := gatewaytest.Start(t), &performed{}, 0
	neighbour := g.Org(t, "neighbour", "teams")
	neighbour.Import(t, `{"kind":"contact","external_id":"e1","email":"a@example.com"}`, `{"kind":"user","id":50,"name":"N","email":"n@example.com"}`)
	beside := &sequence{t: t, org: neighbour}
	before, _ := beside.export(neighbour, bundle.ExportOptions{})
	for i := range count {
		seed := first + uint64(i)
		attempt := func(steps []step) string {
			orgs++
			o := g.Org(t, "m"+strconv.Itoa(orgs), "teams")
			o.Person(t, "boss@example.com", func(n *control.NewUser) { n.Roles = []string{identity.AdminRole} })
			s := &sequence{t: t, org: o, key: o.Key(t, tenants.AllPermissions()...), done: done}
			do := append(s.steps(), s.purge, s.purge, s.purge, s.purge)
			for n, step := range steps {
				if n == len(steps)/2 {
					s.snapshot, _ = s.export(o, bundle.ExportOptions{})
				}
				s.rng = rand.New(rand.NewPCG(step.seed, 2))
				if take := len(s.steps()) - 2; step.do == take {
					continue // it would be another snapshot
				}
				do[step.do]()
			}
			if s.snapshot == nil {
				s.snapshot, _ = s.export(o, bundle.ExportOptions{})
			}
			return s.mirrors()
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		steps := make([]step, 6+rng.IntN(20))
		for i := range steps {
			steps[i] = step{rng.IntN(len((&sequence{}).steps()) + 4), rng.Uint64()}
		}
		if fault := attempt(steps); fault != "" {
			steps, fault = shrink(steps, fault, attempt)
			t.Fatalf("seed %d, operations %v (set %s=%d %s=1 to repeat):\n%s", seed, steps, seedVariable, seed, sequencesVariable, fault)
		}
	}
	after, _ := beside.export(neighbour, bundle.ExportOptions{})
	if !bytes.Equal(before, after) {
		t.Errorf("another organization changed: %s, want it unchanged", cmp.Diff(string(before), string(after)))
	}
}

// mirrors restores the organization to the snapshot, and returns a description of any difference.
func (s *sequence) mirrors() (fault string) {
	mirror := func(o bundle.ImportOptions) bundle.Report {
		o.Mirror = true
		r, err := s.org.App.Transfer().Import(s.t.Context(), s.tenant(), gatewaytest.Source(s.snapshot), o)
		if err != nil {
			fault += fmt.Sprintf("%v %v\n", err, r.Problems)
		}
		r.DryRun = false
		return r
	}
	was, _ := s.export(s.org, bundle.ExportOptions{})
	dry := mirror(bundle.ImportOptions{DryRun: true})
	if still, _ := s.export(s.org, bundle.ExportOptions{}); !bytes.Equal(was, still) {
		fault += "a dry run changed something:\n" + cmp.Diff(string(was), string(still))
	}
	real := mirror(bundle.ImportOptions{})
	if diff := cmp.Diff(dry, real); diff != "" {
		fault += "the dry run said otherwise (-dry +real):\n" + diff
	}
	now, _ := s.export(s.org, bundle.ExportOptions{})
	if diff := cmp.Diff(timeless(s.snapshot), timeless(now)); diff != "" {
		fault += "the exports differ (-before +after):\n" + diff
	}
	if again := mirror(bundle.ImportOptions{}); again.Unchanged != again.Lines || again.Removed > 0 {
		fault += fmt.Sprintf("again: %+v\n", again)
	}
	if len(s.snapshot) == 0 {
		fault += "nothing was exported"
	}
	return fault
}

// TestMirror_RemovesDependents checks that keys, sessions and shares end with the accounts, people and reports that a
// mirror removes, and do not return with them, and that records that an operation would move to the trash are removed
// with their content.
func TestMirror_RemovesDependents(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := g.Org(t, "acme", "teams")
	o.Person(t, "boss@example.com", func(n *control.NewUser) { n.Roles = []string{identity.AdminRole} })
	keeps := o.Key(t, tenants.AllPermissions()...)
	s := &sequence{t: t, org: o}
	s.snapshot, _ = s.export(o, bundle.ExportOptions{})

	o.Import(t, `{"kind":"team","id":"0000000000000000000000a1","name":"North"}`, `{"kind":"role","name":"more","permissions":["contacts"]}`,
		`{"kind":"custom_report","id":"0000000000000000000000e1","pid":"report-number-00001","title":"R","class":"Contacts","shareable":true}`,
		`{"kind":"contact_field","key":"pin","title":"PIN","type":"Encrypted"}`, `{"kind":"contact","email":"a@example.com","fields":{"pin":"1"},"teams":["0000000000000000000000a1"]}`,
		`{"kind":"folder","id":"0000000000000000000000c1","name":"A"}`, `{"kind":"folder","id":"0000000000000000000000c2","name":"B","folder_id":"0000000000000000000000c1"}`,
		`{"kind":"file","filename":"f","mimetype":"a/b","folder_id":"0000000000000000000000c2"}`)
	ends := o.Key(t, tenants.AllPermissions()...)
	ada, cookie := o.Person(t, "ada@example.com", func(n *control.NewUser) {
		n.Roles, n.Teams = []string{identity.AdminRole, "more"}, []string{"0000000000000000000000a1"}
	})
	idle := o.SignIn(t, "ada@example.com") // that is not used while there is no such person
	with, _ := s.export(o, bundle.ExportOptions{})
	made := o.Do(t, http.MethodPost, "/api/custom-reports/0000000000000000000000e1/share", gatewaytest.WithKey(keeps), gatewaytest.JSON(map[string]any{"params": map[string]any{}}))
	token, _ := made.Field("token").(string)
	told := ""
	shared := func(path string) int {
		a := o.Do(t, http.MethodGet, path)
		if told = a.Text(); strings.Contains(told, `"status":"failed"`) {
			return http.StatusNotFound
		}
		return a.Code
	}
	open := func() []int {
		return []int{
			o.Get(t, ends, "/api/contacts").Code, o.Do(t, http.MethodGet, "/api/contacts", gatewaytest.Cookie(cookie)).Code,
			shared("/api/reports/shared/report-number-00001?data=1&token=" + token), o.Get(t, keeps, "/api/contacts").Code,
		}
	}
	if got := open(); !slices.Equal(got, []int{200, 200, 200, 200}) || token == "" {
		t.Fatalf("before: got %v %s, want 200 four times and a token", got, made.Text())
	}
	if fault := s.mirrors(); fault != "" {
		t.Fatalf(`got %v, want ""`, fault)
	}
	if got := open(); got[0] != 403 || got[1] != 403 || got[2] != 404 || got[3] != 200 {
		t.Errorf("after: got %v %s, want 403, 404 and 200", got, told)
	}
	s.snapshot = with // brings them back, without what they opened
	if fault := s.mirrors(); fault != "" {
		t.Fatalf(`got %v, want ""`, fault)
	}
	if _, err := control.Call[control.User](t.Context(), o.Commands, "user.update", control.UserChange{UserRef: control.UserRef{Org: o.Slug, User: strconv.FormatInt(ada.ID, 10)}, UserFields: control.UserFields{Password: gatewaytest.Password}}); err != nil {
		t.Fatal(err)
	}
	if got := open(); got[0] != 403 || got[1] != 403 || got[2] != 404 || got[3] != 200 {
		t.Errorf("when they are back: got %v, want 403, 404 and 200", got)
	}
	if a := o.Do(t, http.MethodGet, "/api/contacts", gatewaytest.Cookie(idle)); a.Code != 403 {
		t.Errorf("a session from before: got %d, want 403", a.Code)
	}
	o.SignIn(t, "ada@example.com")
}

// TestMirror_KeepsConcurrentRecords checks that a record added to a removed folder after the mirror has begun is
// moved to the top level.
func TestMirror_KeepsConcurrentRecords(t *testing.T) {
	t.Parallel()
	o := gatewaytest.Start(t).Org(t, "acme")
	s := &sequence{t: t, org: o}
	lines, _ := s.export(o, bundle.ExportOptions{})
	o.Import(t, `{"kind":"folder","id":"0000000000000000000000c1","name":"A"}`, `{"kind":"file","pid":"goes","filename":"goes","mimetype":"a/b","folder_id":"0000000000000000000000c1"}`)
	meanwhile := false
	r, err := o.App.Transfer().Import(t.Context(), o.Tenant(t), gatewaytest.Source(lines), bundle.ImportOptions{Mirror: true, Allowed: func(context.Context) error {
		if !meanwhile {
			meanwhile = true
			o.Import(t, `{"kind":"file","pid":"stays","filename":"stays","mimetype":"a/b","folder_id":"0000000000000000000000c1"}`)
		}
		return nil
	}})
	now, _ := s.export(o, bundle.ExportOptions{})
	if err != nil || r.Removed != 2 || !meanwhile || bytes.Contains(now, []byte("goes")) || !bytes.Contains(now, []byte(`"folder_id":null`)) || !bytes.Contains(now, []byte(`"pid":"stays"`)) {
		t.Errorf("got %v %+v\n%s\nwant no error and r.Removed = 2 and meanwhile", err, r.Counts, now)
	}
}

// TestMirror_RequiresConfirmation checks that the command shows what a mirror would do until it is confirmed, and
// records the result in the audit log.
func TestMirror_RequiresConfirmation(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := g.Org(t, "acme")
	o.Import(t, `{"kind":"contact","id":"0000000000000000000000b1","email":"a@example.com"}`, `{"kind":"contact","id":"0000000000000000000000b2","email":"b@example.com"}`)
	s := &sequence{t: t, org: o}
	lines := `{"kind":"organization","name":"Acme"}` + "\n" + `{"kind":"contact","id":"0000000000000000000000b1","email":"a@example.com"}` + "\n"
	for _, c := range []struct {
		in   control.ImportRequest
		want string // of the error; empty: there is none
		left int
	}{
		{control.ImportRequest{Mirror: true}, "--mirror would create 0 records, update 1 and remove 1 for good; confirm with --yes", 2},
		{control.ImportRequest{Mirror: true, DryRun: true}, "", 2},
		{control.ImportRequest{Mirror: true, Yes: true, Partial: true}, "--mirror cannot be combined with --partial", 2},
		{control.ImportRequest{Mirror: true, Yes: true, As: "contacts", Format: "csv"}, "--mirror cannot be combined with --as", 2},
		{control.ImportRequest{Yes: true}, "--yes confirms what --mirror removes", 2},
		{control.ImportRequest{Mirror: true, Yes: true}, "", 1},
	} {
		c.in.Org = o.Slug
		a, err := o.Commands.Do(t.Context(), "import", c.in, control.Streams{Input: strings.NewReader(lines)})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+[1]v: got %[2]v, want %[3]q", c.in, err, c.want)
		}
		if removes := c.in.Mirror && !c.in.Partial && c.in.As == ""; removes && !strings.Contains(string(a.Data), `"removals":[{"kind":"contact","id":"0000000000000000000000b2","name":"b@example.com"}]`) {
			t.Errorf("%+v: got %s, want the removal named", c.in, a.Data)
		}
		now, _ := s.export(o, bundle.ExportOptions{})
		if left := bytes.Count(now, []byte(`{"kind":"contact",`)); left != c.left {
			t.Errorf("%+[1]v: got %[2]d left, want %[3]d", c.in, left, c.left)
		}
	}
	log, err := control.Call[[]control.AuditRecord](t.Context(), o.Commands, "audit", control.Page{Org: o.Slug})
	if err != nil || !slices.ContainsFunc(log, func(r control.AuditRecord) bool { return r.Operation == "import" && r.Facts["removed"] == "1" }) {
		t.Errorf("got %v %+v, want an import that removed 1", err, log)
	}
}
