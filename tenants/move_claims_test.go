package tenants_test

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/store"
	"tenantry/tenants"
)

// acmeOn creates an organization with one record and opens it on every replica.
func acmeOn(t *testing.T, replicas ...*replica) []store.Collection[piece] {
	t.Helper()
	if _, err := replicas[0].directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "acme"}); err != nil {
		t.Fatal(err)
	}
	var at []store.Collection[piece]
	for _, r := range replicas {
		at = append(at, r.open(t, "acme"))
	}
	if err := at[0].Insert(t.Context(), &piece{Name: "before"}); err != nil {
		t.Fatal(err)
	}
	return at
}

func only(t *testing.T, c store.Collection[piece]) *piece {
	t.Helper()
	found, err := c.Find(t.Context(), store.Query{})
	if err != nil || len(found) != 1 {
		t.Fatalf("got %+v, %v, want no error and len(found) = 1", found, err)
	}
	return &found[0]
}

// stopped returns a progress function that stops a move at a step until goOn is called.
func stopped(step string) (at <-chan struct{}, goOn func(), progress func(tenants.MoveProgress)) {
	reached, on := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	return reached, func() { close(on) }, func(p tenants.MoveProgress) {
		if p.Step == step && once.CompareAndSwap(false, true) {
			close(reached)
			<-on
		}
	}
}

// TestSupersededMoverChangesNothing checks that a mover that continues after another call has ended its move changes
// nothing.
func TestSupersededMoverChangesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	acmeOn(t, one, two)
	at, goOn, progress := stopped("copying")
	moved := make(chan error, 1)
	go func() {
		_, err := one.directory.Move(t.Context(), "acme", "second", progress)
		moved <- err
	}()
	<-at
	settleMove(t, two.directory, "acme")
	c := two.open(t, "acme")
	rec := only(t, c)
	rec.Name = "after"
	if err := c.Replace(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	goOn()
	if err := <-moved; !errors.Is(err, tenants.ErrMoving) {
		t.Errorf("the late mover: %v", err)
	}
	if got := only(t, c); got.Name != "after" {
		t.Errorf("the late mover put back %q", got.Name)
	}
}

// TestMovingToWhereAnotherReplicaRemovedTheCopy checks that a replica can move to a workspace that it had open and
// another replica removed.
func TestMovingToWhereAnotherReplicaRemovedTheCopy(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	acmeOn(t, one, two)
	if err := one.directory.Hold(t.Context(), "acme", "second"); err != nil { // leaves the move undone
		t.Fatal(err)
	}
	if err := two.directory.RollBackMove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := one.directory.Move(t.Context(), "acme", "second", nil); err != nil {
		t.Fatal(err)
	}
	if got := only(t, two.open(t, "acme")); got.Name != "before" {
		t.Errorf(`got %+v, want got.Name = "before"`, got)
	}
}

// TestNoMoveToACopyThatIsBeingRemoved checks that nothing is copied to a backend from which an old copy is being
// removed.
func TestNoMoveToACopyThatIsBeingRemoved(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.leases.Settled = 2 * time.Second // for which a removal waits, once it is noted
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	acmeOn(t, one, two)
	settleMove(t, one.directory, "acme")
	cut, cancel := context.WithTimeout(t.Context(), f.leases.Settled/2)
	defer cancel()
	if err := one.directory.FinishMove(cut, "acme"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a removal that was cut off: %v", err)
	}
	if _, err := two.directory.Move(t.Context(), "acme", "first", nil); !errors.Is(err, tenants.ErrMoving) {
		t.Errorf("moving back meanwhile: %v", err)
	}
	if err := two.directory.FinishMove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := two.directory.Move(t.Context(), "acme", "first", nil); err != nil {
		t.Errorf("moving back afterwards: %v", err)
	}
}

