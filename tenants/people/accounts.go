package people

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

// CreateAccount stores a new, active service account. Name is required.
func (s *Service) CreateAccount(ctx context.Context, t *tenants.Tenant, a Account) (*Account, error) {
	account := &Account{Name: a.Name, Permissions: a.Permissions, Teams: a.Teams, Active: true}
	if err := s.CheckAccount(ctx, t, account); err != nil {
		return nil, fmt.Errorf("create a service account: %w", err)
	}
	if err := s.kinds.Accounts.In(t.People()).Insert(ctx, account); err != nil {
		return nil, fmt.Errorf("create service account %q: %w", account.Name, err)
	}
	return account, nil
}

// CheckAccount reports whether a new account could be made so, and puts its permissions in order.
func (s *Service) CheckAccount(ctx context.Context, t *tenants.Tenant, a *Account) error {
	return s.hold(ctx, t, s.kinds.Accounts.Resource, a, nil)
}

// UpdateAccount lets change alter name, permissions, teams and activity of the account;
// what it does to other fields is undone. It may be called several times. Where nothing
// changes no account is written, but the announcement is repeated.
func (s *Service) UpdateAccount(ctx context.Context, t *tenants.Tenant, id string, change func(*Account) error) (*Account, error) {
	unchanged := false
	var same Account
	rec, err := s.kinds.Accounts.In(t.People()).Update(ctx, id, func(a *Account) error {
		edited := *a
		edited.Permissions, edited.Teams = slices.Clone(a.Permissions), slices.Clone(a.Teams)
		if err := change(&edited); err != nil {
			return err
		}
		if err := s.hold(ctx, t, s.kinds.Accounts.Resource, &edited, a); err != nil {
			return err
		}
		unchanged = a.Name == edited.Name && a.Active == edited.Active &&
			slices.Equal(a.Permissions, edited.Permissions) && slices.Equal(a.Teams, edited.Teams)
		if unchanged {
			same = *a
			return errUnchanged
		}
		a.Name, a.Permissions, a.Teams, a.Active = edited.Name, edited.Permissions, edited.Teams, edited.Active
		return nil
	})
	if unchanged && errors.Is(err, errUnchanged) {
		return &same, s.bump(ctx, t)
	}
	if err != nil {
		return nil, fmt.Errorf("update service account %s: %w", texts.Clip(id), err)
	}
	return rec, s.bump(ctx, t)
}

// Account returns the account of that ID.
func (s *Service) Account(ctx context.Context, t *tenants.Tenant, id string) (*Account, error) {
	return s.kinds.Accounts.In(t.People()).Get(ctx, id)
}

// AccountByName returns the account of that name.
func (s *Service) AccountByName(ctx context.Context, t *tenants.Tenant, name string) (*Account, error) {
	name = strings.TrimSpace(name)
	if name == "" {
		return nil, fmt.Errorf("accounts: %w", store.ErrNotFound)
	}
	return s.kinds.Accounts.In(t.People()).First(ctx, store.Query{Filter: store.Eq("name", name)})
}

// Accounts returns accounts in order of their name, and how many there are.
func (s *Service) Accounts(ctx context.Context, t *tenants.Tenant, p Page) ([]Account, int64, error) {
	c := s.kinds.Accounts.In(t.People())
	total, err := c.Count(ctx, store.Filter{})
	if err != nil {
		return nil, 0, err
	}
	found, err := c.Find(ctx, p.query("name"))
	return found, total, err
}

// FindAccount returns the account of that ID or name.
func (s *Service) FindAccount(ctx context.Context, t *tenants.Tenant, ref string) (*Account, error) {
	if store.ValidID(ref) {
		if a, err := s.Account(ctx, t, ref); !errors.Is(err, store.ErrNotFound) {
			return a, err
		}
	}
	return s.AccountByName(ctx, t, ref)
}

// DeleteAccount deletes an account: its keys are refused from now on, since they have no
// owner. Error: store.ErrNotFound.
func (s *Service) DeleteAccount(ctx context.Context, t *tenants.Tenant, id string) error {
	return s.remove(ctx, t, "service account "+texts.Clip(id), func() error {
		return deleteOne(ctx, s.kinds.Accounts.In(t.People()), store.Eq("id", id))
	})
}
