package store

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"time"

	"tenantry/backends/driver"
)

// checksum returns the checksum of a document.
func checksum(doc *driver.Document) (sum [sha256.Size]byte) {
	d := digest{sum: sha256.New()}
	d.add(doc)
	d.sum.Sum(sum[:0])
	return sum
}

// Finish copies the last changes and compares both sides. Writes must have been held for at least Leases.Copying.
// Error: ErrDiffers if the sides are not the same afterwards.
func (m *Mover) Finish(ctx context.Context) error {
	if err := m.barrier(ctx); err != nil {
		return err
	}
	done, changed := map[string]bool{}, noted{}
	for round := 0; ; round++ {
		before := len(done)
		err := m.eachNotes(ctx, func(_ time.Time, notes []driver.Document) error {
			notes = slices.DeleteFunc(notes, func(d driver.Document) bool { return done[d.ID] })
			for i := range notes {
				done[notes[i].ID] = true
			}
			these, err := m.copyNoted(ctx, notes)
			for kind, ids := range these {
				changed[kind] = append(changed[kind], ids...)
			}
			return err
		})
		if err != nil {
			return err
		}
		if len(done) == before {
			break
		}
		if round == maxRounds {
			return fmt.Errorf("%w: changes remained to be copied after %d rounds", ErrDiffers, maxRounds)
		}
	}
	return m.check(ctx, changed)
}

// check compares the number of documents of each kind, and the documents that changed last.
func (m *Mover) check(ctx context.Context, changed noted) error {
	for _, spec := range m.kinds {
		here, err := m.from.Count(ctx, spec.collection, driver.Predicate{})
		if err != nil {
			return err
		}
		there, err := m.to.Count(ctx, spec.collection, driver.Predicate{})
		if err != nil {
			return err
		}
		if here != there {
			return fmt.Errorf("%w: the copy has %d %s, the original %d", ErrDiffers, there, spec.Name, here)
		}
		if err := m.checkIDs(ctx, spec, changed[spec.collection.Name]); err != nil {
			return err
		}
	}
	return nil
}

// checkIDs compares the documents with these identifiers on both sides.
func (m *Mover) checkIDs(ctx context.Context, spec *Spec, ids []string) error {
	alike := map[string]bool{}
	err := each(ctx, m.from, spec.collection, ids, func(here []driver.Document) error {
		originals := map[string][sha256.Size]byte{}
		for i := range here {
			originals[here[i].ID] = checksum(&here[i])
		}
		err := each(ctx, m.to, spec.collection, slices.Collect(maps.Keys(originals)), func(there []driver.Document) error {
			for i := range there {
				alike[there[i].ID] = originals[there[i].ID] == checksum(&there[i])
			}
			return nil
		})
		for id := range originals {
			if err == nil && !alike[id] {
				err = fmt.Errorf("%w: %s %s", ErrDiffers, spec.Name, id)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	gone := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return alike[id] })
	return each(ctx, m.to, spec.collection, gone, func(left []driver.Document) error {
		return fmt.Errorf("%w: the copy still has %s %s", ErrDiffers, spec.Name, left[0].ID)
	})
}

// Clean deletes the notes of an abandoned move.
func (m *Mover) Clean(ctx context.Context) error {
	return m.eachNotes(ctx, func(_ time.Time, notes []driver.Document) error { return m.deleteNotes(ctx, notes) })
}
