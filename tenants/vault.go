package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/cache"
)

// reopenAfter is how long an unwrapped data key is cached, which bounds its use after the key that wraps it was
// retired.
const reopenAfter = time.Minute

// DataKeys are an organization's data keys for one purpose. They are immutable.
type DataKeys struct {
	keys    []keyring.DataKey // newest last
	wrapped int               // number of wrapped keys that these were opened from
	opened  time.Time
}

// Current returns the key for encrypting and signing.
func (k *DataKeys) Current() keyring.DataKey { return k.keys[len(k.keys)-1] }

// Version returns the key of that version. It returns false if there is none, or k is nil.
func (k *DataKeys) Version(n int) (keyring.DataKey, bool) {
	if k == nil {
		return keyring.DataKey{}, false
	}
	for _, key := range k.keys {
		if key.Version() == n {
			return key, true
		}
	}
	return keyring.DataKey{}, false
}

type vaultKey struct {
	org     int64
	purpose string
}

// vault caches opened data keys, by organization and purpose.
type vault struct {
	open *cache.Map[int64, map[string]*DataKeys] // by organization; its maps are replaced, never changed
	mu   sync.Mutex                              // held while a map is replaced
}

func (v *vault) get(key vaultKey) *DataKeys {
	byPurpose, _ := v.open.Get(key.org)
	return byPurpose[key.purpose]
}

func (v *vault) put(key vaultKey, keys *DataKeys) {
	v.mu.Lock()
	defer v.mu.Unlock()
	byPurpose, _ := v.open.Get(key.org)
	next := map[string]*DataKeys{}
	maps.Copy(next, byPurpose)
	next[key.purpose] = keys
	v.open.Put(key.org, next)
}

func (v *vault) drop(org int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open.Delete(org)
}

// DataKeys returns the organization's data keys for a purpose, and creates the first one if there is none. Errors:
// keyring.ErrUnknownVersion if the keyring lacks the key that wraps one of them, keyring.ErrCorrupt, ErrUnknownTenant,
// store.ErrUnavailable.
func (d *Directory) DataKeys(ctx context.Context, t *Tenant, purpose string) (*DataKeys, error) {
	key := vaultKey{t.Org.OrgID, purpose}
	if k := d.cachedKeys(key, t.Org.DataKeys[purpose]); k != nil {
		return k, nil
	}
	return d.readKeys(ctx, key, true)
}

// cachedKeys returns the cached keys. It returns nil if they are not cached, lack some of the wrapped ones, or were
// opened too long ago.
func (d *Directory) cachedKeys(key vaultKey, wrapped []string) *DataKeys {
	// Versions are only added, so keys opened from a longer list are at least as new.
	if k := d.vault.get(key); k != nil && k.wrapped >= len(wrapped) {
		if age := d.now().Sub(k.opened); age >= 0 && age < reopenAfter {
			return k
		}
	}
	return nil
}

// tenantKeys returns the keys that the tenant was read with, without reading the store. It returns nil if there are
// none.
func (d *Directory) tenantKeys(t *Tenant, purpose string) (*DataKeys, error) {
	key, wrapped := vaultKey{t.Org.OrgID, purpose}, t.Org.DataKeys[purpose]
	if k := d.cachedKeys(key, wrapped); k != nil || len(wrapped) == 0 {
		return k, nil
	}
	return d.openDataKeys(key, wrapped)
}

// readKeys opens the keys that the store has now. If there are none, it creates the first one if first is set, and
// otherwise returns nil.
func (d *Directory) readKeys(ctx context.Context, key vaultKey, first bool) (*DataKeys, error) {
	for again := false; ; again = true {
		// The tenant may have been read before the first key was created or the keys were rewrapped.
		all, err := d.wrappedKeys(ctx, key.org)
		if err != nil {
			return nil, fmt.Errorf("data keys of organization %d: %w", key.org, err)
		}
		wrapped := all[key.purpose]
		if len(wrapped) == 0 {
			if !first {
				return nil, nil
			}
			if wrapped, err = d.firstDataKey(ctx, key); err != nil {
				return nil, err
			}
		}
		k, err := d.openDataKeys(key, wrapped)
		// Another replica may have wrapped a key under a version that this keyring has not loaded yet, or have retired
		// the version that wrapped the key when it was read.
		if again || !errors.Is(err, keyring.ErrUnknownVersion) || d.keyring.Reload() != nil {
			return k, err
		}
	}
}

func (d *Directory) openDataKeys(key vaultKey, wrapped []string) (*DataKeys, error) {
	k := &DataKeys{wrapped: len(wrapped), opened: d.now()}
	for _, text := range wrapped {
		opened, err := keyring.OpenDataKey(d.keyring, key.org, key.purpose, text)
		if err != nil {
			return nil, err
		}
		k.keys = append(k.keys, opened)
	}
	d.vault.put(key, k)
	return k, nil
}

