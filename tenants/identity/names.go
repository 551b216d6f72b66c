package identity

import (
	"context"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// Names returns the names of users by number, with one query. Unknown numbers are left out. Error:
// store.ErrUnavailable.
func (s *Service) Names(ctx context.Context, t *tenants.Tenant, uids []int64) (map[int64]string, error) {
	names := make(map[int64]string, len(uids))
	if len(uids) == 0 {
		return names, nil
	}
	users, err := s.kinds.Users.In(t.People()).Find(ctx, store.Query{Filter: store.In("uid", uids...), LeaveOut: true})
	if err != nil {
		return nil, err
	}
	for i := range users {
		names[users[i].UID] = users[i].Name
	}
	return names, nil
}
