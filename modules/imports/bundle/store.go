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

// maxPending bounds the records that wait in memory for records that they refer to, and pendingMemory their bytes.
// Further ones are read again later.
const maxPending, pendingMemory = 10_000, 8 << 20

// parallel is how many batches are stored at a time: some are encoded while another is written, and SQLite stores
// waiting ones in one commit.
const parallel = 8

// flightMemory bounds the memory of all batches being stored, except for a single larger one.
const flightMemory = 12 << 20

// minBatch is the smallest number of records that are stored together if the store is slow.
const minBatch = 50

// storer stores the good lines, each after those that it refers to.
type storer struct {
	*importer
	fresh      queue              // to be compared
	ready      queue              // to be stored
	inReady    map[int32]bool     // lines in ready
	pending    map[int32][]*entry // by the line they wait for
	held       int                // entries in pending
	pendingUse int64              // memory of the entries in pending
	reread     bool               // some lines must be read again
	force      bool               // do not wait for references: reports may refer to each other in a circle

	batchLimit     atomic.Int64 // largest number of new records that are stored together
	inFlight       int
	inFlightMemory int64 // memory of the batches in flight
	landed         chan flight
	failure        error
}

// flight is a batch that is being stored.
type flight struct {
	memory int64
	kind   *kind
	batch  []*entry
	stored int // how many of the batch, from its beginning
	err    error
}

