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

// leavingFor is how long a change that takes an administrator away may be under way: longer
// than any write can take.
const leavingFor = time.Minute

// ActiveAdmin reports whether the user counts as one of the organization's administrators.
func (u *User) ActiveAdmin() bool { return u.Active && u.IsAdmin() }

// LastAdmin returns the fault of a change that takes that user away as the last one.
func LastAdmin(uid int64) (out fault.List) {
	out.Add("roles", fault.Forbidden, "user %d is the organization's last active administrator; make somebody else one first", uid)
	return out
}

// KeepAdmin runs write, which stores the user of that number as no active administrator
// over the revision read before. See keepAdmin.
func KeepAdmin(ctx context.Context, dir *tenants.Directory, kinds Kinds, t *tenants.Tenant, uid int64, now time.Time, write func() error) error {
	u, err := kinds.Users.In(t.People()).First(ctx, store.Query{Filter: store.Eq("uid", uid)})
	switch {
	case err != nil:
		return err
	case !u.ActiveAdmin():
		return write()
	}
	return keepAdmin(ctx, dir, kinds, t, uid, now, write)
}

// keepAdmin runs write, which makes the user of that number no active administrator, unless
// the organization would be left without one: an organization that has an active
// administrator keeps at least one. Of several such changes at the same time, on whatever
// replica, at least one is refused where they would take the last one away together: each
// notes its user in the organization's record, by compare-and-set, before it looks at the
// others and writes. Errors: *fault.Error, what write returns, store.ErrConflict,
// store.ErrUnavailable.
func keepAdmin(ctx context.Context, dir *tenants.Directory, kinds Kinds, t *tenants.Tenant, uid int64, now time.Time, write func() error) error {
	users := kinds.Users.In(t.People())
	note := tenants.Leaving{ID: rand.Text(), UID: uid, Until: now.Add(leavingFor).UnixMilli()}
	err := dir.ChangeLeaving(ctx, t.Org.OrgID, func(leaving []tenants.Leaving) ([]tenants.Leaving, error) {
		leaving = slices.DeleteFunc(leaving, func(l tenants.Leaving) bool { return l.Until <= now.UnixMilli() })
		gone := func(u *User) bool {
			return u.UID == uid || slices.ContainsFunc(leaving, func(l tenants.Leaving) bool { return l.UID == u.UID })
		}
		found := errors.New("another administrator")
		err := users.Each(ctx, store.Filter{}, store.Either, func(u *User) error {
			if u.ActiveAdmin() && !gone(u) {
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
	// Where this fails the note ends by itself, and counts the user as leaving until then.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	_ = dir.ChangeLeaving(ctx, t.Org.OrgID, func(leaving []tenants.Leaving) ([]tenants.Leaving, error) {
		return slices.DeleteFunc(leaving, func(l tenants.Leaving) bool { return l.ID == note.ID }), nil
	})
	return err
}
