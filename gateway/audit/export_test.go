package audit

import (
	"context"

	"tenantry/backends/api"
	"tenantry/backends/store"
	"tenantry/tenants"
)

// Records are those of an organization, as somebody has them who writes to the database.
func (l *Log) Records(ws *store.Workspace) store.Collection[Record] { return l.kind.In(ws) }

// StoredSeal is what is kept of a seal.
type StoredSeal = seal

// Stored are the seals of an organization.
func (s *Seals) Stored(ws *store.Workspace) store.Collection[StoredSeal] { return s.kind.In(ws) }

// Verify is the operation.
func (s *Seals) Verify(ctx context.Context, t *tenants.Tenant, after int64) (Verification, error) {
	return s.verify(ctx, &api.Call{Tenant: t, Workspace: t.Workspace()}, asked{After: after})
}

// Compare sets how many records a call compares.
func (s *Seals) Compare(most int) { s.most = most }

// SealRecords is after how many another seal begins.
const SealRecords = sealRecords
