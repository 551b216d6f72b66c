package identity

import (
	"cmp"
	"context"
	"slices"

	"tenantry/tenants"
)

// maxSignOuts is how many ended sessions a user's record remembers individually.
const maxSignOuts = 50

// SignOut is a session that its user ended. It is remembered until the session would have expired, because the session
// store may be set back to an older state.
type SignOut struct {
	Session   string `json:"session"`    // hash of its token
	StartedAt int64  `json:"started_at"` // Unix milliseconds
	ExpiresAt int64  `json:"expires_at"` // Unix milliseconds
}

// SessionEnded reports whether the user ended the session with this hash of its token and this start (Unix
// milliseconds).
func (u *User) SessionEnded(hash string, startedAt int64) bool {
	return startedAt < u.SessionsFrom || slices.ContainsFunc(u.SignedOut,
		func(o SignOut) bool { return o.Session == hash })
}

// signOut notes the end of a session and forgets sessions that would have expired by now. If there are too many, it
// forgets the oldest and instead ends all sessions that were started no later than that one.
func (u *User) signOut(o SignOut, now int64) {
	u.SignedOut = slices.DeleteFunc(slices.Clone(u.SignedOut), func(old SignOut) bool { return old.ExpiresAt <= now })
	if u.SessionEnded(o.Session, o.StartedAt) || o.ExpiresAt <= now {
		return
	}
	u.SignedOut = append(u.SignedOut, o)
	for len(u.SignedOut) > maxSignOuts {
		oldest := slices.MinFunc(u.SignedOut, func(a, b SignOut) int { return cmp.Compare(a.StartedAt, b.StartedAt) })
		u.SessionsFrom = max(u.SessionsFrom, oldest.StartedAt+1)
		u.SignedOut = slices.DeleteFunc(u.SignedOut, func(old SignOut) bool { return old.StartedAt < u.SessionsFrom })
	}
}

// SignOut notes that the user ended a session, so that the session stays ended even if the session store loses that.
// Cached identities are void before it returns. Repeating it repeats the announcement. Errors: store.ErrNotFound,
// store.ErrConflict, store.ErrUnavailable.
func (s *Service) SignOut(ctx context.Context, t *tenants.Tenant, uid int64, o SignOut) error {
	_, err := s.update(ctx, t, uid, func(u *User) error {
		u.signOut(o, s.now().UnixMilli())
		return nil
	})
	return err
}

// SignOutAll ends every session of the user that was started before the given time (Unix milliseconds). Errors: as
// SignOut.
func (s *Service) SignOutAll(ctx context.Context, t *tenants.Tenant, uid int64, before int64) error {
	_, err := s.update(ctx, t, uid, func(u *User) error {
		u.SessionsFrom = max(u.SessionsFrom, before)
		u.SignedOut = slices.DeleteFunc(slices.Clone(u.SignedOut),
			func(old SignOut) bool { return old.StartedAt < u.SessionsFrom })
		return nil
	})
	return err
}
