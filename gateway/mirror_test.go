package gateway_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/transfer"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

var lastChange = regexp.MustCompile(`"updated_at":"[^"]*"`)

// timeless returns the lines of a bundle without the times at which records were last changed, which the store stamps.
func timeless(bundle []byte) []string {
	return strings.Split(lastChange.ReplaceAllString(string(bundle), `"updated_at":""`), "\n")
}

// purge deletes something, or ends it for good.
func (s *sequence) purge() {
	how, n := s.pick("?purge=true&force=true&contents=true", "?purge=true", "?force=true", ""), s.pick("1", "2", "3")
	form := formsPath + fmt.Sprintf("%021xf0%s", 0, n)
	path := s.pick("/api/contacts/"+s.id("ddd"), "/api/contacts/fields/"+s.field(), "/api/custom/objects/object"+n, "/api/custom/objects/object"+n+"/records/"+s.id("bbb"),
		form, form+"/submissions/"+s.id("ccc"), "/api/campaigns/"+s.id("cab"), "/api/custom-reports/"+s.id("cce"), "/api/files/folders/"+s.id("fff"), "/api/files/"+s.id("eee")+"/purge")
	s.call("purge", http.MethodDelete, path+how, nil)
}

// TestRandom_MirrorsRestore: whatever becomes of an organization after an export, a mirror of that makes the next one the same, removes
// what a dry run has named, and leaves other organizations alone.
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
	before, _ := beside.export(neighbour, transfer.ExportOptions{})
	for i := range count {
		seed := first + uint64(i)
		attempt := func(steps []step) string {
			orgs++
			o := g.Org(t, "m"+strconv.Itoa(orgs), "teams")
			o.Person(t, "boss@example.com", func(n *control.NewUser) { n.Roles = []string{people.AdminRole} })
			s := &sequence{t: t, org: o, key: o.Key(t, tenants.AllPermissions()...), done: done}
			do := append(s.steps(), s.purge, s.purge, s.purge, s.purge)
			for n, step := range steps {
				if n == len(steps)/2 {
					s.snapshot, _ = s.export(o, transfer.ExportOptions{})
				}
				s.rng = rand.New(rand.NewPCG(step.seed, 2))
				if take := len(s.steps()) - 2; step.do == take {
					continue // it would be another snapshot
				}
				do[step.do]()
			}
			if s.snapshot == nil {
				s.snapshot, _ = s.export(o, transfer.ExportOptions{})
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
	after, _ := beside.export(neighbour, transfer.ExportOptions{})
	if !bytes.Equal(before, after) {
		t.Errorf("another organization changed: %s", cmp.Diff(string(before), string(after)))
	}
}

// mirrors makes the organization what the snapshot says, and returns what is wrong then.
func (s *sequence) mirrors() (fault string) {
	mirror := func(o transfer.ImportOptions) transfer.Report {
		o.Mirror = true
		r, err := s.org.App.Transfer().Import(s.t.Context(), s.tenant(), gatewaytest.Source(s.snapshot), o)
		if err != nil {
			fault += fmt.Sprintf("%v %v\n", err, r.Problems)
		}
		r.DryRun = false
		return r
	}
	was, _ := s.export(s.org, transfer.ExportOptions{})
	dry := mirror(transfer.ImportOptions{DryRun: true})
	if still, _ := s.export(s.org, transfer.ExportOptions{}); !bytes.Equal(was, still) {
		fault += "a dry run changed something:\n" + cmp.Diff(string(was), string(still))
	}
	real := mirror(transfer.ImportOptions{})
	if diff := cmp.Diff(dry, real); diff != "" {
		fault += "the dry run said otherwise (-dry +real):\n" + diff
	}
	now, _ := s.export(s.org, transfer.ExportOptions{})
	if diff := cmp.Diff(timeless(s.snapshot), timeless(now)); diff != "" {
		fault += "the exports differ (-before +after):\n" + diff
	}
	if again := mirror(transfer.ImportOptions{}); again.Unchanged != again.Lines || again.Removed > 0 {
		fault += fmt.Sprintf("again: %+v\n", again)
	}
	if len(s.snapshot) == 0 {
		fault += "nothing was exported"
	}
	return fault
}
