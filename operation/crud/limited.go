package crud

import (
	"context"
	"net/http"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/operation"
)

// othersDepend is the message of a refusal by RefuseLimited. It reveals nothing else about the other teams.
const othersDepend = operation.NotLimited + ": records of other teams depend on it"

// RefuseLimited refuses a caller who is limited to teams if records that the caller does not see depend on what the
// change alters; see record.DependedOn. rec is nil if the record is purged, was if it is new. Adding optional fields
// to a definition is always allowed. It is called before a change and again after it is stored, because dependents may
// have been stored meanwhile; from then on they cannot be. Errors: a 403, store.ErrUnavailable.
func RefuseLimited(ctx context.Context, c *operation.Call, of *record.Resource, rec, was any) error {
	scope := c.Principal.Scope(c.Tenant, nil)
	if scope.All || was == nil || !of.Carrying() || rec != nil && of.Extends(rec, was) {
		return nil
	}
	depended, err := of.DependedOn(ctx, c.Tenant.Workspace(), scope, was)
	if err == nil && depended {
		err = operation.Forbidden(othersDepend)
	}
	return err
}

// Limits documents the refusal by RefuseLimited.
func Limits() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: othersDepend,
		When: "the caller is limited to teams, and records of other teams depend on what would be changed",
	}
}

// before checks every change before it is stored.
func (s *handlers) before(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was any) error {
	err := RefuseLimited(ctx, c, s.of, rec, was)
	if err == nil && s.Before != nil {
		err = s.Before(ctx, c, need, rec, was)
	}
	if err == nil && rec != nil && s.of.Definition {
		var before schema.Fields
		if was != nil {
			_, before = s.of.Defines(was)
		}
		_, after := s.of.Defines(rec)
		c.Warn(after.Unchecked(before))
	}
	return err
}

// refuseLimitedPurge is RefuseLimited right before a record is purged. The record is deleted first, so that nothing
// can come to depend on it, and restored if the purge is refused.
func (s *handlers) refuseLimitedPurge(ctx context.Context, c *operation.Call, rec, was any) error {
	if c.Principal.Scope(c.Tenant, nil).All || !s.of.Carrying() {
		return nil
	}
	if s.trash && !s.of.Deleted(rec) {
		s.setDeleted(rec, true)
		if err := s.of.Records.Replace(ctx, s.workspace(c), store.Preconditions{}, rec, nil); err != nil {
			return err
		}
	}
	return Settle(ctx, c, s.of, rec, was, func(ctx context.Context) error { return RefuseLimited(ctx, c, s.of, nil, was) })
}
