package people

import (
	"context"
	"net/http"
	"slices"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// rights are what a record lets somebody do and see: a person, whoever has a role, an account's keys.
type rights struct {
	active      bool // whether somebody has them now
	admin       bool
	permissions []tenants.Permission
	teams       []string // nil: not limited to teams
}

// of returns rights as they are stored: no teams are no limit.
func of(permissions []tenants.Permission, teams []string) rights {
	r := rights{permissions: permissions}
	if len(teams) > 0 {
		r.teams = teams
	}
	return r
}

// lacks returns what of the rights the caller does not hold.
func (r rights) lacks(p *tenants.Principal) (permissions []tenants.Permission, teams bool) {
	permissions = slices.DeleteFunc(slices.Clone(r.permissions), p.May)
	teams = p.Teams != nil && (r.teams == nil || slices.ContainsFunc(r.teams, func(team string) bool { return !slices.Contains(p.Teams, team) }))
	return permissions, teams
}

// beyond reports whether the rights are more than were held before.
func (r rights) beyond(was *rights) bool {
	missing := func(team string) bool { return !slices.Contains(was.teams, team) }
	return r.active && !was.active || r.admin && !was.admin ||
		slices.ContainsFunc(r.permissions, func(p tenants.Permission) bool { return !slices.Contains(was.permissions, p) }) ||
		was.teams != nil && (r.teams == nil || slices.ContainsFunc(r.teams, missing))
}

// gives is the one rule on rights: nobody changes what holds more than they do, which was says, and nobody
// gives what they lack, which is in will. Either may be nil.
func gives(p *tenants.Principal, was, will *rights) error {
	if was != nil {
		switch permissions, teams := was.lacks(p); {
		case was.admin && !p.IsAdmin():
			return operation.Forbidden("Only an administrator changes an administrator")
		case len(permissions) > 0:
			return operation.Forbidden("The caller lacks " + identity.JoinPermissions(permissions) + ", which the record holds")
		case teams:
			return operation.Forbidden("The caller lacks teams, which the record sees")
		}
	}
	if will == nil {
		return nil
	}
	var faults fault.List
	permissions, teams := will.lacks(p)
	if will.admin && !p.IsAdmin() {
		faults.Add("roles", fault.Forbidden, "only an administrator gives the role %s", identity.AdminRole)
	} else if len(permissions) > 0 {
		faults.Add("permissions", fault.Forbidden, "the caller lacks %s, and nobody gives what they lack", identity.JoinPermissions(permissions))
	}
	if teams {
		faults.Add("teams", fault.Forbidden, "teams must be named, and among those of the caller")
	}
	return faults.Err()
}

// guarded holds every change of a record to the rule. A key that is bound also gives nobody more than they have: what
// they sign in with, or their keys, need not be.
func guarded[T any](m *Module, of func(context.Context, *operation.Call, *T) (rights, error)) func(context.Context, *operation.Call, *store.Preconditions, *T, *T) error {
	return func(ctx context.Context, c *operation.Call, _ *store.Preconditions, rec, was *T) error {
		if c.Principal.Kind == tenants.System { // the gateway's own calls give nobody anything
			return nil
		}
		var both [2]*rights
		for i, one := range []*T{was, rec} {
			if one == nil {
				continue
			}
			r, err := of(ctx, c, one)
			if err != nil {
				return err
			}
			both[i] = &r
		}
		if err := gives(c.Principal, both[0], both[1]); err != nil || both[0] == nil || both[1] == nil || !both[1].beyond(both[0]) {
			return err
		}
		return m.unlessBound(ctx, c, widening())
	}
}

// unlessBound refuses a key that ends, or may be used from some addresses alone.
func (m *Module) unlessBound(ctx context.Context, c *operation.Call, refusal operation.Failure) error {
	own, err := m.own(ctx, c)
	if err == nil && own != nil && own.Bound() {
		err = operation.Forbidden(refusal.Message)
	}
	return err
}

const whenBound = "the key that asks has expires_in or allowed_ips"

func widening() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: "A key that ends, or may be used from some addresses alone, gives nobody more than they have, since they would be held to neither",
		When: whenBound + ", and the record would hold more than before",
	}
}

func holdsMore() operation.Failure {
	return operation.Failure{Code: http.StatusForbidden, Message: "The caller lacks contacts, which the record holds", When: "nobody changes what holds more than they do"}
}

// refusals documents the rule in rows that change something, and that some records cannot be deleted.
func refusals(rows []operation.Row) []operation.Row {
	for i := range rows {
		row := &rows[i]
		if row.Method != http.MethodPut && row.Method != http.MethodDelete {
			continue
		}
		row.Failures = append(row.Failures, holdsMore())
		if row.Method == http.MethodPut && row.Credentials&operation.Key != 0 {
			row.Failures = append(row.Failures, widening())
		}
		if row.Method == http.MethodDelete {
			row.Failures = append(row.Failures, operation.Failure{Code: http.StatusUnprocessableEntity, Message: "Validation failed: the role editor is held by user 7; take it from them first", When: "something refers to the record"})
		}
	}
	return rows
}
