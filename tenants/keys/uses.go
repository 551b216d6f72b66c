package keys

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// When a key was last used, and for which of its permissions, is noted beside requests and stored later: at most once in
// usesEvery, when FlushUses is called, for each key and process, maxFlush keys at a time, and of maxUses that wait.
const (
	usesEvery = time.Minute
	maxUses   = 10_000
	maxFlush  = 500
	// flushTime bounds one round; where the store fails the rest waits for the next one.
	flushTime = 5 * time.Second
)

// uses are the keys whose last use is not stored yet.
type uses struct {
	mu      sync.Mutex
	waiting map[string]use // by key
	flush   sync.Mutex     // held while a round is written
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
	s.used(t.People(), e.principal.KeyID)
}

// needs notes which permissions of a key calls need.
func (s *Service) needs(people *store.Workspace, id string) *tenants.Needs {
	return &tenants.Needs{Note: func(p tenants.Permission) { s.used(people, id, p) }}
}

// used notes that a key is used now, for that permission where one is given, unless too many wait to be stored.
func (s *Service) used(people *store.Workspace, id string, needed ...tenants.Permission) {
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	if u, known := s.uses.waiting[id]; known || len(s.uses.waiting) < maxUses {
		s.uses.waiting[id] = use{people, s.now().UnixMilli(), union(u.needed, needed)}
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

// FlushUses stores the last use of keys that wait for it. What the store does not take
// waits on: a last use is for people, and nothing depends on it.
func (s *Service) FlushUses(ctx context.Context) {
	s.uses.flush.Lock()
	defer s.uses.flush.Unlock()
	ctx, cancel := context.WithTimeout(ctx, flushTime)
	defer cancel()
	s.uses.mu.Lock()
	batch := make(map[string]use, min(maxFlush, len(s.uses.waiting)))
	for id, u := range s.uses.waiting {
		if len(batch) == maxFlush {
			break
		}
		batch[id] = u
	}
	s.uses.mu.Unlock()
	for id, u := range batch {
		_, err := s.kinds.Keys.In(u.people).Update(ctx, id, func(k *Key) error {
			if !k.note(u.at, u.needed) {
				return errLater // another replica has it
			}
			return nil
		})
		if err != nil && !errors.Is(err, errLater) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
			return // the store is in trouble: one call a minute is enough
		}
		s.uses.mu.Lock()
		if now := s.uses.waiting[id]; now.at == u.at && len(now.needed) == len(u.needed) {
			delete(s.uses.waiting, id)
		}
		s.uses.mu.Unlock()
	}
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

// Unneeded returns those of the permissions that no call needed since uses are noted, which is said in Unix
// milliseconds; 0: it was not used since.
func (k *Key) Unneeded(held []tenants.Permission) (unneeded []tenants.Permission, since int64) {
	for _, p := range held {
		if !slices.Contains(k.Needed, p) {
			unneeded = append(unneeded, p)
		}
	}
	return unneeded, k.NeededSince
}

// errLater ends an update that would put the last use back.
var errLater = errors.New("used later")
