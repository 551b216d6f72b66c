package identity

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// leavingTimeout bounds the time that a change which removes an administrator may be under way. It is longer than any
// write can take.
const leavingTimeout = time.Minute

// ActiveAdmin reports whether the user is an active administrator.
func (u *User) ActiveAdmin() bool { return u.Active && u.IsAdmin() }

// LastAdmin returns the fault of a change that would remove that user as the last active administrator.
func LastAdmin(uid int64) (out fault.List) {
	out.Add("roles", fault.Forbidden,
		"user %d is the organization's last active administrator; make somebody else one first", uid)
	return out
}

// KeepAdmin runs write, which stores the user of that number as an inactive user or without the role admin, over the
// revision read before. If the user is an active administrator, the guarantee of keepAdmin applies.
func KeepAdmin(
	ctx context.Context, dir *tenants.Directory, kinds Kinds, t *tenants.Tenant, uid int64, now time.Time, write func() error,
) error {
	u, err := kinds.Users.In(t.People()).First(ctx, store.Query{Filter: store.Eq("uid", uid)})
	switch {
	case err != nil:
		return err
	case !u.ActiveAdmin():
		return write()
	}
	return keepAdmin(ctx, dir, kinds, t, uid, now, write)
}

// keepAdmin runs write, which removes an active administrator, unless none would be left. Each such change notes its
// user in the organization's record, by compare-and-set, before it looks for other administrators and writes. Of
// concurrent changes on any replicas that together would remove all administrators, at least one is therefore refused.
// Errors: *fault.Error, those of write, store.ErrConflict, store.ErrUnavailable.
func keepAdmin(
	ctx context.Context, dir *tenants.Directory, kinds Kinds, t *tenants.Tenant, uid int64, now time.Time, write func() error,
) error {
	users := kinds.Users.In(t.People())
	note := tenants.Leaving{ID: rand.Text(), UID: uid, Until: now.Add(leavingTimeout).UnixMilli()}
	err := dir.ChangeLeaving(ctx, t.Org.OrgID, func(leaving []tenants.Leaving) ([]tenants.Leaving, error) {
		leaving = slices.DeleteFunc(leaving, func(l tenants.Leaving) bool { return l.Until <= now.UnixMilli() })
		leaves := func(u *User) bool {
			return u.UID == uid || slices.ContainsFunc(leaving, func(l tenants.Leaving) bool { return l.UID == u.UID })
		}
		found := errors.New("another administrator")
		err := users.Each(ctx, store.Filter{}, store.Either, func(u *User) error {
			if u.ActiveAdmin() && !leaves(u) {
				return found
			}
			return nil
		})
		if errors.Is(err, found) {
			return append(leaving, note), nil
		}
		if err == nil {
			err = LastAdmin(uid).Err()
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	err = write()
	// If this fails, the note expires by itself, and the user counts as leaving until then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = dir.ChangeLeaving(ctx, t.Org.OrgID, func(leaving []tenants.Leaving) ([]tenants.Leaving, error) {
		return slices.DeleteFunc(leaving, func(l tenants.Leaving) bool { return l.ID == note.ID }), nil
	})
	return err
}
