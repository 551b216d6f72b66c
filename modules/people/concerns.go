package people

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// When somebody should check a key or a person.
const (
	expiresSoon = 14 * 24 * time.Hour
	unusedAfter = 7 * 24 * time.Hour
	rightsAfter = 30 * 24 * time.Hour // some work is done once a month
	// maxCandidates bounds how many keys, and how many people, are read to find unused permissions. No index has these,
	// because what somebody holds follows from a service account or from roles. The candidates, whose permissions have
	// been recorded for rightsAfter, are read from an index, the longest recorded first.
	maxCandidates = 1000
)

// keyConcerns returns the active keys that expire soon, were never used, or have unused permissions. A key is counted
// for the first of these.
func (m *Module) keyConcerns(ctx context.Context, c *operation.Call, most int) (all operation.Concerns, err error) {
	now, stored := m.Now(), m.Stored.Keys.In(c.Tenant.People())
	soon := now.Add(expiresSoon)
	lasting := keys.InState("active", soon)
	ask := func(cause operation.Cause, where store.Filter) error {
		page, count, err := stored.Page(ctx, store.Query{Filter: where, Limit: most, Bytes: operation.PageBytes}, where)
		for _, k := range page.Records {
			all.First = append(all.First, operation.Concern{
				ID: k.ID, Name: k.Name, Cause: cause, Expires: time.UnixMilli(k.ExpiresAt),
			})
		}
		all.Count += count
		return err
	}
	if err := ask(operation.ExpiresSoon, keys.Expiring(now, soon)); err != nil {
		return operation.Concerns{}, err
	}
	for _, where := range keys.Unused(now.Add(-unusedAfter)) {
		if err := ask(operation.NeverUsed, store.All(lasting, where)); err != nil {
			return operation.Concerns{}, err
		}
	}

	candidates, err := stored.FindPart(ctx, store.Query{
		Filter: store.All(lasting, keys.RecordedBefore(now.Add(-rightsAfter))),
		Sort:   []store.Order{store.Asc("needed_since"), store.Asc("created_at")},
		Limit:  maxCandidates + 1, Bytes: operation.PageBytes, LeaveOut: true,
	})
	if err != nil {
		return operation.Concerns{}, err
	}
	found := make([]*keys.Key, min(maxCandidates, len(candidates.Records)))
	for i := range found {
		found[i] = &candidates.Records[i]
	}
	owners, err := m.Keys.Owners(ctx, c.Tenant, found...)
	if err != nil {
		return operation.Concerns{}, err
	}
	for _, k := range found {
		effective := k.Effective(cmp.Or(owners[k.AccountID], &identity.Account{}))
		if unused := keys.Unneeded(effective, k.Needed); len(unused) > 0 {
			all.First = append(all.First, operation.Concern{
				ID: k.ID, Name: k.Name, Cause: operation.UnusedRights, Unused: unused,
			})
			all.Count++
		}
	}
	slices.SortFunc(all.First, func(a, b operation.Concern) int { return cmp.Compare(a.ID, b.ID) })
	all.First = all.First[:min(most, len(all.First))]
	all.AtLeast = candidates.Cut || len(candidates.Records) > maxCandidates
	return all, nil
}

// peopleConcerns returns the active people with unused permissions. Administrators hold all, and are left out.
func (m *Module) peopleConcerns(ctx context.Context, c *operation.Call, most int) (all operation.Concerns, err error) {
	noted, more, err := m.Keys.RightsBefore(ctx, c.Tenant, m.Now().Add(-rightsAfter), maxCandidates)
	if err != nil || len(noted) == 0 {
		return all, err
	}
	needed, uids := map[int64]*keys.Rights{}, make([]int64, len(noted))
	for i := range noted {
		uids[i], needed[noted[i].UID] = noted[i].UID, &noted[i]
	}
	candidates, err := m.Kinds.Users.In(c.Tenant.People()).FindPart(ctx, store.Query{
		Filter: store.All(store.Eq("active", true), store.In("uid", uids...)),
		Limit:  len(uids), Bytes: operation.PageBytes, LeaveOut: true,
	})
	if err != nil {
		return all, err
	}
	users := make([]*identity.User, len(candidates.Records))
	for i := range users {
		users[i] = &candidates.Records[i]
	}
	permissions, err := m.People.Permissions(ctx, c.Tenant, users)
	if err != nil {
		return all, err
	}
	all.AtLeast = more || candidates.Cut
	for i, u := range users {
		unused := keys.Unneeded(permissions[i], needed[u.UID].Needed)
		if u.IsAdmin() || len(unused) == 0 {
			continue
		}
		if all.Count++; len(all.First) < most {
			all.First = append(all.First, operation.Concern{
				ID: strconv.FormatInt(u.UID, 10), Name: u.Name, Cause: operation.UnusedRights, Unused: unused,
			})
		}
	}
	return all, nil
}
