package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"slices"
	"strconv"
	"time"

	"tenantry/backends/driver"
)

const (
	movePage = 500 // documents that are compared and copied at a time, within BatchBytes
	// deletePage is the number of documents that are deleted under one guard. It is small because some engines need one
	// command for each.
	deletePage = 50
)

// notesCollection returns the collection of notes, which name the documents written while an organization is copied.
func notesCollection() *driver.Collection {
	return &driver.Collection{Name: "move_notes", Uncounted: true}
}

// noted is the body of a note: identifiers of documents by collection.
type noted map[string][]string

// note returns the write of a note that names the documents which the writes change. It is stored before them, because
// a note without a change does no harm.
func (s *Store) note(writes []driver.Write) driver.Write {
	ids := noted{}
	for _, w := range writes {
		ids[w.Collection.Name] = append(ids[w.Collection.Name], w.Doc.ID)
	}
	body, err := json.Marshal(ids)
	if err != nil {
		body = []byte("{}") // names and identifiers always encode
	}
	return driver.Write{
		Collection: s.notes, Op: driver.Insert, Doc: driver.Document{ID: s.NewID(), Body: body, Values: []any{}},
	}
}

// Sum describes the documents of one kind that are the same on both sides of a move.
type Sum struct {
	Kind      string `json:"kind"`
	Documents int64  `json:"documents"`
	// Checksum is a SHA-256 over identifiers, revisions and contents, in order of identifier.
	Checksum string `json:"checksum"`
}

// Mover copies an organization's documents from one backend to another. It is not safe for concurrent use. The caller
// changes the placement, in this order:
//
//  1. Set the phase Copying, then call Copy.
//  2. Once Leases.Settled has passed since the change: Copy again, then CatchUp and Forget, as often as is useful.
//  3. Set the phase Held. Once Leases.Copying has passed since: Finish, then set the new backend.
type Mover struct {
	store    *Store
	from, to driver.Workspace
	apart    bool    // from is only read: no notes are stored
	kinds    []*Spec // what is copied
	// lift is added to the revisions of documents of from, and alter, if set, returns their body; both are for Fill.
	lift  int64
	alter func(kind, id string, body []byte) ([]byte, error)
	seen  map[string]time.Time // when each note, by id, was first read
	done  []driver.Document    // notes that need not be read again
	// copied has the checksums of the documents that notes named, as they were last copied. Notes are read several
	// times, and documents that have not changed since need not be written again.
	copied map[string][sha256.Size]byte
	// Progress, when set, is called with the number of documents of the pass that were compared so far.
	Progress func(kind string, compared, copied int64)
	// Guard, when set, is called before every write to the copy, and before notes are deleted. The write must end with
	// the context that Guard returns.
	Guard func(context.Context) (context.Context, context.CancelFunc, error)
}

// ErrDiffers: the copy is not the same as the original.
var ErrDiffers = errors.New("the copy differs from the original")

// NewMover returns a Mover. Errors: ErrUnavailable, also if a backend is not configured; ErrForeign if one side belongs
// to another owner. A workspace without an owner at the new place is taken for an earlier copy; call Prepare first to
// refuse it.
func (s *Store) NewMover(ctx context.Context, org int64, owner, from, to string) (*Mover, error) {
	m := &Mover{store: s, kinds: s.kinds, seen: map[string]time.Time{}, copied: map[string][sha256.Size]byte{}}
	var err error
	// The workspaces are opened again, because another process may have removed those that this process has open.
	backend, workspace := placeOf(org, from)
	if m.from, err = s.openAnew(ctx, backend, s.opening(workspace, owner), false); err != nil {
		return nil, err
	}
	backend, workspace = placeOf(org, to)
	m.to, err = s.openAnew(ctx, backend, s.opening(workspace, owner), true)
	return m, err
}

// barrier stores an empty note. Once it is stored, all earlier writes are completed or refused, and later reads are
// answered by a server that knows them.
func (m *Mover) barrier(ctx context.Context) error {
	if m.apart {
		return nil
	}
	return m.from.Write(ctx, []driver.Write{m.store.note(nil)})
}

