package audit

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"tenantry/backends/store"
	"tenantry/internal/together"
)

// The tree of a log is a Merkle tree of RFC 6962, with a leaf for each record, in tiles of 256 hashes. The tiles of the
// lowest level also name the records and say how far the log was read, so that one document says all that the next step
// must know. The tiles above follow from those below.
const (
	tileHeight = 8
	tileWidth  = 1 << tileHeight
)

// treeKinds are the kinds of records in which a tree is stored.
type treeKinds struct {
	leaves *store.Kind[leafTile]
	tiles  *store.Kind[upperTile]
	heads  *store.Kind[signedHead]
}

// newTreeKinds declares the records.
func newTreeKinds() treeKinds {
	return treeKinds{
		leaves: store.Must[leafTile](store.Spec{
			Name: "audit_leaves", Uncounted: true, Fields: []string{"number", "until", "late"},
			Indexes: []store.Index{
				{Fields: []string{"number"}, Unique: true}, {Fields: []string{"until", "number"}}, {Fields: []string{"late", "number"}},
			},
			Access: []store.Access{
				{Sort: []string{"number"}},
				{Where: []string{"until"}, Sort: []string{"until", "number"}}, {Where: []string{"late"}, Sort: []string{"late", "number"}},
			},
		}),
		tiles: store.Must[upperTile](store.Spec{Name: "audit_tiles", Uncounted: true}),
		heads: store.Must[signedHead](store.Spec{Name: "audit_heads", Uncounted: true}),
	}
}

// CopiedLast returns the names of the kinds that a copy of a log in use must have read last, in this order: what a record
// of the tree, or a head, was made of.
func CopiedLast() []string { return []string{"audit_tiles", "audit_leaves", "audit_log"} }

// leafTile is a tile of the lowest level. Its hashes and records are only added to, until it is full.
//
// Records are read from the log twice: soon after they were written, and once more when no record of that time can
// arrive any more. Until and UntilID are the position in the log of the last record of the first reading, Late and
// LateID that of the second, both as of the last leaf of the tile, so they never decrease from tile to tile.
type leafTile struct {
	store.Meta
	Number  int64    `json:"number"` // from 0
	Until   int64    `json:"until"`  // Unix ms
	UntilID string   `json:"until_id"`
	Late    int64    `json:"late"` // Unix ms
	LateID  string   `json:"late_id"`
	Records []string `json:"records"` // identifiers, one for each hash
	Hashes  []byte   `json:"hashes"`
}

// upperTile is a tile of another level. Each of its hashes is that of a full tile of the level below.
type upperTile struct {
	store.Meta
	Hashes []byte `json:"hashes"`
}

// tileID returns the identifier of the tile's record.
func tileID(level int, number int64) string { return fmt.Sprintf("%08x%016x", level+1, number) }

// position is a place in a log in the order of creation.
type position struct {
	at int64 // Unix ms
	id string
}

// after reports whether p comes after another position.
func (p position) after(other position) bool {
	return p.at > other.at || p.at == other.at && p.id > other.id
}

// tiles reads the tiles of one log, each once. Not safe for concurrent use.
type tiles struct {
	kinds  treeKinds
	ws     *store.Workspace
	leaves map[int64]*leafTile
	upper  map[string]*upperTile
}

func (k treeKinds) open(ws *store.Workspace) *tiles {
	return &tiles{kinds: k, ws: ws, leaves: map[int64]*leafTile{}, upper: map[string]*upperTile{}}
}

// errTree: the stored tree is damaged.
var errTree = errors.New("hashes of the tree are missing or were changed")

// load reads tiles. Those that are not stored have no hashes.
func (s *tiles) load(ctx context.Context, wanted []tlog.Tile) error {
	var leaves, upper []string
	for _, tile := range wanted {
		id := tileID(tile.L, tile.N)
		if tile.L > 0 && s.upper[id] == nil {
			s.upper[id] = &upperTile{Meta: store.Meta{ID: id}}
			upper = append(upper, id)
		}
		if tile.L == 0 && s.leaves[tile.N] == nil {
			s.leaves[tile.N] = &leafTile{Meta: store.Meta{ID: id}, Number: tile.N}
			leaves = append(leaves, id)
		}
	}
	var above []upperTile
	var lowest []leafTile
	var reads []func() error
	if len(upper) > 0 {
		reads = append(reads, func() (err error) {
			above, err = s.kinds.tiles.In(s.ws).Find(ctx, store.Query{Filter: store.In("id", upper...)})
			return err
		})
	}
	if len(leaves) > 0 {
		reads = append(reads, func() (err error) {
			lowest, err = s.kinds.leaves.In(s.ws).Find(ctx, store.Query{Filter: store.In("id", leaves...)})
			return err
		})
	}
	if err := together.Do(s.ws.Remote(), reads...); err != nil {
		return err
	}
	for i := range above {
		s.upper[above[i].ID] = &above[i]
	}
	for i := range lowest {
		s.leaves[lowest[i].Number] = &lowest[i]
	}
	return nil
}