// TestSupersededFinisherRemovesNothing checks that a finisher stops after another one took over, finished, and the copy
// is in use again.
func TestSupersededFinisherRemovesNothing(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	acmeOn(t, one, two)
	settleMove(t, one.directory, "acme")
	reached, on := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	f.second.opening.Store(new(func() { // the finisher is the first to open the workspace
		if once.CompareAndSwap(false, true) {
			close(reached)
			<-on
		}
	}))
	finished := make(chan error, 1)
	go func() { finished <- one.directory.FinishMove(t.Context(), "acme") }()
	<-reached
	if err := two.directory.FinishMove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	settleMove(t, two.directory, "acme") // back to where the superseded finisher is about to delete
	close(on)
	if err := <-finished; !errors.Is(err, tenants.ErrMoving) {
		t.Errorf("the late finisher: %v", err)
	}
	if got := only(t, f.start(t, "first", "second").open(t, "acme")); got.Name != "before" {
		t.Errorf(`got %+v, want got.Name = "before"`, got)
	}
}

// TestMoverWaitsForTheLeasesOfWriters checks that a mover waits until the leases of writers end that do not know of the
// move yet.
func TestMoverWaitsForTheLeasesOfWriters(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.leases.Settled, f.leases.Copying = 1500*time.Millisecond, 100*time.Millisecond
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	at := acmeOn(t, one, two)
	begun := make(chan struct{})
	f.first.on.Store(new(func(writes []driver.Write) failure {
		if writes[0].Op == driver.Replace {
			close(begun)
			time.Sleep(f.leases.Settled * 2 / 3)
		}
		return healthy
	}))
	rec := only(t, at[1])
	rec.Name = "after"
	written := make(chan error, 1)
	go func() { written <- at[1].Replace(t.Context(), rec) }()
	<-begun
	if _, err := one.directory.Move(t.Context(), "acme", "second", nil); err != nil {
		t.Fatal(err)
	}
	if err := <-written; errors.Is(err, store.ErrUnavailable) {
		return // on a slow machine the write misses its deadline, and is not acknowledged
	} else if err != nil {
		t.Fatal(err)
	}
	if got := only(t, one.open(t, "acme")); got.Name != "after" {
		t.Errorf("acknowledged was %q, stored is %q", "after", got.Name)
	}
}