// Copy compares all documents and copies those that differ. It returns how many it copied or deleted, and a Sum for
// each kind of the documents that were already the same. Error: *UnreadableError, because no document may be lost.
func (m *Mover) Copy(ctx context.Context) (changed int64, equal []Sum, err error) {
	if err := m.barrier(ctx); err != nil {
		return 0, nil, err
	}
	for _, spec := range m.kinds {
		p := &pass{mover: m, spec: spec, equal: digest{sum: sha256.New()}}
		if err := p.run(ctx); err != nil {
			return changed, nil, fmt.Errorf("copying %s: %w", spec.Name, err)
		}
		changed += p.changed
		equal = append(equal, p.equal.result(spec.Name))
	}
	if meter, ok := m.to.(driver.Meter); ok { // the usage of an earlier copy may be out of date
		if _, err := meter.Recount(ctx); err != nil {
			return changed, nil, fmt.Errorf("counting the copy: %w", err)
		}
	}
	return changed, equal, nil
}

// digest is a checksum over documents, with their number.
type digest struct {
	sum hash.Hash
	n   int64
}

func (d *digest) add(doc *driver.Document) {
	d.n++
	for _, part := range [][]byte{[]byte(doc.ID), strconv.AppendInt(nil, doc.Rev, 10), doc.Body, doc.Custom} {
		d.sum.Write(strconv.AppendInt(nil, int64(len(part)), 10))
		d.sum.Write([]byte{':'})
		d.sum.Write(part)
	}
}

func (d *digest) result(kind string) Sum {
	return Sum{Kind: kind, Documents: d.n, Checksum: hex.EncodeToString(d.sum.Sum(nil))}
}

// pass compares both sides of a kind in order of id.
type pass struct {
	mover             *Mover
	spec              *Spec
	equal             digest
	compared, changed int64
	// differ, if set, is called for each document that the copy lacks (was is nil), has otherwise, or alone has (becomes
	// is nil). Then nothing is written.
	differ func(was, becomes *driver.Document) error
	known  bool // documents that the copy lacks are left out
}

func (p *pass) run(ctx context.Context) error {
	if err := checkEnds(ctx, p.mover.from, p.spec); err != nil {
		return err
	}
	after := ""
	for {
		page, more, err := p.page(ctx, p.mover.from, after, "")
		if err != nil {
			return err
		}
		if err := p.mover.raise(p.spec.Name, page); err != nil {
			return err
		}
		last := "" // beyond every id
		if more {
			last = page[len(page)-1].ID
		}
		if err := p.align(ctx, page, after, last); err != nil {
			return err
		}
		p.compared += int64(len(page))
		if p.mover.Progress != nil {
			p.mover.Progress(p.spec.Name, p.compared, p.changed)
		}
		if last == "" {
			return nil
		}
		after = last
	}
}

// page reads documents after an id, up to another, and reports whether there may be more.
func (p *pass) page(
	ctx context.Context, ws driver.Workspace, after, last string,
) (docs []driver.Document, more bool, err error) {
	where := afterID(after)
	if last != "" {
		upTo := driver.Predicate{Op: driver.Lte, Ref: idRef(), Values: []any{last}}
		where = driver.Predicate{Op: driver.And, Kids: []driver.Predicate{where, upTo}}
	}
	docs, more, err = readPart(ctx, ws, p.spec.collection, where)
	if err == nil {
		err = checkReadable(p.spec, docs)
	}
	return docs, more, err
}

func idRef() driver.Ref { return driver.Ref{Name: "id", Type: driver.String} }

// afterID matches the documents with a greater id.
func afterID(after string) driver.Predicate {
	return driver.Predicate{Op: driver.Gt, Ref: idRef(), Values: []any{after}}
}

