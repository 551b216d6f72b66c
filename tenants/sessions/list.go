package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/tenants"
	"tenantry/tenants/identity"
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
		_, err := s.redis.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, sessionKey(t, v.Hash), raw, min(s.idle, s.absolute))
			p.ZAdd(ctx, list, redis.Z{Score: float64(v.ExpiresAt), Member: v.Hash})
			p.ZRemRangeByRank(ctx, list, 0, -MaxListed-1)
			p.PExpire(ctx, list, s.absolute)
			return nil
		})
		return err
	}
	err := write()
	if redis.HasErrorPrefix(err, notASet) { // a list that is none must keep nobody out
		s.drop(ctx, list)
		err = write()
	}
	return err
}

// notASet begins what Redis says where a name is taken by something else.
const notASet = "WRONGTYPE"

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
	hashes, err := s.redis.ZRevRange(ctx, listKey(t, uid), 0, MaxListed-1).Result()
	if err != nil && !redis.HasErrorPrefix(err, notASet) {
		return nil, unavailable("listing sessions", err)
	}
	values, left := make([]*redis.StringCmd, len(hashes)), make([]*redis.DurationCmd, len(hashes))
	if _, err := s.redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, hash := range hashes {
			values[i], left[i] = p.Get(ctx, sessionKey(t, hash)), p.PTTL(ctx, sessionKey(t, hash))
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return nil, unavailable("listing sessions", err)
	}
	for i, hash := range hashes {
		raw, err := values[i].Bytes()
		if errors.Is(err, redis.Nil) || len(hash) < idLength { // it ended, or is nobody's
			continue
		}
		if err != nil {
			return nil, unavailable("listing sessions", err)
		}
		v, err := s.opened(ctx, t, hash, raw)
		if errors.Is(err, tenants.ErrDenied) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if v.UserID == uid && u.Active && v.PasswordRev == u.PasswordRev && !u.SessionOver(v.Hash, v.StartedAt) {
			all = append(all, listed{v, left[i].Val()})
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
	if err := attempt.count(ctx, attempt.address); err != nil {
		return time.Time{}, err
	}
	u, err := s.people.Invited(ctx, t, token)
	if err != nil {
		return time.Time{}, err
	}
	attempt.takeBack(ctx)
	return time.UnixMilli(u.InviteExpiresAt).UTC(), nil
}