// hashes returns the hashes of a tile that was loaded.
func (s *tiles) hashes(level int, number int64) []byte {
	if level == 0 {
		return s.leaves[number].Hashes
	}
	return s.upper[tileID(level, number)].Hashes
}

// reader returns the hashes of the tree. Errors: errTree, store.ErrUnavailable.
func (s *tiles) reader(ctx context.Context) tlog.HashReader {
	return tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		at := make([]tlog.Tile, len(indexes))
		for i, index := range indexes {
			at[i] = tlog.TileForIndex(tileHeight, index)
		}
		if err := s.load(ctx, at); err != nil {
			return nil, err
		}
		all := make([]tlog.Hash, len(indexes))
		for i, tile := range at {
			hash, err := tlog.HashFromTile(tile, s.hashes(tile.L, tile.N), indexes[i])
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errTree, err)
			}
			all[i] = hash
		}
		return all, nil
	})
}

// growth is what a step adds to a tree.
type growth struct {
	*tiles
	last    *leafTile   // of the tree; nil: it is empty
	changed []*leafTile // in their order
	above   []*upperTile
	size    int64
}

// grow begins a step with the tree as it is stored. Error: store.ErrUnavailable.
func (k treeKinds) grow(ctx context.Context, ws *store.Workspace) (*growth, error) {
	g := &growth{tiles: k.open(ws)}
	last, err := k.leaves.In(ws).First(ctx, store.Query{Sort: []store.Order{store.Desc("number")}})
	if errors.Is(err, store.ErrNotFound) {
		return g, nil
	}
	if err != nil {
		return nil, err
	}
	g.last, g.leaves[last.Number] = last, last
	g.size = last.Number*tileWidth + int64(len(last.Records))
	return g, nil
}

// until returns how far the log was read the first time, and late how far the second time.
func (g *growth) until() position {
	if g.last == nil {
		return position{}
	}
	return position{g.last.Until, g.last.UntilID}
}

func (g *growth) late() position {
	if g.last == nil {
		return position{}
	}
	return position{g.last.Late, g.last.LateID}
}

// touch marks the last tile as changed.
func (g *growth) touch() *leafTile {
	if n := len(g.changed); n == 0 || g.changed[n-1] != g.last {
		g.changed = append(g.changed, g.last)
	}
	return g.last
}

// add adds the leaf of a record.
func (g *growth) add(rec *Record) error {
	hash, err := rec.leafHash()
	if err != nil {
		return err
	}
	if g.last == nil || len(g.last.Records) == tileWidth {
		next := &leafTile{Number: g.size / tileWidth}
		next.ID = tileID(0, next.Number)
		if g.last != nil {
			next.Until, next.UntilID, next.Late, next.LateID = g.last.Until, g.last.UntilID, g.last.Late, g.last.LateID
		}
		g.last, g.leaves[next.Number] = next, next
	}
	tile := g.touch()
	tile.Records, tile.Hashes = append(tile.Records, rec.ID), append(tile.Hashes, hash[:]...)
	g.size++
	return nil
}

// derive adds to the tiles above what follows from the leaves, for a tree that has grown since it had the size before.
// Hashes that are there already, because an earlier step was interrupted, are kept.
func (g *growth) derive(ctx context.Context, before int64) error {
	for _, tile := range tlog.NewTiles(tileHeight, before, g.size) {
		if tile.L == 0 {
			continue
		}
		if err := g.load(ctx, []tlog.Tile{tile}); err != nil {
			return err
		}
		up := g.upper[tileID(tile.L, tile.N)]
		if len(up.Hashes) >= tile.W*tlog.HashSize {
			continue
		}
		for have := len(up.Hashes) / tlog.HashSize; have < tile.W; have++ {
			below := tlog.Tile{H: tileHeight, L: tile.L - 1, N: tile.N*tileWidth + int64(have), W: tileWidth}
			if err := g.load(ctx, []tlog.Tile{below}); err != nil {
				return err
			}
			lower := g.hashes(below.L, below.N)
			if len(lower) < tileWidth*tlog.HashSize {
				return fmt.Errorf("%w: tile %d of level %d", errTree, below.N, below.L)
			}
			var sum frontier
			for i := range tileWidth {
				sum.add(tlog.Hash(lower[i*tlog.HashSize:]))
			}
			hash := sum.root()
			up.Hashes = append(up.Hashes, hash[:]...)
		}
		g.above = append(g.above, up)
	}
	return nil
}