// TestHoldWaitsForTheLeasesOfWriters checks that writes are held until the leases of writers end that do not know of
// the hold yet.
func TestHoldWaitsForTheLeasesOfWriters(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.leases = store.Leases{Fresh: 60 * time.Millisecond, Settled: 300 * time.Millisecond, Copying: 1500 * time.Millisecond, Hold: 5 * time.Second}
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	at := acmeOn(t, one, two)
	rec := only(t, at[1])
	rec.Name = "after"
	begun, written := make(chan struct{}), make(chan error, 1)
	f.first.on.Store(new(func(writes []driver.Write) failure {
		if writes[0].Op == driver.Replace {
			close(begun)
			time.Sleep(f.leases.Copying * 2 / 3)
		}
		return healthy
	}))
	_, err := one.directory.Move(t.Context(), "acme", "second", func(p tenants.MoveProgress) {
		if p.Step == "pausing writes" {
			go func() { written <- at[1].Replace(t.Context(), rec) }()
			<-begun
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-written; errors.Is(err, store.ErrUnavailable) {
		return // as above
	} else if err != nil {
		t.Fatal(err)
	}
	if got := only(t, one.open(t, "acme")); got.Name != "after" {
		t.Errorf("acknowledged was %q, stored is %q", "after", got.Name)
	}
}

// TestOnlyTheObservedHoldIsEnded checks that replicas end the hold that they waited for, and no later one.
func TestOnlyTheObservedHoldIsEnded(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one := f.start(t, "first", "second")
	acmeOn(t, one)
	now := func() *tenants.Organization {
		t.Helper()
		o, err := one.directory.BySlug(t.Context(), "acme")
		if err != nil {
			t.Fatal(err)
		}
		return &o.Org
	}
	var seen []*tenants.Organization
	for range 2 {
		if err := one.directory.Hold(t.Context(), "acme", "second"); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, now())
	}
	sameMover := *now()
	move := *sameMover.Move
	move.Holds--
	sameMover.Move = &move
	for i, want := range []store.Phase{store.Held, store.Held, store.Copying} {
		err := one.directory.ReleaseSeen(t.Context(), []*tenants.Organization{seen[0], &sameMover, seen[1]}[i])
		if got := now().Move.Phase; err != nil || got != want {
			t.Errorf("after release %d the phase is %q, %v; want %q", i, got, err, want)
		}
	}
}

// TestHoldsOfTwoMovesAreDistinct checks that the first hold of a move is not mistaken for that of an earlier move.
func TestHoldsOfTwoMovesAreDistinct(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one := f.start(t, "first", "second")
	at := acmeOn(t, one)
	for range 2 {
		began := time.Now()
		if err := one.directory.Hold(t.Context(), "acme", "second"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(quick.Fresh)
		soon, cancel := context.WithTimeout(t.Context(), quick.Hold/5)
		err := at[0].Insert(soon, &piece{Name: "early"})
		if !errors.Is(err, store.ErrUnavailable) && time.Since(began) < quick.Hold {
			t.Errorf("a write while held: %v", err)
		}
		cancel()
		if err := one.directory.RollBackMove(t.Context(), "acme"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(quick.Hold)
	}
}

// TestSwitchSucceedsWithoutAnAnswer checks that a switch that is stored counts as done even if its answer is lost.
func TestSwitchSucceedsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one := f.start(t, "first", "second")
	acmeOn(t, one)
	var lost atomic.Bool
	f.control.on.Store(new(func(writes []driver.Write) failure {
		if bytes.Contains(writes[0].Doc.Body, []byte(`"former":"first"`)) && lost.CompareAndSwap(false, true) {
			return lostAnswer
		}
		return healthy
	}))
	report, err := one.directory.Move(t.Context(), "acme", "second", nil)
	if err != nil || report.Held <= 0 || !lost.Load() {
		t.Errorf("got %+v, %v, want no error and report.Held > 0", report, err)
	}
}

// TestLostStepOfAMoveLosesNoWrite checks that writes to the new place are kept even if the control data lose the last
// step of the move in an election, because replicas may have read that step before.
func TestLostStepOfAMoveLosesNoWrite(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]string{"the arrival": `"arrived":true`, "the switch": `"backend":"second"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
			at := acmeOn(t, one, two)
			var before driver.Write
			var cut atomic.Bool // the majority stores nothing any more
			f.control.on.Store(new(func(writes []driver.Write) failure {
				switch {
				case cut.Load():
					return down
				case bytes.Contains(writes[0].Doc.Body, []byte(lost)):
					cut.Store(true)
					return lostAnswer
				}
				before = writes[0]
				return healthy
			}))
			_, moved := one.directory.Move(t.Context(), "acme", "second", nil)
			if !cut.Load() {
				t.Fatal("the step was not made")
			}
			arrived, timeout := lost != `"arrived":true`, time.Minute
			if !arrived {
				timeout = quick.Hold / 2 // the write cannot succeed
			}
			soon, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			after := &piece{Name: "after"}
			written := at[1].Insert(soon, after)
			if (moved == nil) != arrived || (written == nil) != arrived {
				t.Errorf("the move: %v, the write: %v", moved, written)
			}
			f.lose(t, before)
			f.control.on.Store(nil)
			last := f.start(t, "first", "second")
			_, _ = last.directory.Move(t.Context(), "acme", "second", nil) // fails if the organization is there already
			if _, err := last.open(t, "acme").Get(t.Context(), after.ID); written == nil && err != nil {
				t.Errorf("an acknowledged write is lost: %v", err)
			}
			if err := last.open(t, "acme").Insert(t.Context(), &piece{Name: "at last"}); err != nil {
				t.Errorf("a write after the move: %v", err)
			}
			if now, err := last.directory.BySlug(t.Context(), "acme"); err != nil || now.Org.Place != "second" || now.Org.Move != nil {
				t.Errorf("the organization is not on its new backend: %+v, %v", now, err)
			}
		})
	}
}

// TestNextWriteCompletesAnArrivedMove checks that after everything is copied and only the switch failed, the next write
// makes the switch, and the mover copies no more.
func TestNextWriteCompletesAnArrivedMove(t *testing.T) {
	t.Parallel()
	for name, arrival := range map[string]failure{"known": healthy, "without an answer": lostAnswer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
			at := acmeOn(t, one, two)
			var arrived atomic.Bool
			f.control.on.Store(new(func(writes []driver.Write) failure {
				switch {
				case arrived.Load():
					return down
				case bytes.Contains(writes[0].Doc.Body, []byte(`"arrived":true`)):
					arrived.Store(true)
					return arrival
				}
				return healthy
			}))
			_, err := one.directory.Move(t.Context(), "acme", "second", func(p tenants.MoveProgress) {
				if p.Step == "waiting" {
					f.control.on.Store(nil)
				}
			})
			if !errors.Is(err, tenants.ErrMoving) || !arrived.Load() {
				t.Fatalf("the move: %v", err)
			}
			f.control.on.Store(nil)
			if err := one.directory.RollBackMove(t.Context(), "acme"); !errors.Is(err, tenants.ErrMoving) {
				t.Errorf("rolling it back: %v", err)
			}
			for deadline := time.Now().Add(time.Minute); ; {
				err := at[1].Insert(t.Context(), &piece{Name: "after"})
				if err == nil {
					break
				}
				if !errors.Is(err, store.ErrUnavailable) || time.Now().After(deadline) {
					t.Fatal(err)
				}
			}
			now, err := two.directory.BySlug(t.Context(), "acme")
			if err != nil || now.Org.Place != "second" || now.Org.Former != "first" || now.Org.Move != nil {
				t.Errorf(`got %+v, %v, want no error and now.Org.Place = "second" and now.Org.Former = "first" and now.Org.Move = nil`,
					now, err)
			}
			if n, err := f.start(t, "first", "second").open(t, "acme").Count(t.Context(), store.Filter{}); n != 2 || err != nil {
				t.Errorf("%d pieces, %v", n, err)
			}
		})
	}
}

// TestNoHoldSoonAfterAnElection checks that writes are not held soon after an election, and that there is no switch
// after an election during the hold, because replicas may still be answered by the former server.
func TestNoHoldSoonAfterAnElection(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one := f.start(t, "first", "second")
	acmeOn(t, one)
	elect := func() { f.control.elected.Store(new(time.Now())) }
	elect()
	holds := 0
	f.control.on.Store(new(func(writes []driver.Write) failure {
		if bytes.Contains(writes[0].Doc.Body, []byte(`"phase":"held"`)) && !bytes.Contains(writes[0].Doc.Body, []byte(`"arrived"`)) {
			if since := time.Since(f.control.Elected()); since < 3*quick.Settled {
				t.Errorf("held %s after the election", since)
			}
			if holds++; holds == 1 {
				elect()
			}
		}
		return healthy
	}))
	if _, err := one.directory.Move(t.Context(), "acme", "second", nil); err != nil || holds < 2 { // a slow machine may hold once more
		t.Errorf("after %d holds: %v", holds, err)
	}
}

// TestEverythingIsComparedBeforeTheNextHold checks that everything is compared again after a failed hold, because a
// write to the copy that seemed to fail may have been carried out since.
func TestEverythingIsComparedBeforeTheNextHold(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, other := f.start(t, "first", "second"), f.start(t, "first", "second")
	acmeOn(t, one)
	var refused atomic.Bool
	f.control.on.Store(new(func(writes []driver.Write) failure {
		if bytes.Contains(writes[0].Doc.Body, []byte(`"phase":"held"`)) && refused.CompareAndSwap(false, true) {
			return down
		}
		return healthy
	}))
	view := store.New(store.Options{Engine: f.second, Tenant: []*store.Spec{other.pieces.Spec()}})
	_, err := one.directory.Move(t.Context(), "acme", "second", func(p tenants.MoveProgress) {
		if p.Step != "waiting" {
			return
		}
		acme, err := one.directory.BySlug(t.Context(), "acme")
		if err != nil {
			t.Error(err)
			return
		}
		w, err := view.At(t.Context(), 1, store.Placement{Owner: one.directory.Installation() + "/" + acme.Org.ID})
		if err != nil {
			t.Error(err)
			return
		}
		rec := only(t, other.pieces.In(w))
		rec.Name = "late"
		if err := other.pieces.In(w).Replace(t.Context(), rec); err != nil {
			t.Error(err)
		}
	})
	if err != nil || !refused.Load() {
		t.Fatalf("%v %v", refused.Load(), err)
	}
	if got := only(t, one.open(t, "acme")); got.Name != "before" {
		t.Errorf("moved: %+v", got)
	}
}

// TestReplicaWithoutTheBackendIsUnavailable checks that a replica without the backend reports that, and does not answer
// from the old copy.
func TestReplicaWithoutTheBackendIsUnavailable(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, lame := f.start(t, "first", "second"), f.start(t, "first")
	at := acmeOn(t, one, lame)
	if _, err := one.directory.Move(t.Context(), "acme", "second", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := lame.directory.BySlug(t.Context(), "acme"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("opening it: %v", err)
	}
	if n, err := at[1].Count(t.Context(), store.Filter{}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("reading it: %d, %v", n, err)
	}
	if err := at[1].Insert(t.Context(), &piece{Name: "x"}); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("writing to it: %v", err)
	}
}

// TestLongReaderFollowsAMove checks that a reader with an old workspace finds the documents after a move, on a replica
// without other requests of the organization.
func TestLongReaderFollowsAMove(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.start(t, "first", "second"), f.start(t, "first", "second")
	at := acmeOn(t, one, two)
	if _, err := one.directory.Move(t.Context(), "acme", "second", nil); err != nil {
		t.Fatal(err)
	}
	if err := one.directory.FinishMove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if got := only(t, at[1]); got.Name != "before" {
		t.Errorf(`got %+v, want got.Name = "before"`, got)
	}
}

// TestLostChangeIsNotMistakenForAnother checks that a cached change that the control data lost is not mistaken for a
// later change with the same revision.
func TestLostChangeIsNotMistakenForAnother(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	one, two := f.start(t, "first"), f.start(t, "first")
	acmeOn(t, one)
	var before driver.Write
	f.control.on.Store(new(func(writes []driver.Write) failure {
		if len(writes[0].Doc.Body) > 0 && before.Collection == nil {
			before = writes[0]
		}
		return healthy
	}))
	name := func(d *tenants.Directory, to string) {
		t.Helper()
		if _, err := d.Update(t.Context(), "acme", func(o *tenants.Organization) error { o.Name = to; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	name(one.directory, "kept")
	name(one.directory, "lost")
	seen, err := two.directory.Resolve(t.Context(), "acme.localhost")
	if err != nil || seen.Org.Name != "lost" {
		t.Fatalf(`got %+v, %v, want no error and seen.Org.Name = "lost"`, seen, err)
	}
	f.lose(t, before)
	name(one.directory, "made again")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		now, err := two.directory.Resolve(t.Context(), "acme.localhost")
		if err == nil && now.Org.Name == "made again" {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", now, err)
		}
	}
}

// lose sets the control data back to what a write stored in them, as an election can.
func (f *fleet) lose(t *testing.T, before driver.Write) {
	t.Helper()
	control, err := f.control.Engine.Open(t.Context(), driver.Opening{Workspace: "control", Collections: []*driver.Collection{before.Collection}, Apart: true})
	if err != nil {
		t.Fatal(err)
	}
	before.Op, before.Doc.Rev = driver.Put, before.Doc.Rev+1
	if err := control.Write(t.Context(), []driver.Write{before}); err != nil {
		t.Fatal(err)
	}
}
