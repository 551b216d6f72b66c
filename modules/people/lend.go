package people

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
)

// AccountPrincipal returns what a service account may do, as a key of it that is not narrowed. Errors: tenants.ErrDenied
// if there is no such account or it is not active; store.ErrUnavailable.
func (m *Module) AccountPrincipal(ctx context.Context, t *tenants.Tenant, id string) (*tenants.Principal, error) {
	a, err := m.People.Account(ctx, t, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && !a.Active {
		return nil, fmt.Errorf("the service account is not active: %w", tenants.ErrDenied)
	}
	if err != nil {
		return nil, err
	}
	return &tenants.Principal{
		Kind: tenants.ServiceAccount, AccountID: a.ID, KeyKind: tenants.ServerFull, Permissions: slices.Clone(a.Permissions),
		Teams: of(nil, a.Teams).teams,
	}, nil
}

// Lend refuses a caller who lacks rights of a service account on whose behalf something is to be done: with a
// *fault.Error about the field, or with a 403 if that is empty. If lasts is set, it also refuses a key that expires or is
// bound to addresses, because what is done would not be. An account that does not exist has no rights.
func (m *Module) Lend(ctx context.Context, c *operation.Call, account, field string, lasts bool) error {
	a, err := m.People.Account(ctx, c.Tenant, account)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err == nil {
		permissions, teams := of(a.Permissions, a.Teams).lacks(c.Principal)
		message := ""
		switch {
		case len(permissions) > 0:
			message = identity.JoinPermissions(permissions) + ", which the service account holds"
		case teams:
			message = "teams, which the service account sees"
		}
		if message != "" && field != "" {
			return fault.One(field, fault.Forbidden, "the caller lacks %s", message)
		}
		if message != "" {
			return operation.Forbidden("The caller lacks " + message)
		}
	}
	if !lasts {
		return nil
	}
	return m.unlessBound(ctx, c, operation.Failure{Message: operation.BoundLoan})
}
