package audit

import "tenantry/backends/store"

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
