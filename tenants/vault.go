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

// reopenAfter bounds how long a data key is used after the key that wraps it was retired.
const reopenAfter = time.Minute

// DataKeys are an organization's data keys for one purpose. Immutable.
type DataKeys struct {
	keys    []keyring.DataKey // the newest last
	wrapped int
	opened  time.Time
}

// Current returns the key to encrypt and sign with.
func (k *DataKeys) Current() keyring.DataKey { return k.keys[len(k.keys)-1] }

// Version returns the key of that version. There is none where k is nil.
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

// vault keeps those that are open, of each organization by purpose.
type vault struct {
	open *cache.Map[int64, map[string]*DataKeys] // by number; a map in it is never changed
	mu   sync.Mutex                              // held to put another in its place
}

func (v *vault) get(key vaultKey) *DataKeys {
	of, _ := v.open.Get(key.org)
	return of[key.purpose]
}

func (v *vault) put(key vaultKey, keys *DataKeys) {
	v.mu.Lock()
	defer v.mu.Unlock()
	of, _ := v.open.Get(key.org)
	more := map[string]*DataKeys{}
	maps.Copy(more, of)
	more[key.purpose] = keys
	v.open.Put(key.org, more)
}

func (v *vault) drop(org int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.open.Delete(org)
}

// DataKeys returns the organization's data keys for a purpose, making the first one
// when it is first asked for. Errors: keyring.ErrUnknownVersion where the keyring lacks
// the key that wraps one, keyring.ErrCorrupt, ErrUnknownTenant, store.ErrUnavailable.
func (d *Directory) DataKeys(ctx context.Context, t *Tenant, purpose string) (*DataKeys, error) {
	key := vaultKey{t.Org.OrgID, purpose}
	if k := d.openKeys(key, t.Org.DataKeys[purpose]); k != nil {
		return k, nil
	}
	return d.readKeys(ctx, key, true)
}

// openKeys returns the keys that are open already, nil where they are not, or not all of
// the wrapped ones, or for too long.
func (d *Directory) openKeys(key vaultKey, wrapped []string) *DataKeys {
	// Versions are only ever added: what was opened from a longer list is no older.
	if k := d.vault.get(key); k != nil && k.wrapped >= len(wrapped) {
		if age := d.now().Sub(k.opened); age >= 0 && age < reopenAfter {
			return k
		}
	}
	return nil
}

// heldKeys returns the keys of which the tenant itself knows, without asking the store: nil
// where it knows of none.
func (d *Directory) heldKeys(t *Tenant, purpose string) (*DataKeys, error) {
	key, wrapped := vaultKey{t.Org.OrgID, purpose}, t.Org.DataKeys[purpose]
	if k := d.openKeys(key, wrapped); k != nil || len(wrapped) == 0 {
		return k, nil
	}
	return d.openDataKeys(key, wrapped)
}

// readKeys opens the keys as the store has them now. Where there is none yet it makes the
// first one, or returns nil where it shall not.
func (d *Directory) readKeys(ctx context.Context, key vaultKey, first bool) (*DataKeys, error) {
	for again := false; ; again = true {
		// The tenant may be from before the first key was made or all were wrapped anew.
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
		// Another replica may have wrapped it under a version that this one has not read
		// yet, or have retired the one it was wrapped under when it was read.
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

// latestKeyring reads the keyring's file again before something is wrapped: what is
// wrapped under a version that another replica has retired could not be read any more.
func (d *Directory) latestKeyring() error {
	if err := d.keyring.Reload(); err != nil && !errors.Is(err, keyring.ErrReadOnly) { // from configuration: there is no file
		return err
	}
	return nil
}

// firstDataKey stores a first data key and returns the list as stored: of several that
// try at once one wins, and the others use the winner's.
func (d *Directory) firstDataKey(ctx context.Context, key vaultKey) ([]string, error) {
	if err := d.latestKeyring(); err != nil {
		return nil, fmt.Errorf("make the data key %q of organization %d: %w", key.purpose, key.org, err)
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

// errUnchanged ends a change that has nothing to do.
var errUnchanged = errors.New("nothing to change")

// NextDataKey adds a data key to an organization's purpose and returns the keys. What
// was encrypted with the earlier ones stays readable. Errors: as DataKeys.
func (d *Directory) NextDataKey(ctx context.Context, t *Tenant, purpose string) (*DataKeys, error) {
	if _, err := d.DataKeys(ctx, t, purpose); err != nil { // makes the first one
		return nil, err
	}
	key := vaultKey{t.Org.OrgID, purpose}
	if err := d.latestKeyring(); err != nil {
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

// Rewrap wraps every organization's data keys, and those of the installation, under the keyring's primary and returns
// how many texts changed. After it, with every process on the new keyring, the former
// versions can be retired. It stops at the first error and may be repeated.
func (d *Directory) Rewrap(ctx context.Context) (int, error) {
	if err := d.latestKeyring(); err != nil {
		return 0, fmt.Errorf("wrap data keys anew: %w", err)
	}
	var ids []int64
	own, err := d.wrappedKeys(ctx, ownNumber)
	if err != nil {
		return 0, fmt.Errorf("wrap data keys anew: %w", err)
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
		return 0, fmt.Errorf("wrap data keys anew: %w", err)
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
			return total, fmt.Errorf("wrap the data keys of organization %d anew: %w", id, err)
		}
		total += n
	}
	return total, d.proveAnew(ctx)
}
