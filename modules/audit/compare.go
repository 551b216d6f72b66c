package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// errForeignHead: the earlier head of a comparison is not one of this log.
var errForeignHead = errors.New("the earlier head cannot be compared")

// Comparison says whether the records of a log, its tree and its heads agree.
type Comparison struct {
	Intact   bool        `json:"intact"`
	Agrees   bool        `json:"agrees"`            // the stored tree is that of its last head
	Extends  *bool       `json:"extends,omitempty"` // it continues the earlier head; nil: none was given
	Records  int64       `json:"records"`           // compared with their leaves
	Inserted int64       `json:"inserted"`          // records that should have a leaf, and have none
	Size     int64       `json:"size"`              // of the last head
	Earlier  int64       `json:"earlier"`           // size of the earlier head; 0: none was given
	What     string      `json:"what"`              // how the tree differs from a head; empty: it does not
	Faults   []LeafFault `json:"faults"`            // at most 100
}

// Replaced reports whether the log is whole in itself, but does not continue the earlier head, as after the restoration
// of a backup.
func (c *Comparison) Replaced() bool {
	return c.Agrees && c.Extends != nil && !*c.Extends && len(c.Faults) == 0
}

// LeafFault is a record that differs from its leaf.
type LeafFault struct {
	Index  int64  `json:"index"` // of the leaf; -1: there is none
	Record string `json:"record"`
	What   string `json:"what"` // removed, changed or inserted
}

// Compare reads the whole tree, compares every record with its leaf, and the tree with its last head and, unless that is
// "", with an earlier one. A record without a leaf was inserted past the gateway if it is older than those that can still
// arrive. progress is told how many records have been compared. What differs is answered. Errors: a
// head that this installation did not sign for this log; store.ErrUnavailable; those of the installation's data keys.
func (h *Heads) Compare(
	ctx context.Context, t *tenants.Tenant, earlier string, progress func(records int64),
) (Comparison, error) {
	out := Comparison{Faults: []LeafFault{}}
	keys, err := h.keysOf(ctx, t)
	if err != nil {
		return out, err
	}
	var before tlog.Tree
	if earlier != "" {
		if before, _, err = openHead(earlier, h.origin(t), keys); err != nil {
			return out, errors.Join(errForeignHead, err)
		}
	}
	last, err := h.last(ctx, t, keys)
	if err != nil {
		return out, err
	}
	out.Size, out.Earlier = last.tree.N, before.N
	extends := before.N == 0
	if earlier != "" {
		out.Extends = &extends
	}
	var sum frontier
	var end, late position // of the last leaf, and of the last record that was looked for a second time
	for sum.size < last.tree.N {
		tile := tlog.Tile{H: tileHeight, N: sum.size / tileWidth, W: tileWidth}
		stored := h.log.tree.open(t.Workspace())
		if err := stored.load(ctx, []tlog.Tile{tile}); err != nil {
			return out, err
		}
		leaves := stored.leaves[tile.N]
		width := int(min(tileWidth, last.tree.N-sum.size))
		if len(leaves.Records) < width || len(leaves.Hashes) < width*tlog.HashSize {
			out.What = fmt.Sprintf("leaves from %d on are missing from the stored tree, which has %d by its last head",
				sum.size+int64(len(leaves.Records)), last.tree.N)
			return out, nil
		}
		if err := h.compareTile(ctx, t, leaves, width, &out); err != nil {
			return out, err
		}
		for i := range width {
			sum.add(tlog.Hash(leaves.Hashes[i*tlog.HashSize:]))
			if sum.size == before.N {
				extends = sum.root() == before.Hash
			}
		}
		end, late = position{leaves.Until, leaves.Records[width-1]}, position{leaves.Late, leaves.LateID}
		progress(out.Records)
	}
	if err := h.findInserted(ctx, t.Workspace(), late, &out); err != nil {
		return out, err
	}
	out.Agrees = last.tree.N == 0 || sum.root() == last.tree.Hash
	switch {
	case last.tree.N < before.N && last.tree.N == 0:
		out.What = fmt.Sprintf("the earlier head has %d records, and there is no head now", before.N)
	case last.tree.N < before.N:
		out.What = fmt.Sprintf("the earlier head has %d records and the last one %d: those after record %s are gone",
			before.N, last.tree.N, end.id)
	case !extends:
		out.What = fmt.Sprintf("the first %d records are not those of the earlier head", before.N)
	case !out.Agrees:
		out.What = "the stored tree is not that of its last head"
	}
	out.Intact = out.What == "" && len(out.Faults) == 0
	return out, nil
}