// reloadKeyring reloads the keyring's file before something is wrapped, because a version that another replica has
// retired would make the result unreadable.
func (d *Directory) reloadKeyring() error {
	// A keyring from the configuration has no file.
	if err := d.keyring.Reload(); err != nil && !errors.Is(err, keyring.ErrReadOnly) {
		return err
	}
	return nil
}

// firstDataKey stores a first data key and returns the list as stored. If several replicas try at once, the first one
// wins and the others use its key.
func (d *Directory) firstDataKey(ctx context.Context, key vaultKey) ([]string, error) {
	if err := d.reloadKeyring(); err != nil {
		return nil, fmt.Errorf("create the data key %q of organization %d: %w", key.purpose, key.org, err)
	}
	_, text, err := keyring.NewDataKey(d.keyring, key.org, key.purpose)
	if err != nil {
		return nil, err
	}
	var wrapped []string
	err = d.changeKeys(ctx, key.org, func(keys map[string][]string) error {
		if wrapped = keys[key.purpose]; len(wrapped) > 0 {
			return errUnchanged
		}
		wrapped = []string{text}
		keys[key.purpose] = wrapped
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return nil, fmt.Errorf("store the data key %q of organization %d: %w", key.purpose, key.org, err)
	}
	return wrapped, nil
}

// errUnchanged ends a change that has nothing to write.
var errUnchanged = errors.New("nothing to change")

// NextDataKey adds a data key to an organization's purpose and returns the keys. Values encrypted with earlier ones
// stay readable. Errors: as DataKeys.
func (d *Directory) NextDataKey(ctx context.Context, t *Tenant, purpose string) (*DataKeys, error) {
	if _, err := d.DataKeys(ctx, t, purpose); err != nil { // creates the first one
		return nil, err
	}
	key := vaultKey{t.Org.OrgID, purpose}
	if err := d.reloadKeyring(); err != nil {
		return nil, fmt.Errorf("add a data key %q to organization %d: %w", purpose, key.org, err)
	}
	var wrapped []string
	err := d.changeKeys(ctx, key.org, func(keys map[string][]string) error {
		present := keys[purpose]
		if len(present) == 0 {
			return ErrUnknownTenant
		}
		newest, err := keyring.OpenDataKey(d.keyring, key.org, purpose, present[len(present)-1])
		if err != nil {
			return err
		}
		_, text, err := keyring.NextDataKey(d.keyring, newest)
		if err != nil {
			return err
		}
		wrapped = append(slices.Clone(present), text)
		keys[purpose] = wrapped
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("add a data key %q to organization %d: %w", purpose, key.org, err)
	}
	return d.openDataKeys(key, wrapped)
}

// Rewrap wraps the data keys of every organization and of the installation under the keyring's primary, and returns how
// many it changed. Once every process has loaded the new keyring, the former versions can be retired. It stops at the
// first error and may be repeated.
func (d *Directory) Rewrap(ctx context.Context) (int, error) {
	if err := d.reloadKeyring(); err != nil {
		return 0, fmt.Errorf("rewrap data keys: %w", err)
	}
	var ids []int64
	own, err := d.wrappedKeys(ctx, ownNumber)
	if err != nil {
		return 0, fmt.Errorf("rewrap data keys: %w", err)
	}
	if len(own) > 0 {
		ids = append(ids, ownNumber)
	}
	err = d.orgs.Each(ctx, store.Filter{}, store.Live, func(o *Organization) error {
		if len(o.DataKeys) > 0 {
			ids = append(ids, o.OrgID)
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("rewrap data keys: %w", err)
	}

	total := 0
	for _, id := range ids {
		n := 0
		err := d.changeKeys(ctx, id, func(keys map[string][]string) error {
			n = 0
			for purpose, texts := range keys {
				texts = slices.Clone(texts)
				keys[purpose] = texts
				for i, text := range texts {
					again, changed, err := keyring.RewrapDataKey(d.keyring, id, purpose, text)
					if err != nil {
						return err
					}
					if changed {
						texts[i] = again
						n++
					}
				}
			}
			if n == 0 {
				return errUnchanged
			}
			return nil
		})
		if errors.Is(err, errUnchanged) || errors.Is(err, ErrUnknownTenant) { // it was erased meanwhile
			continue
		}
		if err != nil {
			return total, fmt.Errorf("rewrap the data keys of organization %d: %w", id, err)
		}
		total += n
	}
	return total, d.rewrapProof(ctx)
}
