package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/store"

	"github.com/google/go-cmp/cmp"
)

// located is a Locator whose answer tests set.
type located struct {
	mu  sync.Mutex
	at  store.Placement
	err error
}

func (l *located) set(change func(*store.Placement)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.at)
	l.at.Rev++
}

func (l *located) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

func (l *located) locate(context.Context, int64) (store.Placement, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at, l.err
}

// twoPlaces is a store with two backends, and a workspace of an organization on the first.
type twoPlaces struct {
	*store.Store
	items *store.Kind[item]
	ws    *store.Workspace
	where *located

	second driver.Engine
}

func onTwo(t *testing.T, first, second driver.Engine) *twoPlaces {
	t.Helper()
	f := &twoPlaces{items: define[item](t, itemSpec()), where: &located{at: store.Placement{Backend: "first", Rev: 1}}, second: second}
	f.Store = store.New(store.Options{
		Backends: map[string]driver.Engine{"first": first, "second": second}, ControlBackend: "first",
		Tenant: []*store.Spec{f.items.Spec()},
	})
	f.SetLocator(f.where.locate)
	if err := f.Prepare(t.Context(), 1, "", "first"); err != nil {
		t.Fatal(err)
	}
	var err error
	if f.ws, err = f.At(t.Context(), 1, store.Placement{Backend: "first", Rev: 1, ReadAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return f
}

// onEveryPair runs a test for moves between every two engines.
func onEveryPair(t *testing.T, test func(*testing.T, *twoPlaces)) {
	t.Helper()
	t.Parallel()
	for from, first := range engines() {
		for to, second := range engines() {
			t.Run(from+" to "+to, func(t *testing.T) {
				t.Parallel()
				test(t, onTwo(t, first(t), second(t)))
			})
		}
	}
}

// everything returns all records of an organization as text, by identifier.
func everything(t *testing.T, f *twoPlaces, w *store.Workspace) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := f.items.In(w).Each(t.Context(), store.Filter{}, store.Either, func(i *item) error {
		text, err := json.Marshal(i)
		all[i.ID] = fmt.Sprintf("%d %s %v", i.Rev, text, i.Fields)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// atNewPlace opens the organization's workspace on the second backend, whatever the placement says.
func (f *twoPlaces) atNewPlace(t *testing.T) *store.Workspace {
	t.Helper()
	view := store.New(store.Options{Engine: f.second, Tenant: []*store.Spec{f.items.Spec()}})
	w, err := view.At(t.Context(), 1, store.Placement{})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestMoverCopiesEverythingExactly(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *twoPlaces) {
		ctx, c := t.Context(), f.items.In(f.ws)
		var all []*item
		n := int64(7)
		for i := range 1203 {
			all = append(all, &item{
				Name: fmt.Sprintf("item %d", i), Code: fmt.Sprintf("code-%d", i), N: int64(i) - 3, X: float64(i) / 7, At: int64(i) * 1000,
				Flag: i%2 == 0, Tags: []label{"a", label(fmt.Sprint(i % 5))}, Number: &n, Secret: "s\x00 é 日本",
				Deleted: i%11 == 0, Fields: map[string]any{"score": i, "big": uint64(1<<53 + 1), "list": []string{"x", "y"}, "a-b": "$where"},
			})
		}
		for chunk := range slices.Chunk(all, 400) {
			insert(t, c, chunk...)
		}
		for _, rec := range all[:5] {
			if err := c.Replace(ctx, rec); err != nil { // revisions differ
				t.Fatal(err)
			}
		}
		before := everything(t, f, f.ws)
		m, err := f.NewMover(ctx, 1, "", "first", "second")
		if err != nil {
			t.Fatal(err)
		}
		if changed, _, err := m.Copy(ctx); err != nil || changed != int64(len(all)) {
			t.Fatalf("Copy: %d, %v", changed, err)
		}
		changed, sums, err := m.Copy(ctx)
		if err != nil || changed != 0 || len(sums) != 1 || sums[0].Documents != int64(len(all)) || len(sums[0].Checksum) != 64 {
			t.Errorf("second Copy: %d, %+v, %v", changed, sums, err)
		}
		there := f.atNewPlace(t)
		if diff := cmp.Diff(before, everything(t, f, there)); diff != "" {
			t.Errorf("the copy differs: %s", diff)
		}
		here, err1 := f.ws.Used(ctx)
		copied, err2 := there.Used(ctx)
		if here != copied || here.Documents != int64(len(all)) || errors.Join(err1, err2) != nil {
			t.Errorf("usage of the original %+v, of the copy %+v, %v %v; want both %d documents",
				here, copied, err1, err2, len(all))
		}
		// Queries of the copy have the same answers as those of the original.
		for _, filter := range []store.Filter{
			store.Where(store.F("n"), store.OpGt, int64(50)), store.Eq("flag", true), store.In("tags", "3"), store.Eq("code", "code-78"),
			store.Where(store.Field{Name: "score", Custom: true}, store.OpLt, int64(9)), store.Where(store.Field{Name: "a-b", Custom: true}, store.OpEq, "$where"),
		} {
			a, err1 := c.Count(ctx, filter)
			b, err2 := f.items.In(there).Count(ctx, filter)
			if a != b || a == 0 || errors.Join(err1, err2) != nil {
				t.Errorf("%+v: %d in the original, %d in the copy, %v %v; want the same, above 0",
					filter, a, b, err1, err2)
			}
		}
	})
}

// While an organization is copied, writes leave notes. The notes suffice to complete the copy, even if documents
// exchange unique values.
func TestMoverCatchesUp(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *twoPlaces) {
		ctx, c := t.Context(), f.items.In(f.ws)
		var all []*item
		for i := range 40 {
			all = append(all, &item{Name: fmt.Sprint("n", i), Code: fmt.Sprint("c", i)})
		}
		insert(t, c, all...)
		f.where.set(func(p *store.Placement) { p.Phase = store.Copying })
		w, err := f.At(ctx, 1, store.Placement{Backend: "first", Phase: store.Copying, Rev: 2, ReadAt: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		c = f.items.In(w)
		m, err := f.NewMover(ctx, 1, "", "first", "second")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Copy(ctx); err != nil {
			t.Fatal(err)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for round := range 4 {
			a, b := all[round*2], all[round*2+1]
			codes := [2]string{a.Code, b.Code}
			for _, step := range []struct {
				rec  *item
				code string
			}{{a, ""}, {b, codes[0]}, {a, codes[1]}} { // they exchange their codes
				step.rec.Code = step.code
				if err := c.Replace(ctx, step.rec); err != nil {
					t.Fatal(err)
				}
			}
			gone := all[20+round]
			if err := c.Delete(ctx, gone); err != nil {
				t.Fatal(err)
			}
			insert(t, c, &item{Name: "new", Title: fmt.Sprint(round), Code: gone.Code}, &item{Name: "new too", Title: fmt.Sprint(random.Int())})
			if named, err := m.CatchUp(ctx); err != nil || named < 6 {
				t.Fatalf("CatchUp = %d documents, %v; want at least 6", named, err)
			}
		}
		if err := m.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(everything(t, f, f.ws), everything(t, f, f.atNewPlace(t))); diff != "" {
			t.Errorf("the copy differs: %s", diff)
		}
		if err := m.Clean(ctx); err != nil {
			t.Fatal(err)
		}
		if named, err := m.CatchUp(ctx); named != 0 || err != nil {
			t.Errorf("CatchUp after Clean = %d documents, %v; want 0", named, err)
		}
	})
}

// TestMoverTakesLargeRecordsInParts: the parts have at most BatchBytes, and no record is missed between them.
func TestMoverTakesLargeRecordsInParts(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *twoPlaces) {
		ctx := t.Context()
		const size, most = 100 << 10, store.BatchBytes / (100 << 10)
		f.where.set(func(p *store.Placement) { p.Phase = store.Copying })
		w, err := f.At(ctx, 1, store.Placement{Backend: "first", Phase: store.Copying, Rev: 2, ReadAt: time.Now()})
		if err != nil {
			t.Fatal(err)
		}
		c := f.items.In(w)
		var all []*item
		for i := range 12 {
			rec := &item{Name: fmt.Sprint("n", i), Code: fmt.Sprint("c", i), Secret: strings.Repeat("x", size)}
			insert(t, c, rec)
			all = append(all, rec)
		}
		m, err := f.NewMover(ctx, 1, "", "first", "second")
		if err != nil {
			t.Fatal(err)
		}
		before := int64(0)
		m.Progress = func(_ string, compared, _ int64) {
			if before = compared - before; before > most {
				t.Errorf("a part has %d records of %d bytes, want at most %d", before, size, most)
			}
			before = compared
		}
		if changed, _, err := m.Copy(ctx); err != nil || changed != int64(len(all)) {
			t.Fatalf("Copy: %d, %v", changed, err)
		}
		before = 0
		if changed, sums, err := m.Copy(ctx); err != nil || changed != 0 || sums[0].Documents != int64(len(all)) {
			t.Errorf("second Copy: %d, %+v, %v", changed, sums, err)
		}
		for _, rec := range all[:8] {
			rec.Title = "changed"
			if err := c.Replace(ctx, rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Delete(ctx, all[8:]...); err != nil {
			t.Fatal(err)
		}
		if named, err := m.CatchUp(ctx); err != nil || named < int64(len(all)) {
			t.Errorf("CatchUp = %d documents, %v; want at least %d", named, err, len(all))
		}
		if err := m.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(everything(t, f, f.ws), everything(t, f, f.atNewPlace(t))); diff != "" {
			t.Error("the copy differs")
		}
	})
}

// A write under a placement from before the move leaves no note; Copy finds it by comparison.
func TestMoverRepairsTheCopy(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *twoPlaces) {
		ctx, c := t.Context(), f.items.In(f.ws)
		var all []*item
		for i := range 600 {
			all = append(all, &item{Name: fmt.Sprint("n", i), Code: fmt.Sprint("c", i)})
		}
		insert(t, c, all...)
		m, err := f.NewMover(ctx, 1, "", "first", "second")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Copy(ctx); err != nil {
			t.Fatal(err)
		}
		there := f.items.In(f.atNewPlace(t))
		stray := &item{Name: "stray"}
		insert(t, there, stray)
		for _, i := range []int{0, 299, 599} {
			rec, err := there.Get(ctx, all[i].ID)
			if err != nil {
				t.Fatal(err)
			}
			if err := there.Delete(ctx, rec); err != nil {
				t.Fatal(err)
			}
			all[i+1-2*(i%2)].Title = "changed"
			if err := c.Replace(ctx, all[i+1-2*(i%2)]); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Finish(ctx); !errors.Is(err, store.ErrDiffers) {
			t.Errorf("Finish on a copy that differs: %v", err)
		}
		if changed, _, err := m.Copy(ctx); err != nil || changed != 7 {
			t.Errorf("Copy changed %d, %v; want 7", changed, err)
		}
		if diff := cmp.Diff(everything(t, f, f.ws), everything(t, f, f.atNewPlace(t))); diff != "" {
			t.Errorf("the copy differs: %s", diff)
		}
		if err := m.Finish(ctx); err != nil {
			t.Errorf("Finish: %v", err)
		}
	})
}

// A handle follows the organization; writes wait while they are held.
func TestHandlesFollowTheOrganization(t *testing.T) {
	onEveryPair(t, func(t *testing.T, f *twoPlaces) {
		ctx, c := t.Context(), f.items.In(f.ws)
		rec := &item{Name: "a"}
		insert(t, c, rec)
		m, err := f.NewMover(ctx, 1, "", "first", "second")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := m.Copy(ctx); err != nil {
			t.Fatal(err)
		}
		f.where.set(func(p *store.Placement) { p.Phase = store.Held })
		if _, err := f.At(ctx, 1, store.Placement{Backend: "first", Phase: store.Held, Rev: 2, ReadAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
		soon, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		wantErr(t, "a write while held", c.Insert(soon, &item{Name: "no"}), store.ErrUnavailable)
		if got, err := c.Get(ctx, rec.ID); err != nil || got.Name != "a" {
			t.Errorf("a read while held: %+v, %v", got, err)
		}
		written := make(chan error, 1)
		go func() {
			_, err := c.Update(ctx, rec.ID, func(i *item) error { i.Name = "b"; return nil })
			written <- err
		}()
		if err := m.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-written:
			t.Fatalf("a held write ended: %v", err)
		default:
		}
		f.where.set(func(p *store.Placement) { *p = store.Placement{Backend: "second", Rev: p.Rev} })
		if err := <-written; err != nil {
			t.Fatalf("the held write: %v", err)
		}
		if got := names(t, f.items.In(f.atNewPlace(t)), store.Query{}); got != "b" {
			t.Errorf("the second backend has %q", got)
		}
		if got := names(t, c, store.Query{}); got != "b" {
			t.Errorf("the handle reads %q", got)
		}
		err = f.RemoveFrom(ctx, 1, "", "second")
		if err == nil || !strings.Contains(err.Error(), "lives on") {
			t.Errorf("RemoveFrom the backend on which it lives: %v, want an error that says so", err)
		}
		if err := f.RemoveFrom(ctx, 1, "", "first"); err != nil {
			t.Error(err)
		}
		if got := names(t, c, store.Query{}); got != "b" {
			t.Errorf("after the old copy was removed the handle reads %q", got)
		}
	})
}

// A placement that was read too long ago does not permit writes.
func TestWritesNeedAFreshPlacement(t *testing.T) {
	t.Parallel()
	f := onTwo(t, openSQLite(t), openSQLite(t))
	c := f.items.In(f.ws)
	down := fmt.Errorf("no answer: %w", store.ErrUnavailable)
	f.where.fail(down)
	time.Sleep(600 * time.Millisecond)
	wantErr(t, "a write with an unavailable locator", c.Insert(t.Context(), &item{}), store.ErrUnavailable)
	if _, err := c.Count(t.Context(), store.Filter{}); err != nil {
		t.Errorf("a read: %v", err)
	}
	f.where.fail(store.ErrNotFound)
	wantErr(t, "a write to a removed organization", c.Insert(t.Context(), &item{}), store.ErrNotFound)
	f.where.fail(nil)
	f.where.set(func(p *store.Placement) { p.Backend = "third" })
	wantErr(t, "a write to an unknown backend", c.Insert(t.Context(), &item{}), store.ErrUnavailable)
	if err := f.Prepare(t.Context(), 1, "", "second"); err != nil {
		t.Fatal(err)
	}
	f.where.set(func(p *store.Placement) { p.Backend = "second" })
	insert(t, c, &item{Name: "x"})
	if got := names(t, f.items.In(f.atNewPlace(t)), store.Query{}); got != "x" {
		t.Errorf("the second backend has %q", got)
	}
}