// readPart reads the first matching documents in order of id, at most movePage and within BatchBytes, but at least one
// if there is one. It reports whether there may be more.
func readPart(
	ctx context.Context, ws driver.Workspace, c *driver.Collection, where driver.Predicate,
) (docs []driver.Document, more bool, err error) {
	r := reading{budget: BatchBytes, keepMax: BatchBytes}
	take := func(d *driver.Document) error {
		if d == nil {
			r.restart()
			docs = nil
			return nil
		}
		keep, full := r.keep(d.Size())
		if keep {
			docs = append(docs, *d)
		}
		return full
	}
	_, err = ws.Find(ctx, driver.Query{
		Collection: c, Where: where, Sort: []driver.Order{{Ref: idRef()}}, Limit: movePage, Take: take,
	})
	if r.cut {
		err = nil // it is errFull, which take returned
	}
	return docs, r.cut || len(docs) == movePage, err
}

// align makes the copy's documents with an id above after, up to last, the same as the page.
func (p *pass) align(ctx context.Context, page []driver.Document, after, last string) error {
	var puts, deletes []driver.Document
	for {
		there, more, err := p.page(ctx, p.mover.to, after, last)
		if err != nil {
			return err
		}
		upTo := last // the last id up to which this page of the copy can be compared
		if more {
			upTo = there[len(there)-1].ID
		}
		n := len(page)
		if upTo != "" {
			n = 0
			for n < len(page) && page[n].ID <= upTo {
				n++
			}
		}
		if puts, deletes, err = p.compare(page[:n], there, puts, deletes); err != nil {
			return err
		}
		page, after = page[n:], upTo
		if upTo == last {
			break
		}
	}
	p.changed += int64(len(puts) + len(deletes))
	if p.differ != nil {
		return nil
	}
	_, err := p.mover.apply(ctx, p.spec, puts, deletes)
	return err
}

// compare appends the documents of page that the copy lacks, or has otherwise, to puts, and those that only the copy
// has to deletes.
func (p *pass) compare(
	page, there []driver.Document, puts, deletes []driver.Document,
) (_, _ []driver.Document, err error) {
	for err == nil && (len(page) > 0 || len(there) > 0) {
		switch {
		case len(there) == 0 || len(page) > 0 && page[0].ID < there[0].ID:
			if !p.known {
				puts = append(puts, page[0])
				err = p.note(nil, &page[0])
			}
			page = page[1:]
		case len(page) == 0 || there[0].ID < page[0].ID:
			deletes = append(deletes, driver.Document{ID: there[0].ID, Rev: there[0].Rev})
			err = p.note(&there[0], nil)
			there = there[1:]
		default:
			if same(&page[0], &there[0]) {
				p.equal.add(&there[0])
			} else {
				puts = append(puts, page[0])
				err = p.note(&there[0], &page[0])
			}
			page, there = page[1:], there[1:]
		}
	}
	return puts, deletes, err
}

func same(a, b *driver.Document) bool {
	return a.ID == b.ID && a.Rev == b.Rev && bytes.Equal(a.Body, b.Body) && bytes.Equal(a.Custom, b.Custom)
}

// apply writes to the copy. It returns the identifiers of documents that must be copied later.
func (m *Mover) apply(ctx context.Context, spec *Spec, puts, deletes []driver.Document) (later []string, err error) {
	if err := m.remove(ctx, spec, deletes); err != nil || len(puts) == 0 {
		return nil, err
	}
	writes := make([]driver.Write, len(puts))
	for i, doc := range puts {
		if doc.Values, err = spec.values(doc); err != nil {
			return nil, &UnreadableError{Kind: spec.Name, ID: doc.ID, Reason: reason(err)}
		}
		delete(m.copied, spec.Name+"/"+doc.ID)
		writes[i] = driver.Write{Collection: spec.collection, Op: driver.Put, Doc: doc}
	}
	for len(writes) > 0 {
		n := portion(writes)
		err := m.write(ctx, m.to, writes[:n])
		if dup := new(driver.DuplicateError); errors.As(err, &dup) {
			var some []string
			some, err = m.writeEach(ctx, writes[:n])
			later = append(later, some...)
		}
		if err != nil {
			return nil, err
		}
		writes = writes[n:]
	}
	return later, m.freeValues(ctx, spec, later)
}

// portion returns how many of the writes one batch should have, as Collection.Portion does for records.
func portion(writes []driver.Write) int {
	rows := 0
	for i := range writes {
		if rows += writes[i].Rows(); rows > MaxRows && i > 0 {
			return i
		}
	}
	return len(writes)
}