// errForked: the stored tree does not continue the signed head.
var errForked = errors.New("the tree does not continue its last head")

// extends returns the tree of a size, with a proof that it continues an earlier one that is not larger. Errors:
// errForked, errTree, store.ErrUnavailable.
func (s *tiles) extends(
	ctx context.Context, size int64, before tlog.Tree,
) (now tlog.Tree, proof tlog.TreeProof, err error) {
	read := s.reader(ctx)
	now.N = size
	if now.Hash, err = tlog.TreeHash(size, read); err != nil || before.N == 0 {
		return now, nil, err
	}
	if proof, err = tlog.ProveTree(size, before.N, read); err != nil {
		return now, nil, err
	}
	if err := tlog.CheckTree(proof, now.N, now.Hash, before.N, before.Hash); err != nil {
		return now, nil, fmt.Errorf("%w: %w", errForked, err)
	}
	return now, proof, nil
}

// find returns the index of a record's leaf; -1: it has none. Error: store.ErrUnavailable.
func (s *tiles) find(ctx context.Context, rec *Record) (int64, error) {
	readings := map[string]func(*leafTile) int64{
		"until": func(t *leafTile) int64 { return t.Until }, "late": func(t *leafTile) int64 { return t.Late },
	}
	for _, field := range []string{"until", "late"} {
		found := int64(-1)
		err := s.each(ctx, field, readings[field], rec.CreatedAt, rec.CreatedAt, func(tile *leafTile) bool {
			for i, id := range tile.Records {
				if id == rec.ID {
					found = tile.Number*tileWidth + int64(i)
				}
			}
			return found < 0
		})
		if err != nil || found >= 0 {
			return found, err
		}
	}
	return -1, nil
}

// eachPage is how many tiles are read at once.
const eachPage = 8

// each calls fn with the tiles in which a reading had records that were made from one time to another, both inclusive,
// in order, until it returns false. field is where tiles say how far that reading was, and read returns it.
func (s *tiles) each(
	ctx context.Context, field string, read func(*leafTile) int64, from, to int64, fn func(*leafTile) bool,
) error {
	for after := int64(-1); ; {
		page, err := s.kinds.leaves.In(s.ws).Find(ctx, store.Query{
			Filter: store.All(store.Where(store.F(field), store.OpGte, from), store.Where(store.F("number"), store.OpGt, after)),
			Sort:   []store.Order{store.Asc(field), store.Asc("number")}, Limit: eachPage,
		})
		if err != nil {
			return err
		}
		for i := range page {
			tile := &page[i]
			if s.leaves[tile.Number] == nil {
				s.leaves[tile.Number] = tile
			}
			if !fn(tile) || read(tile) > to {
				return nil
			}
		}
		if len(page) < eachPage {
			return nil
		}
		after = page[len(page)-1].Number
	}
}

// have returns the identifiers of the records that are in the tree among those made from one time to another, and of
// others. Tiles that were read already count as they are here, because another replica may have stored them so recently that
// a read finds them as they were before. Error: store.ErrUnavailable.
func (g *growth) have(ctx context.Context, from, to int64) (map[string]bool, error) {
	all := map[string]bool{}
	note := func(tile *leafTile) bool {
		for _, id := range tile.Records {
			all[id] = true
		}
		return true
	}
	for _, tile := range g.leaves {
		note(tile)
	}
	return all, g.each(ctx, "until", func(t *leafTile) int64 { return t.Until }, from, to, note)
}

// save stores what the step has added, from below to above, and the head, if given. On an engine without transactions each
// tile is a write of its own: a refused batch would be undone, although another replica may have built on it meanwhile.
// What a refused step has stored is completed by the next. Errors: store.ErrConflict, *store.DuplicateError,
// store.ErrUnavailable.
func (g *growth) save(ctx context.Context, head *signedHead) error {
	b := g.ws.Batch()
	var stage []func() error
	for _, tile := range g.changed {
		stage = append(stage, func() error { return g.kinds.leaves.In(g.ws).StageSave(ctx, b, tile) })
	}
	for _, tile := range g.above {
		stage = append(stage, func() error { return g.kinds.tiles.In(g.ws).StageSave(ctx, b, tile) })
	}
	if head != nil {
		stage = append(stage, func() error { return g.kinds.heads.In(g.ws).StageSave(ctx, b, head) })
	}
	for i, one := range stage {
		if err := one(); err != nil {
			return err
		}
		if i < len(stage)-1 && b.Atomic(g.ws) {
			continue
		}
		if err := b.Commit(ctx); err != nil {
			return err
		}
		b = g.ws.Batch()
	}
	return nil
}
