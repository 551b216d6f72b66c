package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/store"
)

// hooked is an engine that passes writes to a function instead of storing them.
type hooked struct {
	driver.Engine
	mu    sync.Mutex
	write func(context.Context, driver.Workspace, []driver.Write) error
}

func (h *hooked) set(fn func(context.Context, driver.Workspace, []driver.Write) error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.write = fn
}

func (h *hooked) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	w, err := h.Engine.Open(ctx, o)
	return &hookedSpace{w, h}, err
}

type hookedSpace struct {
	driver.Workspace
	engine *hooked
}

func (w *hookedSpace) Write(ctx context.Context, writes []driver.Write) error {
	w.engine.mu.Lock()
	fn := w.engine.write
	w.engine.mu.Unlock()
	if fn == nil {
		return w.Workspace.Write(ctx, writes)
	}
	return fn(ctx, w.Workspace, writes)
}

func isNote(w driver.Write) bool { return w.Collection.Name == "move_notes" }

// beingCopied returns an organization in the middle of a move, with a record that both sides have.
func beingCopied(t *testing.T) (*twoPlaces, *hooked, *store.Mover, *item) {
	t.Helper()
	source := &hooked{Engine: openSQLite(t)}
	f := onTwo(t, source, openSQLite(t))
	rec := &item{Name: "before"}
	insert(t, f.items.In(f.ws), rec)
	f.where.set(func(p *store.Placement) { p.Phase = store.Copying })
	if _, err := f.At(t.Context(), 1, store.Placement{Backend: "first", Phase: store.Copying, Rev: 2, ReadAt: time.Now()}); err != nil {
		t.Fatal(err)
	}
	m, err := f.NewMover(t.Context(), 1, "", "first", "second")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Copy(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f, source, m, rec
}

// A note is kept for as long as the write that it announces may still be under way, however often it is read.
func TestNoteIsKeptUntilItsWriteEnds(t *testing.T) {
	t.Parallel()
	f, source, m, rec := beingCopied(t)
	source.set(func(ctx context.Context, w driver.Workspace, writes []driver.Write) error {
		if !isNote(writes[0]) {
			source.set(nil)
			for range 3 {
				if named, err := m.CatchUp(ctx); err != nil || named != 1 {
					t.Errorf("CatchUp = %d documents, %v; want 1", named, err)
				}
				if err := m.Forget(ctx); err != nil {
					t.Error(err)
				}
			}
		}
		return w.Write(ctx, writes)
	})
	rec.Name = "after"
	if err := f.items.In(f.ws).Replace(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := names(t, f.items.In(f.atNewPlace(t)), store.Query{}); got != "after" {
		t.Errorf("the copy has %q", got)
	}
}

// If an engine without transactions rolls back the writes before a refused one, their note stays, because the mover may
// have copied them.
func TestRolledBackWritesAreRemovedFromTheCopy(t *testing.T) {
	t.Parallel()
	f, source, m, _ := beingCopied(t)
	source.set(func(ctx context.Context, w driver.Workspace, writes []driver.Write) error {
		source.set(nil)
		if isNote(writes[0]) && len(writes) == 1 {
			defer source.set(func(ctx context.Context, w driver.Workspace, writes []driver.Write) error {
				source.set(nil)
				return takeBack(ctx, t, m, w, writes)
			})
			return w.Write(ctx, writes)
		}
		return takeBack(ctx, t, m, w, writes)
	})
	err := f.items.In(f.ws).Insert(t.Context(), &item{Name: "refused", Code: "c"}, &item{Name: "refused too", Code: "c"})
	var dup *store.DuplicateError
	if !errors.As(err, &dup) || dup.Position != 1 {
		t.Fatalf("the batch: %v", err)
	}
	if err := m.Finish(t.Context()); err != nil {
		t.Errorf("Finish: %v", err)
	}
	if got := names(t, f.items.In(f.atNewPlace(t)), store.Query{}); got != "before" {
		t.Errorf("the copy has %q", got)
	}
}

// takeBack stores writes one by one, as an engine without transactions, and rolls them back when one is refused.
func takeBack(ctx context.Context, t *testing.T, m *store.Mover, w driver.Workspace, writes []driver.Write) error {
	var done []driver.Write
	for i, one := range writes {
		err := w.Write(ctx, []driver.Write{one})
		if err == nil {
			done = append(done, driver.Write{Collection: one.Collection, Op: driver.Delete, Doc: driver.Document{ID: one.Doc.ID, Rev: 1}})
			continue
		}
		if _, err := m.CatchUp(ctx); err != nil {
			t.Error(err)
		}
		for i := range done {
			if err := w.Write(ctx, done[len(done)-1-i:len(done)-i]); err != nil {
				t.Error(err)
			}
		}
		var dup *driver.DuplicateError
		if errors.As(err, &dup) {
			return &driver.DuplicateError{Collection: dup.Collection, Index: dup.Index, Position: i}
		}
		return err
	}
	return nil
}

// The mover reads only after the writes under way have ended, even those whose lease has passed.
func TestTheMoverWaitsForWritesUnderWay(t *testing.T) {
	t.Parallel()
	for name, read := range map[string]func(context.Context, *store.Mover) error{
		"Copy":    func(ctx context.Context, m *store.Mover) error { _, _, err := m.Copy(ctx); return err },
		"CatchUp": func(ctx context.Context, m *store.Mover) error { _, err := m.CatchUp(ctx); return err },
		"Finish":  func(ctx context.Context, m *store.Mover) error { return m.Finish(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			waitsForWrites(t, read)
		})
	}
}

func waitsForWrites(t *testing.T, read func(context.Context, *store.Mover) error) {
	t.Helper()
	f, source, m, rec := beingCopied(t)
	var turn sync.Mutex // held by the single writer of a file
	writing, next := make(chan struct{}), make(chan struct{})
	source.set(func(ctx context.Context, w driver.Workspace, writes []driver.Write) error {
		if isNote(writes[0]) {
			return w.Write(ctx, writes)
		}
		turn.Lock()
		defer turn.Unlock()
		source.set(func(ctx context.Context, w driver.Workspace, writes []driver.Write) error {
			close(next)
			turn.Lock()
			defer turn.Unlock()
			source.set(nil)
			return w.Write(ctx, writes)
		})
		close(writing)
		<-next
		return w.Write(ctx, writes)
	})
	rec.Name = "after"
	written := make(chan error, 1)
	go func() { written <- f.items.In(f.ws).Replace(t.Context(), rec) }()
	<-writing
	finished := make(chan error, 1)
	go func() { finished <- read(t.Context(), m) }()
	select {
	case <-next:
	case err := <-finished:
		t.Errorf("it ended while a write was under way: %v", err)
		close(next)
		finished <- err
	}
	if err := errors.Join(<-written, <-finished); err != nil {
		t.Fatal(err)
	}
	if got := names(t, f.items.In(f.atNewPlace(t)), store.Query{}); got != "after" {
		t.Errorf("the copy has %q", got)
	}
}

// A mover that may no longer change the copy deletes no notes either.
func TestNotesAreDeletedUnderGuard(t *testing.T) {
	t.Parallel()
	f, _, m, rec := beingCopied(t)
	rec.Name = "after"
	if err := f.items.In(f.ws).Replace(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	if _, err := m.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	over := errors.New("taken over")
	m.Guard = func(context.Context) (context.Context, context.CancelFunc, error) { return nil, nil, over }
	time.Sleep(store.DefaultLeases().Copying + 10*time.Millisecond)
	if _, err := m.CatchUp(t.Context()); err != nil { // there is nothing to copy, so Guard is not called
		t.Errorf("CatchUp: %v", err)
	}
	wantErr(t, "Forget", m.Forget(t.Context()), over)
	wantErr(t, "Clean", m.Clean(t.Context()), over)
	next, err := f.NewMover(t.Context(), 1, "", "first", "second")
	if err != nil {
		t.Fatal(err)
	}
	if named, err := next.CatchUp(t.Context()); err != nil || named != 1 {
		t.Errorf("CatchUp of the next mover = %d documents, %v; want 1", named, err)
	}
}

// A write that was stored after its lease is not acknowledged, even if the engine reports success.
func TestNothingIsAcknowledgedAfterItsLease(t *testing.T) {
	t.Parallel()
	for phase, lease := range map[store.Phase]time.Duration{store.Settled: 80 * time.Millisecond, store.Copying: 40 * time.Millisecond} {
		t.Run(fmt.Sprintf("phase %q", phase), func(t *testing.T) {
			t.Parallel()
			source := &hooked{Engine: openSQLite(t)}
			items := define[item](t, itemSpec())
			s := store.New(store.Options{
				Engine: source, Tenant: []*store.Spec{items.Spec()},
				Leases: store.Leases{Fresh: time.Hour, Settled: 80 * time.Millisecond, Copying: 40 * time.Millisecond, Hold: time.Second},
			})
			w, err := s.At(t.Context(), 1, store.Placement{Phase: phase, Rev: 1, ReadAt: time.Now()})
			if err != nil {
				t.Fatal(err)
			}
			source.set(func(ctx context.Context, w driver.Workspace, writes []driver.Write) error {
				if !isNote(writes[0]) {
					time.Sleep(lease + 10*time.Millisecond)
					if until, given := ctx.Deadline(); !given || time.Now().Before(until) {
						t.Error("the engine was given longer than the lease")
					}
				}
				return w.Write(context.WithoutCancel(ctx), writes)
			})
			wantErr(t, "a late write", items.In(w).Insert(t.Context(), &item{Name: "late"}), store.ErrUnavailable)
		})
	}
}

// A reader bounds the time for locating the organization, whatever its own deadline, and reads on if the locator does
// not answer.
func TestReaderDoesNotWaitForTheLocator(t *testing.T) {
	t.Parallel()
	f := onTwo(t, openSQLite(t), openSQLite(t))
	insert(t, f.items.In(f.ws), &item{Name: "here"})
	bounded := false
	f.SetLocator(func(ctx context.Context, _ int64) (store.Placement, error) {
		if _, bounded = ctx.Deadline(); bounded {
			<-ctx.Done()
		}
		return store.Placement{}, fmt.Errorf("%w: silent", store.ErrUnavailable)
	})
	if _, err := f.At(t.Context(), 1, store.Placement{Backend: "first", Rev: 9, ReadAt: time.Now().Add(-time.Hour)}); err != nil {
		t.Fatal(err)
	}
	if got := names(t, f.items.In(f.ws), store.Query{}); got != "here" || !bounded {
		t.Errorf("read %q with a deadline: %v; want here, with a deadline", got, bounded)
	}
}

// A placement that the control data have lost, as in an election, is used only for as long as an outdated server may
// answer; after that the placement in the control data is valid again. Until then an earlier placement is ignored.
func TestLostPlacementEnds(t *testing.T) {
	t.Parallel()
	items := define[item](t, itemSpec())
	where := &located{at: store.Placement{Backend: "first", Rev: 8}}
	s := store.New(store.Options{
		Backends: map[string]driver.Engine{"first": openSQLite(t), "second": openSQLite(t)}, ControlBackend: "first", Tenant: []*store.Spec{items.Spec()},
		Leases: store.Leases{Fresh: 20 * time.Millisecond, Settled: 2 * time.Second, Copying: time.Second, Hold: time.Second},
	})
	s.SetLocator(where.locate)
	for _, backend := range s.Backends() {
		if err := s.Prepare(t.Context(), 1, "", backend); err != nil {
			t.Fatal(err)
		}
	}
	at := func(p store.Placement) *store.Workspace {
		t.Helper()
		w, err := s.At(t.Context(), 1, p)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	began := time.Now()
	w := at(store.Placement{Backend: "second", Rev: 9, ReadAt: began})
	insert(t, items.In(w), &item{Name: "there"})
	at(store.Placement{Backend: "first", Rev: 8, ReadAt: time.Now()})
	if got := names(t, items.In(w), store.Query{}); got != "there" && time.Since(began) < s.Leases().Steady() {
		t.Errorf("an earlier placement was used at once: read %q, want there", got)
	}
	time.Sleep(time.Until(began.Add(s.Leases().Settled))) // until then writes under it are permitted
	for end := began.Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		err := items.In(w).Insert(t.Context(), &item{Name: "here"})
		if err == nil {
			break
		}
		if wantErr(t, "a write under a lost placement", err, store.ErrUnavailable); time.Now().After(end) {
			t.Fatal("the lost placement is still used after 5 s")
		}
	}
	if got := names(t, items.In(w), store.Query{}); got != "here" {
		t.Errorf("read %q after the placement was lost, want here", got)
	}
}
