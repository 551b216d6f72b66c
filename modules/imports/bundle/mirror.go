package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// ErrNotWhole refuses a mirror of a bundle that is not an export of a whole organization.
var ErrNotWhole = errors.New("nothing was imported: the bundle has no organization line, so it is not a whole " +
	"export, and a mirror would remove everything it lacks; import it without --mirror")

// ErrNoAdministrator refuses a mirror that would leave an organization without one.
var ErrNoAdministrator = errors.New("nothing was imported: the bundle has no active administrator, so nobody could " +
	"sign in to the organization afterwards; add one to the bundle, or import it without --mirror")

// ErrPartial refuses a mirror with Partial, because the records of skipped lines would be removed.
var ErrPartial = errors.New("a mirror cannot skip invalid lines")

// mirror is the state of an import that makes an organization equal to its bundle: the identifiers of the records that
// existed when the import began, and which of these have a line.
type mirror struct {
	of map[string]*inventory // by kind
	// checking: nothing is stored yet, so a unique value of another record can still be freed.
	checking bool
	freed    map[reference]uint64 // records whose unique values lines need; bit n: the n-th of the kind
}

// inventory is the records of a kind that an organization had.
type inventory struct {
	ids    []key // sorted
	marked lineSet
}

func (h *inventory) find(id string) (int, bool) {
	if h == nil || id == "" {
		return 0, false
	}
	return slices.BinarySearchFunc(h.ids, keyOf(id), func(a, b key) int { return bytes.Compare(a[:], b[:]) })
}

// unmatched calls visit with the identifiers of records without a line, in batches.
func (h *inventory) unmatched(visit func(ids []string) error) error {
	var ids []string
	for n, id := range h.ids {
		if !h.marked.has(n) {
			ids = append(ids, id.id())
		}
		if len(ids) == compareSize || len(ids) > 0 && n == len(h.ids)-1 {
			if err := visit(ids); err != nil {
				return err
			}
			ids = ids[:0]
		}
	}
	return nil
}

// count returns the number of records without a line.
func (h *inventory) count() int { return len(h.ids) - h.marked.count }

// begin reads the identifiers of the organization's records. Errors: ErrTooMany, store.ErrUnavailable.
func (m *mirror) begin(ctx context.Context, s *session) error {
	m.of = map[string]*inventory{}
	for _, k := range s.kinds {
		h := &inventory{}
		m.of[k.Name] = h
		if k.Records.Spec() == nil {
			continue
		}
		err := k.Records.Each(ctx, s.workspace(k.Resource), store.Filter{}, func(rec any) error {
			h.ids = append(h.ids, keyOf(k.Meta(rec).ID))
			return s.remember(int64(len(key{})))
		})
		if err != nil {
			return err
		}
		slices.SortFunc(h.ids, func(a, b key) int { return bytes.Compare(a[:], b[:]) })
	}
	s.prepared = s.remembered
	m.reset()
	return nil
}

func (m *mirror) reset() {
	if m == nil {
		return
	}
	for _, h := range m.of {
		h.marked = lineSet{}
	}
	m.freed = map[reference]uint64{}
}

// mark notes that the record has a line.
func (m *mirror) mark(kind, id string) {
	if m == nil {
		return
	}
	if n, there := m.of[kind].find(id); there {
		m.of[kind].marked.add(n)
	}
}

// marked reports whether the record has a line.
func (m *mirror) marked(kind, id string) bool {
	n, there := m.of[kind].find(id)
	return there && m.of[kind].marked.has(n)
}

// free reports whether the n-th unique value of the record can be given to another line, because the record will be
// removed or get another value from its own line. It notes that the value must be freed.
func (m *mirror) free(s *session, k *kind, rec any, n int) bool {
	if m == nil || !m.checking {
		return false
	}
	id := k.Meta(rec).ID
	if _, there := m.of[k.Name].find(id); !there {
		return false
	}
	if m.freed[reference{k.Name, id}] == 0 {
		s.remembered += aliasMemory
	}
	m.freed[reference{k.Name, id}] |= 1 << n
	return true
}

