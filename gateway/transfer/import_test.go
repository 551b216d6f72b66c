package transfer

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	team := strings.Split(lines(second, kindTeam)[0], `"`)[7]
	if diff := cmp.Diff(first, strings.ReplaceAll(second, team, "0000000000000000000000a1")); diff != "" {
		t.Fatal(diff)
	}
	if r := w.mustLoad(other, first); r.Unchanged != r.Lines {
		t.Fatalf("importing again: %+v", r)
	}
	apart := newWorld(t)
	elsewhere := apart.org("acme")
	apart.mustLoad(elsewhere, first)
	if diff := cmp.Diff(first, apart.dump(elsewhere, true)); diff != "" {
		t.Fatal(diff)
	}
	if r := w.mustLoad(acme, w.dump(acme, false)); r.Unchanged != r.Lines {
		t.Fatalf("importing an export where it was made: %+v", r)
	}
}