// Check compares the last head of a log with the stored tree, without reading the records. It returns the size of the
// tree and when the head was signed; zeros if there is none. Errors: if the stored tree is not that of the head;
// if the head is not one that this installation signed for this log; store.ErrUnavailable; those of the installation's
// data keys.
func (h *Heads) Check(ctx context.Context, t *tenants.Tenant) (size int64, at time.Time, err error) {
	keys, err := h.keysOf(ctx, t)
	if err != nil {
		return 0, time.Time{}, err
	}
	last, err := h.last(ctx, t, keys)
	if err != nil || last.tree.N == 0 {
		return 0, time.Time{}, err
	}
	if _, _, err := h.log.tree.open(t.Workspace()).extends(ctx, last.tree.N, last.tree); err != nil {
		return 0, time.Time{}, fmt.Errorf("the tree of the audit log: %w", err)
	}
	return last.tree.N, time.UnixMilli(last.UpdatedAt), nil
}

// compareTile compares the records of a tile with its leaves.
func (h *Heads) compareTile(ctx context.Context, t *tenants.Tenant, tile *leafTile, width int, out *Comparison) error {
	found, err := h.log.kind.In(t.Workspace()).Find(ctx, store.Query{
		Filter: store.In("id", tile.Records[:width]...), LeaveOut: true,
	})
	if err != nil {
		return err
	}
	records := map[string]*Record{}
	for i := range found {
		records[found[i].ID] = &found[i]
	}
	for i, id := range tile.Records[:width] {
		what := "removed"
		if rec := records[id]; rec != nil {
			hash, err := rec.leafHash()
			if err != nil {
				return err
			}
			what = "changed"
			if hash == tlog.Hash(tile.Hashes[i*tlog.HashSize:]) {
				what = ""
			}
		}
		if what != "" && len(out.Faults) < mostFaults {
			out.Faults = append(out.Faults, LeafFault{tile.Number*tileWidth + int64(i), id, what})
		}
		out.Records++
	}
	return nil
}

// findInserted notes the records up to a position that have no leaf. All that the gateway wrote have one by then.
func (h *Heads) findInserted(ctx context.Context, ws *store.Workspace, upTo position, out *Comparison) error {
	for from, more := (position{}), true; more; {
		page, err := h.log.following(ctx, ws, from, upTo.at+1)
		if err != nil || len(page) == 0 {
			return err
		}
		more = len(page) == perPage
		g := &growth{tiles: h.log.tree.open(ws)} // for this page: the whole tree may not fit into memory
		have, err := g.have(ctx, page[0].CreatedAt, page[len(page)-1].CreatedAt)
		if err != nil {
			return err
		}
		for i := range page {
			rec := &page[i]
			if from = (position{rec.CreatedAt, rec.ID}); from.after(upTo) {
				return nil
			}
			if have[rec.ID] {
				continue
			}
			index, err := g.find(ctx, rec) // it may have arrived late
			if err != nil {
				return err
			}
			if index >= 0 {
				continue
			}
			if out.Inserted++; len(out.Faults) < mostFaults {
				out.Faults = append(out.Faults, LeafFault{-1, rec.ID, "inserted"})
			}
		}
	}
	return nil
}

// frontier is what is needed of a tree to compute its root while leaves are added: the roots of its full subtrees.
type frontier struct {
	size  int64
	roots []tlog.Hash // from the largest subtree to the smallest
}

func (f *frontier) add(hash tlog.Hash) {
	for n := f.size; n&1 == 1; n >>= 1 {
		last := len(f.roots) - 1
		hash, f.roots = tlog.NodeHash(f.roots[last], hash), f.roots[:last]
	}
	f.roots = append(f.roots, hash)
	f.size++
}

// root returns the hash of the tree, which must have a leaf.
func (f *frontier) root() tlog.Hash {
	hash := f.roots[len(f.roots)-1]
	for i := len(f.roots) - 2; i >= 0; i-- {
		hash = tlog.NodeHash(f.roots[i], hash)
	}
	return hash
}

// IsForeignHead reports whether an error of Compare says that the earlier head is not one of this log.
func IsForeignHead(err error) bool { return errors.Is(err, errForeignHead) }
