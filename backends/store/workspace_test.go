package store_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/store"
)

// everyCall makes every call that reaches an engine and returns the errors by name.
func everyCall(ctx context.Context, f *fixture, ws *store.Workspace) map[string]error {
	errs := everyRead(ctx, f.plains, ws, store.Filter{})
	c := f.plains.In(ws)
	rec := plain{Meta: store.Meta{ID: f.NewID(), Rev: 1}}
	_, errs["Get"] = c.Get(ctx, rec.ID)
	_, errs["Update"] = c.Update(ctx, rec.ID, func(*plain) error { return nil })
	errs["Insert"] = c.Insert(ctx, &plain{})
	errs["Replace"] = c.Replace(ctx, &rec)
	errs["Delete"] = c.Delete(ctx, &rec)
	_, errs["Counter"] = f.control.Counter(ctx, "n", 1, 0)
	errs["Scoped Replace"] = f.items.In(ws.Scoped(store.Scope{})).Replace(ctx, &item{Meta: rec.Meta})
	errs["Scoped Delete"] = f.items.In(ws.Scoped(store.Scope{})).Delete(ctx, &item{Meta: rec.Meta})
	return errs
}

func TestErrorsAreTranslated(t *testing.T) {
	t.Parallel()
	sentinels := []error{store.ErrNotFound, store.ErrConflict, store.ErrUnavailable, store.ErrNewer, store.ErrQuery, context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF}
	for _, cause := range []error{driver.ErrUnavailable, driver.ErrNewer, context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF} {
		f := setupOn(t, failing{fmt.Errorf("engine: %w", cause)}, nil)
		for what, err := range everyCall(t.Context(), f, f.ws) {
			for _, s := range sentinels {
				if errors.Is(err, s) != (s == cause) { //nolint:errorlint // which of the list it is
					t.Errorf("%s with %v: %v is %v: %t", what, cause, err, s, errors.Is(err, s))
				}
			}
			if kind := map[bool]string{true: "counter n", false: "items"}[what == "Counter"]; !strings.Contains(err.Error(), kind) && !strings.Contains(err.Error(), "plains") {
				t.Errorf("%s: the error %q does not name the kind", what, err)
			}
		}
		wantErr(t, "Check", f.Check(t.Context(), ""), cause)
		wantErr(t, "Remove", f.Remove(t.Context(), 1, ""), cause)
	}
	for index, want := range map[string]string{"code": "code", "name_title": "name title", "id": "id", "made_up": "id"} {
		f := setupOn(t, failing{fmt.Errorf("engine: %w", &driver.DuplicateError{Collection: "items", Index: index, Position: 3})}, nil)
		var dup *store.DuplicateError
		if err := f.items.In(f.ws).Insert(t.Context(), &item{}); !errors.As(err, &dup) || strings.Join(dup.Fields, " ") != want || dup.Position != 3 || dup.Kind != "items" {
			t.Errorf("index %s: %v, %+v", index, err, dup)
		}
	}
	f := setupOn(t, failing{fmt.Errorf("engine: %w", &driver.ConflictError{Collection: "plains"})}, nil)
	c := f.plains.In(f.ws)
	wantErr(t, "Replace", c.Replace(t.Context(), &plain{}), store.ErrConflict)
	wantErr(t, "Delete", c.Delete(t.Context(), &plain{}), store.ErrConflict)
}

func TestEndedContexts(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for what, err := range everyCall(ctx, f, f.ws) {
			wantErr(t, what, err, context.Canceled)
		}
		if n, err := f.plains.In(f.ws).Count(t.Context(), store.Filter{}); n != 0 || err != nil {
			t.Errorf("%d records were stored, %v", n, err)
		}
	})
}

func TestClosedEnginesAreUnavailable(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		e := open(t)
		f := setupOn(t, e, nil)
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		for what, err := range everyCall(t.Context(), f, f.ws) {
			wantErr(t, what, err, store.ErrUnavailable)
		}
		_, err := f.At(t.Context(), 9, store.Placement{})
		wantErr(t, "Organization", err, store.ErrUnavailable)
		wantErr(t, "Check", f.Check(t.Context(), ""), store.ErrUnavailable)
		wantErr(t, "Remove", f.Remove(t.Context(), 9, ""), store.ErrUnavailable)
	})
}

