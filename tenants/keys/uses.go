package keys

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/together"
	"tenantry/tenants"
)

// When a key was last used, and for which of its permissions, is noted beside requests and stored later: at most once
// in usesEvery, when FlushUses is called, for each key and process, and of maxUses that wait. So is which of their
// permissions people need.
const (
	usesEvery = time.Minute
	maxUses   = 65_536
	// flushWidth is how many are stored at the same time, since they share syncs.
	flushWidth = 32
	// flushTime bounds one round; where the store fails the rest waits for the next one.
	flushTime = 30 * time.Second
)

// uses are the keys and people whose last use is not stored yet.
type uses struct {
	mu      sync.Mutex
	waiting map[user]use
	flush   chan struct{} // held while a round is written
}

// user is a key, or a person of an organization.
type user struct {
	key      string
	org, uid int64
}

// Rights is for which of the permissions calls of a person were. A record of its own, since noting that changes nothing
// about the person, whom somebody may be about to change.
type Rights struct {
	store.Meta
	OrgID  int64                `json:"org_id" use:"local"`
	UID    int64                `json:"uid" rule:"unique" use:"local"`
	Since  int64                `json:"since"` // Unix milliseconds
	Needed []tenants.Permission `json:"needed,omitempty"`
}

// use keeps no tenant: thousands of keys would each keep one that everybody else has replaced.
type use struct {
	people *store.Workspace
	at     int64 // Unix milliseconds
	needed []tenants.Permission
}

// note remembers that the key of an entry was accepted. It costs the entries of the last
// minute one load.
func (s *Service) note(t *tenants.Tenant, e *entry, now time.Time) {
	minute := now.Unix() / int64(usesEvery/time.Second)
	if before := e.used.Load(); before == minute || !e.used.CompareAndSwap(before, minute) {
		return
	}
	s.used(t.People(), user{key: e.principal.KeyID})
}

// needs notes which permissions of a key or a person calls need.
func (s *Service) needs(people *store.Workspace, who user) *tenants.Needs {
	return &tenants.Needs{Note: func(p tenants.Permission) { s.used(people, who, p) }}
}

// NeedsOf notes that a person makes a call, and which permissions it needs.
func (s *Service) NeedsOf(t *tenants.Tenant, uid int64) *tenants.Needs {
	who := user{org: t.Org.OrgID, uid: uid}
	s.used(t.People(), who)
	return s.needs(t.People(), who)
}

// used notes that a key or a person calls now, and needs that permission where one is given, unless too many wait to be
// stored.
func (s *Service) used(people *store.Workspace, who user, needed ...tenants.Permission) {
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	if u, known := s.uses.waiting[who]; known || len(s.uses.waiting) < maxUses {
		s.uses.waiting[who] = use{people, s.now().UnixMilli(), union(u.needed, needed)}
	}
}

// union returns the permissions of either; what it was given stays as it is.
func union(a, b []tenants.Permission) []tenants.Permission {
	all := slices.Clip(a)
	for _, p := range b {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// FlushUses stores the last use of keys and people that wait for it. What the store does not take
// waits on: a last use is for people to read, and nothing depends on it.
func (s *Service) FlushUses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	select {
	case s.uses.flush <- struct{}{}:
		defer func() { <-s.uses.flush }()
	case <-ctx.Done():
		return
	}
	s.uses.mu.Lock()
	all := slices.Collect(maps.Keys(s.uses.waiting)) // in no order, so that where time is up it is not for the same ones each time
	s.uses.mu.Unlock()
	var trouble atomic.Bool
	_ = together.Each(flushWidth, len(all), func(i int) error {
		s.uses.mu.Lock()
		who, u := all[i], s.uses.waiting[all[i]]
		s.uses.mu.Unlock()
		if trouble.Load() {
			return store.ErrUnavailable
		}
		err := s.store(ctx, who, u)
		if err != nil && !errors.Is(err, errLater) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
			trouble.Store(true) // of the store: a few calls a minute are enough
			return err
		}
		s.uses.mu.Lock()
		if now := s.uses.waiting[who]; now.at == u.at && len(now.needed) == len(u.needed) {
			delete(s.uses.waiting, who)
		}
		s.uses.mu.Unlock()
		return nil
	})
}

// store stores what was noted of one. Errors: errLater where another replica has it, those of a store.
func (s *Service) store(ctx context.Context, who user, u use) error {
	if who.key != "" {
		_, err := s.kinds.Keys.In(u.people).Update(ctx, who.key, func(k *Key) error {
			if !k.note(u.at, u.needed) {
				return errLater
			}
			return nil
		})
		return err
	}
	all := s.kinds.Rights.In(u.people)
	is, err := all.First(ctx, store.Query{Filter: store.Eq("uid", who.uid)})
	if errors.Is(err, store.ErrNotFound) {
		if s.dir.IsRemoved(ctx, who.org) { // it was erased meanwhile, and nothing of its people shall come back
			return nil
		}
		err = all.Insert(ctx, &Rights{OrgID: who.org, UID: who.uid, Since: u.at, Needed: u.needed})
		if dup := new(store.DuplicateError); errors.As(err, &dup) { // another replica has just done so
			return s.store(ctx, who, u)
		}
		return err
	}
	if err != nil || len(union(is.Needed, u.needed)) == len(is.Needed) {
		return err
	}
	_, err = all.Update(ctx, is.ID, func(r *Rights) error {
		r.Needed = union(r.Needed, u.needed)
		return nil
	})
	return err
}

// RightsOf returns what was noted of people, by their numbers; of some there is nothing yet. Errors:
// store.ErrUnavailable.
func (s *Service) RightsOf(ctx context.Context, t *tenants.Tenant, uids []int64) (map[int64]*Rights, error) {
	noted := map[int64]*Rights{}
	if len(uids) == 0 {
		return noted, nil
	}
	found, err := s.kinds.Rights.In(t.People()).Find(ctx, store.Query{Filter: store.In("uid", uids...), Limit: len(uids)})
	for i := range found {
		noted[found[i].UID] = &found[i]
	}
	return noted, err
}

// note adds a use, and reports whether it says anything new.
func (k *Key) note(at int64, needed []tenants.Permission) bool {
	all := union(k.Needed, needed)
	news := at > k.LastUsed || len(all) > len(k.Needed)
	k.LastUsed, k.Needed = max(k.LastUsed, at), all
	if k.NeededSince == 0 {
		k.NeededSince = at
	}
	return news
}

// Unneeded returns those of the permissions that no call needed.
func Unneeded(held, needed []tenants.Permission) []tenants.Permission {
	return slices.DeleteFunc(slices.Clone(held), func(p tenants.Permission) bool { return slices.Contains(needed, p) })
}

// errLater ends an update that would put the last use back.
var errLater = errors.New("used later")