// writeEach stores writes separately after they failed together, because a unique value still belongs to another
// document of the copy that has changed as well. It returns the identifiers of those that cannot be stored yet.
func (m *Mover) writeEach(ctx context.Context, writes []driver.Write) (later []string, err error) {
	for _, w := range writes {
		err := m.write(ctx, m.to, []driver.Write{w})
		if dup := new(driver.DuplicateError); errors.As(err, &dup) {
			later = append(later, w.Doc.ID)
		} else if err != nil {
			return nil, err
		}
	}
	return later, nil
}

// freeValues removes documents from the copy, so that others can take their unique values, and leaves a note that they
// must be copied again.
func (m *Mover) freeValues(ctx context.Context, spec *Spec, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	var writes []driver.Write
	for _, id := range ids {
		writes = append(writes, driver.Write{Collection: spec.collection, Doc: driver.Document{ID: id}})
	}
	if !m.apart { // otherwise the next pass finds that they are missing
		if err := m.from.Write(ctx, []driver.Write{m.store.note(writes)}); err != nil {
			return err
		}
	}
	return m.removeIDs(ctx, spec, ids)
}

// removeIDs removes the documents with these identifiers from the copy, as far as it has them.
func (m *Mover) removeIDs(ctx context.Context, spec *Spec, ids []string) error {
	return each(ctx, m.to, spec.collection, ids, func(docs []driver.Document) error { return m.remove(ctx, spec, docs) })
}

// remove removes documents from the copy. Their revisions are current, because only the mover writes to the copy.
func (m *Mover) remove(ctx context.Context, spec *Spec, docs []driver.Document) error {
	for chunk := range slices.Chunk(docs, deletePage) {
		deletes := make([]driver.Write, len(chunk))
		for i, doc := range chunk {
			delete(m.copied, spec.Name+"/"+doc.ID)
			deletes[i] = driver.Write{
				Collection: spec.collection, Op: driver.Delete, Doc: driver.Document{ID: doc.ID, Rev: doc.Rev},
			}
		}
		if err := m.write(ctx, m.to, deletes); err != nil {
			return err
		}
	}
	return nil
}

// write stores writes on a side, if the Guard permits it.
func (m *Mover) write(ctx context.Context, side driver.Workspace, writes []driver.Write) error {
	if m.Guard != nil {
		guarded, cancel, err := m.Guard(ctx)
		if err != nil {
			return err
		}
		defer cancel()
		ctx = guarded
	}
	return writeWithin(ctx, side, writes, Quota{})
}

// each calls fn with the documents of a side that have these identifiers, part by part. Errors: *UnreadableError; those
// of fn.
func each(
	ctx context.Context, ws driver.Workspace, c *driver.Collection, ids []string, fn func([]driver.Document) error,
) error {
	for chunk := range slices.Chunk(slices.Compact(slices.Sorted(slices.Values(ids))), movePage) {
		for more := true; more && len(chunk) > 0; {
			values := make([]any, len(chunk))
			for i, id := range chunk {
				values[i] = id
			}
			var docs []driver.Document
			var err error
			where := driver.Predicate{Op: driver.In, Ref: idRef(), Values: values}
			if docs, more, err = readPart(ctx, ws, c, where); err != nil {
				return err
			}
			for i := range docs {
				if d := &docs[i]; d.Damage != nil {
					return &UnreadableError{Kind: c.Name, ID: d.ID, Reason: d.Damage.Error()}
				}
			}
			if len(docs) == 0 {
				break
			}
			if err = fn(docs); err != nil {
				return err
			}
			last := docs[len(docs)-1].ID
			chunk = slices.DeleteFunc(slices.Clone(chunk), func(id string) bool { return id <= last })
		}
	}
	return nil
}

