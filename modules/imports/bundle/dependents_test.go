package bundle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"tenantry/backends/record"
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
		"a chain without its end": {"", missing.String(), "folder_id names the folder of line 2, which is bad", n - 1},
		"a circle":                {stored.String(), below.String() + folder(1, n), "the folder would contain itself", n - 1}, // by way of the second, which is stored
		"a circle by what stays":  {stored.String(), fmt.Sprintf(`{"kind":"folder","id":"%024x","name":"h"}`+"\n", 3) + folder(2, 3), "the folder would contain itself", 2},
		"a circle that is left":   {stored.String(), fmt.Sprintf(`{"kind":"folder","id":"%024x","name":"f","folder_id":null}`+"\n", 3) + folder(2, n), "", 0},
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
				t.Errorf("got %+v %v, want r.Failed = %v", r.Counts, r.Problems, c.failed)
			}
			if im.steps > 10*n {
				t.Errorf("%d steps", im.steps)
			}
		})
	}
}

// TestRefusalsSpread until every line that is left refers to what is left, and to no more.
func TestRefusalsSpread(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	const lines = 12
	k := &kind{Resource: &record.Resource{Traits: record.Traits{Name: kindFolder}}}
	named := func(n int) key { return key{byte(n)} }
	missing := map[reference]bool{{kindFolder, named(lines).id()}: true}
	for range 2000 {
		im := unrelated()
		im.lineOf[kindFolder] = map[key]int32{}
		for l := range lines {
			im.lineOf[kindFolder][named(l)] = int32(l)
		}
		im.done.add(0)
		if rnd.IntN(2) == 0 {
			im.refuse(1, kindFolder, nil)
		}
		want := im.bad.clone()
		for range rnd.IntN(3 * lines) {
			im.edges = append(im.edges, edge{int32(rnd.IntN(lines)), k, "parent", kindFolder, named(rnd.IntN(lines + 1)), rnd.IntN(4) == 0})
		}
		for range lines { // so many lines one after another at most
			for _, e := range im.edges {
				to, inside := im.lineOf[kindFolder][e.to]
				if e.line != 0 && (inside && want.has(int(to)) || !inside && !e.asIs) {
					want.add(int(e.line))
				}
			}
		}
		check(t, im.refuseDependents(t.Context(), missing))
		for l := range lines {
			if im.bad.has(l) != want.has(l) {
				t.Fatalf("line %d is refused: %t, of %+v", l, im.bad.has(l), im.edges)
			}
		}
		if r := im.report(); r.Failed != want.count {
			t.Fatalf("%d are told to be refused, want %d", r.Failed, want.count)
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
	if err := im.refuseDependents(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// unrelated returns an importer of no lines.
func unrelated() *importer {
	im := &importer{session: &session{tally: newTally()}}
	im.reset()
	return im
}
