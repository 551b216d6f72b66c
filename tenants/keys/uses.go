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

// The last use of each key, and the permissions that keys and people need, are recorded in memory during requests and
// stored by FlushUses. A use of a key is recorded at most once in usesEvery by each process.
const (
	usesEvery = time.Minute
	maxUses   = 65_536 // maximum number of uses that wait to be stored
	// flushWidth is how many uses are stored concurrently, because concurrent writes share syncs.
	flushWidth = 32
	// flushTime bounds one round. What it does not store is left for the next round.
	flushTime = 30 * time.Second
)

// uses holds the uses that are not stored yet.
type uses struct {
	mu      sync.Mutex
	pending map[subject]use
	flush   chan struct{} // semaphore of FlushUses
}

// subject is a key, or a person of an organization.
type subject struct {
	key      string
	org, uid int64
}

// Rights records the permissions that calls of a person have needed. It is a separate record, because recording must
// not conflict with changes of the user.
type Rights struct {
	store.Meta
	OrgID  int64                `json:"org_id" use:"local"`
	UID    int64                `json:"uid" rule:"unique" use:"local"`
	Since  int64                `json:"since"` // start of the recording, in Unix milliseconds
	Needed []tenants.Permission `json:"needed,omitempty"`
}

// use is a use that waits to be stored. It has no Tenant, because thousands of keys would each keep an outdated one
// alive.
type use struct {
	people *store.Workspace
	at     int64 // Unix milliseconds
	needed []tenants.Permission
}

// noteUse records that a key was accepted. If that was recorded in the same minute, it costs one atomic load.
func (s *Service) noteUse(t *tenants.Tenant, e *entry, now time.Time) {
	minute := now.Unix() / int64(usesEvery/time.Second)
	if before := e.used.Load(); before == minute || !e.used.CompareAndSwap(before, minute) {
		return
	}
	s.record(t.People(), subject{key: e.principal.KeyID})
}

// needs returns a recorder of the permissions that calls of a key or a person need.
func (s *Service) needs(people *store.Workspace, who subject) *tenants.Needs {
	return &tenants.Needs{Note: func(p tenants.Permission) { s.record(people, who, p) }}
}

// NeedsOf records that a person makes a call, and returns a recorder of the permissions it needs.
func (s *Service) NeedsOf(t *tenants.Tenant, uid int64) *tenants.Needs {
	who := subject{org: t.Org.OrgID, uid: uid}
	s.record(t.People(), who)
	return s.needs(t.People(), who)
}

// record notes that a key or a person makes a call now, and the permission it needs, if given. It does nothing if too
// many uses wait to be stored.
func (s *Service) record(people *store.Workspace, who subject, needed ...tenants.Permission) {
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	if u, known := s.uses.pending[who]; known || len(s.uses.pending) < maxUses {
		s.uses.pending[who] = use{people, s.now().UnixMilli(), union(u.needed, needed)}
	}
}

// union returns the permissions in either list. It changes neither list.
func union(a, b []tenants.Permission) []tenants.Permission {
	all := slices.Clip(a)
	for _, p := range b {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// FlushUses stores the uses that wait. Uses that cannot be stored wait for the next call: nothing depends on them,
// since they are information for people.
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
	// In random order, so that a round cut short drops different ones each time.
	all := slices.Collect(maps.Keys(s.uses.pending))
	s.uses.mu.Unlock()
	var storeFailed atomic.Bool
	_ = together.Each(flushWidth, len(all), func(i int) error {
		s.uses.mu.Lock()
		who, u := all[i], s.uses.pending[all[i]]
		s.uses.mu.Unlock()
		if storeFailed.Load() {
			return store.ErrUnavailable
		}
		err := s.store(ctx, who, u)
		if err != nil && !errors.Is(err, errNotNewer) && !errors.Is(err, store.ErrNotFound) &&
			!errors.Is(err, store.ErrConflict) {
			storeFailed.Store(true) // the other goroutines stop, to spare a failing store
			return err
		}
		s.uses.mu.Lock()
		if now := s.uses.pending[who]; now.at == u.at && len(now.needed) == len(u.needed) {
			delete(s.uses.pending, who)
		}
		s.uses.mu.Unlock()
		return nil
	})
}

// store stores one use. Errors: errNotNewer if another replica has stored a later one, those of the store.
func (s *Service) store(ctx context.Context, who subject, u use) error {
	if who.key != "" {
		_, err := s.kinds.Keys.In(u.people).Update(ctx, who.key, func(k *Key) error {
			if !k.addUse(u.at, u.needed) {
				return errNotNewer
			}
			return nil
		})
		return err
	}
	all := s.kinds.Rights.In(u.people)
	rights, err := all.First(ctx, store.Query{Filter: store.Eq("uid", who.uid)})
	if errors.Is(err, store.ErrNotFound) {
		if s.dir.IsRemoved(ctx, who.org) { // erased meanwhile, so no record of its people may be created
			return nil
		}
		err = all.Insert(ctx, &Rights{OrgID: who.org, UID: who.uid, Since: u.at, Needed: u.needed})
		if dup := new(store.DuplicateError); errors.As(err, &dup) { // another replica was first
			return s.store(ctx, who, u)
		}
		return err
	}
	if err != nil || len(union(rights.Needed, u.needed)) == len(rights.Needed) {
		return err
	}
	_, err = all.Update(ctx, rights.ID, func(r *Rights) error {
		r.Needed = union(r.Needed, u.needed)
		return nil
	})
	return err
}

// RightsOf returns the recorded rights of people by number. People without records are left out. Error:
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

// RightsBefore returns the recorded rights of at most most people whose recording began before that time, the earliest
// first, and whether there are more. Error: store.ErrUnavailable.
func (s *Service) RightsBefore(
	ctx context.Context, t *tenants.Tenant, before time.Time, most int,
) (noted []Rights, more bool, err error) {
	noted, err = s.kinds.Rights.In(t.People()).Find(ctx, store.Query{
		Filter: store.Where(store.F("since"), store.OpLt, before.UnixMilli()),
		Sort:   []store.Order{store.Asc("since")}, Limit: most + 1,
	})
	return noted[:min(most, len(noted))], len(noted) > most, err
}

// addUse adds a use to the key, and reports whether it is news.
func (k *Key) addUse(at int64, needed []tenants.Permission) bool {
	all := union(k.Needed, needed)
	news := at > k.LastUsed || len(all) > len(k.Needed)
	k.LastUsed, k.Needed = max(k.LastUsed, at), all
	if k.NeededSince == 0 {
		k.NeededSince = at
	}
	return news
}

// Unneeded returns the permissions held that no call needed.
func Unneeded(held, needed []tenants.Permission) []tenants.Permission {
	return slices.DeleteFunc(slices.Clone(held), func(p tenants.Permission) bool { return slices.Contains(needed, p) })
}

// errNotNewer ends an update that would set the last use back.
var errNotNewer = errors.New("used later")