// store stores the lines that check has accepted.
func (im *importer) store(ctx context.Context) error {
	s := &storer{
		importer: im, fresh: queue{of: map[string][]*entry{}}, ready: queue{of: map[string][]*entry{}},
		inReady: map[int32]bool{}, pending: map[int32][]*entry{}, landed: make(chan flight, parallel),
	}
	s.batchLimit.Store(batchSize)
	for _, c := range im.tally.kinds {
		c.Created, c.Updated, c.Removed = 0, 0, 0 // limitedReader again when they are stored
	}
	defer func() { _ = s.bumpAccess(ctx) }() // also after a panic
	var err error
	if im.mirror != nil {
		err = im.release(ctx)
	}
	if err == nil {
		err = s.storeAll(ctx)
	}
	for s.inFlight > 0 { // also after a failure, to count what is stored
		err = cmp.Or(err, s.land(ctx))
	}
	err = cmp.Or(err, s.failure, s.bumpAccess(ctx))
	if err == nil && im.mirror != nil && im.tally.report().Failed == 0 {
		err = im.remove(ctx)
		err = cmp.Or(err, s.bumpAccess(ctx))
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

// confirmAccess returns an error if the import may no longer store records.
func (s *session) confirmAccess(ctx context.Context) error {
	if s.allowed == nil {
		return nil
	}
	return s.allowed(ctx)
}

// bumpAccess invalidates cached identities if rights were changed, or are already as the file says: an interrupted
// import may have stored them without invalidating. It does so even if the context is canceled, because the rights are
// stored.
func (s *storer) bumpAccess(ctx context.Context) error {
	if !s.rightsChanged {
		return nil
	}
	err := s.deps.Directory.BumpAccess(context.WithoutCancel(ctx), s.tenant.Org.OrgID)
	s.rightsChanged = err != nil
	return err
}

func (s *storer) storeAll(ctx context.Context) error {
	for i, e := range s.definitions {
		if i > 0 && s.definitions[i-1].kind != e.kind { // later kinds refer to earlier ones
			if err := s.drain(ctx); err != nil {
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
	if err := s.drain(ctx); err != nil {
		return err
	}
	if err := s.bumpAccess(ctx); err != nil { // before the other lines, which may take long
		return err
	}
	for first := true; first || s.reread; first = false {
		s.reread = false
		before := s.done.count
		if err := s.sweep(ctx, first); err != nil {
			return err
		}
		if s.done.count == before && (s.held > 0 || s.reread) {
			s.force, s.reread = true, true
		}
		clear(s.pending)
		s.reread = s.reread || s.held > 0
		s.held, s.pendingUse = 0, 0
		if !s.reread {
			return nil
		}
	}
	return nil
}

// sweep reads the file and stores every line whose references are stored.
func (s *storer) sweep(ctx context.Context, first bool) error {
	if s.bad.count+s.done.count >= s.tally.report().Lines && (s.opt.Bad == nil || s.bad.count == 0) {
		return nil // every line is done
	}
	// The reader runs ahead on another goroutine, so it gets copies of sets that change.
	bad, done := s.bad.clone(), s.done.clone()
	err := s.pump(ctx, s.feed, PhaseStoring, func(line int) interest {
		switch {
		case bad.has(line) && first && s.opt.Bad != nil:
			return report
		case bad.has(line), done.has(line):
			return skip
		}
		return decode
	}, func(c *chunk) error {
		for _, l := range c.skipped {
			if _, err := s.opt.Bad.Write(s.feed.Original(l)); err != nil {
				return fmt.Errorf("write a bad line: %w", err)
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
	return s.drain(ctx)
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
		if err := s.compareFresh(ctx, k.Name); err != nil {
			return err
		}
	}
	return nil
}

// compareFresh compares the waiting lines of a kind again and queues them.
func (s *storer) compareFresh(ctx context.Context, name string) error {
	for batch := range slices.Chunk(s.fresh.take(name), compareSize) {
		if err := s.named[name].compare(ctx, s.session, batch); err != nil {
			return err
		}
		for _, e := range batch {
			if err := s.enqueue(ctx, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// enqueue queues an entry to be stored, or lets it wait for the records that it refers to.
func (s *storer) enqueue(ctx context.Context, e *entry) error {
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
		if s.held >= maxPending || s.pendingUse >= pendingMemory {
			s.reread = true
			return nil
		}
		s.pending[on] = append(s.pending[on], e)
		s.held++
		s.pendingUse += e.size
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

// takeWaiting returns the lines that wait for a line, and removes them from pending.
func (s *storer) takeWaiting(line int) []*entry {
	waiting := s.pending[int32(line)]
	delete(s.pending, int32(line))
	s.held -= len(waiting)
	for _, e := range waiting {
		s.pendingUse -= e.size
	}
	return waiting
}

// waitsFor reports whether a line must be stored before the entry, and which.
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

// flush stores the queued lines of a kind: new records in the background, changed ones at once.
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
		for s.inFlight >= parallel || s.inFlight > 0 && s.inFlightMemory+memory > flightMemory {
			if err := s.land(ctx); err != nil {
				return err
			}
		}
		s.inFlight++
		s.inFlightMemory += memory
		insert := func() {
			f := flight{memory: memory, kind: kind, batch: fresh}
			f.err = background.Try(func() error { return s.insert(ctx, &f) })
			s.landed <- f
		}
		if kind.Definition {
			insert()
		} else {
			go insert() // landed has room for all batches in flight
		}
	}
	for len(fresh) < len(batch) && s.inFlight > 0 { // changed records may refer to new ones
		if err := s.land(ctx); err != nil {
			return err
		}
	}
	for _, e := range batch {
		if e.change == update {
			if err := s.countResult(ctx, e, kind.replace(ctx, s.session, e)); err != nil {
				return err
			}
		}
	}
	return nil
}

// insert stores new records, as many at once as one write should. If the store cannot store so many in the time of a
// write, for example on a slow disk, it stores fewer at once from then on.
func (s *storer) insert(ctx context.Context, f *flight) error {
	for f.stored < len(f.batch) {
		part := f.batch[f.stored:]
		part = f.kind.portion(s.session, part[:min(len(part), int(s.batchLimit.Load()))])
		err := f.kind.insert(ctx, s.session, part)
		switch fewer := max(int64(len(part)/2), minBatch); {
		case err == nil:
			f.stored += len(part)
		case len(part) <= minBatch || !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrSlow) || ctx.Err() != nil:
			return err
		default:
			s.batchLimit.Store(fewer)
		}
	}
	return nil
}

// land waits for a batch in flight.
func (s *storer) land(ctx context.Context) error {
	f := <-s.landed
	s.inFlight--
	s.inFlightMemory -= f.memory
	for _, e := range f.batch[:f.stored] {
		if err := s.countResult(ctx, e, nil); err != nil {
			return err
		}
	}
	f.batch = f.batch[f.stored:]
	var dup *store.DuplicateError
	switch {
	case f.err == nil:
		return nil
	case !errors.As(f.err, &dup):
		if errors.Is(f.err, store.ErrConflict) { // a conflict of new records is due to changed definitions
			f.err = errDefinitions
		}
		if s.failure == nil {
			s.failure = f.err
		}
		return f.err
	}
	// Others have stored some of these records meanwhile.
	s.isEmpty[f.kind.Name] = false
	for _, e := range f.batch {
		e.change, e.old = undecided, nil
	}
	for part := range slices.Chunk(f.batch, compareSize) {
		if err := s.storeEach(ctx, f.kind, part); err != nil {
			return err
		}
	}
	return nil
}

// storeEach stores lines one by one, because others have stored some of the records meanwhile.
func (s *storer) storeEach(ctx context.Context, kind *kind, batch []*entry) error {
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
		if err := s.countResult(ctx, e, err); err != nil {
			return err
		}
	}
	return nil
}

// countResult counts an entry that was stored, or could not be stored because of err.
func (s *storer) countResult(ctx context.Context, e *entry, err error) error {
	var dup *store.DuplicateError
	var invalid *fault.Error
	switch {
	case errors.As(err, &dup):
		for _, f := range dup.Fields {
			e.errs.Add(f, "duplicate", "another %s of the organization now has the same %s", e.kind.Name, f)
		}
		s.failed(e)
		return nil
	case errors.As(err, &invalid):
		e.errs = append(e.errs, invalid.Faults...)
		s.failed(e)
		return nil
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrNotFound):
		s.fail(e, "line", "the record or its definition was changed at the same time")
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

// finish notes that the entry is stored, and queues the lines that waited for it.
func (s *storer) finish(ctx context.Context, e *entry) error {
	s.done.add(e.line)
	s.mirror.mark(e.kind.Name, e.id)
	if e.kind.Definition { // later lines are checked against the stored definition, and require it unchanged
		s.view.Learn(e.kind.Resource, cmp.Or(e.old, e.rec), "")
	}
	for _, w := range s.takeWaiting(e.line) {
		if err := s.enqueue(ctx, w); err != nil {
			return err
		}
	}
	return nil
}

func (s *storer) fail(e *entry, field, message string) {
	e.errs.Add(field, "conflict", "%s", message)
	s.failed(e)
}

// failed counts an entry that could not be stored, and the lines that wait for it.
func (s *storer) failed(e *entry) {
	if s.bad.has(e.line) {
		return
	}
	name := e.name()
	s.bad.add(e.line)
	if e.rev != nil && s.failure == nil { // later lines were checked against it
		s.failure = errDefinitions
	}
	s.tally.of(name).Failed++
	s.tally.problem(e.line, name, e.errs)
	if s.opt.Bad != nil && e.raw.Number > 0 {
		if _, err := s.opt.Bad.Write(s.feed.Original(e.raw)); err != nil && s.failure == nil {
			s.failure = fmt.Errorf("write a bad line: %w", err)
		}
	}
	for _, w := range s.takeWaiting(e.line) {
		w.errs = append(w.errs, fault.Fault{
			Field: "line", Code: "unknown",
			Message: fmt.Sprintf("it refers to line %d, which could not be stored", e.line),
		})
		s.failed(w)
	}
}

// drain stores everything that can be stored now.
func (s *storer) drain(ctx context.Context) error {
	for {
		for _, k := range s.kinds {
			if err := s.compareFresh(ctx, k.Name); err != nil {
				return err
			}
		}
		for _, k := range s.kinds {
			if err := s.flush(ctx, k.Name); err != nil {
				return err
			}
		}
		for s.inFlight > 0 {
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
