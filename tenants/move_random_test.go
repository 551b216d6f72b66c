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

// weather is what happens to the calls of an engine.
type weather int32

const (
	fair weather = iota
	down         // nothing gets through
	deaf         // a write is done, but its answer is lost
	slow         // everything takes a while
	late         // a write is done after its deadline, and acknowledged
)

// stormy is an engine whose calls meet with weather.
type stormy struct {
	driver.Engine
	now atomic.Int32
	// on, when set, decides about writes.
	on atomic.Pointer[func([]driver.Write) weather]
	// opening, when set, is called when a workspace is opened.
	opening atomic.Pointer[func()]
	elected atomic.Pointer[time.Time]
}

// Elected implements driver.Elector.
func (s *stormy) Elected() time.Time {
	if at := s.elected.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

var errStorm = fmt.Errorf("%w: a storm", driver.ErrUnavailable)

func (s *stormy) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	if weather(s.now.Load()) == down {
		return nil, errStorm
	}
	if opening := s.opening.Load(); opening != nil {
		(*opening)()
	}
	w, err := s.Engine.Open(ctx, o)
	return &stormySpace{w, s}, err
}

type stormySpace struct {
	driver.Workspace
	engine *stormy
}

func (s *stormySpace) before(ctx context.Context) error {
	switch weather(s.engine.now.Load()) {
	case down:
		return errStorm
	case slow:
		select {
		case <-time.After(rand.N(quick.Copying / 2)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (s *stormySpace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	if err := s.before(ctx); err != nil {
		return nil, err
	}
	return s.Workspace.Find(ctx, q)
}

func (s *stormySpace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	if err := s.before(ctx); err != nil {
		return 0, err
	}
	return s.Workspace.Count(ctx, c, where)
}

func (s *stormySpace) Write(ctx context.Context, writes []driver.Write) error {
	if err := s.before(ctx); err != nil {
		return err
	}
	now := weather(s.engine.now.Load())
	if on := s.engine.on.Load(); on != nil {
		now = (*on)(writes)
	}
	switch now {
	case down:
		return errStorm
	case deaf:
		if err := s.Workspace.Write(ctx, writes); err != nil {
			return err
		}
		return errStorm
	case late:
		if k := writes[0].Op; k == driver.Insert || k == driver.Replace { // no mover writes these to a copy
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

// replica is a process of its own on shared engines.
type replica struct {
	directory *tenants.Directory
	pieces    *store.Kind[piece]
}

type fleet struct {
	control, first, second *stormy
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
		control: &stormy{Engine: enginetest.OpenSQLite(t, t.TempDir())},
		first:   &stormy{Engine: enginetest.Open(t)}, second: &stormy{Engine: enginetest.OpenSQLite(t, t.TempDir())},
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

// belief is what may be stored under an id: what was acknowledged last, or what was tried
// since and neither acknowledged nor refused. Empty: nothing is stored.
type belief struct {
	acknowledged string
	tried        []string
}

// writer changes records that nobody else changes, and remembers what came of it.
type writer struct {
	name     string
	at       []store.Collection[piece] // on every replica
	believes map[string]*belief
	codes    [4]string
	acks     int
}

func text(p *piece) string { return p.Name + "/" + p.Code }

// came notes the outcome of a write that was to leave this under an id.
func (w *writer) came(id, text string, err error) {
	b := w.believes[id]
	if b == nil {
		b = &belief{}
		w.believes[id] = b
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
			code = w.codes[rand.N(len(w.codes))] // of few: they go from one record to another
		}
		rec, err := c.Get(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound) && rand.N(4) == 0:
			// A batch whose second record is refused, wherever the first already has the code.
			a, b := &piece{Meta: store.Meta{ID: id}, Name: name, Code: "pair-" + name}, &piece{Name: name, Code: "pair-" + name}
			err := c.Insert(ctx, a, b)
			if err == nil {
				panic("two records have one code")
			}
			w.came(id, text(a), err)
			w.came(b.ID, text(b), err)
		case errors.Is(err, store.ErrNotFound):
			rec = &piece{Meta: store.Meta{ID: id}, Name: name, Code: code}
			w.came(id, text(rec), c.Insert(ctx, rec))
		case err != nil:
		case rand.N(4) == 0:
			w.came(id, "", c.Delete(ctx, rec))
		default:
			rec.Name, rec.Code = name, code
			w.came(id, text(rec), c.Replace(ctx, rec))
		}
		time.Sleep(rand.N(6 * time.Millisecond))
	}
}

// TestRandomMoves moves organizations to and fro while records are inserted, changed and
// deleted through two replicas, and while the engines are away, slow, or lose answers. Moves
// are cut off at any moment, resumed by whoever comes, and rolled back. At the end there is
// nothing but what was acknowledged, or was tried since.
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
			w := &writer{name: fmt.Sprintf("%d-%d", o, i), believes: map[string]*belief{}}
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
	for _, e := range []*stormy{f.control, f.first, f.second} {
		all.Go(func() { e.storm(stop) })
	}
	all.Wait()
	t.Logf("%d moves, %d undone, %d cut off", moved.Load(), undone.Load(), failed.Load())
	last := f.start(t, "first", "second")
	for o, ws := range every {
		slug := fmt.Sprint("org-", o)
		for range 2 { // there and back
			settleMove(t, last.directory, slug)
		}
		compare(t, last.open(t, slug), slug, ws)
	}
}

func (s *stormy) storm(ctx context.Context) {
	defer s.now.Store(int32(fair))
	for ctx.Err() == nil {
		s.now.Store(int32(fair))
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

// moveAtRandom is an operator who loses patience, now and then forgets what goes on already,
// and does not care which replica is asked.
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
		to := map[string]string{"first": "second", "second": "first"}[t.Org.Backend]
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

// settleMove moves an organization once, whatever was going on.
func settleMove(t *testing.T, d *tenants.Directory, slug string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		o, err := d.BySlug(t.Context(), slug)
		if err == nil && o.Org.Finisher != "" {
			err = d.FinishMove(t.Context(), slug)
		}
		if err == nil {
			if _, err = d.Move(t.Context(), slug, map[string]string{"first": "second", "second": "first"}[o.Org.Backend], nil); err == nil {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("in fair weather %s cannot be moved: %v", slug, err)
		}
	}
}

func compare(t *testing.T, c store.Collection[piece], slug string, ws []*writer) {
	t.Helper()
	stored := map[string]string{}
	err := c.Each(t.Context(), store.Filter{}, store.Either, func(p *piece) error {
		if stored[p.ID] != "" {
			t.Errorf("%s: %s is there twice", slug, p.ID)
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
		for _, id := range slices.Sorted(maps.Keys(w.believes)) {
			b := w.believes[id]
			if got := stored[id]; got != b.acknowledged && !slices.Contains(b.tried, got) {
				t.Errorf("%s %s: stored %q, acknowledged %q, tried since %s", slug, id, got, b.acknowledged, strings.Join(b.tried, " "))
			}
			delete(stored, id)
		}
	}
	if len(stored) > 0 {
		t.Errorf("%s: nobody wrote %v", slug, stored)
	}
	t.Logf("%s: %d acknowledged writes", slug, acks)
	if acks == 0 {
		t.Errorf("%s: no write was acknowledged", slug)
	}
}
