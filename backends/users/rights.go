package users

import (
	"context"
	"net/http"
	"slices"

	"tenantry/backends/api"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/people"
)

// rights are what a record lets somebody do and see: a person, whoever has a role, an account's keys.
type rights struct {
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

// gives is the one rule on rights: nobody changes what holds more than they do, which was says, and nobody
// gives what they lack, which is in will. Either may be nil.
func gives(p *tenants.Principal, was, will *rights) error {
	if was != nil {
		switch permissions, teams := was.lacks(p); {
		case was.admin && !p.IsAdmin():
			return api.Forbidden("Only an administrator changes an administrator")
		case len(permissions) > 0:
			return api.Forbidden("The caller lacks " + people.Joined(permissions) + ", which the record holds")
		case teams:
			return api.Forbidden("The caller lacks teams, which the record sees")
		}
	}
	if will == nil {
		return nil
	}
	var faults fault.List
	permissions, teams := will.lacks(p)
	if will.admin && !p.IsAdmin() {
		faults.Add("roles", fault.Forbidden, "only an administrator gives the role %s", people.AdminRole)
	} else if len(permissions) > 0 {
		faults.Add("permissions", fault.Forbidden, "the caller lacks %s, and nobody gives what they lack", people.Joined(permissions))
	}
	if teams {
		faults.Add("teams", fault.Forbidden, "teams must be named, and among those of the caller")
	}
	return faults.Err()
}

// guarded holds every change of a record to the rule.
func guarded[T any](of func(context.Context, *api.Call, *T) (rights, error)) func(context.Context, *api.Call, *T, *T) error {
	return func(ctx context.Context, c *api.Call, rec, was *T) error {
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
		return gives(c.Principal, both[0], both[1])
	}
}

func holdsMore() api.Failure {
	return api.Failure{Code: http.StatusForbidden, Message: "The caller lacks contacts, which the record holds", When: "nobody changes what holds more than they do"}
}

// refusals documents the rule in rows that change something, and that some records cannot be deleted.
func refusals(rows []api.Operation) []api.Operation {
	for i := range rows {
		row := &rows[i]
		if row.Method != http.MethodPut && row.Method != http.MethodDelete {
			continue
		}
		row.Failures = append(row.Failures, holdsMore())
		if row.Method == http.MethodDelete {
			row.Failures = append(row.Failures, api.Failure{Code: http.StatusUnprocessableEntity, Message: "Validation failed: the role editor is held by user 7; take it from them first", When: "something refers to the record"})
		}
	}
	return rows
}
