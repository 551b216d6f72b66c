package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/redisconn"
)

// MaxListed is how many sessions of one person are listed, those that last longest.
const MaxListed = 200

// idLength is how much of the hash of its token names a session to its owner.
const idLength = 24

// listKey names the set of a person's sessions, by when each ends at the latest. It only tells where to look:
// what a session is stands under the session's own name, under seal.
func listKey(t *tenants.Tenant, uid int64) string {
	return t.RedisPrefix() + "sessions:" + strconv.FormatInt(uid, 10)
}

// store keeps a new session, and its name in the list of the person's.
func (s *Service) store(ctx context.Context, t *tenants.Tenant, v *stored, raw []byte) error {
	list := listKey(t, v.UserID)
	write := func() error {
		_, err := s.redis.Transaction(ctx,
			redisconn.Command{"set", sessionKey(t, v.Hash), raw, "px", min(s.idle, s.absolute).Milliseconds()},
			redisconn.Command{"zadd", list, v.ExpiresAt, v.Hash},
			redisconn.Command{"zremrangebyrank", list, 0, -MaxListed - 1},
			redisconn.Command{"pexpire", list, s.absolute.Milliseconds()})
		return err
	}
	err := write()
	if redisconn.WrongType(err) { // a list that is none must keep nobody out
		s.drop(ctx, list)
		err = write()
	}
	return err
}

// List returns the sessions of the person that go on, the one begun last first; at most MaxListed. Errors:
// store.ErrNotFound where there is no such person, tenants.ErrUnavailable.
func (s *Service) List(ctx context.Context, t *tenants.Tenant, uid int64) ([]Session, error) {
	all, err := s.listed(ctx, t, uid)
	if err != nil {
		return nil, err
	}
	out := make([]Session, len(all))
	for i, v := range all {
		out[i] = v.session()
		out[i].UsedAt = s.now().Add(v.left - s.idle)
	}
	return out, nil
}

type listed struct {
	*stored
	left time.Duration // until it idles out
}

func (s *Service) listed(ctx context.Context, t *tenants.Tenant, uid int64) (all []listed, err error) {
	u, err := s.people.FindUser(ctx, t, uid)
	if errors.Is(err, store.ErrNotFound) {
		return nil, err
	}
	if err != nil {
		return nil, unavailable("listing sessions", err)
	}
	hashes, err := s.redis.ZRevRange(ctx, listKey(t, uid), 0, MaxListed-1)
	if err != nil && !redisconn.WrongType(err) {
		return nil, unavailable("listing sessions", err)
	}
	commands := make([]redisconn.Command, 0, 2*len(hashes))
	for _, hash := range hashes {
		key := sessionKey(t, hash)
		commands = append(commands, redisconn.Command{"get", key}, redisconn.Command{"pttl", key})
	}
	answers, err := s.redis.Pipeline(ctx, commands...)
	if err != nil {
		return nil, unavailable("listing sessions", err)
	}
	for i, hash := range hashes {
		raw, there := answers[2*i].(string)
		if !there || len(hash) < idLength { // it ended, or is nobody's
			continue
		}
		v, err := s.opened(ctx, t, hash, []byte(raw))
		if errors.Is(err, tenants.ErrDenied) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if v.UserID == uid && u.Active && v.PasswordRev == u.PasswordRev && !u.SessionOver(v.Hash, v.StartedAt) {
			left, _ := answers[2*i+1].(int64) // milliseconds; negative where it has just ended
			all = append(all, listed{v, time.Duration(left) * time.Millisecond})
		}
	}
	return all, nil
}

// EndListed ends the session of the person that List returns under the identifier. Errors: store.ErrNotFound where it
// returns none, tenants.ErrUnavailable, with which it may go on.
func (s *Service) EndListed(ctx context.Context, t *tenants.Tenant, uid int64, id string) error {
	all, err := s.listed(ctx, t, uid)
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.Hash[:idLength] == id {
			return s.end(ctx, t, v.stored)
		}
	}
	return fmt.Errorf("session: %w", store.ErrNotFound)
}

// EndAll ends every session of the person, also those that are not listed. Errors: store.ErrNotFound,
// tenants.ErrUnavailable, with which they may go on.
func (s *Service) EndAll(ctx context.Context, t *tenants.Tenant, uid int64) error {
	all, err := s.listed(ctx, t, uid)
	if err != nil {
		return err
	}
	last := s.now().UnixMilli()
	for _, v := range all { // another server's clock may be ahead
		last = max(last, v.StartedAt)
	}
	if err := s.people.SignOutAll(ctx, t, uid, last+1); err != nil {
		return unavailable("ending all sessions", err)
	}
	return nil // what Redis holds of them is void, and idles out
}

// ChangePassword gives the person another password where the present one is right, and returns the person. All
// sessions end. The attempt counts as one to sign in. Errors: tenants.ErrDenied where the password is wrong,
// ErrThrottled, tenants.ErrUnavailable, those of identity.Service.ReplacePassword.
func (s *Service) ChangePassword(ctx context.Context, t *tenants.Tenant, uid int64, present, next secret.String, remote netip.Addr) (*identity.User, error) {
	u, err := s.people.FindUser(ctx, t, uid)
	if err != nil {
		return nil, err
	}
	shown, err := s.SignIn(ctx, t, u.Email, present, remote)
	if err != nil {
		return nil, err
	}
	return s.people.ReplacePassword(ctx, t, shown, next)
}

// CheckInvite returns when the invitation of the token ends, where it is good. It uses nothing up; the attempt counts
// as those of AcceptInvite do, unless it is good. Errors: as AcceptInvite.
func (s *Service) CheckInvite(ctx context.Context, t *tenants.Tenant, token string, remote netip.Addr) (time.Time, error) {
	attempt := s.named(t, "", remote)
	if err := attempt.count(ctx, false); err != nil {
		return time.Time{}, err
	}
	u, err := s.people.Invited(ctx, t, token)
	if err != nil {
		return time.Time{}, err
	}
	attempt.takeBack(ctx)
	return time.UnixMilli(u.InviteExpiresAt).UTC(), nil
}
