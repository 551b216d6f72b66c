package bundle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/reports"
	"tenantry/tenants"
)

func TestImport_CompleteBundleInReverseOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	r := w.mustLoad(acme, complete)
	if r.Lines != 19 || r.Created != 18 || r.Updated != 1 || r.Failed != 0 {
		t.Fatalf("report %+v", r)
	}
	again := w.mustLoad(acme, complete)
	if again.Unchanged != 19 || again.Created+again.Updated+again.Failed != 0 {
		t.Fatalf("importing again: %+v", again)
	}
	if n := strings.Count(w.dump(acme, false), "\n"); n != 19 {
		t.Fatalf("%d lines exported:\n%s", n, w.dump(acme, false))
	}
}

func TestExport_ImportsAsTheSameOrganization(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	first := w.dump(acme, true)
	if !strings.Contains(first, `"ssn":"123-45-6789"`) || !strings.Contains(first, `"code":"secret-tree"`) {
		t.Fatalf("secrets are not revealed:\n%s", first)
	}
	other := w.org("other")
	w.mustLoad(other, first)
	second := w.dump(other, true)
	// The two share a store, where no two teams have one id: the second got another.
	team := strings.Split(ofKind(second, "team")[0], `"`)[7]
	if diff := cmp.Diff(first, strings.ReplaceAll(second, team, "0000000000000000000000a1")); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	if r := w.mustLoad(other, first); r.Unchanged != r.Lines {
		t.Fatalf("importing again: %+v", r)
	}
	apart := newWorld(t)
	elsewhere := apart.org("acme")
	apart.mustLoad(elsewhere, first)
	if diff := cmp.Diff(first, apart.dump(elsewhere, true)); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	if r := w.mustLoad(acme, w.dump(acme, false)); r.Unchanged != r.Lines {
		t.Fatalf("importing an export where it was made: %+v", r)
	}
}

// TestPublicIdentifiersOfReports: a guess is refused on the way in; a report that has one
// from former times keeps it, and its export imports, here and elsewhere.
func TestPublicIdentifiersOfReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	line := func(pid string) string {
		return `{"kind":"custom_report","pid":"` + pid + `","title":"x","class":"Files"}` + "\n"
	}
	for _, pid := range []string{"p2", "fifteen-letters", strings.Repeat("p", 65), "sixteen letters ", "sixteen/letters/", "sechzehn-zeiché"} {
		r, err := w.load(acme, line(pid), ImportOptions{})
		if err == nil || len(r.Problems) != 1 || !strings.Contains(r.Problems[0].String(), "pid must have 16 to 64") {
			t.Errorf(`%q: got %v %v, want an error and len(r.Problems) = 1 and containing "pid must have 16 to 64"`,
				pid, err, r.Problems)
		}
	}
	w.mustLoad(acme, line("sixteen-letters_")+line(strings.Repeat("P", 64)))

	old := reports.Report{PID: "p2", Title: "old", Class: "Files"}
	old.ID = "0000000000000000000000e9"
	check(t, w.reports.Reports.In(acme.Workspace()).Insert(t.Context(), &old))
	exported := w.dump(acme, false)
	if !strings.Contains(exported, `"p2"`) {
		t.Errorf("exported:\n%s", exported)
	}
	if r := w.mustLoad(acme, exported); r.Unchanged != r.Lines {
		t.Errorf("imported where it was made: %+v", r)
	}
	pidIn := func(tenant *tenants.Tenant) string {
		found, err := w.reports.Reports.In(tenant.Workspace()).Get(t.Context(), old.ID)
		check(t, err)
		return found.PID
	}
	if pid := pidIn(acme); pid != "p2" {
		t.Errorf("after importing its export it is %q", pid)
	}
	other := w.org("other")
	w.mustLoad(other, exported)
	if pid := pidIn(other); pid != "p2" {
		t.Errorf("elsewhere it is %q", pid)
	}
}

// TestImportsTakeTurns holds that an import asks every few hundred lines whether it may go on, while it reads,
// checks and stores, and that one that may not ends without reporting as stored what is not.
func TestImportsTakeTurns(t *testing.T) {
	t.Parallel()
	const lines = 3000
	var file strings.Builder
	for n := range lines {
		fmt.Fprintf(&file, "{\"kind\":\"contact\",\"external_id\":\"%d\"}\n", n)
	}
	over := errors.New("its time is over")
	load := func(end int) (r Report, stored, asked int, err error) {
		w := newWorld(t)
		acme := w.org("acme")
		r, err = w.load(acme, file.String(), ImportOptions{Turn: func(context.Context) error {
			if asked++; asked == end {
				return over
			}
			return nil
		}})
		return r, strings.Count(w.dump(acme, false), `"kind":"contact"`), asked, err
	}
	r, stored, all, err := load(0)
	if err != nil || r.Created != lines || stored != lines || all < 3*lines/500 {
		t.Fatalf("asked %d times: %v, %+v", all, err, r.Counts)
	}
	for _, end := range []int{1, all / 3, all / 2, all - 2, all} {
		r, stored, _, err := load(end)
		if !errors.Is(err, over) || r.Created != stored || r.Updated != 0 || r.Unchanged != 0 {
			t.Errorf("ended when asked the %d. time of %d: %v, told %+v, stored %d", end, all, err, r.Counts, stored)
		}
	}
}
