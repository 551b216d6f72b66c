package identity

import (
	"context"
	"errors"
	"fmt"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

// CreateAccount stores a new service account. Name is required.
func (s *Service) CreateAccount(ctx context.Context, t *tenants.Tenant, a Account) (*Account, error) {
	account, b := &Account{Name: a.Name, Permissions: a.Permissions, Teams: a.Teams, Active: a.Active}, t.People().Batch()
	if err := s.validate(ctx, t, &b.Preconditions, s.kinds.Accounts.Resource, account, nil); err != nil {
		return nil, fmt.Errorf("create a service account: %w", err)
	}
	err := s.kinds.Accounts.In(t.People()).StageInsert(b, account)
	if err == nil {
		err = b.Commit(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("create service account %q: %w", account.Name, err)
	}
	return account, nil
}

// CheckAccount checks whether a new account could be created like this, and puts its permissions in order.
func (s *Service) CheckAccount(ctx context.Context, t *tenants.Tenant, a *Account) error {
	return s.validate(ctx, t, &store.Preconditions{}, s.kinds.Accounts.Resource, a, nil)
}

// UpdateAccount changes name, permissions, teams and activity of the account by edit; see change.
func (s *Service) UpdateAccount(
	ctx context.Context, t *tenants.Tenant, a *Account, edit func(*Account) error,
) (*Account, error) {
	return change(ctx, s, t, s.kinds.Accounts, a.ID, edit)
}

// Account returns the account with that ID.
func (s *Service) Account(ctx context.Context, t *tenants.Tenant, id string) (*Account, error) {
	return s.kinds.Accounts.In(t.People()).Get(ctx, id)
}

// AccountsOf returns the accounts with those IDs, by ID. Accounts that do not exist are left out.
func (s *Service) AccountsOf(ctx context.Context, t *tenants.Tenant, ids []string) (map[string]*Account, error) {
	found, err := s.kinds.Accounts.In(t.People()).Find(ctx, store.Query{Filter: store.In("id", ids...),
		Limit: max(len(ids), 1)})
	out := make(map[string]*Account, len(found))
	for i := range found {
		out[found[i].ID] = &found[i]
	}
	return out, err
}

// AccountByName returns the account with that name.
func (s *Service) AccountByName(ctx context.Context, t *tenants.Tenant, name string) (*Account, error) {
	name = texts.Trim(name)
	if name == "" {
		return nil, fmt.Errorf("accounts: %w", store.ErrNotFound)
	}
	return s.kinds.Accounts.In(t.People()).First(ctx, store.Query{Filter: store.Eq("name", name)})
}

// Accounts returns one page of accounts in order of their names, and the total number.
func (s *Service) Accounts(ctx context.Context, t *tenants.Tenant, p Page) ([]Account, int64, error) {
	return List(ctx, s.kinds.Accounts.In(t.People()), p, "name")
}

// FindAccount returns the account with that ID or name.
func (s *Service) FindAccount(ctx context.Context, t *tenants.Tenant, ref string) (*Account, error) {
	if store.ValidID(ref) {
		if a, err := s.Account(ctx, t, ref); !errors.Is(err, store.ErrNotFound) {
			return a, err
		}
	}
	return s.AccountByName(ctx, t, ref)
}

// DeleteAccount deletes an account at the revision read. Its keys are refused from then on, since they have no owner.
func (s *Service) DeleteAccount(ctx context.Context, t *tenants.Tenant, a *Account) error {
	return remove(ctx, s, t, s.kinds.Accounts, a, func() error { return nil })
}
