package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/tenants"
)

// failure is what happens to the calls of an engine.
type failure int32

const (
	healthy    failure = iota
	down               // every call fails
	lostAnswer         // a write is carried out, but its answer is lost
	slow               // every call takes a while
	late               // a write is carried out after its deadline, and acknowledged
)

// faultyEngine is an engine whose calls can be made to fail.
type faultyEngine struct {
	driver.Engine
	now atomic.Int32
	// on, if set, chooses the failure of writes.
	on atomic.Pointer[func([]driver.Write) failure]
	// opening, if set, is called when a workspace is opened.
	opening atomic.Pointer[func()]
	elected atomic.Pointer[time.Time]
}

// Elected implements driver.Elector.
func (s *faultyEngine) Elected() time.Time {
	if at := s.elected.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

var errDown = fmt.Errorf("%w: down", driver.ErrUnavailable)

func (s *faultyEngine) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	if failure(s.now.Load()) == down {
		return nil, errDown
	}
	if opening := s.opening.Load(); opening != nil {
		(*opening)()
	}
	w, err := s.Engine.Open(ctx, o)
	return &faultyWorkspace{w, s}, err
}

type faultyWorkspace struct {
	driver.Workspace
	engine *faultyEngine
}

func (s *faultyWorkspace) before(ctx context.Context) error {
	switch failure(s.engine.now.Load()) {
	case down:
		return errDown
	case slow:
		select {
		case <-time.After(rand.N(quick.Copying / 2)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *faultyWorkspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	return s.Workspace.Find(ctx, q)
}

func (s *faultyWorkspace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	if err := s.before(ctx); err != nil {
		return 0, err
	}
	return s.Workspace.Count(ctx, c, where)
}

func (s *faultyWorkspace) Write(ctx context.Context, writes []driver.Write) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	now := failure(s.engine.now.Load())
	if on := s.engine.on.Load(); on != nil {
		now = (*on)(writes)
	}
	switch now {
	case down:
		return errDown
	case lostAnswer:
		if err := s.Workspace.Write(ctx, writes); err != nil {
			return err
		}
		return errDown
	case late:
		if k := writes[0].Op; k == driver.Insert || k == driver.Replace { // movers do not write these to a copy
			time.Sleep(rand.N(2 * quick.Settled))
			ctx = context.WithoutCancel(ctx)
		}
	}
	return s.Workspace.Write(ctx, writes)
}

// quick are leases for tests.
var quick = store.Leases{Fresh: 60 * time.Millisecond, Settled: 400 * time.Millisecond, Copying: 200 * time.Millisecond, Hold: 900 * time.Millisecond}

// piece is a record with a unique value.
type piece struct {
	store.Meta
	Name string `json:"name"`
	Code string `json:"code,omitempty"`
}

// replica is a process on shared engines.
type replica struct {
	directory *tenants.Directory
	pieces    *store.Kind[piece]
}

type fleet struct {
	control, first, second *faultyEngine
	keyring                *keyring.Keyring
	leases                 store.Leases
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	ring, err := keyring.Create(filepath.Join(t.TempDir(), "keyring"))
	if err != nil {
		t.Fatal(err)
	}
	return &fleet{
		control: &faultyEngine{Engine: enginetest.OpenSQLite(t, t.TempDir())},
		first:   &faultyEngine{Engine: enginetest.Open(t)}, second: &faultyEngine{Engine: enginetest.OpenSQLite(t, t.TempDir())},
		keyring: ring, leases: quick,
	}
}

// start returns a replica that has the backends named.
func (f *fleet) start(t *testing.T, backends ...string) *replica {
	t.Helper()
	kinds := tenants.NewKinds()
	pieces, err := store.Define[piece](store.Spec{
		Name: "pieces", Fields: []string{"name", "code"}, Indexes: []store.Index{{Fields: []string{"code"}, Unique: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	engines := map[string]driver.Engine{"control": f.control}
	for _, name := range backends {
		engines[name] = map[string]driver.Engine{"first": f.first, "second": f.second}[name]
	}
	s := store.New(store.Options{
		Backends: engines, ControlBackend: "control", Control: kinds.Specs(), Tenant: []*store.Spec{pieces.Spec()}, Leases: f.leases,
	})
	d, err := tenants.NewDirectory(t.Context(), tenants.DirectoryOptions{Store: s, Kinds: kinds, Keyring: f.keyring, NewBackend: "first"})
	if err != nil {
		t.Fatal(err)
	}
	return &replica{d, pieces}
}

func (r *replica) open(t *testing.T, slug string) store.Collection[piece] {
	t.Helper()
	tenant, err := r.directory.BySlug(t.Context(), slug)
	if err != nil {
		t.Fatal(err)
	}
	return r.pieces.In(tenant.Workspace())
}

// outcome is what may be stored under an ID: what was acknowledged last, or what was tried since and neither
// acknowledged nor refused. Empty: nothing is stored.
type outcome struct {
	acknowledged string
	tried        []string
}

// writer changes records of its own, and remembers the outcomes.
type writer struct {
	name     string
	at       []store.Collection[piece] // on every replica
	outcomes map[string]*outcome
	codes    [4]string
	acks     int
}

func text(p *piece) string { return p.Name + "/" + p.Code }

// noteOutcome notes the outcome of a write that was to leave this text under an ID.
func (w *writer) noteOutcome(id, text string, err error) {
	b := w.outcomes[id]
	if b == nil {
		b = &outcome{}
		w.outcomes[id] = b
	}
	var dup *store.DuplicateError
	switch {
	case err == nil:
		b.acknowledged, b.tried = text, nil
		w.acks++
	case errors.As(err, &dup) || errors.Is(err, store.ErrConflict):
	default:
		b.tried = append(b.tried, text)
	}
}

func (w *writer) run(ctx context.Context, ids []string) {
	for n := 0; ctx.Err() == nil; n++ {
		c := w.at[rand.N(len(w.at))]
		id := ids[rand.N(len(ids))]
		name := fmt.Sprintf("%s-%d", w.name, n)
		code := ""
		if rand.N(2) == 0 {
			code = w.codes[rand.N(len(w.codes))] // one of few, so that codes pass from one record to another
		}
		rec, err := c.Get(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound) && rand.N(4) == 0:
			// A batch whose second record is refused, because the first has the same code.
			a, b := &piece{Meta: store.Meta{ID: id}, Name: name, Code: "pair-" + name}, &piece{Name: name, Code: "pair-" + name}
			err := c.Insert(ctx, a, b)
			if err == nil {
				panic("two records have one code")
			}
			w.noteOutcome(id, text(a), err)
			w.noteOutcome(b.ID, text(b), err)
		case errors.Is(err, store.ErrNotFound):
			rec = &piece{Meta: store.Meta{ID: id}, Name: name, Code: code}
			w.noteOutcome(id, text(rec), c.Insert(ctx, rec))
		case err != nil:
		case rand.N(4) == 0:
			w.noteOutcome(id, "", c.Delete(ctx, rec))
		default:
			rec.Name, rec.Code = name, code
			w.noteOutcome(id, text(rec), c.Replace(ctx, rec))
		}
		time.Sleep(rand.N(6 * time.Millisecond))
	}
}

// TestRandomMoves moves organizations back and forth while two replicas insert, change and delete records, and while
// the engines are down, slow, or lose answers. Moves are interrupted at any moment, resumed by any replica, and rolled
// back. At the end, only what was acknowledged, or tried since, may be stored.
func TestRandomMoves(t *testing.T) {
	t.Parallel()
	const organizations, writers, records = 4, 3, 12
	f := newFleet(t)
	replicas := []*replica{f.start(t, "first", "second"), f.start(t, "first", "second")}
	stop, cancel := context.WithTimeout(t.Context(), 4*time.Second) // CI runs it four times
	defer cancel()
	var all sync.WaitGroup
	var moved, undone, failed atomic.Int64
	var every [organizations][]*writer
	for o := range organizations {
		slug := fmt.Sprint("org-", o)
		if _, err := replicas[0].directory.Create(t.Context(), tenants.NewOrganization{Slug: slug, Name: slug}); err != nil {
			t.Fatal(err)
		}
		for i := range writers {
			w := &writer{name: fmt.Sprintf("%d-%d", o, i), outcomes: map[string]*outcome{}}
			for _, r := range replicas {
				w.at = append(w.at, r.open(t, slug))
			}
			for k := range w.codes {
				w.codes[k] = fmt.Sprintf("code-%s-%d", w.name, k)
			}
			var ids []string
			for k := range records {
				ids = append(ids, fmt.Sprintf("%024x", i*records+k+1))
			}
			every[o] = append(every[o], w)
			all.Go(func() { w.run(stop, ids) })
		}
		all.Go(func() { moveAtRandom(stop, replicas, slug, &moved, &undone, &failed) })
	}
	for _, e := range []*faultyEngine{f.control, f.first, f.second} {
		all.Go(func() { e.failAtRandom(stop) })
	}
	all.Wait()
	t.Logf("%d moves, %d undone, %d cut off", moved.Load(), undone.Load(), failed.Load())
	last := f.start(t, "first", "second")
	for o, ws := range every {
		slug := fmt.Sprint("org-", o)
		for range 2 { // to the other backend and back
			settleMove(t, last.directory, slug)
		}
		compare(t, last.open(t, slug), slug, ws)
	}
}

func (s *faultyEngine) failAtRandom(ctx context.Context) {
	defer s.now.Store(int32(healthy))
	for ctx.Err() == nil {
		s.now.Store(int32(healthy))
		nap(ctx, rand.N(3*time.Second))
		s.now.Store(rand.N(int32(late)) + 1)
		nap(ctx, rand.N(250*time.Millisecond))
	}
}

func nap(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// moveAtRandom acts as an operator who cuts commands off, starts a command while another one runs, and uses any
// replica.
func moveAtRandom(ctx context.Context, replicas []*replica, slug string, moved, undone, failed *atomic.Int64) {
	var forgotten sync.WaitGroup
	defer forgotten.Wait()
	for ctx.Err() == nil {
		d := replicas[rand.N(len(replicas))].directory
		t, err := d.BySlug(ctx, slug)
		if err != nil {
			nap(ctx, 20*time.Millisecond)
			continue
		}
		to := map[string]string{"first": "second", "second": "first"}[t.Org.Place]
		move := func(ctx context.Context) {
			if _, err := d.Move(ctx, slug, to, nil); err == nil {
				moved.Add(1)
			} else {
				failed.Add(1)
			}
		}
		impatient, cancel := context.WithTimeout(ctx, rand.N(3*time.Second))
		switch n := rand.N(12); {
		case t.Org.Finisher != "" && n < 10:
			_ = d.FinishMove(impatient, slug)
		case n < 6:
			move(ctx)
		case n < 9:
			move(impatient)
		case n == 9:
			forgotten.Go(func() { move(ctx) })
			nap(ctx, rand.N(2*time.Second))
		case t.Org.Move != nil && n == 10:
			if err = d.RollBackMove(impatient, slug); err == nil {
				undone.Add(1)
			}
		case n == 10:
			_ = d.FinishMove(impatient, slug)
		default:
			_ = d.BumpAccess(impatient, t.Org.OrgID)
			_ = d.Suspend(impatient, slug)
			_ = d.Resume(impatient, slug)
		}
		cancel()
		nap(ctx, rand.N(300*time.Millisecond))
	}
}

// settleMove moves an organization once, whatever its state.
func settleMove(t *testing.T, d *tenants.Directory, slug string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		o, err := d.BySlug(t.Context(), slug)
		if err == nil && o.Org.Finisher != "" {
			err = d.FinishMove(t.Context(), slug)
		}
		if err == nil {
			if _, err = d.Move(t.Context(), slug, map[string]string{"first": "second", "second": "first"}[o.Org.Place], nil); err == nil {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("without failures %s cannot be moved: %v", slug, err)
		}
	}
}

func compare(t *testing.T, c store.Collection[piece], slug string, ws []*writer) {
	t.Helper()
	stored := map[string]string{}
	err := c.Each(t.Context(), store.Filter{}, store.Either, func(p *piece) error {
		if stored[p.ID] != "" {
			t.Errorf("%s: %s is stored twice", slug, p.ID)
		}
		stored[p.ID] = text(p)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	acks := 0
	for _, w := range ws {
		acks += w.acks
		for _, id := range slices.Sorted(maps.Keys(w.outcomes)) {
			b := w.outcomes[id]
			if got := stored[id]; got != b.acknowledged && !slices.Contains(b.tried, got) {
				t.Errorf("%s %s: stored %q, acknowledged %q, tried since %s", slug, id, got, b.acknowledged,
					strings.Join(b.tried, " "))
			}
			delete(stored, id)
		}
	}
	if len(stored) > 0 {
		t.Errorf("%s: stored but never written: %v", slug, stored)
	}
	t.Logf("%s: %d acknowledged writes", slug, acks)
	if acks == 0 {
		t.Errorf("%s: no write was acknowledged", slug)
	}
}
