package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/driver"
)

// restoreLift is how much the revisions of restored documents are raised for each restoration of their organization. No
// record changes so often between two of them, so that none gets a revision again that it had with other content.
const restoreLift = 1 << 20

// fillPasses bounds the passes over a backup until the copy is the same. The second finds that it is, unless documents
// have changed their unique values among themselves.
const fillPasses = 5

// Restoring says which documents of an organization are restored.
type Restoring struct {
	// Then is the organization's workspace in an opened backup, which belongs to another Store and does not change.
	Then *Workspace
	// Without are the kinds that are not taken from it.
	Without []string
	// Number counts the restorations of the organization, from 1.
	Number int64
	// Alter, if set, returns the body that a document is restored with.
	Alter func(kind, id string, body []byte) ([]byte, error)
}

// NewFiller returns a Mover for Fill, which copies the documents of a backup to a new place of an organization. Nothing
// else may use that place, other than a Mover of the kinds that are left out. Errors: as NewMover.
func (s *Store) NewFiller(ctx context.Context, org int64, owner, to string, r Restoring) (*Mover, error) {
	m := &Mover{
		store: s, kinds: s.kinds, apart: true, lift: r.Number * restoreLift, alter: r.Alter, copied: map[string][sha256.Size]byte{},
	}
	m.Omit(r.Without...)
	var err error
	if m.from, err = r.Then.reader(ctx); err != nil {
		return nil, err
	}
	backend, workspace := placeOf(org, to)
	m.to, err = s.openAnew(ctx, backend, s.opening(workspace, owner), true)
	return m, err
}

// Omit leaves kinds out of what is copied.
func (m *Mover) Omit(kinds ...string) {
	m.kinds = slices.DeleteFunc(slices.Clone(m.kinds), func(s *Spec) bool { return slices.Contains(kinds, s.Name) })
}

// Only leaves out all other kinds.
func (m *Mover) Only(kinds ...string) {
	m.kinds = slices.DeleteFunc(slices.Clone(m.kinds), func(s *Spec) bool { return !slices.Contains(kinds, s.Name) })
}

// Fill makes the new place the same as the backup and returns a Sum for each kind, over the documents as they are
// stored there. Errors: ErrDiffers, *UnreadableError, ErrUnavailable.
func (m *Mover) Fill(ctx context.Context) ([]Sum, error) {
	for range fillPasses {
		changed, equal, err := m.Copy(ctx)
		if err != nil {
			return nil, err
		}
		if changed == 0 {
			return equal, nil
		}
	}
	return nil, fmt.Errorf("%w after %d passes over the backup", ErrDiffers, fillPasses)
}

// Difference is what a restoration would change about one document. Was is nil if it would return, Becomes is nil if it
// would be removed. Both are JSON objects.
type Difference struct {
	Kind, ID     string
	Was, Becomes []byte
}

// Compare calls visit with every document in which an organization differs from a backup, but not with those that only
// have another revision. Errors: *UnreadableError, ErrUnavailable, those of visit.
func (s *Store) Compare(ctx context.Context, now *Workspace, r Restoring, visit func(Difference) error) error {
	from, err := r.Then.reader(ctx)
	if err != nil {
		return err
	}
	to, err := now.reader(ctx)
	if err != nil {
		return err
	}
	m := &Mover{store: s, kinds: s.kinds, from: from, to: to, apart: true, alter: r.Alter}
	m.Omit(r.Without...)
	for _, spec := range m.kinds {
		p := &pass{mover: m, spec: spec, equal: digest{sum: sha256.New()}, differ: func(was, becomes *driver.Document) error {
			switch {
			case was == nil:
				return visit(Difference{Kind: spec.Name, ID: becomes.ID, Becomes: becomes.Body})
			case becomes == nil:
				return visit(Difference{Kind: spec.Name, ID: was.ID, Was: was.Body})
			case bytes.Equal(was.Body, becomes.Body) && bytes.Equal(was.Custom, becomes.Custom):
				return nil
			}
			return visit(Difference{spec.Name, was.ID, was.Body, becomes.Body})
		}}
		if err := p.run(ctx); err != nil {
			return fmt.Errorf("comparing %s: %w", spec.Name, err)
		}
	}
	return nil
}