func TestOrganizationsShareNothing(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		for _, org := range []int64{0, -1, -1 << 63} {
			if w, err := f.At(t.Context(), org, store.Placement{}); err == nil {
				t.Errorf("organization %d was opened: %+v", org, w)
			}
		}
		two, err := f.At(t.Context(), 2, store.Placement{})
		if err != nil {
			t.Fatal(err)
		}
		rec := &item{Name: "one's", Code: "c"}
		insert(t, f.items.In(f.ws), rec)
		if got := names(t, f.items.In(two), store.Query{State: store.Either}); got != "" {
			t.Errorf("organization 2 sees %q", got)
		}
		_, err = f.items.In(two).Get(t.Context(), rec.ID)
		wantErr(t, "Get", err, store.ErrNotFound)
		wantErr(t, "Delete", f.items.In(two).Delete(t.Context(), rec), store.ErrConflict)
		insert(t, f.items.In(two), &item{Meta: store.Meta{ID: rec.ID}, Name: "two's", Code: "c"})
		if got := names(t, f.items.In(f.ws), store.Query{}); got != "one's" || f.ws.Org() != 1 || two.Org() != 2 {
			t.Errorf("organization %d sees %q", f.ws.Org(), got)
		}
	})
}

func TestOrganizationsAreOpenedConcurrently(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				org := int64(100 + i%4)
				w, err := f.At(t.Context(), org, store.Placement{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := f.plains.In(w).Insert(t.Context(), &plain{Name: "x", Count: org}); err != nil || w.Org() != org {
					t.Errorf("organization %d: %v", w.Org(), err)
				}
			})
		}
		wg.Wait()
		for org := int64(100); org < 104; org++ {
			w, err := f.At(t.Context(), org, store.Placement{})
			if err != nil {
				t.Fatal(err)
			}
			n, err := f.plains.In(w).Count(t.Context(), store.Eq("count", org))
			if n != 8 || err != nil {
				t.Errorf("organization %d has %d records, %v", org, n, err)
			}
		}
	})
}

func TestRemovedOrganizationsStartEmpty(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		f := setup(t, open)
		for range 3 {
			w, err := f.At(t.Context(), 7, store.Placement{})
			if err != nil {
				t.Fatal(err)
			}
			if n, err := f.plains.In(w).Count(t.Context(), store.Filter{}); n != 0 || err != nil {
				t.Errorf("%d records, %v", n, err)
			}
			insert(t, f.plains.In(w), &plain{Name: "x"})
			if err := f.Remove(t.Context(), 7, ""); err != nil {
				t.Fatal(err)
			}
			if err := f.plains.In(w).Insert(t.Context(), &plain{}); err == nil {
				t.Error("a handle on a removed organization still writes")
			}
		}
		if err := f.Remove(t.Context(), 8, ""); err != nil {
			t.Errorf("Remove of an unknown organization: %v", err)
		}
		if n, err := f.plains.In(f.ws).Count(t.Context(), store.Filter{}); n != 0 || err != nil {
			t.Errorf("organization 1: %d, %v", n, err)
		}
	})
}

// However an opening and a removal overlap, the next opening returns a usable workspace.
func TestRemoveWhileOpening(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, open opener) {
		works := func(t *testing.T, f *fixture) {
			t.Helper()
			w, err := f.At(t.Context(), 7, store.Placement{})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.plains.In(w).Insert(t.Context(), &plain{Name: "x"}); err != nil {
				t.Errorf("the workspace cannot be used after the removal: %v", err)
			}
		}
		t.Run("removed before the opening returns", func(t *testing.T) {
			g := &gated{Engine: open(t)}
			f := setupOn(t, g, nil)
			g.set(func() {
				g.set(nil, nil)
				if err := f.Remove(t.Context(), 7, ""); err != nil {
					t.Error(err)
				}
			}, nil)
			if _, err := f.At(t.Context(), 7, store.Placement{}); err != nil {
				t.Fatal(err)
			}
			works(t, f)
		})
		t.Run("opened before the removal happens", func(t *testing.T) {
			g := &gated{Engine: open(t)}
			f := setupOn(t, g, nil)
			g.set(nil, func() {
				g.set(nil, nil)
				if _, err := f.At(t.Context(), 7, store.Placement{}); err != nil {
					t.Error(err)
				}
			})
			if err := f.Remove(t.Context(), 7, ""); err != nil {
				t.Fatal(err)
			}
			works(t, f)
		})
		t.Run("many of both", func(t *testing.T) {
			f := setup(t, open)
			var wg sync.WaitGroup
			for i := range 8 {
				wg.Go(func() {
					for range 5 {
						if i%4 == 0 {
							if err := f.Remove(t.Context(), 7, ""); err != nil {
								t.Error(err)
							}
						} else if _, err := f.At(t.Context(), 7, store.Placement{}); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			works(t, f)
		})
	})
}
