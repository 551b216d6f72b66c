package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/backends/resource"
	"tenantry/internal/fault"
)

// TestReferencesAreLookedAtOnce however long a chain they make.
func TestReferencesAreLookedAtOnce(t *testing.T) {
	t.Parallel()
	const n = 2000
	folder := func(id, parent int) string {
		return fmt.Sprintf(`{"kind":"folder","id":"%024x","name":"f","folder_id":"%024x"}`+"\n", id, parent)
	}
	var missing, stored, below strings.Builder
	fmt.Fprintf(&stored, `{"kind":"folder","id":"%024x","name":"top"}`+"\n", 1)
	for i := 2; i <= n; i++ {
		missing.WriteString(folder(n+2-i, n+1-i)) // without the first
		stored.WriteString(folder(i, i-1))
		if i > 2 {
			below.WriteString(strings.Replace(folder(i, i-1), `"f"`, `"g"`, 1))
		}
	}
	for name, c := range map[string]struct {
		stored, bundle, want string
		failed               int
	}{
		"a chain without its end": {"", missing.String(), "folder_id names the folder of line 2, which cannot be taken", n - 1},
		"a circle":                {stored.String(), below.String() + folder(1, n), "the folder would contain itself", n - 1}, // by way of the second, which is stored
		"a chain":                 {stored.String(), below.String(), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			acme := w.org("acme")
			w.mustLoad(acme, c.stored)
			s, err := w.service.session(acme, nil, false)
			check(t, err)
			im := &importer{session: s, feed: &bundle{session: s, src: BytesSource([]byte(c.bundle))}}
			im.reset()
			check(t, im.check(t.Context()))
			if r := im.report(); r.Failed != c.failed || c.failed > 0 && r.Problems[0].Errors[0].Message != c.want {
				t.Errorf("%+v %v", r.Counts, r.Problems)
			}
			if im.steps > 10*n {
				t.Errorf("%d steps", im.steps)
			}
		})
	}
}

// TestRefusalsSpreadAsPassesWould over all references until nothing changes: each line is refused for the same one.
func TestRefusalsSpreadAsPassesWould(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	const lines = 12
	k := &kind{Resource: &resource.Resource{Traits: resource.Traits{Name: kindFolder}}}
	named := func(n int) key { return key{byte(n)} }
	for range 2000 {
		im, old := unrelated(), unrelated()
		for _, im := range []*importer{im, old} {
			im.lineOf[kindFolder] = map[key]int32{}
			for l := range lines {
				im.lineOf[kindFolder][named(l)] = int32(l)
			}
			im.done.add(0)
		}
		missing := map[string]map[key]bool{kindFolder: {named(lines): true}}
		for n := range rnd.IntN(3 * lines) {
			e := edge{int32(rnd.IntN(lines)), k, fmt.Sprint("field_", n), kindFolder, named(rnd.IntN(lines + 1)), rnd.IntN(4) == 0}
			im.edges, old.edges = append(im.edges, e), append(old.edges, e)
		}
		if rnd.IntN(2) == 0 {
			im.refuse(1, kindFolder, nil)
			old.refuse(1, kindFolder, nil)
		}
		check(t, im.spread(t.Context(), missing))
		old.pass(missing)
		if diff := cmp.Diff(old.report(), im.report()); diff != "" {
			t.Fatal(diff)
		}
	}
}

// TestNobodyWaits for an import any more: it ends also where it does not look at the store.
func TestNobodyWaits(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	im := unrelated()
	im.edges = make([]edge, 5000)
	if err := im.spread(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// unrelated returns an importer of no lines.
func unrelated() *importer {
	im := &importer{session: &session{tally: newTally()}}
	im.reset()
	return im
}

// pass says what spread does, in as many steps as there are lines and references each.
func (im *importer) pass(missing map[string]map[key]bool) {
	for again := true; again; {
		again = false
		for _, e := range im.edges {
			if im.bad.has(int(e.line)) || im.done.has(int(e.line)) {
				continue
			}
			var errs fault.List
			if to, inside := im.lineOf[e.target][e.to]; inside && im.bad.has(int(to)) {
				errs.Add(e.field, "unknown", "%s names the %s of line %d, which cannot be taken", e.field, e.target, to)
			} else if missing[e.target][e.to] && !e.asIs {
				(&resource.Checking{Errs: &errs, Absent: absent}).Missing(e.field, e.target)
			}
			if len(errs) > 0 {
				im.refuse(int(e.line), e.from.Name, errs)
				again = true
			}
		}
	}
}
