package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/internal/fault"
)

// maxPending is how many records wait in memory for others that they refer to, and pendingMemory how many bytes
// they may take. Those beyond it are read again.
const maxPending, pendingMemory = 10_000, 8 << 20

// parallel is how many batches are stored at a time: some are encoded while another is written, and SQLite writes those
// that wait by one commit.
const parallel = 8

// flightMemory is how many bytes of memory batches that are being stored may take together, save one that takes more
// alone.
const flightMemory = 12 << 20

// leastAtOnce is how few records an import still stores together where the store is slow.
const leastAtOnce = 50

// storer stores the good lines, each after those it refers to.
type storer struct {
	*importer
	fresh   queue              // to be compared
	ready   queue              // to be stored
	inReady map[int32]bool     // lines of kinds that refer to themselves, in ready
	pending map[int32][]*entry // by the line they wait for
	held    int                // entries in pending
	pended  int64              // the memory that those take
	again   bool               // some lines must be read again
	force   bool               // do not wait: reports may refer to each other in a circle

	atOnce  atomic.Int64 // how many new records are stored together, unless there are fewer
	flying  int
	aloft   int64 // the memory that those take which fly
	landed  chan flight
	failure error
}

// flight is a batch that is being stored.
type flight struct {
	memory int64
	kind   *kind
	batch  []*entry
	stored int // of the batch, the first ones
	err    error
}

// store stores what check found to be good.
func (im *importer) store(ctx context.Context) error {
	s := &storer{
		importer: im, fresh: queue{of: map[string][]*entry{}}, ready: queue{of: map[string][]*entry{}},
		inReady: map[int32]bool{}, pending: map[int32][]*entry{}, landed: make(chan flight, parallel),
	}
	s.atOnce.Store(batchSize)
	for _, c := range im.tally.kinds {
		c.Created, c.Updated, c.Removed = 0, 0, 0 // now counted as they are stored
	}
	defer func() { _ = s.announce(ctx) }() // also after a panic
	var err error
	if im.mirror != nil {
		err = im.release(ctx)
	}
	if err == nil {
		err = s.all(ctx)
	}
	for s.flying > 0 { // also after a failure: what is stored counts
		err = cmp.Or(err, s.land(ctx))
	}
	err = cmp.Or(err, s.failure, s.announce(ctx))
	if err == nil && im.mirror != nil && im.tally.report().Failed == 0 {
		err = im.remove(ctx)
		err = cmp.Or(err, s.announce(ctx))
	}
	r := im.tally.report()
	if err != nil {
		return &InterruptedError{Stored: r.Created + r.Updated + r.Unchanged, Lines: r.Lines, Err: err}
	}
	if !im.opt.Partial && r.Failed > 0 {
		return &IncompleteError{r.Failed, r.Lines}
	}
	return nil
}

// mayStore asks whether the import may still store something.
func (s *session) mayStore(ctx context.Context) error {
	if s.allowed == nil {
		return nil
	}
	return s.allowed(ctx)
}

// announce makes cached identities void where rights were changed, or are as the file says: they may have been stored
// by one who was stopped before it could announce them. They hold whatever became of the context.
func (s *storer) announce(ctx context.Context) error {
	if !s.rightsChanged {
		return nil
	}
	err := s.deps.Directory.BumpAccess(context.WithoutCancel(ctx), s.tenant.Org.OrgID)
	s.rightsChanged = err != nil
	return err
}