// list notes what would be removed. Error: store.ErrUnavailable.
func (im *importer) list(ctx context.Context) error {
	for _, k := range slices.Backward(im.kinds) {
		h := im.mirror.of[k.Name]
		if h.count() == 0 {
			continue
		}
		im.tally.of(k.Name).Removed = h.count()
		err := h.unmatched(func(ids []string) error {
			if len(im.tally.removed) == maxRemovals {
				return errEnough
			}
			return k.Records.Each(ctx, im.workspace(k.Resource), store.In("id", ids...), func(rec any) error {
				if len(im.tally.removed) < maxRemovals {
					im.tally.removed = append(im.tally.removed, Removal{k.Name, k.bundleID(rec), k.displayName(rec)})
				}
				return nil
			})
		})
		if err != nil && !errors.Is(err, errEnough) {
			return fmt.Errorf("read the records that would be removed: %w", err)
		}
	}
	return nil
}

var errEnough = errors.New("enough was read")

// bundleID returns how a bundle identifies a record.
func (k *kind) bundleID(rec any) string {
	if k.travels() || k.Single {
		return k.Meta(rec).ID
	}
	return k.Identity(rec)
}

// displayName returns the name of a record for people; "" if it has none.
func (k *kind) displayName(rec any) string {
	text := func(name string) string {
		if n, ok := k.Index(name); ok && k.Fields[n].Type.Kind() == reflect.String {
			return k.Text(rec, name)
		}
		return ""
	}
	for _, names := range [...][2]string{{"label"}, {"title"}, {"filename"}, {"name"}, {"first_name", "last_name"}, {"email"}, {"external_id"}} {
		if name := strings.TrimSpace(text(names[0]) + " " + text(names[1])); name != "" {
			return texts.Clip(name)
		}
	}
	return ""
}

// release frees the unique values that lines need. The records that had them are removed later, or get the values of
// their lines.
func (im *importer) release(ctx context.Context) error {
	of := map[string][]string{}
	for r := range im.mirror.freed {
		of[r.target] = append(of[r.target], r.id)
	}
	for _, k := range im.kinds {
		slices.Sort(of[k.Name])
		for ids := range slices.Chunk(of[k.Name], compareSize) {
			err := k.Records.Each(ctx, im.workspace(k.Resource), store.In("id", ids...), func(rec any) error {
				if err := im.confirmAccess(ctx); err != nil {
					return err
				}
				for n := range k.Uniques {
					if im.mirror.freed[reference{k.Name, k.Meta(rec).ID}]&(1<<n) != 0 {
						k.Uniques[n].Free(rec)
					}
				}
				return k.Records.Replace(ctx, im.workspace(k.Resource), store.Preconditions{}, rec, nil)
			})
			if err != nil {
				return fmt.Errorf("free unique values of records of kind %s: %w", k.Name, err)
			}
		}
	}
	return nil
}

// remove deletes all records without a line for good, each kind before those that it refers to.
func (im *importer) remove(ctx context.Context) error {
	im.meter.start(PhaseRemoving, 0)
	defer im.meter.end()
	done := 0
	for _, k := range slices.Backward(im.kinds) {
		err := im.mirror.of[k.Name].unmatched(func(ids []string) error {
			if err := errors.Join(im.waitTurn(ctx), im.confirmAccess(ctx)); err != nil {
				return err
			}
			im.rightsChanged = im.rightsChanged || k.Rights
			if err := k.end(ctx, im.session, ids); err != nil {
				if _, is := errors.AsType[*fault.Error](err); is { // records that were created meanwhile depend on it
					err = errors.New(err.Error())
				}
				return fmt.Errorf("remove records of kind %s that the bundle lacks: %w", k.Name, err)
			}
			im.tally.of(k.Name).Removed += len(ids)
			done += len(ids)
			im.meter.at(0, done)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// end deletes records for good, by their operations if there are any. Records that no longer exist are skipped.
func (k *kind) end(ctx context.Context, s *session, ids []string) error {
	if s.deps.End != nil {
		if done, err := s.deps.End(ctx, s.tenant, k.Name, ids); done || err != nil {
			return err
		}
	}
	return k.Records.Each(ctx, s.workspace(k.Resource), store.In("id", ids...), func(rec any) error {
		remove := func() error { return k.Records.Delete(ctx, s.workspace(k.Resource), rec) }
		if k.leave != nil {
			return k.leave(ctx, s, rec, remove)
		}
		return remove()
	})
}
