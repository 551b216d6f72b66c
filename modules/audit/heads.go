package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/tenants"
)

// Heads keeps the trees of audit logs and signs their heads. Whoever keeps a head notices if the log no longer
// continues it: records of it were changed or removed, or its end was cut off. Safe for concurrent use, by several
// replicas.
type Heads struct {
	log  *Log
	keys HeadKeys
	now  func() time.Time
}

// signedHead is the last head of a tree. There is one record of it.
type signedHead struct {
	store.Meta
	Text string `json:"text"` // a signed note

	tree   tlog.Tree
	newest bool // signed with the newest key
}

const (
	headID = "000000000000000000000001"
	// HeadGrace is how old records are when they enter the tree. Most are stored by then; the others enter it later.
	HeadGrace = 10 * time.Second
	// stepRecords bounds how many records a step reads, and so how much it stores at once.
	stepRecords = 4000
)

// NewHeads returns the Heads of all logs of the installation that keys belongs to.
func NewHeads(log *Log, keys HeadKeys, now func() time.Time) *Heads {
	return &Heads{log: log, keys: keys, now: now}
}

// Kept returns what is stored. It is not part of exports, because trees belong to the log and heads to the keys of this
// installation.
func (h *Heads) Kept() []record.Kept {
	return []record.Kept{h.log.tree.leaves, h.log.tree.tiles, h.log.tree.heads}
}

// Advance adds the records that are old enough to the tree and signs its new head, until all are in it or ctx ends.
// What an interrupted call left is completed by the next. Errors: store.ErrConflict if another replica did so at the
// same time; store.ErrUnavailable; those of the installation's data keys; that of ctx; and if the stored tree does not
// continue its last head, in which case none is signed.
func (h *Heads) Advance(ctx context.Context, t *tenants.Tenant) error {
	for more := true; more; {
		var err error
		if more, err = h.step(ctx, t); err != nil {
			if _, dup := errors.AsType[*store.DuplicateError](err); dup {
				return store.ErrConflict
			}
			return fmt.Errorf("advancing the tree of the audit log: %w", err)
		}
	}
	return nil
}

// Restart removes the tree and its head and makes them anew from the records that there are. It is for a tree that was
// damaged, or whose key is gone; earlier heads need not fit it. Errors: those of Advance.
func (h *Heads) Restart(ctx context.Context, t *tenants.Tenant) error {
	ws, kinds := t.Workspace(), h.log.tree
	for _, purge := range []func(context.Context) (int64, error){
		kinds.heads.In(ws).Purge, kinds.tiles.In(ws).Purge, kinds.leaves.In(ws).Purge,
	} {
		if _, err := purge(ctx); err != nil {
			return fmt.Errorf("removing the tree of the audit log: %w", err)
		}
	}
	return h.Advance(ctx, t)
}

// step adds a bounded number of records and signs the head. It reports whether there may be more.
func (h *Heads) step(ctx context.Context, t *tenants.Tenant) (more bool, err error) {
	ws := t.Workspace()
	keys, err := h.keysOf(ctx, t)
	if err != nil {
		return false, err
	}
	signed, err := h.last(ctx, t, keys)
	if err != nil {
		return false, err
	}
	g, err := h.log.tree.grow(ctx, ws)
	if err != nil {
		return false, err
	}
	if more, err = h.read(ctx, ws, g); err != nil {
		return false, err
	}
	if g.size < signed.tree.N {
		return false, fmt.Errorf("%w: it has %d leaves, and had %d", errForked, g.size, signed.tree.N)
	}
	if g.size > signed.tree.N || g.size > 0 && !signed.newest {
		if err := g.derive(ctx, signed.tree.N); err != nil {
			return false, err
		}
		now, _, err := g.extends(ctx, g.size, signed.tree)
		if err != nil {
			return false, err
		}
		if signed.Text, err = signHead(h.origin(t), now, keys); err != nil {
			return false, err
		}
		return more, g.save(ctx, signed)
	}
	if len(g.changed) == 0 {
		return false, nil
	}
	return more, g.save(ctx, nil)
}

// last returns the last head, or one of an empty tree if there is none. Errors: errHead, store.ErrUnavailable.
func (h *Heads) last(ctx context.Context, t *tenants.Tenant, keys []*headKey) (*signedHead, error) {
	found, err := h.log.tree.heads.In(t.Workspace()).Get(ctx, headID)
	if errors.Is(err, store.ErrNotFound) {
		return &signedHead{Meta: store.Meta{ID: headID}}, nil
	}
	if err != nil {
		return nil, err
	}
	if found.tree, found.newest, err = openHead(found.Text, h.origin(t), keys); err != nil {
		return nil, fmt.Errorf("the stored head: %w", err)
	}
	return found, nil
}

// read adds records of the log to the tree: those that were made since the last step, and those that were stored after
// records of their time had been read. It reports whether there may be more.
func (h *Heads) read(ctx context.Context, ws *store.Workspace, g *growth) (more bool, err error) {
	n := 0
	for until := h.now().Add(-HeadGrace).UnixMilli(); ; {
		page, err := h.log.following(ctx, ws, g.until(), until)
		if err != nil {
			return false, err
		}
		for i := range page {
			if err := g.add(&page[i]); err != nil {
				return false, err
			}
			g.last.Until, g.last.UntilID = page[i].CreatedAt, page[i].ID
		}
		if n += len(page); n >= stepRecords {
			return true, nil
		}
		if len(page) < perPage {
			break
		}
	}
	return h.readLate(ctx, ws, g, stepRecords-n)
}

// readLate adds the records that the first reading missed, of a time from which none can arrive any more.
func (h *Heads) readLate(ctx context.Context, ws *store.Workspace, g *growth, most int) (more bool, err error) {
	for n, until := 0, h.now().Add(-sealGrace).UnixMilli(); n < most; {
		page, err := h.log.following(ctx, ws, g.late(), until)
		if err != nil || len(page) == 0 {
			return false, err
		}
		have, err := g.have(ctx, page[0].CreatedAt, page[len(page)-1].CreatedAt)
		if err != nil {
			return false, err
		}
		first := g.until()
		for i := range page {
			rec := &page[i]
			if (position{rec.CreatedAt, rec.ID}).after(first) {
				return false, nil
			}
			if !have[rec.ID] {
				if err := g.add(rec); err != nil {
					return false, err
				}
			}
			tile := g.touch()
			tile.Late, tile.LateID = rec.CreatedAt, rec.ID
		}
		if n += len(page); len(page) < perPage {
			return false, nil
		}
	}
	return true, nil
}

// following returns records after a position that were made before a time, in their order, at most perPage. A short
// page may lack unreadable records. Error: store.ErrUnavailable.
func (l *Log) following(ctx context.Context, ws *store.Workspace, from position, until int64) ([]Record, error) {
	filter := store.All(store.Where(store.F("created_at"), store.OpGte, from.at), store.Where(store.F("created_at"), store.OpLt, until))
	if from.id != "" {
		filter = store.All(filter, store.AnyOf(
			store.Where(store.F("created_at"), store.OpGt, from.at), store.Where(store.F("id"), store.OpGt, from.id),
		))
	}
	return l.kind.In(ws).Find(ctx, store.Query{
		Filter: filter, Sort: []store.Order{store.Asc("created_at"), store.Asc("id")}, Limit: perPage, LeaveOut: true,
	})
}