// CatchUp copies the documents that notes name, and returns their number.
func (m *Mover) CatchUp(ctx context.Context) (documents int64, err error) {
	if err := m.barrier(ctx); err != nil {
		return 0, err
	}
	m.done = nil
	err = m.eachNotes(ctx, func(began time.Time, notes []driver.Document) error {
		changed, err := m.copyNoted(ctx, notes)
		if err != nil {
			return err
		}
		for _, ids := range changed {
			documents += int64(len(ids))
		}
		for i := range notes {
			first, ok := m.seen[notes[i].ID]
			switch {
			case !ok:
				m.seen[notes[i].ID] = began
			case began.Sub(first) > m.store.leases.Copying:
				m.done = append(m.done, notes[i])
			}
		}
		return nil
	})
	return documents, err
}

// Forget deletes the notes whose writes had ended when CatchUp copied their documents. These are the notes that were
// first read longer than a lease before.
func (m *Mover) Forget(ctx context.Context) error {
	for _, note := range m.done {
		delete(m.seen, note.ID)
	}
	err := m.deleteNotes(ctx, m.done)
	m.done = nil
	return err
}

func (m *Mover) deleteNotes(ctx context.Context, notes []driver.Document) error {
	for chunk := range slices.Chunk(notes, deletePage) {
		deletes := make([]driver.Write, len(chunk))
		for i, note := range chunk {
			deletes[i] = driver.Write{
				Collection: m.store.notes, Op: driver.Delete, Doc: driver.Document{ID: note.ID, Rev: note.Rev},
			}
		}
		if err := m.write(ctx, m.from, deletes); err != nil {
			return err
		}
	}
	return nil
}

// eachNotes calls fn with all notes, page by page, and with the time at which reading the page began.
func (m *Mover) eachNotes(ctx context.Context, fn func(time.Time, []driver.Document) error) error {
	for after := ""; ; {
		began := time.Now()
		notes, more, err := readPart(ctx, m.from, m.store.notes, afterID(after))
		if err != nil {
			return err
		}
		if len(notes) > 0 {
			after = notes[len(notes)-1].ID
			if err := fn(began, notes); err != nil {
				return err
			}
		}
		if !more {
			return nil
		}
	}
}

// copyNoted copies the documents that the notes name, and returns their identifiers.
func (m *Mover) copyNoted(ctx context.Context, notes []driver.Document) (noted, error) {
	changed := noted{}
	for i := range notes {
		var n noted
		if err := json.Unmarshal(notes[i].Body, &n); err != nil {
			return nil, fmt.Errorf("note %s is damaged: %w", notes[i].ID, err)
		}
		for kind, ids := range n {
			changed[kind] = append(changed[kind], ids...)
		}
	}
	for _, spec := range m.kinds {
		ids := changed[spec.collection.Name]
		slices.Sort(ids)
		if err := m.copyIDs(ctx, spec, slices.Compact(ids)); err != nil {
			return nil, fmt.Errorf("copying changes of %s: %w", spec.Name, err)
		}
	}
	return changed, nil
}

// copyIDs makes the copy's documents with these identifiers the same as the originals.
func (m *Mover) copyIDs(ctx context.Context, spec *Spec, ids []string) error {
	here := map[string]bool{}
	var differ []string
	if err := each(ctx, m.from, spec.collection, ids, func(docs []driver.Document) error {
		for i := range docs {
			id := docs[i].ID
			if here[id] = true; m.copied[spec.Name+"/"+id] != checksum(&docs[i]) {
				differ = append(differ, id)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return here[id] })
	// Deletions come first, because other documents may have the unique values of deleted ones now.
	if err := m.removeIDs(ctx, spec, gone); err != nil {
		return err
	}
	// The documents are read again, because not all of them can be held in memory.
	return each(ctx, m.from, spec.collection, differ, func(docs []driver.Document) error {
		later, err := m.apply(ctx, spec, docs, nil)
		if err != nil {
			return err
		}
		if len(m.copied) > maxCopied {
			clear(m.copied)
		}
		for i := range docs {
			if !slices.Contains(later, docs[i].ID) {
				m.copied[spec.Name+"/"+docs[i].ID] = checksum(&docs[i])
			}
		}
		return nil
	})
}

// maxCopied bounds the checksums that a Mover keeps.
const maxCopied = 100_000

// maxRounds bounds how often Finish reads the notes again for documents that had to be copied later.
const maxRounds = 10
