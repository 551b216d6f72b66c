package audit

import (
	"golang.org/x/mod/sumdb/tlog"

	"tenantry/backends/store"
)

// Records are those of an organization, as somebody has them who writes to the database.
func (l *Log) Records(ws *store.Workspace) store.Collection[Record] { return l.kind.In(ws) }

// StoredSeal is what is kept of a seal.
type StoredSeal = seal

// Stored are the seals of an organization.
func (s *Seals) Stored(ws *store.Workspace) store.Collection[StoredSeal] { return s.log.seals.In(ws) }

// Compare sets how many records a call compares.
func (s *Seals) Compare(most int) { s.most = most }

// SealRecords is after how many another seal begins.
const SealRecords = sealRecords

// Stored documents of a tree, as somebody has them who writes to the database.
type (
	LeafTile   = leafTile
	UpperTile  = upperTile
	SignedHead = signedHead
)

// StoredLeaves are the tiles of the lowest level of an organization's tree.
func (h *Heads) StoredLeaves(ws *store.Workspace) store.Collection[LeafTile] {
	return h.log.tree.leaves.In(ws)
}

// StoredTiles are the other tiles.
func (h *Heads) StoredTiles(ws *store.Workspace) store.Collection[UpperTile] {
	return h.log.tree.tiles.In(ws)
}

// StoredHeads has the last head.
func (h *Heads) StoredHeads(ws *store.Workspace) store.Collection[SignedHead] {
	return h.log.tree.heads.In(ws)
}

// LeafHash is the hash of a record's leaf.
func (r *Record) LeafHash() (tlog.Hash, error) { return r.leafHash() }
