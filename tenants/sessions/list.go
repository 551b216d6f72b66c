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

// MaxListed is the maximum number of sessions listed for a person. Those that end last are listed.
const MaxListed = 200

// idLength is the length of the prefix of a token's hash that identifies a session to its owner.
const idLength = 24

// listKey returns the key of the sorted set of a person's sessions, by the latest end of each. The set is only an
// index: a session's data are stored and sealed under its own key.
func listKey(t *tenants.Tenant, uid int64) string {
	return t.RedisPrefix() + "sessions:" + strconv.FormatInt(uid, 10)
}

// save stores a new session and adds it to the person's list.
func (s *Service) save(ctx context.Context, t *tenants.Tenant, v *record, raw []byte) error {
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
	if redisconn.WrongType(err) { // a damaged list must not prevent a sign-in
		s.delete(ctx, list)
		err = write()
	}
	return err
}

// List returns the valid sessions of the person, the one started last first, MaxListed at most. Errors:
// store.ErrNotFound if the person does not exist, tenants.ErrUnavailable.
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
	*record
	left time.Duration // until the idle timeout
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
		if !there || len(hash) < idLength { // it has ended, or the entry is damaged
			continue
		}
		v, err := s.open(ctx, t, hash, []byte(raw))
		if errors.Is(err, tenants.ErrDenied) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if v.UserID == uid && u.Active && v.PasswordRev == u.PasswordRev && !u.SessionEnded(v.Hash, v.StartedAt) {
			left, _ := answers[2*i+1].(int64) // milliseconds; negative if it has just ended
			all = append(all, listed{v, time.Duration(left) * time.Millisecond})
		}
	}
	return all, nil
}

// EndListed ends the session of the person that List returns under that ID. Errors: store.ErrNotFound if List returns
// none; tenants.ErrUnavailable, after which the session may still be valid.
func (s *Service) EndListed(ctx context.Context, t *tenants.Tenant, uid int64, id string) error {
	all, err := s.listed(ctx, t, uid)
	if err != nil {
		return err
	}
	for _, v := range all {
		if v.Hash[:idLength] == id {
			return s.end(ctx, t, v.record)
		}
	}
	return fmt.Errorf("session: %w", store.ErrNotFound)
}

// EndAll ends every session of the person, including those that are not listed. Errors: store.ErrNotFound;
// tenants.ErrUnavailable, after which sessions may still be valid.
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
	return nil // the entries in Redis are void, and expire
}

// ChangePassword sets a new password if the present one is right, and returns the person. All sessions end. The call
// counts as an attempt to sign in. Errors: tenants.ErrDenied if the password is wrong, ErrThrottled,
// tenants.ErrUnavailable, those of identity.Service.ReplacePassword.
func (s *Service) ChangePassword(
	ctx context.Context, t *tenants.Tenant, uid int64, present, next secret.String, remote netip.Addr,
) (*identity.User, error) {
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

// CheckInvite returns the expiry of a valid invitation. It does not use the invitation up. A call with an invalid token
// counts as an attempt, like AcceptInvite. Errors: as AcceptInvite.
func (s *Service) CheckInvite(
	ctx context.Context, t *tenants.Tenant, token string, remote netip.Addr,
) (time.Time, error) {
	attempt := s.newAttempt(t, "", remote)
	if err := attempt.count(ctx, false); err != nil {
		return time.Time{}, err
	}
	u, err := s.people.Invited(ctx, t, token)
	if err != nil {
		return time.Time{}, err
	}
	attempt.refund(ctx)
	return time.UnixMilli(u.InviteExpiresAt).UTC(), nil
}
