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

// ErrNotWhole refuses a mirror of a bundle that is not of a whole organization.
var ErrNotWhole = errors.New("nothing was imported: the bundle has no organization line, so it is not a whole export, and a mirror would remove everything it lacks; import it without --mirror")

// ErrNoAdministrator refuses a mirror that would leave an organization without one.
var ErrNoAdministrator = errors.New("nothing was imported: the bundle has no active administrator, so nobody could sign in to the organization afterwards; add one to the bundle, or import it without --mirror")

// ErrPartial refuses a mirror that would leave out lines: what they are would be removed.
var ErrPartial = errors.New("a mirror cannot skip invalid lines")

// mirror is what an import that makes an organization what its bundle says knows of the organization: the identifiers
// of what it had when the import began, and which of those are a line's.
type mirror struct {
	of map[string]*had // by kind
	// checking: nothing is stored yet, so that a unique value which another record has can be freed before.
	checking bool
	freed    map[reference]uint64 // records whose unique values lines are to have; bit n: the n-th of the kind
}

// had are the records that an organization had of a kind.
type had struct {
	ids  []key // in order
	said lineSet
}

func (h *had) find(id string) (int, bool) {
	if h == nil || id == "" {
		return 0, false
	}
	return slices.BinarySearchFunc(h.ids, keyOf(id), func(a, b key) int { return bytes.Compare(a[:], b[:]) })
}

// going calls visit with the identifiers of records that no line is, some at a time.
func (h *had) going(visit func(ids []string) error) error {
	var ids []string
	for n, id := range h.ids {
		if !h.said.has(n) {
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

// count returns how many records no line is.
func (h *had) count() int { return len(h.ids) - h.said.count }

// begin notes what the organization has. Errors: ErrTooMany, store.ErrUnavailable.
func (m *mirror) begin(ctx context.Context, s *session) error {
	m.of = map[string]*had{}
	for _, k := range s.kinds {
		h := &had{}
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
		h.said = lineSet{}
	}
	m.freed = map[reference]uint64{}
}

// say notes that a line is the record.
func (m *mirror) say(kind, id string) {
	if m == nil {
		return
	}
	if n, there := m.of[kind].find(id); there {
		m.of[kind].said.add(n)
	}
}

// said reports whether a line is the record.
func (m *mirror) said(kind, id string) bool {
	n, there := m.of[kind].find(id)
	return there && m.of[kind].said.has(n)
}

// free reports whether the record's n-th unique value can be had by a line that is another record, since it either goes
// or is itself a line's, which has another value. It notes that.
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
		err := h.going(func(ids []string) error {
			if len(im.tally.removed) == maxRemovals {
				return errEnough
			}
			return k.Records.Each(ctx, im.workspace(k.Resource), store.In("id", ids...), func(rec any) error {
				if len(im.tally.removed) < maxRemovals {
					im.tally.removed = append(im.tally.removed, Removal{k.Name, k.shown(rec), k.called(rec)})
				}
				return nil
			})
		})
		if err != nil && !errors.Is(err, errEnough) {
			return fmt.Errorf("reading what would be removed: %w", err)
		}
	}
	return nil
}

var errEnough = errors.New("enough was read")

// shown returns by what a bundle names a record.
func (k *kind) shown(rec any) string {
	if k.travels() || k.Single {
		return k.Meta(rec).ID
	}
	return k.Identity(rec)
}

// called returns what people call a record, "" where it has no such name.
func (k *kind) called(rec any) string {
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

// release takes from records the unique values that lines are to have. Those records go, or get the values of their
// lines.
func (im *importer) release(ctx context.Context) error {
	of := map[string][]string{}
	for r := range im.mirror.freed {
		of[r.target] = append(of[r.target], r.id)
	}
	for _, k := range im.kinds {
		slices.Sort(of[k.Name])
		for ids := range slices.Chunk(of[k.Name], compareSize) {
			err := k.Records.Each(ctx, im.workspace(k.Resource), store.In("id", ids...), func(rec any) error {
				if err := im.mayStore(ctx); err != nil {
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
				return fmt.Errorf("taking unique values from records of kind %s: %w", k.Name, err)
			}
		}
	}
	return nil
}

// remove ends what no line is, each kind before those that it refers to.
func (im *importer) remove(ctx context.Context) error {
	im.meter.start(PhaseRemoving, 0)
	defer im.meter.end()
	done := 0
	for _, k := range slices.Backward(im.kinds) {
		err := im.mirror.of[k.Name].going(func(ids []string) error {
			if err := errors.Join(im.goOn(ctx), im.mayStore(ctx)); err != nil {
				return err
			}
			im.rightsChanged = im.rightsChanged || k.Rights
			if err := k.end(ctx, im.session, ids); err != nil {
				if _, is := errors.AsType[*fault.Error](err); is { // something stands on it that was made meanwhile
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

// end ends records for good, as operations do where they can. Those that are gone already are passed over.
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