func (s *storer) all(ctx context.Context) error {
	for i, e := range s.definitions {
		if i > 0 && s.definitions[i-1].kind != e.kind { // later kinds refer to earlier ones
			if err := s.settle(ctx); err != nil {
				return err
			}
		}
		if s.bad.has(e.line) || s.done.has(e.line) {
			continue
		}
		if err := s.put(ctx, e); err != nil {
			return err
		}
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.announce(ctx); err != nil { // before all the others, which may take long
		return err
	}
	for first := true; first || s.again; first = false {
		s.again = false
		before := s.done.count
		if err := s.sweep(ctx, first); err != nil {
			return err
		}
		if s.done.count == before && (s.held > 0 || s.again) {
			s.force, s.again = true, true
		}
		clear(s.pending)
		s.again = s.again || s.held > 0
		s.held, s.pended = 0, 0
		if !s.again {
			return nil
		}
	}
	return nil
}

// sweep reads the file and stores every line whose references are stored.
func (s *storer) sweep(ctx context.Context, first bool) error {
	if s.bad.count+s.done.count >= s.tally.report().Lines && (s.opt.Bad == nil || s.bad.count == 0) {
		return nil // nothing is left to do
	}
	// The reader runs ahead: it must not look at sets that change meanwhile.
	bad, done := s.bad.clone(), s.done.clone()
	err := s.pump(ctx, s.feed, PhaseStoring, func(line int) interest {
		switch {
		case bad.has(line) && first && s.opt.Bad != nil:
			return shown
		case bad.has(line), done.has(line):
			return unwanted
		}
		return wanted
	}, func(c *chunk) error {
		for _, l := range c.skipped {
			if _, err := s.opt.Bad.Write(s.feed.Original(l)); err != nil {
				return fmt.Errorf("writing a bad line: %w", err)
			}
		}
		for _, e := range c.entries {
			if err := s.put(ctx, e); err != nil {
				return err
			}
		}
		return s.failure
	})
	if err != nil {
		return err
	}
	return s.settle(ctx)
}

// put takes a line that is to be stored.
func (s *storer) put(ctx context.Context, e *entry) error {
	if e.kind == nil || len(e.errs) > 0 {
		s.fail(e, "file", "the file was changed while it was imported")
		return nil
	}
	if s.opt.Bad == nil {
		e.raw = Raw{}
	}
	if e.digest != (key{}) {
		e.id = e.digest.repeat(int(s.repeats[e.line])).id()
	}
	e.change, e.old = undecided, nil
	for _, k := range s.fresh.add(e, s.kinds) {
		if err := s.sort(ctx, k.Name); err != nil {
			return err
		}
	}
	return nil
}

// sort compares the waiting lines of a kind once more and lines them up.
func (s *storer) sort(ctx context.Context, name string) error {
	for batch := range slices.Chunk(s.fresh.take(name), compareSize) {
		if err := s.named[name].compare(ctx, s.session, batch); err != nil {
			return err
		}
		for _, e := range batch {
			if err := s.line(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// line puts an entry among those that are ready, or lets it wait for what it refers to.
func (s *storer) line(ctx context.Context, e *entry) error {
	switch {
	case len(e.errs) > 0:
		s.failed(e)
		return nil
	case e.change == keep:
		s.rightsChanged = s.rightsChanged || e.kind.Rights
		s.tally.of(e.kind.Name).Unchanged++
		return s.finish(ctx, e)
	}
	if wait, on := s.waitsFor(e); wait && !s.force {
		if s.held >= maxPending || s.pended >= pendingMemory {
			s.again = true
			return nil
		}
		s.pending[on] = append(s.pending[on], e)
		s.held++
		s.pended += e.size
		return nil
	}
	s.inReady[int32(e.line)] = true
	for _, k := range s.ready.add(e, s.kinds) {
		if err := s.flush(ctx, k.Name); err != nil {
			return err
		}
	}
	return nil
}

// released returns the lines that wait for another one, which wait no more.
func (s *storer) released(line int) []*entry {
	waiting := s.pending[int32(line)]
	delete(s.pending, int32(line))
	s.held -= len(waiting)
	for _, e := range waiting {
		s.pended -= e.size
	}
	return waiting
}

// waitsFor returns a line that must be stored before the entry.
func (s *storer) waitsFor(e *entry) (bool, int32) {
	wait, on := false, int32(0)
	e.kind.references(e, func(_, target string, id *string) {
		if *id == "" || s.named[target].Definition {
			return // definitions are stored first
		}
		if line, inside := s.lineOf[target][keyOf(*id)]; inside && !s.done.has(int(line)) && line != int32(e.line) {
			if target != e.kind.Name || !s.inReady[line] {
				wait, on = true, line
			}
		}
	})
	return wait, on
}

// flush stores the ready lines of a kind: new ones beside the others' work, changed ones
// at once.
func (s *storer) flush(ctx context.Context, name string) error {
	batch := s.ready.take(name)
	if len(batch) == 0 {
		return nil
	}
	kind := s.named[name]
	var fresh []*entry
	memory := int64(0)
	for _, e := range batch {
		delete(s.inReady, int32(e.line))
		if e.change == create {
			fresh = append(fresh, e)
			memory += e.size
		}
	}
	if len(fresh) > 0 {
		for s.flying >= parallel || s.flying > 0 && s.aloft+memory > flightMemory {
			if err := s.land(ctx); err != nil {
				return err
			}
		}
		s.flying++
		s.aloft += memory
		insert := func() {
			f := flight{memory: memory, kind: kind, batch: fresh}
			f.err = background.Try(func() error { return s.insert(ctx, &f) })
			s.landed <- f
		}
		if kind.Definition {
			insert()
		} else {
			go insert() // landed has room for every one that flies
		}
	}
	for len(fresh) < len(batch) && s.flying > 0 { // changed records may refer to new ones
		if err := s.land(ctx); err != nil {
			return err
		}
	}
	for _, e := range batch {
		if e.change == update {
			if err := s.one(ctx, e, kind.replace(ctx, s.session, e)); err != nil {
				return err
			}
		}
	}
	return nil
}

// insert stores new records, as many together as one write should; fewer together from now on where the store could not
// take so many, as a slow disk cannot within the time that a write has.
func (s *storer) insert(ctx context.Context, f *flight) error {
	for f.stored < len(f.batch) {
		part := f.batch[f.stored:]
		part = f.kind.portion(s.session, part[:min(len(part), int(s.atOnce.Load()))])
		err := f.kind.insert(ctx, s.session, part)
		switch fewer := max(int64(len(part)/2), leastAtOnce); {
		case err == nil:
			f.stored += len(part)
		case len(part) <= leastAtOnce || !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrSlow) || ctx.Err() != nil:
			return err
		default:
			s.atOnce.Store(fewer)
		}
	}
	return nil
}

// land waits for a batch that is being stored.
func (s *storer) land(ctx context.Context) error {
	f := <-s.landed
	s.flying--
	s.aloft -= f.memory
	for _, e := range f.batch[:f.stored] {
		if err := s.one(ctx, e, nil); err != nil {
			return err
		}
	}
	f.batch = f.batch[f.stored:]
	var dup *store.DuplicateError
	switch {
	case f.err == nil:
		return nil
	case !errors.As(f.err, &dup):
		if errors.Is(f.err, store.ErrConflict) { // of new records only what they stand on can have changed
			f.err = errMoved
		}
		if s.failure == nil {
			s.failure = f.err
		}
		return f.err
	}
	// Somebody else stored some of these meanwhile.
	s.isEmpty[f.kind.Name] = false
	for _, e := range f.batch {
		e.change, e.old = undecided, nil
	}
	for part := range slices.Chunk(f.batch, compareSize) {
		if err := s.anew(ctx, f.kind, part); err != nil {
			return err
		}
	}
	return nil
}

// anew stores lines one by one, of which others stored some meanwhile.
func (s *storer) anew(ctx context.Context, kind *kind, batch []*entry) error {
	if err := kind.compare(ctx, s.session, batch); err != nil {
		return err
	}
	for _, e := range batch {
		var err error
		switch {
		case len(e.errs) > 0:
			s.failed(e)
			continue
		case e.change == create:
			err = kind.insert(ctx, s.session, []*entry{e})
		case e.change == update:
			err = kind.replace(ctx, s.session, e)
		}
		if err := s.one(ctx, e, err); err != nil {
			return err
		}
	}
	return nil
}

// one counts an entry that was stored, or could not be.
func (s *storer) one(ctx context.Context, e *entry, err error) error {
	var dup *store.DuplicateError
	var invalid *fault.Error
	switch {
	case errors.As(err, &dup):
		for _, f := range dup.Fields {
			e.errs.Add(f, "duplicate", "another %s of the organization has the same %s by now", e.kind.Name, f)
		}
		s.failed(e)
		return nil
	case errors.As(err, &invalid):
		e.errs = append(e.errs, invalid.Faults...)
		s.failed(e)
		return nil
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		s.fail(e, "line", "the record, or what it is defined by, was changed by somebody else at the same moment")
		return nil
	case err != nil:
		return err
	}
	c := s.tally.of(e.kind.Name)
	switch e.change {
	case create:
		c.Created++
	case update:
		c.Updated++
	default:
		c.Unchanged++
	}
	return s.finish(ctx, e)
}

// finish lets go on what waited for the entry.
func (s *storer) finish(ctx context.Context, e *entry) error {
	s.done.add(e.line)
	s.mirror.say(e.kind.Name, e.id)
	if e.kind.Definition { // what follows is checked against it, and stands on it, as it is stored now
		s.view.Learn(e.kind.Resource, cmp.Or(e.old, e.rec), "")
	}
	for _, w := range s.released(e.line) {
		if err := s.line(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (s *storer) fail(e *entry, field, message string) {
	e.errs.Add(field, "conflict", "%s", message)
	s.failed(e)
}

// failed counts an entry that could not be stored, and those that refer to it.
func (s *storer) failed(e *entry) {
	if s.bad.has(e.line) {
		return
	}
	name := e.name()
	s.bad.add(e.line)
	if e.rev != nil && s.failure == nil { // what follows was checked against it
		s.failure = errMoved
	}
	s.tally.of(name).Failed++
	s.tally.problem(e.line, name, e.errs)
	if s.opt.Bad != nil && e.raw.Number > 0 {
		if _, err := s.opt.Bad.Write(s.feed.Original(e.raw)); err != nil && s.failure == nil {
			s.failure = fmt.Errorf("writing a bad line: %w", err)
		}
	}
	for _, w := range s.released(e.line) {
		w.errs = append(w.errs, fault.Fault{Field: "line", Code: "unknown", Message: fmt.Sprintf("it refers to line %d, which could not be stored", e.line)})
		s.failed(w)
	}
}

// settle stores everything that can be stored now.
func (s *storer) settle(ctx context.Context) error {
	for {
		for _, k := range s.kinds {
			if err := s.sort(ctx, k.Name); err != nil {
				return err
			}
		}
		for _, k := range s.kinds {
			if err := s.flush(ctx, k.Name); err != nil {
				return err
			}
		}
		for s.flying > 0 {
			if err := s.land(ctx); err != nil {
				return err
			}
		}
		busy := false
		for _, k := range s.kinds {
			busy = busy || len(s.ready.of[k.Name])+len(s.fresh.of[k.Name]) > 0
		}
		if !busy {
			return s.failure
		}
	}
}
