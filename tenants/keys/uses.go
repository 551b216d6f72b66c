package keys

import (
	"context"
	"errors"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/tenants"
)

// When a key was last used is noted beside requests and stored later: at most once in
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

type use struct {
	tenant *tenants.Tenant
	at     int64 // Unix milliseconds
}

// note remembers that the key of an entry was accepted. It costs the entries of the last
// minute one load.
func (s *Service) note(t *tenants.Tenant, e *entry, now time.Time) {
	minute := now.Unix() / int64(usesEvery/time.Second)
	if before := e.used.Load(); before == minute || !e.used.CompareAndSwap(before, minute) {
		return
	}
	s.uses.mu.Lock()
	defer s.uses.mu.Unlock()
	if _, known := s.uses.waiting[e.principal.KeyID]; known || len(s.uses.waiting) < maxUses {
		s.uses.waiting[e.principal.KeyID] = use{t, now.UnixMilli()}
	}
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
		_, err := s.kinds.Keys.In(u.tenant.People()).Update(ctx, id, func(k *Key) error {
			if k.LastUsed >= u.at {
				return errLater // another replica has it
			}
			k.LastUsed = u.at
			return nil
		})
		if err != nil && !errors.Is(err, errLater) && !errors.Is(err, store.ErrNotFound) && !errors.Is(err, store.ErrConflict) {
			return // the store is in trouble: one call a minute is enough
		}
		s.uses.mu.Lock()
		if s.uses.waiting[id].at == u.at {
			delete(s.uses.waiting, id)
		}
		s.uses.mu.Unlock()
	}
}

// errLater ends an update that would put the last use back.
var errLater = errors.New("used later")
