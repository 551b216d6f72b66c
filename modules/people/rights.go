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

// rights are what a record lets its holders do and see: a person, the holders of a role, or the keys of an account.
type rights struct {
	active      bool // whether they are in effect
	admin       bool
	permissions []tenants.Permission
	teams       []string // nil: not limited to teams
}

// of returns the rights of a record, in which no teams means no limit.
func of(permissions []tenants.Permission, teams []string) rights {
	r := rights{permissions: permissions}
	if len(teams) > 0 {
		r.teams = teams
	}
	return r
}

// lacks returns which of the rights the caller does not hold.
func (r rights) lacks(p *tenants.Principal) (permissions []tenants.Permission, teams bool) {
	permissions = slices.DeleteFunc(slices.Clone(r.permissions), p.May)
	teams = p.Teams != nil && (r.teams == nil || slices.ContainsFunc(r.teams, func(team string) bool { return !slices.Contains(p.Teams, team) }))
	return permissions, teams
}

// exceeds reports whether the rights are more than those before.
func (r rights) exceeds(was *rights) bool {
	missing := func(team string) bool { return !slices.Contains(was.teams, team) }
	return r.active && !was.active || r.admin && !was.admin ||
		slices.ContainsFunc(r.permissions, func(p tenants.Permission) bool { return !slices.Contains(was.permissions, p) }) ||
		was.teams != nil && (r.teams == nil || slices.ContainsFunc(r.teams, missing))
}

// checkGrant is the one rule on rights: callers must not change a record that holds more than they do (was), or give
// rights that they lack (will). Either may be nil.
func checkGrant(p *tenants.Principal, was, will *rights) error {
	if was != nil {
		switch permissions, teams := was.lacks(p); {
		case was.admin && !p.IsAdmin():
			return operation.Forbidden("Only an administrator can change an administrator")
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
		faults.Add("roles", fault.Forbidden, "only an administrator can give the role %s", identity.AdminRole)
	} else if len(permissions) > 0 {
		faults.Add(
			"permissions", fault.Forbidden, "the caller lacks %s, and cannot give permissions that they lack",
			identity.JoinPermissions(permissions),
		)
	}
	if teams {
		faults.Add("teams", fault.Forbidden, "teams must be named, and among those of the caller")
	}
	return faults.Err()
}

// guarded applies the rule to every change of a record. A bound key also must not give a record more rights than
// before, because its holder's sessions or keys need not be bound.
func guarded[T any](
	m *Module, of func(context.Context, *operation.Call, *T) (rights, error),
) func(context.Context, *operation.Call, *store.Preconditions, *T, *T) error {
	return func(ctx context.Context, c *operation.Call, _ *store.Preconditions, rec, was *T) error {
		if c.Principal.Kind == tenants.System { // calls of the gateway itself give no rights
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
		if err := checkGrant(c.Principal, both[0], both[1]); err != nil || both[0] == nil || both[1] == nil || !both[1].exceeds(both[0]) {
			return err
		}
		return m.unlessBound(ctx, c, widening())
	}
}

// unlessBound refuses a key that expires or is bound to addresses.
func (m *Module) unlessBound(ctx context.Context, c *operation.Call, refusal operation.Failure) error {
	own, err := m.own(ctx, c)
	if err == nil && own != nil && own.Bound() {
		err = operation.Forbidden(refusal.Message)
	}
	return err
}

const whenBound = "the calling key has expires_in or allowed_ips"

func widening() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: "A key that expires or is bound to addresses cannot give more rights, " +
			"because their holder would not be bound in this way",
		When: whenBound + ", and the record would hold more than before",
	}
}

func holdsMore() operation.Failure {
	return operation.Failure{
		Code: http.StatusForbidden, Message: "The caller lacks contacts, which the record holds",
		When: "the record holds more than the caller",
	}
}

// refusals documents the rule in rows that change something, and that records in use cannot be deleted.
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
			row.Failures = append(row.Failures, operation.Failure{
				Code:    http.StatusUnprocessableEntity,
				Message: "Validation failed: the role editor is held by user 7; take it from them first",
				When:    "another record refers to the record",
			})
		}
	}
	return rows
}