// StageParts stages, in a batch of the control workspace, that an organization's records of these kinds become those
// of a backup: the records of the same organization there. alter, if set, returns the body to be stored instead, or
// nil to leave the record as it is now. Records that only exist now are deleted, except if keep is set. Errors:
// ErrUnavailable, *UnreadableError, those of alter.
func (w *Workspace) StageParts(
	ctx context.Context, b *Batch, r Restoring, keep bool, kinds []string,
	alter func(kind string, then, now []byte) ([]byte, error),
) error {
	for _, spec := range w.store.controlKinds {
		if !spec.Partition || !slices.Contains(kinds, spec.Name) {
			continue
		}
		then, err := r.Then.parts(ctx, spec)
		if err != nil {
			return err
		}
		now, err := w.parts(ctx, spec)
		if err != nil {
			return err
		}
		if err := stageParts(b, spec, then, now, keep, r.Number*restoreLift, alter); err != nil {
			return fmt.Errorf("restoring %s: %w", spec.Name, err)
		}
	}
	return nil
}

// raise gives documents of a backup the revision and the body that they are restored with.
func (m *Mover) raise(kind string, docs []driver.Document) (err error) {
	for i := range docs {
		docs[i].Rev += m.lift
		if m.alter != nil && err == nil {
			docs[i].Body, err = m.alter(kind, docs[i].ID, docs[i].Body)
		}
	}
	return err
}

func stageParts(
	b *Batch, spec *Spec, then, now map[string]driver.Document, keep bool, lift int64,
	alter func(kind string, then, now []byte) ([]byte, error),
) error {
	var deletes, puts []driver.Write
	for id, doc := range now {
		if _, is := then[id]; !is && !keep {
			doc.Body, doc.Custom = nil, nil
			deletes = append(deletes, driver.Write{Collection: spec.collection, Op: driver.Delete, Doc: doc})
		}
	}
	for id, doc := range then {
		doc.Rev += lift
		if alter != nil {
			body, err := alter(spec.Name, doc.Body, now[id].Body)
			if err != nil {
				return err
			}
			if body == nil {
				continue
			}
			doc.Body = body
		}
		var err error
		if doc.Values, err = spec.values(doc); err != nil {
			return &UnreadableError{Kind: spec.Name, ID: id, Reason: reason(err)}
		}
		puts = append(puts, driver.Write{Collection: spec.collection, Op: driver.Put, Doc: doc})
	}
	byID := func(a, b driver.Write) int { return strings.Compare(a.Doc.ID, b.Doc.ID) }
	slices.SortFunc(deletes, byID)
	slices.SortFunc(puts, byID)
	writes := append(deletes, puts...) // so that unique values are free
	return b.stage(nil, spec, writes, make([]*Meta, len(writes)), nil)
}

// parts reads the documents of a kind in an organization's partition, by their stored identifier.
func (w *Workspace) parts(ctx context.Context, spec *Spec) (map[string]driver.Document, error) {
	prefix := partition(w.partition).prefix()
	if w.home != nil || w.partition == 0 {
		return nil, errors.New("store: not a partition of the control workspace")
	}
	all := map[string]driver.Document{}
	for after := prefix; ; {
		docs, more, err := readPart(ctx, w.control, spec.collection, afterID(after))
		if err == nil {
			err = checkReadable(spec, docs)
		}
		if err != nil {
			return nil, err
		}
		for _, doc := range docs {
			if after = doc.ID; !strings.HasPrefix(doc.ID, prefix) {
				return all, nil
			}
			all[doc.ID] = doc
		}
		if !more {
			return all, nil
		}
	}
}

// note calls differ if it is set.
func (p *pass) note(was, becomes *driver.Document) error {
	if p.differ == nil {
		return nil
	}
	return p.differ(was, becomes)
}
