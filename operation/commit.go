package operation

import (
	"context"

	"tenantry/backends/record"
	"tenantry/backends/store"
)

// Journal adds the records of the pipeline to the last batch of a call: the audit record and, for a request with an
// Idempotency-Key, the answer for repetitions. The pipeline sets it; see Call.Journal.
type Journal func(ctx context.Context, b *store.Batch, answer Result) error

// Commit stores the last batch of a call and returns the answer, which is made of the records as they are about to be
// stored. The audit record and the answer for repetitions are part of the commit if the engine has transactions and
// the batch is of the organization's documents; otherwise the pipeline stores them afterwards. Errors: those of answer
// and of store.Batch.Commit; nothing is stored then. See also Call.Discard.
func (c *Call) Commit(
	ctx context.Context, b *store.Batch, answer func(context.Context) (Result, error),
) (Result, error) {
	if c.Discard {
		defer b.Discard()
		if err := b.Room(ctx); err != nil {
			return Result{}, err
		}
		return answer(ctx)
	}

	result, err := answer(ctx)
	journaled := c.Journal != nil && b.Atomic(c.Tenant.Workspace())
	if err == nil && journaled {
		err = c.Journal(ctx, b, result)
	}
	if err != nil {
		b.Discard()
		return Result{}, err
	}
	if err = b.Commit(ctx); err != nil {
		return Result{}, err
	}
	c.journaled = c.journaled || journaled
	return result, nil
}

// Journaled reports whether a commit has stored the journal of the call.
func (c *Call) Journaled() bool { return c.journaled }

// Claim binds the call to a claim until release is called. The first commit through the workspaces of the call also
// stores the claim.
func (c *Call) Claim(claim *store.Claim) (release func()) {
	tenant, ws := c.Tenant, c.Workspace
	bind := func(ws *store.Workspace) *store.Workspace { return ws.Claimed(claim) }
	c.claim, c.Tenant, c.Workspace = claim, tenant.Through(bind), bind(ws)
	return func() { c.claim, c.Tenant, c.Workspace = nil, tenant, ws }
}

// Begin stores the claim that the call is bound to, if any. It is called before a write that does not go through the
// workspaces of the call.
func (c *Call) Begin(ctx context.Context) error {
	if c.claim == nil {
		return nil
	}
	return c.claim.Begin(ctx)
}

// beyondQuota gives a call that frees room workspaces without quotas.
func (c *Call) beyondQuota() {
	if c.Workspace != nil {
		c.Tenant, c.Workspace = c.Tenant.Through((*store.Workspace).BeyondQuota), c.Workspace.BeyondQuota()
	}
}

// Forget drops the cached definitions before an attempt that reads them again.
func (c *Call) Forget() { c.Known = record.Known{} }
