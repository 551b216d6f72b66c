package identity

import (
	"context"
	"slices"

	"tenantry/tenants"
)

// maxSignOuts is how many ended sessions a person's record remembers one by one.
const maxSignOuts = 50

// SignOut is a session that its owner ended. It is remembered for as long as the session
// could have lasted: where sessions are kept may bring an older state back.
type SignOut struct {
	Session   string `json:"session"` // hash of its token
	StartedAt int64  `json:"started_at"`
	ExpiresAt int64  `json:"expires_at"` // both Unix milliseconds
}

// SessionOver reports whether the user ended the session with this hash of its token,
// begun then (Unix milliseconds).
func (u *User) SessionOver(hash string, startedAt int64) bool {
	return startedAt < u.SessionsFrom || slices.ContainsFunc(u.SignedOut, func(o SignOut) bool { return o.Session == hash })
}

// signOut notes the end of a session and forgets those that would be over by now. Where
// there are too many, all sessions begun by the time the oldest of them was are over.
func (u *User) signOut(o SignOut, now int64) {
	u.SignedOut = slices.DeleteFunc(slices.Clone(u.SignedOut), func(old SignOut) bool { return old.ExpiresAt <= now })
	if u.SessionOver(o.Session, o.StartedAt) || o.ExpiresAt <= now {
		return
	}
	u.SignedOut = append(u.SignedOut, o)
	for len(u.SignedOut) > maxSignOuts {
		oldest := slices.MinFunc(u.SignedOut, func(a, b SignOut) int { return int(min(max(a.StartedAt-b.StartedAt, -1), 1)) })
		u.SessionsFrom = max(u.SessionsFrom, oldest.StartedAt+1)
		u.SignedOut = slices.DeleteFunc(u.SignedOut, func(old SignOut) bool { return old.StartedAt < u.SessionsFrom })
	}
}

// SignOut notes that the user ended a session, so that it stays ended whatever happens
// to where sessions are kept. Cached identities become void before it returns. Repeating
// it repeats the announcement. Errors: store.ErrNotFound, store.ErrConflict,
// store.ErrUnavailable.
func (s *Service) SignOut(ctx context.Context, t *tenants.Tenant, uid int64, o SignOut) error {
	_, err := s.update(ctx, t, uid, func(u *User) error {
		u.signOut(o, s.now().UnixMilli())
		return nil
	})
	return err
}

// SignOutAll notes that every session of the user is over that began before then (Unix milliseconds). Errors: as
// SignOut.
func (s *Service) SignOutAll(ctx context.Context, t *tenants.Tenant, uid int64, before int64) error {
	_, err := s.update(ctx, t, uid, func(u *User) error {
		u.SessionsFrom = max(u.SessionsFrom, before)
		u.SignedOut = slices.DeleteFunc(slices.Clone(u.SignedOut), func(old SignOut) bool { return old.StartedAt < u.SessionsFrom })
		return nil
	})
	return err
}
